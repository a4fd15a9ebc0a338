//! What only a real API server can say about the CRD and the manifests.
//!
//! Installs the CRD and uses one namespace of its own.

use std::time::Duration;

use bps_api::crd::{crd, group_crd};
use bps_api::{
    BackupPodSet, BackupPodSetStatus, Condition, ConditionStatus, Conversion, ConversionOutcome,
    FailoverReport, HAGroup, SubsetStatus, Summary, Tier, TierNames, openapi,
};
use bps_testkit::files::{files, refusal, sets};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::api::{Api, DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, CustomResourceExt};
use serde_json::{Value, json};

use crate::server;

/// Longest wait for the API server to serve the kind.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);
/// Namespace of the tests, so that no set that is really there takes part.
const NAMESPACE: &str = "backuppodset-api-test";
/// Minor version of Kubernetes that the checked-in Pod schema was taken from.
const POD_SCHEMA_MINOR: &str = "36";

fn params() -> PatchParams {
    PatchParams::apply("api-test").force()
}

pub(crate) async fn cluster() -> Client {
    let client = server::client().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.patch(NAMESPACE, &params(), &Patch::Apply(namespace)).await.expect("a namespace");
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    // An operator waits for both.
    for (name, crd) in [(BackupPodSet::crd_name(), crd()), (HAGroup::crd_name(), group_crd())] {
        definitions.patch(name, &params(), &Patch::Apply(crd)).await.expect("the API server accepts the CRD");
        let established = await_condition(definitions.clone(), name, conditions::is_crd_established());
        tokio::time::timeout(ESTABLISHED_WITHIN, established).await.expect("in time").expect("a watch");
    }
    client
}

pub(crate) async fn dry_run(client: &Client, set: &Value) -> Result<(), String> {
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), NAMESPACE, &BackupPodSet::api_resource());
    let params =
        PatchParams { dry_run: true, field_validation: Some(ValidationDirective::Strict), ..params() };
    let name = set["metadata"]["name"].as_str().expect("a name");
    api.patch(name, &params, &Patch::Apply(set)).await.map(drop).map_err(|error| error.to_string())
}

async fn apply(client: &Client, set: &Value) {
    let api = Api::<BackupPodSet>::namespaced(client.clone(), NAMESPACE);
    let name = set["metadata"]["name"].as_str().expect("a name");
    api.patch(name, &params(), &Patch::Apply(set)).await.expect("a set");
}

async fn delete(client: &Client, set: &Value) {
    let api = Api::<BackupPodSet>::namespaced(client.clone(), NAMESPACE);
    let name = set["metadata"]["name"].as_str().expect("a name");
    api.delete(name, &kube::api::DeleteParams::default()).await.expect("its end");
}

#[tokio::test]
async fn every_example_is_accepted() {
    let client = cluster().await;
    let pairs =
        std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/active-standby/set.yaml"));
    for file in [files("examples"), files("examples/models"), vec![pairs]].concat() {
        for set in sets(&file) {
            assert_eq!(dry_run(&client, &set).await, Ok(()), "{}", file.display());
        }
    }
}

#[tokio::test]
async fn a_new_object_says_that_no_operator_has_seen_it() {
    let client = cluster().await;
    let metadata = json!({"name": "unseen"});
    let template = json!({"spec": {"containers": [{"name": "web", "image": "nginx:1.29"}]}});
    let set = json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet", "metadata": metadata,
        "spec": {"template": template},
    });
    apply(&client, &set).await;
    let made = Api::<BackupPodSet>::namespaced(client.clone(), NAMESPACE).get("unseen").await.expect("a set");
    assert_eq!(made.status.map(|status| status.observed_generation), Some(-1));
    delete(&client, &set).await;
}

/// An autoscaler must be able to act: whether the counts fit what is promised is said in the status.
#[tokio::test]
async fn no_promise_of_a_model_refuses_a_scale() {
    let client = cluster().await;
    let api = Api::<BackupPodSet>::namespaced(client.clone(), NAMESPACE);
    for file in files("examples/models") {
        let set = sets(&file).remove(0);
        apply(&client, &set).await;
        let name = set["metadata"]["name"].as_str().expect("a name");
        for replicas in [0, 1, 1000] {
            let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
            let scaled = api.patch_scale(name, &PatchParams::default(), &scale).await.expect("a scale");
            // A scale leaves 0 out.
            let scaled = scaled.spec.and_then(|spec| spec.replicas).unwrap_or_default();
            assert_eq!(scaled, replicas, "{name}");
        }
        delete(&client, &set).await;
    }
}

#[tokio::test]
async fn every_refused_manifest_is_refused_with_its_message() {
    let client = cluster().await;
    for file in files("tests/refused") {
        let (kind, message) = refusal(&file);
        // Server-side apply reports an unknown field by its path inside the schema, not as `kubectl` does.
        let message = if kind == "strict" { "field not declared in schema" } else { message.as_str() };
        // What stands before the last set in a file is there when that one is applied.
        let mut before = sets(&file);
        let refused = before.pop().expect("a set");
        for set in &before {
            apply(&client, set).await;
        }
        let answer = dry_run(&client, &refused).await;
        for set in &before {
            delete(&client, set).await;
        }
        let refused = answer.as_ref().is_err_and(|text| text.contains(message));
        assert!(refused, "{}: expected {message:?}, got {answer:?}", file.display());
    }
}

fn full_status() -> BackupPodSetStatus {
    let moment: MicroTime = serde_json::from_value(json!("2026-01-02T03:04:05.678901Z")).expect("a time");
    let second: Time = serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("a time");
    BackupPodSetStatus {
        observed_generation: 1,
        state: "Ready".into(),
        summary: Summary {
            replicas: "2/2".into(),
            hot_backups: "1/1".into(),
            cold_backups: "0/1".into(),
            images: "nginx:1.29".into(),
            survives: "node".into(),
        },
        redundancy: "N+M 2+1, 1 cold spare".into(),
        replicas: 2,
        ready_replicas: 2,
        hot_backups: 1,
        ready_hot_backups: 1,
        cold_backups: 1,
        ready_cold_backups: 0,
        updated_pods: 4,
        collision_count: 3,
        current_revision: "abcdef0123".into(),
        update_revision: "0123456789".into(),
        selector: "backup.example.com/set=full,backup.example.com/role=primary".into(),
        pods: TierNames {
            primaries: vec!["full-a".into(), "full-b".into()],
            hot_backups: vec!["full-c".into()],
            cold_backups: vec!["full-d".into()],
            omitted: 0,
        },
        subsets: vec![SubsetStatus {
            name: "east".into(),
            replicas: "1/2".into(),
            hot_backups: "0/0".into(),
            cold_backups: "1/1".into(),
            waiting: 1,
        }],
        conditions: vec![Condition {
            r#type: "Ready".into(),
            status: ConditionStatus::True,
            reason: "AllReady".into(),
            message: "Every Pod is ready.".into(),
            last_transition_time: second.clone(),
            observed_generation: 1,
        }],
        last_progress_time: Some(second.clone()),
        last_failover: Some(FailoverReport {
            time: moment.clone(),
            lost_pod: "full-x".into(),
            successor: Some("full-a".into()),
            reason: "PodDeleted".into(),
            detected_after_milliseconds: Some(3),
            exposed_after_milliseconds: Some(20),
            ready_after_milliseconds: None,
        }),
        conversions: vec![Conversion {
            pod: "full-a".into(),
            from: Tier::HotBackup,
            to: Tier::Primary,
            reason: "PodDeleted".into(),
            started: moment.clone(),
            finished: Some(moment),
            outcome: ConversionOutcome::Succeeded,
        }],
    }
}

#[tokio::test]
async fn a_full_status_comes_back_as_it_was_written_and_feeds_the_scale_subresource() {
    let client = cluster().await;
    let sets = Api::<BackupPodSet>::namespaced(client, NAMESPACE);
    let container = json!({"name": "web", "image": "nginx:1.29"});
    let head = json!({"apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet", "metadata": {"name": "full"}});
    let mut wish = head.clone();
    wish["spec"] = json!({"replicas": 2, "template": {"spec": {"containers": [container]}}});
    sets.patch("full", &params(), &Patch::Apply(wish)).await.expect("a set");
    let mut report = head;
    report["status"] = serde_json::to_value(full_status()).expect("JSON");
    sets.patch_status("full", &params(), &Patch::Apply(report)).await.expect("a status");
    let found = sets.get("full").await.expect("the set").status.expect("its status");
    let scale = sets.get_scale("full").await.expect("its scale");
    sets.delete("full", &kube::api::DeleteParams::default()).await.expect("its end");
    let expected = json!({"replicas": 2, "selector": full_status().selector});
    assert_eq!(
        serde_json::to_value(found).expect("JSON"),
        serde_json::to_value(full_status()).expect("JSON")
    );
    assert_eq!(serde_json::to_value(scale.status).expect("JSON"), expected);
}

#[tokio::test]
async fn the_checked_in_pod_schema_is_what_the_generator_prints_for_a_server_of_its_version() {
    let client = cluster().await;
    let version = client.apiserver_version().await.expect("a version");
    if version.minor != POD_SCHEMA_MINOR {
        return;
    }
    let request = http::Request::get("/openapi/v3/api/v1").body(Vec::new()).expect("a request");
    let document: Value = client.request(request).await.expect("the document");
    let printed = openapi::pod_spec_schema(&document).expect("a schema");
    let checked_in: Value =
        serde_json::from_str(include_str!("../../../crates/bps-api/src/pod_spec.schema.json"))
            .expect("the checked-in schema");
    assert_eq!(printed, checked_in);
}
