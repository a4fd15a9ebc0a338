//! What must be possible: the model reaches each of these worlds. `scripts` goes the same ways with whole agents.

use bps_protocol::{AgentId, Hold, Purpose, Role};

use crate::arena::Arena;
use crate::model::{Goal, Search};
use crate::world::{A, NOW, S, S2, World};

fn is_claiming(world: &World) -> bool {
    let unresolved = world.at(S).and_then(|agent| agent.unresolved);
    world.at(A).is_none() && unresolved.is_some_and(|unresolved| unresolved.purpose == Purpose::Claim)
}

fn is_bound(world: &World) -> bool {
    world.at(S).is_some_and(|agent| NOW < agent.promise_end)
}

/// Each goal with the arena that must lead to it.
fn goals() -> Vec<(&'static str, Arena, Goal)> {
    let calm = || Arena { may_restart: false, ..Arena::pair().faults(1) };
    let without_api = || Arena { has_api: false, ..calm() };
    let dying = || Arena { may_die: true, may_crash: false, ..calm() };
    let trio = || Arena { may_die: true, may_crash: false, may_restart: false, ..Arena::trio().packets(1) };
    vec![
        ("a crash is handed over while the API server is away", without_api(), |world| {
            world.role(S) == Some(Role::Active)
                && world.at(S).is_some_and(|agent| agent.epoch > world.lease.epoch)
        }),
        ("promises alone keep the active acting", without_api(), |world| {
            let tenure =
                world.at(A).filter(|agent| agent.role == Role::Active).and_then(|agent| agent.tenure);
            tenure.is_some_and(|tenure| tenure.api_hold_end <= NOW)
        }),
        ("the pair lives in Peer mode", calm(), |world| {
            let active = world.at(A).filter(|agent| agent.role == Role::Active);
            world.lease.hold == Hold::Peer && active.is_some_and(|agent| agent.unresolved.is_none())
        }),
        ("a dead active is followed by expiry", dying().plain(), is_claiming),
        ("a dead active is followed from Peer mode", dying().without_certificates(), |world| {
            world.lease.hold == Hold::Peer && is_claiming(world)
        }),
        ("a certificate voids the promise", dying(), |world| is_claiming(world) && is_bound(world)),
        ("the survivor gets a new partner", trio().plain(), |world| {
            let tenure =
                world.at(S).filter(|agent| agent.role == Role::Active).and_then(|agent| agent.tenure);
            world.at(A).is_none() && tenure.is_some_and(|tenure| tenure.peer.id == S2)
        }),
        (
            "an active whose peer is dead becomes a lone one and gets a new partner",
            trio().vacating().plain(),
            |world| {
                let tenure =
                    world.at(A).filter(|agent| agent.role == Role::Active).and_then(|agent| agent.tenure);
                world.at(S).is_none()
                    && tenure.is_some_and(|tenure| tenure.peer.id == AgentId::NOBODY)
                    && world.lease.is_lone()
                    && world.lease.pending.is_some_and(|pending| pending.joining == S2)
            },
        ),
        ("the new partner acts when both members are dead", trio().plain().faults(2), |world| {
            world.role(S2) == Some(Role::Active) && world.at(A).is_none() && world.at(S).is_none()
        }),
    ]
}

#[test]
fn every_way_to_recover_is_possible() {
    for (name, arena, goal) in goals() {
        let found = Search { goal: Some(goal), ..Search::of(arena) }.run();
        let reached = found.broken.map(|(property, steps)| (property, steps.len()));
        println!("{name}: {} worlds, {:.1?}, {reached:?}", found.worlds, found.time);
        assert!(matches!(reached, Some(("goal", _))), "{name}");
    }
}
