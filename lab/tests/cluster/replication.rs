//! The claim about replicated state: a counter whose clients are told of an increment only after a barrier.

use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bps_api::{ConditionStatus, HAGroup, PairStatus, keys};
use bps_core::manifests::{AgentSource, Injection, inject};
use bps_wire::level::DirectoryId;
use bps_wire::level::Level;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Pod, Service};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use lab::image::{AGENT_IMAGE, APP_IMAGE};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::notes::note;
use crate::pairs::{first_paired, first_reported, order_switchover, record_of};
use crate::stage::{PORT, Stage};
use crate::wait;
use crate::workloads::roll_out;

/// Name of the group, its Service and its StatefulSet.
const NAME: &str = "counter";
/// Node that the clients are on.
const CLIENT_NODE: &str = "n1";
/// A client ends by itself after this, whatever becomes of the claim.
const CLIENT_SECONDS_MAX: u32 = 300;
/// How often something that no watch shows is looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// Increments that show that the counter goes on.
const INCREMENTS: usize = 20;

/// How long a state directory lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// As long as its Pod.
    WithPods,
    /// Longer: the next Pod of that name finds it again.
    InVolumes,
}

/// What is broken, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    ApplicationKilled,
    ContainerKilled,
    ActiveDeleted,
    SwitchedOver,
}

const BLOWS: [Blow; 8] = [
    Blow::ApplicationKilled,
    Blow::ContainerKilled,
    Blow::ActiveDeleted,
    Blow::SwitchedOver,
    Blow::ApplicationKilled,
    Blow::ContainerKilled,
    Blow::ActiveDeleted,
    Blow::SwitchedOver,
];

pub(crate) async fn a_counter_with_replicated_state_loses_no_acknowledged_increment(stage: Stage) {
    start(&stage, Keeping::WithPods).await;
    let mut pair = first_paired(&stage).await;
    let mut names = level(&stage, &pair, |names| names.len() == 2).await;
    let client = start_client(&stage).await;
    for blow in BLOWS {
        counts_on(&stage).await;
        let struck = Instant::now();
        strike(&stage, &pair, blow).await;
        let after =
            first_reported(&stage, |seen| !seen.active.is_empty() && seen.active != pair.active).await;
        assert_eq!(after.active, pair.standby, "{blow:?}");
        counts_on(&stage).await;
        note(format!("{blow:?}: it counts again after {} ms at most", struck.elapsed().as_millis()));
        pair = first_paired(&stage).await;
        // A Pod that takes the place of a deleted one has another directory, which must be level before the next blow.
        let is_new = |now: &BTreeSet<_>| blow != Blow::ActiveDeleted || *now != names;
        names = level(&stage, &pair, |now| now.len() == 2 && is_new(now)).await;
    }
    pair = without_a_standby(&stage, pair).await;
    // What is acknowledged from here on is in one directory only.
    level(&stage, &pair, |names| names.len() == 2).await;
    let (standby, _) = leave_out(&stage, &pair).await;
    nothing_is_lost(&stage, client).await;
    let tenures: BTreeSet<u64> = listed(&stage).await.into_iter().map(|(_, epoch)| epoch).collect();
    assert!(tenures.len() > BLOWS.len(), "{tenures:?} with {pair:?}");
    nobody_may_act_without_the_only_copy(&stage, &pair, &standby).await;
}

pub(crate) async fn a_rollout_of_a_replicated_counter_loses_no_acknowledged_increment(stage: Stage) {
    start(&stage, Keeping::WithPods).await;
    let pair = first_paired(&stage).await;
    let before = level(&stage, &pair, |names| names.len() == 2).await;
    let client = start_client(&stage).await;
    counts_on(&stage).await;
    // Each Pod takes its directory along, so the second must not go before the first one's successor has everything.
    roll_out(&stage, "statefulset", NAME).await;
    let pair = first_paired(&stage).await;
    level(&stage, &pair, |names| names.len() == 2 && names.is_disjoint(&before)).await;
    counts_on(&stage).await;
    nothing_is_lost(&stage, client).await;
}

/// The StatefulSet would delete the Pod with the highest number first, whatever the other one lacks.
pub(crate) async fn a_rollout_takes_no_active_away_before_its_standby_has_everything(stage: Stage) {
    start(&stage, Keeping::WithPods).await;
    let mut pair = first_paired(&stage).await;
    level(&stage, &pair, |names| names.len() == 2).await;
    let last = format!("{NAME}-1");
    if pair.active != last {
        order_switchover(&stage, &pair).await;
        first_reported(&stage, |seen| seen.active == last).await;
        pair = first_paired(&stage).await;
        level(&stage, &pair, |names| names.len() == 2).await;
    }
    let client = start_client(&stage).await;
    // It was kept before its standby had everything, too; the operator may tell later than the Lease that this is over.
    kept(&stage, &last, false).await;
    let (standby, _) = leave_out(&stage, &pair).await;
    let active = kept(&stage, &last, true).await;

    stage.kubectl(&["rollout", "restart", "statefulset", NAME]);
    let refused = wait::until(stage.api(), "", |events: &[Event]| {
        let mut messages = events.iter().filter_map(|event| event.message.clone());
        let is_refusal = |message: &String| message.contains("no other Pod could act in its place");
        messages.find(is_refusal).ok_or("no deletion was refused".to_owned())
    })
    .await;
    note(refused);
    counts_on(&stage).await;
    // Nobody acts for a moment, and the controller hears of each change of the Pod.
    strike(&stage, &pair, Blow::ApplicationKilled).await;
    counts_on(&stage).await;
    let now = stage.api::<Pod>().get(&last).await.unwrap();
    assert_eq!((now.uid(), now.metadata.deletion_timestamp), (active.uid(), None), "it acts on");

    stage.bench.cluster.resume(&stage.target(&standby)).unwrap();
    for before in [&active, &standby] {
        is_gone(&stage, before).await;
    }
    let pair = first_paired(&stage).await;
    level(&stage, &pair, |names| names.len() == 2).await;
    counts_on(&stage).await;
    nothing_is_lost(&stage, client).await;
}

/// A Pod of this name once it says that controllers leave it alone, or says so no longer.
async fn kept(stage: &Stage, name: &str, is_kept: bool) -> Pod {
    wait::until(stage.api(), "", |pods: &[Pod]| {
        let is_right = |pod: &&Pod| pod.annotations().contains_key(keys::ANNOTATION_HA_KEPT) == is_kept;
        let pod = pods.iter().find(|pod| pod.name_any() == name).filter(is_right);
        pod.cloned().ok_or(format!("{name} is not as it should be: kept: {is_kept}"))
    })
    .await
}

/// The standby is away for a while, comes back, and takes over.
async fn without_a_standby(stage: &Stage, pair: PairStatus) -> PairStatus {
    let (standby, alone) = leave_out(stage, &pair).await;
    counts_on(stage).await;
    let behind = first_reported(stage, |seen| seen.lag.is_some()).await;
    let lag = behind.lag.expect("it was waited for");
    assert_eq!((behind.sync.as_str(), lag.entries > 0, lag.bytes > 0), ("CatchingUp", true, true), "{lag:?}");
    stage.bench.cluster.resume(&stage.target(&standby)).unwrap();
    level(stage, &pair, |names| names.len() == 2 && names.is_superset(&alone)).await;
    let caught_up = first_reported(stage, |seen| seen.sync == "InSync").await;
    assert_eq!(caught_up.lag, None);
    strike(stage, &pair, Blow::ApplicationKilled).await;
    let after = first_reported(stage, |seen| !seen.active.is_empty() && seen.active != pair.active).await;
    assert_eq!(after.active, pair.standby);
    counts_on(stage).await;
    after
}

/// Freezes the standby, and waits until the Lease names it no more.
pub(crate) async fn leave_out(stage: &Stage, pair: &PairStatus) -> (Pod, BTreeSet<DirectoryId>) {
    let standby = stage.api::<Pod>().get(&pair.standby).await.unwrap();
    stage.bench.cluster.pause(&stage.target(&standby)).unwrap();
    counts_on(stage).await;
    (standby, level(stage, pair, |names| names.len() == 1).await)
}

/// The only Pod that has everything is deleted with its directory; a person decides to do without.
async fn nobody_may_act_without_the_only_copy(stage: &Stage, pair: &PairStatus, standby: &Pod) {
    let lost = stage.api::<Pod>().get(&pair.active).await.unwrap();
    stage.api::<Pod>().delete(&pair.active, &DeleteParams::default()).await.unwrap();
    is_gone(stage, &lost).await;
    stage.bench.cluster.resume(&stage.target(standby)).unwrap();
    let withheld = first_reported(stage, |seen| seen.state == "Withheld").await;
    assert_eq!(withheld.active, "");
    is_withheld(stage, ConditionStatus::True).await;
    let remove = json!({"metadata": {"annotations": {(keys::ANNOTATION_HA_IN_SYNC): null}}});
    stage.api::<Lease>().patch(&pair.name, &PatchParams::default(), &Patch::Merge(remove)).await.unwrap();
    first_paired(stage).await;
    is_withheld(stage, ConditionStatus::False).await;
}

/// Waits until there is no such Pod any more, though maybe another one of its name.
pub(crate) async fn is_gone(stage: &Stage, before: &Pod) {
    wait::until(stage.api(), "", |pods: &[Pod]| {
        let is_there = pods.iter().any(|pod| pod.metadata.uid == before.metadata.uid);
        if is_there { Err(format!("{} is still there", before.name_any())) } else { Ok(()) }
    })
    .await;
}

async fn is_withheld(stage: &Stage, expected: ConditionStatus) {
    wait::until(stage.api(), "", |groups: &[HAGroup]| {
        let mut conditions =
            groups.iter().filter_map(|group| group.status.as_ref()).flat_map(|status| &status.conditions);
        let withheld = conditions.find(|condition| condition.r#type == "Withheld");
        let is_right = withheld.is_some_and(|withheld| withheld.status == expected);
        if is_right { Ok(()) } else { Err(format!("{withheld:?}")) }
    })
    .await;
}

pub(crate) async fn start(stage: &Stage, keeping: Keeping) {
    let params = PatchParams::apply("claims").force();
    let group = json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup", "metadata": {"name": NAME},
        "spec": {"service": {"name": NAME, "ports": [{"port": 80, "targetPort": PORT}]}},
    });
    stage.api::<HAGroup>().patch(NAME, &params, &Patch::Apply(group)).await.unwrap();
    let mut template = json!({
        "metadata": {"labels": {"app": NAME}},
        "spec": {
            "terminationGracePeriodSeconds": 10,
            "containers": [{
                "name": NAME, "image": APP_IMAGE, "ports": [{"containerPort": PORT}],
                "command": ["/lab-app", "counter", "--state", "/state", "--port", PORT.to_string()],
                "volumeMounts": [{"name": "state", "mountPath": "/state"}],
            }],
        },
    });
    let (volumes, claims) = match keeping {
        Keeping::WithPods => (json!([{"name": "state", "emptyDir": {}}]), json!([])),
        Keeping::InVolumes => (json!([]), json!([volume_claim()])),
    };
    template["spec"]["volumes"] = volumes;
    let arguments = vec!["--replicate=/state".to_owned()];
    let source = AgentSource::Copy { image: AGENT_IMAGE.into() };
    let injection = Injection { group: NAME.into(), source, container: None, image_command: None, arguments };
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": NAME},
        "spec": {
            "replicas": 2, "serviceName": NAME, "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": NAME}},
            "template": inject(&template, &injection).unwrap(),
            "volumeClaimTemplates": claims,
        },
    });
    stage.api::<StatefulSet>().patch(NAME, &params, &Patch::Apply(set)).await.unwrap();
}

fn volume_claim() -> Value {
    json!({
        "metadata": {"name": "state"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    })
}

async fn strike(stage: &Stage, pair: &PairStatus, blow: Blow) {
    let active = &pair.active;
    let pods: Api<Pod> = stage.api();
    let target = stage.target(&pods.get(active).await.unwrap());
    match blow {
        Blow::ApplicationKilled => drop(stage.bench.cluster.kill_below_init(&target).unwrap()),
        Blow::ContainerKilled => drop(stage.bench.cluster.kill_container(&target).unwrap()),
        Blow::ActiveDeleted => drop(pods.delete(active, &DeleteParams::default()).await.unwrap()),
        Blow::SwitchedOver => order_switchover(stage, pair).await,
    }
}

/// Waits until the Lease says what it should of the directories.
pub(crate) async fn level(
    stage: &Stage,
    pair: &PairStatus,
    is_right: impl Fn(&BTreeSet<DirectoryId>) -> bool,
) -> BTreeSet<DirectoryId> {
    wait::until(stage.api(), "", |leases: &[Lease]| {
        let Level::Only(names) = record_of(leases, pair)?.level else {
            return Err("nobody is level".to_owned());
        };
        if is_right(&names) { Ok(names) } else { Err(format!("{} directories are level", names.len())) }
    })
    .await
}

async fn address(stage: &Stage) -> String {
    wait::until(stage.api(), "", |services: &[Service]| {
        let service = services.iter().find(|service| service.metadata.name.as_deref() == Some(NAME));
        let address = service.and_then(|service| service.spec.as_ref()?.cluster_ip.clone());
        address.ok_or_else(|| "there is no Service".to_owned())
    })
    .await
}

/// Every increment that the counter has, with its epoch; none while nobody answers.
async fn listed(stage: &Stage) -> Vec<(String, u64)> {
    let script = format!("exec 3<>/dev/tcp/{}/80 && echo list >&3 && cat <&3", address(stage).await);
    let mut command = stage.bench.cluster.command_in(CLIENT_NODE, "timeout").unwrap();
    command.args(["5", "bash", "-c", &script]).stderr(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let (id, epoch) = line.split_once(' ')?;
        Some((id.to_owned(), epoch.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// Waits until the counter has some more increments.
pub(crate) async fn counts_on(stage: &Stage) {
    let counted = async {
        let mut before = 0;
        while before == 0 {
            before = listed(stage).await.len();
        }
        while listed(stage).await.len() < before + INCREMENTS {
            tokio::time::sleep(LOOK_PERIOD).await;
        }
    };
    tokio::time::timeout(wait::LIMIT, counted).await.expect("the counter goes on");
}

pub(crate) async fn start_client(stage: &Stage) -> Child {
    let target = format!("{}:80", address(stage).await);
    let mut command = stage.bench.cluster.command_in(CLIENT_NODE, stage.bench.app.to_str().unwrap()).unwrap();
    command.args(["counter-client", "--target", &target, "--interval-ms", "20"]);
    command.args(["--duration-s", &CLIENT_SECONDS_MAX.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Ends a client: the counter still has every increment that it was told of, those of each tenure after those of the one
/// before.
pub(crate) async fn nothing_is_lost(stage: &Stage, client: Child) {
    let summary = tokio::task::spawn_blocking(|| stop(client)).await.unwrap();
    for line in &summary {
        note(line.clone());
    }
    assert!(summary.iter().any(|line| line.ends_with(" lost=0")), "{summary:?}");
    let epochs: Vec<u64> = listed(stage).await.iter().map(|(_, epoch)| *epoch).collect();
    assert!(!epochs.is_empty() && epochs.is_sorted(), "{epochs:?}");
}

/// The last lines of a client.
fn stop(client: Child) -> Vec<String> {
    // It may have ended by itself.
    let _: Result<(), Errno> = kill_process(Pid::from_child(&client), Signal::TERM);
    let output = client.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| line.starts_with('#')).map(str::to_owned).collect()
}
