//! Decides who forms a pair with whom, who takes a lost place, and which pair ends.
//!
//! Never decides who acts: that is the pair's own affair, by the rules of [`bps_protocol`]. What is done here only changes
//! who may. A pure function of what was seen; a look that finds everything in place plans nothing.
//!
//! | file | what it does |
//! |---|---|
//! | `view` | Pods, pairs and lost Leases as they were seen |
//! | `plan` | the plan: seats first, then new pairs, then labels |
//! | `founding` | which pairs are made |
//! | `ending` | which pair ends when there are more pairs than Pods can fill |
//! | `keepers` | who comes back to a copy of the state, and whose place is kept until then |
//! | `withheld` | in which pair nobody may act because no level copy of its state is left |
//! | `labels` | what the labels of each Pod should say |

mod ending;
mod founding;
mod keepers;
mod labels;
mod plan;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod view;
mod withheld;

pub use labels::LABEL_MAX;
pub use plan::{Plan, Step, Wait, plan};
pub use view::{Group, HaState, LevelText, Lost, Pair, Pod, Seat, Shown, VACANT, is_lasting};
pub use withheld::Forsaken;
