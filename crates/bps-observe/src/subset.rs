//! Finds what the API server would refuse in the Pods of a subset, for a set that bypassed the rules of the CRD.

use bps_api::subset_rules::{
    INTEGER_NEEDED, NO_EXECUTE_NEEDED, NODE_NAME_NEEDED, TOLERATED_KEY_NEEDED,
    TOLERATED_VALUE_WITHOUT_EFFECT, VALUES_NEEDED, VALUES_WITHOUT_EFFECT,
};
use bps_api::{NodeOperator, NodeRequirement, SubsetToleration, TopologySubset};

/// Key of the only field of nodes that a requirement may be about.
const NODE_NAME: &str = "metadata.name";

/// Returns what is wrong with the nodes or the tolerations of a subset, and what to write instead.
pub(super) fn refusal(subset: &TopologySubset) -> Option<&'static str> {
    let requirements = |of: fn(&bps_api::NodeSelectorTerm) -> &Vec<NodeRequirement>| {
        subset.node_selector_term.iter().flat_map(of)
    };
    let labels = requirements(|term| &term.match_expressions).find_map(refused_label);
    let fields = || requirements(|term| &term.match_fields).find_map(refused_field);
    let tolerations = || subset.tolerations.iter().find_map(refused_toleration);
    labels.or_else(fields).or_else(tolerations)
}

fn refused_label(requirement: &NodeRequirement) -> Option<&'static str> {
    let values = &requirement.values;
    let (is_right, told) = match requirement.operator {
        NodeOperator::In | NodeOperator::NotIn => (!values.is_empty(), VALUES_NEEDED),
        NodeOperator::Exists | NodeOperator::DoesNotExist => (values.is_empty(), VALUES_WITHOUT_EFFECT),
        NodeOperator::Gt | NodeOperator::Lt => {
            (matches!(&values[..], [value] if value.parse::<i64>().is_ok()), INTEGER_NEEDED)
        }
    };
    (!is_right).then_some(told)
}

fn refused_field(requirement: &NodeRequirement) -> Option<&'static str> {
    let is_comparable = match requirement.operator {
        NodeOperator::In | NodeOperator::NotIn => true,
        NodeOperator::Exists | NodeOperator::DoesNotExist | NodeOperator::Gt | NodeOperator::Lt => false,
    };
    let is_right = is_comparable && requirement.key == NODE_NAME && requirement.values.len() == 1;
    (!is_right).then_some(NODE_NAME_NEEDED)
}

fn refused_toleration(toleration: &SubsetToleration) -> Option<&'static str> {
    let has = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let exists = toleration.operator.as_deref() == Some("Exists");
    if exists && has(&toleration.value) {
        Some(TOLERATED_VALUE_WITHOUT_EFFECT)
    } else if toleration.toleration_seconds.is_some() && toleration.effect.as_deref() != Some("NoExecute") {
        Some(NO_EXECUTE_NEEDED)
    } else if !exists && !has(&toleration.key) {
        Some(TOLERATED_KEY_NEEDED)
    } else {
        None
    }
}
