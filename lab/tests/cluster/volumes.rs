//! The claim about replicated state in volumes that outlive Pods: who comes back with a whole copy acts with it, and nobody else.

use bps_api::PairStatus;
use bps_protocol::AgentId;
use bps_wire::uid::parse_uid;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;

use crate::pairs::{first_paired, first_reported, record_of};
use crate::replication::{
    Keeping, counts_on, is_gone, leave_out, level, nothing_is_lost, start, start_client,
};
use crate::stage::Stage;
use crate::wait;

/// How often the only Pod with a whole copy is lost.
const LOSSES: usize = 2;

pub(crate) async fn pods_that_come_back_with_their_volumes_have_every_acknowledged_increment(stage: Stage) {
    start(&stage, Keeping::InVolumes).await;
    let pair = first_paired(&stage).await;
    level(&stage, &pair, |names| names.len() == 2).await;
    let client = start_client(&stage).await;
    counts_on(&stage).await;
    let before = [delete(&stage, &pair.active).await, delete(&stage, &pair.standby).await];
    for pod in &before {
        is_gone(&stage, pod).await;
    }
    counts_on(&stage).await;
    // The Lease was made again. If it had named one directory at the end, the other one has another number now.
    let pair = first_paired(&stage).await;
    let both = level(&stage, &pair, |names| names.len() == 2).await;

    for _ in 0..LOSSES {
        let pair = first_paired(&stage).await;
        level(&stage, &pair, |names| *names == both).await;
        let (standby, alone) = leave_out(&stage, &pair).await;
        let lost = delete(&stage, &pair.active).await;
        is_gone(&stage, &lost).await;
        // It lacks what was acknowledged without it, and waits for who has that.
        stage.bench.cluster.resume(&stage.target(&standby)).unwrap();
        let is_later = |seen: &PairStatus| !seen.active.is_empty() && seen.epoch != pair.epoch;
        let after = first_reported(&stage, is_later).await;
        assert_eq!(after.active, pair.active, "nobody else has every increment");
        is_listed(&stage, &after).await;
        level(&stage, &after, |names| names.is_superset(&alone)).await;
        counts_on(&stage).await;
    }
    nothing_is_lost(&stage, client).await;
}

/// Asks for the end of a Pod; returns what it was.
async fn delete(stage: &Stage, pod: &str) -> Pod {
    let before = stage.api::<Pod>().get(pod).await.unwrap();
    stage.api::<Pod>().delete(pod, &DeleteParams::default()).await.unwrap();
    before
}

/// Waits until the Lease says of the Pod that acts that it has a level directory: it did so under its former uid.
async fn is_listed(stage: &Stage, pair: &PairStatus) {
    let uid = stage.api::<Pod>().get(&pair.active).await.unwrap().uid().unwrap();
    let own = AgentId(parse_uid(&uid).unwrap());
    wait::until(stage.api(), "", |leases: &[Lease]| {
        let listed = record_of(leases, pair)?.level_pods;
        if listed.contains(&own) { Ok(()) } else { Err(format!("{listed:?} are listed")) }
    })
    .await;
}
