//! What is told about a takeover: why the tenure before it ended, and how long each phase took.
//!
//! Nothing here decides anything: no rule reads a word of it.

use std::time::Duration;

use super::Epoch;

/// Why a tenure ended, or why another one began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The application ended by itself.
    ApplicationEnded,
    /// The kernel closed the lifeline: agent and application had ended together.
    CertificateOfDeath,
    /// Nothing was heard of the active for T.
    LeaseExpired,
    /// The active reached neither the API server nor its peer, or got no processor time to do so.
    HoldLost,
    /// Somebody asked for it.
    SwitchOver,
    /// The active was asked to end, as when its Pod is deleted.
    PodDeleted,
    /// The active was fenced.
    Fenced,
    /// Nobody held the Lease, and nobody said why.
    Released,
    /// The role was handed over, and nobody said why.
    HandedOver,
    /// The Lease named the agent itself, from a tenure that had lapsed.
    Resumed,
}

impl Cause {
    /// Every cause; the place of one is its number on the wire.
    pub const ALL: [Self; 10] = [
        Self::ApplicationEnded,
        Self::CertificateOfDeath,
        Self::LeaseExpired,
        Self::HoldLost,
        Self::SwitchOver,
        Self::PodDeleted,
        Self::Fenced,
        Self::Released,
        Self::HandedOver,
        Self::Resumed,
    ];

    /// The word in status, events, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApplicationEnded => "ApplicationEnded",
            Self::CertificateOfDeath => "CertificateOfDeath",
            Self::LeaseExpired => "LeaseExpired",
            Self::HoldLost => "HoldLost",
            Self::SwitchOver => "SwitchOver",
            Self::PodDeleted => "PodDeleted",
            Self::Fenced => "Fenced",
            Self::Released => "Released",
            Self::HandedOver => "HandedOver",
            Self::Resumed => "Resumed",
        }
    }

    /// A sentence for people.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::ApplicationEnded => "the application of the former active had ended by itself",
            Self::CertificateOfDeath => "the container of the former active had ended",
            Self::LeaseExpired => "nothing was heard of the former active any more",
            Self::HoldLost => {
                "the former active reached neither the API server nor its peer, or got no processor time"
            }
            Self::SwitchOver => "a switchover was asked for",
            Self::PodDeleted => "the former active was asked to end",
            Self::Fenced => "the former active was fenced",
            Self::Released => "nobody held the Lease",
            Self::HandedOver => "the former active handed over",
            Self::Resumed => "the Lease still named the Pod that acts",
        }
    }

    /// The cause of this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == word)
    }

    /// Whether somebody wanted it; everything else is a failure.
    pub const fn is_planned(self) -> bool {
        match self {
            Self::SwitchOver | Self::PodDeleted | Self::Fenced | Self::Released => true,
            Self::ApplicationEnded
            | Self::CertificateOfDeath
            | Self::LeaseExpired
            | Self::HoldLost
            | Self::HandedOver
            | Self::Resumed => false,
        }
    }

    /// The number on the wire.
    pub fn number(self) -> u64 {
        Self::ALL.iter().position(|cause| *cause == self).map_or(0, |place| place as u64)
    }

    /// The cause of a number on the wire.
    pub fn numbered(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// How a tenure ended, as its agent tells its peer: spans, because clocks of two machines are never compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// The tenure.
    pub epoch: Epoch,
    /// Why it ended.
    pub cause: Cause,
    /// How long ago its end was noticed or asked for. At most 2^32 - 1 microseconds.
    pub detected_ago: Duration,
    /// How long ago nothing of its application was left. At most 2^32 - 1 microseconds.
    pub fenced_ago: Duration,
}

/// A takeover as its new active knows it. Spans count from the beginning: when the end of the tenure before was noticed
/// or asked for, or, if it was only missed, the last sign of life of its active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeoverRecord {
    /// The new tenure.
    pub epoch: Epoch,
    /// Why there is one.
    pub cause: Cause,
    /// The end of the tenure before was noticed.
    pub detected: Duration,
    /// Nothing of that tenure was left.
    pub fenced: Duration,
    /// The Lease was answered, or a handover accepted.
    pub granted: Option<Duration>,
    /// The application was started, or its hook for actives had done its work.
    pub promoted: Option<Duration>,
    /// The EndpointSlice showed the new address; with a certificate of the old tenure's end that may be before the answer.
    pub published: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_one_word_and_one_number() {
        for cause in Cause::ALL {
            assert_eq!(Cause::parse(cause.as_str()), Some(cause));
            assert_eq!(Cause::numbered(cause.number()), Some(cause));
        }
        assert_eq!((Cause::parse("Other"), Cause::numbered(10)), (None, None));
    }
}
