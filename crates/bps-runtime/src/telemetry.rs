//! Sets up logs: one line per event on standard error, as text or JSON, with UTC timestamps.
//!
//! Nobody waits for a line to be written: a container's standard error is a pipe, which is full as long as its runtime does not
//! read it, and an agent that stood still for that would let its application act on after its tenure.
//!
//! Decides nothing about what is logged; the words and fields are those of the project's style guide.

use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{Subscriber, error};
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::time::SystemTime;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// Libraries whose own news are not ours: at `info` and below they would log every request.
///
/// They stand before the user's directives, so `--log-level=debug,kube=debug` still shows them. `kube_client::client`
/// quotes whole answers that it cannot read in its warnings, those about Secrets too: its errors come back to us anyway.
const QUIET_LIBRARIES: &str = "kube=warn,kube_client::client=error,hyper=warn,rustls=warn,tower=warn";

/// Lines that wait to be written; further ones are dropped. 1,024: some 200 KB, far more than any failover writes.
const LINES_WAITING_MAX: usize = 1_024;
/// How long a process that ends waits for its last words to be written. 100 ms: who reads at all does so at once.
const TOLD_WITHIN: Duration = Duration::from_millis(100);

/// Counts the lines for which there was no room, of the one log that a process has.
static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// How logs are written; flags of every binary of the project.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// How log lines are written.
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// Which log lines are written: a level, or levels by target such as `info,bps_core::plan=debug`.
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    pub log_level: String,
}

/// How log lines are written.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line, for log collectors.
    Json,
}

/// Sets up the logs of a program, runs it, and returns its exit code: 2 if it cannot log, 1 if it failed, which is logged.
pub async fn run_logged<Failure: std::error::Error + 'static>(
    program: &str,
    logs: &LogSettings,
    run: impl Future<Output = Result<(), Failure>>,
) -> ExitCode {
    let _lines = match init(logs) {
        Ok(lines) => lines,
        Err(error) => {
            last_words(format_args!("{program}: {error}"));
            return ExitCode::from(2);
        }
    };
    match run.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(error = &error as &dyn std::error::Error, "Stopped");
            ExitCode::FAILURE
        }
    }
}

/// Why logs could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The wanted level is neither a level nor a list of directives.
    #[error("parse log level {level:?}")]
    ParseLevel {
        /// What was asked for.
        level: String,
        /// What is wrong with it.
        #[source]
        source: ParseError,
    },
    /// Logs had been set up before.
    #[error("install the log subscriber")]
    Install {
        /// What tracing said.
        #[source]
        source: TryInitError,
    },
}

/// Has the lines that wait written when it is dropped, for which it waits [`TOLD_WITHIN`] at most.
#[must_use = "logs are written as long as this is kept"]
#[derive(Debug)]
pub struct Lines {
    writer: Option<WorkerGuard>,
}

impl Drop for Lines {
    fn drop(&mut self) {
        let writer = self.writer.take();
        // By itself it waits ten times as long.
        for_a_while(TOLD_WITHIN, move || drop(writer));
    }
}

/// Sets up logs for the whole process; call it once, before the first task, and keep what it returns until the end.
///
/// # Errors
/// `ParseLevel` for a wrong `--log-level`, `Install` on a second call.
pub fn init(settings: &LogSettings) -> Result<Lines, Error> {
    let (lines, writer) = unhurried(std::io::stderr());
    let dropped = lines.error_counter();
    subscriber(settings, lines)?.try_init().map_err(|source| Error::Install { source })?;
    DROPPED.get_or_init(|| dropped);
    Ok(Lines { writer: Some(writer) })
}

/// Sets up logs for a process that is about to end and must not wait, not even for a thread to be woken: a line is written
/// at once if standard error has room for it, and dropped otherwise.
///
/// # Errors
/// As of [`init`].
pub fn init_at_the_end(settings: &LogSettings) -> Result<(), Error> {
    let subscriber = subscriber(settings, || Prompt(rustix::stdio::stderr()))?;
    subscriber.try_init().map_err(|source| Error::Install { source })
}

/// Writes what there is room for, and never waits.
struct Prompt<To>(To);

/// What a pipe that can be written to has room for at least. Unit: bytes. Source: `PIPE_BUF` of Linux, a page.
const ROOM_MIN: usize = 4_096;

impl<To: AsFd> Write for Prompt<To> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut asked = [PollFd::new(&self.0, PollFlags::OUT)];
        poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        if asked[0].revents().contains(PollFlags::OUT) {
            rustix::io::write(&self.0, &bytes[..bytes.len().min(ROOM_MIN)])?;
        }
        // What has no room is not to be tried again.
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How many lines of this process were dropped because those before were not read.
pub fn lines_dropped() -> u64 {
    let dropped = DROPPED.get().map_or(0, ErrorCounter::dropped_lines);
    u64::try_from(dropped).unwrap_or(u64::MAX)
}

/// Writes on a thread of its own.
fn unhurried(to: impl Write + Send + 'static) -> (NonBlocking, WorkerGuard) {
    NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_WAITING_MAX)
        .thread_name("log")
        .finish(to)
}

/// Writes a line on standard error before the process ends, with or without logs; in vain if nobody reads it.
pub fn last_words(line: impl Display) {
    let line = format!("{line}\n");
    // What cannot be written cannot be told either.
    for_a_while(TOLD_WITHIN, move || drop(std::io::stderr().write_all(line.as_bytes())));
}

/// Does something that may take for ever, and waits for it for this time.
fn for_a_while(time: Duration, work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let working = thread::Builder::new().spawn(move || {
        work();
        done.send(())
    });
    // Whoever gets no thread is past telling anything.
    drop(working.map(|_| is_done.recv_timeout(time)));
}

fn subscriber<Writer>(
    settings: &LogSettings,
    writer: Writer,
) -> Result<Box<dyn Subscriber + Send + Sync>, Error>
where
    Writer: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let level = &settings.log_level;
    let filter = filter(level).map_err(|source| Error::ParseLevel { level: level.clone(), source })?;
    // `SystemTime` prints UTC with microseconds: failovers take milliseconds. No colours: logs are read by machines.
    // What no target wants is to cost nothing, also in libraries that log otherwise.
    let most = Layer::<Registry>::max_level_hint(&filter).unwrap_or(LevelFilter::TRACE);
    let lines = tracing_subscriber::fmt().with_max_level(most).with_timer(SystemTime).with_writer(writer);
    Ok(match settings.log_format {
        LogFormat::Text => Box::new(lines.with_ansi(false).finish().with(filter)),
        LogFormat::Json => {
            Box::new(lines.json().flatten_event(true).with_span_list(false).finish().with(filter))
        }
    })
}

/// Levels by target. `EnvFilter` knows spans and fields as well, for which every agent would hold two engines for regular
/// expressions in memory.
fn filter(level: &str) -> Result<Targets, ParseError> {
    // The agent shares `RUST_LOG` with its application, whose directives say nothing of the agent; those about spans and
    // fields are the application's.
    let is_of_target = |directive: &&str| !directive.is_empty() && !directive.contains(['[', ']', '{', '}']);
    let asked = level.split(',').map(str::trim).filter(is_of_target);
    let directives: Vec<&str> = ["info"].into_iter().chain(QUIET_LIBRARIES.split(',')).chain(asked).collect();
    directives.join(",").parse()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use clap::Parser;
    use tracing::subscriber::with_default;
    use tracing::{debug, info, info_span, warn};

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        log: LogSettings,
    }

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn lines(format: LogFormat, level: &str, work: impl FnOnce()) -> Vec<String> {
        let memory = Memory::default();
        let writer = memory.clone();
        let settings = LogSettings { log_format: format, log_level: level.to_owned() };
        with_default(subscriber(&settings, move || writer.clone()).unwrap(), work);
        let bytes = memory.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    /// A pipe that nobody reads.
    struct Stuck(mpsc::Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            // Until the test is over.
            assert!(self.0.recv().is_err());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_line_that_cannot_be_written() {
        let (until, blocked) = mpsc::channel();
        let (lines, writer) = unhurried(Stuck(blocked));
        let dropped = lines.error_counter();
        let settings = LogSettings { log_format: LogFormat::Text, log_level: "info".to_owned() };
        with_default(subscriber(&settings, lines).unwrap(), || {
            (0..2 * LINES_WAITING_MAX).for_each(|number| info!(number, "Said something"));
        });
        assert!(dropped.dropped_lines() >= LINES_WAITING_MAX - 1, "the rest waits");
        drop(until);
        drop(writer);
    }

    #[test]
    fn last_lines_are_written_at_once_if_there_is_room_and_dropped_otherwise() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let mut prompt = Prompt(writer.try_clone().unwrap());
        assert_eq!(prompt.write(b"Killed it\n").unwrap(), 10);
        let mut read = [0; 64];
        assert_eq!(io::Read::read(&mut reader, &mut read).unwrap(), 10);
        assert_eq!(&read[..10], b"Killed it\n");

        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        while writer.write(&[0; 512]).is_ok() {}
        assert_eq!(prompt.write(b"Killed it\n").unwrap(), 10, "it would wait for ever otherwise");
        drop((writer, prompt));
        let mut rest = Vec::new();
        io::Read::read_to_end(&mut reader, &mut rest).unwrap();
        assert!(rest.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn json_lines_carry_message_fields_span_and_a_utc_time() {
        let written = lines(LogFormat::Json, "info", || {
            info_span!("reconcile", set = "web").in_scope(|| info!(pod = "web-0", "Promoted pod"));
        });

        assert_eq!(written.len(), 1);
        let line: serde_json::Value = serde_json::from_str(&written[0]).unwrap();
        let time: jiff::Timestamp = line["timestamp"].as_str().unwrap().parse().unwrap();
        assert!(time > jiff::Timestamp::UNIX_EPOCH);
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
        assert_eq!(line["message"], "Promoted pod");
        assert_eq!(line["pod"], "web-0");
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["span"]["set"], "web");
    }

    #[test]
    fn text_lines_have_no_escape_codes() {
        let written = lines(LogFormat::Text, "info", || info!(pod = "web-0", "Promoted pod"));
        assert_eq!(written.len(), 1);
        assert!(written[0].ends_with("Promoted pod pod=\"web-0\""), "{written:?}");
        assert!(!written[0].contains('\u{1b}'));
    }

    #[test]
    fn libraries_stay_quiet_until_they_are_asked_for_by_name() {
        let work = || {
            debug!("ours");
            debug!(target: "kube_runtime::controller", "theirs");
            warn!(target: "kube_client::client", "the bytes of a Secret");
            warn!(target: "kube_runtime::watcher", "their warning");
        };
        assert_eq!(lines(LogFormat::Text, "info", work).len(), 1);
        assert_eq!(lines(LogFormat::Text, "debug", work).len(), 2);
        assert_eq!(lines(LogFormat::Text, "debug,kube=debug", work).len(), 3);
        assert_eq!(lines(LogFormat::Text, "my_app=debug", work).len(), 1);
        let of_spans = "my_app[request{id=7,path}]=trace, [{peer}]=debug,,my_app=off,";
        assert_eq!(lines(LogFormat::Text, of_spans, work).len(), 1);
    }

    #[test]
    fn a_wrong_level_is_refused_and_quoted() {
        let settings = LogSettings { log_format: LogFormat::Text, log_level: "loud=very".to_owned() };
        let error = subscriber(&settings, std::io::sink).err().unwrap();
        assert_eq!(error.to_string(), "parse log level \"loud=very\"");
    }

    #[test]
    fn flags_are_understood() {
        let program = Program::try_parse_from(["bps", "--log-format=json", "--log-level=debug"])
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(program.log, LogSettings { log_format: LogFormat::Json, log_level: "debug".to_owned() });
    }
}
