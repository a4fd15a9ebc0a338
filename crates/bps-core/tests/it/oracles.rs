//! What a set promises, as a look at a snapshot: written from the promises of the API, not from the planner's rules.

use bps_api::service::IpFamily;

use super::model::{
    Desired, ExposedSlice, Lifecycle, NodeHealth, PodName, PodView, Role, Snapshot, Uid, UpdateKind,
};

/// Pods that are there and not on their way out.
fn living(snapshot: &Snapshot) -> impl Iterator<Item = &PodView> {
    let is_live = |view: &&PodView| {
        !matches!(view.lifecycle, Lifecycle::Terminating | Lifecycle::Finished) && !view.is_on_lost_node()
    };
    snapshot.pods.iter().filter(is_live)
}

/// How many there are.
pub(crate) fn live(snapshot: &Snapshot) -> usize {
    living(snapshot).count()
}

/// Surplus primaries that may not go yet, because clients do not know enough others that serve; nobody waits for that to
/// refill.
pub(crate) fn held_back(snapshot: &Snapshot) -> usize {
    let is_known = |view: &&PodView| {
        let shown = snapshot.exposure.as_ref().map(|exposure| exposure.reached(&snapshot.pods));
        shown.is_none_or(|shown| shown.contains(&view.pod.uid))
    };
    let primaries = || snapshot.pods.iter().filter(|view| view.role == Role::Primary);
    let serving = primaries().filter(|view| view.is_ready()).filter(is_known).count();
    let wanted = snapshot.desired.replicas;
    if serving > wanted { 0 } else { primaries().count().saturating_sub(wanted) }
}

/// Primaries that clients can use: labelled, ready, on a node that is heard of.
pub(crate) fn standing(snapshot: &Snapshot) -> usize {
    let stands = |view: &&PodView| {
        view.role == Role::Primary
            && matches!(view.lifecycle, Lifecycle::Ready { .. })
            && matches!(view.node_health(), NodeHealth::Healthy | NodeHealth::Cordoned)
    };
    snapshot.pods.iter().filter(stands).count()
}

pub(crate) fn is_terminating(snapshot: &Snapshot) -> bool {
    let goes = |view: &PodView| view.lifecycle == Lifecycle::Terminating && !view.is_on_lost_node();
    snapshot.pods.iter().any(goes)
}

/// What is not as the user wished; Pods on lost nodes and terminating ones do not count.
pub(crate) fn unlike_the_wish(snapshot: &Snapshot) -> Option<String> {
    unlike(snapshot, &Role::ALL)
}

/// The same of the Pods that run, whatever becomes of those that wait.
pub(crate) fn unlike_the_wish_but_for_cold(snapshot: &Snapshot) -> Option<String> {
    unlike(snapshot, &[Role::Primary, Role::Hot])
}

fn unlike(snapshot: &Snapshot, roles: &[Role]) -> Option<String> {
    let counted = |view: &&PodView| !view.is_on_lost_node() && view.lifecycle != Lifecycle::Terminating;
    let pods: Vec<&PodView> = snapshot.pods.iter().filter(counted).collect();
    for role in roles.iter().copied() {
        let members = || pods.iter().filter(|view| view.role == role);
        let wanted = snapshot.desired.count(role);
        let available = members().filter(|view| view.is_available()).count();
        if (members().count(), available) != (wanted, wanted) {
            return Some(format!(
                "{role}: {} Pods, {available} available, {wanted} wanted",
                members().count()
            ));
        }
        let left = unkept(&snapshot.desired, members().copied());
        let is_rolling = snapshot.desired.update.kind == UpdateKind::BackupFirst && !is_cordoned(snapshot);
        if is_rolling && left > 0 {
            return Some(format!("{role}: {left} Pods of the old template that no partition keeps"));
        }
    }
    if let Some(problem) = unlike_the_shares(snapshot, &pods, roles) {
        return Some(problem);
    }
    let mut slices = snapshot.exposure.as_ref()?.slices.iter();
    let ready = |slice: &ExposedSlice| slice.endpoints.iter().filter(|endpoint| endpoint.is_ready).count();
    let serving = |family: IpFamily| {
        let primaries = snapshot.pods.iter().filter(|view| view.role == Role::Primary && view.is_ready());
        primaries.filter(|view| view.families().any(|of_pod| of_pod == family)).count()
    };
    let wrong = slices.find(|slice| ready(slice) != serving(slice.family))?;
    Some(format!("{} Pods exposed by {}", ready(wrong), wrong.family.as_str()))
}

/// Returns how many of the Pods of a former template no partition keeps: neither that of the set nor that of a subset.
pub(crate) fn unkept<'a>(desired: &Desired, pods: impl Iterator<Item = &'a PodView>) -> usize {
    let outdated: Vec<&PodView> = pods.filter(|view| !desired.is_current(view)).collect();
    let kept_by_the_set = outdated.iter().filter(|view| view.role == Role::Primary).count();
    let kept_by_the_set = kept_by_the_set.min(desired.update.partition);
    let kept_by_subsets: usize = desired
        .topology
        .subsets
        .iter()
        .enumerate()
        .map(|(index, subset)| primaries_in(&outdated, index).min(subset.partition))
        .sum();
    outdated.len() - kept_by_the_set.max(kept_by_subsets)
}

/// Primaries of a subset.
fn primaries_in(pods: &[&PodView], subset: usize) -> usize {
    pods.iter().filter(|view| view.role == Role::Primary && view.subset == Some(subset)).count()
}

/// Whether every Pod of a former template is a primary that the partition of its subset keeps, within the share of that subset.
fn is_kept_in_its_share(desired: &Desired, pods: &[&PodView]) -> bool {
    let outdated: Vec<&PodView> = pods.iter().copied().filter(|view| !desired.is_current(view)).collect();
    let subsets = desired.topology.subsets.iter().enumerate();
    let kept = subsets.map(|(index, subset)| {
        let count = primaries_in(&outdated, index);
        if count <= subset.partition.min(subset.replicas) { count } else { 0 }
    });
    let is_kept = kept.sum::<usize>() == outdated.len();
    outdated.is_empty() || is_kept && desired.update.kind == UpdateKind::BackupFirst
}

/// Returns the subset that has other Pods than its shares, if the planner can correct it: primaries swap roles with hot backups.
fn unlike_the_shares(snapshot: &Snapshot, pods: &[&PodView], roles: &[Role]) -> Option<String> {
    let desired = &snapshot.desired;
    let can_be_put_right = desired.topology.rebalances
        && desired.hot_backups > 0
        && roles == Role::ALL.as_slice()
        && pods.iter().all(|view| view.node_health() == NodeHealth::Healthy)
        && is_kept_in_its_share(desired, pods)
        && !is_cordoned(snapshot);
    if !can_be_put_right {
        return None;
    }
    desired.topology.subsets.iter().enumerate().find_map(|(index, subset)| {
        let counts = Role::ALL
            .map(|role| pods.iter().filter(|view| view.role == role && view.subset == Some(index)).count());
        let wanted = Role::ALL.map(|role| subset.count(role));
        (counts != wanted).then(|| format!("subset {}: {counts:?} Pods, {wanted:?} wanted", subset.name))
    })
}

/// What is not as well as it can be with the Pods that a node has room for: as many of them as are wanted serve.
pub(crate) fn unlike_the_room(snapshot: &Snapshot) -> Option<String> {
    let housed = living(snapshot).filter(|view| view.node.is_some()).count();
    let (serving, wanted) = (standing(snapshot), housed.min(snapshot.desired.replicas));
    (serving != wanted).then(|| format!("{serving} serve of {housed} that have room, {wanted} wanted"))
}

/// A rollout waits for cordoned nodes to be drained or given back.
fn is_cordoned(snapshot: &Snapshot) -> bool {
    snapshot.pods.iter().any(|view| view.node_health() == NodeHealth::Cordoned)
}

/// Ready primaries that the Service leads to, by each of its families.
pub(crate) fn exposed(snapshot: &Snapshot) -> usize {
    let Some(exposure) = &snapshot.exposure else { return 0 };
    let is_good = |uid: &Uid| {
        snapshot.pods.iter().any(|view| view.pod.uid == *uid && view.role == Role::Primary && view.is_ready())
    };
    let shown = |slice: &ExposedSlice| {
        slice.endpoints.iter().filter(|endpoint| endpoint.is_ready && is_good(&endpoint.uid)).count()
    };
    exposure.slices.iter().map(shown).min().unwrap_or_default()
}

/// An address that is ready although its Pod is gone or going, or although its node is silent and enough others serve.
pub(crate) fn led_to_nobody(snapshot: &Snapshot) -> Option<&PodName> {
    let exposure = snapshot.exposure.as_ref()?;
    let is_silent = |uid: &Uid| {
        snapshot.pods.iter().any(|view| view.pod.uid == *uid && view.node_health() == NodeHealth::NotReady)
    };
    let has_enough = exposed(snapshot) >= snapshot.desired.replicas;
    let is_good = |uid: &Uid| {
        let mut pods = snapshot.pods.iter();
        pods.any(|view| view.pod.uid == *uid && view.role == Role::Primary && view.is_ready())
    };
    let ready = exposure.endpoints().filter(|endpoint| endpoint.is_ready);
    let is_kept = |uid: &Uid| snapshot.storm.is_some() && is_silent(uid) && !has_enough;
    ready
        .filter(|endpoint| !is_good(&endpoint.uid) && !is_kept(&endpoint.uid))
        .map(|endpoint| &endpoint.pod)
        .next()
}
