//! Command line of the lab.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use lab::cluster::{Cluster, Options};
use lab::paths::RunDirectory;
use lab::progress::Progress;

/// A local multi-node Kubernetes.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Start a cluster and wait until its nodes are ready.
    Up {
        /// Number of nodes.
        #[arg(long, default_value_t = 3)]
        nodes: u8,
        /// Only etcd, API server, controllers and scheduler, on the loopback interface, without root.
        #[arg(long)]
        control_plane_only: bool,
    },
    /// Stop the cluster, remove everything it made, and check that nothing is left.
    Down,
    /// Print the path of the administrator's kubeconfig.
    Kubeconfig,
    /// Import image archives on all nodes.
    Load {
        /// Archives as `docker save` writes them.
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().verb) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Up { nodes, control_plane_only } => up(nodes, control_plane_only)?,
        Verb::Down => Cluster::down(&RunDirectory::from_environment())?,
        Verb::Kubeconfig => println!("{}", Cluster::attach()?.kubeconfig_path().display()),
        Verb::Load { archives } => {
            let cluster = Cluster::attach()?;
            for archive in archives {
                cluster.load(&archive).with_context(|| format!("load {}", archive.display()))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[tokio::main]
async fn up(nodes: u8, is_control_plane_only: bool) -> anyhow::Result<()> {
    let options = Options {
        nodes,
        is_control_plane_only,
        progress: Progress::Shown,
        is_interruptible: true,
        ..Options::default()
    };
    let cluster = Cluster::up(options).await?;
    println!("export KUBECONFIG={}", cluster.kubeconfig_path().display());
    Ok(())
}
