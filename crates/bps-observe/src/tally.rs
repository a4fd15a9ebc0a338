//! How many Pods there are, for the metrics.

use std::collections::BTreeMap;

use bps_core::model::Role;

use super::cache::Cache;
use super::pod::role;
use super::slim::{SlimCondition, SlimPod};

impl Cache {
    /// Number of Pods of all sets, by role and by whether they are ready; a cold backup at its gate is not.
    pub fn count_pods(&self) -> BTreeMap<(Role, bool), usize> {
        let tiers = Role::ALL.into_iter().flat_map(|role| [((role, true), 0), ((role, false), 0)]);
        let mut counts: BTreeMap<(Role, bool), usize> = tiers.collect();
        for pod in self.pods.values() {
            if let Some(role) = role(pod) {
                *counts.entry((role, is_ready(pod))).or_default() += 1;
            }
        }
        counts
    }
}

fn is_ready(pod: &SlimPod) -> bool {
    SlimCondition::ready(&pod.status.conditions).is_some_and(SlimCondition::is_true)
}
