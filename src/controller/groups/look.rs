//! One look at a group: see, plan, write, report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Resource;
use kube::api::{Api, ListParams};
use tracing::{debug, info, warn};

use super::Context;
use super::awaited::Watches;
use super::group_keys::GroupKeys;
use super::leases::{Error, Hand, Written, misled};
use super::means::{self, KeysWritten, Need, keys_due};
use super::memory::Memory;
use super::objects::{Change, carry_out, is_led, is_owned, service_changes};
use super::slices;
use super::stores::Stores;
use crate::agent::clock;
use crate::agent::identity::parse_uid;
use crate::api::{HAGroup, keys};
use crate::apply::{is_name_taken, is_namespace_ending};
use crate::controller::queue::Job;
use crate::controller::reconcile::Look;
use crate::ha::{AgentId, BootTime, Moment, Timing};
use crate::manifests::{group_keys, pair_name};
use crate::observe::group::{GroupObjects, SeenGroup, level_text, pair_number, see_group, times};
use crate::observe::slim::SlimPod;
use crate::observe::{SetKey, version};
use crate::pairing::{Group, HaState, LevelText, Plan, Shown, Step, plan};
use crate::status::lease_repaired;

/// Most writes of one group under way at once.
const WRITES_MAX: usize = 16;
/// How soon a group is looked at again whose watches are behind our writes.
const BEHIND_DELAY: Duration = Duration::from_millis(20);
/// How soon a group is looked at again whose namespace is being deleted.
const ENDING_DELAY: Duration = Duration::from_secs(60);

/// Looks at one group and does what its plan says.
pub(super) async fn look(context: &Context, job: &Job) -> Look {
    let Some(_permit) = context.surroundings.leadership.permit() else { return Look::Settled(None) };
    let key = &job.key;
    let Some(stores) = context.stores.iter().find(|stores| stores.covers(key)) else {
        return Look::Settled(None);
    };
    let mut memory =
        context.memories.lock().expect("no holder of this lock panics").remove(key).unwrap_or_default();
    let group = stores.group(key).map(|shown| memory.newest(shown, clock::now()));
    let Some(group) = group.filter(|group| group.metadata.deletion_timestamp.is_none()) else {
        context.refusals.end(key);
        drop(stores.take_ends(key));
        return Look::Settled(None);
    };
    let look = Round { context, key, stores, group: &group }.go(&mut memory).await;
    context.memories.lock().expect("no holder of this lock panics").insert(key.clone(), memory);
    look
}

/// One look.
pub(super) struct Round<'a> {
    pub(super) context: &'a Context,
    pub(super) key: &'a SetKey,
    stores: &'a Stores,
    pub(super) group: &'a HAGroup,
}

impl Round<'_> {
    async fn go(&self, memory: &mut Memory) -> Look {
        let (now, timing) = (clock::now(), times(self.group));
        memory.see_ends(&self.stores.take_ends(self.key), |metadata| is_owned(metadata, self.group));
        let (mut seen, objects) = match self.see(memory, now).await {
            Ok(Some(seen)) => seen,
            Ok(None) => return Look::Settled(Some(BEHIND_DELAY)),
            Err(error) => {
                let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
                warn!(namespace, group, error = &error as &dyn std::error::Error, "Could not read Leases");
                return Look::Refused(self.context.refusals.refused(self.key));
            }
        };
        let mut troubles = Vec::new();
        memory.is_namespace_ending = false;
        let keys_due = self.put_means((&seen, &objects), (memory, &mut troubles)).await;
        memory.remember(&mut seen, (now, &timing));
        self.tell_unreadable(&seen);
        let plan = plan(&seen.group, &Moment { now, timing: &timing });
        memory.follow(&plan, now);
        troubles.extend(seen.unreadable.keys().map(|name| {
            format!("the Lease {name} is not as agents write it: delete it, it is made anew after a minute")
        }));
        let is_led = self.put_services((&seen, &objects), (memory, &mut troubles)).await;
        let founded = slices::of_founded((self.group, is_led), &plan, &objects);
        self.put_slices(&founded, (memory, &mut troubles)).await;
        self.take_steps(&plan, (&seen, &objects, &timing), (memory, &mut troubles)).await;
        for pair in &seen.set_back {
            let lease = pair_name(&self.key.name, *pair);
            let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
            warn!(namespace, group, lease, "The Lease of a pair was set back to a term that is over");
            troubles.push(format!(
                "the Lease {lease} was set back to a term that is over: it is deleted, and made anew after a minute"
            ));
        }
        let due = plan.look_again.map_or(keys_due, |again| again.min(keys_due));
        let mut look_again = due.since(clock::now());
        if !self.group.spec.paused {
            let (patience, group) = (slices::patience(self.group), (self.group, is_led));
            let needs = slices::needs(group, (&seen, &plan), &objects, &memory.young((now, patience)));
            self.put_slices(&needs.changes, (memory, &mut troubles)).await;
            if needs.is_any_left {
                look_again = look_again.min(patience);
            }
        }
        if memory.is_namespace_ending {
            return Look::Settled(Some(ENDING_DELAY));
        }
        let is_reported = self.report((&seen, &plan, &troubles), memory).await;
        if !troubles.is_empty() || !is_reported {
            // Trouble with one object keeps nothing else waiting.
            return Look::Refused(self.context.refusals.refused(self.key).min(look_again.max(BEHIND_DELAY)));
        }
        self.context.refusals.end(self.key);
        Look::Settled(Some(look_again.max(BEHIND_DELAY)))
    }

    /// What the watches show, but for Leases that are known to be others than theirs shows; `None` if they are about to show
    /// what was written.
    async fn see(
        &self,
        memory: &mut Memory,
        now: BootTime,
    ) -> Result<Option<(SeenGroup, GroupObjects)>, kube::Error> {
        let mut objects = self.stores.objects(self.key);
        let watches = memory.awaited.watches(now, |kind, name| shown_version(&objects, (kind, name)));
        if watches == Watches::Behind {
            return Ok(None);
        }
        let seen = see_group(self.group, &objects, now);
        if watches == Watches::InStep && !slices::are_ahead(self.group, &seen, &objects) {
            return Ok(Some((seen, objects)));
        }
        let client = self.context.surroundings.client.clone();
        let of_group = ListParams::default().labels(&format!("{}={}", keys::LABEL_GROUP, self.key.name));
        let list = Api::<Lease>::namespaced(client, &self.key.namespace).list(&of_group).await?;
        let leases = list.items.into_iter().map(Arc::new).collect();
        objects.leases = memory.awaited.read(leases, &objects.leases, clock::now());
        Ok(Some((see_group(self.group, &objects, now), objects)))
    }

    fn tell_unreadable(&self, seen: &SeenGroup) {
        for (lease, error) in &seen.unreadable {
            let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
            let error = error.as_ref().map(|error| error as &dyn std::error::Error);
            warn!(namespace, group, lease, error, "Could not read the Lease of a pair");
        }
    }

    /// Keys and permissions of the agents; returns when to write the keys again.
    async fn put_means(
        &self,
        (seen, objects): (&SeenGroup, &GroupObjects),
        (memory, troubles): (&mut Memory, &mut Vec<String>),
    ) -> BootTime {
        let (client, now) = (&self.context.surroundings.client, clock::now());
        memory.need = Need::of(seen, memory.need, now);
        let (version, body) = {
            let ring = self.context.surroundings.keys.borrow();
            let keys = GroupKeys::of(&ring, self.now());
            let uid = self.group.metadata.uid.as_deref().unwrap_or_default();
            let version = format!("{uid}|{}", keys.version());
            let is_due = keys_due(memory.keys_written.as_ref(), &version, memory.need) <= now;
            let body = || group_keys(self.group, &keys.text(self.group), &keys.metrics_token(self.group));
            (version, is_due.then(body))
        };
        if let Some(body) = body {
            let written = means::write_keys(client, self.group, &body).await;
            if written.is_ok() {
                memory.keys_written = Some(KeysWritten { version: version.clone(), at: clock::now() });
            }
            self.settle(written.map(|()| None), memory, troubles);
        }
        let [role, binding] = means::permissions_wanting(self.group, objects);
        if let Some(role) = role {
            self.settle(means::apply::<Role>(client, self.group, &role).await, memory, troubles);
        }
        if let Some(binding) = binding {
            self.settle(means::apply::<RoleBinding>(client, self.group, &binding).await, memory, troubles);
        }
        let due = keys_due(memory.keys_written.as_ref(), &version, memory.need);
        // What was refused just now is tried again with whatever else was.
        if due <= now { now + means::KEYS_EVERY_UNSETTLED } else { due }
    }

    /// First Leases, then labels that take a part away, then the others.
    async fn take_steps(
        &self,
        plan: &Plan,
        (seen, objects, timing): (&SeenGroup, &GroupObjects, &Timing),
        (memory, troubles): (&mut Memory, &mut Vec<String>),
    ) {
        let pods: BTreeMap<AgentId, Arc<SlimPod>> = objects.pods.iter().filter_map(with_id).collect();
        let client = &self.context.surroundings.client;
        let hand = Hand { client, group: self.group, seen, pods: &pods, timing, now: self.now() };
        for wave in waves(plan) {
            let taken: Vec<_> = wave.iter().map(|step| hand.take(step)).collect();
            for (step, result) in wave.into_iter().zip(at_most(taken).await) {
                match (step, &result) {
                    (Step::End { pair }, Ok(_)) => {
                        let level = state_left(&seen.group, objects, *pair);
                        memory.end_pair(*pair, level, clock::now().before(timing.operator_wait));
                    }
                    (Step::Force { pair, .. }, Ok(_)) => {
                        let repaired = lease_repaired(&pair_name(&self.key.name, *pair));
                        self.context.surroundings.events.send(self.group, repaired);
                    }
                    _ => {}
                }
                let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
                info!(namespace, group, step = ?step, is_done = result.is_ok(), "Took step");
                self.settle(result, memory, troubles);
            }
        }
        if !self.group.spec.paused {
            let set_back = seen.set_back.iter().map(|pair| hand.end(*pair)).collect();
            for result in at_most(set_back).await {
                self.settle(result, memory, troubles);
            }
            let told = misled(self.group, seen).into_iter().map(|pair| hand.tell_wishes(pair)).collect();
            for result in at_most(told).await {
                self.settle(result, memory, troubles);
            }
        }
    }

    /// Returns whether the Service that leads to the actives is the group's own now.
    async fn put_services(
        &self,
        (seen, objects): (&SeenGroup, &GroupObjects),
        (memory, troubles): (&mut Memory, &mut Vec<String>),
    ) -> bool {
        let mut is_led = is_led(self.group, objects);
        if self.group.spec.paused {
            return is_led;
        }
        let (client, namespace) = (&self.context.surroundings.client, self.key.namespace.as_str());
        let changes = service_changes(self.group, seen, objects);
        let services =
            changes.iter().map(|change| carry_out::<Service>(client, ("Service", namespace), change));
        let results = at_most(services.collect()).await;
        let leading = self.group.spec.service.as_ref().map(|service| service.name.as_str());
        for (change, result) in changes.iter().zip(results) {
            is_led |= result.is_ok() && leading.is_some() && change.created() == leading;
            match (change.created(), result) {
                (Some(name), Err(Error::Request(error))) if is_name_taken(&error) => troubles.push(format!(
                    "the Service {name} belongs to somebody else: delete it, or write another name"
                )),
                (_, result) => self.settle(result, memory, troubles),
            }
        }
        is_led
    }

    async fn put_slices(&self, changes: &[Change], (memory, troubles): (&mut Memory, &mut Vec<String>)) {
        let (client, namespace) = (&self.context.surroundings.client, self.key.namespace.as_str());
        let slices = changes
            .iter()
            .map(|change| carry_out::<EndpointSlice>(client, ("EndpointSlice", namespace), change));
        for result in at_most(slices.collect()).await {
            self.settle(result, memory, troubles);
        }
    }

    /// A write that met a newer version is no trouble: the watch brings that version.
    fn settle(
        &self,
        result: Result<Option<Written>, Error>,
        memory: &mut Memory,
        troubles: &mut Vec<String>,
    ) {
        match result {
            Ok(Some((kind, name, version))) => memory.awaited.wrote((kind, &name), version, clock::now()),
            Ok(None) => {}
            Err(Error::Request(error)) if is_stale(&error) => {
                debug!(error = &*error as &dyn std::error::Error, "A write met another version");
            }
            Err(Error::Request(error)) if is_ending(&error) => memory.is_namespace_ending = true,
            Err(Error::Gone) => {}
            Err(error) => self.tell(troubles, "an object of the group", &error),
        }
    }

    fn tell(&self, troubles: &mut Vec<String>, what: &str, error: &Error) {
        let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
        warn!(namespace, group, error = error as &dyn std::error::Error, "Could not write {what}");
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
        troubles.push(format!("could not write {what}: {error}{cause}"));
    }

    pub(super) fn now(&self) -> jiff::Timestamp {
        self.context.surroundings.clock.now()
    }
}

/// Does all of these, a bounded number at a time; answers in the same order.
async fn at_most<F: Future>(all: Vec<F>) -> Vec<F::Output> {
    stream::iter(all).buffered(WRITES_MAX).collect().await
}

fn is_ending(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if is_namespace_ending(status))
}

/// Whether another version was met. A name that is taken is not that: somebody else has an object of that name.
pub(super) fn is_stale(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status)
        if matches!(status.code, 404 | 409) && !is_name_taken(error))
}

/// Steps that may be taken at the same time.
fn waves(plan: &Plan) -> [Vec<&Step>; 3] {
    let wave = |number: usize| plan.steps.iter().filter(move |step| wave_of(step) == number).collect();
    [wave(0), wave(1), wave(2)]
}

fn wave_of(step: &Step) -> usize {
    match step {
        Step::Label { shown: Shown { state: Some(HaState::Active), .. }, .. } => 2,
        Step::Label { .. } => 1,
        Step::Found { .. }
        | Step::Ask { .. }
        | Step::Withdraw { .. }
        | Step::Move { .. }
        | Step::Force { .. }
        | Step::Fence { .. }
        | Step::End { .. } => 0,
    }
}

fn with_id(pod: &Arc<SlimPod>) -> Option<(AgentId, Arc<SlimPod>)> {
    Some((AgentId(parse_uid(pod.metadata.uid.as_deref()?).ok()?), Arc::clone(pod)))
}

/// What the Lease of a pair says that ends because all its Pods went, and not because fewer pairs are wanted.
fn state_left(group: &Group, objects: &GroupObjects, pair: u32) -> Option<LevelText> {
    let lease = objects.leases.iter().find(|lease| pair_number(lease) == Some(pair));
    level_text(lease.filter(|_| group.pairs_wanted.is_none())?)
}

/// The version of an object as the watches show it.
fn shown_version(objects: &GroupObjects, (kind, name): (&str, &str)) -> Option<u64> {
    fn find<K: Resource<DynamicType = ()>>(objects: &[Arc<K>], name: &str) -> Option<u64> {
        let found = objects.iter().find(|object| object.meta().name.as_deref() == Some(name))?;
        version(found.meta())
    }
    match kind {
        // It was there when it was written; one that is gone by now has nothing to wait for.
        "Pod" => find(&objects.pods, name).or(Some(u64::MAX)),
        "Lease" => find(&objects.leases, name),
        "Service" => find(&objects.services, name),
        "EndpointSlice" => find(&objects.slices, name),
        "Role" => find(&objects.roles, name),
        "RoleBinding" => find(&objects.bindings, name),
        _ => None,
    }
}
