//! Runs everything that `make test` promises, as many parts at a time as the machine bears, and sums up.
//!
//! All parts run, whatever becomes of the others; only what was not compiled cannot. A package of its own, without any
//! other of the workspace, so that a change there is compiled once: for the tests.
//!
//! | what | module |
//! |---|---|
//! | what a part needs of the machine, and for how long | `needs` (pure) |
//! | which part starts next | `order` (pure) |
//! | what Cargo compiled | `cargo` |
//! | which parts there are | `parts` |
//! | one part: process group, log, bound | `part` |
//! | all parts, and what is shown of them | `run` |
//! | counts, last words, table of seconds | `report` (pure) |

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod cargo;
mod files;
mod needs;
mod order;
mod part;
mod parts;
mod report;
mod run;

use std::process::ExitCode;

use clap::Parser;

use run::Options;

/// Runs the lints and tests of the workspace that this is started in.
#[derive(Parser)]
struct Arguments {
    /// A target of the Makefile that checks the sources; may be given several times.
    #[arg(long)]
    lint: Vec<String>,
    /// Only parts whose names contain this, such as `lab/api`; may be given several times. All tests are compiled.
    #[arg(long)]
    only: Vec<String>,
}

fn main() -> ExitCode {
    let Arguments { lint, only } = Arguments::parse();
    match run::run(&Options { lints: lint, only }) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("suite: {:#}", anyhow::Error::from(error));
            ExitCode::FAILURE
        }
    }
}
