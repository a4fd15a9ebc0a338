//! Writes events behind everything else: a failover never waits for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bps_api::keys;
use bps_core::status::EventText;
use bps_runtime::clock::Clock;
use bps_runtime::shutdown::Shutdown;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client, Resource};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

/// Most events that wait to be written; further ones are dropped and counted in the log.
const WAITING_MAX: usize = 4096;

/// How long an event waits before it is written.
///
/// 250 ms: several times what a conversion takes, whose writes it would slow down; nobody reads events faster.
const DELAY: Duration = Duration::from_millis(250);

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
    dropped: Arc<AtomicU64>,
}

/// Writes events one after another.
pub(super) struct EventWriter {
    receiver: mpsc::Receiver<Waiting>,
    client: Client,
    instance: String,
    /// Events so far: the part of their names that tells two of one moment apart.
    written: u64,
}

/// A sender and the writer behind it; `instance` names this replica of the operator.
pub(super) fn channel(client: Client, clock: Clock, instance: String) -> (EventSender, EventWriter) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    (
        EventSender { sender, clock, dropped: Arc::default() },
        EventWriter { receiver, client, instance, written: 0 },
    )
}

impl EventSender {
    pub(super) fn send<K: Resource<DynamicType = ()>>(&self, object: &K, text: EventText) {
        let resource_version = object.meta().resource_version.clone();
        let regarding = ObjectReference { resource_version, ..object.object_ref(&()) };
        let waiting = Waiting { regarding, text, time: self.clock.now(), sent: Instant::now() };
        if self.sender.try_send(waiting).is_err() {
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
            }
        }
    }

    async fn write(&mut self, waiting: &Waiting) {
        self.written += 1;
        let namespace = waiting.regarding.namespace.as_deref().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Err(error) = api.create(&PostParams::default(), &self.event(waiting)).await {
            debug!(error = &error as &dyn std::error::Error, "Could not write an event");
        }
    }

    fn event(&self, Waiting { regarding, text, time, sent: _ }: &Waiting) -> Event {
        let name = regarding.name.as_deref().unwrap_or_default();
        Event {
            metadata: ObjectMeta {
                // Not deterministic: an event is a record. Steps of one pass share a moment, so it is counted too.
                name: Some(format!("{name}.{:x}.{:x}", time.as_nanosecond(), self.written)),
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
