//! How the record of a takeover grows from look to look.

use std::collections::BTreeMap;
use std::time::Duration;

use bps_api::HAGroupStatus;
use bps_protocol::{AgentId, Cause};
use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::pairing::testing::step;
use crate::pairing::{Group, HaState, PairAction, Plan, Shown};

const EPOCH: Epoch = Epoch { term: 1, sequence: 1 };

fn pair(epoch: Epoch, [active, standby]: [&str; 2]) -> PairStatus {
    let state = if standby.is_empty() { "Alone" } else { PAIRED };
    let [name, active, standby, state] = ["web-0", active, standby, state].map(str::to_owned);
    PairStatus { name, active, standby, epoch: epoch_text(epoch), state, ..PairStatus::default() }
}

/// The takeovers of a look, so many milliseconds after the first one.
fn look(
    previous: &HAGroupStatus,
    (pair, plan): (PairStatus, &Plan),
    record: Option<TakeoverRecord>,
    milliseconds: i64,
) -> HAGroupStatus {
    let input = GroupInput {
        previous,
        generation: 1,
        name: "web",
        group: &Group::default(),
        plan,
        records: &record.map(|record| (0, record)).into_iter().collect::<BTreeMap<_, _>>(),
        lags: &BTreeMap::new(),
        crash_loops: &BTreeMap::new(),
        has_service: true,
        unread: None,
        troubles: &[],
        now: Timestamp::UNIX_EPOCH + SignedDuration::from_millis(milliseconds),
    };
    let takeovers = takeovers(&input, std::slice::from_ref(&pair));
    HAGroupStatus { pairs: vec![pair], takeovers, ..HAGroupStatus::default() }
}

fn record() -> TakeoverRecord {
    let [detected, fenced, granted] = [0, 310, 1_250].map(Duration::from_micros);
    let (granted, promoted, published) = (Some(granted), None, None);
    let cause = Cause::ApplicationEnded;
    TakeoverRecord { epoch: EPOCH, cause, detected, fenced, granted, promoted, published }
}

#[test]
fn a_record_is_completed_by_what_the_active_writes_later_and_by_the_repair() {
    let (quiet, mut busy) = (Plan::default(), Plan::default());
    busy.steps.push(step(PairAction::Label {
        pod: AgentId(1),
        shown: Shown { state: Some(HaState::Active), ..Shown::default() },
    }));
    let before = HAGroupStatus {
        pairs: vec![pair(Epoch { term: 1, sequence: 0 }, ["a", "b"])],
        ..HAGroupStatus::default()
    };
    let expected = |reason: &str, phases: [Option<i32>; 6]| {
        let [detected, fenced, lease, promoted, published, repaired] = phases;
        let [pair, from, to, by, reason] = ["web-0", "a", "b", "Handover", reason].map(str::to_owned);
        let (epoch, time) = (epoch_text(EPOCH), MicroTime(Timestamp::UNIX_EPOCH));
        let phases = TakeoverPhases { detected, fenced, lease, promoted, published, repaired };
        vec![Takeover { pair, from, to, epoch, by, time, reason, phases }]
    };
    let now = || pair(EPOCH, ["b", "a"]);

    let untold = look(&before, (now(), &busy), None, 0);
    assert_eq!(untold.takeovers, expected("", [None; 6]));
    let first = look(&untold, (now(), &busy), Some(record()), 5);
    let [detected, fenced, lease] = [Some(0), Some(1), Some(2)];
    assert_eq!(first.takeovers, expected("ApplicationEnded", [detected, fenced, lease, None, None, None]));
    // Alone it is not repaired, and neither is it while something is left to do.
    let alone = look(&first, (pair(EPOCH, ["b", ""]), &quiet), Some(record()), 20);
    assert_eq!(alone.takeovers, first.takeovers);
    // Nor before everybody finds it.
    let unpublished = look(&alone, (now(), &quiet), Some(record()), 30);
    assert_eq!(unpublished.takeovers, first.takeovers);
    let [promoted, published] = [3_900, 22_001].map(|micros| Some(Duration::from_micros(micros)));
    let whole = TakeoverRecord { promoted, published, ..record() };
    let repaired = look(&alone, (now(), &quiet), Some(whole), 40);
    let phases = [detected, fenced, lease, Some(4), Some(23), Some(42)];
    assert_eq!(repaired.takeovers, expected("ApplicationEnded", phases));
    assert_eq!(look(&repaired, (now(), &quiet), Some(whole), 90).takeovers, repaired.takeovers);
}

#[test]
fn the_record_of_another_tenure_is_not_taken_for_this_one() {
    let before = HAGroupStatus {
        pairs: vec![pair(Epoch { term: 1, sequence: 0 }, ["a", "b"])],
        ..HAGroupStatus::default()
    };
    let old = TakeoverRecord { epoch: Epoch { term: 1, sequence: 0 }, ..record() };
    let after = look(&before, (pair(EPOCH, ["b", "a"]), &Plan::default()), Some(old), 0);
    assert_eq!(after.takeovers[0].reason, "");
    assert_eq!(after.takeovers[0].phases, TakeoverPhases::default());
}

#[test]
fn another_pod_than_the_last_one_takes_over_also_when_nobody_acted_in_between() {
    let table = [
        (("a", ""), "b", vec!["a"]),
        (("", "a"), "b", vec!["a"]),
        // Nobody acted before: the first tenure, or a status of an operator that did not remember it.
        (("", ""), "b", vec![]),
        (("", "b"), "b", vec![]),
        (("a", ""), "", vec![]),
    ];
    for ((active, last), next, expected) in table {
        let last_active = last.to_owned();
        let released = PairStatus { last_active, ..pair(Epoch { term: 1, sequence: 0 }, [active, ""]) };
        let before = HAGroupStatus { pairs: vec![released], ..HAGroupStatus::default() };
        let after = look(&before, (pair(EPOCH, [next, ""]), &Plan::default()), None, 0);
        let from: Vec<&str> = after.takeovers.iter().map(|told| told.from.as_str()).collect();
        assert_eq!(from, expected, "{active} {last} {next}");
    }
}

#[test]
fn the_last_takeover_of_a_pair_that_ended_says_nothing_of_its_successor() {
    let alone = |term, active| pair(Epoch { term, sequence: 0 }, [active, ""]);
    let next = |before: &HAGroupStatus, pair| look(before, (pair, &Plan::default()), None, 0);
    let before = HAGroupStatus { pairs: vec![alone(1, "a")], ..HAGroupStatus::default() };
    let taken = next(&before, alone(2, "b"));
    let ended = HAGroupStatus { pairs: Vec::new(), ..taken.clone() };
    let first = next(&next(&ended, alone(2, "")), alone(3, "c"));
    assert_eq!((first.takeovers, taken.takeovers.len()), (taken.takeovers, 1));
}

#[test]
fn a_status_of_an_operator_that_did_not_remember_who_acted_last_is_read() {
    let released = pair(EPOCH, ["", "b"]);
    let written = serde_json::to_value(&released).expect("a pair is JSON");
    assert_eq!(written.get("lastActive"), None);
    assert_eq!(serde_json::from_value::<PairStatus>(written).expect("a pair"), released);
}
