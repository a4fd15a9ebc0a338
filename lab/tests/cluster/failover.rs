//! Claims about Pods that are deleted, crash or fail.

use std::time::Instant;

use bps_api::keys::{CONTAINER_GATE, GATE_PORT};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use lab::faults::Target;
use lab::image::APP_IMAGE;
use serde_json::json;

use crate::load::Load;
use crate::notes::note;
use crate::stage::{Stage, WEB, complete, exposed_web, one, roles, uids, web};
use crate::wait::{self, gate, is_ready, role};

pub(crate) async fn a_deleted_primary_is_followed_by_the_hot_backup_and_every_tier_is_refilled(stage: Stage) {
    stage.apply(&web([1, 1, 1])).await;
    let before = stage.settled(WEB, [1, 1, 1]).await;
    stage.delete(one(&before, "primary")).await;
    let after = stage.settled(WEB, [1, 1, 1]).await;
    assert_eq!(uids(&after, "primary"), uids(&before, "hot"));
    assert_eq!(uids(&after, "hot"), uids(&before, "cold"));
    let known = roles(&before);
    assert!(uids(&after, "cold").iter().all(|uid| !known.contains_key(uid)));
}

pub(crate) async fn a_killed_primary_swaps_roles_and_no_pod_is_deleted(stage: Stage) {
    stage.apply(&web([1, 1, 1])).await;
    let before = stage.settled(WEB, [1, 1, 1]).await;
    let primary = one(&before, "primary");
    stage.bench.cluster.kill_process(&stage.target(primary)).unwrap();
    let swapped = uids(&before, "hot");
    let after = stage
        .pods_where(WEB, |pods| {
            complete(pods, [1, 1, 1])?;
            if uids(pods, "primary") == swapped { Ok(()) } else { Err("the roles are not swapped".into()) }
        })
        .await;
    assert_eq!(uids(&after, "hot"), uids(&before, "primary"));
    assert_eq!(uids(&after, "cold"), uids(&before, "cold"));
}

pub(crate) async fn a_woken_pod_passes_its_gate_again_after_its_sandbox_was_killed(stage: Stage) {
    stage.apply(&web([1, 1, 1])).await;
    let before = stage.settled(WEB, [1, 1, 1]).await;
    stage.delete(one(&before, "hot")).await;
    let woken = stage.settled(WEB, [1, 1, 1]).await;
    assert_eq!(uids(&woken, "hot"), uids(&before, "cold"));
    let uid = one(&woken, "hot").uid();
    let container = |pod: &Pod| gate(pod).and_then(|gate| gate.container_id.clone());
    let first = container(one(&woken, "hot"));
    assert!(first.is_some());
    stage.bench.cluster.kill_sandbox(&stage.target(one(&woken, "hot"))).unwrap();
    stage
        .pods_where(WEB, |pods| {
            let pod = pods.iter().find(|pod| pod.uid() == uid).ok_or("the woken Pod is gone")?;
            // Its count of restarts may say 0 again: the kubelet removes init containers, with the logs by which
            // it would count them, before it makes a sandbox, which may take it two attempts.
            let ran_again = container(pod).is_some_and(|id| Some(id) != first);
            if ran_again && is_ready(pod) { Ok(()) } else { Err(wait::describe(pod)) }
        })
        .await;
    stage.settled(WEB, [1, 1, 1]).await;
}

pub(crate) async fn no_request_fails_while_a_primary_is_deleted_gracefully(stage: Stage) {
    stage.apply(&exposed_web([2, 1, 1])).await;
    let before = stage.settled(WEB, [2, 1, 1]).await;
    stage.exposes(&uids(&before, "primary")).await;
    let load = Load::start(&stage, "n1").await;
    stage.delete(one(&before, "primary")).await;
    let after = stage.settled(WEB, [2, 1, 1]).await;
    stage.exposes(&uids(&after, "primary")).await;
    // The deleted Pod still answers for a while; only when it is gone has everything been seen.
    let gone = one(&before, "primary").uid();
    wait::until(stage.api::<Pod>(), "", |pods| {
        if pods.iter().any(|pod| pod.uid() == gone) { Err("the deleted Pod is there".into()) } else { Ok(()) }
    })
    .await;
    let outage = load.stop().await;
    assert!(outage.requests > 0 && outage.failed == 0, "{outage}");
}

pub(crate) async fn a_failed_pod_is_replaced(stage: Stage) {
    stage.apply(&web([1, 1, 0])).await;
    let before = stage.settled(WEB, [1, 1, 0]).await;
    let primary = one(&before, "primary");
    let pods: Api<Pod> = stage.api();
    // What the kubelet writes when it evicts.
    let evicted =
        json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}});
    pods.patch_status(&primary.name_any(), &PatchParams::default(), &Patch::Merge(evicted)).await.unwrap();
    let lost = primary.uid().unwrap();
    let after = stage
        .pods_where(WEB, |pods| {
            complete(pods, [1, 1, 0])?;
            if roles(pods).contains_key(&lost) { Err("the failed Pod is there".into()) } else { Ok(()) }
        })
        .await;
    assert_eq!(uids(&after, "primary"), uids(&before, "hot"));
}

/// The default of `wakeupTimeout`, as in the API reference. Unit: seconds.
const WAKEUP_TIMEOUT_SECONDS: u64 = 5;

pub(crate) async fn a_woken_pod_serves_however_long_its_init_container_takes(stage: Stage) {
    let mut set = web([1, 0, 1]);
    set["spec"]["wakeupTimeout"] = json!(WAKEUP_TIMEOUT_SECONDS);
    // A client that nobody answers ends when its time is over.
    let seconds = (WAKEUP_TIMEOUT_SECONDS + 3).to_string();
    let arguments = ["client", "--target", "127.0.0.1:1", "--interval-ms", "1000", "--duration-s", &seconds];
    set["spec"]["template"]["spec"]["initContainers"] =
        json!([{"name": "prepare", "image": APP_IMAGE, "args": arguments}]);
    stage.apply(&set).await;
    let before = stage.settled(WEB, [1, 0, 1]).await;
    stage.delete(one(&before, "primary")).await;
    let after = stage.settled(WEB, [1, 0, 1]).await;
    assert_eq!(uids(&after, "primary"), uids(&before, "cold"), "the first that was woken serves");
}

pub(crate) async fn a_set_whose_gates_do_not_answer_serves_with_a_pod_that_has_none(stage: Stage) {
    let mut set = web([1, 0, 2]);
    set["spec"]["wakeupTimeout"] = json!(WAKEUP_TIMEOUT_SECONDS);
    set["spec"]["strategy"] = json!({"coldbackupToReplicas": "oldest"});
    stage.apply(&set).await;
    let before = stage.settled(WEB, [1, 0, 2]).await;
    let deaf: Vec<&Pod> = before.iter().filter(|pod| role(pod) == "cold").collect();
    for pod in &deaf {
        let target = Target { container: Some(CONTAINER_GATE.to_owned()), ..stage.target(pod) };
        stage.bench.cluster.pause(&target).unwrap();
    }
    stage.delete(one(&before, "primary")).await;
    let message = stage.condition(WEB, ("Degraded", "WakeTimedOut")).await;
    assert!(message.contains("spec.wakeupTimeout (5 s)") && message.contains("TCP port 20000"), "{message}");
    let after = stage.pods(WEB, [1, 0, 2]).await;
    let primary = one(&after, "primary");
    assert!(gate(primary).is_none(), "it was made without one");
    assert!(deaf.iter().all(|pod| !roles(&after).contains_key(&pod.uid().unwrap())), "both were given up");
}

pub(crate) async fn a_set_whose_gates_do_not_start_serves_with_a_pod_that_has_none(stage: Stage) {
    // No node has it yet, so that the Pods can be changed before a kubelet starts them.
    let label = format!("example.com/{}", stage.namespace);
    let mut set = web([1, 0, 1]);
    set["spec"]["template"]["spec"]["nodeSelector"] = json!({(label.as_str()): "yes"});
    stage.apply(&set).await;
    let made =
        stage.pods_where(WEB, |pods| if pods.len() == 2 { Ok(()) } else { Err("not made".into()) }).await;
    let cold = one(&made, "cold");
    let first = cold.spec.as_ref().and_then(|spec| spec.init_containers.as_ref()?.first()).unwrap();
    let image = format!("{}=registry.invalid/none:1", first.name);
    stage.kubectl(&["set", "image", &format!("pod/{}", cold.name_any()), &image]);
    stage.kubectl(&["label", "node", "n2", &format!("{label}=yes")]);

    let message = stage.condition(WEB, ("Degraded", "GateFails")).await;
    assert!(message.contains(&cold.name_any()) && message.contains("Image"), "{message}");
    let is_ready = |pods: &[Pod]| {
        let primary = pods.iter().find(|pod| role(pod) == "primary" && is_ready(pod));
        primary.is_some().then_some(()).ok_or_else(|| "no primary is ready".to_owned())
    };
    let before = stage.pods_where(WEB, is_ready).await;
    let began = Instant::now();
    stage.delete(one(&before, "primary")).await;
    let after = stage.pods_where(WEB, is_ready).await;
    note(format!("serves after {} ms", began.elapsed().as_millis()));
    stage.kubectl(&["label", "node", "n2", &format!("{label}-")]);
    let primary = one(&after, "primary");
    assert!(gate(primary).is_none(), "it was made without one");
    assert!(roles(&after).contains_key(&cold.uid().unwrap()), "it may start yet");
}

pub(crate) async fn a_cold_backup_is_woken_although_the_operator_cannot_reach_its_gate(stage: Stage) {
    stage.apply(&web([1, 0, 1])).await;
    let before = stage.settled(WEB, [1, 0, 1]).await;
    let deafness = Deafness::begin(&stage);
    let began = Instant::now();
    stage.delete(one(&before, "primary")).await;
    let after = stage.pods(WEB, [1, 0, 1]).await;
    note(format!("serves after {} ms", began.elapsed().as_millis()));
    drop(deafness);
    assert_eq!(
        uids(&after, "primary"),
        uids(&before, "cold"),
        "it was woken by the ticket in its annotations"
    );
}

/// No packet reaches a gate on any node until this is dropped.
struct Deafness<'a>(&'a Stage);

impl<'a> Deafness<'a> {
    fn begin(stage: &'a Stage) -> Self {
        let deafness = Self(stage);
        deafness.nft("add table inet deaf");
        for hook in ["forward", "output"] {
            deafness.nft(&format!("add chain inet deaf {hook} {{ type filter hook {hook} priority 0 ; }}"));
            deafness.nft(&format!("add rule inet deaf {hook} tcp dport {GATE_PORT} drop"));
        }
        deafness
    }

    /// Gives this command to nft on every node.
    fn nft(&self, words: &str) {
        let cluster = &self.0.bench.cluster;
        for node in cluster.nodes().unwrap() {
            let mut command = cluster.command_in(&node.name, "nft").unwrap();
            let output = command.args(words.split(' ')).output().unwrap();
            assert!(output.status.success(), "nft {words}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

impl Drop for Deafness<'_> {
    fn drop(&mut self) {
        self.nft("delete table inet deaf");
    }
}
