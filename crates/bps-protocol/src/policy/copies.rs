//! What the copies of the application's state allow.

use std::time::Duration;

use crate::{BootTime, Moment};

/// How long an active whose application has ended waits for word whether its peer has the state. 1 s: about half a hold, so
/// that there is time to release the Lease.
const SETTLE_MAX: Duration = Duration::from_secs(1);

/// What the copies of the application's state allow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copies {
    /// Whether the own one lacks something.
    pub(super) is_withheld: bool,
    pub(super) estate: Estate,
}

/// What the application left when it ended, and whether the peer has it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Estate {
    /// It keeps no state.
    None,
    /// That is not known yet, and waited for.
    Unknown { until: BootTime },
    /// The answer; an application that was not started has none.
    Known { is_level: bool },
}

impl Copies {
    /// A tenure has begun.
    pub(super) fn begin(&mut self) {
        self.estate = match self.estate {
            Estate::None => Estate::None,
            Estate::Unknown { .. } | Estate::Known { .. } => Estate::Known { is_level: false },
        };
    }

    /// The application has ended.
    pub(super) fn end(&mut self, at: &Moment<'_>) {
        self.estate = match self.estate {
            Estate::None => Estate::None,
            Estate::Unknown { .. } | Estate::Known { .. } => Estate::Unknown { until: at.now + SETTLE_MAX },
        };
    }

    pub(super) fn settle(&mut self, is_level: bool) {
        if let Estate::Unknown { .. } = self.estate {
            self.estate = Estate::Known { is_level };
        }
    }

    pub(super) fn settle_by(&self) -> BootTime {
        match self.estate {
            Estate::Unknown { until } => until,
            Estate::None | Estate::Known { .. } => BootTime::default(),
        }
    }
}
