//! Where the Pods of a set are to be: failure domains, and subsets of the nodes with shares of the Pods.

#![allow(unreachable_pub, reason = "the KubeSchema derive puts a pub struct into a function")]

use kube_derive::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::group::{StandbyPlacement, ZONE_LABEL};
use super::spec::{BackupPodSetSpec, CountOrPercent};
use super::subset_rules::{
    a_time_is_one_of_no_execute, a_tolerated_key_has_any_value, every_taint_is_tolerated_by_exists,
    fields_are_names_of_nodes, numbers_are_compared_with_an_integer, some_operators_need_values,
    some_operators_take_no_values,
};

/// Where the Pods of a set are to be.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SetTopology {
    /// Label of nodes whose value says what fails together. Default `topology.kubernetes.io/zone`. It concerns where
    /// new Pods go, which of several alike is promoted or deleted first, and with activeStandby which Pods form a pair.
    #[serde(default = "zone_label")]
    #[schemars(length(min = 1, max = 316))]
    pub key: String,

    /// Whether new Pods of a tier are spread over the domains of `key`. `Ignore`: over nodes alone, softly. `Preferred` (default):
    /// over domains and nodes, softly. `Required`: a Pod that would be the second one more of its tier in its domain than in
    /// another waits for a node. Conversions do not wait: service comes before order.
    #[serde(default)]
    pub tiers: TierSpread,

    /// With activeStandby, whether a standby may be in the domain of its active. Default: another domain is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<StandbyPlacement>,

    /// Subsets of the nodes, each with its share of the Pods: every Pod is made for one of them. At most 50. Absent: Pods may be
    /// anywhere. Pods that were made for no subset, or for one that is no more, are replaced as after a change of the template,
    /// unless there are no subsets any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub subsets: Vec<TopologySubset>,

    /// What happens to the share of a subset whose nodes have no room.
    #[serde(default)]
    pub schedule_strategy: ScheduleStrategy,

    /// What happens to Pods in wrong subsets, after a failover or a change of the shares, once all Pods are available. `Roles`
    /// (default): a hot backup that is where a primary is missing, and that has been ready for 10 s, swaps roles with a primary
    /// where there are too many, so that no Pod restarts; backups are recreated in the right subset,
    /// `updateStrategy.maxUnavailable` of a tier at a time. `Never`: they stay. Pods of a set with activeStandby stay in any case.
    #[serde(default)]
    pub rebalance: Rebalance,
}

fn zone_label() -> String {
    ZONE_LABEL.to_owned()
}

impl BackupPodSetSpec {
    /// Returns the label of nodes whose value says what fails together: `topology.key`, otherwise the label of zones.
    pub fn domain_key(&self) -> &str {
        self.topology.as_ref().map_or(ZONE_LABEL, |topology| &topology.key)
    }
}

/// What happens to the share of a subset whose nodes have no room.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleStrategy {
    /// `Fixed` (default): Pods that no node of their subset has room for wait. `Adaptive`: once one has waited for
    /// `rescheduleCriticalSeconds`, a backup of another subset fills its place, or else a new Pod in another subset. When the Pod
    /// that waits gets a node and is available, it takes its place again, and a Pod of the subset that has too many is deleted.
    #[serde(default)]
    pub r#type: ScheduleStrategyType,
    /// Settings of `Adaptive`.
    #[serde(default)]
    pub adaptive: AdaptiveSchedule,
}

/// What happens to Pods that no node of their subset has room for.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScheduleStrategyType {
    /// They wait.
    #[default]
    Fixed,
    /// Other subsets fill in.
    Adaptive,
}

/// When other subsets fill in.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AdaptiveSchedule {
    /// How long a Pod waits for a node until its place is filled in another subset, in seconds. Longer than a cluster autoscaler
    /// takes to add a node, if there is one. Range 1 to 3600, default 30.
    #[serde(default = "default_critical_seconds")]
    #[schemars(range(min = 1, max = 3600))]
    pub reschedule_critical_seconds: i32,
}

impl Default for AdaptiveSchedule {
    fn default() -> Self {
        Self { reschedule_critical_seconds: default_critical_seconds() }
    }
}

fn default_critical_seconds() -> i32 {
    30
}

/// Whether new Pods of a tier are spread over failure domains.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TierSpread {
    /// Over nodes alone, softly.
    Ignore,
    /// Over domains and nodes, if there is room.
    #[default]
    Preferred,
    /// Over domains, or the Pod waits.
    Required,
}

/// What happens to Pods in wrong subsets once all Pods are available.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rebalance {
    /// Primaries return by a swap of roles, backups are recreated.
    #[default]
    Roles,
    /// They stay where they are.
    Never,
}

/// One subset of the nodes and its share of the Pods. Of the Pods of a tier, subsets get fixed numbers first, then percentages,
/// then minima, then what they lack up to their maxima, each in the order of the list; what is left goes evenly to those without
/// a maximum. Percentages are rounded so that shares of 100 % together are all Pods. What exceeds all shares is spread over
/// subsets that take any: no scale is refused.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.replicas) || !has(self.minReplicas) && !has(self.maxReplicas)").message(
    "replicas is exact: leave out minReplicas and maxReplicas, or replicas"))]
#[x_kube(validation = Rule::new("!has(self.hotBackups) || !has(self.minHotBackups) && !has(self.maxHotBackups)").message(
    "hotBackups is exact: leave out minHotBackups and maxHotBackups, or hotBackups"))]
#[x_kube(validation = Rule::new("!has(self.coldBackups) || !has(self.minColdBackups) && !has(self.maxColdBackups)").message(
    "coldBackups is exact: leave out minColdBackups and maxColdBackups, or coldBackups"))]
#[x_kube(validation = Rule::new(
    "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas").message(
    "minReplicas must not be above maxReplicas"))]
#[x_kube(validation = Rule::new(
    "!has(self.minHotBackups) || !has(self.maxHotBackups) || self.minHotBackups <= self.maxHotBackups").message(
    "minHotBackups must not be above maxHotBackups"))]
#[x_kube(validation = Rule::new(
    "!has(self.minColdBackups) || !has(self.maxColdBackups) || self.minColdBackups <= self.maxColdBackups").message(
    "minColdBackups must not be above maxColdBackups"))]
#[x_kube(validation = Rule::new(
    "has(self.nodeSelectorTerm) == has(oldSelf.nodeSelectorTerm) && \
     (!has(self.nodeSelectorTerm) || self.nodeSelectorTerm == oldSelf.nodeSelectorTerm)").message(
    "nodeSelectorTerm cannot change, because Pods stay where they are: give the subset another name, and its Pods are replaced"))]
#[x_kube(validation = Rule::new(
    "has(self.tolerations) == has(oldSelf.tolerations) && \
     (!has(self.tolerations) || self.tolerations == oldSelf.tolerations)").message(
    "tolerations cannot change, because Pods stay as they are: give the subset another name, and its Pods are replaced"))]
pub struct TopologySubset {
    /// Name of the subset, unique in the set: a DNS label. Pods carry it as `backup.example.com/subset`.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// Nodes of the subset, by their labels; added to every term of the template's node affinity. Absent: all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector_term: Option<NodeSelectorTerm>,

    /// Taints of nodes that Pods of the subset tolerate, besides those that the template does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub tolerations: Vec<SubsetToleration>,

    /// Exactly so many of `spec.replicas`: a number, or a share such as `50%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "count_or_percent")]
    pub replicas: Option<CountOrPercent>,
    /// At least so many of `spec.replicas`. Range 0 to 1000, default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub min_replicas: Option<i32>,
    /// At most so many of `spec.replicas`, as long as others take the rest. Range 0 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub max_replicas: Option<i32>,

    /// Exactly so many of `spec.hotBackups`: a number, or a share such as `50%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "count_or_percent")]
    pub hot_backups: Option<CountOrPercent>,
    /// At least so many of `spec.hotBackups`. Range 0 to 1000, default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub min_hot_backups: Option<i32>,
    /// At most so many of `spec.hotBackups`, as long as others take the rest. Range 0 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub max_hot_backups: Option<i32>,

    /// Exactly so many of `spec.coldBackups`: a number, or a share such as `50%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "count_or_percent")]
    pub cold_backups: Option<CountOrPercent>,
    /// At least so many of `spec.coldBackups`. Range 0 to 1000, default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub min_cold_backups: Option<i32>,
    /// At most so many of `spec.coldBackups`, as long as others take the rest. Range 0 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub max_cold_backups: Option<i32>,
}

/// A number of Pods from 0, or a share of them from 0 %.
fn count_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true, "minimum": 0, "maximum": 1000, "pattern": "^(0|[1-9][0-9]?|100)%$",
    })
}

/// Requirements on a node, all of which must hold; as in Kubernetes' node affinity.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorTerm {
    /// Requirements on labels of the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub match_expressions: Vec<NodeRequirement>,
    /// Requirements on fields of the node: `metadata.name` is the only one, with `In` or `NotIn` and one value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    #[x_kube(validation = fields_are_names_of_nodes())]
    pub match_fields: Vec<NodeRequirement>,
}

/// One requirement on a node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = some_operators_need_values())]
#[x_kube(validation = some_operators_take_no_values())]
#[x_kube(validation = numbers_are_compared_with_an_integer())]
pub struct NodeRequirement {
    /// Label or field.
    #[schemars(length(min = 1, max = 316))]
    pub key: String,
    /// How its value relates to `values`.
    pub operator: NodeOperator,
    /// Values: at least one for `In` and `NotIn`, none for `Exists` and `DoesNotExist`, one integer for `Gt` and `Lt`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Vec<String>,
}

/// How the value of a label relates to the values of a requirement.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeOperator {
    /// It is one of them.
    #[default]
    In,
    /// It is none of them, or there is no such label.
    NotIn,
    /// There is such a label.
    Exists,
    /// There is no such label.
    DoesNotExist,
    /// It is a greater number.
    Gt,
    /// It is a smaller number.
    Lt,
}

/// A taint that Pods tolerate; as in Kubernetes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = a_tolerated_key_has_any_value())]
#[x_kube(validation = a_time_is_one_of_no_execute())]
#[x_kube(validation = every_taint_is_tolerated_by_exists())]
pub struct SubsetToleration {
    /// Key of the taint; absent, with `Exists`: all taints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 316))]
    pub key: Option<String>,
    /// `Equal` (default) or `Exists`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub operator: Option<String>,
    /// Value of the taint; none for `Exists`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// Effect of the taint: `NoSchedule`, `PreferNoSchedule` or `NoExecute`. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub effect: Option<String>,
    /// With `NoExecute`, how long a Pod stays after the node got the taint, in seconds. Absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}
