//! Writes the steps of a plan about a group: its Leases, and the labels of its Pods.

use bps_api::keys;
use bps_core::pairing::{PairAction, StepError, StepSource, StepWrite};
use bps_observe::group::WrittenVersion;
use bps_observe::slim::SlimPod;
use bps_observe::version;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::{Failure, GroupAnswer};
use crate::apply::removal::at_version;

/// What a step is made from, and the client that takes it.
pub(crate) struct Hand<'a> {
    pub(crate) client: &'a Client,
    pub(crate) source: StepSource<'a>,
}

impl Hand<'_> {
    /// Takes one step.
    pub(crate) async fn take(&self, action: &PairAction) -> GroupAnswer {
        self.send(self.source.write_of(action)).await
    }

    /// Tells the agents of a pair what the group wants of them now.
    pub(crate) async fn tell_wishes(&self, pair: u32) -> GroupAnswer {
        self.send(self.source.wishes(pair)).await
    }

    /// Deletes the Lease of a pair.
    pub(crate) async fn end(&self, pair: u32) -> GroupAnswer {
        self.send(self.source.end(pair)).await
    }

    async fn send(&self, write: Result<StepWrite, StepError>) -> GroupAnswer {
        match write {
            Ok(write) => GroupAnswer::of(write.kind(), write.name(), self.write(&write).await),
            Err(error) => GroupAnswer::of("Lease", "of a pair", Err(Failure::Step(error))),
        }
    }

    async fn write(&self, write: &StepWrite) -> Result<Option<WrittenVersion>, Failure> {
        let field_manager = Some(keys::FIELD_MANAGER.to_owned());
        match write {
            StepWrite::Create(body) => {
                let lease = serde_json::from_value(body.clone()).map_err(Failure::Build)?;
                let parameters = PostParams { field_manager, ..PostParams::default() };
                Ok(Some(written(&self.leases().create(&parameters, &lease).await?)))
            }
            StepWrite::Patch { name, patch } => {
                let parameters = PatchParams { field_manager, ..PatchParams::default() };
                Ok(Some(written(&self.leases().patch(name, &parameters, &Patch::Merge(patch)).await?)))
            }
            StepWrite::Delete(metadata) => {
                let ObjectMeta { name, uid, resource_version, .. } = &**metadata;
                let parameters = at_version(uid.clone(), resource_version.clone());
                self.leases().delete(name.as_deref().unwrap_or_default(), &parameters).await?;
                Ok(None)
            }
            StepWrite::Label { name, patch } => self.label(name, patch).await,
        }
    }

    async fn label(&self, pod: &str, patch: &Value) -> Result<Option<WrittenVersion>, Failure> {
        let api: Api<SlimPod> = Api::namespaced(self.client.clone(), self.namespace());
        let parameters =
            PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let pod = api.patch(pod, &parameters, &Patch::Merge(patch)).await?;
        let (name, version) = (pod.name_any(), version(&pod.metadata));
        Ok(Some(WrittenVersion { kind: "Pod", name, version }))
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), self.namespace())
    }

    fn namespace(&self) -> &str {
        self.source.group.metadata.namespace.as_deref().unwrap_or_default()
    }
}

/// Takes the annotation of a Pod away by which rollouts do not delete it.
pub(crate) async fn release(client: &Client, pod: &SlimPod) -> GroupAnswer {
    let (name, namespace) = (pod.name_any(), pod.metadata.namespace.as_deref().unwrap_or_default());
    let api: Api<SlimPod> = Api::namespaced(client.clone(), namespace);
    let parameters =
        PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let annotations = json!({(keys::ANNOTATION_HA_KEPT): null});
    let patch = Patch::Merge(json!({"metadata": {"uid": pod.metadata.uid, "annotations": annotations}}));
    let released = api.patch(&name, &parameters, &patch).await;
    GroupAnswer::of("Pod", &name, released.map(|_| None).map_err(Failure::from))
}

fn written(lease: &Lease) -> WrittenVersion {
    WrittenVersion { kind: "Lease", name: lease.name_any(), version: version(&lease.metadata) }
}
