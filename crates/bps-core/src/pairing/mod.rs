//! Decides who forms a pair with whom, who takes a lost place, and which pair ends; and what a group's objects need.
//!
//! Never decides who acts: that is the pair's own affair, by the rules of [`bps_protocol`]. What is done here only changes
//! who may. A pure function of what was seen; a look that finds everything in place plans nothing.
//!
//! | file | what it does |
//! |---|---|
//! | `view` | Pods, pairs and lost Leases as they were seen |
//! | `roster` | the same by uid and number |
//! | `step` | what a plan consists of: steps and holds |
//! | `reason` | why each of them is there |
//! | `check` | invariants that no plan may break, a second opinion |
//! | `plan` | the plan: seats first, then new pairs, then labels |
//! | `founding` | which pairs are made |
//! | `ending` | which pair ends when there are more pairs than Pods can fill |
//! | `keepers` | who comes back to a copy of the state, and whose place is kept until then |
//! | `withheld` | in which pair nobody may act because no level copy of its state is left |
//! | `vacancy` | whose place becomes vacant while there is no Pod for it |
//! | `apart` | how far a standby is from its active, and which one gives its place to another that is farther |
//! | `silence` | which standby does not answer, and who takes its place |
//! | `cover` | which active no rollout may delete for now, because nobody could follow it |
//! | `sharing` | which standby has a place left, and which Pod hands over in one pair because another one needs its copy |
//! | `departure` | which active leaves a node that is about to be taken away |
//! | `labels` | what the labels of each Pod should say |
//! | `waves` | which steps may be taken at the same time |
//! | `leases` | what the steps write into Leases and labels |
//! | `existing` | objects of a group as they are in the cluster |
//! | `objects` | its Services, and how any object is put right |
//! | `others` | addresses of somebody else behind its Services |
//! | `slices`, `correction` | EndpointSlices of its pairs, and which of them show what cannot be |
//! | `means` | when its agents need their keys, and which permissions they need |

mod apart;
mod check;
mod correction;
mod cover;
mod departure;
mod ending;
mod existing;
mod founding;
mod keepers;
mod labels;
mod leases;
mod means;
mod objects;
mod others;
mod plan;
mod reason;
mod roster;
mod sharing;
mod silence;
mod slices;
mod step;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod vacancy;
mod view;
mod waves;
mod withheld;

pub use apart::StandbyPlace;
pub use check::{PairViolation, check};
pub use cover::{Successor, Uncovered};
pub use existing::{ExistingObject, ExistingObjects, ExistingPod, ExistingSlice, ShownEndpoint};
pub use labels::LABEL_MAX;
pub use leases::{StepError, StepSource, StepWrite, misled};
pub use means::{KeysNeed, KeysWritten, keys_due, keys_due_next, permission_changes};
pub use objects::{Lead, ObjectChange, is_owned, lead, service_changes, was_owned};
pub use others::{FoundOthers, KnownOthers, OthersNeed};
pub use plan::plan;
pub use reason::PairReason;
pub use roster::Roster;
pub use silence::{SILENCE_MAX, Silence};
pub use slices::{
    Entitlement, SliceExemptions, SliceInput, SliceNeeds, are_ahead, entitlements, patience, slice_needs,
};
pub use step::{PairAction, PairHold, PairStep, Plan};
pub use view::{FORMER_WAIT, Group, HaState, LevelText, Lost, Pair, Pod, Seat, Shown, VACANT, is_lasting};
pub use withheld::Forsaken;
