//! The operator among 500 Pods on hollow nodes that fail and are deleted: every set is whole again, and clients are led to its
//! primaries in each family of addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bps_api::{BackupPodSet, keys};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt as _};
use lab::hollow::{self, HollowNodes};
use serde_json::{Value, json};

use crate::crd;
use crate::operator::operate;

/// Sets of 2 primaries, 2 hot and 1 cold backup each: 500 Pods.
const SETS: usize = 100;
const COUNTS: [usize; 3] = [2, 2, 1];
/// Longest wait until every set is whole: a machine that also compiles needs a minute for 500 Pods.
const WHOLE_WITHIN: Duration = Duration::from_secs(300);
/// Pause between two looks; what is waited for is the sum of 500 Pods, which no single watch shows.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const NAMESPACE: &str = "churn";
/// Requests in flight at once.
const IN_FLIGHT: usize = 16;

/// What there is of one set: Pods by role, and whether any is on its way or missing.
fn is_whole(pods: &[&Pod]) -> bool {
    let stays = |pod: &&&Pod| pod.metadata.deletion_timestamp.is_none();
    let role = |pod: &Pod| pod.labels().get(keys::LABEL_ROLE).cloned().unwrap_or_default();
    let staying: Vec<_> = pods.iter().filter(stays).collect();
    let of = |wanted: &str| staying.iter().filter(|pod| role(pod) == wanted).count();
    let is_up = |pod: &&&&Pod| role(pod) == "cold" || hollow::is_ready(pod);
    ["primary", "hot", "cold"].map(of) == COUNTS && staying.iter().filter(is_up).count() == staying.len()
}

async fn all_whole(client: &Client) -> Vec<Pod> {
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let whole = async {
        loop {
            let pods = api.list(&ListParams::default()).await.expect("a list").items;
            let mut by_set: BTreeMap<String, Vec<&Pod>> = BTreeMap::new();
            for pod in &pods {
                by_set
                    .entry(pod.labels().get(keys::LABEL_SET).cloned().unwrap_or_default())
                    .or_default()
                    .push(pod);
            }
            if by_set.len() == SETS && by_set.values().all(|pods| is_whole(pods)) {
                return pods;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(WHOLE_WITHIN, whole).await.expect("every set is whole in time")
}

/// Whether the set has a Service.
const fn is_exposed(index: usize) -> bool {
    index.is_multiple_of(10)
}

fn set(index: usize) -> Value {
    let [primaries, hot, cold] = COUNTS;
    let mut set = json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet",
        "metadata": {"name": format!("set-{index}"), "namespace": NAMESPACE},
        "spec": {
            "replicas": primaries, "hotBackups": hot, "coldBackups": cold, "wakeupTimeout": 60,
            "template": {"spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "web", "image": "none"}]}},
        },
    });
    if is_exposed(index) {
        let ports = json!([{"port": 80}]);
        set["spec"]["service"] =
            json!({"name": format!("set-{index}"), "ports": ports, "ipFamilyPolicy": "PreferDualStack"});
    }
    set
}

/// What keeps clients of a set's Service from its primaries in one of the Service's families; how many families it has otherwise.
async fn led(client: &Client, name: &str) -> Result<usize, String> {
    let in_set = ListParams::default().labels(&format!("{}={name}", keys::LABEL_SET));
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE).list(&in_set).await.expect("a list").items;
    let is_primary = |pod: &&Pod| pod.labels().get(keys::LABEL_ROLE).is_some_and(|role| role == "primary");
    let ready = pods.iter().filter(is_primary).filter(|pod| hollow::is_ready(pod));
    let addresses: BTreeSet<String> = ready
        .flat_map(|pod| pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten()))
        .map(|ip| ip.ip.clone())
        .collect();

    let service = Api::<Service>::namespaced(client.clone(), NAMESPACE).get(name).await.expect("a Service");
    let families = service.spec.and_then(|spec| spec.ip_families).expect("families");
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), NAMESPACE)
        .list(&in_set)
        .await
        .expect("a list")
        .items;
    let by_family: BTreeMap<String, BTreeSet<String>> = slices
        .into_iter()
        .map(|slice| {
            (
                slice.address_type,
                slice.endpoints.into_iter().flat_map(|endpoint| endpoint.addresses).collect(),
            )
        })
        .collect();
    let expected = families.iter().map(|family| {
        let is_of_family = |address: &&String| (family == "IPv6") == address.contains(':');
        (family.clone(), addresses.iter().filter(is_of_family).cloned().collect())
    });
    let expected: BTreeMap<String, BTreeSet<String>> = expected.collect();
    let is_led = by_family == expected && expected.values().all(|family| family.len() == COUNTS[0]);
    if is_led { Ok(families.len()) } else { Err(format!("{name}: {by_family:?}, not {expected:?}")) }
}

/// Families of each set's Service, once all clients are led to primaries.
async fn all_led(client: &Client) -> BTreeSet<usize> {
    let names: Vec<String> =
        (0..SETS).filter(|index| is_exposed(*index)).map(|index| format!("set-{index}")).collect();
    let mut last = Err(String::new());
    let led = async {
        loop {
            last = stream::iter(&names).then(|name| led(client, name)).try_collect().await;
            match &last {
                Ok(families) => return BTreeSet::clone(families),
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    };
    let Ok(families) = tokio::time::timeout(WHOLE_WITHIN, led).await else { panic!("{last:?}") };
    families
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_pods_that_churn_end_as_their_sets_want_them_and_not_one_more() {
    let client = crd::cluster().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let params = PatchParams::apply("churn").force();
    namespaces.patch(NAMESPACE, &params, &Patch::Apply(namespace)).await.expect("a namespace");
    let nodes = HollowNodes::start(client.clone(), 5, hollow::Options::default()).await.expect("nodes");
    let (_tasks, shutdown) = operate(client.clone(), NAMESPACE).await;
    let sets: Api<BackupPodSet> = Api::namespaced(client.clone(), NAMESPACE);
    let create = async |index| {
        let set: BackupPodSet = serde_json::from_value(set(index)).expect("a set");
        sets.create(&PostParams::default(), &set).await.expect("a set");
    };
    stream::iter(0..SETS).for_each_concurrent(IN_FLIGHT, create).await;
    let first = all_whole(&client).await;

    // A third is deleted and a third crashes, whatever their roles.
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let (pods, nodes_of) = (&pods, &nodes);
    let disturb = async |(index, pod): (usize, Pod)| match index % 3 {
        0 => drop(pods.delete(&pod.name_any(), &DeleteParams::default()).await),
        // A Pod that is gone already cannot crash.
        1 => drop(nodes_of.crash(&ObjectRef::from_obj(&pod)).await),
        _ => {}
    };
    stream::iter(first.into_iter().enumerate()).for_each_concurrent(IN_FLIGHT, disturb).await;
    let last = all_whole(&client).await;
    let staying = last.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count();
    assert_eq!(staying, SETS * COUNTS.iter().sum::<usize>());
    let families = all_led(&client).await;
    if lab::paths::set("KUBECONFIG").is_none() {
        assert_eq!(families, BTreeSet::from([2]), "the lab has both");
    }

    shutdown.request();
    nodes.remove().await.expect("the nodes go");
}
