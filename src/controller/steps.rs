//! Takes the steps of a plan. What service depends on is not kept waiting by Pods that are being created: admission may
//! take seconds for each, and there may be many.

use std::pin::pin;

use bps_core::model::{Action, Outcome, Step, StepResult};
use bps_observe::{Deleted, Observation, SetKey, Written, observe};
use futures::future::{Either, select};
use jiff::SignedDuration;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::confirm::{Confirmed, confirmed, needs_confirmation};
use super::creations::Allowed;
use super::reconcile::{Context, PASSES_MAX, checked_plan, until_next_hold};
use crate::apply::Applied;

/// How often at most a look answers events that are not to wait while its creations are not answered, and as often ends of
/// holds, so that neither uses up what the other may need; the next look does the rest.
const INTERRUPTIONS_MAX: u32 = 64;

/// How long no further ticket is sent after one was accepted: the kubelet takes a second to say that the gate ended.
const ACCEPTED_TICKET_PAUSE: SignedDuration = SignedDuration::from_secs(2);

/// How long no further ticket is sent after one got no good answer.
const REFUSED_TICKET_PAUSE: SignedDuration = SignedDuration::from_millis(200);

/// Takes steps for one set during one look.
pub(super) struct Taker<'c> {
    pub(super) context: &'c Context,
    pub(super) key: &'c SetKey,
    /// Changes with each event that is not to wait.
    pub(super) urgent: watch::Receiver<()>,
    /// What may be created.
    pub(super) allowed: Allowed,
}

impl Taker<'_> {
    /// Takes all steps at once. While nothing but creations is unanswered, it answers what is urgent: a creation changes
    /// nothing for the Pods that are there, while a deletion must be known before the next decision.
    pub(super) async fn take(&mut self, observation: &Observation, steps: Vec<Step>) -> Vec<StepResult> {
        let is_creation = |step: &Step| matches!(step.action, Action::Create { .. });
        let (mut creations, others): (Vec<Step>, Vec<Step>) = steps.into_iter().partition(is_creation);
        let is_whole = self.allowed.choose(&mut creations);
        let (context, key) = (self.context, self.key);
        let creating = pin!(context.applier.apply(observation, &creations));
        let taking = pin!(take_others(context, key, (observation, others)));
        let (created, mut results) = match select(creating, taking).await {
            Either::Left((created, taking)) => (created, taking.await),
            Either::Right((taken, creating)) => {
                let (created, served) = self.serve_until(creating).await;
                (created, [taken, served].concat())
            }
        };
        let created = absorb(context, key, created);
        let is_taken = context.creations.ended(key, &observation.set, &created, &mut self.allowed);
        if is_taken && is_whole {
            context.creations.forgive(key);
        }
        results.extend(created);
        results
    }

    async fn serve_until<T>(&mut self, mut end: impl Future<Output = T> + Unpin) -> (T, Vec<StepResult>) {
        let (context, key) = (self.context, self.key);
        let mut served = Vec::new();
        let (mut events, mut holds) = (0, 0);
        loop {
            tokio::select! {
                biased;
                end = &mut end => return (end, served),
                Ok(()) = self.urgent.changed(), if events < INTERRUPTIONS_MAX => events += 1,
                () = next_hold_ended(context, key), if holds < INTERRUPTIONS_MAX => holds += 1,
            }
            served.extend(serve(context, key).await);
        }
    }
}

/// Waits until the first hold of the present plan ends; for ever if there is none.
async fn next_hold_ended(context: &Context, key: &SetKey) {
    let observation = observe(&context.sink.cache(), key, context.sink.clock.now());
    let plan = observation.map(|observation| checked_plan(context, key, &observation));
    match plan.and_then(|plan| until_next_hold(context, &plan)) {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}

/// Does what is urgent by a new plan, until nothing is or something stands in the way.
async fn serve(context: &Context, key: &SetKey) -> Vec<StepResult> {
    let mut results = Vec::new();
    for _ in 0..PASSES_MAX {
        let Some(observation) = observe(&context.sink.cache(), key, context.sink.clock.now()) else { break };
        if !context.leadership.is_leader() {
            break;
        }
        let mut steps = checked_plan(context, key, &observation).first_wave();
        steps.retain(|step| step.action.is_urgent());
        if steps.is_empty() {
            break;
        }
        let taken = absorb(context, key, context.applier.apply(&observation, &steps).await);
        let is_disturbed = taken.iter().any(|result| result.outcome != Outcome::Done);
        results.extend(taken);
        if is_disturbed {
            break;
        }
    }
    results
}

/// Takes the steps at once; deletions that could be a mistake of the cache only after they were confirmed.
async fn take_others(
    context: &Context,
    key: &SetKey,
    (observation, steps): (&Observation, Vec<Step>),
) -> Vec<StepResult> {
    let (unconfirmed, free): (Vec<Step>, Vec<Step>) = steps.into_iter().partition(needs_confirmation);
    let free = context.applier.apply(observation, &free);
    let confirmed = take_confirmed(context, key, &unconfirmed);
    let (free, confirmed) = tokio::join!(free, confirmed);
    absorb(context, key, free.into_iter().chain(confirmed))
}

/// Puts what was written into the cache, and holds back tickets that would follow too soon.
fn absorb(context: &Context, key: &SetKey, applied: impl IntoIterator<Item = Applied>) -> Vec<StepResult> {
    let now = context.sink.clock.now();
    let mut cache = context.sink.cache();
    let absorb = |Applied { result, written }: Applied| {
        if let (Action::Delete { pod, role, .. }, Outcome::Done) = (&result.step.action, result.outcome) {
            let deleted = Deleted { role: *role, reason: result.step.reason };
            let shown = match &written {
                Some(Written::Pod(shown) | Written::PodGone(shown)) => Some(shown.as_ref()),
                _ => None,
            };
            cache.deleted_pod(key, &pod.name, shown, deleted, now);
        }
        if let Some(written) = written {
            cache.wrote(written, now);
        }
        if let Action::Wake { pod, address: _ } = &result.step.action {
            let pause =
                if result.outcome == Outcome::Done { ACCEPTED_TICKET_PAUSE } else { REFUSED_TICKET_PAUSE };
            cache.hold_tickets(pod.uid.clone(), now.saturating_add(pause).unwrap_or(now), now);
        }
        result
    };
    applied.into_iter().map(absorb).collect()
}

async fn take_confirmed(context: &Context, key: &SetKey, steps: &[Step]) -> Vec<Applied> {
    if steps.is_empty() {
        return Vec::new();
    }
    match confirmed(&context.client, &context.sink, (key, steps)).await {
        Ok(Some(Confirmed { observation, still, doubted })) => {
            if still.len() < steps.len() {
                debug!(
                    namespace = key.namespace.as_str(),
                    set = key.name.as_str(),
                    "Dropped deletions that were not confirmed"
                );
            }
            let mut applied = context.applier.apply(&observation, &still).await;
            applied.extend(context.applier.leave(&doubted, None));
            applied
        }
        Ok(None) => context.applier.leave(steps, None),
        Err(error) => {
            warn!(
                namespace = key.namespace.as_str(),
                set = key.name.as_str(),
                error = &error as &dyn std::error::Error,
                "Could not confirm deletions"
            );
            context.applier.leave(steps, Some(&error))
        }
    }
}
