//! A pair of active and standby behind a Service, and a plain Deployment of two to compare it with.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use backuppodset::api::{HAGroup, keys};
use backuppodset::manifests::{Injection, inject};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::bench::Error;
use crate::bench::client::{Visit, visit};
use crate::bench::rounds::Bench;
use crate::faults::Target;
use crate::image::{AGENT_IMAGE, APP_IMAGE};

use super::faults::Fault;

/// Name of the workload, the group and the Service.
pub const NAME: &str = "pair";
/// Port of the application.
const PORT: u16 = 8080;
/// How long the site may take to be as it should. A node that lost power needs a minute.
const WITHIN: Duration = Duration::from_secs(180);
/// Pause between two looks at the site.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is measured.
#[derive(Clone)]
pub struct Site {
    client: Client,
    namespace: String,
    is_pair: bool,
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
}

impl Site {
    /// Two Pods of a StatefulSet as a pair.
    ///
    /// # Errors
    /// `Request`, or `Find` if they do not get ready.
    pub async fn pair(client: &Client, namespace: &str) -> Result<Self, Error> {
        let site = Self { client: client.clone(), namespace: namespace.to_owned(), is_pair: true };
        site.apply::<HAGroup>(&json!({
            "apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup", "metadata": {"name": NAME},
            "spec": {"service": {"name": NAME, "ports": [{"port": 80, "targetPort": PORT}]}},
        }))
        .await?;
        let injection = Injection {
            group: NAME.to_owned(),
            image: AGENT_IMAGE.to_owned(),
            container: None,
            arguments: Vec::new(),
        };
        let template =
            inject(&template(), &injection).map_err(|error| Error::Find { what: error.to_string() })?;
        let mut set = workload("StatefulSet", &template);
        set["spec"]["serviceName"] = json!(NAME);
        set["spec"]["podManagementPolicy"] = json!("Parallel");
        site.apply::<StatefulSet>(&set).await?;
        site.settled().await?;
        Ok(site)
    }

    /// Two Pods of a Deployment behind a Service with a selector, both serving.
    ///
    /// # Errors
    /// As [`Site::pair`].
    pub async fn deployment(client: &Client, namespace: &str) -> Result<Self, Error> {
        let site = Self { client: client.clone(), namespace: namespace.to_owned(), is_pair: false };
        site.apply::<Service>(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME},
            "spec": {"selector": {"app": NAME}, "ports": [{"port": 80, "targetPort": PORT}]},
        }))
        .await?;
        let mut template = template();
        template["spec"]["containers"][0]["readinessProbe"] =
            json!({"httpGet": {"path": "/healthz", "port": PORT}, "periodSeconds": 1});
        site.apply::<Deployment>(&workload("Deployment", &template)).await?;
        site.settled().await?;
        Ok(site)
    }

    /// The processes of one of its Pods as a target.
    pub fn aim(&self, pod: &str) -> Target {
        Target { namespace: self.namespace.clone(), pod: pod.to_owned(), container: None }
    }

    /// Whether it is a pair of active and standby.
    pub const fn is_pair(&self) -> bool {
        self.is_pair
    }

    /// For the table.
    pub const fn title(&self) -> &'static str {
        if self.is_pair { "pair" } else { "Deployment of 2" }
    }

    /// What a client should see of a fault.
    pub const fn target(&self, fault: Fault) -> &'static str {
        if self.is_pair { fault.target() } else { "-" }
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
        self.until("a settled site", async || {
            let pods = self.pods().await?;
            let is_ready = |pod: &&Pod| {
                let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
                let mut conditions = conditions.into_iter().flatten();
                pod.metadata.deletion_timestamp.is_none()
                    && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
            };
            let ready: Vec<&Pod> = pods.iter().filter(is_ready).collect();
            let shown = self.shown().await?;
            let is_paired = !self.is_pair || self.is_paired().await?;
            let expected = if self.is_pair { 1 } else { 2 };
            if pods.len() != 2 || ready.len() != 2 || shown.len() != expected || !is_paired {
                return Ok(None);
            }
            let serving = ready.into_iter().find(|pod| pod.uid().is_some_and(|uid| shown.contains(&uid)));
            Ok(serving.and_then(|pod| {
                let node = pod.spec.as_ref()?.node_name.clone()?;
                Some(Serving { pod: pod.name_any(), uid: pod.uid()?, node })
            }))
        })
        .await
    }

    /// Waits until others serve than this Pod.
    ///
    /// # Errors
    /// As [`Site::settled`].
    pub async fn recovered(&self, before: &Serving) -> Result<(), Error> {
        if !self.is_pair {
            // The same container starts again, or another Pod comes: both Pods serve once more.
            sleep(Duration::from_secs(1)).await;
            return self.settled().await.map(drop);
        }
        self.until("another active", async || {
            let shown = self.shown().await?;
            Ok((!shown.is_empty() && !shown.contains(&before.uid)).then_some(()))
        })
        .await
    }

    /// Starts a client on a node that is not the one where it serves.
    ///
    /// # Errors
    /// See [`visit`].
    pub async fn visit(&self, bench: &Bench, serving: &Serving) -> Result<Visit, Error> {
        let service = self.api::<Service>().get(NAME).await.map_err(Error::request("read", "the Service"))?;
        let address = service.spec.and_then(|spec| spec.cluster_ip?.parse::<IpAddr>().ok());
        let address = address.ok_or_else(|| Error::Find { what: "the Service's address".to_owned() })?;
        let nodes = bench.cluster.nodes().map_err(|error| Error::FindCluster(Box::new(error)))?;
        let node = nodes.into_iter().map(|node| node.name).find(|name| *name != serving.node);
        let node = node.ok_or_else(|| Error::Find { what: "another node".to_owned() })?;
        visit(bench, &node, SocketAddr::new(address, 80)).await
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
            let is_empty = self.pods().await?.is_empty() && self.shown().await?.is_empty();
            Ok(is_empty.then_some(()))
        })
        .await
    }

    async fn delete<K>(&self) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        match self.api::<K>().delete(NAME, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => deleted.map(drop).map_err(Error::request("delete", "an object of the site")),
        }
    }

    async fn pods(&self) -> Result<Vec<Pod>, Error> {
        let parameters = ListParams::default().labels(&format!("app={NAME}"));
        let pods = self.api::<Pod>().list(&parameters).await.map_err(Error::request("list", "the Pods"))?;
        Ok(pods.items)
    }

    /// Uids of the Pods that the Service leads to.
    async fn shown(&self) -> Result<BTreeSet<String>, Error> {
        let parameters = ListParams::default().labels(&format!("{}={NAME}", keys::LABEL_SERVICE_NAME));
        let slices = self.api::<EndpointSlice>().list(&parameters).await;
        let slices = slices.map_err(Error::request("list", "the addresses"))?;
        let endpoints = slices.items.into_iter().flat_map(|slice| slice.endpoints);
        let ready = endpoints.filter(|endpoint| {
            endpoint.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true))
        });
        Ok(ready.filter_map(|endpoint| endpoint.target_ref?.uid).collect())
    }

    async fn is_paired(&self) -> Result<bool, Error> {
        let group = self.api::<HAGroup>().get(NAME).await.map_err(Error::request("read", "the group"))?;
        let pairs = group.status.unwrap_or_default().pairs;
        Ok(pairs.len() == 1 && pairs[0].state == "Paired")
    }

    async fn apply<K>(&self, object: &Value) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let parameters = PatchParams::apply("bench").force();
        let applied = self.api::<K>().patch(NAME, &parameters, &Patch::Apply(object)).await;
        applied.map(drop).map_err(Error::request("apply", "an object of the site"))
    }

    /// Looks until something is found; an API server that is away for a while is asked again.
    async fn until<T>(
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

/// Name of the Lease of the pair.
pub fn lease_name() -> String {
    format!("{NAME}-0")
}

/// The application, which ends at once when it is asked to.
fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": NAME}},
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": NAME}},
            }],
            "containers": [{
                "name": "app", "image": APP_IMAGE, "imagePullPolicy": "IfNotPresent",
                "command": ["/lab-app"], "args": ["--port", PORT.to_string()],
                "ports": [{"containerPort": PORT}],
            }],
        },
    })
}

fn workload(kind: &str, template: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": NAME},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": NAME}}, "template": template},
    })
}
