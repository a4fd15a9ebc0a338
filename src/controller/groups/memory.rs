//! What a look at a group keeps for the next one: what was seen, and what was written besides the steps of plans.
//!
//! All of it can be lost: then waits begin anew, and what was written is written once more.

use std::collections::BTreeMap;

use bps_core::pairing::{KeysNeed, KeysWritten, KnownOthers};
use bps_observe::SetKey;
use bps_observe::group::Memory;
use bps_protocol::BootTime;

/// Memories of all groups.
pub(super) type Memories = BTreeMap<SetKey, GroupMemory>;

/// What is remembered of one group.
#[derive(Debug, Default)]
pub(super) struct GroupMemory {
    /// What was seen.
    pub(super) seen: Memory,
    /// What others wrote behind its Service.
    pub(super) others: KnownOthers,
    /// What its agents need.
    pub(super) means: KnownMeans,
    /// When amounts were told last of the state that standbys lack.
    pub(super) amounts_told: Option<BootTime>,
}

/// What was written last of the keys and permissions of agents.
#[derive(Debug, Default)]
pub(super) struct KnownMeans {
    /// Which keys that were.
    pub(super) keys: Option<KeysWritten>,
    /// Agents that may miss them.
    pub(super) need: KeysNeed,
    /// When they are to be written again.
    pub(super) due: BootTime,
    /// What was refused.
    pub(super) refused: Vec<String>,
}
