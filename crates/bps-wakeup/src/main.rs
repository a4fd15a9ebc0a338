//! Entry point of the cold gate; arguments in, exit code out.

use std::error::Error as _;
use std::process::ExitCode;

use bps_wakeup::command;

#[expect(clippy::disallowed_methods, reason = "the environment is read here, once")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Err(error) = command::run(&arguments, |name| std::env::var(name).ok()) else {
        return ExitCode::SUCCESS;
    };
    eprintln!("bps-wakeup: {}", chain(&error));
    if matches!(error, command::Error::Usage) {
        ExitCode::from(command::EXIT_USAGE)
    } else {
        ExitCode::FAILURE
    }
}

fn chain(error: &command::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
