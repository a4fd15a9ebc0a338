//! What holds for every history of Pods that come and go, with pairs that behave as the protocol makes them.

use std::collections::BTreeMap;

use bps_protocol::Replacement;
use proptest::prelude::*;

use super::*;
use crate::model::{NodeName, Role};

/// Something that happens to a group.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Comes,
    ComesTo(Role),
    IsRelabelled(prop::sample::Index, Role),
    Wants(usize),
    Moves(prop::sample::Index),
    Leaves(prop::sample::Index),
    Vanishes(prop::sample::Index),
    TakesOver(prop::sample::Index),
    IsDeleted(prop::sample::Index),
    /// A Pod answers nobody from then on, whatever its object says.
    FallsSilent(prop::sample::Index),
    /// All Pods answer again.
    AllAnswer,
    /// One of the two nodes is to be taken away, or neither.
    NodeLeaves(Option<bool>),
    /// These members of a pair have every acknowledged write.
    IsLevel(prop::sample::Index, [bool; 2]),
}

fn happening() -> impl Strategy<Value = Happening> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => Just(Happening::Comes),
        3 => index().prop_map(Happening::Leaves),
        2 => index().prop_map(Happening::Vanishes),
        2 => index().prop_map(Happening::TakesOver),
        1 => index().prop_map(Happening::IsDeleted),
        1 => index().prop_map(Happening::Moves),
        2 => index().prop_map(Happening::FallsSilent),
        1 => Just(Happening::AllAnswer),
        1 => any::<Option<bool>>().prop_map(Happening::NodeLeaves),
    ]
}

/// The same for pairs with replicated state.
fn happening_with_state() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => any::<(prop::sample::Index, [bool; 2])>().prop_map(|(index, level)| Happening::IsLevel(index, level)),
        1 => (0..4_usize).prop_map(Happening::Wants),
        9 => happening(),
    ]
}

/// The same for the group of a set.
fn happening_to_set() -> impl Strategy<Value = Happening> {
    let role = || prop::sample::select(vec![Role::Primary, Role::Hot]);
    prop_oneof![
        5 => role().prop_map(Happening::ComesTo),
        2 => (any::<prop::sample::Index>(), role()).prop_map(|(index, role)| Happening::IsRelabelled(index, role)),
        1 => (0..4_usize).prop_map(Happening::Wants),
        9 => happening(),
    ]
}

/// A group, and whoever else changes it.
struct World {
    group: Group,
    now: BootTime,
    next: u128,
    /// Pods that answer nobody.
    mute: BTreeSet<AgentId>,
    /// When each Pod was last seen not to answer.
    silent: BTreeMap<AgentId, BootTime>,
    /// How often a Pod was asked for in the place of another one.
    asked: usize,
    /// Pairs whose Lease was deleted, as they were.
    ended: BTreeMap<u32, Pair>,
    /// Whether nodes have a label that says what fails together.
    has_domains: bool,
}

impl Default for World {
    fn default() -> Self {
        Self {
            group: Group::default(),
            now: now(),
            next: 0,
            mute: BTreeSet::new(),
            silent: BTreeMap::new(),
            asked: 0,
            ended: BTreeMap::new(),
            has_domains: false,
        }
    }
}

impl World {
    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Comes => {
                self.next += 1;
                // One node in five has no label.
                let is_known = self.has_domains && !self.next.is_multiple_of(5);
                let domain = is_known.then(|| format!("zone-{}", self.next % 3));
                self.group.pods.push(Pod { domain, ..pod(self.next) });
            }
            Happening::ComesTo(role) => {
                self.next += 1;
                self.group.pods.push(Pod { role: Some(role), ..pod(self.next) });
            }
            Happening::IsRelabelled(index, role) if !self.group.pods.is_empty() => {
                let at = index.index(self.group.pods.len());
                self.group.pods[at].role = Some(role);
            }
            Happening::Wants(pairs) => self.group.pairs_wanted = Some(pairs),
            Happening::Leaves(index) if !self.group.pods.is_empty() => {
                let at = index.index(self.group.pods.len());
                self.group.pods[at].is_leaving = true;
            }
            Happening::Moves(index) if !self.group.pods.is_empty() => {
                let at = index.index(self.group.pods.len());
                self.group.pods[at].address = Some(([10, 1, 0, 1], 20_001).into());
            }
            Happening::Vanishes(index) if !self.group.pods.is_empty() => {
                self.group.pods.remove(index.index(self.group.pods.len()));
            }
            Happening::TakesOver(index) if !self.group.pairs.is_empty() => {
                let at = index.index(self.group.pairs.len());
                let [one, two] = self.group.pairs[at].lease.members;
                let next = if self.group.pairs[at].lease.holder == Some(one) { two } else { one };
                if !self.busy(at).contains(&next) {
                    self.group.pairs[at].lease.holder = Some(next);
                }
            }
            Happening::IsDeleted(index) if !self.group.pairs.is_empty() => {
                let pair = self.group.pairs.remove(index.index(self.group.pairs.len()));
                let level = pair
                    .number
                    .is_multiple_of(2)
                    .then(|| LevelText { directories: pair.number.to_string(), pods: String::new() });
                let pods = pair.names.values().cloned().collect();
                let may_return = !pair.number.is_multiple_of(3);
                let lost = Lost::new(pair.number, pods, level, self.now + pair.timing.operator_wait);
                self.group.lost.push(Lost { may_return, ..lost });
                self.ended.insert(pair.number, pair);
            }
            Happening::FallsSilent(index) if !self.group.pods.is_empty() => {
                self.mute.insert(self.group.pods[index.index(self.group.pods.len())].id);
            }
            Happening::AllAnswer => self.mute.clear(),
            Happening::NodeLeaves(node) => {
                let leaving = node.map(|is_odd| NodeName(format!("node-{}", u8::from(is_odd))));
                self.group.leaving_nodes = leaving.into_iter().collect();
            }
            Happening::IsLevel(index, level) if !self.group.pairs.is_empty() => {
                let at = index.index(self.group.pairs.len());
                let pair = &mut self.group.pairs[at];
                let members = pair.lease.members.into_iter().zip(level);
                pair.level_pods = members.filter(|(_, is_level)| *is_level).map(|(id, _)| id).collect();
                pair.level = Some(pair.level_pods.len());
            }
            Happening::FallsSilent(_)
            | Happening::IsLevel(..)
            | Happening::Moves(_)
            | Happening::IsRelabelled(..)
            | Happening::Leaves(_)
            | Happening::Vanishes(_)
            | Happening::TakesOver(_)
            | Happening::IsDeleted(_) => {}
        }
    }

    /// Agents do what the protocol has them do sooner or later, and time passes.
    fn agents_act(&mut self) {
        self.now = self.now + Duration::from_secs(10);
        let lost = std::mem::take(&mut self.group.lost);
        let (waiting, over): (Vec<Lost>, Vec<Lost>) =
            lost.into_iter().partition(|lost| self.now < lost.until);
        self.group.lost = waiting;
        self.group.remembered.extend(over.into_iter().filter(|lost| lost.level.is_some()));
        let staying: Vec<AgentId> = self.group.staying().iter().map(|pod| pod.id).collect();
        for at in 0..self.group.pairs.len() {
            let busy = self.busy(at);
            let pair = &mut self.group.pairs[at];
            let may_act =
                |id: &AgentId| staying.contains(id) && !pair.fenced.contains(id) && !busy.contains(id);
            let lease = &mut pair.lease;
            if lease.holder.is_none_or(|holder| !may_act(&holder)) {
                lease.holder = lease.members.into_iter().find(may_act);
            }
            let other = |lease: &Lease| lease.members.into_iter().find(|id| Some(*id) != lease.holder);
            if pair.switch_over == Some(lease.epoch) && other(lease).as_ref().is_some_and(may_act) {
                (lease.holder, lease.epoch.sequence) = (other(lease), lease.epoch.sequence + 1);
            }
            let answers =
                |id: &AgentId| staying.contains(id) && !self.mute.contains(id) && !busy.contains(id);
            let is_answered = other(lease).as_ref().is_some_and(answers);
            lease.hold = if is_answered { Hold::Peer } else { Hold::Api };
            let Some(Replacement { leaving, joining }) = lease.pending else { continue };
            if lease.holder.is_some_and(|holder| holder != leaving) {
                lease.members = lease.members.map(|id| if id == leaving { joining } else { id });
                lease.pending = None;
            }
        }
    }

    /// Pods that act in other pairs than the one at this place, where a standby may have several places.
    fn busy(&self, at: usize) -> BTreeSet<AgentId> {
        if self.group.further_places == 0 {
            return BTreeSet::new();
        }
        let others = self.group.pairs.iter().enumerate().filter(|(index, _)| *index != at);
        others.filter_map(|(_, pair)| pair.lease.holder).collect()
    }

    /// Remembers who does not answer as the controller does.
    fn remember(&mut self) {
        for pair in &mut self.group.pairs {
            let known = pair.silence.filter(|known| Some(known.standby) == pair.silent_standby());
            let now = pair.silent_standby().map(|standby| Silence { standby, since: self.now });
            pair.silence = known.or(now);
            let counts = pair.silence.filter(|silence| silence.since + SILENCE_MAX <= self.now);
            self.silent.extend(counts.map(|silence| (silence.standby, self.now)));
        }
        let roster = self.group.roster();
        let uncovered = |pair: &Pair| roster.uncovered(pair, pair.uncovered, self.now);
        let uncovered: Vec<Option<Uncovered>> = self.group.pairs.iter().map(uncovered).collect();
        for (pair, uncovered) in self.group.pairs.iter_mut().zip(uncovered) {
            pair.uncovered = uncovered;
        }
        self.silent.retain(|_, since| self.now < *since + Duration::from_secs(60));
        self.group.silent = self.silent.keys().copied().collect();
    }

    /// Carries a plan out as the controller does.
    fn carry_out(&mut self, plan: &Plan) {
        for step in &plan.steps {
            self.take(&step.action);
        }
        let since = |reason, since: Option<BootTime>| plan.is_held(reason).then(|| since.unwrap_or(self.now));
        self.group.surplus_since = since(PairReason::Surplus, self.group.surplus_since);
        self.group.alone_since = since(PairReason::PodAlone, self.group.alone_since);
    }

    fn take(&mut self, action: &PairAction) {
        let pair_of = |number: u32, group: &mut Group| {
            group.pairs.iter().position(|pair| pair.number == number).expect("a pair of the group")
        };
        let group = &mut self.group;
        match action {
            PairAction::Found { number, seats, level, .. } => {
                let said = group.remembered.iter().find(|lost| lost.number == *number);
                assert_eq!(*level, said.and_then(|lost| lost.level.clone()), "{number} has forgotten it");
                group.remembered.retain(|lost| lost.number != *number);
                assert!(group.pairs.iter().all(|pair| pair.number != *number), "{number} is taken");
                let mut new = pair(*number, [seats[0].id.0, seats[1].id.0]);
                new.lease.holder = None;
                group.pairs.push(new);
            }
            PairAction::Restore { pair } => {
                let is_it = |lost: &Lost| lost.number == *pair && lost.may_return;
                assert!(group.lost.iter().any(is_it), "{pair} may have had another Lease since");
                group.lost.retain(|lost| lost.number != *pair);
                group.pairs.push(self.ended.remove(pair).expect("one that ended"));
            }
            PairAction::Ask { pair, leaving, joining } => {
                self.asked += 1;
                let at = pair_of(*pair, group);
                let pair = &mut group.pairs[at];
                pair.names.insert(joining.id, joining.pod.clone());
                pair.addresses.insert(joining.id, joining.address);
                pair.lease.pending = Some(Replacement { leaving: *leaving, joining: joining.id });
            }
            PairAction::Vacate { pair, leaving } => {
                let at = pair_of(*pair, group);
                let pair = &mut group.pairs[at];
                let last = pair.names.get(leaving).cloned().unwrap_or_default();
                pair.names.insert(VACANT, last);
                pair.lease.pending = Some(Replacement { leaving: *leaving, joining: VACANT });
            }
            PairAction::Move { pair, seat } => {
                let at = pair_of(*pair, group);
                group.pairs[at].addresses.insert(seat.id, seat.address);
            }
            PairAction::Withdraw { pair } => {
                let at = pair_of(*pair, group);
                group.pairs[at].lease.pending = None;
            }
            PairAction::Force { pair, lease } => {
                let at = pair_of(*pair, group);
                group.pairs[at].lease = *lease;
            }
            PairAction::SwitchOver { pair } => {
                let at = pair_of(*pair, group);
                group.pairs[at].switch_over = Some(group.pairs[at].lease.epoch);
            }
            PairAction::Fence { pair } => {
                let at = pair_of(*pair, group);
                group.pairs[at].is_ending = true;
                group.pairs[at].fenced = group.pairs[at].lease.members.to_vec();
            }
            PairAction::End { pair } => {
                let at = pair_of(*pair, group);
                let gone = group.pairs.remove(at);
                assert!(gone.is_over(self.now), "somebody may act in {gone:?}");
            }
            PairAction::Label { pod, shown } => {
                let labelled = group.pods.iter_mut().find(|candidate| candidate.id == *pod);
                labelled.expect("a Pod of the group").shown = shown.clone();
            }
        }
    }

    fn check(&self) {
        if let Some(wanted) = self.group.pairs_wanted {
            let lasting = self.group.pairs.iter().filter(|pair| !pair.is_ending).count();
            assert!(lasting <= wanted, "{lasting} of {wanted} pairs: {:?}", self.group.pairs);
        }
        let mut places: BTreeMap<AgentId, usize> = BTreeMap::new();
        for pair in &self.group.pairs {
            let joining = pair.lease.pending.map(|replacement| replacement.joining);
            for id in pair.lease.members.into_iter().chain(joining).filter(|id| *id != VACANT) {
                *places.entry(id).or_default() += 1;
            }
        }
        let most = 1 + self.group.further_places;
        assert!(
            places.values().all(|count| *count <= most),
            "an agent is in more than {most} pairs: {:?}",
            self.group.pairs
        );
    }

    /// All that happens, and the last plan once there was time to follow it.
    fn come_to_rest(&mut self, history: Vec<(Happening, bool)>) -> Plan {
        for (happening, do_agents_act) in history {
            self.happen(happening);
            self.round();
            if do_agents_act {
                self.agents_act();
            }
        }
        self.mute.clear();
        for _ in 0..ROUNDS {
            self.agents_act();
            self.round();
        }
        self.agents_act();
        self.round()
    }

    fn round(&mut self) -> Plan {
        self.remember();
        let plan = plan_at(&self.group, self.now);
        self.carry_out(&plan);
        self.check();
        plan
    }
}

/// Rounds until nothing changes any more: the longest wait is 61 s, and a chain of two of them is possible.
const ROUNDS: usize = 40;

proptest! {
    #[test]
    fn every_history_ends_with_as_many_pairs_as_there_can_be(
        history in prop::collection::vec((happening(), any::<bool>()), 0..40)
    ) {
        let mut world = World::default();
        let last = world.come_to_rest(history);
        prop_assert_eq!(&last.steps, &vec![], "{:?}", world.group);

        let staying = world.group.staying().len();
        let (pairs, roster) = (&world.group.pairs, world.group.roster());
        let complete = pairs.iter().filter(|pair| roster.staying_members(pair).len() == 2).count();
        prop_assert_eq!(complete, staying / 2, "{:?}", world.group);
        prop_assert!(pairs.len() <= staying.div_ceil(2), "{:?}", world.group);
        prop_assert!(staying == 0 || !pairs.is_empty());
    }

    /// Each plan on the way is checked. Pods that may come back are waited for, so that nothing is said of the end.
    #[test]
    fn no_plan_for_pairs_with_state_breaks_an_invariant(
        history in prop::collection::vec((happening_with_state(), any::<bool>()), 0..60)
    ) {
        World::default().come_to_rest(history);
    }

    /// Spares that answer nobody either must not be asked for one after the other for ever.
    #[test]
    fn pods_that_answer_nobody_are_asked_for_seldom(pods in 3..8_usize) {
        let group = Group { pairs_wanted: Some(1), ..Group::default() };
        let mut world = World { group, ..World::default() };
        for _ in 0..pods {
            world.happen(Happening::Comes);
        }
        world.round();
        world.mute = world.group.pods.iter().map(|pod| pod.id).collect();
        for _ in 0..ROUNDS {
            world.agents_act();
            world.round();
        }
        // Each round is 10 s, and whoever was silent is left in peace for 60 s; the active is never asked for.
        prop_assert!(world.asked <= (pods - 1) * (1 + ROUNDS / 6), "{}", world.asked);
    }

    #[test]
    fn a_group_of_a_set_ends_with_the_wanted_pairs_and_no_idle_spare(
        wanted in 0..4_usize,
        history in prop::collection::vec((happening_to_set(), any::<bool>()), 0..40)
    ) {
        let group = Group { pairs_wanted: Some(wanted), ..Group::default() };
        let mut world = World { group, ..World::default() };
        let last = world.come_to_rest(history);
        prop_assert_eq!(&last.steps, &vec![], "{:?}", world.group);

        let group = &world.group;
        let wanted = group.pairs_wanted.unwrap_or_default();
        let roster = group.roster();
        let members = |pair: &Pair| roster.staying_members(pair).len();
        let seated: usize = group.pairs.iter().map(members).sum();
        prop_assert!(group.pairs.len() <= wanted, "{:?}", group);
        prop_assert_eq!(seated, group.staying().len().min(2 * wanted), "{:?}", group);
        for pair in group.pairs.iter().filter(|pair| members(pair) > 0) {
            prop_assert!(pair.lease.holder.is_some_and(|holder| roster.is_staying(holder)), "{:?}", pair);
        }
    }
}

proptest! {
    /// After any history no standby stays beside its active for which a ready spare is elsewhere, and none at all if the
    /// group requires another domain.
    #[test]
    fn standbys_are_as_far_from_their_actives_as_the_group_asks(
        history in prop::collection::vec((happening(), any::<bool>()), 0..40),
        is_required in any::<bool>(),
    ) {
        let mut world = World { has_domains: true, ..World::default() };
        world.group.standby_place = if is_required { StandbyPlace::Required } else { StandbyPlace::Preferred };
        let last = world.come_to_rest(history);
        prop_assert_eq!(&last.steps, &vec![], "{:?}", world.group);

        let (group, roster) = (&world.group, world.group.roster());
        let named: BTreeSet<AgentId> = group.pairs.iter().flat_map(|pair| pair.lease.named()).collect();
        for pair in group.pairs.iter().filter(|pair| roster.staying_members(pair).len() == 2) {
            let active = pair.lease.holder.and_then(|holder| roster.pod(holder)).expect("a member acts");
            if active.domain.is_none() {
                continue;
            }
            let mut members = pair.lease.members.into_iter().filter_map(|id| roster.pod(id));
            let are_apart = members.all(|pod| pod.id == active.id || pod.domain != active.domain);
            let is_spare = |pod: &&Pod| {
                let is_free = !pod.is_leaving && pod.is_ready && !named.contains(&pod.id);
                let is_elsewhere = pod.domain.is_some() && pod.domain != active.domain;
                is_free && !group.silent.contains(&pod.id) && is_elsewhere
            };
            let has_better = group.pods.iter().any(|pod| is_spare(&pod));
            prop_assert!(are_apart || !is_required && !has_better, "{:?} of {:?}", pair, group);
        }
    }
}

proptest! {
    /// After any history each wanted pair has an active, standbys share what is left, and no Pod acts twice.
    #[test]
    fn standbys_of_several_actives_follow_as_many_as_they_may(
        wanted in 0..5_usize,
        further_places in 1..4_usize,
        history in prop::collection::vec((happening_to_set(), any::<bool>()), 0..40)
    ) {
        let group = Group { pairs_wanted: Some(wanted), further_places, ..Group::default() };
        let mut world = World { group, ..World::default() };
        let last = world.come_to_rest(history);
        prop_assert_eq!(&last.steps, &vec![], "{:?}", world.group);

        let group = &world.group;
        let (roster, staying) = (group.roster(), group.staying());
        let holders: BTreeSet<AgentId> = group.pairs.iter().filter_map(|pair| pair.lease.holder).collect();
        let acting = group.pairs.iter().filter(|pair| !roster.staying_members(pair).is_empty()).count();
        prop_assert_eq!(holders.len(), acting, "{:?}", group);
        let named: BTreeSet<AgentId> = group.pairs.iter().flat_map(|pair| pair.lease.named()).collect();
        let is_missing = acting < group.pairs_wanted.unwrap_or_default();
        prop_assert!(!is_missing || staying.iter().all(|pod| named.contains(&pod.id)), "{:?}", group);
        let is_whole = |pair: &&Pair| roster.staying_members(pair).len() == 2;
        let followed = group.pairs.iter().filter(is_whole).count();
        let places = (staying.len() - acting) * (1 + further_places);
        prop_assert_eq!(followed, acting.min(places), "{:?}", group);
    }

    /// The only copy of a pair's state is never given up because its Pod acts in another one.
    #[test]
    fn no_plan_for_shared_standbys_with_state_breaks_an_invariant(
        wanted in 0..4_usize,
        further_places in 1..3_usize,
        history in prop::collection::vec((happening_with_state(), any::<bool>()), 0..60)
    ) {
        let group = Group { pairs_wanted: Some(wanted), further_places, ..Group::default() };
        World { group, ..World::default() }.come_to_rest(history);
    }
}
