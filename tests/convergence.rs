//! From any situation repeated passes lead to the wish and then plan nothing; on the way nothing precious is lost.
//!
//! The oracles are written from the promises of the API, not from the planner's rules.

use std::collections::BTreeMap;

use backuppodset::model;
use backuppodset::model::{
    Action, Exposure, Gate, Lifecycle, NodeHealth, NodeView, ObjectState, Ownership, Plan, PodView, Revision,
    Role, ScaleIn, Snapshot, Step, Storm, Strategies, Strategy as Choice, UpdateKind, UpdatePolicy,
};
use backuppodset::plan::{check, plan};
use jiff::SignedDuration;
use proptest::prelude::*;

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/given.rs"]
mod given;
#[path = "support/situation.rs"]
mod situation;

use cluster::{Cluster, Dice};

/// Passes, one a second, within which every set must have converged: a deadline of 20 s for each of at most three
/// failures in a row, and a rollout of at most nine Pods at about eight passes each, doubled.
const MOST_PASSES: usize = 260;

/// Passes in which faults are injected.
const FAULTY_PASSES: usize = 40;

/// Passes without a step after which nothing comes any more although a deadline is still running.
const QUIET_PASSES: usize = 30;

/// Conversions of one Pod on the way to convergence: up to primary, off a cordoned node, up again, and one more.
const MOST_CONVERSIONS: usize = 4;

/// Passes for which a ready hot backup may stand beside a missing primary: wake-up timeout 5 s, a failover delay of
/// at most 3 s, and two passes to see and to do.
const MOST_IDLE_PASSES: usize = 10;

/// How much of each plan is carried out.
#[derive(Clone, Copy, Debug)]
enum Application {
    Whole,
    RandomSubset,
}

/// One pass: plan, check, apply, one second. Returns what was planned.
fn pass(cluster: &mut Cluster, application: Application, dice: &mut Dice) -> Plan {
    let planned = plan(&cluster.snapshot);
    assert_eq!(check(&cluster.snapshot, &planned), [], "{planned:#?}\n{:#?}", cluster.snapshot);
    let mut steps = planned.steps.clone();
    dice.shuffle(&mut steps);
    let is_whole = matches!(application, Application::Whole);
    if !is_whole {
        let kept = dice.below(steps.len() + 1);
        steps.truncate(kept);
    }
    let live_before = live(&cluster.snapshot);
    for step in &steps {
        let standing = standing(&cluster.snapshot);
        cluster.apply(step);
        assert_kept(cluster, step, standing);
    }
    let wanted: usize = Role::ALL.iter().map(|role| cluster.snapshot.desired.count(*role)).sum();
    // Orphans cannot be converted in the pass that adopts them, so a Pod may be created beside them.
    let adopted = steps.iter().filter(|step| matches!(step.action, Action::Adopt { .. })).count();
    let most = live_before.max(wanted + 1) + adopted;
    assert!(
        !is_whole || live(&cluster.snapshot) <= most,
        "too many Pods: {planned:#?}\n{:#?}",
        cluster.snapshot
    );
    cluster.tick();
    planned
}

/// Pods that are there and not on their way out.
fn live(snapshot: &Snapshot) -> usize {
    let is_live = |view: &&PodView| {
        !matches!(view.lifecycle, Lifecycle::Terminating | Lifecycle::Finished) && !view.is_on_lost_node()
    };
    snapshot.pods.iter().filter(is_live).count()
}

/// Primaries that clients can use: labelled, ready, on a node that is heard of.
fn standing(snapshot: &Snapshot) -> usize {
    let stands = |view: &&PodView| {
        view.role == Role::Primary
            && matches!(view.lifecycle, Lifecycle::Ready { .. })
            && matches!(view.node_health(), NodeHealth::Healthy | NodeHealth::Cordoned)
    };
    snapshot.pods.iter().filter(stands).count()
}

fn assert_kept(cluster: &Cluster, step: &Step, before: usize) {
    let after = standing(&cluster.snapshot);
    let is_given_up = after < before && cluster.snapshot.desired.replicas > 0;
    assert!(!is_given_up || after > 0, "{step:?} took the last ready primary\n{:#?}", cluster.snapshot);
    assert!(
        !is_given_up || after >= cluster.snapshot.desired.replicas,
        "{step:?} left fewer ready primaries than are wanted\n{:#?}",
        cluster.snapshot
    );
}

/// Runs until two passes in a row plan nothing and the set is as wished.
fn converge(cluster: &mut Cluster, application: Application, dice: &mut Dice) {
    let mut quiet = 0;
    let mut watch = Watch::default();
    for number in 0..MOST_PASSES {
        // A subset may stay small by chance; after half of the time everything is applied.
        let application = if number < MOST_PASSES / 2 { application } else { Application::Whole };
        // A pass that waits for a moment to come, or for a Pod to come or go, is not the end.
        let is_settled = unlike_the_wish(&cluster.snapshot).is_none() && !is_terminating(&cluster.snapshot);
        let planned = pass(cluster, application, dice);
        watch.look(&cluster.snapshot, &planned, application);
        let is_quiet = is_settled && planned.steps.is_empty() && planned.next_look().is_none();
        quiet = if is_quiet { quiet + 1 } else { 0 };
        if quiet >= 2 {
            break;
        }
    }
    let last = plan(&cluster.snapshot);
    assert_eq!(unlike_the_wish(&cluster.snapshot), None, "{last:#?}\n{:#?}", cluster.snapshot);
    for _ in 0..QUIET_PASSES {
        let last = plan(&cluster.snapshot);
        assert_eq!(last.steps, [], "{:#?}", cluster.snapshot);
        cluster.tick();
    }
}

fn is_terminating(snapshot: &Snapshot) -> bool {
    let goes = |view: &PodView| view.lifecycle == Lifecycle::Terminating && !view.is_on_lost_node();
    snapshot.pods.iter().any(goes)
}

/// Promises about the way to convergence while nothing fails.
#[derive(Default)]
struct Watch {
    most_exposed: usize,
    idle_passes: usize,
    conversions: BTreeMap<model::Uid, usize>,
}

impl Watch {
    fn look(&mut self, snapshot: &Snapshot, planned: &Plan, application: Application) {
        // What was exposed once, up to the wish, stays exposed.
        let exposed = exposed(snapshot).min(snapshot.desired.replicas);
        assert!(exposed >= self.most_exposed, "capacity dropped: {planned:#?}\n{snapshot:#?}");
        self.most_exposed = exposed;
        if matches!(application, Application::RandomSubset) {
            return;
        }
        for step in &planned.steps {
            if let Action::Convert { pod, .. } = &step.action {
                let count = self.conversions.entry(pod.uid.clone()).or_default();
                *count += 1;
                assert!(*count <= MOST_CONVERSIONS, "{step:?} goes back and forth\n{snapshot:#?}");
            }
        }
        let has_idle_backup = snapshot.pods.iter().any(|view| {
            view.role == Role::Hot
                && view.is_ready()
                && !view.is_on_lost_node()
                && view.ownership == Ownership::Ours
        });
        let is_idle = standing(snapshot) < snapshot.desired.replicas && has_idle_backup;
        self.idle_passes = if is_idle { self.idle_passes + 1 } else { 0 };
        assert!(
            self.idle_passes <= MOST_IDLE_PASSES,
            "a ready backup stays idle: {planned:#?}\n{snapshot:#?}"
        );
    }
}

/// What is not as the user wished; Pods on lost nodes and terminating ones do not count.
fn unlike_the_wish(snapshot: &Snapshot) -> Option<String> {
    let counted = |view: &&PodView| !view.is_on_lost_node() && view.lifecycle != Lifecycle::Terminating;
    let pods: Vec<&PodView> = snapshot.pods.iter().filter(counted).collect();
    for role in Role::ALL {
        let members = || pods.iter().filter(|view| view.role == role);
        let wanted = snapshot.desired.count(role);
        let available = members().filter(|view| view.is_available()).count();
        if (members().count(), available) != (wanted, wanted) {
            return Some(format!(
                "{role}: {} Pods, {available} available, {wanted} wanted",
                members().count()
            ));
        }
        let outdated = members().filter(|view| view.revision != snapshot.desired.revision).count();
        let kept = if role == Role::Primary { snapshot.desired.update.partition } else { 0 };
        let is_rolling = snapshot.desired.update.kind == UpdateKind::BackupFirst && !is_cordoned(snapshot);
        if is_rolling && outdated > kept {
            return Some(format!("{role}: {outdated} Pods of the old template"));
        }
    }
    let exposed = snapshot.exposure.as_ref()?.endpoints.iter().filter(|endpoint| endpoint.is_ready).count();
    (exposed != snapshot.desired.replicas).then(|| format!("{exposed} Pods exposed"))
}

/// A rollout waits for cordoned nodes to be drained or given back.
fn is_cordoned(snapshot: &Snapshot) -> bool {
    snapshot.pods.iter().any(|view| view.node_health() == NodeHealth::Cordoned)
}

fn nodes() -> impl Strategy<Value = Vec<NodeView>> {
    let health = prop_oneof![
        4 => Just(NodeHealth::Healthy),
        1 => Just(NodeHealth::Cordoned),
        1 => Just(NodeHealth::NotReady),
        1 => Just(NodeHealth::Gone),
    ];
    proptest::collection::vec((health, any::<bool>()), 4).prop_map(|drawn| {
        let node = |(index, (health, is_east)): (usize, (NodeHealth, bool))| NodeView {
            zone: Some(if is_east { "east".into() } else { "west".into() }),
            // The first node is healthy, so that there is always room.
            ..given::node(&format!("n{index}"), if index == 0 { NodeHealth::Healthy } else { health })
        };
        drawn.into_iter().enumerate().map(node).collect()
    })
}

/// Role, stage, node, age, and oddities of one Pod.
type Draw = (usize, usize, usize, i64, u8);

fn drawn_pod(index: usize, (role, stage, node, age, odd): Draw, nodes: &[NodeView]) -> PodView {
    let slot = u32::try_from(index).expect("few Pods");
    let since = given::seconds_ago(age);
    let mut view = given::pod(&format!("p{index}"), Role::ALL[role], slot / (1 + u32::from(odd & 1)));
    (view.created, view.role_since) = (given::seconds_ago(age * 2), since);
    view.node = Some(nodes[node].clone());
    (view.lifecycle, view.gate) = match stage {
        0 => (Lifecycle::Unscheduled, if role == 2 { Gate::Ahead } else { Gate::None }),
        1 => (Lifecycle::Starting, Gate::None),
        2 => (Lifecycle::Starting, Gate::Ahead),
        3 | 4 => (Lifecycle::Starting, Gate::Listening { since }),
        5 => (Lifecycle::Starting, Gate::Passed { since }),
        6..=8 => (Lifecycle::Ready { since }, Gate::None),
        9 => (Lifecycle::Ready { since }, Gate::Passed { since }),
        10 => (Lifecycle::Unready { since }, Gate::Passed { since }),
        11 => (Lifecycle::Unready { since }, Gate::Listening { since }),
        12 => (Lifecycle::Finished, Gate::None),
        _ => (Lifecycle::Terminating, Gate::None),
    };
    if stage == 0 {
        (view.node, view.address) = (None, None);
    }
    view.is_running = view.is_ready();
    view.is_serving = view.is_ready() || (stage == 13 && odd & 8 > 0);
    view.has_known_key = odd & 6 != 6;
    view.revision = if odd & 0x18 == 0x18 { given::outdated() } else { given::current() };
    view.ownership = if odd & 0xe0 == 0xe0 { Ownership::Orphan } else { Ownership::Ours };
    view
}

fn wish() -> impl Strategy<Value = model::Desired> {
    let choice = || {
        prop::sample::select(vec![
            Choice::Best,
            Choice::Random,
            Choice::Oldest,
            Choice::Newest,
            Choice::Spread,
        ])
    };
    let counts = (0..4_usize, 0..4_usize, 0..4_usize);
    let seconds = (0..4_i64, 0..4_i64);
    let update = (any::<bool>(), 1..3_usize, 0..2_usize);
    (counts, seconds, update, any::<bool>(), (choice(), choice(), choice())).prop_map(
        |(counts, (delay, min_ready), (is_on_delete, max_unavailable, partition), is_demoting, choices)| {
            let kind = if is_on_delete { UpdateKind::OnDelete } else { UpdateKind::BackupFirst };
            let (hot_to_primary, cold_to_primary, cold_to_hot) = choices;
            model::Desired {
                failover_delay: SignedDuration::from_secs(delay),
                min_ready: SignedDuration::from_secs(min_ready),
                unready_deadline: SignedDuration::from_secs(20),
                scale_in: if is_demoting { ScaleIn::Demote } else { ScaleIn::Delete },
                update: UpdatePolicy { kind, max_unavailable, partition },
                strategies: Strategies { hot_to_primary, cold_to_primary, cold_to_hot },
                ..given::desired([counts.0, counts.1, counts.2])
            }
        },
    )
}

fn world() -> impl Strategy<Value = Cluster> {
    let draws =
        proptest::collection::vec((0..3_usize, 0..14_usize, 0..4_usize, 0..40_i64, any::<u8>()), 0..9);
    (nodes(), draws, wish(), any::<bool>()).prop_map(|(nodes, draws, desired, has_service)| {
        let pods =
            draws.into_iter().enumerate().map(|(index, draw)| drawn_pod(index, draw, &nodes)).collect();
        let mut snapshot = given::snapshot(desired, pods);
        snapshot.exposure = has_service.then(absent_service);
        Cluster::new(snapshot, nodes)
    })
}

const fn absent_service() -> Exposure {
    Exposure { service: ObjectState::Absent, slice: ObjectState::Absent, endpoints: Vec::new() }
}

/// A set that has what it wants, with a Service.
fn settled_world() -> impl Strategy<Value = Cluster> {
    (wish(), any::<u64>()).prop_map(|(desired, seed)| {
        let nodes = (0..4).map(|index| given::node(&format!("n{index}"), NodeHealth::Healthy)).collect();
        let mut snapshot = given::snapshot(desired, Vec::new());
        snapshot.exposure = Some(absent_service());
        let mut cluster = Cluster::new(snapshot, nodes);
        converge(&mut cluster, Application::Whole, &mut Dice(seed));
        cluster
    })
}

/// Ready primaries that the Service leads to.
fn exposed(snapshot: &Snapshot) -> usize {
    let Some(exposure) = &snapshot.exposure else { return 0 };
    let is_good = |uid: &model::Uid| {
        snapshot.pods.iter().any(|view| view.pod.uid == *uid && view.role == Role::Primary && view.is_ready())
    };
    exposure.endpoints.iter().filter(|endpoint| endpoint.is_ready && is_good(&endpoint.uid)).count()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_situation_converges(mut cluster in world(), seed in any::<u64>()) {
        converge(&mut cluster, Application::Whole, &mut Dice(seed));
    }

    #[test]
    fn any_situation_converges_when_only_some_steps_succeed(mut cluster in world(), seed in any::<u64>()) {
        converge(&mut cluster, Application::RandomSubset, &mut Dice(seed));
    }

    #[test]
    fn a_set_converges_after_faults_on_the_way(mut cluster in world(), seed in any::<u64>()) {
        let mut dice = Dice(seed);
        for _ in 0..FAULTY_PASSES {
            if dice.below(2) == 0 {
                cluster.fault(&mut dice);
            }
            pass(&mut cluster, Application::RandomSubset, &mut dice);
        }
        converge(&mut cluster, Application::RandomSubset, &mut dice);
    }

    #[test]
    fn a_rollout_never_lowers_exposed_capacity(
        mut cluster in settled_world(),
        is_partial in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut dice = Dice(seed);
        cluster.snapshot.desired.revision = Revision("next".into());
        let application = if is_partial { Application::RandomSubset } else { Application::Whole };
        for _ in 0..FAULTY_PASSES {
            pass(&mut cluster, application, &mut dice);
            prop_assert!(exposed(&cluster.snapshot) >= cluster.snapshot.desired.replicas, "{:#?}", cluster.snapshot);
        }
        converge(&mut cluster, application, &mut dice);
    }

    #[test]
    fn a_broken_template_reaches_no_primary_and_is_reverted(
        mut cluster in settled_world(),
        seed in any::<u64>(),
    ) {
        let mut dice = Dice(seed);
        let good = cluster.snapshot.desired.revision.clone();
        let broken = Revision("broken".into());
        cluster.broken = Some(broken.clone());
        cluster.snapshot.desired.revision = broken;
        for _ in 0..FAULTY_PASSES {
            pass(&mut cluster, Application::Whole, &mut dice);
            prop_assert!(exposed(&cluster.snapshot) >= cluster.snapshot.desired.replicas, "{:#?}", cluster.snapshot);
        }
        cluster.snapshot.desired.revision = good;
        converge(&mut cluster, Application::Whole, &mut dice);
    }

    #[test]
    fn a_braked_set_deletes_and_creates_nothing_and_a_paused_set_does_nothing(mut cluster in world()) {
        cluster.snapshot.storm = Some(Storm { lost: 40, total: 100 });
        let braked = plan(&cluster.snapshot);
        let is_drastic = |step: &Step| matches!(step.action, Action::Create { .. } | Action::Delete { .. });
        prop_assert!(!braked.steps.iter().any(is_drastic), "{braked:#?}");
        prop_assert_eq!(check(&cluster.snapshot, &braked), []);
        cluster.snapshot.desired.paused = true;
        let paused = plan(&cluster.snapshot);
        prop_assert!(paused.steps.is_empty() && !paused.holds.is_empty(), "{paused:#?}");
    }

    #[test]
    fn the_order_of_pods_in_a_snapshot_has_no_meaning(cluster in world(), seed in any::<u64>()) {
        let planned = plan(&cluster.snapshot);
        prop_assert_eq!(&plan(&cluster.snapshot), &planned);
        let mut shuffled = cluster.snapshot.clone();
        Dice(seed).shuffle(&mut shuffled.pods);
        prop_assert_eq!(&plan(&shuffled), &planned);
    }
}

#[test]
fn every_scenario_converges() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let files = std::fs::read_dir(folder).expect("the folder of scenarios exists");
    let paths = files.map(|file| file.expect("readable").path());
    for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")) {
        let scenario = situation::read(&std::fs::read_to_string(&path).expect("readable")).expect("valid");
        let mut snapshot = scenario.snapshot().expect("valid");
        let is_foreign = |exposure: &Exposure| exposure.service == ObjectState::Foreign;
        snapshot.exposure = snapshot.exposure.filter(|exposure| !is_foreign(exposure));
        snapshot.desired.paused = false;
        snapshot.storm = None;
        snapshot.desired.unready_deadline = SignedDuration::from_secs(20);
        let mut nodes: Vec<NodeView> = snapshot.pods.iter().filter_map(|view| view.node.clone()).collect();
        nodes.push(given::node("spare", NodeHealth::Healthy));
        println!(
            "{}: {} ({} steps and {} holds at first)",
            path.display(),
            scenario.title,
            scenario.steps.len(),
            scenario.holds.len()
        );
        assert!(!scenario.why.is_empty());
        converge(&mut Cluster::new(snapshot, nodes), Application::Whole, &mut Dice(1));
    }
}
