//! Sets with active and standby Pods, together with a simple group of agents: roles follow who acts, no active is given
//! up by hand, and everything comes to rest as it is wished.
//!
//! The group is written from what the protocol promises, not from the operator's part of it.

use std::collections::{BTreeMap, BTreeSet};

use bps_core::model::{
    Action, Lifecycle, NodeHealth, ObjectState, Part, PodName, PodView, Revision, Role, Snapshot, Uid,
    UpdateKind,
};
use bps_core::plan::{check, plan};
use proptest::prelude::*;

use crate::cluster::{Cluster, Dice};
use crate::convergence::{FAULTY_PASSES, MOST_PASSES, QUIET_PASSES};
use crate::oracles::unkept;
use crate::world::wish;

/// Passes that a hot backup waits for a primary to form a pair with.
const ALONE_PASSES: u32 = 5;
/// Times that agents act until a new standby has the state, where that is replicated.
const COPY_TIMES: u32 = 7;

/// One pair, by the identities of its Pods.
#[derive(Clone, Debug, Default)]
struct Pair {
    active: Option<Uid>,
    standby: Option<Uid>,
}

impl Pair {
    fn has(&self, uid: &Uid) -> bool {
        [&self.active, &self.standby].into_iter().flatten().any(|member| member == uid)
    }
}

/// A standby, and who it gets the state from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Copying {
    standby: Uid,
    active: Uid,
}

/// A set, and the agents of its Pods.
#[derive(Debug)]
struct World {
    cluster: Cluster,
    pairs: Vec<Pair>,
    wanted: usize,
    alone: u32,
    /// For how long each standby has been one of an active.
    copying: BTreeMap<Copying, u32>,
}

impl World {
    fn new(mut cluster: Cluster) -> Self {
        if cluster.snapshot.group.is_none() {
            cluster.snapshot.group = Some(ObjectState::Absent);
        }
        let wanted = cluster.snapshot.desired.replicas;
        let mut world = Self { cluster, pairs: Vec::new(), wanted, alone: 0, copying: BTreeMap::new() };
        world.pairs = world.shown_pairs();
        world
    }

    /// Pairs as the labels of a scenario show them.
    fn shown_pairs(&self) -> Vec<Pair> {
        let pods = &self.cluster.snapshot.pods;
        let uid =
            |name: &PodName| pods.iter().find(|view| view.pod.name == *name).map(|view| view.pod.uid.clone());
        let active = pods.iter().filter(|view| view.acts());
        let pair = |view: &PodView| Pair {
            active: Some(view.pod.uid.clone()),
            standby: view.part.peer_of_active().and_then(uid),
        };
        active.map(pair).collect()
    }

    fn view(&self, uid: &Uid) -> Option<&PodView> {
        self.cluster.snapshot.pods.iter().find(|view| view.pod.uid == *uid)
    }

    fn stays(&self, uid: &Uid) -> bool {
        let is_leaving =
            |view: &PodView| matches!(view.lifecycle, Lifecycle::Terminating | Lifecycle::Finished);
        self.view(uid).is_some_and(|view| !is_leaving(view) && view.role != Role::Cold)
    }

    fn can_act(&self, uid: &Uid) -> bool {
        self.stays(uid) && self.view(uid).is_some_and(|view| view.is_ready() && !view.is_on_lost_node())
    }

    /// Agents take over, and the group replaces, ends and makes pairs.
    fn agents_act(&mut self) {
        for index in 0..self.pairs.len() {
            self.settle(index);
        }
        self.free_keepers();
        self.pairs.retain(|pair| pair.active.is_some() || pair.standby.is_some());
        self.pairs.truncate(self.wanted);
        let free = |world: &Self, role: Role| {
            let views = world.cluster.snapshot.pods.iter().filter(|view| view.role == role);
            let mut uids = views.map(|view| view.pod.uid.clone());
            uids.find(|uid| world.can_act(uid) && !world.pairs.iter().any(|pair| pair.has(uid)))
        };
        while self.pairs.len() < self.wanted {
            let Some(first) = free(self, Role::Primary) else { break };
            self.pairs.push(Pair { active: Some(first), standby: None });
        }
        for index in 0..self.pairs.len() {
            if self.pairs[index].standby.is_none() {
                let spare = free(self, Role::Hot).or_else(|| self.shared_standby());
                self.pairs[index].standby = spare.or_else(|| free(self, Role::Primary));
            }
        }
        let waiting = free(self, Role::Hot).filter(|_| self.pairs.len() < self.wanted);
        self.alone = if waiting.is_some() { self.alone + 1 } else { 0 };
        if let Some(first) = waiting.filter(|_| self.alone > ALONE_PASSES) {
            self.pairs.push(Pair { active: Some(first), standby: None });
        }
        self.label();
        self.copy_state();
    }

    /// Standbys get the state of their actives.
    fn copy_state(&mut self) {
        let copying =
            |pair: &Pair| Some(Copying { standby: pair.standby.clone()?, active: pair.active.clone()? });
        let under_way: BTreeSet<Copying> = self.pairs.iter().filter_map(copying).collect();
        self.copying.retain(|copying, _| under_way.contains(copying));
        for copying in under_way {
            *self.copying.entry(copying).or_default() += 1;
        }
        let is_copied = |view: &&PodView| {
            let mut own = self.copying.iter().filter(|(copying, _)| copying.active == view.pod.uid);
            own.any(|(_, times)| *times > COPY_TIMES)
        };
        let names =
            self.cluster.snapshot.pods.iter().filter(is_copied).map(|view| view.pod.name.clone()).collect();
        if let Some(level) = &mut self.cluster.snapshot.level {
            *level = names;
        }
    }

    /// Takes members out that are gone, and has the standby act if the active cannot.
    fn settle(&mut self, index: usize) {
        let pair = self.pairs[index].clone();
        let kept = |uid: &Option<Uid>| uid.clone().filter(|uid| self.stays(uid));
        let (active, standby) = (kept(&pair.active), kept(&pair.standby));
        let may = |uid: &Option<Uid>| uid.as_ref().is_some_and(|uid| self.can_act(uid));
        let is_busy = standby.as_ref().is_some_and(|standby| self.acts_in(standby).is_some());
        let (follows, leaves) = (!may(&active) && may(&standby) && !is_busy, may(&active) && is_busy);
        self.pairs[index] = Pair { active, standby: standby.filter(|_| !leaves) };
        if follows {
            self.take_over(index);
        }
    }

    /// The standby acts, and leaves the other actives that it stood by for.
    fn take_over(&mut self, index: usize) {
        let pair = &mut self.pairs[index];
        std::mem::swap(&mut pair.active, &mut pair.standby);
        let busy = pair.active.clone();
        for other in 0..self.pairs.len() {
            let active = self.pairs[other].active.clone();
            let is_left = other != index && self.pairs[other].standby == busy;
            if is_left && active.is_some_and(|active| self.can_act(&active)) {
                self.pairs[other].standby = None;
            }
        }
    }

    /// A Pod that acts, and stood by for another one that is lost, hands over as soon as its own standby can act.
    fn free_keepers(&mut self) {
        for index in 0..self.pairs.len() {
            let Pair { active, standby } = self.pairs[index].clone();
            let is_lost = !active.is_some_and(|active| self.can_act(&active));
            let busy_in = standby.filter(|_| is_lost).and_then(|standby| self.acts_in(&standby));
            let Some(other) = busy_in else { continue };
            if self.pairs[other].standby.as_ref().is_some_and(|heir| self.can_act(heir)) {
                self.take_over(other);
            }
        }
    }

    /// The pair in which a Pod acts.
    fn acts_in(&self, uid: &Uid) -> Option<usize> {
        self.pairs.iter().position(|pair| pair.active.as_ref() == Some(uid))
    }

    /// The standby of the fewest actives that may stand by for one more.
    fn shared_standby(&self) -> Option<Uid> {
        let most = self.cluster.snapshot.desired.standby_for;
        let mut places: BTreeMap<&Uid, usize> = BTreeMap::new();
        for standby in self.pairs.iter().filter_map(|pair| pair.standby.as_ref()) {
            *places.entry(standby).or_default() += 1;
        }
        let has_one =
            |(uid, taken): &(&Uid, usize)| *taken < most && self.can_act(uid) && self.acts_in(uid).is_none();
        let fewest = places.into_iter().filter(has_one).min_by_key(|(_, taken)| *taken);
        fewest.map(|(uid, _)| uid.clone())
    }

    fn label(&mut self) {
        let pairs = self.pairs.clone();
        let names: Vec<(Uid, PodName)> = self
            .cluster
            .snapshot
            .pods
            .iter()
            .map(|view| (view.pod.uid.clone(), view.pod.name.clone()))
            .collect();
        let name = |uid: &Option<Uid>| {
            let uid = uid.as_ref()?;
            names.iter().find(|(known, _)| known == uid).map(|(_, name)| name.clone())
        };
        for view in &mut self.cluster.snapshot.pods {
            let uid = Some(view.pod.uid.clone());
            let acts_in = pairs.iter().find(|pair| pair.active == uid);
            let part = match acts_in {
                Some(pair) => Part::Active { peer: name(&pair.standby) },
                None if !pairs.iter().any(|pair| pair.has(&view.pod.uid)) => Part::None,
                None => {
                    let served = pairs.iter().filter(|pair| pair.standby == uid);
                    Part::Standby { peers: served.filter_map(|pair| name(&pair.active)).collect() }
                }
            };
            if view.part != part {
                view.part = part;
                let version: u64 = view.pod.resource_version.parse().expect("a number");
                view.pod.resource_version = (version + 1).to_string();
            }
        }
    }

    /// One pass of the operator, some of whose steps may be refused; then one second. Returns how many were planned.
    fn pass(&mut self, is_whole: bool, dice: &mut Dice) -> (usize, bool) {
        let planned = plan(&self.cluster.snapshot);
        let snapshot = &self.cluster.snapshot;
        assert_eq!(check(snapshot, &planned), [], "{planned:#?}\n{snapshot:#?}");
        let mut steps = planned.steps.clone();
        dice.shuffle(&mut steps);
        if !is_whole {
            steps.truncate(dice.below(steps.len() + 1));
        }
        for step in &steps {
            self.assert_kept(&step.action);
            self.cluster.apply(step);
            if step.action == Action::PublishGroup {
                self.wanted = self.cluster.snapshot.desired.replicas;
            }
        }
        self.agents_act();
        self.cluster.tick();
        self.agents_act();
        (planned.steps.len(), planned.next_look().is_some())
    }

    /// Who acts well is given up only for a standby that acts next.
    fn assert_kept(&self, action: &Action) {
        let Action::Delete { pod, .. } = action else { return };
        let pair = self.pairs.iter().find(|pair| pair.active.as_ref() == Some(&pod.uid));
        let Some(pair) = pair.filter(|_| self.can_act(&pod.uid)) else { return };
        let heir = pair.standby.as_ref().filter(|standby| self.can_act(standby));
        let has_heir = heir.is_some() && self.cluster.snapshot.is_level(&pod.name);
        assert!(has_heir, "{action:?} ends the only one of {pair:?}\n{:#?}", self.cluster.snapshot);
    }

    fn converge(&mut self, is_whole: bool, dice: &mut Dice) {
        let mut quiet = 0;
        for number in 0..MOST_PASSES {
            let (steps, is_waiting) = self.pass(is_whole || number > MOST_PASSES / 2, dice);
            quiet = if steps == 0 && !is_waiting && self.unlike_the_wish().is_none() { quiet + 1 } else { 0 };
            if quiet >= 2 {
                break;
            }
        }
        let snapshot = &self.cluster.snapshot;
        assert_eq!(self.unlike_the_wish(), None, "{:#?}\n{snapshot:#?}\n{:?}", plan(snapshot), self.pairs);
        for _ in 0..QUIET_PASSES {
            let planned = plan(&self.cluster.snapshot);
            assert_eq!(planned.steps, [], "{:#?}", self.cluster.snapshot);
            self.cluster.tick();
            self.agents_act();
        }
    }

    /// What is not as the user wished; Pods on lost nodes and terminating ones do not count.
    fn unlike_the_wish(&self) -> Option<String> {
        let snapshot = &self.cluster.snapshot;
        let counted = |view: &&PodView| !view.is_on_lost_node() && view.lifecycle != Lifecycle::Terminating;
        let pods: Vec<&PodView> = snapshot.pods.iter().filter(counted).collect();
        for role in Role::ALL {
            let members: Vec<_> = pods.iter().filter(|view| view.role == role).collect();
            let wanted = snapshot.desired.count(role);
            let available = members.iter().filter(|view| view.is_available()).count();
            if (members.len(), available) != (wanted, wanted) {
                return Some(format!(
                    "{role}: {} Pods, {available} available, {wanted} wanted",
                    members.len()
                ));
            }
            let is_rolling = snapshot.desired.update.kind == UpdateKind::BackupFirst;
            let left = unkept(&snapshot.desired, members.iter().map(|view| **view));
            if is_rolling && left > 0 {
                return Some(format!("{role}: {left} Pods of the old template that no partition keeps"));
            }
        }
        let acting: BTreeSet<&PodName> =
            pods.iter().filter(|view| view.acts()).map(|view| &view.pod.name).collect();
        let primaries: BTreeSet<&PodName> =
            pods.iter().filter(|view| view.role == Role::Primary).map(|view| &view.pod.name).collect();
        (acting != primaries).then(|| format!("{acting:?} act, {primaries:?} are primaries"))
    }
}

fn nodes() -> Vec<crate::model::NodeView> {
    (0..4).map(|index| crate::given::node(&format!("n{index}"), NodeHealth::Healthy)).collect()
}

/// A set that has what it wants.
fn settled() -> impl Strategy<Value = World> {
    (wish(), 1..4_usize, any::<u64>()).prop_map(|(desired, standby_for, seed)| {
        let level = (seed % 2 == 0).then(BTreeSet::new);
        let desired = crate::model::Desired { standby_for, ..desired };
        let snapshot = Snapshot { level, ..crate::given::snapshot(desired, Vec::new()) };
        let mut world = World::new(Cluster::new(snapshot, nodes()));
        world.converge(true, &mut Dice(seed));
        world
    })
}

/// Acting Pods that can.
fn serving(snapshot: &Snapshot) -> usize {
    snapshot.pods.iter().filter(|view| view.acts() && view.is_ready()).count()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_set_comes_to_rest_with_its_actives_as_primaries(world in settled()) {
        let snapshot = &world.cluster.snapshot;
        prop_assert_eq!(serving(snapshot), snapshot.desired.replicas);
        let standbys = snapshot.pods.iter().filter(|view| matches!(view.part, Part::Standby { .. })).count();
        prop_assert_eq!(standbys, snapshot.desired.replicas.min(snapshot.desired.hot_backups));
        let followed = snapshot.pods.iter().filter(|view| view.part.peer_of_active().is_some()).count();
        let places = snapshot.desired.hot_backups * snapshot.desired.standby_for;
        prop_assert_eq!(followed, snapshot.desired.replicas.min(places));
    }

    #[test]
    fn a_set_converges_after_faults_on_the_way(mut world in settled(), seed in any::<u64>()) {
        let mut dice = Dice(seed);
        for _ in 0..FAULTY_PASSES {
            if dice.below(2) == 0 {
                world.cluster.fault(&mut dice);
            }
            world.agents_act();
            world.pass(false, &mut dice);
        }
        world.converge(false, &mut dice);
    }

    #[test]
    fn a_set_converges_to_other_counts(mut world in settled(), counts in [0..4_usize, 0..4, 0..4], seed in any::<u64>()) {
        let [replicas, hot_backups, cold_backups] = counts;
        let mut dice = Dice(seed);
        world.cluster.snapshot.desired =
            crate::model::Desired { replicas, hot_backups, cold_backups, ..world.cluster.snapshot.desired };
        world.cluster.snapshot.group = Some(ObjectState::Outdated);
        world.converge(false, &mut dice);
    }

    #[test]
    fn a_rollout_never_stops_an_active_without_a_successor(mut world in settled(), seed in any::<u64>()) {
        let mut dice = Dice(seed);
        world.cluster.snapshot.desired.revision = Revision("next".into());
        for _ in 0..FAULTY_PASSES {
            world.pass(true, &mut dice);
            prop_assert!(serving(&world.cluster.snapshot) >= world.cluster.snapshot.desired.replicas);
        }
        world.converge(true, &mut dice);
    }

    #[test]
    fn who_acts_is_followed_at_once_and_once(mut world in settled(), index in any::<prop::sample::Index>()) {
        let whole: Vec<usize> =
            (0..world.pairs.len()).filter(|index| world.pairs[*index].standby.is_some()).collect();
        prop_assume!(!whole.is_empty());
        let index = whole[index.index(whole.len())];
        world.take_over(index);
        let heir = world.pairs[index].active.clone();
        world.label();
        let planned = plan(&world.cluster.snapshot);
        prop_assert_eq!(planned.steps.len(), 2, "{:#?}", planned);
        for step in &planned.steps {
            world.cluster.apply(step);
        }
        let role = world.view(&heir.expect("somebody acts")).map(|view| view.role);
        prop_assert_eq!(role, Some(Role::Primary));
        prop_assert_eq!(plan(&world.cluster.snapshot).steps, vec![]);
    }
}

#[test]
fn every_scenario_with_pairs_converges() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    let files = std::fs::read_dir(folder).expect("the folder of scenarios exists");
    let paths = files.map(|file| file.expect("readable").path());
    let mut count = 0;
    for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")) {
        let scenario =
            crate::situation::read(&std::fs::read_to_string(&path).expect("readable")).expect("valid");
        let mut snapshot = scenario.snapshot().expect("valid");
        if !snapshot.is_paired() || snapshot.group == Some(ObjectState::Foreign) {
            continue;
        }
        println!("{}", path.display());
        count += 1;
        snapshot.desired.paused = false;
        let mut nodes: Vec<_> = snapshot.pods.iter().filter_map(|view| view.node.clone()).collect();
        nodes.push(crate::given::node("spare", NodeHealth::Healthy));
        World::new(Cluster::new(snapshot, nodes)).converge(true, &mut Dice(1));
    }
    assert!(count > 10, "only {count} scenarios");
}
