//! Pods behind a Service, made from a blueprint: when they are settled, who serves, and when somebody else does.

use std::collections::BTreeSet;
use std::future::ready;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bps_api::{HAGroup, PairStatus, keys};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::store;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::workload::{Blueprint, Kind};
use crate::bench::Error;
use crate::bench::client::{Habit, Visit, forget, visit};
use crate::bench::rounds::Bench;
use crate::faults::Target;
use crate::hollow::is_ready;

/// Name of the workload, the group and the Service of a single pair.
pub const NAME: &str = "pair";
/// How long the site may take to be as it should. A node that lost power needs a minute.
const WITHIN: Duration = Duration::from_secs(180);
/// Pause between two looks at the site.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is measured.
#[derive(Clone)]
pub struct Site {
    client: Client,
    namespace: String,
    blueprint: Blueprint,
}

/// The Pod that serves; of a Deployment, one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// Its name.
    pub pod: String,
    /// Its uid.
    pub uid: String,
    /// Where it runs.
    pub node: String,
    /// Epochs that the Service shows; none without agents.
    pub epochs: BTreeSet<String>,
}

/// Where a Service leads.
struct Shown {
    /// Uids of Pods.
    pods: BTreeSet<String>,
    /// Epochs of their tenures.
    epochs: BTreeSet<String>,
}

impl Site {
    /// Two Pods of a StatefulSet as a pair that counts on the disks of both, once they do; and who serves.
    ///
    /// # Errors
    /// As [`Site::build`] and [`Site::settled`].
    pub async fn pair(client: &Client, namespace: &str) -> Result<(Self, Serving), Error> {
        let blueprint =
            Blueprint { kind: Kind::CountingPairs, name: NAME, replicas: 2, sink: None, lookout: None };
        let site = Self::build(client, namespace, blueprint).await?;
        let serving = site.settled().await?;
        site.in_sync().await?;
        Ok((site, serving))
    }

    /// Applies what the blueprint says, and does not wait for it.
    ///
    /// # Errors
    /// `Request`, or `Find` if the template cannot run an agent.
    pub async fn build(client: &Client, namespace: &str, blueprint: Blueprint) -> Result<Self, Error> {
        let site = Self { client: client.clone(), namespace: namespace.to_owned(), blueprint };
        let workload = site.blueprint.workload()?;
        if site.kind().has_agents() {
            site.apply::<HAGroup>(&site.blueprint.group()).await?;
        } else {
            site.apply::<Service>(&site.blueprint.service()).await?;
        }
        if site.kind().is_stateful_set() {
            site.apply::<StatefulSet>(&workload).await?;
        } else {
            site.apply::<Deployment>(&workload).await?;
        }
        Ok(site)
    }

    /// The processes of one of its Pods as a target.
    pub fn aim(&self, pod: &str) -> Target {
        Target { namespace: self.namespace.clone(), pod: pod.to_owned(), container: None }
    }

    /// What it consists of.
    pub const fn kind(&self) -> Kind {
        self.blueprint.kind
    }

    /// A node without Pods, for those who look on.
    pub fn lookout(&self) -> Option<&str> {
        self.blueprint.lookout.as_deref()
    }

    /// Name of the Lease of its first pair.
    pub fn lease_name(&self) -> String {
        format!("{}-0", self.blueprint.name)
    }

    /// Talks to a kind of objects of the site.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits until everything is in place; returns who serves.
    ///
    /// # Errors
    /// `Request`, or `Find` if that takes too long.
    pub async fn settled(&self) -> Result<Serving, Error> {
        let replicas = self.blueprint.replicas;
        self.until("a settled site", async || {
            let pods = self.pods().await?;
            let is_staying = |pod: &&Pod| pod.metadata.deletion_timestamp.is_none() && is_ready(pod);
            let ready: Vec<&Pod> = pods.iter().filter(is_staying).collect();
            let shown = self.shown().await?;
            let is_paired = !self.kind().has_agents() || self.is_paired().await?;
            let expected = self.kind().serving(replicas);
            if pods.len() != replicas || ready.len() != replicas || shown.pods.len() != expected || !is_paired
            {
                return Ok(None);
            }
            let serving =
                ready.into_iter().find(|pod| pod.uid().is_some_and(|uid| shown.pods.contains(&uid)));
            Ok(serving.and_then(|pod| {
                let node = pod.spec.as_ref()?.node_name.clone()?;
                Some(Serving { pod: pod.name_any(), uid: pod.uid()?, node, epochs: shown.epochs.clone() })
            }))
        })
        .await
    }

    /// Waits until others serve than this Pod, or it serves in another tenure: one that has no standby at the moment takes
    /// over from itself.
    ///
    /// # Errors
    /// As [`Site::settled`].
    pub async fn recovered(&self, before: &Serving) -> Result<(), Error> {
        if !self.kind().has_agents() {
            // The same container starts again, or another Pod comes: as many Pods serve once more.
            sleep(Duration::from_secs(1)).await;
            return self.settled().await.map(drop);
        }
        self.until("another active", async || {
            let shown = self.shown().await?;
            let is_other = !shown.pods.contains(&before.uid);
            // A Service that shows no epoch says nothing about tenures.
            let is_later = !before.epochs.is_empty() && shown.epochs.is_disjoint(&before.epochs);
            Ok((!shown.pods.is_empty() && (is_other || is_later)).then_some(()))
        })
        .await
    }

    /// Waits until every standby has all that was acknowledged.
    ///
    /// # Errors
    /// As [`Site::settled`].
    pub async fn in_sync(&self) -> Result<(), Error> {
        let is_level =
            async || Ok(self.pairs().await?.iter().all(|pair| pair.sync == "InSync").then_some(()));
        self.until("standbys in sync", is_level).await
    }

    /// Asks for so many Pods, and does not wait for them.
    ///
    /// # Errors
    /// `Request`.
    pub async fn scale(&self, replicas: usize) -> Result<(), Error> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let (name, parameters) = (self.blueprint.name, PatchParams::default());
        let scaled = if self.kind().is_stateful_set() {
            self.api::<StatefulSet>().patch(name, &parameters, &patch).await.map(drop)
        } else {
            self.api::<Deployment>().patch(name, &parameters, &patch).await.map(drop)
        };
        scaled.map_err(Error::request("scale", "the workload"))
    }

    /// Its pairs, as the group reports them.
    ///
    /// # Errors
    /// `Request`.
    pub async fn pairs(&self) -> Result<Vec<PairStatus>, Error> {
        let group = self.api::<HAGroup>().get(self.blueprint.name).await;
        let group = group.map_err(Error::request("read", "the group"))?;
        Ok(group.status.unwrap_or_default().pairs)
    }

    /// Waits until its Pods, those that are ending included, are as `is_right` wants them. Watches them: to list them again
    /// and again would take processor time from those who bring them about, the more of it the larger a Pod is.
    ///
    /// # Errors
    /// `Find` if that takes too long.
    pub async fn pods_are(&self, what: &str, is_right: impl Fn(&[Arc<Pod>]) -> bool) -> Result<(), Error> {
        let (pods, writer) = store();
        let events = watcher::watcher(self.api::<Pod>(), watcher::Config::default().labels(&self.selector()));
        let events = events.default_backoff().reflect(writer);
        let right = events.try_filter(|event| {
            let is_whole = matches!(event, Event::InitDone | Event::Apply(_) | Event::Delete(_));
            ready(is_whole && is_right(&pods.state()))
        });
        // What fails is asked for again by the watcher.
        let mut right = pin!(right.filter_map(async |event| event.ok()));
        let seen = timeout(WITHIN, right.next()).await.ok().flatten();
        seen.map(drop).ok_or_else(|| Error::Find { what: what.to_owned() })
    }

    /// Starts a client on a node that is not the one where it serves.
    ///
    /// # Errors
    /// See [`visit`].
    pub async fn visit(&self, bench: &Bench, serving: &Serving) -> Result<Visit, Error> {
        self.visit_with(bench, serving, Habit::Fresh).await
    }

    /// Starts a client of this habit on a node that is not the one where it serves.
    ///
    /// # Errors
    /// See [`visit`].
    pub async fn visit_with(&self, bench: &Bench, serving: &Serving, habit: Habit) -> Result<Visit, Error> {
        let (node, target) = self.visited(bench, serving).await?;
        visit(bench, &node, (habit, target)).await
    }

    /// Sees to it that no client meets connections of earlier ones, none of which may still run.
    ///
    /// # Errors
    /// See [`forget`].
    pub async fn forget_visits(&self, bench: &Bench, serving: &Serving) -> Result<(), Error> {
        let (node, target) = self.visited(bench, serving).await?;
        forget(bench, &node, target)
    }

    /// From which node a client comes, and where it goes.
    ///
    /// # Errors
    /// `Request`, or `Find` without a Service with an address.
    pub async fn visited(&self, bench: &Bench, serving: &Serving) -> Result<(String, SocketAddr), Error> {
        let service = self.api::<Service>().get(self.blueprint.name).await;
        let service = service.map_err(Error::request("read", "the Service"))?;
        let address = service.spec.and_then(|spec| spec.cluster_ip?.parse::<IpAddr>().ok());
        let address = address.ok_or_else(|| Error::Find { what: "the Service's address".to_owned() })?;
        let nodes = bench.cluster.nodes().map_err(|error| Error::FindCluster(Box::new(error)))?;
        let other = nodes.into_iter().map(|node| node.name).find(|name| *name != serving.node);
        let node = self.blueprint.lookout.clone().or(other);
        let node = node.ok_or_else(|| Error::Find { what: "another node".to_owned() })?;
        Ok((node, SocketAddr::new(address, 80)))
    }

    /// Takes everything away.
    ///
    /// # Errors
    /// `Request`, or `Find` if something stays.
    pub async fn remove(&self) -> Result<(), Error> {
        self.delete::<Deployment>().await?;
        self.delete::<StatefulSet>().await?;
        self.delete::<HAGroup>().await?;
        self.delete::<Service>().await?;
        self.until("an empty namespace", async || {
            let is_empty = self.pods().await?.is_empty() && self.shown().await?.pods.is_empty();
            Ok(is_empty.then_some(()))
        })
        .await
    }

    async fn delete<K>(&self) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        match self.api::<K>().delete(self.blueprint.name, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => deleted.map(drop).map_err(Error::request("delete", "an object of the site")),
        }
    }

    /// Its Pods, those that are ending included.
    ///
    /// # Errors
    /// `Request`.
    pub async fn pods(&self) -> Result<Vec<Pod>, Error> {
        let parameters = ListParams::default().labels(&self.selector());
        let pods = self.api::<Pod>().list(&parameters).await.map_err(Error::request("list", "the Pods"))?;
        Ok(pods.items)
    }

    /// Which Pods are its own.
    fn selector(&self) -> String {
        format!("app={}", self.blueprint.name)
    }

    async fn shown(&self) -> Result<Shown, Error> {
        let labels = format!("{}={}", keys::LABEL_SERVICE_NAME, self.blueprint.name);
        let parameters = ListParams::default().labels(&labels);
        let slices = self.api::<EndpointSlice>().list(&parameters).await;
        let slices = slices.map_err(Error::request("list", "the addresses"))?;
        let epochs =
            slices.items.iter().filter_map(|slice| slice.annotations().get(keys::ANNOTATION_HA_EPOCH));
        let epochs = epochs.cloned().collect();
        let endpoints = slices.items.into_iter().flat_map(|slice| slice.endpoints);
        let ready = endpoints.filter(|endpoint| {
            endpoint.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true))
        });
        Ok(Shown { pods: ready.filter_map(|endpoint| endpoint.target_ref?.uid).collect(), epochs })
    }

    async fn is_paired(&self) -> Result<bool, Error> {
        let pairs = self.pairs().await?;
        Ok(pairs.len() == self.blueprint.replicas / 2 && pairs.iter().all(|pair| pair.state == "Paired"))
    }

    async fn apply<K>(&self, object: &Value) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let parameters = PatchParams::apply("bench").force();
        let applied = self.api::<K>().patch(self.blueprint.name, &parameters, &Patch::Apply(object)).await;
        applied.map(drop).map_err(Error::request("apply", "an object of the site"))
    }

    /// Looks until something is found; an API server that is away for a while is asked again.
    ///
    /// # Errors
    /// `Find` with `what` if it never is, or why it could not be looked for.
    pub async fn until<T>(
        &self,
        what: &str,
        look: impl AsyncFn() -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let deadline = Instant::now() + WITHIN;
        loop {
            let seen = look().await;
            if let Ok(Some(found)) = seen {
                return Ok(found);
            }
            if Instant::now() >= deadline {
                seen?;
                return Err(Error::Find { what: what.to_owned() });
            }
            sleep(LOOK_EVERY).await;
        }
    }
}
