//! Refuses plans that break an invariant: a second opinion, written without looking at the rules.
//!
//! A violation is a bug in a rule. It is counted and nothing of the plan is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::model::{
    Action, Lifecycle, ObjectState, Ownership, Part, Plan, PodName, PodView, Role, Snapshot, Step, Uid,
};

/// An invariant that a plan would break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two steps name the same Pod.
    NamedTwice(PodName),
    /// A step names a Pod that is not in the snapshot, or not controlled by the set.
    NotOurs(PodName),
    /// A Pod would be created under the name of one that exists.
    NameTaken(PodName),
    /// The last ready primary would be deleted or demoted.
    LastPrimary(PodName),
    /// More Pods would be created than can be wanted.
    TooManyCreated(usize),
    /// A Pod that acts would be deleted although no standby can take over.
    ActiveDeleted(PodName),
    /// A Pod that acts would lose the role of a primary.
    ActiveDemoted(PodName),
    /// A Pod would be written although the group of the set's pairs is not its own.
    GroupNotOurs(PodName),
    /// A paused set would be changed.
    PausedSetChanged,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NamedTwice(pod) => write!(formatter, "two steps name pod {pod}"),
            Self::NotOurs(pod) => write!(formatter, "pod {pod} is not controlled by the set"),
            Self::NameTaken(pod) => write!(formatter, "pod {pod} exists already"),
            Self::LastPrimary(pod) => write!(formatter, "pod {pod} is the last ready primary"),
            Self::TooManyCreated(count) => write!(formatter, "{count} pods would be created"),
            Self::ActiveDeleted(pod) => write!(formatter, "pod {pod} acts and has no standby that is ready"),
            Self::ActiveDemoted(pod) => write!(formatter, "pod {pod} acts and would be no primary any more"),
            Self::GroupNotOurs(pod) => write!(formatter, "pod {pod} has no group of its own set"),
            Self::PausedSetChanged => write!(formatter, "the set is paused"),
        }
    }
}

/// Every invariant that this plan would break on this snapshot.
pub fn check(snapshot: &Snapshot, plan: &Plan) -> Vec<Violation> {
    let pods = Pods::of(snapshot);
    let mut violations = named_twice(plan);
    violations.extend(plan.steps.iter().filter_map(|step| misnamed(&pods, &step.action)));
    if snapshot.is_paired() {
        let given_up = plan.steps.iter().filter_map(|step| deleted(&step.action)).collect();
        let wrongs = |step: &Step| wrongs_pair(snapshot, &pods, &given_up, &step.action);
        violations.extend(plan.steps.iter().filter_map(wrongs));
    } else {
        violations.extend(last_primary(snapshot, plan));
    }
    violations.extend(too_many_created(snapshot, plan));
    let is_due = |step: &Step| is_due_in_a_pause(snapshot, &pods, &step.action);
    if snapshot.desired.paused && !plan.steps.iter().all(is_due) {
        violations.push(Violation::PausedSetChanged);
    }
    violations
}

/// The Pods of a snapshot, found without a walk over all of them.
struct Pods<'a> {
    by_name: BTreeMap<&'a PodName, &'a PodView>,
    by_uid: BTreeMap<&'a Uid, &'a PodView>,
}

impl<'a> Pods<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        Self {
            by_name: snapshot.pods.iter().map(|view| (&view.pod.name, view)).collect(),
            by_uid: snapshot.pods.iter().map(|view| (&view.pod.uid, view)).collect(),
        }
    }

    fn named(&self, name: &PodName) -> Option<&'a PodView> {
        self.by_name.get(name).copied()
    }

    fn role_of(&self, uid: &Uid) -> Option<Role> {
        self.by_uid.get(uid).map(|view| view.role)
    }
}

/// Whether a step carries out nothing but what was decided before the pause.
fn is_due_in_a_pause(snapshot: &Snapshot, pods: &Pods<'_>, action: &Action) -> bool {
    match action {
        // A pause is passed on to the group.
        Action::PublishGroup => snapshot.group == Some(ObjectState::Outdated),
        Action::Expose { endpoints, .. } => {
            endpoints.iter().all(|endpoint| pods.role_of(&endpoint.uid) == Some(Role::Primary))
        }
        Action::Wake { pod, .. } => pods.role_of(&pod.uid).is_some_and(|role| role != Role::Cold),
        Action::ClearAddresses => true,
        Action::Create { .. }
        | Action::Convert { .. }
        | Action::Delete { .. }
        | Action::Adopt { .. }
        | Action::Relabel { .. }
        | Action::PublishService
        | Action::PublishBudget
        | Action::Retire { .. } => false,
    }
}

fn named_twice(plan: &Plan) -> Vec<Violation> {
    let mut seen = BTreeSet::new();
    let names = plan.steps.iter().filter_map(|step| step.action.pod_name());
    names.filter(|name| !seen.insert(*name)).map(|name| Violation::NamedTwice(name.clone())).collect()
}

fn misnamed(pods: &Pods<'_>, action: &Action) -> Option<Violation> {
    match action {
        Action::Create { name, .. } => pods.named(name).map(|_| Violation::NameTaken(name.clone())),
        Action::Convert { pod, .. }
        | Action::Wake { pod, .. }
        | Action::Relabel { pod, .. }
        | Action::Delete { pod, .. } => {
            let is_ours = pods
                .named(&pod.name)
                .is_some_and(|view| view.pod == *pod && view.ownership == Ownership::Ours);
            (!is_ours).then(|| Violation::NotOurs(pod.name.clone()))
        }
        Action::Adopt { pod } => {
            let is_orphan = pods
                .named(&pod.name)
                .is_some_and(|view| view.pod == *pod && view.ownership == Ownership::Orphan);
            (!is_orphan).then(|| Violation::NotOurs(pod.name.clone()))
        }
        Action::PublishService
        | Action::PublishGroup
        | Action::PublishBudget
        | Action::Expose { .. }
        | Action::ClearAddresses
        | Action::Retire { .. } => None,
    }
}

/// Steps come in any order and any subset: promotions of this plan do not count as successors yet.
fn last_primary(snapshot: &Snapshot, plan: &Plan) -> Option<Violation> {
    if snapshot.desired.replicas == 0 {
        return None;
    }
    let is_serving =
        |view: &&PodView| view.role == Role::Primary && view.is_ready() && !view.is_on_lost_node();
    let given_up: BTreeSet<&PodName> = plan.steps.iter().filter_map(|step| given_up(&step.action)).collect();
    let serving: Vec<&PodView> = snapshot.pods.iter().filter(is_serving).collect();
    let is_given_up = |view: &&&PodView| given_up.contains(&view.pod.name);
    let lost = serving.iter().find(is_given_up)?;
    (serving.iter().filter(is_given_up).count() == serving.len())
        .then(|| Violation::LastPrimary(lost.pod.name.clone()))
}

/// Who acts serves, whatever its role: it is not given up by hand while it could hand over to nobody.
fn wrongs_pair(
    snapshot: &Snapshot,
    pods: &Pods<'_>,
    deleted: &BTreeSet<&PodName>,
    action: &Action,
) -> Option<Violation> {
    let name = action.pod_name()?;
    if matches!(snapshot.group, Some(ObjectState::Absent | ObjectState::Foreign)) {
        return Some(Violation::GroupNotOurs(name.clone()));
    }
    let view = pods.named(name).filter(|view| view.acts())?;
    let stands_by = |peer: &&PodView| {
        matches!(peer.part, Part::Standby { .. })
            && peer.is_ready()
            && !peer.is_on_lost_node()
            && !deleted.contains(&peer.pod.name)
            && snapshot.is_level(name)
    };
    let is_hopeless =
        matches!(view.lifecycle, Lifecycle::Finished | Lifecycle::Unready { .. }) || view.is_on_lost_node();
    let has_standby =
        || view.part.peer_of_active().and_then(|peer| pods.named(peer)).as_ref().is_some_and(stands_by);
    match action {
        Action::Delete { .. } if !is_hopeless && !has_standby() => {
            Some(Violation::ActiveDeleted(name.clone()))
        }
        Action::Convert { from: Role::Primary, .. } => Some(Violation::ActiveDemoted(name.clone())),
        Action::Create { .. }
        | Action::Convert { .. }
        | Action::Wake { .. }
        | Action::Delete { .. }
        | Action::Adopt { .. }
        | Action::Relabel { .. }
        | Action::PublishService
        | Action::PublishGroup
        | Action::PublishBudget
        | Action::Expose { .. }
        | Action::ClearAddresses
        | Action::Retire { .. } => None,
    }
}

const fn deleted(action: &Action) -> Option<&PodName> {
    if let Action::Delete { pod, .. } = action { Some(&pod.name) } else { None }
}

const fn given_up(action: &Action) -> Option<&PodName> {
    if let Action::Delete { pod, .. } | Action::Convert { pod, from: Role::Primary, .. } = action {
        Some(&pod.name)
    } else {
        None
    }
}

fn too_many_created(snapshot: &Snapshot, plan: &Plan) -> Option<Violation> {
    // More than wanted: the surge of a rollout without hot backups.
    let desired = &snapshot.desired;
    let surge = desired.update.max_surge.of(desired.replicas);
    let most = Role::ALL.iter().map(|role| desired.count(*role)).sum::<usize>() + surge;
    let created = plan.steps.iter().filter(|step| matches!(step.action, Action::Create { .. })).count();
    (created > most).then_some(Violation::TooManyCreated(created))
}
