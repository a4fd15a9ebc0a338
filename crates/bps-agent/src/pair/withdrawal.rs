//! Decides when an agent of a pair may leave its process, and when it gives up a tenure. See `lease_view` for
//! its Lease.
//!
//! Pure: each decision is a function of a moment and a few facts. `leaving` carries it out.

use std::time::Duration;

use bps_protocol::{Agent, BootTime, Epoch, Moment, Role, Timing};

/// How many round trips an agent that leaves stays at least. 2: a handover that crossed its farewell is
/// repeated after one, and only the agent that answers it can release what was delegated.
const ROUND_TRIPS_MIN: u32 = 2;

/// Which part of a Pod's grace period its standby may take to copy the state: one of so many.
const COPY_WAIT_ONE_OF: u32 = 3;

/// What is left of a Pod's time for its last steps, besides two holds and the relay's time. 1 s: the kubelet
/// kills in the moment that the grace period is over, and the signal may have come late.
const SPARE: Duration = Duration::from_secs(1);

/// Progress of an agent that may be asked to leave.
#[derive(Debug)]
pub(super) struct Withdrawal {
    /// How long this agent relays after a handover.
    linger: Duration,
    asked: Option<AskedToLeave>,
    leaving: Option<Leaving>,
    /// The tenure that the agent gave up because its application was killed and did not end.
    gave_up: Option<Epoch>,
}

/// Times of a Pod that was asked to end.
#[derive(Clone, Copy, Debug)]
struct AskedToLeave {
    /// Until then the agent may act on, so that its standby has the state.
    acts_until: BootTime,
    /// Then the Pod must have ended.
    ends_by: BootTime,
}

/// Times of an agent that leaves.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    /// Until then an agent that did not hear yet that this one leaves may hand over to it.
    not_before: BootTime,
    /// Then at last, even if it could not hand over.
    by: BootTime,
}

/// Times that others need to know when an agent begins to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaveTimes {
    /// How long the application may take to end.
    pub(super) patience: Duration,
    /// Then the agent must have handed over or released the role.
    pub(super) handed_over_by: BootTime,
}

/// Reasons for an agent that leaves to stay a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dues {
    /// A process of the application is left.
    pub(super) has_application: bool,
    /// The agent acts, may still hand over, or waits for a write or a hook.
    pub(super) is_busy: bool,
    /// Until then clients may still connect to this Pod.
    pub(super) relays_until: BootTime,
}

impl Withdrawal {
    /// Begins with an agent that stays; `linger` is how long it relays after a handover.
    pub(super) fn new(linger: Duration) -> Self {
        Self { linger, asked: None, leaving: None, gave_up: None }
    }

    /// How long the application may take to end if its Pod must have ended within this time.
    pub(super) fn time_to_end(&self, end_within: Duration, timing: &Timing) -> Duration {
        end_within.saturating_sub(afterwards(timing.hold, self.linger))
    }

    /// Notes that the Pod was asked to end within this time. Returns how long the agent may act on so that
    /// its standby has the state; `None`: the agent was asked before, or leaves already.
    pub(super) fn ask(&mut self, at: &Moment<'_>, end_within: Duration) -> Option<Duration> {
        if self.leaving.is_some() || self.asked.is_some() {
            return None;
        }
        let copy_wait = copy_wait(end_within, afterwards(at.timing.hold, self.linger));
        self.asked = Some(AskedToLeave { acts_until: at.now + copy_wait, ends_by: at.now + end_within });
        Some(copy_wait)
    }

    /// Whether the agent was asked to leave and has not begun to.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some() && self.leaving.is_none()
    }

    /// Whether the agent may still act on so that its standby has the state.
    pub(super) fn may_wait_for_copy(&self, now: BootTime) -> bool {
        self.asked.is_some_and(|asked| now < asked.acts_until)
    }

    /// Begins to leave. `None`: the agent leaves already.
    pub(super) fn begin(&mut self, at: &Moment<'_>) -> Option<LeaveTimes> {
        if self.leaving.is_some() {
            return None;
        }
        let Moment { now, timing } = *at;
        // An agent that was not asked leaves because something failed.
        let left = self.asked.map(|asked| asked.ends_by.since(now)).unwrap_or_default();
        let patience = self.time_to_end(left, timing);
        // A hold for the application to end in at least, and as long again to repeat the handover or the
        // release.
        let handed_over_by = now + patience + 2 * timing.hold;
        let not_before = now + ROUND_TRIPS_MIN * timing.round_trip;
        self.leaving = Some(Leaving { not_before, by: handed_over_by + self.linger });
        Some(LeaveTimes { patience, handed_over_by })
    }

    /// Whether the agent leaves.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// The next moment at which the process may end only because time has passed.
    pub(super) fn stays_until(&self, now: BootTime) -> Option<BootTime> {
        self.leaving.map(|leaving| leaving.not_before).filter(|time| now < *time)
    }

    /// Whether the agent leaves and has no reason to stay.
    pub(super) fn is_over(&self, now: BootTime, dues: Dues) -> bool {
        let Some(Leaving { not_before, by }) = self.leaving else { return false };
        let Dues { has_application, is_busy, relays_until } = dues;
        let over_at = if is_busy { by } else { relays_until.max(not_before).min(by) };
        !has_application && over_at <= now
    }

    /// Whether the agent gives up the present tenure now; true once for each. `is_stuck`: its application was
    /// killed and does not end.
    pub(super) fn gives_up(&mut self, agent: &Agent, is_stuck: bool) -> bool {
        let Agent { role, epoch, .. } = *agent;
        let gives_up = role.is_acting() && is_stuck && self.gave_up != Some(epoch);
        if gives_up {
            self.gave_up = Some(epoch);
        }
        gives_up
    }
}

/// Whether an agent with this role neither acts nor may still hand over.
pub(super) fn is_idle(role: Role) -> bool {
    match role {
        Role::Standby | Role::Lapsed => true,
        Role::HandedOver | Role::Active | Role::Stopping | Role::Ended => false,
    }
}

/// How long an active that is asked to end may act on: a third of what its Pod has, and what its end may take
/// is left.
fn copy_wait(end_within: Duration, afterwards: Duration) -> Duration {
    (end_within / COPY_WAIT_ONE_OF).min(end_within.saturating_sub(afterwards))
}

/// What an agent may take to hand over, to release the Lease, and to relay, once the application has had its
/// time.
fn afterwards(hold: Duration, linger: Duration) -> Duration {
    2 * hold + linger + SPARE
}

#[cfg(test)]
mod tests {
    use bps_api::keys;
    use bps_protocol::{AgentId, Incarnation};

    use super::*;
    use crate::relay::LINGER;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> BootTime {
        BootTime::default() + seconds * SECOND
    }

    /// A hold of 2 s, and a round trip of 1 s.
    fn timing() -> Timing {
        Timing { hold: 2 * SECOND, round_trip: SECOND, ..Timing::default() }
    }

    #[test]
    fn what_manifests_leave_for_a_handover_is_what_it_takes() {
        let (told, taken) = (keys::LEAVING_SECONDS, afterwards(Timing::default().hold, LINGER));
        assert!(taken <= Duration::from_secs(told) && Duration::from_secs(told - 1) < taken, "{taken:?}");
    }

    #[test]
    fn a_standby_gets_a_third_of_the_time_but_nothing_of_what_the_end_takes() {
        let wait = |end_within, afterwards| {
            copy_wait(Duration::from_secs(end_within), Duration::from_secs(afterwards)).as_secs()
        };
        assert_eq!(wait(30, 6), 10);
        assert_eq!(wait(8, 6), 2);
        assert_eq!(wait(35, 62), 0, "a hold of 30 s");
        assert_eq!(wait(0, 6), 0);
    }

    #[test]
    fn only_the_first_request_to_leave_counts_and_the_wait_for_a_copy_has_an_end() {
        let timing = timing();
        let mut withdrawal = Withdrawal::new(SECOND);
        assert!(!withdrawal.is_asked() && !withdrawal.may_wait_for_copy(at(0)));
        let asked = |withdrawal: &mut Withdrawal, now| {
            withdrawal.ask(&Moment { now: at(now), timing: &timing }, 30 * SECOND)
        };
        assert_eq!(asked(&mut withdrawal, 10), Some(10 * SECOND));
        assert_eq!(asked(&mut withdrawal, 15), None);
        assert_eq!([19, 20].map(|now| withdrawal.may_wait_for_copy(at(now))), [true, false]);

        assert!(withdrawal.is_asked());
        assert!(withdrawal.begin(&Moment { now: at(20), timing: &timing }).is_some());
        assert!(!withdrawal.is_asked() && withdrawal.is_leaving());
        assert_eq!(asked(&mut withdrawal, 21), None);
    }

    #[test]
    fn an_application_has_what_is_left_of_the_time_of_its_pod_once_the_agent_leaves() {
        let timing = timing();
        let begun = |asked_at: Option<u32>, now| {
            let mut withdrawal = Withdrawal::new(SECOND);
            if let Some(asked_at) = asked_at {
                withdrawal.ask(&Moment { now: at(asked_at), timing: &timing }, 30 * SECOND);
            }
            let at = Moment { now: at(now), timing: &timing };
            (withdrawal.begin(&at), withdrawal.begin(&at))
        };
        let times = |patience: u32, handed_over_by| {
            Some(LeaveTimes { patience: patience * SECOND, handed_over_by: at(handed_over_by) })
        };
        // Two holds, the time of the relay and one second are not the application's.
        assert_eq!(begun(Some(0), 0), (times(24, 28), None), "it leaves once");
        assert_eq!(begun(Some(0), 10), (times(14, 28), None));
        assert_eq!(begun(Some(0), 40), (times(0, 44), None), "its time is over");
        assert_eq!(begun(None, 10), (times(0, 14), None), "something failed");
    }

    #[test]
    fn an_agent_that_leaves_ends_when_it_owes_nothing_or_at_last_when_its_time_is_over() {
        let timing = timing();
        let done = Dues { has_application: false, is_busy: false, relays_until: BootTime::default() };
        let mut withdrawal = Withdrawal::new(SECOND);
        assert!(!withdrawal.is_over(at(100), done), "it was not asked to");

        withdrawal.begin(&Moment { now: at(10), timing: &timing });
        let is_over = |now: [u32; 2], dues| now.map(|now| withdrawal.is_over(at(now), dues));
        assert_eq!(is_over([11, 12], done), [false, true], "a handover may still come");
        assert_eq!([11, 12].map(|now| withdrawal.stays_until(at(now))), [Some(at(12)), None]);
        assert_eq!(is_over([12, 13], Dues { relays_until: at(13), ..done }), [false, true]);
        assert_eq!(is_over([14, 15], Dues { relays_until: at(60), ..done }), [false, true], "at last");
        assert_eq!(is_over([14, 15], Dues { is_busy: true, ..done }), [false, true], "at last");
        assert_eq!(is_over([15, 99], Dues { has_application: true, ..done }), [false, false]);
    }

    #[test]
    fn a_tenure_whose_application_does_not_end_is_given_up_once() {
        let agent = |role, term| {
            let epoch = Epoch { term, sequence: 0 };
            Agent { role, epoch, ..Agent::new(AgentId(1), Incarnation(1)) }
        };
        let mut withdrawal = Withdrawal::new(SECOND);
        let mut gives_up = |role, term, is_stuck| withdrawal.gives_up(&agent(role, term), is_stuck);
        assert!(!gives_up(Role::Active, 1, false) && !gives_up(Role::Standby, 1, true));
        assert_eq!([gives_up(Role::Stopping, 1, true), gives_up(Role::Stopping, 1, true)], [true, false]);
        assert!(gives_up(Role::Active, 2, true), "another tenure");
    }
}
