//! Failure domains: where the two Pods of a pair are, which loss a set would not outlive, and the shares of subsets of the nodes.

use std::collections::BTreeSet;

use bps_api::{Condition, ConditionStatus, HAGroup};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::pairs::{self, first_reported, paired, shown};
use crate::stage::{Counts, ROLES, Stage, WEB, complete, exposed_web, node, one, uids, web};
use crate::wait::{self, is_available};

/// Label by which two of the three nodes fail together; nothing else of the claims looks at it.
const RACK: &str = "lab.backup.example.com/rack";

/// Puts the first two nodes into one rack, and the third into another one.
async fn build_racks(stage: &Stage) {
    let nodes: Api<Node> = Api::all(stage.client());
    for (node, rack) in [("n1", "east"), ("n2", "east"), ("n3", "west")] {
        let labels = json!({"metadata": {"labels": {(RACK): rack}}});
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    }
}

pub(crate) async fn a_pair_has_its_pods_in_two_domains_or_no_standby_if_its_group_says_so(stage: Stage) {
    build_racks(&stage).await;
    pairs::start_pods_on(&stage, &["n1", "n2"], json!({"key": RACK, "standby": "Required"})).await;
    let alone = first_reported(&stage, |pair| pair.state == "Alone").await;
    wait::until(stage.api(), "", |groups: &[HAGroup]| {
        let status = groups.first().and_then(|group| group.status.clone()).unwrap_or_default();
        let told = |condition: &Condition| condition.message.contains("in the failure domain of its active");
        let is_told = status.conditions.iter().any(told) && status.spares.len() == 1;
        if is_told { Ok(()) } else { Err(format!("{:?}, spares {:?}", status.conditions, status.spares)) }
    })
    .await;

    pairs::start_pod_on(&stage, "n3", 2).await;
    let pair = paired(&stage, 1).await.remove(0);
    assert_eq!((&pair.active, pair.standby.as_str()), (&alone.active, "web-2"));
    shown(&stage, &pair).await;
}

pub(crate) async fn a_set_says_which_loss_it_would_not_outlive(stage: Stage) {
    let mut pinned = web([1, 1, 0]);
    pinned["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n1"});
    stage.apply(&pinned).await;
    stage.pods(WEB, [1, 1, 0]).await;
    let message = lacking(&stage, "SurvivesNodeLoss").await;
    let expected =
        "without node n1 1 of 1 primaries would not come back: it takes 1 more ready backup elsewhere";
    assert_eq!(message, expected);

    // The rollout makes each Pod anew, and the scheduler spreads them.
    stage.change(json!({"template": {"spec": {"nodeSelector": null}}})).await;
    let message = stage.condition(WEB, ("SurvivesNodeLoss", "ByHot")).await;
    stage.condition(WEB, ("SurvivesZoneLoss", "ByHot")).await;
    let pods = stage.settled(WEB, [1, 1, 0]).await;
    let node = node(one(&pods, "primary"));
    assert_eq!(message, format!("the worst loss is that of node {node}: 1 of 1 primaries, all replaced"));
    stage
        .reports(WEB, |set| {
            let survives = set.status.clone().unwrap_or_default().summary.survives;
            if survives == "node,zone" { Ok(()) } else { Err(format!("it survives {survives:?}")) }
        })
        .await;
}

/// Waits until this condition does not hold because there is no backup elsewhere; returns its message.
async fn lacking(stage: &Stage, kind: &str) -> String {
    wait::until(stage.api(), "", |sets: &[bps_api::BackupPodSet]| {
        let set = sets.iter().find(|set| set.name_any() == WEB).ok_or("there is no such set")?;
        let conditions = set.status.clone().unwrap_or_default().conditions;
        let found = conditions.iter().find(|condition| {
            condition.r#type == kind
                && condition.status == ConditionStatus::False
                && condition.reason == "NoBackupOutside"
                && condition.message.starts_with("without")
        });
        found.map(|condition| condition.message.clone()).ok_or_else(|| format!("{conditions:?}"))
    })
    .await
}

/// What a node's subset is to have: primaries, hot and cold backups.
struct Share {
    node: &'static str,
    counts: Counts,
}

/// Subsets of one node each.
fn subsets(shares: &[Share]) -> Value {
    let subset = |Share { node, counts: [replicas, hot, cold] }: &Share| {
        let is_it = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        json!({
            "name": node, "nodeSelectorTerm": {"matchExpressions": [is_it]},
            "replicas": replicas, "hotBackups": hot, "coldBackups": cold,
        })
    };
    shares.iter().map(subset).collect()
}

/// Waits until each node has its share of the set's Pods, all available, and no other; returns the Pods.
async fn shared_out(stage: &Stage, shares: &[Share]) -> Vec<Pod> {
    let total = |tier: usize| shares.iter().map(|share| share.counts[tier]).sum();
    stage
        .pods_where(WEB, |pods| {
            complete(pods, [total(0), total(1), total(2)])?;
            for share in shares {
                let has = ROLES.map(|role| {
                    pods.iter().filter(|pod| node(pod) == share.node && wait::role(pod) == role).count()
                });
                if has != share.counts {
                    return Err(format!("{} has {has:?} of {:?}", share.node, share.counts));
                }
            }
            Ok(())
        })
        .await
}

pub(crate) async fn primaries_return_to_their_subset_by_a_swap_of_roles(stage: Stage) {
    let shares = [Share { node: "n1", counts: [1, 0, 0] }, Share { node: "n2", counts: [1, 1, 0] }];
    let mut set = exposed_web([2, 1, 0]);
    set["spec"]["topology"] = json!({"subsets": subsets(&shares)});
    stage.apply(&set).await;
    let before = shared_out(&stage, &shares).await;
    let lost = before.iter().find(|pod| node(pod) == "n1").expect("a primary");

    // The hot backup of n2 takes over, and the Pod that replaces it is made where one is missing.
    stage.delete(lost).await;
    let after = shared_out(&stage, &shares).await;
    let on_n2 = |pods: &[Pod]| -> BTreeSet<String> {
        pods.iter().filter(|pod| node(pod) == "n2").map(|pod| pod.uid().expect("an uid")).collect()
    };
    assert_eq!(on_n2(&after), on_n2(&before), "Pods of n2 were replaced");
    assert!(after.iter().all(|pod| pod.name_any() != lost.name_any()));
    stage
        .reports(WEB, |set| {
            let status = set.status.clone().unwrap_or_default();
            let told =
                status.subsets.iter().map(|subset| (subset.replicas.as_str(), subset.hot_backups.as_str()));
            let told: Vec<_> = told.collect();
            let reasons: BTreeSet<&str> = status.conversions.iter().map(|one| one.reason.as_str()).collect();
            let is_told = told == [("1/1", "0/0"), ("1/1", "1/1")] && reasons.contains("Rebalanced");
            if is_told { Ok(()) } else { Err(format!("{told:?}, {reasons:?}")) }
        })
        .await;

    // The shares change: the backup is recreated, and no primary moves.
    let shares = [Share { node: "n1", counts: [1, 1, 0] }, Share { node: "n2", counts: [1, 0, 0] }];
    stage.change(json!({"topology": {"subsets": subsets(&shares)}})).await;
    let moved = shared_out(&stage, &shares).await;
    assert_eq!(uids(&moved, "primary"), uids(&after, "primary"));
}

/// In the cluster of the claims each node is a zone.
pub(crate) async fn the_other_zones_fill_in_for_a_lost_one_until_it_returns(stage: Stage) {
    let shares = [
        Share { node: "n1", counts: [1, 0, 0] },
        Share { node: "n2", counts: [1, 1, 0] },
        Share { node: "n3", counts: [0, 0, 1] },
    ];
    let adaptive = json!({"type": "Adaptive", "adaptive": {"rescheduleCriticalSeconds": 5}});
    let mut set = exposed_web([2, 1, 1]);
    set["spec"]["topology"] = json!({"subsets": subsets(&shares), "scheduleStrategy": adaptive});
    stage.apply(&set).await;
    let before = shared_out(&stage, &shares).await;
    // The worst is that of n2, with a primary and the hot backup.
    stage.condition(WEB, ("SurvivesZoneLoss", "ByCold")).await;

    stage.bench.cluster.power_off("n1").unwrap();
    let elsewhere = |pod: &&Pod| is_available(pod) && node(pod) != "n1";
    stage
        .pods_where(WEB, |pods| {
            let has =
                ROLES.map(|role| pods.iter().filter(elsewhere).filter(|pod| wait::role(pod) == role).count());
            if has == [2, 1, 1] { Ok(()) } else { Err(format!("n2 and n3 have {has:?}")) }
        })
        .await;
    // What was made for the lost zone waits for it, and is reported.
    stage
        .reports(WEB, |set| {
            let subsets = set.status.clone().unwrap_or_default().subsets;
            let waiting: Vec<i32> = subsets.iter().map(|subset| subset.waiting).collect();
            if waiting == [1, 0, 0] { Ok(()) } else { Err(format!("waiting: {waiting:?}")) }
        })
        .await;

    stage.bench.cluster.power_on("n1").unwrap();
    let after = shared_out(&stage, &shares).await;
    let survivors = |pods: &[Pod]| -> BTreeSet<String> {
        pods.iter().filter(|pod| node(pod) == "n2").map(|pod| pod.uid().expect("an uid")).collect()
    };
    assert_eq!(survivors(&after), survivors(&before), "Pods that were never lost were replaced");
}
