//! What a step does to a set when the API server accepts it, and nothing more: kubelets and agents come afterwards.

use crate::model::{
    Action, Exposure, Gate, Lifecycle, ObjectState, Others, Ownership, Part, PodName, PodRef, PodView, Role,
    RoleLabels, Signs, Snapshot, Step, SubsetName, Uid,
};

/// Does what the step says. A name that is taken is refused, and so is a write on a version that is not the newest: then nothing
/// changes. `uid` names a Pod that is made.
pub fn accept(snapshot: &mut Snapshot, step: &Step, uid: Uid) {
    let now = snapshot.now;
    match &step.action {
        Action::Create { name, role, slot, subset } => {
            let is_taken = snapshot.pods.iter().any(|view| view.pod.name == *name);
            if !is_taken {
                let born =
                    born(snapshot, name, uid, &Kind { role: *role, slot: *slot, subset: subset.as_ref() });
                snapshot.pods.push(born);
            }
        }
        Action::Convert { pod, from: _, to } => write(snapshot, pod, |view| {
            view.role = *to;
            view.role_since = now;
            view.labels = RoleLabels::Right;
        }),
        Action::Wake { pod, address: _ } => write(snapshot, pod, |view| {
            view.first_ticket = view.first_ticket.or(Some(now));
            if view.is_at_gate() && view.has_known_key {
                view.gate = Gate::Passed { since: now };
            }
        }),
        Action::Delete { pod, .. } => {
            write(snapshot, pod, |view| view.lifecycle = Lifecycle::Terminating);
        }
        Action::Adopt { pod } => write(snapshot, pod, |view| view.ownership = Ownership::Ours),
        Action::Relabel { pod, role: _ } => write(snapshot, pod, |view| view.labels = RoleLabels::Right),
        Action::Retire { object } => snapshot.leftovers.retain(|known| known != object),
        Action::PublishBudget => snapshot.budget = Some(ObjectState::Current),
        Action::PublishGroup => snapshot.group = Some(ObjectState::Current),
        Action::PublishService => expose(snapshot, |exposure| exposure.service = ObjectState::Current),
        Action::ClearAddresses => expose(snapshot, |exposure| exposure.others = Others::None),
        Action::Expose { family, endpoints } => expose(snapshot, |exposure| {
            for slice in exposure.slices.iter_mut().filter(|slice| slice.family == *family) {
                (slice.state, slice.endpoints) = (ObjectState::Current, endpoints.clone());
            }
        }),
    }
    snapshot.pods.sort_by(|one, other| one.pod.name.cmp(&other.pod.name));
}

/// A writer has changed the Pod.
pub fn bump(view: &mut PodView) {
    let version = view.pod.resource_version.parse::<u64>().unwrap_or_default();
    view.pod.resource_version = version.saturating_add(1).to_string();
}

fn write(snapshot: &mut Snapshot, pod: &PodRef, change: impl FnOnce(&mut PodView)) {
    if let Some(view) = snapshot.pods.iter_mut().find(|view| view.pod == *pod) {
        change(view);
        bump(view);
    }
}

fn expose(snapshot: &mut Snapshot, change: impl FnOnce(&mut Exposure)) {
    if let Some(exposure) = &mut snapshot.exposure {
        change(exposure);
    }
}

/// What a Pod is made as.
struct Kind<'a> {
    role: Role,
    slot: u32,
    subset: Option<&'a SubsetName>,
}

/// A Pod that was just made.
fn born(snapshot: &Snapshot, name: &PodName, uid: Uid, kind: &Kind<'_>) -> PodView {
    let Kind { role, slot, subset } = kind;
    let mut subsets = snapshot.desired.topology.subsets.iter();
    PodView {
        pod: PodRef { name: name.clone(), uid, resource_version: "1".to_owned() },
        ownership: Ownership::Ours,
        role: *role,
        labels: RoleLabels::Right,
        role_since: snapshot.now,
        part: Part::None,
        slot: *slot,
        revision: snapshot.desired.revision.clone(),
        subset: subsets.position(|known| Some(&known.name) == *subset),
        created: snapshot.now,
        lifecycle: Lifecycle::Unscheduled,
        gate: if *role == Role::Cold { Gate::Ahead } else { Gate::None },
        gate_trouble: None,
        has_known_key: true,
        stopped: None,
        first_ticket: None,
        next_ticket: None,
        is_running: false,
        signs: Signs::default(),
        is_serving: false,
        node: None,
        address: None,
        other_address: None,
    }
}
