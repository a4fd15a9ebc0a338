//! Puts the agent into a Pod template, and takes it out again.

mod apart;
mod check;
mod environment;
mod kept;
mod last_lines;
mod liveness;
mod mesh;
mod pre_stop;
mod rollout;
mod stop;
mod warning;

use bps_api::keys;
use serde_json::{Map, Value, json};

use self::check::{check_container, check_pod, check_selector, check_shape};
use self::environment::{add_environment, identity_arguments};
use self::kept::kept;
use self::last_lines::last_lines_argument;
use self::liveness::check_arguments;
use self::stop::stop_argument;
use super::agent_source::AgentSource;
use super::group::group_keys_name;

pub use self::check::InjectError;
pub use self::stop::STOP_SIGNALS;
pub use self::warning::InjectWarning;

/// Probes of the application. They would fail in a standby, whose application does not run; the agent notices the end of
/// the application by itself, and does what the liveness probe did.
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];

/// Argument of an agent whose application runs as standby, too.
const RUN_IN_STANDBY: &str = "--run-in-standby";
/// Argument of an agent that stands by for several actives.
const STANDBY_FOR: &str = "--standby-for";

/// Word of the annotation that says that the command is that of the image, and was not in the container.
const OF_IMAGE: &str = "commandOfImage";

/// Time between two liveness probes of the agent. Unit: seconds. 10: the kubelet's default.
const LIVENESS_PERIOD_SECONDS: u32 = 10;
/// Time that the kubelet waits for an answer. Unit: seconds. 5: five times its default, for a node without free
/// processor time.
const LIVENESS_TIMEOUT_SECONDS: u32 = 5;
/// Probes in a row that may fail before the kubelet restarts the container. 6: with the period, as long as `/livez`
/// lets the agent's loop stand still (`LIVENESS_MAX` of `bps-runtime`, 60 s).
const LIVENESS_FAILURES_MAX: u32 = 6;

/// What to put in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    /// Name of the group.
    pub group: String,
    /// Where the agent comes from.
    pub source: AgentSource,
    /// Container that runs the application; needed if there is more than one.
    pub container: Option<String>,
    /// Command of the application's image, for a container that names none; not empty.
    pub image_command: Option<Vec<String>>,
    /// Further arguments of the agent, for example hooks, or ports to relay that the template does not name.
    pub arguments: Vec<String>,
}

impl Injection {
    /// Checks the `spec.selector` of a workload whose Pods get an agent.
    ///
    /// # Errors
    /// `WrittenSelector` if it names a label that the operator writes.
    pub fn check_selector(selector: &Value) -> Result<(), InjectError> {
        check_selector(selector)
    }

    /// Warns of a workload whose rollout may delete both Pods of a pair at once. `spec` is that of a workload of Kubernetes of this
    /// kind; nothing is said of other kinds.
    pub fn rollout_warning(kind: &str, spec: &Value) -> Option<InjectWarning> {
        rollout::rollout_warning(kind, spec)
    }

    /// Warnings about a template that can run the agent, in a fixed order; none about any other template.
    pub fn warnings(&self, template: &Value) -> Vec<InjectWarning> {
        let can_run = inject(template, self).is_ok();
        let Some(mut template) = uninject(template).ok().filter(|_| can_run) else { return Vec::new() };
        let spec = &mut template["spec"];
        let Ok(index) = container_index(spec, self.container.as_deref()) else { return Vec::new() };

        let grace = spec["terminationGracePeriodSeconds"].as_u64();
        let container = &mut spec["containers"][index];
        pre_stop::sleep_natively(container, grace);
        warning::warnings(container, self, grace)
    }
}

/// The Pod template with the agent in it. Putting it in twice is the same as once.
///
/// `template` has the form of a workload's `spec.template`: `metadata` and `spec`.
///
/// # Errors
/// See [`InjectError`].
pub fn inject(template: &Value, injection: &Injection) -> Result<Value, InjectError> {
    check_shape(template)?;
    let mut template = uninject(template)?;
    check_pod(&template)?;
    let spec = &template["spec"];
    let index = container_index(spec, injection.container.as_deref())?;
    let grace = spec["terminationGracePeriodSeconds"].as_u64();
    let container = &mut template["spec"]["containers"][index];
    let pre_stop = pre_stop::sleep_natively(container, grace);
    check_container(container)?;

    let install = injection.source.init_container(container);
    let program = injection.source.volume(container);
    let mut kept = wrap(container, injection, grace)?;
    if let Some(pre_stop) = pre_stop {
        kept["preStop"] = pre_stop;
    }
    let spec = &mut template["spec"];
    if let Some(install) = install {
        prepend(spec, "initContainers", install);
    }
    append(spec, "volumes", json!({"name": keys::VOLUME_AGENT, "emptyDir": {}}));
    let secret = json!({"secretName": group_keys_name(&injection.group)});
    append(spec, "volumes", json!({"name": keys::VOLUME_AGENT_KEYS, "secret": secret}));
    append(spec, "volumes", api_volume());
    if let Some(program) = program {
        append(spec, "volumes", program);
    }
    if let Some(term) = apart::prefer(spec, &injection.group) {
        kept["apart"] = term;
    }

    let metadata = &mut template["metadata"];
    if let Some(group) = metadata["labels"].get(keys::LABEL_GROUP) {
        kept["group"] = group.clone();
    }
    metadata["labels"][keys::LABEL_GROUP] = json!(injection.group);
    kept["mesh"] = mesh::exclude(metadata);
    metadata["annotations"][keys::ANNOTATION_INJECTED] = json!(kept.to_string());
    Ok(template)
}

/// The Pod template without the agent; one that has none stays as it is.
///
/// # Errors
/// `Unreadable` and `Renamed` if it cannot be told what the container was before.
pub fn uninject(template: &Value) -> Result<Value, InjectError> {
    let mut template = template.clone();
    let Some((kept, index)) = kept(&template)? else { return Ok(template) };
    unwrap(&mut template["spec"]["containers"][index], &kept);
    mesh::restore(&mut template["metadata"], &kept["mesh"]);
    let was_in_group = kept["group"].is_string();
    if was_in_group {
        template["metadata"]["labels"][keys::LABEL_GROUP] = kept["group"].clone();
    }
    let labels = (!was_in_group).then_some(("labels", keys::LABEL_GROUP));
    for (part, key) in std::iter::once(("annotations", keys::ANNOTATION_INJECTED)).chain(labels) {
        let is_empty = template["metadata"][part].as_object_mut().is_none_or(|entries| {
            entries.remove(key);
            entries.is_empty()
        });
        if let (true, Some(metadata)) = (is_empty, template["metadata"].as_object_mut()) {
            metadata.remove(part);
        }
    }
    let spec = &mut template["spec"];
    remove(spec, "initContainers", |item| item["name"] == keys::CONTAINER_INSTALL_AGENT);
    remove(spec, "volumes", is_ours);
    apart::restore(spec, &kept["apart"]);
    Ok(template)
}

/// Wraps the command; returns what [`uninject`] needs to know.
fn wrap(container: &mut Value, injection: &Injection, grace: Option<u64>) -> Result<Value, InjectError> {
    let name = container["name"].as_str().unwrap_or_default().to_owned();
    let command = application_command(container, injection)?;
    let of_agent = agent_command(container, injection).into_iter().map(Value::from);
    container["command"] = of_agent.chain(command.iter().cloned()).collect();

    let mut probes = Map::new();
    for probe in PROBES {
        let removed = container.as_object_mut().and_then(|container| container.remove(probe));
        probes.extend(removed.map(|removed| (probe.to_owned(), removed)));
    }
    container["readinessProbe"] = json!({
        "httpGet": {"path": "/readyz", "port": keys::AGENT_HEALTH_PORT}, "periodSeconds": 1,
    });
    container["livenessProbe"] = agent_liveness();
    let added = add_environment(container, injection, grace);
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    append(container, "volumeMounts", mount(keys::VOLUME_AGENT, keys::AGENT_MOUNT_PATH));
    let read = [
        (keys::VOLUME_AGENT_KEYS, keys::AGENT_KEYS_MOUNT_PATH),
        (keys::VOLUME_AGENT_API, keys::AGENT_API_MOUNT_PATH),
    ];
    for (name, path) in read {
        let mut read_mount = mount(name, path);
        read_mount["readOnly"] = json!(true);
        append(container, "volumeMounts", read_mount);
    }
    if let Some(program_mount) = injection.source.mount() {
        append(container, "volumeMounts", program_mount);
    }

    let mut kept = json!({"container": name, "command": command, "probes": probes, "env": added});
    if injection.image_command.is_some() {
        // Beside the command, so that an earlier release, which knows no such word, writes the same command out.
        kept[OF_IMAGE] = json!(true);
    }
    Ok(kept)
}

/// The command that the agent starts: that of the container, or the one that was given for its image.
fn application_command(container: &Value, injection: &Injection) -> Result<Vec<Value>, InjectError> {
    let command = container["command"].as_array().filter(|command| !command.is_empty());
    let name = || container["name"].as_str().unwrap_or_default().to_owned();
    match (&injection.image_command, command) {
        (None, Some(command)) => Ok(command.clone()),
        (Some(of_image), None) => Ok(of_image.iter().cloned().map(Value::from).collect()),
        (Some(_), Some(_)) => Err(InjectError::CommandTwice { container: name() }),
        (None, None) => Err(InjectError::NoCommand {
            container: name(),
            image: container["image"].as_str().map(str::to_owned),
            has_args: container["args"].as_array().is_some_and(|words| !words.is_empty()),
        }),
    }
}

/// Probe by which the kubelet restarts a stuck agent. The enforcer watches over an active only, never over a standby.
///
/// A healthy agent answers in every state: its loop wakes at least once in each period of its pings, and no wait for
/// the API server, a peer or the application blocks it.
fn agent_liveness() -> Value {
    json!({
        "httpGet": {"path": "/livez", "port": keys::AGENT_HEALTH_PORT},
        "periodSeconds": LIVENESS_PERIOD_SECONDS,
        "timeoutSeconds": LIVENESS_TIMEOUT_SECONDS,
        "failureThreshold": LIVENESS_FAILURES_MAX,
    })
}

/// The command of the application as it is now: somebody may have edited it since the agent was put before it.
fn command_now(container: &Value, kept: &Value) -> Value {
    let words = container["command"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_of_agent = |word: &Value| word.as_str().is_some_and(|word| word.starts_with("--group="));
    let is_wrapped = words.get(1).is_some_and(|verb| verb == "run") && words.get(2).is_some_and(is_of_agent);
    let behind_agent = words.iter().position(|word| word == "--").filter(|_| is_wrapped);
    match behind_agent.and_then(|end| words.get(end + 1..)) {
        Some(command) if !command.is_empty() => json!(command),
        None if !words.is_empty() => json!(words),
        Some(_) | None => kept["command"].clone(),
    }
}

fn unwrap(container: &mut Value, kept: &Value) {
    let command = command_now(container, kept);
    let is_of_image = kept[OF_IMAGE] == true && command == kept["command"];
    container["command"] = command;
    if let Some(container) = container.as_object_mut() {
        if is_of_image {
            container.remove("command");
        }
        for probe in PROBES {
            let asks_agent = |probe: &Value| probe["httpGet"]["port"] == keys::AGENT_HEALTH_PORT;
            if container.get(probe).is_some_and(asks_agent) {
                container.remove(probe);
            }
        }

        // What somebody wrote in the meantime stays.
        for (name, probe) in kept["probes"].as_object().cloned().unwrap_or_default() {
            container.entry(name).or_insert(probe);
        }
    }
    let added = kept["env"].as_array().cloned().unwrap_or_default();
    remove(container, "env", |entry| added.contains(&entry["name"]));
    remove(container, "volumeMounts", is_ours);
    pre_stop::restore(container, &kept["preStop"]);
}

/// Its own way to the API server: a Pod or a ServiceAccount may mount no token.
fn api_volume() -> Value {
    let certificates = keys::AGENT_API_CERTIFICATES_FILE;
    json!({"name": keys::VOLUME_AGENT_API, "projected": {"sources": [
        {"serviceAccountToken": {
            "path": keys::AGENT_API_TOKEN_FILE, "expirationSeconds": keys::AGENT_API_TOKEN_SECONDS,
        }},
        // Kubernetes keeps one in each namespace.
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": certificates}]}},
    ]}})
}

fn is_ours(item: &Value) -> bool {
    let names =
        [keys::VOLUME_AGENT, keys::VOLUME_AGENT_KEYS, keys::VOLUME_AGENT_API, keys::VOLUME_AGENT_PROGRAM];
    names.iter().any(|name| item["name"] == *name)
}

fn agent_command(container: &Value, injection: &Injection) -> Vec<String> {
    // Which family of addresses Pods have is not known yet; an agent takes 0.0.0.0 for all of its Pod's family.
    let mut command = vec![
        injection.source.program().to_owned(),
        "run".to_owned(),
        format!("--group={}", injection.group),
        format!("--key-file={}/{}", keys::AGENT_KEYS_MOUNT_PATH, keys::SECRET_GROUP_KEYS_ENTRY),
        format!("--api-dir={}", keys::AGENT_API_MOUNT_PATH),
        format!("--peer-bind=0.0.0.0:{}", keys::AGENT_PORT),
        format!("--health-bind=0.0.0.0:{}", keys::AGENT_HEALTH_PORT),
        format!("--state-dir={}", keys::AGENT_MOUNT_PATH),
        format!("--state-file={}/state.json", keys::AGENT_MOUNT_PATH),
    ];
    command.extend(identity_arguments(container, &injection.arguments));
    if relays(&injection.arguments) {
        command.extend(tcp_ports(container).map(|port| format!("--relay-port={port}")));
    }
    command.extend(check_arguments(container, &injection.arguments));
    command.extend(stop_argument(container, &injection.arguments));
    command.extend(last_lines_argument(container, &injection.arguments));
    command.extend(injection.arguments.iter().cloned());
    command.push("--".to_owned());
    command
}

/// Whether an agent with these arguments relays what still comes to a standby: an application that runs in both roles has its ports in
/// both, and a standby of several actives would not know to which of them a connection belongs.
fn relays(arguments: &[String]) -> bool {
    !arguments.iter().any(|argument| argument == RUN_IN_STANDBY || argument.starts_with(STANDBY_FOR))
}

/// The ports that the template says the application listens on.
fn tcp_ports(container: &Value) -> impl Iterator<Item = u64> {
    let ports = container["ports"].as_array().into_iter().flatten();
    let tcp = ports.filter(|port| port.get("protocol").is_none_or(|protocol| protocol == "TCP"));
    tcp.filter_map(|port| port["containerPort"].as_u64())
}

fn container_index(spec: &Value, wanted: Option<&str>) -> Result<usize, InjectError> {
    let containers = spec["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let known: Vec<String> =
        containers.iter().filter_map(|container| container["name"].as_str()).map(str::to_owned).collect();
    match wanted {
        None if containers.len() == 1 => Ok(0),
        None => Err(InjectError::Ambiguous { known }),
        Some(wanted) => known
            .iter()
            .position(|name| name == wanted)
            .ok_or_else(|| InjectError::NoContainer { wanted: wanted.to_owned(), known }),
    }
}

fn append(object: &mut Value, list: &str, item: Value) {
    match object[list].as_array_mut() {
        Some(items) => items.push(item),
        None => object[list] = json!([item]),
    }
}

fn prepend(object: &mut Value, list: &str, item: Value) {
    match object[list].as_array_mut() {
        Some(items) => items.insert(0, item),
        None => object[list] = json!([item]),
    }
}

/// Removes items, and the list if nothing is left of it.
fn remove(object: &mut Value, list: &str, is_removed: impl Fn(&Value) -> bool) {
    let is_empty = object.get_mut(list).and_then(Value::as_array_mut).is_some_and(|items| {
        items.retain(|item| !is_removed(item));
        items.is_empty()
    });
    if let (true, Some(object)) = (is_empty, object.as_object_mut()) {
        object.remove(list);
    }
}
