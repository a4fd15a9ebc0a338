//! What the operator would keep for a pair on the API server: its Lease and its slice.

use std::pin::pin;

use bps_api::keys;
use bps_protocol::Version;
use bps_wire::lease::Record;
use bps_wire::uid::format_uid;
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;

use super::journal::Start;
use super::stage::{NAMESPACE, Stage, ip, pod};

impl Stage {
    /// A Lease that nobody holds.
    pub(super) async fn create_lease(&self, term: u32) {
        self.create_lease_of(term, json!([0, 1].map(|agent| self.member(agent)))).await;
    }

    /// One for these members.
    pub(super) async fn create_lease_of(&self, term: u32, members: serde_json::Value) {
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {"name": self.name, "labels": {(keys::LABEL_GROUP): self.name}, "annotations": {
                (keys::ANNOTATION_HA_SEQUENCE): "0",
                (keys::ANNOTATION_HA_MEMBERS): members.to_string(),
                (keys::ANNOTATION_HA_HOLD): "Api",
                (keys::ANNOTATION_HA_WRITES): "0",
                (keys::ANNOTATION_HA_SLICE): self.name,
            }},
            "spec": {"leaseTransitions": term},
        }))
        .expect("a Lease");
        self.leases().create(&PostParams::default(), &lease).await.expect("a Lease");
    }

    pub(super) async fn create_slice(&self) {
        let slice: EndpointSlice = serde_json::from_value(json!({
            "metadata": {"name": self.name}, "addressType": "IPv4", "endpoints": [], "ports": [{"port": 80}],
        }))
        .expect("a slice");
        self.slices().create(&PostParams::default(), &slice).await.expect("a slice");
    }

    /// An agent as the Lease names it.
    pub(super) fn member(&self, agent: usize) -> serde_json::Value {
        let address = format!("{}:{}", self.address(agent), self.ports[agent]);
        json!({"uid": format_uid(self.uids[agent]), "pod": pod(agent), "address": address})
    }

    pub(super) async fn delete_lease(&self) {
        self.leases().delete(self.name, &DeleteParams::default()).await.expect("it was there");
    }

    /// What somebody asks by an annotation; `None` takes it back.
    pub(super) async fn annotate(&self, key: &str, value: Option<String>) {
        let patch = json!({"metadata": {"annotations": {(key): value}}});
        self.leases().patch(self.name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn slices(&self) -> Api<EndpointSlice> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(super) async fn lease(&self) -> Record {
        let lease = self.leases().get(self.name).await.expect("the Lease");
        Record::read(&lease).expect("a Lease of a pair")
    }

    /// The first version of the Lease after this one of which something is true, whatever came after it.
    pub(super) async fn first_after(&self, known: Version, is_it: impl Fn(&Record) -> bool) -> Record {
        let only_it = WatchParams::default().fields(&format!("metadata.name={}", self.name)).timeout(60);
        let versions = self.leases().watch(&only_it, &known.0.to_string()).await.expect("a watch");
        let mut records = pin!(versions.map(|event| {
            let Ok(WatchEvent::Modified(lease)) = event else { panic!("{event:?}") };
            Record::read(&lease).expect("a Lease of a pair")
        }));
        loop {
            let record = records.next().await.expect("it comes within the time of the watch");
            if is_it(&record) {
                return record;
            }
        }
    }

    /// Waits until the slice shows a tenure.
    pub(super) async fn shows(&self, start: Start) {
        self.until("the address in the slice", async || {
            let slice = self.slices().get(self.name).await.expect("the slice");
            let epoch = slice.annotations().get(keys::ANNOTATION_HA_EPOCH)?;
            let addresses = &slice.endpoints.first()?.addresses;
            (*epoch == start.epoch.to_string() && *addresses == [ip(start.agent)]).then_some(())
        })
        .await;
    }
}
