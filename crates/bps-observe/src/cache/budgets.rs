//! PodDisruptionBudgets in the cache: those of sets, and those of other writers, which may select the same Pods.
//!
//! Two stores, because each look at a set iterates over the budgets of other writers in its namespace.

use bps_api::keys;
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::super::owner::controller_of;
use super::super::store::{ObjectKey, Scope, Source};
use super::super::watched::Watched;
use super::{Affected, Cache, Change, SetKey, key_of};

impl Cache {
    fn see_budget(&mut self, mut budget: PodDisruptionBudget, now: Timestamp) -> Vec<Affected> {
        // The status changes with each Pod, and no decision depends on it.
        budget.status = None;
        let set = set_of(&budget);
        let (store, other) = if set.is_some() {
            (&mut self.budgets, &mut self.foreign_budgets)
        } else {
            (&mut self.foreign_budgets, &mut self.budgets)
        };
        // Its controller changed.
        let key = ObjectKey::of(&budget);
        let moved = if other.get(&key).is_some() { other.remove(&budget.metadata, now) } else { None };
        let Ok(old) = store.put(budget.clone(), Source::Watch, now) else { return Vec::new() };
        let is_same = moved.is_none()
            && old
                .is_some_and(|old| old.spec == budget.spec && old.metadata.labels == budget.metadata.labels);
        if is_same { Vec::new() } else { self.affected_by_budget(&budget) }
    }

    fn lose_budget(&mut self, budget: &PodDisruptionBudget, now: Timestamp) -> Vec<Affected> {
        let own = self.budgets.remove(&budget.metadata, now);
        let lost = own.or_else(|| self.foreign_budgets.remove(&budget.metadata, now));
        lost.map(|lost| self.affected_by_budget(&lost)).unwrap_or_default()
    }

    pub(super) fn begin_budget_list(&mut self, scope: &Scope) {
        self.budgets.begin_list(scope.clone());
        self.foreign_budgets.begin_list(scope.clone());
    }

    pub(super) fn end_budget_list(&mut self, scope: &Scope, now: Timestamp) -> Vec<Affected> {
        let mut gone = self.budgets.end_list(scope, now);
        gone.extend(self.foreign_budgets.end_list(scope, now));
        if self.budget_scopes.insert(scope.clone()) {
            // No set of this scope could have a budget before.
            let is_in_scope =
                |key: &SetKey| scope.0.as_ref().is_none_or(|namespace| key.namespace == *namespace);
            return self
                .set_keys()
                .into_iter()
                .filter(is_in_scope)
                .map(|key| (key, Change::Ordinary))
                .collect();
        }
        gone.iter().flat_map(|budget| self.affected_by_budget(budget)).collect()
    }

    /// Whether it is known which budgets there are in a namespace.
    pub(crate) fn has_listed_budgets(&self, namespace: &str) -> bool {
        self.budget_scopes.contains(&Scope(None))
            || self.budget_scopes.contains(&Scope(Some(namespace.to_owned())))
    }

    /// The set whose budget it is, or all of the namespace: any of them may have Pods that it selects.
    fn affected_by_budget(&self, budget: &PodDisruptionBudget) -> Vec<Affected> {
        if let Some(set) = set_of(budget) {
            return vec![(set, Change::Contested)];
        }
        let ObjectKey { namespace, .. } = ObjectKey::of(budget);
        let sets = self.sets.in_namespace(&namespace);
        sets.map(|set| (key_of(&set.metadata), Change::Ordinary)).collect()
    }
}

/// The set that controls a budget.
pub(super) fn set_of(budget: &PodDisruptionBudget) -> Option<SetKey> {
    let owner = controller_of(&budget.metadata).filter(|owner| owner.kind == keys::KIND)?;
    let ObjectKey { namespace, .. } = ObjectKey::of(budget);
    Some(SetKey { namespace, name: owner.name.clone() })
}

impl Watched for PodDisruptionBudget {
    fn seen(self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.see_budget(self, now)
    }

    fn lost(&self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.lose_budget(self, now)
    }
}
