//! Tests of the simulated server's writes, one rule each, through the real client.

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Pod, Secret},
};
use kube::{
    Api, Client, Error,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::simulation::{
    admission::{Rule, quota, restricted},
    api::Hub,
    fault::Plan,
    kinds::PODS,
    world::{Actor, Key, World},
};

/// A server without actors, and a client of it.
pub fn server() -> (Hub, Client) {
    let hub = Hub::new(World::default(), Plan::default());
    let (_, client) = hub.start();
    (hub, client)
}

pub fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), "default")
}

fn sets(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("backup.example.com", "v1alpha1", "BackupPodSet");
    Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&kind))
}

pub fn pod(name: &str, labels: &Value) -> Pod {
    let spec = json!({"containers": [{"name": "app", "image": "app:1"}]});
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": spec}))
        .expect("a Pod")
}

pub async fn create(api: &Api<Pod>, name: &str, labels: &Value) -> Pod {
    api.create(&PostParams::default(), &pod(name, labels)).await.expect("a new Pod")
}

/// Code and reason of a refusal.
pub fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> (u16, String) {
    match result {
        Err(Error::Api(status)) => (status.code, status.reason.clone()),
        other => panic!("not refused: {other:?}"),
    }
}

fn conflict() -> (u16, String) {
    (409, "Conflict".to_owned())
}

async fn merge(api: &Api<Pod>, name: &str, patch: Value) -> Result<Pod, Error> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

fn revision(hub: &Hub) -> u64 {
    hub.with(|state| state.world.revision())
}

/// Binds a Pod, so that it has a grace period.
fn bind(hub: &Hub, name: &str) {
    hub.with(|state| {
        state.world.edit(Actor::Scheduler, &Key::pod(name), |pod| pod["spec"]["nodeName"] = json!("node-a"))
    });
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_is_refused_and_its_next_bearer_has_another_uid() {
    let (_, client) = server();
    let api = pods(&client);
    let first = create(&api, "a", &json!({})).await;
    let again = api.create(&PostParams::default(), &pod("a", &json!({}))).await;
    assert_eq!(refused(again), (409, "AlreadyExists".to_owned()));
    api.delete("a", &DeleteParams::default()).await.expect("not bound, so gone at once");
    let second = create(&api, "a", &json!({})).await;
    assert_ne!(first.metadata.uid, second.metadata.uid);
    assert_eq!(first.metadata.generation, Some(1));
    assert_eq!(first.status.and_then(|status| status.phase).as_deref(), Some("Pending"));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_carries_the_message_and_details_of_the_real_server() {
    let (_, client) = server();
    let Err(Error::Api(status)) = pods(&client).get("a").await else { panic!("there is no Pod") };
    let details = status.details.clone().expect("details");
    assert_eq!((status.code, status.message.as_str()), (404, "pods \"a\" not found"));
    assert_eq!((details.name.as_str(), details.kind.as_str()), ("a", "pods"));
    let Err(Error::Api(status)) = sets(&client).get("web").await else { panic!("there is no set") };
    assert_eq!(status.message, "backuppodsets.backup.example.com \"web\" not found");
}

#[tokio::test(start_paused = true)]
async fn uid_and_revision_in_a_patch_are_preconditions() {
    let (hub, client) = server();
    let api = pods(&client);
    let old = create(&api, "a", &json!({})).await.metadata;
    let labels = json!({"role": "hot"});
    let stranger = json!({"metadata": {"uid": "other", "labels": labels}});
    assert_eq!(refused(merge(&api, "a", stranger).await), (422, "Invalid".to_owned()));
    let guarded =
        json!({"metadata": {"uid": old.uid, "resourceVersion": old.resource_version, "labels": labels}});
    let new = merge(&api, "a", guarded.clone()).await.expect("as planned").metadata;
    assert_ne!(new.resource_version, old.resource_version);
    assert_eq!(new.generation, Some(1), "labels do not count");
    assert_eq!(refused(merge(&api, "a", guarded).await), conflict());
    assert_eq!(refused(merge(&api, "b", json!({})).await).0, 404);
    let mut stale = pod("a", &labels);
    stale.metadata.resource_version = old.resource_version;
    assert_eq!(refused(api.replace("a", &PostParams::default(), &stale).await), conflict());
    assert_eq!(revision(&hub), 1002);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_leaves_the_revision_alone() {
    let (hub, client) = server();
    let api = pods(&client);
    let before = create(&api, "a", &json!({"role": "hot"})).await;
    let after = merge(&api, "a", json!({"metadata": {"labels": {"role": "hot", "gone": null}}})).await;
    assert_eq!(after.expect("accepted"), before);
    assert_eq!(revision(&hub), 1001);
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_tests_before_it_changes() {
    let (_, client) = server();
    let api = pods(&client);
    create(&api, "a", &json!({"role": "hot"})).await;
    let patch = |was: &str| -> Patch<Value> {
        let steps = json!([
            {"op": "test", "path": "/metadata/labels/role", "value": was},
            {"op": "replace", "path": "/metadata/labels/role", "value": "primary"},
            {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/a"]},
        ]);
        Patch::Json(serde_json::from_value(steps).expect("a JSON patch"))
    };
    assert_eq!(refused(api.patch("a", &PatchParams::default(), &patch("cold")).await).0, 422);
    let new = api.patch("a", &PatchParams::default(), &patch("hot")).await.expect("the test holds").metadata;
    assert_eq!(new.labels.expect("labels")["role"], "primary");
    assert_eq!(new.finalizers, Some(vec!["example.com/a".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn apply_creates_merges_and_takes_back_what_it_no_longer_names() {
    let (_, client) = server();
    let api: Api<Secret> = Api::namespaced(client, "default");
    let params = PatchParams::apply("operator").force();
    let body = |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "k"}, "stringData": data});
    let text = |secret: Secret| secret.string_data.unwrap_or_default().into_iter().collect::<Vec<_>>();
    let pair = |name: &str| (name.to_owned(), name.to_owned());
    api.patch("k", &params, &Patch::Apply(body(json!({"a": "a", "b": "b"})))).await.expect("created");
    let other = Patch::Merge(json!({"stringData": {"c": "c"}}));
    api.patch("k", &PatchParams::default(), &other).await.expect("merged");
    let new = api.patch("k", &params, &Patch::Apply(body(json!({"b": "b"})))).await.expect("applied");
    assert_eq!(text(new), [pair("b"), pair("c")]);
    let stale = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "new", "uid": "u"}});
    assert_eq!(refused(api.patch("new", &params, &Patch::Apply(stale)).await), conflict());
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_apart_and_generation_counts_the_spec() {
    let (_, client) = server();
    let api = sets(&client);
    let set = json!({"apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet", "metadata": {"name": "web"},
        "spec": {"replicas": 1}, "status": {"ignored": true}});
    let set: DynamicObject = serde_json::from_value(set).expect("a set");
    let created = api.create(&PostParams::default(), &set).await.expect("created");
    assert_eq!((created.metadata.generation, &created.data["status"]), (Some(1), &Value::Null));
    let both = Patch::Merge(json!({"spec": {"replicas": 2}, "status": {"ready": 2}}));
    let status = api.patch_status("web", &PatchParams::default(), &both).await.expect("status");
    assert_eq!(status.data["spec"]["replicas"], 1);
    assert_eq!((status.metadata.generation, &status.data["status"]["ready"]), (Some(1), &json!(2)));
    let scaled = Patch::Merge(json!({"spec": {"replicas": 3}, "status": null}));
    let spec = api.patch("web", &PatchParams::default(), &scaled).await.expect("spec");
    assert_eq!((spec.metadata.generation, &spec.data["status"]["ready"]), (Some(2), &json!(2)));
    let strategic = api.patch("web", &PatchParams::default(), &Patch::Strategic(json!({}))).await;
    assert_eq!(refused(strategic).0, 415);
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_and_a_lease_refuse_an_unconditional_update_and_a_pod_its_spec() {
    let (_, client) = server();
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    let mut lease = Lease::default();
    lease.metadata.name = Some("bps-operator".to_owned());
    let created = leases.create(&PostParams::default(), &lease).await.expect("created");
    assert_eq!(refused(leases.replace("bps-operator", &PostParams::default(), &lease).await).0, 422);
    lease.metadata.resource_version = created.metadata.resource_version;
    leases.replace("bps-operator", &PostParams::default(), &lease).await.expect("conditional");
    let api = pods(&client);
    create(&api, "a", &json!({})).await;
    let spec = json!({"spec": {"nodeName": "node-b"}});
    assert_eq!(refused(merge(&api, "a", spec).await), (422, "Invalid".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_delete_insists_on_uid_and_revision() {
    let (_, client) = server();
    let api = pods(&client);
    let old = create(&api, "a", &json!({})).await.metadata;
    let delete = |uid: Option<&String>, revision: Option<&String>| {
        let preconditions = Preconditions { uid: uid.cloned(), resource_version: revision.cloned() };
        DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
    };
    merge(&api, "a", json!({"metadata": {"labels": {"x": "y"}}})).await.expect("moves the revision");
    let other = "other".to_owned();
    assert_eq!(refused(api.delete("a", &delete(Some(&other), None)).await), conflict());
    assert_eq!(
        refused(api.delete("a", &delete(old.uid.as_ref(), old.resource_version.as_ref())).await),
        conflict()
    );
    api.delete("a", &delete(old.uid.as_ref(), None)).await.expect("the same Pod");
    assert_eq!(refused(api.delete("a", &DeleteParams::default()).await).0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_bound_pod_is_given_its_grace_once_and_a_finalizer_holds_it() {
    let (hub, client) = server();
    let api = pods(&client);
    create(&api, "a", &json!({})).await;
    bind(&hub, "a");
    merge(&api, "a", json!({"metadata": {"finalizers": ["example.com/a"]}})).await.expect("held");
    let deleting =
        api.delete("a", &DeleteParams::default()).await.expect("begun").left().expect("still there");
    assert_eq!(deleting.metadata.deletion_grace_period_seconds, Some(30));
    assert_eq!(
        deleting.metadata.deletion_timestamp.expect("set").0.as_second(),
        crate::simulation::world::EPOCH_SECONDS + 30
    );
    let before = revision(&hub);
    api.delete("a", &DeleteParams::default()).await.expect("a repeated delete is accepted");
    assert_eq!(revision(&hub), before, "and changes nothing");
    api.delete("a", &DeleteParams::default().grace_period(0)).await.expect("forced");
    assert!(api.get("a").await.is_ok(), "the finalizer still holds it");
    merge(&api, "a", json!({"metadata": {"finalizers": null}})).await.expect("released");
    assert_eq!(refused(api.get("a").await).0, 404);
}

#[tokio::test(start_paused = true)]
async fn two_controllers_are_one_too_many() {
    let (_, client) = server();
    let owner = |name: &str| json!({"apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet", "name": name, "uid": name, "controller": true});
    let api = pods(&client);
    create(&api, "a", &json!({})).await;
    let both = json!({"metadata": {"ownerReferences": [owner("x"), owner("y")]}});
    assert_eq!(refused(merge(&api, "a", both).await), (422, "Invalid".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_no_rule_names_is_forbidden() {
    let (hub, client) = server();
    hub.with(|state| {
        state.world.admission.rules = Some(vec![
            Rule::new("", "pods", "get list create"),
            Rule::new("backup.example.com", "backuppodsets/status", "patch"),
        ]);
    });
    let api = pods(&client);
    create(&api, "a", &json!({})).await;
    let forbidden = (403, "Forbidden".to_owned());
    assert_eq!(refused(api.delete("a", &DeleteParams::default()).await), forbidden);
    assert_eq!(refused(merge(&api, "a", json!({})).await), forbidden);
    let patch = Patch::Merge(json!({}));
    assert_eq!(refused(sets(&client).patch("web", &PatchParams::default(), &patch).await), forbidden);
    assert_eq!(refused(sets(&client).patch_status("web", &PatchParams::default(), &patch).await).0, 404);
}

#[tokio::test(start_paused = true)]
async fn quota_and_pod_security_refuse_a_creation() {
    let (hub, client) = server();
    let api = pods(&client);
    hub.with(|state| state.world.admission.hooks = vec![quota(&PODS, 1)]);
    create(&api, "a", &json!({})).await;
    assert_eq!(refused(api.create(&PostParams::default(), &pod("b", &json!({}))).await).0, 403);
    hub.with(|state| state.world.admission.hooks = vec![restricted()]);
    assert_eq!(refused(api.create(&PostParams::default(), &pod("b", &json!({}))).await).0, 403);
    let context = json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"}});
    let mut fit = pod("b", &json!({}));
    fit.spec.as_mut().expect("a spec").containers[0].security_context =
        Some(serde_json::from_value(context).expect("a security context"));
    api.create(&PostParams::default(), &fit).await.expect("admitted");
}
