//! What scenario files cannot say: names of new Pods, and that `check` refuses each kind of wrong plan.

use jiff::SignedDuration;

use super::expose::ENDPOINTS_MAX;
use super::{Violation, check, plan};
use crate::model::{
    Action, Endpoint, Hold, Lifecycle, NodeHealth, ObjectState, Ownership, Plan, PodName, PodView, Reason,
    Role, Snapshot, Step,
};
use crate::testing::{desired, exposure, node, now, outdated, pod, seconds_ago, snapshot};

#[test]
fn the_same_shortage_gives_the_same_name_again() {
    let shortage = snapshot(desired([1, 0, 0]), vec![]);
    let names = created(&shortage);
    assert_eq!(names, created(&shortage));
    assert_eq!(names.len(), 1);
    let digits = names[0].0.strip_prefix("web-").expect("it begins with the set's name");
    assert!(digits.len() == 12 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digits}");
}

#[test]
fn a_name_differs_from_a_terminating_predecessor_a_collision_and_another_template() {
    let first = created(&snapshot(desired([1, 0, 0]), vec![]));
    let leaving = PodView { lifecycle: Lifecycle::Terminating, ..pod(&first[0].0, Role::Primary, 0) };
    let after_leaving = created(&snapshot(desired([1, 0, 0]), vec![leaving.clone()]));
    let second = PodView { lifecycle: Lifecycle::Terminating, ..pod(&after_leaving[0].0, Role::Primary, 0) };
    let after_both = created(&snapshot(desired([1, 0, 0]), vec![leaving, second]));
    let mut collided = desired([1, 0, 0]);
    collided.collisions = 1;
    let after_collision = created(&snapshot(collided, vec![]));
    let mut changed = desired([1, 0, 0]);
    changed.revision = outdated();
    let after_change = created(&snapshot(changed, vec![]));

    let mut names = [first, after_leaving, after_both, after_collision, after_change].concat();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 5);
}

#[test]
fn a_name_that_a_pod_bears_is_not_given_again_although_its_slot_was_edited() {
    let first = created(&snapshot(desired([1, 0, 0]), vec![]));
    let edited = snapshot(desired([2, 0, 0]), vec![pod(&first[0].0, Role::Primary, 7)]);
    let planned = plan(&edited);
    assert_eq!(check(&edited, &planned), []);
    let slots: Vec<u32> = planned.steps.iter().filter_map(|step| slot(&step.action)).collect();
    assert_eq!(slots, [1]);
}

#[test]
fn new_pods_take_the_lowest_free_slots() {
    let taken = snapshot(desired([4, 0, 0]), vec![pod("a", Role::Primary, 0), pod("b", Role::Primary, 2)]);
    let slots: Vec<u32> = plan(&taken).steps.iter().filter_map(|step| slot(&step.action)).collect();
    assert_eq!(slots, [1, 3]);
}

#[test]
fn a_slice_gets_no_more_addresses_than_fit_and_keeps_those_that_clients_reach() {
    let fitting = u32::try_from(ENDPOINTS_MAX).unwrap();
    let primary = |slot: u32| pod(&format!("web-{slot:04}"), Role::Primary, slot);
    let exposing = |pods: Vec<PodView>, endpoints: Vec<Endpoint>| {
        let exposure = Some(exposure(ObjectState::Current, endpoints));
        let crowded = Snapshot { exposure, ..snapshot(desired([ENDPOINTS_MAX + 2, 0, 0]), pods) };
        let exposed = plan(&crowded).steps.into_iter().find_map(|step| {
            if let Action::Expose { endpoints, .. } = step.action { Some(endpoints) } else { None }
        });
        exposed.unwrap()
    };
    let names = |endpoints: &[Endpoint]| -> Vec<PodName> {
        endpoints.iter().map(|endpoint| endpoint.pod.clone()).collect()
    };
    let wanted = |slots: &mut dyn Iterator<Item = u32>| -> Vec<PodName> {
        slots.map(|slot| primary(slot).pod.name).collect()
    };
    let all: Vec<PodView> = (0..fitting + 2).map(primary).collect();
    let first = exposing(all.clone(), Vec::new());
    assert_eq!(names(&first), wanted(&mut (0..fitting)));

    let reached = exposing(all[ENDPOINTS_MAX..].to_vec(), Vec::new());
    let then = exposing(all, reached);
    assert_eq!(names(&then), wanted(&mut (0..fitting - 2).chain(fitting..fitting + 2)));
}

#[test]
fn the_earliest_hold_decides_when_to_look_again() {
    let mut wish = desired([1, 0, 0]);
    wish.failover_delay = SignedDuration::from_secs(10);
    let lost =
        PodView { lifecycle: Lifecycle::Unready { since: seconds_ago(4) }, ..pod("a", Role::Primary, 0) };
    let planned = plan(&snapshot(wish, vec![lost]));
    assert_eq!(planned.next_look(), Some(now() + SignedDuration::from_secs(6)));
    assert_eq!(Plan::default().next_look(), None);
}

#[test]
fn check_refuses_two_steps_on_one_pod() {
    let set = snapshot(desired([2, 0, 0]), vec![pod("a", Role::Hot, 0), pod("b", Role::Primary, 1)]);
    let twice = steps(&[promote(&set.pods[0]), delete(&set.pods[0])]);
    assert_eq!(check(&set, &twice), [Violation::NamedTwice(PodName("a".into()))]);
}

#[test]
fn check_refuses_steps_on_pods_that_are_not_ours_or_not_there() {
    let orphan = PodView { ownership: Ownership::Orphan, ..pod("a", Role::Hot, 0) };
    let set = snapshot(desired([1, 1, 0]), vec![orphan, pod("b", Role::Primary, 1)]);
    let not_ours = |name: &str| vec![Violation::NotOurs(PodName(name.into()))];
    assert_eq!(check(&set, &steps(&[delete(&set.pods[0])])), not_ours("a"));
    assert_eq!(check(&set, &steps(&[promote(&pod("x", Role::Hot, 0))])), not_ours("x"));
    assert_eq!(check(&set, &steps(&[Action::Adopt { pod: set.pods[1].pod.clone() }])), not_ours("b"));
    let mut newer = set.pods[1].clone();
    newer.pod.resource_version = "2".into();
    assert_eq!(check(&set, &steps(&[promote(&newer)])), not_ours("b"));
}

#[test]
fn check_refuses_a_name_that_is_taken() {
    let set = snapshot(desired([1, 0, 0]), vec![pod("a", Role::Primary, 0)]);
    let create = Action::Create { name: PodName("a".into()), role: Role::Cold, slot: 1, subset: None };
    assert_eq!(check(&set, &steps(&[create])), [Violation::NameTaken(PodName("a".into()))]);
}

#[test]
fn check_refuses_to_give_up_the_last_ready_primary() {
    let lost = PodView { node: Some(node("n1", NodeHealth::NotReady)), ..pod("a", Role::Primary, 0) };
    let set = snapshot(desired([1, 1, 0]), vec![lost, pod("b", Role::Primary, 1), pod("c", Role::Hot, 2)]);
    let violation = [Violation::LastPrimary(PodName("b".into()))];
    assert_eq!(check(&set, &steps(&[delete(&set.pods[1])])), violation);
    // The promotion of the same plan may fail, so it is no successor yet.
    assert_eq!(check(&set, &steps(&[demote(&set.pods[1]), promote(&set.pods[2])])), violation);
    assert_eq!(check(&set, &steps(&[demote(&set.pods[0]), delete(&set.pods[2])])), []);
}

#[test]
fn check_refuses_more_creations_than_can_be_wanted() {
    let set = snapshot(desired([1, 0, 0]), vec![]);
    let create = |slot: u32| Action::Create {
        name: PodName(format!("web-{slot}")),
        role: Role::Primary,
        slot,
        subset: None,
    };
    assert_eq!(check(&set, &steps(&[create(0), create(1)])), []);
    let three = steps(&[create(0), create(1), create(2)]);
    assert_eq!(check(&set, &three), [Violation::TooManyCreated(3)]);
}

#[test]
fn check_refuses_to_change_a_paused_set() {
    let mut set = snapshot(desired([1, 0, 0]), vec![pod("a", Role::Primary, 0)]);
    set.desired.paused = true;
    assert_eq!(check(&set, &steps(&[Action::PublishService])), [Violation::PausedSetChanged]);
    let paused = Hold { reason: Reason::Paused, pod: None, until: None };
    assert_eq!(plan(&set), Plan { steps: vec![], holds: vec![paused] });
}

fn created(snapshot: &Snapshot) -> Vec<PodName> {
    let name = |step: &Step| {
        if let Action::Create { name, .. } = &step.action { Some(name.clone()) } else { None }
    };
    plan(snapshot).steps.iter().filter_map(name).collect()
}

const fn slot(action: &Action) -> Option<u32> {
    if let Action::Create { slot, .. } = action { Some(*slot) } else { None }
}

fn steps(actions: &[Action]) -> Plan {
    let step = |action: &Action| Step { action: action.clone(), reason: Reason::ScaledOut };
    Plan { steps: actions.iter().map(step).collect(), holds: vec![] }
}

fn promote(view: &PodView) -> Action {
    Action::Convert { pod: view.pod.clone(), from: Role::Hot, to: Role::Primary }
}

fn demote(view: &PodView) -> Action {
    Action::Convert { pod: view.pod.clone(), from: Role::Primary, to: Role::Hot }
}

fn delete(view: &PodView) -> Action {
    Action::Delete { pod: view.pod.clone(), role: view.role, is_ready: view.is_ready() }
}
