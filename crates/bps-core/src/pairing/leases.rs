//! What the steps of a plan write into Leases and labels, each guarded by the version that the plan was made from.
//!
//! The form of a Lease is in `bps_wire`, because agents and operator must agree about every byte.

use std::collections::BTreeMap;

use bps_api::{HAGroup, HandoverOrder, keys};
use bps_protocol::{AgentId, Epoch, Hold, Lease as Content, Replacement, Timing, TimingError, Write};
use bps_wire::lease::{Directory, Member, Record, identity, patch};
use bps_wire::shown;
use bps_wire::times;
use bps_wire::uid::format_uid;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::existing::ExistingPod;
use super::step::PairAction;
use super::view::{HaState, LevelText, Seat, Shown};
use crate::manifests::{group_metadata, pair_name, standby_of_label};

/// Inputs of the writes of a plan's steps.
pub struct StepSource<'a> {
    /// The group.
    pub group: &'a HAGroup,
    /// The Lease of each pair by its number.
    pub records: &'a BTreeMap<u32, Record>,
    /// Its Pods.
    pub pods: &'a BTreeMap<AgentId, ExistingPod>,
    /// Leases of pairs as they were when somebody else deleted them.
    pub ends: &'a BTreeMap<u32, Lease>,
    /// Times of new pairs.
    pub timing: &'a Timing,
    /// When the writes are made.
    pub now: Timestamp,
}

/// The write of one step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepWrite {
    /// Makes a Lease.
    Create(Value),
    /// Changes the Lease of this name.
    Patch {
        /// Its name.
        name: String,
        /// What is to change.
        patch: Value,
    },
    /// Deletes a Lease, at the version that was seen.
    Delete(Box<ObjectMeta>),
    /// Changes labels and annotations of a Pod.
    Label {
        /// Its name.
        name: String,
        /// What is to change.
        patch: Value,
    },
}

impl StepWrite {
    /// Kind of the object.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Create(_) | Self::Patch { .. } | Self::Delete(_) => "Lease",
            Self::Label { .. } => "Pod",
        }
    }

    /// Name of the object.
    pub fn name(&self) -> &str {
        match self {
            Self::Create(body) => body["metadata"]["name"].as_str().unwrap_or_default(),
            Self::Patch { name, .. } | Self::Label { name, .. } => name,
            Self::Delete(metadata) => metadata.name.as_deref().unwrap_or_default(),
        }
    }
}

/// Why a step has no write.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// What the plan was made from is gone.
    #[error("the object is gone")]
    Gone,
    /// The content cannot be written.
    #[error("put the Lease into words")]
    Words(#[source] bps_wire::lease::Error),
    /// The times of the group would let two act.
    #[error("use spec.timing")]
    Times(#[source] TimingError),
}

impl StepSource<'_> {
    /// Returns the write of one step.
    ///
    /// # Errors
    /// [`StepError`].
    pub fn write_of(&self, action: &PairAction) -> Result<StepWrite, StepError> {
        match action {
            PairAction::Found { number, term, seats, level } => {
                self.founded(*number, Epoch { term: *term, sequence: 0 }, seats, level.as_ref())
            }
            PairAction::Restore { pair } => self.restored(*pair),
            PairAction::Ask { pair, leaving, joining } => self.replacement(*pair, *leaving, joining),
            PairAction::Vacate { pair, leaving } => {
                // A copy of the state goes back to its place, which the name tells.
                let known = self.record(*pair)?.directory.get(leaving);
                let last = known.map(|member| member.pod.clone()).unwrap_or_default();
                self.replacement(*pair, *leaving, &Seat::vacant(last))
            }
            PairAction::Withdraw { pair } => {
                let record = self.record(*pair)?;
                self.write(*pair, Content { pending: None, ..record.lease }, &record.directory)
            }
            PairAction::Move { pair, seat } => {
                let record = self.record(*pair)?;
                let mut directory = record.directory.clone();
                directory.insert(seat.id, member(seat));
                self.write(*pair, record.lease, &directory)
            }
            PairAction::Force { pair, lease } => {
                let record = self.record(*pair)?;
                self.write(*pair, *lease, &record.directory)
            }
            PairAction::SwitchOver { pair } => self.switch_over(*pair),
            PairAction::Fence { pair } => self.fence(*pair),
            PairAction::End { pair } => self.end(*pair),
            PairAction::Label { pod, shown } => self.label(*pod, shown),
        }
    }

    fn name(&self, number: u32) -> String {
        pair_name(self.group.metadata.name.as_deref().unwrap_or_default(), number)
    }

    fn record(&self, pair: u32) -> Result<&Record, StepError> {
        self.records.get(&pair).ok_or(StepError::Gone)
    }

    /// Asks the active to have another seat in the place of a member.
    fn replacement(&self, pair: u32, leaving: AgentId, joining: &Seat) -> Result<StepWrite, StepError> {
        let record = self.record(pair)?;
        let pending = Some(Replacement { leaving, joining: joining.id });
        let mut directory = record.directory.clone();
        directory.insert(joining.id, member(joining));
        self.write(pair, Content { pending, ..record.lease }, &directory)
    }

    /// The Lease of a new pair, or of one whose Lease was lost.
    fn founded(
        &self,
        number: u32,
        epoch: Epoch,
        seats: &[Seat; 2],
        level: Option<&LevelText>,
    ) -> Result<StepWrite, StepError> {
        // The schema says the same; it may have been bypassed.
        self.timing.check().map_err(StepError::Times)?;
        let content = Content {
            epoch,
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
        metadata["annotations"][keys::ANNOTATION_HA_OUTAGE] = json!(times::written_outage(self.timing));
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
        Ok(StepWrite::Create(body))
    }

    /// The Lease as it was when it was deleted, word for word, so that nobody who reads it takes it for another one.
    fn restored(&self, pair: u32) -> Result<StepWrite, StepError> {
        let ended = self.ends.get(&pair).ok_or(StepError::Gone)?;
        let first = identity(&ended.metadata).map_err(StepError::Words)?;
        let mut metadata = group_metadata(self.group, &self.name(pair));
        metadata["annotations"] = json!(ended.metadata.annotations);
        metadata["annotations"][keys::ANNOTATION_HA_LEASE] = json!(format_uid(first));
        Ok(StepWrite::Create(json!({"metadata": metadata, "spec": ended.spec})))
    }

    fn write(&self, pair: u32, content: Content, directory: &Directory) -> Result<StepWrite, StepError> {
        let record = self.record(pair)?;
        Ok(self.patch(pair, self.words(content, directory, Some(record))?))
    }

    /// The Lease in the form that agents read.
    fn words(
        &self,
        lease: Content,
        directory: &Directory,
        base: Option<&Record>,
    ) -> Result<Value, StepError> {
        let base = base.map_or_else(Default::default, |record| record.version);
        let write = Write { number: 0, base, lease };
        patch(&write, directory, self.timing, self.now).map_err(StepError::Words)
    }

    /// The order that people give as well: only the tenure of this epoch obeys it.
    fn switch_over(&self, pair: u32) -> Result<StepWrite, StepError> {
        let record = self.record(pair)?;
        let epoch = u64::from(record.lease.epoch).to_string();
        let patch = json!({"metadata": {
            "resourceVersion": record.version.0.to_string(),
            "annotations": {(keys::ANNOTATION_HA_SWITCH_OVER): epoch},
        }});
        Ok(self.patch(pair, patch))
    }

    fn fence(&self, pair: u32) -> Result<StepWrite, StepError> {
        let record = self.record(pair)?;
        let uids: Vec<String> = record.lease.members.iter().map(|id| format_uid(id.0)).collect();
        let patch = json!({"metadata": {
            "resourceVersion": record.version.0.to_string(),
            "annotations": {
                (keys::ANNOTATION_HA_ENDING): "true",
                (keys::ANNOTATION_HA_FENCED): uids.join(","),
            },
        }});
        Ok(self.patch(pair, patch))
    }

    /// Returns the write that tells the agents of a pair what the group wants of them now: the order of a planned handover, and a
    /// slice or none.
    ///
    /// # Errors
    /// `Gone` if the pair has no Lease.
    pub fn wishes(&self, pair: u32) -> Result<StepWrite, StepError> {
        let record = self.record(pair)?;
        let patch = json!({"metadata": {
            "resourceVersion": record.version.0.to_string(),
            "annotations": {
                (keys::ANNOTATION_HA_HANDOVER): handover(self.group),
                (keys::ANNOTATION_HA_SLICE): slice(self.group, pair),
            },
        }});
        Ok(self.patch(pair, patch))
    }

    fn patch(&self, pair: u32, patch: Value) -> StepWrite {
        StepWrite::Patch { name: self.name(pair), patch }
    }

    /// Returns the write that deletes the Lease of a pair.
    ///
    /// # Errors
    /// `Gone` if the pair has none.
    pub fn end(&self, pair: u32) -> Result<StepWrite, StepError> {
        let record = self.record(pair)?;
        Ok(StepWrite::Delete(Box::new(ObjectMeta {
            name: Some(self.name(pair)),
            // No other object ever has this version.
            resource_version: Some(record.version.0.to_string()),
            ..ObjectMeta::default()
        })))
    }

    fn label(&self, pod: AgentId, shown: &Shown) -> Result<StepWrite, StepError> {
        let pod = self.pods.get(&pod).ok_or(StepError::Gone)?;
        let mut patch = json!({"metadata": {
            "uid": pod.uid,
            "labels": {
                (keys::LABEL_PAIR_STATE): shown.state.map(HaState::as_str),
                (keys::LABEL_PAIR_PEER): shown.peer,
                (keys::LABEL_HA_STATE): shown.state.map(HaState::as_str),
                (keys::LABEL_PEER): shown.peer,
            },
            "annotations": {(keys::ANNOTATION_HA_KEPT): shown.is_kept.then_some("true")},
        }});
        let labels = &mut patch["metadata"]["labels"];
        for pair in &pod.standby_of {
            labels[standby_of_label(*pair)] = Value::Null;
        }
        for (pair, active) in &shown.actives {
            labels[standby_of_label(*pair)] = json!(active);
        }
        if let Some(epoch) = shown.epoch {
            patch["metadata"]["annotations"][keys::ANNOTATION_HA_EPOCH] = json!(shown::text(epoch));
        }
        Ok(StepWrite::Label { name: pod.name.clone(), patch })
    }
}

/// Pairs whose agents know other wishes than the group has.
pub fn misled(group: &HAGroup, records: &BTreeMap<u32, Record>) -> Vec<u32> {
    let wanted = group.spec.handover.unwrap_or_default();
    let is_misled = |(number, record): &(&u32, &Record)| {
        record.orders.handover != wanted || record.slice != slice(group, **number)
    };
    records.iter().filter(is_misled).map(|(number, _)| *number).collect()
}

/// Name of the slice that the active of a pair shows its address in; `None` if the group has no Service.
fn slice(group: &HAGroup, number: u32) -> Option<String> {
    group
        .spec
        .service
        .is_some()
        .then(|| pair_name(group.metadata.name.as_deref().unwrap_or_default(), number))
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
