//! The scenarios of the real operator: a table of names, scenes and scripts.

use std::{fmt::Write as _, time::Duration};

use backuppodset::runtime::metrics::Metrics;
use serde_json::Value;

use crate::{
    fault::{Fault, Plan},
    kinds::BACKUP_POD_SETS,
    operator::{self, NAMESPACE},
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
    Case { name: "create", build: steps::two_of_each, script: &[], is_interleaved: false },
    Case { name: "grow", build: steps::two_of_each, script: &[steps::scale_to_three], is_interleaved: false },
    Case { name: "shrink", build: steps::two_of_each, script: &[steps::scale_to_one], is_interleaved: false },
    Case {
        name: "none-and-back",
        build: steps::two_of_each,
        script: &[steps::scale_to_none, steps::scale_to_two],
        is_interleaved: false,
    },
    Case {
        name: "delete-primary",
        build: steps::two_of_each,
        script: &[steps::delete_primary],
        is_interleaved: false,
    },
    Case {
        name: "crash-primary",
        build: steps::two_of_each,
        script: &[steps::crash_primary, steps::recover],
        is_interleaved: false,
    },
    Case {
        name: "crash-alone",
        build: steps::one_primary,
        script: &[steps::crash_primary, steps::recover],
        is_interleaved: false,
    },
    Case {
        name: "crash-last",
        build: steps::one_of_each,
        script: &[steps::crash_primary, steps::recover],
        is_interleaved: false,
    },
    Case {
        name: "node-lost",
        build: steps::two_of_each,
        script: &[steps::lose_node, steps::regain_node],
        is_interleaved: false,
    },
    Case {
        name: "node-deleted",
        build: steps::two_of_each,
        script: &[steps::delete_node, steps::collect_pods_without_node],
        is_interleaved: false,
    },
    Case {
        name: "storm",
        build: steps::two_of_each,
        script: &[steps::lose_all_nodes_but_one, steps::regain_node],
        is_interleaved: false,
    },
    Case {
        name: "cordon",
        build: steps::one_of_each,
        script: &[steps::cordon_node, steps::uncordon],
        is_interleaved: false,
    },
    Case {
        name: "evicted",
        build: steps::two_of_each,
        script: &[steps::evict_primary],
        is_interleaved: false,
    },
    Case { name: "rollout", build: steps::two_of_each, script: &[steps::new_image], is_interleaved: false },
    Case {
        name: "history",
        build: steps::one_primary_and_one_former_template,
        script: &[steps::new_image, steps::newer_image, steps::old_image],
        is_interleaved: false,
    },
    Case {
        name: "rollout-without-backups",
        build: steps::only_primaries,
        script: &[steps::new_image],
        is_interleaved: false,
    },
    Case {
        name: "revert",
        build: steps::two_of_each,
        script: &[steps::broken_image, steps::old_image],
        is_interleaved: false,
    },
    Case {
        name: "revert-without-backups",
        build: steps::only_primaries,
        script: &[steps::broken_image, steps::old_image],
        is_interleaved: false,
    },
    Case {
        name: "pause",
        build: steps::one_of_each,
        script: &[steps::pause, steps::delete_hot, steps::resume],
        is_interleaved: false,
    },
    Case {
        name: "exposure",
        build: steps::one_of_each,
        script: &[steps::delete_service, steps::delete_slice, steps::change_ports],
        is_interleaved: false,
    },
    Case {
        name: "former-service",
        build: steps::one_of_each,
        script: &[steps::rename_service, steps::remove_service],
        is_interleaved: false,
    },
    Case {
        name: "relabel",
        build: steps::one_of_each,
        script: &[steps::demote_by_hand, steps::promote_by_hand, steps::promote_cold_by_hand],
        is_interleaved: false,
    },
    Case {
        name: "name-taken",
        build: steps::two_of_each,
        script: &[steps::scale_to_none, steps::take_name],
        is_interleaved: false,
    },
    Case { name: "quota", build: steps::under_quota, script: &[steps::lift_quota], is_interleaved: false },
    Case { name: "orphans", build: steps::one_of_each, script: &[steps::orphan_pods], is_interleaved: false },
    Case {
        name: "same-name",
        build: steps::one_of_each,
        script: &[steps::delete_set_slowly, steps::create_set_again, steps::unstick],
        is_interleaved: false,
    },
    Case {
        name: "gate-refuses",
        build: steps::one_and_cold,
        script: &[steps::lose_primary_with_refusing_gate],
        is_interleaved: false,
    },
    Case {
        name: "gate-silent",
        build: steps::one_and_cold,
        script: &[steps::lose_primary_with_silent_gate],
        is_interleaved: false,
    },
    Case {
        name: "gate-deaf",
        build: steps::one_and_cold,
        script: &[steps::lose_primary_with_deaf_gate],
        is_interleaved: false,
    },
    Case {
        name: "wake",
        build: steps::one_and_cold,
        script: &[steps::grow_while_cold],
        is_interleaved: false,
    },
    Case { name: "poison", build: steps::poisoned, script: &[steps::delete_primary], is_interleaved: false },
];

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
        operator::replicas(&start, vec![operator::settings(one, "one"), operator::settings(other, "other")])
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
