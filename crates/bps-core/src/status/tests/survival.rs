//! Whether a set outlives the loss of a node or a zone.

use crate::model::{NodeHealth, NodeName, NodeView, ObjectState, Part, PodName, PodView, Role};
use crate::status::testing::{Case, available, new};

/// An available Pod on this node; those whose names begin with the same letter are in one zone.
fn on(node: &str, name: &str, role: Role) -> PodView {
    let zone = Some(format!("zone-{}", &node[..1]));
    let node =
        Some(NodeView { name: NodeName(node.to_owned()), zone, domain: None, health: NodeHealth::Healthy });
    PodView { node, ..available(name, role) }
}

/// A pair whose active and standby are on these nodes.
fn pair([active, standby]: [&str; 2]) -> Vec<PodView> {
    let peer = |name: &str| Some(PodName(name.to_owned()));
    vec![
        PodView { part: Part::Active { peer: peer("one") }, ..on(active, "zero", Role::Primary) },
        PodView {
            part: Part::Standby { peers: peer("zero").into_iter().collect() },
            ..on(standby, "one", Role::Hot)
        },
    ]
}

fn paired(pods: Vec<PodView>, level: Option<&[&str]>) -> Case {
    let mut case = new([1, 1, 0], pods);
    case.snapshot.group = Some(ObjectState::Current);
    case.snapshot.level = level.map(|names| names.iter().map(|name| PodName((*name).to_owned())).collect());
    case
}

/// Reasons of the conditions about nodes and zones, `+` in front if they hold; and the column.
fn told(case: &Case) -> (String, String, String) {
    let status = case.compute();
    let reason = |kind: &str| {
        let found =
            status.conditions.iter().find(|condition| condition.r#type == kind).expect("the condition");
        let sign = if found.status == true.into() { '+' } else { '-' };
        format!("{sign}{}", found.reason)
    };
    (reason("SurvivesNodeLoss"), reason("SurvivesZoneLoss"), status.summary.survives.clone())
}

#[test]
fn a_set_outlives_a_loss_if_enough_is_ready_elsewhere() {
    let primary = |node: &str| on(node, &format!("primary-{node}"), Role::Primary);
    let hot = |node: &str| on(node, &format!("hot-{node}"), Role::Hot);
    let cold = |node: &str| on(node, &format!("cold-{node}"), Role::Cold);
    let mut paused = new([1, 1, 0], vec![primary("a1"), hot("b1")]);
    paused.snapshot.desired.paused = true;
    let mut unlabelled = new([1, 1, 0], vec![primary("a1"), hot("b1")]);
    for node in unlabelled.snapshot.pods.iter_mut().filter_map(|view| view.node.as_mut()) {
        node.zone = None;
    }
    let cases = [
        (
            "a hot backup in another zone",
            new([1, 1, 0], vec![primary("a1"), hot("b1")]),
            "+ByHot",
            "+ByHot",
            "node,zone",
        ),
        (
            "on another node of the zone",
            new([1, 1, 0], vec![primary("a1"), hot("a2")]),
            "+ByHot",
            "-NoBackupOutside",
            "node",
        ),
        (
            "on the same node",
            new([1, 1, 0], vec![primary("a1"), hot("a1")]),
            "-NoBackupOutside",
            "-NoBackupOutside",
            "none",
        ),
        (
            "a cold one in another zone",
            new([1, 0, 1], vec![primary("a1"), cold("b1")]),
            "+ByCold",
            "+ByCold",
            "node,zone",
        ),
        (
            "a hot and a cold one for two",
            new([2, 1, 1], vec![primary("a1"), primary("a2"), hot("b1"), cold("b2")]),
            "+ByHot",
            "+ByCold",
            "node,zone",
        ),
        (
            "the backup beside one of two",
            new([2, 1, 0], vec![primary("a1"), primary("b1"), hot("a1")]),
            "-NoBackupOutside",
            "-NoBackupOutside",
            "none",
        ),
        (
            "more primaries than wanted",
            new([1, 0, 0], vec![primary("a1"), primary("b1")]),
            "+ByHot",
            "+ByHot",
            "node,zone",
        ),
        (
            "no primary is wanted",
            new([0, 1, 0], vec![hot("a1")]),
            "+NoPrimariesWanted",
            "+NoPrimariesWanted",
            "node,zone",
        ),
        ("nothing is there", new([1, 1, 0], vec![]), "-NoBackupOutside", "-NoZones", "none"),
        ("it only watches", paused, "-Paused", "-Paused", "none"),
        ("no node has a zone", unlabelled, "+ByHot", "-NoZones", "node"),
    ];
    for (name, case, node, zone, column) in cases {
        assert_eq!(told(&case), (node.to_owned(), zone.to_owned(), column.to_owned()), "{name}");
    }
}

#[test]
fn a_pair_outlives_a_loss_if_its_standby_is_elsewhere_and_in_sync() {
    let alone = || vec![PodView { part: Part::Active { peer: None }, ..on("a1", "zero", Role::Primary) }];
    let spare = || on("b1", "two", Role::Hot);
    let with_spare = |mut pods: Vec<PodView>| {
        pods.push(spare());
        pods
    };
    let mut paused = paired(pair(["a1", "b1"]), None);
    paused.snapshot.desired.paused = true;
    let cases = [
        ("apart", paired(pair(["a1", "b1"]), None), "+ByHot", "+ByHot"),
        ("apart, and in sync", paired(pair(["a1", "b1"]), Some(&["zero"])), "+ByHot", "+ByHot"),
        ("apart, and not in sync", paired(pair(["a1", "b1"]), Some(&[])), "-NotInSync", "-NotInSync"),
        ("in one zone", paired(pair(["a1", "a2"]), None), "+ByHot", "-StandbyInSameDomain"),
        (
            "on one node, beside a spare",
            paired(with_spare(pair(["a1", "a1"])), None),
            "-StandbyInSameDomain",
            "-StandbyInSameDomain",
        ),
        (
            "alone with state, beside a spare",
            paired(with_spare(alone()), Some(&[])),
            "-NotInSync",
            "-NotInSync",
        ),
        ("alone without state, beside a spare", paired(with_spare(alone()), None), "+ByHot", "+ByHot"),
        ("failovers go on in a pause", paused, "+ByHot", "+ByHot"),
    ];
    for (name, case, node, zone) in cases {
        let (of_nodes, of_zones, _) = told(&case);
        assert_eq!([of_nodes, of_zones], [node, zone].map(str::to_owned), "{name}");
    }
}

#[test]
fn the_message_names_the_worst_domain_and_what_is_missing() {
    let primary = |node: &str| on(node, &format!("primary-{node}"), Role::Primary);
    let message = |case: &Case, kind: &str| {
        let conditions = case.compute().conditions;
        conditions.into_iter().find(|condition| condition.r#type == kind).expect("the condition").message
    };
    let lacking =
        new([3, 1, 0], vec![primary("a1"), primary("a2"), primary("b1"), on("c1", "hot", Role::Hot)]);
    assert_eq!(
        message(&lacking, "SurvivesZoneLoss"),
        "without zone zone-a 1 of 3 primaries would not come back: it takes 1 more ready backup elsewhere"
    );
    assert_eq!(
        message(&lacking, "SurvivesNodeLoss"),
        "the worst loss is that of node a1: 1 of 3 primaries, all replaced"
    );
    let woken = new([1, 0, 1], vec![primary("a1"), on("b1", "cold", Role::Cold)]);
    assert_eq!(
        message(&woken, "SurvivesNodeLoss"),
        "the worst loss is that of node a1: 1 of 1 primaries, all replaced, 1 by a cold backup that is woken"
    );
    assert_eq!(
        message(&paired(pair(["a1", "a1"]), None), "SurvivesNodeLoss"),
        "without node a1 1 of 1 primaries would not come back: both Pods of 1 pair are there"
    );
}

#[test]
fn a_standby_follows_one_of_the_primaries_that_are_lost_together() {
    let active = |node: &str, name: &str| {
        let peer = Some(PodName("shared".to_owned()));
        PodView { part: Part::Active { peer }, ..on(node, name, Role::Primary) }
    };
    let standby = || {
        let peers = ["one", "two"].map(|peer| PodName(peer.to_owned())).to_vec();
        PodView { part: Part::Standby { peers }, ..on("c1", "shared", Role::Hot) }
    };
    let case = |second: &str| {
        let mut case = new([2, 1, 0], vec![active("a1", "one"), active(second, "two"), standby()]);
        (case.snapshot.group, case.snapshot.desired.standby_for) = (Some(ObjectState::Current), 2);
        case
    };
    let told = |second: &str| told(&case(second)).2;
    assert_eq!(told("b1"), "node,zone");
    assert_eq!(told("a2"), "node");
    assert_eq!(told("a1"), "none");
    // It hands over to a cold backup that is woken, and acts for the other one next. In a pause no Pod is told to.
    let mut freed = case("a1");
    freed.snapshot.pods.push(on("c2", "cold", Role::Cold));
    assert_eq!(self::told(&freed).0, "+ByCold");
    freed.snapshot.desired.paused = true;
    assert_eq!(self::told(&freed).0, "-StandbyShared");
    let status = case("a1").compute();
    let node = status.conditions.iter().find(|condition| condition.r#type == "SurvivesNodeLoss");
    let node = node.expect("the condition");
    assert_eq!(node.reason, "StandbyShared");
    assert!(node.message.contains("1 of 2 primaries would not come back"), "{}", node.message);
}
