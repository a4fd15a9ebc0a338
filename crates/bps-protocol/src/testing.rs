//! Times for tests in which minutes have to pass.

use std::time::Duration;

use crate::Timing;

/// Short times for what takes minutes otherwise.
pub fn short() -> Timing {
    let timing = Timing {
        grace: Duration::from_secs(5),
        operator_wait: Duration::from_millis(5_100),
        keep_alive_period: Duration::from_millis(2_500),
        ..Timing::default()
    };
    assert_eq!(timing.check(), Ok(()));
    timing
}

/// The same of a pair whose members notice within half a second that the other one is lost.
pub fn fast_and_short() -> Timing {
    let Timing { grace, operator_wait, keep_alive_period, .. } = short();
    let timing = Timing { grace, operator_wait, keep_alive_period, ..Timing::fast() };
    assert_eq!(timing.check(), Ok(()));
    timing
}
