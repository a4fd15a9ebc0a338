//! The agent: arguments in, exit code of the application out.

use std::error::Error as _;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use backuppodset::agent::{init, launch};
use clap::{Parser, Subcommand};

/// Starts an application as the init of its container: passes signals on, reaps orphans, leaves no process behind.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Starts the command after -- and ends with its exit code, or with 128 and the number of the signal that killed it.
    Run {
        /// The application and its arguments.
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
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

/// What this program is called by whoever has it open; the file may have been replaced since it was started.
const OWN_PROGRAM: &str = "/proc/self/exe";

// One thread: the kernel kills the application when the thread that started it ends.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match Arguments::parse().verb {
        Verb::Run { command } => match init::run(Path::new(OWN_PROGRAM), &command).await {
            Ok(ending) => ExitCode::from(ending.exit_code()),
            Err(error) => {
                eprintln!("bps-agent: run the application: {error}");
                ExitCode::FAILURE
            }
        },
        Verb::Launch { agent, command } => {
            let error = launch::launch(agent, &command);
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            eprintln!("bps-agent: {error}{cause}");
            ExitCode::from(error.exit_code())
        }
    }
}
