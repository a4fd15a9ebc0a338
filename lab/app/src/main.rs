//! Entry point of the stand-in application: arguments in, exit code out.

#![allow(clippy::disallowed_methods, reason = "configuration is parsed once, here")]

use lab_app::arguments::{Command, USAGE, parse};
use lab_app::{client, counter, counter_client, kept_client, server, sink};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match parse(&words, |name| std::env::var(name).ok()) {
        Ok(Command::Help) => {
            println!("{USAGE}");
            Ok(())
        }
        Ok(Command::Server(options)) => server::run(&options).map_err(anyhow::Error::from),
        Ok(Command::Client(options)) => {
            client::run(&options, &mut std::io::stdout()).map(drop).map_err(anyhow::Error::from)
        }
        Ok(Command::KeptClient(options)) => {
            kept_client::run(&options, &mut std::io::stdout()).map(drop).map_err(anyhow::Error::from)
        }
        Ok(Command::Counter(options)) => counter::run(&options).map_err(anyhow::Error::from),
        Ok(Command::CounterClient(options)) => {
            counter_client::run(&options, &mut std::io::stdout()).map(drop).map_err(anyhow::Error::from)
        }
        Ok(Command::Sink { port }) => {
            sink::run(port, &mut std::io::stdout()).map(drop).map_err(anyhow::Error::from)
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
