//! A small deterministic cluster: applies steps as an API server would and moves Pods on as kubelets would.
//!
//! Knows nothing of the planner's rules. What is random comes from a seed, so that a failure can be repeated.

use std::collections::{BTreeMap, BTreeSet};

use bps_core::forecast::effects::{accept, bump};
use jiff::SignedDuration;

use super::given;
use super::model::{
    Action, EarlyEnds, Gate, GateTrouble, Lifecycle, NodeHealth, NodeView, PodView, Reason, Revision,
    Snapshot, Step, Uid,
};

/// Time between two passes.
const TICK: SignedDuration = SignedDuration::from_secs(1);

/// Ticks that a Pod takes to terminate.
const GRACE_TICKS: u32 = 2;

/// Numbers from a seed (`SplitMix64`): the same seed gives the same schedule.
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 33).expect("31 bits") % sides.max(1)
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            items.swap(index, self.below(index + 1));
        }
    }
}

/// What a Pod needs between its gate, or its node, and its first readiness.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Start {
    /// How long. Unit: ticks.
    pub(crate) ticks: u32,
    /// Whether its record shows that it is at work all the time, as an init container is and a pull of an image is not.
    pub(crate) is_at_work: bool,
    /// What keeps it from starting.
    pub(crate) obstacle: Obstacle,
}

/// What keeps Pods from starting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Obstacle {
    #[default]
    None,
    /// Gates hear no ticket.
    DeafGates,
    /// Gates do not start.
    ShutGates,
    /// Kubelets reject what they are to start.
    Rejection,
}

/// The world as it is; `snapshot` is what the operator sees of it, at once and wholly.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) snapshot: Snapshot,
    pub(crate) nodes: Vec<NodeView>,
    /// The template whose Pods never get further than starting, if there is one.
    pub(crate) broken: Option<Revision>,
    /// For how many Pods its nodes have room; `None`: for all.
    pub(crate) room: Option<usize>,
    /// How Pods start behind their gate.
    pub(crate) start: Start,
    /// How far each Pod that starts has come. Unit: ticks.
    started_for: BTreeMap<Uid, u32>,
    /// Whether a Pod came further in the last tick without any sign of it.
    pub(crate) is_starting: bool,
    leaving: BTreeMap<Uid, u32>,
    /// Pods that never come further by themselves.
    stuck: BTreeSet<Uid>,
    /// Pods that waited for a node of their subset when the last step was taken, or before.
    pub(crate) reserved: BTreeSet<Uid>,
    born: u32,
    rejected: u32,
}

impl Cluster {
    pub(crate) fn new(snapshot: Snapshot, nodes: Vec<NodeView>) -> Self {
        let (leaving, stuck) = (BTreeMap::new(), BTreeSet::new());
        let (start, started_for) = (Start::default(), BTreeMap::new());
        let is_starting = false;
        Self {
            snapshot,
            nodes,
            broken: None,
            room: None,
            start,
            started_for,
            is_starting,
            leaving,
            stuck,
            reserved: BTreeSet::new(),
            born: 0,
            rejected: 0,
        }
    }

    /// Does what one step says; a name that is taken is refused, as by an API server.
    pub(crate) fn apply(&mut self, step: &Step) {
        let now = self.snapshot.now;
        let is_deaf = self.start.obstacle == Obstacle::DeafGates;
        if let (Action::Delete { role, .. }, reason) = (&step.action, step.reason) {
            let recent = &mut self.snapshot.recent;
            recent.timeouts_in_a_row += usize::from(reason == Reason::WakeTimedOut);
            recent.deleted.insert(*role, reason);
        }
        self.born += 1;
        if is_deaf && let Action::Wake { pod, address: _ } = &step.action {
            // The ticket is sent, and heard by no gate.
            if let Some(view) = self.snapshot.pods.iter_mut().find(|view| view.pod == *pod) {
                view.first_ticket = view.first_ticket.or(Some(now));
                bump(view);
            }
        } else {
            accept(&mut self.snapshot, step, Uid(format!("born-{}", self.born)));
        }
    }

    /// One second passes.
    pub(crate) fn tick(&mut self) {
        self.snapshot.now += TICK;
        // The status of the first pass was written.
        self.snapshot.desired.is_new_generation = false;
        self.is_starting = false;
        let mut pods = std::mem::take(&mut self.snapshot.pods);
        for index in 0..pods.len() {
            let has_room =
                self.room.is_none_or(|room| pods.iter().filter(|view| is_housed(view)).count() < room);
            let view = &mut pods[index];
            let before = view.clone();
            self.move_on(view, &before, has_room);
            if *view != before {
                bump(view);
            }
        }
        pods.retain(|view| !self.is_gone(view));
        self.snapshot.pods = pods;
    }

    fn is_gone(&mut self, view: &PodView) -> bool {
        if view.lifecycle != Lifecycle::Terminating || view.node_health() == NodeHealth::NotReady {
            return false;
        }
        let ticks = self.leaving.entry(view.pod.uid.clone()).or_default();
        *ticks += 1;
        *ticks > GRACE_TICKS || view.node_health() == NodeHealth::Gone
    }

    fn move_on(&mut self, view: &mut PodView, before: &PodView, has_room: bool) {
        let now = self.snapshot.now;
        if let Some(name) = view.node.as_ref().map(|node| node.name.clone()) {
            view.node = self.nodes.iter().find(|node| node.name == name).cloned().or(view.node.take());
        }
        if view.is_on_lost_node() {
            if before.is_ready() {
                view.lifecycle = Lifecycle::Unready { since: now };
            }
            return;
        }
        let is_broken = Some(&view.revision) == self.broken.as_ref() || self.stuck.contains(&view.pod.uid);
        match (before.lifecycle, before.gate) {
            (Lifecycle::Unscheduled, _) => {
                if has_room {
                    self.bind(view);
                }
            }
            (Lifecycle::Starting | Lifecycle::Unready { .. }, _) if is_broken => {}
            (Lifecycle::Starting, _) if self.start.obstacle == Obstacle::Rejection => self.reject(view),
            (Lifecycle::Starting, Gate::Ahead) if self.start.obstacle == Obstacle::ShutGates => {
                let since = before.gate_trouble.as_ref().map_or(now, |trouble| trouble.since);
                view.gate_trouble = Some(GateTrouble { since, words: "ErrImagePull".to_owned() });
            }
            (Lifecycle::Starting, Gate::Ahead) => {
                (view.gate, view.gate_trouble) = (Gate::Listening { since: now }, None);
            }
            (Lifecycle::Starting, Gate::Listening { .. })
            | (Lifecycle::Unready { .. }, Gate::Listening { .. } | Gate::Ahead) => {}
            (Lifecycle::Starting, Gate::None | Gate::Passed { .. }) if self.needs_more_time(view) => {}
            (Lifecycle::Starting | Lifecycle::Unready { .. }, Gate::None | Gate::Passed { .. }) => {
                view.lifecycle = Lifecycle::Ready { since: now };
                (view.is_running, view.is_serving, view.signs.is_at_work) = (true, true, false);
                if before.gate != Gate::None {
                    self.snapshot.recent.timeouts_in_a_row = 0;
                }
            }
            (Lifecycle::Ready { .. } | Lifecycle::Finished | Lifecycle::Terminating, _) => {}
        }
        if view.address.is_none() && view.node.is_some() {
            view.address = Some(given::address(view.slot));
            let families = self.snapshot.exposure.as_ref().map_or(1, |exposure| exposure.slices.len());
            view.other_address = (families == 2).then(|| given::other_address(view.slot));
        }
    }

    /// The Pod ends at once, and what takes its place waits longer each time.
    fn reject(&mut self, view: &mut PodView) {
        view.lifecycle = Lifecycle::Finished;
        view.signs.has_ended_early = true;
        self.rejected += 1;
        let pause = SignedDuration::from_secs(20 << self.rejected.min(4));
        let until = vec![self.snapshot.now + pause];
        self.snapshot.recent.early_ends = Some(EarlyEnds { until, words: "SysctlForbidden".to_owned() });
    }

    /// Whether the Pod needs more time to start, of which one tick is over.
    fn needs_more_time(&mut self, view: &mut PodView) -> bool {
        let ticks = self.started_for.entry(view.pod.uid.clone()).or_default();
        *ticks += 1;
        let is_starting = *ticks <= self.start.ticks;
        view.signs.is_at_work = is_starting && self.start.is_at_work;
        self.is_starting |= is_starting;
        is_starting
    }

    fn bind(&self, view: &mut PodView) {
        let usable = self.nodes.iter().filter(|node| node.health == NodeHealth::Healthy);
        let place = usable.min_by_key(|node| (u64::from(view.slot) + node.name.0.len() as u64) % 3);
        if let Some(node) = place {
            view.node = Some(node.clone());
            view.lifecycle = Lifecycle::Starting;
        }
    }

    /// Something goes wrong: a Pod crashes, ends or is deleted, or a node changes.
    pub(crate) fn fault(&mut self, dice: &mut Dice) {
        let now = self.snapshot.now;
        let kind = dice.below(7);
        if kind == 0 {
            let index = dice.below(self.nodes.len());
            let health = [NodeHealth::Healthy, NodeHealth::Cordoned, NodeHealth::NotReady, NodeHealth::Gone];
            // The first node stays, so that there is always room. Every second change is a return.
            if index > 0 {
                self.nodes[index].health = health[dice.below(8) % 4 * dice.below(2)];
            }
            return;
        }
        let count = self.snapshot.pods.len();
        let Some(view) = self.snapshot.pods.get_mut(dice.below(count)) else { return };
        if view.lifecycle == Lifecycle::Terminating {
            return;
        }
        match kind {
            1 | 2 if view.is_ready() => view.lifecycle = Lifecycle::Unready { since: now },
            3 => view.lifecycle = Lifecycle::Finished,
            4 => terminate(view),
            5 if view.is_at_gate() => view.gate = Gate::Passed { since: now },
            6 if matches!(view.lifecycle, Lifecycle::Unready { .. })
                || (view.lifecycle == Lifecycle::Starting && matches!(view.gate, Gate::Passed { .. })) =>
            {
                self.stuck.insert(view.pod.uid.clone());
            }
            _ => {}
        }
        view.is_running = view.is_ready();
        bump(view);
    }
}

/// Whether it takes the room of a Pod on a node that is heard of.
fn is_housed(view: &PodView) -> bool {
    view.node.is_some() && !view.is_on_lost_node() && view.lifecycle != Lifecycle::Finished
}

fn terminate(view: &mut PodView) {
    view.lifecycle = Lifecycle::Terminating;
}
