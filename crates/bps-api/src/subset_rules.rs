//! The rules for how a subset chooses its nodes: what the API server would refuse in the Pods of the subset.
//!
//! Each message says what to write; the operator gives the same one for a set that bypassed the rules.

use kube_core::Rule;

/// What is wrong with `In` and `NotIn` without a value.
pub const VALUES_NEEDED: &str =
    "operators In and NotIn compare with values: write at least one, or operator Exists or DoesNotExist";

/// What is wrong with `Exists` and `DoesNotExist` with values.
pub const VALUES_WITHOUT_EFFECT: &str =
    "operators Exists and DoesNotExist take no values: leave values out, or write operator In or NotIn";

/// What is wrong with `Gt` and `Lt` without exactly one integer.
pub const INTEGER_NEEDED: &str =
    "operators Gt and Lt compare with one integer: write it as the only value, such as values: [\"4\"]";

/// What is wrong with a requirement on a field of nodes.
pub const NODE_NAME_NEEDED: &str = "matchFields takes key metadata.name, operator In or NotIn, and one value: write requirements on \
                                    labels into matchExpressions";

/// What is wrong with a toleration that has the operator `Exists` and a value.
pub const TOLERATED_VALUE_WITHOUT_EFFECT: &str =
    "a toleration with operator Exists takes no value: leave value out, or write operator Equal";

/// What is wrong with a toleration that has a time and another effect than `NoExecute`.
pub const NO_EXECUTE_NEEDED: &str = "tolerationSeconds is the time that a Pod stays on a node with a taint of effect NoExecute: write \
                                     effect NoExecute, or leave tolerationSeconds out";

/// What is wrong with a toleration that has neither a key nor the operator `Exists`.
pub const TOLERATED_KEY_NEEDED: &str =
    "a toleration without a key tolerates every taint: write operator Exists, or the key of a taint";

pub(super) fn some_operators_need_values() -> Rule {
    Rule::new("!(self.operator in ['In', 'NotIn']) || has(self.values) && self.values.size() > 0")
        .message(VALUES_NEEDED)
}

pub(super) fn some_operators_take_no_values() -> Rule {
    Rule::new(
        "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || self.values.size() == 0",
    )
    .message(VALUES_WITHOUT_EFFECT)
}

/// At most 18 digits: every such number is one of 64 bits.
pub(super) fn numbers_are_compared_with_an_integer() -> Rule {
    Rule::new(
        "!(self.operator in ['Gt', 'Lt']) || has(self.values) && self.values.size() == 1 && \
         self.values[0].matches('^[-+]?[0-9]{1,18}$')",
    )
    .message(INTEGER_NEEDED)
}

pub(super) fn fields_are_names_of_nodes() -> Rule {
    Rule::new(
        "self.all(field, field.key == 'metadata.name' && field.operator in ['In', 'NotIn'] && has(field.values) && \
         field.values.size() == 1)",
    )
    .message(NODE_NAME_NEEDED)
}

pub(super) fn a_tolerated_key_has_any_value() -> Rule {
    Rule::new("!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''")
        .message(TOLERATED_VALUE_WITHOUT_EFFECT)
}

pub(super) fn a_time_is_one_of_no_execute() -> Rule {
    Rule::new("!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'")
        .message(NO_EXECUTE_NEEDED)
}

pub(super) fn every_taint_is_tolerated_by_exists() -> Rule {
    Rule::new("has(self.key) && self.key != '' || has(self.operator) && self.operator == 'Exists'")
        .message(TOLERATED_KEY_NEEDED)
}
