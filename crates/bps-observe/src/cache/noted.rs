//! What the operator has noted of Pods and sets by its own clock: those of the nodes may be minutes ahead or behind.
//!
//! A note ends with its Pod or its set, so that there are never more than the cache has of them, but for tickets that were
//! answered after that.

use std::collections::BTreeMap;

use bps_core::model::{EarlyEnds, Gate, PodName, Reason, Recent, Role, Uid};
use jiff::{SignedDuration, Timestamp};

use super::{Cache, SetKey, set_of};
use crate::pod;
use crate::slim::SlimPod;
use crate::store::ObjectKey;

/// How long tickets to a gate are remembered after the time for the next one has come.
///
/// 300 s: a look at a set sends it, and refused writes put off a look by 60 s at most. A Pod that got none for longer,
/// as in a paused set, is given its whole time once more. The answer to a ticket may also come after the Pod is gone.
const TICKETS_KEPT: SignedDuration = SignedDuration::from_secs(300);

/// Tickets that were tried on one gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tickets {
    /// When the first one had its answer, or got none in time.
    pub(crate) first: Timestamp,
    /// Not before then another one is sent.
    pub(crate) next: Timestamp,
}

/// How long a deletion of ours is remembered: what was missing because of it is made long before.
const DELETIONS_KEPT: SignedDuration = SignedDuration::from_secs(60);

/// How long wake-ups in vain are remembered, since the last one.
///
/// 600 s: then the cold backups are tried once more, whatever kept them from being woken.
const TIMEOUTS_KEPT: SignedDuration = SignedDuration::from_secs(600);

/// First and longest pause before Pods are made again that ended early.
///
/// 20 s, so that a set of three Pods that are all rejected makes 9 of them in the first minute; 300 s as the kubelet's longest
/// pause before it starts a container again (`MaxContainerBackOff`).
const EARLY_PAUSE_MIN: SignedDuration = SignedDuration::from_secs(20);
const EARLY_PAUSE_MAX: SignedDuration = SignedDuration::from_secs(300);

/// How often the pause doubles at most: by then it is longer than the longest.
const EARLY_DOUBLINGS_MAX: u32 = 4;

/// How long early ends are remembered after their pause. 600 s: a Pod that has not ended again by then works.
const EARLY_KEPT: SignedDuration = SignedDuration::from_secs(600);

/// Deletions of ours in one set.
#[derive(Debug, Default, PartialEq, Eq)]
struct Deletions {
    /// Pods that were woken in vain since one was not, and when the last one was given up.
    timeouts: Option<(usize, Timestamp)>,
    /// When the last woken Pod was seen to run.
    woken: Option<Timestamp>,
    /// Why the last Pod of each role was deleted, and when.
    last: BTreeMap<Role, (Reason, Timestamp)>,
    /// Pods that ended early.
    early: Option<Early>,
}

/// Pods of one set that ended early, one after the other.
#[derive(Debug, PartialEq, Eq)]
struct Early {
    /// How often all of them waited, each time twice as long.
    pauses: u32,
    /// Until when the present pause lasts.
    until: Timestamp,
    /// Until when the replacement of each waits.
    delays: Vec<Timestamp>,
    /// What the last one said.
    words: String,
}

impl Early {
    fn new(now: Timestamp) -> Self {
        Self { pauses: 0, until: now, delays: Vec::new(), words: String::new() }
    }

    /// Another one: those that end within a pause belong to it.
    fn add(&mut self, words: String, now: Timestamp) {
        if self.until <= now {
            let pause = EARLY_PAUSE_MIN.saturating_mul(1 << self.pauses.min(EARLY_DOUBLINGS_MAX));
            self.until = now.saturating_add(pause.min(EARLY_PAUSE_MAX)).unwrap_or(Timestamp::MAX);
            self.pauses = self.pauses.saturating_add(1);
        }
        self.delays.retain(|until| *until > now);
        self.delays.push(self.until);
        self.words = words;
    }

    fn is_recent(&self, now: Timestamp) -> bool {
        now.duration_since(self.until) < EARLY_KEPT
    }
}

/// Notes about the Pods of the cache.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// What we deleted.
    deletions: BTreeMap<SetKey, Deletions>,
    /// Since when each Pod that is not ready any more is known to be so.
    unready: BTreeMap<Uid, Timestamp>,
    /// Since when the gate of each Pod is known not to start.
    shut: BTreeMap<Uid, Timestamp>,
    /// Tickets to each Pod that does not run yet.
    tickets: BTreeMap<Uid, Tickets>,
}

impl Noted {
    /// Since when the Pod is known to be unready.
    pub(crate) fn unready_since(&self, pod: &Uid) -> Option<Timestamp> {
        self.unready.get(pod).copied()
    }

    /// Since when the Pod's gate is known not to start.
    pub(crate) fn shut_since(&self, pod: &Uid) -> Option<Timestamp> {
        self.shut.get(pod).copied()
    }

    /// Tickets that were tried on the Pod's gate.
    pub(crate) fn tickets_to(&self, pod: &Uid) -> Option<Tickets> {
        self.tickets.get(pod).copied()
    }

    /// What was done to the set a short while ago.
    pub(crate) fn recent(&self, set: &SetKey, now: Timestamp) -> Recent {
        let Some(deletions) = self.deletions.get(set) else { return Recent::default() };
        let is_recent = |at: &Timestamp| now.duration_since(*at) < DELETIONS_KEPT;
        let timeouts = deletions.timeouts.filter(|(_, last)| now.duration_since(*last) < TIMEOUTS_KEPT);
        let early = deletions.early.as_ref().filter(|early| early.is_recent(now));
        let last = deletions.last.iter().filter(|(_, (_, at))| is_recent(at));
        Recent {
            timeouts_in_a_row: timeouts.map_or(0, |(count, _)| count),
            deleted: last.map(|(role, (reason, _))| (*role, *reason)).collect(),
            early_ends: early
                .map(|early| EarlyEnds { until: early.delays.clone(), words: early.words.clone() }),
        }
    }

    /// When the first of what [`Self::recent`] tells is told no longer; `None` if it tells nothing that ends by time.
    pub(crate) fn forgets(&self, set: &SetKey, now: Timestamp) -> Option<Timestamp> {
        let deletions = self.deletions.get(set)?;
        let timeouts = deletions.timeouts.and_then(|(_, last)| last.saturating_add(TIMEOUTS_KEPT).ok());
        let early = deletions.early.as_ref().and_then(|early| early.until.saturating_add(EARLY_KEPT).ok());
        [timeouts, early].into_iter().flatten().filter(|until| *until > now).min()
    }

    /// `awake_since` says since when the Pod was to run.
    fn deleted(&mut self, set: &SetKey, deleted: Deleted, awake_since: Timestamp, now: Timestamp) {
        let Deleted { role, reason } = deleted;
        let known = self.deletions.entry(set.clone()).or_default();
        known.last.insert(role, (reason, now));
        // One that was asked before another one came to run is not in a row with those after it.
        let is_in_row = known.woken.is_none_or(|woken| woken < awake_since);
        if reason == Reason::WakeTimedOut && is_in_row {
            let before = known.timeouts.filter(|(_, last)| now.duration_since(*last) < TIMEOUTS_KEPT);
            known.timeouts = Some((before.map_or(0, |(count, _)| count) + 1, now));
        }
    }

    /// The Pod was deleted because it had ended soon after it was made, or right after it was made.
    pub(super) fn ended_early(&mut self, set: &SetKey, words: String, now: Timestamp) {
        let known = self.deletions.entry(set.clone()).or_default();
        let early = known.early.take().filter(|early| early.is_recent(now));
        let mut early = early.unwrap_or_else(|| Early::new(now));
        early.add(words, now);
        known.early = Some(early);
    }

    /// A Pod became ready, so those of its template work.
    fn begin_anew(&mut self, set: &SetKey) {
        if let Some(known) = self.deletions.get_mut(set) {
            known.early = None;
        }
    }

    /// Something else is wished, maybe a longer wake-up timeout.
    pub(super) fn try_again(&mut self, set: &SetKey) {
        self.begin_anew(set);
        if let Some(known) = self.deletions.get_mut(set) {
            known.timeouts = None;
        }
    }

    /// A Pod that was woken runs: waking is not in vain.
    fn was_woken(&mut self, set: SetKey, now: Timestamp) {
        let known = self.deletions.entry(set).or_default();
        (known.timeouts, known.woken) = (None, Some(now));
    }

    /// A ticket was tried on a gate; the next one waits until then.
    pub(crate) fn tried_ticket(&mut self, pod: Uid, next: Timestamp, now: Timestamp) {
        self.tickets.retain(|_, tickets| now.duration_since(tickets.next) < TICKETS_KEPT);
        let first = self.tickets.get(&pod).map_or(now, |tickets| tickets.first);
        self.tickets.insert(pod, Tickets { first, next });
    }

    /// A version of a Pod came into the cache, in the place of an older one if there was one.
    pub(super) fn see(&mut self, new: &SlimPod, old: Option<&SlimPod>, now: Timestamp) {
        let former = old.filter(|old| old.metadata.uid == new.metadata.uid);
        if let (Some(predecessor), None) = (old, former) {
            self.forget(predecessor);
        }
        let uid = pod::uid(new);
        if pod::is_running(new) {
            self.tickets.remove(&uid);
            // Not one whose container was started again: it was woken long ago.
            let is_first = former.is_none_or(|former| !pod::is_running(former)) && !pod::was_restarted(new);
            let was_let_through = matches!(pod::gate(new), Gate::Passed { .. });
            if let Some(set) = set_of(new).filter(|_| is_first && was_let_through) {
                self.was_woken(set, now);
            }
        }
        let became_ready = pod::is_ready(new) && !former.is_some_and(pod::is_ready);
        if let Some(set) = set_of(new).filter(|_| became_ready) {
            self.begin_anew(&set);
        }
        match (pod::gate(new), pod::gate_trouble(new)) {
            (Gate::Ahead, Some(_)) => drop(self.shut.entry(uid.clone()).or_insert(now)),
            // Tried again.
            (Gate::Ahead, None) => {}
            (Gate::None | Gate::Listening { .. } | Gate::Passed { .. }, _) => drop(self.shut.remove(&uid)),
        }
        let Some(recorded) = pod::unready_since(new) else {
            self.unready.remove(&uid);
            return;
        };
        let since = match former {
            // We did not see it stop being ready, so that its record is all there is; but it cannot be to come.
            None => recorded.min(now),
            Some(former) if pod::is_still_unready(former, new) => return,
            Some(_) => now,
        };
        self.unready.insert(uid, since);
    }

    /// A set is gone.
    pub(super) fn forget_set(&mut self, set: &SetKey) {
        self.deletions.remove(set);
    }

    /// A Pod is gone.
    pub(super) fn forget(&mut self, pod: &SlimPod) {
        let uid = pod::uid(pod);
        self.unready.remove(&uid);
        self.shut.remove(&uid);
        self.tickets.remove(&uid);
    }
}

/// How a Pod was deleted by us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Role that it had.
    pub role: Role,
    /// Why.
    pub reason: Reason,
}

impl Cache {
    /// A Pod of the set was deleted by us. `shown` is what the answer shows of it: the watch may have shown its end before.
    pub fn deleted_pod(
        &mut self,
        set: &SetKey,
        pod: &PodName,
        shown: Option<&SlimPod>,
        deleted: Deleted,
        now: Timestamp,
    ) {
        let key = ObjectKey { namespace: set.namespace.clone(), name: pod.0.clone() };
        let shown = shown.filter(|pod| pod.status.phase.is_some());
        let pod = shown.or_else(|| self.pods.get(&key).map(AsRef::as_ref));
        let awake_since = pod.map_or(now, pod::role_since);
        self.noted.deleted(set, deleted, awake_since, now);
        let early = pod.filter(|pod| deleted.reason == Reason::PodFinished && pod::has_ended_early(pod));
        if let Some(words) = early.map(pod::last_words) {
            self.noted.ended_early(set, words, now);
        }
    }

    /// A ticket was tried on a gate: further ones are held back until then.
    pub fn hold_tickets(&mut self, pod: Uid, until: Timestamp, now: Timestamp) {
        self.noted.tried_ticket(pod, until, now);
    }
}
