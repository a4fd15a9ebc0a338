//! The Lease of a pair as the API server keeps it: what the protocol needs, and how to reach the members.
//!
//! ```text
//! spec.holderIdentity                    <Pod name>_<uid of the Pod>; absent: nobody holds it
//! spec.leaseTransitions                  term of the epoch
//! spec.leaseDurationSeconds, renewTime   for people only, never read
//! annotations: ha-sequence, ha-writes, ha-hold, ha-members, ha-pending, ha-takeover, ha-in-sync, ha-in-sync-pods,
//! ha-lag, ha-crash-loop, and, never written by an agent, ha-timing, ha-outage, ha-lease, ha-slice, ha-handover, ha-switch-over, ha-fenced;
//! see `api::keys`
//! ```
//!
//! Never talks to the API server; see `store`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use bps_api::keys;
use bps_protocol::{AgentId, Epoch, Hold, Lease, Replacement, TakeoverRecord, Timing, Version, Write};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1 as wire;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::crash_loop::{self, ToldCrashLoop};
use super::lag::Told;
use super::level::Level;
use super::orders::Orders;
use super::takeover;
use super::times::{self, OUTAGE, TIMES};
use super::uid::{format_uid, parse_uid, parse_uids};

/// How to reach an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Name of its Pod, for people.
    pub pod: String,
    /// Where it listens for other agents.
    pub address: SocketAddr,
}

impl Member {
    /// Where its Pod is reached; `None`: it is nobody, in a place that is vacant.
    pub fn ip(&self) -> Option<IpAddr> {
        Some(self.address.ip()).filter(|ip| !ip.is_unspecified())
    }
}

/// Both members, and the agent that shall join.
pub type Directory = BTreeMap<AgentId, Member>;

/// All that one version of the Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Uid of the Lease: the group that its members talk in. Of one that was deleted and made again as it was, that of the first one.
    pub group: u128,
    /// The version.
    pub version: Version,
    /// What the protocol reads.
    pub lease: Lease,
    /// How to reach those that it names.
    pub directory: Directory,
    /// Times of the pair.
    pub timing: Timing,
    /// EndpointSlice that its active shows its address in.
    pub slice: Option<String>,
    /// What people and the operator ask.
    pub orders: Orders,
    /// What its active last told of a takeover, if that can be read.
    pub takeover: Option<TakeoverRecord>,
    /// Which state directories have every acknowledged write.
    pub level: Level,
    /// Pods that had those directories when they were written down; nobody if that is not known.
    pub level_pods: BTreeSet<AgentId>,
    /// What its active tells of what the standby lacks.
    pub lag: Told,
    /// How its application ends again and again, if it does.
    pub crash_loop: Option<ToldCrashLoop>,
    /// In which tenure its active lives on writes, because its node wakes it late.
    pub late_in: Option<Epoch>,
}

/// Why a Lease cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field has other content than it must have.
    #[error("{field} of the Lease: expected {expected}, found {found:?}")]
    Field {
        /// Path of the field, or key of the annotation.
        field: &'static str,
        /// What must be there.
        expected: &'static str,
        /// What is there; `None`: nothing.
        found: Option<String>,
    },
    /// It is not known how to reach an agent that the write names.
    #[error("the agent {uid} is in no version of the Lease that was read")]
    Stranger {
        /// Uid of its Pod.
        uid: String,
    },
}

/// A member in an annotation.
#[derive(Serialize, Deserialize)]
struct MemberWire {
    uid: String,
    pod: String,
    address: SocketAddr,
}

/// A pending replacement in an annotation.
#[derive(Serialize, Deserialize)]
struct PendingWire {
    leaving: String,
    joining: MemberWire,
}

const MEMBERS: &str =
    r#"JSON such as [{"uid":"..","pod":"web-0","address":"10.0.0.1:20001"},..] with two different uids"#;
const PENDING: &str = r#"nothing, or JSON such as {"leaving":"<uid>","joining":{"uid":"..","pod":"web-2","address":"10.0.0.3:20001"}}"#;
const HOLDER: &str = "nothing, or <Pod name>_<uid of the Pod>";

impl Record {
    /// Reads a Lease.
    ///
    /// # Errors
    /// `Field` says what is expected; nothing has a default, because a lost number could repeat an epoch.
    pub fn read(object: &wire::Lease) -> Result<Self, Error> {
        let spec = object.spec.clone().unwrap_or_default();
        let group = identity(&object.metadata)?;
        let version = &object.metadata.resource_version;
        let version = field("metadata.resourceVersion", NUMBER, version.clone(), |text| text.parse().ok())?;
        let term = spec.lease_transitions.map(|term| term.to_string());
        let term = field("spec.leaseTransitions", NUMBER, term, |text| text.parse().ok())?;
        let annotated = |key: &str| object.metadata.annotations.as_ref()?.get(key).cloned();
        let number = |key| field(key, NUMBER, annotated(key), |text| text.parse::<u64>().ok());
        let sequence = keys::ANNOTATION_HA_SEQUENCE;
        let sequence = field(sequence, NUMBER, annotated(sequence), |text| text.parse().ok())?;
        let hold = keys::ANNOTATION_HA_HOLD;
        let hold = field(hold, "Api or Peer", annotated(hold), hold_of)?;
        let members = keys::ANNOTATION_HA_MEMBERS;
        let [one, two] = field(members, MEMBERS, annotated(members), members_of)?;
        let mut directory = Directory::from([one.clone(), two.clone()]);
        let pending = keys::ANNOTATION_HA_PENDING;
        let pending = match annotated(pending) {
            None => None,
            Some(text) => {
                let (leaving, joining) = field(pending, PENDING, Some(text), pending_of)?;
                let replacement = Replacement { leaving, joining: joining.0 };
                directory.extend([joining]);
                Some(replacement)
            }
        };
        let holder = match spec.holder_identity {
            None => None,
            Some(text) => Some(field("spec.holderIdentity", HOLDER, Some(text), holder_of)?),
        };
        let writes = number(keys::ANNOTATION_HA_WRITES)?;
        let epoch = Epoch { term, sequence };
        let lease = Lease { epoch, holder, members: [one.0, two.0], pending, hold, writes };
        let timing = keys::ANNOTATION_HA_TIMING;
        let timing = match annotated(timing) {
            None => Timing::default(),
            Some(text) => field(timing, TIMES, Some(text), times::read)?,
        };
        let outage = keys::ANNOTATION_HA_OUTAGE;
        let timing = match annotated(outage) {
            None => timing,
            Some(text) => timing.outliving(field(outage, OUTAGE, Some(text), times::read_outage)?),
        };
        let orders = object.metadata.annotations.as_ref().map(Orders::read).unwrap_or_default();
        Ok(Self {
            group,
            version: Version(version),
            lease,
            directory,
            timing,
            slice: annotated(keys::ANNOTATION_HA_SLICE),
            orders,
            takeover: annotated(keys::ANNOTATION_HA_TAKEOVER).and_then(|text| takeover::read(&text)),
            level: Level::read(annotated(keys::ANNOTATION_HA_IN_SYNC).as_deref()),
            level_pods: annotated(keys::ANNOTATION_HA_IN_SYNC_PODS)
                .map(|text| parse_uids(&text))
                .unwrap_or_default(),
            lag: Told::read(annotated(keys::ANNOTATION_HA_LAG).as_deref()),
            crash_loop: annotated(keys::ANNOTATION_HA_CRASH_LOOP).and_then(|text| crash_loop::read(&text)),
            late_in: annotated(keys::ANNOTATION_HA_LATE).and_then(|text| text.parse().ok()).map(u64::into),
        })
    }
}

/// Uid by which agents know a Lease: its own one, or that of the one that it was made again for.
///
/// Only the operator may make a Lease with the label of a group, so that nobody else can pass one off for another one.
///
/// # Errors
/// `Field` if there is none that can be read.
pub fn identity(metadata: &ObjectMeta) -> Result<u128, Error> {
    let is_of_group = metadata.labels.as_ref().is_some_and(|all| all.contains_key(keys::LABEL_GROUP));
    let first = metadata.annotations.as_ref().and_then(|all| all.get(keys::ANNOTATION_HA_LEASE));
    let (name, text) = match first.filter(|_| is_of_group) {
        Some(first) => (keys::ANNOTATION_HA_LEASE, Some(first.clone())),
        None => ("metadata.uid", metadata.uid.clone()),
    };
    field(name, "a uid", text, |uid| parse_uid(uid).ok())
}

/// A write as a merge patch that the API server refuses unless the Lease has the version of the write's base.
///
/// What others keep in the Lease stays as it is.
///
/// # Errors
/// `Stranger` if the directory lacks an agent, `Field` if the terms are used up.
pub fn patch(write: &Write, directory: &Directory, timing: &Timing, now: Timestamp) -> Result<Value, Error> {
    let Lease { epoch, holder, members, pending, hold, writes } = write.lease;
    let member = |id: AgentId| {
        let uid = format_uid(id.0);
        let Some(Member { pod, address }) = directory.get(&id).cloned() else {
            return Err(Error::Stranger { uid });
        };
        Ok(MemberWire { uid, pod, address })
    };
    let [one, two] = members;
    let members = json!([member(one)?, member(two)?]).to_string();
    let pending = match pending {
        None => Value::Null,
        Some(Replacement { leaving, joining }) => {
            let pending = PendingWire { leaving: format_uid(leaving.0), joining: member(joining)? };
            json!(json!(pending).to_string())
        }
    };
    let holder = match holder {
        None => None,
        Some(holder) => Some(member(holder).map(|MemberWire { uid, pod, .. }| format!("{pod}_{uid}"))?),
    };
    let found = Some(epoch.term.to_string());
    let used_up = Error::Field { field: "spec.leaseTransitions", expected: "less than 2147483648", found };
    let term = i32::try_from(epoch.term).map_err(|_| used_up)?;
    let hold = match hold {
        Hold::Api => "Api",
        Hold::Peer => "Peer",
    };
    Ok(json!({
        "metadata": {
            "resourceVersion": write.base.0.to_string(),
            "annotations": {
                (keys::ANNOTATION_HA_SEQUENCE): epoch.sequence.to_string(),
                (keys::ANNOTATION_HA_MEMBERS): members,
                (keys::ANNOTATION_HA_PENDING): pending,
                (keys::ANNOTATION_HA_HOLD): hold,
                (keys::ANNOTATION_HA_WRITES): writes.to_string(),
            },
        },
        "spec": {
            "holderIdentity": holder,
            "leaseTransitions": term,
            "leaseDurationSeconds": timing.watch.as_secs().max(1),
            "renewTime": MicroTime(now),
        },
    }))
}

const NUMBER: &str = "a decimal number";

fn field<T>(
    field: &'static str,
    expected: &'static str,
    found: Option<String>,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, Error> {
    let value = found.as_deref().and_then(parse);
    value.ok_or(Error::Field { field, expected, found })
}

fn hold_of(text: &str) -> Option<Hold> {
    match text {
        "Api" => Some(Hold::Api),
        "Peer" => Some(Hold::Peer),
        _ => None,
    }
}

fn holder_of(text: &str) -> Option<AgentId> {
    let (_, uid) = text.rsplit_once('_')?;
    agent_of(uid)
}

/// The agent that a uid names in the one form in which agents write it: the admission policies look for no other.
fn agent_of(uid: &str) -> Option<AgentId> {
    let id = parse_uid(uid).ok()?;
    (format_uid(id) == uid).then_some(AgentId(id))
}

fn member_of(MemberWire { uid, pod, address }: MemberWire) -> Option<(AgentId, Member)> {
    Some((agent_of(&uid)?, Member { pod, address }))
}

fn members_of(text: &str) -> Option<[(AgentId, Member); 2]> {
    let [one, two]: [MemberWire; 2] = serde_json::from_str(text).ok()?;
    let members = [member_of(one)?, member_of(two)?];
    (members[0].0 != members[1].0).then_some(members)
}

fn pending_of(text: &str) -> Option<(AgentId, (AgentId, Member))> {
    let PendingWire { leaving, joining } = serde_json::from_str(text).ok()?;
    Some((agent_of(&leaving)?, member_of(joining)?))
}

#[cfg(test)]
mod tests;
