//! R7 Restart: an agent that lost its memory starts as if it had promised.

use crate::agent::Agent;
use crate::{AgentId, Incarnation, Moment};

impl Agent {
    /// R7: an agent that ran before in the same Pod.
    ///
    /// It may have promised or delegated just before, so that it is bound for T. Its name in the Lease gives it nothing,
    /// and its pings carry a new incarnation.
    pub fn r7_restarted(at: &Moment<'_>, id: AgentId, incarnation: Incarnation) -> Self {
        Self { promise_end: at.now + at.timing.watch, ..Self::new(id, incarnation) }
    }
}
