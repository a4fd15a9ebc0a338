//! The Service that exposes the primaries of a set.

#![allow(unreachable_pub, reason = "the KubeSchema derive puts a pub struct into a function")]

use kube_core::Rule;
use kube_derive::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The rules for a Service in the field `service`, whatever kind it belongs to.
pub(super) fn node_ports_fit_the_type() -> Rule {
    Rule::new("self.type != 'ClusterIP' || self.ports.all(port, !has(port.nodePort))")
        .message("nodePort needs service.type NodePort or LoadBalancer: set the type, or leave nodePort out")
}

pub(super) fn outside_traffic_comes_from_outside() -> Rule {
    Rule::new("self.type != 'ClusterIP' || !has(self.externalTrafficPolicy)").message(
        "externalTrafficPolicy needs service.type NodePort or LoadBalancer: set the type, or leave it out",
    )
}

pub(super) fn load_balancers_are_of_that_type() -> Rule {
    Rule::new(
        "self.type == 'LoadBalancer' || (!has(self.loadBalancerClass) && !has(self.loadBalancerSourceRanges))",
    )
    .message(
        "loadBalancerClass and loadBalancerSourceRanges need service.type LoadBalancer: set the type, or leave them out",
    )
}

pub(super) fn affinity_has_a_time() -> Rule {
    Rule::new("!has(self.sessionAffinityConfig) || self.sessionAffinity == 'ClientIP'").message(
        "sessionAffinityConfig needs sessionAffinity ClientIP: set it, or leave the configuration out",
    )
}

/// Kubernetes refuses the same, in words that name neither of the fields as ours are named.
fn two_families_need_a_policy_for_two() -> Rule {
    Rule::new(
        "!has(self.ipFamilies) || self.ipFamilies.size() < 2 || \
         (has(self.ipFamilyPolicy) && self.ipFamilyPolicy != 'SingleStack')",
    )
    .message(
        "two ipFamilies need ipFamilyPolicy PreferDualStack or RequireDualStack: set it, or name one family",
    )
}

fn families_differ() -> Rule {
    Rule::new("self.size() < 2 || self[0] != self[1]").message("name each of ipFamilies once")
}

fn keys_are_the_users() -> Rule {
    Rule::new(
        "self.all(key, !key.startsWith('backup.example.com/') && key != 'app.kubernetes.io/managed-by')",
    )
    .message(
        "keys that start with backup.example.com/, and app.kubernetes.io/managed-by, are written by the operator: use other \
         keys",
    )
}

pub(super) fn name_is_a_label() -> Rule {
    Rule::new("self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message(
        "service.name must be a DNS label: lower case letters, digits and dashes, first a letter, last no dash",
    )
}

pub(super) fn several_ports_have_names() -> Rule {
    Rule::new("self.size() == 1 || self.all(port, has(port.name))")
        .message("give every port a name when service.ports has more than one")
}

pub(super) fn port_names_differ() -> Rule {
    Rule::new("self.all(a, self.exists_one(b, (has(a.name) ? a.name : '') == (has(b.name) ? b.name : '')))")
        .message("names of ports must differ")
}

pub(super) fn port_numbers_differ() -> Rule {
    Rule::new("self.all(a, self.exists_one(b, a.port == b.port && a.protocol == b.protocol))")
        .message("each pair of port and protocol may stand in a list of ports only once")
}

/// The Services that lead to standbys are reached from within the cluster only.
pub(super) fn no_node_ports() -> Rule {
    Rule::new("self.all(port, !has(port.nodePort))")
        .message("ports for replication have no nodePort: leave it out")
}

/// Service that the operator keeps in front of the primaries. It has no selector: the operator writes its
/// EndpointSlices itself, so that the switch from a lost primary to its successor is one write.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = node_ports_fit_the_type())]
#[x_kube(validation = outside_traffic_comes_from_outside())]
#[x_kube(validation = load_balancers_are_of_that_type())]
#[x_kube(validation = affinity_has_a_time())]
#[x_kube(validation = two_families_need_a_policy_for_two())]
#[x_kube(validation = Rule::new("!has(self.publishNotReadyAddresses) || !self.publishNotReadyAddresses").message(
    "publishNotReadyAddresses would lead clients to Pods that do not serve, and the operator writes the addresses itself: leave \
     it out"))]
pub struct ExposedService {
    /// Name of the Service in the namespace of the set: a DNS label that starts with a letter.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = name_is_a_label())]
    pub name: String,

    /// Ports that the Service offers, 1 to 50. More than one port needs a name each.
    #[schemars(length(min = 1, max = 50))]
    #[x_kube(validation = several_ports_have_names())]
    #[x_kube(validation = port_names_differ())]
    #[x_kube(validation = port_numbers_differ())]
    pub ports: Vec<ServicePort>,

    /// How the Service is reached: `ClusterIP` (default), `NodePort` or `LoadBalancer`.
    #[serde(default)]
    pub r#type: ServiceType,

    /// What cloud providers, proxies and load balancers read of the Service.
    #[serde(flatten)]
    pub options: ServiceOptions,

    /// Which of several primaries clients are led to: `PreferSameZone` (also `PreferClose`, its former name), one in the zone of
    /// the client's node; `PreferSameNode`, one on that node. Any other one if there is none. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TrafficDistribution")]
    pub traffic_distribution: Option<TrafficDistribution>,

    /// Families of addresses that the Service has, the first one first: `IPv4`, `IPv6` or both. The first one cannot be changed
    /// while the Service exists. Default: the cluster's. The operator keeps one EndpointSlice for each family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<IpFamily>", length(min = 1, max = 2))]
    #[x_kube(validation = families_differ())]
    pub ip_families: Option<Vec<IpFamily>>,

    /// How many families: `SingleStack`, one; `PreferDualStack`, both if the cluster has both; `RequireDualStack`, both. Default:
    /// one for a new Service; one that exists keeps what it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "IpFamilyPolicy")]
    pub ip_family_policy: Option<IpFamilyPolicy>,

    /// Must be false or left out: clients are led to primaries that are ready, as the operator writes the addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish_not_ready_addresses: Option<bool>,

    /// How long a Pod that is going away still answers, in seconds, while every node learns of the switch.
    /// Becomes a preStop sleep of application containers that define no preStop hook of their own.
    /// Range 0 to 60, default 2: of several changes in a row kube-proxy programs the last one up to a second later
    /// (minSyncPeriod), and programming takes its time as well. 0 adds no hook. Without effect with `activeStandby`, where
    /// a Pod that is deleted hands over first.
    #[serde(default = "default_drain_seconds")]
    #[schemars(range(min = 0, max = 60))]
    pub drain_seconds: i32,
}

fn default_drain_seconds() -> i32 {
    2
}

/// What cloud providers, proxies and load balancers read of a Service. Meanings are those of the same fields of a Kubernetes
/// Service.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ServiceOptions {
    /// Annotations of the Service, such as those of a cloud provider; others that it has are left alone. At most 64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = keys_are_the_users())]
    pub annotations: BTreeMap<String, String>,

    /// Labels of the Service; others that it has are left alone. At most 64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = keys_are_the_users())]
    pub labels: BTreeMap<String, String>,

    /// Which implementation makes the load balancer. It cannot be changed while the Service is one. Default: the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 316))]
    pub load_balancer_class: Option<String>,

    /// From which addresses (CIDR) the load balancer takes clients, at most 100. Default: the Service's are left alone; an empty
    /// list means from all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 49)))]
    pub load_balancer_source_ranges: Option<Vec<String>>,

    /// Where connections from outside go: `Cluster` (default), to any primary; `Local`, only to those on the node that they
    /// reached, which then see the client's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TrafficPolicy")]
    pub external_traffic_policy: Option<TrafficPolicy>,

    /// Where connections from inside the cluster go: `Cluster` (default), to any primary; `Local`, only to those on the
    /// client's node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TrafficPolicy")]
    pub internal_traffic_policy: Option<TrafficPolicy>,

    /// Whether connections of a client go to the same primary: `None` (default) or `ClientIP`. A failover ends that.
    #[serde(default)]
    pub session_affinity: SessionAffinity,

    /// For how long they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SessionAffinityConfig")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
}

/// Whether connections go to all Pods of a Service or to those on the same node only.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficPolicy {
    /// To all.
    #[default]
    Cluster,
    /// To those on the same node only.
    Local,
}

/// Whether connections of a client go to the same Pod.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionAffinity {
    /// They go to any.
    #[default]
    None,
    /// They do, by the client's address.
    #[serde(rename = "ClientIP")]
    ClientIp,
}

/// Settings of `sessionAffinity`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct SessionAffinityConfig {
    /// Settings of `ClientIP`.
    #[serde(rename = "clientIP")]
    pub client_ip: ClientIpConfig,
}

/// Settings of the affinity of clients' addresses.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClientIpConfig {
    /// How long a client without a connection keeps its Pod, in seconds. Range 1 to 86400, default 10800.
    #[serde(default = "default_affinity_seconds")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: i32,
}

fn default_affinity_seconds() -> i32 {
    10_800
}

/// Which of several Pods clients prefer.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficDistribution {
    /// The former name of `PreferSameZone`.
    PreferClose,
    /// One in the same zone.
    PreferSameZone,
    /// One on the same node.
    PreferSameNode,
}

/// A family of IP addresses.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IpFamily {
    /// Addresses of 32 bits.
    IPv4,
    /// Addresses of 128 bits.
    IPv6,
}

impl IpFamily {
    /// The family of an address.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::IPv4,
            IpAddr::V6(_) => Self::IPv6,
        }
    }

    /// The family as Kubernetes spells it, also as the address type of an EndpointSlice.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::IPv4 => "IPv4",
            Self::IPv6 => "IPv6",
        }
    }
}

/// How many families of addresses a Service has.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpFamilyPolicy {
    /// One.
    SingleStack,
    /// Both if the cluster has both.
    PreferDualStack,
    /// Both.
    RequireDualStack,
}

/// One port of the Service.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// Name of the port: a DNS label. Needed when there is more than one port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: Option<String>,

    /// Port that the Service listens on, 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,

    /// Port of the Pods: a number, or the name of a container port. A name has at most 15
    /// characters. Default: the same number as `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_port: Option<TargetPort>,

    /// Transport protocol: `TCP` (default), `UDP` or `SCTP`.
    #[serde(default)]
    pub protocol: Protocol,

    /// Port on every node, for the types `NodePort` and `LoadBalancer`. Default: Kubernetes chooses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub node_port: Option<i32>,

    /// Application protocol as a hint for proxies and meshes, for example `http` or `kubernetes.io/h2c`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 316))]
    pub app_protocol: Option<String>,
}

/// Transport protocol of a port.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Transmission Control Protocol.
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    /// User Datagram Protocol.
    #[serde(rename = "UDP")]
    Udp,
    /// Stream Control Transmission Protocol.
    #[serde(rename = "SCTP")]
    Sctp,
}

impl Protocol {
    /// The protocol as Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

/// How a Service is reached.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceType {
    /// An address inside the cluster.
    #[default]
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// The same, and a port on every node.
    NodePort,
    /// The same, and a load balancer of the cloud provider.
    LoadBalancer,
}

impl ServiceType {
    /// The type as Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

/// Port of a Pod, by number or by the name of a container port.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(untagged)]
pub enum TargetPort {
    /// Port number, 1 to 65535.
    Number(i32),
    /// Name of a container port.
    Name(String),
}

impl JsonSchema for TargetPort {
    fn schema_name() -> Cow<'static, str> {
        "TargetPort".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // A bound of one type does not concern a value of the other.
        json_schema!({
            "x-kubernetes-int-or-string": true, "minimum": 1, "maximum": 65535, "minLength": 1, "maxLength": 15,
        })
    }
}
