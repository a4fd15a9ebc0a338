//! The status of an HAGroup: pairs, what is waited for, and who took over from whom.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::conditions::{Saying, condition};
use super::takeovers::takeovers;
use super::words;
use crate::api::status::Condition;
use crate::api::{GroupSummary, HAGroupStatus, PairStatus};
use crate::ha::TakeoverRecord;
use crate::manifests::pair_name;
use crate::pairing::{Group, Pair, Plan, Step, VACANT, Wait};

/// Most pairs that are listed.
const PAIRS_MAX: usize = 500;
/// Most spares that are listed.
const SPARES_MAX: usize = 50;
/// Most texts in one message.
const TEXTS_MAX: usize = 5;

/// What a status is made from.
#[derive(Clone, Copy, Debug)]
pub struct GroupInput<'a> {
    /// The status before.
    pub previous: &'a HAGroupStatus,
    /// Generation of the specification.
    pub generation: i64,
    /// Name of the group.
    pub name: &'a str,
    /// What was seen.
    pub group: &'a Group,
    /// What is done about it.
    pub plan: &'a Plan,
    /// What the Leases of pairs tell about their last takeover, by number.
    pub records: &'a BTreeMap<u32, TakeoverRecord>,
    /// Whether actives show themselves behind a Service.
    pub has_service: bool,
    /// What stands in the way, one sentence each.
    pub troubles: &'a [String],
    /// The present moment.
    pub now: Timestamp,
}

/// The status that follows.
pub fn group_status(input: &GroupInput<'_>) -> HAGroupStatus {
    let group = input.group;
    let pairs: Vec<PairStatus> = group.pairs.iter().map(|pair| pair_status(input, pair)).collect();
    let complete = pairs.iter().filter(|pair| pair.state == PAIRED).count();
    let takeovers = takeovers(input, &pairs);
    let mut spares: Vec<String> = spares(group).map(str::to_owned).collect();
    spares.sort_unstable();
    let actives: Vec<&str> =
        pairs.iter().map(|pair| pair.active.as_str()).filter(|name| !name.is_empty()).collect();
    let summary = GroupSummary {
        pairs: format!("{complete}/{}", pairs.len()),
        spares: i32::try_from(spares.len()).unwrap_or(i32::MAX),
        actives: actives.join(","),
    };
    let conditions = conditions(input, (complete, pairs.len()));
    let state = state(input, (complete, pairs.len()));
    spares.truncate(SPARES_MAX);
    let highest_term = i64::from(group.highest_term).max(input.previous.highest_term);
    HAGroupStatus {
        observed_generation: input.generation,
        state,
        summary,
        pairs: pairs.into_iter().take(PAIRS_MAX).collect(),
        spares,
        highest_term,
        conditions,
        last_takeover: takeovers.last().cloned().or_else(|| input.previous.last_takeover.clone()),
        takeovers,
    }
}

pub(super) const PAIRED: &str = "Paired";

fn pair_status(input: &GroupInput<'_>, pair: &Pair) -> PairStatus {
    let group = input.group;
    let holder = pair.lease.holder;
    let name_of = |id| pair.names.get(&id).cloned().unwrap_or_default();
    let is_there = |id| group.pods.iter().any(|pod| pod.id == id && !pod.is_leaving);
    let other =
        pair.lease.members.into_iter().find(|id| Some(*id) != holder && *id != VACANT && is_there(*id));
    let is_fenced = pair.lease.members.iter().any(|id| pair.fenced.contains(id));
    let state = match (pair.is_ending, pair.lease.pending, holder, other) {
        (true, ..) => "Ending",
        (_, Some(_), ..) => "Replacing",
        _ if is_fenced => "Fenced",
        (_, _, None, _) => "Starting",
        (_, _, Some(_), None) => "Alone",
        (_, _, Some(_), Some(_)) => PAIRED,
    };
    PairStatus {
        name: pair_name(input.name, pair.number),
        active: holder.map(name_of).unwrap_or_default(),
        standby: other.map(name_of).unwrap_or_default(),
        epoch: u64::from(pair.lease.epoch).to_string(),
        state: state.to_owned(),
        sync: sync(pair.level, other.is_some()).to_owned(),
    }
}

/// Where the replicated state is, by the number of directories that have all of it.
fn sync(level: Option<usize>, has_other: bool) -> &'static str {
    match (level, has_other) {
        (None, _) => "",
        (Some(2..), true) => "InSync",
        (Some(_), true) => "CatchingUp",
        (Some(_), false) => "Alone",
    }
}

fn spares(group: &Group) -> impl Iterator<Item = &str> {
    let is_named = |id| {
        group.pairs.iter().any(|pair| {
            let joining = pair.lease.pending.map(|replacement| replacement.joining);
            pair.lease.members.contains(&id) || joining == Some(id)
        })
    };
    let spares = group.pods.iter().filter(move |pod| !pod.is_leaving && !is_named(pod.id));
    spares.map(|pod| pod.name.as_str())
}

fn state(input: &GroupInput<'_>, (complete, all): (usize, usize)) -> String {
    let is_pairing = input.plan.steps.iter().any(|step| !matches!(step, Step::Label { .. }));
    let state = if input.group.is_paused {
        "Paused"
    } else if !input.troubles.is_empty() {
        "Degraded"
    } else if all == 0 {
        "Waiting for Pods"
    } else if is_pairing || input.plan.waits.iter().any(|wait| matches!(wait, Wait::Admission { .. })) {
        "Pairing"
    } else if complete < all {
        "Without standby"
    } else {
        "Ready"
    };
    state.to_owned()
}

fn conditions(input: &GroupInput<'_>, (complete, all): (usize, usize)) -> Vec<Condition> {
    let waits: Vec<String> = input.plan.waits.iter().map(|wait| describe_wait(input.name, wait)).collect();
    let counts = format!("{complete} of {all} pairs have an active and a standby");
    let is_ready = all > 0 && complete == all;
    let ready = if is_ready {
        ("Paired", counts.clone())
    } else if all == 0 {
        ("NoPairs", "no pair yet: two running Pods with the label of the group are needed".to_owned())
    } else {
        ("Unpaired", joined(std::iter::once(counts.clone()).chain(waits.iter().cloned())))
    };
    let degraded = if input.troubles.is_empty() {
        (false, ("AsExpected", "nothing stands in the way".to_owned()))
    } else {
        (true, ("Refused", joined(input.troubles.iter().cloned())))
    };
    let paused = if input.group.is_paused {
        ("PausedBySpec", "spec.paused is true: pairs stay as they are, failovers go on".to_owned())
    } else {
        ("NotPaused", "spec.paused is false".to_owned())
    };
    let sayings = [
        (words::READY, is_ready, ready),
        (words::DEGRADED, degraded.0, degraded.1),
        (words::PAUSED, input.group.is_paused, paused),
    ];
    let meta = (input.previous.conditions.as_slice(), input.now, input.generation);
    let saying = |(r#type, holds, (reason, message))| Saying { r#type, holds, reason, message };
    sayings.into_iter().map(|said| condition(meta, saying(said))).collect()
}

fn joined(texts: impl Iterator<Item = String>) -> String {
    texts.take(TEXTS_MAX).collect::<Vec<_>>().join("; ")
}

/// What is waited for in the group of this name, as half a sentence for people.
pub fn describe_wait(name: &str, wait: &Wait) -> String {
    let pair = |number: &u32| pair_name(name, *number);
    match wait {
        Wait::Paused => "the group is paused".to_owned(),
        Wait::Standby { pair: number } => {
            format!("{} has no standby, and there is no spare Pod", pair(number))
        }
        Wait::Admission { pair: number } => format!("the active of {} is asked to admit a Pod", pair(number)),
        Wait::End { pair: number } => format!("{} ends once nobody can act in it any more", pair(number)),
        Wait::Lost { pair: number } => {
            format!("the Lease of {} was deleted; it is made anew once nobody can act any more", pair(number))
        }
        Wait::Second => "a single Pod waits for another one".to_owned(),
        Wait::Surplus => "there are more pairs than Pods can fill".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ha::{AgentId, BootTime, Epoch, Hold, Lease};
    use crate::pairing::{Pod, Shown};

    fn pod(number: u128) -> Pod {
        Pod {
            id: AgentId(number),
            name: format!("web-{number}"),
            address: None,
            created: Timestamp::UNIX_EPOCH,
            node: None,
            role: None,
            is_leaving: false,
            shown: Shown::default(),
        }
    }

    fn group(holder: Option<u128>, epoch: Epoch) -> Group {
        let members = [AgentId(1), AgentId(2)];
        let holder = holder.map(AgentId);
        let lease = Lease { epoch, holder, members, pending: None, hold: Hold::Peer, writes: 1 };
        let names: BTreeMap<_, _> = members.map(|id| (id, format!("web-{}", id.0))).into();
        let unwritten_since = BootTime::default();
        let addresses = BTreeMap::new();
        let pair = Pair {
            number: 0,
            lease,
            names,
            addresses,
            fenced: Vec::new(),
            level: None,
            is_ending: false,
            unwritten_since,
        };
        Group {
            pods: [1, 2, 3].map(pod).into(),
            pairs: vec![pair],
            highest_term: epoch.term,
            ..Group::default()
        }
    }

    fn status(previous: &HAGroupStatus, group: &Group, troubles: &[String]) -> HAGroupStatus {
        let (plan, now) = (Plan::default(), Timestamp::UNIX_EPOCH);
        let records = &BTreeMap::new();
        let (generation, name, plan, has_service) = (1, "web", &plan, false);
        group_status(&GroupInput {
            previous,
            generation,
            name,
            group,
            plan,
            records,
            has_service,
            troubles,
            now,
        })
    }

    const FIRST: Epoch = Epoch { term: 1, sequence: 0 };
    const DELEGATED: Epoch = Epoch { term: 1, sequence: 1 };

    #[test]
    fn a_settled_group_is_ready_and_its_status_does_not_change_again() {
        let group = group(Some(1), FIRST);
        let first = status(&HAGroupStatus::default(), &group, &[]);
        assert_eq!((first.state.as_str(), first.summary.pairs.as_str()), ("Ready", "1/1"));
        let expected = PairStatus {
            name: "web-0".into(),
            active: "web-1".into(),
            standby: "web-2".into(),
            epoch: "4294967296".into(),
            state: "Paired".into(),
            sync: String::new(),
        };
        assert_eq!((&first.pairs, &first.spares), (&vec![expected], &vec!["web-3".to_owned()]));
        assert_eq!(first.takeovers, []);
        assert_eq!(status(&first, &group, &[]), first);
    }

    #[test]
    fn a_handover_is_told_with_both_pods_even_through_a_release() {
        let before = status(&HAGroupStatus::default(), &group(Some(1), FIRST), &[]);
        let after = status(&before, &group(Some(2), DELEGATED), &[]);
        let told = after.last_takeover.clone().expect("a takeover");
        assert_eq!((told.from.as_str(), told.to.as_str(), told.by.as_str()), ("web-1", "web-2", "Handover"));

        let released = status(&after, &group(None, DELEGATED), &[]);
        assert_eq!((released.state.as_str(), released.takeovers.len()), ("Without standby", 1));
        let taken = status(&released, &group(Some(1), Epoch { term: 2, sequence: 0 }), &[]);
        let told = taken.last_takeover.expect("a takeover");
        assert_eq!((told.from.as_str(), told.to.as_str(), told.by.as_str()), ("web-2", "web-1", "Lease"));
    }

    #[test]
    fn a_pair_says_whether_its_standby_has_the_replicated_state() {
        let table = [
            (None, true, ""),
            (Some(2), true, "InSync"),
            (Some(1), true, "CatchingUp"),
            (Some(0), true, "CatchingUp"),
            (Some(2), false, "Alone"),
            (Some(1), false, "Alone"),
        ];
        for (level, has_other, expected) in table {
            assert_eq!(sync(level, has_other), expected, "{level:?} {has_other}");
        }
    }

    #[test]
    fn what_stands_in_the_way_degrades_the_group() {
        let troubled = status(&HAGroupStatus::default(), &group(Some(1), FIRST), &["no permission".into()]);
        let degraded = troubled.conditions.iter().find(|condition| condition.r#type == words::DEGRADED);
        assert!(degraded.is_some_and(|condition| condition.message == "no permission"));
        assert_eq!(troubled.state, "Degraded");
    }

    #[test]
    fn the_highest_term_never_goes_back() {
        let previous = HAGroupStatus { highest_term: 9, ..HAGroupStatus::default() };
        assert_eq!(status(&previous, &group(Some(1), FIRST), &[]).highest_term, 9);
    }
}
