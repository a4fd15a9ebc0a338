//! A namespace with a group, its Pods and Leases, made by hand: nobody but the test acts in it.

use std::time::Duration;

use bps_api::{HAGroup, keys};
use bps_protocol::Epoch;
use bps_wire::lease::Record;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kubectl_bps::cluster::Cluster;
use serde_json::{Value, json};

use crate::crd;

/// Longest wait for anything that the API server does by itself.
const WITHIN: Duration = Duration::from_secs(30);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The group is called `web`.
pub(crate) const GROUP: &str = "web";

pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
}

fn params() -> PatchParams {
    PatchParams::apply("plugin-test").force()
}

impl Scene {
    /// A namespace of its own with the group and nothing else.
    pub(crate) async fn set(namespace: &str) -> Self {
        let client = crd::cluster().await;
        let wanted = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.patch(namespace, &params(), &Patch::Apply(wanted)).await.expect("a namespace");
        let scene = Self { cluster: Cluster { client, namespace: namespace.to_owned() } };
        scene
            .create::<HAGroup>(json!({"apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup",
            "metadata": {"name": GROUP}, "spec": {}}))
            .await;
        scene
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + serde::de::DeserializeOwned
            + serde::Serialize
            + Clone
            + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(object).expect("an object of its kind");
        self.cluster.api::<K>().create(&PostParams::default(), &object).await.expect("it is accepted")
    }

    /// A running and ready Pod of the group; returns its uid.
    pub(crate) async fn pod(&self, name: &str, last: u8) -> String {
        self.labelled_pod(name, (last, json!({(keys::LABEL_GROUP): GROUP}))).await
    }

    pub(crate) async fn labelled_pod(&self, name: &str, (last, labels): (u8, Value)) -> String {
        // No scheduler feels responsible for it: other tests have nodes.
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels},
            "spec": {"schedulerName": "none", "containers": [{"name": "web", "image": "web:1"}]}}))
        .expect("a Pod");
        let pods = self.cluster.api::<Pod>();
        let created = tokio::time::timeout(WITHIN, async {
            loop {
                match pods.create(&PostParams::default(), &pod).await {
                    Ok(pod) => return pod,
                    // The ServiceAccount of a new namespace comes a moment later.
                    Err(kube::Error::Api(status)) if status.code == 403 => {
                        tokio::time::sleep(LOOK_EVERY).await;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let uid = created.await.expect("in time").uid().expect("a uid");
        let address = format!("10.9.0.{last}");
        let status = json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}]}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.expect("a status");
        uid
    }

    pub(crate) async fn delete_pod(&self, name: &str) {
        let at_once = DeleteParams::default().grace_period(0);
        self.cluster.api::<Pod>().delete(name, &at_once).await.expect("it was there");
    }

    /// A pair of two Pods, given by name and uid; the first one has the tenure 1.0 if anybody does.
    pub(crate) async fn pair(&self, number: u32, members: [(&str, &str); 2], is_held: bool) {
        let member = |(pod, uid): (&str, &str)| json!({"uid": uid, "pod": pod, "address": "10.9.0.1:20001"});
        let (pod, uid) = members[0];
        let name = format!("{GROUP}-{number}");
        self.create::<Lease>(json!({
            "metadata": {"name": name, "labels": {(keys::LABEL_GROUP): GROUP}, "annotations": {
                (keys::ANNOTATION_HA_PAIR): number.to_string(),
                (keys::ANNOTATION_HA_SEQUENCE): "0",
                (keys::ANNOTATION_HA_MEMBERS): json!(members.map(member)).to_string(),
                (keys::ANNOTATION_HA_HOLD): "Peer",
                (keys::ANNOTATION_HA_WRITES): "1",
                (keys::ANNOTATION_HA_SLICE): name,
            }},
            "spec": {"leaseTransitions": 1, "holderIdentity": is_held.then(|| format!("{pod}_{uid}"))},
        }))
        .await;
        self.create::<EndpointSlice>(json!({
            "metadata": {"name": name, "labels": {(keys::LABEL_GROUP): GROUP}},
            "addressType": "IPv4", "endpoints": [], "ports": [],
        }))
        .await;
    }

    pub(crate) async fn lease(&self, name: &str) -> Record {
        let lease = self.cluster.api::<Lease>().get(name).await.expect("the Lease");
        Record::read(&lease).expect("a Lease of a pair")
    }

    pub(crate) async fn patch_lease(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.cluster.api::<Lease>().patch(name, &PatchParams::default(), &patch).await.expect("a patch");
    }

    /// Waits for an order to this tenure, as an agent does.
    async fn ordered(&self, name: &str, epoch: Epoch) {
        let seen = async {
            while self.lease(name).await.orders.switch_over != Some(epoch) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(WITHIN, seen).await.expect("an order in time");
    }

    /// Deletes the Lease, and the order with it.
    pub(crate) async fn delete_lease_once_ordered(&self, name: &str, epoch: Epoch) {
        self.ordered(name, epoch).await;
        let deleted = self.cluster.api::<Lease>().delete(name, &DeleteParams::default()).await;
        deleted.expect("it was there");
    }

    /// Plays the active: obeys an order to its tenure, and the Lease shows the next one.
    pub(crate) async fn hand_over_by_lease(&self, name: &str, (epoch, to): (Epoch, (&str, &str))) {
        self.ordered(name, epoch).await;
        let (pod, uid) = to;
        let sequence = (epoch.sequence + 1).to_string();
        self.patch_lease(
            name,
            json!({"metadata": {"annotations": {(keys::ANNOTATION_HA_SEQUENCE): sequence}},
                "spec": {"holderIdentity": format!("{pod}_{uid}")}}),
        )
        .await;
    }

    /// The same, but only the slice shows it, as in the moment before the Lease is written.
    pub(crate) async fn hand_over_by_slice(&self, name: &str, (epoch, to): (Epoch, (&str, &str))) {
        self.ordered(name, epoch).await;
        let (pod, uid) = to;
        let next = epoch.delegation().expect("a next epoch");
        let patch = json!({
            "metadata": {"annotations": {(keys::ANNOTATION_HA_EPOCH): u64::from(next).to_string()}},
            "endpoints": [{"addresses": ["10.9.0.2"], "targetRef": {"kind": "Pod", "name": pod, "uid": uid}}],
        });
        let slices = self.cluster.api::<EndpointSlice>();
        slices.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
    }
}
