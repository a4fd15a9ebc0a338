//! Where schedulers put Pods: the experiments of the paper about Refined Balanced Resource Allocation, on the stock scheduler.
//!
//! The control plane is a real one; Pods are bound and start nowhere.
//!
//! | module | what it does |
//! |---|---|
//! | [`schedulers`] | the profiles that are compared, with and without our extender |
//! | [`clusters`] | the nodes and Pods of the experiments |
//! | [`trial`] | one trial: Pods on nodes by one profile |
//! | [`figures`] | what a placement is worth; pure |
//! | `report` | tables |
//! | `cost` | what the extender costs, and how far it is behind the scheduler |

use std::path::PathBuf;

use kube::Client;
use serde_json::json;
use tempfile::TempDir;

use super::{Error, ensure_namespace, hardware};
use crate::control_plane::ControlPlane;
use crate::hollow::{self, Conduct, HollowNode, HollowNodes};

pub mod clusters;
mod cost;
pub mod figures;
mod report;
pub mod schedulers;
pub mod trial;

use clusters::{CLUSTERS, Experiment};
use figures::{Figures, Room};
use schedulers::{Schedulers, profiles};
use trial::{Making, NamedRoom, PlacementStage, PlacementTrial};

/// How much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Trials of the stock scheduler and of RBRA on the clusters of the paper's table.
    pub seeds: u16,
    /// Nodes for which the cost of the extender is measured besides eight.
    pub nodes: u16,
    /// Where the figures go as JSON.
    pub out: Option<PathBuf>,
}

/// Trials of what is only shown beside, and of experiments that the paper does not have.
const SEEDS_BESIDE_MAX: u16 = 5;

/// What is compared, in the order of the tables.
pub const COMPARED: [Compared; 9] = [
    Compared { is_beside: false, ..Compared::of("stock scheduler", profiles::STOCK) },
    Compared::of("its balance alone", profiles::BALANCED),
    Compared::of("no score (the next that fits)", profiles::NOTHING),
    Compared { is_beside: false, ..Compared::of("RBRA alone (bps-rbra)", profiles::RBRA) },
    Compared::of("RBRA as printed, alone", profiles::RBRA_LITERAL),
    Compared::of("stock with RBRA (bps-scheduler)", profiles::SCHEDULER),
    Compared::of("least allocated + RBRA", profiles::LEAST_AND_RBRA),
    Compared { is_spread: true, ..Compared::of("stock, spread by hostname", profiles::STOCK) },
    Compared::of("load variation", profiles::LOAD_VARIATION),
];

/// One line of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compared {
    /// Its name.
    pub label: &'static str,
    /// Profile of the scheduler.
    pub profile: &'static str,
    /// Whether the Pods ask for even numbers on the nodes.
    pub is_spread: bool,
    /// Whether it is only shown, with fewer trials.
    is_beside: bool,
}

impl Compared {
    /// One that is only shown, with Pods that ask for nothing.
    const fn of(label: &'static str, profile: &'static str) -> Self {
        Self { label, profile, is_spread: false, is_beside: true }
    }
}

/// A control plane with all schedulers.
pub struct PlacementSite {
    /// The administrator.
    pub client: Client,
    // Ended before what they talk to.
    schedulers: Schedulers,
    _control_plane: ControlPlane,
    _directory: TempDir,
}

impl PlacementSite {
    /// Starts everything.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub async fn start() -> Result<Self, Error> {
        let directory =
            tempfile::tempdir().map_err(|source| Error::Write { path: std::env::temp_dir(), source })?;
        let failed = |error| Error::ControlPlane(Box::new(error));
        let control_plane =
            ControlPlane::start(directory.path().join("control-plane")).await.map_err(failed)?;
        let client = control_plane.client().await.map_err(failed)?;
        ensure_namespace(&client).await?;
        let schedulers = Schedulers::start(&control_plane, &client).await?;
        Ok(Self { client, schedulers, _control_plane: control_plane, _directory: directory })
    }

    /// Registers the nodes of an experiment.
    ///
    /// # Errors
    /// `Hollow`.
    pub async fn nodes(&self, experiment: &Experiment) -> Result<HollowNodes, Error> {
        let shapes = experiment.nodes.iter().map(figures::PodShape::as_node).collect();
        let options = hollow::Options { shapes, conduct: Conduct::Leave, ..hollow::Options::default() };
        let count = u16::try_from(experiment.nodes.len()).expect("a few nodes");
        let started = HollowNodes::start(self.client.clone(), count, options).await;
        started.map_err(|error| Error::Hollow(Box::new(error)))
    }

    /// A stage on these nodes.
    pub fn stage(&self, nodes: &HollowNodes, experiment: &Experiment) -> PlacementStage {
        let named = |(node, room): (&HollowNode, &Room)| NamedRoom { name: node.name.clone(), room: *room };
        let nodes = nodes.nodes().iter().zip(experiment.nodes).map(named).collect();
        PlacementStage::new(&self.client, nodes, self.schedulers.extenders.clone())
    }
}

/// Measures and prints.
///
/// # Errors
/// See [`enum@Error`]; the control plane ends in any case.
pub async fn run(options: &Options) -> Result<(), Error> {
    let site = PlacementSite::start().await?;
    let description = hardware::describe(&site.client).await;
    println!("{description}\n");
    let mut figures = Vec::new();
    for experiment in &CLUSTERS {
        let measured = compare(&site, experiment, options.seeds).await?;
        println!("{}", report::table(experiment, &measured));
        figures.push(json!({"experiment": experiment.name, "spread": report::raw(&measured)}));
    }
    let cost = cost::measure(&site, options).await?;
    println!("{cost}");
    if let Some(path) = &options.out {
        let text = json!({"hardware": description, "experiments": figures}).to_string();
        std::fs::write(path, text).map_err(|source| Error::Write { path: path.clone(), source })?;
    }
    Ok(())
}

/// Figures of each trial, for each line of [`COMPARED`].
type Measured = Vec<Vec<Figures>>;

async fn compare(site: &PlacementSite, experiment: &Experiment, seeds: u16) -> Result<Measured, Error> {
    let nodes = site.nodes(experiment).await?;
    let stage = site.stage(&nodes, experiment);
    for compared in COMPARED.iter().filter(|compared| !compared.is_spread) {
        stage.await_known_by(compared.profile).await?;
    }
    let mut measured = vec![Vec::new(); COMPARED.len()];
    // Trials of a seed follow each other, so that what the machine does meanwhile is felt by all.
    for seed in 0..seeds {
        for (line, compared) in COMPARED.iter().enumerate() {
            let is_beside = compared.is_beside || experiment.paper.is_none();
            if is_beside && seed >= SEEDS_BESIDE_MAX {
                continue;
            }
            let trial = PlacementTrial {
                profile: compared.profile,
                is_spread: compared.is_spread,
                seed,
                pods: experiment.pods,
                shapes: experiment.shapes,
                making: Making::OneByOne,
            };
            measured[line].push(stage.hold(&trial).await?.placement.figures());
        }
        eprintln!("{}: seed {} of {seeds}", experiment.name, seed + 1);
    }
    nodes.remove().await.map_err(|error| Error::Hollow(Box::new(error)))?;
    Ok(measured)
}
