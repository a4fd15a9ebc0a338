//! What decisions are made from and what they consist of: Pods, roles, the wish, the snapshot, steps and reasons.
//!
//! Nothing here waits, reads a clock or knows Kubernetes' objects; `observe` translates them.

mod desired;
mod ids;
mod others;
mod outcome;
mod partition;
mod pod;
mod reason;
mod role;
mod snapshot;
mod step;
mod topology;
mod transition;

pub use desired::{
    Desired, PodShare, RedundancyPromise, ScaleIn, Strategies, Strategy, UpdateKind, UpdatePolicy,
};
pub use ids::{NodeName, PodName, Revision, SubsetName, Uid};
pub use others::{Others, SELECTOR_PAUSE, foreign_slice};
pub use outcome::{Outcome, Refusal, StepResult};
pub use partition::Replaceable;
pub use pod::{
    Gate, GateTrouble, Lifecycle, NodeHealth, NodeView, Ownership, Part, PodRef, PodView, RoleLabels, Signs,
};
pub use reason::Reason;
pub use role::Role;
pub use snapshot::{
    EarlyEnds, Endpoint, ExposedKind, ExposedSlice, Exposure, Leftover, ObjectState, Recent,
    STORM_BELIEVED_AFTER, Snapshot, Storm,
};
pub use step::{Action, Hold, Plan, Step};
pub use topology::{Subset, SubsetShare, Topology, share_out};
pub use transition::{TRANSITIONS, Transition, transition};
