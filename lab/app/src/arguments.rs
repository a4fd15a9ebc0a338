//! Parses the command line of `lab-app` into what to run.
//!
//! By hand: a parser crate would be most of the binary.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use bps_api::keys::{ENV_HA_EPOCH, ENV_HA_PAIR, ENV_HA_SYNC_SOCKET};

use super::client::{ClientOptions, DEFAULT_DEADLINE, IN_FLIGHT_MAX, REQUESTS_MAX};
use super::counter::CounterOptions;
use super::server::{Ending, ServerOptions};
use super::stamp::{NO_PAIR, Stamp};

/// Port of the server unless the environment or a flag names another.
pub const DEFAULT_PORT: u16 = 80;
/// Variable of the environment that names the server's port.
pub const PORT_VARIABLE: &str = "LAB_APP_PORT";
/// Variable of the environment that names who is told of each output of a server or a counter, `ADDRESS:PORT`.
pub const SINK_VARIABLE: &str = "SINK";
/// Epoch of a counter that no agent has started.
const NO_EPOCH: u64 = 0;
/// What `--help` and each error print.
pub const USAGE: &str = "usage:
  lab-app [--address IP] [--port N] [--listen-after-ms N] [--drain-seconds N | --finish-ms N]
  lab-app client --target ADDRESS:PORT [--interval-ms N] [--duration-s N] [--deadline-ms N]
  lab-app kept-client --target ADDRESS:PORT [--interval-ms N] [--duration-s N] [--deadline-ms N]
  lab-app counter --state FOLDER [--port N]
  lab-app counter-client --target ADDRESS:PORT [--interval-ms N] [--duration-s N] [--deadline-ms N]
  lab-app sink [--port N]
LAB_APP_PORT is the port of a server unless --port is given; 80 otherwise. Servers and counters read HA_PAIR, HA_EPOCH, and
SINK, the ADDRESS:PORT of a sink; a counter HA_SYNC_SOCKET, where it asks the agent for a barrier before it acknowledges.";

/// Time between two requests unless a flag names another.
const DEFAULT_INTERVAL: Duration = Duration::from_millis(5);
/// Length of a client's run unless a flag names another.
const DEFAULT_DURATION: Duration = Duration::from_secs(10);

/// What the arguments ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Serve until a signal.
    Server(ServerOptions),
    /// Send requests and report.
    Client(ClientOptions),
    /// Send requests over one connection and report.
    KeptClient(ClientOptions),
    /// Count until a signal.
    Counter(CounterOptions),
    /// Add to a counter and report.
    CounterClient(ClientOptions),
    /// Receive from all counters until a signal, and report.
    Sink {
        /// UDP port on all IPv4 addresses.
        port: u16,
    },
    /// Print [`USAGE`].
    Help,
}

/// Why the arguments make no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A word that is no flag of this command.
    #[error("unknown argument {0}")]
    UnknownArgument(String),
    /// A flag without or with an unreadable value.
    #[error("{flag} needs a valid value")]
    InvalidValue {
        /// The flag.
        flag: String,
    },
    /// A client without a target.
    #[error("--target is missing")]
    MissingTarget,
    /// A counter without a folder.
    #[error("--state is missing")]
    MissingState,
    /// More requests than one run holds in memory or in threads.
    #[error(
        "at most {REQUESTS_MAX} requests a run and {IN_FLIGHT_MAX} within one deadline, at least 1 ms apart"
    )]
    TooManyRequests,
}

/// Parses the words after the program's name; `variable` looks a variable of the environment up.
///
/// # Errors
/// See [`Error`].
pub fn parse(words: &[String], variable: impl Fn(&str) -> Option<String>) -> Result<Command, Error> {
    let port = variable(PORT_VARIABLE);
    let port = port.map_or(Ok(DEFAULT_PORT), |port| value(PORT_VARIABLE, Some(&port)))?;
    match words.first().map(String::as_str) {
        Some("--help" | "-h" | "help") => Ok(Command::Help),
        Some("client") => parse_client(&words[1..]).map(Command::Client),
        Some("kept-client") => parse_client(&words[1..]).map(Command::KeptClient),
        Some("counter") => parse_counter(&words[1..], (port, variable)).map(Command::Counter),
        Some("counter-client") => parse_client(&words[1..]).map(Command::CounterClient),
        Some("sink") => parse_sink(&words[1..], port),
        _ => parse_server(words, (port, variable)).map(Command::Server),
    }
}

fn parse_counter(
    words: &[String],
    (mut port, variable): (u16, impl Fn(&str) -> Option<String>),
) -> Result<CounterOptions, Error> {
    let mut state = None;
    for pair in words.chunks(2) {
        let (flag, text) = (pair[0].as_str(), pair.get(1).map(String::as_str));
        match flag {
            "--port" => port = value(flag, text)?,
            "--state" => state = Some(value(flag, text)?),
            _ => return Err(Error::UnknownArgument(flag.to_owned())),
        }
    }
    let stamp = stamp(&variable)?;
    let state = state.ok_or(Error::MissingState)?;
    let barriers = variable(ENV_HA_SYNC_SOCKET).map(PathBuf::from);
    Ok(CounterOptions { port, state, stamp, barriers })
}

fn stamp(variable: impl Fn(&str) -> Option<String>) -> Result<Stamp, Error> {
    let pair = variable(ENV_HA_PAIR).unwrap_or_else(|| NO_PAIR.to_owned());
    let epoch = variable(ENV_HA_EPOCH).map(|epoch| value(ENV_HA_EPOCH, Some(&epoch))).transpose()?;
    let sink = variable(SINK_VARIABLE).map(|sink| value(SINK_VARIABLE, Some(&sink))).transpose()?;
    Ok(Stamp { pair, epoch: epoch.unwrap_or(NO_EPOCH), sink })
}

fn parse_sink(words: &[String], mut port: u16) -> Result<Command, Error> {
    for pair in words.chunks(2) {
        let (flag, text) = (pair[0].as_str(), pair.get(1).map(String::as_str));
        match flag {
            "--port" => port = value(flag, text)?,
            _ => return Err(Error::UnknownArgument(flag.to_owned())),
        }
    }
    Ok(Command::Sink { port })
}

fn parse_server(
    words: &[String],
    (port, variable): (u16, impl Fn(&str) -> Option<String>),
) -> Result<ServerOptions, Error> {
    let stamp = stamp(variable)?;
    let ending = Ending::Drain(Duration::ZERO);
    let (address, listens_after) = (Ipv4Addr::UNSPECIFIED, Duration::ZERO);
    let mut options = ServerOptions { address, port, listens_after, ending, stamp };
    for pair in words.chunks(2) {
        let (flag, text) = (pair[0].as_str(), pair.get(1).map(String::as_str));
        match flag {
            "--address" => options.address = value(flag, text)?,
            "--port" => options.port = value(flag, text)?,
            "--listen-after-ms" => {
                options.listens_after = Duration::from_millis(value::<u32>(flag, text)?.into());
            }
            "--drain-seconds" => {
                options.ending = Ending::Drain(Duration::from_secs(value::<u32>(flag, text)?.into()));
            }
            "--finish-ms" => {
                options.ending = Ending::Finish(Duration::from_millis(value::<u32>(flag, text)?.into()));
            }
            _ => return Err(Error::UnknownArgument(flag.to_owned())),
        }
    }
    Ok(options)
}

fn parse_client(words: &[String]) -> Result<ClientOptions, Error> {
    let (mut target, mut interval) = (None, DEFAULT_INTERVAL);
    let (mut duration, mut deadline) = (DEFAULT_DURATION, DEFAULT_DEADLINE);
    for pair in words.chunks(2) {
        let (flag, text) = (pair[0].as_str(), pair.get(1).map(String::as_str));
        match flag {
            "--target" => target = Some(value(flag, text)?),
            "--interval-ms" => interval = Duration::from_millis(value::<u32>(flag, text)?.into()),
            "--duration-s" => duration = Duration::from_secs(value::<u32>(flag, text)?.into()),
            "--deadline-ms" => deadline = Duration::from_millis(value::<u32>(flag, text)?.into()),
            _ => return Err(Error::UnknownArgument(flag.to_owned())),
        }
    }
    let per = |time: Duration| time.as_nanos().checked_div(interval.as_nanos());
    let is_bounded = per(duration).is_some_and(|count| count <= REQUESTS_MAX)
        && per(deadline).is_some_and(|count| count <= IN_FLIGHT_MAX);
    if !is_bounded {
        return Err(Error::TooManyRequests);
    }
    Ok(ClientOptions { target: target.ok_or(Error::MissingTarget)?, interval, duration, deadline })
}

fn value<T: std::str::FromStr>(flag: &str, text: Option<&str>) -> Result<T, Error> {
    text.and_then(|text| text.parse().ok()).ok_or_else(|| Error::InvalidValue { flag: flag.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str, port: Option<&str>) -> Result<Command, Error> {
        let variable = |name: &str| port.filter(|_| name == PORT_VARIABLE).map(str::to_owned);
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), variable)
    }

    #[expect(clippy::unnecessary_wraps, reason = "compared with a result")]
    fn server(port: u16, ending: Ending) -> Result<Command, Error> {
        let (address, listens_after) = (Ipv4Addr::UNSPECIFIED, Duration::ZERO);
        let stamp = Stamp { pair: NO_PAIR.to_owned(), epoch: NO_EPOCH, sink: None };
        Ok(Command::Server(ServerOptions { address, port, listens_after, ending, stamp }))
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_the_environment_over_the_default() {
        let drain = |seconds| Ending::Drain(Duration::from_secs(seconds));
        assert_eq!(parsed("", None), server(80, drain(0)));
        assert_eq!(parsed("", Some("8080")), server(8080, drain(0)));
        assert_eq!(parsed("--port 81 --drain-seconds 3", Some("8080")), server(81, drain(3)));
        let finish = Ending::Finish(Duration::from_millis(100));
        assert_eq!(parsed("--finish-ms 100", None), server(80, finish));
        let Ok(Command::Server(slow)) = parsed("--listen-after-ms 300", None) else { panic!("no server") };
        assert_eq!(slow.listens_after, Duration::from_millis(300));
    }

    #[test]
    fn a_client_needs_only_its_target() {
        let expected = ClientOptions {
            target: "198.18.0.1:80".parse().unwrap(),
            interval: Duration::from_millis(5),
            duration: Duration::from_secs(10),
            deadline: Duration::from_secs(1),
        };
        assert_eq!(parsed("client --target 198.18.0.1:80", None), Ok(Command::Client(expected)));
    }

    #[test]
    fn a_counter_takes_its_stamp_from_its_environment() {
        let words = ["counter", "--state", "/data", "--port", "81"].map(str::to_owned);
        let variable = |name: &str| match name {
            ENV_HA_PAIR => Some("web-0".to_owned()),
            ENV_HA_EPOCH => Some("4294967297".to_owned()),
            SINK_VARIABLE => Some("198.18.0.1:9000".to_owned()),
            ENV_HA_SYNC_SOCKET => Some("/data/sync".to_owned()),
            _ => None,
        };
        let sink = "198.18.0.1:9000".parse().ok();
        let stamp = Stamp { pair: "web-0".to_owned(), epoch: 4_294_967_297, sink };
        let barriers = Some("/data/sync".into());
        let expected = CounterOptions { port: 81, state: "/data".into(), stamp, barriers };
        assert_eq!(parse(&words, variable), Ok(Command::Counter(expected.clone())));
        let stamp = Stamp { pair: NO_PAIR.to_owned(), epoch: NO_EPOCH, sink: None };
        let alone = CounterOptions { stamp, barriers: None, ..expected };
        assert_eq!(parse(&words, |_| None), Ok(Command::Counter(alone)));
        assert_eq!(parsed("counter", None), Err(Error::MissingState));
        assert_eq!(parsed("sink --port 9000", None), Ok(Command::Sink { port: 9000 }));
    }

    #[test]
    fn wrong_words_are_refused_with_their_reason() {
        let invalid = |flag: &str| Err(Error::InvalidValue { flag: flag.to_owned() });
        assert_eq!(parsed("--prot 81", None), Err(Error::UnknownArgument("--prot".to_owned())));
        assert_eq!(parsed("--port", None), invalid("--port"));
        assert_eq!(parsed("", Some("many")), invalid(PORT_VARIABLE));
        assert_eq!(parsed("client --target web:80", None), invalid("--target"));
        assert_eq!(parsed("client", None), Err(Error::MissingTarget));
    }

    #[test]
    fn more_requests_than_threads_or_memory_allow_are_refused() {
        for flags in ["--interval-ms 0", "--interval-ms 1 --deadline-ms 5000", "--duration-s 100000"] {
            let line = format!("client --target 127.0.0.1:80 {flags}");
            assert_eq!(parsed(&line, None), Err(Error::TooManyRequests), "{line}");
        }
    }
}
