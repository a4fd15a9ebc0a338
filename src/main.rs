//! The operator: arguments in, exit code out.

use std::net::SocketAddr;
use std::process::ExitCode;

use backuppodset::controller::{Settings, StormThreshold, run};
use bps_runtime::telemetry::{LogSettings, run_logged};
use clap::Parser;

/// Keeps BackupPodSets: primary, hot backup and cold backup Pods, converted when something fails.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Name of this replica.
    #[arg(long, env = "POD_NAME", default_value = "bps-operator")]
    pod: String,
    /// Namespace of the operator, for its Lease and its Secret.
    #[arg(long, env = "POD_NAMESPACE", default_value = "backuppodset-system")]
    namespace: String,
    /// Watch only this namespace; may be given several times. Default: all namespaces.
    #[arg(long = "watch-namespace")]
    watched_namespaces: Vec<String>,
    /// Image with the bps-wakeup program, for cold backups.
    #[arg(long)]
    wakeup_image: String,
    /// Image with the bps-agent program, for sets with activeStandby. Default: there can be none.
    #[arg(long)]
    agent_image: Option<String>,
    /// Above which share of silent nodes their silence is doubted, in percent: then nothing is created or deleted for it, for 10
    /// minutes at most. With 100 it is always believed.
    #[arg(long, default_value_t = StormThreshold::default().0, value_parser = clap::value_parser!(u8).range(0..=100))]
    storm_percent: u8,
    /// Where /livez and /readyz are answered, for example `[::]:8081`. Default: nowhere.
    #[arg(long)]
    health_bind: Option<SocketAddr>,
    /// Where /metrics is served over HTTPS to authorised readers, for example `[::]:8443`. Default: nowhere.
    #[arg(long)]
    metrics_bind: Option<SocketAddr>,
    #[command(flatten)]
    logs: LogSettings,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let logs = arguments.logs.clone();
    run_logged("bps-operator", &logs, run(settings(arguments))).await
}

fn settings(arguments: Arguments) -> Settings {
    let Arguments {
        pod,
        namespace,
        watched_namespaces,
        wakeup_image,
        agent_image,
        storm_percent,
        health_bind,
        metrics_bind,
        logs: _,
    } = arguments;
    Settings {
        namespace,
        pod,
        watched_namespaces,
        wakeup_image,
        agent_image,
        storm_threshold: StormThreshold(storm_percent),
        health_bind,
        metrics_bind,
    }
}
