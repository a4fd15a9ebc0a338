//! The model of redundancy that a user promises for a set, and the rules that refuse what contradicts it.
//!
//! The API server checks rules in a scale as well, and no promise refuses a scale. So `replicas` alone breaks no rule: the status
//! reports counts that do not fit the promise.

use kube_core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reason for which no set has the model N-way, with what to write.
pub const N_WAY_REFUSED: &str = "redundancyModel NWay is not supported: a Pod has one application with one agent, which is active or \
                                 standby as a whole. Write redundancyModel TwoN in one set for each service, and let their Pods share \
                                 the nodes";

/// Ends a message about activeStandby: another rule refuses the edit that it asks for.
macro_rules! in_a_new_set {
    ($message:literal) => {
        concat!($message, ". A set keeps or lacks activeStandby as it was created: write a new set for it")
    };
}

/// Pods that take a lost primary's place: a redundancy model of the Availability Management Framework (AMF).
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedundancyModel {
    /// No backup runs: a cold one is started, or a new Pod is created.
    None,
    /// Several primaries serve behind one Service, and the others serve on. Hot backups are spares.
    NWayActive,
    /// Hot backups run, and any of them takes the place of any primary. They keep no state of it; with `activeStandby.standbyFor` each
    /// stands by for several, and may keep the state of each.
    NPlusM,
    /// Each primary has a standby of its own, which may keep its state. Further backups are spares.
    TwoN,
    /// A Pod is active for one service and standby for another one. Refused.
    NWay,
}

/// A rule about the spec of a set that promises this model.
fn of_model(model: RedundancyModel, rule: &str) -> Rule {
    // Names in the spec are those of the variants.
    Rule::new(format!("!has(self.redundancyModel) || self.redundancyModel != '{model:?}' || {rule}"))
}

pub(super) fn n_way_is_refused() -> Rule {
    Rule::new("!has(self.redundancyModel) || self.redundancyModel != 'NWay'").message(N_WAY_REFUSED)
}

pub(super) fn none_has_no_hot_backups() -> Rule {
    of_model(RedundancyModel::None, "self.hotBackups == 0").message(
        "redundancyModel None has no backup that runs: write hotBackups 0 and coldBackups as spares, or write redundancyModel \
         NPlusM",
    )
}

pub(super) fn none_has_no_pairs() -> Rule {
    of_model(RedundancyModel::None, "!has(self.activeStandby)").message(in_a_new_set!(
        "redundancyModel None has no standbys: leave out activeStandby, or write redundancyModel TwoN"
    ))
}

pub(super) fn n_way_active_has_no_pairs() -> Rule {
    of_model(RedundancyModel::NWayActive, "!has(self.activeStandby)").message(
        in_a_new_set!(
            "redundancyModel NWayActive has no standbys, because every primary serves: leave out activeStandby, or write \
             redundancyModel TwoN"
        ),
    )
}

pub(super) fn n_plus_m_has_hot_backups() -> Rule {
    of_model(RedundancyModel::NPlusM, "self.hotBackups > 0").message(
        "redundancyModel NPlusM needs hot backups that take the place of any primary: write hotBackups 1 or more, or \
         redundancyModel None",
    )
}

pub(super) fn n_plus_m_shares_standbys() -> Rule {
    of_model(RedundancyModel::NPlusM, "!has(self.activeStandby) || has(self.activeStandby.standbyFor)").message(
        in_a_new_set!(
            "redundancyModel NPlusM has backups for several primaries: write activeStandby.standbyFor, leave out activeStandby, or \
             write redundancyModel TwoN"
        ),
    )
}

pub(super) fn two_n_has_pairs() -> Rule {
    of_model(RedundancyModel::TwoN, "has(self.activeStandby)").message(
        in_a_new_set!(
            "redundancyModel TwoN needs activeStandby, because each primary has a standby of its own: write activeStandby, or \
             redundancyModel NPlusM if any hot backup may take the place of any primary"
        ),
    )
}

pub(super) fn two_n_has_standbys() -> Rule {
    of_model(RedundancyModel::TwoN, "self.hotBackups > 0").message(
        "redundancyModel TwoN needs a hot backup for each primary as its standby: write at least as many hotBackups as replicas",
    )
}

pub(super) fn two_n_shares_no_standbys() -> Rule {
    let rule = "!has(self.activeStandby) || !has(self.activeStandby.standbyFor)";
    of_model(RedundancyModel::TwoN, rule).message(in_a_new_set!(
        "redundancyModel TwoN has a standby for each primary: leave out activeStandby.standbyFor, or write redundancyModel NPlusM"
    ))
}

/// A scale changes `replicas` alone and an edit on the way to the promise raises `hotBackups`, so that neither breaks it.
pub(super) fn two_n_keeps_standbys() -> Rule {
    of_model(
        RedundancyModel::TwoN,
        "self.hotBackups >= oldSelf.hotBackups || self.hotBackups >= self.replicas",
    )
    .message(
        "redundancyModel TwoN needs a hot backup for each primary as its standby: keep at least as many hotBackups as replicas, \
         or leave out redundancyModel",
    )
}
