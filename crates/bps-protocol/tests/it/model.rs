//! The model checker's view: steps, invariants, and how a search is run.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bps_protocol::Role;
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::arena::Arena;
use crate::steps::Step;
use crate::whole::Audit;
use crate::world::{Broken, World};

/// A world that must be reachable.
pub(crate) type Goal = fn(&World) -> bool;

/// Changes of roles.
pub(crate) type Changes = Arc<Mutex<BTreeSet<(Role, Role)>>>;

/// One search.
#[derive(Clone)]
pub(crate) struct Search {
    pub(crate) arena: Arena,
    pub(crate) goal: Option<Goal>,
    pub(crate) changes: Option<Changes>,
    pub(crate) audit: Option<Arc<Mutex<Audit>>>,
}

/// What a search found.
pub(crate) struct Found {
    pub(crate) worlds: usize,
    pub(crate) time: Duration,
    /// The invariant that is broken, or `goal`, and the way there.
    pub(crate) broken: Option<(&'static str, Vec<Step>)>,
}

impl Model for Search {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let start = match &self.arena {
            Arena { starts_released: true, .. } => World::released,
            Arena { starts_alone: true, .. } => World::alone,
            _ => World::running,
        };
        vec![start(&self.arena)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        // A violation is reported once, where it happens.
        if world.broken.is_none() && world.acting() <= 1 {
            steps.extend(world.steps(&self.arena));
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let next = world.step(&self.arena, &step)?;
        if let (Some(changes), false) = (&self.changes, matches!(step, Step::Restart(_))) {
            let pairs = world.agents.iter().zip(&next.agents);
            let roles =
                pairs.filter_map(|(before, after)| Some((before.as_ref()?.role, after.as_ref()?.role)));
            changes.lock().expect("nobody panics").extend(roles.filter(|(before, after)| before != after));
        }
        let is_as_expected = self.audit.as_ref().is_none_or(|audit| {
            audit.lock().expect("nobody panics").watch(&self.arena, (world, &next), &step)
        });
        is_as_expected.then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("I1", |_, world: &World| world.acting() <= 1),
            Property::always("I2", |_, world: &World| world.broken != Some(Broken::StaleEpoch)),
            Property::always("I3", |_, world: &World| world.broken != Some(Broken::ReusedEpoch)),
            Property::always("I4", |_, world: &World| world.is_known_to_lease()),
        ];
        if self.arena.must_converge {
            properties.push(Property::always("C", |search: &Self, world: &World| {
                [true, false].into_iter().all(|forward| world.converges(&search.arena, forward))
            }));
        }
        if self.goal.is_some() {
            // As the negation of an invariant, so that reaching the goal ends the search.
            properties.push(Property::always("goal", |search: &Self, world: &World| {
                search.goal.is_none_or(|is_reached| !is_reached(world))
            }));
        }
        properties
    }
}

impl Search {
    pub(crate) fn of(arena: Arena) -> Self {
        Self { arena, goal: None, changes: None, audit: None }
    }

    /// Looks at every world that can be reached, nearest first, until an invariant is broken.
    pub(crate) fn run(self) -> Found {
        let began = Instant::now();
        let search = self.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let found = search.discoveries().into_iter().map(|(name, path)| (name, path.into_actions()));
        Found {
            worlds: search.unique_state_count(),
            time: began.elapsed(),
            broken: found.min_by_key(|(name, steps)| (steps.len(), *name)),
        }
    }
}
