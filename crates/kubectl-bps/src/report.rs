//! What is there of groups and sets, as an object: what `status` prints.

use std::collections::{BTreeMap, BTreeSet};

use bps_api::{
    BackupPodSet, Condition, Conversion, CrashLoop, FailoverReport, HAGroup, PAIR_SILENT, PairStatus,
    RedundancyModel, StateLag, Takeover, keys,
};
use bps_core::model::Role;
use bps_core::pairing::{SILENCE_MAX, plan};
use bps_core::status::{GroupInput, group_status};
use bps_observe::group::{GroupObjects, SeenGroup, see_group, times};
use bps_observe::misleading_budget;
use bps_observe::slim::{SlimCondition, SlimPod};
use bps_protocol::{AgentId, BootTime, Moment};
use bps_wire::uid::parse_uid;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use serde::Serialize;

use super::domains::DomainReport;
use super::drill::Drill;
use super::fence::part;
use super::pair::{PairNow, pairs_now};

/// Everything that was asked for.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// HAGroups.
    pub groups: Vec<GroupReport>,
    /// BackupPodSets.
    pub sets: Vec<SetReport>,
}

/// A group.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupReport {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What the operator says of it in a few words; empty if it has not seen it yet.
    pub state: String,
    /// Why there is less than usual, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Its pairs by number.
    pub pairs: Vec<PairReport>,
    /// Pods in no pair.
    pub spares: Vec<PodReport>,
    /// Leases of it that cannot be read.
    pub unreadable_leases: Vec<String>,
    /// What the operator says of it.
    pub conditions: Vec<Condition>,
    /// Who took over from whom, the latest last.
    pub takeovers: Vec<Takeover>,
}

/// A pair.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PairReport {
    /// Its number.
    pub number: u32,
    /// Name of its Lease.
    pub name: String,
    /// What it is doing, as in the status of the group.
    pub state: String,
    /// Where the replicated state is, as in the status of the group; empty if none is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sync: String,
    /// How much the standby lacks of it, if that is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<StateLag>,
    /// How its application ends again and again, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash_loop: Option<CrashLoop>,
    /// Epoch of the present tenure, decimal, as in the environment of the application.
    pub epoch: String,
    /// Its members, the active first, then who shall join.
    pub pods: Vec<PodReport>,
}

/// A set.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetReport {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What the operator says of it in a few words; empty if it has not seen it yet.
    pub state: String,
    /// The model of redundancy that its counts amount to; empty if the operator has not said so yet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub redundancy: String,
    /// The one that its newest specification promises; what the counts amount to is that of the last usable one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redundancy_model: Option<RedundancyModel>,
    /// Primaries, hot and cold backups.
    pub tiers: Vec<TierReport>,
    /// The same Pods by domain, if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainReport>,
    /// What others set up for its Pods that does not do what they expect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What the operator says of it.
    pub conditions: Vec<Condition>,
    /// The last failover.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failover: Option<FailoverReport>,
    /// The last drill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_drill: Option<Drill>,
    /// Conversions, the latest last.
    pub conversions: Vec<Conversion>,
}

/// The Pods of one role.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TierReport {
    /// The role: `primary`, `hot` or `cold`.
    pub role: String,
    /// How many there shall be.
    pub wanted: i32,
    /// Those that are there, by name.
    pub pods: Vec<PodReport>,
}

/// A Pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// Its name.
    pub name: String,
    /// `active`, `standby`, `joining` or `spare` in a group; the role in a set.
    pub part: String,
    /// Where it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// How far it has come.
    pub readiness: Readiness,
    /// Whether it shall not act.
    pub is_fenced: bool,
    /// Whether it is being deleted.
    pub is_terminating: bool,
}

/// How far a Pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Readiness {
    /// It passes its readiness probes.
    Ready,
    /// It waits at its gate, as a cold backup shall.
    AtGate,
    /// It does not pass its readiness probes.
    NotReady,
    /// It is known from what the operator told only.
    Unknown,
    /// It does not answer its active, whatever its probes said last.
    Silent,
    /// It does not exist any more, although a Lease names it.
    Gone,
}

/// What is there of a group.
pub fn group_report(group: &HAGroup, objects: &GroupObjects) -> GroupReport {
    let seen = see_group(group, objects, BootTime::default());
    let pairs = pairs_now(&objects.leases, &objects.slices);
    let named: BTreeSet<AgentId> =
        pairs.iter().flat_map(|pair| pair.members().into_iter().chain(pair.joining())).collect();
    let is_spare = |pod: &&SlimPod| id_of(pod).is_none_or(|id| !named.contains(&id));
    let pods = || objects.pods.iter().map(AsRef::as_ref);
    let pair_states = statuses(group, &seen);
    let pair_report = |pair: &PairNow| {
        let ids = pair.members().into_iter().chain(pair.joining());
        let find = |id| pods().find(|pod| id_of(pod) == Some(id));
        let told = pair_states.iter().find(|told| told.name == pair.name);
        let PairStatus { state, sync, lag, crash_loop, standby, .. } = told.cloned().unwrap_or_default();
        let member = |id| {
            let report = member_report(pair, id, find(id));
            let is_silent = state == PAIR_SILENT && report.name == standby;
            if is_silent { PodReport { readiness: Readiness::Silent, ..report } } else { report }
        };
        let pods = ids.map(member).collect();
        let (name, epoch) = (pair.name.clone(), u64::from(pair.epoch).to_string());
        PairReport { number: pair.number, name, state, sync, lag, crash_loop, epoch, pods }
    };
    let told = group.status.clone().unwrap_or_default();
    let mut spares: Vec<PodReport> =
        pods().filter(is_spare).map(|pod| pod_report(pod, "spare", false)).collect();
    spares.sort_by(|one, other| one.name.cmp(&other.name));
    GroupReport {
        namespace: group.namespace().unwrap_or_default(),
        name: group.name_any(),
        state: told.state,
        note: None,
        pairs: pairs.iter().map(pair_report).collect(),
        spares,
        unreadable_leases: seen.unreadable.into_keys().collect(),
        conditions: told.conditions,
        takeovers: told.takeovers,
    }
}

/// What the operator told of a group last, where no more may be read; `note` says why.
pub fn told_report(group: &HAGroup, note: String) -> GroupReport {
    let told = group.status.clone().unwrap_or_default();
    let pod = |name: &String, part: &str| PodReport {
        name: name.clone(),
        part: part.to_owned(),
        node: None,
        readiness: Readiness::Unknown,
        is_fenced: false,
        is_terminating: false,
    };
    let pair = |pair: PairStatus| {
        let members = [(&pair.active, keys::HA_ROLE_ACTIVE), (&pair.standby, keys::HA_ROLE_STANDBY)];
        let members = members.into_iter().filter(|(name, _)| !name.is_empty());
        PairReport {
            number: pair.name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or_default(),
            pods: members.map(|(name, part)| pod(name, part)).collect(),
            name: pair.name.clone(),
            state: pair.state,
            sync: pair.sync,
            lag: pair.lag,
            crash_loop: pair.crash_loop,
            epoch: pair.epoch,
        }
    };
    GroupReport {
        namespace: group.namespace().unwrap_or_default(),
        name: group.name_any(),
        state: told.state,
        note: Some(note),
        spares: told.spares.iter().map(|name| pod(name, "spare")).collect(),
        pairs: told.pairs.into_iter().map(pair).collect(),
        unreadable_leases: Vec::new(),
        conditions: told.conditions,
        takeovers: told.takeovers,
    }
}

/// Each pair in the operator's own words, from what is there now.
fn statuses(group: &HAGroup, seen: &SeenGroup) -> Vec<PairStatus> {
    let previous = group.status.clone().unwrap_or_default();
    // What was told to be silent counts as that.
    let (timing, now) = (times(group), BootTime::default() + SILENCE_MAX);
    let plan = plan(&seen.group, &Moment { now, timing: &timing });
    let status = group_status(&GroupInput {
        previous: &previous,
        generation: 0,
        name: &group.name_any(),
        group: &seen.group,
        plan: &plan,
        records: &BTreeMap::new(),
        lags: &seen.lags(),
        crash_loops: &seen.crash_loops(),
        has_service: group.spec.service.is_some(),
        unread: None,
        troubles: &[],
        // Only pairs are read, and those have no time.
        now: jiff::Timestamp::UNIX_EPOCH,
    });
    status.pairs
}

fn member_report(pair: &PairNow, id: AgentId, pod: Option<&SlimPod>) -> PodReport {
    let (part, is_fenced) = (part(pair, id), pair.is_fenced(id));
    match pod {
        Some(pod) => pod_report(pod, part, is_fenced),
        None => PodReport {
            name: pair.name_of(id),
            part: part.to_owned(),
            node: None,
            readiness: Readiness::Gone,
            is_fenced,
            is_terminating: false,
        },
    }
}

fn id_of(pod: &SlimPod) -> Option<AgentId> {
    parse_uid(pod.metadata.uid.as_deref()?).ok().map(AgentId)
}

fn pod_report(pod: &SlimPod, part: &str, is_fenced: bool) -> PodReport {
    PodReport {
        name: pod.name_any(),
        part: part.to_owned(),
        node: pod.spec.node_name.clone(),
        readiness: readiness(pod),
        is_fenced,
        is_terminating: pod.metadata.deletion_timestamp.is_some(),
    }
}

fn readiness(pod: &SlimPod) -> Readiness {
    let gate = pod.status.init_container_statuses.iter().find(|status| status.name == keys::CONTAINER_GATE);
    if gate.is_some_and(|gate| gate.state.running.is_some()) {
        Readiness::AtGate
    } else if SlimCondition::ready(&pod.status.conditions).is_some_and(SlimCondition::is_true) {
        Readiness::Ready
    } else {
        Readiness::NotReady
    }
}

/// What is there of a set; `pods` and `budgets` may hold those of others.
pub fn set_report(set: &BackupPodSet, pods: &[SlimPod], budgets: &[PodDisruptionBudget]) -> SetReport {
    let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
    let is_own = |pod: &&SlimPod| {
        pod.labels().get(keys::LABEL_SET) == Some(&name) && pod.namespace().as_ref() == Some(&namespace)
    };
    let tier = |(role, wanted): (Role, i32)| {
        let role = role.as_str();
        let is_of_role =
            |pod: &&SlimPod| pod.labels().get(keys::LABEL_ROLE).is_some_and(|label| label == role);
        let own = pods.iter().filter(is_own).filter(is_of_role);
        let mut pods: Vec<PodReport> = own.map(|pod| pod_report(pod, role, false)).collect();
        pods.sort_by(|one, other| one.name.cmp(&other.name));
        TierReport { role: role.to_owned(), wanted, pods }
    };
    let wanted = [
        (Role::Primary, set.spec.replicas),
        (Role::Hot, set.spec.hot_backups),
        (Role::Cold, set.spec.cold_backups),
    ];
    let tiers = wanted.map(tier).into();
    let status = set.status.clone().unwrap_or_default();
    let of_namespace = budgets.iter().filter(|budget| budget.namespace().as_ref() == Some(&namespace));
    let warnings = of_namespace.filter_map(|budget| misleading_budget(budget, set)).collect();
    SetReport {
        namespace,
        name,
        state: status.state,
        redundancy: status.redundancy,
        redundancy_model: set.spec.redundancy_model,
        tiers,
        domains: Vec::new(),
        warnings,
        conditions: status.conditions,
        last_failover: status.last_failover,
        last_drill: Drill::of(set),
        conversions: status.conversions,
    }
}
