//! Claims about standbys that keep the state of several actives (`activeStandby.standbyFor`).

use std::process::Stdio;
use std::time::Duration;

use bps_api::{HAGroup, IN_SYNC, PairStatus, Takeover};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::stage::{Counts, PORT, Stage, WEB, web};
use crate::wait;

/// Two actives with one standby, and a cold backup that takes its places.
const COUNTS: Counts = [2, 1, 1];
/// Node from which the actives are asked.
const CLIENT_NODE: &str = "n1";
/// How often an active is asked whose answer does not come at once.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// A set of counters whose state is replicated; the application finds its own in the folder `active`.
async fn start(stage: &Stage) {
    let mut set = web(COUNTS);
    let spec = &mut set["spec"];
    spec["redundancyModel"] = json!("NPlusM");
    spec["activeStandby"] = json!({"stateDir": "/state", "standbyFor": 2});
    let pod = &mut spec["template"]["spec"];
    pod["volumes"] = json!([{"name": "state", "emptyDir": {}}]);
    let container = &mut pod["containers"][0];
    container["command"] =
        json!(["/lab-app", "counter", "--state", "/state/active", "--port", PORT.to_string()]);
    container.as_object_mut().expect("a container").remove("readinessProbe");
    container["volumeMounts"] = json!([{"name": "state", "mountPath": "/state"}]);
    stage.apply(&set).await;
}

/// The pairs of the set once they are so.
pub(crate) async fn pairs_where(stage: &Stage, is_so: impl Fn(&[PairStatus]) -> bool) -> Vec<PairStatus> {
    wait::until(stage.api(), "", |groups: &[HAGroup]| {
        let status = groups.iter().find_map(|group| group.status.clone()).ok_or("there is no status")?;
        if is_so(&status.pairs) { Ok(status.pairs) } else { Err(format!("pairs are {:?}", status.pairs)) }
    })
    .await
}

/// Whether both pairs have an active, and one standby that has everything of both.
pub(crate) fn are_followed(pairs: &[PairStatus]) -> bool {
    let is_whole = |pair: &PairStatus| {
        pair.state == "Paired" && pair.sync == IN_SYNC && !pair.active.is_empty() && !pair.standby.is_empty()
    };
    pairs.len() == 2 && pairs.iter().all(is_whole) && pairs[0].standby == pairs[1].standby
}

/// What a Pod's counter answers to this line, read by this command; nothing if it does not.
async fn ask(stage: &Stage, pod: &str, line: &str, reader: &str) -> String {
    let pod = stage.api::<Pod>().get(pod).await.ok();
    let Some(address) = pod.and_then(|pod| pod.status?.pod_ip) else { return String::new() };
    let script = format!("exec 3<>/dev/tcp/{address}/{PORT} && echo '{line}' >&3 && {reader} <&3");
    let mut command = stage.bench.cluster.command_in(CLIENT_NODE, "timeout").unwrap();
    command.args(["1", "bash", "-c", &script]).stderr(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Has the counter of a Pod acknowledge an increment. One whose answer was lost may be there twice.
async fn add(stage: &Stage, pod: &str, id: &str) {
    let acknowledged = async {
        // The counter leaves the connection open.
        while !ask(stage, pod, &format!("add {id}"), "head -n 1").await.starts_with(id) {
            tokio::time::sleep(LOOK_PERIOD).await;
        }
    };
    tokio::time::timeout(wait::LIMIT, acknowledged).await.expect("the increment is acknowledged");
}

/// Waits until the counter of a Pod answers; returns the increments that it has, each once.
async fn listed(stage: &Stage, pod: &str) -> Vec<String> {
    let answered = async {
        loop {
            let answer = ask(stage, pod, "list", "cat").await;
            let mut ids: Vec<String> =
                answer.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect();
            ids.dedup();
            if !ids.is_empty() {
                break ids;
            }
            tokio::time::sleep(LOOK_PERIOD).await;
        }
    };
    tokio::time::timeout(wait::LIMIT, answered).await.expect("the counter answers")
}

pub(crate) async fn a_standby_of_two_actives_takes_one_over_and_another_pod_takes_its_other_place(
    stage: Stage,
) {
    start(&stage).await;
    let first = pairs_where(&stage, are_followed).await;
    stage.settled(WEB, COUNTS).await;
    let (lost, other, standby) = (&first[0].active, &first[1].active, &first[0].standby);
    add(&stage, lost, "of-the-lost").await;
    add(&stage, other, "of-the-other").await;

    stage.api::<Pod>().delete(lost, &DeleteParams::default()).await.unwrap();
    let taken = pairs_where(&stage, |pairs| pairs.iter().any(|pair| pair.active == *standby)).await;
    let acts = |pair: &&PairStatus| pair.name == first[0].name;
    assert_eq!(taken.iter().find(acts).map(|pair| &pair.active), Some(standby), "{taken:?}");
    assert_eq!(listed(&stage, standby).await, ["of-the-lost"]);
    assert_eq!(listed(&stage, other).await, ["of-the-other"]);

    let second = pairs_where(&stage, are_followed).await;
    let successor = &second[0].standby;
    assert!(![standby, other].contains(&successor), "{second:?}");
    stage.settled(WEB, COUNTS).await;
    add(&stage, other, "once-more").await;
    stage.api::<Pod>().delete(other, &DeleteParams::default()).await.unwrap();
    pairs_where(&stage, |pairs| pairs.iter().any(|pair| pair.active == *successor)).await;
    assert_eq!(listed(&stage, successor).await, ["of-the-other", "once-more"]);
    assert_eq!(listed(&stage, standby).await, ["of-the-lost"]);
    pairs_where(&stage, are_followed).await;
    stage.settled(WEB, COUNTS).await;
}

/// The standby has the only copy of both states, and can act with one of them at first.
pub(crate) async fn two_actives_of_one_standby_are_lost_at_once_and_both_serve_again_with_their_state(
    stage: Stage,
) {
    start(&stage).await;
    let before = pairs_where(&stage, are_followed).await;
    stage.settled(WEB, COUNTS).await;
    for (pair, id) in before.iter().zip(["of-pair-0", "of-pair-1"]) {
        add(&stage, &pair.active, id).await;
    }
    let by_force = DeleteParams::default().grace_period(0);
    for pair in &before {
        stage.api::<Pod>().delete(&pair.active, &by_force).await.unwrap();
    }
    let lost: Vec<&str> = before.iter().map(|pair| pair.active.as_str()).collect();

    let after = pairs_where(&stage, |pairs| are_followed(pairs) && !lost.contains(&&*pairs[0].active)).await;
    for (pair, id) in after.iter().zip(["of-pair-0", "of-pair-1"]) {
        assert_eq!(listed(&stage, &pair.active).await, [id], "{pair:?}");
    }
    // It acted for one, and handed over to act for the other.
    let groups = stage.api::<HAGroup>().list(&ListParams::default()).await.unwrap();
    let status = groups.items.into_iter().find_map(|group| group.status).expect("a status");
    let is_its = |takeover: &&Takeover| takeover.from == before[0].standby && takeover.reason == "SwitchOver";
    assert!(status.takeovers.iter().any(|takeover| is_its(&takeover)), "{:?}", status.takeovers);
    stage.settled(WEB, COUNTS).await;
}
