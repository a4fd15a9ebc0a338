//! Who comes back to a pair whose state is replicated, with its volume; and whose place is kept until then, because nobody else
//! has every acknowledged write.
//!
//! Who takes that place instead lacks those writes. In another pair a copy would be replaced by that of the new peer, or be
//! acted with although it is old.

use bps_protocol::AgentId;

use super::roster::Roster;
use super::view::{Pair, is_lasting};

impl Roster<'_> {
    /// Names under which members that are gone may come back, and take no place but theirs.
    pub(super) fn homes<'p>(&self, pair: &'p Pair) -> Vec<&'p str> {
        if pair.level.is_none() || pair.is_ending {
            return Vec::new();
        }
        let gone = self.gone_members(pair).into_iter().filter_map(|id| pair.names.get(&id));
        gone.map(String::as_str).filter(|name| is_lasting(name)).collect()
    }

    /// The member, and the name under which it comes back; none if a member that stays has every acknowledged write, too. One that
    /// acts in another pair keeps its directory, and comes back when it hands over there.
    ///
    /// One place at most: the other one is for anybody, who may act if the application is told to do without those writes.
    pub(super) fn kept_place<'p>(&self, pair: &'p Pair) -> Option<(AgentId, &'p str)> {
        let level = || pair.lease.members.into_iter().filter(|id| pair.level_pods.contains(id));
        if pair.level.is_none()
            || pair.is_ending
            || level().any(|id| self.is_staying(id) && !self.is_busy(pair, id))
        {
            return None;
        }
        let named = level().filter_map(|id| Some((id, pair.names.get(&id)?.as_str())));
        let comes_back = |id: AgentId, name: &str| is_lasting(name) || self.is_busy(pair, id);
        let lasting = named.filter(|(id, name)| comes_back(*id, name));
        lasting.max_by_key(|(id, _)| pair.lease.holder == Some(*id))
    }
}
