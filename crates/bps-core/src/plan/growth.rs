//! How the work of a plan grows with the Pods: at most as n log n, counted in visits of seats.

use jiff::SignedDuration;
use proptest::prelude::*;

use super::draft::Draft;
use super::{RULES, check, plan, select};
use crate::model::{
    Desired, Endpoint, Gate, Lifecycle, NodeHealth, NodeName, NodeView, ObjectState, Part, PodView, Role,
    Snapshot, Strategies, Strategy as Choice, Subset, SubsetName, SubsetShare, Topology, share_out,
};
use crate::testing::{desired, exposure, node, now, outdated, pod, seconds_ago, snapshot, storm};

/// Pods of a tier in the smaller of two sets that are compared.
const PODS: usize = 96;
/// Most visits in a set twice as large, as a multiple: twice as many and the growth of the logarithm, never four times.
const RATIO_MAX: usize = 3;
/// Failure domains over which the nodes are spread.
const DOMAINS: usize = 3;

/// Subsets of the nodes in sets that have some: a divisor of [`PODS`], so that each has its share.
const SUBSETS: usize = 16;

/// What is the matter with a set of so many Pods in a tier.
type Situation = (&'static str, fn(usize) -> Snapshot);

#[test]
fn the_work_of_a_plan_grows_with_the_pods_and_not_with_their_square() {
    let situations: [Situation; 15] = [
        ("a third of the nodes is lost", |count| third_lost(whole(count))),
        ("a third of the nodes is silent in a storm", |count| stormy(third_lost(whole(count)))),
        ("scaled in to one", |count| Snapshot { desired: desired([1, 1, 1]), ..exposed(whole(count)) }),
        ("scaled out from nothing", |count| snapshot(desired([count, count, count]), Vec::new())),
        ("scaled out beside Pods that end", |count| {
            let ending = |view: PodView| PodView { lifecycle: Lifecycle::Terminating, ..view };
            changed(whole(count), |_| true, ending)
        }),
        ("no primary is ready", |count| changed(whole(count), is_primary, unready)),
        ("no primary is ready, and too many are there", |count| {
            let crowded = changed(whole(count), is_primary, unready);
            Snapshot { desired: desired([count / 2, 0, count]), ..crowded }
        }),
        ("no primary has a node", |count| {
            let without_hot = Snapshot { desired: desired([count, 0, count]), ..whole(count) };
            changed(without(without_hot, Role::Hot), is_primary, unscheduled)
        }),
        ("woken Pods do not start", |count| changed(whole(count), is_hot, woken)),
        ("a new template", |count| changed(whole(count), |_| true, of_a_former_template)),
        ("a new template without hot backups", |count| {
            let without_hot = Snapshot { desired: desired([count, 0, 0]), ..whole(count) };
            changed(without(without(without_hot, Role::Hot), Role::Cold), is_primary, of_a_former_template)
        }),
        ("every standby of a pair acts", |count| paired(whole(count), Role::Hot)),
        ("every active of a pair has a former template", |count| {
            changed(paired(whole(count), Role::Primary), is_primary, of_a_former_template)
        }),
        ("a third of the nodes is lost, with subsets", |count| in_subsets(third_lost(whole(count)))),
        ("all backups are in one subset", |count| {
            let crowded = |view: PodView| PodView { subset: Some(0), ..view };
            changed(in_subsets(whole(count)), |view| view.role != Role::Primary, crowded)
        }),
    ];
    for (name, situation) in situations {
        let (smaller, larger) = (visits(&situation(PODS)), visits(&situation(2 * PODS)));
        assert!(
            larger <= RATIO_MAX * smaller,
            "{name}: {smaller} visits for {PODS} Pods of a tier, {larger} for twice as many"
        );
    }
}

#[test]
fn subsets_add_little_to_the_work_of_a_plan() {
    let (without, with) = (third_lost(whole(PODS)), in_subsets(third_lost(whole(PODS))));
    let (without, with) = (visits(&without), visits(&with));
    assert!(10 * with <= 12 * without, "{without} visits without subsets, {with} with them");
}

/// Visits of seats in one plan that passes every check.
fn visits(snapshot: &Snapshot) -> usize {
    let planned = plan(snapshot);
    assert_eq!(check(snapshot, &planned), []);
    assert_ne!(planned.steps.len() + planned.holds.len(), 0, "there is nothing to plan");
    let mut draft = Draft::new(snapshot);
    for rule in RULES {
        rule(&mut draft);
    }
    draft.seats.visits()
}

proptest! {
    /// Taking the candidates one after the other is the same as choosing the best one again after each.
    #[test]
    fn candidates_come_in_the_order_of_single_choices(
        pods in prop::collection::vec(any_pod(), 0..12),
        strategies in (choice(), choice(), choice()),
        topology in prop::option::of((0_usize..=12, 0_usize..4)).prop_map(|halves| halves.map(|(primaries, hot)| split(primaries, hot)).unwrap_or_default()),
    ) {
        let (hot_to_primary, cold_to_hot, cold_to_primary) = strategies;
        let wish = Desired { topology, ..desired([12, 0, 0]) };
        let strategies = Strategies { hot_to_primary, cold_to_primary, cold_to_hot };
        let place = |(index, view): (usize, PodView)| {
            let slot = u32::try_from(index).expect("few Pods");
            let named = pod(&format!("web-{index}"), view.role, slot);
            let subset = view.subset.filter(|subset| *subset < wish.topology.subsets.len());
            PodView { pod: named.pod, slot, subset, ..view }
        };
        let pods: Vec<PodView> = pods.into_iter().enumerate().map(place).collect();
        let set = snapshot(Desired { strategies, ..wish }, pods);
        let mut draft = Draft::new(&set);
        let givers = [Role::Hot, Role::Cold];
        for index in select::candidates(&draft, &givers, Role::Primary) {
            let again = select::candidates(&draft, &givers, Role::Primary);
            prop_assert_eq!(again.first(), Some(&index));
            draft.convert(index, Role::Primary, crate::model::Reason::ScaledOut);
        }
    }
}

fn any_pod() -> impl Strategy<Value = PodView> {
    let roles = prop::sample::select(Role::ALL.to_vec());
    // Two failure domains of two nodes, and one node in none.
    let place = prop::option::weighted(0.9, 0..5_u8);
    let subset = prop::option::weighted(0.8, 0_usize..2);
    (roles, place, 0_i64..3, any::<bool>(), subset).prop_map(|(role, place, age, is_updated, subset)| {
        let (created, revision) =
            (seconds_ago(age), if is_updated { crate::testing::current() } else { outdated() });
        let node = place.map(|index| {
            let domain = (index < 4).then(|| format!("rack-{}", index % 2));
            NodeView { domain, ..node(&format!("n{index}"), NodeHealth::Healthy) }
        });
        let standing = pod("web", role, 0);
        let lifecycle = match (&node, standing.lifecycle) {
            (None, _) => Lifecycle::Unscheduled,
            (Some(_), Lifecycle::Ready { .. }) => Lifecycle::Ready { since: created },
            (Some(_), lifecycle) => lifecycle,
        };
        PodView { revision, subset, created, lifecycle, node, ..standing }
    })
}

/// Two subsets: one with so many primaries and hot backups, the other with what is left of twelve primaries.
fn split(primaries: usize, hot: usize) -> Topology {
    let subset = |name: &str, replicas, hot_backups| Subset {
        name: SubsetName(name.to_owned()),
        replicas,
        hot_backups,
        cold_backups: 0,
        partition: 0,
    };
    Topology {
        subsets: vec![subset("a", primaries, hot), subset("b", 12 - primaries, 0)],
        rebalances: true,
        patience: None,
    }
}

fn choice() -> impl Strategy<Value = Choice> {
    prop::sample::select(vec![Choice::Best, Choice::Random, Choice::Oldest, Choice::Newest, Choice::Spread])
}

/// A set with so many settled Pods in each tier, six of them on each node.
fn whole(count: usize) -> Snapshot {
    let tiers = Role::ALL.into_iter().enumerate();
    let pods = tiers.flat_map(|(tier, role)| {
        (0..count).map(move |index| {
            let slot = u32::try_from(tier * count + index).expect("few Pods");
            let host = index / 2;
            let domain = Some(format!("rack-{}", host % DOMAINS));
            let node = NodeView { domain, ..node(&format!("n{host}"), NodeHealth::Healthy) };
            PodView { node: Some(node), ..pod(&format!("web-{slot:05}"), role, slot) }
        })
    });
    snapshot(desired([count, count, count]), pods.collect())
}

/// The same set in subsets, each with as many Pods of each tier as its share says.
fn in_subsets(set: Snapshot) -> Snapshot {
    let shares = [SubsetShare::EVEN; SUBSETS];
    let [replicas, hot, cold] = Role::ALL.map(|role| share_out(&shares, set.desired.count(role), &[]));
    let subset = |index: usize| Subset {
        name: SubsetName(format!("s{index}")),
        replicas: replicas[index],
        hot_backups: hot[index],
        cold_backups: cold[index],
        partition: 0,
    };
    let topology = Topology { subsets: (0..SUBSETS).map(subset).collect(), rebalances: true, patience: None };
    let placed = |view: PodView| {
        let slot = usize::try_from(view.slot).expect("few Pods");
        PodView { subset: Some(slot % SUBSETS), ..view }
    };
    let set = Snapshot { desired: Desired { topology, ..set.desired }, ..set };
    changed(set, |_| true, placed)
}

fn changed(
    set: Snapshot,
    is_meant: impl Fn(&PodView) -> bool,
    change: impl Fn(PodView) -> PodView,
) -> Snapshot {
    let changed = |view: PodView| if is_meant(&view) { change(view) } else { view };
    Snapshot { pods: set.pods.into_iter().map(changed).collect(), ..set }
}

fn without(mut set: Snapshot, role: Role) -> Snapshot {
    set.pods.retain(|view| view.role != role);
    set
}

fn is_primary(view: &PodView) -> bool {
    view.role == Role::Primary
}

fn is_hot(view: &PodView) -> bool {
    view.role == Role::Hot
}

fn third_lost(set: Snapshot) -> Snapshot {
    let is_lost = |view: &PodView| view.slot.is_multiple_of(3);
    let lost = |view: PodView| PodView { node: Some(node("silent", NodeHealth::NotReady)), ..view };
    exposed(changed(set, is_lost, lost))
}

fn stormy(set: Snapshot) -> Snapshot {
    let storm = storm(set.pods.len() / 3, set.pods.len());
    let nodes = vec![NodeName("silent".into())];
    Snapshot { storm: Some(crate::model::Storm { nodes, ..storm }), ..set }
}

/// The same set with a Service that leads to its primaries.
fn exposed(set: Snapshot) -> Snapshot {
    let endpoint = |view: &PodView| Endpoint {
        pod: view.pod.name.clone(),
        uid: view.pod.uid.clone(),
        address: view.address.expect("settled Pods have one"),
        node: view.node.as_ref().map(|node| node.name.clone()),
        zone: None,
        is_ready: true,
        is_terminating: false,
    };
    let endpoints = set.pods.iter().filter(|view| is_primary(view)).map(endpoint).collect();
    let exposure = exposure(ObjectState::Current, endpoints);
    Snapshot { exposure: Some(exposure), ..set }
}

fn unready(view: PodView) -> PodView {
    PodView { lifecycle: Lifecycle::Unready { since: seconds_ago(4) }, ..view }
}

fn unscheduled(view: PodView) -> PodView {
    PodView { lifecycle: Lifecycle::Unscheduled, node: None, ..view }
}

fn woken(view: PodView) -> PodView {
    let since = seconds_ago(4);
    PodView {
        lifecycle: Lifecycle::Starting,
        gate: Gate::Passed { since },
        role_since: since,
        first_ticket: Some(since),
        is_running: false,
        ..view
    }
}

fn of_a_former_template(view: PodView) -> PodView {
    PodView { revision: outdated(), ..view }
}

/// The same set in pairs of a primary and a hot backup; who of them acts has this role.
fn paired(set: Snapshot, acting: Role) -> Snapshot {
    let names: Vec<_> = set.pods.iter().map(|view| view.pod.name.clone()).collect();
    let tier = names.len() / Role::ALL.len();
    let part = |view: &PodView| {
        let slot = usize::try_from(view.slot).expect("few Pods");
        let peer = match view.role {
            Role::Primary => names.get(slot + tier).cloned(),
            Role::Hot => names.get(slot - tier).cloned(),
            Role::Cold => return Part::None,
        };
        if view.role == acting {
            Part::Active { peer }
        } else {
            Part::Standby { peers: peer.into_iter().collect() }
        }
    };
    let parts: Vec<Part> = set.pods.iter().map(part).collect();
    let pods = set.pods.into_iter().zip(parts).map(|(view, part)| PodView { part, ..view }).collect();
    let unhurried = Desired { failover_delay: SignedDuration::from_secs(60), ..set.desired };
    Snapshot { pods, desired: unhurried, group: Some(ObjectState::Current), now: now(), ..set }
}
