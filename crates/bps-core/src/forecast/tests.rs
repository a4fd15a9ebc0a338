//! Whole forecasts, a line for each thing that happens.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use super::{Ending, Event, Forecast, Happening, NodeRoom, Pace, Wave, forecast};
use crate::model::{
    Action, Desired, Gate, Lifecycle, NodeHealth, NodeName, NodeView, ObjectState, Part, PodName, PodView,
    Role, Snapshot, SubsetName,
};
use crate::testing as given;

/// How long things take here.
fn pace() -> Pace {
    Pace {
        start: Some(SignedDuration::from_secs(4)),
        gate: Some(SignedDuration::from_secs(2)),
        wake: Some(SignedDuration::from_secs(1)),
        takeover: SignedDuration::from_secs(3),
    }
}

/// A node of a zone that is called as it begins: `a1` is in zone `a`.
fn node(name: &str, health: NodeHealth) -> NodeView {
    let zone = Some(name[..1].to_owned());
    NodeView { domain: zone.clone(), zone, ..given::node(name, health) }
}

fn place(name: &str, room: usize) -> NodeRoom {
    NodeRoom { node: node(name, NodeHealth::Healthy), room, admits: true, admits_subsets: Vec::new() }
}

fn pod_on(name: &str, role: Role, node: NodeView) -> PodView {
    let slot = name[1..].parse().expect("a number after the letter");
    PodView { node: Some(node), ..given::pod(name, role, slot) }
}

/// A set with a Service that leads to its primaries.
fn exposed(counts: [usize; 3], pods: Vec<PodView>) -> Snapshot {
    let mut snapshot = given::snapshot(given::desired(counts), pods);
    snapshot.exposure = Some(given::exposure(ObjectState::Absent, Vec::new()));
    let plan = crate::plan::plan(&snapshot);
    let exposes = |step: &&crate::model::Step| matches!(step.action, Action::Expose { .. });
    let step = plan.steps.iter().find(exposes).expect("addresses are written");
    super::effects::accept(&mut snapshot, step, crate::model::Uid(String::new()));
    snapshot
}

fn lost(mut snapshot: Snapshot, name: &str) -> Snapshot {
    let nodes = snapshot.pods.iter_mut().filter_map(|view| view.node.as_mut());
    for node in nodes.filter(|node| node.name.0 == name) {
        node.health = NodeHealth::NotReady;
    }
    snapshot
}

fn happening(Happening { pod, event }: &Happening) -> String {
    let word = match event {
        Event::Bound(NodeName(node)) => format!("on {node}"),
        Event::AtGate => "at gate".to_owned(),
        Event::Ready => "ready".to_owned(),
        Event::TookOver => "acts".to_owned(),
        Event::StandsBy => "stands by".to_owned(),
        Event::Evicted => "evicted".to_owned(),
        Event::Gone => "gone".to_owned(),
    };
    format!("{} {word}", short(pod))
}

/// A Pod that was made is called by its role in these tests, because its name says nothing.
fn short(PodName(name): &PodName) -> &str {
    if name.starts_with("web-") { "new" } else { name }
}

fn step(action: &Action) -> Option<String> {
    Some(match action {
        Action::Create { role, .. } => format!("create {role}"),
        Action::Convert { pod, to, .. } => format!("{} to {to}", short(&pod.name)),
        Action::Wake { pod, .. } => format!("wake {}", short(&pod.name)),
        Action::Delete { pod, .. } => format!("delete {}", short(&pod.name)),
        Action::Expose { .. } => "expose".to_owned(),
        Action::Adopt { .. }
        | Action::Relabel { .. }
        | Action::PublishService
        | Action::PublishGroup
        | Action::PublishBudget
        | Action::ClearAddresses
        | Action::Retire { .. } => return None,
    })
}

fn line(Wave { after, happenings, steps, serving }: &Wave) -> String {
    let what: Vec<String> =
        happenings.iter().map(happening).chain(steps.iter().filter_map(|one| step(&one.action))).collect();
    let serving: Vec<&str> = serving.iter().map(short).collect();
    format!("{} s: {}; serving {}", after.as_secs(), what.join(", "), serving.join(" "))
}

fn lines(foreseen: &Forecast) -> Vec<String> {
    assert_eq!(foreseen.ending, Ending::Rest);
    foreseen.waves.iter().map(line).collect()
}

fn tier(foreseen: &Forecast, role: Role) -> usize {
    let has = |view: &&PodView| view.role == role && view.is_available() && !view.is_on_lost_node();
    foreseen.pods.iter().filter(has).count()
}

#[test]
fn a_lost_primary_is_followed_by_the_hot_backup_and_every_tier_is_filled_elsewhere() {
    let [a1, b1, c1] = ["a1", "b1", "c1"].map(|name| node(name, NodeHealth::Healthy));
    let pods =
        vec![pod_on("p1", Role::Primary, a1), pod_on("p2", Role::Hot, b1), pod_on("p3", Role::Cold, c1)];
    let snapshot = lost(exposed([1, 1, 1], pods), "a1");
    let foreseen = forecast(snapshot, vec![place("b1", 5), place("c1", 5)], pace());
    assert!(foreseen.survives());
    assert_eq!(foreseen.at_first, []);
    assert_eq!(foreseen.serving, [PodName("p2".into())]);
    assert_eq!(Role::ALL.map(|role| tier(&foreseen, role)), [1, 1, 1]);
    assert_eq!(
        lines(&foreseen),
        [
            "0 s: p2 to primary, p3 to hot, expose; serving p2",
            "0 s: p1 to hot; serving p2",
            "0 s: create cold, wake p3; serving p2",
            "0 s: new on b1; serving p2",
            "1 s: p3 ready; serving p2",
            "2 s: new at gate; serving p2",
            "300 s: p1 evicted; serving p2",
        ]
    );
}

#[test]
fn what_nothing_can_replace_does_not_survive() {
    let pods = vec![pod_on("p1", Role::Primary, node("a1", NodeHealth::Healthy))];
    let snapshot = lost(exposed([1, 0, 0], pods), "a1");
    let foreseen = forecast(snapshot, vec![place("b1", 0)], pace());
    assert!(!foreseen.survives());
    assert_eq!(foreseen.unplaced.len(), 1, "the Pod in its place finds no node: {:?}", lines(&foreseen));
    assert_eq!(foreseen.short_for(), None, "no more than in the end was to be had");
}

#[test]
fn a_standby_acts_when_the_lease_of_its_lost_active_has_run_out() {
    let mut active = pod_on("p1", Role::Primary, node("a1", NodeHealth::Healthy));
    active.part = Part::Active { peer: Some(PodName("p2".into())) };
    let mut standby = pod_on("p2", Role::Hot, node("b1", NodeHealth::Healthy));
    standby.part = Part::Standby { peers: vec![PodName("p1".into())] };
    let mut snapshot = given::snapshot(given::desired([1, 1, 0]), vec![active, standby]);
    snapshot.group = Some(ObjectState::Current);
    let foreseen = forecast(lost(snapshot, "a1"), vec![place("b1", 5), place("c1", 5)], pace());
    assert!(foreseen.survives());
    assert_eq!(foreseen.serving, [PodName("p2".into())]);
    assert_eq!(foreseen.short_for(), Some(SignedDuration::from_secs(3)));
    let standbys = foreseen.pods.iter().filter(|view| matches!(view.part, Part::Standby { .. }));
    assert_eq!(standbys.count(), 1, "{:?}", lines(&foreseen));
}

#[test]
fn a_standby_of_several_acts_for_one_and_a_spare_stands_by_for_the_others() {
    let active = |name: &str, on: &str| {
        let mut active = pod_on(name, Role::Primary, node(on, NodeHealth::Healthy));
        active.part = Part::Active { peer: Some(PodName("p3".into())) };
        active
    };
    let mut standby = pod_on("p3", Role::Hot, node("c1", NodeHealth::Healthy));
    standby.part = Part::Standby { peers: ["p1", "p2"].map(|name| PodName(name.into())).to_vec() };
    let pods = vec![active("p1", "a1"), active("p2", "b1"), standby];
    let desired = Desired { standby_for: 2, ..given::desired([2, 1, 0]) };
    let mut snapshot = given::snapshot(desired, pods);
    (snapshot.group, snapshot.level) =
        (Some(ObjectState::Current), Some(["p1", "p2"].map(|name| PodName(name.into())).into()));
    let foreseen = forecast(lost(snapshot, "a1"), vec![place("b1", 5), place("c1", 5)], pace());
    assert!(foreseen.survives(), "{:?}", lines(&foreseen));
    assert_eq!(foreseen.serving, ["p2", "p3"].map(|name| PodName(name.into())));
    let standbys: Vec<&PodView> =
        foreseen.pods.iter().filter(|view| matches!(view.part, Part::Standby { .. })).collect();
    assert_eq!(standbys.len(), 1, "{:?}", lines(&foreseen));
    assert_eq!(standbys[0].part.peers().len(), 2, "{:?}", lines(&foreseen));
}

#[test]
fn who_has_the_only_copy_of_another_state_hands_over_to_a_spare_and_acts_with_it() {
    let active = |name: &str| {
        let mut active = pod_on(name, Role::Primary, node("a1", NodeHealth::Healthy));
        active.part = Part::Active { peer: Some(PodName("p3".into())) };
        active
    };
    let mut standby = pod_on("p3", Role::Hot, node("c1", NodeHealth::Healthy));
    standby.part = Part::Standby { peers: ["p1", "p2"].map(|name| PodName(name.into())).to_vec() };
    let spare = pod_on("p4", Role::Cold, node("b1", NodeHealth::Healthy));
    let foreseen = |level: &[&str], with_spare: bool| {
        let mut pods = vec![active("p1"), active("p2"), standby.clone()];
        pods.extend(with_spare.then(|| spare.clone()));
        let desired = Desired { standby_for: 2, ..given::desired([2, 1, usize::from(with_spare)]) };
        let mut snapshot = given::snapshot(desired, pods);
        let level = level.iter().map(|name| PodName((*name).to_owned())).collect();
        (snapshot.group, snapshot.level) = (Some(ObjectState::Current), Some(level));
        let places = if with_spare { vec![place("b1", 5), place("c1", 5)] } else { vec![place("c1", 0)] };
        forecast(lost(snapshot, "a1"), places, pace())
    };
    let freed = foreseen(&["p1", "p2"], true);
    assert!(freed.survives(), "{:?}", lines(&freed));
    assert_eq!((freed.serving.len(), &freed.serving[0]), (2, &PodName("p3".into())), "{:?}", lines(&freed));
    // Without one that could take over from it, and without the state of both, one pair waits.
    for waits in [foreseen(&["p1", "p2"], false), foreseen(&["p1"], true)] {
        assert!(!waits.survives(), "{:?}", lines(&waits));
        assert_eq!(waits.serving.len(), 1, "{:?}", lines(&waits));
    }
}

#[test]
fn of_two_actives_on_a_cordoned_node_with_one_standby_one_hands_over_and_the_other_serves_on() {
    let active = |name: &str| {
        let mut active = pod_on(name, Role::Primary, node("a1", NodeHealth::Cordoned));
        active.part = Part::Active { peer: Some(PodName("p3".into())) };
        active
    };
    let mut standby = pod_on("p3", Role::Hot, node("c1", NodeHealth::Healthy));
    standby.part = Part::Standby { peers: ["p1", "p2"].map(|name| PodName(name.into())).to_vec() };
    let desired = Desired { standby_for: 2, ..given::desired([2, 1, 0]) };
    let mut snapshot = given::snapshot(desired, vec![active("p1"), active("p2"), standby]);
    (snapshot.group, snapshot.level) =
        (Some(ObjectState::Current), Some(["p1", "p2"].map(|name| PodName(name.into())).into()));
    let foreseen = forecast(snapshot, vec![place("c1", 0)], pace());
    let first = &foreseen.waves[0];
    assert!(first.serving.contains(&PodName("p2".into())), "{:?}", lines(&foreseen));
    assert_eq!(foreseen.serving.len(), 2, "{:?}", lines(&foreseen));
}

#[test]
fn a_standby_without_the_whole_state_does_not_act() {
    let mut active = pod_on("p1", Role::Primary, node("a1", NodeHealth::Healthy));
    active.part = Part::Active { peer: Some(PodName("p2".into())) };
    let mut standby = pod_on("p2", Role::Hot, node("b1", NodeHealth::Healthy));
    standby.part = Part::Standby { peers: vec![PodName("p1".into())] };
    let mut snapshot = given::snapshot(given::desired([1, 1, 0]), vec![active, standby]);
    (snapshot.group, snapshot.level) = (Some(ObjectState::Current), Some(BTreeSet::new()));
    let foreseen = forecast(lost(snapshot, "a1"), vec![place("b1", 5), place("c1", 5)], pace());
    assert!(!foreseen.survives(), "{:?}", lines(&foreseen));
}

#[test]
fn an_active_on_a_cordoned_node_hands_over() {
    let mut active = pod_on("p1", Role::Primary, node("a1", NodeHealth::Cordoned));
    active.part = Part::Active { peer: Some(PodName("p2".into())) };
    let mut standby = pod_on("p2", Role::Hot, node("b1", NodeHealth::Healthy));
    standby.part = Part::Standby { peers: vec![PodName("p1".into())] };
    let mut snapshot = given::snapshot(given::desired([1, 1, 0]), vec![active, standby]);
    snapshot.group = Some(ObjectState::Current);
    let foreseen = forecast(snapshot, vec![place("b1", 5)], pace());
    assert_eq!(foreseen.serving, [PodName("p2".into())], "{:?}", lines(&foreseen));
}

#[test]
fn a_wake_up_may_take_longer_than_its_deadline_while_the_application_is_at_work() {
    let pods = vec![
        pod_on("p1", Role::Primary, node("a1", NodeHealth::Healthy)),
        pod_on("p2", Role::Cold, node("b1", NodeHealth::Healthy)),
    ];
    let slow = Pace { wake: Some(SignedDuration::from_secs(20)), ..pace() };
    let foreseen = forecast(lost(exposed([1, 0, 1], pods), "a1"), vec![place("b1", 5), place("c1", 5)], slow);
    assert_eq!(foreseen.serving, [PodName("p2".into())], "{:?}", lines(&foreseen));
    assert_eq!(foreseen.short_for(), Some(SignedDuration::from_secs(20)));
}

#[test]
fn a_pod_that_was_bound_before_it_had_an_address_serves_when_it_is_ready() {
    let mut starting = pod_on("p1", Role::Primary, node("a1", NodeHealth::Healthy));
    (starting.lifecycle, starting.address) = (Lifecycle::Starting, None);
    (starting.is_running, starting.is_serving) = (false, false);
    let mut snapshot = given::snapshot(given::desired([1, 0, 0]), vec![starting]);
    snapshot.exposure = Some(given::exposure(ObjectState::Absent, Vec::new()));
    let foreseen = forecast(snapshot, vec![place("a1", 5)], pace());
    assert_eq!(foreseen.serving, [PodName("p1".into())], "{:?}", lines(&foreseen));
}

#[test]
fn a_pod_goes_where_the_fewest_of_its_set_are_and_its_subset_may_be() {
    let open = |name: &str, admits: [bool; 2]| NodeRoom { admits_subsets: admits.to_vec(), ..place(name, 1) };
    let mut places = vec![open("a1", [true, false]), open("b1", [true, true]), open("c1", [true, false])];
    let others = [pod_on("p1", Role::Hot, node("a1", NodeHealth::Healthy))];
    let waiting = |subset: usize| PodView {
        subset: Some(subset),
        lifecycle: Lifecycle::Unscheduled,
        ..pod_on("p2", Role::Hot, node("a1", NodeHealth::Healthy))
    };
    let mut chosen = |subset: usize| {
        let place = super::places::chosen(&waiting(subset), &others, &mut places)?;
        place.room -= 1;
        Some(place.node.name.0.clone())
    };
    assert_eq!(chosen(1).as_deref(), Some("b1"), "the only one that admits the second subset");
    assert_eq!(chosen(1), None, "it has no more room");
    assert_eq!(chosen(0).as_deref(), Some("c1"), "a hot backup is on the other");
}

#[test]
fn a_pace_is_the_median_of_what_the_pods_took() {
    let took = |name: &str, gate: Gate, seconds: i64| {
        let created = given::seconds_ago(100);
        let since = created + SignedDuration::from_secs(seconds);
        PodView { created, gate, lifecycle: Lifecycle::Ready { since }, ..given::pod(name, Role::Hot, 1) }
    };
    let passed = Gate::Passed { since: given::seconds_ago(90) };
    let pods = vec![
        took("p1", Gate::None, 4),
        took("p2", Gate::None, 90),
        took("p3", Gate::None, 2),
        took("p4", passed, 13),
        // It was ready before, and has come back after an hour.
        took("p5", passed, 3_600),
    ];
    let snapshot = given::snapshot(given::desired([1, 1, 0]), pods);
    let seconds = |seconds| Some(SignedDuration::from_secs(seconds));
    let takeover = SignedDuration::from_secs(2);
    assert_eq!(
        Pace::measured(&snapshot, takeover),
        Pace { start: seconds(4), gate: None, wake: seconds(3), takeover }
    );
}

#[test]
fn a_storm_holds_a_set_back_until_it_is_believed() {
    let pods = vec![
        pod_on("p1", Role::Primary, node("a1", NodeHealth::Healthy)),
        pod_on("p2", Role::Hot, node("b1", NodeHealth::Healthy)),
    ];
    let mut snapshot = lost(exposed([1, 1, 0], pods), "a1");
    snapshot.storm = Some(given::storm(10, 12));
    let foreseen = forecast(snapshot, vec![place("b1", 5), place("c1", 5)], pace());
    assert!(foreseen.survives());
    let made = foreseen.waves.iter().find(|wave| lines_of(wave).contains("create"));
    assert_eq!(made.map(|wave| wave.after), Some(SignedDuration::from_secs(60)), "{:?}", lines(&foreseen));
}

fn lines_of(wave: &Wave) -> String {
    line(wave)
}

#[test]
fn subsets_are_found_by_their_names() {
    let mut desired = given::desired([1, 0, 0]);
    let subset = |name: &str, replicas| crate::model::Subset {
        name: SubsetName(name.into()),
        replicas,
        hot_backups: 0,
        cold_backups: 0,
        partition: 0,
    };
    desired.topology.subsets = vec![subset("one", 0), subset("two", 1)];
    let places = vec![
        NodeRoom { admits: false, admits_subsets: vec![true, false], ..place("a1", 1) },
        NodeRoom { admits: false, admits_subsets: vec![false, true], ..place("b1", 1) },
    ];
    let foreseen = forecast(given::snapshot(desired, Vec::new()), places, pace());
    assert_eq!(
        lines(&foreseen),
        ["0 s: create primary; serving ", "0 s: new on b1; serving ", "4 s: new ready; serving new"]
    );
}
