//! What holds for every history of Pods that come and go, with pairs that behave as the protocol makes them.

use bps_protocol::Replacement;
use proptest::prelude::*;

use super::*;
use crate::model::Role;

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
}

impl World {
    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Comes => {
                self.next += 1;
                self.group.pods.push(pod(self.next));
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
                let lease = &mut self.group.pairs[at].lease;
                lease.holder = Some(if lease.holder == Some(one) { two } else { one });
            }
            Happening::IsDeleted(index) if !self.group.pairs.is_empty() => {
                let pair = self.group.pairs.remove(index.index(self.group.pairs.len()));
                let level = pair
                    .number
                    .is_multiple_of(2)
                    .then(|| LevelText { directories: pair.number.to_string(), pods: String::new() });
                let pods = pair.names.into_values().collect();
                self.group.lost.push(Lost { number: pair.number, pods, level, since: self.now });
            }
            Happening::Moves(_)
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
        let timing = Timing::default();
        let lost = std::mem::take(&mut self.group.lost);
        let (waiting, over): (Vec<Lost>, Vec<Lost>) =
            lost.into_iter().partition(|lost| self.now < lost.since + timing.operator_wait);
        self.group.lost = waiting;
        self.group.remembered.extend(over.into_iter().filter(|lost| lost.level.is_some()));
        let staying: Vec<AgentId> = self.group.staying().iter().map(|pod| pod.id).collect();
        for pair in &mut self.group.pairs {
            let may_act = |id: &AgentId| staying.contains(id) && !pair.fenced.contains(id);
            let lease = &mut pair.lease;
            if lease.holder.is_none_or(|holder| !may_act(&holder)) {
                lease.holder = lease.members.into_iter().find(may_act);
            }
            let Some(Replacement { leaving, joining }) = lease.pending else { continue };
            if lease.holder.is_some_and(|holder| holder != leaving) {
                lease.members = lease.members.map(|id| if id == leaving { joining } else { id });
                lease.pending = None;
            }
        }
    }

    /// Carries a plan out as the controller does.
    fn carry_out(&mut self, plan: &Plan) {
        for step in &plan.steps {
            self.take(step);
        }
        let since =
            |wait, since: Option<BootTime>| plan.waits.contains(&wait).then(|| since.unwrap_or(self.now));
        self.group.surplus_since = since(Wait::Surplus, self.group.surplus_since);
        self.group.alone_since = since(Wait::Second, self.group.alone_since);
    }

    fn take(&mut self, step: &Step) {
        let pair_of = |number: u32, group: &mut Group| {
            group.pairs.iter().position(|pair| pair.number == number).expect("a pair of the group")
        };
        let group = &mut self.group;
        match step {
            Step::Found { number, seats, level, .. } => {
                let said = group.remembered.iter().find(|lost| lost.number == *number);
                assert_eq!(*level, said.and_then(|lost| lost.level.clone()), "{number} has forgotten it");
                group.remembered.retain(|lost| lost.number != *number);
                assert!(group.pairs.iter().all(|pair| pair.number != *number), "{number} is taken");
                let mut new = pair(*number, [seats[0].id.0, seats[1].id.0]);
                new.lease.holder = None;
                group.pairs.push(new);
            }
            Step::Ask { pair, leaving, joining } => {
                let at = pair_of(*pair, group);
                let pair = &mut group.pairs[at];
                pair.names.insert(joining.id, joining.pod.clone());
                pair.addresses.insert(joining.id, joining.address);
                pair.lease.pending = Some(Replacement { leaving: *leaving, joining: joining.id });
            }
            Step::Move { pair, seat } => {
                let at = pair_of(*pair, group);
                group.pairs[at].addresses.insert(seat.id, seat.address);
            }
            Step::Withdraw { pair } => {
                let at = pair_of(*pair, group);
                group.pairs[at].lease.pending = None;
            }
            Step::Force { pair, lease } => {
                let at = pair_of(*pair, group);
                group.pairs[at].lease = *lease;
            }
            Step::Fence { pair } => {
                let at = pair_of(*pair, group);
                group.pairs[at].is_ending = true;
                group.pairs[at].fenced = group.pairs[at].lease.members.to_vec();
            }
            Step::End { pair } => {
                let at = pair_of(*pair, group);
                let gone = group.pairs.remove(at);
                let timing = Timing::default();
                assert!(
                    gone.is_over(&Moment { now: self.now, timing: &timing }),
                    "somebody may act in {gone:?}"
                );
            }
            Step::Label { pod, shown } => {
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
        let named = self.group.pairs.iter().flat_map(|pair| {
            let joining = pair.lease.pending.map(|replacement| replacement.joining);
            pair.lease.members.into_iter().chain(joining)
        });
        let mut named: Vec<AgentId> = named.filter(|id| *id != VACANT).collect();
        named.sort_unstable();
        let count = named.len();
        named.dedup();
        assert_eq!(named.len(), count, "an agent is in two pairs: {:?}", self.group.pairs);
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
        for _ in 0..ROUNDS {
            self.agents_act();
            self.round();
        }
        self.agents_act();
        self.round()
    }

    fn round(&mut self) -> Plan {
        let timing = Timing::default();
        let plan = plan(&self.group, &Moment { now: self.now, timing: &timing });
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
        let mut world = World { group: Group::default(), now: now(), next: 0 };
        let last = world.come_to_rest(history);
        prop_assert_eq!(&last.steps, &vec![], "{:?}", world.group);

        let staying = world.group.staying().len();
        let pairs = &world.group.pairs;
        let complete = pairs.iter().filter(|pair| world.group.staying_members(pair).len() == 2).count();
        prop_assert_eq!(complete, staying / 2, "{:?}", world.group);
        prop_assert!(pairs.len() <= staying.div_ceil(2), "{:?}", world.group);
        prop_assert!(staying == 0 || !pairs.is_empty());
    }

    #[test]
    fn a_group_of_a_set_ends_with_the_wanted_pairs_and_no_idle_spare(
        wanted in 0..4_usize,
        history in prop::collection::vec((happening_to_set(), any::<bool>()), 0..40)
    ) {
        let group = Group { pairs_wanted: Some(wanted), ..Group::default() };
        let mut world = World { group, now: now(), next: 0 };
        let last = world.come_to_rest(history);
        prop_assert_eq!(&last.steps, &vec![], "{:?}", world.group);

        let group = &world.group;
        let wanted = group.pairs_wanted.unwrap_or_default();
        let members = |pair: &Pair| group.staying_members(pair).len();
        let seated: usize = group.pairs.iter().map(members).sum();
        prop_assert!(group.pairs.len() <= wanted, "{:?}", group);
        prop_assert_eq!(seated, group.staying().len().min(2 * wanted), "{:?}", group);
        for pair in group.pairs.iter().filter(|pair| members(pair) > 0) {
            prop_assert!(pair.lease.holder.is_some_and(|holder| group.is_staying(holder)), "{:?}", pair);
        }
    }
}
