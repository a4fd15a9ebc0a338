//! What the agents and the group of a paired set do in a forecast: the standby of an active that cannot act any more takes over,
//! actives get standbys again, and pairs are made until there are enough.
//!
//! No time passes while a new standby gets the state: nothing that can be listed tells how long that takes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::effects::bump;
use super::{Event, Happening};
use crate::model::{Lifecycle, NodeHealth, Part, PodName, PodView, Role, Snapshot, Uid};

/// The agents of a set.
#[derive(Debug)]
pub(super) struct Agents {
    /// From the loss of an active until its standby acts.
    takeover: SignedDuration,
    /// Since when each active that was lost is so, until its standby acts.
    lost: BTreeMap<Uid, Timestamp>,
    /// Actives that were lost with state that no other Pod has.
    forsaken: BTreeSet<Uid>,
    /// Actives that were lost, by the Pod that has their state and acts in another pair.
    kept: BTreeMap<Uid, PodName>,
}

impl Agents {
    pub(super) const fn new(takeover: SignedDuration) -> Self {
        Self { takeover, lost: BTreeMap::new(), forsaken: BTreeSet::new(), kept: BTreeMap::new() }
    }

    /// When the next standby takes over, if one is going to.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.lost.values().map(|since| self.due(*since)).min()
    }

    fn due(&self, since: Timestamp) -> Timestamp {
        since.saturating_add(self.takeover).unwrap_or(Timestamp::MAX)
    }

    /// Does what is due.
    pub(super) fn act(&mut self, snapshot: &mut Snapshot) -> Vec<Happening> {
        if !snapshot.is_paired() {
            return Vec::new();
        }
        let mut happenings = self.take_over(snapshot);
        // In a pause pairs stay as they are, and failovers go on.
        if snapshot.desired.paused {
            return happenings;
        }
        leave_standbys(snapshot);
        happenings.extend(self.found(snapshot));
        happenings.extend(stand_by(snapshot));
        let freed = self.free_keepers(snapshot);
        if !freed.is_empty() {
            happenings.extend(freed);
            happenings.extend(stand_by(snapshot));
        }
        happenings
    }

    /// How many more pairs there should be: those that wait for their state are there.
    fn missing(&self, snapshot: &Snapshot) -> usize {
        let acting = snapshot.pods.iter().filter(|view| view.acts() && !self.is_waited_for(view)).count();
        snapshot.desired.replicas.saturating_sub(acting + self.forsaken.len() + self.kept.len())
    }

    /// Whether the pair of an active that was lost waits for its state.
    fn is_waited_for(&self, active: &PodView) -> bool {
        self.forsaken.contains(&active.pod.uid) || self.kept.contains_key(&active.pod.uid)
    }

    /// Pods with the only copy of another pair's state hand over where they act, and act there next.
    fn free_keepers(&mut self, snapshot: &mut Snapshot) -> Vec<Happening> {
        let mut happenings = Vec::new();
        for (lost, keeper) in self.kept.clone() {
            let Some(view) = acting(snapshot, &keeper).cloned() else {
                self.kept.remove(&lost);
                self.forsaken.insert(lost);
                continue;
            };
            let Some(heir) = heir(snapshot, &view) else { continue };
            self.kept.remove(&lost);
            let former = names(snapshot, |view| view.pod.uid == lost).next();
            if let Some(former) = former {
                change(snapshot, &former, Part::None);
            }
            for pod in [heir, keeper] {
                change(snapshot, &pod, Part::Active { peer: None });
                happenings.push(Happening { pod, event: Event::TookOver });
            }
        }
        happenings
    }

    /// Pods without a part act until there are enough pairs, primaries first.
    fn found(&self, snapshot: &mut Snapshot) -> Vec<Happening> {
        let mut happenings = Vec::new();
        for _ in 0..self.missing(snapshot) {
            let Some(pod) = free(snapshot, Role::Primary).or_else(|| free(snapshot, Role::Hot)) else {
                break;
            };
            change(snapshot, &pod, Part::Active { peer: None });
            happenings.push(Happening { pod, event: Event::TookOver });
        }
        happenings
    }

    fn take_over(&mut self, snapshot: &mut Snapshot) -> Vec<Happening> {
        let now = snapshot.now;
        let leaves = |view: &&PodView| {
            view.acts() && !self.is_waited_for(view) && (!can_act(view) || is_called_off(snapshot, view))
        };
        let fallen: Vec<PodView> = snapshot.pods.iter().filter(leaves).cloned().collect();
        self.lost.retain(|uid, _| fallen.iter().any(|active| active.pod.uid == *uid));
        let mut happenings = Vec::new();
        for active in fallen {
            let uid = active.pod.uid.clone();
            // One that ends hands over; of one that is lost the Lease has to run out.
            if active.is_on_lost_node() {
                let since = *self.lost.entry(uid.clone()).or_insert(now);
                if now < self.due(since) {
                    continue;
                }
            }
            self.lost.remove(&uid);
            let heir = heir(snapshot, &active);
            // Its standby took another one over in this moment: it serves on where it is.
            if heir.is_none() && can_act(&active) {
                continue;
            }
            // No other Pod that is free has its state: the pair waits for it.
            if heir.is_none() && snapshot.level.is_some() {
                match busy_keeper(snapshot, &active) {
                    Some(keeper) => drop(self.kept.insert(uid, keeper)),
                    None => drop(self.forsaken.insert(uid)),
                }
                continue;
            }
            change(snapshot, &active.pod.name, Part::None);
            if let Some(heir) = heir {
                change(snapshot, &heir, Part::Active { peer: None });
                happenings.push(Happening { pod: heir, event: Event::TookOver });
            }
        }
        happenings
    }
}

/// The standby that can follow an active, with everything that was acknowledged.
fn heir(snapshot: &Snapshot, active: &PodView) -> Option<PodName> {
    let peer = active.part.peer_of_active()?;
    // One that stood by for several acts for one of them.
    let is_standby = |view: &PodView| matches!(view.part, Part::Standby { .. });
    let is_able = |view: &&PodView| {
        view.pod.name == *peer && is_standby(view) && can_act(view) && snapshot.is_level(&active.pod.name)
    };
    snapshot.pods.iter().find(is_able).map(|view| view.pod.name.clone())
}

/// The Pod that stood by for an active, has its whole state, and has taken another one over since.
fn busy_keeper(snapshot: &Snapshot, active: &PodView) -> Option<PodName> {
    let peer = active.part.peer_of_active().filter(|_| snapshot.is_level(&active.pod.name))?;
    acting(snapshot, peer).map(|view| view.pod.name.clone())
}

/// The Pod of this name, if it acts and is not lost.
fn acting<'a>(snapshot: &'a Snapshot, name: &PodName) -> Option<&'a PodView> {
    snapshot.pods.iter().find(|view| view.pod.name == *name && view.acts() && can_act(view))
}

/// Whether an active hands over because its node is about to be drained, and that of its standby is not.
fn is_called_off(snapshot: &Snapshot, active: &PodView) -> bool {
    let is_better = |heir: PodName| {
        let views = snapshot.pods.iter().filter(|view| view.pod.name == heir);
        views.map(PodView::node_health).any(|health| health == NodeHealth::Healthy)
    };
    active.node_health() == NodeHealth::Cordoned && heir(snapshot, active).is_some_and(is_better)
}

/// Standbys that cannot follow any more, or whose actives are gone, have no part; actives that no Pod stands by for are alone.
fn leave_standbys(snapshot: &mut Snapshot) {
    let acting: BTreeSet<PodName> = names(snapshot, PodView::acts).collect();
    let mut followed: BTreeSet<PodName> = BTreeSet::new();
    let is_standby = |view: &&PodView| matches!(view.part, Part::Standby { .. });
    for standby in snapshot.pods.iter().filter(is_standby).cloned().collect::<Vec<_>>() {
        let mut peers = standby.part.peers().to_vec();
        peers.retain(|peer| can_act(&standby) && acting.contains(peer));
        followed.extend(peers.iter().cloned());
        let part = if peers.is_empty() { Part::None } else { Part::Standby { peers } };
        if part != standby.part {
            change(snapshot, &standby.pod.name, part);
        }
    }
    // One that is lost keeps the name of whom its state is with.
    let has_lost = |view: &PodView| {
        can_act(view) && view.part.peer_of_active().is_some() && !followed.contains(&view.pod.name)
    };
    for active in names(snapshot, has_lost).collect::<Vec<_>>() {
        change(snapshot, &active, Part::Active { peer: None });
    }
}

/// Names of the Pods that are so.
fn names(snapshot: &Snapshot, is_so: impl Fn(&PodView) -> bool) -> impl Iterator<Item = PodName> {
    snapshot.pods.iter().filter(move |view| is_so(view)).map(|view| view.pod.name.clone())
}

/// Hot backups stand by for actives without a standby, each for as many as it may; those that do for the fewest come first.
fn stand_by(snapshot: &mut Snapshot) -> Vec<Happening> {
    let is_alone = |view: &PodView| view.acts() && can_act(view) && view.part.peer_of_active().is_none();
    let alone: Vec<PodName> = names(snapshot, is_alone).collect();
    let mut happenings = Vec::new();
    for active in alone {
        let Some(Vacancy { pod, mut peers }) = vacancy(snapshot) else { break };
        change(snapshot, &active, Part::Active { peer: Some(pod.clone()) });
        if let Some(level) = &mut snapshot.level {
            level.insert(active.clone());
        }
        peers.push(active);
        change(snapshot, &pod, Part::Standby { peers });
        happenings.push(Happening { pod, event: Event::StandsBy });
    }
    happenings
}

/// A Pod that may stand by for one more active.
struct Vacancy {
    pod: PodName,
    peers: Vec<PodName>,
}

fn vacancy(snapshot: &Snapshot) -> Option<Vacancy> {
    let most = snapshot.desired.standby_for;
    let has_one = |view: &&PodView| {
        view.role == Role::Hot && !view.acts() && can_act(view) && view.part.peers().len() < most
    };
    let view = snapshot.pods.iter().filter(has_one).min_by_key(|view| view.part.peers().len())?;
    Some(Vacancy { pod: view.pod.name.clone(), peers: view.part.peers().to_vec() })
}

fn free(snapshot: &Snapshot, role: Role) -> Option<PodName> {
    let is_free = |view: &&PodView| view.role == role && view.part == Part::None && can_act(view);
    snapshot.pods.iter().find(is_free).map(|view| view.pod.name.clone())
}

fn can_act(view: &PodView) -> bool {
    matches!(view.lifecycle, Lifecycle::Ready { .. }) && !view.is_on_lost_node()
}

fn change(snapshot: &mut Snapshot, pod: &PodName, part: Part) {
    if let Some(view) = snapshot.pods.iter_mut().find(|view| view.pod.name == *pod) {
        view.part = part;
        bump(view);
    }
}
