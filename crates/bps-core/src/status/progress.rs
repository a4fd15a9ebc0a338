//! When the set last came closer to its specification, and whether that is too long ago.
//!
//! As for a Deployment a set that does not is reported, and nothing else: the operator goes on trying.

use bps_api::status::BackupPodSetStatus;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::StatusInput;
use super::conditions::wire_time;
use super::tally::{Tally, wire};
use crate::model::{Role, Snapshot};

/// When a set with this status is to be reported as stalled; `None` while nothing is expected of it.
pub fn stalls_at(snapshot: &Snapshot, status: &BackupPodSetStatus) -> Option<Timestamp> {
    status.last_progress_time.as_ref().map(|last| deadline(snapshot, last))
}

/// The last progress of a set that is not as wanted: now, if it is closer to its specification than the last status says.
pub(super) fn last(input: &StatusInput<'_>, tally: &Tally<'_>) -> Time {
    let previous = input.previous;
    let distance = |counts: Counts| counts.distance(input.snapshot);
    let is_closer = || distance(Counts::now(input.snapshot, tally)) < distance(Counts::of(previous));
    match &previous.last_progress_time {
        Some(before) if previous.observed_generation == input.generation && !is_closer() => before.clone(),
        Some(_) | None => wire_time(input.snapshot.now),
    }
}

/// What is to be said of a set whose last progress is too long ago; `None` if it is not.
pub(super) fn stall(snapshot: &Snapshot, last: &Time) -> Option<String> {
    (deadline(snapshot, last) <= snapshot.now).then(|| {
        format!(
            "no Pod of the set became available, was updated, or left as surplus within spec.progressDeadlineSeconds ({} s): the \
             condition Ready says what is waited for; if that takes so long, write a greater number",
            snapshot.desired.progress_deadline.as_secs()
        )
    })
}

/// A rollout makes no step while it waits for a Pod to be ready for long enough.
fn deadline(snapshot: &Snapshot, last: &Time) -> Timestamp {
    let desired = &snapshot.desired;
    let patience = desired.progress_deadline.saturating_add(desired.min_ready);
    last.0.saturating_add(patience).unwrap_or(Timestamp::MAX)
}

/// Numbers of a status by which it is told how far a set is from its specification.
struct Counts {
    /// Available Pods of each role.
    available: [i32; 3],
    /// Pods of each role.
    pods: [i32; 3],
    /// Pods of any role that were made from the present template.
    updated: i32,
}

impl Counts {
    fn now(snapshot: &Snapshot, tally: &Tally<'_>) -> Self {
        let tiers = tally.tiers();
        Self {
            available: tiers.each_ref().map(|tier| wire(tier.available())),
            pods: tiers.each_ref().map(|tier| wire(tier.pods.len())),
            updated: wire(tally.updated(snapshot)),
        }
    }

    const fn of(status: &BackupPodSetStatus) -> Self {
        Self {
            available: [status.ready_replicas, status.ready_hot_backups, status.ready_cold_backups],
            pods: [status.replicas, status.hot_backups, status.cold_backups],
            updated: status.updated_pods,
        }
    }

    /// Pods that are to become available, to leave, or to be replaced.
    fn distance(&self, snapshot: &Snapshot) -> i32 {
        let wanted = Role::ALL.map(|role| wire(snapshot.desired.count(role)));
        let beyond = |from: i32, to: i32| (to - from).max(0);
        let missing: i32 =
            self.available.into_iter().zip(wanted).map(|(are, to_be)| beyond(are, to_be)).sum();
        let surplus: i32 = wanted.into_iter().zip(self.pods).map(|(to_be, are)| beyond(to_be, are)).sum();
        missing + surplus + self.pods.iter().sum::<i32>() - self.updated
    }
}
