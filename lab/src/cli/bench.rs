//! Measurements.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use lab::bench::{self, pairs, placement, rows, scale};

use super::project::ManifestArguments;

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    verb: Option<BenchVerb>,
    /// Rounds of each group of rows.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Only this row; may be given several times. Others of the same group cost nothing more.
    #[arg(long, value_parser = rows::ROWS.iter().map(|row| row.id).collect::<Vec<_>>())]
    only: Vec<String>,
    /// Print one round of each group event by event.
    #[arg(long)]
    timeline: bool,
    /// Write the raw samples to this file as JSON.
    #[arg(long, global = true)]
    out: Option<PathBuf>,
    #[command(flatten)]
    manifest: ManifestArguments,
}

#[derive(clap::Subcommand)]
enum BenchVerb {
    /// Many sets on hollow nodes, with a control plane of its own: start of the operator, mass failure, idling.
    Scale {
        /// Number of sets, each with 2 primaries, 2 hot backups and 2 cold backups.
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(1..))]
        sets: u16,
        /// How long idling is watched. Unit: seconds.
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(5..))]
        idle_seconds: u16,
    },
    /// Where the stock scheduler puts Pods, with our extender and without, on hollow nodes: the experiments of the paper about RBRA.
    Placement {
        /// Trials of the stock scheduler and of RBRA; of what is shown beside 5 at most.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
        seeds: u16,
        /// Nodes for which the time of the extender is measured besides 8.
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(1..))]
        nodes: u16,
    },
    /// Pairs of active and standby: what a client sees of each fault, beside a Deployment.
    Pairs {
        /// Rounds of each fault; a part of it, but at least one, of what takes longer.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
        rounds: u16,
        /// How long idling is watched; twice that with too much to do. Unit: seconds.
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(5..=85))]
        idle_seconds: u16,
        /// Only rows whose names contain this, such as `label switch`, `pair: idle`, `scaling` or `node`; may be given
        /// several times.
        #[arg(long)]
        only: Vec<String>,
        /// For each round of a fault that took long: write what its clients saw and what all containers logged below this
        /// folder.
        #[arg(long)]
        keep: Option<PathBuf>,
        /// What is long: a client waited for an answer for more than this. Unit: milliseconds.
        #[arg(long, default_value_t = 100, requires = "keep")]
        keep_over_ms: u16,
    },
}

/// Measures and prints.
#[tokio::main]
pub(crate) async fn bench(arguments: BenchArguments) -> anyhow::Result<()> {
    let BenchArguments { verb, rounds, only, timeline, out, manifest } = arguments;
    let manifest = manifest
        .manifest
        .map(|path| std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display())));
    let manifest = manifest.transpose()?;
    match verb {
        None => {}
        Some(BenchVerb::Scale { sets, idle_seconds }) => {
            return Ok(scale::run(&scale::Options { sets, idle_seconds, out }).await?);
        }
        Some(BenchVerb::Placement { seeds, nodes }) => {
            return Ok(placement::run(&placement::Options { seeds, nodes, out }).await?);
        }
        Some(BenchVerb::Pairs { rounds, idle_seconds, only, keep, keep_over_ms }) => {
            let idle = Duration::from_secs(idle_seconds.into());
            let over = Duration::from_millis(keep_over_ms.into());
            let keeping = keep.map(|folder| pairs::evidence::Keeping { folder, over });
            return Ok(pairs::run(&pairs::Options { rounds, idle, only, out, keeping, manifest }).await?);
        }
    }
    let only: BTreeSet<String> = only.into_iter().collect();
    Ok(bench::run(&bench::Options { rounds, only, has_timeline: timeline, out, manifest }).await?)
}
