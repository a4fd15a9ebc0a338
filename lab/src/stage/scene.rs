//! Watches the Pods and the endpoints of one set, and notes when each change arrived.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use bps_api::keys;
use bps_core::model::Role;
use futures::{Stream, StreamExt, future, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time;

use super::Error;
use super::sight::{Counts, PodSight, are_in_place};
use crate::machine::clock::Instant;

/// Changes that wait to be looked at; more make the watch wait. Source: all Pods of the largest measurement.
const WAITING_MAX: usize = 16_384;
/// How long the first list may take.
const FIRST_LIST_WITHIN: Duration = Duration::from_secs(30);

/// Something that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// A Pod is like this now.
    Pod(PodSight),
    /// A Pod is gone.
    PodGone(String),
    /// These Pods are behind the set's Service now, ready to be used.
    Exposed(BTreeSet<String>),
}

impl fmt::Display for Sight {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(pod) => pod.fmt(formatter),
            Self::PodGone(name) => write!(formatter, "{name} gone"),
            Self::Exposed(names) if names.is_empty() => formatter.write_str("endpoints: none"),
            Self::Exposed(names) => {
                write!(
                    formatter,
                    "endpoints: {}",
                    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
                )
            }
        }
    }
}

/// What was seen, and when it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// When it arrived from the API server.
    pub at: Instant,
    /// What it says.
    pub sight: Sight,
}

enum Arrival {
    Pod(Box<Event<Pod>>),
    Slice(Box<Event<EndpointSlice>>),
}

/// One set as the API server shows it. Dropping it ends the watches.
pub struct Scene {
    set: String,
    arrivals: mpsc::Receiver<(Instant, Arrival)>,
    _watches: JoinSet<()>,
    pods: BTreeMap<String, PodSight>,
    exposed: BTreeSet<String>,
    listed: BTreeSet<String>,
    are_pods_listed: bool,
    are_slices_listed: bool,
    history: Vec<Moment>,
}

impl Scene {
    /// Begins to watch a set, which need not exist yet; returns when Pods and endpoints have been listed once.
    ///
    /// # Errors
    /// `Watch` if the API server does not list them in time.
    pub async fn open(client: &Client, namespace: &str, set: &str) -> Result<Self, Error> {
        let (sender, arrivals) = mpsc::channel(WAITING_MAX);
        let config = watcher::Config::default().labels(&format!("{}={set}", keys::LABEL_SET));
        let pods = watcher::watcher(Api::<Pod>::namespaced(client.clone(), namespace), config.clone());
        let slices = watcher::watcher(Api::<EndpointSlice>::namespaced(client.clone(), namespace), config);
        let mut watches = JoinSet::new();
        watches.spawn(forward(arrived(pods, |event| Arrival::Pod(Box::new(event))), sender.clone()));
        watches.spawn(forward(arrived(slices, |event| Arrival::Slice(Box::new(event))), sender));
        let mut scene = Self {
            set: set.to_owned(),
            arrivals,
            _watches: watches,
            pods: BTreeMap::new(),
            exposed: BTreeSet::new(),
            listed: BTreeSet::new(),
            are_pods_listed: false,
            are_slices_listed: false,
            history: Vec::new(),
        };
        let listed = |scene: &Scene| scene.are_pods_listed && scene.are_slices_listed;
        scene.until(("listed", FIRST_LIST_WITHIN), listed).await?;
        Ok(scene)
    }

    /// The Pods that exist.
    pub fn pods(&self) -> impl Iterator<Item = &PodSight> {
        self.pods.values()
    }

    /// One Pod.
    pub fn pod(&self, name: &str) -> Option<&PodSight> {
        self.pods.get(name)
    }

    /// Names of the Pods behind the Service.
    pub fn exposed(&self) -> &BTreeSet<String> {
        &self.exposed
    }

    /// The first primary, by name, that is ready and not terminating.
    pub fn primary(&self) -> Option<&PodSight> {
        self.pods().find(|pod| pod.role == Some(Role::Primary) && pod.is_in_place())
    }

    /// Whether the set consists of exactly these Pods, each ready or at its gate, besides terminating ones.
    pub fn is_in_place(&self, counts: Counts) -> bool {
        are_in_place(self.pods(), counts)
    }

    /// Everything that was seen, oldest first.
    pub fn history(&self) -> &[Moment] {
        &self.history
    }

    /// Looks at changes one by one until the scene satisfies the predicate; returns when the last one arrived.
    ///
    /// # Errors
    /// `Overdue` after the limit, with what is there; `Watch` if the watch ends.
    pub async fn until(
        &mut self,
        (wanted, limit): (&str, Duration),
        is_reached: impl Fn(&Self) -> bool,
    ) -> Result<Instant, Error> {
        let deadline = time::Instant::now() + limit;
        let mut at = Instant::now();
        while !is_reached(self) {
            match time::timeout_at(deadline, self.arrivals.recv()).await {
                Ok(Some((arrived, arrival))) => {
                    at = arrived;
                    self.take(arrived, arrival);
                }
                Ok(None) => return Err(Error::Watch { set: self.set.clone() }),
                Err(_) => {
                    let seen = self.describe();
                    let (set, wanted) = (self.set.clone(), wanted.to_owned());
                    return Err(Error::Overdue { set, wanted, limit, seen });
                }
            }
        }
        Ok(at)
    }

    /// Looks at what has arrived already.
    pub fn catch_up(&mut self) {
        while let Ok((arrived, arrival)) = self.arrivals.try_recv() {
            self.take(arrived, arrival);
        }
    }

    fn describe(&self) -> String {
        let pods: Vec<_> = self.pods().map(ToString::to_string).collect();
        if pods.is_empty() { "it has no pods".to_owned() } else { pods.join("; ") }
    }

    fn take(&mut self, at: Instant, arrival: Arrival) {
        match arrival {
            Arrival::Pod(event) => self.take_pod(at, *event),
            Arrival::Slice(event) => self.take_slice(at, *event),
        }
    }

    fn take_slice(&mut self, at: Instant, event: Event<EndpointSlice>) {
        match event {
            Event::Init => {}
            Event::InitDone => self.are_slices_listed = true,
            Event::InitApply(slice) | Event::Apply(slice) => self.note_exposed(at, endpoints(&slice)),
            Event::Delete(_) => self.note_exposed(at, BTreeSet::new()),
        }
    }

    fn take_pod(&mut self, at: Instant, event: Event<Pod>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => {
                self.listed.insert(pod.name_any());
                self.note_pod(at, &pod);
            }
            Event::InitDone => {
                self.are_pods_listed = true;
                let gone: Vec<_> =
                    self.pods.keys().filter(|name| !self.listed.contains(*name)).cloned().collect();
                for name in gone {
                    self.note_gone(at, &name);
                }
            }
            Event::Apply(pod) => self.note_pod(at, &pod),
            Event::Delete(pod) => self.note_gone(at, &pod.name_any()),
        }
    }

    fn note_pod(&mut self, at: Instant, pod: &Pod) {
        let sight = PodSight::of(pod);
        if self.pods.get(&sight.name) != Some(&sight) {
            self.history.push(Moment { at, sight: Sight::Pod(sight.clone()) });
            self.pods.insert(sight.name.clone(), sight);
        }
    }

    fn note_gone(&mut self, at: Instant, name: &str) {
        if self.pods.remove(name).is_some() {
            self.history.push(Moment { at, sight: Sight::PodGone(name.to_owned()) });
        }
    }

    fn note_exposed(&mut self, at: Instant, exposed: BTreeSet<String>) {
        if self.exposed != exposed {
            self.history.push(Moment { at, sight: Sight::Exposed(exposed.clone()) });
            self.exposed = exposed;
        }
    }
}

fn endpoints(slice: &EndpointSlice) -> BTreeSet<String> {
    let ready = slice.endpoints.iter().filter(|endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
    });
    ready.filter_map(|endpoint| endpoint.target_ref.as_ref()?.name.clone()).collect()
}

/// The instant is taken here, in the task that reads the connection, whatever the reader of the scene does.
fn arrived<K: Send + 'static>(
    events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
    wrap: fn(Event<K>) -> Arrival,
) -> stream::BoxStream<'static, (Instant, Arrival)> {
    // After an error the watcher begins anew; the scene's waits have their own limits.
    events
        .filter_map(move |event| future::ready(event.ok().map(|event| (Instant::now(), wrap(event)))))
        .boxed()
}

async fn forward(
    mut arrivals: stream::BoxStream<'static, (Instant, Arrival)>,
    sender: mpsc::Sender<(Instant, Arrival)>,
) {
    while let Some(arrival) = arrivals.next().await {
        if sender.send(arrival).await.is_err() {
            return;
        }
    }
}
