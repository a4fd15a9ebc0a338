//! Of whom it is believed that they have ended, and when.

use bps_core::pairing::testing::pair;
use bps_core::pairing::{Lost, Pair};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(30);

fn at(seconds: u32) -> BootTime {
    BootTime::default() + seconds * SECOND
}

fn clock(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("it is not far")
}

/// Of the Pod of this uid, made at 1,000 s on the node `n1`: it is there and stays.
fn there(id: u128) -> PodEnd {
    PodEnd {
        id: AgentId(id),
        name: format!("web-{id}"),
        created: Some(clock(1_000)),
        node: Some(NodeName("n1".into())),
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

/// The pairs of 1 and 2, and of 3 alone, and what the API server knows.
struct Scene {
    departed: Departed,
    group: Group,
    /// Whether the watch says that the node is vouched for, and the API server.
    off: [bool; 2],
    /// Whether Pods that are asked for are there; `None`: there is no answer.
    is_there: Option<bool>,
    /// The Lease of the node: its name for this machine, when it was made, and when it was renewed.
    lease: Option<(&'static str, i64, i64)>,
    /// How long that is good for.
    duration: Duration,
    /// What was asked for: Pods, nodes, Leases of nodes.
    asked: [usize; 3],
}

impl Scene {
    fn new() -> Self {
        let silent = |pair| Pair { unwritten_since: at(0), ..pair };
        let pairs = [pair(0, [1, 2]), pair(1, [3, 0])].map(silent).into();
        let group = Group { pairs, ..Group::default() };
        let departed = Departed::default();
        Self {
            departed,
            group,
            off: [false; 2],
            is_there: Some(false),
            lease: None,
            duration: 40 * SECOND,
            asked: [0; 3],
        }
    }

    /// The Pods 1 to 3 are seen, and then these only, at 99 s.
    fn after(left: &[PodEnd]) -> Self {
        let mut scene = Self::new();
        scene.look(98, &[there(1), there(2), there(3)], &[]);
        scene.look(99, left, &[]);
        scene
    }

    /// Sees these Pods as present, and those as gone; asks what is to be asked, and tells of the pair of 3.
    fn look(&mut self, seconds: u32, present: &[PodEnd], gone: &[PodEnd]) -> (bool, Option<BootTime>) {
        let (now, node) = (at(seconds), NodeName("n1".into()));
        let off: BTreeSet<NodeName> = self.off[0].then(|| node.clone()).into_iter().collect();
        let (group, departed) = (&self.group, &mut self.departed);
        departed.see(SeenPods { group, present: present.to_vec(), gone: gone.to_vec(), off: &off });
        for end in departed.doubted(group, &off, now) {
            self.asked[0] += 1;
            if let Some(is_there) = self.is_there {
                departed.settle(end.id, is_there, now);
            }
        }
        for (node, is_off) in departed.sought(group, &off, now) {
            self.asked[if is_off { 1 } else { 2 }] += 1;
            if is_off {
                departed.vouch(&node, self.off[1]);
                continue;
            }
            let renewal = self.lease.map(|(lease, created, renewed)| Renewal {
                lease: lease.to_owned(),
                created: clock(created),
                renewed: clock(renewed),
                duration: self.duration,
            });
            departed.hear(&node, &Heard { asked: now, answered: now, renewal });
        }
        self.departed.tell(&mut self.group, now);
        self.told(1)
    }

    /// Looks each 20 s, from then to then, while the kubelet renews its Lease; whether the pair of 3 has ended after each.
    fn looks_while_it_works(&mut self, from: u32, to: u32) -> Vec<bool> {
        let looks = (from..=to).step_by(20);
        let look = |seconds| {
            self.lease = Some(("n1's", 500, i64::from(seconds)));
            self.look(seconds, &[], &[]).0
        };
        looks.map(look).collect()
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
    assert_eq!(scene.look(3, &[there(2)], &[ended(3), ended(1)]), YES);
    assert_eq!(scene.told(0), NO);
    scene.look(4, &[ended(2)], &[]);
    assert_eq!((scene.told(0), scene.asked), (YES, [0; 3]));
}

#[test]
fn whoever_was_deleted_by_force_has_ended_when_its_kubelet_has_worked_for_long_enough_since() {
    let mut scene = Scene::after(&[there(1), there(2)]);
    // From the answer at 119 s on: the grace period, 90 s, and two looks for what came before the last renewal.
    assert_eq!(scene.looks_while_it_works(119, 259), [false; 8]);
    assert_eq!(scene.looks_while_it_works(279, 299), [true; 2]);
    scene.lease = None;
    assert_eq!(scene.look(319, &[], &[]), YES, "it does not come back");
}

#[test]
fn a_pod_is_asked_for_first_and_each_of_both_no_more_often_than_a_kubelet_renews() {
    let mut scene = Scene::after(&[there(1), there(2)]);
    assert_eq!((scene.asked, scene.told(1)), ([1, 0, 1], not_before(119)));
    for seconds in 100..119 {
        scene.look(seconds, &[there(1), there(2)], &[]);
    }
    assert_eq!(scene.asked, [1, 0, 1]);
    scene.look(119, &[there(1), there(2)], &[]);
    assert_eq!(scene.asked, [1, 0, 2]);
    assert_eq!(scene.told(0), NO, "its members are there, and nobody asks for their node");
}

#[test]
fn a_kubelet_that_did_not_work_all_the_time_has_as_long_from_then_on() {
    let mut scene = Scene::after(&[]);
    scene.looks_while_it_works(119, 219);
    // Its Lease is as it was: it reaches nobody.
    assert_eq!(scene.look(239, &[], &[]), not_before(259));
    assert_eq!(scene.looks_while_it_works(259, 379), [false; 7]);
    assert_eq!(scene.looks_while_it_works(399, 399), [true]);
}

#[test]
fn nobody_knows_how_a_kubelet_was_while_nobody_asked() {
    let mut scene = Scene::after(&[]);
    scene.looks_while_it_works(119, 139);
    assert_eq!(scene.looks_while_it_works(219, 219), [false]);
    assert_eq!(scene.looks_while_it_works(239, 359), [false; 7]);
    assert_eq!(scene.looks_while_it_works(379, 379), [true]);
    let mut rarely = Scene::after(&[]);
    for seconds in (119..1_000).step_by(40) {
        assert_eq!(rarely.looks_while_it_works(seconds, seconds), [false], "at {seconds} s");
    }
}

#[test]
fn a_lease_that_is_good_for_long_takes_as_many_renewals() {
    let mut scene = Scene { duration: 300 * SECOND, ..Scene::after(&[]) };
    let has_ended = scene.looks_while_it_works(119, 999);
    let first = has_ended.iter().position(|has_ended| *has_ended).expect("it has");
    // Questions each 120 s count: the grace period, 90 s, and twice 150 s.
    assert_eq!(119 + 20 * first, 599);
}

#[test]
fn a_machine_that_came_later_under_the_name_of_the_node_knows_nothing_of_the_pod() {
    for (lease, created) in [("another", 1_001), ("n1's", 1_001)] {
        let mut scene = Scene::after(&[]);
        for seconds in (119..600).step_by(20) {
            scene.lease = Some((lease, created, i64::from(seconds)));
            assert_eq!(scene.look(seconds, &[], &[]), not_before(seconds + 20));
        }
    }
    let mut scene = Scene::after(&[]);
    scene.looks_while_it_works(119, 219);
    scene.lease = Some(("made anew", 900, 239));
    assert_eq!(scene.look(239, &[], &[]), not_before(259), "it begins anew");
}

#[test]
fn a_pod_that_only_lost_its_label_has_not_ended_and_is_asked_for_again() {
    let mut scene = Scene::after(&[there(1), there(2), there(3)]);
    scene.is_there = Some(true);
    for seconds in (119..600).step_by(20) {
        assert_eq!(scene.look(seconds, &[there(1), there(2)], &[there(3)]), not_before(seconds + 20));
    }
    assert_eq!(scene.asked[2], 0);
    scene.is_there = None;
    scene.look(619, &[there(1), there(2)], &[]);
    assert_eq!(scene.asked[2], 0, "there was no answer");
    assert_eq!(scene.look(620, &[there(1), there(2), there(3)], &[]), NO, "it has its label again");
    scene.is_there = Some(false);
    assert_eq!(scene.looks_while_it_works(639, 799).last(), Some(&true), "now it is gone");
    assert_eq!(scene.look(819, &[there(3)], &[]), NO, "the cluster was put back");
}

#[test]
fn nobody_knows_where_a_pod_ran_that_was_never_seen() {
    let mut scene = Scene::new();
    assert_eq!(scene.look(1, &[], &[]), NO);
    assert_eq!(scene.asked, [0; 3]);
}

#[test]
fn whoever_writes_on_has_not_ended() {
    let mut scene = Scene::after(&[]);
    scene.group.pairs[1].unwritten_since = at(230);
    assert_eq!(scene.looks_while_it_works(119, 279), [false; 9]);
    assert_eq!(scene.told(1), not_before(290));
    assert_eq!(scene.look(290, &[], &[]), YES);
    scene.group.pairs[1].unwritten_since = at(291);
    assert_eq!(scene.look(292, &[], &[]), not_before(351));
}

#[test]
fn what_is_known_of_pods_outlives_their_lease() {
    for is_told_meanwhile in [false, true] {
        let mut scene = Scene::after(&[there(3)]);
        let certain = [ended(3)];
        let [before, meanwhile] = if is_told_meanwhile { [&[][..], &certain] } else { [&certain[..], &[]] };
        scene.look(100, if is_told_meanwhile { &[] } else { before }, &[]);
        let lease = scene.group.pairs.pop().expect("that of 3");
        scene.group.lost = vec![Lost::new(1, vec!["web-3".into()], None, at(3_600))];
        let (group, off) = (&scene.group, &BTreeSet::new());
        scene.departed.see(SeenPods { group, present: vec![], gone: meanwhile.to_vec(), off });
        scene.group.lost.clear();
        scene.group.pairs.push(lease);
        assert_eq!(scene.look(101, &[], &[]), YES, "{is_told_meanwhile}");
    }
}

#[test]
fn whatever_goes_or_is_gone_has_ended_where_somebody_vouches_that_the_node_is_off() {
    for (off, expected) in [([true, true], YES), ([false, true], NO), ([true, false], not_before(120))] {
        let mut scene = Scene { off, ..Scene::after(&[there(3)]) };
        assert_eq!(scene.look(100, &[going(3)], &[]).0, expected.0, "{off:?}");
        assert_eq!(scene.asked[1], usize::from(off[0]), "the watch is not believed: {off:?}");
    }
    for (is_there, expected) in [(false, true), (true, false)] {
        let mut scene = Scene { off: [true; 2], is_there: Some(is_there), ..Scene::new() };
        scene.look(98, &[there(3)], &[]);
        assert_eq!(scene.look(99, &[], &[there(3)]).0, expected, "it would start again with its node");
    }
}

#[test]
fn a_vouch_that_is_taken_back_counts_no_more() {
    let mut scene = Scene { off: [true; 2], ..Scene::after(&[there(3)]) };
    scene.group.pairs[1].unwritten_since = at(90);
    assert_eq!(scene.look(100, &[going(3)], &[]), not_before(150));
    scene.off = [false; 2];
    assert_eq!(scene.look(150, &[going(3)], &[]), NO);
}
