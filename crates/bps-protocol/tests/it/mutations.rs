//! Deviations from the rules, one each: they tamper with what a real rule is given or with what it made of it.

use bps_protocol::{
    Agent, AgentId, BootTime, Epoch, Handover, Hold, Lease, Moment, Promise, PromiseRequest, Purpose, Role,
    Unresolved, Version, Write,
};

use crate::arena::Arena;
use crate::world::{CURRENT, NOW, World};

/// What is done differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// R1: the API hold counts from the answer.
    ApiHoldFromAnswer,
    /// R1: the peer hold counts from the answer.
    PeerHoldFromAnswer,
    /// R1: the application begins to stop when the hold ends.
    StopsAtExpiry,
    /// R1: promises suffice for ever.
    NoGrace,
    /// R1: the API hold counts until a switch to Peer mode is known.
    SwitchKeepsApiHold,
    /// R1: an answer counts that belongs to no write under way.
    LateAnswerCounts,
    /// R1: an application is started again in its tenure.
    StartsAgainInTenure,
    /// R1: hands over although somebody took over with a certificate.
    NotOvertaken,
    /// R2: a promise binds nobody.
    PromiseBindsNobody,
    /// R2: a promise lasts H.
    PromiseLastsHold,
    /// R2: a write into Peer mode gives an API hold.
    PeerWriteGivesApiHold,
    /// R3: claims in spite of a promise.
    ClaimIgnoresPromise,
    /// R3: claims without being a member.
    ClaimIgnoresMembers,
    /// R3: a claim is applied to whatever version there is.
    ClaimsWithoutCas,
    /// R3: the hold of a claim counts from the read that found it.
    HoldFromRead,
    /// R3: a takeover raises the sequence, not the term.
    TakeoverRaisesSequence,
    /// R3: a certificate counts for whatever tenure there is.
    CertificateOfAnyTenure,
    /// R3: a certificate counts whatever epoch the Lease shows.
    CertificateIgnoresLease,
    /// R3: resumes a tenure that was handed over.
    ResumesAfterHandover,
    /// R3: an unresolved write is not repeated.
    NoRepeat,
    /// R4: hands over after the hold has lapsed.
    HandsOverAfterLapse,
    /// R4: a handover is no promise.
    HandoverIsNoPromise,
    /// R4: hands over to whatever incarnation the peer has.
    HandsOverToRestarted,
    /// R4: the hold counts from the receipt of the handover.
    HoldFromReceipt,
    /// R3: acts as soon as it has sent its claim.
    ActsUnanswered,
    /// R4: accepts whatever epoch is handed over.
    AcceptsAnyEpoch,
    /// R4: the receiver gets the full grace.
    FreshGrace,
    /// R4: hands over while it admits a member.
    HandsOverWhileAdmitting,
    /// R4: a restarted agent recognises its earlier pings.
    ReusesIncarnation,
    /// R5: releases after a handover.
    ReleasesAfterHandover,
    /// R5: releases while the application is being stopped.
    ReleasesWhileStopping,
    /// R6: the old peer alone counts until the admission is known.
    AdmissionKeepsOldPeer,
    /// R6: an active without a peer keeps the hold of a lone one when it admits somebody.
    AdmissionKeepsLoneHold,
    /// R6: an active that is to have no peer counts the lone hold from the send of the admission on.
    LoneHoldUnanswered,
    /// R6: a place that becomes vacant counts as if its member had promised for ever.
    VacancyPromisesForEver,
    /// R6: the end of one member is taken for that of both.
    EvidenceOfOne,
    /// R7: a restart is no promise.
    RestartIsNoPromise,
    /// R7: a certificate outlives a restart of its receiver.
    CertificateSurvivesRestart,
}

pub(crate) fn claim(arena: &Arena, agent: &mut Agent, at: &Moment<'_>) -> Option<Write> {
    let before = *agent;
    match arena.mutation {
        Some(Mutation::ClaimIgnoresPromise) => agent.promise_end = BootTime(0),
        Some(Mutation::ResumesAfterHandover) if agent.role == Role::HandedOver => {
            (agent.role, agent.promise_end) = (Role::Lapsed, BootTime(0));
        }
        Some(Mutation::ClaimIgnoresMembers) => {
            if let Some(seen) = agent.seen.as_mut().filter(|seen| !seen.lease.members.contains(&before.id)) {
                seen.lease.members[0] = before.id;
            }
        }
        _ => {}
    }
    let claimed = agent.r3_claim(at);
    (agent.promise_end, agent.seen) = (before.promise_end, before.seen);
    let mut write = claimed?;
    write.lease.members = before.seen?.lease.members;
    if arena.has(Mutation::TakeoverRaisesSequence) {
        write.lease.epoch = before.seen?.lease.epoch.delegation()?;
    }
    agent.unresolved.as_mut()?.write = write;
    if arena.has(Mutation::ActsUnanswered) {
        agent.answered(at, write.number, write.base);
    }
    Some(write)
}

pub(crate) fn renew(arena: &Arena, agent: &mut Agent, at: &Moment<'_>, hold: Hold) -> Option<Write> {
    let write = agent.r2_renew(at, hold)?;
    if arena.has(Mutation::SwitchKeepsApiHold) {
        agent.unresolved.as_mut()?.write.lease.hold = Hold::Api;
    }
    Some(write)
}

pub(crate) fn admit(arena: &Arena, agent: &mut Agent, at: &Moment<'_>) -> Option<Write> {
    let before = agent.tenure;
    let write = agent.r6_admit(at);
    if let (true, Some(before), Some(tenure)) =
        (arena.has(Mutation::AdmissionKeepsLoneHold), before, &mut agent.tenure)
    {
        tenure.api_hold_end = before.api_hold_end;
    }
    if let (true, Some(write), Some(tenure)) =
        (arena.has(Mutation::LoneHoldUnanswered), &write, &mut agent.tenure)
        && write.lease.is_lone()
    {
        tenure.api_hold_end = at.now + at.timing.lone_hold;
    }
    if let (true, Some(joining)) = (
        arena.has(Mutation::VacancyPromisesForEver),
        agent.tenure.as_mut().and_then(|tenure| tenure.joining.as_mut()),
    ) && joining.id == AgentId::NOBODY
    {
        joining.hold_end = at.now + 2 * at.timing.grace;
    }
    write
}

pub(crate) fn release(arena: &Arena, agent: &mut Agent, at: &Moment<'_>) -> Option<Write> {
    match (arena.mutation, agent.role) {
        (Some(Mutation::ReleasesAfterHandover), Role::HandedOver) => {
            agent.role = Role::Ended;
            agent.epoch = agent.seen?.lease.epoch;
        }
        (Some(Mutation::ReleasesWhileStopping), Role::Stopping) => {
            let before = *agent;
            agent.role = Role::Ended;
            let write = agent.r5_release(at);
            *agent = before;
            return write;
        }
        _ => {}
    }
    agent.r5_release(at)
}

pub(crate) fn read(arena: &Arena, agent: &mut Agent, at: &Moment<'_>, lease: Lease) {
    if let (Some(Mutation::HoldFromRead), Some(unresolved)) = (arena.mutation, &mut agent.unresolved) {
        unresolved.sent = NOW;
    }
    let before = *agent;
    agent.read(at, lease, Version(CURRENT));
    if arena.has(Mutation::CertificateIgnoresLease) && before.role.is_standby() {
        agent.is_certified |= before.is_certified && agent.role.is_standby();
    }
    if arena.has(Mutation::NotOvertaken) && before.role == Role::Ended {
        *agent = Agent { unresolved: agent.unresolved, ..before };
    }
}

pub(crate) fn grant(
    arena: &Arena,
    agent: &mut Agent,
    at: &Moment<'_>,
    request: PromiseRequest,
) -> Option<Promise> {
    let before = agent.promise_end;
    let promise = agent.r2_grant(at, request)?;
    match arena.mutation {
        Some(Mutation::PromiseBindsNobody) => agent.promise_end = before,
        Some(Mutation::PromiseLastsHold) => agent.promise_end = at.now + at.timing.hold,
        _ => {}
    }
    Some(promise)
}

pub(crate) fn promised(
    arena: &Arena,
    agent: &mut Agent,
    at: &Moment<'_>,
    (from, mut promise): (AgentId, Promise),
) {
    if arena.has(Mutation::PeerHoldFromAnswer) {
        promise.request.sent = at.now;
    }
    agent.r2_promised(at, from, promise);
}

pub(crate) fn certificate(arena: &Arena, agent: &mut Agent, at: &Moment<'_>, epoch: Epoch) {
    let epoch = if arena.has(Mutation::CertificateOfAnyTenure) { epoch.max(agent.epoch) } else { epoch };
    agent.r3_certificate(at, epoch);
}

pub(crate) fn accept(
    arena: &Arena,
    agent: &mut Agent,
    at: &Moment<'_>,
    (from, mut handover): (AgentId, Handover),
) {
    let before = *agent;
    match arena.mutation {
        Some(Mutation::HoldFromReceipt) => handover.echo.sent = at.now,
        Some(Mutation::AcceptsAnyEpoch) => agent.epoch = Epoch::default(),
        Some(Mutation::FreshGrace) => handover.grace_left = at.timing.grace,
        _ => {}
    }
    agent.r4_accept(at, from, handover);
    if agent.role != Role::Active {
        *agent = before;
    }
}

pub(crate) fn ended(arena: &Arena, agent: &mut Agent, at: &Moment<'_>) {
    let tenure = agent.tenure;
    agent.r1_application_ended(at);
    if let (Some(Mutation::HandsOverAfterLapse), Role::Lapsed) = (arena.mutation, agent.role) {
        agent.tenure = tenure;
    }
}

pub(crate) fn hand_over(arena: &Arena, agent: &mut Agent, at: &Moment<'_>) -> Option<(AgentId, Handover)> {
    match arena.mutation {
        Some(Mutation::HandsOverAfterLapse) if agent.role == Role::Lapsed => {
            agent.role = Role::Ended;
            let tenure = agent.tenure.as_mut()?;
            tenure.api_hold_end = BootTime(NOW.0 + 1);
            tenure.peer.witness = tenure.peer.ping.map(|ping| ping.incarnation);
        }
        Some(Mutation::HandsOverToRestarted) => {
            let peer = &mut agent.tenure.as_mut()?.peer;
            peer.witness = peer.ping.map(|ping| ping.incarnation);
        }
        Some(Mutation::HandsOverWhileAdmitting) => agent.unresolved = None,
        _ => {}
    }
    let promise_end = agent.promise_end;
    let handover = agent.r4_hand_over(at);
    if arena.has(Mutation::HandoverIsNoPromise) {
        agent.promise_end = promise_end;
    }
    handover
}

pub(crate) fn answered(
    arena: &Arena,
    agent: &mut Agent,
    at: &Moment<'_>,
    (answered, version): (Unresolved, Version),
) {
    let number = answered.write.number;
    let is_ours = agent.unresolved.is_some_and(|unresolved| unresolved.write.number == number);
    match (arena.mutation, &mut agent.unresolved) {
        (Some(Mutation::ApiHoldFromAnswer), Some(unresolved)) if is_ours => unresolved.sent = at.now,
        (Some(Mutation::SwitchKeepsApiHold), Some(unresolved)) if is_ours => {
            unresolved.write.lease.hold = answered.write.lease.hold;
        }
        _ => {}
    }
    let peer = agent.tenure.map(|tenure| tenure.peer.id);
    agent.answered(at, number, version);
    if let (Some(Mutation::AdmissionKeepsOldPeer), Some(tenure)) = (arena.mutation, &mut agent.tenure)
        && peer != Some(tenure.peer.id)
    {
        tenure.peer.hold_end = BootTime(0);
    }
    let gives_hold = match arena.mutation {
        Some(Mutation::LateAnswerCounts) => !is_ours && answered.write.lease.hold == Hold::Api,
        Some(Mutation::PeerWriteGivesApiHold) => is_ours && answered.write.lease.hold == Hold::Peer,
        _ => false,
    };
    let is_own_epoch = agent.epoch == answered.write.lease.epoch && answered.purpose == Purpose::Renew;
    if let (true, true, Some(tenure)) = (gives_hold, is_own_epoch, &mut agent.tenure) {
        tenure.api_hold_end = tenure.api_hold_end.max(answered.sent + at.timing.api_hold);
    }
}

pub(crate) fn restarted(arena: &Arena, agent: &mut Agent, before: &Agent) {
    match arena.mutation {
        Some(Mutation::RestartIsNoPromise) => agent.promise_end = BootTime(0),
        Some(Mutation::CertificateSurvivesRestart) if before.is_certified => {
            (agent.is_certified, agent.epoch) = (true, before.epoch);
        }
        _ => {}
    }
}

/// What no single rule is to blame for.
pub(crate) fn everywhere(arena: &Arena, world: &mut World) {
    for tenure in world.agents.iter_mut().flatten().filter_map(|agent| agent.tenure.as_mut()) {
        if let (Some(Mutation::AdmissionKeepsOldPeer), Some(joining)) = (arena.mutation, &mut tenure.joining)
        {
            // It is as if it had promised what the old peer promised, until it is the peer.
            joining.hold_end = tenure.peer.hold_end;
        }
        if arena.has(Mutation::NoGrace) {
            tenure.grace_end = NOW + arena.timing.grace;
        }
    }
}
