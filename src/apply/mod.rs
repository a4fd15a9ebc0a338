//! Writes the steps of a plan: one bounded request each, at the same time, guarded by uid and resourceVersion.
//!
//! Never decides: a write that the server refuses because the object changed is `Stale`, and the next snapshot decides.

mod budget;
mod exposure;
mod group;
pub(crate) mod groups;
pub(crate) mod others;
mod outcome;
mod pod;
mod removal;
mod standing;
mod taken;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod wake;

use std::sync::{Arc, RwLock};
use std::time::Instant;

use bps_core::manifests::ShownAddresses;
use bps_core::model::{Action, Outcome, Refusal, Role, Step, StepResult};
use bps_observe::{Observation, Written};
use bps_runtime::clock::Clock;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use tokio::sync::Semaphore;

pub(crate) use outcome::{is_name_taken, is_stale};
pub(crate) use removal::at_version;
pub use wake::{GateKit, TicketSender, send_by_tcp};

/// Most deletions, adoptions and retirements under way at once, for all sets together.
///
/// Promotions, tickets and address writes are counted apart: they never queue behind a start-up of other sets.
const PATIENT_WRITES_MAX: usize = 48;

/// Most creations under way at once, for all sets together. Counted apart: admission may take seconds for each of them,
/// and nothing else is to wait for that.
const CREATIONS_MAX: usize = 48;

/// Most promotions and address writes under way at once, for all sets together.
///
/// 64: the API server lets a flow have some 400 requests wait and refuses the others (429), which then wait for longer than a
/// turn lasts here.
const URGENT_WRITES_MAX: usize = 64;

/// Most tickets under way at once, for all sets together. Counted apart: a gate that cannot be reached takes a ticket's whole
/// time, and no promotion is to wait for that.
const TICKETS_MAX: usize = 64;

/// What one write came to.
#[derive(Debug)]
pub(crate) struct Answer<W = Written> {
    pub(crate) outcome: Outcome,
    pub(crate) message: Option<String>,
    pub(crate) written: Option<W>,
}

impl<W> Answer<W> {
    fn done(written: W) -> Self {
        Self { outcome: Outcome::Done, message: None, written: Some(written) }
    }

    fn failed(refusal: Refusal, message: String) -> Self {
        Self { outcome: Outcome::Failed(refusal), message: Some(message), written: None }
    }
}

/// A step that was tried, with the object as the server answered it.
#[derive(Debug)]
pub struct Applied {
    /// The step and what became of it.
    pub result: StepResult,
    /// The object after the write, for the cache.
    pub written: Option<Written>,
}

/// Writes for all sets.
#[derive(Clone)]
pub struct Applier {
    client: Client,
    clock: Clock,
    send_ticket: TicketSender,
    gate: Arc<RwLock<Arc<GateKit>>>,
    turns: Turns,
}

/// Who waits for whom.
#[derive(Clone)]
struct Turns {
    patient: Arc<Semaphore>,
    creations: Arc<Semaphore>,
    urgent: Arc<Semaphore>,
    tickets: Arc<Semaphore>,
}

impl Turns {
    fn new() -> Self {
        let turns = |count| Arc::new(Semaphore::new(count));
        Self {
            patient: turns(PATIENT_WRITES_MAX),
            creations: turns(CREATIONS_MAX),
            urgent: turns(URGENT_WRITES_MAX),
            tickets: turns(TICKETS_MAX),
        }
    }

    fn of(&self, action: &Action) -> &Semaphore {
        match action {
            Action::Create { .. } => &self.creations,
            Action::Wake { .. } => &self.tickets,
            Action::Convert { .. }
            | Action::PublishService
            | Action::PublishGroup
            | Action::Expose { .. } => &self.urgent,
            Action::Delete { .. }
            | Action::Adopt { .. }
            | Action::Relabel { .. }
            | Action::PublishBudget
            | Action::ClearAddresses
            | Action::Retire { .. } => &self.patient,
        }
    }
}

impl Applier {
    /// An applier that writes with this client and signs with these keys.
    pub fn new(client: Client, (clock, send_ticket): (Clock, TicketSender), gate: GateKit) -> Self {
        Self { client, clock, send_ticket, gate: Arc::new(RwLock::new(Arc::new(gate))), turns: Turns::new() }
    }

    /// Signs with other keys from now on.
    pub fn replace_gate_kit(&self, gate: GateKit) {
        *self.gate.write().expect("no holder of this lock panics") = Arc::new(gate);
    }

    fn gate(&self) -> Arc<GateKit> {
        Arc::clone(&self.gate.read().expect("no holder of this lock panics"))
    }

    /// Takes the steps, urgent ones without waiting for anything; returns when all are answered.
    pub async fn apply(&self, observation: &Observation, steps: &[Step]) -> Vec<Applied> {
        let writes: FuturesUnordered<_> = steps.iter().map(|step| self.take(observation, step)).collect();
        writes.collect().await
    }

    /// Results of steps that are not taken, because what had to be asked first was refused, or else is stale.
    pub fn leave(&self, steps: &[Step], refusal: Option<&kube::Error>) -> Vec<Applied> {
        let started = self.clock.now();
        let left = |step: &Step| {
            let answer = refusal.map(outcome::refused::<Written>);
            let outcome = answer.as_ref().map_or(Outcome::Stale, |answer| answer.outcome);
            let message = answer.and_then(|answer| answer.message);
            let elapsed = SignedDuration::ZERO;
            Applied {
                result: StepResult { step: step.clone(), outcome, message, started, elapsed },
                written: None,
            }
        };
        steps.iter().map(left).collect()
    }

    async fn take(&self, observation: &Observation, step: &Step) -> Applied {
        let _turn = self.turns.of(&step.action).acquire().await.ok();
        let started = self.clock.now();
        let clock = Instant::now();
        let answer = self.write(observation, &step.action, started).await;
        let elapsed = SignedDuration::try_from(clock.elapsed()).unwrap_or(SignedDuration::MAX);
        let Answer { outcome, message, written } = answer;
        Applied { result: StepResult { step: step.clone(), outcome, message, started, elapsed }, written }
    }

    async fn write(&self, observation: &Observation, action: &Action, now: Timestamp) -> Answer {
        let pods = pod::Pods::new(&self.client, observation);
        match action {
            Action::Create { name, role, slot, subset } => {
                let new = pod::NewPod { name, role: *role, slot: *slot, subset: subset.as_ref() };
                pods.create(&self.gate().settings, new, now).await
            }
            Action::Convert { pod, from, to } => {
                // Without a key the gate stays shut in any case, and the label says what is wanted.
                let ticket = || wake::ticket(&self.gate(), observation, pod, now).ok();
                let ticket = if *from == Role::Cold { ticket() } else { None };
                pods.convert(pod, *to, ticket.as_ref(), now).await
            }
            Action::Wake { pod, address } => match wake::ticket(&self.gate(), observation, pod, now) {
                Ok(ticket) => {
                    let answer = wake::hand_over(&self.send_ticket, ticket, *address).await;
                    if observation.posted.contains(&pod.uid) {
                        return answer;
                    }
                    // Somebody else wrote the role, so the Pod's annotations have no ticket yet.
                    Answer { written: pods.post_ticket(pod, &ticket).await.written, ..answer }
                }
                Err(answer) => answer,
            },
            Action::Delete { pod, role: _, is_ready: _ } => pods.delete(pod).await,
            Action::Adopt { pod } => pods.adopt(pod).await,
            Action::Relabel { pod, role } => pods.relabel(pod, *role).await,
            Action::PublishService => exposure::publish_service(&self.client, observation).await,
            Action::PublishGroup => group::publish_group(&self.client, observation).await,
            Action::Expose { family, endpoints } => {
                let shown = ShownAddresses { family: *family, endpoints };
                exposure::expose(&self.client, observation, shown).await
            }
            Action::PublishBudget => budget::publish_budget(&self.client, observation).await,
            Action::ClearAddresses => others::clear_service(&self.client, observation).await,
            Action::Retire { object } => exposure::retire(&self.client, observation, object).await,
        }
    }
}
