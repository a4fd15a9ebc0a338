//! Answers the kubelet's probes: `/livez` (and `/healthz`) and `/readyz`, each with nothing but ok or not ok.
//!
//! There is no authentication, because the kubelet sends none; so nothing is told but the one bit. Whatever else is served at
//! the same port must see to that itself.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::http_server::serve;
pub use super::http_server::{Error, listen};
use super::shutdown::Shutdown;
use super::tasks::TaskError;

/// Time after its last tick at which a watch loop counts as stuck.
///
/// 60 s: a loop ticks every [`TICK_PERIOD`], so several ticks must be missing before a restart, which costs a failover
/// of leadership, is the better choice.
pub const LIVENESS_MAX: Duration = Duration::from_secs(60);

/// How often a watch loop should call [`Health::tick`], also when nothing happens.
pub const TICK_PERIOD: Duration = Duration::from_secs(10);

/// How long a probe of a process that is not ready waits for it to become so.
///
/// Who starts is mostly ready a moment after the kubelet has asked for the first time. An answer at that moment spares it the
/// rest of a period, and the cluster an event for each probe that failed. 700 ms: the kubelet gives up after 1 s unless a
/// manifest says otherwise.
pub const READY_WAIT: Duration = Duration::from_millis(700);

/// What the process says about itself; clones share it.
#[derive(Clone, Debug)]
pub struct Health {
    last_tick: Arc<Mutex<Instant>>,
    is_ready: watch::Sender<bool>,
}

/// The port for probes, open but not yet served.
#[derive(Debug)]
pub struct HealthServer {
    listener: TcpListener,
    health: Health,
    more: Router,
}

/// What an answer depends on.
type Probed = (Health, Shutdown);

impl Default for Health {
    fn default() -> Self {
        Self { last_tick: Arc::new(Mutex::new(Instant::now())), is_ready: watch::Sender::new(false) }
    }
}

impl Health {
    /// Alive as of now, not ready yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that the watch loop has gone round.
    pub fn tick(&self) {
        *self.last_tick() = Instant::now();
    }

    /// Says whether all caches have listed once; a replica that does not lead is ready too.
    pub fn set_ready(&self, is_ready: bool) {
        self.is_ready.send_if_modified(|shown| std::mem::replace(shown, is_ready) != is_ready);
    }

    /// Whether the watch loop has ticked within [`LIVENESS_MAX`].
    pub fn is_live(&self) -> bool {
        self.last_tick().elapsed() <= LIVENESS_MAX
    }

    /// Whether it is ready, as it changes.
    pub fn readiness(&self) -> watch::Receiver<bool> {
        self.is_ready.subscribe()
    }

    /// Whether it is ready, or becomes so within [`READY_WAIT`].
    async fn becomes_ready(&self) -> bool {
        let mut is_ready = self.is_ready.subscribe();
        matches!(timeout(READY_WAIT, is_ready.wait_for(|is_ready| *is_ready)).await, Ok(Ok(_)))
    }

    fn last_tick(&self) -> MutexGuard<'_, Instant> {
        // A panic while it was held leaves a whole value.
        self.last_tick.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HealthServer {
    /// Opens the port.
    ///
    /// # Errors
    /// `Listen` if the address is in use.
    pub async fn listen(address: SocketAddr, health: Health) -> Result<Self, Error> {
        Ok(Self { listener: listen(address).await?, health, more: Router::new() })
    }

    /// At a port that was opened before.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn at(listener: std::net::TcpListener, health: Health) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener: TcpListener::from_std(listener)?, health, more: Router::new() })
    }

    /// Answers more than probes.
    #[must_use]
    pub fn with(self, more: Router) -> Self {
        Self { more: self.more.merge(more), ..self }
    }

    /// Answers probes until `shutdown`.
    ///
    /// # Errors
    /// None; the type is that of a task.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), TaskError> {
        let router = router((self.health, shutdown.clone())).merge(self.more);
        serve(self.listener, router, None, shutdown).await;
        Ok(())
    }
}

fn router(probed: Probed) -> Router {
    Router::new()
        .route("/livez", get(live))
        .route("/healthz", get(live))
        .route("/readyz", get(ready))
        .with_state(probed)
}

async fn live(State((health, _)): State<Probed>) -> (StatusCode, &'static str) {
    answer(health.is_live())
}

async fn ready(State((health, shutdown)): State<Probed>) -> (StatusCode, &'static str) {
    tokio::select! {
        // Who is ready says so to its end; who is not need not wait for it any more.
        biased;
        is_ready = health.becomes_ready() => answer(is_ready),
        () = shutdown.requested() => answer(false),
    }
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
        let answer = router((health.clone(), Shutdown::new())).oneshot(request).await.unwrap();
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

    #[tokio::test(start_paused = true)]
    async fn readiness_is_what_was_said_last_and_apart_from_liveness() {
        let health = Health::new();
        assert_eq!(probe(&health, "/readyz").await, (503, "not ok\n".to_owned()));
        assert_eq!(probe(&health, "/livez").await, (200, "ok\n".to_owned()));
        health.set_ready(true);
        assert_eq!(probe(&health, "/readyz").await, (200, "ok\n".to_owned()));
        health.set_ready(false);
        assert_eq!(probe(&health, "/readyz").await, (503, "not ok\n".to_owned()));
        assert_eq!(probe(&health, "/metrics").await.0, 404);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_waits_a_moment_for_readiness_and_not_for_the_end() {
        let (health, began) = (Health::new(), Instant::now());
        let (answer, ()) = tokio::join!(probe(&health, "/readyz"), async {
            tokio::time::sleep(READY_WAIT / 2).await;
            health.set_ready(true);
        });
        assert_eq!((answer.0, began.elapsed()), (200, READY_WAIT / 2));

        let (health, began) = (Health::new(), Instant::now());
        assert_eq!((probe(&health, "/readyz").await.0, began.elapsed()), (503, READY_WAIT));

        let (shutdown, began) = (Shutdown::new(), Instant::now());
        shutdown.request();
        let request = Request::get("/readyz").body(Body::empty()).unwrap();
        let answer = router((health, shutdown)).oneshot(request).await.unwrap();
        assert_eq!((answer.status(), began.elapsed()), (StatusCode::SERVICE_UNAVAILABLE, Duration::ZERO));
    }
}
