//! What is searched: arenas in which the invariants must hold, and mutations that must break one of them.
//!
//! `cargo test` runs the small ones; `make explore` runs all, in an optimised build. With a text in the environment
//! variable `ARENA` it searches only the large arenas whose names contain it.

use std::collections::BTreeSet;
use std::num::NonZero;

use bps_protocol::{Role, TRANSITIONS, diagram};

use crate::arena::{Arena, SKEW, ticks};
use crate::lean;
use crate::model::{Changes, Found, Search};
use crate::mutations::Mutation;

/// How much is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// In every run of the tests.
    Small,
    /// In `make explore` only.
    Large,
    /// Hours, and only if it is asked for by name; with so many worlds, only their fingerprints are kept.
    Huge,
}
use Size::{Huge, Large, Small};

/// Arenas in which every invariant must hold in every world.
fn arenas() -> Vec<(Size, &'static str, Arena)> {
    let (pair, trio) = (Arena::pair, Arena::trio);
    let switching = |arena: Arena| Arena { may_switch_over: true, ..arena };
    let slowly = |arena: Arena| Arena { may_switch_over: true, stops_slowly: true, ..arena };
    let late = |arena: Arena| Arena { may_notice_late: true, ..arena };
    let stopping = |arena: Arena| arena.with(|timing| timing.stop = ticks(1));
    let converging = |arena: Arena| Arena { must_converge: true, may_die: true, ..arena };
    let one_takeover = |arena: Arena| Arena { most_terms: 2, most_delegations: 1, ..arena };
    vec![
        (Small, "pair, 1 packet, 1 fault", pair().packets(1).faults(1)),
        (
            Small,
            "pair, no fault, starts released",
            Arena { starts_released: true, ..pair().packets(1).faults(0) },
        ),
        (
            Small,
            "pair, X = 1, 1 packet, 1 fault, late notice, certificates only",
            Arena {
                may_restart: false,
                ..late(switching(stopping(pair().packets(1).faults(1).without_peer_mode())))
            },
        ),
        (
            Small,
            "trio, G = 2, 1 packet, no fault, one takeover, plain",
            one_takeover(trio().packets(1).faults(0).plain())
                .with(|timing| (timing.grace, timing.operator_wait) = (ticks(2), ticks(2))),
        ),
        (Small, "fast pair, 1 packet, 1 fault", pair().with_fast_peers().packets(1).faults(1)),
        (
            Small,
            "fast pair, 1 packet, no fault, converges",
            converging(one_takeover(pair().with_fast_peers().packets(1).faults(0))),
        ),
        (Large, "fast pair, 1 fault, switchover", switching(pair().with_fast_peers().faults(1))),
        (
            Large,
            "fast pair, X = 1, 1 packet, 1 fault, switchover",
            switching(stopping(pair().with_fast_peers().packets(1).faults(1))),
        ),
        (
            Large,
            "drifting fast pair, 1 packet, 1 fault",
            Arena::drifting_pair().with_fast_peers().packets(1).faults(1),
        ),
        (
            Large,
            "fast trio, G = 4, 1 packet, no fault, one takeover",
            one_takeover(trio().with_fast_peers().packets(1).faults(0))
                .with(|timing| (timing.grace, timing.operator_wait) = (ticks(4), ticks(4))),
        ),
        (
            Large,
            "fast lone, 1 packet, no fault, one takeover",
            one_takeover(Arena::lone().with_fast_peers().packets(1).faults(0)),
        ),
        (Small, "pair, 1 packet, 1 fault, switchover, stops slowly", slowly(pair().packets(1).faults(1))),
        (Large, "pair, 1 fault, switchover, stops slowly", slowly(pair().faults(1))),
        (
            Large,
            "drifting pair, 1 packet, 1 fault, switchover, stops slowly",
            slowly(Arena::drifting_pair().packets(1).faults(1)),
        ),
        (
            Large,
            "trio, 1 packet, 1 fault, one takeover, switchover, stops slowly",
            slowly(one_takeover(trio().packets(1).faults(1))),
        ),
        (
            Large,
            "lone, 1 packet, 1 fault, switchover, stops slowly",
            slowly(Arena::lone().packets(1).faults(1)),
        ),
        (Small, "lone, 1 packet, no fault, one takeover", one_takeover(Arena::lone().packets(1).faults(0))),
        (
            Small,
            "lone, 1 packet, 1 fault, one takeover, evidence, plain",
            one_takeover(Arena::lone().with_evidence().packets(1).plain()),
        ),
        (Large, "lone, 1 packet, 1 fault", Arena::lone().packets(1)),
        (
            Small,
            "vacating trio, 1 packet, no fault, one takeover, no delegation, plain",
            Arena { most_delegations: 0, ..one_takeover(trio().vacating().packets(1).faults(0).plain()) },
        ),
        (
            Large,
            "vacating trio, 1 packet, no fault, one takeover",
            one_takeover(trio().vacating().packets(1).faults(0)),
        ),
        (
            Large,
            "vacating trio, 1 packet, 1 fault, one takeover, evidence, plain",
            one_takeover(trio().vacating().with_evidence().packets(1).plain()),
        ),
        (Huge, "vacating trio, 1 packet, 1 fault", trio().vacating().packets(1)),
        (
            Large,
            "drifting vacating trio, 1 packet, no fault, one takeover",
            one_takeover(Arena::drifting_trio().vacating().packets(1)),
        ),
        (Large, "lone, 1 fault, one takeover", one_takeover(Arena::lone())),
        (Large, "drifting lone, 1 packet, no fault", Arena::drifting_lone().packets(1)),
        (
            Large,
            "trio, 1 packet, 2 faults, one takeover, evidence, plain",
            one_takeover(trio().with_evidence().packets(1).faults(2).plain()),
        ),
        (Large, "trio, 1 packet, no fault, one takeover", one_takeover(trio().packets(1).faults(0))),
        (Small, "pair, 1 packet, no fault, converges", converging(one_takeover(pair().packets(1).faults(0)))),
        (Large, "pair, 1 packet, 1 fault, converges", converging(pair().packets(1).faults(1))),
        (Large, "pair, 1 fault, late notice", late(pair().faults(1))),
        (Large, "pair, 2 faults, late notice, switchover", switching(late(pair()))),
        (Large, "pair, X = 1, 1 fault, switchover", switching(stopping(pair().faults(1)))),
        (Large, "drifting pair, 1 packet, 2 faults", Arena::drifting_pair().packets(1)),
        (Large, "drifting pair, 1 fault", Arena::drifting_pair().faults(1)),
        (
            Large,
            "drifting pair, 1 fault, starts released",
            Arena { starts_released: true, ..Arena::drifting_pair().faults(1) },
        ),
        (Large, "trio, 1 packet, 1 fault", trio().packets(1)),
        (Huge, "drifting pair, 2 faults", Arena::drifting_pair()),
        (Huge, "pair, 2 faults, converges", converging(pair())),
        (Huge, "trio, 1 fault, one takeover", one_takeover(trio())),
        (Huge, "trio, 2 packets, 1 fault", trio()),
        (Large, "trio, 1 packet, 1 fault, late notice, one takeover", late(one_takeover(trio().packets(1)))),
        (Large, "drifting trio, 1 packet, no fault", Arena::drifting_trio().packets(1)),
        (Huge, "drifting trio, no fault", Arena::drifting_trio()),
        (Huge, "drifting trio, 1 packet, 1 fault", Arena::drifting_trio().packets(1).faults(1)),
        (Huge, "drifting trio, 1 fault, one takeover", one_takeover(Arena::drifting_trio().faults(1))),
    ]
}

/// Each mutation with the invariant that it breaks, in the smallest arena that shows it.
fn mutations() -> Vec<(Size, &'static str, Mutation, Arena)> {
    use Mutation::*;
    let certified = || Arena::pair().without_peer_mode();
    let peered = || Arena::pair().without_certificates();
    let plain = || Arena::pair().plain();
    let stopping = || plain().packets(1).faults(1).with(|timing| timing.stop = ticks(1));
    let plain_trio = || Arena::trio().plain();
    // The lone wait is over before the grace is.
    let late_trio = || {
        plain_trio().vacating().packets(1).faults(0).with(|timing| {
            (timing.grace, timing.operator_wait) = (ticks(5), ticks(5));
        })
    };
    vec![
        (Small, "I1", ApiHoldFromAnswer, plain().faults(0)),
        (Small, "I1", PeerHoldFromAnswer, plain().faults(0)),
        (Small, "I1", StopsAtExpiry, stopping()),
        (Small, "I1", NoGrace, plain_trio().faults(0).packets(1)),
        (Small, "I1", SwitchKeepsApiHold, peered().faults(0).packets(1)),
        (Small, "I1", LateAnswerCounts, peered().faults(0)),
        (Small, "I1", StartsAgainInTenure, certified().faults(1)),
        (Large, "I1", NotOvertaken, Arena::trio().without_peer_mode()),
        (Small, "I1", PromiseBindsNobody, peered().faults(0).packets(1)),
        (Small, "I1", PromiseLastsHold, Arena::drifting_pair().plain().faults(0).packets(1)),
        (Small, "I1", PeerWriteGivesApiHold, peered().faults(0)),
        (Small, "I1", ClaimIgnoresPromise, peered().faults(0).packets(1)),
        (Large, "I1", ClaimIgnoresMembers, Arena::trio().without_peer_mode()),
        (Small, "I4", ClaimsWithoutCas, peered().faults(0)),
        (Small, "I1", HoldFromRead, plain().faults(0)),
        (Small, "I3", TakeoverRaisesSequence, plain()),
        (Small, "I4", ActsUnanswered, plain()),
        (Small, "I1", CertificateOfAnyTenure, certified().faults(1)),
        (Small, "I1", CertificateIgnoresLease, certified().faults(1)),
        (Small, "I1", ResumesAfterHandover, plain().faults(1)),
        (Small, "C", NoRepeat, Arena { must_converge: true, ..plain().packets(1).faults(1) }),
        (Small, "I2", HandsOverAfterLapse, plain().faults(1)),
        (Small, "I1", HandoverIsNoPromise, peered().faults(1)),
        (Small, "I3", HandsOverToRestarted, certified()),
        (Small, "I1", HoldFromReceipt, plain().faults(2)),
        (Small, "I3", AcceptsAnyEpoch, plain().faults(1)),
        (Large, "I1", FreshGrace, plain_trio()),
        (Large, "I1", HandsOverWhileAdmitting, plain_trio()),
        (Small, "I3", ReusesIncarnation, plain()),
        (Small, "I1", ReleasesAfterHandover, plain().faults(1)),
        (Small, "I1", ReleasesWhileStopping, stopping()),
        (Small, "I1", AdmissionKeepsOldPeer, plain_trio().faults(0)),
        (Small, "I1", AdmissionKeepsLoneHold, Arena::lone().plain().packets(1).faults(0)),
        (Small, "I1", LoneHoldUnanswered, plain_trio().vacating().packets(1).faults(0)),
        (Large, "I1", VacancyPromisesForEver, late_trio()),
        (Small, "I1", EvidenceOfOne, plain_trio().with_evidence().packets(1).faults(1)),
        (Small, "I1", RestartIsNoPromise, peered().packets(1).faults(1)),
        (Large, "I1", CertificateSurvivesRestart, certified().faults(3)),
    ]
}

/// Times that break an inequality, and the invariant that breaks with them.
fn bad_times() -> Vec<(Size, &'static str, &'static str, Arena)> {
    let plain_trio = || Arena::trio().plain().packets(1).faults(0);
    vec![
        (
            Small,
            "I1",
            "T1: H = T + 1",
            Arena::pair().without_certificates().packets(1).faults(0).with(|timing| timing.hold = ticks(3)),
        ),
        (
            Small,
            "I1",
            "T1: Ha = Ta + 1",
            Arena::pair().plain().packets(1).faults(0).with(|timing| timing.api_hold = ticks(3)),
        ),
        (
            Small,
            "I1",
            "T1: T = H + drift - 1",
            Arena::drifting_pair().plain().faults(0).packets(1).with(|timing| timing.watch = ticks(1 + SKEW)),
        ),
        (
            Small,
            "I1",
            "T1: Ta = Ha + drift - 1",
            Arena::drifting_pair()
                .plain()
                .faults(0)
                .packets(1)
                .with(|timing| timing.api_watch = ticks(1 + SKEW)),
        ),
        (Small, "I1", "T2, R6: W = 0", plain_trio().with(|timing| timing.operator_wait = ticks(0))),
        (Small, "I1", "T2: W = G - 1", plain_trio().with(|timing| timing.operator_wait = ticks(2))),
        (
            Small,
            "I1",
            "T8: the wait for a lone one is a tick shorter than its hold",
            Arena::lone().plain().packets(1).faults(0).with(|timing| timing.lone_wait = ticks(2)),
        ),
        (
            Large,
            "I1",
            "T8: the wait for a lone one is longer than its hold by a tick less than the drift",
            Arena::drifting_lone().plain().packets(1).with(|timing| timing.lone_wait = ticks(2 + SKEW)),
        ),
        (
            Large,
            "I1",
            "T2: W = G + drift - 1",
            Arena::drifting_trio().plain().packets(1).with(|timing| timing.operator_wait = ticks(2 + SKEW)),
        ),
    ]
}

fn searched(name: &str, search: Search) -> Found {
    let found = search.run();
    let broken =
        found.broken.as_ref().map(|(invariant, steps)| format!("{invariant} after {} steps", steps.len()));
    println!("{name}: {} worlds, {:.1?}, {}", found.worlds, found.time, broken.as_deref().unwrap_or("holds"));
    found
}

fn check_lean(name: &str, search: &Search) {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let found = lean::run(search, threads);
    println!("{name}: {} worlds, {:.1?} with {threads} threads", found.worlds, found.time);
    assert!(found.broken.is_none(), "{name}: {:#?}", found.broken);
}

/// Every change of role that happened.
fn check_arenas(size: Size) -> BTreeSet<(Role, Role)> {
    let changes = Changes::default();
    let wanted = std::env::var("ARENA").unwrap_or_default();
    let is_sized = |other| other == size || (other, size) == (Huge, Large) && !wanted.is_empty();
    let chosen = |(other, name, _): &(Size, &str, Arena)| is_sized(*other) && name.contains(&wanted);
    for (size, name, arena) in arenas().into_iter().filter(chosen) {
        if size == Huge {
            check_lean(name, &Search::of(arena));
            continue;
        }
        let found = searched(name, Search { changes: Some(changes.clone()), ..Search::of(arena) });
        assert!(found.broken.is_none(), "{name}: {:#?}", found.broken);
    }
    changes.lock().expect("nobody panics").clone()
}

fn check_mutations(size: Size) {
    let named = mutations().into_iter().map(|(size, invariant, mutation, arena)| {
        (size, invariant, format!("{mutation:?}"), arena.mutated(mutation))
    });
    let times = bad_times()
        .into_iter()
        .map(|(size, invariant, name, arena)| (size, invariant, name.to_owned(), arena));
    for (_, invariant, name, arena) in named.chain(times).filter(|(other, ..)| *other == size) {
        let found = searched(&name, Search::of(arena));
        assert_eq!(found.broken.map(|(broken, _)| broken), Some(invariant), "{name}");
    }
}

#[test]
fn the_invariants_hold_in_every_world_and_roles_change_as_the_table_says() {
    let changes = check_arenas(Small);
    let table: BTreeSet<_> = TRANSITIONS.iter().map(|row| (row.from, row.to)).collect();
    assert_eq!(table.len(), TRANSITIONS.len(), "two rows for one change");
    assert_eq!(changes, table);
}

/// Both searches look at the same worlds, and end at a world that should not be.
#[test]
fn a_lean_search_finds_what_the_other_finds() {
    let arena = || Arena::pair().packets(1).faults(1);
    let whole = Search::of(arena()).run();
    let bad = arena().plain().with(|timing| timing.hold = ticks(3));
    for threads in [1, 3] {
        let found = lean::run(&Search::of(arena()), threads);
        assert_eq!((found.worlds, found.broken.is_some()), (whole.worlds, false));
        let found = lean::run(&Search::of(bad.clone()), threads);
        assert_eq!(found.broken.map(|(invariant, _)| invariant), Some("I1"));
    }
}

#[test]
fn every_deviation_from_a_rule_breaks_an_invariant() {
    check_mutations(Small);
}

#[test]
#[ignore = "minutes to hours in an optimised build: make explore"]
fn explore_arenas() {
    let table: BTreeSet<_> = TRANSITIONS.iter().map(|row| (row.from, row.to)).collect();
    assert!(check_arenas(Large).is_subset(&table));
}

#[test]
#[ignore = "minutes in an optimised build: make explore"]
fn explore_mutations() {
    check_mutations(Large);
}

#[test]
fn the_documents_show_the_table() {
    for document in
        [include_str!("../../../../docs/handover-protocol.md"), include_str!("../../../../README.md")]
    {
        assert!(
            document.contains(&format!("```mermaid\n{}```", diagram())),
            "write this instead:\n{}",
            diagram()
        );
    }
}
