//! Writes the steps of a plan about a group: its Leases, and the labels of its Pods.

use bps_api::keys;
use bps_core::pairing::{Step, StepError, StepSource, StepWrite};
use bps_observe::group::WrittenVersion;
use bps_observe::slim::SlimPod;
use bps_observe::version;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

use super::{Error, request};
use crate::apply::removal::at_version;

/// What a step is made from, and the client that takes it.
pub(crate) struct Hand<'a> {
    pub(crate) client: &'a Client,
    pub(crate) source: StepSource<'a>,
}

impl Hand<'_> {
    /// Takes one step.
    pub(crate) async fn take(&self, step: &Step) -> Result<Option<WrittenVersion>, Error> {
        self.send(self.source.write_of(step)).await
    }

    /// Tells the agents of a pair what the group wants of them now.
    pub(crate) async fn tell_wishes(&self, pair: u32) -> Result<Option<WrittenVersion>, Error> {
        self.send(self.source.wishes(pair)).await
    }

    /// Deletes the Lease of a pair.
    pub(crate) async fn end(&self, pair: u32) -> Result<Option<WrittenVersion>, Error> {
        self.send(self.source.end(pair)).await
    }

    async fn send(&self, write: Result<StepWrite, StepError>) -> Result<Option<WrittenVersion>, Error> {
        let field_manager = Some(keys::FIELD_MANAGER.to_owned());
        match write.map_err(Error::Step)? {
            StepWrite::Create(body) => {
                let lease = serde_json::from_value(body).map_err(Error::Build)?;
                let parameters = PostParams { field_manager, ..PostParams::default() };
                let lease = self.leases().create(&parameters, &lease).await.map_err(request)?;
                Ok(Some(written(&lease)))
            }
            StepWrite::Patch { name, patch } => {
                let parameters = PatchParams { field_manager, ..PatchParams::default() };
                let patch = Patch::Merge(patch);
                let lease = self.leases().patch(&name, &parameters, &patch).await.map_err(request)?;
                Ok(Some(written(&lease)))
            }
            StepWrite::Delete(metadata) => {
                let ObjectMeta { name, uid, resource_version, .. } = *metadata;
                let parameters = at_version(uid, resource_version);
                let name = name.unwrap_or_default();
                self.leases().delete(&name, &parameters).await.map_err(request)?;
                Ok(None)
            }
            StepWrite::Label { name, patch } => self.label(&name, patch).await,
        }
    }

    async fn label(&self, pod: &str, patch: Value) -> Result<Option<WrittenVersion>, Error> {
        let api: Api<SlimPod> = Api::namespaced(self.client.clone(), self.namespace());
        let parameters =
            PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let pod = api.patch(pod, &parameters, &Patch::Merge(patch)).await.map_err(request)?;
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

fn written(lease: &Lease) -> WrittenVersion {
    WrittenVersion { kind: "Lease", name: lease.name_any(), version: version(&lease.metadata) }
}
