//! The text of the event that one step is worth.
//!
//! A recorder that folds equal events compares type, reason and action but not the note, so the action names the Pod.

use crate::model::{Action, Outcome, Reason, Refusal, StepResult};

use super::refusal::{advice_on, attempt, bounded, quote};
use super::tally::noun;

/// Most characters of an event's note (validation of `events.k8s.io/v1`).
const NOTE_MAX_CHARS: usize = 1024;

/// Whether a human may need to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// For the record.
    Normal,
    /// A human may need to look.
    Warning,
}

impl EventType {
    /// The type as Kubernetes spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// One event about a set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventText {
    /// Whether a human may need to look.
    pub type_: EventType,
    /// Why: the word of the [`Reason`], or of the [`Refusal`] if the step was refused.
    pub reason: &'static str,
    /// What was done or tried, with the name of the Pod; at most 128 characters.
    pub action: String,
    /// A sentence for people, at most 1,024 characters.
    pub note: String,
}

/// The event that a step is worth; `None` if nobody would miss it.
pub fn event_note(result: &StepResult) -> Option<EventText> {
    match result.outcome {
        Outcome::Done => done(result),
        Outcome::Stale => None,
        Outcome::Failed(refusal) => refused(result, refusal),
    }
}

fn done(result: &StepResult) -> Option<EventText> {
    let reason = result.step.reason;
    let what = match &result.step.action {
        Action::Create { name, role, .. } => format!("Created {} {name}", noun(*role, 1)),
        Action::Convert { pod, from, to } if to < from => {
            format!("Promoted {} {} to {}", noun(*from, 1), pod.name, noun(*to, 1))
        }
        Action::Convert { pod, from, to } => {
            format!("Demoted {} {} to {}", noun(*from, 1), pod.name, noun(*to, 1))
        }
        Action::Wake { pod, .. } => format!("Woke {}", pod.name),
        Action::Delete { pod, role, .. } => format!("Deleted {} {}", noun(*role, 1), pod.name),
        Action::Adopt { pod } => format!("Adopted {}", pod.name),
        Action::Relabel { pod, .. } => format!("Put the labels of {} right", pod.name),
        Action::PublishService => "Wrote the Service".to_owned(),
        Action::PublishGroup => "Wrote the HAGroup".to_owned(),
        Action::PublishBudget => "Wrote the PodDisruptionBudget".to_owned(),
        Action::Retire { object } => format!("Deleted the former {object}"),
        // Mostly there was nothing.
        Action::ClearAddresses => format!("Deleted {}", result.message.as_deref()?),
        // Follows each conversion, which has an event of its own.
        Action::Expose { .. } => return None,
    };
    let type_ = if needs_look(reason) { EventType::Warning } else { EventType::Normal };
    let note = bounded(&format!("{what}: {}", reason.meaning()), NOTE_MAX_CHARS);
    Some(EventText { type_, reason: reason.as_str(), action: action_word(result), note })
}

fn refused(result: &StepResult, refusal: Refusal) -> Option<EventText> {
    let type_ = match refusal {
        Refusal::QuotaExceeded | Refusal::Forbidden | Refusal::Invalid | Refusal::ServerFailed => {
            EventType::Warning
        }
        Refusal::NameTaken | Refusal::GateRefused => EventType::Normal,
        // The next attempt follows at once; a server that is slow must not get events on top, and a namespace that ends
        // takes none.
        Refusal::Throttled | Refusal::NoAnswer | Refusal::NamespaceTerminating => return None,
    };
    let action = &result.step.action;
    let (before, after) =
        (format!("Could not {}: ", attempt(action)), format!("; {}", advice_on(action, refusal)));
    let room = NOTE_MAX_CHARS.saturating_sub(before.chars().count() + after.chars().count());
    let note = format!("{before}{}{after}", bounded(&quote(result), room));
    Some(EventText { type_, reason: refusal.as_str(), action: action_word(result), note })
}

fn action_word(result: &StepResult) -> String {
    let action = &result.step.action;
    match action.pod_name() {
        Some(pod) => format!("{} {pod}", action.as_str()),
        None => action.as_str().to_owned(),
    }
}

/// Whether a step with this reason tells of something that should not happen.
const fn needs_look(reason: Reason) -> bool {
    match reason {
        Reason::PodFinished
        | Reason::PodUnready
        | Reason::NodeLost
        | Reason::NodeGone
        | Reason::WakeTimedOut
        | Reason::UnreadyTooLong
        | Reason::GateFails
        | Reason::StartedUnasked
        | Reason::NoReadyBackup
        | Reason::StormBrake
        | Reason::InvalidSpec
        | Reason::BackingOff
        | Reason::LabelsChanged
        | Reason::ForeignAddresses
        | Reason::ForeignObject
        | Reason::SubsetFull
        | Reason::OffBalance
        | Reason::CheckRefused => true,
        Reason::ScaledOut
        | Reason::ScaledIn
        | Reason::PodDeleted
        | Reason::SlowStart
        | Reason::PodMissing
        | Reason::NodeCordoned
        | Reason::Refilled
        | Reason::GateKeyRetired
        | Reason::TemplateChanged
        | Reason::RoleAwake
        | Reason::Orphaned
        | Reason::ServiceChanged
        | Reason::EndpointsChanged
        | Reason::BudgetChanged
        | Reason::Rebalanced
        | Reason::TookOver
        | Reason::GroupChanged
        | Reason::Paused
        | Reason::WithinFailoverDelay
        | Reason::RolloutWaits
        | Reason::AwaitingGate
        | Reason::AwaitingStart => false,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::model::{Role, Step};
    use crate::status::testing::{address, convert, create, delete, expose, millis, pod_ref};

    fn told(step: Step, outcome: Outcome) -> Option<(&'static str, &'static str, String, String)> {
        let message = Some("no".to_owned());
        let started = Timestamp::UNIX_EPOCH;
        let event = event_note(&StepResult { step, outcome, message, started, elapsed: millis(1) })?;
        Some((event.type_.as_str(), event.reason, event.action, event.note))
    }

    #[test]
    fn each_step_worth_telling_has_one_event() {
        let (hot, primary) = (Role::Hot, Role::Primary);
        let wake = Step {
            action: Action::Wake { pod: pod_ref("a"), address: address() },
            reason: Reason::RoleAwake,
        };
        let adopt = Step { action: Action::Adopt { pod: pod_ref("a") }, reason: Reason::Orphaned };
        let publish = Step { action: Action::PublishService, reason: Reason::ServiceChanged };
        let quota = Outcome::Failed(Refusal::QuotaExceeded);
        let create_hot = || create("a", hot, Reason::ScaledOut);
        #[rustfmt::skip]
        let table = [
            (create_hot(), Outcome::Done, Some(("Normal", "ScaledOut", "create a",
                "Created hot backup a: More Pods of a role are wanted than there are."))),
            (convert("a", (hot, primary), Reason::PodDeleted), Outcome::Done, Some(("Normal", "PodDeleted", "convert a",
                "Promoted hot backup a to primary: A Pod was deleted by somebody else."))),
            (convert("a", (primary, hot), Reason::PodUnready), Outcome::Done, Some(("Warning", "PodUnready", "convert a",
                "Demoted primary a to hot backup: A Pod stopped being ready."))),
            (delete("a", hot, Reason::WakeTimedOut), Outcome::Done, Some(("Warning", "WakeTimedOut", "delete a",
                "Deleted hot backup a: A woken Pod did not pass its gate, or came no further behind it, within wakeupTimeout."))),
            (wake, Outcome::Done, Some(("Normal", "RoleAwake", "wake a",
                "Woke a: A Pod that shall run still waits at its gate."))),
            (adopt, Outcome::Done, Some(("Normal", "Orphaned", "adopt a",
                "Adopted a: A Pod of the set had no controller."))),
            (publish, Outcome::Done, Some(("Normal", "ServiceChanged", "publish-service",
                "Wrote the Service: The exposed Service was missing or differed from spec.service."))),
            (expose("a"), Outcome::Done, None),
            (create_hot(), Outcome::Stale, None),
            (create_hot(), Outcome::Failed(Refusal::Throttled), None),
            (create_hot(), quota, Some(("Warning", "QuotaExceeded", "create a",
                "Could not create hot backup a: no; raise the ResourceQuota of the namespace or lower the counts of the set"))),
        ];
        for (step, outcome, expected) in table {
            let expected = expected
                .map(|(type_, reason, action, note)| (type_, reason, action.to_owned(), note.to_owned()));
            assert_eq!(told(step, outcome), expected);
        }
    }
}
