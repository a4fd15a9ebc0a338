//! Says what in a template stands in the way of an agent, and what to write instead.
//!
//! Looks at the template as its user wrote it, and puts nothing in.

use bps_api::keys;
use serde_json::{Value, json};

use super::stop::{known_signals, unknown_signal};

/// Where an agent listens. All containers of a Pod share their ports with it.
const AGENT_PORTS: [u16; 3] = [keys::AGENT_PORT, keys::AGENT_HEALTH_PORT, keys::AGENT_STATE_PORT];

/// Labels that the operator writes on Pods with an agent, as they become active or standby.
const WRITTEN_LABELS: [&str; 4] =
    [keys::LABEL_PAIR_STATE, keys::LABEL_PAIR_PEER, keys::LABEL_HA_STATE, keys::LABEL_PEER];

/// Why a template cannot run an agent, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InjectError {
    /// There is no such container.
    #[error("the template has no container {wanted:?}; choose one of {known:?}")]
    NoContainer {
        /// The name that was asked for.
        wanted: String,
        /// Names that exist.
        known: Vec<String>,
    },
    /// What the agent is put into is written in another form.
    #[error("{field} is no {form}, which an API server would refuse: write {example}")]
    Shape {
        /// Where it is in the template.
        field: String,
        /// What it has to be.
        form: &'static str,
        /// How that looks.
        example: &'static str,
    },
    /// It is not clear which container is meant.
    #[error("the template has several containers; say which one runs the application: one of {known:?}")]
    Ambiguous {
        /// Names that exist.
        known: Vec<String>,
    },
    /// The program is known to the image only.
    #[error(
        "container {container:?} has no command, and the agent has to start the program of its image: give \
         --command='[\"PROGRAM\",\"ARGUMENT\"]', or write it as command of the container, also in a BackupPodSet; {}",
        image_lookup(image.as_deref(), *has_args)
    )]
    NoCommand {
        /// Name of the container.
        container: String,
        /// Its image, if it names one.
        image: Option<String>,
        /// Whether it has `args`.
        has_args: bool,
    },
    /// Two commands for one program.
    #[error(
        "container {container:?} has a command, and --command is for a container without one: leave out --command, or \
         remove the command of the container"
    )]
    CommandTwice {
        /// Name of the container.
        container: String,
    },
    /// The kubelet runs this hook before it calls the container running, and only running Pods come into a pair.
    #[error(
        "container {container:?} has lifecycle.postStart, which has to end before the agent starts the application: \
         remove it, and give the agent a hook: --agent-argument='--on-active=COMMAND', in a BackupPodSet \
         activeStandby.hooks.onActive"
    )]
    PostStart {
        /// Name of the container.
        container: String,
    },
    /// No signal that agents pass on.
    #[error(
        "container {container:?} has lifecycle.stopSignal {signal:?}, which an agent cannot pass on: write one of {}, or \
         leave it out",
        known_signals()
    )]
    StopSignal {
        /// Name of the container.
        container: String,
        /// Its name.
        signal: String,
    },
    /// The kubelet runs this hook in a standby that is deleted, too.
    #[error(
        "container {container:?} has lifecycle.preStop, which also runs in a standby, whose ports lead to the active: \
         keep only a sleep in it, and give the agent a hook: --agent-argument='--on-fence=COMMAND', in a BackupPodSet \
         activeStandby.hooks.onFence"
    )]
    PreStop {
        /// Name of the container.
        container: String,
    },
    /// The application is no foreground process of its terminal, so that the kernel stops it when it reads from there.
    #[error(
        "container {container:?} has tty: true, but the agent starts the application in the background of that terminal, \
         where it is stopped as soon as it reads: set tty to false"
    )]
    Terminal {
        /// Name of the container.
        container: String,
    },
    /// It is not known what to restore.
    #[error(
        "the annotation {annotation:?} cannot be read, which says what the container was before it got the agent: write \
         the container without the agent, and remove the annotation",
        annotation = keys::ANNOTATION_INJECTED
    )]
    Unreadable,
    /// It is not known which container to restore.
    #[error(
        "the annotation {annotation:?} says that container {was:?} has the agent, but there are only {known:?}: rename it \
         back, and once more after --uninject; or write the container without the agent, and remove the annotation",
        annotation = keys::ANNOTATION_INJECTED
    )]
    Renamed {
        /// The name that it had.
        was: String,
        /// Names that exist.
        known: Vec<String>,
    },
    /// A container listens where the agent does.
    #[error(
        "container {container:?} has containerPort {port}, but the agent listens at {agent_ports}: let it listen at \
         another port",
        agent_ports = agent_ports()
    )]
    AgentPort {
        /// Name of the container.
        container: String,
        /// The port.
        port: u16,
    },
    /// The agent must be the first process of its container.
    #[error("set shareProcessNamespace to false: the agent must be the first process of its container")]
    SharedProcesses,
    /// The same, by another field.
    #[error("set hostPID to false: the agent must be the first process of its container")]
    HostProcesses,
    /// The Pod may be over when its agent has ended.
    #[error(
        "restartPolicy is {policy:?}, with which the container of an agent that has ended may stay ended, and its pair \
         without a standby: write Always, or leave it out"
    )]
    RestartPolicy {
        /// What it is.
        policy: String,
    },
    /// The same of one container.
    #[error(
        "container {container:?} has restartPolicy {policy:?}, with which it may stay ended when its agent has ended, and \
         its pair without a standby: write Always, or leave it out"
    )]
    ContainerRestartPolicy {
        /// Name of the container.
        container: String,
        /// What it is.
        policy: String,
    },
    /// Exit codes of its container are those of the agent.
    #[error(
        "container {container:?} has restartPolicyRules, but its exit codes are those of the agent, each of whose ends the \
         kubelet has to follow by a start: leave them out"
    )]
    RestartRules {
        /// Name of the container.
        container: String,
    },
    /// The agents of two Pods would meet on a node.
    #[error(
        "set hostNetwork to false: every agent listens at {agent_ports}, so that two of them cannot share the network of \
         a node",
        agent_ports = agent_ports()
    )]
    HostNetwork,
    /// The template pretends to be active or standby.
    #[error(
        "the template has the label {label:?}, which the operator writes: use another key, for example app"
    )]
    WrittenLabel {
        /// Key of the label.
        label: String,
    },
    /// Pods would leave their workload when the operator labels them, and it would make others.
    #[error(
        "spec.selector names the label {label:?}, which the operator writes: select by another key, for example app"
    )]
    WrittenSelector {
        /// Key of the label.
        label: String,
    },
}

/// Checks that lists are lists and maps are maps where something is put in. An API server would refuse anything else; nobody
/// would, once it is overwritten.
///
/// # Errors
/// `Shape`.
pub(super) fn check_shape(template: &Value) -> Result<(), InjectError> {
    let is_map = |value: &Value| value.is_null() || value.is_object();
    let is_list =
        |value: &Value| value.as_array().map_or(value.is_null(), |items| items.iter().all(Value::is_object));
    for path in ["/metadata", "/metadata/labels", "/metadata/annotations", "/spec", "/spec/affinity"] {
        if template.pointer(path).is_some_and(|value| !is_map(value)) {
            let field = dotted(path);
            return Err(InjectError::Shape { field, form: "map", example: "`key: value`" });
        }
    }
    let lists = ["/spec/containers", "/spec/initContainers", "/spec/volumes"].map(str::to_owned);
    let containers = template["spec"]["containers"].as_array().map_or(0, Vec::len);
    let inner = (0..containers)
        .flat_map(|index| ["env", "volumeMounts"].map(|list| format!("/spec/containers/{index}/{list}")));
    for path in lists.into_iter().chain(inner) {
        if template.pointer(&path).is_some_and(|value| !is_list(value)) {
            let field = dotted(&path);
            return Err(InjectError::Shape { field, form: "list", example: "`- name: NAME` for each item" });
        }
    }
    Ok(())
}

/// As people write it.
fn dotted(path: &str) -> String {
    path.trim_start_matches('/').replace('/', ".")
}

/// Checks what all containers of a Pod have in common.
///
/// # Errors
/// See [`InjectError`].
pub(super) fn check_pod(template: &Value) -> Result<(), InjectError> {
    let spec = &template["spec"];
    if spec["shareProcessNamespace"] == json!(true) {
        return Err(InjectError::SharedProcesses);
    }
    if spec["hostPID"] == json!(true) {
        return Err(InjectError::HostProcesses);
    }
    if spec["hostNetwork"] == json!(true) {
        return Err(InjectError::HostNetwork);
    }
    if let Some(policy) = ending_policy(spec) {
        return Err(InjectError::RestartPolicy { policy });
    }
    if let Some(label) = keys_of(&template["metadata"]["labels"]).find(|key| is_written(key)) {
        return Err(InjectError::WrittenLabel { label: label.to_owned() });
    }
    check_ports(spec)
}

/// Checks the container of the application.
///
/// # Errors
/// `PostStart`, `StopSignal`, `PreStop`, `Terminal`, `ContainerRestartPolicy` and `RestartRules`. A sleep before the end may
/// stay: it is the same in both roles, and needs no application.
pub(super) fn check_container(container: &Value) -> Result<(), InjectError> {
    let lifecycle = &container["lifecycle"];
    if !lifecycle["postStart"].is_null() {
        return Err(InjectError::PostStart { container: name(container) });
    }
    if let Some(signal) = unknown_signal(container) {
        return Err(InjectError::StopSignal { container: name(container), signal: signal.to_owned() });
    }
    let handlers = lifecycle["preStop"].as_object().into_iter().flatten();
    let mut present = handlers.filter(|(_, handler)| !handler.is_null());
    if present.any(|(kind, _)| kind != "sleep") {
        return Err(InjectError::PreStop { container: name(container) });
    }
    if container["tty"] == json!(true) {
        return Err(InjectError::Terminal { container: name(container) });
    }
    if let Some(policy) = ending_policy(container) {
        return Err(InjectError::ContainerRestartPolicy { container: name(container), policy });
    }
    if container["restartPolicyRules"].as_array().is_some_and(|rules| !rules.is_empty()) {
        return Err(InjectError::RestartRules { container: name(container) });
    }
    Ok(())
}

/// Checks which Pods a workload calls its own.
///
/// # Errors
/// `WrittenSelector`.
pub(super) fn check_selector(selector: &Value) -> Result<(), InjectError> {
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    let in_expressions = expressions.filter_map(|expression| expression["key"].as_str());
    // A ReplicationController and a DeploymentConfig of OpenShift have the labels without `matchLabels`.
    let mut named = keys_of(&selector["matchLabels"]).chain(keys_of(selector)).chain(in_expressions);
    match named.find(|key| is_written(key)) {
        Some(label) => Err(InjectError::WrittenSelector { label: label.to_owned() }),
        None => Ok(()),
    }
}

fn keys_of(map: &Value) -> impl Iterator<Item = &str> {
    map.as_object().into_iter().flatten().map(|(key, _)| key.as_str())
}

/// Whether the operator writes a label of this key on Pods with an agent.
fn is_written(key: &str) -> bool {
    WRITTEN_LABELS.contains(&key) || key.starts_with(keys::LABEL_STANDBY_OF)
}

/// The `restartPolicy` of a Pod or of a container, if it lets anything end for good.
fn ending_policy(of: &Value) -> Option<String> {
    of["restartPolicy"].as_str().filter(|policy| *policy != "Always").map(str::to_owned)
}

/// Init containers end before the agent starts, unless they are sidecars.
fn check_ports(spec: &Value) -> Result<(), InjectError> {
    let list = |field: &str| spec[field].as_array().into_iter().flatten();
    let sidecars = list("initContainers").filter(|container| container["restartPolicy"] == "Always");
    let taken = list("containers").chain(sidecars).find_map(|container| {
        let port = agent_port(container)?;
        Some(InjectError::AgentPort { container: name(container), port })
    });
    taken.map_or(Ok(()), Err)
}

/// The first port of the agent that a container has, by whatever protocol: the agent uses both.
fn agent_port(container: &Value) -> Option<u16> {
    let ports = container["ports"].as_array().into_iter().flatten();
    let mut numbers = ports.filter_map(|port| u16::try_from(port["containerPort"].as_u64()?).ok());
    numbers.find(|number| AGENT_PORTS.contains(number))
}

/// Which command prints the words of an image's command, and which of them are meant.
fn image_lookup(image: Option<&str>, has_args: bool) -> String {
    let image = image.unwrap_or("IMAGE");
    if has_args {
        format!(
            "it is the ENTRYPOINT alone, because the container's args take the place of the CMD: \
             crane config {image} | jq -c .config.Entrypoint"
        )
    } else {
        format!(
            "it is the ENTRYPOINT followed by the CMD: \
             crane config {image} | jq -c '[.config.Entrypoint, .config.Cmd] | add'"
        )
    }
}

fn agent_ports() -> String {
    AGENT_PORTS.map(|port| port.to_string()).join(", ")
}

fn name(container: &Value) -> String {
    container["name"].as_str().unwrap_or_default().to_owned()
}
