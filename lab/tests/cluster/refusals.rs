//! Claims about what the cluster or the user does not want.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use lab::image::NGINX_IMAGE;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::stage::{PORT, Stage, WEB, exposed_web, one, roles, uids, web};

/// Pause before a Pod that admission refused is sent again.
const ADMISSION_PAUSE: Duration = Duration::from_millis(50);

async fn allow_pods(stage: &Stage, count: usize) {
    let quotas: Api<ResourceQuota> = stage.api();
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
        "spec": {"hard": {"pods": count.to_string()}},
    });
    quotas.patch("few", &PatchParams::apply("claims").force(), &Patch::Apply(quota)).await.unwrap();
    crate::wait::until(quotas, "", |quotas| {
        let hard = quotas.first().and_then(|quota| quota.status.as_ref()?.hard.clone()).unwrap_or_default();
        let is_known = hard.get("pods").is_some_and(|known| known.0 == count.to_string());
        if is_known { Ok(()) } else { Err("the quota is not counted yet".into()) }
    })
    .await;
}

pub(crate) async fn a_quota_is_reported_and_the_set_recovers_when_it_is_lifted(stage: Stage) {
    allow_pods(&stage, 2).await;
    stage.apply(&web([1, 1, 1])).await;
    let message = stage.condition(WEB, ("Degraded", "QuotaExceeded")).await;
    assert!(message.contains("exceeded quota"), "{message}");
    allow_pods(&stage, 10).await;
    stage.settled(WEB, [1, 1, 1]).await;
}

pub(crate) async fn a_field_that_the_cluster_does_not_know_is_reported_and_not_dropped(stage: Stage) {
    let mut set = web([1, 0, 0]);
    set["spec"]["template"]["spec"]["containers"][0]["fieldOfTomorrow"] = json!(true);
    stage.apply(&set).await;
    let message = stage.condition(WEB, ("Degraded", "Invalid")).await;
    assert!(message.contains("unknown field \"spec.containers[0].fieldOfTomorrow\""), "{message}");
    stage.apply(&web([1, 0, 0])).await;
    stage.settled(WEB, [1, 0, 0]).await;
}

pub(crate) async fn a_namespace_with_restricted_pod_security_admits_every_pod(stage: Stage) {
    stage.kubectl(&["label", "namespace", &stage.namespace, "pod-security.kubernetes.io/enforce=restricted"]);
    stage.apply(&restricted()).await;
    let before = stage.settled(WEB, [1, 1, 1]).await;
    // So that every way of making a Pod is taken: a cold one is woken and a new cold one made.
    stage.delete(one(&before, "primary")).await;
    stage.settled(WEB, [1, 1, 1]).await;
}

/// Two containers with different images, so that the cold Pod also has a container that only pulls.
fn restricted() -> Value {
    let confined = json!({
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    let mut set = web([1, 1, 1]);
    let pod = &mut set["spec"]["template"]["spec"];
    pod["containers"][0]["securityContext"] = confined.clone();
    let mut second = pod["containers"][0].clone();
    second["name"] = json!("second");
    second["image"] = json!(NGINX_IMAGE);
    second["args"] = json!(["--port", "8081"]);
    second["ports"] = json!([{"containerPort": 8081}]);
    second["readinessProbe"]["httpGet"]["port"] = json!(8081);
    second["securityContext"]["runAsUser"] = json!(65532);
    pod["containers"].as_array_mut().unwrap().push(second);
    assert_ne!(PORT, 8081);
    set
}

pub(crate) async fn a_set_that_comes_no_closer_is_stalled_until_it_does(stage: Stage) {
    let waited = |condition: &str| {
        stage.kubectl(&["wait", "--timeout=60s", &format!("--for=condition={condition}"), "bps/web"])
    };
    allow_pods(&stage, 1).await;
    let mut set = web([1, 1, 0]);
    set["spec"]["progressDeadlineSeconds"] = json!(5);
    stage.apply(&set).await;
    waited("Stalled");
    let message = stage.condition(WEB, ("Stalled", "ProgressDeadlineExceeded")).await;
    assert!(message.contains("progressDeadlineSeconds (5 s)"), "{message}");
    waited("Available");
    allow_pods(&stage, 10).await;
    stage.settled(WEB, [1, 1, 0]).await;
    waited("Ready");
    waited("Stalled=false");
}

pub(crate) async fn a_paused_set_is_not_touched(stage: Stage) {
    stage.apply(&web([1, 1, 0])).await;
    let before = stage.settled(WEB, [1, 1, 0]).await;
    stage.change(json!({"paused": true})).await;
    stage.condition(WEB, ("Paused", "Paused")).await;
    stage.delete(one(&before, "primary")).await;
    // The report says that the loss was seen; nothing else may have been written by then.
    stage
        .reports(WEB, |set| {
            let status = set.status.clone().unwrap_or_default();
            let is_seen = status.replicas == 0 && status.state == "Paused";
            if is_seen { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await;
    let hot = roles(&[one(&before, "hot").clone()]);
    let found = stage.pods_where(WEB, |_| Ok(())).await;
    assert_eq!(roles(&found), hot);
    stage.change(json!({"paused": false})).await;
    stage.settled(WEB, [1, 1, 0]).await;
}

pub(crate) async fn a_paused_set_leads_no_client_to_a_pod_that_is_gone(stage: Stage) {
    stage.apply(&exposed_web([2, 1, 0])).await;
    let before = stage.settled(WEB, [2, 1, 0]).await;
    let primaries = uids(&before, "primary");
    stage.exposes(&primaries).await;
    stage.change(json!({"paused": true})).await;
    stage.condition(WEB, ("Paused", "Paused")).await;
    let gone = one(&before, "primary");
    stage.delete(gone).await;
    let left = primaries.into_iter().filter(|uid| Some(uid) != gone.uid().as_ref()).collect();
    stage.exposes(&left).await;
    // What is not about its addresses waits.
    let found = stage.pods_where(WEB, |_| Ok(())).await;
    assert_eq!((uids(&found, "primary"), uids(&found, "hot")), (left, uids(&before, "hot")));
    stage.change(json!({"paused": false})).await;
    stage.settled(WEB, [2, 1, 0]).await;
}

pub(crate) async fn a_wrong_edit_keeps_no_backup_from_taking_over(stage: Stage) {
    let ports =
        |target: &str| json!({"service": {"ports": [{"name": "http", "port": 80, "targetPort": target}]}});
    stage.apply(&exposed_web([1, 1, 0])).await;
    let before = stage.settled(WEB, [1, 1, 0]).await;
    stage.change(ports("htpp")).await;
    let message = stage.condition(WEB, ("Degraded", "InvalidSpec")).await;
    assert!(message.contains("\"htpp\" is not the name of a container port"), "{message}");
    stage.delete(one(&before, "primary")).await;
    // Promotion, addresses and refill are of the specification before it.
    let successor = uids(&before, "hot");
    let after = stage.pods(WEB, [1, 1, 0]).await;
    assert_eq!(uids(&after, "primary"), successor);
    stage.exposes(&successor).await;
    stage.change(ports("http")).await;
    stage.settled(WEB, [1, 1, 0]).await;
}

/// Most Pods that a set of three makes before its status says that its kubelets reject them, twice over.
const REJECTED_PODS_MAX: usize = 10;

pub(crate) async fn pods_that_their_kubelet_rejects_are_made_again_later_and_later(stage: Stage) {
    let mut set = web([1, 1, 1]);
    set["spec"]["template"]["spec"]["securityContext"] =
        json!({"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]});
    stage.apply(&set).await;
    let message = stage.condition(WEB, ("Degraded", "BackingOff")).await;
    assert!(message.contains("SysctlForbidden"), "{message}");
    let made = stage.kubectl(&["get", "events", "-o", "jsonpath={range .items[*]}{.action}{\"\\n\"}{end}"]);
    let made = made.lines().filter(|action| action.starts_with("create ")).count();
    assert!(made <= REJECTED_PODS_MAX, "{made} Pods");
    stage.change(json!({"template": {"spec": {"securityContext": null}}})).await;
    stage.settled(WEB, [1, 1, 1]).await;
}

/// Admission learns from a cache of its own that a quota is gone, and no object shows when: so it is asked again.
async fn create_once_admitted(pods: &Api<Pod>, pod: &Pod) -> Pod {
    let admitted = async {
        loop {
            match pods.create(&PostParams::default(), pod).await {
                Err(kube::Error::Api(status)) if status.is_forbidden() => sleep(ADMISSION_PAUSE).await,
                created => return created.unwrap(),
            }
        }
    };
    timeout(crate::wait::LIMIT, admitted).await.expect("the quota is gone for admission, too")
}

pub(crate) async fn a_taken_name_does_not_stop_the_set(stage: Stage) {
    // A refusal names the Pod that would be made.
    allow_pods(&stage, 0).await;
    stage.apply(&web([1, 0, 0])).await;
    let message = stage.condition(WEB, ("Degraded", "QuotaExceeded")).await;
    let name =
        message.split(|sign: char| sign.is_whitespace() || sign == ':').find(|word| word.starts_with("web-"));
    let name = name.unwrap_or_else(|| panic!("no name in {message:?}")).to_owned();
    // Nothing is wanted while the name is taken, so nobody is quicker.
    stage.scale([0, 0, 0]).await;
    stage.settled(WEB, [0, 0, 0]).await;
    let quotas: Api<ResourceQuota> = stage.api();
    quotas.delete("few", &kube::api::DeleteParams::default()).await.unwrap();
    let pods: Api<Pod> = stage.api();
    let foreign: Pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "foreign", "image": NGINX_IMAGE}], "terminationGracePeriodSeconds": 0},
    }))
    .unwrap();
    let created = create_once_admitted(&pods, &foreign).await;
    stage.scale([1, 0, 0]).await;
    let found = stage.settled(WEB, [1, 0, 0]).await;
    assert_ne!(found[0].name_any(), name);
    assert_eq!(pods.get(&name).await.unwrap().uid(), created.uid());
}
