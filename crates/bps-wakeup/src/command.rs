//! The command line of `bps-wakeup`: `install <directory>`, `pass`, `gate`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};

use super::install::install;
use super::server;
use super::settings::{self, Settings};

/// Name under which the program is installed.
pub const PROGRAM: &str = "bps-wakeup";

/// Exit code of a command that was used wrongly; `EX_USAGE` of sysexits.h.
pub const EXIT_USAGE: u8 = 64;

/// What a shell reports for a process that a signal ended: 128 and the signal's number.
const EXIT_SIGNAL_BASE: i32 = 128;

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not one of the three commands.
    #[error("usage: bps-wakeup install <directory> | pass | gate")]
    Usage,
    /// The copy could not be made.
    #[error("install the gate")]
    Install(#[source] std::io::Error),
    /// The handlers could not be set.
    #[error("handle signals")]
    HandleSignals(#[source] std::io::Error),
    /// The environment is incomplete.
    #[error("read the settings")]
    ReadSettings(#[source] settings::Error),
    /// The gate could not be held.
    #[error("hold the gate")]
    HoldGate(#[source] server::Error),
}

/// Runs one command; `variable` looks a variable of the environment up.
///
/// # Errors
/// [`Error`]. Success of `gate` means that the Pod may start.
pub fn run(arguments: &[&str], variable: impl Fn(&str) -> Option<String>) -> Result<(), Error> {
    match arguments {
        ["install", directory] => install(Path::new(directory), PROGRAM).map(|_| ()).map_err(Error::Install),
        ["pass"] => Ok(()),
        ["gate"] => {
            end_at_signals().map_err(Error::HandleSignals)?;
            let settings = Settings::read(variable).map_err(Error::ReadSettings)?;
            server::hold(settings).map_err(Error::HoldGate)
        }
        _ => Err(Error::Usage),
    }
}

/// Lets each signal that images name as the one to stop their containers end the process at once.
///
/// The gate is process 1 of its container, for which the kernel ignores signals that have no handler, and mostly of the
/// application's image. The exit code is never 0: a gate that is told to stop has not opened.
fn end_at_signals() -> std::io::Result<()> {
    for signal in [SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH] {
        let always = Arc::new(AtomicBool::new(true));
        signal_hook::flag::register_conditional_shutdown(signal, EXIT_SIGNAL_BASE + signal, always)?;
    }
    Ok(())
}
