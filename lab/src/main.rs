//! Command line of the lab.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

mod cli;

use anyhow::Context;
use clap::{Parser, Subcommand};
use cli::bench::BenchArguments;
use cli::programs;
use cli::project::{self, ManifestArguments};
use lab::cluster::{Cluster, Options};
use lab::cuts::Peer;
use lab::faults::{PodPair, Target};
use lab::machine::clock::Instant;
use lab::paths::RunDirectory;
use lab::progress::Progress;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// What is logged unless `RUST_LOG` says otherwise. The client reports each refused request, and while a
/// cluster starts they are refused.
const QUIET: &str = "error,kube_client=off";

/// A local multi-node Kubernetes.
///
/// Environment: `LAB_DIR` (where the cluster's files are), `LAB_CACHE` (where built programs are kept),
/// `KUBEBUILDER_ASSETS` and `TEST_ASSET_*` (programs for --control-plane-only).
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
    /// Show the nodes, the programs and the cuts.
    Status,
    /// Print the path of the administrator's kubeconfig.
    Kubeconfig,
    /// Import image archives on all nodes.
    Load {
        /// Archives as `docker save` writes them.
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
    /// Build the project's images and load them into the nodes of the local cluster.
    Images,
    /// Install the operator into the cluster of KUBECONFIG, else into the local one, and wait until it leads.
    Install(ManifestArguments),
    /// Show the story of the BPS paper: create, update, decrease, and two failures; then a pair of active and standby.
    /// On a cluster of KUBECONFIG the crash and the pair are left out.
    Demo(ManifestArguments),
    /// Measure, and print the figures beside the paper's. Needs the local cluster to itself.
    Bench(BenchArguments),
    /// Build the programs of Kubernetes and Helm that tests need and the cache lacks.
    Programs,
    /// Run a command in the network of a node, where the addresses of Pods and Services work.
    ExecIn {
        /// The node.
        node: String,
        /// The command and its arguments.
        #[arg(required = true, last = true)]
        command: Vec<String>,
    },
    /// Break something, and print when as JSON (wall clock and `CLOCK_MONOTONIC`).
    Fault {
        #[command(subcommand)]
        fault: Fault,
    },
}

#[derive(Subcommand)]
enum Fault {
    /// SIGKILL the main process of a container.
    KillProcess(TargetArguments),
    /// SIGKILL all processes of a container.
    KillContainer(TargetArguments),
    /// SIGKILL the process that keeps the Pod's namespaces.
    KillSandbox(TargetArguments),
    /// SIGSTOP all processes of a container.
    Pause(TargetArguments),
    /// SIGCONT all processes of a container.
    Resume(TargetArguments),
    /// Take the power from a node: silence first, then SIGKILL for everything in it.
    PowerOff {
        /// The node.
        node: String,
    },
    /// Give a node its power back.
    PowerOn {
        /// The node.
        node: String,
    },
    /// Drop what a node and another would say to each other.
    Cut {
        /// The node.
        node: String,
        /// `api`, `all`, or another node.
        #[arg(long, value_parser = parse_peer)]
        from: Peer,
    },
    /// Undo all cuts that a node is part of; those between Pods stay.
    Heal {
        /// The node.
        node: String,
    },
    /// Drop what two Pods would say to each other, as long as they keep their addresses.
    CutPods(PairArguments),
    /// Undo a cut between two Pods.
    HealPods(PairArguments),
    /// End a program: etcd, apiserver, controller-manager, scheduler, n1/kubelet, n1/containerd, n1/kube-proxy.
    Stop {
        /// The program.
        part: String,
        /// SIGKILL it at once.
        #[arg(long)]
        kill: bool,
    },
    /// Start a stopped program again.
    Start {
        /// The program.
        part: String,
    },
}

#[derive(clap::Args)]
struct TargetArguments {
    /// `<namespace>/<pod>`; the namespace `default` may be left out.
    pod: String,
    /// The container; may be left out if only one runs.
    #[arg(long)]
    container: Option<String>,
}

impl From<TargetArguments> for Target {
    fn from(TargetArguments { pod, container }: TargetArguments) -> Self {
        let (namespace, pod) = pod.split_once('/').unwrap_or(("default", &pod));
        Self { namespace: namespace.to_owned(), pod: pod.to_owned(), container }
    }
}

#[derive(clap::Args)]
struct PairArguments {
    /// `<namespace>/<pod>`; the namespace `default` may be left out.
    from: String,
    /// The other Pod.
    to: String,
    /// Only what the first sends to the other.
    #[arg(long)]
    one_way: bool,
}

impl From<PairArguments> for PodPair {
    fn from(PairArguments { from, to, one_way }: PairArguments) -> Self {
        let target = |pod| Target::from(TargetArguments { pod, container: None });
        Self { from: target(from), to: target(to), is_both_ways: !one_way }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "clap asks for a parser that may fail")]
fn parse_peer(text: &str) -> Result<Peer, String> {
    Ok(match text {
        "api" => Peer::Api,
        "all" => Peer::All,
        node => Peer::Node(node.to_owned()),
    })
}

fn main() -> ExitCode {
    let asked = std::env::var("RUST_LOG").ok().and_then(|levels| levels.parse::<Targets>().ok());
    let filter = asked.unwrap_or_else(|| QUIET.parse().expect("these levels are well-formed"));
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(std::io::stderr);
    lines.with_ansi(false).finish().with(filter).init();
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
        Verb::Status => status()?,
        Verb::Kubeconfig => println!("{}", Cluster::attach()?.kubeconfig_path().display()),
        Verb::Load { archives } => {
            let cluster = Cluster::attach()?;
            for archive in archives {
                cluster.load(&archive).with_context(|| format!("load {}", archive.display()))?;
            }
        }
        Verb::Images => project::images()?,
        Verb::Install(arguments) => project::install(arguments.manifest.as_deref())?,
        Verb::Demo(arguments) => project::demo(arguments.manifest.as_deref())?,
        Verb::Bench(arguments) => cli::bench::bench(arguments)?,
        Verb::Programs => programs::programs()?,
        Verb::ExecIn { node, command } => return exec_in(&node, &command),
        Verb::Fault { fault } => {
            let instant = inject(&Cluster::attach()?, fault)?;
            println!("{}", serde_json::to_string(&instant)?);
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

#[tokio::main(flavor = "current_thread")]
async fn status() -> anyhow::Result<()> {
    let status = Cluster::attach()?.status().await?;
    // Not `print!`, which panics when the reader has seen enough.
    Ok(write!(std::io::stdout(), "{status}")?)
}

fn exec_in(node: &str, command: &[String]) -> anyhow::Result<ExitCode> {
    let (program, arguments) = command.split_first().context("no command")?;
    let status = Cluster::attach()?.command_in(node, program)?.args(arguments).status()?;
    // A command that a signal has ended has no exit code; the shell's convention has no use for it here.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn inject(cluster: &Cluster, fault: Fault) -> anyhow::Result<Instant> {
    Ok(match fault {
        Fault::KillProcess(target) => cluster.kill_process(&target.into())?,
        Fault::KillContainer(target) => cluster.kill_container(&target.into())?,
        Fault::KillSandbox(target) => cluster.kill_sandbox(&target.into())?,
        Fault::Pause(target) => cluster.pause(&target.into())?,
        Fault::Resume(target) => cluster.resume(&target.into())?,
        Fault::PowerOff { node } => cluster.power_off(&node)?,
        Fault::PowerOn { node } => cluster.power_on(&node)?,
        Fault::Cut { node, from } => cluster.cut(&node, from)?,
        Fault::Heal { node } => cluster.heal(&node)?,
        Fault::CutPods(pair) => cluster.cut_pods(&pair.into())?,
        Fault::HealPods(pair) => cluster.heal_pods(&pair.into())?,
        Fault::Stop { part, kill } => cluster.stop(&part, kill)?,
        Fault::Start { part } => cluster.start(&part)?,
    })
}
