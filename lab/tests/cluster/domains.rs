//! Failure domains: where the two Pods of a pair are, and which loss a set would not outlive.

use bps_api::{Condition, ConditionStatus, HAGroup};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::pairs::{self, first_reported, paired, shown};
use crate::stage::{Stage, WEB, one, web};
use crate::wait;

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
    let node = crate::stage::node(one(&pods, "primary"));
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
