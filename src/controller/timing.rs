//! How long a look took until what users wait for was done.

use std::time::Duration;

use bps_core::model::{Action, Outcome, Role, StepResult};
use jiff::Timestamp;

/// Times from the arrival of the event that caused a look, each to the acknowledgement of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Timing {
    /// The last successor of a lost primary was promoted; `None` if none was lost.
    pub(super) promoted: Option<Duration>,
    /// The addresses were switched; `None` if no primary was lost or there is no Service.
    pub(super) exposed: Option<Duration>,
}

impl Timing {
    /// Reads the times off the results of a look whose event arrived at `arrived`.
    pub(super) fn of(results: &[StepResult], arrived: Timestamp) -> Self {
        let last = |is: &dyn Fn(&StepResult) -> bool| {
            let done = results.iter().filter(|result| result.outcome == Outcome::Done && is(result));
            let ends = done.filter_map(|result| result.started.checked_add(result.elapsed).ok());
            Some(Duration::try_from(ends.max()?.duration_since(arrived)).unwrap_or_default())
        };
        let promoted = last(&|result| is_promotion_after_loss(result));
        let is_exposure = |result: &StepResult| matches!(result.step.action, Action::Expose { .. });
        Self { promoted, exposed: promoted.and_then(|_| last(&is_exposure)) }
    }
}

/// Whether a step gave the role of a lost primary to another Pod.
pub(super) fn is_promotion_after_loss(result: &StepResult) -> bool {
    let is_promotion = matches!(result.step.action, Action::Convert { to: Role::Primary, .. });
    is_promotion && result.step.reason.is_loss()
}

#[cfg(test)]
mod tests {
    use bps_api::service::IpFamily;
    use bps_core::model::{PodName, PodRef, Reason, Step, Uid};
    use jiff::SignedDuration;

    use super::*;

    fn result(action: Action, reason: Reason, end_ms: i64) -> StepResult {
        let started = Timestamp::UNIX_EPOCH;
        let elapsed = SignedDuration::from_millis(end_ms);
        StepResult { step: Step { action, reason }, outcome: Outcome::Done, message: None, started, elapsed }
    }

    fn conversion(to: Role) -> Action {
        let pod = PodRef { name: PodName("a".into()), uid: Uid("1".into()), resource_version: "7".into() };
        Action::Convert { pod, from: Role::Hot, to }
    }

    #[test]
    fn a_failover_is_timed_to_its_last_promotion_and_its_last_address_write() {
        let results = [
            result(conversion(Role::Primary), Reason::PodDeleted, 30),
            result(conversion(Role::Primary), Reason::PodDeleted, 20),
            result(
                Action::Expose { family: IpFamily::IPv4, endpoints: Vec::new() },
                Reason::EndpointsChanged,
                40,
            ),
            result(conversion(Role::Hot), Reason::Refilled, 90),
        ];
        let arrived = Timestamp::from_millisecond(10).unwrap();
        let times = [Some(Duration::from_millis(20)), Some(Duration::from_millis(30))];
        let timing = Timing::of(&results, arrived);
        assert_eq!([timing.promoted, timing.exposed], times);
    }

    #[test]
    fn a_scale_out_is_no_failover() {
        let results = [
            result(conversion(Role::Primary), Reason::ScaledOut, 30),
            result(
                Action::Expose { family: IpFamily::IPv4, endpoints: Vec::new() },
                Reason::EndpointsChanged,
                40,
            ),
        ];
        assert_eq!(Timing::of(&results, Timestamp::UNIX_EPOCH), Timing::default());
    }
}
