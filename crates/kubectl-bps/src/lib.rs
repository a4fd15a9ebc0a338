//! The kubectl plugin: what a person sees of groups and sets, and orders to them.
//!
//! Decides nothing: what it says of plans comes from the same functions that the operator calls, and what it orders is
//! carried out by agents and operator.
//!
//! | file | what it does |
//! |---|---|
//! | [`arguments`] | the command line |
//! | [`error`] | what can go wrong, and with which exit code |
//! | [`cluster`] | the connection, and everything that is read of a group or a set |
//! | `proxy` | whether the connection would need what cannot be had |
//! | `document` | manifests that keep the order of their keys |
//! | [`inject`], [`workload`] | puts the agent into manifests; which of them can have it |
//! | `table` | aligned columns and trees |
//! | `pair` | who acts in a pair now |
//! | [`report`], [`status`] | what is there, as an object and as a tree |
//! | [`switchover`], [`fence`], [`pause`] | orders |
//! | [`history`] | what happened |
//! | [`whatif`] | what becomes of a set when nodes are lost; [`scene`]: what that is made from |
//! | `losses`, `room` | what is lost; which nodes have room |
//! | [`drill`] | breaks something on purpose, and says whether it went as foretold |
//! | [`plan`], [`outlook`] | what the operator would do, and how that is told |

pub mod arguments;
pub mod cluster;
mod document;
pub mod domains;
pub mod drill;
pub mod error;
pub mod fence;
pub mod history;
pub mod inject;
mod losses;
pub mod outlook;
mod pair;
pub mod pause;
pub mod plan;
mod plan_words;
mod proxy;
pub mod report;
mod room;
pub mod scene;
pub mod status;
pub mod switchover;
mod table;
#[cfg(test)]
mod tests;
pub mod whatif;
pub mod workload;

pub use arguments::Arguments;
pub use error::Error;

use clap::CommandFactory as _;

use arguments::{Shell, Verb};
use cluster::Cluster;

/// Name of the program.
const PROGRAM: &str = "kubectl-bps";

/// Does what was asked; the text is for standard output.
///
/// # Errors
/// See [`Error`].
pub async fn run(arguments: Arguments) -> Result<String, Error> {
    let Arguments { target, verb } = arguments;
    let connect = async || Cluster::connect(&target).await;
    match verb {
        Verb::Inject(wanted) => inject::run(&wanted),
        Verb::Status(wanted) => status::run(&connect().await?, &wanted).await,
        Verb::Switchover(wanted) => switchover::run(&connect().await?, &wanted).await,
        Verb::Fence { verb } => fence::run(&connect().await?, &verb).await,
        Verb::Pause(wanted) => pause::run(&connect().await?, &wanted, true).await,
        Verb::Resume(wanted) => pause::run(&connect().await?, &wanted, false).await,
        Verb::History(wanted) => history::run(&connect().await?, &wanted).await,
        Verb::Plan(wanted) => plan::run(&connect().await?, &wanted).await,
        Verb::Drill(wanted) => drill::run(&connect().await?, &wanted).await,
        Verb::Whatif(wanted) => whatif::run(&wanted, connect).await,
        Verb::Completion { shell } => Ok(completion(shell)),
        Verb::Version => Ok(format!("{PROGRAM} {}\n", env!("CARGO_PKG_VERSION"))),
    }
}

/// Prints what [`run`] returned. A reader that went away, for example `head`, is no failure.
///
/// # Errors
/// `Print` if it cannot be written, for example to a full disk.
pub fn print(text: &str) -> Result<(), Error> {
    printed(text, &mut std::io::stdout().lock())
}

fn printed(text: &str, output: &mut impl std::io::Write) -> Result<(), Error> {
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::Print(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Asked by kubectl for the completions of `kubectl bps`, with what was typed after it: passes on what Bash completes for the
/// program itself, options only after a hyphen. Source: the convention of kubectl for plugins, a program `kubectl_complete-NAME` in the PATH, whose last
/// line is a directive of Cobra (0: the default).
const KUBECTL_COMPLETION: &str = r#"#!/bin/bash
source <(kubectl-bps completion bash)
COMP_WORDS=(kubectl-bps "$@") COMP_CWORD=$#
_kubectl__bps kubectl-bps "${@: -1}" "${COMP_WORDS[-2]}"
[[ "${@: -1}" == -* ]] && unwanted='^$' || unwanted='^(-|$)'
printf '%s\n' "${COMPREPLY[@]}" | grep -Ev "$unwanted"
echo :0
"#;

fn completion(shell: Shell) -> String {
    let shell = match shell {
        Shell::Kubectl => return KUBECTL_COMPLETION.to_owned(),
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), PROGRAM, &mut script);
    let script = String::from_utf8_lossy(&script);
    // Because of the hyphen in our name, clap_complete 4.6 sets words for verbs in Bash that it does not look for.
    script.replace("kubectl__subcmd__bps", "kubectl__bps")
}
