//! Builders for tests: a Pod of a group, a pair, and other objects, as an operator finds them.

use std::collections::BTreeSet;
use std::time::Duration;

use bps_protocol::{AgentId, BootTime, Epoch, Hold, Lease, Timing};
use jiff::Timestamp;
use serde_json::Value;

use super::{ExistingObject, Pair, PairAction, PairReason, PairStep, Pod, Seat, Shown, VACANT};
use crate::model::NodeName;

/// When a plan is made: long after the machine started.
pub fn now() -> BootTime {
    BootTime::default() + Duration::from_secs(1_000)
}

/// A running Pod; the number is its uid, its age and, odd or even, its node.
pub fn pod(number: u128) -> Pod {
    let last = u8::try_from(number).expect("a small number");
    Pod {
        id: AgentId(number),
        name: format!("web-{number}"),
        address: Some(([10, 0, 0, last], 20_001).into()),
        created: Timestamp::from_second(i64::from(last)).expect("a time"),
        node: Some(NodeName(format!("node-{}", number % 2))),
        domain: None,
        role: None,
        is_leaving: false,
        is_ready: true,
        shown: Shown::default(),
    }
}

/// The place of this Pod in a pair.
pub fn seat(number: u128) -> Seat {
    let Pod { id, name, address, .. } = pod(number);
    Seat { id, pod: name, address: address.expect("it runs") }
}

/// A pair whose Lease was written just now; its first member acts.
pub fn pair(number: u32, members: [u128; 2]) -> Pair {
    let members = members.map(AgentId);
    let lease = Lease {
        epoch: Epoch { term: 3, sequence: 0 },
        holder: Some(members[0]),
        members,
        pending: None,
        hold: Hold::Peer,
        writes: 9,
    };
    let names = members.into_iter().map(|id| (id, format!("web-{}", id.0))).collect();
    let seated = members.into_iter().filter(|id| *id != VACANT);
    let addresses = seated.map(|id| (id, seat(id.0).address)).collect();
    Pair {
        number,
        lease,
        names,
        addresses,
        rank: 0,
        fenced: Vec::new(),
        switch_over: None,
        level: None,
        level_pods: BTreeSet::new(),
        forsaken: None,
        is_ending: false,
        timing: Timing::default(),
        unwritten_since: now(),
        is_late: false,
        have_ended: false,
        ends_known_at: None,
        silence: None,
        uncovered: None,
    }
}

/// A step with any reason.
pub fn step(action: PairAction) -> PairStep {
    PairStep { action, reason: PairReason::PartChanged }
}

/// An object that the API server shows like this.
pub fn existing(body: Value) -> ExistingObject {
    let metadata = serde_json::from_value(body["metadata"].clone()).expect("metadata");
    ExistingObject { metadata, body }
}
