//! What the operator would do now and what it waits for, by its own planner and a fresh list.
//!
//! What only the operator's memory holds is not known here; each text says what that is.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::DeserializeGuard;

use super::Error;
use super::cluster::{Cluster, SetObjects, Subject};
use super::plan_words::{action_words, hold_words, step_words};
use super::table::indented;
use crate::agent::clock;
use crate::api::{BackupPodSet, HAGroup, keys};
use crate::ha::{BootTime, Moment, Timing};
use crate::model::{NodeName, Plan, Step};
use crate::observe::group::{GroupObjects, see_group};
use crate::observe::slim::{SlimCondition, SlimNode, SlimNodeStatus, SlimPod};
use crate::observe::{Cache, KnownKeys, Observation, SetKey, Watched, observe};
use crate::pairing::{Wait, plan as pairing_plan};
use crate::plan::{check, plan as set_plan};
use crate::status::describe_wait;

/// Lists and plans.
///
/// # Errors
/// `Usage` or `Refused` if the name means two objects or none.
pub async fn run(cluster: &Cluster, name: &str) -> Result<String, Error> {
    match cluster.subject(name).await? {
        Subject::Group(group) => {
            let objects = cluster.group_objects(&group).await?;
            Ok(of_group(&group, &objects, clock::now()))
        }
        Subject::Set(set) => {
            let objects = cluster.set_objects(&set).await?;
            Ok(of_set(*set, objects, Timestamp::now()))
        }
    }
}

/// The plan for a group.
pub fn of_group(group: &HAGroup, objects: &GroupObjects, now: BootTime) -> String {
    let name = group.name_any();
    let title = format!("HAGroup {}/{name}", group.namespace().unwrap_or_default());
    if group.metadata.deletion_timestamp.is_some() {
        return format!("{title} is being deleted: the operator does nothing.\n");
    }
    let (seen, timing) = (see_group(group, objects, now), Timing::default());
    let plan = pairing_plan(&seen.group, &Moment { now, timing: &timing });
    let steps: Vec<String> = plan.steps.iter().map(|step| step_words(&name, step, &seen.group)).collect();
    let mut waits: Vec<String> = plan.waits.iter().map(|wait| describe_wait(&name, wait)).collect();
    waits.extend(seen.unreadable.keys().map(|lease| {
        format!("the Lease {lease} is not as agents write it: its pair is left alone until it is deleted")
    }));
    let again = plan.look_again.map(|again| again.since(now));
    let unknown = group_unknown(&plan.waits);
    text(
        &title,
        &[("It would now", &steps), ("It waits", &waits), ("Not known from outside", &unknown)],
        again,
    )
}

/// What the operator knows beside what can be listed.
fn group_unknown(waits: &[Wait]) -> Vec<String> {
    let mut unknown = vec![
        "whether its writes are refused; the condition Degraded tells".to_owned(),
        "what is wrong with Services, EndpointSlices, keys and permissions, which it corrects beside the plan".to_owned(),
    ];
    let is_counting = |wait: &Wait| match wait {
        Wait::Admission { .. } | Wait::End { .. } | Wait::Lost { .. } | Wait::Second | Wait::Surplus => true,
        Wait::Paused | Wait::Withheld { .. } | Wait::Standby { .. } => false,
    };
    if waits.iter().any(is_counting) {
        unknown.insert(
            0,
            "since when it waits: it counts from what it saw itself, and may act sooner than said here"
                .to_owned(),
        );
    }
    unknown
}

/// The plan for a set.
pub fn of_set(set: BackupPodSet, objects: SetObjects, now: Timestamp) -> String {
    let title = format!("BackupPodSet {}/{}", set.namespace().unwrap_or_default(), set.name_any());
    let unknown = set_unknown(&objects);
    let Some(observation) = observation(set, objects, now) else {
        return format!("{title} is being deleted: the operator does nothing.\n");
    };
    if let Some(invalid) = &observation.invalid {
        return format!("{title}: the operator does nothing, because its spec is refused: {invalid}\n");
    }
    let plan = set_plan(&observation.snapshot);
    let violations = check(&observation.snapshot, &plan);
    if !violations.is_empty() {
        // A bug of the planner; the operator counts it, logs it and leaves the set alone.
        return format!("{title}: the operator does nothing, because its plan is refused: {violations:?}\n");
    }
    let (first, later) = waves(&plan);
    let holds: Vec<String> = plan.holds.iter().map(|hold| hold_words(hold, now)).collect();
    let again = plan.next_look().map(|next| Duration::try_from(next.duration_since(now)).unwrap_or_default());
    let sections = [
        ("It would now", &first),
        ("It would then", &later),
        ("It holds back", &holds),
        ("Not known from outside", &unknown),
    ];
    text(&title, &sections, again)
}

/// What goes out at once, and what waits for the look after it.
fn waves(plan: &Plan) -> (Vec<String>, Vec<String>) {
    let first = plan.first_wave();
    let words = |steps: &[&Step]| steps.iter().map(|step| action_words(step)).collect();
    let (now, later): (Vec<&Step>, Vec<&Step>) = plan.steps.iter().partition(|step| first.contains(step));
    (words(&now), words(&later))
}

/// Everything that was listed, as the operator would see it.
fn observation(set: BackupPodSet, objects: SetObjects, now: Timestamp) -> Option<Observation> {
    let key = SetKey { namespace: set.namespace().unwrap_or_default(), name: set.name_any() };
    let SetObjects { pods, services, slices, groups, nodes, is_cluster_wide: _ } = objects;
    let nodes = nodes.unwrap_or_else(|| assumed_nodes(&pods));
    let mut cache = Cache::default();
    cache.know_keys(assumed_keys(&pods));
    cache.know_agent_image(Some(keys::AGENT.to_owned()));
    drop(set.seen(&mut cache, now));
    for pod in pods {
        drop(pod.seen(&mut cache, now));
    }
    for service in services {
        drop(service.seen(&mut cache, now));
    }
    for slice in slices {
        drop(slice.seen(&mut cache, now));
    }
    for group in groups {
        drop(DeserializeGuard(Ok(group)).seen(&mut cache, now));
    }
    for node in nodes {
        drop(node.seen(&mut cache, now));
    }
    observe(&cache, &key, now)
}

/// The Secret with the keys is the operator's own; without them every cold backup would look useless.
fn assumed_keys(pods: &[SlimPod]) -> KnownKeys {
    let ids = pods.iter().filter_map(|pod| pod.annotations().get(keys::ANNOTATION_WAKE_KEYS));
    KnownKeys(ids.flat_map(|ids| ids.split(',')).map(str::to_owned).collect())
}

/// Nodes may not be read by everybody; without them every Pod would look lost.
fn assumed_nodes(pods: &[SlimPod]) -> Vec<SlimNode> {
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

fn set_unknown(objects: &SetObjects) -> Vec<String> {
    let mut unknown = vec![
        "which keys of gates it has: those of the cold Pods are taken for known".to_owned(),
        "pauses after refused writes and between tickets to a gate".to_owned(),
    ];
    if !objects.groups.is_empty() {
        unknown.push("whether it was started with --agent-image, which activeStandby needs".to_owned());
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

fn text(title: &str, sections: &[(&str, &Vec<String>)], again: Option<Duration>) -> String {
    let mut text = format!("{title}\n");
    let has_work = sections.iter().any(|(heading, lines)| heading.starts_with("It") && !lines.is_empty());
    if !has_work {
        text.push_str("\nNothing is to be done, and nothing is waited for.\n");
    }
    for (heading, lines) in sections.iter().filter(|(_, lines)| !lines.is_empty()) {
        let lines: Vec<String> = lines.iter().map(|line| format!("- {line}")).collect();
        text.extend(["\n", heading, ":\n", &indented(&lines.join("\n"))]);
    }
    if let Some(again) = again {
        let again = format!("\nIf nothing happens, it looks again in {:.1} s.\n", again.as_secs_f32());
        text.push_str(&again);
    }
    text
}
