//! What one look at a group writes, and what becomes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bps_api::keys;
use bps_core::manifests::{group_keys, pair_name};
use bps_core::model::{Outcome, Refusal};
use bps_core::pairing::{
    FoundOthers, KeysNeed, KeysWritten, KnownOthers, Lead, ObjectChange, OthersNeed, PairAction,
    SliceExemptions, SliceInput, StepSource, entitlements, is_owned, keys_due, keys_due_next, lead, misled,
    patience, permission_changes, service_changes, slice_needs,
};
use bps_core::status::{foreign_addresses, group_advice, lease_repaired, lease_restored};
use bps_observe::SetKey;
use bps_observe::group::SeenGroup;
use bps_runtime::boot_clock;
use futures::join;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::{debug, info, warn};

use super::Context;
use super::group_keys::GroupKeys;
use super::look::{Decided, Round};
use super::memory::GroupMemory;
use super::stores::Stores;
use crate::apply::groups::{GroupAnswer, Hand, apply, at_most, carry_out, release};
use crate::apply::others::{Found, clear};
use crate::controller::reconcile::Look;

/// What the writes of a look came to so far.
#[derive(Debug, Default)]
pub(super) struct WritesSoFar {
    /// What stands in the way, one sentence each.
    pub(super) troubles: Vec<String>,
    /// A write met a newer version than the one that it was based on.
    pub(super) is_overtaken: bool,
    /// The namespace is being deleted.
    pub(super) is_ending: bool,
}

/// What was done before the steps of a plan.
pub(super) struct Ready {
    /// Whose the Service is that leads to the actives.
    lead: Lead,
    /// Pairs whose slice was written.
    written: BTreeSet<u32>,
    /// Those of them where that met another version.
    overtaken: BTreeSet<u32>,
}

/// Releases the Pods of a group that is gone: no operator would tell a rollout any more that it may go on.
pub(super) async fn release_all(context: &Context, key: &SetKey, stores: &Stores) -> Look {
    let pods = stores.objects(key).pods;
    let kept = pods.iter().filter(|pod| pod.annotations().contains_key(keys::ANNOTATION_HA_KEPT));
    let releases = kept.map(|pod| release(&context.surroundings.client, pod)).collect();
    let mut is_refused = false;
    for GroupAnswer { object, answer } in at_most(releases).await {
        let Outcome::Failed(refusal) = answer.outcome else { continue };
        let (namespace, group, reason) = (key.namespace.as_str(), key.name.as_str(), refusal.as_str());
        warn!(namespace, group, object, reason, message = answer.message, "Could not release a Pod");
        is_refused = true;
    }
    if is_refused {
        return Look::Refused(context.refusals.again(key).into());
    }
    context.refusals.end(key);
    Look::Settled(None)
}

impl Round<'_> {
    /// Services, and what slices must say before the plan is carried out.
    pub(super) async fn make_ready(
        &self,
        decided: &Decided<'_>,
        memory: &mut GroupMemory,
        so_far: &mut WritesSoFar,
    ) -> Ready {
        let mut ready = Ready { lead: Lead::Unknown, written: BTreeSet::new(), overtaken: BTreeSet::new() };
        if self.group.spec.paused {
            return ready;
        }
        ready.lead = self.put_services(decided.seen, memory, so_far).await;
        let entitlements = entitlements(&self.slice_input(decided, ready.lead)).into_iter();
        let (pairs, changes): (Vec<u32>, Vec<ObjectChange>) =
            entitlements.map(|entitlement| (entitlement.pair, entitlement.change)).unzip();
        for (pair, came) in pairs.into_iter().zip(self.carry_out::<EndpointSlice>(&changes).await) {
            if came.answer.outcome == Outcome::Stale {
                ready.overtaken.insert(pair);
            }
            ready.written.insert(pair);
            self.settle(came, memory, so_far);
        }
        ready
    }

    /// Returns whose the Service that leads to the actives is now.
    async fn put_services(
        &self,
        seen: &SeenGroup,
        memory: &mut GroupMemory,
        so_far: &mut WritesSoFar,
    ) -> Lead {
        let services = &seen.objects.services;
        let mut lead = lead(self.group, services);
        let changes = service_changes(self.group, &seen.group, services);
        let leading = self.group.spec.service.as_ref().map(|service| service.name.as_str());
        let all = self.carry_out::<Service>(&changes).await;
        for (change, came) in changes.iter().zip(all) {
            if leading.is_some() && change.wanted() == leading {
                lead = match came.answer.outcome {
                    Outcome::Done => Lead::Own,
                    Outcome::Failed(Refusal::NameTaken) => Lead::Foreign,
                    Outcome::Stale | Outcome::Failed(_) => lead,
                };
            }
            self.settle(came, memory, so_far);
        }
        lead
    }

    /// What else slices need; returns how soon to look again whether new actives have shown themselves.
    pub(super) async fn put_slices(
        &self,
        decided: &Decided<'_>,
        ready: &Ready,
        memory: &mut GroupMemory,
        so_far: &mut WritesSoFar,
    ) -> Duration {
        let patience = patience(self.group);
        let young = memory.seen.leases.young(decided.now, patience);
        let exemptions = SliceExemptions { young: &young, written: &ready.written };
        let needs = slice_needs(&self.slice_input(decided, ready.lead), exemptions);
        for came in self.carry_out::<EndpointSlice>(&needs.changes).await {
            self.settle(came, memory, so_far);
        }
        if needs.is_any_left { patience } else { Duration::MAX }
    }

    /// Writes keys and permissions of the agents that are due; notes when the keys are due again, and what was refused.
    pub(super) async fn put_means(
        &self,
        seen: &SeenGroup,
        memory: &mut GroupMemory,
        so_far: &mut WritesSoFar,
    ) {
        let (client, now) = (&self.context.surroundings.client, boot_clock::now());
        memory.means.need = KeysNeed::of(&seen.group, memory.means.need, now);
        let (version, keys) = {
            let ring = self.context.surroundings.keys.borrow();
            let keys = GroupKeys::of(&ring, self.now());
            let uid = self.group.metadata.uid.as_deref().unwrap_or_default();
            let version = format!("{uid}|{}", keys.version());
            let is_due = keys_due(memory.means.keys.as_ref(), &version, memory.means.need) <= now;
            let body = || group_keys(self.group, &keys.text(self.group), &keys.metrics_token(self.group));
            (version, is_due.then(body))
        };
        let [role, binding] = permission_changes(self.group, &seen.objects);
        let apply_keys = keys.iter().map(|body| apply::<Secret>(client, self.group, body)).collect();
        let (keys, role, binding) = join!(
            at_most(apply_keys),
            self.carry_out::<Role>(role.as_slice()),
            self.carry_out::<RoleBinding>(binding.as_slice()),
        );
        if keys.iter().any(|came| came.answer.outcome == Outcome::Done) {
            memory.means.keys = Some(KeysWritten { version: version.clone(), at: boot_clock::now() });
        }
        let told = std::mem::take(&mut so_far.troubles);
        for mut came in keys {
            // No watch shows the keys.
            came.answer.written = None;
            self.settle(came, memory, so_far);
        }
        for came in role.into_iter().chain(binding) {
            self.settle(came, memory, so_far);
        }
        memory.means.refused = std::mem::replace(&mut so_far.troubles, told);
        memory.means.due = keys_due_next(memory.means.keys.as_ref(), &version, memory.means.need, now);
    }

    /// Takes away what others left behind the group's Service; returns how soon that is to be looked at again.
    pub(super) async fn clear_addresses(
        &self,
        seen: &SeenGroup,
        memory: &mut GroupMemory,
        so_far: &mut WritesSoFar,
    ) -> Duration {
        let (client, namespace) = (&self.context.surroundings.client, self.key.namespace.as_str());
        let (services, slices) = (&seen.objects.services, &seen.objects.slices);
        let service = match memory.others.need(self.group, services, slices, boot_clock::now()) {
            OthersNeed::Clear(service) => service,
            OthersNeed::Wait(pause) => {
                so_far.troubles.extend(told_others(&memory.others));
                return pause;
            }
        };
        match clear(client, namespace, &service, |slice| is_owned(slice, self.group)).await {
            Ok(Found { is_overtaken: true, .. }) => {
                so_far.is_overtaken = true;
                Duration::MAX
            }
            Ok(found) => {
                if !found.taken.is_empty() {
                    let (group, taken) = (self.key.name.as_str(), found.taken.join(", "));
                    info!(namespace, group, taken, "Took away addresses of others");
                }
                let Found { taken, left, standing, .. } = found;
                let found = FoundOthers { left, standing, has_taken: !taken.is_empty() };
                let pause = memory.others.found(found, boot_clock::now());
                so_far.troubles.extend(told_others(&memory.others));
                pause
            }
            Err(error) => {
                warn!(namespace, group = %self.key.name, error = &error as &dyn std::error::Error, "Could not look for addresses of others");
                so_far.troubles.push(format!("could not look for addresses of others: {error}"));
                Duration::MAX
            }
        }
    }

    fn slice_input<'b>(&'b self, decided: &Decided<'b>, lead: Lead) -> SliceInput<'b> {
        let Decided { seen, plan, .. } = *decided;
        SliceInput { group: self.group, lead, seen: &seen.group, plan, slices: &seen.objects.slices }
    }

    /// First Leases, then labels that take a part away, then the others.
    pub(super) async fn take_steps(
        &self,
        decided: &Decided<'_>,
        ready: &Ready,
        memory: &mut GroupMemory,
        so_far: &mut WritesSoFar,
    ) {
        let Decided { seen, plan, timing, .. } = *decided;
        let ends = memory.seen.leases.returning();
        let source = StepSource {
            group: self.group,
            records: &seen.records,
            ends: &ends,
            pods: &seen.objects.pods,
            timing,
            now: self.now(),
        };
        let hand = Hand { client: &self.context.surroundings.client, source };
        for wave in plan.waves(&ready.overtaken) {
            // Another replica may act from here on: what is left is its affair.
            if !self.context.surroundings.leadership.is_leader() {
                return;
            }
            let taken: Vec<_> = wave.iter().map(|step| hand.take(&step.action)).collect();
            let restored = wave.iter().filter_map(|step| {
                let PairAction::Restore { pair } = step.action else { return None };
                Some((pair, memory.seen.leases.restore(pair)))
            });
            let mut restored: BTreeMap<u32, _> = restored.collect();
            for (step, came) in wave.into_iter().zip(at_most(taken).await) {
                let outcome = came.answer.outcome;
                if let Outcome::Failed(refusal) = outcome
                    && let PairAction::Restore { pair } = step.action
                    && refusal.is_certain()
                {
                    memory.seen.leases.is_not_restored(pair, restored.remove(&pair).flatten());
                }
                if outcome == Outcome::Done {
                    self.note_done(&step.action, seen, memory);
                }
                let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
                let (reason, outcome) = (step.reason.as_str(), outcome.as_str());
                info!(namespace, group, step = ?step.action, reason, outcome, "Took step");
                self.settle(came, memory, so_far);
            }
        }
        if !self.group.spec.paused {
            let set_back = seen.set_back.iter().map(|pair| hand.end(*pair)).collect();
            for came in at_most(set_back).await {
                self.settle(came, memory, so_far);
            }
            let told =
                misled(self.group, &seen.records).into_iter().map(|pair| hand.tell_wishes(pair)).collect();
            for came in at_most(told).await {
                self.settle(came, memory, so_far);
            }
        }
    }

    /// What follows from a step that was taken, besides what the watches will show.
    fn note_done(&self, action: &PairAction, seen: &SeenGroup, memory: &mut GroupMemory) {
        let event = match action {
            PairAction::Restore { pair } => lease_restored(&pair_name(&self.key.name, *pair)),
            PairAction::Force { pair, .. } => lease_repaired(&pair_name(&self.key.name, *pair)),
            PairAction::End { pair } => {
                let said = seen.levels.get(pair).cloned().flatten();
                memory.seen.leases.end_pair(*pair, seen.group.state_left(said));
                return;
            }
            PairAction::Found { .. }
            | PairAction::Ask { .. }
            | PairAction::Vacate { .. }
            | PairAction::Withdraw { .. }
            | PairAction::Move { .. }
            | PairAction::SwitchOver { .. }
            | PairAction::Fence { .. }
            | PairAction::Label { .. } => return,
        };
        self.context.surroundings.events.send(self.group, event);
    }

    async fn carry_out<K>(&self, changes: &[ObjectChange]) -> Vec<GroupAnswer>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + k8s_openapi::Resource,
        K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
    {
        let client = &self.context.surroundings.client;
        at_most(changes.iter().map(|change| carry_out::<K>(client, self.group, change)).collect()).await
    }

    /// A write that met a newer version is no trouble, but has to be repeated: the watch brings that version, and a Lease that
    /// was only renewed leads to no look.
    fn settle(&self, came: GroupAnswer, memory: &mut GroupMemory, so_far: &mut WritesSoFar) {
        let GroupAnswer { object, answer } = came;
        let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
        if let Some(written) = answer.written {
            memory.seen.awaited.wrote(written, boot_clock::now());
        }
        match answer.outcome {
            Outcome::Done => {}
            Outcome::Stale => {
                so_far.is_overtaken = true;
                debug!(namespace, group, object, message = answer.message, "A write met another version");
            }
            Outcome::Failed(Refusal::NamespaceTerminating) => so_far.is_ending = true,
            Outcome::Failed(refusal) => {
                let (reason, message) = (refusal.as_str(), answer.message.unwrap_or_default());
                warn!(namespace, group, object, reason, message, "Could not write an object of the group");
                so_far
                    .troubles
                    .push(format!("could not write {object}: {message}; {}", group_advice(refusal)));
            }
        }
    }
}

/// What others wrote that the group must not take away.
fn told_others(others: &KnownOthers) -> Option<String> {
    (!others.left().is_empty()).then(|| foreign_addresses(others.left()))
}
