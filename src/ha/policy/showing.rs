//! Whether clients should be led to an agent's Pod.

use super::Protocol;
use crate::ha::{Epoch, Role};

/// The own address is to be shown to clients, with this epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Showing {
    /// Of the tenure that they are led to.
    pub epoch: Epoch,
    /// Whether that tenure has begun. Otherwise it is the one that this agent is about to claim, and whoever acts with the
    /// same epoch comes before it.
    pub has_begun: bool,
}

impl Protocol {
    /// Who acts is shown; and so is who inherits from an active that has certainly ended, while it still claims: nodes
    /// take longer to follow a new address than a claim takes, and nobody serves at the old one.
    ///
    /// Leads clients, and lets nobody act.
    pub fn showing(&self) -> Option<Showing> {
        let Self { agent, copies, is_fenced, .. } = self;
        match agent.role {
            Role::Active => Some(Showing { epoch: agent.epoch, has_begun: true }),
            Role::Standby | Role::Lapsed | Role::HandedOver if !is_fenced && !copies.is_withheld => {
                let epoch = agent.r3_inheritance()?;
                Some(Showing { epoch, has_begun: false })
            }
            Role::Standby | Role::Lapsed | Role::HandedOver | Role::Stopping | Role::Ended => None,
        }
    }
}
