//! In which pair nobody may act: whoever has all of the replicated state is lost, and whoever is left lacks some of it.
//!
//! Only tells people, who may bring the lost Pod back or do without what it has. Agents withhold themselves, by the Lease.

use std::time::Duration;

use bps_protocol::{AgentId, BootTime};

use super::plan::Draft;
use super::reason::PairReason;
use super::roster::Roster;
use super::view::Pair;

/// Time beside a hold before it is told. 5 s: an agent that was started again acts again within that.
pub(super) const RESTART_MAX: Duration = Duration::from_secs(5);

/// For how long after the last write of a Lease whoever is cut off counts as acting. 61 s: it may act for longer if its standby
/// hears it, but people are to be told.
const CUT_OFF_MAX: Duration = Duration::from_secs(61);

/// A pair of which no level copy is to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forsaken {
    /// Since when.
    pub since: BootTime,
    /// It was told already, by this operator or the one before.
    pub was_told: bool,
}

impl Roster<'_> {
    /// Whether a pair has a member that lacks acknowledged writes, and nobody who has them is to be seen.
    pub fn is_forsaken(&self, pair: &Pair) -> bool {
        let is_known = pair.level.is_some() && !pair.level_pods.is_empty();
        let is_free = !pair.is_ending && !pair.lease.members.iter().any(|id| pair.fenced.contains(id));
        let lacks = |id: &AgentId| self.is_staying(*id) && !pair.level_pods.contains(id);
        let is_up = |id: &AgentId| self.pod(*id).is_some_and(|pod| pod.is_ready);
        is_known && is_free && pair.lease.members.iter().any(lacks) && !keepers(pair).any(is_up)
    }
}

/// Whoever has every acknowledged write, or may be acting and hence be about to have them.
fn keepers(pair: &Pair) -> impl Iterator<Item = &AgentId> {
    pair.level_pods.iter().chain(&pair.lease.holder)
}

/// Tells it once that has lasted for so long that nobody acts any more who may have been acting.
pub(super) fn withheld(draft: &mut Draft<'_>) {
    for pair in &draft.group.pairs {
        let Some(Forsaken { since, was_told }) = pair.forsaken else { continue };
        let is_there = |id: &AgentId| draft.roster.pod(*id).is_some();
        let soon = since + draft.at.timing.hold.max(draft.at.timing.api_hold) + RESTART_MAX;
        // A Pod that is there may act although nobody sees it: its node may be cut off.
        let when = if keepers(pair).any(is_there) && pair.lease.holder.is_some() {
            soon.max(pair.unwritten_since + CUT_OFF_MAX)
        } else {
            soon
        };
        if was_told || when <= draft.at.now {
            draft.hold(PairReason::Withheld, Some(pair.number), None);
        } else {
            draft.look_again(when);
        }
    }
}
