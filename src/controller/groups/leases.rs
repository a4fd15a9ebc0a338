//! The steps of a plan that write Leases and labels, each guarded by the version that the plan was made from.

use std::collections::BTreeMap;

use bps_api::{HAGroup, HandoverOrder, keys};
use bps_core::manifests::{group_metadata, pair_name};
use bps_core::pairing::{LevelText, Seat, Shown, Step};
use bps_observe::group::SeenGroup;
use bps_observe::slim::SlimPod;
use bps_observe::version;
use bps_protocol::{AgentId, Epoch, Hold, Lease as Content, Replacement, Timing, TimingError, Write};
use bps_wire::lease::{Directory, Member, Record, patch};
use bps_wire::shown;
use bps_wire::times;
use bps_wire::uid::format_uid;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

/// What a step was made from.
pub(super) struct Hand<'a> {
    pub(super) client: &'a Client,
    pub(super) group: &'a HAGroup,
    pub(super) seen: &'a SeenGroup,
    pub(super) pods: &'a BTreeMap<AgentId, std::sync::Arc<SlimPod>>,
    pub(super) timing: &'a Timing,
    pub(super) now: Timestamp,
}

/// Why a step was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// What the plan was made from is gone.
    #[error("the object is gone")]
    Gone,
    /// The content cannot be written.
    #[error("put the Lease into words")]
    Words(#[source] bps_wire::lease::Error),
    /// The times of the group would let two act.
    #[error("use spec.timing")]
    Times(#[source] TimingError),
    /// A body that is no object of its kind.
    #[error("build the object")]
    Build(#[source] serde_json::Error),
    /// The name of an object of the group.
    #[error("the {kind} {name} belongs to somebody else: delete it, or use another name")]
    Taken {
        /// What it is.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The API server refused it, or did not answer.
    #[error("ask the API server")]
    Request(#[source] Box<kube::Error>),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Request(Box::new(error))
    }
}

/// What was written: kind, name and version.
pub(super) type Written = (&'static str, String, Option<u64>);

impl Hand<'_> {
    /// Takes one step.
    pub(super) async fn take(&self, step: &Step) -> Result<Option<Written>, Error> {
        match step {
            Step::Found { number, term, seats, level } => {
                let body = self.founded((*number, *term), seats, level.as_ref())?;
                let parameters = PostParams {
                    field_manager: Some(keys::FIELD_MANAGER.to_owned()),
                    ..PostParams::default()
                };
                Ok(Some(written(&self.api().create(&parameters, &body).await?)))
            }
            Step::Ask { pair, leaving, joining } => {
                let record = self.record(*pair)?;
                let pending = Some(Replacement { leaving: *leaving, joining: joining.id });
                let mut directory = record.directory.clone();
                directory.insert(joining.id, member(joining));
                self.write(*pair, Content { pending, ..record.lease }, &directory).await
            }
            Step::Withdraw { pair } => {
                let record = self.record(*pair)?;
                self.write(*pair, Content { pending: None, ..record.lease }, &record.directory).await
            }
            Step::Move { pair, seat } => {
                let record = self.record(*pair)?;
                let mut directory = record.directory.clone();
                directory.insert(seat.id, member(seat));
                self.write(*pair, record.lease, &directory).await
            }
            Step::Force { pair, lease } => {
                let record = self.record(*pair)?;
                self.write(*pair, *lease, &record.directory).await
            }
            Step::Fence { pair } => self.fence(*pair).await,
            Step::End { pair } => self.end(*pair).await,
            Step::Label { pod, shown } => self.label(*pod, shown).await,
        }
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), self.group.metadata.namespace.as_deref().unwrap_or_default())
    }

    fn name(&self, number: u32) -> String {
        pair_name(self.group.metadata.name.as_deref().unwrap_or_default(), number)
    }

    fn record(&self, pair: u32) -> Result<&Record, Error> {
        self.seen.records.get(&pair).ok_or(Error::Gone)
    }

    /// The Lease of a new pair, or of one whose Lease was lost.
    fn founded(
        &self,
        (number, term): (u32, u32),
        seats: &[Seat; 2],
        level: Option<&LevelText>,
    ) -> Result<Lease, Error> {
        // The schema says the same; it may have been bypassed.
        self.timing.check().map_err(Error::Times)?;
        let content = Content {
            epoch: Epoch { term, sequence: 0 },
            holder: None,
            members: [seats[0].id, seats[1].id],
            pending: None,
            hold: Hold::Api,
            writes: 0,
        };
        let directory = seats.iter().map(|seat| (seat.id, member(seat))).collect();
        let name = self.name(number);
        let mut body = self.words(content, &directory, None)?;
        let mut metadata = group_metadata(self.group, &name);
        metadata["annotations"] = body["metadata"]["annotations"].take();
        metadata["annotations"][keys::ANNOTATION_HA_PAIR] = json!(number.to_string());
        metadata["annotations"][keys::ANNOTATION_HA_TIMING] = json!(times::written(self.timing));
        if let Some(LevelText { directories, pods }) = level {
            metadata["annotations"][keys::ANNOTATION_HA_IN_SYNC] = json!(directories);
            metadata["annotations"][keys::ANNOTATION_HA_IN_SYNC_PODS] = json!(pods);
        }
        metadata["annotations"][keys::ANNOTATION_HA_HANDOVER] = handover(self.group);
        metadata["annotations"][keys::ANNOTATION_HA_SLICE] = json!(slice(self.group, number));
        if let Some(annotations) = metadata["annotations"].as_object_mut() {
            annotations.retain(|_, value| !value.is_null());
        }
        body["metadata"] = metadata;
        serde_json::from_value(body).map_err(Error::Build)
    }

    async fn write(
        &self,
        pair: u32,
        content: Content,
        directory: &Directory,
    ) -> Result<Option<Written>, Error> {
        let record = self.record(pair)?;
        self.patch(pair, self.words(content, directory, Some(record))?).await
    }

    /// The Lease in the form that agents read.
    fn words(&self, lease: Content, directory: &Directory, base: Option<&Record>) -> Result<Value, Error> {
        let base = base.map_or_else(Default::default, |record| record.version);
        let write = Write { number: 0, base, lease };
        patch(&write, directory, self.timing, self.now).map_err(Error::Words)
    }

    async fn fence(&self, pair: u32) -> Result<Option<Written>, Error> {
        let record = self.record(pair)?;
        let uids: Vec<String> = record.lease.members.iter().map(|id| format_uid(id.0)).collect();
        let patch = json!({"metadata": {
            "resourceVersion": record.version.0.to_string(),
            "annotations": {
                (keys::ANNOTATION_HA_ENDING): "true",
                (keys::ANNOTATION_HA_FENCED): uids.join(","),
            },
        }});
        self.patch(pair, patch).await
    }

    /// Tells the agents of a pair what the group wants of them now: the order of a planned handover, and a slice or none.
    pub(super) async fn tell_wishes(&self, pair: u32) -> Result<Option<Written>, Error> {
        let record = self.record(pair)?;
        let patch = json!({"metadata": {
            "resourceVersion": record.version.0.to_string(),
            "annotations": {
                (keys::ANNOTATION_HA_HANDOVER): handover(self.group),
                (keys::ANNOTATION_HA_SLICE): slice(self.group, pair),
            },
        }});
        self.patch(pair, patch).await
    }

    async fn patch(&self, pair: u32, patch: Value) -> Result<Option<Written>, Error> {
        let parameters =
            PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let lease = self.api().patch(&self.name(pair), &parameters, &Patch::Merge(patch)).await?;
        Ok(Some(written(&lease)))
    }

    pub(super) async fn end(&self, pair: u32) -> Result<Option<Written>, Error> {
        let record = self.record(pair)?;
        let preconditions = Preconditions {
            uid: Some(format_uid(record.group)),
            resource_version: Some(record.version.0.to_string()),
        };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        self.api().delete(&self.name(pair), &parameters).await?;
        Ok(None)
    }

    async fn label(&self, pod: AgentId, shown: &Shown) -> Result<Option<Written>, Error> {
        let pod = self.pods.get(&pod).ok_or(Error::Gone)?;
        let mut patch = json!({"metadata": {
            "uid": pod.metadata.uid,
            "labels": {
                (keys::LABEL_HA_STATE): shown.state.map(bps_core::pairing::HaState::as_str),
                (keys::LABEL_PEER): shown.peer,
            },
        }});
        if let Some(epoch) = shown.epoch {
            patch["metadata"]["annotations"] = json!({(keys::ANNOTATION_HA_EPOCH): shown::text(epoch)});
        }
        let api: Api<SlimPod> = Api::namespaced(
            self.client.clone(),
            self.group.metadata.namespace.as_deref().unwrap_or_default(),
        );
        let parameters =
            PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let pod = api.patch(&pod.name_any(), &parameters, &Patch::Merge(patch)).await?;
        Ok(Some(("Pod", pod.name_any(), version(&pod.metadata))))
    }
}

/// Pairs whose agents know other wishes than the group has.
pub(super) fn misled(group: &HAGroup, seen: &SeenGroup) -> Vec<u32> {
    let wanted = group.spec.handover.unwrap_or_default();
    let is_misled = |(number, record): &(&u32, &Record)| {
        record.orders.handover != wanted || record.slice != slice(group, **number)
    };
    seen.records.iter().filter(is_misled).map(|(number, _)| *number).collect()
}

/// Name of the slice that the active of a pair shows its address in; `None` if the group has no Service.
fn slice(group: &HAGroup, number: u32) -> Option<String> {
    group.spec.service.is_some().then(|| pair_name(&group.name_any(), number))
}

/// The order of a planned handover as the Lease has it; the default is left out.
fn handover(group: &HAGroup) -> Value {
    match group.spec.handover.unwrap_or_default() {
        HandoverOrder::BreakBeforeMake => Value::Null,
        order @ HandoverOrder::MakeBeforeBreak => json!(order.as_str()),
    }
}

fn member(seat: &Seat) -> Member {
    Member { pod: seat.pod.clone(), address: seat.address }
}

fn written(lease: &Lease) -> Written {
    ("Lease", lease.name_any(), version(&lease.metadata))
}
