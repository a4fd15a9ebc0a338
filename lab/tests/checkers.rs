//! What the claims of `cluster` judge by would see what it is there to see.

use std::collections::BTreeSet;
use std::slice;
use std::time::{Duration, Instant};

use lab::app::{Outage, Outcome, Sample};
use lab::bench::pairs::faults::Fault;
use lab::bench::pairs::site::Serving;

use lab::claims::endings::End;
use lab::claims::history::{Attempt, Log, Turns};
use lab::claims::lanes::{self, Lane, Need};
use lab::claims::ledger::Ledger;
use lab::claims::report::{self, Held};

/// Writes before the active fails; the standby has not got every third of them by then.
const WRITES: u32 = 10;

/// What a writer was told by a pair whose active fails after the last write, and what its successor has.
///
/// `waits`: a write is acknowledged only when the standby has it, too.
fn a_failure(waits: bool) -> (Log, BTreeSet<u32>) {
    let (mut log, mut standby, now) = (Log::default(), BTreeSet::new(), Instant::now());
    for number in 0..WRITES {
        let is_replicated = number % 3 != 2;
        if is_replicated {
            standby.insert(number);
        }
        let acknowledged = (is_replicated || !waits).then_some(now);
        log.note(Attempt { number, answered: now, acknowledged });
    }
    (log, standby)
}

#[test]
fn a_pair_that_waits_for_its_standby_loses_nothing_and_one_that_does_not_is_found_out() {
    let (log, kept) = a_failure(true);
    assert_eq!((log.acknowledged().count(), log.lost(&kept)), (7, vec![]));
    let (log, mut kept) = a_failure(false);
    assert_eq!((log.acknowledged().count(), log.lost(&kept)), (10, vec![2, 5, 8]));
    // What is written after the loss does not hide it.
    kept.extend(WRITES..2 * WRITES);
    assert_eq!(log.lost(&kept), [2, 5, 8]);
}

#[test]
fn outages_are_the_longest_times_without_an_answer_and_without_an_acknowledgement() {
    let start = Instant::now();
    let at = |milliseconds| start + Duration::from_millis(milliseconds);
    let mut log = Log::default();
    for (number, answered, acknowledged) in [(1, 0, Some(1)), (2, 90, None), (3, 100, Some(130))] {
        log.note(Attempt { number, answered: at(answered), acknowledged: acknowledged.map(at) });
    }
    assert_eq!(log.outages(at(50)), [90, 129].map(Duration::from_millis));
    assert_eq!([at(129), at(130)].map(|moment| log.is_acknowledged_after(moment)), [true, false]);
}

#[test]
fn two_that_act_at_the_same_time_are_told_from_two_that_take_turns() {
    let turns = |seen: &[&str]| {
        let mut turns = Turns::default();
        for who in seen {
            turns.note(who);
        }
        (turns.order.len(), turns.returned)
    };
    assert_eq!(turns(&["a", "a", "b", "b", "c"]), (3, BTreeSet::new()));
    assert_eq!(turns(&["a", "b", "a", "c"]), (4, ["a".to_owned()].into()));
}

/// A client's requests, each 10 ms: `a` answers, then nobody for a while, then `b`.
fn an_outage(lasts: Duration) -> End {
    let period = Duration::from_millis(10);
    let refused = u64::try_from(lasts.as_nanos() / period.as_nanos()).expect("a short time");
    let request = |number: u64| {
        let (outcome, pod) = match number.checked_sub(10) {
            None => (Outcome::Ok, "a"),
            Some(since) if since < refused => (Outcome::Refused, ""),
            Some(_) => (Outcome::Ok, "b"),
        };
        let start_ns = number * 10_000_000;
        Sample { start_ns, end_ns: start_ns + 1_000, outcome, pod: pod.to_owned() }
    };
    let samples: Vec<_> = (0..refused + 20).map(request).collect();
    let kept = Outage::from_samples(&samples);
    End { before: serving("a", "1"), after: serving("b", "2"), samples, kept, reason: None }
}

fn serving(pod: &str, epoch: &str) -> Serving {
    let epochs = [epoch.to_owned()].into();
    Serving { pod: pod.to_owned(), uid: pod.to_owned(), node: "n1".to_owned(), epochs }
}

#[test]
fn a_failover_that_waited_failed_requests_or_did_not_happen_is_found_out() {
    let wrong = |lasts, (reason, fault): (&str, Fault)| {
        End { reason: Some(reason.to_owned()), ..an_outage(lasts) }.wrong(fault).len()
    };
    let moment = Duration::from_millis(100);
    let (told, untold) = ("ApplicationEnded", "LeaseExpired");
    assert_eq!(wrong(moment, (told, Fault::ApplicationKilled)), 0);
    assert_eq!(wrong(moment, (untold, Fault::ApplicationKilled)), 1);
    assert_eq!([wrong(moment, (untold, Fault::NodeLost)), wrong(moment, (told, Fault::NodeLost))], [0, 1]);
    let deleted = ("PodDeleted", Fault::PodDeleted);
    assert_eq!([wrong(Duration::ZERO, deleted), wrong(moment, deleted)], [0, 1]);
    let mut unanswered = an_outage(moment);
    let silent = unanswered.samples.iter_mut().filter(|sample| !sample.is_ok());
    silent.for_each(|sample| sample.outcome = Outcome::Timeout);
    assert_eq!(
        unanswered.wrong(Fault::PodDeleted),
        [
            "requests failed: requests=30 failed=10 slow=0 out_ms=110.000 whole_again_ms=110.000 longest_gap_ms=110.000"
        ]
    );
    // Nobody may follow, and no request fail, be it on a kept connection.
    assert_eq!(wrong(moment, (told, Fault::ApiServerCutOff)), 3);
    let stays = End { after: serving("a", "1"), ..an_outage(moment) };
    assert_eq!(stays.wrong(Fault::ApplicationKilled).len(), 1);
    let ends = |answers| Outage::from_samples(&an_outage(moment).samples[..answers]);
    let cut = End { kept: ends(15), ..an_outage(moment) };
    assert_eq!(
        cut.wrong(Fault::ApplicationKilled).len(),
        1,
        "nobody answers on the kept connection in the end"
    );
    let mut silent = an_outage(moment);
    silent.samples.retain(|sample| sample.pod != "b");
    assert_eq!(silent.wrong(Fault::ApplicationKilled).len(), 2, "nobody else answers, and nobody in the end");
}

/// Most claims of the exhaustive search below: as many as are held at a time, and three that wait.
const CLAIMS_MAX: u32 = 7;

/// Holds claims of these lanes, of which the one that `ends` chooses ends whenever no more can start; returns their lanes in the
/// order of their starts.
fn held(lanes: &[Lane], ends: impl Fn(usize) -> usize) -> Vec<Lane> {
    let need = |(index, lane): (usize, &Lane)| Need { lane: *lane, seconds: u32::from(index % 2 == 0) };
    let mut waiting: Vec<Need> = lanes.iter().enumerate().map(need).collect();
    let (mut running, mut started) = (Vec::new(), Vec::new());
    loop {
        while let Some(index) = lanes::next(&waiting, &running) {
            let need = waiting.remove(index);
            running.push(need.lane);
            started.push(need.lane);
            let count = |lane: Lane| running.iter().filter(|one| **one == lane).count();
            assert!(count(Lane::Machine) == 0 || running.len() == 1, "{running:?} with company");
            assert!(count(Lane::Quiet) == 0 || running.len() <= 2, "{running:?} are not quiet");
            assert!(running.len() <= 4, "{running:?} are too many");
        }
        if running.is_empty() {
            return started;
        }
        running.remove(ends(running.len()));
    }
}

#[test]
fn no_claim_has_more_company_than_its_lane_allows_and_each_is_held_in_the_end() {
    for count in 0..=CLAIMS_MAX {
        for number in 0..3_usize.pow(count) {
            let digits = (0..count).map(|place| Lane::ALL[number / 3_usize.pow(place) % 3]);
            let lanes: Vec<Lane> = digits.collect();
            let first_ends: fn(usize) -> usize = |_| 0;
            let last_ends: fn(usize) -> usize = |running| running - 1;
            for ends in [first_ends, last_ends] {
                let mut started = held(&lanes, ends);
                assert!(started.is_sorted(), "{started:?} is not one lane after the other");
                let mut wanted = lanes.clone();
                wanted.sort_unstable();
                started.sort_unstable();
                assert_eq!(started, wanted);
            }
        }
    }
}

#[test]
fn the_longest_of_a_lane_comes_first_and_lanes_are_filled() {
    let needs =
        |lane, seconds: &[u32]| seconds.iter().map(|seconds| Need { lane, seconds: *seconds }).collect();
    let waiting: Vec<Need> = needs(Lane::Any, &[3, 9, 5]);
    assert_eq!(lanes::next(&waiting, &[]), Some(1));
    assert_eq!(lanes::next(&waiting, &[Lane::Any; 3]), Some(1));
    assert_eq!(lanes::next(&waiting, &[Lane::Any; 4]), None);
    assert_eq!(lanes::next(&waiting, &[Lane::Quiet]), Some(1), "where a lane ends");
    assert_eq!(lanes::next(&waiting, &[Lane::Quiet; 2]), None);
    assert_eq!(lanes::next(&waiting, &[Lane::Machine]), None);
    assert_eq!(lanes::next(&needs(Lane::Machine, &[1]), &[Lane::Any]), None);
    assert_eq!(lanes::next(&[], &[]), None);
}

#[test]
fn names_that_several_claims_have_are_found() {
    assert_eq!(lanes::repeated(&["b", "a", "c"]), [""; 0]);
    assert_eq!(lanes::repeated(&["b", "a", "b", "c", "b", "c"]), ["b", "c"]);
}

#[test]
fn a_complaint_is_blamed_on_the_claim_of_its_namespace_or_on_all_that_are_held_and_never_dropped() {
    let of = |namespace: &str| format!("ERROR reconcile: panicked namespace=\"{namespace}\" set=\"web\"");
    let (of_one, of_other, of_former) = (of("claim-1"), of("claim-11"), of("claim-7"));
    let nowhere = "WARN elector: leases is forbidden: User \"operator\"".to_owned();
    let mut ledger = Ledger::default();

    let mut one = ledger.begin("claim-1");
    ledger.enter([of_one.clone()]);
    let mut other = ledger.begin("claim-11");
    ledger.enter([of_other.clone(), nowhere.clone(), of_former.clone()]);
    assert_eq!(ledger.blamed_on("claim-1", &mut one), [of_one.clone(), nowhere.clone(), of_former.clone()]);
    assert_eq!(ledger.blamed_on("claim-1", &mut one), [""; 0], "it is told once");
    ledger.end("claim-1");
    assert_eq!(ledger.blamed_on("claim-11", &mut other), [of_other, nowhere, of_former]);
    assert_eq!(ledger.unblamed().count(), 0);

    ledger.enter([of_one.clone()]);
    assert_eq!(ledger.blamed_on("claim-11", &mut other), slice::from_ref(&of_one), "its own claim has ended");
    ledger.end("claim-11");
    ledger.enter([of_one.clone()]);
    assert_eq!(ledger.unblamed().collect::<Vec<_>>(), [of_one], "no claim is held");
}

#[test]
fn the_report_tells_of_each_claim_and_each_lane_and_ends_with_both_counts() {
    let claim = |name, lane, (began, ended), problem: Option<&str>| Held {
        name,
        lane,
        began: Duration::from_secs(began),
        ended: Duration::from_secs(ended),
        problem: problem.map(str::to_owned),
    };
    let held = [
        claim("short", Lane::Any, (10, 12), None),
        claim("long", Lane::Any, (11, 21), Some("why")),
        claim("alone", Lane::Machine, (0, 10), None),
    ];
    assert_eq!(
        report::report(&held),
        "seconds  lane     claim
   10.0  Any      long
   10.0  Machine  alone
    2.0  Any      short

lane     claims  seconds  from first to last
Machine       1     10.0                10.0
Any           2     12.0                11.0

2 of 3 claims hold
2 passed, 1 failed"
    );
}
