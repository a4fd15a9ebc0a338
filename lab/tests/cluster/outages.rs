//! Claims about operators and API servers that go away.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use lab::app::{Outage, Sample};
use lab::bench::pairs::crowd::realtime_ns;
use lab::control_plane::READY_SECONDS_MAX;
use lab::ready;
use rustix::process::Signal;
use tokio::time::sleep;

use crate::load::Load;
use crate::notes::note;
use crate::pairs::{
    paired, pod, record_of, reported, shown, start_deployment, start_stateful_set, taken_over,
};
use crate::stage::{Stage, WEB, complete, exposed_web, one, roles, uids, web};
use crate::wait;

/// How long the API server is away before the application of an active is killed, and after that. 70 and 20 s: longer than an agent
/// acts on that outlives no such absence (30 to 60 s).
const AWAY_BEFORE: Duration = Duration::from_secs(70);
const AWAY_AFTER: Duration = Duration::from_secs(20);
/// How long the API server is away from an active without a standby. 15 s: several times as long as a write lasts while the
/// Lease names a second member (1.9 s), and less than the lone hold (60 s).
const AWAY_FROM_ONE: Duration = Duration::from_secs(15);

/// Notes the identity of every Pod that there ever is.
fn census(stage: &Stage) -> Arc<Mutex<BTreeSet<String>>> {
    let seen: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let (notes, api) = (Arc::clone(&seen), stage.api::<Pod>());
    tokio::spawn(async move {
        let pods = watcher(api, watcher::Config::default()).default_backoff().touched_objects();
        pin_mut!(pods);
        while let Some(pod) = pods.next().await {
            if let Ok(pod) = pod {
                notes.lock().unwrap().extend(pod.uid());
            }
        }
    });
    seen
}

/// Whether nothing else is said of an API server than that it has just started: it knows no roles yet and refuses
/// everybody, and the operator tries again.
pub(crate) fn has_just_started(said: &[String]) -> bool {
    said.iter().all(|line| line.contains("is forbidden: User"))
}

pub(crate) async fn an_operator_killed_in_mid_conversion_is_continued_to_the_same_end(stage: Stage) {
    stage.apply(&web([2, 2, 2])).await;
    let before = stage.settled(WEB, [2, 2, 2]).await;
    let seen = census(&stage);
    stage.scale([3, 3, 3]).await;
    // One conversion is to be seen, then the rest must wait for a successor.
    let primaries = uids(&before, "primary");
    stage
        .pods_where(WEB, |pods| {
            if uids(pods, "primary") == primaries { Err("nothing is converted".into()) } else { Ok(()) }
        })
        .await;
    stage.bench.operators().await[0].kill();
    stage.bench.one_operator().await;
    let after = roles(&stage.settled(WEB, [3, 3, 3]).await);
    assert!(roles(&before).keys().all(|uid| after.contains_key(uid)), "a Pod was not kept");
    assert_eq!(*seen.lock().unwrap(), after.into_keys().collect(), "a Pod was made and thrown away");
}

pub(crate) async fn a_second_operator_waits_and_takes_over_when_the_leader_is_killed(stage: Stage) {
    let second = stage.bench.start_operator().await;
    stage.apply(&web([1, 1, 1])).await;
    let before = stage.settled(WEB, [1, 1, 1]).await;
    let first = stage.bench.operators().await[0].name().to_owned();
    // It still leads: the second one has not touched the lease.
    stage.bench.await_leader(&first).await;
    stage.bench.operators().await[0].kill();
    stage.delete(one(&before, "primary")).await;
    stage.bench.await_leader(&second).await;
    let hot = uids(&before, "hot");
    stage
        .pods_where(WEB, |pods| {
            complete(pods, [1, 1, 1])?;
            if uids(pods, "primary") == hot { Ok(()) } else { Err("the hot backup is not primary".into()) }
        })
        .await;
    stage.settled(WEB, [1, 1, 1]).await;
}

pub(crate) async fn an_operator_that_is_installed_anew_with_other_keys_loses_no_backup_and_no_pair(
    stage: Stage,
) {
    stage.apply(&web([1, 0, 1])).await;
    start_deployment(&stage, 2).await;
    let before = stage.settled(WEB, [1, 0, 1]).await;
    let pair = paired(&stage, 1).await.remove(0);
    stage.bench.reinstall().await;
    // The agents have the former keys until the kubelets bring the new ones.
    stage.api::<Pod>().delete(&pair.active, &DeleteParams::default()).await.unwrap();
    let after = taken_over(&stage, &pair).await;
    assert_eq!(after.active, pair.standby);
    let cold = uids(&before, "cold");
    let renewed = stage
        .pods_where(WEB, |pods| {
            complete(pods, [1, 0, 1])?;
            if uids(pods, "cold") == cold {
                Err("its gate knows the former keys only".into())
            } else {
                Ok(())
            }
        })
        .await;
    assert_eq!(uids(&renewed, "primary"), uids(&before, "primary"));
    stage.delete(one(&renewed, "primary")).await;
    let woken = stage.settled(WEB, [1, 0, 1]).await;
    assert_eq!(uids(&woken, "primary"), uids(&renewed, "cold"));
    let pair = paired(&stage, 1).await.remove(0);
    shown(&stage, &pair).await;
    stage.api::<Pod>().delete(&pair.active, &DeleteParams::default()).await.unwrap();
    assert_eq!(taken_over(&stage, &pair).await.active, pair.standby);
}

/// Starts the API server again, and waits for it and for an operator that leads.
///
/// A leader that could not renew for 10 s has ended, and a kubelet would have started it again.
async fn api_server_comes_back(stage: &Stage) {
    stage.bench.cluster.start("kube-apiserver").unwrap();
    ready::api_server(&stage.client(), Duration::from_secs(READY_SECONDS_MAX)).await.unwrap();
    stage.bench.one_operator().await;
}

/// For longer than kube-controller-manager waits before it takes a node for lost, as in an upgrade of a control plane.
pub(crate) async fn a_pair_outlives_an_api_server_that_is_away_and_passes_its_role_on_meanwhile(
    stage: Stage,
) {
    start_stateful_set(&stage, 2).await;
    let pair = paired(&stage, 1).await.remove(0);
    shown(&stage, &pair).await;
    let target = stage.target(&pod(&stage, &pair.active).await);
    let active = stage.bench.cluster.aim_below_init(&target).unwrap();
    let load = Load::start(&stage, "n1").await;
    let cluster = &stage.bench.cluster;
    cluster.stop("kube-apiserver", true).unwrap();
    sleep(AWAY_BEFORE).await;
    let struck_ns = realtime_ns();
    active.fire(Signal::KILL).unwrap();
    sleep(AWAY_AFTER).await;
    let back_ns = realtime_ns();
    api_server_comes_back(&stage).await;
    let after = taken_over(&stage, &pair).await;
    shown(&stage, &after).await;
    let requests = load.samples().await;
    let outage = Outage::from_samples(&requests);
    note(format!("API server away for {:?}: {outage}", AWAY_BEFORE + AWAY_AFTER));
    assert_eq!(after.active, pair.standby);
    let failed = requests.iter().filter(|sample| !sample.is_ok() && sample.end_ns < struck_ns).count();
    let by_standby = |sample: &&Sample| sample.is_ok() && sample.pod == pair.standby;
    let first = requests.iter().filter(by_standby).map(|sample| sample.end_ns).min();
    assert_eq!(failed, 0, "before anything else happened: {outage}");
    assert!(
        first.is_some_and(|first| first < back_ns),
        "nobody answered before the API server did: {outage}"
    );
    let said = stage.complaints().await;
    assert!(has_just_started(&said), "{said:#?}");
}

/// Once the Lease says that no other member is left, each write of it lasts for a minute.
pub(crate) async fn an_active_whose_standby_was_scaled_away_outlives_an_api_server_that_is_away(
    stage: Stage,
) {
    start_stateful_set(&stage, 2).await;
    let pair = paired(&stage, 1).await.remove(0);
    shown(&stage, &pair).await;
    stage.kubectl(&["scale", "StatefulSet", WEB, "--replicas=1"]);
    wait::until(stage.api(), "", |leases: &[Lease]| {
        let lease = record_of(leases, &pair)?.lease;
        if lease.is_lone() { Ok(()) } else { Err(format!("{lease:?}")) }
    })
    .await;
    let alone = reported(&stage, |pairs| matches!(pairs, [pair] if pair.state == "Alone")).await.remove(0);
    let is_one = |pods: &[Pod]| if pods.len() == 1 { Ok(()) } else { Err(format!("{} Pods", pods.len())) };
    wait::until(stage.api(), "", is_one).await;

    let load = Load::start(&stage, "n1").await;
    let cluster = &stage.bench.cluster;
    cluster.stop("kube-apiserver", true).unwrap();
    sleep(AWAY_FROM_ONE).await;
    api_server_comes_back(&stage).await;
    let outage = Outage::from_samples(&load.samples().await);
    note(format!("API server away for {AWAY_FROM_ONE:?} from an active without a standby: {outage}"));
    assert!(outage.requests > 0 && outage.failed == 0, "{outage}");

    stage.kubectl(&["scale", "StatefulSet", WEB, "--replicas=2"]);
    let again = paired(&stage, 1).await.remove(0);
    assert_eq!(again.active, alone.active);
    let said = stage.complaints().await;
    assert!(has_just_started(&said), "{said:#?}");
}

pub(crate) async fn a_failover_ends_well_although_the_api_server_was_killed_in_it(stage: Stage) {
    stage.apply(&exposed_web([1, 1, 1])).await;
    let before = stage.settled(WEB, [1, 1, 1]).await;
    stage.exposes(&uids(&before, "primary")).await;
    let cluster = &stage.bench.cluster;
    cluster.kill_process(&stage.target(one(&before, "primary"))).unwrap();
    cluster.stop("kube-apiserver", true).unwrap();
    api_server_comes_back(&stage).await;
    let after = stage.settled(WEB, [1, 1, 1]).await;
    stage.exposes(&uids(&after, "primary")).await;
    // The kubelet may have restarted the process before anybody could be told; but no Pod is thrown away.
    assert_eq!(roles(&after).into_keys().collect::<BTreeSet<_>>(), roles(&before).into_keys().collect());
    stage.delete(one(&after, "primary")).await;
    let last = stage.settled(WEB, [1, 1, 1]).await;
    assert_eq!(uids(&last, "primary"), uids(&after, "hot"));
    let said = stage.complaints().await;
    assert!(has_just_started(&said), "{said:#?}");
}
