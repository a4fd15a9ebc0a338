//! An active whose pair has no second member, with its policy: how often it writes, and how long it acts when nobody answers.

use std::time::Duration;

use bps_protocol::{
    Agent, AgentId, BootTime, Effect, Epoch, Event, Hold, Incarnation, Lease, Protocol, Replacement, Role,
    Timing, Version, Write,
};

use crate::orders::written;

const OWN: AgentId = AgentId(1);
/// How often time passes: more often than it writes.
const STEP: Duration = Duration::from_millis(50);

/// An active with its Lease, which answers as long as `answers` says so.
struct Lone {
    protocol: Protocol,
    now: BootTime,
    answers: bool,
    /// How many writes it sent that were not copies.
    writes: u64,
    version: u64,
}

impl Lone {
    fn start() -> Self {
        let protocol = Protocol::new(Agent::new(OWN, Incarnation(1)), Timing::default());
        let mut lone = Self { protocol, now: BootTime(1), answers: true, writes: 0, version: 1 };
        let lease = Lease {
            epoch: Epoch::default(),
            holder: None,
            members: [OWN, AgentId::NOBODY],
            pending: None,
            hold: Hold::Api,
            writes: 0,
        };
        lone.give(Event::LeaseRead { lease, version: Version(1) });
        assert_eq!(lone.protocol.agent().role, Role::Active);
        lone
    }

    fn give(&mut self, event: Event) {
        let mut effects = self.protocol.step(self.now, event);
        while let Some(write) = effects.iter().find_map(write_of) {
            self.writes = self.writes.max(write.number);
            if !self.answers {
                return;
            }
            self.version += 1;
            let version = Version(self.version);
            effects = self.protocol.step(self.now, Event::WriteApplied { number: write.number, version });
        }
    }

    /// Lets time pass, and returns for how long it acted.
    fn pass(&mut self, time: Duration) -> Duration {
        let (began, end) = (self.now, self.now + time);
        while self.now < end && self.protocol.agent().role == Role::Active {
            self.now = self.now + STEP;
            self.give(Event::Timer);
        }
        self.now.since(began)
    }
}

fn write_of(effect: &Effect) -> Option<Write> {
    let Effect::WriteLease(write) = effect else { return None };
    Some(*write)
}

#[test]
fn it_writes_six_times_a_minute_and_acts_on_for_most_of_a_minute_when_nobody_answers() {
    let mut lone = Lone::start();
    let before = lone.writes;
    let hour = Duration::from_secs(3_600);
    assert_eq!(lone.pass(hour), hour);
    assert!(lone.writes - before <= 361, "{} writes", lone.writes - before);
    lone.answers = false;
    let (timing, acted) = (Timing::default(), lone.pass(hour));
    assert!(timing.lone_hold <= acted + STEP + timing.lone_renew_period() + timing.stop, "{acted:?}");
    assert!(acted + timing.stop <= timing.lone_hold + STEP, "{acted:?}");
}

#[test]
fn an_admission_that_nobody_answers_ends_it_as_early_as_if_it_had_a_peer() {
    let mut lone = Lone::start();
    lone.answers = false;
    let seen = lone.protocol.agent().seen.expect("it has read the Lease");
    let pending = Some(Replacement { leaving: AgentId::NOBODY, joining: AgentId(2) });
    let version = Version(lone.version + 1);
    let read = Event::LeaseRead { lease: Lease { pending, ..seen.lease }, version };
    assert_eq!(written(&lone.protocol.step(lone.now, read)), [Some(OWN)], "it admits");
    let (timing, acted) = (Timing::default(), lone.pass(Duration::from_secs(60)));
    assert!(acted <= timing.hold, "{acted:?}");
    assert!(timing.hold <= acted + STEP + timing.stop, "{acted:?}");
}

#[test]
fn news_is_written_soon_each_time_and_early_renewals_once_in_a_tenure() {
    let writes_in_a_minute = |ask: fn(&mut Protocol)| {
        let mut lone = Lone::start();
        lone.pass(Duration::from_secs(20));
        let before = lone.writes;
        for _ in 0..30 {
            ask(&mut lone.protocol);
            lone.pass(Duration::from_secs(2));
        }
        lone.writes - before
    };
    assert!(writes_in_a_minute(|_| {}) <= 7);
    assert!(writes_in_a_minute(Protocol::renew_early) <= 8);
    assert_eq!(writes_in_a_minute(Protocol::renew_for_news), 30);
}
