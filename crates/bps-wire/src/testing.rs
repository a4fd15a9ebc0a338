//! Builds Leases for tests.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use bps_protocol::{AgentId, Epoch, Hold, Lease, Timing, Version};

use crate::lag::Told;
use crate::lease::{Member, Record};
use crate::level::Level;
use crate::orders::Orders;

/// First version of the Lease of a pair in which no agent has acted yet, with these members at these addresses.
pub fn record(group: u128, members: [AgentId; 2], addresses: [SocketAddr; 2]) -> Record {
    let member = |(id, address)| (id, Member { pod: "web".into(), address });
    let lease =
        Lease { epoch: Epoch::default(), holder: None, members, pending: None, hold: Hold::Api, writes: 0 };
    Record {
        group,
        version: Version(1),
        lease,
        directory: members.into_iter().zip(addresses).map(member).collect(),
        timing: Timing::default(),
        slice: None,
        orders: Orders::default(),
        takeover: None,
        level: Level::default(),
        level_pods: BTreeSet::new(),
        lag: Told::default(),
        crash_loop: None,
        late_in: None,
    }
}
