//! Puts labels back that follow from a Pod's role and that somebody else has changed.

use crate::model::{Action, Reason, RoleLabels};

use super::draft::Draft;

/// Users select Pods by the labels that the documents name, so they are kept as the role is. A Pod that is converted gets them by
/// that.
pub(super) fn put_right(draft: &mut Draft<'_>) {
    for index in 0..draft.seats.len() {
        let seat = &draft.seats[index];
        if seat.is_free() && seat.view.labels == RoleLabels::Wrong {
            let action = Action::Relabel { pod: seat.view.pod.clone(), role: seat.role };
            draft.claim(index, action, Reason::LabelsChanged);
        }
    }
}
