//! The kubectl plugin: arguments in, text and exit code out.

use std::process::ExitCode;

use backuppodset::plugin::{Arguments, print, run};
use clap::Parser as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            print(error.done());
            eprintln!("error: {}", error.chain());
            ExitCode::from(error.exit_code())
        }
    }
}
