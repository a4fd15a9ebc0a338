//! The report of the operator about a set. No field changes unless something in the set has changed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Most names listed per role in `status.pods`, so that the status of a large set stays small.
pub const NAMES_MAX: usize = 50;
/// Most entries in `status.conversions`; the oldest finished one goes first.
pub const CONVERSIONS_MAX: usize = 10;

/// What the operator last saw of the set.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupPodSetStatus {
    /// Generation of the specification that this status is about.
    pub observed_generation: i64,

    /// What the set is doing, in a few words: the STATUS column of `kubectl get`.
    pub state: String,

    /// Texts for the columns of `kubectl get`.
    pub summary: Summary,

    /// The model of redundancy that the counts of the specification amount to, and the spares beside it; for example `2N x 3, 1
    /// spare`, `N+M 3+2, 1 cold spare`, `N-way active x 3` or `no redundancy, 2 cold spares`. A spare runs, a cold spare waits at
    /// its gate.
    pub redundancy: String,

    /// Primaries that exist; exactly the Pods that `selector` selects.
    pub replicas: i32,
    /// Primaries that are ready.
    pub ready_replicas: i32,
    /// Hot backups that exist.
    pub hot_backups: i32,
    /// Hot backups that are ready to take over.
    pub ready_hot_backups: i32,
    /// Cold backups that exist.
    pub cold_backups: i32,
    /// Cold backups that wait at their gate, ready to be woken.
    pub ready_cold_backups: i32,
    /// Pods of any role that were made from the template in the specification.
    pub updated_pods: i32,
    /// Revision of the template that every Pod was last made from; `updateRevision` once a rollout is complete.
    #[serde(default)]
    pub current_revision: String,
    /// Revision of the template in the specification.
    pub update_revision: String,
    /// How often the name of a new Pod was taken by an object of somebody else; part of every new name.
    #[serde(default)]
    pub collision_count: i32,

    /// Label selector of the primaries as text, for the scale subresource.
    pub selector: String,

    /// Names of the Pods by role.
    pub pods: TierNames,

    /// Pods of each subset of `spec.topology`, in its order; absent without subsets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub subsets: Vec<SubsetStatus>,

    /// `Ready`, `Available`, `Progressing`, `Stalled`, `Degraded`, `Paused`, `SurvivesNodeLoss` and `SurvivesZoneLoss`, each with
    /// reason and message. `Available`: as many primaries serve as are wanted. `Stalled`: the set does not get closer to its
    /// specification. `SurvivesNodeLoss`: whichever node is lost, Pods that are there already replace every primary.
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// When the set last came closer to its specification; absent while it is there, paused, or held back by the storm brake.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "date_time")]
    pub last_progress_time: Option<Time>,

    /// The last time a primary was lost, and how long its replacement took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failover: Option<FailoverReport>,

    /// Conversions of Pods, the latest last, at most 10.
    #[schemars(length(max = 10))]
    pub conversions: Vec<Conversion>,
}

/// Texts for the columns of `kubectl get`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Summary {
    /// Ready primaries / wanted primaries, for example `2/2`.
    pub replicas: String,
    /// Ready hot backups / wanted hot backups.
    pub hot_backups: String,
    /// Cold backups at their gate / wanted cold backups.
    pub cold_backups: String,
    /// Images of the application containers, separated by commas.
    pub images: String,
    /// Domains of which any one may be lost: `node`, `zone`, both as `node,zone`, or `none`.
    pub survives: String,
}

/// Pods of one subset of the nodes.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SubsetStatus {
    /// Name of the subset.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Ready primaries / its share of the wanted primaries, for example `2/2`.
    pub replicas: String,
    /// Ready hot backups / its share of the wanted ones.
    pub hot_backups: String,
    /// Cold backups at their gate / its share of the wanted ones.
    pub cold_backups: String,
    /// Pods that wait for a node of the subset while Pods of other subsets fill their places.
    #[serde(default)]
    pub waiting: i32,
}

/// Names of the Pods by role, sorted, at most 50 each.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct TierNames {
    /// Names of the primaries.
    #[schemars(length(max = 50))]
    pub primaries: Vec<String>,
    /// Names of the hot backups.
    #[schemars(length(max = 50))]
    pub hot_backups: Vec<String>,
    /// Names of the cold backups.
    #[schemars(length(max = 50))]
    pub cold_backups: Vec<String>,
    /// How many Pods are not listed because of the bound; the counts beside it include them.
    pub omitted: i32,
}

/// One aspect of the set, in the form that Kubernetes tools expect.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Name of the condition: `Ready`, `Available`, `Progressing`, `Stalled`, `Degraded`, `Paused`, `SurvivesNodeLoss` or
    /// `SurvivesZoneLoss`; of a group `Ready`, `Degraded`, `Withheld` or `Paused`.
    #[schemars(length(min = 1, max = 316))]
    pub r#type: String,
    /// Whether it holds: `True`, `False` or `Unknown`.
    pub status: ConditionStatus,
    /// Why, as one word for programs.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// Why, as a sentence for people.
    #[schemars(length(min = 1, max = 32_768))]
    pub message: String,
    /// When `status` last changed.
    #[schemars(schema_with = "date_time")]
    pub last_transition_time: Time,
    /// Generation of the specification that the condition is about.
    #[serde(default)]
    pub observed_generation: i64,
}

/// Whether a condition holds.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be said.
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// The loss of a primary and its replacement. Durations count from `time`, in milliseconds.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FailoverReport {
    /// When the operator learned of the loss.
    #[schemars(schema_with = "date_time")]
    pub time: MicroTime,
    /// Name of the Pod that was lost; empty if no trace of it is left.
    pub lost_pod: String,
    /// Name of the Pod that took its place; absent until one is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<String>,
    /// Why the Pod counted as lost, as one word.
    pub reason: String,
    /// From the change that the cluster recorded (deletion, failure, not ready) to `time`, in milliseconds;
    /// the record has whole seconds, so this can be up to 999 too much. Absent when nothing was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub detected_after_milliseconds: Option<i32>,
    /// From `time` until the successor was exposed; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub exposed_after_milliseconds: Option<i32>,
    /// From `time` until the successor was first seen ready as a primary; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ready_after_milliseconds: Option<i32>,
}

/// One Pod's change of role.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Conversion {
    /// Name of the Pod.
    pub pod: String,
    /// Role before: `primary`, `hotbackup` or `coldbackup`.
    pub from: Tier,
    /// Role after: `primary`, `hotbackup` or `coldbackup`.
    pub to: Tier,
    /// Why, as one word; the same word stands in events, logs and metrics.
    pub reason: String,
    /// When the conversion was decided.
    #[schemars(schema_with = "date_time")]
    pub started: MicroTime,
    /// When it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "date_time")]
    pub finished: Option<MicroTime>,
    /// How it ended: `InProgress`, `Succeeded`, `Failed` (another candidate was tried) or `Superseded` (the Pod
    /// went away or got another role first).
    pub outcome: ConversionOutcome,
}

/// Role of a Pod in the words of the BPS paper.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Serves.
    Primary,
    /// Runs and is not exposed.
    HotBackup,
    /// Waits in an init container.
    ColdBackup,
}

/// How a conversion ended.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversionOutcome {
    /// It still runs.
    InProgress,
    /// The Pod is ready in its new role.
    Succeeded,
    /// The Pod did not get ready in its new role in time; another candidate was tried.
    Failed,
    /// The Pod went away, or got another role, before the conversion ended.
    Superseded,
}

pub(super) fn date_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}
