//! Every change of role that a Pod of a set can see, as one table: `docs/states.md` is drawn from it.
//!
//! The planner does not read the table; a property test holds every step it emits against it.

use super::{Action, Reason, Role};

/// One arrow of the state diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Role before; `None`: the Pod does not exist yet.
    pub from: Option<Role>,
    /// Role after; `None`: the Pod is deleted.
    pub to: Option<Role>,
    /// When it happens, for people.
    pub when: &'static str,
    /// Every reason that a step of this kind can carry.
    pub reasons: &'static [Reason],
}

/// Why a primary can be missing.
const PRIMARY_MISSING: [Reason; 10] = [
    Reason::ScaledOut,
    Reason::PodDeleted,
    Reason::PodFinished,
    Reason::PodMissing,
    Reason::NodeLost,
    Reason::NodeGone,
    Reason::WakeTimedOut,
    Reason::UnreadyTooLong,
    Reason::TemplateChanged,
    Reason::SubsetFull,
];

/// Why a hot backup can be missing: the same, or because it was promoted.
const HOT_MISSING: [Reason; 12] = [
    Reason::ScaledOut,
    Reason::PodDeleted,
    Reason::PodFinished,
    Reason::PodMissing,
    Reason::NodeLost,
    Reason::NodeGone,
    Reason::WakeTimedOut,
    Reason::UnreadyTooLong,
    Reason::Refilled,
    Reason::TemplateChanged,
    Reason::Rebalanced,
    Reason::SubsetFull,
];

/// Every transition, most important first; at most one row for a pair of roles.
pub const TRANSITIONS: [Transition; 10] = [
    Transition {
        from: Some(Role::Hot),
        to: Some(Role::Primary),
        when: "a primary is missing, not ready, on a cordoned node, outdated or in another subset, or its standby acts",
        reasons: &[
            Reason::ScaledOut,
            Reason::PodDeleted,
            Reason::PodFinished,
            Reason::PodUnready,
            Reason::SlowStart,
            Reason::PodMissing,
            Reason::NodeLost,
            Reason::NodeGone,
            Reason::NodeCordoned,
            Reason::WakeTimedOut,
            Reason::UnreadyTooLong,
            Reason::TemplateChanged,
            Reason::Rebalanced,
            Reason::SubsetFull,
            Reason::TookOver,
        ],
    },
    Transition {
        from: Some(Role::Cold),
        to: Some(Role::Primary),
        when: "a primary is missing or finds no node, and there is no hot backup",
        reasons: &PRIMARY_MISSING,
    },
    Transition {
        from: Some(Role::Cold),
        to: Some(Role::Hot),
        when: "a hot backup is missing",
        reasons: &HOT_MISSING,
    },
    Transition {
        from: Some(Role::Primary),
        to: Some(Role::Hot),
        when: "a successor serves in its place, or scale-in demotes it",
        reasons: &[
            Reason::PodUnready,
            Reason::SlowStart,
            Reason::NodeCordoned,
            Reason::NodeLost,
            Reason::ScaledIn,
            Reason::Rebalanced,
            Reason::SubsetFull,
            Reason::TookOver,
        ],
    },
    Transition {
        from: None,
        to: Some(Role::Primary),
        when: "a primary is missing and there is no backup",
        reasons: &PRIMARY_MISSING,
    },
    Transition {
        from: None,
        to: Some(Role::Hot),
        when: "a hot backup is missing and there is no cold one",
        reasons: &HOT_MISSING,
    },
    Transition {
        from: None,
        to: Some(Role::Cold),
        when: "a cold backup is missing",
        reasons: &[
            Reason::ScaledOut,
            Reason::PodDeleted,
            Reason::PodFinished,
            Reason::PodMissing,
            Reason::NodeLost,
            Reason::NodeGone,
            Reason::GateKeyRetired,
            Reason::GateFails,
            Reason::UnreadyTooLong,
            Reason::Refilled,
            Reason::TemplateChanged,
            Reason::Rebalanced,
            Reason::SubsetFull,
        ],
    },
    Transition {
        from: Some(Role::Primary),
        to: None,
        when: "surplus, finished, outdated, in a wrong subset, or given up by a deadline",
        reasons: &[
            Reason::ScaledIn,
            Reason::PodUnready,
            Reason::NodeCordoned,
            Reason::PodFinished,
            Reason::NodeGone,
            Reason::WakeTimedOut,
            Reason::UnreadyTooLong,
            Reason::TemplateChanged,
            Reason::Rebalanced,
        ],
    },
    Transition {
        from: Some(Role::Hot),
        to: None,
        when: "surplus, finished, outdated, in a wrong subset, or given up by a deadline",
        reasons: &[
            Reason::ScaledIn,
            Reason::PodFinished,
            Reason::NodeGone,
            Reason::WakeTimedOut,
            Reason::UnreadyTooLong,
            Reason::TemplateChanged,
            Reason::Rebalanced,
            Reason::SubsetFull,
        ],
    },
    Transition {
        from: Some(Role::Cold),
        to: None,
        when: "surplus, finished, outdated, in a wrong subset, started unasked, or its gate cannot be opened",
        reasons: &[
            Reason::ScaledIn,
            Reason::PodFinished,
            Reason::NodeGone,
            Reason::UnreadyTooLong,
            Reason::GateKeyRetired,
            Reason::GateFails,
            Reason::StartedUnasked,
            Reason::TemplateChanged,
            Reason::Rebalanced,
            Reason::SubsetFull,
        ],
    },
];

/// The arrow that a step follows; `None` if it changes no role.
///
/// The result has no row of its own: whether it is allowed is for the caller to look up in [`TRANSITIONS`].
pub const fn transition(action: &Action) -> Option<(Option<Role>, Option<Role>)> {
    match action {
        Action::Create { role, .. } => Some((None, Some(*role))),
        Action::Convert { from, to, .. } => Some((Some(*from), Some(*to))),
        Action::Delete { role, .. } => Some((Some(*role), None)),
        Action::Wake { .. }
        | Action::Adopt { .. }
        | Action::Relabel { .. }
        | Action::PublishService
        | Action::PublishGroup
        | Action::PublishBudget
        | Action::Expose { .. }
        | Action::ClearAddresses
        | Action::Retire { .. } => None,
    }
}
