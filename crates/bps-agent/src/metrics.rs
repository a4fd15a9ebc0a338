//! What an agent counts, and `/metrics` for whoever has the token of its group.
//!
//! The token is read with each request: without its file there are no metrics, and a new one counts at once.
//!
//! Of an agent with several seats each sample of a pair has the label `seat`, and one says which pair the seat has.
//! Samples of the process have no such label, and an agent with one seat has none of both.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bps_api::{LagReason, keys};
use bps_protocol::{Agent, BootTime, Cause, Event, Message, Role, SeatNumber};
use bps_runtime::metrics::CONTENT_TYPE as METRICS_TYPE;
use bps_runtime::metrics::lines::DroppedLines;
use bps_runtime::metrics_server::token;
use hmac::{Hmac, KeyInit as _, Mac as _};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::clock;
use super::lifeline::Watching;
use super::marks::word;

/// Every role, for the metric that says which one it is.
const ROLES: [Role; 6] =
    [Role::Standby, Role::Lapsed, Role::HandedOver, Role::Active, Role::Stopping, Role::Ended];

/// How the first line about a metric begins.
const FIRST_ABOUT: &str = "# HELP ";
/// Last line of what is served.
const END: &str = "# EOF";

/// What an agent counts; clones share the values.
#[derive(Clone, Debug)]
pub struct AgentMetrics {
    role: Family<RoleLabels, Gauge>,
    term: Gauge,
    sequence: Gauge,
    takeovers: Family<ReasonLabels, Counter>,
    handovers: Counter,
    promise_age: Gauge,
    lifeline: Gauge,
    proxied: Gauge,
    /// How often the loop was woken so late that somebody may take over because of it.
    pub late_wakes: Counter,
    /// Writes of the Lease that were asked for, copies included.
    pub lease_writes: Counter,
    /// Attempts to publish that were not the first one of their tenure.
    pub publish_retries: Counter,
    /// Starts of the application, in either role.
    pub starts: Counter,
    /// Hooks that failed or took too long.
    pub hook_failures: Counter,
    /// Applications that were killed because another Pod acted as well.
    pub overtaken: Counter,
    lag: [Gauge; 3],
    blocked: Family<ReasonLabels, Gauge>,
    promised: Arc<Mutex<Option<BootTime>>>,
    lacks: Arc<Mutex<Option<Lacks>>>,
    pair: Family<PairLabels, Gauge>,
    registry: Arc<Registry>,
}

/// How many entries and bytes the standby lacks, and since when.
type Lacks = (u64, u64, BootTime);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RoleLabels {
    role: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PairLabels {
    pair: String,
}

impl Default for AgentMetrics {
    fn default() -> Self {
        Self::of(None)
    }
}

impl AgentMetrics {
    /// Of one of several seats.
    pub fn of_seat(seat: SeatNumber) -> Self {
        Self::of(Some(seat))
    }

    fn of(seat: Option<SeatNumber>) -> Self {
        let mut metrics = Self {
            role: Family::default(),
            term: Gauge::default(),
            sequence: Gauge::default(),
            takeovers: Family::default(),
            handovers: Counter::default(),
            promise_age: Gauge::default(),
            lifeline: Gauge::default(),
            proxied: Gauge::default(),
            late_wakes: Counter::default(),
            lease_writes: Counter::default(),
            publish_retries: Counter::default(),
            starts: Counter::default(),
            hook_failures: Counter::default(),
            overtaken: Counter::default(),
            lag: Default::default(),
            blocked: Family::default(),
            promised: Arc::default(),
            lacks: Arc::default(),
            pair: Family::default(),
            registry: Arc::default(),
        };
        metrics.registry = Arc::new(metrics.register(seat));
        metrics.show_role(None);
        metrics.show_blocked(None);
        metrics
    }

    fn register(&self, seat: Option<SeatNumber>) -> Registry {
        let mut all = Registry::with_prefix("backuppodset_agent");
        // Those of the process: once, and of no seat.
        if seat.is_none_or(|seat| seat == SeatNumber::default()) {
            all.register_collector(Box::new(DroppedLines("log_lines_dropped")));
        }
        let registry = match seat {
            Some(seat) => all.sub_registry_with_label((Cow::from("seat"), Cow::from(seat.0.to_string()))),
            None => &mut all,
        };
        if seat.is_some() {
            registry.register("seat_pair", "1 for the pair that the seat has", self.pair.clone());
        }
        registry.register("role", "1 for the role that the agent has in its pair", self.role.clone());
        registry.register("epoch_term", "Term of the highest epoch that it knows", self.term.clone());
        registry.register("epoch_sequence", "Sequence of the same epoch", self.sequence.clone());
        registry.register("takeovers", "Tenures that began here, by reason", self.takeovers.clone());
        registry.register("handovers", "Tenures that ended here by a handover", self.handovers.clone());
        registry.register(
            "promise_age_seconds",
            "Time since a promise was last given or got; -1 without one",
            self.promise_age.clone(),
        );
        registry.register(
            "lifeline_confirmed",
            "1 while a certificate of the peer's application would be believed",
            self.lifeline.clone(),
        );
        registry.register(
            "lifeline_proxied",
            "1 while certificates of the peer's application never count, because something between the two relays connections",
            self.proxied.clone(),
        );
        registry.register(
            "late_wakes",
            "How often it was given no processor time for half a second or more",
            self.late_wakes.clone(),
        );
        registry.register("lease_writes", "Writes of the Lease", self.lease_writes.clone());
        registry.register("publish_retries", "Further attempts to publish", self.publish_retries.clone());
        registry.register("application_starts", "Starts of the application", self.starts.clone());
        registry.register("hook_failures", "Hooks that failed or took too long", self.hook_failures.clone());
        registry.register(
            "overtaken",
            "Applications that were killed because another Pod acted as well",
            self.overtaken.clone(),
        );
        let [entries, bytes, seconds] = self.lag.clone();
        registry.register(
            "state_lag_entries",
            "Files and folders that the standby of this active lacks",
            entries,
        );
        registry.register("state_lag_bytes", "About how many bytes of files it lacks", bytes);
        registry.register(
            "state_lag_seconds",
            "Time for which it has lacked something; 0 while it is level",
            seconds,
        );
        registry.register(
            "state_blocked",
            "1 for the reason for which the standby of this active gets no state",
            self.blocked.clone(),
        );
        all
    }

    /// Takes in a step of the agent.
    pub fn follow(&self, now: BootTime, event: &Event, (before, after): (&Agent, &Agent)) {
        if before.role != after.role || before.epoch != after.epoch {
            self.show_role(Some(after.role));
            self.term.set(after.epoch.term.into());
            self.sequence.set(after.epoch.sequence.into());
        }
        self.handovers.inc_by(u64::from(after.role == Role::HandedOver && before.role != Role::HandedOver));
        let is_given = after.promise_end > before.promise_end && after.role == Role::Standby;
        let is_got = matches!(event, Event::Received { message: Message::Promise(_), .. });
        if is_given || is_got {
            *self.promised.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        }
    }

    /// A tenure began here.
    pub fn took_over(&self, cause: Cause) {
        self.takeovers.get_or_create(&ReasonLabels { reason: cause.as_str() }).inc();
    }

    /// How far the watch over the peer's application is.
    pub fn show_lifeline(&self, watching: Watching) {
        self.lifeline.set((watching == Watching::Confirmed).into());
        self.proxied.set((watching == Watching::Proxied).into());
    }

    /// How many entries and bytes of the state the standby lacks, and since when; `None` if it lacks nothing, or this agent
    /// does not act.
    pub fn show_lag(&self, lacks: Option<Lacks>) {
        *self.lacks.lock().unwrap_or_else(PoisonError::into_inner) = lacks;
    }

    /// Why the standby gets no state; `None`: it does, or this agent does not act.
    pub fn show_blocked(&self, reason: Option<LagReason>) {
        for one in LagReason::ALL {
            let labels = ReasonLabels { reason: one.as_str() };
            self.blocked.get_or_create(&labels).set((Some(one) == reason).into());
        }
    }

    /// The pair by the name of its Lease; `None` if there is no pair.
    pub fn show_pair(&self, pair: Option<&str>) {
        self.pair.clear();
        if let Some(pair) = pair {
            self.pair.get_or_create(&PairLabels { pair: pair.to_owned() }).set(1);
        }
    }

    /// The role in the pair; `None` if there is no pair.
    pub fn show_role(&self, role: Option<Role>) {
        for one in ROLES {
            self.role.get_or_create(&RoleLabels { role: word(one) }).set((Some(one) == role).into());
        }
    }

    fn text(&self, now: BootTime) -> Option<String> {
        let promised = *self.promised.lock().unwrap_or_else(PoisonError::into_inner);
        let age = promised.map(|promised| i64::try_from(now.since(promised).as_secs()).unwrap_or(i64::MAX));
        self.promise_age.set(age.unwrap_or(-1));
        let lacks = *self.lacks.lock().unwrap_or_else(PoisonError::into_inner);
        let lag = lacks.map(|(entries, bytes, since)| [entries, bytes, now.since(since).as_secs()]);
        for (gauge, number) in self.lag.iter().zip(lag.unwrap_or_default()) {
            gauge.set(i64::try_from(number).unwrap_or(i64::MAX));
        }
        let mut encoded = String::new();
        text::encode(&mut encoded, &self.registry).ok()?;
        Some(encoded)
    }
}

#[derive(Clone)]
struct Serving {
    /// Those of each seat.
    metrics: Vec<AgentMetrics>,
    token_file: PathBuf,
}

/// Serves `/metrics`, those of all seats, to those who have the token in the folder of the key file.
pub fn router(metrics: Vec<AgentMetrics>, key_file: &Path) -> Router {
    let token_file = key_file.with_file_name(keys::SECRET_METRICS_TOKEN_ENTRY);
    Router::new().route("/metrics", get(answer)).with_state(Serving { metrics, token_file })
}

async fn answer(State(Serving { metrics, token_file }): State<Serving>, headers: HeaderMap) -> Response {
    // A disk may be slow, and the agent's loop shares this thread.
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(token_file).map(Zeroizing::new));
    let Ok(Ok(expected)) = read.await else { return StatusCode::NOT_FOUND.into_response() };
    let expected = expected.trim();
    if expected.is_empty() || !token(&headers).is_some_and(|token| is_equal(token, expected)) {
        return (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")]).into_response();
    }
    let now = clock::now();
    match metrics.iter().map(|seat| seat.text(now)).collect::<Option<Vec<_>>>().map(merged) {
        Some(text) => ([(CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// One text of those of all seats: what a metric is comes once, and then the samples of all seats.
fn merged(mut texts: Vec<String>) -> String {
    if texts.len() == 1 {
        return texts.remove(0);
    }
    let mut metrics: Vec<(String, String)> = Vec::new();
    for text in &texts {
        let mut about = String::new();
        for line in text.lines().filter(|line| *line != END) {
            if line.starts_with(FIRST_ABOUT) {
                about.clear();
            }
            if line.starts_with('#') {
                about.extend([line, "\n"]);
                continue;
            }
            let known = metrics.iter().position(|(known, _)| *known == about);
            let at = known.unwrap_or(metrics.len());
            if known.is_none() {
                metrics.push((about.clone(), String::new()));
            }
            metrics[at].1.extend([line, "\n"]);
        }
    }
    let all = metrics.into_iter().map(|(about, samples)| about + &samples);
    all.chain([format!("{END}\n")]).collect()
}

/// In constant time: how long it takes must not tell how much of a guess was right.
fn is_equal(token: &str, expected: &str) -> bool {
    let Ok(mac) = Hmac::<Sha256>::new_from_slice(expected.as_bytes()) else { return false };
    let of = |text: &str| mac.clone().chain_update(text.as_bytes());
    of(token).verify_slice(&of(expected).finalize().into_bytes()).is_ok()
}

#[cfg(test)]
mod tests;
