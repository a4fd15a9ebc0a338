//! Those who wait until the standby has what there is.

use std::borrow::Cow;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Answer;

/// Who waits.
pub(super) enum Waiter {
    /// The application, for a barrier.
    Application(oneshot::Sender<Answer>),
    /// The protocol, which may hand over then.
    Succession,
}

/// Somebody who waits.
pub(super) struct Ticket {
    /// Since when.
    pub(super) asked: Instant,
    /// Who.
    pub(super) waiter: Waiter,
}

impl Ticket {
    /// Answers an application; the protocol is answered otherwise.
    pub(super) fn answer(self, answer: Answer) {
        match self.waiter {
            // Who asked may be gone.
            Waiter::Application(waiter) => drop(waiter.send(answer)),
            Waiter::Succession => {}
        }
    }

    /// Answers that a barrier was not kept.
    pub(super) fn refuse(self, reason: impl Into<Cow<'static, str>>) {
        self.answer(Err(reason.into()));
    }
}
