//! Claims about two faults at once, with a sink that is told of every answer: the one place that sees two actives.

use std::time::Duration;

use bps_api::PairStatus;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};
use lab::bench::pairs::watch::Watch;
use lab::cuts::Peer;
use lab::faults::{PodPair, Target};

use crate::load::Load;
use crate::notes::note;
use crate::pairs::{order_switchover, paired, pod, served_again, shown, start_watched_stateful_set};
use crate::stage::{Stage, node};

/// How long somebody is not heard: longer than a hold of 1.9 s, so that he has been followed, or has ended.
const SILENT: Duration = Duration::from_secs(4);

/// How long who was asked to end relays at most. 6 s: `docs/adr/0019-agents-relay.md`. The rules of a node that did not hear the
/// API server lead there until TCP repeats what it missed, seconds after it could.
const RELAYED: Duration = Duration::from_secs(6);

/// What happens to the active.
#[derive(Clone, Copy, Debug)]
enum Blow {
    ApplicationKilled,
    ContainerKilled,
    SandboxKilled,
    PodDeleted,
    SwitchedOver,
}

/// Who does not hear whom meanwhile.
#[derive(Clone, Copy, Debug)]
enum Silence {
    /// The two Pods of the pair.
    Pods,
    /// The active's node and the API server.
    Api,
}

impl Blow {
    const ALL: [Self; 5] = [
        Self::ApplicationKilled,
        Self::ContainerKilled,
        Self::SandboxKilled,
        Self::PodDeleted,
        Self::SwitchedOver,
    ];

    async fn strike(self, stage: &Stage, (pair, active): (&PairStatus, &Pod)) {
        let target = stage.target(active);
        match self {
            Self::ApplicationKilled => drop(stage.bench.cluster.kill_below_init(&target).unwrap()),
            Self::ContainerKilled => drop(stage.bench.cluster.kill_container(&target).unwrap()),
            Self::SandboxKilled => drop(stage.bench.cluster.kill_sandbox(&target).unwrap()),
            Self::PodDeleted => {
                let pods: Api<Pod> = stage.api();
                pods.delete(&active.name_any(), &DeleteParams::default()).await.unwrap();
            }
            Self::SwitchedOver => order_switchover(stage, pair).await,
        }
    }
}

impl Silence {
    fn begin(self, stage: &Stage, (pods, active): (&PodPair, &str)) {
        match self {
            Self::Pods => stage.bench.cluster.cut_pods(pods).unwrap(),
            Self::Api => stage.bench.cluster.cut(active, Peer::Api).unwrap(),
        };
    }

    /// How long clients may still come to who is followed once it is over.
    const fn outlasted_by(self) -> Duration {
        match self {
            Self::Pods => Duration::ZERO,
            Self::Api => RELAYED,
        }
    }

    fn end(self, stage: &Stage, (pods, active): (&PodPair, &str)) {
        match self {
            Self::Pods => stage.bench.cluster.heal_pods(pods).unwrap(),
            Self::Api => stage.bench.cluster.heal(active).unwrap(),
        };
    }
}

pub(crate) async fn never_do_two_act_when_a_fault_meets_pods_that_do_not_hear_each_other(stage: Stage) {
    every_blow_while(&stage, Silence::Pods).await;
}

pub(crate) async fn never_do_two_act_when_a_fault_meets_a_node_that_does_not_hear_the_api_server(
    stage: Stage,
) {
    every_blow_while(&stage, Silence::Api).await;
}

async fn every_blow_while(stage: &Stage, silence: Silence) {
    let sink = Watch::start(&stage.bench.cluster, "n1").await.unwrap();
    start_watched_stateful_set(stage, 2, sink.address).await;
    for blow in Blow::ALL {
        let pair = paired(stage, 1).await.remove(0);
        shown(stage, &pair).await;
        let [active, standby] = [pod(stage, &pair.active).await, pod(stage, &pair.standby).await];
        let [from, to]: [Target; 2] = [stage.target(&active), stage.target(&standby)];
        let (pods, lost) = (PodPair { from, to, is_both_ways: true }, node(&active));
        let load = Load::start(stage, "n1").await;
        silence.begin(stage, (&pods, &lost));
        blow.strike(stage, (&pair, &active)).await;
        tokio::time::sleep(SILENT).await;
        silence.end(stage, (&pods, &lost));
        paired(stage, 1).await;
        tokio::time::sleep(silence.outlasted_by()).await;
        load.answered(stage).await;
        served_again(&format!("{blow:?} while {silence:?} hear nothing"), load).await;
    }
    let (answers, late) = sink.seen();
    note(format!("{late} of {answers} answers were of one that had been followed"));
    assert!(answers > 0 && late == 0, "{}", sink.describe());
}
