//! Draws random situations: nodes, Pods at every stage, and wishes.

use jiff::SignedDuration;
use proptest::prelude::*;

use super::cluster::Cluster;
use super::given;
use super::model::{
    self, Exposure, Gate, Lifecycle, NodeHealth, NodeView, ObjectState, Ownership, PodShare, PodView, Role,
    RoleLabels, ScaleIn, Strategies, Strategy as Choice, Topology, UpdateKind, UpdatePolicy,
};
use super::random::{halves, moods};

fn nodes() -> impl Strategy<Value = Vec<NodeView>> {
    let health = prop_oneof![
        4 => Just(NodeHealth::Healthy),
        1 => Just(NodeHealth::Cordoned),
        1 => Just(NodeHealth::NotReady),
        1 => Just(NodeHealth::Gone),
    ];
    proptest::collection::vec((health, any::<bool>()), 4).prop_map(|drawn| {
        let node = |(index, (health, is_east)): (usize, (NodeHealth, bool))| {
            let zone = Some(if is_east { "east".to_owned() } else { "west".to_owned() });
            NodeView {
                domain: zone.clone(),
                zone,
                // The first node is healthy, so that there is always room.
                ..given::node(&format!("n{index}"), if index == 0 { NodeHealth::Healthy } else { health })
            }
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
    view.labels = if odd & 0x41 == 0x41 { RoleLabels::Wrong } else { RoleLabels::Right };
    view.first_ticket = (odd & 0x20 > 0).then_some(since);
    view.revision = if odd & 0x18 == 0x18 { given::outdated() } else { given::current() };
    view.ownership = if odd & 0xe0 == 0xe0 { Ownership::Orphan } else { Ownership::Ours };
    view
}

pub(crate) fn wish() -> impl Strategy<Value = model::Desired> {
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
    let shares = prop::sample::select(vec![PodShare::Pods(1), PodShare::Pods(2), PodShare::Percent(60)]);
    let update = (any::<bool>(), shares.clone(), shares, 0..2_usize);
    let split = (prop::option::weighted(0.3, 0..=100_usize), moods());
    let choices = (choice(), choice(), choice());
    (counts, seconds, update, (any::<bool>(), split), choices).prop_map(
        |(counts, (delay, min_ready), update, (is_demoting, (percent, moods)), choices)| {
            let counts: [usize; 3] = counts.into();
            let (is_on_delete, max_unavailable, max_surge, partition) = update;
            let kind = if is_on_delete { UpdateKind::OnDelete } else { UpdateKind::BackupFirst };
            let (hot_to_primary, cold_to_primary, cold_to_hot) = choices;
            model::Desired {
                failover_delay: SignedDuration::from_secs(delay),
                min_ready: SignedDuration::from_secs(min_ready),
                unready_deadline: SignedDuration::from_secs(20),
                scale_in: if is_demoting { ScaleIn::Demote } else { ScaleIn::Delete },
                update: UpdatePolicy { kind, max_unavailable, max_surge, partition },
                strategies: Strategies { hot_to_primary, cold_to_primary, cold_to_hot },
                topology: percent.map_or_else(Topology::default, |percent| halves(percent, counts, moods)),
                ..given::desired(counts)
            }
        },
    )
}

pub(crate) fn world() -> impl Strategy<Value = Cluster> {
    let draws =
        proptest::collection::vec((0..3_usize, 0..14_usize, 0..4_usize, 0..40_i64, any::<u8>()), 0..9);
    let service = (any::<bool>(), any::<bool>());
    (nodes(), draws, wish(), service).prop_map(|(nodes, draws, desired, (has_service, is_dual_stack))| {
        let subsets = desired.topology.subsets.len();
        let pod = |(index, draw): (usize, Draw)| {
            // One of three was made for no subset, if there are some.
            let subset = Some(index % 3).filter(|subset| *subset < subsets);
            PodView { subset, ..drawn_pod(index, draw, &nodes) }
        };
        let pods = draws.into_iter().enumerate().map(pod).collect();
        let mut snapshot = given::snapshot(desired, pods);
        snapshot.exposure = has_service.then(absent_service);
        if is_dual_stack {
            snapshot.exposure = snapshot.exposure.map(|exposure| given::dual_stack(exposure, Vec::new()));
            for view in snapshot.pods.iter_mut().filter(|view| view.address.is_some()) {
                view.other_address = Some(given::other_address(view.slot));
            }
        }
        Cluster::new(snapshot, nodes)
    })
}

pub(crate) fn absent_service() -> Exposure {
    Exposure { service: ObjectState::Absent, ..given::exposure(ObjectState::Absent, Vec::new()) }
}
