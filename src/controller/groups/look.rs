//! One look at a group: see, plan, write, report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bps_api::{HAGroup, keys};
use bps_core::manifests::{group_keys, pair_name};
use bps_core::model::{NodeName, Outcome, Refusal};
use bps_core::pairing::{
    FoundOthers, KeysNeed, KeysWritten, KnownOthers, Lead, ObjectChange, OthersNeed, PairAction, PairHold,
    PairReason, Plan, SliceExemptions, SliceInput, StepSource, are_ahead, check, entitlements, is_owned,
    keys_due, keys_due_next, lead, misled, patience, permission_changes, plan, service_changes, slice_needs,
};
use bps_core::status::{describe_hold, foreign_addresses, group_advice, lease_repaired, lease_restored};
use bps_observe::group::{PodEnd, SeenGroup, Watches, see_group, times};
use bps_observe::readable::{Readable, Unread};
use bps_observe::slim::{SlimNode, SlimPod};
use bps_observe::{SetKey, is_out_of_service};
use bps_protocol::{BootTime, Moment, Timing};
use bps_runtime::backoff::KeyedBackoff;
use bps_runtime::boot_clock;
use bps_wire::uid::parse_uid;
use futures::join;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Resource;
use kube::api::{Api, ListParams};
use kube::core::NamespaceResourceScope;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::{debug, error, info, warn};

use super::Context;
use super::gone::SeenPods;
use super::group_keys::GroupKeys;
use super::memory::{Memory, SeenEnds};
use super::stores::Stores;
use crate::apply::groups::{GroupAnswer, Hand, apply, at_most, carry_out};
use crate::apply::others::{Found, clear};
use crate::controller::queue::Job;
use crate::controller::reconcile::Look;

/// How soon a group is looked at again whose watches are behind our writes.
const BEHIND_DELAY: Duration = Duration::from_millis(20);
/// How soon a group is looked at again whose namespace is being deleted.
const ENDING_DELAY: Duration = Duration::from_secs(60);

/// How soon a group is looked at again after a write that met a newer version, at first and at most. 50 ms: the watch shows that
/// version some 10 ms later, and one that only renews a Lease leads to no look.
const STALE_FIRST: Duration = Duration::from_millis(50);
const STALE_MAX: Duration = Duration::from_secs(2);

/// Delays after writes that met newer versions.
pub(super) fn after_stale_writes() -> KeyedBackoff<SetKey> {
    KeyedBackoff::new(STALE_FIRST, STALE_MAX)
}

/// Looks at one group and does what its plan says.
pub(super) async fn look(context: &Context, job: &Job) -> Look {
    let Some(_permit) = context.surroundings.leadership.permit() else { return Look::Settled(None) };
    let key = &job.key;
    let Some(stores) = context.stores.iter().find(|stores| stores.covers(key)) else {
        return Look::Settled(None);
    };
    let mut memory =
        context.memories.lock().expect("no holder of this lock panics").remove(key).unwrap_or_default();
    let shown = stores.group(key);
    let unread = shown.as_deref().and_then(Readable::unread);
    let newest =
        shown.as_deref().and_then(Readable::object).map(|shown| memory.newest(shown, boot_clock::now()));
    let Some(mut group) = newest.filter(|group| group.metadata.deletion_timestamp.is_none()) else {
        context.refusals.end(key);
        context.stale.end(key);
        // How its Leases ended is kept for a group that is made anew.
        drop(stores.take_pod_ends(key));
        return Look::Settled(None);
    };
    // What is wished may be something else: pairs stay as they are.
    group.spec.paused |= unread.is_some();
    let look = Round { context, key, stores, group: &group, unread }.go(&mut memory).await;
    context.memories.lock().expect("no holder of this lock panics").insert(key.clone(), memory);
    look
}

/// One look.
pub(super) struct Round<'a> {
    pub(super) context: &'a Context,
    pub(super) key: &'a SetKey,
    stores: &'a Stores,
    pub(super) group: &'a HAGroup,
    /// What in its specification could not be read.
    pub(super) unread: Option<&'a Unread>,
}

/// What was seen in this look, and what is to be done about it.
pub(super) struct Decided<'a> {
    pub(super) seen: &'a SeenGroup,
    pub(super) plan: &'a Plan,
    timing: &'a Timing,
    /// When it was seen.
    now: BootTime,
}

/// What was done before the steps of a plan.
struct Ready {
    /// Whose the Service is that leads to the actives.
    lead: Lead,
    /// Pairs whose slice was written.
    written: BTreeSet<u32>,
    /// Those of them where that met another version.
    overtaken: BTreeSet<u32>,
}

impl Round<'_> {
    async fn go(&self, memory: &mut Memory) -> Look {
        let timing = times(self.group);
        let (mut seen, now) = match self.see(memory).await {
            Ok(Some(sight)) => sight,
            Ok(None) => return Look::Settled(Some(BEHIND_DELAY.into())),
            Err(error) => {
                let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
                warn!(namespace, group, error = &error as &dyn std::error::Error, "Could not read Leases");
                return Look::Refused(self.context.refusals.again(self.key).into());
            }
        };
        (memory.is_namespace_ending, memory.is_overtaken) = (false, false);
        // A Pod that starts waits for them and for nothing else; but what is refused again and again keeps nobody waiting.
        let were_refused = !memory.refused_means.is_empty();
        if !were_refused {
            self.put_means(&seen, memory).await;
        }
        let mut troubles = memory.refused_means.clone();
        let at = Moment { now, timing: &timing };
        memory.remember(&mut seen, &at);
        let noted = self.context.surroundings.nodes_noted.borrow().clone();
        self.see_departed(&mut seen, memory, &noted.off).await;
        seen.group.leaving_nodes = noted.leaving;
        let plan = self.checked_plan(&seen, &at);
        memory.follow(&plan, now);
        let refused = plan.holds.iter().filter(|hold| hold.reason == PairReason::CheckRefused);
        troubles.extend(refused.map(|hold| describe_hold(&self.key.name, hold)));
        self.tell_leases(&seen, &mut troubles);
        let decided = Decided { seen: &seen, plan: &plan, timing: &timing, now };
        let ready = self.make_ready(&decided, memory, &mut troubles).await;
        self.take_steps(&decided, &ready, memory, &mut troubles).await;
        let left = self.put_slices(&decided, &ready, memory, &mut troubles).await;
        let cleared_for = self.clear_addresses(&seen, memory, &mut troubles).await;
        if memory.is_namespace_ending {
            return Look::Settled(Some(ENDING_DELAY.into()));
        }
        let is_reported = self.report(&decided, &troubles, memory).await;
        if were_refused {
            self.put_means(&seen, memory).await;
            if memory.refused_means.is_empty() {
                // What was told just now is not so any more.
                self.context.refusals.end(self.key);
                return Look::Settled(Some(BEHIND_DELAY.into()));
            }
        }
        let due = plan.look_again.map_or(memory.keys_due, |again| again.min(memory.keys_due));
        let look_again = due
            .since(boot_clock::now())
            .min(left)
            .min(cleared_for)
            .min(self.repeat_within(memory))
            .max(BEHIND_DELAY);
        if !troubles.is_empty() || !is_reported {
            // Trouble with one object keeps nothing else waiting.
            return Look::Refused(self.context.refusals.again(self.key).min(look_again).into());
        }
        self.context.refusals.end(self.key);
        Look::Settled(Some(look_again.into()))
    }

    /// How soon to look again because of what a write of this look met.
    fn repeat_within(&self, memory: &Memory) -> Duration {
        if memory.is_overtaken {
            return self.context.stale.again(self.key);
        }
        self.context.stale.end(self.key);
        Duration::MAX
    }

    /// The plan, or an empty one instead of one that would break an invariant.
    fn checked_plan(&self, seen: &SeenGroup, at: &Moment<'_>) -> Plan {
        let plan = plan(&seen.group, at);
        let violations = check(&seen.group, &plan, at.now);
        if violations.is_empty() {
            return plan;
        }

        let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
        for violation in violations {
            self.context.surroundings.metrics.sets.refused_plan();
            error!(namespace, group, %violation, "Refused a plan that breaks an invariant");
        }
        let refused = PairHold { reason: PairReason::CheckRefused, pair: None, until: None };
        Plan { holds: vec![refused], ..Plan::default() }
    }

    /// Notes who does not start again. What watches show is asked for before it counts: Pods that seem to be gone, and then their
    /// nodes.
    async fn see_departed(&self, seen: &mut SeenGroup, memory: &mut Memory, off: &BTreeSet<NodeName>) {
        let (departed, group, now) = (&mut memory.departed, &seen.group, boot_clock::now());
        let present = std::mem::take(&mut seen.pod_ends);
        let gone = self.stores.take_pod_ends(self.key);
        departed.see(SeenPods { group, present, gone, off });

        let doubted = departed.doubted(group, off, now).into_iter();
        let doubted = doubted.map(async |end| (self.is_there(&end).await, end));
        for (is_there, end) in at_most(doubted.collect()).await {
            if let Some(is_there) = self.answer("Pod", &end.name, is_there) {
                departed.settle(end.id, is_there, boot_clock::now());
            }
        }

        let nodes = departed.sought(group, off, boot_clock::now()).into_iter();
        let (off, working): (Vec<_>, Vec<_>) = nodes.partition(|(_, is_off)| *is_off);
        let off = off.into_iter().map(async |(node, _)| (self.is_vouched_for(&node).await, node));
        for (is_vouched_for, node) in at_most(off.collect()).await {
            if let Some(is_vouched_for) = self.answer("node", &node.0, is_vouched_for) {
                departed.vouch(&node, is_vouched_for);
            }
        }
        let client = &self.context.surroundings.client;
        let working = working.into_iter();
        let working = working.map(async |(node, _)| (self.context.kubelets.ask(client, &node).await, node));
        for (heard, node) in at_most(working.collect()).await {
            if let Some(heard) = self.answer("Lease of the node", &node.0, heard) {
                departed.hear(&node, &heard);
            }
        }
        departed.tell(&mut seen.group, boot_clock::now());
    }

    async fn is_there(&self, end: &PodEnd) -> Result<bool, kube::Error> {
        let client = self.context.surroundings.client.clone();
        let api: Api<SlimPod> = Api::namespaced(client, &self.key.namespace);
        let found = api.get_opt(&end.name).await?;
        let uid = found.and_then(|pod| parse_uid(pod.metadata.uid.as_deref()?).ok());
        Ok(uid == Some(end.id.0))
    }

    async fn is_vouched_for(&self, node: &NodeName) -> Result<bool, kube::Error> {
        let api: Api<SlimNode> = Api::all(self.context.surroundings.client.clone());
        Ok(api.get_opt(&node.0).await?.is_some_and(|node| is_out_of_service(&node)))
    }

    /// What was asked for, if there was an answer.
    fn answer<T>(&self, kind: &str, name: &str, answer: Result<T, kube::Error>) -> Option<T> {
        let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
        let answer = answer.inspect_err(|error| {
            let error = error as &dyn std::error::Error;
            warn!(
                namespace,
                group, kind, name, error, "Could not ask what became of a Pod that seems to be gone"
            );
        });
        answer.ok()
    }

    /// Services, and what slices must say before the plan is carried out.
    async fn make_ready(
        &self,
        decided: &Decided<'_>,
        memory: &mut Memory,
        troubles: &mut Vec<String>,
    ) -> Ready {
        let mut ready = Ready { lead: Lead::Unknown, written: BTreeSet::new(), overtaken: BTreeSet::new() };
        if self.group.spec.paused {
            return ready;
        }
        ready.lead = self.put_services(decided.seen, memory, troubles).await;
        let entitlements = entitlements(&self.slice_input(decided, ready.lead)).into_iter();
        let (pairs, changes): (Vec<u32>, Vec<ObjectChange>) =
            entitlements.map(|entitlement| (entitlement.pair, entitlement.change)).unzip();
        for (pair, came) in pairs.into_iter().zip(self.carry_out::<EndpointSlice>(&changes).await) {
            if came.answer.outcome == Outcome::Stale {
                ready.overtaken.insert(pair);
            }
            ready.written.insert(pair);
            self.settle(came, memory, troubles);
        }
        ready
    }

    /// What else slices need; returns how soon to look again whether new actives have shown themselves.
    async fn put_slices(
        &self,
        decided: &Decided<'_>,
        ready: &Ready,
        memory: &mut Memory,
        troubles: &mut Vec<String>,
    ) -> Duration {
        let patience = patience(self.group);
        let young = memory.young((decided.now, patience));
        let exemptions = SliceExemptions { young: &young, written: &ready.written };
        let needs = slice_needs(&self.slice_input(decided, ready.lead), exemptions);
        for came in self.carry_out::<EndpointSlice>(&needs.changes).await {
            self.settle(came, memory, troubles);
        }
        if needs.is_any_left { patience } else { Duration::MAX }
    }

    /// Takes away what others left behind the group's Service; returns how soon that is to be looked at again.
    async fn clear_addresses(
        &self,
        seen: &SeenGroup,
        memory: &mut Memory,
        troubles: &mut Vec<String>,
    ) -> Duration {
        let (client, namespace) = (&self.context.surroundings.client, self.key.namespace.as_str());
        let (services, slices) = (&seen.objects.services, &seen.objects.slices);
        let service = match memory.others.need(self.group, services, slices, boot_clock::now()) {
            OthersNeed::Clear(service) => service,
            OthersNeed::Wait(pause) => {
                troubles.extend(told_others(&memory.others));
                return pause;
            }
        };
        match clear(client, namespace, &service, |slice| is_owned(slice, self.group)).await {
            Ok(Found { is_overtaken: true, .. }) => {
                memory.is_overtaken = true;
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
                troubles.extend(told_others(&memory.others));
                pause
            }
            Err(error) => {
                warn!(namespace, group = %self.key.name, error = &error as &dyn std::error::Error, "Could not look for addresses of others");
                troubles.push(format!("could not look for addresses of others: {error}"));
                Duration::MAX
            }
        }
    }

    fn slice_input<'b>(&'b self, decided: &Decided<'b>, lead: Lead) -> SliceInput<'b> {
        let Decided { seen, plan, .. } = *decided;
        SliceInput { group: self.group, lead, seen: &seen.group, plan, slices: &seen.objects.slices }
    }

    /// What the watches show, but for Leases that are known to be others than theirs shows, and when that was so: waits for the
    /// end of whoever wrote a Lease begin there, so never before it was read. `None` if they are about to show what was written.
    async fn see(&self, memory: &mut Memory) -> Result<Option<(SeenGroup, BootTime)>, kube::Error> {
        let mut objects = self.stores.objects(self.key);
        memory.see_ends(SeenEnds {
            leases: &self.stores.take_ends(self.key),
            lists: self.stores.lists(),
            led_since: self.context.surroundings.leadership.acquired_version(),
            group: self.group,
        });
        let now = boot_clock::now();
        let watches = memory.awaited.watches(now, |kind, name| objects.version_of(kind, name));
        if watches == Watches::Behind {
            return Ok(None);
        }
        let seen = see_group(self.group, &objects, now);
        if watches == Watches::InStep && !are_ahead(self.group, &seen.group, &seen.objects.slices) {
            return Ok(Some((seen, now)));
        }
        let client = self.context.surroundings.client.clone();
        let of_group = ListParams::default().labels(&format!("{}={}", keys::LABEL_GROUP, self.key.name));
        let list = Api::<Lease>::namespaced(client, &self.key.namespace).list(&of_group).await?;
        let now = boot_clock::now();
        let leases = list.items.into_iter().map(Arc::new).collect();
        objects.leases = memory.awaited.read(leases, &objects.leases, now);
        Ok(Some((see_group(self.group, &objects, now), now)))
    }

    /// Says which Leases are not what they should be.
    fn tell_leases(&self, seen: &SeenGroup, troubles: &mut Vec<String>) {
        let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
        for (lease, error) in &seen.unreadable {
            let error = error.as_ref().map(|error| error as &dyn std::error::Error);
            warn!(namespace, group, lease, error, "Could not read the Lease of a pair");
            troubles.push(format!(
                "the Lease {lease} is not as agents write it: delete it, it is made anew once nobody can act by it any more"
            ));
        }
        for pair in &seen.set_back {
            let lease = pair_name(&self.key.name, *pair);
            warn!(namespace, group, lease, "The Lease of a pair was set back to a term that is over");
            troubles.push(format!(
                "the Lease {lease} was set back to a term that is over: it is deleted, and made anew once nobody can act by it any more"
            ));
        }
    }

    /// First Leases, then labels that take a part away, then the others.
    async fn take_steps(
        &self,
        decided: &Decided<'_>,
        ready: &Ready,
        memory: &mut Memory,
        troubles: &mut Vec<String>,
    ) {
        let Decided { seen, plan, timing, .. } = *decided;
        let ends = memory.returning();
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
                Some((pair, memory.restore(pair)))
            });
            let mut restored: BTreeMap<u32, _> = restored.collect();
            for (step, came) in wave.into_iter().zip(at_most(taken).await) {
                let outcome = came.answer.outcome;
                match (&step.action, outcome) {
                    (PairAction::Restore { pair }, Outcome::Failed(refusal)) if refusal.is_certain() => {
                        memory.is_not_restored(*pair, restored.remove(pair).flatten());
                    }
                    (PairAction::Restore { pair }, Outcome::Done) => {
                        let restored = lease_restored(&pair_name(&self.key.name, *pair));
                        self.context.surroundings.events.send(self.group, restored);
                    }
                    (PairAction::End { pair }, Outcome::Done) => {
                        let said = seen.levels.get(pair).cloned().flatten();
                        let level = seen.group.state_left(said);
                        memory.end_pair(*pair, level);
                    }
                    (PairAction::Force { pair, .. }, Outcome::Done) => {
                        let repaired = lease_repaired(&pair_name(&self.key.name, *pair));
                        self.context.surroundings.events.send(self.group, repaired);
                    }
                    _ => {}
                }
                let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
                let (reason, outcome) = (step.reason.as_str(), outcome.as_str());
                info!(namespace, group, step = ?step.action, reason, outcome, "Took step");
                self.settle(came, memory, troubles);
            }
        }
        if !self.group.spec.paused {
            let set_back = seen.set_back.iter().map(|pair| hand.end(*pair)).collect();
            for came in at_most(set_back).await {
                self.settle(came, memory, troubles);
            }
            let told =
                misled(self.group, &seen.records).into_iter().map(|pair| hand.tell_wishes(pair)).collect();
            for came in at_most(told).await {
                self.settle(came, memory, troubles);
            }
        }
    }

    /// Returns whose the Service that leads to the actives is now.
    async fn put_services(&self, seen: &SeenGroup, memory: &mut Memory, troubles: &mut Vec<String>) -> Lead {
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
            self.settle(came, memory, troubles);
        }
        lead
    }

    /// Writes keys and permissions of the agents that are due; notes when the keys are due again, and what was refused.
    async fn put_means(&self, seen: &SeenGroup, memory: &mut Memory) {
        let (client, now) = (&self.context.surroundings.client, boot_clock::now());
        memory.need = KeysNeed::of(&seen.group, memory.need, now);
        let (version, keys) = {
            let ring = self.context.surroundings.keys.borrow();
            let keys = GroupKeys::of(&ring, self.now());
            let uid = self.group.metadata.uid.as_deref().unwrap_or_default();
            let version = format!("{uid}|{}", keys.version());
            let is_due = keys_due(memory.keys_written.as_ref(), &version, memory.need) <= now;
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
            memory.keys_written = Some(KeysWritten { version: version.clone(), at: boot_clock::now() });
        }
        let mut refused = Vec::new();
        for mut came in keys {
            // No watch shows the keys.
            came.answer.written = None;
            self.settle(came, memory, &mut refused);
        }
        for came in role.into_iter().chain(binding) {
            self.settle(came, memory, &mut refused);
        }
        memory.refused_means = refused;
        memory.keys_due = keys_due_next(memory.keys_written.as_ref(), &version, memory.need, now);
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
    fn settle(&self, came: GroupAnswer, memory: &mut Memory, troubles: &mut Vec<String>) {
        let GroupAnswer { object, answer } = came;
        let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
        if let Some(written) = answer.written {
            memory.awaited.wrote(written, boot_clock::now());
        }
        match answer.outcome {
            Outcome::Done => {}
            Outcome::Stale => {
                memory.is_overtaken = true;
                debug!(namespace, group, object, message = answer.message, "A write met another version");
            }
            Outcome::Failed(Refusal::NamespaceTerminating) => memory.is_namespace_ending = true,
            Outcome::Failed(refusal) => {
                let (reason, message) = (refusal.as_str(), answer.message.unwrap_or_default());
                warn!(namespace, group, object, reason, message, "Could not write an object of the group");
                troubles.push(format!("could not write {object}: {message}; {}", group_advice(refusal)));
            }
        }
    }

    pub(super) fn now(&self) -> jiff::Timestamp {
        self.context.surroundings.clock.now()
    }
}

/// What others wrote that the group must not take away.
fn told_others(others: &KnownOthers) -> Option<String> {
    (!others.left().is_empty()).then(|| foreign_addresses(others.left()))
}
