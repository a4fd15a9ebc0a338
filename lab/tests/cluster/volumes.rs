//! The claim about replicated state in volumes that outlive Pods: who comes back with a whole copy acts with it, and nobody else.

use backuppodset::api::PairStatus;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;

use crate::pairs::{first_paired, first_reported};
use crate::replication::{Keeping, counts_on, leave_out, level, nothing_is_lost, start, start_client};
use crate::stage::Stage;

/// How often the only Pod with a whole copy is lost, one time after the other.
const LOSSES: usize = 2;

pub(crate) async fn pods_that_come_back_with_their_volumes_have_every_acknowledged_increment(stage: Stage) {
    start(&stage, Keeping::InVolumes).await;
    let mut pair = first_paired(&stage).await;
    let both = level(&stage, &pair, |names| names.len() == 2).await;
    let client = start_client(&stage).await;
    counts_on(&stage).await;
    for pod in [&pair.active, &pair.standby] {
        delete(&stage, pod).await;
    }
    pair = served_since(&stage, &pair).await;
    first_paired(&stage).await;
    level(&stage, &pair, |names| *names == both).await;

    let (standby, alone) = leave_out(&stage, &pair).await;
    for _ in 0..LOSSES {
        delete(&stage, &pair.active).await;
        let after = served_since(&stage, &pair).await;
        assert_eq!(after.active, pair.active, "nobody else has every increment");
        level(&stage, &pair, |names| *names == alone).await;
        pair = after;
    }
    stage.bench.cluster.resume(&stage.target(&standby)).unwrap();
    level(&stage, &pair, |names| *names == both).await;
    counts_on(&stage).await;
    nothing_is_lost(&stage, client).await;
}

async fn delete(stage: &Stage, pod: &str) {
    stage.api::<Pod>().delete(pod, &DeleteParams::default()).await.unwrap();
}

/// Waits until somebody acts in a later tenure, and counts.
async fn served_since(stage: &Stage, before: &PairStatus) -> PairStatus {
    let is_later = |seen: &PairStatus| !seen.active.is_empty() && seen.epoch != before.epoch;
    let after = first_reported(stage, is_later).await;
    counts_on(stage).await;
    after
}
