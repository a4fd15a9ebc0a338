//! A real API server grants the operator what the RBAC table says, and nothing beside it.
//!
//! Applies `deploy/base/namespace.yaml` and `rbac.yaml`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use bps_api::keys;
use bps_core::rbac::{RULES, Scope};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams, TypeMeta};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};

use crate::server;

/// A namespace that only needs a name here.
const WATCHED: &str = "default";
/// Longest time until the authorizer has seen new roles, and the pause between two questions.
const SEEN_WITHIN: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_millis(50);
const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// One permission that the authorizer is asked about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Permission {
    pub(crate) namespace: &'static str,
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) name: &'static str,
    pub(crate) verb: &'static str,
}

/// Everything that the table grants, one request each.
fn granted() -> BTreeSet<Permission> {
    let mut requests = BTreeSet::new();
    for rule in RULES {
        let namespace = match rule.scope {
            Scope::Watched => WATCHED,
            Scope::Cluster => "",
            Scope::Operator => keys::OPERATOR_NAMESPACE,
        };
        for resource in rule.resources {
            for verb in rule.verbs {
                let request = |name| Permission { namespace, group: rule.group, resource, name, verb };
                match rule.names {
                    [] => requests.insert(request("")),
                    names => names.iter().fold(false, |_, name| requests.insert(request(name))),
                };
            }
        }
    }
    requests
}

/// What the table leaves out: other verbs on the same objects, and the operator's own objects elsewhere.
fn withheld() -> BTreeSet<Permission> {
    let granted = granted();
    let variants = |request: &Permission| {
        let request = request.clone();
        VERBS.into_iter().flat_map(move |verb| {
            let other_verb = Permission { verb, ..request.clone() };
            let elsewhere = Permission { namespace: "kube-system", ..other_verb.clone() };
            if request.namespace == keys::OPERATOR_NAMESPACE {
                vec![other_verb, elsewhere]
            } else {
                vec![other_verb]
            }
        })
    };
    // What is granted without a name covers every name, and what is granted in all namespaces every namespace.
    let is_granted = |request: &Permission| {
        let any_name = Permission { name: "", ..request.clone() };
        let anywhere = Permission { namespace: WATCHED, ..any_name.clone() };
        [request, &any_name, &anywhere].into_iter().any(|request| granted.contains(request))
    };
    granted.iter().flat_map(variants).filter(|request| !is_granted(request)).collect()
}

/// Asks about a ServiceAccount in the operator's namespace.
async fn is_allowed(client: &Client, account: &str, request: &Permission) -> bool {
    let (resource, subresource) = request.resource.split_once('/').unwrap_or((request.resource, ""));
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let attributes = ResourceAttributes {
        namespace: text(request.namespace),
        group: text(request.group),
        resource: text(resource),
        subresource: text(subresource),
        name: text(request.name),
        verb: text(request.verb),
        ..ResourceAttributes::default()
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{}:{account}", keys::OPERATOR_NAMESPACE)),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let answer =
        Api::<SubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review).await;
    answer.expect("an answer").status.expect("a verdict").allowed
}

async fn differing(
    client: &Client,
    account: &str,
    requests: &BTreeSet<Permission>,
    expected: bool,
) -> Vec<Permission> {
    let mut differing = Vec::new();
    for request in requests {
        if is_allowed(client, account, request).await != expected {
            differing.push(request.clone());
        }
    }
    differing
}

/// Asserts that a ServiceAccount in the operator's namespace has one set of permissions and lacks another, once the
/// authorizer has seen its roles.
pub(crate) async fn assert_permissions(
    client: &Client,
    account: &str,
    granted: &BTreeSet<Permission>,
    withheld: &BTreeSet<Permission>,
) {
    let all_granted = async {
        while !differing(client, account, granted, true).await.is_empty() {
            tokio::time::sleep(ASK_EVERY).await;
        }
    };
    let in_time = tokio::time::timeout(SEEN_WITHIN, all_granted).await.is_ok();
    assert!(in_time, "refused: {:#?}", differing(client, account, granted, true).await);
    assert_eq!(differing(client, account, withheld, false).await, Vec::new());
}

/// Applies the manifests of a file; `path` is relative to the package of the lab.
pub(crate) async fn apply(client: &Client, path: &str) {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a file");
    for object in serde_saphyr::from_multiple::<DynamicObject>(&text).expect("YAML") {
        let types: TypeMeta = object.types.clone().expect("a kind");
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types).expect("a kind"));
        let api = match object.namespace() {
            Some(namespace) => Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let params = PatchParams::apply("api-test").force();
        api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await.expect("an accepted manifest");
    }
}

#[tokio::test]
async fn the_operator_may_do_what_the_table_says_and_nothing_else() {
    let client = server::client().await;
    apply(&client, "../deploy/base/namespace.yaml").await;
    apply(&client, "../deploy/base/rbac.yaml").await;
    assert!(withheld().len() > 50);
    assert_permissions(&client, keys::OPERATOR, &granted(), &withheld()).await;
}
