//! Reads watch caches into one consistent snapshot; the only place that reads raw Kubernetes fields.
//!
//! | module | what it does |
//! |---|---|
//! | [`readable`] | sets and groups of which this version may not understand everything |
//! | [`slim`] | Pods and nodes with only the fields that decisions need |
//! | [`cache`] | what the watches and our own writes have shown, by set |
//! | `change` | whether an event matters, and how much |
//! | `pod`, `node` | raw fields to views |
//! | [`requests`] | what a Pod requests, as the scheduler counts it |
//! | [`group`] | groups of pairs, ends of their Leases, and own writes that no watch has shown yet |
//! | `wish`, `subset` | the spec to the wish, checked |
//! | `exposure` | the Service and its slice |
//! | `budget` | the PodDisruptionBudget, and those of others |
//! | `snapshot` | all of it joined at one moment |
//! | `tally` | how many Pods there are, for the metrics |

mod budget;
pub mod cache;
mod change;
mod exposure;
pub mod group;
mod node;
mod owner;
mod pod;
pub mod readable;
pub mod requests;
pub mod slim;
mod snapshot;
mod store;
mod storm;
mod subset;
mod tally;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod watched;
mod wish;

pub use budget::misleading_budget;
pub use cache::{
    Affected, Cache, Cleared, Deleted, Kind, KnownKeys, NotedNodes, OfSet, SetKey, TakenBack, TakenName,
    Written,
};
pub use change::Change;
pub use node::{is_out_of_service, node_view};
pub use owner::{controller_of, is_controlled_by, is_orphan};
pub use snapshot::{Observation, SeenSlice, Version, observe};
pub use store::{Scope, version};
pub use storm::StormThreshold;
pub use watched::Watched;
pub use wish::Error;
