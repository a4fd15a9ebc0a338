//! What becomes of a set: its planner, carried on until nothing is left to do, in a world that does what is asked of it.
//!
//! | file | what it does |
//! |---|---|
//! | [`effects`] | what a step does when the API server accepts it |
//! | [`places`] | which node a Pod finds |
//! | [`pace`] | how long things take |
//! | `agents` | what the agents of pairs do |
//! | `world` | the Pods and the time |
//!
//! Nothing fails in such a world but what was lost in the beginning: Pods start, writes are accepted. It is the best case,
//! and a set that does not outlive a loss here outlives it nowhere.

mod agents;
pub mod effects;
pub mod pace;
pub mod places;
#[cfg(test)]
mod tests;
mod world;

use jiff::SignedDuration;

pub use pace::Pace;
pub use places::NodeRoom;
use world::World;

use crate::model::{Hold, NodeName, PodName, PodView, Snapshot, Step};
use crate::plan::{Violation, check, plan};

/// How far a forecast looks: twice the time after which the silence of nodes is believed in a storm.
pub const HORIZON: SignedDuration = SignedDuration::from_secs(1_200);
/// Passes after which a set that has not come to rest is given up. A set of 1,000 Pods needs two for each that starts by itself.
const PASSES_MAX: usize = 10_000;

/// Something that happens to a Pod without the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// The Pod.
    pub pod: PodName,
    /// What happens to it.
    pub event: Event,
}

/// What happens to a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It finds a node.
    Bound(NodeName),
    /// Its gate listens: a cold backup is available.
    AtGate,
    /// It is ready.
    Ready,
    /// It acts in its pair.
    TookOver,
    /// It is the standby of a pair.
    StandsBy,
    /// It is taken from a node that does not answer.
    Evicted,
    /// It does not exist any more.
    Gone,
}

/// What happens at one moment, and what the operator does then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wave {
    /// Time since the beginning.
    pub after: SignedDuration,
    /// What happens.
    pub happenings: Vec<Happening>,
    /// What the operator does.
    pub steps: Vec<Step>,
    /// Who serves after that, by name.
    pub serving: Vec<PodName>,
}

/// How a forecast ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing is left to do, or only what comes after [`HORIZON`].
    Rest,
    /// It goes on for ever.
    Restless,
    /// A plan is refused: a bug of the planner.
    Refused(Vec<Violation>),
}

/// What becomes of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Who serves in the very beginning, before anything is done, by name.
    pub at_first: Vec<PodName>,
    /// What happens, in the order of time.
    pub waves: Vec<Wave>,
    /// Who serves in the end, by name.
    pub serving: Vec<PodName>,
    /// Primaries that are wanted.
    pub wanted: usize,
    /// The Pods that there are in the end, by name.
    pub pods: Vec<PodView>,
    /// Those that find no node, by name.
    pub unplaced: Vec<PodName>,
    /// What is held back in the end.
    pub holds: Vec<Hold>,
    /// How it ends.
    pub ending: Ending,
}

impl Forecast {
    /// Whether as many serve in the end as are wanted.
    pub const fn survives(&self) -> bool {
        matches!(self.ending, Ending::Rest) && self.serving.len() >= self.wanted
    }

    /// For how long fewer served than in the end or than were wanted; `None` if that was so at no time.
    pub fn short_for(&self) -> Option<SignedDuration> {
        let enough = self.wanted.min(self.serving.len());
        let last = self.waves.iter().rposition(|wave| wave.serving.len() < enough);
        match last {
            Some(last) => self.waves.get(last + 1).map(|wave| wave.after),
            None if self.at_first.len() < enough => self.waves.first().map(|wave| wave.after),
            None => None,
        }
    }
}

/// Carries the planner on from this snapshot, in which what is to be lost is lost.
pub fn forecast(snapshot: Snapshot, places: Vec<NodeRoom>, pace: Pace) -> Forecast {
    let (start, wanted) = (snapshot.now, snapshot.desired.replicas);
    let mut world = World::new(snapshot, places, pace);
    let at_first = world.serving();
    let mut waves: Vec<Wave> = Vec::new();
    let mut ending = Ending::Restless;
    let mut holds = Vec::new();
    for _ in 0..PASSES_MAX {
        let happenings = world.happens();
        let plan = plan(&world.snapshot);
        let violations = check(&world.snapshot, &plan);
        if !violations.is_empty() {
            ending = Ending::Refused(violations);
            break;
        }
        let steps = plan.first_wave();
        for step in &steps {
            world.accept(step);
        }
        let is_still = steps.is_empty() && happenings.is_empty();
        if !is_still {
            let after = world.snapshot.now.duration_since(start);
            waves.push(Wave { after, happenings, steps, serving: world.serving() });
            continue;
        }
        let soon = world.snapshot.now.saturating_add(SignedDuration::from_millis(1));
        let next = world.next().into_iter().chain(plan.next_look()).min();
        let next = next.map(|next| next.max(soon.unwrap_or(next)));
        holds = plan.holds;
        match next.filter(|next| next.duration_since(start) <= HORIZON) {
            Some(next) => world.pass_to(next),
            None => {
                ending = Ending::Rest;
                break;
            }
        }
    }
    let (serving, unplaced) = (world.serving(), world.unplaced());
    Forecast { at_first, waves, serving, wanted, pods: world.snapshot.pods, unplaced, holds, ending }
}
