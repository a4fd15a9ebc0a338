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
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use super::answer::{HostScore, Question, Refusal, Scoring};
use super::metrics::{Answered, ExtenderMetrics, Waited};
use super::view::View;

/// Largest question that is read: 10,000 names of 253 letters, and a Pod of the largest size that etcd takes, fit.
const QUESTION_MAX_BYTES: usize = 8 * 1024 * 1024;

/// How long an answer waits for what became of the Pod before.
///
/// 50 ms: a binding is seen some 5 ms after the scheduler has decided; the scheduler waits for 500 ms. The scheduler counts a Pod as
/// soon as it has decided, an extender only once the watch has shown the binding, and only one Pod is decided about at a time.
pub const WAIT_MAX: Duration = Duration::from_millis(50);

/// The view, shared by the watches that keep it and the answers that read it.
#[derive(Clone, Debug)]
pub struct Shared {
    view: Arc<Mutex<View>>,
    changed: signal::Sender<()>,
}

impl Shared {
    /// Shares a view.
    pub fn new(view: View) -> Self {
        Self { view: Arc::new(Mutex::new(view)), changed: signal::Sender::new(()) }
    }

    /// Tells of each change from here on.
    pub(super) fn changes(&self) -> signal::Receiver<()> {
        self.changed.subscribe()
    }

    /// Reads or notes something in the view.
    pub(super) fn view(&self) -> MutexGuard<'_, View> {
        // A panic while it was held leaves a whole value.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the view, and wakes the answer that waits for it.
    pub(super) fn change(&self, change: impl FnOnce(&mut View)) {
        change(&mut self.view());
        self.changed.send_replace(());
    }
}

/// What answers are made from.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// What is on the nodes.
    pub shared: Shared,
    /// How nodes are scored.
    pub scoring: Scoring,
    /// What is counted.
    pub metrics: ExtenderMetrics,
}

impl Oracle {
    /// Answers `POST /prioritize`.
    pub fn router(self) -> Router {
        let bound = DefaultBodyLimit::max(QUESTION_MAX_BYTES);
        Router::new().route("/prioritize", post(prioritize)).layer(bound).with_state(self)
    }

    /// Waits until the view shows what became of the Pod before, [`WAIT_MAX`] at most.
    async fn await_settled(&self, question: &Question) -> Waited {
        let mut changed = self.shared.changes();
        let until = Instant::now() + WAIT_MAX;
        let mut waited = Waited::NotNeeded;
        while !self.shared.view().is_settled(&question.pod) {
            waited = Waited::Seen;
            if timeout_at(until, changed.changed()).await.is_err() {
                return Waited::TimedOut;
            }
        }
        waited
    }

    async fn scores(&self, question: &Question) -> Option<Vec<HostScore>> {
        if !self.shared.view().is_ready() {
            return None;
        }
        self.metrics.count_wait(self.await_settled(question).await);
        let mut view = self.shared.view();
        let scores = self.scoring.answer(question, &view);
        view.note_scored(&question.pod);
        Some(scores)
    }
}

async fn prioritize(State(oracle): State<Oracle>, body: Result<Bytes, BytesRejection>) -> Response {
    let begun = Instant::now();
    let question = body.map_err(Refusal::Take).and_then(|body| Question::read(&body));
    let (answered, response) = match question {
        Err(refusal) => {
            warn!(error = &refusal as &dyn std::error::Error, "Could not answer the scheduler");
            (Answered::BadRequest, (StatusCode::BAD_REQUEST, chain(&refusal)).into_response())
        }
        Ok(question) => match oracle.scores(&question).await {
            None => (Answered::Unready, StatusCode::SERVICE_UNAVAILABLE.into_response()),
            Some(scores) => (Answered::Scored, json(&scores)),
        },
    };
    oracle.metrics.count_answer(answered);
    oracle.metrics.seconds.observe(begun.elapsed().as_secs_f64());
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
