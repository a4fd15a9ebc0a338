//! The extender beside the stock scheduler, and plugins of the scheduler that say what it should do.

use std::collections::BTreeMap;
use std::process::Command;

use bps_testkit::files::repository;
use lab::bench::placement::PlacementSite;
use lab::bench::placement::clusters::{CLUSTERS, Experiment};
use lab::bench::placement::schedulers::profiles;
use lab::bench::placement::trial::{Making, PlacementStage, PlacementTrial};
use lab::binaries::{self, Component};
use lab::progress::Progress;
use serde::Deserialize;

/// The paper's three nodes.
const THREE_NODES: &Experiment = &CLUSTERS[1];
/// Eight nodes, and Pods of four shapes.
const MIXED: &Experiment = &CLUSTERS[4];
/// Enough of them that a sum which misses one Pod leads elsewhere.
const MIXED_PODS: usize = 60;

/// Scores of one node, by both readings of the paper's deviation.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Scores {
    population: u8,
    literal: u8,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    expected: BTreeMap<String, Scores>,
}

/// The extender is held to the same file by a test of its own.
#[test]
fn the_expected_scores_are_those_of_plugins_of_the_scheduler() {
    let file = repository().join("tests/rbra/scores.json");
    let built = binaries::ensure(&[Component::Referee], Progress::Shown).unwrap();
    let referee = built.find(Component::Referee).unwrap();
    let output = Command::new(referee).arg("score").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let scored: BTreeMap<String, BTreeMap<String, Scores>> = serde_json::from_slice(&output.stdout).unwrap();

    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let expected: BTreeMap<_, _> = cases.into_iter().map(|case| (case.name, case.expected)).collect();
    assert_eq!(scored, expected);
}

/// Where Pods go by one profile, each once the one before is bound.
async fn nodes_by(
    stage: &PlacementStage,
    experiment: &Experiment,
    profile: &'static str,
    pods: usize,
) -> Vec<usize> {
    let trial = PlacementTrial {
        profile,
        is_spread: false,
        seed: 1,
        pods,
        shapes: experiment.shapes,
        making: Making::OneByOne,
    };
    stage.await_known_by(profile).await.unwrap();
    let placements = stage.hold(&trial).await.unwrap();
    placements.placement.pods.iter().map(|placed| placed.node).collect()
}

/// It rests on what kube-scheduler does and does not promise: scores of an extender above 10 are taken as they are.
#[tokio::test(flavor = "multi_thread")]
async fn the_extender_puts_each_pod_where_a_plugin_puts_it_and_spreads_the_papers_pods() {
    let site = PlacementSite::start().await.unwrap();
    let nodes = site.nodes(MIXED).await.unwrap();
    let stage = site.stage(&nodes, MIXED);
    let by_extender = nodes_by(&stage, MIXED, profiles::RBRA, MIXED_PODS).await;
    let by_plugin = nodes_by(&stage, MIXED, profiles::REFEREE, MIXED_PODS).await;
    assert_eq!(by_extender, by_plugin);
    nodes.remove().await.unwrap();

    let nodes = site.nodes(THREE_NODES).await.unwrap();
    let stage = site.stage(&nodes, THREE_NODES);
    let counts = async |profile| {
        let mut counts = [0_u32; 3];
        for node in nodes_by(&stage, THREE_NODES, profile, THREE_NODES.pods).await {
            counts[node] += 1;
        }
        counts
    };
    let (stock, rbra) = (counts(profiles::STOCK).await, counts(profiles::RBRA).await);
    let spread = |counts: [u32; 3]| counts.iter().product::<u32>();
    assert!(spread(rbra) > 3 * spread(stock) / 2, "RBRA {rbra:?}, stock {stock:?}");
}
