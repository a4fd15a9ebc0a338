//! What a person may do who has Kubernetes' own roles `view` and `edit`.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::scene::Scene;

/// Longest time until the aggregated roles and the authorizer have seen new rules, and the pause between two questions.
const SEEN_WITHIN: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(100);

/// What is read by status, history and plan, but for Leases.
const READ: [(&str, &str); 4] = [
    ("backup.example.com", "hagroups"),
    ("backup.example.com", "backuppodsets"),
    ("discovery.k8s.io", "endpointslices"),
    ("", "pods"),
];

/// What is written by pause, resume, switchover and fence.
const WRITTEN: [(&str, &str); 3] =
    [("backup.example.com", "hagroups"), ("backup.example.com", "backuppodsets"), LEASES];

/// Of pairs and of everything else: Kubernetes' own role `view` does not read them.
const LEASES: (&str, &str) = ("coordination.k8s.io", "leases");

/// Users, each with the roles that are bound to it.
const BOUND: [(&str, &[&str]); 3] =
    [("view", &["view"]), ("edit", &["edit"]), ("pairs", &["view", "backuppodsets-pair-viewer"])];

async fn is_allowed(client: &Client, attributes: Value, user: &str) -> bool {
    let review = json!({"metadata": {}, "spec": {"user": user, "resourceAttributes": attributes}});
    let review: SubjectAccessReview = serde_json::from_value(review).expect("a review");
    let answer =
        Api::<SubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review).await;
    answer.expect("an answer").status.expect("a verdict").allowed
}

async fn apply_roles(client: &Client) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/base/user-roles.yaml");
    let text = std::fs::read_to_string(path).expect("a file");
    let api = Api::<ClusterRole>::all(client.clone());
    for role in serde_saphyr::from_multiple::<DynamicObject>(&text).expect("YAML") {
        let params = PatchParams::apply("plugin-test").force();
        api.patch(&role.name_any(), &params, &Patch::Apply(&role)).await.expect("an accepted role");
    }
}

#[tokio::test]
async fn who_may_view_sees_all_but_leases_and_who_may_edit_orders_all() {
    let scene = Scene::set("plugin-roles").await;
    let (client, namespace) = (&scene.cluster.client, scene.cluster.namespace.as_str());
    apply_roles(client).await;
    for (user, role) in BOUND.iter().flat_map(|(user, roles)| roles.iter().map(move |role| (user, role))) {
        scene
            .create::<RoleBinding>(json!({
                "metadata": {"name": format!("{user}-{role}")},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
            }))
            .await;
    }
    let ask = async |user: &str, (group, resource): (&str, &str), verb: &str| {
        let attributes = json!({"namespace": namespace, "group": group, "resource": resource, "verb": verb});
        is_allowed(client, attributes, user).await
    };
    let refused = async || {
        let mut refused = Vec::new();
        for (user, _) in BOUND {
            for (kind, verb) in READ.iter().flat_map(|kind| [(kind, "get"), (kind, "list")]) {
                if !ask(user, *kind, verb).await {
                    refused.push((user, *kind, verb));
                }
            }
        }
        for kind in WRITTEN {
            if !ask("edit", kind, "patch").await {
                refused.push(("edit", kind, "patch"));
            }
        }
        for user in ["edit", "pairs"] {
            if !ask(user, LEASES, "list").await {
                refused.push((user, LEASES, "list"));
            }
        }
        refused
    };
    let all_granted = async {
        while !refused().await.is_empty() {
            tokio::time::sleep(ASK_EVERY).await;
        }
    };
    let in_time = tokio::time::timeout(SEEN_WITHIN, all_granted).await.is_ok();
    assert!(in_time, "refused: {:?}", refused().await);
    for kind in WRITTEN {
        assert!(!ask("view", kind, "patch").await, "{kind:?}");
    }
    assert!(!ask("view", LEASES, "list").await, "they tell more than who acts in pairs");
    assert!(!ask("pairs", LEASES, "patch").await);
}
