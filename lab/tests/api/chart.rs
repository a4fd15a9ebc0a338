//! The Helm chart renders what the flat file installs, lets operators stand side by side that watch different namespaces,
//! adds a scheduler on request, and refuses what cannot work.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, Patch, PatchParams};
use lab::binaries::{self, Component};
use lab::progress::Progress;
use serde_json::{Value, json};

use crate::rbac::{self, Permission};
use crate::server;

/// Version of Kubernetes that the chart is rendered for; the oldest that it admits.
const KUBERNETES: &str = "1.33.0";

/// Kind, namespace and name of an object.
type Key = (String, String, String);

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// What objects hold besides their metadata, by key. Labels differ: those of Helm name the release.
fn objects(yaml: &str) -> BTreeMap<Key, Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).expect("YAML");
    let field = |document: &Value, path: &str| {
        document.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let keyed = documents.into_iter().filter(Value::is_object).map(|mut document| {
        let [kind, namespace, name] =
            ["/kind", "/metadata/namespace", "/metadata/name"].map(|path| field(&document, path));
        document["metadata"].take();
        whole_numbers(&mut document);
        ((kind, namespace, name), document)
    });
    keyed.collect()
}

/// Helm and kustomize print 1.0 as 1.
pub(crate) fn whole_numbers(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Number(number) => *value = Value::from(number.as_f64().expect("a number")),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Output of `helm template` with extra arguments, or its complaint.
fn render(arguments: &[&str]) -> Result<String, String> {
    render_into("backuppodset-system", arguments)
}

/// The same for a release in another namespace.
fn render_into(namespace: &str, arguments: &[&str]) -> Result<String, String> {
    lab::install::chart::render(namespace, KUBERNETES, arguments)
}

#[test]
fn the_chart_renders_what_the_flat_file_installs() {
    let install = std::fs::read_to_string(file("../deploy/install.yaml")).expect("the flat file");
    let mut expected = objects(&install);
    // Helm makes the namespace itself.
    expected.retain(|(kind, ..), _| kind != "Namespace");
    assert_eq!(objects(&render(&[]).expect("the chart renders")), expected);
}

#[test]
fn watched_namespaces_get_roles_and_the_cluster_grants_only_what_has_no_namespace() {
    let rendered = render(&["--set", "watchNamespaces={one,two}"]).expect("the chart renders");
    let keys: Vec<_> = objects(&rendered).into_keys().collect();
    let grants = |kind: &str| {
        let of_kind =
            keys.iter().filter(|(found, _, name)| found == kind && name.starts_with("bps-operator"));
        of_kind.map(|(_, namespace, name)| format!("{namespace}/{name}")).collect::<Vec<_>>()
    };
    let roles = ["backuppodset-system/bps-operator", "one/bps-operator-watched", "two/bps-operator-watched"];
    assert_eq!(grants("RoleBinding"), roles);
    assert_eq!(grants("ClusterRoleBinding"), ["/bps-operator-cluster-backuppodset-system"]);
    assert!(rendered.contains("--watch-namespace=one") && rendered.contains("--watch-namespace=two"));
}

#[test]
fn a_misspelled_value_is_refused() {
    let refused = render(&["--set", "replicaCuont=3"]).expect_err("the schema knows no such value");
    assert!(refused.contains("replicaCuont"), "{refused}");
}

/// Objects of a release that watches these namespaces, and leaves the CRDs to another one.
fn render_beside(namespace: &str, watched: &str) -> BTreeMap<Key, Value> {
    let watched = format!("watchNamespaces={{{watched}}}");
    let arguments = ["--set", &watched, "--set", "crds.enabled=false"];
    objects(&render_into(namespace, &arguments).expect("the chart renders"))
}

#[test]
fn releases_that_watch_different_namespaces_have_no_object_in_common() {
    let [prod, dev] = [("prod", "shop,billing"), ("dev", "trial")]
        .map(|(namespace, watched)| render_beside(namespace, watched).into_keys().collect::<BTreeSet<Key>>());
    assert_eq!(prod.intersection(&dev).collect::<Vec<_>>(), Vec::<&Key>::new());
    // Both would keep the same Pods; Helm refuses the second release, because these belong to the first.
    let again: BTreeSet<Key> = render_beside("dev", "shop").into_keys().collect();
    let common: Vec<_> = prod.intersection(&again).map(|(kind, ..)| kind.as_str()).collect();
    assert_eq!(common, ["NetworkPolicy", "Role", "RoleBinding"]);
}

#[test]
fn the_policies_of_a_release_bind_nobody_in_namespaces_that_it_does_not_watch() {
    let rendered = render_beside("prod", "shop,billing");
    let of_kind = |wanted: &'static str| rendered.iter().filter(move |((kind, ..), _)| kind == wanted);
    let scope = json!({"namespaceSelector": {"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["shop", "billing"]}]}});

    let policies: BTreeSet<_> =
        of_kind("ValidatingAdmissionPolicy").map(|((_, _, name), _)| name.as_str()).collect();
    let mut bound = BTreeSet::new();
    for ((_, _, name), binding) in of_kind("ValidatingAdmissionPolicyBinding") {
        bound.insert(binding["spec"]["policyName"].as_str().expect("a name"));
        // What this operator may write is limited everywhere. It concerns no other one.
        let is_of_secrets = name == "backuppodset-secrets-prod";
        let expected = if is_of_secrets { &Value::Null } else { &scope };
        assert_eq!(binding["spec"].get("matchResources").unwrap_or(&Value::Null), expected, "{name}");
    }
    assert_eq!((policies.len(), &bound), (8, &policies));
    let secrets = ("ValidatingAdmissionPolicy".into(), String::new(), "backuppodset-secrets-prod".into());
    let only_by = &rendered[&secrets]["spec"]["matchConditions"][0]["expression"];
    assert_eq!(*only_by, "request.userInfo.username == 'system:serviceaccount:prod:bps-operator'");
}

#[test]
fn policies_for_the_network_are_those_of_the_files() {
    let pairs = ["--set", "watchNamespaces={one}", "--set", "networkPolicy.pairs.enabled=true"];
    let rendered = objects(&render(&pairs).expect("the chart renders"));
    for name in ["cold-gate", "pairs"] {
        let text = std::fs::read_to_string(file(&format!("../deploy/policies/{name}.yaml"))).expect("a file");
        let key = ("NetworkPolicy".into(), "one".into(), format!("bps-{name}"));
        assert_eq!(objects(&text).into_values().next().as_ref(), rendered.get(&key), "{name}");
    }
    let refused = render(&pairs[2..]).expect_err("a policy is of a namespace");
    assert!(refused.contains("deploy/policies/pairs.yaml"), "{refused}");
}

/// An operator that another release left on the server: what the chart finds it by.
async fn install_other(namespace: &str, watched: &[&str]) {
    let client = server::client().await;
    let params = PatchParams::apply("chart-test").force();
    let labels = json!({"app.kubernetes.io/name": "backuppodset"});
    let place = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.patch(namespace, &params, &Patch::Apply(place)).await.expect("a namespace");

    let name = format!("bps-operator-cluster-{namespace}");
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": labels},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "bps-operator", "namespace": namespace}]});
    let bindings = Api::<ClusterRoleBinding>::all(client.clone());
    bindings.patch(&name, &params, &Patch::Apply(binding)).await.expect("a binding");

    let arguments: Vec<_> = watched.iter().map(|watched| format!("--watch-namespace={watched}")).collect();
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "bps-operator", "namespace": namespace},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "bps-operator", "image": "bps-operator:1", "args": arguments}]}}}});
    let deployments = Api::<Deployment>::namespaced(client, namespace);
    deployments.patch("bps-operator", &params, &Patch::Apply(deployment)).await.expect("a Deployment");
}

#[tokio::test]
async fn a_release_that_would_watch_what_another_operator_watches_is_refused() {
    install_other("chart-other", &["chart-a", "chart-b"]).await;
    let kubeconfig = server::kubeconfig().await.to_str().expect("UTF-8").to_owned();
    let ask = |watched: Option<&str>| {
        let watched = watched.map(|watched| format!("watchNamespaces={{{watched}}}"));
        let mut arguments =
            vec!["--dry-run=server", "--kubeconfig", &kubeconfig, "--set", "crds.enabled=false"];
        arguments.extend(watched.iter().flat_map(|watched| ["--set", watched]));
        render_into("chart-own", &arguments)
    };
    let refused =
        [None, Some("chart-b,chart-c")].map(|watched| ask(watched).expect_err("two would watch chart-b"));
    assert!(refused[0].contains("namespace chart-other watches chart-a, chart-b"), "{}", refused[0]);
    assert!(refused[1].contains("namespace chart-other watches chart-b already"), "{}", refused[1]);
    assert!(ask(Some("chart-c")).expect("nobody watches chart-c").contains("--watch-namespace=chart-c"));
}

/// Arguments that turn the scheduler on, and name it.
const WITH_SCHEDULER: [&str; 2] = ["--set", "scheduler.enabled=true"];
const SCHEDULER: &str = "bps-scheduler";

/// Output of `helm template` with the scheduler and extra arguments, or its complaint.
fn render_scheduler(arguments: &[&str]) -> Result<String, String> {
    render(&[&WITH_SCHEDULER[..], arguments].concat())
}

/// The Pod of a Deployment of a rendered release.
fn pod_of(rendered: &str, deployment: &str) -> Value {
    let key = ("Deployment".to_owned(), "backuppodset-system".to_owned(), deployment.to_owned());
    objects(rendered)[&key]["spec"]["template"]["spec"].clone()
}

#[test]
fn the_scheduler_adds_objects_of_its_own_and_changes_no_other() {
    let [without, with] =
        [render(&[]), render_scheduler(&[])].map(|yaml| objects(&yaml.expect("the chart renders")));
    let added = with.keys().filter(|key| !without.contains_key(*key));
    let added: Vec<_> = added.map(|(kind, namespace, name)| format!("{kind} {namespace}/{name}")).collect();
    let expected = [
        "ClusterRoleBinding /bps-scheduler",
        "ClusterRoleBinding /bps-scheduler-volumes",
        "ConfigMap backuppodset-system/bps-scheduler",
        "Deployment backuppodset-system/bps-scheduler",
        "FlowSchema /bps-scheduler",
        "FlowSchema /bps-scheduler-lease",
        "NetworkPolicy backuppodset-system/bps-scheduler",
        "PodDisruptionBudget backuppodset-system/bps-scheduler",
        "Role backuppodset-system/bps-scheduler",
        "RoleBinding backuppodset-system/bps-scheduler",
        "RoleBinding kube-system/bps-scheduler-authentication-reader",
        "Service backuppodset-system/bps-scheduler-metrics",
        "ServiceAccount backuppodset-system/bps-scheduler",
    ];
    assert_eq!(added, expected);
    let changed = without.iter().filter(|(key, object)| with.get(*key) != Some(*object));
    assert_eq!(changed.map(|(key, _)| key).collect::<Vec<_>>(), Vec::<&Key>::new());
}

#[test]
fn kube_scheduler_starts_after_its_extender_and_both_are_restricted_as_the_operator_is() {
    let rendered = render_scheduler(&[]).expect("the chart renders");
    let [pod, operator] = [SCHEDULER, "bps-operator"].map(|deployment| pod_of(&rendered, deployment));
    let [extender, scheduler] = [&pod["initContainers"][0], &pod["containers"][0]];

    // The kubelet starts a container once the start-up probe of each sidecar before it succeeds.
    assert_eq!((&extender["name"], &extender["restartPolicy"]), (&json!("bps-extender"), &json!("Always")));
    assert_eq!(extender["startupProbe"]["httpGet"], json!({"path": "/readyz", "port": "health"}));
    assert_eq!(scheduler["command"], json!(["kube-scheduler"]));

    assert_eq!(pod["securityContext"], operator["securityContext"]);
    for container in [extender, scheduler] {
        assert_eq!(container["securityContext"], operator["containers"][0]["securityContext"]);
    }
}

#[test]
fn values_of_the_score_are_arguments_of_the_extender() {
    // Helm reads a number of a file as a float, and would print this one with an exponent.
    let directory = tempfile::tempdir().expect("a directory");
    let values = directory.path().join("values.yaml");
    std::fs::write(&values, "scheduler: {std: Literal, seed: 12345678, resources: [cpu, memory]}")
        .expect("a file");
    let rendered =
        render_scheduler(&["--values", values.to_str().expect("UTF-8")]).expect("the chart renders");
    let expected = json!([
        "--bind=127.0.0.1:8090",
        "--health-bind=[::]:8081",
        "--metrics-bind=[::]:8443",
        "--std=literal",
        "--resources=cpu,memory",
        "--seed=12345678",
        "--log-format=json"
    ]);
    assert_eq!(pod_of(&rendered, SCHEDULER)["initContainers"][0]["args"], expected);

    let refused =
        render_scheduler(&["--set", "scheduler.resources={cpu}"]).expect_err("one is always balanced");
    assert!(refused.contains("/scheduler/resources"), "{refused}");
}

#[test]
fn kube_scheduler_is_of_a_version_that_the_api_server_admits() {
    let image = |tag: &str| {
        let tag = format!("scheduler.image.tag={tag}");
        let rendered = render_scheduler(&["--kube-version", "1.36.4", "--set", &tag])?;
        Ok::<_, String>(pod_of(&rendered, SCHEDULER)["containers"][0]["image"].clone())
    };
    for (tag, expected) in [("", "v1.36.4"), ("v1.35.2", "v1.35.2"), ("latest", "latest")] {
        assert_eq!(image(tag), Ok(json!(format!("registry.k8s.io/kube-scheduler:{expected}"))));
    }
    for tag in ["v1.37.0", "v1.34.9"] {
        let refused = image(tag).expect_err("newer, or two minor versions older");
        assert!(refused.contains("set one of 1.36 or 1.35"), "{refused}");
    }
}

#[test]
fn a_changed_configuration_replaces_the_pods_of_the_scheduler() {
    let checksum = |namespace: &str| {
        let rendered = render_into(namespace, &WITH_SCHEDULER).expect("the chart renders");
        let line = rendered.lines().find(|line| line.contains("checksum/configuration: "));
        line.expect("an annotation").to_owned()
    };
    // The configuration names the namespace of the Lease.
    assert_ne!(checksum("one"), checksum("two"));
}

#[test]
fn what_prometheus_needs_is_rendered_on_request() {
    let both = ["--set", "prometheus.servicemonitor.enabled=true", "--set", "prometheus.rules.enabled=true"];
    let rendered = objects(&render_scheduler(&both).expect("the chart renders"));
    let named = |kind: &str| {
        let of_kind = rendered.keys().filter(|(found, ..)| found == kind);
        of_kind.map(|(.., name)| name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(named("ServiceMonitor"), ["bps-operator", SCHEDULER]);
    assert_eq!(named("PrometheusRule"), [SCHEDULER]);

    let refused = render(&both).expect_err("the alerts are about the scheduler");
    assert!(refused.contains("prometheus.rules.enabled needs scheduler.enabled"), "{refused}");
}

#[tokio::test]
async fn kube_scheduler_takes_the_configuration() {
    let rendered = objects(&render_scheduler(&[]).expect("the chart renders"));
    let key = ("ConfigMap".to_owned(), "backuppodset-system".to_owned(), SCHEDULER.to_owned());
    let given = rendered[&key]["data"]["config.yaml"].as_str().expect("a file");

    let directory = tempfile::tempdir().expect("a directory");
    let [given_file, taken_file] = ["given.yaml", "taken.yaml"].map(|name| directory.path().join(name));
    // In a Pod, kube-scheduler has the token of its ServiceAccount.
    let kubeconfig = server::kubeconfig().await;
    let text = format!("{given}\nclientConnection: {{kubeconfig: {}}}\n", kubeconfig.display());
    std::fs::write(&given_file, text).expect("a file");

    let built =
        binaries::ensure(&[Component::Scheduler], Progress::Shown).expect("kube-scheduler can be built");
    let output = Command::new(built.find(Component::Scheduler).expect("it was asked for"))
        .arg(format!("--config={}", given_file.display()))
        .arg(format!("--write-config-to={}", taken_file.display()))
        .arg("--secure-port=0")
        .output()
        .expect("kube-scheduler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let taken = std::fs::read_to_string(&taken_file).expect("the configuration with its defaults");
    let taken: Value = serde_saphyr::from_str(&taken).expect("YAML");
    let profiles = taken["profiles"].as_array().expect("profiles").iter();
    let names: Vec<_> = profiles.map(|profile| &profile["schedulerName"]).collect();
    assert_eq!(names, [SCHEDULER, "bps-rbra"]);
    // The extender scores in the place of the one, and alone in the other.
    let scores = |profile: &Value| {
        let plugins = [&profile["plugins"]["multiPoint"]["enabled"], &profile["plugins"]["score"]["enabled"]];
        let enabled = plugins.into_iter().flat_map(|enabled| enabled.as_array().into_iter().flatten());
        enabled.filter_map(|plugin| plugin["name"].as_str().map(str::to_owned)).collect::<BTreeSet<_>>()
    };
    let [combined, alone] = [0, 1].map(|index| scores(&taken["profiles"][index]));
    assert!(combined.contains("NodeResourcesFit"), "{combined:?}");
    assert!(!combined.contains("NodeResourcesBalancedAllocation"), "{combined:?}");
    assert_eq!(taken["profiles"][1]["plugins"]["score"]["disabled"][0]["name"], "*", "{alone:?}");
    let lease = [&taken["leaderElection"]["resourceNamespace"], &taken["leaderElection"]["resourceName"]];
    assert_eq!(lease, ["backuppodset-system", SCHEDULER]);
}

#[tokio::test]
async fn the_scheduler_is_one_in_a_cluster_and_has_the_permissions_of_a_scheduler() {
    let client = server::client().await;
    rbac::apply(&client, "../deploy/base/namespace.yaml").await;
    let only = ["--show-only", "templates/scheduler/rbac.yaml"];
    let directory = tempfile::tempdir().expect("a directory");
    let manifest = directory.path().join("rbac.yaml");
    std::fs::write(&manifest, render_scheduler(&only).expect("the chart renders")).expect("a file");
    rbac::apply(&client, manifest.to_str().expect("UTF-8")).await;

    let permission = |row: [&'static str; 5]| {
        let [namespace, group, resource, name, verb] = row;
        Permission { namespace, group, resource, name, verb }
    };
    let granted = [
        ["backuppodset-system", "coordination.k8s.io", "leases", "", "create"],
        ["backuppodset-system", "coordination.k8s.io", "leases", SCHEDULER, "get"],
        ["backuppodset-system", "coordination.k8s.io", "leases", SCHEDULER, "update"],
        ["kube-system", "", "configmaps", "extension-apiserver-authentication", "watch"],
        ["default", "", "pods/binding", "", "create"],
        ["default", "", "persistentvolumeclaims", "", "update"],
        // The extender asks for these.
        ["", "", "pods", "", "watch"],
        ["", "", "nodes", "", "watch"],
        ["", "authentication.k8s.io", "tokenreviews", "", "create"],
        ["", "authorization.k8s.io", "subjectaccessreviews", "", "create"],
    ];
    let withheld = [
        ["backuppodset-system", "coordination.k8s.io", "leases", "bps-operator", "update"],
        ["default", "coordination.k8s.io", "leases", SCHEDULER, "update"],
        ["backuppodset-system", "", "secrets", "", "get"],
        ["backuppodset-system", "", "pods", "", "create"],
        ["kube-system", "", "configmaps", "", "list"],
    ];
    let [granted, withheld] = [&granted[..], &withheld[..]]
        .map(|rows| rows.iter().copied().map(permission).collect::<BTreeSet<_>>());
    rbac::assert_permissions(&client, SCHEDULER, &granted, &withheld).await;

    let kubeconfig = server::kubeconfig().await.to_str().expect("UTF-8").to_owned();
    let values = "crds.enabled=false,watchNamespaces={chart-second},scheduler.enabled=true";
    let second = ["--dry-run=server", "--kubeconfig", &kubeconfig, "--set", values];
    let refused = render_into("chart-second", &second).expect_err("both would bind the same Pods");
    assert!(refused.contains("namespace backuppodset-system has a scheduler"), "{refused}");
}
