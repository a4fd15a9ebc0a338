//! Whether what `kubectl bps whatif` foretells is what happens.

use std::collections::BTreeMap;

use bps_api::BackupPodSet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kubectl_bps::arguments::{DrillArguments, WhatifArguments};
use kubectl_bps::cluster::Cluster;
use kubectl_bps::drill::{self, Drill};
use kubectl_bps::scene::Scene;
use kubectl_bps::whatif::{Prospect, Tiers, prospect};
use serde_json::json;

use crate::notes::note;
use crate::stage::{Counts, Stage, WEB, exposed_web, node};
use crate::wait::{self, is_available, role};

/// What the set has: enough that each loss is answered by a conversion, a wake-up or a new Pod.
const COUNTS: Counts = [2, 1, 1];
/// Nodes of the cluster.
const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// What is asked about, and done then.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Power(&'static str),
    Cordon(&'static str),
    ScaleIn,
}

impl Loss {
    fn question(self) -> WhatifArguments {
        let nothing = WhatifArguments::default();
        match self {
            Self::Power(node) => WhatifArguments { nodes: vec![node.to_owned()], ..nothing },
            Self::Cordon(node) => WhatifArguments { cordoned: vec![node.to_owned()], ..nothing },
            Self::ScaleIn => WhatifArguments { scale_in: Some(1), ..nothing },
        }
    }

    async fn happen(self, stage: &Stage) {
        match self {
            Self::Power(node) => drop(stage.bench.cluster.power_off(node).unwrap()),
            Self::Cordon(node) => drop(stage.kubectl(&["cordon", node])),
            Self::ScaleIn => stage.change(json!({"replicas": COUNTS[0] - 1})).await,
        }
    }

    async fn undo(self, stage: &Stage) {
        match self {
            Self::Power(node) => drop(stage.bench.cluster.power_on(node).unwrap()),
            Self::Cordon(node) => drop(stage.kubectl(&["uncordon", node])),
            Self::ScaleIn => stage.change(json!({"replicas": COUNTS[0]})).await,
        }
    }
}

/// What becomes of the set, by what is there now.
async fn foretold(stage: &Stage, question: &WhatifArguments) -> Prospect {
    let set = stage.api::<BackupPodSet>().get(WEB).await.unwrap();
    prospect(Scene::take(&cluster(stage), set).await.unwrap(), question).unwrap()
}

/// Names of available Pods by role; those on a node without power are none.
fn tiers(pods: &[Pod], lost: Option<&str>) -> Tiers {
    let mut by_role: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| is_available(pod) && Some(node(pod).as_str()) != lost) {
        by_role.entry(role(pod).to_owned()).or_default().push(pod.name_any());
    }
    let mut of = |role: &str| {
        let mut names = by_role.remove(role).unwrap_or_default();
        names.sort();
        names
    };
    Tiers { primary: of("primary"), hot: of("hot"), cold: of("cold") }
}

/// One loss of each kind, at a node that chance chooses.
pub(crate) async fn who_takes_over_is_what_was_foretold(stage: Stage) {
    stage.apply(&exposed_web(COUNTS)).await;
    let chance = usize::try_from(Timestamp::now().subsec_nanosecond()).unwrap();
    let chosen = |draw: usize| NODES[(chance / draw) % NODES.len()];
    for loss in [Loss::Power(chosen(1)), Loss::Cordon(chosen(3)), Loss::ScaleIn] {
        stage.settled(WEB, COUNTS).await;
        let Prospect { survives, tiers: expected, short_for_seconds, .. } =
            foretold(&stage, &loss.question()).await;
        note(format!("{loss:?}: {expected:?}, fewer for {short_for_seconds:?} s"));
        assert!(survives, "three nodes have room for each other");

        loss.happen(&stage).await;
        let lost = if let Loss::Power(node) = loss { Some(node) } else { None };
        stage
            .pods_where(WEB, |pods| {
                let seen = tiers(pods, lost);
                if seen == expected {
                    Ok(())
                } else {
                    Err(format!("foretold {expected:?}, there are {seen:?}"))
                }
            })
            .await;
        // And so it stays: nothing is left to do.
        let Prospect { tiers: rest, .. } = foretold(&stage, &WhatifArguments::default()).await;
        assert_eq!(rest, expected, "{loss:?}");
        loss.undo(&stage).await;
    }
    let pods = stage.settled(WEB, COUNTS).await;
    let of_role = |wanted: &'static str| pods.iter().filter(move |pod| role(pod) == wanted).map(node);
    let backup = of_role("hot").next();
    let moved = of_role("primary").find(|node| Some(node) != backup.as_ref());
    drilled(&stage, &of(None, Some(&moved.expect("they are spread")))).await;
}

pub(crate) async fn a_drill_goes_as_foretold_and_is_noted_in_its_set(stage: Stage) {
    stage.apply(&exposed_web(COUNTS)).await;
    let before = stage.settled(WEB, COUNTS).await;
    let primary = before.iter().find(|pod| role(pod) == "primary").expect("a primary").name_any();
    let drill = drilled(&stage, &of(Some(&primary), None)).await;
    assert_eq!(drill.fault, format!("Pod {primary} is deleted"));
    let outcome = drill.outcome.expect("it is over");
    assert!(outcome.survived && outcome.as_foretold, "{outcome:?}");

    let after = stage.settled(WEB, COUNTS).await;
    stage.change(json!({"paused": true})).await;
    let refused = drill::run(&cluster(&stage), &of(Some(&after[0].name_any()), None)).await;
    let refused = refused.expect_err("nothing is broken while nothing is repaired");
    assert!(refused.to_string().contains("is paused"), "{refused}");
}

/// A drill of the set; what is noted of it.
async fn drilled(stage: &Stage, wanted: &DrillArguments) -> Drill {
    let said = drill::run(&cluster(stage), wanted).await.unwrap();
    note(said.replace('\n', " "));
    let set = stage.api::<BackupPodSet>().get(WEB).await.unwrap();
    Drill::of(&set).expect("it is noted")
}

fn of(pod: Option<&str>, cordon: Option<&str>) -> DrillArguments {
    DrillArguments {
        set: WEB.to_owned(),
        pod: pod.map(str::to_owned),
        cordon: cordon.map(str::to_owned),
        timeout: wait::LIMIT,
        output: None,
    }
}

fn cluster(stage: &Stage) -> Cluster {
    Cluster { client: stage.client(), namespace: stage.namespace.clone() }
}
