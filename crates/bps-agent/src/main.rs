//! The agent: arguments in, exit code of the application out.

use std::error::Error as _;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bps_agent::check::{CheckArguments, EXIT_FAILED};
use bps_agent::enforcer::{self, Watched};
use bps_agent::launch::OWN_PROGRAM;
use bps_agent::replicate::socket;
use bps_agent::settings::{PairArguments, PairSettings};
use bps_agent::{hook, init, launch, member};
use bps_api::keys;
use bps_runtime::error::chain;
use bps_runtime::telemetry::{self, LogSettings, last_words};
use bps_wakeup::install::install;
use clap::{Parser, Subcommand};
use tokio::runtime::Builder;
use tracing::error;

/// Starts an application as the init of its container: passes signals on, reaps orphans, leaves no process behind.
///
/// With --lease it is one of a pair, and runs the application only while it is the active one.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Starts the command after -- and ends with its exit code, or with 128 and the number of the signal that killed it.
    ///
    /// As one of a pair it starts the command in each of its tenures, and ends only when it is asked to.
    Run {
        #[command(flatten)]
        pair: Box<PairArguments>,
        /// The application and its arguments.
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
    /// Copies this program into a folder, so that containers of other images can run it.
    Install {
        /// The folder, for example that of an emptyDir volume.
        directory: PathBuf,
    },
    /// Asks the agent of this container for a barrier: what is in the state directory now is on the standby's disk when
    /// this ends with 0, or the pair is known to be without standby.
    Sync {
        /// The agent's socket.
        #[arg(long, env = keys::ENV_HA_SYNC_SOCKET)]
        socket: PathBuf,
    },
    /// Runs the command after --, and kills it with all that it started when its time is over; for the agent itself.
    #[command(hide = true)]
    Hook {
        /// Seconds that it may take.
        seconds: u64,
        /// The hook and its arguments.
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
    /// Ends with 3 once the application works no more; for the agent itself.
    #[command(hide = true)]
    Check {
        /// Address of the own Pod.
        #[arg(long)]
        address: IpAddr,
        /// File that shows the role: failures count only while it is that of an active.
        #[arg(long)]
        state_file: Option<PathBuf>,
        #[command(flatten)]
        check: CheckArguments,
        #[command(flatten)]
        logs: LogSettings,
    },
    /// Becomes the command after --; for the agent itself.
    #[command(hide = true)]
    Launch {
        /// Process id of the agent.
        agent: i32,
        /// The application and its arguments.
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    // One thread: the kernel kills the application when the thread that started it ends.
    let runtime =
        Builder::new_current_thread().enable_all().event_interval(member::TURNS_BESIDE_LOOP).build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(carry_out(Arguments::parse().verb));
            // Threads may wait for a disk that hangs; nobody waits for them.
            runtime.shutdown_background();
            code
        }
        Err(error) => failed("start", &error),
    }
}

async fn carry_out(verb: Verb) -> ExitCode {
    match verb {
        Verb::Run { pair, command } => run(*pair, command).await,
        Verb::Install { directory } => match install(&directory, keys::AGENT) {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => failed("install the agent", &error),
        },
        Verb::Sync { socket } => match socket::ask(&socket) {
            Ok(answer) => {
                println!("{answer}");
                ExitCode::SUCCESS
            }
            Err(error) => failed("sync", &error),
        },
        Verb::Hook { seconds, command } => {
            match hook::supervise(Path::new(OWN_PROGRAM), &command, Duration::from_secs(seconds)).await {
                Ok(code) => ExitCode::from(code),
                Err(error) => failed("run the hook", &error),
            }
        }
        Verb::Check { address, state_file, check, logs } => {
            let _lines = match telemetry::init(&logs) {
                Ok(lines) => lines,
                Err(error) => return failed("set up logs", &error),
            };
            match check.check(address) {
                Some(check) => {
                    check.while_active(state_file).fails().await;
                    ExitCode::from(EXIT_FAILED)
                }
                None => ExitCode::SUCCESS,
            }
        }
        Verb::Launch { agent, command } => {
            let error = launch::launch(agent, &command);
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            last_words(format_args!("bps-agent: {error}{cause}"));
            ExitCode::from(error.exit_code())
        }
    }
}

async fn run(pair: PairArguments, command: Vec<OsString>) -> ExitCode {
    let launcher = Path::new(OWN_PROGRAM);
    let settings = match pair.settings() {
        Ok(settings) => settings,
        Err(error) => return failed("read the arguments", &error),
    };
    let Some(settings) = settings else {
        return match init::run(launcher, &command).await {
            Ok(ending) => ExitCode::from(ending.exit_code()),
            Err(error) => failed("run the application", &error),
        };
    };
    if settings.enforcer.is_none() {
        return enforce(launcher, &settings).await;
    }
    match member::run(settings, launcher, command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed("run as one of a pair", &error),
    }
}

/// Becomes the enforcer above an agent with the same arguments.
async fn enforce(launcher: &Path, PairSettings { logs, hooks, health_bind, .. }: &PairSettings) -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match enforcer::run(launcher, &arguments, (hooks.stop_signal, *health_bind)).await {
        Ok(watched) => {
            tell(&watched, logs);
            ExitCode::from(watched.ending.exit_code())
        }
        Err(error) => failed("watch over the agent", &error),
    }
}

/// Says what the enforcer had to do.
fn tell(Watched { was_overdue, left, .. }: &Watched, logs: &LogSettings) {
    if !was_overdue && left.is_none() {
        return;
    }
    // The agent proper has refused settings that are wrong.
    let _: Result<(), telemetry::Error> = telemetry::init_at_the_end(logs);
    if *was_overdue {
        error!("Killed the agent with its application: the hold was over, and the application had not ended");
    }
    if let Some(left) = left {
        error!(error = left as &dyn std::error::Error, "Leaves it to the kernel to end the container");
    }
}

fn failed(what: &str, error: &(dyn std::error::Error + 'static)) -> ExitCode {
    last_words(format_args!("bps-agent: {what}: {}", chain(error)));
    ExitCode::FAILURE
}
