//! Puts Pods onto hollow nodes by one profile of a scheduler, one after the other or all at once, and removes them again.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::{Duration, Instant};

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
/// Pause until schedulers and extenders have seen that the Pods of the trial before are gone: what they see cannot be asked.
const FORGET_PAUSE: Duration = Duration::from_millis(300);
/// Pause between two looks at whether all Pods are gone.
const GONE_PAUSE: Duration = Duration::from_millis(50);
/// Label of the Pods that are to be spread over nodes.
const SPREAD_LABEL: &str = "spread";

/// How Pods are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Each once the one before is bound.
    OneByOne,
    /// As fast as the API server takes them.
    Burst,
}

/// One trial.
#[derive(Debug, Clone)]
pub struct Trial<'a> {
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
    /// How they are made.
    pub pace: Pace,
}

/// What came of a trial.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Where each Pod went.
    pub placement: Placement,
    /// From the request that made a Pod until its binding was seen, one by one; the whole time of a burst. Unit: seconds.
    pub seconds: Vec<f64>,
}

/// A namespace in which Pods are only bound.
pub struct Stage {
    pods: Api<Pod>,
    /// Names of the nodes and what they have.
    nodes: Vec<(String, Room)>,
}

type Events = Pin<Box<dyn Stream<Item = watcher::Result<Event<Pod>>> + Send>>;

impl Stage {
    /// On these nodes.
    pub fn new(client: &Client, nodes: Vec<(String, Room)>) -> Self {
        Self { pods: Api::namespaced(client.clone(), NAMESPACE), nodes }
    }

    /// Makes the Pods of a trial, waits until all are bound, and removes them.
    ///
    /// # Errors
    /// `Request` if the API server refuses, `Find` if a Pod is not bound in time.
    pub async fn hold(&self, trial: &Trial<'_>) -> Result<Outcome, Error> {
        let mut events: Events =
            Box::pin(watcher::watcher(self.pods.clone(), watcher::Config::default()).default_backoff());
        let mut nodes = BTreeMap::new();
        let mut seconds = Vec::new();
        let begun = Instant::now();
        let mut names = Vec::new();
        for number in 0..trial.pods {
            let pod = trial.pod(number);
            let made = Instant::now();
            self.pods
                .create(&PostParams::default(), &pod)
                .await
                .map_err(Error::request("create", "a Pod"))?;
            names.push(pod.name_any());
            if trial.pace == Pace::OneByOne {
                await_bound(&mut events, &mut nodes, &names[number..]).await?;
                seconds.push(made.elapsed().as_secs_f64());
            }
        }
        await_bound(&mut events, &mut nodes, &names).await?;
        if trial.pace == Pace::Burst {
            seconds.push(begun.elapsed().as_secs_f64());
        }
        self.clear().await?;

        let index = |name: &String| self.nodes.iter().position(|(node, _)| *node == nodes[name]);
        let placed = |(number, name): (usize, &String)| {
            let shape = trial.shapes[number % trial.shapes.len()];
            index(name).map(|node| Placed { node, shape })
        };
        let pods = names.iter().enumerate().filter_map(placed).collect();
        let placement = Placement { nodes: self.nodes.iter().map(|(_, room)| *room).collect(), pods };
        Ok(Outcome { placement, seconds })
    }

    async fn clear(&self) -> Result<(), Error> {
        let now = DeleteParams::default().grace_period(0);
        let all = ListParams::default();
        self.pods.delete_collection(&now, &all).await.map_err(Error::request("delete", "all Pods"))?;
        while !self.pods.list(&all).await.map_err(Error::request("list", "Pods"))?.items.is_empty() {
            sleep(GONE_PAUSE).await;
        }
        sleep(FORGET_PAUSE).await;
        Ok(())
    }
}

impl Trial<'_> {
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
            if let Some(Ok(Event::Apply(pod) | Event::InitApply(pod))) = events.next().await
                && let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone())
            {
                nodes.insert(pod.name_any(), node);
            }
        }
    };
    if timeout(BOUND_WITHIN, bound).await.is_ok() {
        return Ok(());
    }
    let what =
        format!("a node for Pod {} within {} s", missing(nodes).unwrap_or_default(), BOUND_WITHIN.as_secs());
    Err(Error::Find { what })
}
