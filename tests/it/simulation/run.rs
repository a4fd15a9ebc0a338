//! Runs one scenario under one plan of faults until nothing moves any more, on a paused clock.

use std::{pin::Pin, time::Duration};

use bps_api::keys;
use kube::Client;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::simulation::{
    actors::{self, ActorStep},
    api::{Hub, State},
    fault::{Choice, Fault, Plan},
    oracle::{self, Invariant, Violation, is_healthy},
    world::World,
};

/// Rounds without any change after which a run is at rest.
const QUIET_ROUNDS: u32 = 2;
/// Rounds that a run may take between two steps of its script.
const ROUNDS_MAX: u32 = 40;
/// Steps that the actors may take in one go; more means that two of them fight.
const ACTOR_STEPS_MAX: u32 = 10_000;
/// Simulated time that one pass may take.
const PASS_MAX: Duration = Duration::from_secs(600);
/// Simulated time between two passes.
const BETWEEN_PASSES: Duration = Duration::from_secs(1);
/// Simulated time in which a task reacts to what it has heard, unless the scenario says otherwise.
const REACTION: Duration = Duration::from_millis(50);
/// Reactions of a task in one round.
const REACTIONS_MAX: u32 = 1_000;
/// Simulated time without change before a task's round ends, unless the scenario says otherwise: longer than a client
/// takes to notice a dead watch (290 s and 5 s), and than any backoff.
const PATIENCE: Duration = Duration::from_secs(310);

/// What an incarnation of the operator is given.
#[derive(Clone)]
pub struct Start {
    pub client: Client,
    pub hub: Hub,
    /// Counted from 1; `Hub::wake` wants it.
    pub incarnation: u32,
}

/// A future of one pass.
pub type Pass = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// An incarnation of the operator, in one of two forms.
pub enum Operator {
    /// Called again and again; what it captured is its memory, which a crash takes.
    Passes(Box<dyn FnMut() -> Pass + Send>),
    /// Runs until it is dropped; if it ends, its process has exited and is started again.
    Task(Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// What is run.
pub trait Scenario: Sync {
    /// Name for reports.
    fn name(&self) -> String;

    /// Sets the scene.
    fn build(&self, world: &mut World);

    /// What people do, each step when the former has come to rest.
    fn script(&self) -> Vec<fn(&mut World)> {
        Vec::new()
    }

    /// Starts an incarnation of the operator.
    fn start(&self, start: Start) -> Operator;

    /// The rest of the cluster.
    fn actors(&self) -> Vec<Box<dyn ActorStep>> {
        actors::cluster()
    }

    /// What must hold throughout.
    fn oracle(&self) -> Vec<Box<dyn Invariant>> {
        oracle::standard()
    }

    /// What must be the same at the end of every run.
    fn fingerprint(&self, world: &World) -> String {
        shape(world)
    }

    /// Simulated time without change before a task's round ends.
    fn patience(&self, _plan: &Plan) -> Duration {
        PATIENCE
    }

    /// Whether writes that are refused may go on at rest: a quota is asked again and again.
    fn forgives_refusals(&self) -> bool {
        false
    }

    /// Simulated time that each step of the other actors takes while a task runs; `None`: they take all at once.
    fn pace(&self) -> Option<Duration> {
        None
    }

    /// Whether the other actors also move between the operator's requests, not only after a pass.
    fn is_interleaved(&self) -> bool {
        false
    }
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub writes: u32,
    pub reads: u32,
    pub events: u32,
    pub background: u32,
    pub fired: Vec<(Choice, Fault)>,
    pub violations: Vec<Violation>,
    /// Whether everything came to rest after every step of the script.
    pub has_converged: bool,
    pub end: String,
    /// Every request, in order, with its answer.
    pub journal: Vec<String>,
}

/// The roles, labels and states at the end, without names: what a user would call the same.
///
/// Nodes, Leases and Events are left out.
pub fn shape(world: &World) -> String {
    let mut lines: Vec<String> = crate::simulation::kinds::KINDS
        .into_iter()
        .filter(|kind| !matches!(kind.plural, "nodes" | "leases" | "events"))
        .flat_map(|kind| world.objects(kind, ""))
        .map(|(key, object)| {
            let state = match key.kind.plural {
                "pods" => format!("{} ready={}", object["status"]["phase"], is_healthy(object)),
                "endpointslices" => object["endpoints"].as_array().map_or(0, Vec::len).to_string(),
                _ => String::new(),
            };
            let mut labels = object["metadata"]["labels"].clone();
            if let Some(labels) = labels.as_object_mut() {
                // It says how a Pod was made, and which of several ends up in a role has no meaning.
                labels.remove(keys::LABEL_GATE);
            }
            format!("{} {labels} {state}", key.kind.plural)
        })
        .collect();
    lines.sort();
    lines.join("\n")
}

/// Runs a scenario under a plan, in a runtime of its own.
pub fn run(scenario: &dyn Scenario, plan: &Plan) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing from the machine");
    runtime.block_on(drive(scenario, plan))
}

async fn drive(scenario: &dyn Scenario, plan: &Plan) -> Outcome {
    let mut world = World::default();
    scenario.build(&mut world);
    world.oracle = scenario.oracle();
    let hub = Hub::new(world, plan.clone());
    hub.with(|state| {
        state.actors = scenario.actors();
        state.is_interleaved = scenario.is_interleaved();
        state.counted.forgives_refusals = scenario.forgives_refusals();
        settle_actors(state)
    });
    let patience = scenario.patience(plan);
    let mut running = Running { scenario, hub: hub.clone(), form: Form::Down, patience };
    let mut has_converged = running.come_to_rest().await;
    for step in scenario.script() {
        hub.with(|state| step(&mut state.world));
        has_converged = has_converged && running.come_to_rest().await;
    }
    drop(running);
    hub.kill();
    hub.with(|state| Outcome {
        writes: state.writes,
        reads: state.reads,
        events: state.events,
        background: state.background,
        fired: std::mem::take(&mut state.fired),
        violations: std::mem::take(&mut state.world.violations),
        has_converged,
        end: scenario.fingerprint(&state.world),
        journal: std::mem::take(&mut state.journal),
    })
}

/// Lets the actors move until none wants to; false when they never stop.
pub fn settle_actors(state: &mut State) -> bool {
    (0..ACTOR_STEPS_MAX).any(|_| !state.step_actors())
}

enum Waited {
    InVain,
    Moved,
    Died,
}

enum Form {
    Down,
    Passes(Box<dyn FnMut() -> Pass + Send>),
    Task(JoinHandle<()>),
}

struct Running<'a> {
    scenario: &'a dyn Scenario,
    hub: Hub,
    form: Form,
    patience: Duration,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What must not change in a quiet round: commits, writes, faults. Leases and Events do not count, or an
/// operator that renews its lease would never be at rest.
///
/// Looks only at what is new since the last call.
fn mark(state: &mut State) -> Mark {
    let State { world, journal, counted, .. } = state;
    let counts = |plural: &str| !matches!(plural, "leases" | "events");
    let log = &world.log()[counted.events..];
    counted.commits += log.iter().filter(|event| counts(event.key.kind.plural)).count();
    counted.events = world.log().len();
    let is_forgiven = |line: &str| {
        counted.forgives_refusals && [" -> 403", " -> 422"].iter().any(|code| line.ends_with(code))
    };
    let lines = &journal[counted.lines..];
    counted.writes += lines.iter().filter(|line| line.starts_with('w') && !is_forgiven(line)).count();
    counted.lines = journal.len();
    (counted.commits, counted.writes, state.fired.len())
}

/// Commits, writes, faults.
type Mark = (usize, usize, usize);

impl Running<'_> {
    /// Rounds until `QUIET_ROUNDS` in a row changed nothing and met no fault.
    async fn come_to_rest(&mut self) -> bool {
        let mut quiet = 0;
        for _ in 0..ROUNDS_MAX {
            let before = self.hub.with(mark);
            let went_well = self.round().await;
            let is_quiet = went_well && self.hub.with(mark) == before;
            quiet = if is_quiet { quiet + 1 } else { 0 };
            if quiet == QUIET_ROUNDS {
                self.hub.with(|state| state.world.judge(|world, invariant| invariant.at_rest(world)));
                return true;
            }
        }
        false
    }

    async fn round(&mut self) -> bool {
        if matches!(self.form, Form::Down) {
            let (incarnation, client) = self.hub.start();
            let hub = self.hub.clone();
            self.form = match self.scenario.start(Start { client, hub, incarnation }) {
                Operator::Passes(passes) => Form::Passes(passes),
                Operator::Task(task) => Form::Task(tokio::spawn(task)),
            };
        }
        match self.form {
            Form::Down => false,
            Form::Passes(_) => self.pass().await,
            Form::Task(_) => self.listen().await,
        }
    }

    fn stop(&mut self) {
        self.hub.kill();
        if let Form::Task(task) = std::mem::replace(&mut self.form, Form::Down) {
            task.abort();
        }
    }

    /// One pass, then the other actors until they are idle.
    async fn pass(&mut self) -> bool {
        let Form::Passes(passes) = &mut self.form else { return false };
        let hub = self.hub.clone();
        // Biased: a crash must win over a pass that ends in the same instant.
        let result = tokio::select! {
            biased;
            () = hub.crashed() => None,
            result = tokio::time::timeout(PASS_MAX, passes()) => Some(matches!(result, Ok(Ok(())))),
        };
        if result.is_none() {
            self.stop();
        }
        let are_idle = hub.with(settle_actors);
        tokio::time::sleep(BETWEEN_PASSES).await;
        result == Some(true) && are_idle
    }

    /// Lets a task react, and the actors after each reaction, until both are still for long enough.
    async fn listen(&mut self) -> bool {
        for _ in 0..REACTIONS_MAX {
            let before = self.hub.with(mark);
            let pace = self.scenario.pace();
            if !self.lives_through(pace.unwrap_or(REACTION)).await {
                return false;
            }
            let go_on = if pace.is_some() {
                self.hub.with(State::step_actors);
                true
            } else {
                self.hub.with(settle_actors)
            };
            if !go_on {
                return false;
            }
            if self.hub.with(mark) == before {
                match self.waits(before).await {
                    Waited::InVain => return true,
                    Waited::Moved => {}
                    Waited::Died => return false,
                }
            }
        }
        false
    }

    /// Waits for the operator to do something by itself.
    async fn waits(&mut self, before: Mark) -> Waited {
        let Form::Task(task) = &mut self.form else { return Waited::Died };
        let hub = self.hub.clone();
        let until = tokio::time::Instant::now() + self.patience;
        let waited = loop {
            let changed = hub.changed.notified();
            if hub.with(mark) != before {
                break Waited::Moved;
            }
            // Biased: a crash must win over time that is up in the same instant.
            tokio::select! {
                biased;
                () = hub.crashed() => break Waited::Died,
                _ = &mut *task => break Waited::Died,
                () = changed => {}
                () = tokio::time::sleep_until(until) => break Waited::InVain,
            }
        };
        if matches!(waited, Waited::Died) {
            self.stop();
        }
        waited
    }

    /// Waits; false when the operator crashed or ended meanwhile.
    async fn lives_through(&mut self, time: Duration) -> bool {
        let Form::Task(task) = &mut self.form else { return false };
        let hub = self.hub.clone();
        // Biased: a crash must win over time that is up in the same instant.
        let lives = tokio::select! {
            biased;
            () = hub.crashed() => false,
            _ = task => false,
            () = tokio::time::sleep(time) => true,
        };
        if !lives {
            self.stop();
        }
        lives
    }
}

/// A value of an object's label, for fingerprints and groups.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
