//! Which members of pairs do not start again, and of which pairs that is so of both: others may take their places at once.
//!
//! All of it can be lost: then nobody acts by it, and time has to tell.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bps_core::model::NodeName;
use bps_core::pairing::Group;
use bps_observe::NotedNodes;
use bps_observe::group::PodEnd;
use bps_protocol::{AgentId, BootTime};

/// How long a kubelet whose node is ready may take to begin to end what has no Pod any more. 60 s: it hears of it at once, and looks
/// itself every 2 s (`housekeepingPeriod`, 1.36.4); a node counts as ready for some 50 s after it was last heard.
const KUBELET_WITHIN: Duration = Duration::from_secs(60);
/// How often to look whether the nodes of Pods that are gone answer. 20 s: nobody waits for it but a pair without members.
const LOOK_FOR_NODES: Duration = Duration::from_secs(20);

/// Pods that Leases name and that do not start again.
#[derive(Debug, Default)]
pub(super) struct Departed(BTreeMap<AgentId, Departure>);

#[derive(Debug)]
struct Departure {
    end: PodEnd,
    /// The spell in which its node has worked since a look saw that.
    works: Option<(u64, BootTime)>,
}

impl Departure {
    /// When its kubelet has ended it, if that works on.
    fn due(&self) -> Option<BootTime> {
        let (gone, (_, works)) = (self.end.gone_at?, self.works?);
        Some(gone.max(works) + self.end.grace + KUBELET_WITHIN)
    }
}

impl Departed {
    /// Notes Pods that go or are gone, of those that Leases name, and how their nodes are.
    ///
    /// Where a node is off, whatever was about to go has ended; a Pod that stays would start again there.
    pub(super) fn see(&mut self, group: &Group, ends: Vec<PodEnd>, nodes: &NotedNodes, now: BootTime) {
        let named: BTreeSet<AgentId> = group.pairs.iter().flat_map(|pair| pair.lease.named()).collect();
        for end in ends.into_iter().filter(|end| named.contains(&end.id)) {
            let known = self.0.entry(end.id).or_insert_with(|| Departure { end: end.clone(), works: None });
            known.end.is_certain |= end.is_certain;
            known.end.gone_at = known.end.gone_at.or(end.gone_at);
        }
        self.0.retain(|id, _| named.contains(id));
        for Departure { end, works } in self.0.values_mut() {
            let spell = end.node.as_ref().and_then(|node| nodes.working.get(node)).copied();
            *works = spell.map(|spell| match *works {
                Some((same, since)) if same == spell => (spell, since),
                _ => (spell, now),
            });
            end.is_certain |= end.gone_at.is_none() && is_in(end, &nodes.off);
        }
    }

    /// Pods that have ended if they are gone indeed: a watch on a label calls one gone, too, that lost its label.
    pub(super) fn doubted(&self, nodes: &NotedNodes, now: BootTime) -> Vec<PodEnd> {
        let all = self.0.values().filter(|departure| {
            let is_over = departure.due().is_some_and(|due| due <= now) || is_in(&departure.end, &nodes.off);
            departure.end.gone_at.is_some() && !departure.end.is_certain && is_over
        });
        all.map(|departure| departure.end.clone()).collect()
    }

    /// Whether a doubted Pod is there was asked.
    pub(super) fn settle(&mut self, id: AgentId, is_there: bool) {
        if is_there {
            self.0.remove(&id);
        } else if let Some(departure) = self.0.get_mut(&id) {
            departure.end.is_certain = true;
        }
    }

    /// Says of each pair whether its members have ended, or when that may be known.
    pub(super) fn tell(&self, group: &mut Group, now: BootTime) {
        let expected = |id: &AgentId| match self.0.get(id) {
            _ if *id == AgentId::NOBODY => Some(now),
            Some(departure) if departure.end.is_certain => Some(now),
            // A node may come back, and then no event tells that.
            Some(departure) => {
                departure.end.gone_at?;
                Some(departure.due().unwrap_or(now).max(now + LOOK_FOR_NODES))
            }
            None => None,
        };
        for pair in &mut group.pairs {
            let [one, two] = pair.lease.members.each_ref().map(expected);
            let known_at = one.zip(two).map(|(one, two)| one.max(two));
            pair.have_ended = known_at == Some(now);
            pair.ends_known_at = known_at.filter(|at| *at > now);
        }
    }
}

fn is_in(end: &PodEnd, nodes: &BTreeSet<NodeName>) -> bool {
    end.node.as_ref().is_some_and(|node| nodes.contains(node))
}

#[cfg(test)]
mod tests {
    use bps_core::pairing::testing::pair;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const GRACE: Duration = Duration::from_secs(30);

    fn at(seconds: u32) -> BootTime {
        BootTime::default() + seconds * SECOND
    }

    /// Of the Pod of this uid, on the node `n1`.
    fn end(id: u128, is_certain: bool, gone_at: Option<BootTime>) -> PodEnd {
        let (name, node) = (format!("web-{id}"), Some(NodeName("n1".into())));
        PodEnd { id: AgentId(id), name, node, is_certain, gone_at, grace: GRACE }
    }

    fn off(node: &str) -> NotedNodes {
        NotedNodes { off: [NodeName(node.to_owned())].into(), ..NotedNodes::default() }
    }

    /// In this spell.
    fn working(node: &str, spell: u64) -> NotedNodes {
        NotedNodes { working: [(NodeName(node.to_owned()), spell)].into(), ..NotedNodes::default() }
    }

    /// The pairs of 1 and 2, and of 3 alone.
    struct Scene {
        departed: Departed,
        group: Group,
    }

    impl Scene {
        fn new() -> Self {
            let group = Group { pairs: vec![pair(0, [1, 2]), pair(1, [3, 0])], ..Group::default() };
            Self { departed: Departed::default(), group }
        }

        /// Sees this, asks for whoever is doubted, who is gone or not, and tells of both pairs.
        fn look(
            &mut self,
            seconds: u32,
            ends: &[PodEnd],
            nodes: &NotedNodes,
            is_there: bool,
        ) -> [(bool, Option<BootTime>); 2] {
            self.departed.see(&self.group, ends.to_vec(), nodes, at(seconds));
            for doubted in self.departed.doubted(nodes, at(seconds)) {
                self.departed.settle(doubted.id, is_there);
            }
            self.departed.tell(&mut self.group, at(seconds));
            [0, 1].map(|index: usize| {
                let pair = &self.group.pairs[index];
                (pair.have_ended, pair.ends_known_at)
            })
        }
    }

    const NO: (bool, Option<BootTime>) = (false, None);
    const YES: (bool, Option<BootTime>) = (true, None);

    #[test]
    fn a_pair_has_ended_once_the_kubelets_said_so_of_both_members() {
        let mut scene = Scene::new();
        let nodes = working("n1", 1);
        assert_eq!(scene.look(1, &[], &nodes, false), [NO, NO]);
        assert_eq!(scene.look(2, &[end(3, false, None)], &nodes, false), [NO, NO], "it goes, and runs on");
        let ended = [end(3, true, Some(at(3))), end(1, true, Some(at(3)))];
        assert_eq!(scene.look(3, &ended, &nodes, false), [NO, YES]);
        assert_eq!(scene.look(4, &[end(2, true, Some(at(4)))], &nodes, false), [YES, YES]);
    }

    #[test]
    fn whoever_was_deleted_by_force_has_ended_when_its_kubelet_has_had_time_for_that() {
        let mut scene = Scene::new();
        let gone = [end(3, false, Some(at(1)))];
        let due = at(1) + GRACE + KUBELET_WITHIN;
        assert_eq!(scene.look(1, &gone, &working("n1", 1), false)[1], (false, Some(due)));
        assert_eq!(scene.look(90, &[], &working("n1", 1), false)[1], (false, Some(at(90) + LOOK_FOR_NODES)));
        assert_eq!(scene.look(91, &[], &working("n1", 1), false)[1], YES);
        assert_eq!(scene.look(92, &[], &NotedNodes::default(), false)[1], YES, "it does not come back");
    }

    #[test]
    fn a_kubelet_that_was_away_has_as_much_time_from_its_return_on() {
        let mut scene = Scene::new();
        let gone = [end(3, false, Some(at(1)))];
        scene.look(1, &gone, &working("n1", 1), false);
        let unknown = scene.look(50, &[], &NotedNodes::default(), false)[1];
        assert_eq!(unknown, (false, Some(at(50) + LOOK_FOR_NODES)));
        // It may have been away for a moment that no look saw.
        let due = at(91) + GRACE + KUBELET_WITHIN;
        assert_eq!(scene.look(91, &[], &working("n1", 2), false)[1], (false, Some(due)));
        assert_eq!(scene.look(181, &[], &working("n1", 2), false)[1], YES);
    }

    #[test]
    fn a_pod_that_only_lost_its_label_has_not_ended() {
        let mut scene = Scene::new();
        let gone = [end(3, false, Some(at(1)))];
        scene.look(1, &gone, &working("n1", 1), true);
        assert_eq!(scene.look(91, &[], &working("n1", 1), true)[1], NO);
        assert_eq!(scene.look(200, &[], &working("n1", 1), true)[1], NO);
    }

    #[test]
    fn whatever_goes_or_is_gone_has_ended_where_somebody_vouches_that_the_node_is_off() {
        let going = end(3, false, None);
        let gone = end(3, false, Some(at(1)));
        for (end, node, expected) in [(&going, "n1", YES), (&going, "n2", NO), (&gone, "n1", YES)] {
            assert_eq!(Scene::new().look(2, std::slice::from_ref(end), &off(node), false)[1], expected);
        }
        let there = Scene::new().look(2, &[gone], &off("n1"), true)[1];
        assert_eq!(there, NO, "it would start again with its node");
    }
}
