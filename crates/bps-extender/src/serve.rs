//! Answers kube-scheduler, once it is known where the Pod before went.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bps_runtime::error::chain;
use tokio::sync::watch as signal;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::answer::{HostScore, Prioritize, Scoring, Unanswered};
use super::metrics::{Answered, ExtenderMetrics, Waited};
use super::view::{NodeSums, ViewState};

/// Largest request that is read: 10,000 names of 253 letters, and a Pod of the largest size that etcd takes, fit.
const REQUEST_MAX_BYTES: usize = 8 * 1024 * 1024;

/// Longest wait of an answer for the binding of the Pod that was scored before.
///
/// The scheduler counts a Pod as soon as it has decided, an extender only once the watch has shown the binding, and only one Pod is
/// decided about at a time. 50 ms: a tenth of the time that the scheduler gives an answer. With a volume that is bound first a Pod
/// takes longer, and is not counted until its binding is seen.
pub const WAIT_MAX: Duration = Duration::from_millis(50);

/// The sums, shared by the watches that keep them and the answers that read them.
#[derive(Clone, Debug)]
pub struct SharedSums {
    view: Arc<Mutex<NodeSums>>,
    changed: signal::Sender<()>,
}

impl SharedSums {
    /// Shares sums.
    pub fn new(view: NodeSums) -> Self {
        Self { view: Arc::new(Mutex::new(view)), changed: signal::Sender::new(()) }
    }

    /// Waits until the sums are as wanted.
    pub async fn until(&self, is_wanted: impl Fn(&NodeSums) -> bool) {
        let mut changed = self.changes();
        while !is_wanted(&self.view()) {
            // The sender lives in self.
            changed.changed().await.ok();
        }
    }

    /// Shows each change from here on.
    pub(super) fn changes(&self) -> signal::Receiver<()> {
        self.changed.subscribe()
    }

    /// Reads or notes something in the view.
    pub(super) fn view(&self) -> MutexGuard<'_, NodeSums> {
        // A panic while it was held leaves a whole value.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the view, and wakes the answer that waits for it.
    pub(super) fn change(&self, change: impl FnOnce(&mut NodeSums)) {
        change(&mut self.view());
        self.changed.send_replace(());
    }
}

/// Answers from the sums.
#[derive(Clone, Debug)]
pub struct ScoreDesk {
    /// Sums over the Pods of each node.
    pub shared: SharedSums,
    /// Rules by which nodes are scored.
    pub scoring: Scoring,
    /// Counters.
    pub metrics: ExtenderMetrics,
}

impl ScoreDesk {
    /// Answers `POST /prioritize`.
    pub fn router(self) -> Router {
        let bound = DefaultBodyLimit::max(REQUEST_MAX_BYTES);
        Router::new().route("/prioritize", post(prioritize)).layer(bound).with_state(self)
    }

    /// Waits until the Pod that was scored before is settled, [`WAIT_MAX`] at most.
    async fn await_settled(&self, request: &Prioritize) -> Waited {
        let is_settled = |sums: &NodeSums| sums.is_settled(&request.pod);
        if is_settled(&self.shared.view()) {
            return Waited::NotNeeded;
        }
        match timeout(WAIT_MAX, self.shared.until(is_settled)).await {
            Ok(()) => Waited::Seen,
            Err(_) => Waited::TimedOut,
        }
    }

    /// Whether the sums are good for scores now.
    fn state(&self) -> ViewState {
        self.shared.view().state(Instant::now().into_std())
    }

    async fn scores(&self, request: &Prioritize) -> Vec<HostScore> {
        self.metrics.count_wait(self.await_settled(request).await);
        let mut view = self.shared.view();
        let scores = self.scoring.answer(request, &view);
        view.note_scored(&request.pod);
        scores
    }
}

/// Counts an answer when it is given, or that none was: a server drops its work when the client has gone.
struct Pending<'a> {
    metrics: &'a ExtenderMetrics,
    begun: Instant,
    answered: Answered,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.metrics.count_answer(self.answered);
        self.metrics.seconds.observe(self.begun.elapsed().as_secs_f64());
    }
}

async fn prioritize(State(desk): State<ScoreDesk>, body: Result<Bytes, BytesRejection>) -> Response {
    let mut pending =
        Pending { metrics: &desk.metrics, begun: Instant::now(), answered: Answered::Abandoned };
    let request = body.map_err(Unanswered::Take).and_then(|body| Prioritize::read(&body));
    let (result, response) = match request {
        Err(refusal) => {
            warn!(error = &refusal as &dyn std::error::Error, "Could not answer the scheduler");
            (Answered::BadRequest, (StatusCode::BAD_REQUEST, chain(&refusal)).into_response())
        }
        Ok(request) => match desk.state() {
            ViewState::Unlisted => (Answered::Unready, StatusCode::SERVICE_UNAVAILABLE.into_response()),
            ViewState::Stale => (Answered::Stale, StatusCode::SERVICE_UNAVAILABLE.into_response()),
            ViewState::Current => (Answered::Scored, json(&desk.scores(&request).await)),
        },
    };
    pending.answered = result;
    response
}

fn json(scores: &[HostScore]) -> Response {
    match serde_json::to_vec(scores) {
        Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Whether only processes of the same Pod reach an address: there is no authentication.
pub(super) fn is_private(address: SocketAddr) -> bool {
    address.ip().is_loopback()
}

#[cfg(test)]
mod tests;
