//! Puts the judgement into the conditions and the phrase of the STATUS column.

use bps_api::status::{Condition, ConditionStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::StatusInput;
use super::judgement::{Judgement, Trouble};
use super::survival::{Domain, Survival};
use super::tally::{DESCRIBED_PODS_MAX, Tally};
use super::words::{self, Word};
use crate::model::{Reason, Role};

/// What one condition says; the rest is the same for all.
pub(super) struct Saying {
    pub(super) r#type: &'static str,
    pub(super) holds: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The phrase of the STATUS column.
pub(super) fn state(input: &StatusInput<'_>, judgement: &Judgement) -> String {
    let usual = || judgement.activity.map_or("Ready", |activity| activity.word).to_owned();
    let trouble = judgement.trouble.as_ref();
    if input.snapshot.desired.paused && !matches!(trouble, Some(Trouble::InvalidSpec(_))) {
        return "Paused".to_owned();
    }
    match trouble {
        None => usual(),
        // The loss is being repaired; a crash is told when nothing better is known.
        Some(Trouble::AtRisk(Reason::PodUnready, _)) if judgement.is_failing_over() => usual(),
        Some(Trouble::RedundancyLost(_)) if judgement.is_under_way() => usual(),
        Some(Trouble::Storm(_)) => "Storm brake".to_owned(),
        Some(Trouble::InvalidSpec(_) | Trouble::Refused(_)) => format!("Refused: {}", reason_of(trouble)),
        Some(
            Trouble::Withheld(_) | Trouble::RedundancyLost(_) | Trouble::AtRisk(..) | Trouble::Stalled(_),
        ) => format!("Degraded: {}", reason_of(trouble)),
    }
}

/// Every condition, in the order of [`words::CONDITIONS`].
pub(super) fn conditions(
    input: &StatusInput<'_>,
    tally: &Tally<'_>,
    judgement: &Judgement,
    survivals: &[(Domain, Survival); 2],
) -> Vec<Condition> {
    let survives = survivals.iter().map(|(domain, survival)| {
        let Survival { holds, reason, message } = survival.clone();
        Saying { r#type: domain.condition(), holds, reason: reason.word, message }
    });
    let sayings = [
        ready(input, tally, judgement),
        available(tally, judgement),
        progressing(input, tally, judgement),
        stalled(judgement),
        degraded(judgement),
        paused(input),
    ];
    let meta = (input.previous.conditions.as_slice(), input.snapshot.now, input.generation);
    sayings.into_iter().chain(survives).map(|saying| condition(meta, saying)).collect()
}

fn ready(input: &StatusInput<'_>, tally: &Tally<'_>, judgement: &Judgement) -> Saying {
    let reason = if let Some(Trouble::InvalidSpec(message)) = &judgement.trouble {
        return Saying {
            r#type: words::READY,
            holds: false,
            reason: words::INVALID_SPEC.word,
            message: message.clone(),
        };
    } else if !tally.tier(Role::Primary).is_satisfied() {
        words::PRIMARIES_NOT_READY
    } else if judgement.unexposed.is_some() {
        words::NOT_EXPOSED
    } else if !tally.tiers().iter().all(super::tally::Tier::is_satisfied) {
        words::BACKUPS_NOT_READY
    } else if judgement.outdated > 0 {
        words::OUTDATED_PODS
    } else if judgement.activity.is_some() {
        words::SURPLUS_PODS
    } else {
        words::AS_WANTED
    };
    let holds = judgement.activity.is_none();
    let message = if holds { tally.counts() } else { progress(input, tally, judgement) };
    Saying { r#type: words::READY, holds, reason: reason.word, message }
}

fn available(tally: &Tally<'_>, judgement: &Judgement) -> Saying {
    let primaries = tally.tier(Role::Primary);
    let (holds, word, message) = match &judgement.unreached {
        _ if !primaries.is_satisfied() => (false, words::PRIMARIES_NOT_READY, primaries.count()),
        Some(lack) => (false, words::NOT_EXPOSED, lack.clone()),
        None => (true, words::PRIMARIES_SERVE, primaries.count()),
    };
    Saying { r#type: words::AVAILABLE, holds, reason: word.word, message }
}

fn stalled(judgement: &Judgement) -> Saying {
    let (holds, word, message) = match (&judgement.trouble, &judgement.stall) {
        (Some(Trouble::InvalidSpec(message)), _) => (true, words::INVALID_SPEC, message.clone()),
        (_, Some(stall)) => (true, words::PROGRESS_DEADLINE_EXCEEDED, stall.clone()),
        (_, None) => (false, words::NOT_STALLED, words::NOT_STALLED.meaning.to_owned()),
    };
    Saying { r#type: words::STALLED, holds, reason: word.word, message }
}

fn progressing(input: &StatusInput<'_>, tally: &Tally<'_>, judgement: &Judgement) -> Saying {
    let saying =
        |holds, word: Word, message| Saying { r#type: words::PROGRESSING, holds, reason: word.word, message };
    match (&judgement.trouble, judgement.activity) {
        (Some(Trouble::InvalidSpec(_)), _) => {
            saying(false, words::INVALID_SPEC, words::INVALID_SPEC.meaning.to_owned())
        }
        _ if input.snapshot.desired.paused => {
            saying(false, words::PAUSED_BY_SPEC, words::PAUSED_BY_SPEC.meaning.to_owned())
        }
        (Some(Trouble::Storm(message)), Some(_)) => saying(false, words::STORM_BRAKE, message.clone()),
        (_, None) => saying(false, words::COMPLETE, words::COMPLETE.meaning.to_owned()),
        (_, Some(activity)) => saying(true, activity, progress(input, tally, judgement)),
    }
}

fn degraded(judgement: &Judgement) -> Saying {
    let trouble = judgement.trouble.as_ref();
    let message = match trouble {
        None => words::AS_EXPECTED.meaning.to_owned(),
        Some(Trouble::Refused(refused)) => refused.message.clone(),
        Some(
            Trouble::InvalidSpec(message)
            | Trouble::Storm(message)
            | Trouble::Withheld(message)
            | Trouble::RedundancyLost(message)
            | Trouble::AtRisk(_, message)
            | Trouble::Stalled(message),
        ) => message.clone(),
    };
    Saying { r#type: words::DEGRADED, holds: trouble.is_some(), reason: reason_of(trouble), message }
}

fn paused(input: &StatusInput<'_>) -> Saying {
    if !input.snapshot.desired.paused {
        let message = "spec.paused is false".to_owned();
        return Saying { r#type: words::PAUSED, holds: false, reason: words::NOT_PAUSED.word, message };
    }
    let touched: Vec<&str> =
        input.plan.holds.iter().filter_map(|hold| hold.pod.as_ref()).map(|pod| pod.0.as_str()).collect();
    let listed = touched.iter().take(DESCRIBED_PODS_MAX).copied().collect::<Vec<_>>().join(", ");
    let message = match touched.len() {
        0 => "spec.paused is true: the operator only watches".to_owned(),
        count if count <= DESCRIBED_PODS_MAX => {
            format!("spec.paused is true: the operator only watches and would act on Pods {listed}")
        }
        count => format!(
            "spec.paused is true: the operator only watches and would act on Pods {listed} and {} more",
            count - DESCRIBED_PODS_MAX
        ),
    };
    Saying { r#type: words::PAUSED, holds: true, reason: words::PAUSED_BY_SPEC.word, message }
}

/// The counts, and what is waited for.
fn progress(input: &StatusInput<'_>, tally: &Tally<'_>, judgement: &Judgement) -> String {
    let mut texts = vec![tally.counts()];
    texts.extend(tally.waits());
    texts.extend(judgement.unexposed.clone());
    if judgement.outdated > 0 {
        let verb = if judgement.outdated == 1 { "Pod is" } else { "Pods are" };
        texts.push(format!("{} {verb} of a former template", judgement.outdated));
    }
    if let Some(Trouble::Refused(refused)) = &judgement.trouble {
        texts.push(format!("the last attempt was refused: {}", refused.refusal.as_str()));
    }
    let mut held: Vec<Reason> = input.plan.holds.iter().map(|hold| hold.reason).collect();
    held.sort_unstable();
    held.dedup();
    texts.extend(held.into_iter().map(|reason| format!("on hold, {reason}: {}", clause(reason.meaning()))));
    texts.join("; ")
}

fn clause(sentence: &str) -> &str {
    sentence.strip_suffix('.').unwrap_or(sentence)
}

const fn reason_of(trouble: Option<&Trouble>) -> &'static str {
    match trouble {
        None => words::AS_EXPECTED.word,
        Some(Trouble::InvalidSpec(_)) => words::INVALID_SPEC.word,
        Some(Trouble::Storm(_)) => words::STORM_BRAKE.word,
        Some(Trouble::Refused(refused)) => refused.refusal.as_str(),
        Some(Trouble::Withheld(_)) => words::WITHHELD.word,
        Some(Trouble::RedundancyLost(_)) => words::REDUNDANCY_LOST.word,
        Some(Trouble::AtRisk(reason, _)) => reason.as_str(),
        Some(Trouble::Stalled(_)) => words::PROGRESS_DEADLINE_EXCEEDED.word,
    }
}

/// The condition that says this, given the conditions before, the present moment and the generation.
pub(super) fn condition(
    (previous, now, observed_generation): (&[Condition], Timestamp, i64),
    saying: Saying,
) -> Condition {
    let status = ConditionStatus::from(saying.holds);
    let is_same = |old: &&Condition| old.r#type == saying.r#type && old.status == status;
    let last_transition_time = match previous.iter().find(is_same) {
        Some(old) => old.last_transition_time.clone(),
        None => wire_time(now),
    };
    Condition {
        r#type: saying.r#type.to_owned(),
        status,
        reason: saying.reason.to_owned(),
        message: saying.message,
        last_transition_time,
        observed_generation,
    }
}

/// A moment as the wire has it, in whole seconds: what is compared with a status that was read back must have them too.
pub(super) fn wire_time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).expect("the whole seconds of a timestamp are one"))
}
