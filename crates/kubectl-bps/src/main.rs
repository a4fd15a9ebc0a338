//! The kubectl plugin: arguments in, text and exit code out.

use std::process::ExitCode;

use clap::Parser as _;
use kubectl_bps::{Arguments, Error, print, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let said = run(Arguments::parse()).await;
    let printed = print(said.as_ref().map_or_else(Error::done, String::as_str));
    match said.map(drop).and(printed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error.chain());
            ExitCode::from(error.exit_code())
        }
    }
}
