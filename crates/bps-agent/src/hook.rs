//! Hooks: commands that are run when the role changes, each with a deadline, at whose end nothing of it is left.
//!
//! Between the agent and a hook stands a third form of the same program, `hook`: it is the parent of all that the
//! command starts, as the agent is for the application, so that it can end exactly that.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tokio::time::timeout;

use super::application::Application;
use super::check::Check;
use super::stop_signal::StopSignal;
use super::tree::{self, Ending, Environment};
use super::world::{Endings as _, Kernel, Machine, Processes as _};

/// Exit code for a hook that was not done in time; `timeout` uses it, and people know it from there.
pub const EXIT_OVERDUE: u8 = 124;

/// How long killing a hook may take. 1 s: the kernel needs some milliseconds, unless a process waits for a disk.
const KILLING_MAX: Duration = Duration::from_secs(1);

/// What to run when the role changes.
#[derive(Args, Clone, Debug)]
pub struct HookArguments {
    /// Program and arguments, separated by blanks, to run when the agent becomes active; there is no shell.
    ///
    /// Like the other hooks it gets `HA_EPOCH`, `HA_PAIR`, `HA_ROLE`, `HA_PEER` (address of the other Pod) and `HA_STATE_FILE`.
    #[arg(long, requires = "membership", value_parser = parse_command)]
    on_active: Option<HookCommand>,
    /// The same for when the agent becomes standby, also at its start. The application of a tenure has ended then;
    /// with `--run-in-standby` it has just been started as standby, and each further start runs the hook again, as does
    /// another address of the other Pod.
    #[arg(long, requires = "membership", value_parser = parse_command)]
    on_standby: Option<HookCommand>,
    /// The same for when a tenure has to end: the application is asked to end after it, and killed with it at the end
    /// of the hold. It is not run for an application that has ended by itself.
    #[arg(long, requires = "membership", value_parser = parse_command)]
    on_fence: Option<HookCommand>,
    /// Seconds that a hook may take, 1 to 3600; then it is killed with all that it started.
    #[arg(long, requires = "membership", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=3600))]
    hook_timeout: u16,
    /// Run the application as standby, too: it is started with `HA_ROLE=standby`, goes on when the agent becomes
    /// active, and `--on-active` promotes it. At the end of a tenure it is ended as a whole and started again. It does
    /// not run while the agent belongs to no pair.
    ///
    /// With `HA_ROLE=standby` it must not accept writes or do anything else that only one of a pair may do, until
    /// `--on-active` tells it to. If that hook fails, the tenure ends. With `HA_ROLE=active`, which it gets if it did not
    /// run when the agent became active, it must be ready for the hook all the same.
    #[arg(long, requires = "on_active")]
    run_in_standby: bool,
    /// The signal that asks the application to end. Whichever signal stops the container, by its image or otherwise, the
    /// application gets this one, and not before the role has been handed over.
    #[arg(long, requires = "membership", value_enum, ignore_case = true, default_value_t)]
    stop_signal: StopSignal,
}

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCommand(Vec<OsString>);

/// When a hook is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The agent became active.
    Active,
    /// The agent is standby.
    Standby,
    /// A tenure has to end.
    Fence,
}

/// All that is run beside the application.
#[derive(Clone, Debug, Default)]
pub struct Hooks {
    /// See [`Occasion::Active`].
    pub on_active: Option<HookCommand>,
    /// See [`Occasion::Standby`].
    pub on_standby: Option<HookCommand>,
    /// See [`Occasion::Fence`].
    pub on_fence: Option<HookCommand>,
    /// How long each may take. Whole seconds.
    pub timeout: Duration,
    /// Whether the application runs in both roles.
    pub runs_in_standby: bool,
    /// How the application is asked to end.
    pub stop_signal: StopSignal,
    /// What hooks and applications get as `HA_STATE_FILE`.
    pub state_file: Option<PathBuf>,
    /// What hooks and applications get as `HA_SYNC_SOCKET`.
    pub sync_socket: Option<PathBuf>,
    /// How it is found out that an application works no more, if it is to be.
    pub check: Option<Check>,
}

/// A hook that runs.
#[derive(Debug)]
pub struct Hook<On: Machine = Kernel> {
    /// What it is run for.
    pub occasion: Occasion,
    /// Its process.
    pub helper: Helper<On>,
}

impl<On: Machine> Hook<On> {
    /// Whether it has to be done before anybody else acts, even if it ends the application itself. It has the time that the
    /// application has.
    pub fn is_fence(&self) -> bool {
        self.occasion == Occasion::Fence
    }
}

/// A process of ours beside the application.
#[derive(Debug)]
pub struct Helper<On: Machine = Kernel> {
    tree: On::Tree,
    endings: On::Endings,
}

impl HookArguments {
    /// The hooks.
    pub fn hooks(self, state_file: Option<PathBuf>) -> Hooks {
        let Self { on_active, on_standby, on_fence, hook_timeout, run_in_standby, stop_signal } = self;
        let timeout = Duration::from_secs(hook_timeout.into());
        let (runs_in_standby, sync_socket, check) = (run_in_standby, None, None);
        Hooks {
            on_active,
            on_standby,
            on_fence,
            timeout,
            runs_in_standby,
            stop_signal,
            state_file,
            sync_socket,
            check,
        }
    }
}

fn parse_command(text: &str) -> Result<HookCommand, String> {
    let words: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
    if words.is_empty() {
        return Err("expected a program and its arguments, separated by blanks".into());
    }
    Ok(HookCommand(words))
}

impl Hooks {
    /// Starts the hook for this occasion, if there is one; see [`tree::Tree::start`] for the thread to call this on.
    ///
    /// # Errors
    /// The launcher could not be started, or the process cannot listen for the end of its children.
    pub fn start<On: Machine>(
        &self,
        occasion: Occasion,
        (machine, launcher): (&On, &Path),
        environment: &Environment,
    ) -> io::Result<Option<Hook<On>>> {
        let command = match occasion {
            Occasion::Active => &self.on_active,
            Occasion::Standby => &self.on_standby,
            Occasion::Fence => &self.on_fence,
        };
        let Some(HookCommand(words)) = command else { return Ok(None) };
        let seconds = self.timeout.as_secs().to_string();
        let own = [launcher.as_os_str().to_owned(), "hook".into(), seconds.into(), "--".into()];
        let command: Vec<OsString> = own.into_iter().chain(words.iter().cloned()).collect();
        let helper = Helper::start((machine, launcher), &command, environment)?;
        Ok(Some(Hook { occasion, helper }))
    }
}

impl<On: Machine> Helper<On> {
    /// Starts it; see [`tree::Tree::start`] for the thread to call this on.
    ///
    /// # Errors
    /// The launcher could not be started, or the process cannot listen for the end of its children.
    pub fn start(
        (machine, launcher): (&On, &Path),
        command: &[OsString],
        environment: &Environment,
    ) -> io::Result<Self> {
        let endings = machine.endings()?;
        let tree = machine.start(launcher, command, environment)?;
        Ok(Self { tree, endings })
    }

    /// Waits until it has ended with all that it started. May be dropped and called again.
    ///
    /// # Errors
    /// What the kernel refused.
    pub async fn ended(&mut self) -> io::Result<Ending> {
        loop {
            if let Some(ending) = self.tree.reap()?.command {
                return Ok(ending);
            }
            self.endings.next().await;
        }
    }

    /// Kills it with all that it started.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn kill(self) -> io::Result<()> {
        self.tree.kill_command()
    }
}

/// Runs a hook's command, and ends it with all that it started: when it ends by itself, or when its time is over.
///
/// Returns the exit code. Call it on the main thread of a process of its own, see [`tree::Tree::start`].
///
/// # Errors
/// What the kernel refused.
pub async fn supervise(launcher: &Path, command: &[OsString], longest: Duration) -> io::Result<u8> {
    tree::adopt_orphans()?;
    let mut application = Application::start(Kernel, launcher, command, &Environment::new())?;
    match timeout(longest, application.ended()).await {
        Ok(ending) => Ok(ending?.exit_code()),
        Err(_) => {
            // What waits for a disk cannot be ended, and falls to the agent.
            if let Ok(killed) = timeout(KILLING_MAX, application.kill()).await {
                killed?;
            }
            Ok(EXIT_OVERDUE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_a_program_with_arguments_and_no_shell() {
        let words = ["/bin/promote", "--now", "$HOME"].map(OsString::from).to_vec();
        assert_eq!(parse_command(" /bin/promote  --now $HOME "), Ok(HookCommand(words)));
        assert!(parse_command(" ").is_err());
    }
}
