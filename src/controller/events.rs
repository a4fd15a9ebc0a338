//! Writes events behind everything else: a failover never waits for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bps_api::keys;
use bps_core::status::EventText;
use bps_runtime::clock::Clock;
use bps_runtime::metrics::sets::SetMetrics;
use bps_runtime::shutdown::Shutdown;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, Resource};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use super::series::{EventKey, Series, Tally, Writing};

/// Most events that wait to be written; further ones are dropped and counted in log and metrics.
const WAITING_MAX: usize = 4096;

/// How long an event waits before it is written.
///
/// 250 ms: several times what a conversion takes, whose writes it would slow down; nobody reads events faster.
const DELAY: Duration = Duration::from_millis(250);

/// How often it is looked for counts that are to be written.
const COUNT_PERIOD: Duration = Duration::from_secs(10);

struct Waiting {
    regarding: ObjectReference,
    text: EventText,
    time: Timestamp,
    sent: Instant,
}

/// Passes events to the writer without waiting.
#[derive(Clone)]
pub(super) struct EventSender {
    sender: mpsc::Sender<Waiting>,
    clock: Clock,
    metrics: SetMetrics,
    dropped: Arc<AtomicU64>,
}

/// Writes events one after another.
pub(super) struct EventWriter {
    receiver: mpsc::Receiver<Waiting>,
    client: Client,
    clock: Clock,
    instance: String,
    /// Events so far: the part of their names that tells two of one moment apart.
    written: u64,
    series: Series,
}

/// A sender and the writer behind it; `instance` names this replica of the operator.
pub(super) fn channel(
    client: Client,
    clock: Clock,
    instance: String,
    metrics: &SetMetrics,
) -> (EventSender, EventWriter) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    (
        EventSender { sender, clock: clock.clone(), metrics: metrics.clone(), dropped: Arc::default() },
        EventWriter { receiver, client, clock, instance, written: 0, series: Series::default() },
    )
}

impl EventSender {
    pub(super) fn send<K: Resource<DynamicType = ()>>(&self, object: &K, text: EventText) {
        let resource_version = object.meta().resource_version.clone();
        let regarding = ObjectReference { resource_version, ..object.object_ref(&()) };
        let waiting = Waiting { regarding, text, time: self.clock.now(), sent: Instant::now() };
        if self.sender.try_send(waiting).is_err() {
            self.metrics.dropped_event();
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            if dropped.is_power_of_two() {
                warn!(attempt = dropped, "Dropped events because too many wait");
            }
        }
    }
}

impl EventWriter {
    /// Writes until shutdown; events that wait then are dropped.
    pub(super) async fn run(mut self, shutdown: Shutdown) {
        let mut ticks = tokio::time::interval(COUNT_PERIOD);
        loop {
            tokio::select! {
                biased;
                () = shutdown.requested() => return,
                waiting = self.receiver.recv() => match waiting {
                    Some(waiting) => {
                        sleep_until(waiting.sent + DELAY).await;
                        self.write(&waiting).await;
                    }
                    None => return,
                },
                _ = ticks.tick() => self.write_counts().await,
            }
        }
    }

    async fn write(&mut self, waiting: &Waiting) {
        self.written += 1;
        let about = waiting.regarding.name.as_deref().unwrap_or_default();
        // Not deterministic: an event is a record. Steps of one pass share a moment, so it is counted too.
        let name = format!("{about}.{:x}.{:x}", waiting.time.as_nanosecond(), self.written);
        let ObjectReference { namespace, uid, .. } = waiting.regarding.clone();
        let key = EventKey { namespace, uid, text: waiting.text.clone() };
        let name = match self.series.count(&key, waiting.time, name.clone()) {
            Writing::Object(name) => name,
            Writing::Count(tally) if self.write_count(&key, &tally).await => return,
            // Its object is gone, or may not be changed.
            Writing::Count(_) => {
                let _: Writing = self.series.count(&key, waiting.time, name.clone());
                name
            }
            Writing::Nothing => return,
        };
        let api = self.api(key.namespace.as_deref());
        if let Err(error) = api.create(&PostParams::default(), &self.event(waiting, name)).await {
            let namespace = key.namespace.as_deref().unwrap_or_default();
            debug!(
                namespace,
                object = about,
                error = &error as &dyn std::error::Error,
                "Could not write an event"
            );
            self.series.forget(&key);
        }
    }

    async fn write_counts(&mut self) {
        for (key, tally) in self.series.due(self.clock.now()) {
            self.write_count(&key, &tally).await;
        }
    }

    /// False if that does not work; the next event of this kind is a new one then.
    async fn write_count(&mut self, key: &EventKey, Tally { name, times, last }: &Tally) -> bool {
        let series = json!({"series": {"count": times, "lastObservedTime": MicroTime(*last)}});
        let api = self.api(key.namespace.as_deref());
        let written = api.patch(name, &PatchParams::default(), &Patch::Merge(series)).await;
        if let Err(error) = &written {
            let namespace = key.namespace.as_deref().unwrap_or_default();
            debug!(
                namespace,
                event = name,
                error = error as &dyn std::error::Error,
                "Could not count an event"
            );
            self.series.forget(key);
        }
        written.is_ok()
    }

    fn api(&self, namespace: Option<&str>) -> Api<Event> {
        Api::namespaced(self.client.clone(), namespace.unwrap_or_default())
    }

    fn event(&self, Waiting { regarding, text, time, sent: _ }: &Waiting, name: String) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: regarding.namespace.clone(),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(*time)),
            type_: Some(text.type_.as_str().to_owned()),
            reason: Some(text.reason.to_owned()),
            action: Some(text.action.clone()),
            note: Some(text.note.clone()),
            regarding: Some(regarding.clone()),
            reporting_controller: Some(keys::EVENT_REPORTER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use bps_core::status::EventType;
    use bps_runtime::metrics::Metrics;
    use bps_testkit::mock_api::pair;
    use serde_json::Value;

    use super::*;
    use crate::apply::testing::{NOW, set};

    /// A quota that refuses a Pod in each look makes one object, and one that is gone is made anew.
    #[tokio::test(start_paused = true)]
    async fn an_event_that_repeats_is_one_object_with_a_count() {
        let (client, mut server) = pair();
        let metrics = Metrics::new("test");
        let (sender, writer) = channel(client, Clock::new(|| NOW), "bps-operator-0".into(), &metrics.sets);
        let shutdown = Shutdown::new();
        tokio::spawn(writer.run(shutdown.clone()));
        let set = set(&json!({}));
        let mut told = async |code: u16| {
            let text = EventText {
                type_: EventType::Warning,
                reason: "QuotaExceeded",
                action: "Create web-1".into(),
                note: "exceeded quota".into(),
            };
            sender.send(&set, text);
            let call = server.call().await;
            let seen = call.seen.clone();
            call.reply(code, &if code == 200 { seen.body.clone() } else { Value::Null });
            seen
        };
        let first = told(200).await;
        let name = first.body["metadata"]["name"].as_str().expect("a name").to_owned();
        assert_eq!((first.method.as_str(), &first.body["series"]), ("POST", &Value::Null));
        let again = told(404).await;
        let events = "/apis/events.k8s.io/v1/namespaces/shop/events";
        assert_eq!((again.method.as_str(), again.path), ("PATCH", format!("{events}/{name}")));
        let last = json!(MicroTime(NOW));
        assert_eq!(again.body, json!({"series": {"count": 2, "lastObservedTime": last}}));
        let call = server.call().await;
        assert_eq!((call.seen.method.as_str(), call.seen.path.as_str()), ("POST", events));
        assert_ne!(call.seen.body["metadata"]["name"], json!(name));
        shutdown.request();
    }
}
