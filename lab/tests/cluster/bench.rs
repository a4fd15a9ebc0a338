//! What all claims share: the cluster with CRD, permissions and images, and the operators that run on this machine.

use std::fmt::Debug;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bps_api::{BackupPodSet, HAGroup, keys};
use bps_wire::lease::Record;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, LogParams, PostParams};
use kube::config::{AuthInfo, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt as _};
use lab::binaries::{self, Component};
use lab::cluster::Cluster;
use lab::image::{self, ImageSpec, Profile};
use lab::paths;
use lab::progress::Progress;
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, MutexGuard};

use crate::ledger::{Ledger, Mark};
use crate::operator::Operator;
use crate::wait;

/// The checkout.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// How long the operator's token is good for: longer than all claims together.
const TOKEN_SECONDS: i64 = 4 * 3600;

/// Lines of a container's log that are shown after a failure.
const TAIL_LINES: i64 = 30;
/// How much of a line is shown after a failure: some repeat an answer of the API server three times.
const LINE_CHARACTERS_MAX: usize = 400;

/// Labels that say which part a Pod has.
const SCENE_LABELS: [&str; 4] =
    [keys::LABEL_PAIR_STATE, keys::LABEL_PAIR_PEER, keys::LABEL_HA_STATE, keys::LABEL_PEER];

/// A cluster that is ready for claims.
pub(crate) struct Bench {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    /// The stand-in application, which is also the client that counts failures.
    pub(crate) app: PathBuf,
    kubectl: PathBuf,
    operator: PathBuf,
    operator_kubeconfig: PathBuf,
    operators: Mutex<Vec<Operator>>,
    /// What the operators complained of.
    ledger: Mutex<Ledger>,
    /// Held by who looks whether one operator leads: two that look at the same time would both start one.
    looks: Mutex<()>,
    /// Held by who puts the cluster right before a claim.
    beginnings: Mutex<()>,
}

impl Bench {
    pub(crate) async fn new(cluster: Cluster, built: image::Binaries) -> Self {
        let client = cluster.client().await.unwrap();
        for spec in &image::project_images(&built) {
            load_image(&cluster, spec);
        }
        let programs = binaries::ensure(&[Component::Kubectl], Progress::Silent).unwrap();
        let bench = Self {
            operator_kubeconfig: cluster.run_directory().path().join("operator.kubeconfig"),
            kubectl: programs.find(Component::Kubectl).unwrap().to_owned(),
            app: built.app,
            operator: built.operator,
            operators: Mutex::default(),
            ledger: Mutex::default(),
            looks: Mutex::default(),
            beginnings: Mutex::default(),
            cluster,
            client,
        };
        bench.install().await;
        bench
    }

    /// Brings an image to every node.
    pub(crate) fn load_image(&self, spec: &ImageSpec) {
        load_image(&self.cluster, spec);
    }

    /// Everything of `deploy/base` but what runs: the operator runs here.
    async fn install(&self) {
        self.kubectl(&["apply", "--server-side", "-k", &format!("{ROOT}/crds")]);
        for file in ["namespace", "rbac", "admission", "user-roles", "flowcontrol"] {
            self.kubectl(&["apply", "-f", &format!("{ROOT}/deploy/base/{file}.yaml")]);
        }
        self.kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=30s",
            "crd/backuppodsets.backup.example.com",
            "crd/hagroups.backup.example.com",
        ]);
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), keys::OPERATOR_NAMESPACE);
        let spec =
            TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let granted =
            accounts.create_token_request(keys::OPERATOR, &PostParams::default(), &request).await.unwrap();
        let config = self.config_with(&granted.status.clone().unwrap().token);
        // The token is a secret type that serializes as itself.
        let text = serde_json::to_string(&config).unwrap();
        std::fs::File::create(&self.operator_kubeconfig).unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Takes the operator's namespace away with all that is in it, as an uninstall does that keeps CRDs and sets, and installs anew.
    pub(crate) async fn reinstall(&self) {
        self.stop_operators().await;
        self.kubectl(&["delete", "namespace", keys::OPERATOR_NAMESPACE, "--wait=true", "--timeout=60s"]);
        self.install().await;
        self.one_operator().await;
    }

    /// The cluster's configuration, but with this token instead of the administrator's certificate.
    pub(crate) fn config_with(&self, token: &str) -> Kubeconfig {
        let mut config = Kubeconfig::read_from(self.cluster.kubeconfig_path()).unwrap();
        for user in &mut config.auth_infos {
            let token = Some(token.to_owned().into());
            user.auth_info = Some(AuthInfo { token, ..AuthInfo::default() });
        }
        config
    }

    /// Runs kubectl as the administrator; panics with what it said if it does not succeed.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments).unwrap_or_else(|said| panic!("kubectl {arguments:?}: {said}"))
    }

    /// The same; returns what it said if it does not succeed.
    pub(crate) fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(&self.kubectl)
            .args(arguments)
            .env("KUBECONFIG", self.cluster.kubeconfig_path())
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// The operators that run, the first started first.
    pub(crate) async fn operators(&self) -> MutexGuard<'_, Vec<Operator>> {
        self.operators.lock().await
    }

    /// Starts one more operator with the rights of its ServiceAccount.
    pub(crate) async fn start_operator(&self) -> String {
        let mut operators = self.operators.lock().await;
        let operator = Operator::start(&self.operator, &self.operator_kubeconfig, &self.cluster);
        let name = operator.name().to_owned();
        operators.push(operator);
        name
    }

    /// Sees to it that exactly one operator runs and leads.
    pub(crate) async fn one_operator(&self) {
        let _look = self.looks.lock().await;
        self.listen().await;
        let is_alone = {
            let mut operators = self.operators.lock().await;
            operators.retain_mut(Operator::is_running);
            operators.len() == 1
        };
        if !is_alone {
            self.stop_operators().await;
            // Nobody runs, so nobody is robbed: without this the next one waits for the lease to expire.
            let leases: Api<Lease> = Api::namespaced(self.client.clone(), keys::OPERATOR_NAMESPACE);
            let _ = leases.delete(keys::LEASE_LEADER, &DeleteParams::default()).await;
            self.start_operator().await;
        }
        let first = self.operators.lock().await[0].name().to_owned();
        self.await_leader(&first).await;
    }

    /// Waits until the operator of this name holds the lease.
    pub(crate) async fn await_leader(&self, name: &str) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), keys::OPERATOR_NAMESPACE);
        wait::until(leases, "", |leases| {
            let holder = |lease: &&Lease| lease.spec.as_ref()?.holder_identity.clone();
            let holders: Vec<String> = leases.iter().filter_map(|lease| holder(&lease)).collect();
            let leads = holders.iter().any(|holder| holder.starts_with(&format!("{name}_")));
            if leads { Ok(()) } else { Err(format!("{name} does not lead: {holders:?}")) }
        })
        .await;
    }

    /// Ends all operators, once what they have said is known.
    pub(crate) async fn stop_operators(&self) {
        self.listen().await;
        self.operators.lock().await.clear();
    }

    /// A claim begins in this namespace, and is not to blame for what was said before.
    pub(crate) async fn begin(&self, namespace: &str) -> Mark {
        {
            let _only_one = self.beginnings.lock().await;
            for part in self.cluster.revive().expect("a control plane") {
                println!("{part} had ended, and was started again");
            }
            // An outage of one claim is not to be felt in the next one.
            self.cluster.refresh_proxies().expect("nodes with kube-proxy");
        }
        self.listen().await;
        self.ledger.lock().await.begin(namespace)
    }

    /// The claim in this namespace has ended.
    pub(crate) async fn end(&self, namespace: &str) {
        self.ledger.lock().await.end(namespace);
    }

    /// What the operators have said since then that they must never say, and that the claim in this namespace is to blame for.
    pub(crate) async fn complaints(&self, namespace: &str, mark: &mut Mark) -> Vec<String> {
        self.listen().await;
        self.ledger.lock().await.blamed_on(namespace, mark)
    }

    /// The same that no claim was blamed for.
    pub(crate) async fn unblamed(&self) -> Vec<String> {
        self.listen().await;
        self.ledger.lock().await.unblamed().map(str::to_owned).collect()
    }

    /// Enters what is new in the logs of the operators into the ledger.
    async fn listen(&self) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), keys::OPERATOR_NAMESPACE);
        let keys = secrets.get_opt(keys::SECRET_WAKE_KEYS).await.ok().flatten();
        let data = keys.and_then(|secret| secret.data).unwrap_or_default();
        let texts = data.into_values().map(|value| String::from_utf8_lossy(&value.0).into_owned());
        // Short values are numbers and times, which may well stand in a log.
        let secret: Vec<String> = texts.filter(|text| text.len() >= 32).collect();
        let mut operators = self.operators.lock().await;
        let found = operators.iter_mut().flat_map(|operator| operator.complaints(&secret));
        self.ledger.lock().await.enter(found);
    }

    /// Who has which part in this namespace, a line for each Pod, Lease and group: so short that the end of a run can say it again.
    pub(crate) async fn scene(&self, namespace: &str) -> Vec<String> {
        let of_pod = |pod: &Pod| {
            let labels: Vec<String> = SCENE_LABELS
                .iter()
                .filter_map(|key| Some(format!("{key}={}", pod.labels().get(*key)?)))
                .collect();
            format!("{} {}", wait::describe(pod), labels.join(" "))
        };
        let of_lease = |lease: &Lease| match Record::read(lease) {
            Ok(record) => format!("Lease {} {:?} {:?}", lease.name_any(), record.lease, record.level),
            Err(error) => format!("Lease {}: {error}", lease.name_any()),
        };
        let of_group = |group: &HAGroup| format!("group {} {:?}", group.name_any(), group.status);
        let pods = self.listed(namespace).await;
        let leases = self.listed(namespace).await;
        let groups = self.listed(namespace).await;
        let lines = pods.iter().map(of_pod).chain(leases.iter().map(of_lease));
        lines.chain(groups.iter().map(of_group)).map(|line| shortened(&line)).collect()
    }

    /// Lists the objects of one kind in a namespace; none if the API server does not answer.
    async fn listed<K>(&self, namespace: &str) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default()
    }

    /// What a person would look at first after a failure in this namespace.
    pub(crate) async fn diagnosis(&self, namespace: &str) -> String {
        let mut lines = Vec::new();
        for set in self.listed::<BackupPodSet>(namespace).await {
            let status = set.status.unwrap_or_default();
            let trouble: Vec<_> =
                status.conditions.iter().map(|one| format!("{}: {}", one.reason, one.message)).collect();
            lines.push(format!("{:?} {} {trouble:?}", set.metadata.name, status.state));
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        for pod in self.listed::<Pod>(namespace).await {
            lines.push(wait::describe(&pod));
            lines.extend(tails(&pods, &pod).await);
        }
        lines.extend(self.operators.lock().await.iter().map(|operator| operator.tail(namespace)));
        let lines = lines.iter().flat_map(|text| text.lines());
        lines.map(shortened).collect::<Vec<String>>().join("\n")
    }
}

fn shortened(line: &str) -> String {
    line.chars().take(LINE_CHARACTERS_MAX).collect()
}

/// The last lines of each container of a Pod that says anything.
async fn tails(pods: &Api<Pod>, pod: &Pod) -> Vec<String> {
    let mut tails = Vec::new();
    for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
        let (container, tail_lines) = (Some(container.name.clone()), Some(TAIL_LINES));
        let parameters = LogParams { container, tail_lines, ..LogParams::default() };
        let text = pods.logs(&pod.name_any(), &parameters).await.unwrap_or_else(|error| error.to_string());
        tails.push(text);
    }
    tails
}

/// What goes into the images: what the suite compiled, else built here, which takes minutes after a change.
pub(crate) fn build() -> Result<image::Binaries, image::Error> {
    match image::prebuilt()? {
        Some(binaries) => Ok(binaries),
        None => image::build_static(Path::new(ROOT), &paths::cache(), Profile::Quick),
    }
}

fn load_image(cluster: &Cluster, spec: &ImageSpec) {
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("image.tar");
    image::write_archive(spec, &archive).unwrap();
    cluster.load(&archive).unwrap();
}
