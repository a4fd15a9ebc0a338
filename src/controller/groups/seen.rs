//! Objects to what plans are made from.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use tracing::warn;

use super::memory::Memory;
use super::stores::Objects;
use crate::agent::identity::parse_uid;
use crate::agent::lease::Record;
use crate::api::{HAGroup, keys};
use crate::ha::{AgentId, BootTime, Epoch, Timing};
use crate::model::NodeName;
use crate::observe::slim::SlimPod;
use crate::pairing::{Group, HaState, Pair, Pod, Shown};

/// A group, and the records that its pairs were read from.
pub(super) struct Seen {
    pub(super) group: Group,
    /// The Lease of each pair by its number.
    pub(super) records: BTreeMap<u32, Record>,
    /// Leases with the group's label that cannot be read; a pair of theirs is left alone.
    pub(super) unreadable: Vec<String>,
}

/// Reads everything that belongs to a group.
pub(super) fn see(
    group: &HAGroup,
    objects: &Objects,
    memory: &mut Memory,
    (now, timing): (BootTime, &Timing),
) -> Seen {
    let (mut records, mut unreadable, mut pairs) = (BTreeMap::new(), Vec::new(), Vec::new());
    let mut numbers = BTreeSet::new();
    for lease in &objects.leases {
        let read = pair_number(lease).map(|number| (number, Record::read(lease)));
        numbers.extend(read.iter().map(|(number, _)| *number));
        match read {
            Some((number, Ok(record))) => {
                let names = record.directory.iter().map(|(id, member)| (*id, member.pod.clone())).collect();
                let names: BTreeMap<AgentId, String> = names;
                let count = (record.lease.writes, names.values().cloned().collect());
                let unwritten_since = memory.see_pair(number, count, now);
                memory.highest_term = memory.highest_term.max(record.lease.epoch.term);
                let (fenced, is_ending) = (fenced(lease), is_ending(lease));
                pairs.push(Pair { number, lease: record.lease, names, fenced, is_ending, unwritten_since });
                records.insert(number, record);
            }
            Some((_, Err(error))) => {
                let name = lease.name_any();
                warn!(
                    lease = name,
                    error = &error as &dyn std::error::Error,
                    "Could not read the Lease of a pair"
                );
                unreadable.push(name);
            }
            None => unreadable.push(lease.name_any()),
        }
    }
    pairs.sort_by_key(|pair| pair.number);
    remember_terms(group, objects, memory);
    let lost = memory.see_lost((&numbers, told(group)), (now, timing));
    let pods = objects.pods.iter().filter_map(|pod| pod_of(pod)).collect();
    let mut seen = Group { pods, pairs, lost, is_paused: group.spec.paused, ..Group::default() };
    memory.recall(&mut seen);
    Seen { group: seen, records, unreadable }
}

/// Terms outlive Leases in the status and in what the slices show.
fn remember_terms(group: &HAGroup, objects: &Objects, memory: &mut Memory) {
    let told = group.status.as_ref().and_then(|status| u32::try_from(status.highest_term).ok());
    let shown = objects.slices.iter().filter_map(|slice| {
        let epoch: u64 = slice.annotations().get(keys::ANNOTATION_HA_EPOCH)?.parse().ok()?;
        Some(Epoch::from(epoch).term)
    });
    memory.highest_term = shown.chain(told).fold(memory.highest_term, u32::max);
}

/// Pairs that the status names, with their Pods.
fn told(group: &HAGroup) -> BTreeMap<u32, Vec<String>> {
    let name = group.name_any();
    let pairs = group.status.iter().flat_map(|status| &status.pairs);
    let told = pairs.filter_map(|pair| {
        let number = pair.name.strip_prefix(&name)?.strip_prefix('-')?.parse().ok()?;
        let pods = [&pair.active, &pair.standby].into_iter().filter(|pod| !pod.is_empty());
        Some((number, pods.cloned().collect()))
    });
    told.collect()
}

fn pair_number(lease: &Lease) -> Option<u32> {
    lease.annotations().get(keys::ANNOTATION_HA_PAIR)?.parse().ok()
}

fn is_ending(lease: &Lease) -> bool {
    lease.annotations().get(keys::ANNOTATION_HA_ENDING).is_some_and(|ending| ending == "true")
}

fn fenced(lease: &Lease) -> Vec<AgentId> {
    let uids = lease.annotations().get(keys::ANNOTATION_HA_FENCED);
    let uids = uids.into_iter().flat_map(|uids| uids.split(','));
    uids.filter_map(|uid| parse_uid(uid.trim()).ok()).map(AgentId).collect()
}

/// A Pod as plans see it; `None` for one without a readable uid, which only a faulty server makes.
fn pod_of(pod: &SlimPod) -> Option<Pod> {
    let id = AgentId(parse_uid(pod.metadata.uid.as_deref()?).ok()?);
    let phase = pod.status.phase.as_deref().unwrap_or_default();
    let address: Option<IpAddr> = pod.status.pod_ip.as_ref().and_then(|ip| ip.parse().ok());
    let label = |key| pod.labels().get(key).cloned();
    Some(Pod {
        id,
        name: pod.name_any(),
        address: address.filter(|_| phase == "Running").map(|ip| SocketAddr::new(ip, keys::AGENT_PORT)),
        created: pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        node: pod.spec.node_name.clone().map(NodeName),
        is_leaving: pod.metadata.deletion_timestamp.is_some() || matches!(phase, "Succeeded" | "Failed"),
        shown: Shown {
            state: label(keys::LABEL_HA_STATE).and_then(|label| HaState::parse(&label)),
            peer: label(keys::LABEL_PEER),
        },
    })
}
