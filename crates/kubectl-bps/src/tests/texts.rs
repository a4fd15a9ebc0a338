//! What a person reads.

use bps_api::{BackupPodSetStatus, RedundancyModel, keys};
use bps_observe::slim::SlimNode;
use bps_observe::testing::{group, lease, objects, set, set_pod, slice};
use bps_protocol::{AgentId, BootTime, Epoch};
use bps_wire::uid::format_uid;
use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::cluster::SetObjects;
use crate::domains::{Grouping, domains};
use crate::history;
use crate::pair::pair_now;
use crate::plan::{of_group, of_set};
use crate::report::{Readiness, Report, group_report, set_report};
use crate::status::text;

pub(super) fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("a time")
}

#[test]
fn a_group_is_a_tree_of_pairs_and_pods() {
    let fenced = format_uid(2);
    let objects = objects(&[1, 2, 3], lease(&[(keys::ANNOTATION_HA_FENCED, &fenced)]), None);
    let report = Report { groups: vec![group_report(&group(), &objects)], sets: vec![] };
    let expected = "\
NAME              STATE             NODE     READY   EPOCH
HAGroup one/web   Ready
├─ pair web-0     Fenced                             3.0
│  ├─ web-1       active            node-1   no
│  └─ web-2       standby, fenced   node-2   yes
└─ spares         1
   └─ web-3       spare             node-3   yes

  CONDITION   STATUS   REASON   MESSAGE
  Ready       True     Paired   1 of 1 pairs have an active and a standby

  TIME                       PAIR    FROM    TO      EPOCH   BY         REASON
  2026-01-02T03:04:05.678Z   web-0   web-1   web-0   3.1     Handover   ApplicationEnded
";
    assert_eq!(text(&report, now()), expected);
}

#[test]
fn a_pair_whose_state_is_replicated_says_whether_its_standby_has_it() {
    let said = |pods: &[u32], level: &str, lag: &str| {
        let told = [(keys::ANNOTATION_HA_IN_SYNC, level), (keys::ANNOTATION_HA_LAG, lag)];
        let objects = objects(pods, lease(&told), None);
        let report = Report { groups: vec![group_report(&group(), &objects)], sets: vec![] };
        text(&report, now()).lines().find(|line| line.contains("pair web-0")).map(str::to_owned)
    };
    let lag = r#"{"entries":1204,"bytes":73400320,"since":"2027-01-15T07:59:23Z"}"#;
    let blocked =
        r#"{"entries":0,"bytes":0,"since":"2027-01-15T07:59:23Z","reason":"Unreplicable","path":"a/b"}"#;
    for (pods, level, lag, expected) in [
        (&[1, 2][..], "a,b", lag, "Paired, InSync"),
        (&[1, 2], "a", lag, "Paired, CatchingUp (1,204 entries, 37 s)"),
        (&[1, 2], "a", blocked, "Paired, CatchingUp (0 entries, 37 s, Unreplicable a/b)"),
        (&[1, 2], "a", "{}", "Paired, CatchingUp  "),
        (&[1], "a", lag, "Alone, Alone"),
    ] {
        let line = said(pods, level, lag).expect("the pair is shown");
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn a_pod_that_is_gone_is_shown_as_long_as_a_lease_names_it() {
    let objects = objects(&[1], lease(&[]), None);
    let report = group_report(&group(), &objects);
    let pods: Vec<(&str, &str, bool)> = report.pairs[0]
        .pods
        .iter()
        .map(|pod| (pod.name.as_str(), pod.part.as_str(), pod.readiness == Readiness::Gone))
        .collect();
    assert_eq!(pods, [("web-1", "active", false), ("web-2", "standby", true)]);
    assert_eq!(report.pairs[0].state, "Alone");
}

#[test]
fn a_set_is_a_tree_of_tiers_and_pods() {
    let pods = [set_pod(2, "primary"), set_pod(3, "hot")];
    let report = Report { groups: vec![], sets: vec![set_report(&set(), &pods, &[])] };
    let expected = "\
NAME                   STATE     NODE     READY
BackupPodSet one/web   Ready
├─ primary             1 of 1
│  └─ web-2            primary   node-2   yes
└─ hot                 1 of 1
   └─ web-3            hot       node-3   yes
";
    assert_eq!(text(&report, now()), expected);
}

#[test]
fn a_set_says_what_its_counts_amount_to_and_what_it_promises() {
    let shown = |promised: Option<RedundancyModel>| {
        let mut set = set();
        set.spec.redundancy_model = promised;
        set.status.as_mut().expect("a status").redundancy = "N+M 1+1".to_owned();
        text(&Report { groups: vec![], sets: vec![set_report(&set, &[], &[])] }, now())
    };
    let expected = "\
NAME                   STATE    NODE   READY
BackupPodSet one/web   Ready
├─ primary             0 of 1
└─ hot                 0 of 1

  Redundancy: N+M 1+1 (promised: NPlusM)
";
    assert_eq!(shown(Some(RedundancyModel::NPlusM)), expected);
    assert!(shown(None).ends_with("\n  Redundancy: N+M 1+1\n"));
}

#[test]
fn a_set_is_a_tree_of_domains_if_that_is_asked_for() {
    let mut pods = [set_pod(2, "primary"), set_pod(3, "hot"), set_pod(4, "cold")];
    pods[0].labels_mut().insert(keys::LABEL_SUBSET.to_owned(), "cheap".to_owned());
    pods[2].spec.node_name = None;
    let node = |number: u32, zone: &str| -> SlimNode {
        let labels = json!({"topology.kubernetes.io/zone": zone});
        let metadata = json!({"name": format!("node-{number}"), "labels": labels});
        serde_json::from_value(json!({"metadata": metadata, "spec": {}, "status": {}})).expect("a node")
    };
    let nodes = [node(2, "west"), node(3, "east")];
    let shown = |by: &str| {
        let mut report = set_report(&set(), &pods, &[]);
        report.domains = domains(&report, &pods, &nodes, &Grouping::parse(by));
        text(&Report { groups: vec![], sets: vec![report] }, now())
    };
    let expected = "\
NAME                   STATE                                       NODE     READY
BackupPodSet one/web   Ready
├─ zone east           0 primaries, 1 hot backup, 0 cold backups
│  └─ web-3            hot                                         node-3   yes
├─ zone west           1 primary, 0 hot backups, 0 cold backups
│  └─ web-2            primary                                     node-2   yes
└─ no zone             0 primaries, 0 hot backups, 1 cold backup
   └─ web-4            cold                                        -        yes
";
    assert_eq!(shown("zone"), expected);
    let has = |by: &str, line: &str| shown(by).lines().any(|shown| shown.contains(line));
    assert!(has("subset", "subset cheap"));
    assert!(has("subset", "no subset"));
    assert!(has("node", "node node-3"));
    assert!(has("rack", "no rack"));
}

#[test]
fn a_budget_that_counts_otherwise_than_it_seems_is_warned_of() {
    let warned = |namespace: &str, spec: Value| {
        let metadata = json!({"name": "mine", "namespace": namespace});
        let budget: PodDisruptionBudget =
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a budget");
        let report = Report { groups: vec![], sets: vec![set_report(&set(), &[], &[budget])] };
        text(&report, now()).contains("\n  Warning: PodDisruptionBudget mine counts from spec.replicas (1)")
    };
    let share = json!({"maxUnavailable": "50%", "selector": {}});
    assert!(warned("one", share.clone()));
    assert!(!warned("two", share), "of another namespace");
    assert!(!warned("one", json!({"minAvailable": 1, "selector": {}})));
}

#[test]
fn a_plan_has_a_budget_only_if_budgets_may_be_listed() {
    let plan = |budgets: Option<Vec<PodDisruptionBudget>>| {
        let pods = vec![set_pod(2, "primary"), set_pod(3, "hot")];
        of_set(set(), SetObjects { pods, budgets, ..SetObjects::default() }, now()).text()
    };
    assert!(plan(Some(vec![])).contains("write the PodDisruptionBudget"), "{}", plan(Some(vec![])));
    let blind = plan(None);
    assert!(
        !blind.contains("write the PodDisruptionBudget") && blind.contains("which you may not list"),
        "{blind}"
    );
}

#[test]
fn the_slice_knows_of_a_handover_before_the_lease_does() {
    let now = |slice: Option<EndpointSlice>| {
        let pair = pair_now(&lease(&[]), slice.as_ref()).expect("a pair");
        (pair.active, pair.epoch)
    };
    let (handed_over, held) = (Epoch { term: 3, sequence: 1 }, Epoch { term: 3, sequence: 0 });
    assert_eq!(now(None), (Some(AgentId(1)), held));
    assert_eq!(now(Some(slice(handed_over.into(), 2))), (Some(AgentId(2)), handed_over));
    let older = Epoch { term: 2, sequence: 9 };
    assert_eq!(now(Some(slice(older.into(), 2))), (Some(AgentId(1)), held));
}

#[test]
fn a_plan_says_what_is_done_what_is_waited_for_and_what_is_not_known() {
    let plan = of_group(&group(), &objects(&[2, 3], lease(&[]), None), BootTime::default()).text();
    let expected = "\
HAGroup one/web

It would now:
  - ask the active of web-0 to admit web-3 in the place of web-1 (MemberGone: A member of the pair is gone or goes.)
  - label web-2 as standby (PartChanged: The labels of a Pod do not say its part in its pair.)

Not known from outside:
  - whether its writes are refused; the condition Degraded tells
  - what is wrong with Services, EndpointSlices, keys and permissions, which it corrects beside the plan
  - which nodes are about to be taken away: an active on one of them hands over
";
    assert_eq!(plan, expected);
}

#[test]
fn a_plan_is_an_object_for_programs() {
    let mut group = group();
    group.spec.paused = true;
    let plan = of_group(&group, &objects(&[1, 2], lease(&[]), None), BootTime::default());
    let mut object = serde_json::to_value(&plan).expect("an object");
    assert_eq!(object["unknown"].take().as_array().map(Vec::len), Some(3));
    let expected = json!({
        "kind": "HAGroup", "namespace": "one", "name": "web", "steps": [], "later": [], "holds": [], "unknown": null,
        "waits": ["the group is paused"],
    });
    assert_eq!(object, expected);
}

#[test]
fn a_plan_counts_with_the_times_of_its_group() {
    let look_again = |hold: i64| {
        let mut group = group();
        group.spec.timing =
            serde_json::from_value(json!({"holdMilliseconds": hold, "watchMilliseconds": hold + 100}))
                .expect("times");
        let acknowledged = format_uid(1);
        let level =
            [(keys::ANNOTATION_HA_IN_SYNC, "a"), (keys::ANNOTATION_HA_IN_SYNC_PODS, acknowledged.as_str())];
        let objects = objects(&[2], lease(&level), None);
        of_group(&group, &objects, BootTime::default()).look_again_seconds
    };
    assert!(look_again(2_000) < look_again(8_000), "{:?}", look_again(8_000));
}

#[test]
fn a_paused_group_waits() {
    let mut group = group();
    group.spec.paused = true;
    let plan = of_group(&group, &objects(&[1, 2], lease(&[]), None), BootTime::default()).text();
    assert!(plan.starts_with("HAGroup one/web\n\nIt waits:\n  - the group is paused\n"), "{plan}");
}

#[test]
fn a_set_without_a_hot_backup_gets_one() {
    let objects = SetObjects { pods: vec![set_pod(2, "primary")], ..SetObjects::default() };
    let plan = of_set(set(), objects, now()).text();
    assert!(plan.contains("as hot (ScaledOut: More Pods of a role are wanted than there are.)"), "{plan}");
    assert!(plan.contains("the nodes, which you may not list"), "{plan}");
}

#[test]
fn history_is_a_table() {
    let status = group().status.expect("a status");
    let expected = "\
TIME                       PAIR    FROM    TO      EPOCH   BY         REASON
2026-01-02T03:04:05.678Z   web-0   web-1   web-0   3.1     Handover   ApplicationEnded

TIME                       TO      DETECTED   FENCED   LEASE   PROMOTED   PUBLISHED   REPAIRED
2026-01-02T03:04:05.678Z   web-0   0 ms       1 ms     3 ms    5 ms       24 ms       61 ms
";
    assert_eq!(history::of_group("web", &status), expected);
    assert_eq!(
        history::of_set("web", &BackupPodSetStatus::default()),
        "BackupPodSet web: no Pod was converted.\n"
    );
}
