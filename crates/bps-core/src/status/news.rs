//! What a new status of an HAGroup is worth telling: events, and numbers for the metrics.
//!
//! Everything is told once, when the status changes; whoever missed it finds it in the status.

use std::time::Duration;

use bps_api::{
    CrashLoop, HAGroupStatus, PAIR_CRASH_LOOPING, PAIR_KEEPER_BUSY, PAIR_SILENT, PairStatus, Takeover,
    WITHHELD,
};
use bps_protocol::{Cause, TakeoverRecord};

use super::event::{EventText, EventType};
use super::group::{blocked_text, saying};
use super::takeovers::{Told, by_name, record_of};
use super::words::Word;

/// Why a takeover happened that its new active does not explain.
pub const UNEXPLAINED: Word = Word { word: "Unexplained", meaning: "it is not known why" };

/// The phase with which a takeover is over.
const LAST_PHASE: &str = "repaired";

/// How long after the beginning of a takeover a phase of it was over, by the name of the phase.
pub type PhaseTime = (&'static str, Duration);

/// All phases of a takeover, in their usual order; `None` for those that are not known.
type Phases = [(&'static str, Option<Duration>); 6];

/// What is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupNews {
    /// Events on the group.
    pub events: Vec<EventText>,
    /// The reason of each new takeover.
    pub takeovers: Vec<&'static str>,
    /// Phases that became known.
    pub phases: Vec<PhaseTime>,
}

/// What is new in `next`; `told` has the times of phases more exactly than a status.
pub fn group_news(previous: &HAGroupStatus, next: &HAGroupStatus, told: Told<'_>) -> GroupNews {
    let mut news = GroupNews::default();
    for takeover in &next.takeovers {
        let known = previous.takeovers.iter().find(|known| is_same(known, takeover));
        let phases = phases(takeover, told);
        if known.is_none() {
            news.takeovers.push(reason(takeover));
            news.events.push(taken_over(takeover, &phases));
        }
        let before = known.map(|known| known.phases.each().map(|(_, time)| time)).unwrap_or_default();
        let became_known = phases.iter().zip(before).filter(|(_, before)| before.is_none());
        let became_known: Vec<PhaseTime> =
            became_known.filter_map(|((phase, time), _)| Some((*phase, (*time)?))).collect();
        if became_known.iter().any(|(phase, _)| *phase == LAST_PHASE) {
            news.events.push(completed(takeover, &phases));
        }
        news.phases.extend(became_known);
    }
    let (before, after) = (by_name(&previous.pairs), by_name(&next.pairs));
    for pair in &next.pairs {
        news.events.extend(changed(before.get(pair.name.as_str()).copied(), pair));
    }
    let is_gone = |pair: &&PairStatus| !after.contains_key(pair.name.as_str());
    news.events.extend(previous.pairs.iter().filter(is_gone).map(|pair| EventText {
        type_: EventType::Normal,
        reason: "PairEnded",
        action: format!("end {}", pair.name),
        note: format!("Pair {} has no Lease any more", pair.name),
    }));
    news
}

/// The operator replaced a member itself.
pub fn lease_repaired(pair: &str) -> EventText {
    EventText {
        type_: EventType::Warning,
        reason: "LeaseRepaired",
        action: format!("repair {pair}"),
        note: format!("Replaced a member in the Lease {pair}: nobody could act in the pair any more"),
    }
}

/// The operator made the Lease of a pair again that somebody else deleted.
pub fn lease_restored(pair: &str) -> EventText {
    EventText {
        type_: EventType::Warning,
        reason: "LeaseRestored",
        action: format!("restore {pair}"),
        note: format!("Made the Lease {pair} again as it was: somebody had deleted it"),
    }
}

fn is_same(one: &Takeover, other: &Takeover) -> bool {
    (&one.pair, &one.epoch) == (&other.pair, &other.epoch)
}

fn reason(takeover: &Takeover) -> &'static str {
    Cause::parse(&takeover.reason).map_or(UNEXPLAINED.word, Cause::as_str)
}

/// The phases that a status knows. It has whole milliseconds, rounded up; what the Lease still tells is more exact.
fn phases(takeover: &Takeover, told: Told<'_>) -> Phases {
    let exact = record_of(told, takeover).map(|record| {
        let TakeoverRecord { epoch: _, cause: _, detected, fenced, granted, promoted, published } = *record;
        [Some(detected), Some(fenced), granted, promoted, published, None]
    });
    let mut exact = exact.unwrap_or_default().into_iter();
    takeover.phases.each().map(|(phase, time)| {
        let exact = exact.next().flatten();
        let rough = |time: i32| Duration::from_millis(time.max(0).unsigned_abs().into());
        (phase, time.map(|time| exact.unwrap_or_else(|| rough(time))))
    })
}

/// The phases that are known, in words; empty if none is.
fn in_words(phases: &Phases) -> String {
    let known =
        phases.iter().filter_map(|(phase, time)| Some(format!("{phase} {} ms", milliseconds((*time)?))));
    let known: Vec<String> = known.collect();
    if known.is_empty() { String::new() } else { format!("; since its beginning: {}", known.join(", ")) }
}

/// In milliseconds, with the microseconds that there are: `0.05`.
fn milliseconds(time: Duration) -> String {
    let text = format!("{}.{:03}", time.as_millis(), time.subsec_micros() % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The pair is whole again.
fn completed(takeover: &Takeover, phases: &Phases) -> EventText {
    let Takeover { pair, from, to, .. } = takeover;
    let (reason, times) = (reason(takeover), in_words(phases));
    EventText {
        type_: EventType::Normal,
        reason: "TakeoverComplete",
        action: format!("complete the takeover of {to}"),
        note: format!("Pair {pair} is whole again, in which {to} took over from {from} ({reason}){times}"),
    }
}

fn taken_over(takeover: &Takeover, phases: &Phases) -> EventText {
    let cause = Cause::parse(&takeover.reason);
    let why = cause.map_or(UNEXPLAINED.meaning, Cause::meaning);
    let Takeover { pair, from, to, .. } = takeover;
    EventText {
        type_: if cause.is_some_and(Cause::is_planned) { EventType::Normal } else { EventType::Warning },
        reason: "Takeover",
        action: format!("take over {to}"),
        note: format!(
            "{to} took over from {from} in pair {pair}: {why} ({}){}",
            reason(takeover),
            in_words(phases)
        ),
    }
}

/// What happened to a pair but for a takeover.
fn changed(before: Option<&PairStatus>, pair: &PairStatus) -> Option<EventText> {
    let PairStatus { name, active, standby, state, crash_loop, .. } = pair;
    let had_state = before.map_or("", |before| before.state.as_str());
    let has_been_member =
        |pod: &String| before.is_some_and(|before| [&before.active, &before.standby].contains(&pod));
    let (type_, reason, action, note) = match (state.as_str(), had_state) {
        ("Fenced", before) if before != "Fenced" => (
            EventType::Warning,
            "Fenced",
            format!("fence {name}"),
            format!("A member of pair {name} shall not act: its Lease is annotated so"),
        ),
        (WITHHELD, before) if before != WITHHELD => (
            EventType::Warning,
            WITHHELD,
            format!("withhold {name}"),
            format!("Nobody may act in pair {name}: no ready Pod has every acknowledged write"),
        ),
        (PAIR_KEEPER_BUSY, before) if before != PAIR_KEEPER_BUSY => (
            EventType::Warning,
            PAIR_KEEPER_BUSY,
            format!("wait for {name}"),
            format!(
                "Nobody acts in pair {name}: the only Pod with every acknowledged write acts in another pair, and hands over there first"
            ),
        ),
        (PAIR_CRASH_LOOPING, before) if before != PAIR_CRASH_LOOPING => {
            let CrashLoop { pod, ends, exit_code, last_lines } = crash_loop.as_ref()?;
            let saying = saying(last_lines);
            (
                EventType::Warning,
                PAIR_CRASH_LOOPING,
                format!("start {name}"),
                format!(
                    "The application of pair {name} ended soon after its start {ends} times in a row on {pod}, last with exit code {exit_code}{saying}"
                ),
            )
        }
        (PAIR_SILENT, before) if before != PAIR_SILENT => (
            EventType::Warning,
            "StandbySilent",
            format!("miss {standby}"),
            format!("{standby} does not answer {active} in pair {name}"),
        ),
        ("Paired", "" | "Starting") => (
            EventType::Normal,
            "PairFormed",
            format!("pair {active}"),
            format!("{active} and {standby} are pair {name}: {active} acts"),
        ),
        ("Paired", "Alone" | "Replacing" | "Paired" | PAIR_SILENT) if !has_been_member(standby) => (
            EventType::Normal,
            "MemberReplaced",
            format!("pair {standby}"),
            format!("{standby} is the standby of {active} in pair {name}"),
        ),
        _ => return blocked(before, pair),
    };
    Some(EventText { type_, reason, action, note })
}

/// The standby of a pair does not get the replicated state, for another reason than before.
fn blocked(before: Option<&PairStatus>, pair: &PairStatus) -> Option<EventText> {
    let reason = |pair: &PairStatus| pair.lag.as_ref().and_then(|lag| lag.reason.clone());
    let (text, PairStatus { name, standby, .. }) = (blocked_text(pair)?, pair);
    let is_news = before.and_then(reason) != reason(pair);
    is_news.then(|| EventText {
        type_: EventType::Warning,
        reason: "ReplicationBlocked",
        action: format!("replicate to {standby}"),
        note: format!("The standby of pair {name} does not get the state: {text}"),
    })
}

#[cfg(test)]
mod tests;
