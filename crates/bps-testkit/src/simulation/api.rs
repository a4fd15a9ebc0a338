//! The server: a `tower::Service` that stands behind the real `kube::Client`, numbers requests, and injects faults.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use http::{Response, request::Parts};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Bytes;
use kube::{Client, client::Body};
use serde_json::Value;
use tokio::{sync::Notify, time::Instant};
use tower::BoxError;

use crate::simulation::actors::ActorStep;
use crate::simulation::fault::Choice;
use crate::simulation::fault::Fault;
use crate::simulation::fault::Plan;
use crate::simulation::physical::Physical;
use crate::simulation::refusal::Refusal;
use crate::simulation::request::Request;
use crate::simulation::serve::Reply;
use crate::simulation::serve::carry_out;
use crate::simulation::world::World;

/// Everything that the server, the actors and the harness share.
pub struct State {
    pub world: World,
    pub plan: Plan,
    /// Requests and delivered watch events so far, over all incarnations.
    pub writes: u32,
    pub reads: u32,
    pub events: u32,
    pub background: u32,
    /// Faults that struck, in order.
    pub fired: Vec<(Choice, Fault)>,
    /// One line for each request.
    pub journal: Vec<String>,
    pub actors: Vec<Box<dyn ActorStep>>,
    /// Whether one actor makes one step before each write of the operator.
    pub is_interleaved: bool,
    /// Where the actors were last found idle: they need not be asked again until something changes.
    idle_at: Option<(u64, Physical)>,
    /// What `run` has counted so far.
    pub counted: Counted,
    /// The incarnation that is served; 0 when the operator is down.
    live: u32,
    incarnations: u32,
}

impl State {
    /// The fault planned for a choice; notes that it struck.
    pub fn strike(&mut self, choice: Choice) -> Option<Fault> {
        let fault = self.plan.at(choice)?;
        self.fired.push((choice, fault));
        Some(fault)
    }

    /// Lets the first actor that has something to do make one step.
    pub fn step_actors(&mut self) -> bool {
        let is_unchanged = |(revision, physical): &(u64, Physical)| {
            *revision == self.world.revision() && *physical == self.world.physical
        };
        if self.idle_at.as_ref().is_some_and(is_unchanged) {
            return false;
        }
        let mut actors = std::mem::take(&mut self.actors);
        let moved = actors.iter_mut().any(|actor| actor.step(&mut self.world));
        self.actors = actors;
        self.idle_at = (!moved).then(|| (self.world.revision(), self.world.physical.clone()));
        moved
    }

    fn arrive(&mut self, lane: Lane) -> (Choice, Option<Fault>) {
        let choice = match lane {
            Lane::Write => {
                if self.is_interleaved {
                    self.step_actors();
                }
                self.writes += 1;
                Choice::Write(self.writes)
            }
            Lane::Read => {
                self.reads += 1;
                Choice::Read(self.reads)
            }
            Lane::Background => {
                self.background += 1;
                Choice::Background(self.background)
            }
        };
        (choice, self.strike(choice))
    }
}

/// Commits and writes that matter to whether a run is at rest, and how far log and journal were read for that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    pub events: usize,
    pub commits: usize,
    pub lines: usize,
    pub writes: usize,
    /// Whether writes that were refused with 403 or 422 do not count.
    pub forgives_refusals: bool,
}

/// What a request is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Write,
    Read,
    Background,
}

impl Lane {
    fn of(request: &Request) -> Self {
        match request.key.kind.plural {
            "leases" | "secrets" | "events" => Self::Background,
            _ if request.verb.is_write() => Self::Write,
            _ => Self::Read,
        }
    }
}

/// A handle on the simulated cluster; clones share it.
#[derive(Clone)]
pub struct Hub {
    state: Arc<Mutex<State>>,
    /// Notified after every commit.
    pub changed: Arc<Notify>,
    crash: Arc<Notify>,
    began: Instant,
}

/// The body of an answer.
pub type ResponseBody = UnsyncBoxBody<Bytes, std::convert::Infallible>;

impl Hub {
    /// A server for a world. Simulated time follows tokio's (paused) clock from here on.
    pub fn new(world: World, plan: Plan) -> Self {
        let state = State {
            world,
            plan,
            writes: 0,
            reads: 0,
            events: 0,
            background: 0,
            fired: Vec::new(),
            journal: Vec::new(),
            actors: Vec::new(),
            is_interleaved: false,
            idle_at: None,
            counted: Counted::default(),
            live: 0,
            incarnations: 0,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            changed: Arc::default(),
            crash: Arc::default(),
            began: Instant::now(),
        }
    }

    /// Runs a closure on the state, and wakes the watches if it committed something.
    pub fn with<T>(&self, run: impl FnOnce(&mut State) -> T) -> T {
        let (result, has_changed) = {
            let mut state = self.state.lock().expect("a panic under the lock fails the test anyway");
            let elapsed = i64::try_from(self.began.elapsed().as_millis()).expect("simulated time is short");
            let epoch =
                jiff::Timestamp::from_second(crate::simulation::world::EPOCH_SECONDS).expect("in range");
            state.world.now = epoch + jiff::SignedDuration::from_millis(elapsed);
            let before = state.world.revision();
            let result = run(&mut state);
            (result, state.world.revision() != before)
        };
        if has_changed {
            self.changed.notify_waiters();
        }
        result
    }

    /// Starts a new incarnation of the operator: the former one is served no more, and this is the new one's client.
    pub fn start(&self) -> (u32, Client) {
        let incarnation = self.with(|state| {
            state.incarnations += 1;
            state.live = state.incarnations;
            state.live
        });
        self.changed.notify_waiters();
        (incarnation, Client::new(Service { hub: self.clone(), incarnation }, "default"))
    }

    /// Stops serving the operator; its requests and watches hang from now on.
    pub fn kill(&self) {
        self.with(|state| state.live = 0);
        self.changed.notify_waiters();
    }

    /// Whether this incarnation is the one that is served.
    pub fn is_alive(&self, incarnation: u32) -> bool {
        self.with(|state| state.live == incarnation)
    }

    /// Resolves when a fault has crashed the operator.
    pub async fn crashed(&self) {
        self.crash.notified().await;
    }

    /// Sends a wake-up to the gate behind a Pod's address, as a numbered write with the same faults.
    ///
    /// # Errors
    /// Connection refused when no gate listens there, reset when the request or its answer is lost.
    pub async fn wake(&self, incarnation: u32, address: &str) -> std::io::Result<()> {
        use std::io::{Error, ErrorKind::ConnectionRefused};
        if !self.is_alive(incarnation) {
            return std::future::pending().await;
        }
        let (choice, fault) = self.with(|state| state.arrive(Lane::Write));
        let result = match self.before(fault).await {
            Ok(()) => self.with(|state| crate::simulation::actors::open_gate(&mut state.world, address)),
            Err(Some(_)) => false,
            Err(None) => return Err(Error::from(std::io::ErrorKind::ConnectionReset)),
        };
        self.with(|state| state.journal.push(format!("{choice} o{incarnation} wake {address} -> {result}")));
        // Nothing was committed, yet the kubelet has something to do now.
        self.changed.notify_waiters();
        match fault {
            Some(Fault::CrashAfter) => self.die().await,
            Some(Fault::LostAfter | Fault::TimeoutAfter) => {
                Err(Error::from(std::io::ErrorKind::ConnectionReset))
            }
            Some(_) | None if result => Ok(()),
            Some(_) | None => Err(Error::from(ConnectionRefused)),
        }
    }

    async fn die<T>(&self) -> T {
        self.kill();
        self.crash.notify_one();
        std::future::pending().await
    }

    /// What a fault does before the request is carried out: `Err(None)` is a reset connection.
    async fn before(&self, fault: Option<Fault>) -> Result<(), Option<Fault>> {
        match fault {
            Some(Fault::CrashBefore) => self.die().await,
            Some(Fault::LostBefore) => Err(None),
            Some(Fault::Slow(milliseconds)) => {
                tokio::time::sleep(Duration::from_millis(milliseconds.into())).await;
                Ok(())
            }
            Some(Fault::CrashAfter | Fault::LostAfter | Fault::TimeoutAfter | Fault::Stale(_)) | None => {
                Ok(())
            }
            Some(refused) => Err(Some(refused)),
        }
    }

    async fn serve(
        &self,
        incarnation: u32,
        parts: &Parts,
        body: &[u8],
    ) -> Result<Response<ResponseBody>, BoxError> {
        if !self.is_alive(incarnation) {
            return std::future::pending().await;
        }
        if parts.uri.path() == "/version" {
            return Ok(respond(&Reply::version()));
        }
        let request = match Request::parse(parts, body) {
            Ok(request) => request,
            Err(refusal) => return Ok(respond(&Reply::Refused(refusal))),
        };
        let (choice, fault) = self.with(|state| {
            let arrived = state.arrive(Lane::of(&request));
            if request.verb.is_write() {
                state.world.judge(|world, invariant| invariant.on_request(world, &request, incarnation));
            }
            arrived
        });
        let mut reply = match self.before(fault).await {
            Ok(()) if !self.is_alive(incarnation) => return std::future::pending().await,
            Ok(()) => {
                self.with(|state| carry_out(self, state, (incarnation, &request), age(fault, &request)))
            }
            Err(Some(fault)) => Reply::Refused(Refusal::injected(fault, &request)),
            Err(None) => return self.reset(choice, incarnation, &request),
        };
        match fault {
            Some(Fault::CrashAfter) => return self.die().await,
            Some(Fault::LostAfter) => return self.reset(choice, incarnation, &request),
            Some(Fault::TimeoutAfter) => {
                reply =
                    Reply::Refused(Refusal::timeout("request did not complete within the allotted timeout"));
            }
            Some(_) | None => {}
        }
        let code = reply.code();
        self.note(choice, incarnation, &format!("{request} -> {code}"));
        if request.verb.is_write() {
            self.with(|state| {
                state.world.judge(|_, invariant| invariant.on_reply(&request, incarnation, code));
            });
        }
        Ok(match reply {
            Reply::Watch(watch) => stream(*watch),
            Reply::Json(..) | Reply::Refused(_) => respond(&reply),
        })
    }

    fn note(&self, choice: Choice, incarnation: u32, what: &str) {
        self.with(|state| state.journal.push(format!("{choice} o{incarnation} {what}")));
    }

    fn reset<T>(&self, choice: Choice, incarnation: u32, request: &Request) -> Result<T, BoxError> {
        self.note(choice, incarnation, &format!("{request} -> reset"));
        Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into())
    }
}

/// How many events old the answer may be. A read without a resourceVersion is never stale: that is the API's promise.
fn age(fault: Option<Fault>, request: &Request) -> u64 {
    let is_loose = !request.parameter("resourceVersion").is_empty()
        && request.parameter("resourceVersionMatch") != "Exact";
    match fault {
        Some(Fault::Stale(events)) if is_loose => events.into(),
        Some(_) | None => 0,
    }
}

fn respond(reply: &Reply) -> Response<ResponseBody> {
    let (code, body, retry_after) = match reply {
        Reply::Json(code, value) => (*code, value.clone(), None),
        Reply::Refused(refusal) => (refusal.code, refusal.to_status(), refusal.retry_after()),
        Reply::Watch(_) => (500, Value::Null, None),
    };
    let mut response = Response::builder().status(code).header("content-type", "application/json");
    if let Some(seconds) = retry_after {
        response = response.header("retry-after", seconds);
    }
    let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
    response.body(body).expect("the parts are valid")
}

fn stream(watch: crate::simulation::watch::Watch) -> Response<ResponseBody> {
    let body = StreamBody::new(watch.into_stream()).boxed_unsync();
    let response = Response::builder().status(200).header("content-type", "application/json");
    response.body(body).expect("the parts are valid")
}

/// The server as one incarnation of the operator sees it.
struct Service {
    hub: Hub,
    incarnation: u32,
}

impl tower::Service<http::Request<Body>> for Service {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (hub, incarnation) = (self.hub.clone(), self.incarnation);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            hub.serve(incarnation, &parts, &body).await
        })
    }
}
