//! Places of standbys that are gone, while there is no Pod for them.
//!
//! An active without promises lives on writes of the Lease. While the Lease names a second member, a write gives a hold of Ha
//! (1.9 s by default), because that member could take over. If the place is vacant, a write gives the lone hold (60 s), and the
//! active writes every 10 s instead of twice a second. If the active is lost as well, the operator waits for the lone wait
//! (61 s) instead of W (62 min). Only the active vacates the place beside it (R6), so that a mistake here costs a standby, and
//! no safety. Why: `docs/adr/0040-the-place-of-a-lost-standby-is-vacated.md`.

use bps_protocol::{AgentId, Hold};

use super::plan::Draft;
use super::reason::PairReason;
use super::step::PairAction;
use super::view::{Pair, VACANT};

impl Draft<'_> {
    /// Asks actives to vacate the places of standbys that are gone, where no other step was found. A pause does not hold this
    /// back: it protects the active, and changes nothing else.
    pub(super) fn vacate_places(&mut self) {
        for pair in &self.group.pairs {
            let Some(leaving) = self.gone_standby(pair).filter(|_| !self.is_asked(pair)) else { continue };
            self.note_asked(pair);
            self.step(PairAction::Vacate { pair: pair.number, leaving }, PairReason::MemberGone);
        }
    }

    /// Returns the standby of an active that lives on writes, if its Pod is gone or going, and is not the only one with every
    /// acknowledged write.
    fn gone_standby(&self, pair: &Pair) -> Option<AgentId> {
        let lives_on_writes = pair.lease.hold == Hold::Api && pair.lease.pending.is_none() && !pair.is_ending;
        let holder = pair.lease.holder.filter(|id| lives_on_writes && self.roster.is_seated(pair, *id))?;
        let standby = pair.lease.members.into_iter().find(|id| *id != holder && *id != VACANT)?;
        // The Lease of an active that is woken late says nothing of its standby.
        let is_there = self.roster.pod(standby).is_some();
        // One that is busy in another pair keeps its copy up to date.
        if self.roster.is_staying(standby) || is_there && pair.is_late {
            return None;
        }
        let may_be_level = pair.level.is_some() && pair.level_pods.is_empty();
        let is_kept = self.roster.kept_place(pair).is_some_and(|(id, _)| id == standby);
        (!may_be_level && !is_kept).then_some(standby)
    }
}
