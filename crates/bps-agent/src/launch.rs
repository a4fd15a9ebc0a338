//! The last step before the application: ties its life to the agent's, then becomes the application.
//!
//! It runs as a program of its own between fork and exec, because code that runs there inside the agent could not be
//! safe Rust.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use bps_runtime::telemetry::last_words;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::last_lines::{OUTPUT, take_over};
use super::replicate::left_out::LeftOut;
use super::seats::link::ActiveLink;

/// What this program is called by whoever has it open; the file may have been replaced since it was started.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// Exit code for a command that cannot be executed; shells use it, and people know it from them.
pub const EXIT_NOT_EXECUTABLE: u8 = 126;

/// Exit code for a command that is not found; shells use it, and people know it from them.
pub const EXIT_NOT_FOUND: u8 = 127;

/// Variable by which the agent says what is to be removed before the start, see [`LeftOut`]; the application does not get it.
pub const LEFT_OUT: &str = "BPS_LEFT_OUT";

/// Variable by which the agent says where the link to the state is to lead, see [`ActiveLink`]; the application does
/// not get it.
pub const ACTIVE_LINK: &str = "BPS_ACTIVE_LINK";

/// Why the application was not started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel did not tie the two lives together.
    #[error("ask the kernel to end the application with the agent")]
    TieToAgent(#[source] io::Error),
    /// The agent ended before the lives were tied: nobody would watch the application.
    #[error("the agent {agent} has ended")]
    AgentEnded {
        /// Process id of the agent that started this program.
        agent: i32,
    },
    /// The link may lead to the state of another pair.
    #[error("point the link to the state of the seat that acts")]
    PointLink(#[source] io::Error),
    /// No command was given.
    #[error("no command was given: write it after --, for example bps-agent run -- redis-server")]
    NoCommand,
    /// The command cannot be executed.
    #[error("execute {}", command.display())]
    Execute {
        /// First word of the command.
        command: OsString,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// What the process ends with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Execute { source, .. } if source.kind() == io::ErrorKind::NotFound => EXIT_NOT_FOUND,
            Self::Execute { .. } => EXIT_NOT_EXECUTABLE,
            Self::TieToAgent(_) | Self::AgentEnded { .. } | Self::PointLink(_) | Self::NoCommand => 1,
        }
    }
}

/// Becomes the application, which the kernel kills when the thread of the agent that started it ends.
///
/// The kernel forgets that when the application changes its user, as a program with the set-user-id bit does. As PID 1
/// of a container the agent takes everything with it all the same.
///
/// # Errors
/// It only returns if the application was not started.
pub fn launch(agent: i32, command: &[OsString]) -> Error {
    let Some((program, arguments)) = command.split_first() else { return Error::NoCommand };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return Error::TieToAgent(error.into());
    }
    // It may have ended before the call above: then no signal will come.
    if getppid().map(Pid::as_raw_pid) != Some(agent) {
        return Error::AgentEnded { agent };
    }
    let output = std::env::var_os(OUTPUT);
    let taken = output.as_deref().and_then(OsStr::to_str).map(|text| take_over(agent, text));
    if let Some(Err(error)) = taken {
        // It writes to the log by itself then.
        last_words(format_args!("bps-agent: could not follow what the application writes: {error}"));
    }
    // This and what follows: here and not in the agent, which must not wait for a disk.
    if let Some(text) = std::env::var_os(ACTIVE_LINK) {
        let link =
            text.to_str().and_then(ActiveLink::of_text).ok_or_else(|| io::ErrorKind::InvalidInput.into());
        if let Err(error) = link.and_then(|link| link.point()) {
            return Error::PointLink(error);
        }
    }
    let left_out = std::env::var_os(LEFT_OUT).and_then(|text| LeftOut::of_text(&text));
    if let Some((root, left_out)) = left_out
        && let Err(error) = left_out.remove_from(&root)
    {
        // The application may start all the same.
        last_words(format_args!(
            "bps-agent: could not remove files of the run before from {}: {error}",
            root.display()
        ));
    }
    let mut application = Command::new(program);
    for own in [LEFT_OUT, ACTIVE_LINK, OUTPUT] {
        application.env_remove(own);
    }
    let source = application.args(arguments).exec();
    Error::Execute { command: program.clone(), source }
}
