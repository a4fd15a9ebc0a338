//! Asks the scheduler to spread the Pods of a set, and confines each to the subset of the nodes that it is made for.

use bps_api::{CandidateChoice, NodeRequirement, NodeSelectorTerm, TierSpread, TopologySubset, keys};
use serde_json::{Map, Value, json};

use super::PodRequest;
use crate::model::Role;

/// The well-known label of nodes that names each.
const NODE_LABEL: &str = "kubernetes.io/hostname";

/// Whether a new Pod keeps away from Pods of all roles, and not of its own alone. The standby of a pair always does: its active has another role.
fn avoids_other_tiers(request: &PodRequest<'_>) -> bool {
    if request.injection.is_some() {
        return true;
    }
    let strategy = &request.set.spec.strategy;
    let choice = match request.role {
        Role::Primary => strategy.unallocated_to_replicas,
        Role::Hot => strategy.unallocated_to_hotbackup,
        Role::Cold => strategy.unallocated_to_coldbackup,
    };
    matches!(choice.unwrap_or(strategy.init), CandidateChoice::Best | CandidateChoice::Spread)
}

/// Asks the scheduler to spread the Pods of the set, or of one tier of it, unless the template says itself how Pods are placed.
///
/// Not both: of one topology key, a Pod may have one constraint that is soft (`docs/kubernetes.md`).
///
/// This does not depend on the strategy: kube-scheduler 1.36.4 puts 40 small Pods of a kind that it does not know onto 2 of 20 empty nodes, because it
/// takes the first of several nodes with the same score (`docs/kubernetes.md`).
pub(super) fn spread(spec: &mut Map<String, Value>, request: &PodRequest<'_>) {
    let affinity = spec.get("affinity");
    let has_affinity = |field: &str| affinity.and_then(|affinity| affinity.get(field)).is_some();
    let is_placed = ["topologySpreadConstraints", "nodeName"].iter().any(|field| spec.contains_key(*field))
        || ["podAffinity", "podAntiAffinity"].into_iter().any(has_affinity);
    if is_placed {
        return;
    }

    let of_set = json!({(keys::LABEL_SET): request.set.metadata.name});
    let mut of_tier = of_set.clone();
    of_tier[keys::LABEL_ROLE] = json!(request.role.as_str());
    let soft = |key: &str| {
        json!({
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": if avoids_other_tiers(request) { &of_set } else { &of_tier }},
        })
    };
    let key = request.set.spec.domain_key();
    let tiers = request.set.spec.topology.as_ref().map(|topology| topology.tiers).unwrap_or_default();
    let mut constraints = match tiers {
        TierSpread::Required | TierSpread::Preferred if key != NODE_LABEL => {
            vec![soft(key), soft(NODE_LABEL)]
        }
        TierSpread::Required | TierSpread::Preferred | TierSpread::Ignore => vec![soft(NODE_LABEL)],
    };
    if tiers == TierSpread::Required {
        constraints.push(json!({
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            // A domain whose nodes are all lost or cordoned must not have every new Pod wait for it.
            "nodeTaintsPolicy": "Honor",
            "labelSelector": {"matchLabels": of_tier},
        }));
    }
    spec.insert("topologySpreadConstraints".to_owned(), Value::Array(constraints));
}

/// Confines the Pod to the nodes of its subset, besides what the template asks of nodes, and lets it tolerate their taints.
pub(super) fn confine(spec: &mut Map<String, Value>, request: &PodRequest<'_>) {
    let Some(subset) = subset(request) else { return };
    if let Some(term) = &subset.node_selector_term {
        require(spec, term);
    }
    if !subset.tolerations.is_empty() {
        let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
        if let Some(tolerations) = tolerations.as_array_mut() {
            tolerations.extend(subset.tolerations.iter().map(|toleration| json!(toleration)));
        }
    }
}

fn subset<'a>(request: &PodRequest<'a>) -> Option<&'a TopologySubset> {
    let name = &request.subset?.0;
    request.set.spec.topology.as_ref()?.subsets.iter().find(|subset| subset.name == *name)
}

/// Adds the requirements to every term of the node affinity: terms are alternatives, and each must be in the subset.
fn require(spec: &mut Map<String, Value>, term: &NodeSelectorTerm) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    // A term without requirements matches no node for Kubernetes, and says nothing here.
    if term.match_expressions.is_empty() && term.match_fields.is_empty() {
        return;
    }

    let affinity = spec.entry("affinity").or_insert_with(|| json!({}));
    let terms = affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"].as_array().cloned();
    let mut terms = terms.unwrap_or_else(|| vec![json!({})]);
    for own in &mut terms {
        add(own, "matchExpressions", &term.match_expressions);
        add(own, "matchFields", &term.match_fields);
    }
    affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] = Value::Array(terms);
}

fn add(term: &mut Value, field: &str, requirements: &[NodeRequirement]) {
    if requirements.is_empty() {
        return;
    }
    let mut all = term[field].as_array().cloned().unwrap_or_default();
    all.extend(requirements.iter().map(|requirement| json!(requirement)));
    term[field] = Value::Array(all);
}
