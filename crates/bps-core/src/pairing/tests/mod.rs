//! Plans for single situations, and what holds for all of them.

mod check;
mod cover;
mod growth;
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
    plan_at(group, now())
}

/// The plan at a time, which breaks no invariant.
fn plan_at(group: &Group, now: BootTime) -> Plan {
    let timing = Timing::default();
    let plan = plan(group, &Moment { now, timing: &timing });
    assert_eq!(check(group, &plan, now), [], "{plan:?} for {group:?}");
    plan
}

/// What a plan does, whatever the reasons.
fn actions(plan: &Plan) -> Vec<PairAction> {
    plan.steps.iter().map(|step| step.action.clone()).collect()
}

/// What a plan holds back, whenever it looks again.
fn holds(plan: &Plan) -> Vec<PairHold> {
    plan.holds.iter().map(|hold| PairHold { until: None, ..hold.clone() }).collect()
}

fn held(reason: PairReason, pair: Option<u32>) -> PairHold {
    PairHold { reason, pair, until: None }
}

/// Labels as the pairs want them, so that a plan shows only what else is to be done.
fn labelled(mut group: Group) -> Group {
    for step in super::labels::labels(&group, &group.roster(), &[], &BTreeSet::new()) {
        let PairAction::Label { pod, shown } = step.action else { unreachable!("labels are all it plans") };
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
