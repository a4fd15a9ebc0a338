//! What each change of a status is worth.

use std::collections::BTreeMap;

use bps_api::{StateLag, TakeoverPhases};
use bps_protocol::{Epoch, TakeoverRecord};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

use super::*;

/// What is new, if no Lease tells of it any more.
fn news(previous: &HAGroupStatus, next: &HAGroupStatus) -> GroupNews {
    group_news(previous, next, ("web", &BTreeMap::new()))
}

fn pair(state: &str, (active, standby): (&str, &str)) -> PairStatus {
    let [name, active, standby, epoch, state] = ["web-0", active, standby, "1", state].map(str::to_owned);
    PairStatus { name, active, standby, epoch, state, ..PairStatus::default() }
}

fn status(pairs: Vec<PairStatus>, takeovers: Vec<Takeover>) -> HAGroupStatus {
    HAGroupStatus { pairs, takeovers, ..HAGroupStatus::default() }
}

fn takeover(reason: &str, phases: TakeoverPhases) -> Takeover {
    let [pair, from, to, epoch, by, reason] = ["web-0", "a", "b", "1", "Handover", reason].map(str::to_owned);
    Takeover { pair, from, to, epoch, by, time: MicroTime(Timestamp::UNIX_EPOCH), reason, phases }
}

fn told(before: Option<PairStatus>, after: Option<PairStatus>) -> Vec<(&'static str, String)> {
    let status = |pair: Option<PairStatus>| status(pair.into_iter().collect(), Vec::new());
    let found = news(&status(before), &status(after));
    found.events.into_iter().map(|event| (event.reason, event.note)).collect()
}

#[test]
fn each_change_of_a_pair_is_told_once() {
    let starting = || Some(pair("Starting", ("", "b")));
    let paired = || Some(pair("Paired", ("a", "b")));
    let event = |reason, note: &str| vec![(reason, note.to_owned())];
    assert_eq!(told(None, starting()), []);
    let formed = event("PairFormed", "a and b are pair web-0: a acts");
    assert_eq!(told(starting(), paired()), formed);
    assert_eq!(told(None, paired()), formed);
    assert_eq!(told(paired(), paired()), []);
    assert_eq!(told(paired(), Some(pair("Paired", ("b", "a")))), []);
    assert_eq!(told(paired(), Some(pair("Alone", ("a", "")))), []);
    let replaced = event("MemberReplaced", "c is the standby of a in pair web-0");
    for state in ["Alone", "Replacing"] {
        let before = Some(pair(state, ("a", "")));
        assert_eq!(told(before, Some(pair("Paired", ("a", "c")))), replaced);
    }
    let fenced = event("Fenced", "A member of pair web-0 shall not act: its Lease is annotated so");
    assert_eq!(told(paired(), Some(pair("Fenced", ("a", "b")))), fenced);
    assert_eq!(told(Some(pair("Fenced", ("a", "b"))), paired()), []);
    let withheld = || Some(pair("Withheld", ("a", "b")));
    let note = "Nobody may act in pair web-0: no ready Pod has every acknowledged write";
    assert_eq!(told(paired(), withheld()), event("Withheld", note));
    assert_eq!([told(withheld(), withheld()), told(withheld(), paired())], [[], []]);
    let busy = || Some(pair("KeeperBusy", ("", "b")));
    let note = "Nobody acts in pair web-0: the only Pod with every acknowledged write acts in another pair, and hands over there first";
    assert_eq!(told(paired(), busy()), event("KeeperBusy", note));
    assert_eq!(told(busy(), busy()), []);
    let silent = || Some(pair("Silent", ("a", "b")));
    assert_eq!(told(paired(), silent()), event("StandbySilent", "b does not answer a in pair web-0"));
    assert_eq!([told(silent(), silent()), told(silent(), paired())], [[], []]);
    assert_eq!(told(silent(), Some(pair("Paired", ("a", "c")))), replaced);
    let looping = || {
        let crash_loop = Some(CrashLoop {
            pod: "b".into(),
            ends: 3,
            exit_code: 1,
            last_lines: vec!["no disk".into(), "ends".into()],
        });
        Some(PairStatus { crash_loop, ..pair(PAIR_CRASH_LOOPING, ("a", "b")) })
    };
    let note = "The application of pair web-0 ended soon after its start 3 times in a row on b, last with exit code 1, saying \"no disk | ends\"";
    assert_eq!(told(paired(), looping()), event("CrashLooping", note));
    assert_eq!([told(looping(), looping()), told(looping(), paired())], [[], []]);
    let blocked = |reason: &str| {
        let since = Time(Timestamp::UNIX_EPOCH);
        let lag = StateLag { entries: 1, bytes: 0, since, reason: Some(reason.into()), path: None };
        Some(PairStatus { lag: Some(lag), ..pair("Paired", ("a", "b")) })
    };
    let full = "The standby of pair web-0 does not get the state: the volume of b is full: make it larger, or free space";
    assert_eq!(told(paired(), blocked("StandbyFull")), event("ReplicationBlocked", full));
    assert_eq!(told(blocked("StandbyFull"), blocked("StandbyFull")), []);
    assert_eq!(told(blocked("StandbyDiskFails"), blocked("StandbyFull")), event("ReplicationBlocked", full));
    assert_eq!(told(blocked("StandbyFull"), paired()), []);
    assert_eq!(told(paired(), None), event("PairEnded", "Pair web-0 has no Lease any more"));
}

#[test]
fn a_takeover_is_told_once_and_each_of_its_phases_when_it_becomes_known() {
    let first = TakeoverPhases { detected: Some(0), lease: Some(7), ..TakeoverPhases::default() };
    let whole = TakeoverPhases { published: Some(31), ..first.clone() };
    let before = status(Vec::new(), Vec::new());
    let began = status(Vec::new(), vec![takeover("ApplicationEnded", first)]);
    let ended = status(Vec::new(), vec![takeover("ApplicationEnded", whole)]);
    let event = EventText {
        type_: EventType::Warning,
        reason: "Takeover",
        action: "take over b".to_owned(),
        note: "b took over from a in pair web-0: the application of the former active had ended by itself \
               (ApplicationEnded); since its beginning: detected 0 ms, lease 7 ms"
            .to_owned(),
    };
    let millis = Duration::from_millis;
    let expected = GroupNews {
        events: vec![event],
        takeovers: vec!["ApplicationEnded"],
        phases: vec![("detected", millis(0)), ("lease", millis(7))],
    };
    assert_eq!(news(&before, &began), expected);
    let later = GroupNews { phases: vec![("published", millis(31))], ..GroupNews::default() };
    assert_eq!(news(&began, &ended), later);
    assert_eq!(news(&ended, &ended), GroupNews::default());
}

/// What `b` told of it in the Lease of the pair.
fn record(epoch: Epoch) -> TakeoverRecord {
    let micros = Duration::from_micros;
    TakeoverRecord {
        epoch,
        cause: Cause::ApplicationEnded,
        detected: Duration::ZERO,
        fenced: micros(50),
        granted: Some(micros(170)),
        promoted: Some(micros(700)),
        published: Some(micros(28_004)),
    }
}

fn whole() -> TakeoverPhases {
    let [detected, fenced, lease, promoted, published, repaired] = [0, 1, 1, 1, 29, 61].map(Some);
    TakeoverPhases { detected, fenced, lease, promoted, published, repaired }
}

#[test]
fn the_end_of_a_takeover_is_told_once_with_every_phase_as_exactly_as_it_is_known() {
    let is_whole = status(Vec::new(), vec![takeover("ApplicationEnded", whole())]);
    let is_not = TakeoverPhases { repaired: None, ..whole() };
    let before = status(Vec::new(), vec![takeover("ApplicationEnded", is_not)]);
    let event = |times: &str| EventText {
        type_: EventType::Normal,
        reason: "TakeoverComplete",
        action: "complete the takeover of b".to_owned(),
        note: format!(
            "Pair web-0 is whole again, in which b took over from a (ApplicationEnded); since its beginning: {times}"
        ),
    };
    let repaired = ("repaired", Duration::from_millis(61));
    let exact =
        "detected 0 ms, fenced 0.05 ms, lease 0.17 ms, promoted 0.7 ms, published 28.004 ms, repaired 61 ms";
    let rough = "detected 0 ms, fenced 1 ms, lease 1 ms, promoted 1 ms, published 29 ms, repaired 61 ms";
    let of = |number: u32, epoch: u64| BTreeMap::from([(number, record(Epoch::from(epoch)))]);
    for (records, times) in [(of(0, 1), exact), (of(0, 2), rough), (of(1, 1), rough)] {
        let expected =
            GroupNews { events: vec![event(times)], phases: vec![repaired], ..GroupNews::default() };
        assert_eq!(group_news(&before, &is_whole, ("web", &records)), expected);
        assert_eq!(group_news(&is_whole, &is_whole, ("web", &records)), GroupNews::default());
    }
    let at_once = group_news(&HAGroupStatus::default(), &is_whole, ("web", &of(0, 1)));
    let reasons: Vec<_> = at_once.events.iter().map(|event| event.reason).collect();
    assert_eq!(reasons, ["Takeover", "TakeoverComplete"]);
    assert_eq!(at_once.phases[1], ("fenced", Duration::from_micros(50)));
}

#[test]
fn what_somebody_wanted_is_no_warning_and_what_nobody_explains_is_one() {
    let type_of = |reason| {
        let after = status(Vec::new(), vec![takeover(reason, TakeoverPhases::default())]);
        let found = news(&HAGroupStatus::default(), &after);
        (found.events[0].type_, found.takeovers[0])
    };
    assert_eq!(type_of("PodDeleted"), (EventType::Normal, "PodDeleted"));
    assert_eq!(type_of("LeaseExpired"), (EventType::Warning, "LeaseExpired"));
    assert_eq!(type_of(""), (EventType::Warning, "Unexplained"));
}
