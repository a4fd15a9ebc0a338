//! How the agent learns who its Pod is, whatever the template says of it, and how long that may take to end.

use bps_api::keys;
use serde_json::{Value, json};

use super::{Injection, append};

/// What an agent has to know of its own Pod.
struct Fact {
    /// The variable that it reads.
    variable: &'static str,
    /// Our own name for it, where the template uses the other one for something else.
    own_variable: &'static str,
    /// The argument that comes before the variable.
    argument: &'static str,
    /// Where a Pod has it.
    field: &'static str,
}

const FACTS: [Fact; 4] = [
    Fact {
        variable: keys::ENV_AGENT_POD_UID,
        own_variable: keys::ENV_OWN_POD_UID,
        argument: "--pod-uid",
        field: "metadata.uid",
    },
    Fact {
        variable: keys::ENV_POD_NAME,
        own_variable: keys::ENV_OWN_POD_NAME,
        argument: "--pod",
        field: "metadata.name",
    },
    Fact {
        variable: keys::ENV_POD_NAMESPACE,
        own_variable: keys::ENV_OWN_POD_NAMESPACE,
        argument: "--namespace",
        field: "metadata.namespace",
    },
    Fact {
        variable: keys::ENV_POD_IP,
        own_variable: keys::ENV_OWN_POD_IP,
        argument: "--pod-ip",
        field: "status.podIP",
    },
];

/// The agent's arguments for what it must not read from a variable, because the template has another value there. The
/// kubelet puts the values in.
///
/// `given` are arguments that somebody wrote: they count.
pub(super) fn identity_arguments(container: &Value, given: &[String]) -> Vec<String> {
    let is_given = |fact: &&Fact| {
        given.iter().any(|argument| argument.split('=').next().is_some_and(|name| name == fact.argument))
    };
    let other = FACTS.iter().filter(|fact| has_other_value(container, fact) && !is_given(fact));
    other.map(|fact| format!("{}=$({})", fact.argument, fact.own_variable)).collect()
}

/// Returns the names of the variables that were not there before.
///
/// `grace` is the Pod's own grace period in seconds, if it has one.
pub(super) fn add_environment(
    container: &mut Value,
    injection: &Injection,
    grace: Option<u64>,
) -> Vec<&'static str> {
    let variable = |fact: &Fact| {
        let name = if has_other_value(container, fact) { fact.own_variable } else { fact.variable };
        (name, json!({"valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": fact.field}}}))
    };
    let mut variables: Vec<(&str, Value)> = FACTS.iter().map(variable).collect();
    variables.push((keys::ENV_HA_AGENT, json!({"value": injection.source.program()})));
    // A variable, which an agent of an earlier release in the application's image ignores.
    let seconds = seconds_to_end(container, grace);
    if seconds != keys::END_WITHIN_SECONDS {
        variables.push((keys::ENV_HA_END_WITHIN_SECONDS, json!({"value": seconds.to_string()})));
    }
    let mut added = Vec::new();
    for (name, mut variable) in variables {
        if entries(container, name).next().is_none() {
            variable["name"] = json!(name);
            append(container, "env", variable);
            added.push(name);
        }
    }
    added
}

/// Time that the Pod may take to end once its signal has come. Unit: seconds.
///
/// `grace` is the Pod's own grace period in seconds, if it has one.
pub(super) fn seconds_to_end(container: &Value, grace: Option<u64>) -> u64 {
    let sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap_or_default();
    grace.unwrap_or(keys::END_WITHIN_SECONDS).saturating_sub(sleep)
}

/// Whether the template gives the variable, and not the field that the agent means.
fn has_other_value(container: &Value, fact: &Fact) -> bool {
    entries(container, fact.variable).any(|entry| {
        let field = &entry["valueFrom"]["fieldRef"];
        let is_version_1 = field.get("apiVersion").is_none_or(|version| version == "v1");
        !(is_version_1 && field["fieldPath"] == fact.field)
    })
}

fn entries<'a>(container: &'a Value, name: &'a str) -> impl Iterator<Item = &'a Value> {
    container["env"].as_array().into_iter().flatten().filter(move |entry| entry["name"] == name)
}
