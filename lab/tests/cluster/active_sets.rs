//! Claims about sets with active and standby Pods: roles follow who acts, and every pair keeps one that does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bps_api::{HAGroup, PairStatus, keys};
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};

use crate::actors::Actors;
use crate::load::Load;
use crate::notes::note;
use crate::pairs::{can_follow, served_again};
use crate::rollout::{is_of_revision, revision_of};
use crate::stage::{Counts, PORT, Stage, WEB, exposed_web, roles, uids};
use crate::wait::{self, role};

/// How long roles must stay as they are before nobody calls them restless. A takeover is followed within a second.
const CALM: Duration = Duration::from_secs(10);

/// The set `web` with its Service, whose Pods are paired.
fn paired_web(counts: Counts) -> Value {
    let mut set = exposed_web(counts);
    let container = &mut set["spec"]["template"]["spec"]["containers"][0];
    container["command"] = json!(["/lab-app"]);
    container["args"] = json!(["--port", PORT.to_string()]);
    set["spec"]["activeStandby"] = json!({});
    set
}

/// Waits until the set is as wanted, in so many pairs, of whose Pods each active is a primary; returns Pods and pairs.
async fn whole(stage: &Stage, counts: Counts) -> (Vec<Pod>, Vec<PairStatus>) {
    let pairs = wait::until(stage.api(), "", |groups: &[HAGroup]| {
        let group = groups.iter().find(|group| group.name_any() == WEB).ok_or("there is no such group")?;
        let status = group.status.clone().unwrap_or_default();
        let complete = status.pairs.iter().filter(|pair| pair.state == "Paired").count();
        let is_whole = status.pairs.len() == counts[0] && complete == counts[0].min(counts[1]);
        if is_whole { Ok(status.pairs) } else { Err(format!("status is {status:?}")) }
    })
    .await;
    for pair in pairs.iter().filter(|pair| !pair.standby.is_empty()) {
        can_follow(stage, pair).await;
    }
    stage.settled(WEB, counts).await;
    let pods = stage.pods_where(WEB, |pods| are_followed(pods, counts)).await;
    stage.exposes(&uids(&pods, "primary")).await;
    (pods, pairs)
}

/// Whether the Pods are as wanted, exactly the primaries act, and each that can have one has a standby.
fn are_followed(pods: &[Pod], counts: Counts) -> Result<(), String> {
    crate::stage::complete(pods, counts)?;
    let acting = names(pods, |pod| state(pod) == Some("active"));
    let primaries = names(pods, |pod| role(pod) == "primary");
    if acting != primaries {
        return Err(format!("{acting:?} act, {primaries:?} are primaries"));
    }
    // A Pod that was woken is labelled once it is a member; the status may still be that of the pair before.
    let standbys = names(pods, |pod| role(pod) == "hot" && state(pod) == Some("standby"));
    let is_complete = standbys.len() == counts[0].min(counts[1]);
    if is_complete { Ok(()) } else { Err(format!("only {standbys:?} are standbys")) }
}

fn state(pod: &Pod) -> Option<&str> {
    pod.labels().get(keys::LABEL_HA_STATE).map(String::as_str)
}

fn names(pods: &[Pod], is_meant: impl Fn(&Pod) -> bool) -> BTreeSet<String> {
    pods.iter().filter(|pod| is_meant(pod)).map(ResourceExt::name_any).collect()
}

/// What a restless operator would change.
fn parts(pods: &[Pod]) -> BTreeMap<String, (String, Option<String>)> {
    let all = roles(pods).into_iter();
    let state_of = |uid: &str| {
        pods.iter().find(|pod| pod.uid().as_deref() == Some(uid)).and_then(state).map(str::to_owned)
    };
    all.map(|(uid, role)| (uid.clone(), (role, state_of(&uid)))).collect()
}

/// Nothing changes for a while.
async fn rests(stage: &Stage, before: &[Pod]) {
    let labels = watcher::Config::default().labels(&format!("{}={WEB}", keys::LABEL_SET));
    let events = watcher(stage.api::<Pod>(), labels).default_backoff().applied_objects();
    pin_mut!(events);
    let before = parts(before);
    let changed = tokio::time::timeout(CALM, async {
        while let Some(event) = events.next().await {
            let Ok(pod) = event else { continue };
            let now = parts(std::slice::from_ref(&pod));
            // The Pod that was lost may still be on its way out.
            if pod.metadata.deletion_timestamp.is_some() && now.keys().all(|uid| !before.contains_key(uid)) {
                continue;
            }
            let is_same = now.iter().all(|(uid, part)| before.get(uid) == Some(part));
            if !is_same {
                return now;
            }
        }
        BTreeMap::new()
    });
    if let Ok(now) = changed.await {
        panic!("{now:?} is not of {before:?}");
    }
}

pub(crate) async fn roles_of_a_paired_set_follow_the_application_that_acts(stage: Stage) {
    let counts = [2, 2, 1];
    stage.apply(&paired_web(counts)).await;
    let (pods, pairs) = whole(&stage, counts).await;
    let load = Load::start(&stage, "n1").await;
    let lost = pods.iter().find(|pod| pod.name_any() == pairs[0].active).expect("the active is a Pod");
    stage.bench.cluster.kill_below_init(&stage.target(lost)).unwrap();
    stage
        .pods_where(WEB, |pods| {
            let heir = pods.iter().find(|pod| pod.name_any() == pairs[0].standby).ok_or("no standby")?;
            let is_followed = role(heir) == "primary" && state(heir) == Some("active");
            if is_followed {
                Ok(())
            } else {
                Err(format!("the standby is {} and {:?}", role(heir), state(heir)))
            }
        })
        .await;
    let (after, _) = whole(&stage, counts).await;
    served_again("application of a paired set killed", load).await;
    let uids = |pods: &[Pod]| roles(pods).into_keys().collect::<BTreeSet<_>>();
    assert_eq!(uids(&after), uids(&pods), "no Pod is given up");
    rests(&stage, &after).await;
}

pub(crate) async fn a_deleted_primary_of_a_paired_set_is_followed_by_its_standby_and_a_woken_one(
    stage: Stage,
) {
    let counts = [2, 2, 1];
    let after = lose_a_primary(&stage, &paired_web(counts), counts).await;
    rests(&stage, &after).await;
}

/// Deletes a primary of a set with one cold backup; its standby must follow, and the cold backup fill that one's place.
async fn lose_a_primary(stage: &Stage, set: &Value, counts: Counts) -> Vec<Pod> {
    stage.apply(set).await;
    let (pods, pairs) = whole(stage, counts).await;
    let cold = names(&pods, |pod| role(pod) == "cold");
    let load = Load::start(stage, "n1").await;
    let lost = pods.iter().find(|pod| pod.name_any() == pairs[0].active).expect("the active is a Pod");
    stage.delete(lost).await;
    let gone = lost.name_any();
    stage
        .pods_where(WEB, |pods| {
            let is_gone = !pods.iter().any(|pod| pod.name_any() == gone);
            let heir = pods.iter().find(|pod| pod.name_any() == pairs[0].standby).ok_or("no standby")?;
            let woken = names(pods, |pod| role(pod) == "hot").intersection(&cold).count();
            let is_right = is_gone && role(heir) == "primary" && state(heir) == Some("active") && woken == 1;
            if is_right { Ok(()) } else { Err(format!("{:?}", parts(pods))) }
        })
        .await;
    let (after, _) = whole(stage, counts).await;
    served_again("primary of a paired set deleted", load).await;
    after
}

pub(crate) async fn a_set_whose_image_has_the_agent_is_paired_and_wakes_its_cold_backup(stage: Stage) {
    no_container_copies_the_agent(&stage, "Image").await;
}

pub(crate) async fn a_set_that_mounts_the_agents_image_is_paired_and_wakes_its_cold_backup(stage: Stage) {
    let pods = no_container_copies_the_agent(&stage, "ImageVolume").await;
    let is_mounted = |pod: &Pod| {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        volumes
            .filter(|volume| volume.image.is_some())
            .any(|volume| volume.name == keys::VOLUME_AGENT_PROGRAM)
    };
    assert_eq!(names(&pods, is_mounted), names(&pods, |_| true));
}

/// Loses a primary of a set whose agents come from there; returns the Pods after it.
async fn no_container_copies_the_agent(stage: &Stage, source: &str) -> Vec<Pod> {
    let counts = [1, 1, 1];
    let mut set = paired_web(counts);
    set["spec"]["activeStandby"] = json!({"agentSource": source});
    let after = lose_a_primary(stage, &set, counts).await;
    let has_copied = |pod: &Pod| {
        let spec = pod.spec.as_ref().expect("a Pod has a spec");
        spec.init_containers.iter().flatten().any(|one| one.name == keys::CONTAINER_INSTALL_AGENT)
    };
    assert_eq!(names(&after, has_copied), BTreeSet::new());
    after
}

pub(crate) async fn the_pairs_of_a_set_come_and_go_with_its_primaries(stage: Stage) {
    stage.apply(&paired_web([2, 2, 0])).await;
    let (pods, pairs) = whole(&stage, [2, 2, 0]).await;
    assert_eq!(pods.len(), 4);
    let kept = pairs[0].active.clone();
    stage.scale([1, 1, 0]).await;
    let (pods, pairs) = whole(&stage, [1, 1, 0]).await;
    assert_eq!((pods.len(), &pairs[0].active), (2, &kept), "the pair that stays is not touched");
    stage.scale([2, 2, 0]).await;
    let (pods, pairs) = whole(&stage, [2, 2, 0]).await;
    assert_eq!((pods.len(), &pairs[0].active), (4, &kept), "the pair that stays is not touched");
}

pub(crate) async fn a_new_template_reaches_every_pod_of_a_paired_set_and_one_of_each_pair_acts(stage: Stage) {
    let counts = [2, 2, 1];
    stage.apply(&paired_web(counts)).await;
    let (before, _) = whole(&stage, counts).await;
    let old = revision_of(&before);
    let load = Load::start(&stage, "n1").await;
    let actors = Actors::start(&stage);
    stage.change(json!({"template": {"metadata": {"annotations": {"edition": "second"}}}})).await;
    stage
        .pods_where(WEB, |pods| {
            crate::stage::complete(pods, counts)?;
            let outdated = pods.iter().filter(|pod| is_of_revision(pod, &old)).count();
            if outdated == 0 { Ok(()) } else { Err(format!("{outdated} outdated pods")) }
        })
        .await;
    let (after, pairs) = whole(&stage, counts).await;
    let turns = actors.stop().await;
    served_again("rollout of a paired set", load).await;
    note(format!("{turns:?}"));
    let known = roles(&before);
    assert!(after.iter().all(|pod| !known.contains_key(&pod.uid().unwrap())), "an old Pod is left");
    for (pair, turns) in &turns {
        assert_eq!(turns.returned, BTreeSet::new(), "two of {pair} acted at the same time: {turns:?}");
    }
    let acted = turns.values().map(|turns| turns.order.len()).sum::<usize>();
    assert!(acted >= 2 * counts[0], "each active has a successor: {turns:?}");
    for pair in &pairs {
        assert_eq!(turns[&pair.name].order.last(), Some(&pair.active), "{turns:?}");
    }
}
