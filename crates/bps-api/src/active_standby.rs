//! Pairs of an active and a standby Pod in a set: what the agents in its Pods are told.

#![allow(unreachable_pub, reason = "the KubeSchema derive puts a pub struct into a function")]

use super::group::HandoverOrder;
use super::service::{ServicePort, no_node_ports, port_names_differ, port_numbers_differ};
use super::timing::GroupTiming;
use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Makes each primary the active of a pair and a hot backup its standby, which takes over within milliseconds when the
/// application fails. An agent in every Pod starts the application where it acts; never do both of a pair act.
///
/// The first min(replicas, hotBackups) pairs have a standby, further hot backups are spares; with standbyFor one hot backup stands
/// by for several primaries. The set keeps an HAGroup of its own name, and the Service of the set leads to the actives. drainSeconds
/// has no effect: a Pod that handed over relays what still comes to it, or with standbyFor refuses it, so that clients connect
/// again. Roles follow who acts.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "!has(self.runInStandby) || !self.runInStandby || (has(self.hooks) && has(self.hooks.onActive))").message(
    "runInStandby needs hooks.onActive: name the command that makes a running standby the active"))]
#[x_kube(validation = Rule::new("!has(self.stateDir) || !has(self.runInStandby) || !self.runInStandby").message(
    "stateDir is replicated to a standby whose application does not run: leave out runInStandby, or stateDir if the \
     application replicates by itself"))]
#[x_kube(validation = Rule::new("!has(self.promoteWhen) || has(self.stateDir)").message(
    "promoteWhen is about the copy of stateDir: write stateDir, or leave promoteWhen out"))]
#[x_kube(validation = Rule::new("!has(self.agentPath) || (has(self.agentSource) && self.agentSource == 'Image')").message(
    "agentPath says where the agent is in the application's image: write agentSource Image, or leave agentPath out"))]
#[x_kube(validation = Rule::new(
    "!has(self.handover) || self.handover != 'MakeBeforeBreak' || (!has(self.stateDir) && (!has(self.runInStandby) || !self.runInStandby))").message(
    "handover MakeBeforeBreak is for an application without state that runs in one role: leave out handover, or \
     stateDir and runInStandby"))]
#[x_kube(validation = Rule::new("!has(self.standbyFor) || has(self.stateDir)").message(
    "standbyFor is for primaries with state: write stateDir, or leave out activeStandby, as any hot backup takes the place of any \
     primary then"))]
#[x_kube(validation = Rule::new(
    "!has(self.standbyFor) || ((!has(self.runInStandby) || !self.runInStandby) && (!has(self.hooks) || !has(self.hooks.onStandby)))").message(
    "a standby for several actives runs nothing of the application: leave out standbyFor, or runInStandby and hooks.onStandby"))]
#[x_kube(validation = Rule::new("!has(self.standbyFor) || !has(self.replicationPorts) || self.replicationPorts.size() == 0").message(
    "a standby for several actives has no part of its own that replicationPorts could lead to: leave out one of them, as the \
     agents replicate stateDir"))]
#[x_kube(validation = Rule::new("!has(self.standbyFor) || !has(self.promoteWhen) || self.promoteWhen != 'Always'").message(
    "a standby for several actives keeps the whole state of the others while it acts for one, and with promoteWhen Always an empty \
     copy could replace it: leave out promoteWhen, or standbyFor"))]
#[x_kube(validation = Rule::new(
    "!has(self.arguments) || self.arguments.all(argument, !argument.startsWith('--standby-for'))").message(
    "write activeStandby.standbyFor instead of the argument --standby-for, because the operator has to know of it, too"))]
#[x_kube(validation = Rule::new(
    "!has(self.standbyFor) || !has(self.arguments) || self.arguments.all(argument, \
     ['--relay-port', '--on-standby', '--run-in-standby', '--promote-when'].all(name, !argument.startsWith(name)))").message(
    "a standby for several actives runs nothing of the application, relays nothing, and acts with the whole state only: leave out \
     standbyFor, or the arguments --relay-port, --on-standby, --run-in-standby and --promote-when"))]
#[x_kube(validation = Rule::new(
    "has(self.standbyFor) == has(oldSelf.standbyFor) && (!has(self.standbyFor) || self.standbyFor == oldSelf.standbyFor)").message(
    "activeStandby.standbyFor cannot be changed, because Pods are made with as many places: make a new set with another one"))]
#[x_kube(validation = Rule::new(
    "has(self.timing) == has(oldSelf.timing) && (!has(self.timing) || self.timing == oldSelf.timing)").message(
    "activeStandby.timing cannot be changed while pairs act by it: make a new set with other times"))]
pub struct ActiveStandby {
    /// Container that runs the application; needed if the template has more than one. It must have a command: the
    /// agent starts it. The agent does its liveness probe; the others are not used, because they would fail in a standby.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub container: Option<String>,

    /// How the agent comes into each Pod. Default: `Copy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_source: Option<AgentDelivery>,

    /// Where the agent is in the application's image when agentSource is `Image`, an absolute path. Default: `/bps-agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 1024), regex(pattern = "^/"))]
    pub agent_path: Option<String>,

    /// Run the application as standby, too: it is started with `HA_ROLE=standby`, goes on when its Pod becomes
    /// active, and hooks.onActive promotes it. Default false: a standby starts the application when it takes over.
    #[serde(default)]
    pub run_in_standby: bool,

    /// What is run when the part of a Pod changes.
    #[serde(default)]
    pub hooks: StandbyHooks,

    /// Folder in which the application keeps its state, an absolute path in its container: what is in it is replicated to
    /// the standby by the agents. Default: nothing is replicated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 1024), regex(pattern = "^/"))]
    pub state_dir: Option<String>,

    /// Which standby may act when stateDir is replicated: `InSync` (default), only one that has everything, or `Always`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promote_when: Option<PromoteWhen>,

    /// For how many primaries one hot backup stands by, 2 to 8. It has a copy of the state of each in a folder of its own, so that the
    /// volume of stateDir needs as many times the room. When it takes one over, other hot backups take its places beside the others.
    /// The application finds its state in the folder `active` of stateDir, which is needed; what an init container puts into stateDir
    /// is not found there. It cannot be changed. Default: for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 8))]
    pub standby_for: Option<i32>,

    /// Which comes first when an active hands over because somebody wants it to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<HandoverOrder>,

    /// Times of the pairs; they cannot be changed. Default: the defaults of its fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<GroupTiming>,

    /// Ports on which a standby takes in the state of its active, 0 to 50. For each active there is a Service
    /// `replicate-<name of the active Pod>` that leads to its standby; a name of more than 63 characters is cut, and ends in a
    /// hash. A target port is a number, and node ports are refused. Default: no such Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    #[x_kube(validation = Rule::new("self.size() <= 1 || self.all(port, has(port.name))").message(
        "give every port a name when activeStandby.replicationPorts has more than one"))]
    #[x_kube(validation = Rule::new("self.all(port, !has(port.targetPort) || type(port.targetPort) == int)").message(
        "write activeStandby.replicationPorts.targetPort as a number"))]
    #[x_kube(validation = port_names_differ())]
    #[x_kube(validation = port_numbers_differ())]
    #[x_kube(validation = no_node_ports())]
    pub replication_ports: Vec<ServicePort>,

    /// Further arguments of the agent, 0 to 50, such as `--relay-port=9000`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), inner(length(min = 1, max = 1024)))]
    pub arguments: Vec<String>,
}

/// How the agent comes into each Pod: `Copy` (default), an init container copies it; `ImageVolume`, its image is mounted
/// (Kubernetes 1.35 or later, containerd 2.1 or CRI-O 1.31 or later); `Image`, the application's image has it.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentDelivery {
    /// An init container copies it out of its image: works everywhere, and takes the start of a container.
    #[default]
    Copy,
    /// Its image is mounted as an image volume; restricted Pod security admits that.
    ImageVolume,
    /// The application's image has it: nothing is copied or mounted.
    Image,
}

/// Which standby may act when `stateDir` is replicated. Default: `InSync`.
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromoteWhen {
    /// One that has everything that was acknowledged.
    #[default]
    InSync,
    /// Any: what it lacks is lost.
    Always,
}

/// Commands that the agent runs in the container of the application: a program and its arguments, separated by blanks;
/// there is no shell. They get `HA_EPOCH`, `HA_PAIR`, `HA_ROLE`, `HA_PEER` and `HA_STATE_FILE`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct StandbyHooks {
    /// When the Pod becomes active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"\S"))]
    pub on_active: Option<String>,

    /// When the Pod becomes standby, also at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"\S"))]
    pub on_standby: Option<String>,

    /// Before the application is asked to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"\S"))]
    pub on_fence: Option<String>,

    /// How long each command may take, in seconds; then it is killed with all that it started. Range 1 to 3600,
    /// default 5.
    #[serde(default = "default_hook_timeout_seconds")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: i32,
}

impl Default for StandbyHooks {
    fn default() -> Self {
        let timeout_seconds = default_hook_timeout_seconds();
        Self { on_active: None, on_standby: None, on_fence: None, timeout_seconds }
    }
}

fn default_hook_timeout_seconds() -> i32 {
    5
}
