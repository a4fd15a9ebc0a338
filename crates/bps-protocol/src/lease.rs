//! What the Lease of a pair says, and what a write of it would make of it.

use super::Epoch;

/// One agent: the uid of its Pod as a number, so that a Pod of the same name that is made again is another agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(pub u128);

impl AgentId {
    /// No agent: the uid of no Pod.
    pub const NOBODY: Self = Self(0);
}

/// The `resourceVersion` of the Lease, as the number it is; a later write has a higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// What an active may live on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hold {
    /// Writes of the Lease, and promises.
    Api,
    /// Promises alone: "Peer mode", in which an idle pair hardly ever writes.
    Peer,
}

/// The operator's wish to replace a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replacement {
    /// The member that goes.
    pub leaving: AgentId,
    /// The agent that takes its place.
    pub joining: AgentId,
}

/// The content of the Lease of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// Epoch of the last tenure that was written down.
    pub epoch: Epoch,
    /// Who has it; `None`: released, the application has certainly ended and nothing was delegated.
    pub holder: Option<AgentId>,
    /// The only agents that may take over through the Lease.
    pub members: [AgentId; 2],
    /// Replacement that the holder is asked to admit.
    pub pending: Option<Replacement>,
    /// What the holder may live on.
    pub hold: Hold,
    /// Number of writes, except those that only changed `pending`.
    ///
    /// The API server makes no new version for a write that changes nothing; this makes each one a change, and tells
    /// who watches an active's write from a request of the operator.
    pub writes: u64,
}

impl Lease {
    /// The members, and who is to become one.
    pub fn named(&self) -> impl Iterator<Item = AgentId> + use<> {
        self.members.into_iter().chain(self.pending.map(|replacement| replacement.joining))
    }

    /// Whether this agent is a member, or is to become one.
    pub fn names(&self, id: AgentId) -> bool {
        self.named().any(|named| named == id)
    }

    /// Whether one of its places is vacant: whoever is in the other one is the only one who may act.
    pub fn is_lone(&self) -> bool {
        self.members.contains(&AgentId::NOBODY)
    }

    /// The member that is not this agent.
    pub(super) fn other_member(&self, id: AgentId) -> Option<AgentId> {
        self.members.into_iter().find(|member| *member != id)
    }

    /// As the holder of this epoch writes it.
    pub(super) fn held_by(&self, holder: AgentId, epoch: Epoch, hold: Hold) -> Self {
        Self { epoch, holder: Some(holder), hold, writes: self.writes + 1, ..*self }
    }

    /// With nobody acting.
    pub(super) fn released(&self, epoch: Epoch) -> Self {
        Self { epoch, holder: None, hold: Hold::Api, writes: self.writes + 1, ..*self }
    }

    /// With one member replaced and no replacement pending.
    pub(super) fn with_replaced(&self, replacement: Replacement) -> Self {
        let replaced = |member| if member == replacement.leaving { replacement.joining } else { member };
        Self { members: self.members.map(replaced), pending: None, ..*self }
    }
}

/// A compare-and-swap of the Lease: it must change nothing unless the Lease still has the version `base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Write {
    /// Its number; answers name it. All copies of one write carry the same.
    pub number: u64,
    /// The version that the decision was based on.
    pub base: Version,
    /// The content to write.
    pub lease: Lease,
}
