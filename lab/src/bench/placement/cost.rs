//! What the extender costs for each Pod, and how far its view is behind the scheduler's own.

use std::fmt;

use super::clusters::{CLUSTERS, Experiment};
use super::schedulers::profiles;
use super::trial::{Making, PlacementStage, PlacementTrial};
use super::{Options, PlacementSite};
use crate::bench::Error;
use crate::bench::summary::{Figures, aligned};

/// Pods that are timed one by one, with each profile.
const TIMED_PODS: usize = 100;
/// Trials in turn; what the machine does meanwhile is felt by both.
const TURNS: u16 = 3;
/// Bursts whose placements are compared.
const BURSTS: u16 = 5;

/// Figures.
pub(super) struct Cost {
    /// By number of nodes.
    rows: Vec<Row>,
    /// Pods of bursts, and how many of them went elsewhere than with the plugin.
    burst_pods: usize,
    elsewhere: usize,
}

struct Row {
    nodes: usize,
    without: Figures,
    with: Figures,
    burst_without: f64,
    burst_with: f64,
}

/// Times Pods with and without the extender, and compares bursts with the plugin.
pub(super) async fn measure(site: &PlacementSite, options: &Options) -> Result<Cost, Error> {
    let mixed = &CLUSTERS[4];
    let many: Vec<_> = mixed.nodes.iter().copied().cycle().take(options.nodes.into()).collect();
    let many = Experiment { nodes: many.leak(), ..*mixed };
    let mut rows = Vec::new();
    for experiment in [mixed, &many] {
        let nodes = site.nodes(experiment).await?;
        let stage = site.stage(&nodes, experiment);
        rows.push(timed(&stage, experiment).await?);
        nodes.remove().await.map_err(|error| Error::Hollow(Box::new(error)))?;
    }

    let nodes = site.nodes(mixed).await?;
    let stage = site.stage(&nodes, mixed);
    for profile in [profiles::RBRA, profiles::REFEREE] {
        stage.await_known_by(profile).await?;
    }
    let (mut burst_pods, mut elsewhere) = (0, 0);
    for seed in 0..BURSTS {
        let burst =
            |profile| PlacementTrial { pods: mixed.pods, ..trial(mixed, profile, seed, Making::Burst) };
        let ours = stage.hold(&burst(profiles::RBRA)).await?.placement.pods;
        let theirs = stage.hold(&burst(profiles::REFEREE)).await?.placement.pods;
        burst_pods += ours.len();
        elsewhere += ours.iter().zip(&theirs).filter(|(ours, theirs)| ours.node != theirs.node).count();
    }
    nodes.remove().await.map_err(|error| Error::Hollow(Box::new(error)))?;
    Ok(Cost { rows, burst_pods, elsewhere })
}

async fn timed(stage: &PlacementStage, experiment: &Experiment) -> Result<Row, Error> {
    for profile in [profiles::LEAST, profiles::LEAST_AND_RBRA] {
        stage.await_known_by(profile).await?;
    }
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let (mut burst_without, mut burst_with) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        for (profile, single, burst) in [
            (profiles::LEAST, &mut without, &mut burst_without),
            (profiles::LEAST_AND_RBRA, &mut with, &mut burst_with),
        ] {
            single.extend(stage.hold(&trial(experiment, profile, turn, Making::OneByOne)).await?.seconds);
            burst.extend(stage.hold(&trial(experiment, profile, turn, Making::Burst)).await?.seconds);
        }
    }
    let of = |samples: &[f64]| Figures::of(samples).ok_or_else(|| Error::Find { what: "samples".to_owned() });
    Ok(Row {
        nodes: experiment.nodes.len(),
        without: of(&without)?,
        with: of(&with)?,
        burst_without: of(&burst_without)?.median,
        burst_with: of(&burst_with)?.median,
    })
}

fn trial<'a>(
    experiment: &'a Experiment,
    profile: &'static str,
    seed: u16,
    making: Making,
) -> PlacementTrial<'a> {
    PlacementTrial { profile, is_spread: false, seed, pods: TIMED_PODS, shapes: experiment.shapes, making }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
        let header = [
            "creation -> bound",
            "n",
            "without, median",
            "worst",
            "with, median",
            "worst",
            "burst without",
            "with",
        ];
        let mut lines = vec![header.map(str::to_owned)];
        for Row { nodes, without, with, burst_without, burst_with } in &self.rows {
            lines.push([
                format!("{nodes} nodes"),
                with.count.to_string(),
                ms(without.median),
                ms(without.worst),
                ms(with.median),
                ms(with.worst),
                format!("{burst_without:.2} s"),
                format!("{burst_with:.2} s"),
            ]);
        }
        writeln!(
            f,
            "{}A burst has {TIMED_PODS} Pods. Both profiles score by the most room, with the extender also by RBRA.",
            aligned(&lines)
        )?;
        let Self { burst_pods, elsewhere, .. } = self;
        writeln!(f, "{elsewhere} of {burst_pods} Pods of {BURSTS} bursts went elsewhere than with a plugin.")
    }
}
