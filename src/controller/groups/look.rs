//! One look at a group: see, plan, write, report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bps_api::{HAGroup, keys};
use bps_core::manifests::pair_name;
use bps_core::pairing::{Group, HaState, LevelText, Plan, Shown, Step, plan};
use bps_core::status::lease_repaired;
use bps_observe::SetKey;
use bps_observe::group::{
    GroupObjects, SeenGroup, Watches, WrittenVersion, level_text, pair_number, see_group, times,
};
use bps_observe::slim::SlimPod;
use bps_protocol::{AgentId, BootTime, Moment, Timing};
use bps_runtime::boot_clock;
use bps_wire::uid::parse_uid;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Resource;
use kube::api::{Api, ListParams};
use kube::core::NamespaceResourceScope;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::{debug, info, warn};

use super::Context;
use super::leases::{Error, Hand, Written, misled};
use super::memory::Memory;
use super::objects::{Change, Lead, carry_out, is_owned, lead, service_changes};
use super::slices;
use super::stores::Stores;
use crate::apply::{is_name_taken, is_namespace_ending};
use crate::controller::queue::Job;
use crate::controller::reconcile::Look;

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
    let group = stores.group(key).map(|shown| memory.newest(shown, boot_clock::now()));
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
        let (mut seen, objects, now) = match self.see(memory).await {
            Ok(Some(sight)) => sight,
            Ok(None) => return Look::Settled(Some(BEHIND_DELAY.into())),
            Err(error) => {
                let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
                warn!(namespace, group, error = &error as &dyn std::error::Error, "Could not read Leases");
                return Look::Refused(self.context.refusals.refused(self.key).into());
            }
        };
        (memory.is_namespace_ending, memory.is_overtaken) = (false, false);
        // A Pod that starts waits for them and for nothing else; but what is refused again and again keeps nobody waiting.
        let were_refused = !memory.refused_means.is_empty();
        if !were_refused {
            self.put_means((&seen, &objects), memory).await;
        }
        let mut troubles = memory.refused_means.clone();
        memory.remember(&mut seen, (now, &timing));
        let plan = plan(&seen.group, &Moment { now, timing: &timing });
        memory.follow(&plan, now);
        self.tell_leases(&seen, &mut troubles);
        let ready = self.make_ready((&seen, &plan), &objects, (memory, &mut troubles)).await;
        self.take_steps((&plan, &ready), (&seen, &objects, &timing), (memory, &mut troubles)).await;
        let left = self.put_slices((&seen, &plan, now), (&objects, &ready), (memory, &mut troubles)).await;
        if memory.is_namespace_ending {
            return Look::Settled(Some(ENDING_DELAY.into()));
        }
        let is_reported = self.report((&seen, &plan, &troubles), memory).await;
        if were_refused {
            self.put_means((&seen, &objects), memory).await;
            if memory.refused_means.is_empty() {
                // What was told just now is not so any more.
                self.context.refusals.end(self.key);
                return Look::Settled(Some(BEHIND_DELAY.into()));
            }
        }
        let due = plan.look_again.map_or(memory.keys_due, |again| again.min(memory.keys_due));
        let look_again = due.since(boot_clock::now()).min(left).min(memory.repeat_within()).max(BEHIND_DELAY);
        if !troubles.is_empty() || !is_reported {
            // Trouble with one object keeps nothing else waiting.
            return Look::Refused(self.context.refusals.refused(self.key).min(look_again).into());
        }
        self.context.refusals.end(self.key);
        Look::Settled(Some(look_again.into()))
    }

    /// Services, and what slices must say before the plan is carried out.
    async fn make_ready(
        &self,
        (seen, plan): (&SeenGroup, &Plan),
        objects: &GroupObjects,
        (memory, troubles): (&mut Memory, &mut Vec<String>),
    ) -> Ready {
        let mut ready = Ready { lead: Lead::Unknown, written: BTreeSet::new(), overtaken: BTreeSet::new() };
        if self.group.spec.paused {
            return ready;
        }
        ready.lead = self.put_services((seen, objects), (memory, troubles)).await;
        let entitlements = slices::entitlements((self.group, ready.lead), (seen, plan), objects);
        let (pairs, changes): (Vec<u32>, Vec<Change>) = entitlements.into_iter().unzip();
        for (pair, result) in pairs.into_iter().zip(self.carry_out::<EndpointSlice>(&changes).await) {
            if matches!(&result, Err(Error::Request(error)) if is_stale(error)) {
                ready.overtaken.insert(pair);
            }
            ready.written.insert(pair);
            self.settle(result, memory, troubles);
        }
        ready
    }

    /// What else slices need; returns how soon to look again whether new actives have shown themselves.
    async fn put_slices(
        &self,
        (seen, plan, now): (&SeenGroup, &Plan, BootTime),
        (objects, ready): (&GroupObjects, &Ready),
        (memory, troubles): (&mut Memory, &mut Vec<String>),
    ) -> Duration {
        if self.group.spec.paused {
            return Duration::MAX;
        }
        let patience = slices::patience(self.group);
        let pairs = (&memory.young((now, patience)), &ready.written);
        let needs = slices::needs((self.group, ready.lead), (seen, plan), objects, pairs);
        for result in self.carry_out::<EndpointSlice>(&needs.changes).await {
            self.settle(result, memory, troubles);
        }
        if needs.is_any_left { patience } else { Duration::MAX }
    }

    /// What the watches show, but for Leases that are known to be others than theirs shows, and when that was so: waits for the
    /// end of whoever wrote a Lease begin there, so never before it was read. `None` if they are about to show what was written.
    async fn see(
        &self,
        memory: &mut Memory,
    ) -> Result<Option<(SeenGroup, GroupObjects, BootTime)>, kube::Error> {
        let mut objects = self.stores.objects(self.key);
        memory.see_ends(&self.stores.take_ends(self.key), |metadata| is_owned(metadata, self.group));
        let now = boot_clock::now();
        let watches = memory.awaited.watches(now, |kind, name| objects.version_of(kind, name));
        if watches == Watches::Behind {
            return Ok(None);
        }
        let seen = see_group(self.group, &objects, now);
        if watches == Watches::InStep && !slices::are_ahead(self.group, &seen, &objects) {
            return Ok(Some((seen, objects, now)));
        }
        let client = self.context.surroundings.client.clone();
        let of_group = ListParams::default().labels(&format!("{}={}", keys::LABEL_GROUP, self.key.name));
        let list = Api::<Lease>::namespaced(client, &self.key.namespace).list(&of_group).await?;
        let now = boot_clock::now();
        let leases = list.items.into_iter().map(Arc::new).collect();
        objects.leases = memory.awaited.read(leases, &objects.leases, now);
        Ok(Some((see_group(self.group, &objects, now), objects, now)))
    }

    /// Says which Leases are not what they should be.
    fn tell_leases(&self, seen: &SeenGroup, troubles: &mut Vec<String>) {
        let (namespace, group) = (self.key.namespace.as_str(), self.key.name.as_str());
        for (lease, error) in &seen.unreadable {
            let error = error.as_ref().map(|error| error as &dyn std::error::Error);
            warn!(namespace, group, lease, error, "Could not read the Lease of a pair");
            troubles.push(format!(
                "the Lease {lease} is not as agents write it: delete it, it is made anew after a minute"
            ));
        }
        for pair in &seen.set_back {
            let lease = pair_name(&self.key.name, *pair);
            warn!(namespace, group, lease, "The Lease of a pair was set back to a term that is over");
            troubles.push(format!(
                "the Lease {lease} was set back to a term that is over: it is deleted, and made anew after a minute"
            ));
        }
    }

    /// First Leases, then labels that take a part away, then the others.
    async fn take_steps(
        &self,
        (plan, ready): (&Plan, &Ready),
        (seen, objects, timing): (&SeenGroup, &GroupObjects, &Timing),
        (memory, troubles): (&mut Memory, &mut Vec<String>),
    ) {
        let pods: BTreeMap<AgentId, Arc<SlimPod>> = objects.pods.iter().filter_map(with_id).collect();
        let client = &self.context.surroundings.client;
        let hand = Hand { client, group: self.group, seen, pods: &pods, timing, now: self.now() };
        for wave in waves(plan, &ready.overtaken) {
            let taken: Vec<_> = wave.iter().map(|step| hand.take(step)).collect();
            for (step, result) in wave.into_iter().zip(at_most(taken).await) {
                match (step, &result) {
                    (Step::End { pair }, Ok(_)) => {
                        let level = state_left(&seen.group, objects, *pair);
                        memory.end_pair(*pair, level, boot_clock::now().before(timing.operator_wait));
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

    /// Returns whose the Service that leads to the actives is now.
    async fn put_services(
        &self,
        (seen, objects): (&SeenGroup, &GroupObjects),
        (memory, troubles): (&mut Memory, &mut Vec<String>),
    ) -> Lead {
        let mut lead = lead(self.group, objects);
        let changes = service_changes(self.group, seen, objects);
        let leading = self.group.spec.service.as_ref().map(|service| service.name.as_str());
        let results = self.carry_out::<Service>(&changes).await;
        for (change, result) in changes.iter().zip(results) {
            if leading.is_some() && change.wanted() == leading {
                lead = match &result {
                    Ok(_) => Lead::Own,
                    Err(Error::Taken { .. }) => Lead::Foreign,
                    Err(_) => lead,
                };
            }
            self.settle(result, memory, troubles);
        }
        lead
    }

    async fn carry_out<K>(&self, changes: &[Change]) -> Vec<Result<Option<Written>, Error>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + k8s_openapi::Resource,
        K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
    {
        let client = &self.context.surroundings.client;
        at_most(changes.iter().map(|change| carry_out::<K>(client, self.group, change)).collect()).await
    }

    /// A write that met a newer version is no trouble, but has to be repeated: the watch brings that version, and a Lease that
    /// was only renewed leads to no look.
    pub(super) fn settle(
        &self,
        result: Result<Option<Written>, Error>,
        memory: &mut Memory,
        troubles: &mut Vec<String>,
    ) {
        match result {
            Ok(Some((kind, name, version))) => {
                memory.awaited.wrote(WrittenVersion { kind, name, version }, boot_clock::now());
            }
            Ok(None) => {}
            Err(Error::Request(error)) if is_stale(&error) => {
                memory.is_overtaken = true;
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

/// Steps that may be taken at the same time; nobody joins a pair whose slice was written by somebody else meanwhile.
fn waves<'a>(plan: &'a Plan, overtaken: &BTreeSet<u32>) -> [Vec<&'a Step>; 3] {
    let is_early = |step: &&Step| matches!(step, Step::Ask { pair, .. } | Step::Force { pair, .. } if overtaken.contains(pair));
    let steps = || plan.steps.iter().filter(|step| !is_early(step));
    let wave = |number: usize| steps().filter(move |step| wave_of(step) == number).collect();
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
