//! Computes the status of a BackupPodSet, and that of an HAGroup, from what was seen, planned and done.
//!
//! Pure and idempotent: the same snapshot with its own status as `previous` and no results gives that status again,
//! so that a status is written only when something in the set has changed.
//!
//! | file | what it computes |
//! |---|---|
//! | `tally` | which Pods count, which are available, what the others wait for |
//! | `judgement` | what the set is doing and what is wrong with it |
//! | `progress` | when the set last came closer to its specification, and whether that is too long ago |
//! | `conditions` | the conditions and the STATUS phrase |
//! | `redundancy` | what the counts amount to as a model of redundancy, and whether the promised one is held |
//! | `survival` | whether the set outlives the loss of any one node or zone |
//! | `failover` | the report of the last loss of a primary |
//! | `group` | the status of an HAGroup |
//! | `amounts` | how often it is told how much standbys lack |
//! | `takeovers` | who took over from whom, why, and when each phase was over |
//! | `news` | what a new status of an HAGroup is worth in events and metrics |
//! | `ledger` | the list of conversions |
//! | `event` | the text of one event |
//! | `refusal` | what a refusal means and what to do about it |
//! | `words` | every reason that a condition can have |

mod amounts;
mod conditions;
mod event;
mod failover;
mod group;
mod judgement;
mod ledger;
mod news;
mod progress;
mod redundancy;
mod refusal;
mod survival;
mod takeovers;
mod tally;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;

use bps_api::keys;
use bps_api::status::{BackupPodSetStatus, SubsetStatus, Summary, TierNames};
use judgement::Judgement;
use survival::{Domain, Survival};
use tally::{Tally, Tier, wire};

pub use amounts::{AMOUNTS_EVERY, differ_in_amounts_alone};
pub use event::{EventText, EventType, event_note};
pub use group::{GROUP_CONDITIONS, GROUP_STATES, GroupInput, describe_hold, group_status, kept};
pub use news::{GroupNews, PhaseTime, UNEXPLAINED, group_news, lease_repaired, lease_restored};
pub use progress::stalls_at;
pub use refusal::{advice, group_advice, is_lasting};
pub use survival::SURVIVAL_CONDITIONS;
pub use takeovers::Told;
pub use words::{CONDITIONS, ConditionWords, STATES, Word, foreign_addresses};

use crate::model::{Action, Outcome, Plan, Refusal, Role, Snapshot, StepResult, Subset};

/// Everything a status is computed from.
#[derive(Clone, Copy, Debug)]
pub struct StatusInput<'a> {
    /// The status as it was last written; the default one for a new set.
    pub previous: &'a BackupPodSetStatus,
    /// The set after the steps: own writes are in it.
    pub snapshot: &'a Snapshot,
    /// What was planned last: its holds say what is waited for, its steps without a `Done` what is still wanted.
    pub plan: &'a Plan,
    /// What became of every step of this reconcile, in any order.
    pub results: &'a [StepResult],
    /// Generation of the specification that the snapshot's wish was read from.
    pub generation: i64,
    /// Images of the application containers, in the order of the template.
    pub images: &'a [String],
    /// Names of Pods that carry the set's label and are controlled by somebody else, sorted.
    pub foreign_pods: &'a [String],
    /// Why the specification cannot be used, if it cannot: what is wrong and what to write instead.
    pub invalid: Option<&'a str>,
    /// In which pairs nobody may act and what to do about it, if the group of the set says so.
    pub withheld: Option<&'a str>,
}

/// The status to be written.
pub fn compute(input: &StatusInput<'_>) -> BackupPodSetStatus {
    let tally = Tally::new(input.snapshot);
    let last_failover = failover::report(input);
    let judgement = Judgement::new(input, &tally, last_failover.as_ref());
    let survivals = Domain::ALL.map(|domain| (domain, Survival::of(input.snapshot, &tally, domain)));
    let [primaries, hot, cold] = Role::ALL.map(|role| tally.tier(role));
    BackupPodSetStatus {
        observed_generation: input.generation,
        state: conditions::state(input, &judgement),
        summary: summary(&tally, input.images, &survivals),
        redundancy: redundancy::of_counts(input.snapshot),
        replicas: wire(primaries.pods.len()),
        ready_replicas: wire(primaries.available()),
        hot_backups: wire(hot.pods.len()),
        ready_hot_backups: wire(hot.available()),
        cold_backups: wire(cold.pods.len()),
        ready_cold_backups: wire(cold.available()),
        updated_pods: wire(tally.updated(input.snapshot)),
        current_revision: if input.snapshot.is_rolled_out() {
            input.snapshot.desired.revision.0.clone()
        } else {
            input.previous.current_revision.clone()
        },
        update_revision: input.snapshot.desired.revision.0.clone(),
        collision_count: collision_count(input),
        selector: selector(&input.snapshot.desired.name),
        pods: names(&tally),
        subsets: subsets(&tally, input.snapshot),
        conditions: conditions::conditions(input, &tally, &judgement, &survivals),
        last_progress_time: judgement.progressed,
        last_failover,
        conversions: ledger::conversions(input),
    }
}

/// The label selector of the primaries of the set with this name, as text for the scale subresource.
pub fn selector(set: &str) -> String {
    format!("{}={set},{}={}", keys::LABEL_SET, keys::LABEL_ROLE, Role::Primary)
}

fn summary(tally: &Tally<'_>, images: &[String], survivals: &[(Domain, Survival); 2]) -> Summary {
    let text = |role| {
        let tier = tally.tier(role);
        format!("{}/{}", tier.available(), tier.wanted)
    };
    Summary {
        replicas: text(Role::Primary),
        hot_backups: text(Role::Hot),
        cold_backups: text(Role::Cold),
        images: images.join(","),
        survives: survives(survivals),
    }
}

/// The Pods of each subset, counted in one pass over all.
fn subsets(tally: &Tally<'_>, snapshot: &Snapshot) -> Vec<SubsetStatus> {
    let subsets = &snapshot.desired.topology.subsets;
    let mut available = vec![BTreeMap::<Role, usize>::new(); subsets.len()];
    for tier in tally.tiers() {
        for subset in tier.pods.iter().filter(|view| view.is_available()).filter_map(|view| view.subset) {
            *available[subset].entry(tier.role).or_default() += 1;
        }
    }
    let status = |(subset, available): (&Subset, &BTreeMap<Role, usize>)| {
        let text =
            |role| format!("{}/{}", available.get(&role).copied().unwrap_or_default(), subset.count(role));
        let [replicas, hot_backups, cold_backups] = Role::ALL.map(text);
        SubsetStatus { name: subset.name.0.clone(), replicas, hot_backups, cold_backups, waiting: 0 }
    };
    let mut statuses: Vec<SubsetStatus> = subsets.iter().zip(&available).map(status).collect();
    let reserved = snapshot.pods.iter().filter(|view| snapshot.is_reserved(view));
    for subset in reserved.filter_map(|view| view.subset) {
        statuses[subset].waiting += 1;
    }
    statuses
}

/// The domains of which any one may be lost, for example `node,zone`.
fn survives(survivals: &[(Domain, Survival); 2]) -> String {
    let held = survivals.iter().filter(|(_, survival)| survival.holds).map(|(domain, _)| domain.as_str());
    let held: Vec<&str> = held.collect();
    if held.is_empty() { "none".to_owned() } else { held.join(",") }
}

fn names(tally: &Tally<'_>) -> TierNames {
    let listed = |role| tally.tier(role).names();
    TierNames {
        primaries: listed(Role::Primary),
        hot_backups: listed(Role::Hot),
        cold_backups: listed(Role::Cold),
        omitted: wire(tally.tiers().iter().map(Tier::omitted).sum()),
    }
}

// Once per pass and not once per name: the count is part of every new name, so one step changes them all.
fn collision_count(input: &StatusInput<'_>) -> i32 {
    let is_collision = |result: &StepResult| {
        matches!(result.step.action, Action::Create { .. })
            && result.outcome == Outcome::Failed(Refusal::NameTaken)
    };
    let added = i32::from(input.results.iter().any(is_collision));
    input.previous.collision_count.saturating_add(added)
}
