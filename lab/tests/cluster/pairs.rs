//! Claims about pairs: who acts, who takes over, and that never two act.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bps_api::{CrashLoop, HAGroup, PAIR_CRASH_LOOPING, PAIR_SILENT, PairStatus, Takeover, keys};
use bps_core::manifests::{AgentSource, Injection, REPLICATION_SERVICE_PREFIX, inject};
use bps_protocol::Hold;
use bps_wire::crash_loop::LINE_CHARS_MAX;
use bps_wire::lease::Record;
use bps_wire::level::Level;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use lab::app::arguments::{SINK_VARIABLE, USAGE};
use lab::app::outage::spells;
use lab::app::sample::Sample;
use lab::app::{FINISH_WITHIN, Outage, Outcome};
use lab::bench::pairs::trial::PROXY_WITHIN;
use lab::image::{AGENT_IMAGE, APP_IMAGE};
use lab::ready;
use serde_json::value::from_value;
use serde_json::{Value, json};

use crate::load::Load;
use crate::notes::note;
use crate::stage::{PORT, Stage, WEB, node};
use crate::wait;

/// A node with clients beside those of the first one.
const BESIDE: &str = "n2";

/// How long it may take until the kubelets of Pods that were deleted by force have worked for 90 s and a grace period of 5 s, with
/// some looks 20 s apart, and as long again if one of them was busy meanwhile.
const KUBELETS_KNOW_WITHIN: Duration = Duration::from_secs(300);

/// The group `web` with its Service, and with replication Services.
fn group() -> Value {
    json!({
        "apiVersion": "backup.example.com/v1alpha1",
        "kind": "HAGroup",
        "metadata": {"name": WEB},
        "spec": {
            "service": {"name": WEB, "ports": [{"name": "http", "port": 80, "targetPort": PORT}]},
            "replicationPorts": [{"port": 7000}],
        },
    })
}

/// A workload of the stand-in application with an agent; it takes so long to start, answers what it has taken, and ends.
fn workload(kind: &str, replicas: usize, listens_after: Duration) -> Value {
    // What an application cuts that it has taken is lost, however late the client's node leads elsewhere.
    let finish = FINISH_WITHIN.as_millis().to_string();
    let start = listens_after.as_millis().to_string();
    let arguments = ["--finish-ms", &finish, "--listen-after-ms", &start];
    workload_with(kind, replicas, &arguments, Duration::from_secs(5))
}

/// The same with these arguments of the application, whose Pod has so long to end.
fn workload_with(kind: &str, replicas: usize, arguments: &[&str], grace: Duration) -> Value {
    let port = PORT.to_string();
    let arguments: Vec<&str> = ["--port", &port].into_iter().chain(arguments.iter().copied()).collect();
    let container = json!({
        "name": WEB, "image": APP_IMAGE, "command": ["/lab-app"], "args": arguments,
        "ports": [{"containerPort": PORT}], "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    let template = json!({
        "metadata": {"labels": {"app": WEB}},
        "spec": {"terminationGracePeriodSeconds": grace.as_secs(), "containers": [container]},
    });
    let source = AgentSource::Copy { image: AGENT_IMAGE.into() };
    // Claims kill it more often than anybody would.
    let arguments = vec!["--restart-pause-max=1".to_owned()];
    let injection = Injection { group: WEB.into(), source, container: None, image_command: None, arguments };
    let mut spec = json!({
        "replicas": replicas,
        "selector": {"matchLabels": {"app": WEB}},
        "template": inject(&template, &injection).unwrap(),
    });
    if kind == "StatefulSet" {
        spec["serviceName"] = json!(WEB);
    }
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": WEB}, "spec": spec})
}

fn params() -> PatchParams {
    PatchParams::apply("claims").force()
}

pub(crate) async fn start_stateful_set(stage: &Stage, replicas: usize) {
    start_slow_stateful_set(stage, replicas, Duration::ZERO).await;
}

async fn start_slow_stateful_set(stage: &Stage, replicas: usize, listens_after: Duration) {
    stage.starts(replicas);
    apply_stateful_set(stage, workload("StatefulSet", replicas, listens_after)).await;
}

/// One whose application tells a sink of each answer.
pub(crate) async fn start_watched_stateful_set(stage: &Stage, replicas: usize, sink: SocketAddr) {
    apply_stateful_set(stage, watched(workload("StatefulSet", replicas, Duration::ZERO), sink)).await;
}

/// This workload, whose application tells a sink of each answer.
fn watched(mut set: Value, sink: SocketAddr) -> Value {
    let environment = &mut set["spec"]["template"]["spec"]["containers"][0]["env"];
    let sink = json!({"name": SINK_VARIABLE, "value": sink.to_string()});
    environment.as_array_mut().expect("the agent's variables").push(sink);
    set
}

/// The same in a group whose pairs outlive no API server that is away.
pub(crate) async fn start_impatient_stateful_set(stage: &Stage, replicas: usize, sink: SocketAddr) {
    let set = watched(workload("StatefulSet", replicas, Duration::ZERO), sink);
    apply_with_times(stage, json!({"apiOutageSeconds": 0}), set).await;
}

/// One whose containers sleep for so many seconds before they are asked to end.
pub(crate) async fn start_sleeping_stateful_set(stage: &Stage, replicas: usize, seconds: u32) {
    let mut set = workload("StatefulSet", replicas, Duration::ZERO);
    set["spec"]["template"]["spec"]["containers"][0]["lifecycle"] =
        json!({"preStop": {"sleep": {"seconds": seconds}}});
    apply_stateful_set(stage, set).await;
}

async fn apply_stateful_set(stage: &Stage, set: Value) {
    apply_with_times(stage, json!({}), set).await;
}

async fn apply_with_times(stage: &Stage, timing: Value, set: Value) {
    let mut group = group();
    group["spec"]["timing"] = timing;
    stage.api::<HAGroup>().patch(WEB, &params(), &Patch::Apply(group)).await.unwrap();
    let sets: Api<StatefulSet> = stage.api();
    sets.patch(WEB, &params(), &Patch::Apply(set)).await.unwrap();
}

pub(crate) async fn start_deployment(stage: &Stage, replicas: usize) {
    stage.starts(replicas);
    stage.api::<HAGroup>().patch(WEB, &params(), &Patch::Apply(group())).await.unwrap();
    let deployments: Api<Deployment> = stage.api();
    deployments
        .patch(WEB, &params(), &Patch::Apply(workload("Deployment", replicas, Duration::ZERO)))
        .await
        .unwrap();
}

/// Pods that belong to no workload: who is deleted is not replaced.
pub(crate) async fn start_lone_pods(stage: &Stage, count: usize) {
    stage.starts(count);
    stage.api::<HAGroup>().patch(WEB, &params(), &Patch::Apply(group())).await.unwrap();
    let template = workload("Deployment", count, Duration::ZERO)["spec"]["template"].take();
    for number in 0..count {
        let mut pod = template.clone();
        pod["metadata"]["name"] = json!(format!("{WEB}-{number}"));
        let pod: Pod = from_value(pod).unwrap();
        stage.api().create(&PostParams::default(), &pod).await.unwrap();
    }
}

/// The same on these nodes, one each, in a group with this topology.
pub(crate) async fn start_pods_on(stage: &Stage, nodes: &[&str], topology: Value) {
    let mut group = group();
    group["spec"]["topology"] = topology;
    stage.api::<HAGroup>().patch(WEB, &params(), &Patch::Apply(group)).await.unwrap();
    for (number, node) in nodes.iter().enumerate() {
        start_pod_on(stage, node, number).await;
    }
}

/// A Pod of the group with this number, on a node.
pub(crate) async fn start_pod_on(stage: &Stage, node: &str, number: usize) {
    stage.starts(1);
    let mut pod = workload("Deployment", 1, Duration::ZERO)["spec"]["template"].take();
    pod["metadata"]["name"] = json!(format!("{WEB}-{number}"));
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    let pod: Pod = from_value(pod).unwrap();
    stage.api().create(&PostParams::default(), &pod).await.unwrap();
}

/// Waits until the group reports so many pairs, each with an active and a standby that can follow it; returns them.
pub(crate) async fn paired(stage: &Stage, pairs: usize) -> Vec<PairStatus> {
    let pairs = reported(stage, |pairs_seen| {
        pairs_seen.len() == pairs && pairs_seen.iter().all(|pair| pair.state == "Paired")
    })
    .await;
    for pair in &pairs {
        can_follow(stage, pair).await;
    }
    pairs
}

/// Reads the Lease of a pair, for a wait.
pub(crate) fn record_of(leases: &[Lease], pair: &PairStatus) -> Result<Record, String> {
    let lease = leases.iter().find(|lease| lease.name_any() == pair.name).ok_or("there is no Lease")?;
    Record::read(lease).map_err(|error| error.to_string())
}

/// Waits until the active of a pair has heard its standby, which has all of its state.
///
/// One that was never heard, or lacks something, does not act: the application is started again where it was.
pub(crate) async fn can_follow(stage: &Stage, pair: &PairStatus) {
    wait::until(stage.api(), "", |leases: &[Lease]| {
        let record = record_of(leases, pair)?;
        let is_promised = record.lease.hold == Hold::Peer;
        let is_behind = matches!(&record.level, Level::Only(directories) if directories.len() < 2);
        if is_promised && !is_behind { Ok(()) } else { Err(format!("{record:?}")) }
    })
    .await;
}

pub(crate) async fn reported(stage: &Stage, is_right: impl Fn(&[PairStatus]) -> bool) -> Vec<PairStatus> {
    wait::until(stage.api(), "", |groups: &[HAGroup]| {
        let group = groups.iter().find(|group| group.name_any() == WEB).ok_or("there is no such group")?;
        let status = group.status.clone().unwrap_or_default();
        if is_right(&status.pairs) { Ok(status.pairs) } else { Err(format!("status is {status:?}")) }
    })
    .await
}

/// Waits until the labels of Pods show this pair, and the Service leads to its active alone.
pub(crate) async fn shown(stage: &Stage, pair: &PairStatus) {
    let pods = wait::until(stage.api(), &format!("{}={WEB}", keys::LABEL_GROUP), |pods: &[Pod]| {
        let is_shown = |name: &str, state: &str, peer: &str| {
            pods.iter().any(|pod| {
                let label = |key: &str| pod.labels().get(key).map(String::as_str);
                let states = [keys::LABEL_PAIR_STATE, keys::LABEL_HA_STATE].map(label);
                let peers = [keys::LABEL_PAIR_PEER, keys::LABEL_PEER].map(label);
                pod.name_any() == name && states == [Some(state); 2] && peers == [Some(peer); 2]
            })
        };
        let both = is_shown(&pair.active, "active", &pair.standby)
            && is_shown(&pair.standby, "standby", &pair.active);
        if both { Ok(pods.to_vec()) } else { Err(format!("labels do not show {pair:?}")) }
    })
    .await;
    let active = pods.iter().find(|pod| pod.name_any() == pair.active).unwrap();
    stage.exposes(&[active.uid().unwrap()].into()).await;
}

/// Asks the active of a pair to hand over.
pub(crate) async fn order_switchover(stage: &Stage, pair: &PairStatus) {
    let order = json!({"metadata": {"annotations": {(keys::ANNOTATION_HA_SWITCH_OVER): pair.epoch}}});
    stage.api::<Lease>().patch(&pair.name, &PatchParams::default(), &Patch::Merge(order)).await.unwrap();
}

pub(crate) async fn pod(stage: &Stage, name: &str) -> Pod {
    stage.api::<Pod>().get(name).await.unwrap()
}

/// Waits until another Pod acts than in this pair.
pub(crate) async fn taken_over(stage: &Stage, before: &PairStatus) -> PairStatus {
    let is_other = |pairs: &[PairStatus]| {
        pairs
            .iter()
            .any(|pair| pair.name == before.name && !pair.active.is_empty() && pair.active != before.active)
    };
    let pairs = reported(stage, is_other).await;
    pairs.into_iter().find(|pair| pair.name == before.name).unwrap()
}

/// The first pair of the only group, once it is as it should be.
pub(crate) async fn first_reported(stage: &Stage, is_right: impl Fn(&PairStatus) -> bool) -> PairStatus {
    wait::until(stage.api(), "", |groups: &[HAGroup]| {
        let pairs = groups.first().and_then(|group| group.status.clone()).unwrap_or_default().pairs;
        pairs.first().filter(|pair| is_right(pair)).cloned().ok_or(format!("pairs are {pairs:?}"))
    })
    .await
}

/// The first pair of the only group, once both of it are there and the standby can follow.
pub(crate) async fn first_paired(stage: &Stage) -> PairStatus {
    let pair = first_reported(stage, |pair| pair.state == "Paired").await;
    can_follow(stage, &pair).await;
    pair
}

/// The takeover by which this Pod acts now, once that much of it is known. Its reason tells one that somebody told the standby
/// of from one that it had to wait for, whatever else the machine does meanwhile.
pub(crate) async fn takeover(
    groups: Api<HAGroup>,
    to: &str,
    is_known: impl Fn(&Takeover) -> bool,
) -> Takeover {
    wait::until(groups, "", |groups: &[HAGroup]| {
        let group = groups.iter().find(|group| group.name_any() == WEB).ok_or("there is no such group")?;
        let status = group.status.as_ref().ok_or("it has no status")?;
        let acting =
            status.pairs.iter().find(|pair| pair.active == to).ok_or(format!("{to} does not act"))?;
        let by_it = |takeover: &&Takeover| takeover.to == to && takeover.epoch == acting.epoch;
        let known = status.takeovers.iter().find(by_it).filter(|takeover| is_known(takeover));
        known.cloned().ok_or(format!("not enough is known of a takeover by {to}: {status:?}"))
    })
    .await
}

async fn reason_of_takeover(stage: &Stage, to: &str) -> String {
    takeover(stage.api(), to, |_| true).await.reason
}

/// Ends a client, which must have been answered again.
pub(crate) async fn served_again(what: &str, load: Load) {
    // Nobody tells when every node has learned the last change: kube-proxy programs it within a second.
    tokio::time::sleep(PROXY_WITHIN).await;
    let outage: Outage = load.stop().await;
    note(format!("{what}: {outage}"));
    assert!(outage.is_answered, "{outage}");
}

pub(crate) async fn a_stateful_set_of_two_becomes_a_pair_with_its_labels_and_services(stage: Stage) {
    start_stateful_set(&stage, 2).await;
    let [pair] = &paired(&stage, 1).await[..] else { unreachable!("one pair was waited for") };
    shown(&stage, pair).await;
    replicates(&stage, pair).await;
}

/// Waits until the only replication Service is the one of the active, and leads to its standby.
async fn replicates(stage: &Stage, pair: &PairStatus) {
    let replicate = format!("{REPLICATION_SERVICE_PREFIX}{}", pair.active);
    wait::until(stage.api(), "", |services: &[Service]| {
        let mut services = services.iter().filter(|it| it.name_any().starts_with(REPLICATION_SERVICE_PREFIX));
        let (Some(service), None) = (services.next(), services.next()) else {
            return Err("there is not one".to_owned());
        };
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
        let is_right = service.name_any() == replicate
            && selector.get("HAState").is_some_and(|state| state == "standby")
            && selector.get("peer").is_some_and(|peer| *peer == pair.active);
        if is_right { Ok(()) } else { Err(format!("{} selects {selector:?}", service.name_any())) }
    })
    .await;
}

pub(crate) async fn a_killed_application_is_followed_by_the_standby_s_within_a_moment(stage: Stage) {
    start_stateful_set(&stage, 2).await;
    let mut pair = paired(&stage, 1).await.remove(0);
    shown(&stage, &pair).await;
    for _ in 0..3 {
        let load = Load::start(&stage, "n1").await;
        let active = pod(&stage, &pair.active).await;
        stage.bench.cluster.kill_below_init(&stage.target(&active)).unwrap();
        let after = taken_over(&stage, &pair).await;
        assert_eq!(after.active, pair.standby);
        pair = paired(&stage, 1).await.remove(0);
        shown(&stage, &pair).await;
        replicates(&stage, &pair).await;
        assert_eq!(reason_of_takeover(&stage, &pair.active).await, "ApplicationEnded");
        served_again("application killed", load).await;
    }
}

pub(crate) async fn a_deleted_active_hands_over_and_its_successor_becomes_the_standby(stage: Stage) {
    start_stateful_set(&stage, 2).await;
    let pair = paired(&stage, 1).await.remove(0);
    shown(&stage, &pair).await;
    let load = Load::start(&stage, "n1").await;
    stage.api::<Pod>().delete(&pair.active, &DeleteParams::default()).await.unwrap();
    let after = taken_over(&stage, &pair).await;
    assert_eq!(after.active, pair.standby);
    let restored = paired(&stage, 1).await.remove(0);
    assert_eq!(
        (restored.active.as_str(), restored.standby.as_str()),
        (pair.standby.as_str(), pair.active.as_str())
    );
    shown(&stage, &restored).await;
    assert_eq!(reason_of_takeover(&stage, &restored.active).await, "PodDeleted");
    served_again("active deleted", load).await;
}

/// Asks the Pod itself until its successor answers in its place; returns all answers, the last one the successor's.
///
/// From a node where no other client of the claim is. Clients take their source ports by the clock (`lab::app`), so that one of
/// the Service and one of the Pod would use the same ones at the same moment. Both connections lead to the same port of the
/// Pod: the node's connection table tells them apart only if one of them is known when the other begins, and else drops a
/// packet, so that a request is not answered in time that no Pod ever saw.
async fn answered_until_relayed(stage: &Stage, (old, new): (&Pod, &str)) -> Vec<Sample> {
    let ip = old.status.clone().and_then(|status| status.pod_ip).expect("a Pod with an address");
    let target = SocketAddr::new(ip.parse().unwrap(), PORT);
    let mut answers = Vec::new();
    let asked = async {
        while answers.last().is_none_or(|last: &Sample| last.pod != new) {
            let load = Load::start_at(stage, BESIDE, target).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            answers.extend(load.samples().await.into_iter().filter(Sample::is_ok));
        }
    };
    tokio::time::timeout(wait::LIMIT, asked).await.expect("the successor answers in the end");
    answers
}

pub(crate) async fn no_request_fails_in_a_switchover_that_makes_before_it_breaks(stage: Stage) {
    start_stateful_set(&stage, 2).await;
    let pair = paired(&stage, 1).await.remove(0);
    shown(&stage, &pair).await;
    stage.kubectl(&[
        "patch",
        "hagroup",
        WEB,
        "--type=merge",
        "-p",
        r#"{"spec":{"handover":"MakeBeforeBreak"}}"#,
    ]);
    wait::until(stage.api(), "", |leases: &[Lease]| {
        let said = leases.iter().find_map(|lease| lease.annotations().get(keys::ANNOTATION_HA_HANDOVER));
        said.map(drop).ok_or_else(|| "the Lease says nothing of it".to_owned())
    })
    .await;
    let old = pod(&stage, &pair.active).await;
    let load = Load::start(&stage, "n1").await;
    order_switchover(&stage, &pair).await;
    let answers = answered_until_relayed(&stage, (&old, &pair.standby)).await;
    let after = taken_over(&stage, &pair).await;
    assert_eq!(after.active, pair.standby);

    let requests = load.samples().await;
    let outage = Outage::from_samples(&requests);
    note(format!("switchover that makes before it breaks: {outage}"));
    assert!(outage.requests > 0 && outage.failed == 0, "{outage}");
    let first_of_new = requests.iter().find(|sample| sample.pod == pair.standby).expect("it serves").end_ns;
    let last_of_old = answers.iter().rfind(|sample| sample.pod == pair.active).expect("it served").start_ns;
    assert!(first_of_new < last_of_old, "both served for a moment");
}

pub(crate) async fn nobody_is_refused_when_a_deleted_pod_hands_over_to_one_that_starts_slowly(stage: Stage) {
    start_slow_stateful_set(&stage, 2, Duration::from_millis(300)).await;
    let pair = paired(&stage, 1).await.remove(0);
    shown(&stage, &pair).await;
    let load = Load::start(&stage, "n1").await;
    stage.api::<Pod>().delete(&pair.active, &DeleteParams::default()).await.unwrap();
    let after = taken_over(&stage, &pair).await;
    assert_eq!(after.active, pair.standby);
    shown(&stage, &paired(&stage, 1).await.remove(0)).await;

    let requests = load.samples().await;
    note(format!("deleted Pod, the other one starts slowly: {}", Outage::from_samples(&requests)));
    let refused = requests.iter().filter(|sample| sample.outcome == Outcome::Refused).count();
    let is_served = requests.iter().any(|sample| sample.pod == pair.standby);
    let [from, to] = [&pair.active, &pair.standby].map(|pod| answers_of(&requests, pod));
    assert!(is_served && refused == 0, "{refused} refused: {:?}; {from}; {to}", spells(&requests));
}

/// How many a Pod gave, and when; a line of text, times as [`spells`] has them.
fn answers_of(requests: &[Sample], pod: &str) -> String {
    let first = requests.iter().map(|sample| sample.start_ns).min().unwrap_or_default();
    let ends: Vec<u64> = requests.iter().filter(|sample| sample.pod == pod).map(|one| one.end_ns).collect();
    let [from, to] =
        [ends.iter().min(), ends.iter().max()].map(|end| end.map(|end| Duration::from_nanos(end - first)));
    format!("{} answers of {pod}, {from:?} to {to:?}", ends.len())
}

/// As hardened clusters have it, where no application is to reach the API server by default.
pub(crate) async fn agents_need_no_token_of_the_account_that_kubernetes_mounts(stage: Stage) {
    stage.kubectl(&["patch", "serviceaccount", "default", "-p", r#"{"automountServiceAccountToken":false}"#]);
    start_stateful_set(&stage, 2).await;
    let pair = paired(&stage, 1).await.remove(0);
    shown(&stage, &pair).await;
    order_switchover(&stage, &pair).await;
    assert_eq!(taken_over(&stage, &pair).await.active, pair.standby);
}

/// The budget that people write for what must not be evicted: without a switchover it is never let go.
pub(crate) async fn a_node_is_drained_of_an_active_that_a_budget_protects(stage: Stage) {
    let mut set = workload("StatefulSet", 2, Duration::ZERO);
    stage.to_be_drained(&mut set["spec"]["template"]);
    apply_stateful_set(&stage, set).await;
    let pair = paired(&stage, 1).await.remove(0);
    shown(&stage, &pair).await;
    let budget: PodDisruptionBudget = from_value(json!({
        "metadata": {"name": "actives"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {(keys::LABEL_HA_STATE): "active"}}},
    }))
    .unwrap();
    stage.api::<PodDisruptionBudget>().create(&PostParams::default(), &budget).await.unwrap();
    let drained = node(&pod(&stage, &pair.active).await);
    stage.drain(&drained, &["--delete-emptydir-data", "--timeout=90s"]);
    let after = paired(&stage, 1).await.remove(0);
    stage.kubectl(&["uncordon", &drained]);
    assert_eq!(after.active, pair.standby);
    let reason = reason_of_takeover(&stage, &after.active).await;
    assert_eq!(reason, "SwitchOver");
}

/// Serves on for 6 s after it was asked to end: killed before, as it was, it would answer nobody for the rest of them.
pub(crate) async fn a_deleted_pod_has_its_grace_period_to_end_and_hands_over_then(stage: Stage) {
    const DRAINS: Duration = Duration::from_secs(6);
    let drains = DRAINS.as_secs().to_string();
    let grace = 3 * DRAINS;
    apply_stateful_set(&stage, workload_with("StatefulSet", 2, &["--drain-seconds", &drains], grace)).await;
    let pair = paired(&stage, 1).await.remove(0);
    shown(&stage, &pair).await;
    let load = Load::start(&stage, "n1").await;
    let began = Instant::now();
    stage.api::<Pod>().delete(&pair.active, &DeleteParams::default()).await.unwrap();
    let after = taken_over(&stage, &pair).await;
    let took = began.elapsed();
    assert_eq!(after.active, pair.standby);
    assert_eq!(reason_of_takeover(&stage, &after.active).await, "PodDeleted");
    shown(&stage, &paired(&stage, 1).await.remove(0)).await;

    let requests = load.samples().await;
    let last = requests.iter().filter(|sample| sample.pod == pair.active).map(|sample| sample.end_ns).max();
    let first = requests.iter().filter(|sample| sample.pod == pair.standby).map(|sample| sample.end_ns).min();
    note(format!("ends within {DRAINS:?}: followed after {took:.1?}, {}", Outage::from_samples(&requests)));
    // Its thread sleeps for so long: whoever ends sooner was killed.
    assert!(took >= DRAINS && last < first, "{took:?}: {:?}", spells(&requests));
}

/// It does not know what it is told, as after a wrong edit.
pub(crate) async fn an_application_that_ends_again_and_again_is_told_until_it_is_put_right(stage: Stage) {
    let wrong = workload_with("StatefulSet", 2, &["--no-such-argument", "1"], Duration::from_secs(5));
    apply_stateful_set(&stage, wrong).await;
    let began = Instant::now();
    let looping = first_reported(&stage, |pair| pair.state == PAIR_CRASH_LOOPING).await;
    let told = began.elapsed();
    let CrashLoop { pod, ends, exit_code, last_lines } = looping.crash_loop.clone().expect("it says how");
    assert!(pod.starts_with(WEB) && ends >= 3 && exit_code == 1, "{looping:?}");
    // What it was is above its usage, which it ends with.
    let said = USAGE.lines().next_back().expect("it says how it is used").chars().take(LINE_CHARS_MAX);
    assert_eq!(last_lines.last(), Some(&said.collect::<String>().trim().to_owned()));
    // Else a rollout would go on. The kubelet asks each second.
    wait::until(stage.api(), "app=web", |pods: &[Pod]| {
        let told = pods.iter().find(|one| one.name_any() == pod).ok_or("it is gone")?;
        if wait::is_ready(told) { Err(format!("{pod} is ready")) } else { Ok(()) }
    })
    .await;
    wait::until(stage.api(), "", |events: &[Event]| {
        let is_told = events.iter().any(|event| event.reason.as_deref() == Some(PAIR_CRASH_LOOPING));
        if is_told { Ok(()) } else { Err(format!("there are {} other events", events.len())) }
    })
    .await;
    start_stateful_set(&stage, 2).await;
    // A StatefulSet makes no Pod anew while another one is not ready.
    stage.kubectl(&["delete", "pod", "web-0", "web-1"]);
    let pair = first_reported(&stage, |pair| pair.state == "Paired").await;
    shown(&stage, &pair).await;
    note(format!("told after {told:.1?}, {ends} ends on {pod}"));
}

/// The token of an agent goes with its Pod, but the API server remembers it for some seconds: mostly one of them can release the
/// Lease. Else the operator waits until their kubelets have ended them.
pub(crate) async fn a_pair_whose_pods_were_both_deleted_by_force_serves_again(stage: Stage) {
    start_stateful_set(&stage, 2).await;
    let pair = paired(&stage, 1).await.remove(0);
    shown(&stage, &pair).await;
    let began = Instant::now();
    stage.kubectl(&["delete", "pod", "web-0", "web-1", "--force", "--grace-period=0"]);
    let epoch = |pair: &PairStatus| pair.epoch.parse::<u64>().unwrap_or_default();
    let is_whole = |after: &&PairStatus| after.state == "Paired" && epoch(after) > epoch(&pair);
    let after = wait::within(KUBELETS_KNOW_WITHIN, stage.api(), "", |groups: &[HAGroup]| {
        let pairs = groups.first().and_then(|group| group.status.clone()).unwrap_or_default().pairs;
        pairs.first().filter(is_whole).cloned().ok_or(format!("pairs are {pairs:?}"))
    })
    .await;
    shown(&stage, &after).await;
    note(format!("both Pods deleted by force: whole again after {:.1} s", began.elapsed().as_secs_f64()));
}

pub(crate) async fn a_spare_takes_the_place_of_a_standby_whose_node_is_lost(stage: Stage) {
    start_stateful_set(&stage, 3).await;
    let pair = paired(&stage, 1).await.remove(0);
    shown(&stage, &pair).await;
    // The StatefulSet makes it after the others are ready.
    let spare = wait::until(stage.api(), "app=web", |pods: &[Pod]| {
        let is_spare = |pod: &&Pod| ![&pair.active, &pair.standby].contains(&&pod.name_any());
        pods.iter()
            .find(is_spare)
            .filter(|pod| wait::is_ready(pod))
            .map(kube::ResourceExt::name_any)
            .ok_or("no ready spare".to_owned())
    })
    .await;
    let spare = spare.as_str();
    let lost = node(&pod(&stage, &pair.standby).await);
    assert_ne!(node(&pod(&stage, spare).await), lost, "the scheduler spreads the Pods of a workload");
    let began = Instant::now();
    stage.bench.cluster.power_off(&lost).unwrap();
    let silent = first_reported(&stage, |pair| pair.state == PAIR_SILENT).await;
    let told = began.elapsed();
    assert_eq!((&silent.active, &silent.standby), (&pair.active, &pair.standby));
    let after = first_reported(&stage, |pair| pair.standby == spare && pair.state == "Paired").await;
    can_follow(&stage, &after).await;
    note(format!(
        "standby lost: told after {told:.1?}, the spare could follow after {:.1?}",
        began.elapsed()
    ));
    assert_eq!(after.active, pair.active, "it was not touched");
    stage.bench.cluster.power_on(&lost).unwrap();
    ready::nodes(&stage.client(), std::slice::from_ref(&lost), wait::LIMIT).await.unwrap();
    wait::until(stage.api(), "", |groups: &[HAGroup]| {
        let status = groups.first().and_then(|group| group.status.clone()).unwrap_or_default();
        let is_spare = status.spares.contains(&pair.standby) && status.state == "Ready";
        if is_spare { Ok(()) } else { Err(format!("{} with the spares {:?}", status.state, status.spares)) }
    })
    .await;
}

pub(crate) async fn a_lost_node_costs_no_more_than_the_lease(stage: Stage) {
    start_stateful_set(&stage, 2).await;
    loses_the_node_of_its_active(&stage, "node lost").await;
}

pub(crate) async fn a_lost_node_costs_a_fast_pair_no_more_than_a_promise(stage: Stage) {
    let set = workload("StatefulSet", 2, Duration::ZERO);
    apply_with_times(&stage, json!({"profile": "Fast"}), set).await;
    loses_the_node_of_its_active(&stage, "node lost, with the profile Fast").await;
}

/// The standby takes over as soon as what it promised is over, and requests are answered again.
async fn loses_the_node_of_its_active(stage: &Stage, what: &str) {
    let pair = paired(stage, 1).await.remove(0);
    shown(stage, &pair).await;
    let lost = node(&pod(stage, &pair.active).await);
    let client = ["n1", "n2", "n3"].into_iter().find(|name| *name != lost).unwrap();
    let load = Load::start(stage, client).await;
    stage.bench.cluster.power_off(&lost).unwrap();
    let after = taken_over(stage, &pair).await;
    assert_eq!(after.active, pair.standby);
    assert_eq!(reason_of_takeover(stage, &after.active).await, "LeaseExpired");
    served_again(what, load).await;
    stage.bench.cluster.power_on(&lost).unwrap();
    ready::nodes(&stage.client(), std::slice::from_ref(&lost), wait::LIMIT).await.unwrap();
    let pair = paired(stage, 1).await.remove(0);
    shown(stage, &pair).await;
}
