//! A real API server refuses what `deploy/base/admission.yaml` is to refuse, and nothing that agents, people and the operator
//! need.
//!
//! The policies are applied under other names and bound to the namespace of the test only. Every request is a dry run,
//! which goes through admission like any other and changes nothing.

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use bps_api::keys;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, TypeMeta};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::core::{GroupVersionKind, NamespaceResourceScope};
use kube::{Client, Config, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::plugin::scene::{GROUP, Scene};
use crate::server;

const NAMESPACE: &str = "policies";
/// Longest time until new policies are in force, and the pause between two tries.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(30);
const TRY_EVERY: Duration = Duration::from_millis(100);

/// What the policies are called here, so that those of an installed operator stay as they are.
fn renamed(name: &str) -> String {
    format!("{NAMESPACE}-test-{name}")
}

async fn apply_policies(client: &Client) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/base/admission.yaml");
    let text = std::fs::read_to_string(path).expect("a file");
    for mut object in serde_saphyr::from_multiple::<DynamicObject>(&text).expect("YAML") {
        let name = renamed(&object.name_any());
        object.metadata.name = Some(name.clone());
        let types: TypeMeta = object.types.clone().expect("a kind");
        if let Some(policy) = object.data["spec"]["policyName"].as_str().map(renamed) {
            object.data["spec"]["policyName"] = json!(policy);
            object.data["spec"]["matchResources"] =
                json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}});
        }
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types).expect("a kind"));
        let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let params = PatchParams::apply("policies-test").force();
        api.patch(&name, &params, &Patch::Apply(&object)).await.expect("an accepted policy");
    }
}

/// Everybody who asks; all of them have every right in the namespace, so that only the policies can refuse.
struct Askers {
    person: Client,
    operator: Client,
    agent: Client,
    /// A ServiceAccount's token that belongs to no Pod.
    script: Client,
}

impl Askers {
    async fn of(scene: &Scene, agent: (&str, &str)) -> Self {
        let person = scene.cluster.client.clone();
        let operators = json!({"metadata": {"name": keys::OPERATOR_NAMESPACE}});
        let namespaces = Api::<Namespace>::all(person.clone());
        let merge =
            Patch::Apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": operators["metadata"]}));
        namespaces
            .patch(keys::OPERATOR_NAMESPACE, &PatchParams::apply("policies-test"), &merge)
            .await
            .expect("a namespace");
        let accounts = Api::<ServiceAccount>::namespaced(person.clone(), keys::OPERATOR_NAMESPACE);
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": keys::OPERATOR}});
        accounts
            .patch(keys::OPERATOR, &PatchParams::apply("policies-test"), &Patch::Apply(account))
            .await
            .expect("a ServiceAccount");
        let account = |(name, namespace): (&str, &str)| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
        let subjects = [("default", NAMESPACE), (keys::OPERATOR, keys::OPERATOR_NAMESPACE)].map(account);
        scene
            .create::<RoleBinding>(json!({"metadata": {"name": "all"}, "subjects": subjects,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}}))
            .await;
        let bound = BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: Some(agent.0.into()),
            uid: Some(agent.1.into()),
        };
        Self {
            operator: client_of(&accounts, keys::OPERATOR, None).await,
            agent: client_of(&scene.cluster.api(), "default", Some(bound)).await,
            script: client_of(&scene.cluster.api(), "default", None).await,
            person,
        }
    }
}

async fn client_of(accounts: &Api<ServiceAccount>, name: &str, pod: Option<BoundObjectReference>) -> Client {
    let spec = TokenRequestSpec { bound_object_ref: pod, ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let granted =
        accounts.create_token_request(name, &PostParams::default(), &request).await.expect("a token");
    let token = granted.status.expect("a token").token;
    client_with(|_| AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() }).await
}

/// A client that asks as another one than the kubeconfig names.
async fn client_with(other: impl Fn(AuthInfo) -> AuthInfo) -> Client {
    let mut config = Kubeconfig::read_from(server::kubeconfig().await).expect("a kubeconfig");
    for user in &mut config.auth_infos {
        user.auth_info = user.auth_info.take().map(&other);
    }
    let config =
        Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.expect("a config");
    Client::try_from(config).expect("a client")
}

async fn patched<K>(client: &Client, name: &str, patch: Value) -> Result<(), String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug,
{
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let api = Api::<K>::namespaced(client.clone(), NAMESPACE);
    api.patch(name, &params, &Patch::Merge(patch)).await.map(drop).map_err(|error| error.to_string())
}

async fn created<K>(client: &Client, object: Value) -> Result<(), String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + DeserializeOwned
        + Serialize
        + Clone
        + Debug,
{
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let object: K = serde_json::from_value(object).expect("an object of its kind");
    let api = Api::<K>::namespaced(client.clone(), NAMESPACE);
    api.create(&params, &object).await.map(drop).map_err(|error| error.to_string())
}

fn annotated(key: &str, value: impl Into<Value>) -> Value {
    json!({"metadata": {"annotations": {(key): value.into()}}})
}

fn labelled(value: impl Into<Value>) -> Value {
    json!({"metadata": {"labels": {(keys::LABEL_GROUP): value.into()}}})
}

/// A Lease as somebody would put it back from a backup.
fn copy() -> Value {
    json!({"metadata": {"name": "web-2", "labels": {(keys::LABEL_GROUP): GROUP}}, "spec": {"leaseTransitions": 1}})
}

fn shown(uid: &str) -> Value {
    json!({"endpoints": [{"addresses": ["10.9.0.1"], "targetRef": {"kind": "Pod", "name": "web-0", "uid": uid}}]})
}

fn secret(name: &str) -> Value {
    json!({"metadata": {"name": name}, "type": keys::SECRET_TYPE_GROUP_KEYS, "data": {}})
}

/// Asks until the answer is this refusal: policies come into force a moment after they were written.
async fn is_refused(what: &str, why: &str, ask: impl AsyncFn() -> Result<(), String>) {
    let deadline = tokio::time::Instant::now() + IN_FORCE_WITHIN;
    loop {
        let said = ask().await;
        if said.as_ref().is_err_and(|said| said.contains(why)) {
            return;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "{what}: expected a refusal with {why:?}, found {said:?}"
        );
        tokio::time::sleep(TRY_EVERY).await;
    }
}

#[tokio::test]
async fn only_agents_and_the_operator_change_who_acts_and_each_only_what_is_its_own() {
    let scene = Scene::set(NAMESPACE).await;
    apply_policies(&scene.cluster.client).await;
    let mut uids = Vec::new();
    for last in 0..4 {
        uids.push(scene.pod(&format!("web-{last}"), last).await);
    }
    scene.labelled_pod("no-member", (4, json!({"app": "x"}))).await;
    let askers = Askers::of(&scene, ("web-0", &uids[0])).await;
    // What is bound to the namespace counts from here on; these two were made before, or by the operator.
    let make = |number: u32, members: [usize; 2]| {
        let member = |index: usize| json!({"uid": uids[index], "pod": format!("web-{index}"), "address": "10.9.0.1:20001"});
        let name = format!("{GROUP}-{number}");
        json!({"metadata": {"name": name, "labels": {(keys::LABEL_GROUP): GROUP}, "annotations": {
                (keys::ANNOTATION_HA_PAIR): number.to_string(),
                (keys::ANNOTATION_HA_MEMBERS): json!(members.map(member)).to_string(),
                (keys::ANNOTATION_HA_HOLD): "Peer",
                (keys::ANNOTATION_HA_TIMING): "1900/2000/900",
            }},
            "spec": {"leaseTransitions": 3, "holderIdentity": format!("web-{}_{}", members[0], uids[members[0]])}})
    };
    let leases = Api::<Lease>::namespaced(askers.operator.clone(), NAMESPACE);
    for (number, members) in [(0, [0, 1]), (1, [2, 3])] {
        let lease = serde_json::from_value(make(number, members)).expect("a Lease");
        leases.create(&PostParams::default(), &lease).await.expect("the operator may make Leases");
    }
    for (name, members) in [("web-0", [0, 1]), ("web-1", [2, 3])] {
        let shown_by = members.map(|index: usize| uids[index].as_str()).join(",");
        let slice = json!({"metadata": {"name": name, "labels": {(keys::LABEL_GROUP): GROUP},
                "annotations": {(keys::ANNOTATION_HA_SHOWN_BY): shown_by}},
            "addressType": "IPv4", "endpoints": [], "ports": []});
        scene.create::<EndpointSlice>(slice).await;
    }
    refuses_leases(&askers, &uids[2]).await;
    refuses_agents(&askers.agent, &uids[2]).await;
    refuses_others(&askers, (&uids[0], &uids[1])).await;
    refuses_strays(&askers).await;
    keeps_actives(&scene).await;
    permits(&askers, &uids).await;
}

async fn refuses_leases(askers: &Askers, spare: &str) {
    let (by_agents, orders) = ("by its own Pods only", "only orders and its rank may be changed");
    let (labels, made) = ("are the operator's", "made by the operator only");
    let own = "of its own pair only";
    let times = "never change";
    let members = annotated(keys::ANNOTATION_HA_MEMBERS, format!(r#"[{{"uid":"{spare}"}}]"#));
    let holder = json!({"spec": {"holderIdentity": null}});
    let term = json!({"spec": {"leaseTransitions": 2}});
    let table = [
        ("a person releases it", &askers.person, "web-0", holder.clone(), by_agents),
        ("a script releases it", &askers.script, "web-0", holder, by_agents),
        ("a person takes the term back", &askers.person, "web-0", term.clone(), by_agents),
        ("an agent takes the term back", &askers.agent, "web-0", term, "never goes back"),
        ("a person makes a spare a member", &askers.person, "web-0", members, orders),
        (
            "a person changes the hold",
            &askers.person,
            "web-0",
            annotated(keys::ANNOTATION_HA_HOLD, "Api"),
            orders,
        ),
        (
            "a person removes the hold",
            &askers.person,
            "web-0",
            annotated(keys::ANNOTATION_HA_HOLD, Value::Null),
            orders,
        ),
        (
            "a person ends the pair",
            &askers.person,
            "web-0",
            annotated(keys::ANNOTATION_HA_ENDING, "true"),
            orders,
        ),
        ("a person hides it", &askers.person, "web-0", labelled(Value::Null), labels),
        ("an agent hides it", &askers.agent, "web-0", labelled(Value::Null), labels),
        ("an agent writes another pair's", &askers.agent, "web-1", annotated("example.com/x", "y"), own),
        (
            "the operator changes the times",
            &askers.operator,
            "web-0",
            annotated(keys::ANNOTATION_HA_TIMING, "1/2/3"),
            times,
        ),
    ];
    for (what, asker, name, patch, why) in table {
        is_refused(what, why, async || patched::<Lease>(asker, name, patch.clone()).await).await;
    }
    for asker in [&askers.person, &askers.script, &askers.agent] {
        is_refused("one from a backup", made, async || created::<Lease>(asker, copy()).await).await;
    }
}

/// What an agent may not do to the Lease of its own pair.
async fn refuses_agents(agent: &Client, uid: &str) {
    let (members, operators) = ("the operator's to say", "are the operator's");
    let spare = format!(r#"{{"uid":"{uid}"}}"#);
    let pending = format!(r#"{{"joining":{spare}}}"#);
    // Forms of a uid in which the policy would not find it.
    let (all_but_last, last) = uid.split_at(uid.len() - 1);
    let escaped = format!(r#"{{"uid":"{all_but_last}\u{:04x}"}}"#, last.as_bytes()[0]);
    let shouted = spare.to_uppercase();
    let table = [
        ("makes a spare a member", annotated(keys::ANNOTATION_HA_MEMBERS, format!("[{spare}]")), members),
        ("escapes a letter", annotated(keys::ANNOTATION_HA_MEMBERS, format!("[{escaped}]")), members),
        ("writes in capitals", annotated(keys::ANNOTATION_HA_MEMBERS, format!("[{shouted}]")), members),
        ("asks for a spare", annotated(keys::ANNOTATION_HA_PENDING, pending), members),
        ("leaps over terms", json!({"spec": {"leaseTransitions": 5}}), "grows by one"),
        ("gives it another number", annotated(keys::ANNOTATION_HA_PAIR, "7"), operators),
        ("ends the pair", annotated(keys::ANNOTATION_HA_ENDING, "true"), operators),
    ];
    for (what, patch, why) in table {
        is_refused(what, why, async || patched::<Lease>(agent, "web-0", patch.clone()).await).await;
    }
}

async fn refuses_others(askers: &Askers, (own, other): (&str, &str)) {
    let address = "its own address only";
    is_refused("another Pod's address", address, async || {
        patched::<EndpointSlice>(&askers.agent, "web-0", shown(other)).await
    })
    .await;
    is_refused("the slice of another pair", "its own pair only", async || {
        patched::<EndpointSlice>(&askers.agent, "web-1", shown(own)).await
    })
    .await;
    is_refused("an agent names who may be shown", "is the operator's to say", async || {
        let mut naming = shown(own);
        naming["metadata"] =
            annotated(keys::ANNOTATION_HA_SHOWN_BY, format!("{own},somebody"))["metadata"].take();
        patched::<EndpointSlice>(&askers.agent, "web-0", naming).await
    })
    .await;
    is_refused("an agent empties a slice", address, async || {
        patched::<EndpointSlice>(&askers.agent, "web-0", json!({"endpoints": []})).await
    })
    .await;
    let several = "one address, and the ports";
    is_refused("an agent shows two addresses", several, async || {
        let mut two = shown(own);
        two["endpoints"][0]["addresses"] = json!(["10.9.0.1", "10.9.0.2"]);
        patched::<EndpointSlice>(&askers.agent, "web-0", two).await
    })
    .await;
    is_refused("an agent shows another port", several, async || {
        let mut other = shown(own);
        other["ports"] = json!([{"port": 22}]);
        patched::<EndpointSlice>(&askers.agent, "web-0", other).await
    })
    .await;
    is_refused("an agent hides a slice", "are the operator's", async || {
        let mut hidden = shown(own);
        hidden["metadata"] = labelled(Value::Null)["metadata"].take();
        patched::<EndpointSlice>(&askers.agent, "web-0", hidden).await
    })
    .await;
    let outside = "bound to no Pod";
    let emptied = json!({"endpoints": []});
    let ported = json!({"ports": [{"port": 22}]});
    for (what, patch) in [("any address", shown(other)), ("no address", emptied), ("another port", ported)] {
        is_refused(&format!("a script writes {what}"), outside, async || {
            patched::<EndpointSlice>(&askers.script, "web-0", patch.clone()).await
        })
        .await;
    }
    for patch in [labelled(Value::Null), annotated(keys::ANNOTATION_HA_SHOWN_BY, other)] {
        is_refused("a script takes a slice for itself", "are the operator's", async || {
            patched::<EndpointSlice>(&askers.script, "web-0", patch.clone()).await
        })
        .await;
    }
    is_refused("a Secret of somebody", "the Secrets of groups, and its own, only", async || {
        created::<Secret>(&askers.operator, secret("database")).await
    })
    .await;
}

/// A Pod that acts would else be one that nobody leads clients to.
async fn refuses_strays(askers: &Askers) {
    let table = [
        ("a person takes a Pod out of its group", &askers.person, labelled(Value::Null)),
        ("a person removes all labels", &askers.person, json!({"metadata": {"labels": null}})),
        ("a script moves it to another group", &askers.script, labelled("other")),
        ("its agent leaves the group", &askers.agent, labelled(Value::Null)),
        ("the operator takes a Pod out of its group", &askers.operator, labelled(Value::Null)),
    ];
    for (what, asker, patch) in table {
        is_refused(what, "stays in its group", async || patched::<Pod>(asker, "web-0", patch.clone()).await)
            .await;
    }
    // A write of the status may change labels, too.
    let pods = Api::<Pod>::namespaced(askers.person.clone(), NAMESPACE);
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = Patch::Merge(labelled(Value::Null));
    let said = pods.patch_status("web-0", &params, &patch).await.map(drop).map_err(|error| error.to_string());
    assert!(said.as_ref().is_err_and(|said| said.contains("stays in its group")), "{said:?}");
}

/// A rollout does not ask whether anybody could follow.
async fn keeps_actives(scene: &Scene) {
    let kept = Patch::Merge(annotated(keys::ANNOTATION_HA_KEPT, "true"));
    let pods = scene.cluster.api::<Pod>();
    pods.patch("web-0", &PatchParams::default(), &kept).await.expect("an annotated Pod");
    let deleted = async |by: &str, name: &str| {
        let by = format!("system:serviceaccount:kube-system:{by}");
        let client = client_with(|user| AuthInfo { impersonate: Some(by.clone()), ..user }).await;
        let params = DeleteParams { dry_run: true, ..DeleteParams::default() };
        let pods = Api::<Pod>::namespaced(client, NAMESPACE);
        pods.delete(name, &params).await.map(drop).map_err(|error| error.to_string())
    };
    for controller in ["statefulset-controller", "replicaset-controller", "daemon-set-controller"] {
        let why = "wait until the standby is ready";
        is_refused(controller, why, async || deleted(controller, "web-0").await).await;
        assert_eq!(deleted(controller, "web-1").await, Ok(()), "{controller} deletes others");
        assert_eq!(deleted(controller, "no-member").await, Ok(()));
    }
    for other in ["generic-garbage-collector", "namespace-controller", "pod-garbage-collector"] {
        assert_eq!(deleted(other, "web-0").await, Ok(()), "{other}");
    }
}

/// Asked last: the policies are in force then.
async fn permits(askers: &Askers, uids: &[String]) {
    let unchanged = json!({"spec": {"leaseTransitions": 3}});
    let table = [
        ("an agent claims", &askers.agent, json!({"spec": {"leaseTransitions": 4, "holderIdentity": null}})),
        ("a person orders a switchover", &askers.person, annotated(keys::ANNOTATION_HA_SWITCH_OVER, "12")),
        ("a person fences", &askers.person, annotated(keys::ANNOTATION_HA_FENCED, uids[0].as_str())),
        ("a person ranks", &askers.person, annotated(keys::ANNOTATION_RANK, "-1")),
        ("a person decides for a copy", &askers.person, annotated(keys::ANNOTATION_HA_IN_SYNC, Value::Null)),
        ("a person notes something", &askers.person, annotated("example.com/note", "mine")),
        ("a script writes what is there", &askers.script, unchanged),
        ("the garbage collector orphans it", &askers.person, json!({"metadata": {"ownerReferences": null}})),
        ("the operator moves a member", &askers.operator, annotated(keys::ANNOTATION_HA_MEMBERS, "[]")),
    ];
    for (what, asker, patch) in table {
        assert_eq!(patched::<Lease>(asker, "web-0", patch).await, Ok(()), "{what}");
    }
    let label = json!({"metadata": {"labels": {"example.com/note": "mine"}}});
    assert_eq!(patched::<Pod>(&askers.person, "web-0", label).await, Ok(()));
    assert_eq!(patched::<Pod>(&askers.person, "no-member", labelled(GROUP)).await, Ok(()));
    assert_eq!(created::<Lease>(&askers.operator, copy()).await, Ok(()));
    assert_eq!(patched::<EndpointSlice>(&askers.agent, "web-0", shown(&uids[0])).await, Ok(()));
    let note = annotated("example.com/note", "mine");
    assert_eq!(patched::<EndpointSlice>(&askers.script, "web-0", note).await, Ok(()));
    assert_eq!(patched::<EndpointSlice>(&askers.person, "web-0", json!({"endpoints": []})).await, Ok(()));
    assert_eq!(created::<Secret>(&askers.operator, secret("web-ha-keys")).await, Ok(()));
    let foreign =
        json!({"metadata": {"name": "other", "labels": {"app": "x"}}, "spec": {"leaseTransitions": 1}});
    assert_eq!(created::<Lease>(&askers.person, foreign).await, Ok(()));
}
