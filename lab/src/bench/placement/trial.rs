//! Puts Pods onto hollow nodes by one profile of a scheduler, one after the other or all at once, and removes them again.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::{Duration, Instant};

use bps_extender::serve::SharedSums;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::figures::{Placed, Placement, PodShape, Room};
use crate::bench::{Error, NAMESPACE};

/// How long the Pods of a trial may take to be bound.
const BOUND_WITHIN: Duration = Duration::from_secs(120);
/// Longest time until all Pods of a trial are gone.
const GONE_WITHIN: Duration = Duration::from_secs(30);
/// Pause between two looks at whether all Pods are gone.
const GONE_PAUSE: Duration = Duration::from_millis(50);
/// Label of the Pods that are to be spread over nodes.
const SPREAD_LABEL: &str = "spread";

/// Ways to make Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Making {
    /// Each once the one before is bound.
    OneByOne,
    /// As fast as the API server takes them.
    Burst,
}

/// One trial.
#[derive(Debug, Clone)]
pub struct PlacementTrial<'a> {
    /// Profile of the scheduler.
    pub profile: &'static str,
    /// Whether the Pods ask for even numbers on the nodes.
    pub is_spread: bool,
    /// Part of the names of its Pods, so that ties are broken in another way.
    pub seed: u16,
    /// Number of Pods.
    pub pods: usize,
    /// Their shapes in turn.
    pub shapes: &'a [PodShape],
    /// The way to make them.
    pub making: Making,
}

/// Result of a trial.
#[derive(Debug, Clone)]
pub struct Placements {
    /// Where each Pod went.
    pub placement: Placement,
    /// From the request that made a Pod until its binding was seen, one by one; the whole time of a burst. Unit: seconds.
    pub seconds: Vec<f64>,
}

/// A namespace in which Pods are only bound.
pub struct PlacementStage {
    pods: Api<Pod>,
    nodes: Vec<NamedRoom>,
    extenders: Vec<SharedSums>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedRoom {
    /// Its name.
    pub name: String,
    /// Its amounts.
    pub room: Room,
}

type Events = Pin<Box<dyn Stream<Item = watcher::Result<Event<Pod>>> + Send>>;

impl PlacementStage {
    /// On these nodes, with these extenders.
    pub fn new(client: &Client, nodes: Vec<NamedRoom>, extenders: Vec<SharedSums>) -> Self {
        Self { pods: Api::namespaced(client.clone(), NAMESPACE), nodes, extenders }
    }

    /// Waits until a scheduler and all extenders know each node: binds a Pod that fits there only.
    ///
    /// # Errors
    /// As [`PlacementStage::hold`].
    pub async fn await_known_by(&self, profile: &str) -> Result<(), Error> {
        let mut events = self.events();
        let mut seen = BTreeMap::new();
        let mut names = Vec::new();
        for NamedRoom { name, room: _ } in &self.nodes {
            let spec = json!({
                "schedulerName": profile, "containers": [{"name": "web", "image": "none"}],
                "nodeSelector": {"kubernetes.io/hostname": name}, "automountServiceAccountToken": false,
            });
            let pod = json!({"metadata": {"name": format!("probe-{name}")}, "spec": spec});
            let pod: Pod = serde_json::from_value(pod).expect("a Pod");
            self.create(&pod).await?;
            names.push(pod.name_any());
        }
        let bound = await_bound(&mut events, &mut seen, &names).await;
        self.clear().await?;
        bound
    }

    /// Makes the Pods of a trial, waits until all are bound, and removes them.
    ///
    /// # Errors
    /// `Request` if the API server refuses, `Find` if a Pod is not bound in time.
    pub async fn hold(&self, trial: &PlacementTrial<'_>) -> Result<Placements, Error> {
        let held = self.place(trial).await;
        self.clear().await?;
        held
    }

    async fn place(&self, trial: &PlacementTrial<'_>) -> Result<Placements, Error> {
        let mut events = self.events();
        let mut nodes = BTreeMap::new();
        let mut seconds = Vec::new();
        let begun = Instant::now();
        let mut names = Vec::new();
        for number in 0..trial.pods {
            let pod = trial.pod(number);
            let made = Instant::now();
            self.create(&pod).await?;
            names.push(pod.name_any());
            if trial.making == Making::OneByOne {
                await_bound(&mut events, &mut nodes, &names[number..]).await?;
                seconds.push(made.elapsed().as_secs_f64());
            }
        }
        await_bound(&mut events, &mut nodes, &names).await?;
        if trial.making == Making::Burst {
            seconds.push(begun.elapsed().as_secs_f64());
        }

        let placed = |(number, name): (usize, &String)| {
            let shape = trial.shapes[number % trial.shapes.len()];
            let on = &nodes[name];
            let index = self.nodes.iter().position(|node| node.name == *on);
            let node = index.ok_or_else(|| Error::Find { what: format!("node {on}, on which {name} is") })?;
            Ok(Placed { node, shape })
        };
        let pods = names.iter().enumerate().map(placed).collect::<Result<_, Error>>()?;
        let placement = Placement { nodes: self.nodes.iter().map(|node| node.room).collect(), pods };
        Ok(Placements { placement, seconds })
    }

    fn events(&self) -> Events {
        Box::pin(watcher::watcher(self.pods.clone(), watcher::Config::default()).default_backoff())
    }

    async fn create(&self, pod: &Pod) -> Result<(), Error> {
        let created = self.pods.create(&PostParams::default(), pod).await;
        created.map(drop).map_err(Error::request("create", "a Pod"))
    }

    /// Removes all Pods, and waits until they are gone and no extender counts them. A scheduler needs no wait: the same watch shows it
    /// the deletions before the next Pod.
    async fn clear(&self) -> Result<(), Error> {
        let now = DeleteParams::default().grace_period(0);
        let all = ListParams::default();
        self.pods.delete_collection(&now, &all).await.map_err(Error::request("delete", "all Pods"))?;
        let gone = async {
            while !self.pods.list(&all).await.map_err(Error::request("list", "Pods"))?.items.is_empty() {
                sleep(GONE_PAUSE).await;
            }
            for extender in &self.extenders {
                extender.until(|sums| sums.is_empty() && sums.nodes() == self.nodes.len()).await;
            }
            Ok(())
        };
        let late = || Error::Find { what: format!("no Pod within {} s", GONE_WITHIN.as_secs()) };
        timeout(GONE_WITHIN, gone).await.map_err(|_| late())?
    }
}

impl PlacementTrial<'_> {
    fn pod(&self, number: usize) -> Pod {
        let PodShape { cpu, memory, storage } = self.shapes[number % self.shapes.len()];
        let requests = json!({
            "cpu": format!("{cpu}m"), "memory": format!("{memory}G"), "ephemeral-storage": format!("{storage}G"),
        });
        let container = json!({"name": "web", "image": "none", "resources": {"requests": requests}});
        let constraint = json!({
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {SPREAD_LABEL: "yes"}},
        });
        let spread: Vec<Value> = self.is_spread.then_some(constraint).into_iter().collect();
        let pod = json!({
            "metadata": {"name": format!("s{}-{number}", self.seed), "labels": {SPREAD_LABEL: "yes"}},
            "spec": {
                "schedulerName": self.profile, "containers": [container], "topologySpreadConstraints": spread,
                "automountServiceAccountToken": false,
            },
        });
        serde_json::from_value(pod).expect("a Pod")
    }
}

/// Reads events until these Pods have nodes.
async fn await_bound(
    events: &mut Events,
    nodes: &mut BTreeMap<String, String>,
    names: &[String],
) -> Result<(), Error> {
    let missing =
        |nodes: &BTreeMap<String, String>| names.iter().find(|name| !nodes.contains_key(*name)).cloned();
    let bound = async {
        while missing(nodes).is_some() {
            match events.next().await {
                Some(Ok(Event::Apply(pod) | Event::InitApply(pod))) => {
                    if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
                        nodes.insert(pod.name_any(), node);
                    }
                }
                Some(Ok(Event::Delete(_) | Event::Init | Event::InitDone) | Err(_)) => {}
                None => return,
            }
        }
    };
    // After that time, or at the end of the watch, one may be missing.
    timeout(BOUND_WITHIN, bound).await.ok();
    if missing(nodes).is_none() {
        return Ok(());
    }
    let what =
        format!("a node for Pod {} within {} s", missing(nodes).unwrap_or_default(), BOUND_WITHIN.as_secs());
    Err(Error::Find { what })
}
