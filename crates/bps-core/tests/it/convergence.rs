//! From any situation repeated passes lead to the wish and then plan nothing; on the way nothing precious is lost.

use std::collections::BTreeMap;

use bps_core::model::{
    Action, Exposure, Lifecycle, NodeHealth, NodeView, ObjectState, Ownership, Plan, PodView, Reason,
    Revision, Role, Snapshot, Step, Uid,
};
use bps_core::plan::{check, plan};
use jiff::SignedDuration;
use proptest::prelude::*;

use crate::cluster::{Cluster, Dice, Obstacle, Start};
use crate::oracles::{
    exposed, held_back, is_terminating, led_to_nobody, live, standing, unlike_the_room, unlike_the_wish,
    unlike_the_wish_but_for_cold,
};
use crate::world::{absent_service, wish, world};

/// Passes, one a second, within which every set must have converged: a deadline of 20 s for each of at most three
/// failures in a row, and a rollout of at most nine Pods at about eight passes each, doubled.
pub(crate) const MOST_PASSES: usize = 260;

/// Passes that [`MOST_PASSES`] has for one Pod, from its creation until it is ready.
const PASSES_FOR_A_POD: usize = 8;

/// Passes in which faults are injected.
pub(crate) const FAULTY_PASSES: usize = 40;

/// Passes without a step after which nothing comes any more although a deadline is still running.
pub(crate) const QUIET_PASSES: usize = 30;

/// Conversions of one Pod on the way to convergence: up to primary, off a cordoned node, up again, and one more.
const MOST_CONVERSIONS: usize = 4;

/// More of them where Pods start slowly or gates hear no ticket: a primary that has not started within the wake-up timeout changes
/// places with a hot backup that is ready, and may be the one at hand when the next primary is missing.
const MOST_MORE_BY_SLOW_STARTS: usize = 2;

/// More of them in a set with subsets: the swap back to the subset that is to have the primary.
const MOST_MORE_BY_SUBSETS: usize = 2;

/// Passes for which a ready hot backup may stand beside a missing primary: wake-up timeout 5 s, a failover delay of
/// at most 3 s, and two passes to see and to do.
const MOST_IDLE_PASSES: usize = 10;

/// How much of each plan is carried out.
#[derive(Clone, Copy, Debug)]
enum Application {
    Whole,
    /// Conversions and addresses first, as the operator does it.
    InWaves,
    RandomSubset,
}

/// One pass: plan, check, apply, one second. Returns what was planned.
fn pass(cluster: &mut Cluster, application: Application, dice: &mut Dice) -> Plan {
    let planned = plan(&cluster.snapshot);
    assert_eq!(check(&cluster.snapshot, &planned), [], "{planned:#?}\n{:#?}", cluster.snapshot);
    let is_whole = !matches!(application, Application::RandomSubset);
    let is_in_waves = matches!(application, Application::InWaves);
    let mut steps = if is_in_waves { planned.first_wave() } else { planned.steps.clone() };
    dice.shuffle(&mut steps);
    if !is_whole {
        let kept = dice.below(steps.len() + 1);
        steps.truncate(kept);
    }
    let (live_before, held_back) = (live(&cluster.snapshot), held_back(&cluster.snapshot));
    let waiting = cluster.snapshot.pods.iter().filter(|view| cluster.snapshot.is_reserved(view));
    cluster.reserved.extend(waiting.map(|view| view.pod.uid.clone()));
    let has_arrived = |uid: &Uid| {
        let mut views = cluster.snapshot.pods.iter().filter(|view| view.pod.uid == *uid);
        views.next().is_none_or(PodView::is_available)
    };
    let arrived: Vec<Uid> = cluster.reserved.iter().filter(|uid| has_arrived(uid)).cloned().collect();
    for uid in arrived {
        cluster.reserved.remove(&uid);
    }
    for step in &steps {
        let standing = standing(&cluster.snapshot);
        cluster.apply(step);
        assert_kept(cluster, step, standing);
    }
    let desired = &cluster.snapshot.desired;
    let wanted: usize = Role::ALL.iter().map(|role| desired.count(*role)).sum();
    let surge = desired.update.max_surge.of(desired.replicas);
    // Orphans cannot be converted in the pass that adopts them, so a Pod may be created beside them.
    let adopted = steps.iter().filter(|step| matches!(step.action, Action::Adopt { .. })).count();
    // What waits for a node of its subset stays while another Pod fills its place, which in turn stays until the former one has found
    // a node and is available; in each subset as many as are wanted at most.
    let is_arriving = |view: &&PodView| cluster.reserved.contains(&view.pod.uid) && !view.is_available();
    let reserved = cluster.snapshot.pods.iter().filter(is_arriving).count();
    let most = live_before.max(wanted + surge + reserved.min(wanted * desired.topology.subsets.len()))
        + adopted
        + held_back;
    assert!(
        !is_whole || live(&cluster.snapshot) <= most,
        "too many Pods: {planned:#?}\n{:#?}",
        cluster.snapshot
    );
    cluster.tick();
    planned
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
    converge_to(unlike_the_wish, cluster, application, dice);
}

/// Runs until two passes in a row plan nothing and nothing is said to be wrong any more.
fn converge_to(
    wrong: impl Fn(&Snapshot) -> Option<String>,
    cluster: &mut Cluster,
    application: Application,
    dice: &mut Dice,
) {
    let mut quiet = 0;
    let wakeup_timeout = cluster.snapshot.desired.wakeup_timeout.as_secs();
    let is_slow =
        i64::from(cluster.start.ticks) > wakeup_timeout || cluster.start.obstacle == Obstacle::DeafGates;
    let has_subsets = !cluster.snapshot.desired.topology.subsets.is_empty();
    let more = if is_slow { MOST_MORE_BY_SLOW_STARTS } else { 0 }
        + if has_subsets { MOST_MORE_BY_SUBSETS } else { 0 };
    let mut watch = Watch { most_conversions: MOST_CONVERSIONS + more, ..Watch::default() };
    // A rollout waits for each of its Pods.
    let most_passes = MOST_PASSES * (1 + cluster.start.ticks as usize / PASSES_FOR_A_POD);
    for number in 0..most_passes {
        // A subset may stay small by chance; after half of the time everything is applied.
        let is_enough = number >= most_passes / 2 && matches!(application, Application::RandomSubset);
        let application = if is_enough { Application::Whole } else { application };
        // A pass that waits for a moment to come, or for a Pod to come or go, is not the end.
        let is_settled = wrong(&cluster.snapshot).is_none() && !is_terminating(&cluster.snapshot);
        let before = cluster.snapshot.pods.clone();
        let planned = pass(cluster, application, dice);
        let is_in_motion =
            is_terminating(&cluster.snapshot) || cluster.snapshot.pods != before || cluster.is_starting;
        assert!(
            is_settled || is_in_motion || !planned.steps.is_empty() || planned.next_look().is_some(),
            "nobody looks again: {planned:#?}\n{:#?}",
            cluster.snapshot
        );
        watch.look(&cluster.snapshot, &planned, application);
        let is_quiet =
            is_settled && !is_in_motion && planned.steps.is_empty() && planned.next_look().is_none();
        quiet = if is_quiet { quiet + 1 } else { 0 };
        if quiet >= 2 {
            break;
        }
    }
    let last = plan(&cluster.snapshot);
    assert_eq!(wrong(&cluster.snapshot), None, "{last:#?}\n{:#?}", cluster.snapshot);
    for _ in 0..QUIET_PASSES {
        let last = plan(&cluster.snapshot);
        assert_eq!(last.steps, [], "{:#?}", cluster.snapshot);
        cluster.tick();
    }
}

/// Promises about the way to convergence while nothing fails.
#[derive(Default)]
struct Watch {
    most_exposed: usize,
    idle_passes: usize,
    conversions: BTreeMap<Uid, usize>,
    most_conversions: usize,
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
                assert!(*count <= self.most_conversions, "{step:?} goes back and forth\n{snapshot:#?}");
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

/// A set that has what it wants, with a Service.
fn settled_world() -> impl Strategy<Value = Cluster> {
    (wish(), any::<u64>()).prop_map(|(desired, seed)| {
        let nodes =
            (0..4).map(|index| crate::given::node(&format!("n{index}"), NodeHealth::Healthy)).collect();
        let mut snapshot = crate::given::snapshot(desired, Vec::new());
        snapshot.exposure = Some(absent_service());
        let mut cluster = Cluster::new(snapshot, nodes);
        converge(&mut cluster, Application::Whole, &mut Dice(seed));
        cluster
    })
}

/// Primaries of former templates in each subset that are not on their way out.
fn primaries_of_former_templates(snapshot: &Snapshot) -> Vec<usize> {
    let desired = &snapshot.desired;
    let is_former = |view: &&PodView| {
        view.role == Role::Primary && view.lifecycle != Lifecycle::Terminating && !desired.is_current(view)
    };
    let former: Vec<&PodView> = snapshot.pods.iter().filter(is_former).collect();
    let of_subset = |subset| former.iter().filter(|view| view.subset == Some(subset)).count();
    (0..desired.topology.subsets.len()).map(of_subset).collect()
}

/// Pods that need up to a minute behind their gate, seen at work or not, and gates that hear nothing.
fn start() -> impl Strategy<Value = Start> {
    let drawn = (0..=60_u32, any::<bool>(), prop::bool::weighted(0.2));
    drawn.prop_map(|(ticks, is_at_work, is_deaf)| Start {
        ticks,
        is_at_work,
        obstacle: if is_deaf { Obstacle::DeafGates } else { Obstacle::None },
    })
}

fn all_of_it() -> impl Strategy<Value = Application> {
    prop_oneof![Just(Application::Whole), Just(Application::InWaves)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_situation_converges(mut cluster in world(), all_of_it in all_of_it(), seed in any::<u64>()) {
        converge(&mut cluster, all_of_it, &mut Dice(seed));
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
    fn a_set_without_room_for_all_of_its_pods_serves_with_those_that_have_some(
        mut cluster in settled_world(),
        all_of_it in all_of_it(),
        taken in 0..3_usize,
        seed in any::<u64>(),
    ) {
        let mut dice = Dice(seed);
        // Who loses its place finds no other one.
        cluster.room = Some(live(&cluster.snapshot).saturating_sub(taken));
        for _ in 0..FAULTY_PASSES {
            if dice.below(4) == 0 {
                cluster.fault(&mut dice);
            }
            pass(&mut cluster, all_of_it, &mut dice);
        }
        converge_to(unlike_the_room, &mut cluster, all_of_it, &mut dice);
    }

    #[test]
    fn a_rollout_never_lowers_exposed_capacity(
        mut cluster in settled_world(),
        application in prop_oneof![all_of_it(), Just(Application::RandomSubset)],
        seed in any::<u64>(),
    ) {
        let mut dice = Dice(seed);
        cluster.snapshot.desired.revision = Revision("next".into());
        for _ in 0..FAULTY_PASSES {
            pass(&mut cluster, application, &mut dice);
            prop_assert!(exposed(&cluster.snapshot) >= cluster.snapshot.desired.replicas, "{:#?}", cluster.snapshot);
        }
        converge(&mut cluster, application, &mut dice);
    }

    #[test]
    fn a_rollout_leaves_each_subset_the_primaries_that_its_partition_keeps(
        mut cluster in settled_world(),
        partitions in [0_usize..4, 0_usize..4],
        application in prop_oneof![all_of_it(), Just(Application::RandomSubset)],
        seed in any::<u64>(),
    ) {
        let mut dice = Dice(seed);
        cluster.snapshot.desired.revision = Revision("next".into());
        for (subset, partition) in cluster.snapshot.desired.topology.subsets.iter_mut().zip(partitions) {
            subset.partition = partition;
        }
        let before = primaries_of_former_templates(&cluster.snapshot);
        let subsets = cluster.snapshot.desired.topology.subsets.iter();
        let kept: Vec<usize> = subsets.zip(before).map(|(subset, before)| before.min(subset.partition)).collect();
        for _ in 0..FAULTY_PASSES {
            pass(&mut cluster, application, &mut dice);
            let left = primaries_of_former_templates(&cluster.snapshot);
            prop_assert!(left.iter().zip(&kept).all(|(left, kept)| left >= kept), "{:#?}", cluster.snapshot);
        }
        converge(&mut cluster, application, &mut dice);
        let left = primaries_of_former_templates(&cluster.snapshot);
        prop_assert!(left.iter().zip(&kept).all(|(left, kept)| left >= kept), "{:#?}", cluster.snapshot);
    }

    #[test]
    fn a_broken_template_reaches_no_primary_and_is_reverted(
        mut cluster in settled_world(),
        all_of_it in all_of_it(),
        seed in any::<u64>(),
    ) {
        let mut dice = Dice(seed);
        let good = cluster.snapshot.desired.revision.clone();
        let broken = Revision("broken".into());
        cluster.broken = Some(broken.clone());
        cluster.snapshot.desired.revision = broken;
        for _ in 0..FAULTY_PASSES {
            pass(&mut cluster, all_of_it, &mut dice);
            prop_assert!(exposed(&cluster.snapshot) >= cluster.snapshot.desired.replicas, "{:#?}", cluster.snapshot);
        }
        cluster.snapshot.desired.revision = good;
        converge(&mut cluster, all_of_it, &mut dice);
    }

    #[test]
    fn a_set_whose_pods_start_slowly_converges(
        mut cluster in world(),
        all_of_it in all_of_it(),
        start in start(),
        seed in any::<u64>(),
    ) {
        cluster.start = start;
        converge(&mut cluster, all_of_it, &mut Dice(seed));
    }

    #[test]
    fn a_set_whose_gates_do_not_start_has_every_pod_that_runs_and_is_whole_when_they_do(
        mut cluster in settled_world(),
        all_of_it in all_of_it(),
        seed in any::<u64>(),
    ) {
        let mut dice = Dice(seed);
        cluster.start.obstacle = Obstacle::ShutGates;
        for _ in 0..FAULTY_PASSES {
            if dice.below(4) == 0 {
                cluster.fault(&mut dice);
            }
            pass(&mut cluster, all_of_it, &mut dice);
        }
        for _ in 0..MOST_PASSES {
            pass(&mut cluster, all_of_it, &mut dice);
        }
        prop_assert_eq!(unlike_the_wish_but_for_cold(&cluster.snapshot), None, "{:#?}", cluster.snapshot);
        cluster.start.obstacle = Obstacle::None;
        converge(&mut cluster, all_of_it, &mut dice);
    }

    #[test]
    fn a_braked_set_makes_and_takes_only_what_is_certain_and_a_paused_set_only_protects(mut cluster in world()) {
        cluster.snapshot.storm = Some(crate::given::storm(40, 100));
        let braked = plan(&cluster.snapshot);
        let is_doubtful = |step: &&Step| {
            matches!(step.action, Action::Delete { .. }) && step.reason != Reason::PodFinished
        };
        prop_assert_eq!(braked.steps.iter().find(is_doubtful), None);
        let wanted: usize = Role::ALL.iter().map(|role| cluster.snapshot.desired.count(*role)).sum();
        let may_stay = cluster.snapshot.pods.iter().filter(|view| {
            !matches!(view.lifecycle, Lifecycle::Terminating | Lifecycle::Finished)
                || (view.lifecycle == Lifecycle::Finished && view.is_on_lost_node())
        });
        let created = braked.steps.iter().filter(|step| matches!(step.action, Action::Create { .. })).count();
        prop_assert!(created <= wanted.saturating_sub(may_stay.count()), "{braked:#?}");
        prop_assert_eq!(check(&cluster.snapshot, &braked), []);
        cluster.snapshot.desired.paused = true;
        let paused = plan(&cluster.snapshot);
        prop_assert!(paused.steps.iter().all(|step| step.action.protects()), "{paused:#?}");
        prop_assert!(!paused.holds.is_empty(), "{paused:#?}");
        prop_assert_eq!(check(&cluster.snapshot, &paused), []);
    }

    #[test]
    fn no_pause_brake_or_wrong_edit_leads_clients_to_a_pod_that_is_gone(
        mut cluster in settled_world(),
        (pauses, breaks, is_stormy) in (any::<bool>(), any::<bool>(), any::<bool>()),
        seed in any::<u64>(),
    ) {
        let mut dice = Dice(seed);
        cluster.snapshot.desired.paused = pauses;
        cluster.snapshot.desired.can_create = !breaks;
        cluster.snapshot.storm = is_stormy.then(|| crate::given::storm(40, 100));
        for _ in 0..FAULTY_PASSES {
            cluster.fault(&mut dice);
            pass(&mut cluster, Application::Whole, &mut dice);
            // The pass has seen the fault; what the second after it brought it sees next.
            pass(&mut cluster, Application::Whole, &mut dice);
            prop_assert_eq!(led_to_nobody(&cluster.snapshot), None, "{:#?}", cluster.snapshot);
        }
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
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    let files = std::fs::read_dir(folder).expect("the folder of scenarios exists");
    let paths = files.map(|file| file.expect("readable").path());
    for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")) {
        let scenario =
            crate::situation::read(&std::fs::read_to_string(&path).expect("readable")).expect("valid");
        let mut snapshot = scenario.snapshot().expect("valid");
        if snapshot.is_paired() {
            // Nobody plays the agents here; see crates/bps-core/tests/it/paired_sets.rs.
            continue;
        }
        let is_foreign = |exposure: &Exposure| exposure.service == ObjectState::Foreign;
        snapshot.exposure = snapshot.exposure.filter(|exposure| !is_foreign(exposure));
        (snapshot.desired.paused, snapshot.desired.can_create) = (false, true);
        snapshot.storm = None;
        snapshot.desired.unready_deadline = SignedDuration::from_secs(20);
        let mut nodes: Vec<NodeView> = snapshot.pods.iter().filter_map(|view| view.node.clone()).collect();
        nodes.push(crate::given::node("spare", NodeHealth::Healthy));
        println!(
            "{}: {} ({} steps and {} holds at first)",
            path.display(),
            scenario.title,
            scenario.steps.len(),
            scenario.holds.len()
        );
        assert!(!scenario.why.is_empty());
        for all_of_it in [Application::Whole, Application::InWaves] {
            converge(&mut Cluster::new(snapshot.clone(), nodes.clone()), all_of_it, &mut Dice(1));
        }
    }
}
