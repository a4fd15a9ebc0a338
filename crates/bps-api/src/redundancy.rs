//! The model of redundancy that a user promises for a set, and the rules that refuse what contradicts it.
//!
//! No rule reads `replicas`: the API server checks rules in a scale as well, and no promise refuses a scale. Whether the counts
//! fit the promise is said in the status.

use kube_core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why no set has the model N-way, and what to make instead.
pub const N_WAY_REFUSED: &str = "redundancyModel NWay is not there, because a Pod has one application with one agent, which is \
                                 active or standby as a whole: make a set with redundancyModel TwoN for each service, and let \
                                 their Pods share the nodes";

/// What is there to take a lost primary's place: a redundancy model of the Availability Management Framework (AMF).
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedundancyModel {
    /// No backup runs: a cold one is started, or a new Pod is created.
    None,
    /// Several primaries serve behind one Service, and the others serve on. Hot backups are spares.
    NWayActive,
    /// Hot backups run, and any of them takes the place of any primary. They keep no state of it.
    NPlusM,
    /// Each primary has a standby of its own, which may keep its state. Further backups are spares.
    TwoN,
    /// A Pod is active for one service and standby for another one. Refused.
    NWay,
}

/// A rule about the spec of a set that promises this model.
fn of_model(model: &str, rule: &str) -> Rule {
    Rule::new(format!("!has(self.redundancyModel) || self.redundancyModel != '{model}' || {rule}"))
}

pub(super) fn n_way_is_refused() -> Rule {
    Rule::new("!has(self.redundancyModel) || self.redundancyModel != 'NWay'").message(N_WAY_REFUSED)
}

pub(super) fn none_has_no_hot_backups() -> Rule {
    of_model("None", "self.hotBackups == 0").message(
        "redundancyModel None has no backup that runs: write hotBackups 0 and coldBackups as spares, or write redundancyModel \
         NPlusM",
    )
}

pub(super) fn none_has_no_pairs() -> Rule {
    of_model("None", "!has(self.activeStandby)").message(
        "redundancyModel None has no standbys: leave out activeStandby, or write redundancyModel TwoN",
    )
}

pub(super) fn n_way_active_has_no_pairs() -> Rule {
    of_model("NWayActive", "!has(self.activeStandby)").message(
        "redundancyModel NWayActive has no standbys, because every primary serves: leave out activeStandby, or write \
         redundancyModel TwoN",
    )
}

pub(super) fn n_plus_m_has_hot_backups() -> Rule {
    of_model("NPlusM", "self.hotBackups > 0").message(
        "redundancyModel NPlusM needs hot backups that take the place of any primary: write hotBackups 1 or more, or \
         redundancyModel None",
    )
}

pub(super) fn n_plus_m_has_no_pairs() -> Rule {
    of_model("NPlusM", "!has(self.activeStandby)").message(
        "redundancyModel NPlusM is for primaries without state, because a standby that keeps the state of several primaries \
         (standbyFor) is not there yet: leave out activeStandby, or write redundancyModel TwoN",
    )
}

pub(super) fn two_n_has_pairs() -> Rule {
    of_model("TwoN", "has(self.activeStandby)").message(
        "redundancyModel TwoN needs activeStandby, because each primary has a standby of its own: write activeStandby, or \
         redundancyModel NPlusM if any hot backup may take the place of any primary",
    )
}

pub(super) fn two_n_has_standbys() -> Rule {
    of_model("TwoN", "self.hotBackups > 0").message(
        "redundancyModel TwoN needs a hot backup for each primary as its standby: write at least as many hotBackups as replicas",
    )
}
