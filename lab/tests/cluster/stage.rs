//! A namespace for one claim, with what claims do to sets and read from Pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bps_api::{BackupPodSet, ConditionStatus, keys};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::KubeConfigOptions;
use kube::{Client, Config, ResourceExt as _};
use lab::faults::Target;
use lab::image::APP_IMAGE;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::bench::Bench;
use crate::lanes::Lane;
use crate::ledger::Mark;
use crate::wait::{self, is_available, role, stays};

/// Name of the set in most claims, and of its Service.
pub(crate) const WEB: &str = "web";
/// Port of the stand-in application.
pub(crate) const PORT: u16 = 8080;

/// Label of Pods that a claim drains from a node; its value is the claim's namespace.
const DRAINED: &str = "drained-by";

/// Primaries, hot and cold backups.
pub(crate) type Counts = [usize; 3];

/// Roles in the order of [`Counts`].
pub(crate) const ROLES: [&str; 3] = ["primary", "hot", "cold"];

/// One claim's place.
pub(crate) struct Stage {
    pub(crate) bench: Arc<Bench>,
    pub(crate) namespace: String,
    lane: Lane,
    /// Up to where the claim knows what the operators complained of.
    ear: Arc<Mutex<Mark>>,
}

impl Stage {
    pub(crate) async fn new(bench: &Arc<Bench>, lane: Lane, namespace: &str, ear: Arc<Mutex<Mark>>) -> Self {
        let api: Api<Namespace> = Api::all(bench.client.clone());
        let wanted = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        api.patch(namespace, &params(), &Patch::Apply(wanted)).await.unwrap();
        let stage = Self { bench: Arc::clone(bench), namespace: namespace.to_owned(), lane, ear };
        let accounts: Api<ServiceAccount> = stage.api();
        wait::until(
            accounts,
            "",
            |all| if all.is_empty() { Err("no ServiceAccount".into()) } else { Ok(()) },
        )
        .await;
        stage
    }

    /// Asserts that the claim's lane lets it start so many Pods at once.
    pub(crate) fn starts(&self, pods: usize) {
        let most = self.lane.pods_max();
        assert!(pods <= most, "{pods} Pods at once, and at most {most} in this lane: write `machine(...)`");
    }

    pub(crate) fn client(&self) -> Client {
        self.bench.client.clone()
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client(), &self.namespace)
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let all: Vec<&str> = ["-n", &self.namespace].into_iter().chain(arguments.iter().copied()).collect();
        self.bench.kubectl(&all)
    }

    /// Takes a node out of service for the Pods whose template [`Stage::to_be_drained`] has marked, and panics if none of
    /// them was there. The Pods of a claim that has ended go when Kubernetes comes to it, so a label that other claims use
    /// too would drain theirs as well.
    pub(crate) fn drain(&self, node: &str, further: &[&str]) {
        let pods = format!("--pod-selector={DRAINED}={}", self.namespace);
        let arguments = ["drain", node, "--ignore-daemonsets", &pods];
        let told = self.kubectl(&arguments.into_iter().chain(further.iter().copied()).collect::<Vec<_>>());
        assert!(told.contains(" evicted"), "no Pod was evicted from {node}: {told}");
    }

    /// Marks a template of Pods so that [`Stage::drain`] finds them.
    pub(crate) fn to_be_drained(&self, template: &mut Value) {
        template["metadata"]["labels"][DRAINED] = json!(self.namespace);
    }

    pub(crate) async fn apply(&self, set: &Value) {
        let api: Api<BackupPodSet> = self.api();
        api.patch(set["metadata"]["name"].as_str().unwrap(), &params(), &Patch::Apply(set)).await.unwrap();
    }

    /// A merge patch of a set's spec.
    pub(crate) async fn change(&self, spec: Value) {
        let api: Api<BackupPodSet> = self.api();
        api.patch(WEB, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await.unwrap();
    }

    pub(crate) async fn scale(&self, [primaries, hot, cold]: Counts) {
        self.change(json!({"replicas": primaries, "hotBackups": hot, "coldBackups": cold})).await;
    }

    pub(crate) async fn delete(&self, pod: &Pod) {
        let api: Api<Pod> = self.api();
        api.delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the Pods of a set are as wanted and nothing else, all available; returns them.
    pub(crate) async fn pods(&self, set: &str, counts: Counts) -> Vec<Pod> {
        self.pods_where(set, |pods| complete(pods, counts)).await
    }

    /// Waits until the Pods of a set that stay are as `judge` wants them; returns them.
    pub(crate) async fn pods_where(
        &self,
        set: &str,
        mut judge: impl FnMut(&[Pod]) -> Result<(), String>,
    ) -> Vec<Pod> {
        wait::until(self.api(), &format!("{}={set}", keys::LABEL_SET), |pods: &[Pod]| {
            let staying: Vec<Pod> = pods.iter().filter(|pod| stays(pod)).cloned().collect();
            judge(&staying).map(|()| staying)
        })
        .await
    }

    /// Waits until the set reports that it is as wanted and serves; returns its Pods.
    pub(crate) async fn settled(&self, set: &str, counts: Counts) -> Vec<Pod> {
        self.pods(set, counts).await;
        self.reports(set, |set| {
            let status = set.status.clone().unwrap_or_default();
            let summary = &status.summary;
            let shown = [&summary.replicas, &summary.hot_backups, &summary.cold_backups].map(String::as_str);
            let wanted = counts.map(|count| format!("{count}/{count}"));
            let is_current = set.metadata.generation == Some(status.observed_generation);
            let is_right = is_current && status.state == "Ready" && wanted.iter().eq(shown.iter());
            if is_right { Ok(()) } else { Err(format!("status is {status:?}")) }
        })
        .await;
        // What was seen before the operator reported may lack what it did since, such as an adoption.
        self.pods(set, counts).await
    }

    /// Waits until a set is as `judge` wants it.
    pub(crate) async fn reports(
        &self,
        name: &str,
        mut judge: impl FnMut(&BackupPodSet) -> Result<(), String>,
    ) {
        wait::until(self.api(), "", |sets: &[BackupPodSet]| {
            let set = sets.iter().find(|set| set.name_any() == name).ok_or("there is no such set")?;
            judge(set)
        })
        .await;
    }

    /// Waits until a condition of the set holds for this reason; returns its message.
    pub(crate) async fn condition(&self, name: &str, (kind, reason): (&str, &str)) -> String {
        wait::until(self.api(), "", |sets: &[BackupPodSet]| {
            let set = sets.iter().find(|set| set.name_any() == name).ok_or("there is no such set")?;
            let conditions = set.status.clone().unwrap_or_default().conditions;
            let is_it = |one: &&bps_api::Condition| {
                one.r#type == kind && one.status == ConditionStatus::True && one.reason == reason
            };
            let found = conditions.iter().find(is_it).map(|one| one.message.clone());
            found.ok_or_else(|| format!("{conditions:?}"))
        })
        .await
    }

    /// Waits until the Service of the set leads to exactly these Pods.
    pub(crate) async fn exposes(&self, wanted: &BTreeSet<String>) {
        wait::until(self.api(), "kubernetes.io/service-name=web", |slices: &[EndpointSlice]| {
            let found = exposed(slices);
            if found == *wanted { Ok(()) } else { Err(format!("exposed {found:?}, wanted {wanted:?}")) }
        })
        .await;
    }

    /// A client with the token that a Pod of the default ServiceAccount has.
    pub(crate) async fn client_of(&self, pod: &Pod) -> Client {
        let accounts: Api<ServiceAccount> = self.api();
        let bound = BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        };
        let spec = TokenRequestSpec { bound_object_ref: Some(bound), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let granted =
            accounts.create_token_request("default", &PostParams::default(), &request).await.unwrap();
        let config = self.bench.config_with(&granted.status.unwrap().token);
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    /// What the operators complained of since this was asked last; the claim is not blamed for it again.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        self.bench.complaints(&self.namespace, &mut *self.ear.lock().await).await
    }

    pub(crate) fn target(&self, pod: &Pod) -> Target {
        Target { namespace: self.namespace.clone(), pod: pod.name_any(), container: None }
    }
}

fn params() -> PatchParams {
    PatchParams::apply("claims").force()
}

/// Whether the Pods are exactly these, each available.
pub(crate) fn complete(pods: &[Pod], counts: Counts) -> Result<(), String> {
    let of = |wanted: &str| pods.iter().filter(|pod| role(pod) == wanted).count();
    let found = ROLES.map(of);
    let waiting: Vec<String> = pods.iter().filter(|pod| !is_available(pod)).map(wait::describe).collect();
    if found == counts && waiting.is_empty() {
        Ok(())
    } else {
        Err(format!("pods {found:?}, wanted {counts:?}; not available: {waiting:?}"))
    }
}

/// Identities of the Pods that the slices lead to.
pub(crate) fn exposed(slices: &[EndpointSlice]) -> BTreeSet<String> {
    let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
    let is_ready = |endpoint: &&k8s_openapi::api::discovery::v1::Endpoint| {
        endpoint.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true))
    };
    endpoints.filter(is_ready).filter_map(|endpoint| endpoint.target_ref.as_ref()?.uid.clone()).collect()
}

/// Identities of the Pods of a role.
pub(crate) fn uids(pods: &[Pod], wanted: &str) -> BTreeSet<String> {
    pods.iter().filter(|pod| role(pod) == wanted).map(|pod| pod.uid().unwrap()).collect()
}

/// Roles by identity.
pub(crate) fn roles(pods: &[Pod]) -> BTreeMap<String, String> {
    pods.iter().map(|pod| (pod.uid().unwrap(), role(pod).to_owned())).collect()
}

/// The first Pod of a role.
pub(crate) fn one<'p>(pods: &'p [Pod], wanted: &str) -> &'p Pod {
    pods.iter().find(|pod| role(pod) == wanted).expect("a pod of the role")
}

/// Name of the node that a Pod is on.
pub(crate) fn node(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).expect("a bound pod")
}

/// The set `web` of the stand-in application, without a Service.
pub(crate) fn web([primaries, hot, cold]: Counts) -> Value {
    let probe = json!({"httpGet": {"path": "/healthz", "port": PORT}, "periodSeconds": 1});
    let container = json!({
        "name": "web", "image": APP_IMAGE, "ports": [{"name": "http", "containerPort": PORT}], "readinessProbe": probe,
    });
    let pod = json!({"terminationGracePeriodSeconds": 5, "containers": [container]});
    json!({
        "apiVersion": "backup.example.com/v1alpha1",
        "kind": "BackupPodSet",
        "metadata": {"name": WEB},
        "spec": {
            "replicas": primaries, "hotBackups": hot, "coldBackups": cold,
            // A machine that also compiles takes its time to start a container.
            "wakeupTimeout": 60,
            "template": {"metadata": {"labels": {"app": WEB}}, "spec": pod},
        },
    })
}

/// The set `web` with its Service.
pub(crate) fn exposed_web(counts: Counts) -> Value {
    let mut set = web(counts);
    set["spec"]["service"] =
        json!({"name": WEB, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]});
    set
}
