//! Who took over from whom in an HAGroup, why, and when each phase was over.
//!
//! What the new active tells in its Lease comes in parts; the last phase is the operator's own.

use std::collections::BTreeMap;

use bps_api::{PairStatus, Takeover, TakeoverPhases};
use bps_protocol::{Epoch, TakeoverRecord};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::group::{GroupInput, PAIRED};

/// Most takeovers that are kept.
pub(super) const TAKEOVERS_MAX: usize = 10;

/// The name of a group, and what the actives of its pairs told in their Leases.
pub type Told<'a> = (&'a str, &'a BTreeMap<u32, TakeoverRecord>);

/// The takeovers that were known, those that are new, and what became known of them.
pub(super) fn takeovers(input: &GroupInput<'_>, pairs: &[PairStatus]) -> Vec<Takeover> {
    let before = by_name(&input.previous.pairs);
    let now = by_name(pairs);
    let mut all = input.previous.takeovers.clone();
    let changed = pairs.iter().filter_map(|pair| takeover(before.get(pair.name.as_str())?, pair, input.now));
    all.extend(changed);
    for takeover in &mut all {
        if let Some(record) = record_of((input.name, input.records), takeover) {
            tell(takeover, record);
        }
        if is_repaired(input, now.get(takeover.pair.as_str()).copied(), takeover)
            && takeover.phases.repaired.is_none()
        {
            let since = input.now.duration_since(takeover.time.0).as_millis();
            let after = |lease| i32::try_from(i128::from(lease) + since.max(0)).unwrap_or(i32::MAX);
            // Spans of two clocks may overlap by the time until the operator saw the takeover.
            let found = takeover.phases.published.max(takeover.phases.promoted);
            takeover.phases.repaired = takeover.phases.lease.map(after).max(found);
        }
    }
    all
}

/// Pairs by their names: a group may have 1,000.
pub(super) fn by_name(pairs: &[PairStatus]) -> BTreeMap<&str, &PairStatus> {
    pairs.iter().map(|pair| (pair.name.as_str(), pair)).collect()
}

/// Who acts in a pair, or acted last if nobody does; empty before the first tenure.
pub(super) fn last_actor(pair: &PairStatus) -> &str {
    if pair.active.is_empty() { &pair.last_active } else { &pair.active }
}

/// Another Pod acts than before; the first tenure of a pair is none.
fn takeover(before: &PairStatus, pair: &PairStatus, now: Timestamp) -> Option<Takeover> {
    let from = last_actor(before);
    let has_changed = !from.is_empty() && !pair.active.is_empty() && from != pair.active;
    let epoch = Epoch::from(pair.epoch.parse::<u64>().ok()?);
    let by = if epoch.sequence > 0 { "Handover" } else { "Lease" };
    (has_changed && before.epoch != pair.epoch).then(|| Takeover {
        pair: pair.name.clone(),
        from: from.to_owned(),
        to: pair.active.clone(),
        epoch: pair.epoch.clone(),
        by: by.to_owned(),
        time: MicroTime(now),
        reason: String::new(),
        phases: TakeoverPhases::default(),
    })
}

/// What the new active of a takeover told, if its Lease still says so.
pub(super) fn record_of<'a>((group, records): Told<'a>, takeover: &Takeover) -> Option<&'a TakeoverRecord> {
    let number = takeover.pair.strip_prefix(group)?.strip_prefix('-')?.parse().ok()?;
    records.get(&number).filter(|record| takeover.epoch == epoch_text(record.epoch))
}

fn epoch_text(epoch: Epoch) -> String {
    u64::from(epoch).to_string()
}

/// Adds what the new active has told by now.
fn tell(takeover: &mut Takeover, record: &TakeoverRecord) {
    let TakeoverRecord { epoch: _, cause, detected, fenced, granted, promoted, published } = *record;
    let milliseconds =
        |span: std::time::Duration| i32::try_from(span.as_micros().div_ceil(1_000)).unwrap_or(i32::MAX);
    cause.as_str().clone_into(&mut takeover.reason);
    let told = &mut takeover.phases;
    told.detected = Some(milliseconds(detected));
    told.fenced = Some(milliseconds(fenced));
    told.lease = granted.map(milliseconds).or(told.lease);
    told.promoted = promoted.map(milliseconds).or(told.promoted);
    told.published = published.map(milliseconds).or(told.published);
}

/// Whether the pair has a standby again, and nothing is left to do: labels and Services follow the takeover.
fn is_repaired(input: &GroupInput<'_>, pair: Option<&PairStatus>, takeover: &Takeover) -> bool {
    let pair = pair.filter(|pair| pair.epoch == takeover.epoch);
    let TakeoverPhases { promoted, published, .. } = takeover.phases;
    let is_found = promoted.is_some() && (published.is_some() || !input.has_service);
    is_found && input.plan.steps.is_empty() && pair.is_some_and(|pair| pair.state == PAIRED)
}

#[cfg(test)]
mod tests;
