//! A set, its nodes and the time, as they go on in a forecast.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bps_api::service::IpFamily;
use jiff::{SignedDuration, Timestamp};

use super::agents::Agents;
use super::effects::{accept, bump};
use super::pace::Pace;
use super::places::{self, NodeRoom};
use super::{Event, Happening};
use crate::model::{Gate, Lifecycle, NodeHealth, PodName, PodView, Role, Snapshot, Step, Uid};

/// After this Kubernetes evicts Pods from a node that does not answer: the default of `tolerationSeconds` that the admission plugin
/// `DefaultTolerationSeconds` sets.
const EVICTED_AFTER: SignedDuration = SignedDuration::from_secs(300);
/// How long a Pod takes to end: nothing that can be listed tells.
const END: SignedDuration = SignedDuration::from_secs(1);
/// Addresses of Pods that are made begin here: out of the range that RFC 2544 keeps for tests.
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 0);
/// The same, out of the range that RFC 5180 keeps.
const FIRST_ADDRESS_6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0);

/// What a Pod is on its way to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Its gate listens.
    Gate,
    /// It is ready.
    Ready,
    /// It is taken from a node that does not answer.
    Eviction,
    /// It is gone.
    End,
}

/// When a Pod gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    next: Next,
    at: Timestamp,
}

/// The world as it is foreseen.
pub(super) struct World {
    pub(super) snapshot: Snapshot,
    places: Vec<NodeRoom>,
    pace: Pace,
    agents: Agents,
    due: BTreeMap<Uid, Due>,
    /// Pods that have ended: they take no room.
    roomless: BTreeSet<Uid>,
    born: u32,
}

impl World {
    /// Nodes are lost from now on, and Pods on them do not answer.
    pub(super) fn new(mut snapshot: Snapshot, places: Vec<NodeRoom>, pace: Pace) -> Self {
        let now = snapshot.now;
        for view in snapshot.pods.iter_mut().filter(|view| view.is_on_lost_node()) {
            if view.is_ready() {
                view.lifecycle = Lifecycle::Unready { since: now };
                (view.is_running, view.is_serving) = (false, false);
                bump(view);
            }
        }
        let finished = snapshot.pods.iter().filter(|view| view.lifecycle == Lifecycle::Finished);
        let roomless = finished.map(|view| view.pod.uid.clone()).collect();
        let agents = Agents::new(pace.takeover);
        Self { snapshot, places, pace, agents, due: BTreeMap::new(), roomless, born: 0 }
    }

    /// Does what a step says.
    pub(super) fn accept(&mut self, step: &Step) {
        self.born += 1;
        accept(&mut self.snapshot, step, Uid(format!("foreseen-{}", self.born)));
    }

    /// Pods that clients reach and that are meant to serve them, by name.
    pub(super) fn serving(&self) -> Vec<PodName> {
        let Snapshot { pods, exposure, .. } = &self.snapshot;
        let reached = exposure.as_ref().map(|exposure| exposure.reached(pods));
        let serves = |view: &&PodView| {
            let is_reached = reached.as_ref().is_none_or(|reached| reached.contains(&view.pod.uid));
            let acts = !self.snapshot.is_paired() || view.acts();
            view.role == Role::Primary && view.is_ready() && !view.is_on_lost_node() && acts && is_reached
        };
        pods.iter().filter(serves).map(|view| view.pod.name.clone()).collect()
    }

    /// Pods that no node has room for, or may take, by name.
    pub(super) fn unplaced(&self) -> Vec<PodName> {
        let waiting = self.snapshot.pods.iter().filter(|view| view.lifecycle == Lifecycle::Unscheduled);
        waiting.map(|view| view.pod.name.clone()).collect()
    }

    /// When something happens next without the operator.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let storm = self.snapshot.storm.as_ref().map(|storm| storm.until);
        let looks = [self.snapshot.look_by, storm].into_iter().flatten().filter(|at| *at > self.snapshot.now);
        self.due.values().map(|due| due.at).chain(self.agents.next()).chain(looks).min()
    }

    /// Lets the time pass.
    pub(super) fn pass_to(&mut self, moment: Timestamp) {
        self.snapshot.now = moment;
        let storm = &mut self.snapshot.storm;
        *storm = storm.take().filter(|storm| storm.until > moment);
        // The status of the first pass was written.
        self.snapshot.desired.is_new_generation = false;
    }

    /// Does what kubelets, the scheduler and agents do at this moment, and says what that was.
    pub(super) fn happens(&mut self) -> Vec<Happening> {
        let now = self.snapshot.now;
        let mut happenings = Vec::new();
        let mut pods = std::mem::take(&mut self.snapshot.pods);
        for index in 0..pods.len() {
            if pods[index].lifecycle == Lifecycle::Unscheduled {
                happenings.extend(self.bind(&mut pods, index));
            }
            if pods[index].lifecycle == Lifecycle::Starting && pods[index].address.is_none() {
                // It was bound now, or before and without a sandbox yet.
                (pods[index].address, pods[index].other_address) = self.addresses();
            }
            let view = &mut pods[index];
            // The application of a Pod that was let through is at work until it is ready, however long that takes.
            view.is_running |=
                view.lifecycle == Lifecycle::Starting && matches!(view.gate, Gate::Passed { .. });
            let due = self.due_of(view);
            if let Some(due) = due.filter(|due| due.at <= now) {
                happenings.push(Happening { pod: view.pod.name.clone(), event: arrive(view, due.next, now) });
                self.due.remove(&view.pod.uid);
                bump(view);
                // What comes after it begins now.
                self.due_of(view);
            }
        }
        let gone =
            |view: &PodView| happenings.iter().any(|it| it.pod == view.pod.name && it.event == Event::Gone);
        for view in pods.extract_if(.., |view| gone(view)) {
            let place =
                |place: &&mut NodeRoom| Some(&place.node.name) == view.node.as_ref().map(|node| &node.name);
            if let Some(place) =
                self.places.iter_mut().find(place).filter(|_| !self.roomless.contains(&view.pod.uid))
            {
                place.room += 1;
            }
            self.due.remove(&view.pod.uid);
        }
        self.snapshot.pods = pods;
        happenings.extend(self.agents.act(&mut self.snapshot));
        happenings
    }

    fn bind(&mut self, pods: &mut [PodView], index: usize) -> Option<Happening> {
        let view = pods[index].clone();
        let place = places::chosen(&view, pods, &mut self.places)?;
        place.room -= 1;
        let node = place.node.clone();
        let event = Event::Bound(node.name.clone());
        let bound = PodView { lifecycle: Lifecycle::Starting, node: Some(node), ..view };
        let happening = Happening { pod: bound.pod.name.clone(), event };
        pods[index] = bound;
        bump(&mut pods[index]);
        Some(happening)
    }

    /// Addresses for the Pod that was bound last, of the families that the Service has.
    fn addresses(&mut self) -> (Option<IpAddr>, Option<IpAddr>) {
        self.born += 1;
        let of = |family: IpFamily| match family {
            IpFamily::IPv4 => IpAddr::V4(Ipv4Addr::from_bits(FIRST_ADDRESS.to_bits() + self.born)),
            IpFamily::IPv6 => {
                IpAddr::V6(Ipv6Addr::from_bits(FIRST_ADDRESS_6.to_bits() + u128::from(self.born)))
            }
        };
        let slices = self.snapshot.exposure.iter().flat_map(|exposure| &exposure.slices);
        let mut families = slices.map(|slice| of(slice.family));
        (families.next().or_else(|| Some(of(IpFamily::IPv4))), families.next())
    }

    /// What comes next for a Pod, and when; counted from when that was clear.
    fn due_of(&mut self, view: &PodView) -> Option<Due> {
        let uid = &view.pod.uid;
        let Some((next, takes)) = self.next_of(view) else {
            self.due.remove(uid);
            return None;
        };
        if let Some(known) = self.due.get(uid).filter(|known| known.next == next) {
            return Some(*known);
        }
        let at = self.snapshot.now.saturating_add(takes).unwrap_or(Timestamp::MAX);
        let due = Due { next, at };
        self.due.insert(uid.clone(), due);
        Some(due)
    }

    fn next_of(&self, view: &PodView) -> Option<(Next, SignedDuration)> {
        if view.node_health() == NodeHealth::NotReady {
            let ends = matches!(view.lifecycle, Lifecycle::Terminating | Lifecycle::Finished);
            // Kubernetes does not evict either while it doubts what it sees (`--unhealthy-zone-threshold`).
            let is_believed = self.snapshot.storm.is_none();
            return (!ends && is_believed).then_some((Next::Eviction, EVICTED_AFTER));
        }
        let Pace { start, gate, wake, takeover: _ } = self.pace;
        match (view.lifecycle, view.gate) {
            (Lifecycle::Terminating, _) => Some((Next::End, END)),
            (Lifecycle::Starting, Gate::Ahead) => Some((Next::Gate, gate.unwrap_or_default())),
            (Lifecycle::Starting, Gate::None) => Some((Next::Ready, start.unwrap_or_default())),
            (Lifecycle::Starting, Gate::Passed { .. }) => Some((Next::Ready, wake.unwrap_or_default())),
            (Lifecycle::Starting, Gate::Listening { .. })
            | (
                Lifecycle::Unscheduled
                | Lifecycle::Ready { .. }
                | Lifecycle::Unready { .. }
                | Lifecycle::Finished,
                _,
            ) => None,
        }
    }
}

/// The Pod gets where it was on its way to.
fn arrive(view: &mut PodView, next: Next, now: Timestamp) -> Event {
    match next {
        Next::Gate => {
            (view.gate, view.gate_trouble) = (Gate::Listening { since: now }, None);
            Event::AtGate
        }
        Next::Ready => {
            view.lifecycle = Lifecycle::Ready { since: now };
            (view.is_running, view.is_serving) = (true, true);
            Event::Ready
        }
        Next::Eviction => {
            view.lifecycle = Lifecycle::Terminating;
            Event::Evicted
        }
        Next::End => Event::Gone,
    }
}
