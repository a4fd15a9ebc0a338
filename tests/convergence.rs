//! From any situation repeated passes lead to the wish and then plan nothing; on the way nothing precious is lost.
//!
//! The oracles are written from the promises of the API, not from the planner's rules.

use std::collections::BTreeMap;

use backuppodset::model;
use backuppodset::model::{
    Action, Exposure, Lifecycle, NodeHealth, NodeView, ObjectState, Ownership, Plan, PodView, Revision, Role,
    Snapshot, Step, Storm, UpdateKind,
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
#[path = "support/world.rs"]
mod world;

use cluster::{Cluster, Dice};
use world::{absent_service, wish, world};

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
    let (live_before, held_back) = (live(&cluster.snapshot), held_back(&cluster.snapshot));
    for step in &steps {
        let standing = standing(&cluster.snapshot);
        cluster.apply(step);
        assert_kept(cluster, step, standing);
    }
    let wanted: usize = Role::ALL.iter().map(|role| cluster.snapshot.desired.count(*role)).sum();
    // Orphans cannot be converted in the pass that adopts them, so a Pod may be created beside them.
    let adopted = steps.iter().filter(|step| matches!(step.action, Action::Adopt { .. })).count();
    let most = live_before.max(wanted + 1) + adopted + held_back;
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

/// Surplus primaries that may not go yet, because clients do not know enough others that serve; nobody waits for that to
/// refill.
fn held_back(snapshot: &Snapshot) -> usize {
    let is_known = |view: &&PodView| {
        let shown = snapshot.exposure.as_ref().map(|exposure| &exposure.endpoints);
        shown.is_none_or(|shown| shown.iter().any(|endpoint| endpoint.uid == view.pod.uid))
    };
    let primaries = || snapshot.pods.iter().filter(|view| view.role == Role::Primary);
    let serving = primaries().filter(|view| view.is_ready()).filter(is_known).count();
    let wanted = snapshot.desired.replicas;
    if serving > wanted { 0 } else { primaries().count().saturating_sub(wanted) }
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
        let before = cluster.snapshot.pods.clone();
        let planned = pass(cluster, application, dice);
        let is_in_motion = is_terminating(&cluster.snapshot) || cluster.snapshot.pods != before;
        assert!(
            is_settled || is_in_motion || !planned.steps.is_empty() || planned.next_look().is_some(),
            "nobody looks again: {planned:#?}\n{:#?}",
            cluster.snapshot
        );
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
        if snapshot.is_paired() {
            // Nobody plays the agents here; see tests/paired_sets.rs.
            continue;
        }
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
