//! How many Pods and sets there are, for the metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use bps_api::BackupPodSet;
use bps_core::model::Role;
use bps_core::status::SURVIVAL_CONDITIONS;

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

    /// Number of sets whose status says that the loss of one domain would leave them with too few primaries, by the kind of the
    /// domain: `node` or `zone`.
    pub fn count_at_risk(&self) -> [(&'static str, usize); 2] {
        SURVIVAL_CONDITIONS.map(|(loss, condition)| {
            let is_at_risk = |set: &&Arc<BackupPodSet>| {
                let conditions = set.status.iter().flat_map(|status| &status.conditions);
                conditions.into_iter().any(|told| told.r#type == condition && told.status == false.into())
            };
            (loss, self.sets.values().filter(is_at_risk).count())
        })
    }
}

fn is_ready(pod: &SlimPod) -> bool {
    SlimCondition::ready(&pod.status.conditions).is_some_and(SlimCondition::is_true)
}
