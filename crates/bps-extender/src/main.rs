//! The extender of the scheduler: arguments in, exit code out.

use std::net::SocketAddr;
use std::process::ExitCode;

use bps_extender::{BalancedResource, Deviation, Scoring, Settings, run};
use bps_runtime::telemetry::{LogSettings, run_logged};
use clap::Parser;

/// Scores nodes for kube-scheduler by Refined Balanced Resource Allocation.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Where the scheduler asks, over HTTP and without credentials: an address of the loopback interface.
    #[arg(long, default_value = "127.0.0.1:8090")]
    bind: SocketAddr,
    /// Where /livez and /readyz are answered, for example `[::]:8081`. Default: nowhere.
    #[arg(long)]
    health_bind: Option<SocketAddr>,
    /// Where /metrics is served over HTTPS to authorised readers, for example `[::]:8443`. Default: nowhere.
    #[arg(long)]
    metrics_bind: Option<SocketAddr>,
    /// Standard deviation: of the population, or as it is printed in the paper.
    #[arg(long, value_enum, default_value = "population")]
    std: Deviation,
    /// Resources that are to be used evenly, by their names in a container's requests.
    #[arg(long, value_delimiter = ',', default_value = "cpu,memory,ephemeral-storage")]
    resources: Vec<BalancedResource>,
    /// Decides which of several equal nodes is chosen.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Profile of the scheduler in which nothing else scores.
    #[arg(long, default_value = "bps-rbra")]
    alone_in: String,
    #[command(flatten)]
    logs: LogSettings,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let logs = arguments.logs.clone();
    run_logged("bps-extender", &logs, run(settings(arguments))).await
}

fn settings(arguments: Arguments) -> Settings {
    let Arguments { bind, health_bind, metrics_bind, std, resources, seed, alone_in, logs: _ } = arguments;
    let scoring = Scoring { deviation: std, seed, alone_in };
    Settings { bind, health_bind, metrics_bind, resources, scoring }
}
