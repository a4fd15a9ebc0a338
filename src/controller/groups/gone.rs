//! Which members of pairs do not start again, and of which pairs that is so of both: others may take their places at once.
//!
//! All of it can be lost: then nobody acts by it, and time has to tell.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bps_core::model::NodeName;
use bps_core::pairing::Group;
use bps_observe::group::PodEnd;
use bps_protocol::{AgentId, BootTime};
use jiff::Timestamp;

/// How long a kubelet that reaches the API server may take to begin to end what has no Pod any more, and how long whoever is presumed
/// to have ended has to be silent. 60 s: it hears of it at once, looks itself every 2 s (`housekeepingPeriod`, 1.36.4), and watches
/// are tried again within 30 s; whoever acts writes every 30 s.
const WITHIN: Duration = Duration::from_secs(60);
/// How often to ask whether the nodes of Pods that are gone answer. 20 s: nobody waits for it but a pair without members, and a
/// kubelet says so every 5 min (`nodeStatusReportFrequency`) or when something changed.
const LOOK_FOR_NODES: Duration = Duration::from_secs(20);

/// Pods that Leases name, and how far they are on their way.
#[derive(Debug, Default)]
pub(super) struct Departed {
    pods: BTreeMap<AgentId, Departure>,
    /// When nodes were last asked for.
    asked_at: Option<BootTime>,
}

/// What one look saw of the Pods of a group.
pub(super) struct SeenPods<'a> {
    pub(super) group: &'a Group,
    /// Those that are there.
    pub(super) present: Vec<PodEnd>,
    /// Those whose deletion was seen since the last look.
    pub(super) gone: Vec<PodEnd>,
    /// Nodes of which somebody vouches that they are off.
    pub(super) off: &'a BTreeSet<NodeName>,
}

#[derive(Debug)]
struct Departure {
    end: PodEnd,
    /// What its node had said last when that was first asked for after its Pod was gone.
    heard: Option<Timestamp>,
    /// When it was found to have said more since: so its kubelet reaches the API server, and knows that the Pod is gone.
    answered: Option<BootTime>,
    /// It has ended if nobody writes as it would: somebody vouches for that, or its kubelet had time for it.
    is_presumed: bool,
}

impl Departure {
    /// When its kubelet has ended it.
    fn due(&self) -> Option<BootTime> {
        Some(self.answered? + self.end.grace + WITHIN)
    }

    /// Whether it has to be found out how its node is.
    fn is_sought(&self) -> bool {
        let is_known = self.end.is_certain || self.is_presumed;
        self.end.gone_at.is_some() && self.end.node.is_some() && !is_known && self.answered.is_none()
    }

    fn is_on(&self, nodes: &BTreeSet<NodeName>) -> bool {
        self.end.node.as_ref().is_some_and(|node| nodes.contains(node))
    }
}

impl Departed {
    /// Notes Pods of those that Leases name. A Pod that is missing is gone, whether a watch told so or not.
    pub(super) fn see(&mut self, seen: SeenPods<'_>, now: BootTime) {
        let SeenPods { group, present, gone, off } = seen;
        let named: BTreeSet<AgentId> = group.pairs.iter().flat_map(|pair| pair.lease.named()).collect();
        let there: BTreeSet<AgentId> = present.iter().map(|end| end.id).collect();
        for end in present.into_iter().chain(gone).filter(|end| named.contains(&end.id)) {
            let Departure { end: known, .. } = self.pods.entry(end.id).or_insert_with(|| Departure {
                end: end.clone(),
                heard: None,
                answered: None,
                is_presumed: false,
            });
            known.is_certain |= end.is_certain;
            known.is_going |= end.is_going;
            known.gone_at = known.gone_at.or(end.gone_at);
            known.grace = known.grace.max(end.grace);
            known.node = end.node.or(known.node.take());
        }
        // While its Lease cannot be read or is gone it is not known by whom it is named.
        let left_alone: BTreeSet<&String> = group.left_alone().flat_map(|lost| &lost.pods).collect();
        self.pods.retain(|id, departure| named.contains(id) || left_alone.contains(&departure.end.name));
        for (id, departure) in &mut self.pods {
            if !there.contains(id) {
                departure.end.gone_at.get_or_insert(now);
            }
            // A Pod that stays would start again with its node.
            departure.is_presumed |=
                departure.end.is_going && departure.end.gone_at.is_none() && departure.is_on(off);
        }
    }

    /// Nodes that are to be asked for.
    pub(super) fn sought(&mut self, now: BootTime) -> BTreeSet<NodeName> {
        if self.asked_at.is_some_and(|asked| now < asked + LOOK_FOR_NODES) {
            return BTreeSet::new();
        }
        let sought = self.pods.values().filter(|departure| departure.is_sought());
        let nodes: BTreeSet<NodeName> = sought.filter_map(|departure| departure.end.node.clone()).collect();
        if !nodes.is_empty() {
            self.asked_at = Some(now);
        }
        nodes
    }

    /// When a node that is ready had last said so by its own clock. Asked for after its Pods were gone, which a watch would not do:
    /// what that shows may have been said before.
    pub(super) fn hear(&mut self, node: &NodeName, said: Timestamp, now: BootTime) {
        let of_node = self.pods.values_mut().filter(|departure| departure.end.node.as_ref() == Some(node));
        for departure in of_node.filter(|departure| departure.is_sought()) {
            if *departure.heard.get_or_insert(said) != said {
                departure.answered = Some(now);
            }
        }
    }

    /// Pods that are presumed to have ended if they are gone indeed: a watch on a label calls one gone, too, that lost its label.
    pub(super) fn doubted(&self, off: &BTreeSet<NodeName>, now: BootTime) -> Vec<PodEnd> {
        let all = self.pods.values().filter(|departure| {
            let is_over = departure.due().is_some_and(|due| due <= now) || departure.is_on(off);
            let is_known = departure.end.is_certain || departure.is_presumed;
            departure.end.gone_at.is_some() && !is_known && is_over
        });
        all.map(|departure| departure.end.clone()).collect()
    }

    /// Whether a doubted Pod is there was asked.
    pub(super) fn settle(&mut self, id: AgentId, is_there: bool) {
        if is_there {
            self.pods.remove(&id);
        } else if let Some(departure) = self.pods.get_mut(&id) {
            departure.is_presumed = true;
        }
    }

    /// Says of each pair whether its members have ended, or when that may be known.
    pub(super) fn tell(&self, group: &mut Group, now: BootTime) {
        for pair in &mut group.pairs {
            let expected = |id: &AgentId| match self.pods.get(id) {
                _ if *id == AgentId::NOBODY => Some(now),
                Some(departure) if departure.end.is_certain => Some(now),
                Some(departure) if departure.is_presumed => Some(now.max(pair.unwritten_since + WITHIN)),
                // A node may come back, and then no event tells that.
                Some(departure) => {
                    departure.end.gone_at?;
                    Some(departure.due().unwrap_or(now).max(now + LOOK_FOR_NODES))
                }
                None => None,
            };
            let [one, two] = pair.lease.members.each_ref().map(expected);
            let known_at = one.zip(two).map(|(one, two)| one.max(two));
            pair.have_ended = known_at == Some(now);
            pair.ends_known_at = known_at.filter(|at| *at > now);
        }
    }
}

#[cfg(test)]
mod tests {
    use bps_core::pairing::Pair;
    use bps_core::pairing::testing::pair;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const GRACE: Duration = Duration::from_secs(30);

    fn at(seconds: u32) -> BootTime {
        BootTime::default() + seconds * SECOND
    }

    /// Of the Pod of this uid, on the node `n1`: it is there and stays.
    fn there(id: u128) -> PodEnd {
        let (name, node) = (format!("web-{id}"), Some(NodeName("n1".into())));
        PodEnd {
            id: AgentId(id),
            name,
            node,
            is_going: false,
            is_certain: false,
            gone_at: None,
            grace: GRACE,
        }
    }

    fn going(id: u128) -> PodEnd {
        PodEnd { is_going: true, ..there(id) }
    }

    /// Its kubelet said that it has ended.
    fn ended(id: u128) -> PodEnd {
        PodEnd { is_certain: true, ..going(id) }
    }

    fn gone(end: PodEnd, seconds: u32) -> PodEnd {
        PodEnd { gone_at: Some(at(seconds)), ..end }
    }

    /// The pairs of 1 and 2, and of 3 alone, with a node that works and one that nobody asks for.
    struct Scene {
        departed: Departed,
        group: Group,
        off: BTreeSet<NodeName>,
        /// When the node last said that it is ready, in seconds of its clock.
        said: Option<i64>,
        /// Whether Pods that are asked for are there.
        is_there: bool,
        asked: usize,
    }

    impl Scene {
        fn new() -> Self {
            let silent = |pair| Pair { unwritten_since: at(0), ..pair };
            let pairs = [pair(0, [1, 2]), pair(1, [3, 0])].map(silent).into();
            let group = Group { pairs, ..Group::default() };
            let (departed, off) = (Departed::default(), BTreeSet::new());
            Self { departed, group, off, said: Some(0), is_there: false, asked: 0 }
        }

        /// Sees these Pods as present, and those as gone; asks for nodes and for whoever is doubted, and tells of the pair of 3.
        fn look(&mut self, seconds: u32, present: &[PodEnd], gone: &[PodEnd]) -> (bool, Option<BootTime>) {
            let now = at(seconds);
            let (present, gone) = (present.to_vec(), gone.to_vec());
            self.departed.see(SeenPods { group: &self.group, present, gone, off: &self.off }, now);
            for node in self.departed.sought(now) {
                self.asked += 1;
                if let Some(said) = self.said {
                    self.departed.hear(&node, Timestamp::from_second(said).expect("it is not far"), now);
                }
            }
            for doubted in self.departed.doubted(&self.off, now) {
                self.departed.settle(doubted.id, self.is_there);
            }
            self.departed.tell(&mut self.group, now);
            self.told(1)
        }

        fn told(&self, index: usize) -> (bool, Option<BootTime>) {
            let pair = &self.group.pairs[index];
            (pair.have_ended, pair.ends_known_at)
        }
    }

    const NO: (bool, Option<BootTime>) = (false, None);
    const YES: (bool, Option<BootTime>) = (true, None);

    fn not_before(seconds: u32) -> (bool, Option<BootTime>) {
        (false, Some(at(seconds)))
    }

    #[test]
    fn a_pair_has_ended_once_the_kubelets_said_so_of_both_members() {
        let mut scene = Scene::new();
        assert_eq!(scene.look(1, &[there(1), there(2), there(3)], &[]), NO);
        assert_eq!(scene.look(2, &[there(1), there(2), going(3)], &[]), NO, "it runs on");
        assert_eq!(scene.look(3, &[there(2)], &[gone(ended(3), 3), gone(ended(1), 3)]), YES);
        assert_eq!((scene.told(0), scene.asked), (NO, 0));
        scene.look(4, &[ended(2)], &[]);
        assert_eq!(scene.told(0), YES);
    }

    #[test]
    fn whoever_was_deleted_by_force_has_ended_when_its_kubelet_knew_and_had_time_for_that() {
        let mut scene = Scene::new();
        assert_eq!(scene.look(1, &[], &[gone(there(3), 1)]), not_before(21));
        scene.said = Some(100);
        assert_eq!(scene.look(20, &[], &[]), not_before(40), "it is not asked for that often");
        assert_eq!(scene.look(21, &[], &[]), not_before(111));
        assert_eq!(scene.look(110, &[], &[]), not_before(130));
        assert_eq!(scene.look(111, &[], &[]), YES);
        scene.said = None;
        assert_eq!(scene.look(112, &[], &[]), YES, "it does not come back");
        assert_eq!(scene.asked, 2);
    }

    #[test]
    fn what_a_node_had_said_before_its_pod_was_gone_proves_nothing() {
        let mut scene = Scene::new();
        scene.look(1, &[], &[gone(there(3), 1)]);
        // Its object goes on saying that it is ready while nobody reaches the API server.
        for seconds in (21..=981).step_by(20) {
            assert_eq!(scene.look(seconds, &[], &[]), not_before(seconds + 20));
        }
        scene.said = None;
        assert_eq!(scene.look(1001, &[], &[]), not_before(1021), "it is not ready");
        scene.said = Some(1);
        assert_eq!(scene.look(1021, &[], &[]), not_before(1111));
        assert_eq!(scene.look(1111, &[], &[]), YES);
    }

    #[test]
    fn a_pod_that_went_unseen_is_gone_as_well() {
        let mut scene = Scene::new();
        scene.look(1, &[there(3)], &[]);
        assert_eq!(scene.look(2, &[], &[]), not_before(22));
        scene.said = Some(1);
        assert_eq!(scene.look(22, &[], &[]), not_before(112));
        let mut unknown = Scene::new();
        assert_eq!(unknown.look(1, &[], &[]), NO, "nobody knows where it ran");
    }

    #[test]
    fn whoever_writes_on_has_not_ended() {
        let mut scene = Scene::new();
        scene.off = [NodeName("n1".into())].into();
        scene.group.pairs[1].unwritten_since = at(200);
        assert_eq!(scene.look(210, &[], &[gone(there(3), 1)]), not_before(260));
        assert_eq!(scene.look(260, &[], &[]), YES);
        scene.group.pairs[1].unwritten_since = at(261);
        assert_eq!(scene.look(262, &[], &[]), not_before(321));
    }

    #[test]
    fn what_is_known_of_pods_outlives_their_lease() {
        let mut scene = Scene::new();
        scene.look(1, &[], &[gone(ended(3), 1)]);
        let lease = scene.group.pairs.pop().expect("that of 3");
        scene.group.lost = vec![bps_core::pairing::Lost::new(1, vec!["web-3".into()], None, at(3_600))];
        scene.departed.see(
            SeenPods { group: &scene.group, present: vec![], gone: vec![], off: &BTreeSet::new() },
            at(2),
        );
        scene.group.lost.clear();
        scene.group.pairs.push(lease);
        assert_eq!(scene.look(3, &[], &[]), YES);
    }

    #[test]
    fn a_pod_that_only_lost_its_label_has_not_ended() {
        let mut scene = Scene::new();
        scene.is_there = true;
        scene.look(1, &[], &[gone(there(3), 1)]);
        scene.said = Some(1);
        scene.look(21, &[], &[]);
        assert_eq!(scene.look(111, &[], &[]), NO);
        assert_eq!(scene.look(300, &[], &[]), NO);
    }

    #[test]
    fn whatever_goes_or_is_gone_has_ended_where_somebody_vouches_that_the_node_is_off() {
        for (off, expected) in [("n1", YES), ("n2", NO)] {
            let mut scene = Scene::new();
            scene.off = [NodeName(off.into())].into();
            assert_eq!(scene.look(100, &[going(3)], &[]), expected);
        }
        for (is_there, expected) in [(false, YES), (true, NO)] {
            let mut scene = Scene { is_there, ..Scene::new() };
            scene.off = [NodeName("n1".into())].into();
            assert_eq!(
                scene.look(100, &[], &[gone(there(3), 1)]),
                expected,
                "it would start again with its node"
            );
        }
    }
}
