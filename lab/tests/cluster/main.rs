//! What only real nodes can say about the operator: one cluster, every claim in a namespace of its own, several at a time as
//! their lanes allow.
//!
//! Needs root, because nodes are made of namespaces and mounts; without it, one line says so and nothing is claimed.
//! Words on the command line choose the claims whose names contain one of them; with `--rounds=N` each is held N times. The
//! operator runs on this machine with the token of its ServiceAccount and nothing else, so that a permission it lacks shows.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod active_sets;
mod actors;
mod bench;
mod claims;
mod domains;
mod failover;
mod faults;
mod foretold;
mod hall;
mod hostile;
mod idle;
mod kubernetes;
mod load;
mod manifests;
mod meddling;
mod models;
mod nodes;
mod notes;
mod operator;
mod outages;
mod pairs;
mod record;
mod redis;
mod redis_clients;
mod refusals;
mod replication;
mod resp;
mod rollout;
mod scheduler;
mod shared_standbys;
mod sizes;
mod stage;
mod tampering;
mod two_faults;
mod volumes;
mod wait;
mod workloads;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bench::Bench;
use claims::{Claim, claims};
use hall::{Hall, HeldIn};
use lab::claims::lanes::repeated;
use lab::claims::report::{Held, report};
use lab::claims::{endings, history, lanes, ledger, report};
use lab::cluster::{Cluster, Options};
use lab::image::Binaries;
use lab::machine::process::ProcessId;
use lab::packages;
use lab::paths::{self, RunDirectory};
use lab::progress::Progress;
use lab::state::Purpose;
use tokio::signal::unix::{SignalKind, signal};

/// Where the cluster of these tests has its files.
const DIRECTORY: &str = "/run/backuppodset-lab-claims";

/// How long a node may be silent before Kubernetes takes it for lost. 20 s instead of 50 s: no claim is about this time, and
/// one waits for it. A kubelet then reports every 4 s, and no fault silences a node that is not to be lost for more than 10 s.
const NODE_GRACE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let rounds = std::env::args().find_map(|word| word.strip_prefix("--rounds=").map(str::parse));
    let Ok(rounds) = rounds.unwrap_or(Ok(1)) else {
        println!("--rounds is a number");
        return ExitCode::FAILURE;
    };
    let is_chosen =
        |claim: &Claim| words.is_empty() || words.iter().any(|word| claim.name.contains(word.as_str()));
    let all = claims();
    let names: Vec<&str> = all.iter().map(|claim| claim.name).collect();
    let repeated = repeated(&names);
    if !repeated.is_empty() {
        println!("several claims have the same name: {repeated:?}");
        return ExitCode::FAILURE;
    }
    let chosen: Vec<Claim> = all.into_iter().filter(is_chosen).collect();
    if std::env::args().any(|word| word == "--list") {
        for claim in &chosen {
            println!("{}: test", claim.name);
        }
        return ExitCode::SUCCESS;
    }
    if !paths::is_root() {
        println!("skipped: the cluster tests need root (namespaces, mounts, cgroups)");
        return ExitCode::SUCCESS;
    }
    if let Err(error) = packages::ensure() {
        println!("skipped: the cluster tests need packages of the distribution: {error}");
        return ExitCode::SUCCESS;
    }
    if let Err(error) = Cluster::make_room(&RunDirectory::at(DIRECTORY), Progress::Shown) {
        println!("no room for a cluster: {:#}", anyhow::Error::from(error));
        return ExitCode::FAILURE;
    }
    // Before the cluster starts: the build takes all the machine has, and nobody else can have a cluster meanwhile.
    let built = match bench::build() {
        Ok(built) => built,
        Err(error) => {
            println!("no images: {:#}", anyhow::Error::from(error));
            return ExitCode::FAILURE;
        }
    };
    // Where a claim gave up says enough, and forty lines of frames hide it from who sees only the last ones.
    std::panic::set_hook(Box::new(|panic| println!("\n{panic}")));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let is_good = runtime.block_on(run_all(built, Hall::new(chosen, rounds)));
    // After an interrupt claims may still wait for what will not come any more.
    runtime.shutdown_background();
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether every chosen claim held and nothing was left behind.
async fn run_all(built: Binaries, hall: Hall) -> bool {
    let run = RunDirectory::at(DIRECTORY);
    let purpose = Purpose::OneProcess(ProcessId::current());
    let options = Options {
        run: run.clone(),
        progress: Progress::Shown,
        purpose,
        node_grace: NODE_GRACE,
        ..Options::default()
    };
    let cluster = match Cluster::up(options).await {
        Ok(cluster) => cluster,
        Err(error) => {
            println!("no cluster: {:#}", anyhow::Error::from(error));
            return false;
        }
    };
    // In a task, so that a panic ends only the claims and the machine is cleared in any case.
    let claims = tokio::spawn(hold_all(cluster, built, hall));
    let mut terminated = signal(SignalKind::terminate()).expect("a handler of SIGTERM");
    let result = tokio::select! {
        result = claims => result.unwrap_or(false),
        _ = tokio::signal::ctrl_c() => false,
        _ = terminated.recv() => false,
    };
    if let Err(error) = Cluster::down(&run) {
        println!("{error}");
        return false;
    }
    result
}

/// Holds claims beside each other as their lanes allow; says what came of each when it has ended, and of all at the end.
async fn hold_all(cluster: Cluster, built: Binaries, mut hall: Hall) -> bool {
    let bench = Arc::new(Bench::new(cluster, built).await);
    println!("\nrunning {} claims", hall.waiting());
    let mut failures = Vec::new();
    while hall.start(&bench) {
        let held = hall.ended().await;
        failures.extend(tell(&bench, &held).await);
        hall.held.push(held.claim);
    }
    bench.stop_operators().await;

    println!("\n{}", report(&hall.held));
    // Once more at the end: who sees only the last lines should not have to guess.
    for line in failures {
        println!("{line}");
    }
    let unblamed = bench.unblamed().await;
    if !unblamed.is_empty() {
        println!("failed: the operator complained when no claim was held that it was about: {unblamed:#?}");
    }
    unblamed.is_empty() && hall.held.iter().all(|claim| claim.problem.is_none())
}

/// Returns what the end of the run is to say again.
async fn tell(bench: &Bench, HeldIn { claim, namespace, beside, notes }: &HeldIn) -> Vec<String> {
    let Held { name, lane, problem, .. } = claim;
    let word = if problem.is_none() { "ok" } else { "FAILED" };
    println!("claim {name} ... {word} ({lane:?}, {:.1} s)", claim.took().as_secs_f64());
    for note in notes {
        println!("  {note}");
    }
    let Some(problem) = problem else { return Vec::new() };
    let scene = bench.scene(namespace).await;
    let beside = if beside.is_empty() { "no other claim".to_owned() } else { beside.join(", ") };
    let (shown, more) = (scene.join("\n"), bench.diagnosis(namespace).await);
    println!("{problem}\nheld beside it: {beside}\n{shown}\n{more}");
    let scene = scene.iter().map(|line| format!("scene: {line}"));
    std::iter::once(format!("failed: {name}: {problem}")).chain(scene).collect()
}
