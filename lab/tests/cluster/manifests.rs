//! Claims about the files that users copy.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bps_api::{BackupPodSet, keys};
use bps_core::manifests::{AgentSource, Injection, inject};
use bps_testkit::example::{Example, example};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use lab::hollow::is_ready;
use lab::image::AGENT_IMAGE;
use lab::image::busybox::{busybox_image, nginx_image};
use serde_json::json;

use crate::bench::ROOT;
use crate::notes::note;
use crate::pairs::{can_follow, first_paired, first_reported};
use crate::stage::{ROLES, Stage, uids};
use crate::wait::{self, role};

/// Name of the example of replicated state, and that of its client.
const COUNTER: &str = "counter";
const COUNTER_CLIENT: &str = "counter-client";
/// Numbers that show that the counter goes on.
const NUMBERS: usize = 3;
/// How often something that no watch shows is looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(200);

pub(crate) async fn every_example_is_applied_and_acted_on(stage: Stage) {
    let mut files: Vec<_> = std::fs::read_dir(Path::new(ROOT).join("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in &files {
        stage.kubectl(&["apply", "--server-side", "-f", file.to_str().unwrap()]);
    }
    let api: Api<BackupPodSet> = stage.api();
    for set in api.list(&ListParams::default()).await.unwrap() {
        // Their images cannot be had here: it is enough that every Pod is made and admitted.
        let wanted = set.spec.replicas + set.spec.hot_backups + set.spec.cold_backups;
        let pods = stage
            .pods_where(&set.name_any(), |pods| {
                let known = pods.iter().filter(|pod| ROLES.contains(&role(pod))).count();
                let is_made = known >= usize::try_from(wanted).unwrap();
                if is_made { Ok(()) } else { Err(format!("{}: {known} of {wanted}", set.name_any())) }
            })
            .await;
        assert!(set.spec.replicas == 0 || !uids(&pods, "primary").is_empty());
    }
}

pub(crate) fn path_of(example: &str) -> PathBuf {
    Path::new(ROOT).join("examples").join(example)
}

/// What the comment at the top of an example says, with the agent's image of the lab.
pub(crate) fn apply_with_agent(stage: &Stage, name: &str, group: &str) {
    let text = std::fs::read_to_string(path_of(name)).unwrap();
    let Example { mut documents, arguments } = example(&text);
    let source = AgentSource::Copy { image: AGENT_IMAGE.into() };
    let injection =
        Injection { group: group.into(), source, container: None, image_command: None, arguments };
    for document in documents.iter_mut().filter(|document| document["kind"] == "StatefulSet") {
        let template = &mut document["spec"]["template"];
        *template = inject(template, &injection).unwrap();
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": documents});
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), list.to_string()).unwrap();
    stage.kubectl(&["apply", "-f", file.path().to_str().unwrap()]);
}

pub(crate) async fn the_client_of_the_counter_loses_nothing_when_its_active_is_killed(stage: Stage) {
    stage.bench.load_image(&busybox_image().unwrap());
    apply_with_agent(&stage, "active-standby/counter.yaml", COUNTER);
    let pair = first_paired(&stage).await;
    wait::until(stage.api(), "", |pods: &[Pod]| {
        let client = pods.iter().find(|pod| pod.name_any() == COUNTER_CLIENT).filter(|pod| is_ready(pod));
        client.map(drop).ok_or_else(|| "the client is not ready".to_owned())
    })
    .await;
    acknowledged_more(&stage, 0).await;
    // What was counted before there was a standby was acknowledged without one.
    can_follow(&stage, &pair).await;
    let before = acknowledged_more(&stage, acknowledged(&stage).len()).await;
    let active = stage.api::<Pod>().get(&pair.active).await.unwrap();
    stage.bench.cluster.kill_below_init(&stage.target(&active)).unwrap();
    let after = first_reported(&stage, |seen| !seen.active.is_empty() && seen.active != pair.active).await;
    assert_eq!(after.active, pair.standby);
    let all = acknowledged_more(&stage, acknowledged(&stage).len()).await;
    note(format!("{} numbers before, {} after", before.len(), all.len() - before.len()));
    assert!(
        all.is_sorted_by(|one, next| one.0 < next.0) && all.iter().all(|(_, lost)| *lost == 0),
        "{all:?}"
    );
}

/// Waits until the client of the counter was told so many numbers and some more; returns them.
async fn acknowledged_more(stage: &Stage, known: usize) -> Vec<(u64, u64)> {
    let told = async {
        loop {
            let numbers = acknowledged(stage);
            if numbers.len() >= known + NUMBERS {
                return numbers;
            }
            tokio::time::sleep(LOOK_PERIOD).await;
        }
    };
    tokio::time::timeout(wait::LIMIT, told).await.expect("it counts")
}

/// The numbers that the client of the counter was told, each with how many were lost until then.
fn acknowledged(stage: &Stage) -> Vec<(u64, u64)> {
    let log = stage.kubectl(&["logs", COUNTER_CLIENT]);
    let line = |line: &str| {
        let (number, lost) = line.strip_suffix(" lost")?.split_once(" acknowledged, ")?;
        Some((number.parse().ok()?, lost.parse().ok()?))
    };
    log.lines().filter_map(line).collect()
}

/// Brings the image that paired sets of the examples ask for: whatever its nginx is told, it is the stand-in application.
pub(crate) fn bring_nginx(stage: &Stage) {
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), "#!/bin/sh\nexec /lab-app\n").unwrap();
    stage.bench.load_image(&nginx_image((script.path(), &stage.bench.app)).unwrap());
}

pub(crate) async fn the_example_of_a_paired_set_serves_before_and_after_an_active_is_killed(stage: Stage) {
    bring_nginx(&stage);
    let (name, counts) = ("pairs", [2, 2, 1]);
    stage.kubectl(&["apply", "-f", path_of("active-standby/set.yaml").to_str().unwrap()]);
    stage.settled(name, counts).await;
    let pair = first_paired(&stage).await;
    answered(&stage, name).await;
    let active = stage.api::<Pod>().get(&pair.active).await.unwrap();
    stage.bench.cluster.kill_below_init(&stage.target(&active)).unwrap();
    let heir = |pods: &[Pod]| {
        let heir = pods.iter().find(|pod| pod.name_any() == pair.standby).ok_or("no standby")?;
        let part = heir.labels().get(keys::LABEL_HA_STATE).map(String::as_str);
        let is_right = role(heir) == "primary" && part == Some("active");
        if is_right { Ok(()) } else { Err(format!("it is {} and {part:?}", role(heir))) }
    };
    stage.pods_where(name, heir).await;
    stage.settled(name, counts).await;
    answered(&stage, name).await;
}

/// Waits until a Service answers with success.
async fn answered(stage: &Stage, name: &str) {
    let service = stage.api::<Service>().get(name).await.unwrap();
    let address = service.spec.and_then(|spec| spec.cluster_ip).unwrap();
    let script = format!("exec 3<>/dev/tcp/{address}/80 && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && cat <&3");
    let asked = async {
        loop {
            let mut command = stage.bench.cluster.command_in("n1", "timeout").unwrap();
            command.args(["1", "bash", "-c", &script]).stderr(Stdio::null());
            let answer = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
            if String::from_utf8_lossy(&answer.stdout).starts_with("HTTP/1.1 200") {
                return;
            }
            tokio::time::sleep(LOOK_PERIOD).await;
        }
    };
    tokio::time::timeout(wait::LIMIT, asked).await.expect("the Service answers");
}
