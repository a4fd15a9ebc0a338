//! Keeps the ports of agents out of service meshes: their datagrams pass none, and a connection that a proxy relays says nothing of
//! the life of who made it.

use bps_api::keys;
use serde_json::{Map, Value, json};

/// What the agents are connected to.
const INBOUND: [u16; 3] = [keys::AGENT_PORT, keys::AGENT_HEALTH_PORT, keys::AGENT_STATE_PORT];
/// What they connect to.
const OUTBOUND: [u16; 2] = [keys::AGENT_PORT, keys::AGENT_STATE_PORT];

/// Annotations of Pods whose values are lists of ports with commas between them, and the ports for each: of Istio with sidecars, and of
/// Linkerd.
const ANNOTATIONS: [(&str, &[u16]); 4] = [
    ("traffic.sidecar.istio.io/excludeInboundPorts", &INBOUND),
    ("traffic.sidecar.istio.io/excludeOutboundPorts", &OUTBOUND),
    ("config.linkerd.io/skip-inbound-ports", &INBOUND),
    ("config.linkerd.io/skip-outbound-ports", &OUTBOUND),
];

/// Adds the ports that are missing; returns them by annotation, for [`restore`].
pub(super) fn exclude(metadata: &mut Value) -> Value {
    let mut added = Map::new();
    for (key, ports) in ANNOTATIONS {
        let value = metadata["annotations"][key].as_str().unwrap_or_default().to_owned();
        let missing: Vec<String> = ports
            .iter()
            .map(u16::to_string)
            .filter(|port| !listed(&value).contains(&port.as_str()))
            .collect();
        if missing.is_empty() {
            continue;
        }
        let missing = missing.join(",");
        let all = if listed(&value).is_empty() { missing.clone() } else { format!("{value},{missing}") };
        metadata["annotations"][key] = json!(all);
        added.insert(key.to_owned(), json!(missing));
    }
    Value::Object(added)
}

/// Takes out what was added, also if somebody has edited the rest, and the annotations of which nothing is left.
pub(super) fn restore(metadata: &mut Value, added: &Value) {
    let Some(annotations) = metadata["annotations"].as_object_mut() else { return };
    for (key, added) in added.as_object().into_iter().flatten() {
        let Some(added) = added.as_str() else { continue };
        let Some(value) = annotations.get(key).and_then(Value::as_str) else { continue };
        let before = value.strip_suffix(added).and_then(|before| before.strip_suffix(','));
        let without = || {
            let rest = listed(value).into_iter().filter(|port| !listed(added).contains(port));
            rest.collect::<Vec<_>>().join(",")
        };
        let rest = before.map_or_else(without, str::to_owned);
        if rest.is_empty() {
            annotations.remove(key);
        } else {
            annotations.insert(key.clone(), json!(rest));
        }
    }
}

fn listed(value: &str) -> Vec<&str> {
    value.split(',').map(str::trim).filter(|port| !port.is_empty()).collect()
}
