//! What the operator would do now and what it waits for, by its own planner and a fresh list.
//!
//! What only the operator's memory holds is not known here; each text says what that is.

use bps_api::{BackupPodSet, HAGroup, keys};
use bps_core::model::{NodeName, Plan, Step};
use bps_core::pairing::{PairHold, PairReason, check as check_pairs, plan as plan_pairs};
use bps_core::plan::{check, plan as set_plan};
use bps_observe::group::{GroupObjects, see_group, times};
use bps_observe::readable::Readable;
use bps_observe::slim::{SlimCondition, SlimNode, SlimNodeStatus, SlimPod};
use bps_observe::{Cache, Cleared, Kind, KnownKeys, Observation, Scope, SetKey, Watched, Written, observe};
use bps_protocol::{BootTime, Moment};
use bps_runtime::boot_clock;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::arguments::NamedArguments;
use super::cluster::{Cluster, SetObjects, Subject};
use super::outlook::Outlook;
use super::plan_words::{action_words, hold_words, step_words, wait_words};
use super::{Error, document};

/// Lists and plans.
///
/// # Errors
/// `Usage` or `Refused` if the name means two objects or none.
pub async fn run(cluster: &Cluster, wanted: &NamedArguments) -> Result<String, Error> {
    let outlook = match cluster.subject(&wanted.name).await? {
        Subject::Group(group) => {
            let objects = cluster.group_objects(&group).await?;
            of_group(&group, &objects, boot_clock::now())
        }
        Subject::Set(set) => {
            let objects = cluster.set_objects(&set).await?;
            of_set(*set, objects, Timestamp::now())
        }
    };
    document::formed(wanted.output, &outlook, || outlook.text())
}

/// The plan for a group.
pub fn of_group(group: &HAGroup, objects: &GroupObjects, now: BootTime) -> Outlook {
    let name = group.name_any();
    let outlook = Outlook::of("HAGroup", group);
    if group.metadata.deletion_timestamp.is_some() {
        return outlook.idle("it is being deleted".to_owned());
    }
    let (seen, timing) = (see_group(group, objects, now), times(group));
    let plan = plan_pairs(&seen.group, &Moment { now, timing: &timing });
    let violations = check_pairs(&seen.group, &plan, now);
    if !violations.is_empty() {
        // A bug of the planner; the operator counts it, logs it and leaves the pairs alone.
        return outlook.idle(format!("its plan is refused: {violations:?}"));
    }
    let steps: Vec<String> = plan.steps.iter().map(|step| step_words(&name, step, &seen.group)).collect();
    let mut waits: Vec<String> = plan.holds.iter().map(|hold| wait_words(&name, hold, now)).collect();
    waits.extend(seen.unreadable.keys().map(|lease| {
        format!("the Lease {lease} is not as agents write it: its pair is left alone until it is deleted")
    }));
    Outlook {
        steps,
        waits,
        unknown: group_unknown(&plan.holds),
        look_again_seconds: plan.look_again.map(|again| again.since(now).as_secs_f32()),
        ..outlook
    }
}

/// What the operator knows beside what can be listed.
fn group_unknown(holds: &[PairHold]) -> Vec<String> {
    let mut unknown = vec![
        "whether its writes are refused; the condition Degraded tells".to_owned(),
        "what is wrong with Services, EndpointSlices, keys and permissions, which it corrects beside the plan".to_owned(),
        "which nodes are about to be taken away: an active on one of them hands over".to_owned(),
    ];
    // What is held by a time, or by one that a plan begins to count.
    let is_counting = |hold: &PairHold| hold.until.is_some() || hold.reason == PairReason::Surplus;
    if holds.iter().any(is_counting) {
        unknown.insert(
            0,
            "since when it waits: it counts from what it saw itself, and may act sooner than said here"
                .to_owned(),
        );
    }
    unknown
}

/// The plan for a set.
pub fn of_set(set: BackupPodSet, objects: SetObjects, now: Timestamp) -> Outlook {
    let outlook = Outlook::of("BackupPodSet", &set);
    let mut unknown = set_unknown(&objects);
    let Some(observation) = observation(set, objects, now) else {
        return outlook.idle("it is being deleted".to_owned());
    };
    if let Some(invalid) = &observation.invalid {
        let refused = format!("the spec before the present one, which is refused: {invalid}");
        unknown.insert(0, refused);
    }
    let plan = set_plan(&observation.snapshot);
    let violations = check(&observation.snapshot, &plan);
    if !violations.is_empty() {
        // A bug of the planner; the operator counts it, logs it and leaves the set alone.
        return outlook.idle(format!("its plan is refused: {violations:?}"));
    }
    let (steps, later) = waves(&plan);
    let look_again = plan.next_look().map(|next| next.duration_since(now).as_secs_f32().max(0.0));
    let holds = plan.holds.iter().map(|hold| hold_words(hold, now)).collect();
    Outlook { steps, later, holds, unknown, look_again_seconds: look_again, ..outlook }
}

/// What goes out at once, and what waits for the look after it.
fn waves(plan: &Plan) -> (Vec<String>, Vec<String>) {
    let first = plan.first_wave();
    let words = |steps: &[&Step]| steps.iter().map(|step| action_words(step)).collect();
    let (now, later): (Vec<&Step>, Vec<&Step>) = plan.steps.iter().partition(|step| first.contains(step));
    (words(&now), words(&later))
}

/// Everything that was listed, as the operator would see it.
pub(super) fn observation(set: BackupPodSet, objects: SetObjects, now: Timestamp) -> Option<Observation> {
    let key = SetKey { namespace: set.namespace().unwrap_or_default(), name: set.name_any() };
    let SetObjects { pods, services, slices, groups, budgets, nodes, is_cluster_wide: _ } = objects;
    let nodes = nodes.unwrap_or_else(|| assumed_nodes(&pods));
    let mut cache = Cache::default();
    cache.know_keys(assumed_keys(&pods));
    cache.know_agent_image(Some(keys::AGENT.to_owned()));
    drop(set.seen(&mut cache, now));
    for pod in pods {
        drop(pod.seen(&mut cache, now));
    }
    for service in services {
        // Only the operator's memory tells whether it has looked for what others wrote behind it.
        let (service_name, uid) = (service.name_any(), service.uid().unwrap_or_default());
        let namespace = key.namespace.clone();
        drop(service.seen(&mut cache, now));
        let cleared = Cleared { namespace, service: service_name, uid, ..Cleared::default() };
        cache.wrote(Written::Cleared(Box::new(cleared)), now);
    }
    for slice in slices {
        drop(slice.seen(&mut cache, now));
    }
    for group in groups {
        drop(Readable::from(group).seen(&mut cache, now));
    }
    for node in nodes {
        drop(node.seen(&mut cache, now));
    }
    // Without a list none is planned.
    if let Some(budgets) = budgets {
        cache.begin_list(Kind::Budgets, &Scope(None));
        for budget in budgets {
            drop(budget.seen(&mut cache, now));
        }
        drop(cache.end_list(Kind::Budgets, &Scope(None), now));
    }
    observe(&cache, &key, now)
}

/// The Secret with the keys is the operator's own; without them every cold backup would look useless.
fn assumed_keys(pods: &[SlimPod]) -> KnownKeys {
    let ids = pods.iter().filter_map(|pod| pod.annotations().get(keys::ANNOTATION_WAKE_KEYS));
    KnownKeys(ids.flat_map(|ids| ids.split(',')).map(str::to_owned).collect())
}

/// Nodes may not be read by everybody; without them every Pod would look lost.
pub(super) fn assumed_nodes(pods: &[SlimPod]) -> Vec<SlimNode> {
    let mut names: Vec<NodeName> =
        pods.iter().filter_map(|pod| pod.spec.node_name.clone()).map(NodeName).collect();
    names.sort();
    names.dedup();
    let node = |name: NodeName| {
        let mut node = SlimNode::default();
        node.metadata.name = Some(name.0);
        let ready = SlimCondition { kind: "Ready".into(), status: "True".into(), last_transition_time: None };
        node.status = SlimNodeStatus { conditions: vec![ready] };
        node
    };
    names.into_iter().map(node).collect()
}

pub(super) fn set_unknown(objects: &SetObjects) -> Vec<String> {
    let mut unknown = vec![
        "which keys of gates it has: those of the cold Pods are taken for known".to_owned(),
        "pauses after refused writes and between tickets to a gate".to_owned(),
    ];
    if !objects.groups.is_empty() {
        unknown.push("whether it was started with --agent-image, which activeStandby needs".to_owned());
    }
    if objects.budgets.is_none() {
        unknown.push("the PodDisruptionBudgets, which you may not list".to_owned());
    }
    if objects.nodes.is_none() {
        unknown.push("the nodes, which you may not list: they are taken for healthy".to_owned());
    }
    if !objects.is_cluster_wide {
        unknown.push(
            "the Pods of other namespaces, which you may not list: the storm brake counts them too"
                .to_owned(),
        );
    }
    unknown
}
