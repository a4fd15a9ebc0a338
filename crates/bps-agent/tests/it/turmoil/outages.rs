//! The API server is away for long: nothing ends because of that, and the agents pass the role on between themselves.

use std::time::Duration;

use bps_protocol::Timing;

use crate::turmoil::machine::Flaw;
use crate::turmoil::record::{Span, spans};
use crate::turmoil::scene::{FAULTS_FROM, NAMES, run};
use crate::turmoil::script::{Fault, LONG_GRACE, Planned, Script};

/// When the API server goes, after faults begin.
const AT: Duration = Duration::from_secs(1);
const SECOND: Duration = Duration::from_secs(1);
/// How long a standby may take to act whose active's application has ended by itself: to end what is left of it, a round trip, and
/// a start.
const FOLLOWS_WITHIN: Duration = SECOND;

/// Tenures of a pair with these times, while the API server is away for so long; applications end so long after it has gone.
fn tenures(seed: u64, timing: &Timing, away: Duration, ends: &[Duration]) -> Vec<Span> {
    let stops = Planned { at: AT, fault: Fault::ApiStops, lasts: away };
    let end = |pod| {
        move |after: &Duration| Planned { at: AT + *after, fault: Fault::ApplicationEnds(pod), lasts: SECOND }
    };
    // One of the two acts; nothing ends in the other one.
    let ends = ends.iter().flat_map(|after| [0, 1].map(|pod| end(pod)(after)));
    let faults = std::iter::once(stops).chain(ends).collect();
    let calm = FAULTS_FROM + AT + away + 15 * SECOND;
    let script = Script { faults, timing: *timing, calm, ..Script::quiet() };
    let outcome = run(seed, &script, Flaw::default()).expect("no agent ends with an error");
    assert_eq!(outcome.verdict, Ok(()), "seed {seed}: {:#?}", outcome.entries);
    spans(&outcome.entries)
}

/// Each began soon after the one before it had ended.
fn follow_at_once(spans: &[Span]) {
    for pair in spans.windows(2) {
        let (former, next) = (&pair[0], &pair[1]);
        assert_ne!(former.node, next.node, "{spans:?}");
        let ended = former.to.expect("it was followed");
        assert!(next.from <= ended + FOLLOWS_WITHIN, "{spans:?}");
    }
}

/// Whether the API server is there or not, as often as the application of whoever acts ends by itself.
///
/// Machines now and then cannot start a command, by their seed. Whoever is handed the role and cannot start its application at once
/// has not heard its peer yet, so that it cannot hand back: it needs the API server, and nobody acts before that is there.
fn outlives(away: Duration, seeds: [u64; 2]) {
    let timing = Timing::default().outliving(away);
    for seed in seeds {
        let undisturbed = tenures(seed, &timing, away, &[]);
        assert_eq!(undisturbed.len(), 1, "nothing else happened: {undisturbed:?}");
        let ends = [away / 2, away.saturating_sub(SECOND)];
        let spans = tenures(seed, &timing, away, &ends);
        assert_eq!(spans.len(), 1 + ends.len(), "{spans:?}");
        follow_at_once(&spans);
    }
}

#[test]
fn a_pair_outlives_an_api_server_that_is_away_for_minutes() {
    outlives(150 * SECOND, [1, 2]);
}

#[test]
#[ignore = "a long search, see `make explore`"]
fn a_pair_outlives_an_api_server_that_is_away_for_an_hour() {
    outlives(3_600 * SECOND, [1, 3]);
}

/// The other way round: whoever is not made for it ends when the operator may think that nobody acts any more.
#[test]
fn a_pair_that_is_to_outlive_no_absence_ends_within_a_minute_of_its_last_write() {
    let spans = tenures(1, &Timing::default(), 90 * SECOND, &[]);
    let [first, second] = &spans[..] else { panic!("it ended, and began again: {spans:?}") };
    let ended = first.to.expect("it ended");
    let gone = FAULTS_FROM + AT;
    assert!((gone + 29 * SECOND..=gone + 60 * SECOND).contains(&ended), "{spans:?}");
    assert!(second.from >= gone + 90 * SECOND, "{spans:?}");
}

/// Nobody reaches the API server, and the Pod that acts is asked to end: a quarter of all applications do not listen to that. How long it
/// acted on, and how long nobody did then.
fn ended_in_order(seed: u64) -> [Duration; 2] {
    let timing = Timing::default().outliving(60 * SECOND);
    let quiet = || {
        let mut quiet = Script { timing, calm: FAULTS_FROM + 40 * SECOND, ..Script::quiet() };
        quiet.habits.iter_mut().for_each(|habits| habits.end_within = LONG_GRACE);
        quiet
    };
    let played = |faults: Vec<Planned>| {
        let outcome = run(seed, &Script { faults, ..quiet() }, Flaw::default()).expect("no agent fails");
        assert_eq!(outcome.verdict, Ok(()), "seed {seed}: {:#?}", outcome.entries);
        spans(&outcome.entries)
    };
    let stops = Planned { at: AT, fault: Fault::ApiStops, lasts: 30 * SECOND };
    let acts = played(vec![stops])[0].node;
    let acts = NAMES.into_iter().position(|name| name == acts).expect("it is a Pod");
    let asked = AT + SECOND;
    let leaves = Planned { at: asked, fault: Fault::Leaves(acts), lasts: 30 * SECOND };
    let tenures = played(vec![stops, leaves]);
    let [first, second, ..] = &tenures[..] else { panic!("nobody followed: {tenures:?}") };
    assert_ne!(first.node, second.node, "{tenures:?}");
    let ended = first.to.expect("it ended");
    [ended.saturating_sub(FAULTS_FROM + asked), second.from.saturating_sub(ended)]
}

#[test]
fn an_application_that_ends_slowly_has_its_time_and_is_followed_at_once_also_without_an_api_server() {
    // On the machines of the seed 1 the successor's command cannot be started at once, see above.
    let all: Vec<[Duration; 2]> = (2..12).map(ended_in_order).collect();
    let slowest = all.iter().map(|[acted_on, _]| *acted_on).max().expect("there are some");
    // Two holds and a second are left for the handover; nothing is relayed.
    let given = Duration::from_secs(LONG_GRACE).saturating_sub(2 * Timing::default().hold + SECOND);
    assert!(given.abs_diff(slowest) <= Timing::default().stop, "{given:?}: {all:?}");
    assert!(all.iter().all(|[_, nobody]| *nobody < FOLLOWS_WITHIN), "{all:?}");
}

/// What a pair does whose standby is lost with its node, while something else breaks for 3 s at the same time.
fn tenures_of_whoever_is_left(seed: u64, beside: impl Fn(usize) -> Fault) -> Vec<Span> {
    let quiet = Script { timing: Timing::default(), calm: FAULTS_FROM + 20 * SECOND, ..Script::quiet() };
    let played = |faults: Vec<Planned>| {
        let outcome =
            run(seed, &Script { faults, ..quiet.clone() }, Flaw::default()).expect("no agent fails");
        assert_eq!(outcome.verdict, Ok(()), "seed {seed}: {:#?}", outcome.entries);
        spans(&outcome.entries)
    };
    let acts = played(Vec::new())[0].node;
    let acts = NAMES.into_iter().position(|name| name == acts).expect("it is a Pod");
    let lost = Planned { at: AT, fault: Fault::NodeDies(1 - acts), lasts: 10 * SECOND };
    let tenures = played(vec![lost, Planned { at: AT, fault: beside(acts), lasts: 3 * SECOND }]);
    assert_eq!(tenures[0].node, NAMES[acts], "{tenures:?}");
    tenures
}

/// An API server on the lost node, or etcd whose leader was there: answers are late, and the first ones may not come at all.
///
/// 0.8 s: a write, and the renewal that follows its answer, have to be answered within a hold less the time that stopping takes.
#[test]
fn a_lost_standby_does_not_end_the_active_although_the_api_server_is_slow() {
    let late = [300, 800].map(Duration::from_millis);
    for (seed, late) in (1..=5).flat_map(|seed| late.map(|late| (seed, late))) {
        let tenures = tenures_of_whoever_is_left(seed, |_| Fault::ApiLate(late));
        assert_eq!(tenures.len(), 1, "seed {seed}, {late:?} late: {tenures:?}");
    }
}
