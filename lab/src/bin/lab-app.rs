//! Entry point of the stand-in application: arguments in, exit code out.

#![allow(clippy::disallowed_methods, reason = "configuration is parsed once, here")]

use lab::app::arguments::{Command, PORT_VARIABLE, USAGE, parse};
use lab::app::{client, server};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let port = std::env::var(PORT_VARIABLE).ok();
    let result = match parse(&words, port.as_deref()) {
        Ok(Command::Help) => {
            println!("{USAGE}");
            Ok(())
        }
        Ok(Command::Server(options)) => server::run(&options).map_err(anyhow::Error::from),
        Ok(Command::Client(options)) => {
            client::run(&options, &mut std::io::stdout()).map(drop).map_err(anyhow::Error::from)
        }
        Err(error) => Err(anyhow::anyhow!("{error}\n{USAGE}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab-app: {error:#}");
            ExitCode::FAILURE
        }
    }
}
