//! Judges what the set is doing and what is wrong with it.
//!
//! What a set is doing cannot always be seen in one snapshot: a Pod that starts looks the same in a rollout and
//! after a loss. So an activity stands until the set is complete, and `previous` remembers it.

use bps_api::keys;
use bps_api::status::{BackupPodSetStatus, ConditionStatus, FailoverReport};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::tally::{DESCRIBED_PODS_MAX, Tally};
use super::words::{self, Word};
use super::{StatusInput, progress, redundancy, refusal};
use crate::model::{
    Hold, Lifecycle, ObjectState, Others, PodView, Reason, RedundancyPromise, Replaceable, Role,
    STORM_BELIEVED_AFTER, Snapshot, Storm, UpdateKind,
};

/// Something that needs attention.
pub(super) enum Trouble {
    /// The specification cannot be used.
    InvalidSpec(String),
    /// The storm brake is on.
    Storm(String),
    /// A write was refused and will be again.
    Refused(refusal::Refused),
    /// Nobody may act in a pair.
    Withheld(String),
    /// The model of redundancy that the set promises is not held.
    RedundancyLost(String),
    /// A rule, or the state of a Pod, puts the set at risk.
    AtRisk(Reason, String),
    /// The set does not get closer to its specification, and nothing says why.
    Stalled(String),
}

/// What is to be said about the set.
pub(super) struct Judgement {
    /// What the set is doing; `None` when there is nothing to do.
    pub(super) activity: Option<Word>,
    /// Pods that a rollout still has to replace.
    pub(super) outdated: usize,
    /// What the Service lacks.
    pub(super) unexposed: Option<String>,
    /// What keeps clients from a primary.
    pub(super) unreached: Option<String>,
    /// When the set last came closer to its specification, while the time to do so runs.
    pub(super) progressed: Option<Time>,
    /// What is to be said because it did not come closer for too long.
    pub(super) stall: Option<String>,
    /// What needs attention most.
    pub(super) trouble: Option<Trouble>,
}

impl Judgement {
    pub(super) fn new(input: &StatusInput<'_>, tally: &Tally<'_>, report: Option<&FailoverReport>) -> Self {
        let outdated = outdated(input.snapshot, tally);
        let unreached = unreached(input.snapshot, tally);
        let unexposed = unreached.clone().or_else(|| outdated_exposure(input.snapshot));
        let is_balanced =
            tally.tiers().iter().all(|tier| tier.is_satisfied() && tier.pods.len() == tier.wanted);
        let is_complete = is_balanced && outdated == 0 && unexposed.is_none();
        let snapshot = input.snapshot;
        let is_held = input.invalid.is_some() || snapshot.desired.paused || snapshot.storm.is_some();
        let progressed = (!is_complete && !is_held).then(|| progress::last(input, tally));
        let stall = progressed.as_ref().and_then(|last| progress::stall(snapshot, last));
        let activity = (!is_complete).then(|| activity(input, (tally, outdated), report));
        // In a pause nothing starts, and the status does not remember that something did.
        let is_starting = activity == Some(words::STARTING) && !snapshot.desired.paused && stall.is_none();
        Self {
            activity,
            outdated,
            unexposed,
            unreached,
            trouble: trouble(input, tally, is_starting).or_else(|| stall.clone().map(Trouble::Stalled)),
            progressed,
            stall,
        }
    }

    /// Whether a primary is missing right now because one was lost.
    pub(super) fn is_failing_over(&self) -> bool {
        self.activity == Some(words::FAILING_OVER)
    }

    /// Whether the set follows an edit, or lacks primaries, and gets on with it, so that fewer backups are to be expected.
    pub(super) fn is_under_way(&self) -> bool {
        self.stall.is_none() && self.activity.is_some_and(|activity| activity != words::REFILLING)
    }
}

fn activity(
    input: &StatusInput<'_>,
    (tally, outdated): (&Tally<'_>, usize),
    report: Option<&FailoverReport>,
) -> Word {
    let previous = input.previous;
    let had_pods = previous.replicas + previous.hot_backups + previous.cold_backups > 0;
    let usual = if outdated > 0 {
        words::ROLLING_OUT
    } else if previous.observed_generation != input.generation {
        if had_pods { words::SCALING } else { words::STARTING }
    } else {
        standing(previous).unwrap_or(words::REFILLING)
    };
    let is_serving = tally.tier(Role::Primary).is_satisfied();
    let is_unreplaced = report.is_some_and(|report| report.ready_after_milliseconds.is_none());
    if !is_serving && (is_unreplaced || usual == words::REFILLING) { words::FAILING_OVER } else { usual }
}

/// The activity that was reported last and lasts until the set is complete.
fn standing(previous: &BackupPodSetStatus) -> Option<Word> {
    let progressing = previous.conditions.iter().find(|condition| condition.r#type == words::PROGRESSING)?;
    let lasting = [words::STARTING, words::SCALING, words::ROLLING_OUT];
    let is_standing = progressing.status == ConditionStatus::True;
    lasting.into_iter().find(|word| is_standing && word.word == progressing.reason)
}

/// Pods of a former revision that neither the update strategy nor one of its partitions keeps.
fn outdated(snapshot: &Snapshot, tally: &Tally<'_>) -> usize {
    let desired = &snapshot.desired;
    if desired.update.kind == UpdateKind::OnDelete {
        return 0;
    }
    let of_tier = |role| tally.tier(role).pods.iter().copied();
    let backups = [Role::Hot, Role::Cold].into_iter().flat_map(of_tier);
    let outdated_backups = backups.filter(|view| !desired.is_current(view)).count();
    outdated_backups + Replaceable::among(desired, of_tier(Role::Primary)).count()
}

/// What of Service and slice is not as wanted, although clients may be served.
fn outdated_exposure(snapshot: &Snapshot) -> Option<String> {
    let exposure = snapshot.exposure.as_ref()?;
    if exposure.service != ObjectState::Current {
        return Some(format!("the Service {}", lack(exposure.service)));
    }
    let slice = exposure.slice_state();
    (slice != ObjectState::Current).then(|| format!("the EndpointSlice of the Service {}", lack(slice)))
}

/// What keeps clients of the Service from a ready primary.
fn unreached(snapshot: &Snapshot, tally: &Tally<'_>) -> Option<String> {
    let exposure = snapshot.exposure.as_ref()?;
    // A Service that is merely not as wanted leads on. Of a slice it is not known whether proxies find it then.
    let is_there = matches!(exposure.service, ObjectState::Current | ObjectState::Outdated);
    if !is_there || exposure.slice_state() != ObjectState::Current {
        return outdated_exposure(snapshot);
    }
    let reached = exposure.reached(&snapshot.pods);
    let primaries = &tally.tier(Role::Primary).pods;
    let hidden = primaries.iter().find(|view| view.is_ready() && !reached.contains(&view.pod.uid))?;
    Some(format!("the Service does not lead to primary {} yet", hidden.pod.name))
}

const fn lack(state: ObjectState) -> &'static str {
    match state {
        ObjectState::Absent => "does not exist yet",
        ObjectState::Current => "is as wanted",
        ObjectState::Outdated => "is not as wanted yet",
        ObjectState::Foreign => "belongs to somebody else",
    }
}

fn trouble(input: &StatusInput<'_>, tally: &Tally<'_>, is_starting: bool) -> Option<Trouble> {
    if let Some(message) = input.invalid {
        return Some(Trouble::InvalidSpec(refusal::bounded(message, refusal::QUOTE_MAX_CHARS)));
    }
    if let Some(storm) = &input.snapshot.storm {
        return Some(Trouble::Storm(stormy(storm)));
    }
    let is_n_way_active = input.snapshot.desired.promise == Some(RedundancyPromise::NWayActive);
    let lost_redundancy = || lost_redundancy(input.snapshot, tally, is_starting);
    let withheld = || input.withheld.map(|told| refusal::bounded(told, refusal::QUOTE_MAX_CHARS));
    refusal::lasting(input)
        .map(Trouble::Refused)
        .or_else(|| withheld().map(Trouble::Withheld))
        .or_else(|| {
            held(input, Reason::CheckRefused)
                .or_else(|| foreign_addresses(input.snapshot))
                .or_else(|| held(input, Reason::ForeignObject))
        })
        .or_else(|| foreign_pods(input.foreign_pods))
        .or_else(|| backing_off(input))
        // Primaries that stand in for each other have no backup: that is no loss by itself.
        .or_else(|| if is_n_way_active { lost_redundancy() } else { None })
        .or_else(|| held(input, Reason::NoReadyBackup))
        .or_else(|| shut_gate(tally))
        .or_else(|| woken_in_vain(input.snapshot))
        .or_else(lost_redundancy)
        .or_else(|| unready(tally))
        .or_else(|| off_balance(input))
        .or_else(|| refusal::aside(input).map(Trouble::Refused))
}

fn stormy(Storm { lost, total, nodes, until: _ }: &Storm) -> String {
    format!(
        "{lost} of {total} Pods of all sets were lost at once with {}; none is replaced until some of these nodes answer, or \
         have been silent for {} s",
        listed("node", &nodes.iter().map(|node| node.0.as_str()).collect::<Vec<_>>()),
        STORM_BELIEVED_AFTER.as_secs()
    )
}

/// Some names of all, and how many more there are.
fn listed(what: &str, names: &[&str]) -> String {
    let plural = if names.len() == 1 { "" } else { "s" };
    let first = names.iter().take(DESCRIBED_PODS_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(DESCRIBED_PODS_MAX) {
        0 => format!("{what}{plural} {first}"),
        more => format!("{what}{plural} {first} and {more} more"),
    }
}

fn held(input: &StatusInput<'_>, reason: Reason) -> Option<Trouble> {
    let holds: Vec<&Hold> = input.plan.holds.iter().filter(|hold| hold.reason == reason).collect();
    let first = holds.first()?;
    let message = match &first.pod {
        Some(pod) if holds.len() > 1 => {
            format!("{} Pod {pod} and {} more", reason.meaning(), holds.len() - 1)
        }
        Some(pod) => format!("{} Pod {pod}", reason.meaning()),
        None => reason.meaning().to_owned(),
    };
    Some(Trouble::AtRisk(reason, message))
}

/// A subset that lacks a Pod for as long as nothing changes, as opposed to one that waits for a known moment.
fn off_balance(input: &StatusInput<'_>) -> Option<Trouble> {
    let is_lasting = |hold: &Hold| hold.reason == Reason::OffBalance && hold.until.is_none();
    input.plan.holds.iter().any(is_lasting).then(|| {
        let advice = if input.snapshot.desired.hot_backups == 0 {
            "Set hotBackups to at least 1"
        } else {
            "Look at its backups: uncordon their nodes, have those of a former template replaced, or wait until they have started"
        };
        let message = format!("{} {advice}", Reason::OffBalance.meaning());
        Trouble::AtRisk(Reason::OffBalance, message)
    })
}

/// Addresses of somebody else behind the Service, with the command that takes them away.
fn foreign_addresses(snapshot: &Snapshot) -> Option<Trouble> {
    let Others::Standing { objects, .. } = &snapshot.exposure.as_ref()?.others else { return None };
    let message = refusal::bounded(&words::foreign_addresses(objects), refusal::QUOTE_MAX_CHARS);
    Some(Trouble::AtRisk(Reason::ForeignObject, message))
}

fn foreign_pods(names: &[String]) -> Option<Trouble> {
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let message = format!(
        "{} carry the label of this set but belong to somebody else; remove the label from them",
        listed("Pod", &names)
    );
    Some(Trouble::AtRisk(Reason::ForeignObject, message))
}

/// Pods that end soon after they are made, with what their record says.
fn backing_off(input: &StatusInput<'_>) -> Option<Trouble> {
    let ends = input.snapshot.recent.early_ends.as_ref()?;
    let said =
        if ends.words.is_empty() { String::new() } else { format!(" The last one said: {}", ends.words) };
    let message =
        refusal::bounded(&format!("{}{said}", Reason::BackingOff.meaning()), refusal::QUOTE_MAX_CHARS);
    Some(Trouble::AtRisk(Reason::BackingOff, message))
}

/// A gate that does not start, with what the record of its Pod says.
fn shut_gate(tally: &Tally<'_>) -> Option<Trouble> {
    let mut pods = tally.pods().filter_map(|view| Some((&view.pod.name, view.gate_trouble.as_ref()?)));
    let (pod, trouble) = pods.next()?;
    let more = match pods.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!("{} Pod {pod}{more}: {}", Reason::GateFails.meaning(), trouble.words);
    Some(Trouble::AtRisk(Reason::GateFails, refusal::bounded(&message, refusal::QUOTE_MAX_CHARS)))
}

/// Woken Pods that did not come to run: what to change depends on why.
fn woken_in_vain(snapshot: &Snapshot) -> Option<Trouble> {
    let count = snapshot.recent.timeouts_in_a_row;
    let seconds = snapshot.desired.wakeup_timeout.as_secs();
    let message = format!(
        "{count} woken Pods in a row did not pass their gate, or came no further behind it, within spec.wakeupTimeout ({seconds} \
         s): if they are slow write a greater one; if the operator cannot reach them let it connect to their TCP port {}",
        keys::GATE_PORT
    );
    (count > 0).then_some(Trouble::AtRisk(Reason::WakeTimedOut, message))
}

/// A promise that the counts never hold, or that the Pods do not hold any more: while the first ones start, nothing is lost.
fn lost_redundancy(snapshot: &Snapshot, tally: &Tally<'_>, is_starting: bool) -> Option<Trouble> {
    let of_pods = || if is_starting { None } else { redundancy::short_of_pods(snapshot, tally) };
    redundancy::short_of_counts(&snapshot.desired).or_else(of_pods).map(Trouble::RedundancyLost)
}

/// A Pod that was ready, or crashed, and is not ready now.
fn unready(tally: &Tally<'_>) -> Option<Trouble> {
    let is_unready = |view: &&PodView| matches!(view.lifecycle, Lifecycle::Unready { .. });
    let pods: Vec<&PodView> = tally.pods().filter(is_unready).collect();
    let first = pods.first()?;
    let more = match pods.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!("Pod {}{more} stopped being ready; look at its logs and its node", first.pod.name);
    Some(Trouble::AtRisk(Reason::PodUnready, message))
}
