//! Claims about people who change or remove what the operator keeps.

use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::stage::{PORT, Stage, WEB, complete, exposed, exposed_web, one, roles, uids, web};
use crate::wait::{self, role};

pub(crate) async fn a_removed_service_and_emptied_addresses_are_restored(stage: Stage) {
    stage.apply(&exposed_web([2, 0, 0])).await;
    let pods = stage.settled(WEB, [2, 0, 0]).await;
    let primaries = uids(&pods, "primary");
    stage.exposes(&primaries).await;
    let slices: Api<EndpointSlice> = stage.api();
    let labels = ListParams::default().labels("kubernetes.io/service-name=web");
    let slice = slices.list(&labels).await.unwrap().items.remove(0);
    let emptied = Patch::Merge(json!({"endpoints": []}));
    slices.patch(&slice.name_any(), &PatchParams::default(), &emptied).await.unwrap();
    stage.exposes(&primaries).await;
    let services: Api<Service> = stage.api();
    let removed = services.get(WEB).await.unwrap().uid();
    services.delete(WEB, &DeleteParams::default()).await.unwrap();
    wait::until(services, "", |services| {
        let is_new = services.iter().any(|one| one.name_any() == WEB && one.uid() != removed);
        if is_new { Ok(()) } else { Err("there is no new Service".into()) }
    })
    .await;
    stage.exposes(&primaries).await;
    stage.settled(WEB, [2, 0, 0]).await;
}

pub(crate) async fn a_renamed_service_takes_the_place_of_the_former_one(stage: Stage) {
    stage.apply(&exposed_web([1, 0, 0])).await;
    let primaries = uids(&stage.settled(WEB, [1, 0, 0]).await, "primary");
    stage.exposes(&primaries).await;
    stage.change(json!({"service": {"name": "front"}})).await;
    let api: Api<EndpointSlice> = stage.api();
    wait::until(api, "backup.example.com/set=web", |slices| {
        let names: Vec<String> = slices.iter().map(ResourceExt::name_any).collect();
        if names == ["front-bps"] && exposed(slices) == primaries {
            Ok(())
        } else {
            Err(format!("{names:?}"))
        }
    })
    .await;
    wait::until(stage.api(), "backup.example.com/set=web", |services: &[Service]| {
        let names: Vec<String> = services.iter().map(ResourceExt::name_any).collect();
        if names == ["front"] { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
    stage.change(json!({"service": null})).await;
    wait::until(stage.api(), "backup.example.com/set=web", |services: &[Service]| {
        if services.is_empty() { Ok(()) } else { Err("the Service is still there".into()) }
    })
    .await;
}

pub(crate) async fn a_service_says_what_load_balancers_read_and_takes_it_back(stage: Stage) {
    let mut set = exposed_web([1, 0, 0]);
    let plain = set["spec"]["service"].clone();
    let options = json!({
        "type": "LoadBalancer", "annotations": {"lb.example.com/kind": "inner"}, "labels": {"team": "shop"},
        "loadBalancerClass": "example.com/inner", "loadBalancerSourceRanges": ["198.18.0.0/15"],
        "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local", "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}, "trafficDistribution": "PreferSameNode",
    });
    set["spec"]["service"].as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    stage.apply(&set).await;
    // Ready says that the Service counts as wanted with all that the API server has added to it.
    stage.settled(WEB, [1, 0, 0]).await;
    stage.condition(WEB, ("Ready", "AsWanted")).await;
    stage.kubectl(&["annotate", "service", WEB, "lb.example.com/id=7"]);
    let fields =
        ["externalTrafficPolicy", "internalTrafficPolicy", "sessionAffinity", "loadBalancerSourceRanges"];
    let seen = |service: &Service| {
        let body = serde_json::to_value(service).unwrap();
        let annotation = |key: &str| body["metadata"]["annotations"][key].clone();
        let fields = fields.map(|field| body["spec"][field].clone());
        (fields, annotation("lb.example.com/kind"), annotation("lb.example.com/id"))
    };
    let is = |wanted: [Value; 4], kind: Value| {
        wait::until(stage.api(), "backup.example.com/set=web", move |services: &[Service]| {
            let found = services.first().map(seen).ok_or("there is no Service")?;
            let wanted = (wanted.clone(), kind.clone(), json!("7"));
            if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
        })
    };
    let ranges = json!(["198.18.0.0/15"]);
    is([json!("Local"), json!("Local"), json!("ClientIP"), ranges], json!("inner")).await;
    wait::until(stage.api(), "kubernetes.io/service-name=web", |slices: &[EndpointSlice]| {
        let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
        let hinted = |endpoint: &k8s_openapi::api::discovery::v1::Endpoint| {
            let nodes = endpoint.hints.as_ref().and_then(|hints| hints.for_nodes.clone()).unwrap_or_default();
            nodes.first().map(|node| node.name.clone()) == endpoint.node_name
        };
        let found: Vec<bool> = endpoints.map(hinted).collect();
        if found == [true] { Ok(()) } else { Err(format!("hinted: {found:?}")) }
    })
    .await;

    set["spec"]["service"] = plain;
    stage.apply(&set).await;
    is([Value::Null, json!("Cluster"), json!("None"), Value::Null], Value::Null).await;
    wait::until(stage.api(), "kubernetes.io/service-name=web", |slices: &[EndpointSlice]| {
        let hinted =
            slices.iter().flat_map(|slice| &slice.endpoints).filter(|one| one.hints.is_some()).count();
        if hinted == 0 { Ok(()) } else { Err(format!("{hinted} addresses have hints")) }
    })
    .await;
    stage
        .reports(WEB, |set| {
            let status = set.status.clone().unwrap_or_default();
            let is_seen = Some(status.observed_generation) == set.metadata.generation;
            if is_seen && status.state == "Ready" { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await;
}

pub(crate) async fn a_service_that_had_a_selector_becomes_the_sets_and_leads_to_primaries_only(stage: Stage) {
    // As a Deployment's Service: Kubernetes' own controllers keep its addresses.
    let ports = json!([{"name": "http", "port": 80, "targetPort": PORT}]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": WEB},
        "spec": {"selector": {"app": WEB}, "ports": ports},
    });
    let service: Service = serde_json::from_value(service).unwrap();
    stage.api::<Service>().create(&PostParams::default(), &service).await.unwrap();
    wait::until(stage.api(), "", |slices: &[EndpointSlice]| {
        if slices.is_empty() { Err("there is no slice".to_owned()) } else { Ok(()) }
    })
    .await;
    wait::until(stage.api(), "", |endpoints: &[Endpoints]| {
        if endpoints.is_empty() { Err("there are no Endpoints".to_owned()) } else { Ok(()) }
    })
    .await;
    let labels = ["app.kubernetes.io/managed-by=bps-operator", "backup.example.com/set=web"];
    stage.kubectl(&["label", "service", WEB, labels[0], labels[1]]);
    stage.apply(&exposed_web([1, 1, 0])).await;
    let primaries = uids(&stage.settled(WEB, [1, 1, 0]).await, "primary");
    only_the_sets_slice_leads(&stage, "web-bps").await;
    stage.exposes(&primaries).await;

    // Once more, by somebody who does not know whose it is.
    stage.kubectl(&["patch", "service", WEB, "-p", r#"{"spec":{"selector":{"app":"web"}}}"#]);
    wait::until(stage.api(), "", |services: &[Service]| {
        let is_selecting = |service: &&Service| {
            service
                .spec
                .as_ref()
                .is_some_and(|spec| spec.selector.as_ref().is_some_and(|map| !map.is_empty()))
        };
        services.iter().find(is_selecting).map_or(Ok(()), |service| Err(format!("{service:?}")))
    })
    .await;
    only_the_sets_slice_leads(&stage, "web-bps").await;
    stage.exposes(&primaries).await;
}

/// Waits until nothing but this slice says where clients go, and nothing is copied into another one.
pub(crate) async fn only_the_sets_slice_leads(stage: &Stage, slice: &str) {
    wait::until(stage.api(), "", |endpoints: &[Endpoints]| {
        let names: Vec<String> = endpoints.iter().map(ResourceExt::name_any).collect();
        if names.iter().any(|name| name == WEB) { Err(format!("{names:?}")) } else { Ok(()) }
    })
    .await;
    wait::until(stage.api(), "kubernetes.io/service-name=web", |slices: &[EndpointSlice]| {
        let names: Vec<String> = slices.iter().map(ResourceExt::name_any).collect();
        if names == [slice] { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
}

pub(crate) async fn addresses_that_somebody_wrote_are_told_with_the_command_that_removes_them(stage: Stage) {
    let mine = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web-mine", "labels": {"kubernetes.io/service-name": WEB}},
        "addressType": "IPv4", "endpoints": [], "ports": [],
    });
    let mine: EndpointSlice = serde_json::from_value(mine).unwrap();
    stage.api::<EndpointSlice>().create(&PostParams::default(), &mine).await.unwrap();
    stage.apply(&exposed_web([1, 0, 0])).await;
    let message = stage.condition(WEB, ("Degraded", "ForeignObject")).await;
    let (_, command) = message.rsplit_once("kubectl ").expect("a command");
    stage.kubectl(&command.split_whitespace().collect::<Vec<_>>());
    stage.settled(WEB, [1, 0, 0]).await;
    let slices = stage.api::<EndpointSlice>().list(&ListParams::default()).await.unwrap();
    assert_eq!(slices.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["web-bps"]);
}

pub(crate) async fn pods_that_are_all_deleted_at_once_are_all_made_again(stage: Stage) {
    stage.apply(&exposed_web([2, 1, 1])).await;
    let before = roles(&stage.settled(WEB, [2, 1, 1]).await);
    stage.kubectl(&["delete", "pods", "-l", "backup.example.com/set=web", "--wait=false"]);
    let after = stage
        .pods_where(WEB, |pods| {
            complete(pods, [2, 1, 1])?;
            if roles(pods).keys().any(|uid| before.contains_key(uid)) {
                Err("old Pods".into())
            } else {
                Ok(())
            }
        })
        .await;
    stage.exposes(&uids(&after, "primary")).await;
    stage.settled(WEB, [2, 1, 1]).await;
}

pub(crate) async fn a_role_label_written_by_hand_ends_in_the_wanted_counts(stage: Stage) {
    stage.apply(&web([1, 1, 1])).await;
    let before = stage.settled(WEB, [1, 1, 1]).await;
    let pods: Api<Pod> = stage.api();
    let labels = json!({"metadata": {"labels": {"backup.example.com/role": "primary", "type": "primary"}}});
    let hot = one(&before, "hot").name_any();
    pods.patch(&hot, &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    // The set is seen to react: one of two primaries is too many, and a hot backup is missing.
    let known = roles(&before);
    stage
        .pods_where(WEB, |pods| {
            complete(pods, [1, 1, 1])?;
            if roles(pods) == known { Err("nothing has happened yet".into()) } else { Ok(()) }
        })
        .await;
    stage.settled(WEB, [1, 1, 1]).await;
}

pub(crate) async fn the_label_of_the_paper_is_put_back_on_a_pod_that_lost_it(stage: Stage) {
    stage.apply(&web([1, 1, 0])).await;
    let before = stage.settled(WEB, [1, 1, 0]).await;
    let (primary, hot) = (one(&before, "primary").name_any(), one(&before, "hot").name_any());
    stage.kubectl(&["label", "pod", &primary, "type-"]);
    stage.kubectl(&["label", "pod", &hot, "type=primary", "--overwrite"]);
    let after = stage
        .pods_where(WEB, |pods| {
            let is_right = |pod: &Pod| {
                pod.labels().get("type").map(String::as_str)
                    == Some(if role(pod) == "hot" { "hotbackup" } else { role(pod) })
            };
            if pods.iter().all(is_right) { Ok(()) } else { Err("a label is missing or wrong".into()) }
        })
        .await;
    assert_eq!(roles(&after), roles(&before));
}

pub(crate) async fn cold_backups_of_a_former_set_are_replaced_before_they_are_needed(stage: Stage) {
    stage.apply(&web([1, 0, 1])).await;
    let before = stage.settled(WEB, [1, 0, 1]).await;
    stage.kubectl(&["delete", "bps", WEB, "--cascade=orphan"]);
    wait::until(stage.api(), "", |pods: &[Pod]| {
        let is_orphan = pods.iter().all(|pod| pod.owner_references().is_empty());
        if is_orphan { Ok(()) } else { Err("a Pod has an owner".into()) }
    })
    .await;
    stage.apply(&web([1, 0, 1])).await;
    // Its gate takes tickets of the former set only.
    let former = uids(&before, "cold");
    let after = stage
        .pods_where(WEB, |pods| {
            complete(pods, [1, 0, 1])?;
            if uids(pods, "cold").is_disjoint(&former) { Ok(()) } else { Err("it is still there".into()) }
        })
        .await;
    assert_eq!(uids(&after, "primary"), uids(&before, "primary"), "who serves is adopted");
    stage.delete(one(&after, "primary")).await;
    let woken = stage.settled(WEB, [1, 0, 1]).await;
    assert_eq!(uids(&woken, "primary"), uids(&after, "cold"));
}

pub(crate) async fn an_orphaned_pod_is_adopted_by_a_set_of_the_same_name(stage: Stage) {
    stage.apply(&web([1, 0, 0])).await;
    let before = stage.settled(WEB, [1, 0, 0]).await;
    stage.kubectl(&["delete", "bps", WEB, "--cascade=orphan"]);
    let pods: Api<Pod> = stage.api();
    wait::until(pods, "", |pods| {
        let is_orphan = pods.iter().all(|pod| pod.owner_references().is_empty());
        if is_orphan { Ok(()) } else { Err("the Pod has an owner".into()) }
    })
    .await;
    stage.apply(&web([1, 0, 0])).await;
    let after = stage.settled(WEB, [1, 0, 0]).await;
    assert_eq!(roles(&after), roles(&before));
    // The set counts the Pod before it is its own: what Kubernetes wrote last may have been newer than what the operator saw.
    let pods: Api<Pod> = stage.api();
    wait::until(pods, "", |pods| {
        let is_owned = |pod: &Pod| pod.owner_references().iter().any(|owner| owner.controller == Some(true));
        if pods.iter().all(is_owned) { Ok(()) } else { Err("the Pod is an orphan still".into()) }
    })
    .await;
    let adopted = stage.settled(WEB, [1, 0, 0]).await;
    assert_eq!(uids(&adopted, "primary"), uids(&before, "primary"));
}
