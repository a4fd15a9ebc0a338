//! One look at one set: observe, plan, check, apply, until nothing is left to do; then report.

use std::time::Duration;

use bps_core::model::{Action, Hold, Outcome, Plan, Reason, Refusal, Step, StepResult};
use bps_core::plan::{check, plan, protect};
use bps_observe::{Change, Observation, SetKey, observe};
use bps_runtime::backoff::KeyedBackoff;
use bps_runtime::lease::Leadership;
use bps_runtime::metrics::Metrics;
use bps_runtime::metrics::reconcile::ReconcileMetrics;
use jiff::Timestamp;
use kube::Client;
use tracing::{error, info, warn};

use super::creations::Creations;
use super::dispatch::Looks;
use super::history;
use super::queue::{Again, Job};
use super::refresh::{Refreshes, refresh};
use super::report::{Reported, Reporter, Round};
use super::steps::Taker;
use super::watch::Sink;
use crate::apply::Applier;

/// Most passes in one look. A conversion takes one, a wake-up or a swap of the last primary two, what follows them one
/// more; the rest is slack.
pub(super) const PASSES_MAX: u32 = 6;

/// First delay after a refused step; doubles with each further one.
pub(super) const RETRY_FIRST: Duration = Duration::from_millis(250);

/// Longest delay after refused steps: a quota that was raised is noticed within a minute.
pub(super) const RETRY_MAX: Duration = Duration::from_secs(60);

/// First delay after a write met a newer version: the watch brings that version, and this is for the case that it
/// does not. Doubles with each further one, up to [`RETRY_MAX`].
pub(super) const STALE_FIRST: Duration = Duration::from_millis(500);

/// How often in a row a set's writes may be stale before the watches are doubted and it is read anew.
const STALE_MAX: u32 = 2;

/// Least time before the end of a hold is looked at: should one ever end in the past, looks do not chase each other.
const HOLD_DELAY_MIN: Duration = Duration::from_millis(10);

/// How long a new template stays out of the history at most because there was something more urgent to do.
///
/// 5 s: mostly the Pods that start cause a look with nothing to do long before.
const HISTORY_DELAY: Duration = Duration::from_secs(5);

/// Delays after refused writes, of sets or of groups.
pub(super) fn after_refusals() -> KeyedBackoff<SetKey> {
    KeyedBackoff::new(RETRY_FIRST, RETRY_MAX)
}

/// What every reconcile needs.
pub(super) struct Context {
    pub(super) client: Client,
    pub(super) sink: Sink,
    pub(super) applier: Applier,
    pub(super) reporter: Reporter,
    pub(super) leadership: Leadership,
    pub(super) metrics: Metrics,
    /// Sets with refused writes.
    pub(super) refusals: KeyedBackoff<SetKey>,
    /// Creations that were refused.
    pub(super) creations: Creations,
    /// Sets whose writes met newer versions.
    pub(super) stale: KeyedBackoff<SetKey>,
    pub(super) refreshes: Refreshes,
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

/// Reads the objects of a set anew if its writes were stale again and again.
async fn refresh_if_doubted(context: &Context, key: &SetKey) {
    let is_doubted = context.stale.times(key) >= STALE_MAX && context.sink.cache().set(key).is_some();
    if !is_doubted || !context.refreshes.begin(key) {
        return;
    }
    let SetKey { namespace, name } = key;
    context.metrics.sets.read_anew();
    match refresh(&context.client, &context.sink, key).await {
        Ok(()) => info!(namespace, set = name, "Read the set anew, because its writes were stale"),
        Err(error) => {
            warn!(
                namespace,
                set = name,
                error = &error as &dyn std::error::Error,
                "Could not read the set anew"
            );
        }
    }
}

/// What became of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing more to do until something happens, or until then.
    Settled(Option<Again>),
    /// A step was refused; the look is repeated then.
    Refused(Again),
}

/// Looks at one set and does what its plan says.
pub(super) async fn reconcile(context: &Context, job: &Job) -> Look {
    let Some(_permit) = context.leadership.permit() else { return Look::Settled(None) };
    refresh_if_doubted(context, &job.key).await;
    let Some(first) = observe(&context.sink.cache(), &job.key, context.sink.clock.now()) else {
        context.refusals.end(&job.key);
        context.creations.forgive(&job.key);
        context.stale.end(&job.key);
        context.refreshes.end(&job.key);
        context.reporter.forget(&job.key);
        return Look::Settled(None);
    };
    let Worked { observation, plan, results } = work(context, job, first).await;
    let is_calm = is_calm(&plan, &results);
    let history = keep_history(context, &observation, is_calm).await;
    let round = Round {
        key: &job.key,
        observation: &observation,
        plan: &plan,
        results: &results,
        since: job.since,
        is_history_kept: history == History::Kept,
    };
    let reported = context.reporter.report(&context.sink, &round).await;
    let Reported { outcome, stalls_at } = reported;
    let reported = if history == History::Refused { Outcome::Failed(Refusal::ServerFailed) } else { outcome };
    let look_by = observation.snapshot.look_by.into_iter().chain(stalls_at).min();
    if !plan.steps.iter().any(is_creation) {
        // What is missing no more may be refused anew some day.
        context.creations.forgive(&job.key);
    }
    let pause = context.creations.pause(&job.key, &observation.set);
    let ended = Ended { plan: &plan, results: &results, reported, look_by, pause };
    match next_look(context, &job.key, &ended) {
        Look::Settled(next) if history == History::Deferred => {
            let Again { after, change } = next.unwrap_or(HISTORY_DELAY.into());
            Look::Settled(Some(Again { after: after.min(HISTORY_DELAY), change }))
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
async fn work(context: &Context, job: &Job, mut observation: Observation) -> Worked {
    let key = &job.key;
    let mut results = Vec::new();
    let mut plan = checked_plan(context, key, &observation);
    let allowed = context.creations.allowed(key, &observation.set);
    let mut taker = Taker { context, key, urgent: job.urgent.clone(), allowed };
    let mut is_disturbed = false;
    for _ in 0..PASSES_MAX {
        let steps = if is_disturbed { plan.second_wave() } else { plan.first_wave() };
        // Another replica may act from here on: what is left is its affair.
        if steps.is_empty() || !context.leadership.is_leader() {
            break;
        }
        let is_rest_waiting = steps.iter().all(|step| step.action.goes_first());
        let are_creations = steps.iter().all(is_creation);
        let applied = taker.take(&observation, steps).await;
        if are_creations && applied.is_empty() {
            // Their time has not come.
            break;
        }
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

/// Whether nothing was done, or is still to be done, for the set's Pods and their clients.
fn is_calm(plan: &Plan, results: &[StepResult]) -> bool {
    let mut steps = plan.steps.iter().chain(results.iter().map(|result| &result.step));
    steps.all(|step| step.action.is_aside())
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
        let namespace = observation.set.metadata.namespace.as_deref().unwrap_or_default();
        warn!(
            namespace,
            set,
            error = error as &dyn std::error::Error,
            "Could not keep the template's history"
        );
    }
    if kept.is_ok() { History::Kept } else { History::Refused }
}

/// The plan, or of one that would break an invariant only what protects clients.
pub(super) fn checked_plan(context: &Context, key: &SetKey, observation: &Observation) -> Plan {
    let snapshot = &observation.snapshot;
    let plan = plan(snapshot);
    let violations = check(snapshot, &plan);
    if violations.is_empty() {
        return plan;
    }
    for violation in violations {
        context.metrics.sets.refused_plan();
        error!(namespace = key.namespace.as_str(), set = key.name.as_str(), %violation, "Refused a plan that breaks an invariant");
    }
    let mut protection = protect(snapshot);
    if !check(snapshot, &protection).is_empty() {
        protection = Plan::default();
    }
    protection.holds.push(Hold { reason: Reason::CheckRefused, pod: None, until: None });
    protection
}

/// What a look came to.
struct Ended<'a> {
    /// What is still to be done, or waited for.
    plan: &'a Plan,
    results: &'a [StepResult],
    /// What became of the status.
    reported: Outcome,
    /// When something expires that no event tells of.
    look_by: Option<Timestamp>,
    /// How long no creation is tried.
    pause: Option<Duration>,
}

fn next_look(context: &Context, key: &SetKey, ended: &Ended<'_>) -> Look {
    let Ended { plan, results, reported, look_by, pause } = *ended;
    let is_refused = |outcome: Outcome| matches!(outcome, Outcome::Failed(_));
    // A ticket that the gate does not take has its own, shorter pause and its own deadline.
    let is_ticket = |result: &StepResult| matches!(result.step.action, Action::Wake { .. });
    let is_ending = |result: &StepResult| result.outcome == Outcome::Failed(Refusal::NamespaceTerminating);
    if results.iter().any(is_ending) {
        return Look::Settled(Some(RETRY_MAX.into()));
    }
    let hold = until_next_hold(context, plan).into_iter().chain(look_by.map(|at| until(context, at))).min();
    let change = urgency(plan, results);
    // What is tried less and less often must not put off what is due at a known time.
    let retry = |pause: Duration| Again { after: hold.map_or(pause, |hold| hold.min(pause)), change };
    if is_refused(reported) || results.iter().any(|result| is_refused(result.outcome) && !is_ticket(result)) {
        return Look::Refused(retry(context.refusals.again(key)));
    }
    // Nothing else is left to do than what was refused and is not tried yet.
    let is_stale = |outcome: Outcome| outcome == Outcome::Stale;
    if let Some(pause) = pause
        && !plan.steps.is_empty()
        && plan.steps.iter().all(is_creation)
        && !is_stale(reported)
        && !results.iter().any(|result| is_stale(result.outcome))
    {
        return Look::Refused(retry(pause));
    }
    context.refusals.end(key);
    let is_stale = results.iter().any(|result| result.outcome == Outcome::Stale);
    if is_stale || reported == Outcome::Stale || !plan.steps.is_empty() {
        return Look::Settled(Some(retry(context.stale.again(key))));
    }
    context.stale.end(key);
    Look::Settled(hold.map(|after| Again { after, change }))
}

const fn is_creation(step: &Step) -> bool {
    matches!(step.action, Action::Create { .. })
}

/// Time until the first of a plan's holds ends; `None` if all of them wait for events.
pub(super) fn until_next_hold(context: &Context, plan: &Plan) -> Option<Duration> {
    Some(until(context, plan.next_look()?))
}

fn until(context: &Context, at: Timestamp) -> Duration {
    let left = at.duration_since(context.sink.clock.now());
    Duration::try_from(left).unwrap_or_default().max(HOLD_DELAY_MIN)
}

/// How pressing the next look is if nothing happens before: urgent if what was not done yet restores service.
fn urgency(plan: &Plan, results: &[StepResult]) -> Change {
    let is_undone = |result: &StepResult| result.outcome != Outcome::Done && result.step.action.is_urgent();
    // Not only the first hold to end: a look for another one may wait in its lane until this one is overdue.
    let is_due = |hold: &Hold| hold.until.is_some() && does_service_wait(hold.reason);
    let is_urgent = plan.steps.iter().any(|step| step.action.is_urgent())
        || results.iter().any(is_undone)
        || plan.holds.iter().any(is_due);
    if is_urgent { Change::Urgent } else { Change::Ordinary }
}

/// Whether service is missing until a hold for this reason ends.
const fn does_service_wait(reason: Reason) -> bool {
    matches!(reason, Reason::WithinFailoverDelay | Reason::AwaitingStart)
}
