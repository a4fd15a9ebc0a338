//! One look at a group: see, plan, write, report.

use std::time::Duration;

use bps_api::{HAGroup, ZONE_LABEL};
use bps_core::pairing::{PairHold, PairReason, Plan, check, plan};
use bps_core::status::describe_hold;
use bps_observe::SetKey;
use bps_observe::group::{SeenGroup, times};
use bps_observe::readable::{Readable, Unread};
use bps_protocol::{BootTime, Moment, Timing};
use bps_runtime::backoff::KeyedBackoff;
use bps_runtime::boot_clock;
use tracing::{error, warn};

use super::Context;
use super::memory::GroupMemory;
use super::report::Told;
use super::stores::Stores;
use super::writes::{WritesSoFar, release_all};
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
    let newest = shown
        .as_deref()
        .and_then(Readable::object)
        .map(|shown| memory.seen.own.newest(shown, boot_clock::now()));
    let Some(mut group) = newest.filter(|group| group.metadata.deletion_timestamp.is_none()) else {
        context.stale.end(key);
        // How its Leases ended is kept for a group that is made anew.
        drop(stores.take_pod_ends(key));
        return release_all(context, key, stores).await;
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
    pub(super) stores: &'a Stores,
    pub(super) group: &'a HAGroup,
    /// What in its specification could not be read.
    pub(super) unread: Option<&'a Unread>,
}

/// What was seen in this look, and what is to be done about it.
pub(super) struct Decided<'a> {
    pub(super) seen: &'a SeenGroup,
    pub(super) plan: &'a Plan,
    pub(super) timing: &'a Timing,
    /// When it was seen.
    pub(super) now: BootTime,
}

impl Round<'_> {
    async fn go(&self, memory: &mut GroupMemory) -> Look {
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

        // A Pod that starts waits for them and for nothing else; but what is refused again and again keeps nobody waiting.
        let were_refused = !memory.means.refused.is_empty();
        let mut so_far = WritesSoFar::default();
        if !were_refused {
            self.put_means(&seen, memory, &mut so_far).await;
        }
        so_far.troubles.clone_from(&memory.means.refused);

        let at = Moment { now, timing: &timing };
        memory.seen.remember(&mut seen, &at);
        let noted = self.context.surroundings.nodes_noted.borrow().clone();
        self.see_departed(&mut seen, memory, &noted.off).await;
        seen.group.leaving_nodes = noted.leaving;
        self.see_domains(&mut seen);
        let plan = self.checked_plan(&seen, &at);
        memory.seen.lasting.follow(&plan, now);
        let refused = plan.holds.iter().filter(|hold| hold.reason == PairReason::CheckRefused);
        so_far.troubles.extend(refused.map(|hold| describe_hold(&self.key.name, hold)));
        self.tell_leases(&seen, &mut so_far.troubles);

        let decided = Decided { seen: &seen, plan: &plan, timing: &timing, now };
        let ready = self.make_ready(&decided, memory, &mut so_far).await;
        self.take_steps(&decided, &ready, memory, &mut so_far).await;
        let left = self.put_slices(&decided, &ready, memory, &mut so_far).await;
        let cleared_for = self.clear_addresses(&seen, memory, &mut so_far).await;

        if so_far.is_ending {
            return Look::Settled(Some(ENDING_DELAY.into()));
        }
        let told = self.report(&decided, &so_far.troubles, memory).await;
        if were_refused {
            self.put_means(&seen, memory, &mut so_far).await;
            if memory.means.refused.is_empty() {
                // What was told just now is not so any more.
                self.context.refusals.end(self.key);
                return Look::Settled(Some(BEHIND_DELAY.into()));
            }
        }

        let due = plan.look_again.map_or(memory.means.due, |again| again.min(memory.means.due));
        let look_again = due
            .since(boot_clock::now())
            .min(left)
            .min(cleared_for)
            .min(self.repeat_within(&so_far))
            .min(if let Told::Later(after) = told { after } else { Duration::MAX })
            .max(BEHIND_DELAY);
        if !so_far.troubles.is_empty() || told == Told::Refused {
            // Trouble with one object keeps nothing else waiting.
            return Look::Refused(self.context.refusals.again(self.key).min(look_again).into());
        }
        self.context.refusals.end(self.key);
        Look::Settled(Some(look_again.into()))
    }

    /// Notes what the node of each Pod fails together with.
    fn see_domains(&self, seen: &mut SeenGroup) {
        let topology = self.group.spec.topology.as_ref();
        let key = topology.map_or(ZONE_LABEL, |topology| topology.key.as_str());
        let cache = self.context.surroundings.cache.lock().expect("no holder of this lock panics");
        for pod in &mut seen.group.pods {
            let domain = pod.node.as_ref().and_then(|node| cache.node_label(node, key));
            pod.domain = domain.map(str::to_owned);
        }
    }

    /// How soon to look again because of what a write of this look met.
    fn repeat_within(&self, so_far: &WritesSoFar) -> Duration {
        if so_far.is_overtaken {
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

    pub(super) fn now(&self) -> jiff::Timestamp {
        self.context.surroundings.clock.now()
    }
}
