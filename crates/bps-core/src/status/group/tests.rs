//! What a group, its pairs and its troubles make of a status.

use bps_api::status::ConditionStatus;
use bps_protocol::{AgentId, BootTime, Epoch};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::pairing::Silence;
use crate::pairing::testing::{pair, pod};

/// Pods 1 and 2 are a pair, and Pod 3 is a spare.
fn group(holder: Option<u128>, epoch: Epoch) -> Group {
    let mut pair = pair(0, [1, 2]);
    (pair.lease.holder, pair.lease.epoch) = (holder.map(AgentId), epoch);
    Group { pods: [1, 2, 3].map(pod).into(), pairs: vec![pair], highest_term: epoch.term, ..Group::default() }
}

fn status(previous: &HAGroupStatus, group: &Group, troubles: &[String]) -> HAGroupStatus {
    planned(previous, (group, &Plan::default()), troubles)
}

fn planned(previous: &HAGroupStatus, (group, plan): (&Group, &Plan), troubles: &[String]) -> HAGroupStatus {
    lagging(previous, group, plan, troubles, lag())
}

fn lagging(
    previous: &HAGroupStatus,
    group: &Group,
    plan: &Plan,
    troubles: &[String],
    lag: StateLag,
) -> HAGroupStatus {
    group_status(&GroupInput {
        previous,
        generation: 1,
        name: "web",
        group,
        plan,
        records: &BTreeMap::new(),
        lags: &BTreeMap::from([(0, lag)]),
        crash_loops: &BTreeMap::new(),
        has_service: false,
        unread: None,
        troubles,
        now: Timestamp::UNIX_EPOCH,
    })
}

fn lag() -> StateLag {
    StateLag { entries: 3, bytes: 70, since: Time(Timestamp::UNIX_EPOCH), reason: None, path: None }
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
        pods: vec!["web-1".into(), "web-2".into()],
        epoch: "4294967296".into(),
        state: "Paired".into(),
        ..PairStatus::default()
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
fn an_application_that_ends_again_and_again_is_told_with_what_to_look_at() {
    let group = group(Some(1), FIRST);
    let crash_loops = BTreeMap::from([(
        0,
        CrashLoop { pod: "web-1".into(), ends: 4, exit_code: 137, last_lines: Vec::new() },
    )]);
    let (previous, plan, lags, records) =
        (HAGroupStatus::default(), Plan::default(), BTreeMap::new(), BTreeMap::new());
    let input = GroupInput {
        previous: &previous,
        generation: 1,
        name: "web",
        group: &group,
        plan: &plan,
        records: &records,
        lags: &lags,
        crash_loops: &crash_loops,
        has_service: false,
        unread: None,
        troubles: &[],
        now: Timestamp::UNIX_EPOCH,
    };
    let status = group_status(&input);
    let pair = &status.pairs[0];
    assert_eq!((pair.state.as_str(), &pair.crash_loop), (PAIR_CRASH_LOOPING, &crash_loops.get(&0).cloned()));
    assert_eq!((status.state.as_str(), status.summary.pairs.as_str()), ("Crash looping", "0/1"));
    let [ready, degraded, ..] = &status.conditions[..] else { panic!("four conditions") };
    assert_eq!((ready.status, ready.reason.as_str()), (ConditionStatus::False, "CrashLooping"));
    assert_eq!((degraded.status, degraded.reason.as_str()), (ConditionStatus::True, "CrashLooping"));
    let message = "the application of web-0 ended soon after its start 4 times in a row on web-1, last with exit code 137: \
                   see kubectl logs web-1";
    assert_eq!(degraded.message, message);
}

#[test]
fn a_standby_that_does_not_get_the_state_is_told_with_the_reason_and_what_to_do() {
    let mut group = group(Some(1), FIRST);
    group.pairs[0].level = Some(1);
    let told = |lag: StateLag| lagging(&HAGroupStatus::default(), &group, &Plan::default(), &[], lag);
    let table = [
        ("StandbyFull", None, "the volume of web-2 is full: make it larger, or free space"),
        (
            "StandbyDiskFails",
            None,
            "the disk of web-2 refuses it: check its volume, and see kubectl logs web-2",
        ),
        (
            "Unreplicable",
            Some("a/link"),
            "something in the state directory of web-1 cannot be replicated (a/link): see kubectl logs web-1, and move it out",
        ),
        ("ActiveDiskFails", None, "the disk of web-1 fails: check its volume, and see kubectl logs web-1"),
        ("OfALaterVersion", None, "OfALaterVersion"),
    ];
    for (reason, path, text) in table {
        let lag = StateLag { reason: Some(reason.into()), path: path.map(str::to_owned), ..lag() };
        let status = told(lag.clone());
        assert_eq!((status.state.as_str(), &status.pairs[0].lag), ("Replication blocked", &Some(lag)));
        let degraded = status.conditions.iter().find(|condition| condition.r#type == "Degraded").unwrap();
        assert_eq!(
            (degraded.status, degraded.reason.as_str()),
            (ConditionStatus::True, "ReplicationBlocked")
        );
        assert_eq!(degraded.message, format!("the standby of web-0 does not get the state: {text}"));
    }

    // It lacks something, and gets it.
    assert_eq!(told(lag()).state, "Ready");
}

#[test]
fn the_status_tells_how_long_anybody_may_act_by_a_lease_that_is_gone() {
    let outage = |number, seconds| {
        let timing = bps_protocol::Timing::default().outliving(Duration::from_secs(seconds));
        Pair { timing, ..crate::pairing::testing::pair(number, [1, 2]) }
    };
    let lost = vec![Lost::new(7, vec!["a".into()], None, bps_protocol::BootTime::default())];
    let waits = |told, pairs: &[Pair], lost: &[Lost]| {
        let group = Group { pairs: pairs.to_vec(), lost: lost.to_vec(), ..Group::default() };
        let previous = HAGroupStatus { wait_seconds: told, ..HAGroupStatus::default() };
        planned(&previous, (&group, &Plan::default()), &[]).wait_seconds
    };
    assert_eq!(waits(0, &[outage(0, 0), outage(1, 3_600)], &[]), 3_721);
    assert_eq!(waits(3_721, &[outage(0, 0)], &[]), 61, "nobody goes by those times any more");
    assert_eq!(waits(3_721, &[outage(0, 0)], &lost), 3_721);
    assert_eq!(waits(61, &[outage(0, 60)], &lost), 122);
    assert_eq!(waits(0, &[], &lost), 3_780, "nobody told of that one");
}

#[test]
fn a_pair_in_which_nobody_acts_remembers_who_did_so_that_its_first_takeover_is_told() {
    let last = |status: &HAGroupStatus| status.pairs[0].last_active.clone();
    let second = Epoch { term: 2, sequence: 0 };
    let untouched = status(&HAGroupStatus::default(), &group(None, FIRST), &[]);
    let first = status(&untouched, &group(Some(1), FIRST), &[]);
    let released = status(&first, &group(None, FIRST), &[]);
    let still = status(&released, &group(None, FIRST), &[]);
    let taken = status(&still, &group(Some(2), second), &[]);
    assert_eq!([&untouched, &first, &released, &still, &taken].map(last), ["", "", "web-1", "web-1", ""]);
    let told: Vec<_> = taken.takeovers.iter().map(|told| (&*told.from, &*told.to, &*told.by)).collect();
    assert_eq!((still.takeovers, told), (vec![], vec![("web-1", "web-2", "Lease")]));
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

/// The directories that have everything may be those of Pods that were members before.
#[test]
fn a_standby_is_in_sync_only_if_the_lease_names_its_copy() {
    let mut group = group(Some(1), FIRST);
    group.pairs[0].level = Some(2);
    for (level, expected) in [([1, 2], "InSync"), ([1, 9], "CatchingUp")] {
        group.pairs[0].level_pods = level.map(AgentId).into();
        assert_eq!(status(&HAGroupStatus::default(), &group, &[]).pairs[0].sync, expected);
    }
}

#[test]
fn a_pair_whose_only_copy_is_on_a_pod_that_acts_elsewhere_says_so() {
    let plan = Plan {
        holds: vec![PairHold { reason: PairReason::KeeperBusy, pair: Some(0), until: None }],
        ..Plan::default()
    };
    let told = planned(&HAGroupStatus::default(), (&group(None, FIRST), &plan), &[]);
    assert_eq!((told.state.as_str(), told.pairs[0].state.as_str()), ("Keeper busy", "KeeperBusy"));
    let degraded = &told.conditions[1];
    assert_eq!((degraded.status, degraded.reason.as_str()), (ConditionStatus::True, "KeeperBusy"));
    let message = "the only Pod that has every acknowledged write of web-0 acts in another pair, and hands over there as \
                   soon as a standby can follow: add a hot backup if that lasts";
    assert_eq!(degraded.message, message);
}

#[test]
fn a_pair_says_what_its_standby_lacks_only_while_that_is_catching_up() {
    for (level, expected) in [(None, None), (Some(2), None), (Some(1), Some(lag()))] {
        let mut group = group(Some(1), FIRST);
        group.pairs[0].level = level;
        assert_eq!(status(&HAGroupStatus::default(), &group, &[]).pairs[0].lag, expected, "{level:?}");
    }
}

#[test]
fn a_pair_in_which_nobody_may_act_is_a_condition_of_its_own() {
    let plan = Plan {
        holds: vec![PairHold { reason: PairReason::Withheld, pair: Some(0), until: None }],
        ..Plan::default()
    };
    let withheld = planned(&HAGroupStatus::default(), (&group(Some(1), FIRST), &plan), &[]);
    assert_eq!((withheld.state.as_str(), withheld.pairs[0].state.as_str()), ("Withheld", "Withheld"));
    let said: Vec<_> =
        withheld.conditions.iter().map(|said| (&*said.r#type, said.status, &*said.reason)).collect();
    let expected = [
        ("Ready", ConditionStatus::False, "Unpaired"),
        ("Degraded", ConditionStatus::True, "Withheld"),
        ("Withheld", ConditionStatus::True, "NoLevelCopy"),
        ("Paused", ConditionStatus::False, "NotPaused"),
    ];
    assert_eq!(said, expected);
    let message = "nobody may act in web-0: no ready Pod has every acknowledged write; bring the lost Pod back \
        with its volume, or remove the annotation backup.example.com/ha-in-sync from the Lease to act without those writes";
    assert_eq!(withheld.conditions[2].message, message);
}

#[test]
fn a_standby_that_does_not_answer_is_named() {
    let mut silent = group(Some(1), FIRST);
    silent.pairs[0].silence = Some(Silence { standby: AgentId(2), since: BootTime::default() });
    let plan = Plan {
        holds: vec![PairHold { reason: PairReason::StandbySilent, pair: Some(0), until: None }],
        ..Plan::default()
    };
    let told = planned(&HAGroupStatus::default(), (&silent, &plan), &[]);
    assert_eq!((told.state.as_str(), told.pairs[0].state.as_str()), ("Standby silent", "Silent"));
    let said: Vec<_> =
        told.conditions.iter().map(|said| (&*said.reason, said.status, &*said.message)).collect();
    let message =
        "the standby web-2 of web-0 does not answer its active: look at its node and the log of its agent";
    assert_eq!(said[1], ("StandbySilent", ConditionStatus::True, message));
    assert_eq!((said[0].0, said[0].1), ("Unpaired", ConditionStatus::False));
}

#[test]
fn a_node_that_is_too_late_for_the_profile_is_named_and_the_pair_is_ready() {
    let mut late = group(Some(1), FIRST);
    late.pairs[0].is_late = true;
    let told = status(&HAGroupStatus::default(), &late, &[]);
    assert_eq!((told.state.as_str(), told.pairs[0].state.as_str()), ("Ready", "Paired"));
    let said: Vec<_> = told.conditions.iter().map(|said| (&*said.reason, said.status)).collect();
    assert_eq!(said[..2], [("Paired", ConditionStatus::True), ("LateNode", ConditionStatus::True)]);
    let message = "the node of web-1, the active of web-0, wakes its agent too late for the timing profile Fast: give that \
        node or container more processor time, or make the group anew with timing.profile Default";
    assert_eq!(told.conditions[1].message, message);
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
