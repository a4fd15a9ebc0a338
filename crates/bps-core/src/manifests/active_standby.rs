//! What a set with active and standby Pods has besides: an agent in its Pods, and the group of its pairs.

use bps_api::service::TargetPort;
use bps_api::{
    ActiveStandby, AgentDelivery, BackupPodSet, GroupService, GroupTopology, HAGroupSpec, PromoteWhen,
    ServicePort, StandbyHooks, keys,
};
use serde_json::{Value, json};

use super::{AgentSource, InjectError, Injection, PortError, inject, owner_reference, slice_ports};

/// The agent of the Pods of a set; `None` if the set has no active and standby Pods, or if the agent comes from an
/// image that is not known.
pub fn set_injection(set: &BackupPodSet, agent_image: Option<&str>) -> Option<Injection> {
    let wanted = set.spec.active_standby.as_ref()?;
    let image = || agent_image.map(str::to_owned);
    let source = match wanted.agent_source.unwrap_or_default() {
        AgentDelivery::Copy => AgentSource::Copy { image: image()? },
        AgentDelivery::ImageVolume => AgentSource::ImageVolume { image: image()? },
        AgentDelivery::Image => {
            let path = wanted.agent_path.as_deref().unwrap_or(keys::AGENT_IMAGE_PROGRAM_PATH);
            AgentSource::Image { path: path.to_owned() }
        }
    };
    Some(Injection {
        group: set.metadata.name.clone().unwrap_or_default(),
        source,
        container: wanted.container.clone(),
        image_command: None,
        arguments: agent_arguments(wanted),
    })
}

fn agent_arguments(wanted: &ActiveStandby) -> Vec<String> {
    let ActiveStandby { run_in_standby, hooks, state_dir, promote_when, standby_for, arguments, .. } = wanted;
    let StandbyHooks { on_active, on_standby, on_fence, timeout_seconds } = hooks;
    let hook =
        |name: &str, command: &Option<String>| command.as_ref().map(|command| format!("--{name}={command}"));
    let hooks: Vec<String> =
        [hook("on-active", on_active), hook("on-standby", on_standby), hook("on-fence", on_fence)]
            .into_iter()
            .flatten()
            .collect();
    let timeout = (!hooks.is_empty()).then(|| format!("--hook-timeout={timeout_seconds}"));
    let mode = run_in_standby.then(|| "--run-in-standby".to_owned());
    let state = state_dir.iter().map(|directory| format!("--replicate={directory}"));
    let promotion = promote_when.map(|when| match when {
        PromoteWhen::InSync => "--promote-when=in-sync".to_owned(),
        PromoteWhen::Always => "--promote-when=always".to_owned(),
    });
    let places = standby_for.map(|places| format!("--standby-for={places}"));
    let further = arguments.iter().cloned();
    hooks
        .into_iter()
        .chain(timeout)
        .chain(mode)
        .chain(state)
        .chain(promotion)
        .chain(places)
        .chain(further)
        .collect()
}

/// The template of a set's Pods with the agent in it.
///
/// # Errors
/// See [`InjectError`].
pub(super) fn with_agent(template: &Value, injection: &Injection) -> Result<Value, InjectError> {
    let mut template = inject(template, injection)?;
    let containers = template["spec"]["containers"].as_array_mut();
    let is_wrapped =
        |container: &&mut Value| injection.container.as_ref().is_none_or(|name| container["name"] == **name);
    if let Some(container) = containers.into_iter().flatten().find(is_wrapped) {
        // A hot backup that belongs to no pair is as good as it can be: it waits for a place.
        container["readinessProbe"]["httpGet"]["path"] = json!("/livez");
    }
    Ok(template)
}

/// Checks that the template of a set can run an agent.
///
/// # Errors
/// See [`InjectError`].
pub fn check_agent(set: &BackupPodSet, injection: &Injection) -> Result<(), InjectError> {
    with_agent(&json!({"metadata": {}, "spec": set.spec.template.spec}), injection).map(drop)
}

/// What the group of a set's pairs should be; `None` if the set has no active and standby Pods.
///
/// # Errors
/// `PortError::UnknownName` if a target port is named and no container has it.
pub fn set_group_spec(set: &BackupPodSet) -> Result<Option<HAGroupSpec>, PortError> {
    let Some(wanted) = &set.spec.active_standby else { return Ok(None) };
    let service = set.spec.service.as_ref().map(|service| {
        let targets = slice_ports(set, service)?;
        let port = |(port, target): (&ServicePort, i32)| ServicePort {
            target_port: Some(TargetPort::Number(target)),
            ..port.clone()
        };
        let targets = targets.into_iter().map(|target| target.port);
        let ports = service.ports.iter().zip(targets).map(port).collect();
        let (name, options) = (service.name.clone(), service.options.clone());
        Ok(GroupService { name, ports, r#type: service.r#type, options })
    });
    Ok(Some(HAGroupSpec {
        service: service.transpose()?,
        replication_ports: wanted.replication_ports.clone(),
        pairs: Some(set.spec.replicas),
        standby_for: wanted.standby_for,
        timing: wanted.timing,
        handover: wanted.handover,
        topology: set_group_topology(set),
        paused: set.spec.paused,
    }))
}

/// The group as it is sent to the API server.
pub fn set_group(set: &BackupPodSet, spec: &HAGroupSpec) -> Value {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    json!({
        "apiVersion": format!("{}/{}", keys::GROUP, keys::VERSION),
        "kind": keys::GROUP_KIND,
        "metadata": {
            "name": name,
            "namespace": set.metadata.namespace,
            "labels": {(keys::LABEL_SET): name, (keys::LABEL_MANAGED_BY): keys::MANAGED_BY},
            "ownerReferences": [owner_reference(set)],
        },
        "spec": spec,
    })
}

/// Where the Pods of a set's pairs may be; `None` if the set says nothing of it.
fn set_group_topology(set: &BackupPodSet) -> Option<GroupTopology> {
    let wanted = set.spec.topology.as_ref()?;
    Some(GroupTopology { key: wanted.key.clone(), standby: wanted.standby.unwrap_or_default() })
}
