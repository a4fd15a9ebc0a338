//! Agents for tests.

use bps_protocol::{Agent, AgentId, BootTime, Epoch, Hold, Incarnation, Lease, Seen, Version};

/// The agent itself.
pub(super) const OWN: AgentId = AgentId(1);
/// The other member.
pub(super) const OTHER: AgentId = AgentId(2);

/// The first epoch of a term.
pub(super) fn epoch(term: u32) -> Epoch {
    Epoch { term, sequence: 0 }
}

/// An agent that knows of this term, and a Lease that says who holds which one.
pub(super) fn agent(known: u32, (written, holder): (u32, Option<AgentId>)) -> Agent {
    let lease = Lease {
        epoch: epoch(written),
        holder,
        members: [OWN, OTHER],
        pending: None,
        hold: Hold::Api,
        writes: 0,
    };
    let seen = Some(Seen { lease, version: Version(1), since: BootTime(0) });
    Agent { epoch: epoch(known), seen, ..Agent::new(OWN, Incarnation(1)) }
}
