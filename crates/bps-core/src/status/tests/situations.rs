//! Situations and the status that users see in them.

use bps_api::status::{BackupPodSetStatus, Condition, ConditionStatus, Summary, TierNames};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::model::{
    Exposure, Lifecycle, ObjectState, Others, Outcome, PodView, Reason, Refusal, Revision, Role,
};
use crate::status::testing::*;
use crate::testing::exposure;

const CRASHED: Lifecycle = Lifecycle::Unready { since: jiff::Timestamp::UNIX_EPOCH };

fn words(status: &BackupPodSetStatus) -> Vec<String> {
    let word =
        |condition: &Condition| format!("{}={:?} {}", condition.r#type, condition.status, condition.reason);
    status.conditions.iter().map(word).collect()
}

/// State, then reason of Ready, Progressing and Degraded, a minus for `False`.
fn gist(case: &Case) -> (String, [String; 3]) {
    let status = case.compute();
    let word = |r#type: &str| {
        let condition = said(&status, r#type);
        let sign = if condition.status == ConditionStatus::True { '+' } else { '-' };
        format!("{sign}{}", condition.reason)
    };
    (status.state.clone(), ["Ready", "Progressing", "Degraded"].map(word))
}

fn condition(r#type: &str, status: ConditionStatus, (reason, message): (&str, &str)) -> Condition {
    Condition {
        r#type: r#type.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(at(0)),
        observed_generation: GENERATION,
    }
}

#[test]
fn the_status_of_a_complete_set_says_all_of_this() {
    let status = new([2, 1, 1], full([2, 1, 1])).compute();
    let expected = BackupPodSetStatus {
        observed_generation: 3,
        state: "Ready".to_owned(),
        summary: Summary {
            replicas: "2/2".to_owned(),
            hot_backups: "1/1".to_owned(),
            cold_backups: "1/1".to_owned(),
            images: "app:1,log:2".to_owned(),
            survives: "none".to_owned(),
        },
        redundancy: "N+M 2+1, 1 cold spare".to_owned(),
        replicas: 2,
        ready_replicas: 2,
        hot_backups: 1,
        ready_hot_backups: 1,
        cold_backups: 1,
        ready_cold_backups: 1,
        updated_pods: 4,
        current_revision: "r1".to_owned(),
        update_revision: "r1".to_owned(),
        collision_count: 0,
        selector: "backup.example.com/set=web,backup.example.com/role=primary".to_owned(),
        pods: TierNames {
            primaries: vec!["web-primary-0".to_owned(), "web-primary-1".to_owned()],
            hot_backups: vec!["web-hot-0".to_owned()],
            cold_backups: vec!["web-cold-0".to_owned()],
            omitted: 0,
        },
        subsets: vec![],
        conditions: vec![
            condition(
                "Ready",
                ConditionStatus::True,
                ("AsWanted", "2 of 2 primaries, 1 of 1 hot backup and 1 of 1 cold backup ready"),
            ),
            condition("Available", ConditionStatus::True, ("PrimariesServe", "2 of 2 primaries")),
            condition("Progressing", ConditionStatus::False, ("Complete", "There is nothing left to do.")),
            condition(
                "Stalled",
                ConditionStatus::False,
                ("NotStalled", "The set is as wanted, or gets closer to it."),
            ),
            condition("Degraded", ConditionStatus::False, ("AsExpected", "Nothing needs attention.")),
            condition("Paused", ConditionStatus::False, ("NotPaused", "spec.paused is false")),
            condition(
                "SurvivesNodeLoss",
                ConditionStatus::False,
                (
                    "NoBackupOutside",
                    "without node node-1 2 of 2 primaries would not come back: it takes 2 more ready backups elsewhere",
                ),
            ),
            condition(
                "SurvivesZoneLoss",
                ConditionStatus::False,
                (
                    "NoZones",
                    "No Pod is on a node with the label topology.kubernetes.io/zone, so all may be in one zone.",
                ),
            ),
        ],
        last_progress_time: None,
        last_failover: None,
        conversions: Vec::new(),
    };
    assert_eq!(status, expected);
}

/// What the situation is called, the situation, the phrase, and the gist of its conditions.
type Situation = (&'static str, Case, &'static str, [&'static str; 3]);

fn with(mut case: Case, change: fn(&mut Case)) -> Case {
    change(&mut case);
    case
}

fn starting() -> PodView {
    pod("web-a", Role::Primary, Lifecycle::Starting)
}

fn crashed(role: Role) -> PodView {
    pod("web-a", role, CRASHED)
}

fn refused(refusal: Refusal) -> Case {
    let step = create("web-b", Role::Hot, Reason::PodMissing);
    seen([1, 1, 0], full([1, 0, 0])).result(step, Outcome::Failed(refusal))
}

/// A pair whose level Pod is lost.
fn withheld() -> Case {
    with(seen([1, 1, 0], vec![crashed(Role::Hot)]).hold(Reason::NoReadyBackup, "web-a"), |case| {
        case.withheld = Some("nobody may act in web-0; bring the lost Pod back".to_owned());
    })
}

#[rustfmt::skip]
fn growing() -> Vec<Situation> {
    let scaled = with(seen([2, 0, 0], full([2, 0, 0])), |case| case.previous.observed_generation = 2);
    vec![
        ("nothing wanted", new([0, 0, 0], vec![]),
            "Ready", ["+AsWanted", "-Complete", "-AsExpected"]),
        ("a new set without Pods", new([1, 0, 0], vec![]),
            "Starting", ["-PrimariesNotReady", "+Starting", "-AsExpected"]),
        ("a new set one pass later", new([1, 0, 0], vec![starting()]).next_pass(),
            "Starting", ["-PrimariesNotReady", "+Starting", "-AsExpected"]),
        ("primaries serve, hot backup starts", new([1, 1, 0], full([1, 0, 0])),
            "Starting", ["-BackupsNotReady", "+Starting", "-AsExpected"]),
        ("a count was raised", with(scaled, |case| case.snapshot.desired.replicas = 3),
            "Scaling", ["-PrimariesNotReady", "+Scaling", "-AsExpected"]),
        ("a count was lowered", with(seen([2, 0, 0], full([2, 0, 0])), |case| {
                case.previous.observed_generation = 2;
                case.snapshot.desired.replicas = 1;
            }),
            "Scaling", ["-SurplusPods", "+Scaling", "-AsExpected"]),
    ]
}

#[rustfmt::skip]
fn lost_or_outdated() -> Vec<Situation> {
    vec![
        ("a hot backup was lost", seen([1, 1, 0], full([1, 0, 0])),
            "Refilling", ["-BackupsNotReady", "+Refilling", "-AsExpected"]),
        ("the only primary was lost", seen([1, 0, 0], vec![starting()]),
            "FailingOver", ["-PrimariesNotReady", "+FailingOver", "-AsExpected"]),
        ("a primary on a lost node", seen([1, 0, 0], full([1, 0, 0]).into_iter().map(on_lost_node).collect()),
            "FailingOver", ["-PrimariesNotReady", "+FailingOver", "-AsExpected"]),
        ("a crashed primary without a backup",
            seen([1, 0, 0], vec![crashed(Role::Primary)]).hold(Reason::NoReadyBackup, "web-a"),
            "Degraded: NoReadyBackup", ["-PrimariesNotReady", "+FailingOver", "+NoReadyBackup"]),
        ("a crashed primary that is being replaced", seen([1, 1, 0], vec![crashed(Role::Primary)]),
            "FailingOver", ["-PrimariesNotReady", "+FailingOver", "+PodUnready"]),
        ("a crashed hot backup", seen([0, 1, 0], vec![crashed(Role::Hot)]),
            "Degraded: PodUnready", ["-BackupsNotReady", "+Refilling", "+PodUnready"]),
        ("a former template, all Pods ready",
            seen([1, 0, 0], full([1, 0, 0]).into_iter().map(outdated).collect()),
            "RollingOut", ["-OutdatedPods", "+RollingOut", "-AsExpected"]),
        ("a former template kept by the partition",
            with(seen([1, 0, 0], full([1, 0, 0]).into_iter().map(outdated).collect()),
                |case| case.snapshot.desired.update.partition = 1),
            "Ready", ["+AsWanted", "-Complete", "-AsExpected"]),
        ("a former template kept by the partition of a subset", in_kept_subset(1),
            "Ready", ["+AsWanted", "-Complete", "-AsExpected"]),
        ("more of a former template than the partition of a subset keeps", in_kept_subset(0),
            "RollingOut", ["-OutdatedPods", "+RollingOut", "-AsExpected"]),
    ]
}

/// A primary of a former template in a subset with this partition, which is complete else.
fn in_kept_subset(partition: usize) -> Case {
    let pods = full([1, 0, 0]).into_iter().map(outdated);
    let pods = pods.map(|view| crate::model::PodView { subset: Some(0), ..view }).collect();
    let subset = crate::model::Subset {
        name: crate::model::SubsetName("east".into()),
        replicas: 1,
        hot_backups: 0,
        cold_backups: 0,
        partition,
    };
    let mut case = seen([1, 0, 0], pods);
    case.snapshot.desired.topology.subsets = vec![subset];
    case
}

#[rustfmt::skip]
fn stopped_or_unexposed() -> Vec<Situation> {
    vec![
        ("paused while complete", with(seen([1, 0, 0], full([1, 0, 0])), |case| case.snapshot.desired.paused = true),
            "Paused", ["+AsWanted", "-Paused", "-AsExpected"]),
        ("the storm brake", with(seen([1, 0, 0], vec![]),
                |case| case.snapshot.storm = Some(crate::testing::storm(9, 10))),
            "Storm brake", ["-PrimariesNotReady", "-StormBrake", "+StormBrake"]),
        ("a quota", refused(Refusal::QuotaExceeded),
            "Refused: QuotaExceeded", ["-BackupsNotReady", "+Refilling", "+QuotaExceeded"]),
        ("a quota that was told a pass ago", refused(Refusal::QuotaExceeded).next_pass(),
            "Refused: QuotaExceeded", ["-BackupsNotReady", "+Refilling", "+QuotaExceeded"]),
        ("a slow API server", refused(Refusal::Throttled),
            "Refilling", ["-BackupsNotReady", "+Refilling", "-AsExpected"]),
        ("a specification that cannot be used",
            with(seen([1, 0, 0], full([1, 0, 0])), |case| case.invalid = Some("no containers".to_owned())),
            "Refused: InvalidSpec", ["-InvalidSpec", "-InvalidSpec", "+InvalidSpec"]),
        ("somebody else's Pod", with(seen([1, 0, 0], full([1, 0, 0])),
                |case| case.foreign_pods = vec!["intruder".to_owned()]),
            "Degraded: ForeignObject", ["+AsWanted", "-Complete", "+ForeignObject"]),
        ("a pair in which nobody may act", withheld(),
            "Degraded: Withheld", ["-PrimariesNotReady", "+FailingOver", "+Withheld"]),
        ("a pair in which nobody may act, and a quota", with(refused(Refusal::QuotaExceeded), |case| {
                case.withheld = Some("nobody may act in web-0".to_owned());
            }),
            "Refused: QuotaExceeded", ["-BackupsNotReady", "+Refilling", "+QuotaExceeded"]),
        ("a bug of a rule", seen([1, 0, 0], vec![]).hold(Reason::CheckRefused, "web-a"),
            "Degraded: CheckRefused", ["-PrimariesNotReady", "+FailingOver", "+CheckRefused"]),
        ("a Service that does not lead to the primary", with(new([1, 0, 0], full([1, 0, 0])), |case| {
                case.snapshot.exposure = Some(exposure(ObjectState::Current, vec![]));
            }),
            "Starting", ["-NotExposed", "+Starting", "-AsExpected"]),
        ("a Service that leads elsewhere, too", with(new([1, 0, 0], full([1, 0, 0])), |case| {
                let others = Others::Standing { objects: vec!["endpoints/web".to_owned()], until: at(60) };
                case.snapshot.exposure = Some(Exposure {
                    others, ..exposure(ObjectState::Current, vec![endpoint("web-primary-0")])
                });
            }),
            "Degraded: ForeignObject", ["+AsWanted", "-Complete", "+ForeignObject"]),
        ("a Service that leads to the primary", with(new([1, 0, 0], full([1, 0, 0])), |case| {
                case.snapshot.exposure = Some(exposure(ObjectState::Current, vec![endpoint("web-primary-0")]));
            }),
            "Ready", ["+AsWanted", "-Complete", "-AsExpected"]),
    ]
}

#[test]
fn each_situation_has_its_phrase_and_its_conditions() {
    for (situation, case, state, reasons) in
        growing().into_iter().chain(lost_or_outdated()).chain(stopped_or_unexposed())
    {
        let expected = (state.to_owned(), reasons.map(str::to_owned));
        assert_eq!(gist(&case), expected, "{situation}");
    }
}

#[test]
fn the_message_says_what_is_missing_and_what_is_waited_for() {
    let mut case = seen([2, 2, 1], full([1, 1, 1])).hold(Reason::AwaitingStart, "web-1a2b");
    case.snapshot.pods.push(pod("web-1a2b", Role::Hot, Lifecycle::Starting));
    let message = "1 of 2 primaries, 1 of 2 hot backups and 1 of 1 cold backup ready; \
                   hot backup web-1a2b is starting; 1 primary does not exist yet; \
                   on hold, AwaitingStart: A Pod does not run yet";
    let status = case.compute();
    assert_eq!(said(&status, "Ready").message, message);
    assert_eq!(said(&status, "Progressing").message, message);
}

#[test]
fn a_cold_backup_whose_keys_are_gone_is_not_available() {
    let mut case = seen([1, 0, 1], full([1, 0, 1])).hold(Reason::StormBrake, "web-cold-0");
    let is_cold = |view: &&mut PodView| view.role == Role::Cold;
    case.snapshot.pods.iter_mut().find(is_cold).unwrap().has_known_key = false;
    let status = case.compute();
    assert_eq!(status.ready_cold_backups, 0);
    let message = &said(&status, "Progressing").message;
    let expected = "cold backup web-cold-0 waits at a gate that no key opens any more";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn a_refusal_quotes_the_server_and_says_what_to_do() {
    let step = create("web-b", Role::Hot, Reason::PodMissing);
    let case = seen([1, 1, 0], full([1, 0, 0])).result(step, Outcome::Failed(Refusal::QuotaExceeded));
    assert_eq!(
        said(&case.compute(), "Degraded").message,
        "create hot backup web-b: the server says no; raise the ResourceQuota of the namespace or lower the \
         counts of the set"
    );
}

#[test]
fn a_long_quote_is_cut() {
    let step = create("web-b", Role::Hot, Reason::PodMissing);
    let mut case = seen([1, 1, 0], full([1, 0, 0])).result(step, Outcome::Failed(Refusal::Invalid));
    case.results[0].message = Some("ü".repeat(5_000));
    let expected = format!(
        "create hot backup web-b: {}...; correct spec.template as the message says",
        "ü".repeat(1_021)
    );
    assert_eq!(said(&case.compute(), "Degraded").message, expected);
}

#[test]
fn a_pair_in_which_nobody_may_act_is_told_in_the_words_of_its_group() {
    let message = "nobody may act in web-0; bring the lost Pod back";
    let expected = condition("Degraded", ConditionStatus::True, ("Withheld", message));
    assert_eq!(
        *said(&withheld().compute(), "Degraded"),
        Condition { last_transition_time: Time(at(10)), ..expected }
    );
    let mut long = withheld();
    long.withheld = Some("ü".repeat(5_000));
    assert_eq!(said(&long.compute(), "Degraded").message, format!("{}...", "ü".repeat(1_021)));
}

#[test]
fn a_refusal_stands_until_the_step_is_done() {
    let step = create("web-b", Role::Hot, Reason::PodMissing);
    let refused =
        seen([1, 1, 0], full([1, 0, 0])).result(step.clone(), Outcome::Failed(Refusal::QuotaExceeded));
    let mut done = refused.next_pass();
    done.plan.steps.clear();
    let done = done.result(step, Outcome::Done);
    assert!(words(&done.compute()).contains(&"Degraded=False AsExpected".to_owned()));
}

#[test]
fn a_transition_time_changes_only_when_the_condition_flips() {
    let lost = seen([1, 1, 0], full([1, 0, 0])).later(10).next_pass();
    let times = |status: &BackupPodSetStatus| -> Vec<i64> {
        let second = |condition: &Condition| condition.last_transition_time.0.as_second() - at(0).as_second();
        status.conditions.iter().map(second).collect()
    };
    assert_eq!(times(&lost.previous), [10, 0, 10, 0, 0, 0, 0, 0]);
    let back = Case { snapshot: lost.snapshot.clone(), ..lost }.later(20);
    assert_eq!(times(&back.compute()), [10, 0, 10, 0, 0, 0, 0, 0]);
}

#[test]
fn names_beyond_the_bound_are_counted_and_not_listed() {
    let pods = (0..53).map(|index| available(&format!("web-{index:02}"), Role::Primary)).collect();
    let status = new([53, 0, 0], pods).compute();
    assert_eq!((status.replicas, status.pods.primaries.len(), status.pods.omitted), (53, 50, 3));
    assert_eq!(status.pods.primaries.last().map(String::as_str), Some("web-49"));
}

#[test]
fn pods_that_leave_or_are_out_of_reach_are_not_counted() {
    let pods = vec![
        pod("web-a", Role::Primary, Lifecycle::Terminating),
        pod("web-b", Role::Primary, Lifecycle::Finished),
        on_lost_node(available("web-c", Role::Primary)),
        available("web-d", Role::Primary),
    ];
    let status = new([1, 0, 0], pods).compute();
    assert_eq!(
        (status.replicas, status.ready_replicas, status.pods.primaries),
        (1, 1, vec!["web-d".to_owned()])
    );
}

#[test]
fn a_taken_name_raises_the_collision_count_once_per_pass() {
    let taken = Outcome::Failed(Refusal::NameTaken);
    let case = new([2, 0, 0], vec![])
        .result(create("web-a", Role::Primary, Reason::ScaledOut), taken)
        .result(create("web-b", Role::Primary, Reason::ScaledOut), taken);
    assert_eq!(case.compute().collision_count, 1);
    assert_eq!(case.next_pass().compute().collision_count, 1);
}

#[test]
fn a_rollout_is_called_so_until_its_last_pod_is_in_place() {
    let outdated_pods = full([1, 1, 0]).into_iter().map(outdated).collect();
    let mut case = seen([1, 1, 0], outdated_pods).next_pass();
    case.snapshot.pods = full([1, 0, 0]);
    case.snapshot.pods.push(pod("web-z", Role::Hot, Lifecycle::Starting));
    assert_eq!(case.compute().state, "RollingOut");
    assert_eq!(case.snapshot.desired.revision, Revision("r1".to_owned()));
}
