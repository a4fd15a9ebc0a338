//! What agents tell each other; who carries it must authenticate it, and may lose, repeat, delay and reorder it.

use std::time::Duration;

use super::{BootTime, Epoch};

/// A random number that an agent draws when it starts; a restarted agent is another incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// A sign of life of a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ping {
    /// The sender as of its last start.
    pub incarnation: Incarnation,
    /// When it was sent, on the sender's clock; a handover returns it.
    pub sent: BootTime,
}

impl Ping {
    /// Whether the other one comes from the same start of the same agent, and was sent no earlier.
    pub fn is_before(&self, other: &Self) -> bool {
        self.incarnation == other.incarnation && self.sent <= other.sent
    }
}

/// The active asks not to be succeeded for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PromiseRequest {
    /// Epoch of the asker.
    pub epoch: Epoch,
    /// When it was sent, on the asker's clock; the promise returns it.
    pub sent: BootTime,
}

/// A standby will not take over for T from when it answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Promise {
    /// The request that it answers.
    pub request: PromiseRequest,
}

/// The application of the sender has ended; the receiver shall act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handover {
    /// Epoch to act with.
    pub epoch: Epoch,
    /// The newest ping of the receiver.
    pub echo: Ping,
    /// What the sender had left of its grace.
    pub grace_left: Duration,
}

/// Anything one agent tells another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// See [`Ping`].
    Ping(Ping),
    /// See [`PromiseRequest`].
    PromiseRequest(PromiseRequest),
    /// See [`Promise`].
    Promise(Promise),
    /// See [`Handover`].
    Handover(Handover),
    /// The last sign of life for now of a standby that would accept no handover.
    Farewell(Ping),
}
