//! The connection to a cluster, and everything that is read of a group or a set.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bps_api::{BackupPodSet, HAGroup, keys};
use bps_observe::group::GroupObjects;
use bps_observe::is_controlled_by;
use bps_observe::slim::{SlimNode, SlimPod};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Config, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Error;
use super::arguments::Target;
use super::proxy::{ProxyEnvironment, without_proxy};

/// Time to open a connection. 5 s: a dead address shall be noticed before a person looks for the fault elsewhere.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for an answer. 30 s: half of the API server's own limit.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// What is said to a person who may view and no more.
pub const NO_LEASES: &str = "you may not read Leases, which tell who acts in pairs: ask for a binding to the ClusterRole \
    backuppodsets-pair-viewer (its name ends with the release's namespace if the chart has watchNamespaces)";

/// A cluster, and the namespace in it that is meant.
pub struct Cluster {
    /// Client of its API server.
    pub client: Client,
    /// The namespace.
    pub namespace: String,
}

/// A group or a set.
pub enum Subject {
    /// A group.
    Group(Box<HAGroup>),
    /// A set.
    Set(Box<BackupPodSet>),
}

/// Everything that the plan of a set is made from.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetObjects {
    /// Pods of all sets that may be read, its own among them.
    pub pods: Vec<SlimPod>,
    /// Services of its namespace.
    pub services: Vec<Service>,
    /// EndpointSlices of its namespace.
    pub slices: Vec<EndpointSlice>,
    /// Groups that sets of its namespace keep.
    pub groups: Vec<HAGroup>,
    /// PodDisruptionBudgets of its namespace; `None` if they may not be read.
    pub budgets: Option<Vec<PodDisruptionBudget>>,
    /// The nodes; `None` if they may not be read.
    pub nodes: Option<Vec<SlimNode>>,
    /// Whether the Pods of other namespaces are among them.
    pub is_cluster_wide: bool,
}

/// Pods of sets that were listed.
pub(super) struct SetPods {
    /// The Pods.
    pub(super) pods: Vec<SlimPod>,
    /// Whether those of all namespaces are among them.
    pub(super) is_cluster_wide: bool,
}

impl Cluster {
    /// Connects as kubectl would.
    ///
    /// # Errors
    /// `Configure` if there is no usable kubeconfig, `Proxy` if the API server is behind a proxy.
    pub async fn connect(target: &Target) -> Result<Self, Error> {
        let Target { namespace, context, kubeconfig } = target;
        let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
        let mut config = match kubeconfig {
            Some(path) => {
                let read = Kubeconfig::read_from(path).map_err(configure)?;
                Config::from_custom_kubeconfig(read, &options).await.map_err(configure)?
            }
            None if context.is_some() => Config::from_kubeconfig(&options).await.map_err(configure)?,
            // In a Pod there is no kubeconfig.
            None => Config::infer().await.map_err(configure)?,
        };
        config = without_proxy(config, &ProxyEnvironment::read())?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = Some(READ_TIMEOUT);
        let namespace = namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        Ok(Self { client: Client::try_from(config).map_err(configure)?, namespace })
    }

    /// Objects of a kind in the namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The group of this name.
    ///
    /// # Errors
    /// `Refused` if there is none.
    pub async fn group(&self, name: &str) -> Result<HAGroup, Error> {
        let name =
            ["hag/", "hagroup/", "hagroups/"].iter().find_map(|kind| name.strip_prefix(kind)).unwrap_or(name);
        self.found(name).await?.ok_or_else(|| self.unknown(keys::GROUP_KIND, name))
    }

    /// What a name means: `hag/NAME`, `bps/NAME`, or a name that only one kind has.
    ///
    /// # Errors
    /// `Usage` if both kinds have it and the group is not the set's own, `Refused` if none does.
    pub async fn subject(&self, text: &str) -> Result<Subject, Error> {
        let Some((kind, name)) = text.split_once('/') else {
            return match (self.found::<HAGroup>(text).await?, self.found::<BackupPodSet>(text).await?) {
                (Some(group), None) => Ok(Subject::Group(Box::new(group))),
                (None, Some(set)) => Ok(Subject::Set(Box::new(set))),
                // The group of a set's own pairs is a part of it.
                (Some(group), Some(set)) if is_controlled_by(&group.metadata, &set) => {
                    Ok(Subject::Set(Box::new(set)))
                }
                (None, None) => Err(self.unknown("HAGroup and no BackupPodSet", text)),
                (Some(_), Some(_)) => Err(Error::Usage(format!(
                    "two objects are called {text:?}: write hag/{text} or bps/{text}"
                ))),
            };
        };
        match kind {
            "hag" | "hagroup" | "hagroups" => Ok(Subject::Group(Box::new(self.group(name).await?))),
            "bps" | "backuppodset" | "backuppodsets" => {
                let set = self.found(name).await?.ok_or_else(|| self.unknown(keys::KIND, name))?;
                Ok(Subject::Set(Box::new(set)))
            }
            other => Err(Error::Usage(format!("no kind {other:?}: write hag/{name} or bps/{name}"))),
        }
    }

    fn unknown(&self, kind: &str, name: &str) -> Error {
        let namespace = &self.namespace;
        Error::Refused(format!(
            "no {kind} is called {name:?} in namespace {namespace:?}; `kubectl bps status -A` shows all there are"
        ))
    }

    /// The object of this name; `None` also if the cluster does not know the kind.
    async fn found<K>(&self, name: &str) -> Result<Option<K>, Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let what = format!("read {} {}/{name}", K::kind(&()), self.namespace);
        self.api::<K>().get_opt(name).await.map_err(Error::request(what))
    }

    /// Objects of a kind in a namespace, or in all with `None`.
    pub(super) async fn list<K>(&self, namespace: Option<&str>, labels: &str) -> Result<Vec<K>, Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let api: Api<K> = match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        match api.list(&ListParams::default().labels(labels)).await {
            Ok(list) => Ok(list.items),
            Err(kube::Error::Api(status)) if status.code == 404 => Err(Error::Refused(format!(
                "this cluster does not know {}: install the operator, or choose another cluster by --context",
                K::plural(&())
            ))),
            Err(kube::Error::Api(status)) if status.code == 403 && K::kind(&()) == Lease::kind(&()) => {
                Err(Error::Refused(NO_LEASES.to_owned()))
            }
            Err(error) => Err(Error::request(format!("list {}", K::plural(&())))(error)),
        }
    }

    /// All nodes.
    ///
    /// # Errors
    /// `Request` if they may not be read.
    pub(super) async fn nodes(&self) -> Result<Vec<SlimNode>, Error> {
        let nodes = Api::<SlimNode>::all(self.client.clone()).list(&ListParams::default()).await;
        nodes.map(|list| list.items).map_err(Error::request("list nodes".to_owned()))
    }

    /// The objects of a group.
    ///
    /// # Errors
    /// `Request` if one of them may not be read, `Refused` with [`NO_LEASES`] if those are the Leases.
    pub async fn group_objects(&self, group: &HAGroup) -> Result<GroupObjects, Error> {
        let namespace = group.namespace().unwrap_or_default();
        let (namespace, label) =
            (Some(namespace.as_str()), format!("{}={}", keys::LABEL_GROUP, group.name_any()));
        Ok(GroupObjects {
            pods: shared(self.list(namespace, &label).await?),
            leases: shared(self.list(namespace, &label).await?),
            services: Vec::new(),
            slices: shared(self.list(namespace, &label).await?),
            ..GroupObjects::default()
        })
    }

    /// Everything that the plan of a set is made from, as far as it may be read.
    ///
    /// # Errors
    /// `Request` if the Pods, Services or EndpointSlices of its namespace may not be read.
    pub async fn set_objects(&self, set: &BackupPodSet) -> Result<SetObjects, Error> {
        let nodes = self.nodes().await.ok();
        // The storm brake counts the Pods of all sets.
        let pods = match self.list(None, keys::LABEL_SET).await {
            Ok(pods) => SetPods { pods, is_cluster_wide: true },
            Err(_) => self.namespace_pods(set).await?,
        };
        self.set_objects_with(set, pods, nodes).await
    }

    /// Lists the Pods of all sets in the namespace of one.
    ///
    /// # Errors
    /// `Request` if they may not be read.
    pub(super) async fn namespace_pods(&self, set: &BackupPodSet) -> Result<SetPods, Error> {
        let pods = self.list(set.namespace().as_deref(), keys::LABEL_SET).await?;
        Ok(SetPods { pods, is_cluster_wide: false })
    }

    /// The same as [`Self::set_objects`], with Pods and nodes that were listed before.
    ///
    /// # Errors
    /// `Request` if the Services or EndpointSlices of its namespace may not be read.
    pub(super) async fn set_objects_with(
        &self,
        set: &BackupPodSet,
        SetPods { pods, is_cluster_wide }: SetPods,
        nodes: Option<Vec<SlimNode>>,
    ) -> Result<SetObjects, Error> {
        let namespace = set.namespace();
        let namespace = namespace.as_deref();
        Ok(SetObjects {
            pods,
            services: self.list(namespace, keys::LABEL_SET).await?,
            slices: self.list(namespace, keys::LABEL_SET).await?,
            groups: self.list(namespace, keys::LABEL_SET).await?,
            budgets: self.list(namespace, "").await.ok(),
            nodes,
            is_cluster_wide,
        })
    }
}

fn configure(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Configure(Box::new(error))
}

fn shared<K>(objects: Vec<K>) -> Vec<Arc<K>> {
    objects.into_iter().map(Arc::new).collect()
}
