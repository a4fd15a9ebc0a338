//! The wish of a user: how many Pods of each kind, and how they are chosen, timed, updated and exposed.

#![allow(unreachable_pub, reason = "the KubeSchema derive puts a pub struct into a function")]

use super::active_standby::ActiveStandby;
use super::disruption::Disruption;
use super::redundancy::{
    RedundancyModel, n_plus_m_has_hot_backups, n_plus_m_shares_standbys, n_way_active_has_no_pairs,
    n_way_is_refused, none_has_no_hot_backups, none_has_no_pairs, two_n_has_pairs, two_n_has_standbys,
    two_n_keeps_standbys, two_n_shares_no_standbys,
};
use super::service::ExposedService;
use super::status::BackupPodSetStatus;
use super::template::PodTemplate;
use super::topology::SetTopology;
use kube_derive::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Keeps primary, hot backup and cold backup Pods of one template, and converts them by priority when a Pod is
/// lost or a count changes.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[kube(
    group = "backup.example.com",
    version = "v1alpha1",
    kind = "BackupPodSet",
    plural = "backuppodsets",
    singular = "backuppodset",
    shortname = "bps",
    category = "all",
    namespaced,
    status = "BackupPodSetStatus",
    derive = "PartialEq",
    doc = "BackupPodSet keeps a service alive: primaries serve, hot backups run unexposed, cold backups wait \
           with resources and images in place. A lost primary is replaced by a hot backup, then by a cold one, \
           then by a new Pod.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "REPLICAS",
        type_ = "string",
        json_path = ".status.summary.replicas",
        description = "Ready primaries / wanted primaries."
    ),
    printcolumn(
        name = "HOTBACKUPS",
        type_ = "string",
        json_path = ".status.summary.hotBackups",
        description = "Ready hot backups / wanted hot backups."
    ),
    printcolumn(
        name = "COLDBACKUPS",
        type_ = "string",
        json_path = ".status.summary.coldBackups",
        description = "Cold backups that wait at their gate / wanted cold backups."
    ),
    printcolumn(
        name = "STATUS",
        type_ = "string",
        json_path = ".status.state",
        description = "What the set is doing, in a few words; conditions tell more."
    ),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "LAST FAILOVER",
        type_ = "date",
        json_path = ".status.lastFailover.time",
        priority = 1,
        description = "How long ago the last loss of a primary was seen."
    ),
    printcolumn(
        name = "IMAGES",
        type_ = "string",
        json_path = ".status.summary.images",
        priority = 1,
        description = "Images of the application containers."
    ),
    printcolumn(
        name = "SURVIVES",
        type_ = "string",
        json_path = ".status.summary.survives",
        priority = 1,
        description = "Domains of which any one may be lost: node, zone, both, or none."
    ),
    printcolumn(
        name = "MODEL",
        type_ = "string",
        json_path = ".status.redundancy",
        priority = 1,
        description = "The model of redundancy that the counts amount to, and the spares beside it."
    ),
    printcolumn(
        name = "SELECTOR",
        type_ = "string",
        json_path = ".status.selector",
        priority = 1,
        description = "Label selector of the primaries."
    ),
    validation = Rule::new("self.metadata.name.size() <= 50").message(
        "metadata.name must be at most 50 characters: Pods are named <name>-<12 digits>, which must fit into 63"),
    validation = Rule::new("!self.metadata.name.contains('.')").message(
        "metadata.name must not contain dots: use dashes, because Pods are named after the set")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "self.coldBackups == 0 || !has(self.template.spec.hostNetwork) || !self.template.spec.hostNetwork")
    .message("coldBackups must be 0 with template.spec.hostNetwork, because a cold backup listens on TCP 20000 \
              of its node: use hotBackups, or remove hostNetwork"))]
#[x_kube(validation = Rule::new(
    "self.coldBackups == 0 || !has(self.template.spec.os) || self.template.spec.os.name != 'windows'")
    .message("coldBackups must be 0 with template.spec.os.name windows, because the gate runs on Linux: use hotBackups"))]
#[x_kube(validation = Rule::new(
    "!has(self.activeStandby) || !has(self.service) || !has(self.service.trafficDistribution)")
    .message("service.trafficDistribution has no effect with activeStandby, whose agents write the addresses: leave it \
              out"))]
#[x_kube(validation = Rule::new(
    "!has(self.activeStandby) || !has(self.service) || (!has(self.service.ipFamilies) && !has(self.service.ipFamilyPolicy))")
    .message("service.ipFamilies and service.ipFamilyPolicy have no effect with activeStandby, whose agents write one address \
              each: leave them out"))]
#[x_kube(validation = Rule::new(
    "has(self.activeStandby) || !has(self.topology) || !has(self.topology.standby)")
    .message("topology.standby says where standbys of pairs may be: leave it out without activeStandby"))]
#[x_kube(validation = Rule::new("has(self.activeStandby) == has(oldSelf.activeStandby)").message(
    "activeStandby can be neither added nor removed, because Pods with and without an agent cannot take over from each \
     other: make a new set, move the clients, and delete this one"))]
#[x_kube(validation = Rule::new(
    "!has(self.activeStandby) || has(self.activeStandby.container) || self.template.spec.containers.size() == 1")
    .message("activeStandby.container is needed when the template has several containers: name the one that runs the \
              application"))]
#[x_kube(validation = Rule::new(
    "!has(self.activeStandby) || !has(self.activeStandby.container) || \
     self.template.spec.containers.exists(c, c.name == self.activeStandby.container)")
    .message("activeStandby.container is not a container of the template: write the name of one"))]
#[x_kube(validation = Rule::new(
    "!has(self.activeStandby) || self.template.spec.containers.all(c, has(c.command) && c.command.size() > 0 || \
     has(self.activeStandby.container) && c.name != self.activeStandby.container)")
    .message("the container of activeStandby needs a command, because the agent has to start it: write the command of \
              its image"))]
#[x_kube(validation = Rule::new(
    "!has(self.activeStandby) || !has(self.template.spec.shareProcessNamespace) || \
     !self.template.spec.shareProcessNamespace")
    .message("with activeStandby leave out shareProcessNamespace: the agent is the first process of its container"))]
#[x_kube(validation = Rule::new(
    "!has(self.updateStrategy.partitions) || self.updateStrategy.partitions.all(name, \
     has(self.topology) && has(self.topology.subsets) && self.topology.subsets.exists(subset, subset.name == name))")
    .message("updateStrategy.partitions has a name that no subset has: write names of topology.subsets only, or leave the name \
              out"))]
#[x_kube(validation = n_way_is_refused())]
#[x_kube(validation = none_has_no_hot_backups())]
#[x_kube(validation = none_has_no_pairs())]
#[x_kube(validation = n_way_active_has_no_pairs())]
#[x_kube(validation = n_plus_m_has_hot_backups())]
#[x_kube(validation = n_plus_m_shares_standbys())]
#[x_kube(validation = two_n_has_pairs())]
#[x_kube(validation = two_n_shares_no_standbys())]
#[x_kube(validation = two_n_has_standbys())]
#[x_kube(validation = two_n_keeps_standbys())]
pub struct BackupPodSetSpec {
    /// Primaries: Pods that serve. Acted on by the scale subresource. Range 0 to 1000, default 1.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,

    /// Hot backups: Pods that run and are not exposed. Range 0 to 1000, default 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1000))]
    pub hot_backups: i32,

    /// Cold backups: Pods that are scheduled, hold their resources and have their images pulled, while the
    /// application is not started; each waits in an init container that listens on TCP 20000 until it is woken.
    /// Range 0 to 1000, default 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1000))]
    pub cold_backups: i32,

    /// Redundancy that the set promises. `None`: no backup runs; a cold backup or a new Pod takes the place of a lost primary.
    /// `NWayActive`: at least two primaries serve, and the others serve on when one is lost; hot backups are spares. `NPlusM`: at
    /// least one hot backup is ready to take the place of any primary; with activeStandby.standbyFor each primary has a standby, which
    /// others share. `TwoN`: with activeStandby, each primary has a standby of
    /// its own; further backups are spares. `NWay` is refused, with what to make instead. Fields that contradict the model are
    /// refused. A scale is not: while the counts or the Pods that are there do not hold the promise, the condition `Degraded` has
    /// the reason `RedundancyLost`. Absent: nothing is promised. `status.redundancy` always reports the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redundancy_model: Option<RedundancyModel>,

    /// Which candidate each transition takes.
    #[serde(default)]
    pub strategy: Strategy,

    /// Where the Pods are to be: failure domains, and subsets of the nodes with their shares. Absent: new Pods are spread softly
    /// over zones and nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<SetTopology>,

    /// Scheduler of the Pods. Default: the template's schedulerName, or else Kubernetes' default scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub scheduler_name: Option<String>,

    /// Priority class of Pods that are made as backups. Default: as in the template. A Pod keeps its class for life, also as a
    /// primary: name a class with the same value as that of the template, but with preemptionPolicy Never, and a new backup
    /// evicts nobody, while a backup that was promoted is worth as much as any other primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub backup_priority_class_name: Option<String>,

    /// How long a woken cold backup may take to pass its gate, and then for each container to start or end, in seconds; then the
    /// next candidate is tried, if one waits at its gate. The time of a running init container does not count. It doubles with
    /// each Pod in a row that was woken in vain. Range 1 to 3600, default 5 as in the BPS paper's example.
    #[serde(default = "default_wakeup_timeout")]
    #[schemars(range(min = 1, max = 3600))]
    pub wakeup_timeout: i32,

    /// Template of the Pods. A change rolls out as updateStrategy says.
    pub template: PodTemplate,

    /// How long a Pod must be ready without a break before a rollout counts on it, in seconds.
    /// Range 0 to 86400, default 0. A failover never waits for it.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86_400))]
    pub min_ready_seconds: i32,

    /// How long the set may take for its next step towards its specification before it is reported as stalled, in seconds: that a
    /// Pod becomes available, is updated, or leaves if it is surplus. Nothing is stopped or taken back. The time of a pause, of
    /// a storm, and of minReadySeconds does not count. Range 1 to 86400, default 600 as for a Deployment.
    #[serde(default = "default_progress_deadline_seconds")]
    #[schemars(range(min = 1, max = 86_400))]
    pub progress_deadline_seconds: i32,

    /// How long a primary may be not ready before a backup takes its place, in seconds. A primary that is
    /// deleted, failed or whose node is gone is replaced at once. Range 0 to 86400, default 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86_400))]
    pub failover_delay_seconds: i32,

    /// How long a Pod of any role that was ready, or whose container has ended, may be not ready before it is deleted and
    /// replaced, in seconds; a primary without a node as well, if a cold backup waits at its gate and no hot one is
    /// ready. 0 never replaces a Pod for this reason alone. Range 0 to 86400, default 300: as long as
    /// Kubernetes lets a Pod stay on a node that does not answer (tolerationSeconds of the not-ready taint).
    #[serde(default = "default_unready_deadline_seconds")]
    #[schemars(range(min = 0, max = 86_400))]
    pub unready_deadline_seconds: i32,

    /// What happens to surplus primaries and hot backups. `Delete` (default): they are deleted. `Demote`: a
    /// surplus primary first fills a free place of a hot backup, and is deleted only when there is none.
    #[serde(default)]
    pub scale_in_policy: ScaleInPolicy,

    /// How a change of the template reaches the Pods.
    #[serde(default)]
    pub update_strategy: UpdateStrategy,

    /// Observe and report what would be done. Nothing is written but status, addresses of Pods that are gone or got ready, and
    /// tickets to Pods that were woken before. With `activeStandby` the pairs are paused, too, and failovers between
    /// their Pods go on. Default false.
    #[serde(default)]
    pub paused: bool,

    /// How many former revisions of the template are kept for a rollback. Range 0 to 100, default 10.
    #[serde(default = "default_revision_history_limit")]
    #[schemars(range(min = 0, max = 100))]
    pub revision_history_limit: i32,

    /// Service in front of the primaries. Absent: no Service is kept; label selectors on
    /// `backup.example.com/role: primary` or `type: primary` work with a Service of your own, only slower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ExposedService>,

    /// How cold backups wait.
    #[serde(default)]
    pub cold_start: ColdStart,

    /// What planned disruptions, such as the drain of a node, may take from the set at a time.
    #[serde(default)]
    pub disruption: Disruption,

    /// Pairs the Pods: each primary is an active, hot backups are the standbys. Absent: Pods know nothing of each
    /// other. Can be neither added to a set nor taken away from it; any other change of it rolls out like one of the
    /// template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_standby: Option<ActiveStandby>,
}

fn default_replicas() -> i32 {
    1
}

fn default_wakeup_timeout() -> i32 {
    5
}

fn default_progress_deadline_seconds() -> i32 {
    600
}

fn default_unready_deadline_seconds() -> i32 {
    300
}

fn default_revision_history_limit() -> i32 {
    10
}

/// Which candidate each transition takes. The key is the transition; a transition without a key of its own
/// follows `init`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    /// For every transition that has no key of its own. `best` (default): another failure domain than the
    /// primaries first, then ready longest, then by name. `random`: any. `oldest` or `newest`: the Pod that was
    /// created first or last. `spread`: where the fewest Pods of the wanted role are, by failure domain
    /// (`topology.key`, by default the zone), then by node. New Pods are spread softly over these domains and nodes:
    /// with `best` and `spread`, and in sets with activeStandby, away from Pods of all roles, else from those of their
    /// own. A template with topologySpreadConstraints, affinity among Pods or a nodeName says itself where its Pods go.
    #[serde(default)]
    pub init: CandidateChoice,

    /// Where a new cold backup is put. Default: `init`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CandidateChoice")]
    pub unallocated_to_coldbackup: Option<CandidateChoice>,

    /// Where a new hot backup is put. Default: `init`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CandidateChoice")]
    pub unallocated_to_hotbackup: Option<CandidateChoice>,

    /// Where a new primary is put. Default: `init`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CandidateChoice")]
    pub unallocated_to_replicas: Option<CandidateChoice>,

    /// Which cold backup becomes a hot backup. Default: `init`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CandidateChoice")]
    pub coldbackup_to_hotbackup: Option<CandidateChoice>,

    /// Which cold backup becomes a primary. Default: `init`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CandidateChoice")]
    pub coldbackup_to_replicas: Option<CandidateChoice>,

    /// Which hot backup becomes a primary. Default: `init`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CandidateChoice")]
    pub hotbackup_to_replicas: Option<CandidateChoice>,
}

/// How one candidate is chosen among several. A Pod that is ready is always taken before one that is not.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum CandidateChoice {
    /// Healthy node and current template first, then the failure domain and node with the fewest Pods of the
    /// wanted role, then the Pod that is ready longest, then by name.
    #[default]
    Best,
    /// Any, by the Pods' random identity, as in the BPS paper; a restarted operator makes the same choice.
    Random,
    /// The Pod that was created first.
    Oldest,
    /// The Pod that was created last.
    Newest,
    /// The Pod in the failure domain, then on the node, with the fewest Pods of the set in the wanted role.
    Spread,
}

/// What happens to Pods that are too many after a count was lowered.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScaleInPolicy {
    /// They are deleted.
    #[default]
    Delete,
    /// A surplus primary first fills a free place of a hot backup and is deleted only when there is none.
    /// Cold places are not filled this way, because a Pod that has started cannot wait again.
    Demote,
}

/// How a change of the template reaches the Pods.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// `BackupFirst` (default): cold backups, then hot backups, then an updated, ready hot backup takes the
    /// place of each primary. `OnDelete`: a Pod gets the new revision only when somebody deletes it.
    #[serde(default)]
    pub r#type: UpdateStrategyType,

    /// How many backups of one tier may be out for the update at the same time: a number from 1 to 1000, or a share of the tier
    /// as `25%`, rounded down to 1 at least. Default 1. The number of exposed primaries does not drop whatever the value is.
    #[serde(default = "one_pod")]
    pub max_unavailable: CountOrPercent,

    /// How many primaries may exist beyond `replicas` while the update replaces them: a number from 1 to 1000, or a share of
    /// `replicas` as `25%`, rounded down to 1 at least. Default 1. So many updated hot backups, or without hot backups new Pods,
    /// take the places of primaries at a time. With `activeStandby` one pair is updated at a time.
    #[serde(default = "one_pod")]
    pub max_surge: CountOrPercent,

    /// How many primaries keep the former revision; backups are updated all the same. A value of at least
    /// `replicas` holds every primary. Range 0 to 1000, default 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1000))]
    pub partition: i32,

    /// How many primaries of a subset keep the former revision, by the name of the subset in `topology.subsets`. `partition` holds
    /// for the set as a whole besides: a primary is replaced only if neither keeps it. A value of at least the primaries of the
    /// subset holds every one of them. A failover and a scale-in do not wait: the place of a lost primary gets the present
    /// revision. At most 50 names, range 0 to 1000, default 0 for each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "partitions_by_subset")]
    pub partitions: BTreeMap<String, i32>,
}

/// A number of primaries for each name; as many names as there may be subsets.
fn partitions_by_subset(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 50,
        "additionalProperties": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 1000},
    })
}

impl Default for UpdateStrategy {
    fn default() -> Self {
        Self {
            r#type: UpdateStrategyType::default(),
            max_unavailable: one_pod(),
            max_surge: one_pod(),
            partition: 0,
            partitions: BTreeMap::new(),
        }
    }
}

fn one_pod() -> CountOrPercent {
    CountOrPercent::Number(1)
}

/// A number of Pods, or a share of them.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(untagged)]
pub enum CountOrPercent {
    /// So many, 1 to 1000.
    Number(i32),
    /// So many percent, 1 to 100, as `25%`.
    Percent(String),
}

impl JsonSchema for CountOrPercent {
    fn schema_name() -> Cow<'static, str> {
        "CountOrPercent".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // A bound of one type does not concern a value of the other.
        json_schema!({
            "x-kubernetes-int-or-string": true, "minimum": 1, "maximum": 1000, "pattern": "^([1-9][0-9]?|100)%$",
        })
    }
}

/// In which order Pods of a former revision are replaced.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateStrategyType {
    /// Cold backups first, then hot backups; then an updated, ready hot backup takes the place of each
    /// primary, so that exposed capacity never drops.
    #[default]
    BackupFirst,
    /// A Pod gets the new revision only when somebody deletes it.
    OnDelete,
}

/// How cold backups wait.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ColdStart {
    /// True (default): the gate runs from the application's own images, so that they are pulled while the Pod
    /// is cold. False: one init container from the small wake-up image, as in the BPS paper (`Init:0/1`);
    /// application images may be pulled only after the wake-up.
    #[serde(default = "default_image_gate")]
    pub image_gate: bool,

    /// With `imageGate`, how the gate's program gets beside the application's images: `Copy` (default), an init container copies
    /// it into an emptyDir; `ImageVolume`, its image is mounted. Only without an emptyDir does `kubectl drain` evict a Pod that
    /// was cold once without `--delete-emptydir-data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_source: Option<GateDelivery>,

    /// As whom the gate's containers run: `Fixed` (default), user and group 65532; `Inherit`, whom the Pod's securityContext or the
    /// cluster names, as where `OpenShift` gives each namespace a range of users and refuses others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_user: Option<GateUser>,
}

impl Default for ColdStart {
    fn default() -> Self {
        Self { image_gate: default_image_gate(), gate_source: None, gate_user: None }
    }
}

/// As whom the gate's containers run.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateUser {
    /// User and group 65532, which restricted Pod security admits.
    #[default]
    Fixed,
    /// Whom the securityContext of the Pod names, or else the cluster.
    Inherit,
}

/// How the gate's program gets beside the application's images: `Copy` (default) or `ImageVolume` (Kubernetes 1.35 or later,
/// containerd 2.1 or CRI-O 1.31 or later).
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateDelivery {
    /// An init container copies it: works everywhere, and takes the start of a container.
    #[default]
    Copy,
    /// Its image is mounted as an image volume; restricted Pod security admits that.
    ImageVolume,
}

fn default_image_gate() -> bool {
    true
}
