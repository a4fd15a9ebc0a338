//! What the record of a takeover says, for each way in which a tenure ends and the next one begins.

use proptest::prelude::*;

use super::*;
use crate::{AgentId, Handover, Hold, Incarnation, Ping, PromiseRequest, Protocol, Role, Version};

const OWN: AgentId = AgentId(1);
const PEER: AgentId = AgentId(2);
const MILLISECOND: Duration = Duration::from_millis(1);

/// An agent with its chronicle. Moments are milliseconds, the first one 10 s after the start.
struct Scribe {
    protocol: Protocol,
    chronicle: Chronicle,
}

fn at(milliseconds: u32) -> BootTime {
    BootTime(10_000_000_000) + MILLISECOND * milliseconds
}

fn lease(holder: Option<AgentId>, hold: Hold, epoch: Epoch) -> Lease {
    Lease { epoch, holder, members: [OWN, PEER], pending: None, hold, writes: 1 }
}

const FIRST: Epoch = Epoch { term: 1, sequence: 0 };

impl Scribe {
    /// A standby whose peer acts in Peer mode with [`FIRST`], and has its promise from the moment 0.
    fn standby() -> Self {
        let protocol = Protocol::new(Agent::new(OWN, Incarnation(7)), Timing::default());
        let mut scribe = Self { protocol, chronicle: Chronicle::default() };
        let request = PromiseRequest { epoch: FIRST, sent: BootTime(5) };
        scribe.step(0, Event::Received { from: PEER, message: Message::PromiseRequest(request) });
        scribe.read(0, lease(Some(PEER), Hold::Peer, FIRST), 1);
        scribe
    }

    /// An active by a claim with the epoch 2.0, whose peer was heard at the moment 5.
    fn active() -> Self {
        let mut scribe = Self::standby();
        scribe.read(0, lease(None, Hold::Api, FIRST), 2);
        scribe.step(4, Event::WriteApplied { number: 1, version: Version(3) });
        assert_eq!(scribe.protocol.agent().role, Role::Active);
        let ping = Ping { incarnation: Incarnation(9), sent: BootTime(5) };
        scribe.step(5, Event::Received { from: PEER, message: Message::Ping(ping) });
        scribe
    }

    fn step(&mut self, moment: u32, event: Event) {
        let before = *self.protocol.agent();
        self.protocol.step(at(moment), event);
        let after = self.protocol.agent();
        let turn = Turn { now: at(moment), event: &event, before: &before, after };
        self.chronicle.follow(&turn, &Timing::default());
    }

    fn read(&mut self, moment: u32, lease: Lease, version: u64) {
        self.step(moment, Event::LeaseRead { lease, version: Version(version) });
    }

    fn hand_over(&mut self, moment: u32) {
        let echo = Ping { incarnation: Incarnation(7), sent: at(0) };
        let epoch = Epoch { sequence: 1, ..FIRST };
        let handover = Handover { epoch, echo, grace_left: Duration::from_secs(50) };
        self.step(moment, Event::Received { from: PEER, message: Message::Handover(handover) });
    }
}

fn account(cause: Cause, detected: u32, fenced: u32) -> Account {
    Account { epoch: FIRST, cause, detected_ago: MILLISECOND * detected, fenced_ago: MILLISECOND * fenced }
}

fn record(epoch: Epoch, cause: Cause, phases: [u32; 3]) -> TakeoverRecord {
    let [detected, fenced, granted] = phases.map(|phase| MILLISECOND * phase);
    let granted = Some(granted);
    TakeoverRecord { epoch, cause, detected, fenced, granted, promoted: None, published: None }
}

#[test]
fn a_handover_is_told_from_the_end_of_the_application_that_the_old_active_saw() {
    let mut scribe = Scribe::standby();
    scribe.chronicle.heard(at(99), account(Cause::ApplicationEnded, 30, 12));
    scribe.hand_over(100);
    let epoch = Epoch { sequence: 1, ..FIRST };
    let granted = record(epoch, Cause::ApplicationEnded, [0, 18, 31]);
    assert_eq!(scribe.chronicle.last(), Some(granted));

    scribe.chronicle.promoted(epoch, at(104));
    scribe.chronicle.published(FIRST, at(105));
    scribe.chronicle.published(epoch, at(120));
    scribe.chronicle.promoted(epoch, at(130));
    let whole =
        TakeoverRecord { promoted: Some(MILLISECOND * 35), published: Some(MILLISECOND * 51), ..granted };
    assert_eq!(scribe.chronicle.last(), Some(whole));
}

#[test]
fn an_account_that_comes_after_its_handover_completes_the_record() {
    let mut scribe = Scribe::standby();
    scribe.hand_over(100);
    let epoch = Epoch { sequence: 1, ..FIRST };
    assert_eq!(scribe.chronicle.last(), Some(record(epoch, Cause::HandedOver, [0, 0, 0])));
    scribe.chronicle.heard(at(101), account(Cause::SwitchOver, 31, 0));
    // Nothing of the old tenure was left when the role was granted, whatever the account says.
    assert_eq!(scribe.chronicle.last(), Some(record(epoch, Cause::SwitchOver, [0, 30, 30])));
}

#[test]
fn a_claim_is_told_by_its_ground() {
    let second = Epoch { term: 2, sequence: 0 };
    let claimed = |prepare: &dyn Fn(&mut Scribe), moment| {
        let mut scribe = Scribe::standby();
        prepare(&mut scribe);
        assert!(scribe.protocol.agent().unresolved.is_some() || !scribe.protocol.agent().is_bereaved());
        scribe.step(moment, Event::Timer);
        let write = scribe.protocol.agent().unresolved.expect("a claim").write;
        let is_bereaved = scribe.protocol.agent().is_bereaved();
        let promised = scribe.chronicle.record(&write);
        scribe.step(moment + 10, Event::WriteApplied { number: write.number, version: Version(9) });
        let granted = scribe.chronicle.last().expect("a tenure");
        assert_eq!(promised, Some(TakeoverRecord { granted: None, ..granted }));
        let is_gone = matches!(granted.cause, Cause::LeaseExpired | Cause::CertificateOfDeath);
        assert_eq!(is_bereaved, is_gone, "{granted:?}");
        assert!(!scribe.protocol.agent().is_bereaved(), "the claim is answered");
        granted
    };
    assert_eq!(claimed(&|_| {}, 2_001), record(second, Cause::LeaseExpired, [2_001, 2_001, 2_011]));
    let certify = |scribe: &mut Scribe| scribe.step(40, Event::Certificate { epoch: FIRST });
    assert_eq!(claimed(&certify, 90), record(second, Cause::CertificateOfDeath, [0, 0, 60]));
    let release = |scribe: &mut Scribe| scribe.read(50, lease(None, Hold::Api, FIRST), 2);
    assert_eq!(claimed(&release, 50), record(second, Cause::Released, [0, 0, 10]));
    let release_and_tell = |scribe: &mut Scribe| {
        scribe.chronicle.heard(at(45), account(Cause::PodDeleted, 25, 5));
        scribe.read(50, lease(None, Hold::Api, FIRST), 2);
    };
    assert_eq!(claimed(&release_and_tell, 50), record(second, Cause::PodDeleted, [0, 20, 40]));
}

#[test]
fn an_account_tells_why_a_tenure_ended_and_how_long_ago() {
    let second = Epoch { term: 2, sequence: 0 };
    let told = |ordered: Option<Order>| {
        let mut scribe = Scribe::active();
        if let Some(order) = ordered {
            scribe.step(20, Event::Ordered(order));
        }
        scribe.step(50, Event::ApplicationEnded);
        if ordered.is_none() {
            scribe.chronicle.saw_end(at(40));
        }
        scribe.chronicle.account(at(60), Epoch { sequence: 1, ..second }).expect("a tenure ended")
    };
    let account = |cause, detected: u32| Account {
        epoch: second,
        cause,
        detected_ago: MILLISECOND * detected,
        fenced_ago: MILLISECOND * 10,
    };
    assert_eq!(told(None), account(Cause::ApplicationEnded, 20));
    assert_eq!(told(Some(Order::SwitchOver)), account(Cause::SwitchOver, 40));
    assert_eq!(told(Some(Order::Leave)), account(Cause::PodDeleted, 40));
    assert_eq!(told(Some(Order::Fence)), account(Cause::Fenced, 40));
}

#[test]
fn an_active_that_reaches_nobody_lost_its_hold_and_says_so_when_it_resumes() {
    let mut scribe = Scribe::active();
    scribe.step(1_800, Event::Timer);
    assert_eq!(scribe.protocol.agent().role, Role::Stopping);
    scribe.step(2_000, Event::ApplicationEnded);
    assert_eq!(scribe.protocol.agent().role, Role::Lapsed);
    assert_eq!(scribe.chronicle.parting.map(|parting| parting.cause), Some(Cause::HoldLost));
}

proptest! {
    #[test]
    fn the_phases_are_in_order_whatever_is_told(
        (detected, fenced, late) in (0..200_u32, 0..200_u32, 0..200_u32),
        (granted, promoted, published) in (1..100_u32, 0..100_u32, 0..100_u32),
        is_told_first in any::<bool>(),
    ) {
        let mut scribe = Scribe::standby();
        let account = account(Cause::ApplicationEnded, detected, fenced);
        if is_told_first {
            scribe.chronicle.heard(at(granted - 1), account);
        }
        scribe.hand_over(granted);
        scribe.chronicle.heard(at(granted + late), account);
        let epoch = Epoch { sequence: 1, ..FIRST };
        scribe.chronicle.promoted(epoch, at(granted + promoted));
        scribe.chronicle.published(epoch, at(granted + promoted + published));
        let record = scribe.chronicle.last().unwrap();
        let TakeoverRecord { detected, fenced, granted, promoted, published, .. } = record;
        let phases = [Some(detected), Some(fenced), granted, promoted, published];
        prop_assert!(phases.is_sorted() && phases[4].is_some(), "{:?}", phases);
    }
}
