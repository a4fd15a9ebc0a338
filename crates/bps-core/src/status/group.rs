//! The status of an HAGroup: pairs, what is waited for, and who took over from whom.

mod phrases;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bps_api::status::Condition;
use bps_api::{
    CrashLoop, GroupSummary, HAGroupStatus, IN_SYNC, LOST_PODS_MAX, LagReason, LostPair, PAIR_CRASH_LOOPING,
    PAIR_ENDING, PAIR_KEEPER_BUSY, PAIR_SILENT, PairStatus, StateLag, WITHHELD, keys,
};
use bps_protocol::{AgentId, TakeoverRecord};
use jiff::Timestamp;

pub use phrases::{GROUP_CONDITIONS, GROUP_STATES};

use super::conditions::{Saying, condition};
use super::takeovers::{TAKEOVERS_MAX, by_name, last_actor, takeovers};
use super::words::{self, Word};
use crate::manifests::pair_name;
use crate::pairing::{
    FORMER_WAIT, Group, Lost, Pair, PairAction, PairHold, PairReason, Plan, Roster, VACANT,
};

/// Most pairs that are listed: as many as a set may have.
const PAIRS_MAX: usize = 1_000;
/// Most spares that are listed.
const SPARES_MAX: usize = 50;
/// Most texts in one message.
const TEXTS_MAX: usize = 5;

/// What a status is made from.
#[derive(Clone, Copy, Debug)]
pub struct GroupInput<'a> {
    /// The status before.
    pub previous: &'a HAGroupStatus,
    /// Generation of the specification.
    pub generation: i64,
    /// Name of the group.
    pub name: &'a str,
    /// What was seen.
    pub group: &'a Group,
    /// What is done about it.
    pub plan: &'a Plan,
    /// What the Leases of pairs tell about their last takeover, by number.
    pub records: &'a BTreeMap<u32, TakeoverRecord>,
    /// What the Leases of pairs tell of what their standbys lack, by number.
    pub lags: &'a BTreeMap<u32, StateLag>,
    /// What they tell of applications that end again and again, by number.
    pub crash_loops: &'a BTreeMap<u32, CrashLoop>,
    /// Whether actives show themselves behind a Service.
    pub has_service: bool,
    /// What in the specification could not be read, so that nothing is changed but wrong addresses.
    pub unread: Option<&'a str>,
    /// What stands in the way, one sentence each.
    pub troubles: &'a [String],
    /// The present moment.
    pub now: Timestamp,
}

/// A status as it is written: of the takeovers only the last ones.
pub fn kept(status: &HAGroupStatus) -> HAGroupStatus {
    let passed = status.takeovers.len().saturating_sub(TAKEOVERS_MAX);
    HAGroupStatus { takeovers: status.takeovers[passed..].to_vec(), ..status.clone() }
}

/// The status that follows, with every takeover that is new.
pub fn group_status(input: &GroupInput<'_>) -> HAGroupStatus {
    let group = input.group;
    let sight = Sight {
        roster: group.roster(),
        before: by_name(&input.previous.pairs),
        withheld: input.plan.pairs_held(PairReason::Withheld),
        keeper_busy: input.plan.pairs_held(PairReason::KeeperBusy),
        silent: input.plan.pairs_held(PairReason::StandbySilent),
    };
    let pairs: Vec<PairStatus> = group.pairs.iter().map(|pair| pair_status(input, &sight, pair)).collect();
    let complete = pairs.iter().filter(|pair| pair.state == PAIRED).count();
    let takeovers = takeovers(input, &pairs);
    let mut spares: Vec<String> = spares(group).map(str::to_owned).collect();
    spares.sort_unstable();
    let actives: Vec<&str> =
        pairs.iter().map(|pair| pair.active.as_str()).filter(|name| !name.is_empty()).collect();
    let summary = GroupSummary {
        pairs: format!("{complete}/{}", pairs.len()),
        spares: i32::try_from(spares.len()).unwrap_or(i32::MAX),
        actives: actives.join(","),
    };
    let blocked = blocked(&pairs);
    let conditions = conditions(input, (complete, pairs.len()), &blocked);
    let state = state(input, (complete, pairs.len()), !blocked.is_empty());
    spares.truncate(SPARES_MAX);
    let highest_term = i64::from(group.highest_term).max(input.previous.highest_term);
    HAGroupStatus {
        observed_generation: input.generation,
        state,
        summary,
        pairs: pairs.into_iter().take(PAIRS_MAX).collect(),
        lost: lost_pairs(input),
        wait_seconds: wait_seconds(input),
        spares,
        highest_term,
        conditions,
        last_takeover: takeovers.last().cloned().or_else(|| input.previous.last_takeover.clone()),
        takeovers,
    }
}

pub(super) const PAIRED: &str = "Paired";

/// What the pairs of a group are looked up in.
struct Sight<'a> {
    roster: Roster<'a>,
    /// What was told of each pair before.
    before: BTreeMap<&'a str, &'a PairStatus>,
    /// Pairs in which nobody may act.
    withheld: BTreeSet<u32>,
    /// Pairs whose only whole copy is on a Pod that acts in another one.
    keeper_busy: BTreeSet<u32>,
    /// Pairs whose standby does not answer.
    silent: BTreeSet<u32>,
}

fn pair_status(input: &GroupInput<'_>, sight: &Sight<'_>, pair: &Pair) -> PairStatus {
    let holder = pair.lease.holder;
    let name_of = |id| pair.names.get(&id).cloned().unwrap_or_default();
    let is_there = |id| id != VACANT && sight.roster.is_seated(pair, id);
    let other = pair.lease.members.into_iter().find(|id| Some(*id) != holder && is_there(*id));
    let is_fenced = pair.lease.members.iter().any(|id| pair.fenced.contains(id));
    let is_withheld = sight.withheld.contains(&pair.number);
    let is_silent = sight.silent.contains(&pair.number);
    let crash_loop = input.crash_loops.get(&pair.number).cloned();
    let state = match (pair.is_ending, pair.lease.pending, holder, other) {
        (true, ..) => PAIR_ENDING,
        _ if is_withheld => WITHHELD,
        _ if sight.keeper_busy.contains(&pair.number) => PAIR_KEEPER_BUSY,
        (_, Some(asked), ..) if asked.joining != VACANT => "Replacing",
        _ if is_fenced => "Fenced",
        _ if crash_loop.is_some() => PAIR_CRASH_LOOPING,
        (_, _, None, _) => "Starting",
        (_, _, Some(_), None) => "Alone",
        _ if is_silent => PAIR_SILENT,
        (_, _, Some(_), Some(_)) => PAIRED,
    };
    let level =
        if other.is_some_and(|id| !pair.has_whole_state(id)) { pair.level.min(Some(1)) } else { pair.level };
    let sync = sync(level, other.is_some());
    let name = pair_name(input.name, pair.number);
    let active = holder.map(name_of).unwrap_or_default();
    let before = sight.before.get(name.as_str()).filter(|_| active.is_empty());
    PairStatus {
        last_active: before.map(|before| last_actor(before)).unwrap_or_default().to_owned(),
        name,
        active,
        standby: other.map(name_of).unwrap_or_default(),
        pods: pair.pods(),
        epoch: u64::from(pair.lease.epoch).to_string(),
        state: state.to_owned(),
        sync: sync.to_owned(),
        lag: input.lags.get(&pair.number).filter(|_| sync == CATCHING_UP).cloned(),
        crash_loop,
    }
}

fn lost_pairs(input: &GroupInput<'_>) -> Vec<LostPair> {
    // Of a pair whose Lease cannot be read the next operator knows nothing but this.
    let Group { remembered, .. } = input.group;
    let waited_for = input.group.left_alone().map(|lost| (lost, false));
    let lost = waited_for.chain(remembered.iter().map(|lost| (lost, true)));
    let told = lost.map(|(Lost { number, pods, level, .. }, is_over)| LostPair {
        name: pair_name(input.name, *number),
        pods: pods.iter().take(LOST_PODS_MAX).cloned().collect(),
        in_sync: level.as_ref().map(|level| level.directories.clone()),
        in_sync_pods: level.as_ref().map(|level| level.pods.clone()).unwrap_or_default(),
        is_over,
    });
    told.take(PAIRS_MAX).collect()
}

/// The longest of all pairs. That of lost ones is in the status before, which was written while they were there.
fn wait_seconds(input: &GroupInput<'_>) -> i64 {
    let in_seconds = |wait: Duration| i64::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(i64::MAX);
    let there = input.group.pairs.iter().map(|pair| in_seconds(pair.timing.operator_wait)).max();
    let is_any_lost = input.group.left_alone().next().is_some();
    let told = input.previous.wait_seconds;
    let lost = is_any_lost.then(|| if told > 0 { told } else { in_seconds(FORMER_WAIT) });
    there.max(lost).unwrap_or_default()
}

const CATCHING_UP: &str = "CatchingUp";

/// Where the replicated state is, by the number of directories that have all of it.
fn sync(level: Option<usize>, has_other: bool) -> &'static str {
    match (level, has_other) {
        (None, _) => "",
        (Some(2..), true) => IN_SYNC,
        (Some(_), true) => CATCHING_UP,
        (Some(_), false) => "Alone",
    }
}

fn spares(group: &Group) -> impl Iterator<Item = &str> {
    let named: BTreeSet<AgentId> = group.pairs.iter().flat_map(|pair| pair.lease.named()).collect();
    let spares = group.pods.iter().filter(move |pod| !pod.is_leaving && !named.contains(&pod.id));
    spares.map(|pod| pod.name.as_str())
}

fn state(input: &GroupInput<'_>, (complete, all): (usize, usize), is_blocked: bool) -> String {
    let is_pairing = input.plan.steps.iter().any(|step| !matches!(step.action, PairAction::Label { .. }));
    let state = if input.unread.is_some() {
        phrases::DEGRADED
    } else if input.group.is_paused {
        phrases::PAUSED
    } else if !input.troubles.is_empty() {
        phrases::DEGRADED
    } else if !held(input, PairReason::Withheld).is_empty() {
        words::WITHHELD
    } else if !held(input, PairReason::KeeperBusy).is_empty() {
        phrases::KEEPER_BUSY_STATE
    } else if all == 0 {
        phrases::WAITING_FOR_PODS
    } else if is_pairing || input.plan.is_held(PairReason::Admission) {
        phrases::PAIRING
    } else if !input.crash_loops.is_empty() {
        phrases::CRASH_LOOPING
    } else if !silent(input).is_empty() {
        phrases::STANDBY_SILENT
    } else if is_blocked {
        phrases::REPLICATION_BLOCKED
    } else if complete < all {
        phrases::WITHOUT_STANDBY
    } else {
        phrases::READY
    };
    state.word.to_owned()
}

fn conditions(input: &GroupInput<'_>, (complete, all): (usize, usize), blocked: &[String]) -> Vec<Condition> {
    let waits: Vec<String> = input.plan.holds.iter().map(|hold| describe_hold(input.name, hold)).collect();
    let counts = format!("{complete} of {all} pairs have an active and a standby");
    let is_ready = all > 0 && complete == all;
    let ready = if is_ready {
        (phrases::PAIRED, counts.clone())
    } else if !input.crash_loops.is_empty() {
        let texts = std::iter::once(counts.clone()).chain(crash_loops(input)).chain(waits.iter().cloned());
        (phrases::APPLICATION_ENDS, joined(texts))
    } else if all == 0 {
        (phrases::NO_PAIRS, "no pair yet: two running Pods with the label of the group are needed".to_owned())
    } else {
        (phrases::UNPAIRED, joined(std::iter::once(counts.clone()).chain(waits.iter().cloned())))
    };
    let all_withheld = held(input, PairReason::Withheld);
    let all_busy = held(input, PairReason::KeeperBusy);
    let is_withheld = !all_withheld.is_empty();
    let all_silent = silent(input);
    let degraded = match (input.unread, input.troubles, is_withheld) {
        (Some(unread), ..) => (true, (phrases::UNREADABLE, unread.to_owned())),
        (None, [], false) if !all_busy.is_empty() => {
            let texts = all_busy.into_iter().chain(crash_loops(input)).chain(all_silent);
            (true, (phrases::KEEPER_BUSY, joined(texts.chain(blocked.iter().cloned()))))
        }
        (None, [], false) if !input.crash_loops.is_empty() => {
            let texts = crash_loops(input).chain(all_silent).chain(blocked.iter().cloned());
            (true, (phrases::APPLICATION_ENDS, joined(texts)))
        }
        (None, [], false) if !all_silent.is_empty() => {
            (true, (phrases::SILENT, joined(all_silent.into_iter().chain(blocked.iter().cloned()))))
        }
        (None, [], false) if !blocked.is_empty() => {
            (true, (phrases::BLOCKED, joined(blocked.iter().cloned())))
        }
        (None, [], false) if input.group.pairs.iter().any(|pair| pair.is_late) => {
            (true, (phrases::LATE_NODE, joined(late(input))))
        }
        (None, [], false) => (false, (words::AS_EXPECTED, "nothing stands in the way".to_owned())),
        (None, [], true) => (true, (words::WITHHELD, joined(all_withheld.iter().cloned().chain(all_busy)))),
        (None, [..], _) => (true, (phrases::REFUSED, joined(input.troubles.iter().cloned()))),
    };
    let withheld = if is_withheld {
        (phrases::NO_LEVEL_COPY, format!("{}; {}", joined(all_withheld.into_iter()), way_out()))
    } else {
        (words::AS_EXPECTED, "no pair lacks a copy of its state that it may act with".to_owned())
    };
    let is_paused = input.group.is_paused && input.unread.is_none();
    let paused = if is_paused {
        (phrases::PAUSED_BY_SPEC, "spec.paused is true: pairs stay as they are, failovers go on".to_owned())
    } else {
        (words::NOT_PAUSED, "spec.paused is false".to_owned())
    };
    let sayings = [
        (words::READY, is_ready, ready),
        (words::DEGRADED, degraded.0, degraded.1),
        (WITHHELD, is_withheld, withheld),
        (words::PAUSED, is_paused, paused),
    ];
    let meta = (input.previous.conditions.as_slice(), input.now, input.generation);
    let saying = |(r#type, holds, (reason, message)): (_, _, (Word, _))| Saying {
        r#type,
        holds,
        reason: reason.word,
        message,
    };
    sayings.into_iter().map(|said| condition(meta, saying(said))).collect()
}

/// What is held back for a reason, half a sentence each.
fn held(input: &GroupInput<'_>, reason: PairReason) -> Vec<String> {
    let is_it = |hold: &&PairHold| hold.reason == reason;
    input.plan.holds.iter().filter(is_it).map(|hold| describe_hold(input.name, hold)).collect()
}

/// Pairs whose standby does not answer, half a sentence each, with its name.
fn silent(input: &GroupInput<'_>) -> Vec<String> {
    let silent = input.plan.pairs_held(PairReason::StandbySilent);
    let is_silent = |pair: &&Pair| silent.contains(&pair.number);
    let told = input.group.pairs.iter().filter(is_silent).map(|pair| {
        let standby = pair.silence.and_then(|silence| pair.names.get(&silence.standby));
        let standby = standby.map(String::as_str).unwrap_or_default();
        format!("the standby {standby} of {} does not answer its active: look at its node and the log of its agent", pair_name(input.name, pair.number))
    });
    told.collect()
}

/// Pairs whose actives are woken late, half a sentence each.
fn late(input: &GroupInput<'_>) -> impl Iterator<Item = String> {
    input.group.pairs.iter().filter(|pair| pair.is_late).map(|pair| {
        let active = pair.lease.holder.and_then(|holder| pair.names.get(&holder));
        let active = active.map(String::as_str).unwrap_or_default();
        format!(
            "the node of {active}, the active of {}, wakes its agent too late for the timing profile Fast: give that node \
             or container more processor time, or make the group anew with timing.profile Default",
            pair_name(input.name, pair.number)
        )
    })
}

/// Pairs whose applications end again and again, half a sentence each.
fn crash_loops(input: &GroupInput<'_>) -> impl Iterator<Item = String> {
    let told = |(number, CrashLoop { pod, ends, exit_code, last_lines }): (&u32, &CrashLoop)| {
        let (pair, saying) = (pair_name(input.name, *number), saying(last_lines));
        format!(
            "the application of {pair} ended soon after its start {ends} times in a row on {pod}, last with exit code {exit_code}{saying}: \
             see kubectl logs {pod}"
        )
    };
    input.crash_loops.iter().map(told)
}

/// What an application wrote last, as the end of a sentence; empty if that is not told.
pub(super) fn saying(last_lines: &[String]) -> String {
    if last_lines.is_empty() {
        return String::new();
    }
    format!(", saying \"{}\"", last_lines.join(" | "))
}

/// Pairs whose standbys do not get the replicated state, half a sentence each, with what the user can do.
fn blocked(pairs: &[PairStatus]) -> Vec<String> {
    let told = |pair: &PairStatus| {
        Some(format!("the standby of {} does not get the state: {}", pair.name, blocked_text(pair)?))
    };
    pairs.iter().filter_map(told).collect()
}

/// The reason for which the standby of a pair does not get the replicated state, and what the user can do; `None` if it gets it.
/// A reason that this version does not know stands for itself.
pub(super) fn blocked_text(pair: &PairStatus) -> Option<String> {
    let StateLag { reason, path, .. } = pair.lag.as_ref()?;
    let (word, PairStatus { active, standby, .. }) = (reason.as_ref()?, pair);
    let at = path.as_ref().map(|path| format!(" ({path})")).unwrap_or_default();
    let Some(reason) = LagReason::ALL.into_iter().find(|reason| reason.as_str() == word) else {
        return Some(format!("{word}{at}"));
    };
    Some(match reason {
        LagReason::StandbyFull => format!("the volume of {standby} is full: make it larger, or free space"),
        LagReason::StandbyDiskFails => {
            format!("the disk of {standby} refuses it: check its volume, and see kubectl logs {standby}")
        }
        LagReason::Unreplicable => format!(
            "something in the state directory of {active} cannot be replicated{at}: see kubectl logs {active}, and move it out"
        ),
        LagReason::ActiveDiskFails => {
            format!("the disk of {active} fails{at}: check its volume, and see kubectl logs {active}")
        }
    })
}

/// What a person can do about a pair in which nobody may act.
fn way_out() -> String {
    let key = keys::ANNOTATION_HA_IN_SYNC;
    format!(
        "bring the lost Pod back with its volume, or remove the annotation {key} from the Lease to act without those writes"
    )
}

fn joined(texts: impl Iterator<Item = String>) -> String {
    texts.take(TEXTS_MAX).collect::<Vec<_>>().join("; ")
}

/// What is held back in the group of this name, as half a sentence for people.
pub fn describe_hold(name: &str, hold: &PairHold) -> String {
    let pair = hold.pair.map(|number| pair_name(name, number)).unwrap_or_default();
    match hold.reason {
        PairReason::Paused => "the group is paused".to_owned(),
        PairReason::Withheld => {
            format!("nobody may act in {pair}: no ready Pod has every acknowledged write")
        }
        PairReason::NoPod => format!("{pair} has no standby, and there is no Pod for that place"),
        PairReason::KeeperBusy => format!(
            "the only Pod that has every acknowledged write of {pair} acts in another pair, and hands over there as soon as a \
             standby can follow: add a hot backup if that lasts"
        ),
        PairReason::NoOtherDomain if pair.is_empty() => {
            "Pods wait for a partner in another failure domain: add one there, or write topology.standby Preferred".to_owned()
        }
        PairReason::NoOtherDomain => format!(
            "{pair} has no standby, because each Pod that could be one is in the failure domain of its active: add a Pod in \
             another one, or write topology.standby Preferred"
        ),
        PairReason::Admission => format!("the active of {pair} is asked to admit a Pod"),
        PairReason::StandbySilent => format!("the standby of {pair} does not answer its active"),
        PairReason::MayAct => format!("{pair} ends once nobody can act in it any more"),
        PairReason::LeaseLost => {
            format!("the Lease of {pair} was deleted; it is made anew once nobody can act any more")
        }
        PairReason::PodAlone => "a single Pod waits for another one".to_owned(),
        PairReason::Surplus => "there are more pairs than Pods can fill".to_owned(),
        // Those of steps hold nothing back.
        PairReason::CheckRefused
        | PairReason::PodsUnpaired
        | PairReason::PrimaryFirst
        | PairReason::PlaceVacant
        | PairReason::MemberGone
        | PairReason::StandbyBusy
        | PairReason::RequestVoid
        | PairReason::AddressChanged
        | PairReason::NoneActs
        | PairReason::StandbyBeside
        | PairReason::NodeLeaving
        | PairReason::Unwanted
        | PairReason::FenceLifted
        | PairReason::PartChanged
        | PairReason::NotCovered
        | PairReason::Covered => hold.reason.meaning().to_owned(),
    }
}

#[cfg(test)]
mod tests;
