//! Sends tickets to Pods whose role is awake while their gate still waits.
//!
//! The role label is the persisted intent, written in an earlier pass; a repeated ticket is harmless. The first one
//! starts the wake-up timeout; see `discard`.

use crate::model::{Action, Hold, Ownership, Reason, Role};

use super::draft::Draft;
use super::seats::SeatIndex;

pub(super) fn send_tickets(draft: &mut Draft<'_>) {
    for index in 0..draft.seats.len() {
        let seat = &draft.seats[index];
        let view = seat.view;
        let is_asked = seat.is_free() && seat.role != Role::Cold && view.ownership == Ownership::Ours;
        if is_asked && view.is_at_gate() && view.has_known_key {
            send_ticket(draft, index);
        }
    }
}

fn send_ticket(draft: &mut Draft<'_>, index: SeatIndex) {
    let view = draft.seats[index].view;
    let pod = Some(view.pod.name.clone());
    match (view.address, view.next_ticket) {
        (None, _) => draft.hold(Hold { reason: Reason::AwaitingGate, pod, until: None }),
        (Some(_), Some(next)) if next > draft.snapshot.now => {
            draft.hold(Hold { reason: Reason::AwaitingStart, pod, until: Some(next) });
        }
        (Some(address), _) => {
            draft.claim(index, Action::Wake { pod: view.pod.clone(), address }, Reason::RoleAwake);
        }
    }
}
