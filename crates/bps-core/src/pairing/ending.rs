//! Ends pairs when there are more than Pods can fill: after a scale-in each active shall have a standby again.

use std::time::Duration;

use super::plan::Draft;
use super::reason::PairReason;
use super::step::PairAction;
use super::view::Pair;

/// How long there must be too many pairs before one is ended. 5 s: whoever makes Pods replaces a lost one within a
/// second, and an active is not stopped for a gap that closes by itself.
const SURPLUS_MIN: Duration = Duration::from_secs(5);
/// Time that the address of a pair is unready before the operator fences the pair. 2 s: kube-proxy programs a change at most a
/// second (its `minSyncPeriod`) after it observes it.
const DRAIN: Duration = Duration::from_secs(2);

/// Ends what is to end, and begins with one more pair if there is a surplus.
pub(super) fn ending(draft: &mut Draft<'_>) {
    let group = draft.group;
    for pair in group.pairs.iter().filter(|pair| pair.is_ending) {
        end(draft, pair);
    }
    let lasting: Vec<&Pair> = group.pairs.iter().filter(|pair| !pair.is_ending).collect();
    if let Some(wanted) = group.pairs_wanted {
        end_unwanted(draft, lasting, wanted);
        return;
    }
    let wanted = group.staying().len().div_ceil(2);
    if lasting.len() <= wanted {
        return;
    }
    let surplus = lasting.len() - wanted;
    let mut least_worth = lasting;
    least_worth.sort_by_key(|pair| worth(draft, pair));
    let (empty, rest): (Vec<_>, Vec<_>) =
        least_worth.into_iter().take(surplus).partition(|pair| draft.roster.staying_members(pair).is_empty());
    for pair in empty {
        end(draft, pair);
    }
    // What another pair's active would overwrite may be the last copy of its state: only a wish for fewer pairs ends such a one.
    // Nor does one end whose Pod could stand by for no other active: it would serve nothing any more.
    let is_of_use = |pair: &&Pair| pair.level.is_none() && draft.could_join_another(pair);
    let rest: Vec<_> = rest.into_iter().filter(is_of_use).collect();
    if rest.is_empty() {
        return;
    }
    let has_waited = draft.has_waited(group.surplus_since, SURPLUS_MIN, PairReason::Surplus);
    drain(draft, &rest);
    if !has_waited {
        return;
    }
    // A fence that is refused is written anew in the next look, and not after the whole wait.
    draft.hold(PairReason::Surplus, None, None);
    for pair in rest {
        fence(draft, pair, PairReason::Surplus);
    }
}

/// Drains pairs that are to end, once that is near.
fn drain(draft: &mut Draft<'_>, pairs: &[&Pair]) {
    let since = draft.group.surplus_since.unwrap_or(draft.at.now);
    let begin = (since + SURPLUS_MIN).before(DRAIN);
    if draft.at.now < begin {
        draft.look_again(begin);
    } else {
        draft.plan.draining = pairs.iter().map(|pair| pair.number).collect();
    }
}

/// Ends what is beyond the wanted number, at once: first pairs in which nobody is or acts, then the highest number.
fn end_unwanted(draft: &mut Draft<'_>, mut lasting: Vec<&Pair>, wanted: usize) {
    let surplus = lasting.len().saturating_sub(wanted);
    let worth = |pair: &&Pair| {
        let staying = draft.roster.staying_members(pair);
        let is_served = pair.lease.holder.is_some_and(|holder| staying.contains(&holder));
        (!staying.is_empty(), is_served, u32::MAX - pair.number)
    };
    lasting.sort_by_key(worth);
    for pair in lasting.into_iter().take(surplus) {
        fence(draft, pair, PairReason::Unwanted);
    }
}

/// Ends a pair. Two writes of one Lease would overtake each other, so nothing else of it is written.
fn fence(draft: &mut Draft<'_>, pair: &Pair, reason: PairReason) {
    draft.plan.steps.retain(|step| step.action.pair() != Some(pair.number));
    draft.step(PairAction::Fence { pair: pair.number }, reason);
}

/// What is lost least comes first: nobody there, nobody acting, then the highest number.
fn worth(draft: &Draft<'_>, pair: &Pair) -> (usize, bool, u32) {
    let staying = draft.roster.staying_members(pair);
    let is_served = pair.lease.holder.is_some_and(|holder| staying.contains(&holder));
    (staying.len(), is_served, u32::MAX - pair.number)
}

fn end(draft: &mut Draft<'_>, pair: &Pair) {
    if draft.is_asked(pair) {
        return;
    }
    // Somebody may have lifted the fence of a member, who would act on.
    let is_fenced = pair.lease.members.iter().all(|id| pair.fenced.contains(id));
    if pair.is_over(draft.at.now) {
        draft.step(PairAction::End { pair: pair.number }, PairReason::NoneActs);
    } else if pair.is_ending && !is_fenced {
        draft.step(PairAction::Fence { pair: pair.number }, PairReason::FenceLifted);
    } else {
        draft.hold(PairReason::MayAct, Some(pair.number), Some(pair.over_at()));
    }
}
