//! Plans for single situations, and what holds for all of them.

mod lost;
mod properties;
mod situations;
mod wanted;
mod withheld;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::ha::{AgentId, BootTime, Epoch, Hold, Lease, Moment, Timing};
use crate::model::NodeName;

/// When every plan of these tests is made: long after the machine started.
fn now() -> BootTime {
    BootTime::default() + Duration::from_secs(1_000)
}

fn plan_now(group: &Group) -> Plan {
    let timing = Timing::default();
    plan(group, &Moment { now: now(), timing: &timing })
}

/// A running Pod; the number is its uid, its age and, odd or even, its node.
fn pod(number: u128) -> Pod {
    let last = u8::try_from(number).expect("a small number");
    Pod {
        id: AgentId(number),
        name: format!("web-{number}"),
        address: Some(([10, 0, 0, last], 20_001).into()),
        created: Timestamp::from_second(i64::from(last)).expect("a time"),
        node: Some(NodeName(format!("node-{}", number % 2))),
        role: None,
        is_leaving: false,
        is_ready: true,
        shown: Shown::default(),
    }
}

fn seat(number: u128) -> Seat {
    let Pod { id, name, address, .. } = pod(number);
    Seat { id, pod: name, address: address.expect("it runs") }
}

/// A pair whose Lease was written just now; its first member acts.
fn pair(number: u32, members: [u128; 2]) -> Pair {
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
        fenced: Vec::new(),
        level: None,
        level_pods: BTreeSet::new(),
        forsaken: None,
        is_ending: false,
        unwritten_since: now(),
    }
}

/// Labels as the pairs want them, so that a plan shows only what else is to be done.
fn labelled(mut group: Group) -> Group {
    for step in super::labels::labels(&group) {
        let Step::Label { pod, shown } = step else { unreachable!("labels are all it plans") };
        let labelled = group.pods.iter_mut().find(|candidate| candidate.id == pod);
        labelled.expect("a Pod of the group").shown = shown;
    }
    group
}

fn group(pods: impl IntoIterator<Item = u128>, pairs: impl IntoIterator<Item = Pair>) -> Group {
    labelled(Group {
        pods: pods.into_iter().map(pod).collect(),
        pairs: pairs.into_iter().collect(),
        ..Group::default()
    })
}
