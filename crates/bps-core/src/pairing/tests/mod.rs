//! Plans for single situations, and what holds for all of them.

mod cover;
mod lost;
mod properties;
mod situations;
mod wanted;
mod withheld;

use std::collections::BTreeSet;
use std::time::Duration;

use bps_protocol::{AgentId, BootTime, Hold, Lease, Moment, Replacement, Timing};

use super::silence::SILENCE_WITH_STATE_MAX;
use super::testing::{now, pair, pod, seat};
use super::*;

fn plan_now(group: &Group) -> Plan {
    let timing = Timing::default();
    plan(group, &Moment { now: now(), timing: &timing })
}

/// Labels as the pairs want them, so that a plan shows only what else is to be done.
fn labelled(mut group: Group) -> Group {
    for step in super::labels::labels(&group, &[], &BTreeSet::new()) {
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
