//! What a look at a group must know of the looks before it.
//!
//! All of it can be lost: then waits begin anew, which takes longer and is never less safe.
//!
//! | module | what it does |
//! |---|---|
//! | `leases` | Leases as they were last, and how they ended |
//! | `lasting` | since when what lasts has lasted |
//! | `own` | the group as the operator wrote it last |

use bps_protocol::Moment;

use super::SeenGroup;
use super::awaited::AwaitedWrites;
use super::departed::Departed;

mod lasting;
mod leases;
mod own;

pub use lasting::Lasting;
pub use leases::{LeaseMemory, SeenEnds, TERMS_MISSED};
pub use own::OwnStatus;

/// What is remembered of what was seen of one group.
#[derive(Debug, Default)]
pub struct Memory {
    /// Its Leases.
    pub leases: LeaseMemory,
    /// Since when what lasts has lasted.
    pub lasting: Lasting,
    /// Members that do not start again.
    pub departed: Departed,
    /// What the watches have still to show.
    pub awaited: AwaitedWrites,
    /// The group as it was written last.
    pub own: OwnStatus,
}

impl Memory {
    /// Notes what was seen, and puts into it what only earlier looks know.
    pub fn remember(&mut self, seen: &mut SeenGroup, at: &Moment<'_>) {
        let set_back = self.leases.see(seen, at.now);
        self.lasting.see(seen, at.now);
        self.leases.miss(seen, at);
        seen.group.lost.extend(set_back);
    }
}
