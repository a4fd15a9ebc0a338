//! Applications that outlast a planned handover, where the group wants that; failures stay as they are.

use std::time::Duration;

use bps_api::HandoverOrder;

use crate::turmoil::machine::Flaw;
use crate::turmoil::record::{Span, check, check_settled, spans};
use crate::turmoil::scene::run;
use crate::turmoil::script::{End, Fault, PODS, Planned, Script};

/// When a fault happens, in true time.
const STRUCK: Duration = Duration::from_secs(4);
/// How long an application goes on once its successor acts: as long as the rules of nodes may lead clients to it.
const RELIEVED_AFTER: Duration = Duration::from_secs(2);
/// How long an application goes on whose successor is never heard of.
const LINGERS: Duration = Duration::from_secs(10);
/// How long it may take to end: an obedient one has ended before, a stubborn one is killed then.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Longest delays of messages, alarms and starts that count in a verdict.
const SLACK: Duration = Duration::from_millis(500);
/// From when on exactly one acts.
const SETTLED: Duration = Duration::from_secs(25);
/// Seeds of each claim: obedient and stubborn applications, either Pod the first active.
const SEEDS: std::ops::Range<u64> = 1..3;

/// Tenures of a run of Pods that make before they break, in which these faults happen at the same moment.
fn tenures(seed: u64, faults: &[Fault]) -> Vec<Span> {
    let mut quiet = Script::quiet();
    quiet.habits.iter_mut().for_each(|habits| habits.handover = HandoverOrder::MakeBeforeBreak);
    let at = Duration::from_secs(1);
    let planned = |fault: &Fault| Planned { at, fault: *fault, lasts: Duration::from_secs(60) };
    let script = Script { faults: faults.iter().map(planned).collect(), ..quiet };
    let outcome = run(seed, &script, Flaw::default()).expect("no agent ends with an error");
    let spans = spans(&outcome.entries);
    assert!(spans.is_sorted_by_key(|span| span.epoch), "{spans:?}");
    spans
}

/// Who acts when a fault happens.
fn first_active(seed: u64) -> usize {
    let tenures = tenures(seed, &[]);
    assert_eq!(tenures.len(), 1, "{tenures:?}");
    ["a", "b"].iter().position(|name| *name == tenures[0].node).expect("a member")
}

/// The old application was there when the new one began to act, and was asked to end so long after the fault.
fn outlasted(old: &Span, new: &Span, asked_after: Duration) {
    assert_ne!(old.node, new.node);
    let (asked, to) = (STRUCK + asked_after, old.to.expect("it ended"));
    assert!(new.from < to, "{old:?} was not there when {new:?} began");
    assert!((asked..=asked + ENDS_WITHIN + SLACK).contains(&to), "{old:?} was asked to end at {asked:?}");
}

#[test]
fn in_a_switchover_the_old_application_goes_on_until_the_new_one_has_served_for_a_while() {
    for seed in SEEDS {
        let tenures = tenures(seed, &[Fault::SwitchOver]);
        let [old, new] = &tenures[..] else { panic!("{tenures:?}") };
        outlasted(old, new, RELIEVED_AFTER);
        assert_eq!(check_settled(&tenures, SETTLED), Ok(()));
    }
}

#[test]
fn a_pod_that_is_asked_to_end_ends_after_its_successor_serves() {
    for seed in SEEDS {
        let tenures = tenures(seed, &[Fault::Leaves(first_active(seed))]);
        let [old, new] = &tenures[..] else { panic!("{tenures:?}") };
        outlasted(old, new, RELIEVED_AFTER);
        assert_eq!(check_settled(&tenures, SETTLED), Ok(()));
    }
}

#[test]
fn an_application_whose_successor_is_never_heard_of_ends_at_the_bound() {
    for seed in SEEDS {
        let old = first_active(seed);
        let deaf = [End::Pod(1 - old), End::Pod(PODS - 1), End::Api];
        let cuts = deaf.map(|from| Fault::CutOneWay(from, End::Pod(old)));
        let tenures = tenures(seed, &[&cuts[..], &[Fault::Leaves(old)]].concat());
        let [old, new, ..] = &tenures[..] else { panic!("{tenures:?}") };
        outlasted(old, new, LINGERS);
    }
}

#[test]
fn an_application_whose_agent_acts_again_ends_before_the_next_one_starts_there() {
    for seed in SEEDS {
        let old = first_active(seed);
        let tenures = tenures(seed, &[Fault::SwitchOver, Fault::NodeDies(1 - old)]);
        for node in ["a", "b"] {
            let of_node: Vec<Span> = tenures.iter().filter(|span| span.node == node).copied().collect();
            assert_eq!(check(&of_node), Ok(()));
        }
        assert_eq!(check_settled(&tenures, SETTLED), Ok(()));
    }
}

#[test]
fn failures_know_no_overlap() {
    for seed in SEEDS {
        let old = first_active(seed);
        let cut_off = [End::Pod(1 - old), End::Api].map(|end| Fault::Cut(End::Pod(old), end));
        let failures = [
            &[Fault::ApplicationEnds(old)][..],
            &[Fault::ContainerDies(old)],
            &[Fault::NodeDies(old)],
            &cut_off,
        ];
        for faults in failures {
            let tenures = tenures(seed, faults);
            assert!(tenures.len() >= 2, "{faults:?}: {tenures:?}");
            assert_eq!(check(&tenures), Ok(()), "{faults:?}");
        }
    }
}
