//! What a refusal means to the user: whether it lasts, what the server said and what to do.

use bps_api::status::{BackupPodSetStatus, ConditionStatus};

use super::words::DEGRADED;
use super::{StatusInput, tally};
use crate::model::{Action, Outcome, Refusal, Step, StepResult};

/// Most characters quoted of what a server said: the bound of an event's note, and enough for a quota message.
pub(super) const QUOTE_MAX_CHARS: usize = 1024;

/// A refusal that does not go away by itself.
pub(super) struct Refused {
    pub(super) refusal: Refusal,
    pub(super) message: String,
}

/// Whether repeating the write is unlikely to help until a human changes something.
pub const fn is_lasting(refusal: Refusal) -> bool {
    match refusal {
        Refusal::QuotaExceeded | Refusal::Forbidden | Refusal::Invalid => true,
        Refusal::NamespaceTerminating
        | Refusal::NameTaken
        | Refusal::Throttled
        | Refusal::ServerFailed
        | Refusal::NoAnswer
        | Refusal::GateRefused => false,
    }
}

/// What to do about a refusal, as one sentence without a full stop.
pub const fn advice(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::QuotaExceeded => "raise the ResourceQuota of the namespace or lower the counts of the set",
        Refusal::Forbidden => {
            "let the namespace's Pod security or admission policies allow the Pod, or change spec.template"
        }
        Refusal::Invalid => "correct spec.template as the message says",
        Refusal::NamespaceTerminating => "nothing: the set goes with its namespace",
        Refusal::NameTaken => "nothing: the operator takes another name",
        Refusal::Throttled => "nothing: the operator slows down as the API server asks",
        Refusal::ServerFailed => "look at the API server and its webhooks if it lasts",
        Refusal::NoAnswer => "look at the network between operator and API server or gate if it lasts",
        Refusal::GateRefused => {
            "nothing: the operator tries again, then takes another Pod after wakeupTimeout"
        }
    }
}

/// What to do about a refused write of an `HAGroup`, as one sentence without a full stop.
pub const fn group_advice(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::QuotaExceeded => "raise the ResourceQuota of the namespace",
        Refusal::Forbidden => {
            "give the operator the permissions of its release, or let the admission policies allow the write"
        }
        Refusal::Invalid => "correct spec of the HAGroup as the message says",
        Refusal::NamespaceTerminating => "nothing: the group goes with its namespace",
        Refusal::NameTaken => "delete it, or use another name",
        Refusal::Throttled | Refusal::ServerFailed | Refusal::NoAnswer | Refusal::GateRefused => {
            advice(refusal)
        }
    }
}

/// The same for what was tried: a write that is not about a Pod does not come from the template.
pub(super) const fn advice_on(action: &Action, refusal: Refusal) -> &'static str {
    match (action, refusal) {
        (Action::Create { .. }, _) => advice(refusal),
        (_, Refusal::Forbidden) => {
            "give the operator the permissions of its release, or let the admission policies allow the write"
        }
        (Action::PublishService | Action::Expose { .. }, Refusal::Invalid) => {
            "correct spec.service as the message says"
        }
        (Action::PublishGroup, Refusal::Invalid) => "correct spec.activeStandby as the message says",
        (_, _) => advice(refusal),
    }
}

/// The lasting refusal that stands in the way of the set now.
///
/// Refused steps are repeated with growing delay, so most passes have no result for them: a refusal told once stands
/// until everything planned is done.
pub(super) fn lasting(input: &StatusInput<'_>) -> Option<Refused> {
    lasting_of(input, |action| !action.is_aside())
}

/// The same for steps that stand in the way of nothing.
pub(super) fn aside(input: &StatusInput<'_>) -> Option<Refused> {
    lasting_of(input, Action::is_aside)
}

fn lasting_of(input: &StatusInput<'_>, is_meant: impl Fn(&Action) -> bool) -> Option<Refused> {
    let is_done = |step: &Step| {
        input.results.iter().any(|result| result.step == *step && result.outcome == Outcome::Done)
    };
    let mut outstanding =
        input.plan.steps.iter().filter(|step| is_meant(&step.action) && !is_done(step)).peekable();
    outstanding.peek()?;
    let refused = |result: &StepResult| match result.outcome {
        Outcome::Failed(refusal) if is_lasting(refusal) => {
            Some((refusal, result.step.action.pod_name().cloned(), message(result, refusal)))
        }
        Outcome::Failed(_) | Outcome::Done | Outcome::Stale => None,
    };
    let meant = input.results.iter().filter(|result| is_meant(&result.step.action));
    let newest = meant.filter_map(refused).min();
    let before = || {
        let told = told(input.previous)?;
        // One condition tells of both kinds: its message begins with what was tried.
        let is_about = |step: &Step| told.message.starts_with(&attempt(&step.action));
        let is_aside = input.plan.steps.iter().any(|step| step.action.is_aside() && is_about(step));
        let is_it = if is_aside {
            outstanding.any(is_about)
        } else {
            outstanding.any(|step| !step.action.is_aside())
        };
        is_it.then_some(told)
    };
    newest.map(|(refusal, _, message)| Refused { refusal, message }).or_else(before)
}

fn told(previous: &BackupPodSetStatus) -> Option<Refused> {
    let degraded = previous
        .conditions
        .iter()
        .find(|condition| condition.r#type == DEGRADED && condition.status == ConditionStatus::True)?;
    let refusal = Refusal::ALL
        .into_iter()
        .find(|refusal| is_lasting(*refusal) && refusal.as_str() == degraded.reason)?;
    Some(Refused { refusal, message: degraded.message.clone() })
}

fn message(result: &StepResult, refusal: Refusal) -> String {
    let action = &result.step.action;
    format!("{}: {}; {}", attempt(action), quote(result), advice_on(action, refusal))
}

/// What was tried, for example `create hot backup web-3f583358bca8`.
pub(super) fn attempt(action: &Action) -> String {
    match action {
        Action::Create { name, role, .. } => format!("create {} {name}", tally::noun(*role, 1)),
        Action::Convert { pod, from, to } => format!("convert {} from {from} to {to}", pod.name),
        Action::Wake { pod, .. } => format!("wake {}", pod.name),
        Action::Delete { pod, role, .. } => format!("delete {} {}", tally::noun(*role, 1), pod.name),
        Action::Adopt { pod } => format!("adopt {}", pod.name),
        Action::Relabel { pod, .. } => format!("put the labels of {} right", pod.name),
        Action::PublishService => "write the Service".to_owned(),
        Action::PublishGroup => "write the HAGroup".to_owned(),
        Action::PublishBudget => "write the PodDisruptionBudget".to_owned(),
        Action::Expose { .. } => "write the addresses of the Service".to_owned(),
        Action::ClearAddresses => "take away what others wrote behind the Service".to_owned(),
        Action::Retire { object } => format!("delete the former {object}"),
    }
}

/// What the other side said, cut to [`QUOTE_MAX_CHARS`].
pub(super) fn quote(result: &StepResult) -> String {
    match &result.message {
        Some(message) if !message.is_empty() => bounded(message, QUOTE_MAX_CHARS),
        Some(_) | None => format!("refused without a message ({})", result.outcome.as_str()),
    }
}

/// The text cut to so many characters; a cut text ends in `...`.
pub(super) fn bounded(text: &str, max_chars: usize) -> String {
    const ELLIPSIS: &str = "...";
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    let kept = max_chars.saturating_sub(ELLIPSIS.len());
    text.chars().take(kept).chain(ELLIPSIS.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{PodName, Role};

    #[test]
    fn advice_about_a_service_names_no_template() {
        let create = Action::Create { name: PodName("web-0".into()), role: Role::Hot, slot: 0, subset: None };
        assert!(advice_on(&create, Refusal::Invalid).contains("spec.template"));
        assert!(advice_on(&create, Refusal::Forbidden).contains("Pod security"));
        assert!(advice_on(&Action::PublishService, Refusal::Invalid).contains("spec.service"));
        for action in [Action::PublishService, Action::PublishBudget, Action::ClearAddresses] {
            assert!(advice_on(&action, Refusal::Forbidden).contains("permissions"), "{}", action.as_str());
        }
    }
}
