//! Forecasts from any situation come to rest, and end as the wish has it where there is room.

use bps_core::forecast::{Ending, NodeRoom, Pace, forecast};
use jiff::SignedDuration;
use proptest::prelude::*;

use super::cluster::Cluster;
use super::model::{NodeHealth, ObjectState, Role};
use super::world::world;

/// The nodes of a world, each with room for every Pod.
fn places(cluster: &Cluster) -> Vec<NodeRoom> {
    let subsets = cluster.snapshot.desired.topology.subsets.len();
    let place = |node: &super::model::NodeView| NodeRoom {
        node: node.clone(),
        room: 100,
        admits: true,
        admits_subsets: vec![true; subsets],
    };
    cluster.nodes.iter().map(place).collect()
}

fn pace() -> Pace {
    let seconds = |seconds| Some(SignedDuration::from_secs(seconds));
    Pace { start: seconds(3), gate: seconds(1), wake: seconds(2), takeover: SignedDuration::from_secs(2) }
}

proptest! {
    #[test]
    fn any_forecast_comes_to_rest(cluster in world(), is_paired in any::<bool>()) {
        let places = places(&cluster);
        let mut snapshot = cluster.snapshot;
        if is_paired {
            (snapshot.group, snapshot.exposure) = (Some(ObjectState::Absent), None);
        }
        let desired = snapshot.desired.clone();
        let foreseen = forecast(snapshot, places, pace());
        prop_assert_eq!(&foreseen.ending, &Ending::Rest, "{:#?}", foreseen);
        if !is_paired {
            // One node is healthy and has room for all.
            prop_assert!(foreseen.unplaced.is_empty(), "{:#?}", foreseen);
            let primaries = foreseen.pods.iter().filter(|view| {
                view.role == Role::Primary && view.is_ready() && view.node_health() < NodeHealth::NotReady
            });
            prop_assert!(primaries.count() >= desired.replicas, "{:#?}", foreseen);
        }
    }
}
