//! What a plan for a group consists of: steps that are taken, and holds that say why one is not.

use std::collections::BTreeSet;

use bps_protocol::{AgentId, BootTime, Lease};

use super::reason::PairReason;
use super::view::{LevelText, Seat, Shown};

/// What to do, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What to do now.
    pub steps: Vec<PairStep>,
    /// What is not done yet, the most important first.
    pub holds: Vec<PairHold>,
    /// Pairs that are about to end: their addresses are unready.
    pub draining: BTreeSet<u32>,
    /// When to look again even if nothing happens.
    pub look_again: Option<BootTime>,
}

impl Plan {
    /// Whether something of the group is held back for this reason.
    pub fn is_held(&self, reason: PairReason) -> bool {
        self.holds.iter().any(|hold| hold.reason == reason)
    }

    /// Numbers of the pairs of which something is held back for this reason.
    pub fn pairs_held(&self, reason: PairReason) -> BTreeSet<u32> {
        self.holds.iter().filter(|hold| hold.reason == reason).filter_map(|hold| hold.pair).collect()
    }
}

/// One thing to do and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairStep {
    /// What is done.
    pub action: PairAction,
    /// Why.
    pub reason: PairReason,
}

/// Something that only time or another writer can bring.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PairHold {
    /// Why nothing is done.
    pub reason: PairReason,
    /// Number of the pair that it is about, if it is about one.
    pub pair: Option<u32>,
    /// When to look again even if nothing happens; `None` waits for an event.
    pub until: Option<BootTime>,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairAction {
    /// Makes a pair.
    Found {
        /// Its number.
        number: u32,
        /// Term that its epochs begin above.
        term: u32,
        /// Its members.
        seats: [Seat; 2],
        /// What the Lease said that it had before.
        level: Option<LevelText>,
    },
    /// Makes the Lease of a pair again as it was when another writer deleted it.
    Restore {
        /// Number of the pair.
        pair: u32,
    },
    /// Asks the active to admit a Pod in the place of another one.
    Ask {
        /// Number of the pair.
        pair: u32,
        /// Who goes.
        leaving: AgentId,
        /// Who comes.
        joining: Seat,
    },
    /// Asks the active to vacate the place of its standby.
    Vacate {
        /// Number of the pair.
        pair: u32,
        /// The standby, which is gone.
        leaving: AgentId,
    },
    /// Takes a request back.
    Withdraw {
        /// Number of the pair.
        pair: u32,
    },
    /// Writes down where an agent listens now: a Pod with a new sandbox has another address.
    Move {
        /// Number of the pair.
        pair: u32,
        /// The agent, with its new address.
        seat: Seat,
    },
    /// Replaces a member of a pair in which no member acts.
    Force {
        /// Number of the pair.
        pair: u32,
        /// The Lease as it becomes.
        lease: Lease,
    },
    /// Has the active hand over to the standby.
    SwitchOver {
        /// Number of the pair.
        pair: u32,
    },
    /// Ends a pair: none of its members may act any more.
    Fence {
        /// Number of the pair.
        pair: u32,
    },
    /// Deletes the Lease of a pair in which no member acts.
    End {
        /// Number of the pair.
        pair: u32,
    },
    /// Writes the labels of a Pod.
    Label {
        /// Uid of the Pod.
        pod: AgentId,
        /// What they should say.
        shown: Shown,
    },
}

impl PairAction {
    /// The word for this kind of step in logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Found { .. } => "found",
            Self::Restore { .. } => "restore",
            Self::Ask { .. } => "ask",
            Self::Vacate { .. } => "vacate",
            Self::Withdraw { .. } => "withdraw",
            Self::Move { .. } => "move",
            Self::Force { .. } => "force",
            Self::SwitchOver { .. } => "switch-over",
            Self::Fence { .. } => "fence",
            Self::End { .. } => "end",
            Self::Label { .. } => "label",
        }
    }

    /// Number of the pair whose Lease the step writes.
    pub const fn pair(&self) -> Option<u32> {
        match self {
            Self::Found { number: pair, .. }
            | Self::Restore { pair }
            | Self::Ask { pair, .. }
            | Self::Vacate { pair, .. }
            | Self::Withdraw { pair }
            | Self::Move { pair, .. }
            | Self::Force { pair, .. }
            | Self::SwitchOver { pair }
            | Self::Fence { pair }
            | Self::End { pair } => Some(*pair),
            Self::Label { .. } => None,
        }
    }

    /// Pods that have a place in that pair once the step is taken and carried out, as far as the step names them.
    pub(super) fn seated(&self) -> Vec<AgentId> {
        match self {
            Self::Found { seats, .. } => seats.iter().map(|seat| seat.id).collect(),
            Self::Ask { joining, .. } => vec![joining.id],
            Self::Force { lease, .. } => lease.members.to_vec(),
            Self::Restore { .. }
            | Self::Vacate { .. }
            | Self::Withdraw { .. }
            | Self::Move { .. }
            | Self::SwitchOver { .. }
            | Self::Fence { .. }
            | Self::End { .. }
            | Self::Label { .. } => Vec::new(),
        }
    }
}
