//! Keeps the set's PodDisruptionBudget as its counts want it.

use crate::model::{Action, ExposedKind, Hold, ObjectState, Reason};

use super::draft::Draft;

pub(super) fn keep_budget(draft: &mut Draft<'_>) {
    let snapshot = draft.snapshot;
    // At once: a second budget for the same Pods, or one for former counts, blocks the drain of a node.
    for object in snapshot.leftovers.iter().filter(|object| object.kind == ExposedKind::Budget) {
        draft.step(Action::Retire { object: object.clone() }, Reason::BudgetChanged);
    }
    match snapshot.budget {
        Some(ObjectState::Absent | ObjectState::Outdated) => {
            draft.step(Action::PublishBudget, Reason::BudgetChanged);
        }
        Some(ObjectState::Foreign) => {
            draft.hold(Hold { reason: Reason::ForeignObject, pod: None, until: None });
        }
        Some(ObjectState::Current) | None => {}
    }
}
