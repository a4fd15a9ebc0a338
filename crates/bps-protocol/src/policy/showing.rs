//! Whether clients should be led to an agent's Pod.

use super::Protocol;
use crate::{Epoch, Role};

/// The own address is to be shown to clients, with this epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Showing {
    /// Of the tenure that they are led to.
    pub epoch: Epoch,
    /// The tenure that it follows, which has certainly ended, as long as the own one has not begun: this agent is about to
    /// claim it, and whoever acts with the same epoch comes before it.
    pub follows: Option<Epoch>,
}

impl Showing {
    /// Whether the tenure that clients are led to has begun.
    pub fn has_begun(&self) -> bool {
        self.follows.is_none()
    }
}

impl Protocol {
    /// Who acts is shown; and so is who inherits from an active that has certainly ended, while it still claims: nodes
    /// take longer to follow a new address than a claim takes, and nobody serves at the old one.
    ///
    /// Leads clients, and lets nobody act.
    pub fn showing(&self) -> Option<Showing> {
        let Self { agent, copies, .. } = self;
        match agent.role {
            Role::Active => Some(Showing { epoch: agent.epoch, follows: None }),
            Role::Standby | Role::Lapsed | Role::HandedOver if !self.is_fenced() && !copies.is_withheld => {
                let epoch = agent.r3_inheritance()?;
                Some(Showing { epoch, follows: Some(agent.epoch) })
            }
            Role::Standby | Role::Lapsed | Role::HandedOver | Role::Stopping | Role::Ended => None,
        }
    }
}
