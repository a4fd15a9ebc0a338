//! The scenarios of the real operator: a table of names, scenes and scripts.

use std::{fmt::Write as _, time::Duration};

use bps_runtime::metrics::Metrics;
use serde_json::Value;

use crate::simulation::{
    fault::{Fault, Plan},
    kinds::BACKUP_POD_SETS,
    operator::{self, NAMESPACE, OperatorReplica},
    operator_oracle, operator_steps as steps,
    oracle::Invariant,
    run::{Operator, Scenario, Start, shape},
    world::World,
};

/// Two rounds of this are longer than every backoff and every delay of the operator: refused steps are tried again
/// within 60 s, and doubt about a watch ends after as long.
const PATIENCE: Duration = Duration::from_secs(35);

/// Two rounds of this are longer than a kube client takes to notice a watch that is silent: 290 s and 5 s.
const STALL_PATIENCE: Duration = Duration::from_secs(155);

/// Two rounds of this are longer than the period after which the operator lists everything again: 600 s.
const DROP_PATIENCE: Duration = Duration::from_secs(310);

/// A step of a script.
pub type Step = fn(&mut World);

/// A scenario.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub build: fn(&mut World),
    pub script: &'static [Step],
    /// Whether the others also move between the operator's writes.
    pub is_interleaved: bool,
}

/// Every scenario.
pub const CASES: &[Case] = &[
    case("create", steps::two_of_each, &[]),
    case("grow", steps::two_of_each, &[steps::scale_to_three]),
    case("shrink", steps::two_of_each, &[steps::scale_to_one]),
    case("none-and-back", steps::two_of_each, &[steps::scale_to_none, steps::scale_to_two]),
    case("delete-primary", steps::two_of_each, &[steps::delete_primary]),
    case("crash-primary", steps::two_of_each, &[steps::crash_primary, steps::recover]),
    case("crash-alone", steps::one_primary, &[steps::crash_primary, steps::recover]),
    case("crash-last", steps::one_of_each, &[steps::crash_primary, steps::recover]),
    case("node-lost", steps::two_of_each, &[steps::lose_node, steps::regain_node]),
    case("node-deleted", steps::two_of_each, &[steps::delete_node, steps::collect_pods_without_node]),
    case("storm", steps::two_of_each, &[steps::lose_all_nodes_but_one, steps::regain_node]),
    case("cordon", steps::one_of_each, &[steps::cordon_node, steps::uncordon]),
    case("evicted", steps::two_of_each, &[steps::evict_primary]),
    case("rollout", steps::two_of_each, &[steps::new_image]),
    case(
        "history",
        steps::one_primary_and_one_former_template,
        &[steps::new_image, steps::newer_image, steps::old_image],
    ),
    case("rollout-without-backups", steps::only_primaries, &[steps::new_image]),
    case("revert", steps::two_of_each, &[steps::broken_image, steps::old_image]),
    case("revert-without-backups", steps::only_primaries, &[steps::broken_image, steps::old_image]),
    case("pause", steps::one_of_each, &[steps::pause, steps::delete_hot, steps::resume]),
    case("pause-and-loss", steps::two_of_each, &[steps::pause, steps::delete_primary, steps::resume]),
    case("exposure", steps::one_of_each, &[steps::delete_service, steps::delete_slice, steps::change_ports]),
    case("former-service", steps::one_of_each, &[steps::rename_service, steps::remove_service]),
    case(
        "relabel",
        steps::one_of_each,
        &[steps::demote_by_hand, steps::promote_by_hand, steps::promote_cold_by_hand],
    ),
    case("name-taken", steps::two_of_each, &[steps::scale_to_none, steps::take_name]),
    case("quota", steps::under_quota, &[steps::lift_quota]),
    case("label-policy", steps::under_label_policy, &[]),
    case("orphans", steps::one_of_each, &[steps::orphan_pods]),
    case(
        "same-name",
        steps::one_of_each,
        &[steps::delete_set_slowly, steps::create_set_again, steps::unstick],
    ),
    case("gate-refuses", steps::one_and_cold, &[steps::lose_primary_with_refusing_gate]),
    case("gate-silent", steps::one_and_cold, &[steps::lose_primary_with_silent_gate]),
    case("gate-deaf", steps::one_and_cold, &[steps::lose_primary_with_deaf_gate]),
    case("wake", steps::one_and_cold, &[steps::grow_while_cold]),
    case(
        "unknown-value",
        steps::two_of_each,
        &[steps::say_what_is_unknown, steps::delete_primary, steps::say_what_is_known],
    ),
    case("poison", steps::poisoned, &[steps::delete_primary]),
];

const fn case(name: &'static str, build: fn(&mut World), script: &'static [Step]) -> Case {
    Case { name, build, script, is_interleaved: false }
}

impl Case {
    /// The same with the first steps of its script only.
    pub fn cut(self, steps: usize) -> Self {
        Self { script: &self.script[..steps], ..self }
    }
}

impl Scenario for Case {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn build(&self, world: &mut World) {
        (self.build)(world);
    }

    fn script(&self) -> Vec<Step> {
        self.script.to_vec()
    }

    fn start(&self, start: Start) -> Operator {
        operator::task(start, operator::settings(NAMESPACE, "bps-operator-0"), Metrics::new("simulated"))
    }

    fn oracle(&self) -> Vec<Box<dyn Invariant>> {
        operator_oracle::all()
    }

    fn fingerprint(&self, world: &World) -> String {
        fingerprint(world)
    }

    fn forgives_refusals(&self) -> bool {
        matches!(self.name, "quota" | "poison")
    }

    fn patience(&self, plan: &Plan) -> Duration {
        patience(plan)
    }

    fn is_interleaved(&self) -> bool {
        self.is_interleaved
    }
}

fn patience(plan: &Plan) -> Duration {
    let has = |wanted: Fault| plan.0.iter().any(|(_, fault)| *fault == wanted);
    if has(Fault::Drop) {
        DROP_PATIENCE
    } else if has(Fault::Stall) {
        STALL_PATIENCE
    } else {
        PATIENCE
    }
}

/// Two operators at once.
#[derive(Clone, Copy)]
pub struct Duo {
    pub name: &'static str,
    /// Namespaces of the two: of one, so that they elect a leader; of two, so that both lead for ever.
    pub namespaces: [&'static str; 2],
    pub script: &'static [Step],
}

impl Scenario for Duo {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn build(&self, world: &mut World) {
        steps::empty(world);
        // A second namespace is nothing that the Role allows.
        world.admission.rules = None;
        // Without cold backups: two operators with different keys cannot agree on whose gate is whose.
        steps::add_set(world, "web", &steps::spec((2, 2, 0), "web"));
    }

    fn script(&self) -> Vec<Step> {
        self.script.to_vec()
    }

    fn start(&self, start: Start) -> Operator {
        let [one, other] = self.namespaces;
        let replica = |(namespace, name)| OperatorReplica {
            begin: start.clone(),
            settings: operator::settings(namespace, name),
        };
        operator::replicas([(one, "one"), (other, "other")].map(replica).into())
    }

    fn oracle(&self) -> Vec<Box<dyn Invariant>> {
        // Each of the two may create what the other has created: the name makes it one Pod.
        let mut all = operator_oracle::all();
        all.retain(|invariant| invariant.name() != "ONE-CREATE");
        all
    }

    fn fingerprint(&self, world: &World) -> String {
        fingerprint(world)
    }

    fn patience(&self, plan: &Plan) -> Duration {
        patience(plan)
    }

    fn is_interleaved(&self) -> bool {
        true
    }
}

/// The shape of the objects, and what the sets say of themselves.
pub fn fingerprint(world: &World) -> String {
    let mut text = shape(world);
    for (key, set) in world.objects(&BACKUP_POD_SETS, "") {
        let status = &set["status"];
        let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        let shown = |one: &Value| format!("{}={}", one["type"], one["status"]);
        let conditions: Vec<String> = conditions.iter().map(shown).collect();
        write!(text, "\n{key} {} {conditions:?}", status["summary"]).expect("a String takes everything");
    }
    text
}
