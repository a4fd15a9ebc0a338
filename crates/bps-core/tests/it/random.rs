//! Random sets in any state, reachable or not, for property tests.

use std::net::{IpAddr, Ipv4Addr};

use bps_core::model::{
    Desired, Endpoint, ExposedKind, Exposure, Gate, GateTrouble, Leftover, Lifecycle, NodeHealth, NodeName,
    NodeView, ObjectState, Others, Ownership, Part, PodName, PodRef, PodShare, PodView, Reason, Recent,
    RedundancyPromise, Revision, Role, RoleLabels, ScaleIn, Signs, Snapshot, Storm, Subset, SubsetName,
    SubsetShare, Topology, Uid, UpdateKind, UpdatePolicy, share_out,
};
use jiff::{SignedDuration, Timestamp};
use proptest::option;
use proptest::prelude::*;

use super::given;

/// The moment of every snapshot, in seconds since 1970.
const NOW_SECONDS: i64 = 1_800_000_000;
/// Most Pods of a random set.
const PODS_MAX: usize = 8;

/// The moment so many seconds before the snapshot.
pub(crate) fn ago(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW_SECONDS - seconds).expect("within range")
}

/// Any set with at most [`PODS_MAX`] Pods.
pub(crate) fn snapshot() -> impl Strategy<Value = Snapshot> {
    let pods = prop::collection::vec(pod(), 0..=PODS_MAX);
    let moods = (prop::bool::weighted(0.1), prop::bool::weighted(0.2), (0_usize..3, any::<bool>()));
    let exposed = (option::of(exposure()), leftovers());
    let budget = option::of(object_state());
    let paired = (option::weighted(0.2, object_state()), prop::collection::vec(part(), PODS_MAX));
    (desired(), pods, exposed, moods, (paired, budget)).prop_map(
        |(desired, mut pods, exposed, moods, rest)| {
            let (paired, budget) = rest;
            let (group, parts) = paired;
            let ((exposure, leftovers), (is_stormy, is_calm, (timeouts_in_a_row, has_moved))) =
                (exposed, moods);
            for (index, view) in pods.iter_mut().enumerate() {
                view.pod.name = PodName(format!("web-{index}"));
                view.pod.uid = Uid(format!("uid-{index}"));
                view.slot = u32::try_from(index).expect("few Pods");
                view.part = if group.is_some() { parts[index].clone() } else { Part::None };
                // By its time, which is random: some Pods were made for no subset.
                let subset = view.created.as_second().rem_euclid(3);
                let subset = usize::try_from(subset).expect("below 3");
                view.subset = Some(subset).filter(|subset| *subset < desired.topology.subsets.len());
            }
            let storm = is_stormy.then(|| Storm { until: ago(-60), ..given::storm(9, 10) });
            let mut recent = Recent { timeouts_in_a_row, ..Recent::default() };
            if has_moved && !desired.topology.subsets.is_empty() {
                recent.deleted.extend([Role::Hot, Role::Cold].map(|role| (role, Reason::Rebalanced)));
            }
            let snapshot = Snapshot {
                desired,
                pods,
                exposure,
                leftovers,
                budget,
                group,
                level: None,
                recent,
                storm,
                look_by: None,
                now: ago(0),
            };
            if is_calm { calm(snapshot) } else { snapshot }
        },
    )
}

/// The same set with every Pod in place, and only primaries of a former template.
fn calm(mut snapshot: Snapshot) -> Snapshot {
    for view in &mut snapshot.pods {
        let is_cold = view.role == Role::Cold;
        let since = ago(500);
        view.lifecycle = if is_cold { Lifecycle::Starting } else { Lifecycle::Ready { since } };
        view.gate = if is_cold { Gate::Listening { since } } else { Gate::None };
        view.ownership = Ownership::Ours;
        view.has_known_key = true;
        view.node = None;
        // Every other Pod was made for the second subset, if there are two.
        let subset = usize::try_from(view.slot % 2).expect("0 or 1");
        view.subset = Some(subset).filter(|subset| *subset < snapshot.desired.topology.subsets.len());
        if view.role != Role::Primary {
            view.revision = snapshot.desired.revision.clone();
        }
    }
    let count = |role| snapshot.pods.iter().filter(|view| view.role == role).count();
    let [replicas, hot_backups, cold_backups] = Role::ALL.map(count);
    let desired = Desired { replicas, hot_backups, cold_backups, ..snapshot.desired };
    Snapshot { desired, storm: None, ..snapshot }
}

fn desired() -> impl Strategy<Value = Desired> {
    let flags = (prop::bool::weighted(0.1), any::<bool>(), any::<bool>(), any::<bool>());
    let split = (option::weighted(0.3, 0_usize..=100), moods());
    (0_usize..4, 0_usize..3, 0_usize..3, (0_usize..2, split, promise()), flags).prop_map(
        |(replicas, hot_backups, cold_backups, (partition, split, promise), flags)| {
            let (paused, is_new_generation, demotes, rolls) = flags;
            let (percent, moods) = split;
            let counts = [replicas, hot_backups, cold_backups];
            Desired {
                topology: percent.map_or_else(Topology::default, |percent| halves(percent, counts, moods)),
                uid: Uid("set".to_owned()),
                standby_for: 1 + partition,
                promise,
                scale_in: if demotes { ScaleIn::Demote } else { ScaleIn::Delete },
                update: UpdatePolicy {
                    kind: if rolls { UpdateKind::BackupFirst } else { UpdateKind::OnDelete },
                    max_unavailable: PodShare::Pods(1),
                    max_surge: PodShare::Pods(1 + partition),
                    partition,
                },
                paused,
                revision: Revision("r1".to_owned()),
                is_new_generation,
                ..given::desired([replicas, hot_backups, cold_backups])
            }
        },
    )
}

/// Any promise, or none.
fn promise() -> impl Strategy<Value = Option<RedundancyPromise>> {
    option::of(prop::sample::select(vec![
        RedundancyPromise::NoRedundancy,
        RedundancyPromise::NWayActive,
        RedundancyPromise::NPlusM,
        RedundancyPromise::TwoN,
    ]))
}

/// What a set with subsets does with Pods that are not where they are to be, and with those of a former template.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moods {
    pub(crate) rebalances: bool,
    /// Unit: seconds.
    pub(crate) patience: Option<i64>,
    /// Primaries of each subset that keep the former template.
    pub(crate) partitions: [usize; 2],
}

/// Any of them.
pub(crate) fn moods() -> impl Strategy<Value = Moods> {
    let drawn = (prop::bool::weighted(0.8), option::of(1_i64..60), [0_usize..3, 0_usize..3]);
    drawn.prop_map(|(rebalances, patience, partitions)| Moods { rebalances, patience, partitions })
}

/// Two subsets: one with so many percent of the Pods of each role, one with the rest.
pub(crate) fn halves(percent: usize, counts: [usize; 3], moods: Moods) -> Topology {
    let shares =
        counts.map(|count| share_out(&[SubsetShare::Percent(percent), SubsetShare::EVEN], count, &[]));
    let subset = |(index, name): (usize, &str)| Subset {
        name: SubsetName(name.to_owned()),
        replicas: shares[0][index],
        hot_backups: shares[1][index],
        cold_backups: shares[2][index],
        partition: moods.partitions[index],
    };
    Topology {
        subsets: ["a", "b"].into_iter().enumerate().map(subset).collect(),
        rebalances: moods.rebalances,
        patience: moods.patience.map(SignedDuration::from_secs),
    }
}

fn pod() -> impl Strategy<Value = PodView> {
    let facts = (any::<bool>(), any::<bool>(), any::<bool>(), prop::bool::weighted(0.8));
    // Before and after each deadline; a role may be as old as its Pod.
    let times = (option::of((0_i64..600).prop_map(ago)), (0_i64..=900).prop_map(ago));
    (role(), lifecycle(), gate(), times, option::weighted(0.9, node()), facts).prop_map(
        |(role, lifecycle, gate, times, node, (is_running, is_serving, has_known_key, is_updated))| PodView {
            pod: PodRef {
                name: PodName(String::new()),
                uid: Uid(String::new()),
                resource_version: "1".to_owned(),
            },
            ownership: if has_known_key || is_updated { Ownership::Ours } else { Ownership::Orphan },
            role,
            labels: if is_updated || is_running { RoleLabels::Right } else { RoleLabels::Wrong },
            role_since: times.1,
            part: Part::None,
            slot: 0,
            revision: Revision(if is_updated { "r1" } else { "r0" }.to_owned()),
            // In sets with subsets, see below.
            subset: None,
            created: ago(900),
            lifecycle,
            gate,
            has_known_key,
            gate_trouble: (gate == Gate::Ahead && is_serving)
                .then(|| GateTrouble { since: times.1, words: "ErrImagePull".to_owned() }),
            stopped: None,
            first_ticket: times.0,
            next_ticket: None,
            is_running,
            signs: Signs {
                is_at_work: is_serving && !is_running,
                has_ended_early: is_updated,
                progressed: None,
            },
            is_serving,
            node,
            address: Some(address()),
            other_address: None,
        },
    )
}

fn role() -> impl Strategy<Value = Role> {
    prop::sample::select(Role::ALL.to_vec())
}

fn lifecycle() -> impl Strategy<Value = Lifecycle> {
    prop_oneof![
        1 => Just(Lifecycle::Unscheduled),
        2 => Just(Lifecycle::Starting),
        6 => (0_i64..600).prop_map(|seconds| Lifecycle::Ready { since: ago(seconds) }),
        2 => (0_i64..600).prop_map(|seconds| Lifecycle::Unready { since: ago(seconds) }),
        1 => Just(Lifecycle::Finished),
        1 => Just(Lifecycle::Terminating),
    ]
}

fn gate() -> impl Strategy<Value = Gate> {
    prop_oneof![
        Just(Gate::None),
        Just(Gate::Ahead),
        (0_i64..600).prop_map(|seconds| Gate::Listening { since: ago(seconds) }),
        (0_i64..600).prop_map(|seconds| Gate::Passed { since: ago(seconds) }),
    ]
}

fn node() -> impl Strategy<Value = NodeView> {
    let health = prop_oneof![
        8 => Just(NodeHealth::Healthy),
        1 => Just(NodeHealth::Cordoned),
        1 => Just(NodeHealth::NotReady),
        1 => Just(NodeHealth::Gone),
    ];
    (0_u8..3, health).prop_map(|(index, health)| NodeView {
        name: NodeName(format!("node-{index}")),
        zone: None,
        domain: None,
        health,
    })
}

/// What a Pod of a pair does, with a peer that may know nothing of it.
fn part() -> impl Strategy<Value = Part> {
    let peer = || option::weighted(0.8, (0..PODS_MAX).prop_map(|index| PodName(format!("web-{index}"))));
    prop_oneof![
        1 => Just(Part::None),
        2 => peer().prop_map(|peer| Part::Active { peer }),
        2 => prop::collection::vec(peer(), 0..3).prop_map(|peers| {
            Part::Standby { peers: peers.into_iter().flatten().collect() }
        }),
    ]
}

fn leftovers() -> impl Strategy<Value = Vec<Leftover>> {
    let kind = prop::sample::select(vec![ExposedKind::Service, ExposedKind::Slice, ExposedKind::Budget]);
    let leftover = kind.prop_map(|kind| Leftover {
        kind,
        name: format!("former-{kind:?}"),
        uid: Uid("uid-former".into()),
        resource_version: "1".into(),
    });
    prop::collection::vec(leftover, 0..2)
}

fn exposure() -> impl Strategy<Value = Exposure> {
    let endpoint = |index: usize| Endpoint {
        pod: PodName(format!("web-{index}")),
        uid: Uid(format!("uid-{index}")),
        address: address(),
        node: None,
        zone: None,
        is_ready: true,
        is_terminating: false,
    };
    let endpoints = prop::collection::vec((0..PODS_MAX).prop_map(endpoint), 0..3);
    (object_state(), object_state(), endpoints, any::<bool>()).prop_map(
        |(service, slice, endpoints, is_unknown)| Exposure {
            service,
            others: if is_unknown { Others::Unknown } else { Others::None },
            ..given::exposure(slice, endpoints)
        },
    )
}

fn object_state() -> impl Strategy<Value = ObjectState> {
    prop_oneof![
        1 => Just(ObjectState::Absent),
        4 => Just(ObjectState::Current),
        1 => Just(ObjectState::Outdated),
        1 => Just(ObjectState::Foreign),
    ]
}

fn address() -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1))
}
