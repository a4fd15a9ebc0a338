//! The HAGroup kind: Pods that are paired as active and standby.

#![allow(unreachable_pub, reason = "the KubeSchema derive puts a pub struct into a function")]

use super::service::{
    ServiceOptions, ServicePort, ServiceType, affinity_has_a_time, load_balancers_are_of_that_type,
    name_is_a_label, no_node_ports, node_ports_fit_the_type, outside_traffic_comes_from_outside,
    port_names_differ, port_numbers_differ, several_ports_have_names,
};
use super::status::Condition;
use super::timing::GroupTiming;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pairs the Pods of a workload: in each pair exactly one is active, and its standby takes over when it fails.
///
/// A Pod belongs to the group whose name its label `backup.example.com/group` bears, and whose agent it runs:
/// `kubectl bps inject` adds both to the template of a StatefulSet, a Deployment or any other workload.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "backup.example.com",
    version = "v1alpha1",
    kind = "HAGroup",
    plural = "hagroups",
    singular = "hagroup",
    shortname = "hag",
    category = "all",
    namespaced,
    status = "HAGroupStatus",
    derive = "PartialEq",
    doc = "HAGroup pairs Pods as active and standby. The active of a pair serves; its standby takes over within \
           milliseconds when the application fails, and within seconds when its node does. Never do both act.",
    printcolumn(
        name = "PAIRS",
        type_ = "string",
        json_path = ".status.summary.pairs",
        description = "Pairs with an active and a standby / pairs."
    ),
    printcolumn(
        name = "SPARES",
        type_ = "integer",
        json_path = ".status.summary.spares",
        description = "Pods that are in no pair and take the place of one that is lost."
    ),
    printcolumn(
        name = "STATUS",
        type_ = "string",
        json_path = ".status.state",
        description = "What the group is doing, in a few words; conditions tell more."
    ),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "ACTIVES",
        type_ = "string",
        json_path = ".status.summary.actives",
        priority = 1,
        description = "Names of the active Pods."
    ),
    printcolumn(
        name = "LAST TAKEOVER",
        type_ = "date",
        json_path = ".status.lastTakeover.time",
        priority = 1,
        description = "How long ago a pair last got another active."
    ),
    validation = Rule::new("self.metadata.name.size() <= 50").message(
        "metadata.name must be at most 50 characters: the Leases of pairs are named <name>-<number>"),
    validation = Rule::new("!self.metadata.name.contains('.')").message(
        "metadata.name must not contain dots: use dashes, because labels and objects are named after the group")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.timing) == has(oldSelf.timing) && (!has(self.timing) || self.timing == oldSelf.timing)").message(
    "timing cannot be changed while pairs act by it: make a new group with other times"))]
#[x_kube(validation = Rule::new(
    "has(self.standbyFor) == has(oldSelf.standbyFor) && (!has(self.standbyFor) || self.standbyFor == oldSelf.standbyFor)").message(
    "standbyFor cannot be changed, because Pods are made with as many places: make a new group with another one"))]
#[x_kube(validation = Rule::new("!has(self.standbyFor) || has(self.pairs)").message(
    "write pairs beside standbyFor: it says how many Pods are active, and the other ones stand by"))]
#[x_kube(validation = Rule::new("!has(self.standbyFor) || !has(self.replicationPorts) || self.replicationPorts.size() == 0").message(
    "a standby for several actives has no part of its own that replicationPorts could lead to: leave out one of them, as the \
     agents replicate the state"))]
#[x_kube(validation = Rule::new("!has(self.standbyFor) || !has(self.handover) || self.handover != 'MakeBeforeBreak'").message(
    "a standby for several actives begins with the state of one after that one has ended: leave out standbyFor, or handover \
     MakeBeforeBreak"))]
pub struct HAGroupSpec {
    /// Service that leads to the active Pods. The operator keeps it; each active shows its own address behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<GroupService>,

    /// Ports on which a standby takes in the state of its active, 1 to 50. For each active there is a Service
    /// `replicate-<name of the active Pod>` that leads to its standby; a name of more than 63 characters is cut, and ends in a
    /// hash. Node ports are refused. Default: no such Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    #[x_kube(validation = Rule::new("self.size() <= 1 || self.all(port, has(port.name))").message(
        "give every port a name when replicationPorts has more than one"))]
    #[x_kube(validation = port_names_differ())]
    #[x_kube(validation = port_numbers_differ())]
    #[x_kube(validation = no_node_ports())]
    pub replication_ports: Vec<ServicePort>,

    /// Times of its pairs. They cannot be changed: make a new group instead. Default: the defaults of its fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<GroupTiming>,

    /// Which comes first when an active hands over because somebody wants it to: a switchover, a deleted Pod, a fence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<HandoverOrder>,

    /// How many pairs there are, 0 to 1000: further Pods are spares, and take the place of whoever is lost. Until a
    /// pair has a second Pod its active acts alone. Default: as many pairs as there are Pods for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub pairs: Option<i32>,

    /// In how many pairs a Pod may be the standby, 2 to 8. When it takes one over, it leaves the others. It needs `pairs`, and agents
    /// with as many seats (`kubectl bps inject --standby-for`); it cannot be changed. Default: in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 8))]
    pub standby_for: Option<i32>,

    /// Where the Pods of a pair may be, seen from each other. Default: another zone is better, then another node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<GroupTopology>,

    /// While true, pairs stay as they are: the operator pairs, replaces and relabels no Pod. Failovers go on, because the
    /// agents carry them out. The operator corrects wrong addresses, and asks actives to vacate the places of standbys
    /// that are gone.
    #[serde(default)]
    pub paused: bool,
}

/// Where the Pods of a pair may be, seen from each other: what fails together takes an active with its standby. The operator
/// chooses among Pods that are there: have the workload spread them over these domains.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct GroupTopology {
    /// Label of nodes whose value says what fails together. Nodes without it are in no known domain. Default
    /// `topology.kubernetes.io/zone`.
    #[serde(default = "zone_label")]
    #[schemars(length(min = 1, max = 316))]
    pub key: String,
    /// Whether a standby may be in the domain of its active.
    #[serde(default)]
    pub standby: StandbyPlacement,
}

fn zone_label() -> String {
    ZONE_LABEL.to_owned()
}

/// The well-known label of nodes that names their zone.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Whether a standby may be in the failure domain of its active. `Ignore`: it may, another node is better. `Preferred` (default):
/// another domain is better, then another node; a standby gives its place to a ready spare in another domain, unless its state
/// is replicated. `Required`: it is in another domain, or there is none, and Pods that could be one wait as spares.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StandbyPlacement {
    /// It may; another node is better.
    Ignore,
    /// Another domain is better, then another node.
    #[default]
    Preferred,
    /// It is in another domain, or there is none.
    Required,
}

/// Which comes first in a planned handover: `BreakBeforeMake` (default), the old application ends before the new one
/// starts, so that never do both act; `MakeBeforeBreak`, for stateless applications, the old one goes on until the new
/// one serves, at most 10 s, so that both act for a while. The latter has no effect on an application that runs in both
/// roles or whose state is replicated. Failovers know no order. It may be changed at any time, and nothing restarts.
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandoverOrder {
    /// The old application ends before the new one starts: never do both act.
    #[default]
    BreakBeforeMake,
    /// The old application goes on until the new one serves: there is always one, and for a while there are two.
    MakeBeforeBreak,
}

impl HandoverOrder {
    /// The word in the Lease of a pair.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BreakBeforeMake => "BreakBeforeMake",
            Self::MakeBeforeBreak => "MakeBeforeBreak",
        }
    }

    /// The order of this word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::BreakBeforeMake, Self::MakeBeforeBreak].into_iter().find(|order| order.as_str() == word)
    }
}

/// Service that leads to the active Pods. It has no selector: a switch is one write of the new active.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = node_ports_fit_the_type())]
#[x_kube(validation = outside_traffic_comes_from_outside())]
#[x_kube(validation = load_balancers_are_of_that_type())]
#[x_kube(validation = affinity_has_a_time())]
pub struct GroupService {
    /// Name of the Service in the namespace of the group: a DNS label that starts with a letter.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = name_is_a_label())]
    pub name: String,

    /// Ports that the Service offers, 1 to 50. More than one port needs a name each. A target port is a number.
    #[schemars(length(min = 1, max = 50))]
    #[x_kube(validation = several_ports_have_names())]
    #[x_kube(validation = port_names_differ())]
    #[x_kube(validation = port_numbers_differ())]
    #[x_kube(validation = Rule::new("self.all(port, !has(port.targetPort) || type(port.targetPort) == int)").message(
        "write service.ports.targetPort as a number: a group knows no container whose ports have names"))]
    pub ports: Vec<ServicePort>,

    /// How the Service is reached: `ClusterIP` (default), `NodePort` or `LoadBalancer`.
    #[serde(default)]
    pub r#type: ServiceType,

    /// What cloud providers, proxies and load balancers read of the Service.
    #[serde(flatten)]
    pub options: ServiceOptions,
}

/// What the operator last saw of the group.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct HAGroupStatus {
    /// Generation of the specification that this status is about.
    pub observed_generation: i64,

    /// What the group is doing, in a few words: the STATUS column of `kubectl get`.
    pub state: String,

    /// Texts for the columns of `kubectl get`.
    pub summary: GroupSummary,

    /// The pairs by number, at most 1,000.
    #[schemars(length(max = 1_000))]
    pub pairs: Vec<PairStatus>,

    /// Pairs whose Lease somebody deleted, until they are made anew; at most 1,000.
    #[schemars(length(max = 1_000))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostPair>,

    /// How long Pods of these pairs, and of lost ones that are not over, may act by a Lease that is gone, in seconds: the
    /// longest of all, as their Leases have it. Others take their places after that, also if another operator decides it.
    #[schemars(range(min = 0))]
    pub wait_seconds: i64,

    /// Names of Pods that are in no pair, sorted, at most 50.
    #[schemars(length(max = 50))]
    pub spares: Vec<String>,

    /// Highest term of an epoch that was seen; a pair that is made anew begins above it.
    #[schemars(range(min = 0))]
    pub highest_term: i64,

    /// `Ready`, `Degraded`, `Withheld` and `Paused`, each with reason and message. `Withheld`: nobody may act in a pair,
    /// because no ready Pod has every acknowledged write.
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// The last time a pair got another active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_takeover: Option<Takeover>,

    /// Earlier ones, the latest last, at most 10.
    #[schemars(length(max = 10))]
    pub takeovers: Vec<Takeover>,
}

/// Texts for the columns of `kubectl get`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSummary {
    /// Pairs with an active and a standby / pairs, for example `2/2`.
    pub pairs: String,
    /// Pods in no pair.
    #[schemars(range(min = 0))]
    pub spares: i32,
    /// Names of the active Pods, separated by commas.
    pub actives: String,
}

/// Nobody may act in a pair: its [`PairStatus::state`], a condition of its group, and why its set is degraded.
pub const WITHHELD: &str = "Withheld";

/// The standby has every acknowledged write, as [`PairStatus::sync`] has it.
pub const IN_SYNC: &str = "InSync";

/// What a pair is doing whose standby does not answer its active, as [`PairStatus::state`] has it.
pub const PAIR_SILENT: &str = "Silent";

/// What a pair is doing whose application ends again and again soon after its start, as [`PairStatus::state`] has it.
pub const PAIR_CRASH_LOOPING: &str = "CrashLooping";

/// What a pair is doing in which nobody acts, because the only Pod that could acts in another pair, as [`PairStatus::state`] has it.
pub const PAIR_KEEPER_BUSY: &str = "KeeperBusy";

/// What a pair is doing that was decided to end, as [`PairStatus::state`] has it.
pub const PAIR_ENDING: &str = "Ending";

/// One pair.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct PairStatus {
    /// Name of its Lease.
    pub name: String,
    /// Name of the Pod that acts; empty if none does.
    pub active: String,
    /// Name of the Pod that acted last; absent while one acts, and before the first one did.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_active: String,
    /// Name of the Pod that takes over; empty if there is none.
    pub standby: String,
    /// Names of all Pods that its Lease names: if it is deleted, nobody else may be paired with any of them for a while.
    #[schemars(length(max = 3))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<String>,
    /// Epoch of the tenure that the Lease shows, as in the application's environment.
    pub epoch: String,
    /// What the pair is doing: `Paired`, `Alone`, `Starting`, `Fenced`, `Replacing`, `Ending`, `Silent` if its standby
    /// does not answer its active, `CrashLooping` if its application ends soon after each start, `Withheld` if nobody
    /// may act because no ready Pod has every acknowledged write, or `KeeperBusy` if the only one that has acts in another
    /// pair.
    pub state: String,
    /// Where the state is that agents replicate: `InSync` if the standby has every acknowledged write, `CatchingUp` if it
    /// does not and would not take over, `Alone` if there is none; absent if nothing is replicated.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sync: String,
    /// How much the standby lacks while `sync` is `CatchingUp`; absent if its active has not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<StateLag>,
    /// How its application ends again and again; absent if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash_loop: Option<CrashLoop>,
}

/// An application that ended three times in a row or more within 60 s of its start. Each start comes later, up to 60 s after
/// the one before on the same Pod, and the other Pod of the pair takes turns.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CrashLoop {
    /// Name of the Pod that says so.
    pub pod: String,
    /// How often in a row it ended so on this Pod.
    #[schemars(range(min = 0))]
    pub ends: i32,
    /// What it ended with last, as a shell reports it: its exit code, or 128 and the number of the signal.
    #[schemars(range(min = 0, max = 255))]
    pub exit_code: i32,
    /// What it wrote last, up to 3 lines of up to 120 characters, the oldest first; only if its container has the
    /// `terminationMessagePolicy` `FallbackToLogsOnError`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), inner(length(max = 120)))]
    pub last_lines: Vec<String>,
}

/// Most Pods of a lost pair that are told: those of its Lease, of its status and of its end, should they differ.
pub const LOST_PODS_MAX: usize = 9;

/// What is remembered of a pair whose Lease was deleted.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct LostPair {
    /// Name of its Lease.
    pub name: String,
    /// Names of its Pods, which will be a pair again; more if the Lease was set back.
    #[schemars(length(max = LOST_PODS_MAX))]
    pub pods: Vec<String>,
    /// The directories that have every acknowledged write, as the Lease had them in `ha-in-sync`; the next Lease will say
    /// the same. Empty if its end was not seen: then nobody may act before a person decides. Absent if no state is
    /// replicated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_sync: Option<String>,
    /// The Pods that have them, as in `ha-in-sync-pods`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub in_sync_pods: String,
    /// Nobody acts by its Lease any more, and only what it says of the state is still to come. Absent while anybody may act.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_over: bool,
}

/// How much a standby lacks of the replicated state. Told after 2 s, and each 10 s while it changes.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct StateLag {
    /// Files and folders that it lacks, has otherwise, or has too many.
    #[schemars(range(min = 0))]
    pub entries: i64,
    /// About how many bytes of files it lacks: what a longer file has more, the whole of any other one.
    #[schemars(range(min = 0))]
    pub bytes: i64,
    /// Since when it has lacked something.
    #[schemars(schema_with = "super::status::date_time")]
    pub since: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time,
    /// Reason for which the standby does not catch up: `StandbyFull` if its volume has no room, `StandbyDiskFails` if its
    /// disk refuses the state, `Unreplicable` if the state directory of the active contains something that cannot be
    /// replicated, `ActiveDiskFails` if the disk of the active fails. Absent while the standby catches up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Path below the state directory that the reason is about, shortened to 100 bytes; absent if it is about no path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Reason for which a standby does not get the replicated state, as [`StateLag::reason`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LagReason {
    /// The standby's volume has no room.
    StandbyFull,
    /// The standby's disk refuses the state.
    StandbyDiskFails,
    /// The active's state directory contains something that cannot be replicated.
    Unreplicable,
    /// The active's own disk cannot be read or written.
    ActiveDiskFails,
}

impl LagReason {
    /// Every reason.
    pub const ALL: [Self; 4] =
        [Self::StandbyFull, Self::StandbyDiskFails, Self::Unreplicable, Self::ActiveDiskFails];

    /// The word of the status and of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StandbyFull => "StandbyFull",
            Self::StandbyDiskFails => "StandbyDiskFails",
            Self::Unreplicable => "Unreplicable",
            Self::ActiveDiskFails => "ActiveDiskFails",
        }
    }
}

/// A pair got another active.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Takeover {
    /// Name of the Lease of the pair.
    pub pair: String,
    /// Name of the Pod that acted before.
    pub from: String,
    /// Name of the Pod that acts now.
    pub to: String,
    /// Epoch of its tenure.
    pub epoch: String,
    /// `Handover` if the application had ended and the role was handed over, `Lease` if the standby took over through
    /// the Lease.
    pub by: String,
    /// When the operator saw it.
    #[schemars(schema_with = "super::status::date_time")]
    pub time: k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime,
    /// Why, as one word: `ApplicationEnded`, `CertificateOfDeath` (the container ended), `LeaseExpired` (nothing was
    /// heard of the former active), `HoldLost` (it reached nobody), `SwitchOver`, `PodDeleted`, `Fenced`, `Released`,
    /// `HandedOver` or `Resumed`. Empty if the new active did not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How long it took, phase by phase.
    #[serde(default)]
    pub phases: TakeoverPhases,
}

/// The phases of a takeover. Unit: milliseconds since its beginning: when the end of the former tenure was noticed or
/// asked for, or, if nothing was heard of it any more, since the last sign of life. What is not known is absent.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct TakeoverPhases {
    /// The end of the former tenure was noticed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub detected: Option<i32>,
    /// Nothing of the former active's application was left.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub fenced: Option<i32>,
    /// The API server had answered the new active's claim, or it had accepted the handover.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub lease: Option<i32>,
    /// The application ran in active mode, and its hook had done its work.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub promoted: Option<i32>,
    /// The EndpointSlice showed the new active. After `CertificateOfDeath` that may be before `lease`: who is about to take
    /// over is shown while it still claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub published: Option<i32>,
    /// The operator saw the pair whole again, with a standby and all labels. Counted from `lease` by the operator's
    /// clock, so without the few milliseconds until it saw the takeover.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub repaired: Option<i32>,
}

impl TakeoverPhases {
    /// Each phase by its name, in their usual order.
    pub const fn each(&self) -> [(&'static str, Option<i32>); 6] {
        let Self { detected, fenced, lease, promoted, published, repaired } = *self;
        [
            ("detected", detected),
            ("fenced", fenced),
            ("lease", lease),
            ("promoted", promoted),
            ("published", published),
            ("repaired", repaired),
        ]
    }
}
