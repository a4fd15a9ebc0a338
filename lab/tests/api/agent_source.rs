//! What the API server says about Pods and sets of each way in which the agent comes.
//!
//! Uses one namespace of its own, in which restricted Pod security is enforced.

use bps_core::manifests::{AgentSource, Injection, inject};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, ValidationDirective};
use serde_json::{Value, json};

use crate::{crd, server};

const NAMESPACE: &str = "agent-source-test";

fn params() -> PatchParams {
    PatchParams::apply("api-test").force()
}

/// A Pod that restricted Pod security admits.
fn pod() -> Value {
    let confined = json!({
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    let container =
        json!({"name": "web", "image": "web:1", "command": ["/web"], "securityContext": confined});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [container]},
    })
}

/// What the server would keep of a Pod.
async fn admitted(client: &Client, pod: &Value) -> Result<Pod, String> {
    let strict =
        PatchParams { dry_run: true, field_validation: Some(ValidationDirective::Strict), ..params() };
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    pods.patch("web", &strict, &Patch::Apply(pod)).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn restricted_pod_security_admits_each_way_in_which_the_agent_comes() {
    let client = server::client().await;
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}});
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.patch(NAMESPACE, &params(), &Patch::Apply(namespace)).await.expect("a namespace");
    // A Pod is refused without it, and the controller that makes it may not have been there yet.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), NAMESPACE);
    accounts.patch("default", &params(), &Patch::Apply(account)).await.expect("a ServiceAccount");

    let mut on_host = pod();
    on_host["spec"]["volumes"] = json!([{"name": "root", "hostPath": {"path": "/"}}]);
    let refused = admitted(&client, &on_host).await.expect_err("the level is enforced");
    assert!(refused.contains("restricted volume types"), "{refused}");

    let image = || "bps-agent:1".to_owned();
    for (source, mounted) in [
        (AgentSource::Copy { image: image() }, None),
        (AgentSource::ImageVolume { image: image() }, Some(image())),
        (AgentSource::Image { path: "/bps-agent".into() }, None),
    ] {
        let injection = Injection {
            group: "web".into(),
            source,
            container: None,
            image_command: None,
            arguments: Vec::new(),
        };
        let pod = inject(&pod(), &injection).expect("it can run an agent");
        let kept = admitted(&client, &pod).await.expect("it is admitted").spec.expect("a spec");
        let reference = kept.volumes.into_iter().flatten().find_map(|volume| volume.image?.reference);
        assert_eq!(reference, mounted, "{injection:?}");
    }
}

#[tokio::test]
async fn a_set_may_name_each_way_in_which_the_agent_comes() {
    let client = crd::cluster().await;
    let container = json!({"name": "web", "image": "web:1", "command": ["/web"]});
    for active_standby in [
        json!({"agentSource": "Copy"}),
        json!({"agentSource": "ImageVolume"}),
        json!({"agentSource": "Image"}),
        json!({"agentSource": "Image", "agentPath": "/opt/bps-agent"}),
    ] {
        let set = json!({
            "apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet", "metadata": {"name": "web"},
            "spec": {"template": {"spec": {"containers": [container]}}, "activeStandby": active_standby},
        });
        assert_eq!(crd::dry_run(&client, &set).await, Ok(()), "{active_standby}");
    }
}
