//! The objects that are measured, as documents: pairs, and what they are compared with.
//!
//! Pure.

use std::net::SocketAddr;

use bps_api::keys;
use bps_core::manifests::{AgentSource, Injection, inject};
use serde_json::{Value, json};

use crate::app::FINISH_WITHIN;
use crate::app::arguments::SINK_VARIABLE;
use crate::bench::Error;
use crate::image::{AGENT_IMAGE, APP_IMAGE};

/// Port of the application.
pub(super) const PORT: u16 = 8080;

/// Processor time that each Pod asks for, as one does whose service must not go away. Without it, its processes wait for
/// those of every Pod of the node that does: 2 shares of the kernel's, where this is 51.
const REQUEST: &str = "50m";

/// Folder of the counter's state.
const STATE: &str = "/state";

/// What runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Pods of a StatefulSet with agents, two for each pair.
    Pairs,
    /// The same with the timing profile `Fast`.
    FastPairs,
    /// The same, whose application does not know its arguments and ends soon after each start.
    EndingPairs,
    /// Pods of a Deployment with agents, two for each pair.
    PairsOfDeployment,
    /// The same, whose agents are in the image of the application instead of being copied.
    PairsBuiltIn,
    /// The same, whose agents are in a volume that is their image.
    PairsMounted,
    /// Pods of a StatefulSet that count, two for each pair; their agents replicate the count.
    CountingPairs,
    /// Pods of a Deployment that count, each for itself.
    Counter,
    /// Pods of a Deployment that all serve.
    Deployment,
    /// Two Pods of a Deployment, of which the one with the label of the active serves.
    LabelSwitch,
}

impl Kind {
    /// Whether its Pods run agents.
    pub fn has_agents(self) -> bool {
        self.agent_source().is_some()
    }

    /// Whether its agents keep the state of one Pod level with that of another.
    pub fn is_replicated(self) -> bool {
        self.counts() && self.has_agents()
    }

    /// Where its agents come from, if it has any.
    fn agent_source(self) -> Option<AgentSource> {
        match self {
            Self::Pairs
            | Self::FastPairs
            | Self::EndingPairs
            | Self::PairsOfDeployment
            | Self::CountingPairs => Some(AgentSource::Copy { image: AGENT_IMAGE.to_owned() }),
            Self::PairsBuiltIn => {
                Some(AgentSource::Image { path: keys::AGENT_IMAGE_PROGRAM_PATH.to_owned() })
            }
            Self::PairsMounted => Some(AgentSource::ImageVolume { image: AGENT_IMAGE.to_owned() }),
            Self::Counter | Self::Deployment | Self::LabelSwitch => None,
        }
    }

    /// Whether the application is the counter.
    pub(super) const fn counts(self) -> bool {
        matches!(self, Self::CountingPairs | Self::Counter)
    }

    /// Whether its workload is a StatefulSet; otherwise it is a Deployment.
    pub const fn is_stateful_set(self) -> bool {
        matches!(self, Self::Pairs | Self::FastPairs | Self::EndingPairs | Self::CountingPairs)
    }

    /// How many of so many Pods serve.
    pub const fn serving(self, replicas: usize) -> usize {
        match self {
            Self::Pairs
            | Self::FastPairs
            | Self::EndingPairs
            | Self::PairsOfDeployment
            | Self::PairsBuiltIn
            | Self::PairsMounted
            | Self::CountingPairs => replicas / 2,
            Self::Counter | Self::Deployment => replicas,
            Self::LabelSwitch => 1,
        }
    }
}

/// What to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blueprint {
    /// What runs.
    pub kind: Kind,
    /// Name of the workload, the group and the Service.
    pub name: &'static str,
    /// Number of Pods.
    pub replicas: usize,
    /// Who is told of each answer.
    pub sink: Option<SocketAddr>,
    /// A node without Pods, for those who look on.
    pub lookout: Option<String>,
}

impl Blueprint {
    /// The group of the pairs.
    pub(super) fn group(&self) -> Value {
        let profile = if self.kind == Kind::FastPairs { "Fast" } else { "Default" };
        json!({
            "apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup", "metadata": {"name": self.name},
            "spec": {
                "service": {"name": self.name, "ports": [{"port": 80, "targetPort": PORT}]},
                "timing": {"profile": profile},
            },
        })
    }

    /// The Service of Pods without agents.
    pub(super) fn service(&self) -> Value {
        let mut selector = json!({"app": self.name});
        if self.kind == Kind::LabelSwitch {
            selector[keys::LABEL_HA_STATE] = json!(keys::HA_ROLE_ACTIVE);
        }
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": self.name},
            "spec": {"selector": selector, "ports": [{"port": 80, "targetPort": PORT}]},
        })
    }

    /// The StatefulSet or Deployment.
    ///
    /// # Errors
    /// `Find` if the template cannot run an agent.
    pub(super) fn workload(&self) -> Result<Value, Error> {
        let mut template = self.template();
        if let Some(source) = self.kind.agent_source() {
            let replicated = self.kind.counts().then(|| format!("--replicate={STATE}"));
            // Faults end the application more often than anybody would.
            let pause = (self.kind != Kind::EndingPairs).then(|| "--restart-pause-max=1".to_owned());
            let arguments = pause.into_iter().chain(replicated).collect();
            let injection = Injection {
                group: self.name.to_owned(),
                source,
                container: None,
                image_command: None,
                arguments,
            };
            template =
                inject(&template, &injection).map_err(|error| Error::Find { what: error.to_string() })?;
        } else {
            template["spec"]["containers"][0]["readinessProbe"] = if self.kind.counts() {
                json!({"tcpSocket": {"port": PORT}, "periodSeconds": 1})
            } else {
                json!({"httpGet": {"path": "/healthz", "port": PORT}, "periodSeconds": 1})
            };
        }
        let kind = if self.kind.is_stateful_set() { "StatefulSet" } else { "Deployment" };
        let selector = json!({"matchLabels": {"app": self.name}});
        let mut workload = json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": self.name},
            "spec": {"replicas": self.replicas, "selector": selector, "template": template},
        });
        if self.kind.is_stateful_set() {
            workload["spec"]["serviceName"] = json!(self.name);
            workload["spec"]["podManagementPolicy"] = json!("Parallel");
        }
        Ok(workload)
    }

    /// The application, which answers what it has taken and then ends when it is asked to, as servers do.
    fn template(&self) -> Value {
        let mut spec = json!({
            "terminationGracePeriodSeconds": 5,
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": self.name}},
            }],
            "containers": [if self.kind.counts() { counter(self.sink) } else { container(self.sink) }],
        });
        if self.kind == Kind::EndingPairs {
            spec["containers"][0]["args"] = json!(["--no-such-argument"]);
        }
        if self.kind.counts() {
            spec["volumes"] = json!([{"name": "state", "emptyDir": {}}]);
        }
        if let Some(node) = &self.lookout {
            let elsewhere = json!({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [node]});
            spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [elsewhere]}],
            }}});
        }
        json!({"metadata": {"labels": {"app": self.name}}, "spec": spec})
    }
}

/// The container of the counter, which keeps its count in [`STATE`].
fn counter(sink: Option<SocketAddr>) -> Value {
    json!({
        "env": told(sink), "name": "app", "image": APP_IMAGE, "imagePullPolicy": "IfNotPresent",
        "command": ["/lab-app", "counter", "--state", STATE, "--port", PORT.to_string()],
        "ports": [{"containerPort": PORT}], "volumeMounts": [{"name": "state", "mountPath": STATE}],
        "resources": {"requests": {"cpu": REQUEST}},
    })
}

/// Variables that say whom to tell of each answer.
fn told(sink: Option<SocketAddr>) -> Vec<Value> {
    sink.map(|sink| json!({"name": SINK_VARIABLE, "value": sink.to_string()})).into_iter().collect()
}

/// The application's container.
pub(super) fn container(sink: Option<SocketAddr>) -> Value {
    let finish = FINISH_WITHIN.as_millis().to_string();
    json!({
        "env": told(sink),
        "name": "app", "image": APP_IMAGE, "imagePullPolicy": "IfNotPresent",
        "command": ["/lab-app"], "args": ["--port", PORT.to_string(), "--finish-ms", finish],
        "ports": [{"containerPort": PORT}], "resources": {"requests": {"cpu": REQUEST}},
    })
}
