//! What a new status of an HAGroup is worth telling: events, and numbers for the metrics.
//!
//! Everything is told once, when the status changes; whoever missed it finds it in the status.

use std::time::Duration;

use super::event::{EventText, EventType};
use crate::api::{HAGroupStatus, PairStatus, Takeover, WITHHELD};
use crate::ha::Cause;

/// Why a takeover happened that its new active does not explain.
const UNEXPLAINED: &str = "Unexplained";

/// How long one phase of a takeover took, by the name of the phase.
pub type PhaseTime = (&'static str, Duration);

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

/// What is new in `next`.
pub fn group_news(previous: &HAGroupStatus, next: &HAGroupStatus) -> GroupNews {
    let mut news = GroupNews::default();
    for takeover in &next.takeovers {
        let known = previous.takeovers.iter().find(|known| is_same(known, takeover));
        if known.is_none() {
            news.takeovers.push(reason(takeover));
            news.events.push(taken_over(takeover));
        }
        let before = known.map(|known| known.phases.each().map(|(_, time)| time)).unwrap_or_default();
        let became_known = |((phase, time), before): ((&'static str, Option<i32>), Option<i32>)| {
            let time = time.filter(|_| before.is_none())?;
            Some((phase, Duration::from_millis(time.max(0).unsigned_abs().into())))
        };
        news.phases.extend(takeover.phases.each().into_iter().zip(before).filter_map(became_known));
    }
    for pair in &next.pairs {
        let before = previous.pairs.iter().find(|before| before.name == pair.name);
        news.events.extend(changed(before, pair));
    }
    let is_gone = |pair: &&PairStatus| next.pairs.iter().all(|other| other.name != pair.name);
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

fn is_same(one: &Takeover, other: &Takeover) -> bool {
    (&one.pair, &one.epoch) == (&other.pair, &other.epoch)
}

fn reason(takeover: &Takeover) -> &'static str {
    Cause::parse(&takeover.reason).map_or(UNEXPLAINED, Cause::as_str)
}

fn taken_over(takeover: &Takeover) -> EventText {
    let cause = Cause::parse(&takeover.reason);
    let why = cause.map_or("it is not known why", Cause::meaning);
    let Takeover { pair, from, to, .. } = takeover;
    EventText {
        type_: if cause.is_some_and(Cause::is_planned) { EventType::Normal } else { EventType::Warning },
        reason: "Takeover",
        action: format!("take over {to}"),
        note: format!("{to} took over from {from} in pair {pair}: {why} ({})", reason(takeover)),
    }
}

/// What happened to a pair but for a takeover.
fn changed(before: Option<&PairStatus>, pair: &PairStatus) -> Option<EventText> {
    let PairStatus { name, active, last_active: _, standby, epoch: _, state, sync: _, lag: _ } = pair;
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
        ("Paired", "" | "Starting") => (
            EventType::Normal,
            "PairFormed",
            format!("pair {active}"),
            format!("{active} and {standby} are pair {name}: {active} acts"),
        ),
        ("Paired", "Alone" | "Replacing" | "Paired") if !has_been_member(standby) => (
            EventType::Normal,
            "MemberReplaced",
            format!("pair {standby}"),
            format!("{standby} is the standby of {active} in pair {name}"),
        ),
        _ => return None,
    };
    Some(EventText { type_, reason, action, note })
}

#[cfg(test)]
mod tests;
