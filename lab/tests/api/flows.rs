//! In which priority level a real API server handles what a failover waits for.
//!
//! Applies `deploy/base/flowcontrol.yaml`.

use std::time::Duration;

use bps_api::keys;
use http::{Method, Request, Response};
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use kube::api::Api;
use kube::client::Body;
use kube::{Client, ResourceExt as _};

use crate::rbac::apply;
use crate::server;

/// Longest time until the API server sorts requests by a new schema, and the pause between two questions.
const SORTED_WITHIN: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(100);
/// How an answer names the schema that its request was sorted by.
const FLOW_SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/web-0";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web-0";

/// The uid of the schema that a request of this user is sorted by, whatever becomes of it.
async fn schema_of(client: &Client, user: &str, method: &Method, path: &str) -> String {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("impersonate-user", user)
        .header("impersonate-group", "system:serviceaccounts")
        .header("impersonate-group", "system:authenticated")
        .header("content-type", "application/merge-patch+json")
        .body(Body::from(b"{}".to_vec()))
        .expect("a request");
    let answer: Response<Body> = client.send(request).await.expect("an answer");
    answer.headers()[FLOW_SCHEMA].to_str().expect("text").to_owned()
}

#[tokio::test]
async fn agents_and_operator_do_not_queue_with_all_others() {
    let client = &server::client().await;
    apply(client, "../deploy/base/flowcontrol.yaml").await;
    let schemas = Api::<FlowSchema>::all(client.clone());
    let uid = async |name: &str| schemas.get(name).await.expect("a schema").uid().expect("a uid");
    let (agents, operators) = (uid("backuppodset-agents").await, uid("backuppodset-failover").await);
    let operator = format!("system:serviceaccount:{}:{}", keys::OPERATOR_NAMESPACE, keys::OPERATOR);
    let agent = "system:serviceaccount:default:web";
    let expected = [
        (agent, (Method::PATCH, LEASES), Some(&agents)),
        (agent, (Method::GET, LEASES), Some(&agents)),
        (agent, (Method::PATCH, SLICES), Some(&agents)),
        (&operator, (Method::PATCH, SLICES), Some(&operators)),
        (agent, (Method::GET, "/api/v1/namespaces/default/pods"), None),
        (agent, (Method::PUT, LEASES), None),
    ];
    for (user, (method, path), schema) in expected {
        let is_right = async || {
            let found = schema_of(client, user, &method, path).await;
            schema.map_or(found != agents && found != operators, |schema| found == *schema)
        };
        let sorted = async {
            while !is_right().await {
                tokio::time::sleep(ASK_EVERY).await;
            }
        };
        let in_time = tokio::time::timeout(SORTED_WITHIN, sorted).await;
        assert!(in_time.is_ok(), "{method} {path} of {user}");
    }
}
