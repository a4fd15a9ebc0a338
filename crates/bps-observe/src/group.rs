//! A group of pairs as plans see it: its Pods, and its pairs by their Leases.
//!
//! What only time tells, such as since when a Lease is unwritten, comes from the memory of earlier looks.
//!
//! | module | what it does |
//! |---|---|
//! | `existing` | raw objects to what decisions compare with what is wanted |
//! | `ends` | how Leases ended whose deletion was seen |
//! | `awaited` | what was written and no watch has shown yet |
//! | `departed` | which members of pairs do not start again |
//! | `memory` | what is known of earlier looks |

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bps_api::{
    Condition, ConditionStatus, CrashLoop, GroupTiming, HAGroup, IN_SYNC, LostPair, PAIR_ENDING,
    PAIR_KEEPER_BUSY, PAIR_SILENT, PairStatus, StandbyPlacement, StateLag, TimingProfile, WITHHELD, keys,
};
use bps_core::manifests::{pair_name, standby_of_label};
use bps_core::model::{NodeName, PodName, Role};
use bps_core::pairing::{
    ExistingObjects, FORMER_WAIT, Forsaken, Group, HaState, LevelText, Lost, Pair, Pod, SILENCE_MAX, Shown,
    Silence, StandbyPlace,
};
use bps_protocol::{AgentId, BootTime, Epoch, Timing};
use bps_wire::lease::{Error, Record};
use bps_wire::shown;
use bps_wire::uid::{format_uid, parse_uid};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{Role as AgentRole, RoleBinding};
use kube_core::{ObjectMeta, Resource, ResourceExt as _};

use super::slim::{SlimCondition, SlimPod};
use super::{SetKey, version};

mod awaited;
mod departed;
mod ends;
mod existing;
mod memory;

pub use awaited::{AwaitedWrites, Watches, WrittenVersion};
pub use departed::{ASK_EACH, Departed, Heard, Renewal, SeenPods};
pub use ends::{LeaseEnd, LeaseEnds, PodEnd, PodEnds};
pub use memory::{Lasting, LeaseMemory, Memory, OwnStatus, SeenEnds, TERMS_MISSED};

/// The objects of one group: those that bear its label.
#[derive(Clone, Debug, Default)]
pub struct GroupObjects {
    /// Its Pods.
    pub pods: Vec<Arc<SlimPod>>,
    /// The Leases of its pairs.
    pub leases: Vec<Arc<Lease>>,
    /// Its Services.
    pub services: Vec<Arc<Service>>,
    /// The EndpointSlices of its pairs.
    pub slices: Vec<Arc<EndpointSlice>>,
    /// What permits its agents to do their work.
    pub roles: Vec<Arc<AgentRole>>,
    /// Who has that permission.
    pub bindings: Vec<Arc<RoleBinding>>,
}

impl GroupObjects {
    /// Version of the object of this kind and name, as the watches show it.
    pub fn version_of(&self, kind: &str, name: &str) -> Option<u64> {
        fn find<K: Resource<DynamicType = ()>>(objects: &[Arc<K>], name: &str) -> Option<u64> {
            let found = objects.iter().find(|object| object.meta().name.as_deref() == Some(name))?;
            version(found.meta())
        }
        match kind {
            // It was there when it was written; one that is gone by now has nothing to wait for.
            "Pod" => find(&self.pods, name).or(Some(u64::MAX)),
            "Lease" => find(&self.leases, name),
            "Service" => find(&self.services, name),
            "EndpointSlice" => find(&self.slices, name),
            "Role" => find(&self.roles, name),
            "RoleBinding" => find(&self.bindings, name),
            _ => None,
        }
    }
}

/// A group, and the records that its pairs were read from.
#[derive(Clone, Debug, Default)]
pub struct SeenGroup {
    /// What plans are made from, as one sees it who looks for the first time.
    pub group: Group,
    /// The Lease of each pair by its number.
    pub records: BTreeMap<u32, Record>,
    /// Numbers of the pairs that have a Lease, also one that cannot be read.
    pub numbers: BTreeSet<u32>,
    /// Leases with the group's label that cannot be read, and why; a pair of theirs is left alone.
    pub unreadable: BTreeMap<String, Option<Error>>,
    /// Pairs whose Lease shows a term that is over.
    pub set_back: BTreeSet<u32>,
    /// The tenures that the status tells of, by the number of the pair.
    pub told_epochs: BTreeMap<u32, Epoch>,
    /// Pairs that the status names, as they would be if their Lease had been lost just now.
    pub told: BTreeMap<u32, Lost>,
    /// How long whoever acts by a Lease may do so that is gone, as the status tells.
    pub told_wait: Duration,
    /// What each Lease that names a pair says of the copies of its state.
    pub levels: BTreeMap<u32, Option<LevelText>>,
    /// How far each Pod is on its way that is there.
    pub pod_ends: Vec<PodEnd>,
    /// All objects, to be compared with what is wanted.
    pub objects: ExistingObjects,
}

impl SeenGroup {
    /// What the Leases tell of applications that end again and again, by the number of the pair: in the tenure that they show, on Pods
    /// that are there.
    pub fn crash_loops(&self) -> BTreeMap<u32, CrashLoop> {
        let is_there = |told: &CrashLoop| self.group.pods.iter().any(|pod| pod.name == told.pod);
        let told = |(number, record): (&u32, &Record)| {
            let told = record.crash_loop.clone()?.of(record.lease.epoch);
            Some((*number, told.filter(is_there)?))
        };
        self.records.iter().filter_map(told).collect()
    }

    /// What the Leases tell of what standbys lack, by the number of the pair.
    pub fn lags(&self) -> BTreeMap<u32, StateLag> {
        let lag = |(number, record): (&u32, &Record)| Some((*number, record.lag.clone().lag()?));
        self.records.iter().filter_map(lag).collect()
    }
}

/// Reads everything that belongs to a group, as one who looks for the first time: every wait begins now.
pub fn see_group(group: &HAGroup, objects: &GroupObjects, now: BootTime) -> SeenGroup {
    let mut seen = SeenGroup { objects: existing::existing(objects), ..SeenGroup::default() };
    for lease in &objects.leases {
        if let Some(number) = pair_number(lease) {
            seen.levels.entry(number).or_insert_with(|| level_text(lease));
        }
        let named = || number_in(&group.name_any(), &lease.name_any());
        let Some(number) = pair_number(lease).or_else(named) else {
            seen.unreadable.insert(lease.name_any(), None);
            continue;
        };
        seen.numbers.insert(number);
        match Record::read(lease) {
            Ok(record) => {
                let own = pair(number, &record, (is_ending(lease), now));
                seen.group.pairs.push(Pair { rank: rank(lease), ..own });
                seen.records.insert(number, record);
            }
            Err(error) => drop(seen.unreadable.insert(lease.name_any(), Some(error))),
        }
    }
    seen.group.pairs.sort_by_key(|pair| pair.number);
    seen.group.pods = objects.pods.iter().filter_map(|pod| pod_of(pod)).collect();
    seen.pod_ends = objects.pods.iter().filter_map(|pod| PodEnd::of(pod)).collect();
    seen.told_wait = told_wait(group);
    let until = now + seen.told_wait;
    seen.told = if is_told(group) { told(group, until) } else { shown_before(&seen, now) };
    seen.told_epochs = told_epochs(group);
    seen.group.highest_term = highest_term(group, objects, &seen.group.pairs);
    let lost = seen.told.values().filter(|lost| !seen.numbers.contains(&lost.number));
    seen.group.lost = lost.cloned().collect();
    let unreadable = seen.numbers.iter().filter(|number| !seen.records.contains_key(number));
    seen.group.unreadable = unreadable
        .map(|number| seen.told.get(number).cloned().unwrap_or_else(|| nameless(*number, until)))
        .collect();
    see_forsaken(&mut seen.group, group, now);
    see_silence(&mut seen.group, group, now);
    seen.group.crash_looping = seen.crash_loops().into_keys().collect();
    seen.group.is_paused = group.spec.paused;
    let place = group.spec.topology.as_ref().map_or(StandbyPlacement::default(), |topology| topology.standby);
    seen.group.standby_place = match place {
        StandbyPlacement::Ignore => StandbyPlace::Anywhere,
        StandbyPlacement::Preferred => StandbyPlace::Preferred,
        StandbyPlacement::Required => StandbyPlace::Required,
    };
    let places = group.spec.standby_for.and_then(|places| usize::try_from(places).ok()).unwrap_or(1);
    seen.group.further_places = places.saturating_sub(1);
    seen.group.pairs_wanted = group.spec.pairs.map(|pairs| usize::try_from(pairs).unwrap_or_default());
    seen
}

/// How long whoever acts by a Lease of a group may do so that is gone and of which only the status tells: pairs keep the times of
/// which they were made, also if the specification has changed since.
pub fn told_wait(group: &HAGroup) -> Duration {
    let told = group.status.as_ref().and_then(|status| u64::try_from(status.wait_seconds).ok());
    let told = told.filter(|seconds| *seconds > 0).map_or(FORMER_WAIT, Duration::from_secs);
    told.max(times(group).operator_wait)
}

/// The times of new pairs of a group.
pub fn times(group: &HAGroup) -> Timing {
    let GroupTiming { profile, hold_milliseconds, watch_milliseconds, stop_milliseconds, api_outage_seconds } =
        group.spec.timing.unwrap_or_default();
    let [hold, watch, stop] = [hold_milliseconds, watch_milliseconds, stop_milliseconds]
        .map(|time| Duration::from_millis(u64::try_from(time).unwrap_or_default()));
    let outage = Duration::from_secs(u64::try_from(api_outage_seconds).unwrap_or_default());
    let timing = match profile {
        TimingProfile::Default => Timing::with(hold, watch, stop),
        TimingProfile::Fast => Timing::fast(),
    };
    timing.outliving(outage)
}

fn pair(number: u32, record: &Record, (is_ending, now): (bool, BootTime)) -> Pair {
    Pair {
        number,
        lease: record.lease,
        names: record.directory.iter().map(|(id, member)| (*id, member.pod.clone())).collect(),
        addresses: record.directory.iter().map(|(id, member)| (*id, member.address)).collect(),
        rank: 0,
        fenced: record.orders.fenced.iter().copied().collect(),
        switch_over: record.orders.switch_over,
        level: record.level.count(),
        level_pods: record.level_pods.clone(),
        forsaken: None,
        is_ending,
        timing: record.timing,
        unwritten_since: now,
        is_late: record.late_in == Some(record.lease.epoch),
        have_ended: false,
        ends_known_at: None,
        silence: None,
        uncovered: None,
    }
}

/// What the status tells of pairs in which nobody may act was told already.
fn see_forsaken(seen: &mut Group, group: &HAGroup, now: BootTime) {
    let told = group.status.iter().flat_map(|status| &status.pairs);
    let told: BTreeSet<&str> =
        told.filter(|pair| pair.state == WITHHELD).map(|pair| pair.name.as_str()).collect();
    let (name, roster) = (group.name_any(), seen.roster());
    let forsaken = |pair: &Pair| {
        let was_told = told.contains(pair_name(&name, pair.number).as_str());
        roster.is_forsaken(pair).then_some(Forsaken { since: now, was_told })
    };
    let all: Vec<Option<Forsaken>> = seen.pairs.iter().map(forsaken).collect();
    for (pair, forsaken) in seen.pairs.iter_mut().zip(all) {
        pair.forsaken = forsaken;
    }
}

/// A standby that the status calls silent has been so for long, if its Lease says the same.
fn see_silence(seen: &mut Group, group: &HAGroup, now: BootTime) {
    let told = group.status.iter().flat_map(|status| &status.pairs);
    let told: BTreeSet<&str> =
        told.filter(|pair| pair.state == PAIR_SILENT).map(|pair| pair.name.as_str()).collect();
    let name = group.name_any();
    for pair in &mut seen.pairs {
        let is_told = told.contains(pair_name(&name, pair.number).as_str());
        let standby = pair.silent_standby().filter(|_| is_told);
        pair.silence = standby.map(|standby| Silence { standby, since: now.before(SILENCE_MAX) });
    }
}

/// What a group says of pairs in which nobody may act, if there are any, or whose only copy is on a Pod that acts in another one.
pub(super) fn withheld(group: &HAGroup) -> Option<&str> {
    let mut conditions = group.status.iter().flat_map(|status| &status.conditions);
    let tells = |said: &Condition| said.r#type == WITHHELD || said.reason == PAIR_KEEPER_BUSY;
    let is_said = |said: &&Condition| tells(said) && said.status == ConditionStatus::True;
    conditions.find(is_said).map(|said| said.message.as_str())
}

/// Standbys that have every acknowledged write, by their actives, as far as the status of their group tells.
///
/// Not that of an active that has the only copy of another pair's state: a rollout that deleted it would lose that.
pub(super) fn level_standbys(group: &HAGroup) -> BTreeMap<PodName, PodName> {
    let pairs = || group.status.iter().flat_map(|status| &status.pairs);
    let waiting = pairs().filter(|pair| pair.state == PAIR_KEEPER_BUSY);
    let keepers: BTreeSet<&String> = waiting.flat_map(|pair| &pair.pods).collect();
    let is_level = |pair: &&PairStatus| {
        pair.sync == IN_SYNC && !pair.active.is_empty() && !keepers.contains(&pair.active)
    };
    let names = |pair: &PairStatus| (PodName(pair.active.clone()), PodName(pair.standby.clone()));
    pairs().filter(is_level).map(names).collect()
}

/// Terms from which on nobody is believed. 2^30, half of what a Lease can hold: takeovers never come that far, and a Pod that
/// shows such a term would leave none to the next ones.
pub const TERM_SHOWN_MAX: u32 = 1 << 30;

/// Terms outlive Leases in the status and in what the slices show, and the group in what its Pods show.
fn highest_term(group: &HAGroup, objects: &GroupObjects, pairs: &[Pair]) -> u32 {
    let told = group.status.as_ref().and_then(|status| u32::try_from(status.highest_term).ok());
    let slices = objects.slices.iter().filter_map(|slice| shown_epoch(&**slice));
    let shown = objects.pods.iter().filter_map(|pod| shown_epoch(&**pod)).chain(slices);
    let held = pairs.iter().map(|pair| pair.lease.epoch);
    let believed = shown.chain(held).map(|epoch| epoch.term).filter(|term| *term < TERM_SHOWN_MAX);
    believed.chain(told).max().unwrap_or_default()
}

/// Epoch of the active whose address a slice shows, or of the last tenure of a Pod.
pub fn shown_epoch(object: &impl Resource) -> Option<Epoch> {
    shown::read(object.annotations()).ok()?
}

/// Pairs that the status names: those that have a Lease, or had one when the status was written, and lost ones.
///
/// Of the first ones it is not known what their Lease said at its end. The status is older, and a copy that it calls level
/// may have been left out since.
fn told(group: &HAGroup, until: BootTime) -> BTreeMap<u32, Lost> {
    let group_name = group.name_any();
    let status = group.status.iter();
    let pairs = status.clone().flat_map(|status| &status.pairs).filter_map(|pair| {
        let PairStatus { name, active, standby, pods: named, state, sync, .. } = pair;
        let mut pods: Vec<String> =
            [active, standby].into_iter().filter(|pod| !pod.is_empty()).cloned().collect();
        // A fenced or starting pair has members that are neither.
        let others: Vec<String> = named.iter().filter(|pod| !pods.contains(pod)).cloned().collect();
        pods.extend(others);
        let level = (!sync.is_empty() && state != PAIR_ENDING).then(level_of_nobody);
        Some(Lost::new(number_in(&group_name, name)?, pods, level, until))
    });
    let lost = status.flat_map(|status| &status.lost).filter_map(|pair| {
        let LostPair { name, pods, in_sync, in_sync_pods, is_over } = pair.clone();
        let level = in_sync.map(|directories| LevelText { directories, pods: in_sync_pods });
        let until = if is_over { BootTime::default() } else { until };
        Some(Lost::new(number_in(&group_name, &name)?, pods, level, until))
    });
    pairs.chain(lost).map(|lost| (lost.number, lost)).collect()
}

/// A pair of which only the number is known.
fn nameless(number: u32, until: BootTime) -> Lost {
    Lost::new(number, Vec::new(), None, until)
}

/// The number in the name of a pair, the inverse of [`pair_name`].
fn number_in(group: &str, pair: &str) -> Option<u32> {
    pair.strip_prefix(group)?.strip_prefix('-')?.parse().ok()
}

/// Whether the status knows of pairs, or of former ones.
fn is_told(group: &HAGroup) -> bool {
    group
        .status
        .as_ref()
        .is_some_and(|status| !status.pairs.is_empty() || !status.lost.is_empty() || status.highest_term > 0)
}

/// The tenures that the status tells of, by the number of the pair.
fn told_epochs(group: &HAGroup) -> BTreeMap<u32, Epoch> {
    let name = group.name_any();
    let told = group.status.iter().flat_map(|status| &status.pairs);
    let epoch = |pair: &PairStatus| {
        Some((number_in(&name, &pair.name)?, Epoch::from(pair.epoch.parse::<u64>().ok()?)))
    };
    told.filter_map(epoch).collect()
}

/// Pairs that a group of the same name had, which was deleted with all that it knew: their actives may act for a while.
/// Leases of it may still be there; they speak for their Pods.
fn shown_before(seen: &SeenGroup, now: BootTime) -> BTreeMap<u32, Lost> {
    let named: BTreeSet<&str> =
        seen.group.pairs.iter().flat_map(|pair| pair.names.values()).map(String::as_str).collect();
    let is_left = |pod: &&Pod| pod.shown.state.is_some() && !named.contains(pod.name.as_str());
    let mut pods: Vec<Pod> = seen.group.pods.iter().filter(is_left).cloned().collect();
    pods.sort_by_key(|pod| (pod.shown.state, pod.name.clone()));
    let mut pairs: Vec<Vec<String>> = Vec::new();
    for pod in pods {
        // Actives come first, so that they are the first members again. A standby of several belongs to a pair of each.
        for peer in pod.shown.peer.iter().chain(pod.shown.actives.values()) {
            match pairs.iter_mut().find(|pair| pair.len() == 1 && pair.first() == Some(peer)) {
                Some(pair) => pair.push(pod.name.clone()),
                None if pod.shown.actives.is_empty() => {}
                None => pairs.push(vec![peer.clone(), pod.name.clone()]),
            }
        }
        if !pairs.iter().any(|pair| pair.contains(&pod.name)) {
            pairs.push(vec![pod.name]);
        }
    }
    let free = (0..).filter(|number| !seen.numbers.contains(number));
    let lost = |(number, pods)| {
        (number, Lost { is_former: true, ..Lost::new(number, pods, None, now + FORMER_WAIT) })
    };
    free.zip(pairs).map(lost).collect()
}

/// What a Lease says of the copies of a pair's state that the next one is to say, too; `None` if none is replicated, or if it
/// was decided that the pair ends.
pub fn level_text(lease: &Lease) -> Option<LevelText> {
    if is_ending(lease) {
        return None;
    }
    let annotated = |key: &str| lease.annotations().get(key).cloned();
    let pods = annotated(keys::ANNOTATION_HA_IN_SYNC_PODS).unwrap_or_default();
    Some(LevelText { directories: annotated(keys::ANNOTATION_HA_IN_SYNC)?, pods })
}

/// Nobody may act before a person decides: it is not known whose copy has every acknowledged write.
pub fn level_of_nobody() -> LevelText {
    LevelText { directories: String::new(), pods: format_uid(AgentId::NOBODY.0) }
}

/// The group that the label of an object names.
pub fn labelled_key(metadata: &ObjectMeta) -> Option<SetKey> {
    let name = metadata.labels.as_ref()?.get(keys::LABEL_GROUP)?.clone();
    Some(SetKey { namespace: metadata.namespace.clone()?, name })
}

/// Number of the pair that a Lease belongs to.
pub fn pair_number(lease: &Lease) -> Option<u32> {
    lease.annotations().get(keys::ANNOTATION_HA_PAIR)?.parse().ok()
}

/// The rank that people gave the pair of a Lease.
fn rank(lease: &Lease) -> i32 {
    lease.annotations().get(keys::ANNOTATION_RANK).and_then(|rank| rank.parse().ok()).unwrap_or_default()
}

/// Whether it was decided that the pair of a Lease ends.
pub fn is_ending(lease: &Lease) -> bool {
    lease.annotations().get(keys::ANNOTATION_HA_ENDING).is_some_and(|ending| ending == "true")
}

/// A Pod as plans see it; `None` for a cold backup, which is nobody's standby before it is woken, and for one without a
/// readable uid, which only a faulty server makes.
fn pod_of(pod: &SlimPod) -> Option<Pod> {
    let role = super::pod::role(pod);
    if role == Some(Role::Cold) {
        return None;
    }
    let id = AgentId(parse_uid(pod.metadata.uid.as_deref()?).ok()?);
    let phase = pod.status.phase.as_deref().unwrap_or_default();
    let address: Option<IpAddr> = pod.status.pod_ip.as_ref().and_then(|ip| ip.parse().ok());
    Some(Pod {
        id,
        name: pod.name_any(),
        address: address.filter(|_| phase == "Running").map(|ip| SocketAddr::new(ip, keys::AGENT_PORT)),
        created: pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        node: pod.spec.node_name.clone().map(NodeName),
        // Nodes are seen by another watch.
        domain: None,
        role,
        is_leaving: pod.metadata.deletion_timestamp.is_some() || matches!(phase, "Succeeded" | "Failed"),
        is_ready: SlimCondition::ready(&pod.status.conditions).is_some_and(SlimCondition::is_true),
        shown: shown(pod),
    })
}

/// Actives that a Pod stands by for, by the numbers of their pairs, as its labels say.
pub(super) fn actives(pod: &SlimPod) -> BTreeMap<u32, String> {
    let of_pair = |(key, active): (&String, &String)| {
        let number = key.strip_prefix(keys::LABEL_STANDBY_OF)?.parse().ok()?;
        // As the operator writes it: other forms of the same number are not its own.
        (standby_of_label(number) == *key).then(|| (number, active.clone()))
    };
    pod.labels().iter().filter_map(of_pair).collect()
}

/// What the labels and annotations of a Pod say about its part.
fn shown(pod: &SlimPod) -> Shown {
    let label = |key| pod.labels().get(key);
    let twins = [(keys::LABEL_HA_STATE, keys::LABEL_PAIR_STATE), (keys::LABEL_PEER, keys::LABEL_PAIR_PEER)];
    Shown {
        state: label(keys::LABEL_HA_STATE).and_then(|text| HaState::parse(text)),
        peer: label(keys::LABEL_PEER).cloned(),
        actives: actives(pod),
        is_contradictory: twins.iter().any(|(one, other)| label(*one) != label(*other)),
        epoch: shown_epoch(pod),
        is_kept: pod.annotations().contains_key(keys::ANNOTATION_HA_KEPT),
    }
}
