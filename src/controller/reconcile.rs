//! One look at one set: observe, plan, check, apply, until nothing is left to do; then report.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use tracing::{debug, error, warn};

use super::confirm::{Confirmed, confirmed, needs_confirmation};
use super::dispatch::Looks;
use super::history;
use super::queue::Job;
use super::report::{Reporter, Round};
use super::streaks::{RETRY_MAX, Streaks};
use super::watch::Sink;
use crate::apply::{Applied, Applier};
use crate::model::{Action, Hold, Outcome, Plan, Reason, Refusal, Step, StepResult};
use crate::observe::{Observation, SetKey, observe};
use crate::plan::{check, plan};
use crate::runtime::backoff::backoff;
use crate::runtime::lease::Leadership;
use crate::runtime::metrics::Metrics;
use crate::runtime::metrics::reconcile::ReconcileMetrics;

/// Most passes in one look. A conversion takes one, a wake-up or a swap of the last primary two, what follows them one
/// more; the rest is slack.
const PASSES_MAX: u32 = 6;

/// First delay after a write met a newer version: the watch brings that version, and this is for the case that it
/// does not. Doubles with each further one, up to [`RETRY_MAX`].
const STALE_FIRST: Duration = Duration::from_millis(500);

/// How often in a row a set's writes may be stale before the watches are doubted and everything is listed again.
const STALE_MAX: u32 = 2;

/// How long a new template stays out of the history at most because there was something more urgent to do.
///
/// 5 s: mostly the Pods that start cause a look with nothing to do long before.
const HISTORY_DELAY: Duration = Duration::from_secs(5);

/// How long no further ticket is sent after one was accepted: the kubelet takes a second to say that the gate ended.
const ACCEPTED_TICKET_PAUSE: SignedDuration = SignedDuration::from_secs(2);

/// How long no further ticket is sent after one got no good answer.
const REFUSED_TICKET_PAUSE: SignedDuration = SignedDuration::from_millis(200);

/// What every reconcile needs.
pub(super) struct Context {
    pub(super) client: Client,
    pub(super) sink: Sink,
    pub(super) applier: Applier,
    pub(super) reporter: Reporter,
    pub(super) leadership: Leadership,
    pub(super) metrics: Metrics,
    pub(super) refusals: Streaks,
    pub(super) stale: Streaks,
}

impl Looks for Context {
    const CONTROLLER: &'static str = "backuppodset";

    fn metrics(&self) -> &ReconcileMetrics {
        &self.metrics.reconcile
    }

    async fn look(&self, job: &Job) -> Look {
        reconcile(self, job).await
    }
}

/// What became of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing more to do until something happens, or until then.
    Settled(Option<Duration>),
    /// A step was refused; the look is repeated after this time.
    Refused(Duration),
}

/// Looks at one set and does what its plan says.
pub(super) async fn reconcile(context: &Context, job: &Job) -> Look {
    let Some(_permit) = context.leadership.permit() else { return Look::Settled(None) };
    let Some(first) = observe(&context.sink.cache(), &job.key, context.sink.clock.now()) else {
        context.refusals.end(&job.key);
        context.stale.end(&job.key);
        context.reporter.transitions.forget(&job.key);
        return Look::Settled(None);
    };
    let Worked { observation, plan, results } = work(context, &job.key, first).await;
    let history = keep_history(context, &observation, results.is_empty()).await;
    let round = Round {
        key: &job.key,
        observation: &observation,
        plan: &plan,
        results: &results,
        since: job.since,
        is_history_kept: history == History::Kept,
    };
    let reported = context.reporter.report(&context.sink, &round).await;
    let reported =
        if history == History::Refused { Outcome::Failed(Refusal::ServerFailed) } else { reported };
    match next_look(context, &job.key, (&plan, &results, reported)) {
        Look::Settled(next) if history == History::Deferred => {
            Look::Settled(Some(next.map_or(HISTORY_DELAY, |next| next.min(HISTORY_DELAY))))
        }
        look @ (Look::Settled(_) | Look::Refused(_)) => look,
    }
}

/// Whether the history is as the template wants it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum History {
    /// It is, or need not be.
    Kept,
    /// There was something more urgent to do.
    Deferred,
    /// The API server did not take it.
    Refused,
}

/// What was done, and the set as it is afterwards.
struct Worked {
    observation: Observation,
    /// What is still to be done, or waited for.
    plan: Plan,
    results: Vec<StepResult>,
}

/// Plans and applies until nothing is left to do, or something stands in the way. What does not need the step that
/// failed is done before the look ends.
async fn work(context: &Context, key: &SetKey, mut observation: Observation) -> Worked {
    let mut results = Vec::new();
    let mut plan = checked_plan(context, key, &observation);
    let mut is_disturbed = false;
    for _ in 0..PASSES_MAX {
        let steps = if is_disturbed { plan.second_wave() } else { plan.first_wave() };
        if steps.is_empty() {
            break;
        }
        let is_rest_waiting = steps.iter().all(|step| step.action.goes_first());
        let applied = take_steps(context, key, (&observation, steps)).await;
        is_disturbed |= applied.iter().any(|result| result.outcome != Outcome::Done);
        results.extend(applied);
        // A set that is gone meanwhile needs no further plan; its last one says what was wanted.
        let Some(after) = observe(&context.sink.cache(), key, context.sink.clock.now()) else { break };
        plan = checked_plan(context, key, &after);
        observation = after;
        if is_disturbed && !is_rest_waiting {
            break;
        }
    }
    Worked { observation, plan, results }
}

/// Brings the history up to date, in a look that has nothing else to do.
async fn keep_history(context: &Context, observation: &Observation, is_calm: bool) -> History {
    let is_wanted = history::is_due(observation);
    if !is_wanted || observation.invalid.is_some() || observation.snapshot.desired.paused {
        return History::Kept;
    }
    if !is_calm {
        return History::Deferred;
    }
    let kept = history::keep(&context.client, observation).await;
    if let Err(error) = &kept {
        let set = observation.snapshot.desired.name.as_str();
        warn!(set, error = error as &dyn std::error::Error, "Could not keep the template's history");
    }
    if kept.is_ok() { History::Kept } else { History::Refused }
}

/// The plan, or nothing if it would break an invariant or the spec is wrong.
fn checked_plan(context: &Context, key: &SetKey, observation: &Observation) -> Plan {
    if observation.invalid.is_some() {
        return Plan::default();
    }
    let plan = plan(&observation.snapshot);
    let violations = check(&observation.snapshot, &plan);
    if violations.is_empty() {
        return plan;
    }
    for violation in violations {
        context.metrics.sets.refused_plan();
        error!(namespace = %key.namespace, set = %key.name, %violation, "Refused a plan that breaks an invariant");
    }
    Plan { steps: Vec::new(), holds: vec![Hold { reason: Reason::CheckRefused, pod: None, until: None }] }
}

/// Takes the steps at once; deletions that could be a mistake of the cache only after they were confirmed.
async fn take_steps(
    context: &Context,
    key: &SetKey,
    (observation, steps): (&Observation, Vec<Step>),
) -> Vec<StepResult> {
    let (unconfirmed, free): (Vec<Step>, Vec<Step>) = steps.into_iter().partition(needs_confirmation);
    let free = context.applier.apply(observation, &free);
    let confirmed = take_confirmed(context, key, &unconfirmed);
    let (free, confirmed) = tokio::join!(free, confirmed);
    let now = context.sink.clock.now();
    let mut cache = context.sink.cache();
    let absorb = |Applied { result, written }: Applied| {
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
    free.into_iter().chain(confirmed).map(absorb).collect()
}

async fn take_confirmed(context: &Context, key: &SetKey, steps: &[Step]) -> Vec<Applied> {
    if steps.is_empty() {
        return Vec::new();
    }
    match confirmed(&context.client, &context.sink, (key, steps)).await {
        Ok(Some(Confirmed { observation, still, doubted })) => {
            if still.len() < steps.len() {
                debug!(namespace = %key.namespace, set = %key.name, "Dropped deletions that were not confirmed");
            }
            let mut applied = context.applier.apply(&observation, &still).await;
            applied.extend(context.applier.leave(&doubted, None));
            applied
        }
        Ok(None) => context.applier.leave(steps, None),
        Err(error) => {
            warn!(namespace = %key.namespace, set = %key.name, error = &error as &dyn std::error::Error,
                "Could not confirm deletions");
            context.applier.leave(steps, Some(&error))
        }
    }
}

fn next_look(
    context: &Context,
    key: &SetKey,
    (plan, results, reported): (&Plan, &[StepResult], Outcome),
) -> Look {
    let is_refused = |outcome: Outcome| matches!(outcome, Outcome::Failed(_));
    // A ticket that the gate does not take has its own, shorter pause and its own deadline.
    let is_ticket = |result: &StepResult| matches!(result.step.action, Action::Wake { .. });
    let is_ending = |result: &StepResult| result.outcome == Outcome::Failed(Refusal::NamespaceTerminating);
    if results.iter().any(is_ending) {
        return Look::Settled(Some(RETRY_MAX));
    }
    if is_refused(reported) || results.iter().any(|result| is_refused(result.outcome) && !is_ticket(result)) {
        return Look::Refused(context.refusals.refused(key));
    }
    context.refusals.end(key);
    let is_stale = results.iter().any(|result| result.outcome == Outcome::Stale);
    if is_stale || reported == Outcome::Stale || !plan.steps.is_empty() {
        let streak = context.stale.lengthen(key);
        if streak >= STALE_MAX {
            context.sink.relist.ask();
        }
        return Look::Settled(Some(backoff(STALE_FIRST, streak, RETRY_MAX)));
    }
    context.stale.end(key);
    let until = |until: Timestamp| {
        Duration::try_from(until.duration_since(context.sink.clock.now())).unwrap_or_default()
    };
    Look::Settled(plan.next_look().map(until))
}
