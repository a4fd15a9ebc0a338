//! Which nodes have room for further Pods of a set: requests against what can be allocated, node affinity and taints.
//!
//! A small part of the scheduler. Not in it: constraints between Pods, volumes, ports of the host, devices of dynamic allocation,
//! preemption, and other schedulers.

use std::collections::BTreeMap;

use bps_api::{NodeSelectorTerm as SubsetTerm, TopologySubset};
use bps_core::forecast::NodeRoom;
use bps_core::manifests::{GateSettings, PodRequest, pod};
use bps_core::model::{PodName, Role, SubsetName};
use bps_observe::requests::{Amounts, add, amounts, is_over, requests};
use bps_observe::{Observation, node_view};
use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration,
};
use kube::ResourceExt as _;
use serde_json::Value;

use super::scene::slim_node;

/// Taints that only concern a Pod that is made now.
const HARD_EFFECTS: [&str; 2] = ["NoSchedule", "NoExecute"];

/// What Pods of others and of the set request on each node, by its name.
pub(super) fn requested(pods: &[Pod]) -> BTreeMap<String, Amounts> {
    let mut on_nodes: BTreeMap<String, Amounts> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !is_over(pod)) {
        if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
            add(on_nodes.entry(node).or_default(), &requests(pod));
        }
    }
    on_nodes
}

/// The nodes as places for new Pods of the set.
pub(super) fn places(
    observation: &Observation,
    nodes: &[Node],
    on_nodes: &BTreeMap<String, Amounts>,
) -> Vec<NodeRoom> {
    let anywhere = made(observation, None);
    let subsets: Vec<Option<PodSpec>> = observation
        .snapshot
        .desired
        .topology
        .subsets
        .iter()
        .map(|of| made(observation, Some(&of.name)))
        .collect();
    let need = anywhere
        .clone()
        .map(|spec| requests(&Pod { spec: Some(spec), ..Pod::default() }))
        .unwrap_or_default();
    let nothing = Amounts::new();
    let domain_key = observation.set.spec.domain_key();
    let place = |node: &Node| {
        let admits = |spec: &Option<PodSpec>| spec.as_ref().is_some_and(|spec| is_admitted(spec, node));
        let taken = on_nodes.get(&node.name_any()).unwrap_or(&nothing);
        NodeRoom {
            node: node_view(&slim_node(node), domain_key),
            room: room(node, taken, &need),
            admits: admits(&anywhere),
            admits_subsets: subsets.iter().map(admits).collect(),
        }
    };
    nodes.iter().map(place).collect()
}

/// A Pod of the set as it would be made: a hot backup, since all others ask for the same.
fn made(observation: &Observation, subset: Option<&SubsetName>) -> Option<PodSpec> {
    let request = PodRequest {
        set: &observation.set,
        name: &PodName(String::new()),
        role: Role::Hot,
        slot: 0,
        subset,
        now: observation.snapshot.now,
        injection: observation.injection.as_ref(),
    };
    let gate = GateSettings { image: String::new(), public_keys: Vec::new() };
    let mut made = pod(&request, &gate).ok()?;
    serde_json::from_value(made.get_mut("spec").map(Value::take)?).ok()
}

/// How many more Pods with this need a node can take.
fn room(node: &Node, taken: &Amounts, need: &Amounts) -> usize {
    let allocatable = amounts(node.status.as_ref().and_then(|status| status.allocatable.as_ref()));
    let left = |resource: &String| {
        let of = |amounts: &Amounts| amounts.get(resource).copied().unwrap_or_default();
        of(&allocatable).saturating_sub(of(taken))
    };
    let fits = need.iter().filter(|(_, amount)| **amount > 0).map(|(name, amount)| left(name) / amount);
    fits.min().and_then(|fits| usize::try_from(fits).ok()).unwrap_or_default()
}

/// Whether the `nodeSelectorTerm` of a subset selects a node. One without requirements confines no Pod, and so selects
/// each.
pub(super) fn is_in_subset(subset: &TopologySubset, node: &Node) -> bool {
    let is_empty = |term: &SubsetTerm| term.match_expressions.is_empty() && term.match_fields.is_empty();
    let Some(term) = subset.node_selector_term.as_ref().filter(|term| !is_empty(term)) else { return true };
    let known = serde_json::to_value(term).and_then(serde_json::from_value::<NodeSelectorTerm>);
    known.is_ok_and(|term| is_in(&term, node))
}

fn is_admitted(spec: &PodSpec, node: &Node) -> bool {
    is_selected(spec, node) && is_tolerated(spec, node)
}

fn is_selected(spec: &PodSpec, node: &Node) -> bool {
    let is_named = spec.node_name.as_ref().is_none_or(|name| *name == node.name_any());
    let mut labels = spec.node_selector.iter().flatten();
    let has_labels = labels.all(|(key, value)| node.labels().get(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let is_near =
        required.is_none_or(|required| required.node_selector_terms.iter().any(|term| is_in(term, node)));
    is_named && has_labels && is_near
}

/// Whether a node fulfils a term. One without requirements matches no node.
fn is_in(term: &NodeSelectorTerm, node: &Node) -> bool {
    let name = node.name_any();
    let mut expressions = term.match_expressions.iter().flatten();
    let mut fields = term.match_fields.iter().flatten();
    let is_empty = term.match_expressions.iter().chain(&term.match_fields).all(Vec::is_empty);
    !is_empty
        && expressions.all(|it| holds(it, node.labels().get(&it.key)))
        && fields.all(|it| holds(it, (it.key == "metadata.name").then_some(&name)))
}

fn holds(
    NodeSelectorRequirement { key: _, operator, values }: &NodeSelectorRequirement,
    found: Option<&String>,
) -> bool {
    let values: &[String] = values.as_deref().unwrap_or_default();
    let is_listed = found.is_some_and(|found| values.contains(found));
    let number = |text: &String| text.parse::<i64>().ok();
    let compared = || found.and_then(number).zip(values.first().and_then(number));
    match operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compared().is_some_and(|(found, bound)| found > bound),
        "Lt" => compared().is_some_and(|(found, bound)| found < bound),
        _ => false,
    }
}

fn is_tolerated(spec: &PodSpec, node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut hard = taints.filter(|taint| HARD_EFFECTS.contains(&taint.effect.as_str()));
    hard.all(|taint| spec.tolerations.iter().flatten().any(|toleration| tolerates(toleration, taint)))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_any = |text: Option<&String>| text.is_none_or(String::is_empty);
    let is_effect = is_any(toleration.effect.as_ref()) || toleration.effect.as_ref() == Some(&taint.effect);
    let exists = toleration.operator.as_deref() == Some("Exists");
    let is_key = toleration.key.as_ref() == Some(&taint.key) || exists && is_any(toleration.key.as_ref());
    let value = |text: Option<&String>| text.cloned().unwrap_or_default();
    let is_value = exists || value(toleration.value.as_ref()) == value(taint.value.as_ref());
    is_effect && is_key && is_value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(labels: &Value, taints: &Value) -> Node {
        let allocatable = json!({"cpu": "4", "memory": "8Gi", "pods": "10"});
        let labels = json!({"name": "n1", "labels": labels});
        let node =
            json!({"metadata": labels, "spec": {"taints": taints}, "status": {"allocatable": allocatable}});
        serde_json::from_value(node).expect("a node")
    }

    fn spec(spec: Value) -> PodSpec {
        serde_json::from_value(spec).expect("a Pod")
    }

    #[test]
    fn a_node_has_room_until_the_first_resource_is_used_up() {
        let amounts = |cpu: u64, pods: u64| {
            Amounts::from([("cpu".to_owned(), cpu), ("memory".to_owned(), 0), ("pods".to_owned(), pods)])
        };
        let node = node(&json!({}), &json!([]));
        assert_eq!(room(&node, &amounts(1_000, 3_000), &amounts(500, 1_000)), 6);
        assert_eq!(room(&node, &amounts(1_000, 3_000), &amounts(0, 1_000)), 7);
        assert_eq!(room(&node, &amounts(9_000, 3_000), &amounts(500, 1_000)), 0);
        let device = Amounts::from([("example.com/device".to_owned(), 1_000)]);
        assert_eq!(room(&node, &Amounts::new(), &device), 0, "a resource that the node does not have");
    }

    #[test]
    fn a_subset_has_the_nodes_that_its_term_selects() {
        let is_in = |term: &Value| {
            let subset = json!({"name": "east", "nodeSelectorTerm": term});
            let subset = serde_json::from_value(subset).expect("a subset");
            is_in_subset(&subset, &node(&json!({"zone": "east", "size": "8"}), &json!([])))
        };
        let label = |key: &str, operator: &str, values: Value| {
            let requirement = json!({"key": key, "operator": operator, "values": values});
            json!({"matchExpressions": [requirement]})
        };
        let name = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        assert!(is_in(&label("zone", "In", json!(["west", "east"]))));
        assert!(is_in(&label("size", "Gt", json!(["7"]))));
        assert!(is_in(&label("rack", "DoesNotExist", json!([]))));
        assert!(is_in(&name("n1")));
        assert!(!is_in(&label("zone", "NotIn", json!(["east"]))));
        assert!(!is_in(&name("n2")));
        assert!(is_in(&json!({})) && is_in(&Value::Null), "without requirements its Pods may be anywhere");
    }

    #[test]
    fn a_node_admits_what_selects_it_and_tolerates_its_taints() {
        let taints = json!([
            {"key": "spot", "value": "yes", "effect": "NoSchedule"},
            {"key": "slow", "effect": "PreferNoSchedule"},
        ]);
        let node = node(&json!({"zone": "east", "size": "8"}), &taints);
        let tolerant = json!([{"key": "spot", "operator": "Exists"}]);
        let near = |requirement: Value| {
            let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]},
                               {"matchExpressions": [requirement]}]);
            let required =
                json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
            json!({"containers": [], "tolerations": tolerant, "affinity": {"nodeAffinity": required}})
        };
        let requirement = |key: &str, operator: &str, values: Value| json!({"key": key, "operator": operator, "values": values});
        let admitted = [
            json!({"containers": [], "tolerations": tolerant, "nodeSelector": {"zone": "east"}}),
            json!({"containers": [], "tolerations": [{"operator": "Exists"}]}),
            json!({"containers": [], "tolerations": [{"key": "spot", "value": "yes", "effect": "NoSchedule"}]}),
            near(requirement("zone", "In", json!(["west", "east"]))),
            near(requirement("zone", "NotIn", json!(["west"]))),
            near(requirement("size", "Gt", json!(["7"]))),
            near(requirement("size", "Exists", json!([]))),
        ];
        for pod in admitted {
            assert!(is_admitted(&spec(pod.clone()), &node), "{pod}");
        }
        let refused = [
            json!({"containers": []}),
            json!({"containers": [], "tolerations": [{"key": "spot", "value": "no"}]}),
            json!({"containers": [], "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoExecute"}]}),
            json!({"containers": [], "tolerations": tolerant, "nodeSelector": {"zone": "west"}}),
            json!({"containers": [], "tolerations": tolerant, "nodeName": "n2"}),
            near(requirement("zone", "In", json!(["west"]))),
            near(requirement("size", "Lt", json!(["8"]))),
            near(requirement("rack", "Exists", json!([]))),
        ];
        for pod in refused {
            assert!(!is_admitted(&spec(pod.clone()), &node), "{pod}");
        }
    }
}
