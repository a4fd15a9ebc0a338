//! Protection of a set from planned disruptions, such as the drain of a node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Planned disruptions.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// `Keep` (default): the set keeps a PodDisruptionBudget `<set>-bps` that lets one of its primaries and hot backups be evicted
    /// at a time, unless another budget selects them already or there is only one. `None`: it keeps none.
    #[serde(default)]
    pub budget: BudgetPolicy,
}

/// Whether a set keeps a PodDisruptionBudget: `Keep` (default) or `None`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BudgetPolicy {
    /// One for its primaries and hot backups together. Cold backups cannot be protected: Kubernetes evicts Pods that are pending
    /// whatever budgets say.
    #[default]
    Keep,
    /// None.
    None,
}
