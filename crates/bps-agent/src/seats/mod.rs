//! The seats of a Pod that is the standby of several actives: where their state is, and which one gets which Lease.
//!
//! ```text
//! <state directory>/seats/0      state directory of the first seat, see `replicate::directory`
//! <state directory>/seats/1      that of the next one
//! <state directory>/active   ->  seats/<n>: that of the seat that acts, or did last
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | [`choice`] | decides which seat gets a Lease |
//! | [`folders`] | the directories, and what is kept of their Leases |
//! | [`link`](mod@link) | points the application at the directory of the seat that acts |
//! | [`summary`] | what the agent shows of itself: one role, and one answer to the kubelet |

pub mod choice;
pub mod folders;
pub mod link;
pub mod summary;
