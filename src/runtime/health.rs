//! Answers the kubelet's probes: `/livez` (and `/healthz`) and `/readyz`, each with nothing but ok or not ok.
//!
//! There is no authentication, because the kubelet sends none; so nothing is told but the one bit. Whatever else is served at
//! the same port must see to that itself.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::time::Instant;

pub use super::http_server::Error;
use super::http_server::{listen, serve};
use super::shutdown::Shutdown;
use super::tasks::TaskError;

/// Time after its last tick at which a watch loop counts as stuck.
///
/// 60 s: a loop ticks every [`TICK_PERIOD`], so several ticks must be missing before a restart, which costs a failover
/// of leadership, is the better choice.
pub const LIVENESS_MAX: Duration = Duration::from_secs(60);

/// How often a watch loop should call [`Health::tick`], also when nothing happens.
pub const TICK_PERIOD: Duration = Duration::from_secs(10);

/// What the process says about itself; clones share it.
#[derive(Clone, Debug)]
pub struct Health {
    state: Arc<Mutex<HealthState>>,
}

#[derive(Clone, Copy, Debug)]
struct HealthState {
    last_tick: Instant,
    is_ready: bool,
}

/// The port for probes, open but not yet served.
#[derive(Debug)]
pub struct HealthServer {
    listener: TcpListener,
    router: Router,
}

impl Default for Health {
    fn default() -> Self {
        Self { state: Arc::new(Mutex::new(HealthState { last_tick: Instant::now(), is_ready: false })) }
    }
}

impl Health {
    /// Alive as of now, not ready yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that the watch loop has gone round.
    pub fn tick(&self) {
        self.change(|state| state.last_tick = Instant::now());
    }

    /// Says whether all caches have listed once; a replica that does not lead is ready too.
    pub fn set_ready(&self, is_ready: bool) {
        self.change(|state| state.is_ready = is_ready);
    }

    /// Whether the watch loop has ticked within [`LIVENESS_MAX`].
    pub fn is_live(&self) -> bool {
        let last_tick = self.change(|state| state.last_tick);
        last_tick.elapsed() <= LIVENESS_MAX
    }

    /// Whether all caches have listed once.
    pub fn is_ready(&self) -> bool {
        self.change(|state| state.is_ready)
    }

    fn change<Output>(&self, change: impl FnOnce(&mut HealthState) -> Output) -> Output {
        // A panic while it was held leaves two plain values, each of them whole.
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl HealthServer {
    /// Opens the port.
    ///
    /// # Errors
    /// `Listen` if the address is in use.
    pub async fn listen(address: SocketAddr, health: Health) -> Result<Self, Error> {
        Ok(Self { listener: listen(address).await?, router: router(health) })
    }

    /// Answers more than probes.
    #[must_use]
    pub fn with(self, more: Router) -> Self {
        Self { router: self.router.merge(more), ..self }
    }

    /// Answers probes until `shutdown`.
    ///
    /// # Errors
    /// None; the type is that of a task.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), TaskError> {
        serve(self.listener, self.router, None, shutdown).await;
        Ok(())
    }
}

fn router(health: Health) -> Router {
    Router::new()
        .route("/livez", get(live))
        .route("/healthz", get(live))
        .route("/readyz", get(ready))
        .with_state(health)
}

async fn live(State(health): State<Health>) -> (StatusCode, &'static str) {
    answer(health.is_live())
}

async fn ready(State(health): State<Health>) -> (StatusCode, &'static str) {
    answer(health.is_ready())
}

fn answer(is_ok: bool) -> (StatusCode, &'static str) {
    if is_ok { (StatusCode::OK, "ok\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ok\n") }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn probe(health: &Health, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = router(health.clone()).oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn liveness_ends_when_ticks_stop_and_returns_with_the_next() {
        let health = Health::new();
        tokio::time::advance(LIVENESS_MAX).await;
        assert_eq!(probe(&health, "/livez").await, (200, "ok\n".to_owned()));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(probe(&health, "/livez").await, (503, "not ok\n".to_owned()));
        assert_eq!(probe(&health, "/healthz").await, (503, "not ok\n".to_owned()));
        health.tick();
        assert_eq!(probe(&health, "/healthz").await, (200, "ok\n".to_owned()));
    }

    #[tokio::test]
    async fn readiness_is_what_was_said_last_and_apart_from_liveness() {
        let health = Health::new();
        assert_eq!(probe(&health, "/readyz").await, (503, "not ok\n".to_owned()));
        assert_eq!(probe(&health, "/livez").await, (200, "ok\n".to_owned()));
        health.set_ready(true);
        assert_eq!(probe(&health, "/readyz").await, (200, "ok\n".to_owned()));
        assert_eq!(probe(&health, "/metrics").await.0, 404);
    }
}
