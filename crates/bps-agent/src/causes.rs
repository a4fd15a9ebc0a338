//! The words for what happens to an agent, as its logs show them.

use bps_protocol::{Event, Message};

/// The word for an event in logs, and whether it may be the answer to a write.
pub(super) fn cause(event: &Event) -> (&'static str, bool) {
    match event {
        Event::LeaseRead { .. } => ("LeaseRead", true),
        Event::WriteApplied { .. } => ("WriteApplied", true),
        Event::WriteConflicted => ("WriteConflicted", false),
        Event::Received { message: Message::Handover(_), .. } => ("Handover", false),
        Event::Received { message: Message::PromiseRequest(_), .. } => ("PromiseRequest", false),
        Event::Received {
            message: Message::Ping(_) | Message::Promise(_) | Message::Farewell(_), ..
        } => ("Message", false),
        Event::ApplicationEnded => ("ApplicationEnded", false),
        Event::Certificate { .. } => ("Certificate", false),
        Event::Timer => ("Timer", false),
        Event::Ordered(_) => ("Ordered", false),
    }
}
