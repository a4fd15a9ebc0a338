//! Adds to a counter all the time, over new connections and over one that is kept, and says what was lost.
//!
//! The new connections are an open loop: one per interval, whatever became of the earlier ones.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, ErrorKind, Read as _, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::client::{
    ClientOptions, open_loop, outcome_of, read_on, realtime_ns, remaining, reusable, stop_on_signal,
};
use super::dial::dial;
use super::outage::Outage;
use super::sample::{Outcome, Sample};

/// Longest answer that is read. Unit: bytes. An id, a number and a Pod's name are below 400.
const ANSWER_MAX_BYTES: usize = 512;
/// How long the counter is asked for its log after the run.
const LIST_WITHIN: Duration = Duration::from_secs(30);
/// Pause between two such questions.
const LIST_PAUSE: Duration = Duration::from_millis(100);

/// What became of one increment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Attempt {
    id: String,
    sample: Sample,
}

/// What the client saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// Over a new connection each time.
    pub fresh: Outage,
    /// Over one connection, made anew when it failed or the counter had ended it.
    pub kept: Outage,
    /// Increments that were acknowledged.
    pub acknowledged: usize,
    /// Those of them that the counter does not have at the end; `None` if it did not answer any more.
    pub lost: Option<usize>,
}

impl fmt::Display for Count {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count { fresh, kept, acknowledged, lost } = self;
        let lost = lost.map_or_else(|| "unknown".to_owned(), |lost| lost.to_string());
        write!(formatter, "# fresh {fresh}\n# kept {kept}\n# acknowledged={acknowledged} lost={lost}")
    }
}

/// Adds for the whole duration, then writes one line of CSV for each increment, and the [`Count`]. SIGTERM or SIGINT
/// end the run early, with its summary.
///
/// # Errors
/// When a signal cannot be caught, a thread cannot be started or the lines cannot be written.
pub fn run(options: &ClientOptions, output: &mut impl Write) -> io::Result<Count> {
    let is_stopped = stop_on_signal()?;
    let client = realtime_ns();
    let (fresh, kept) = thread::scope(|scope| {
        let kept = scope.spawn(|| keep(options, client, &is_stopped));
        let (sender, receiver) = std::sync::mpsc::channel();
        let (target, deadline) = (options.target, options.deadline);
        let add = move |number| attempt(&format!("{client}-f{number}"), || connect(target, deadline)).0;
        open_loop(options, &is_stopped, (sender, add))?;
        let kept = kept.join().map_err(|_| io::Error::other("the kept connection panicked"))?;
        Ok::<_, io::Error>((receiver.into_iter().collect::<Vec<Attempt>>(), kept))
    })?;
    let count = count(&fresh, &kept, list(options).as_ref());
    writeln!(output, "connection,start_ns,end_ns,outcome,pod")?;
    for (word, attempts) in [("fresh", &fresh), ("kept", &kept)] {
        for attempt in attempts {
            writeln!(output, "{word},{}", attempt.sample)?;
        }
    }
    writeln!(output, "{count}")?;
    output.flush()?;
    Ok(count)
}

fn count(fresh: &[Attempt], kept: &[Attempt], listed: Option<&BTreeSet<String>>) -> Count {
    let outage = |attempts: &[Attempt]| {
        Outage::from_samples(&attempts.iter().map(|attempt| attempt.sample.clone()).collect::<Vec<_>>())
    };
    let acknowledged = || fresh.iter().chain(kept).filter(|attempt| attempt.sample.is_ok());
    Count {
        fresh: outage(fresh),
        kept: outage(kept),
        acknowledged: acknowledged().count(),
        lost: listed.map(|listed| acknowledged().filter(|attempt| !listed.contains(&attempt.id)).count()),
    }
}

/// A connection, and until when it may take for its next answer.
type Connected = (TcpStream, Instant);

fn connect(target: SocketAddr, deadline: Duration) -> io::Result<Connected> {
    let until = Instant::now() + deadline;
    Ok((dial(target, until)?, until))
}

/// Adds once; returns the connection if it can be used again.
fn attempt(id: &str, connect: impl FnOnce() -> io::Result<Connected>) -> (Attempt, Option<TcpStream>) {
    let start_ns = realtime_ns();
    let result = connect().and_then(|(mut stream, until)| Ok((add(&mut stream, id, until)?, stream)));
    let end_ns = realtime_ns();
    let (outcome, pod, stream) = match result {
        Ok((Some(pod), stream)) => (Outcome::Ok, pod, Some(stream)),
        Ok((None, _)) => (Outcome::Malformed, String::new(), None),
        Err(error) => (outcome_of(&error), String::new(), None),
    };
    (Attempt { id: id.to_owned(), sample: Sample { start_ns, end_ns, outcome, pod } }, stream)
}

/// The Pod that acknowledged; `None` if the answer is none to this request.
fn add(stream: &mut TcpStream, id: &str, until: Instant) -> io::Result<Option<String>> {
    stream.set_write_timeout(Some(remaining(until)?))?;
    stream.write_all(format!("add {id}\n").as_bytes())?;
    let (mut answer, mut buffer) = (Vec::new(), [0; ANSWER_MAX_BYTES]);
    while answer.len() < ANSWER_MAX_BYTES && !answer.ends_with(b"\n") {
        stream.set_read_timeout(Some(remaining(until)?))?;
        match read_on(stream, &mut buffer)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            length => answer.extend_from_slice(&buffer[..length]),
        }
    }
    let words: Vec<&str> = std::str::from_utf8(&answer).unwrap_or_default().split_whitespace().collect();
    Ok(match words[..] {
        [known, _epoch, pod] if known == id => Some(pod.to_owned()),
        _ => None,
    })
}

/// One increment after the other over the same connection.
fn keep(options: &ClientOptions, client: u64, is_stopped: &AtomicBool) -> Vec<Attempt> {
    let (begin, mut attempts, mut kept) = (Instant::now(), Vec::new(), None);
    while begin.elapsed() < options.duration && !is_stopped.load(Ordering::Relaxed) {
        let next = Instant::now() + options.interval;
        let stream = || match kept.take().and_then(reusable) {
            Some(stream) => Ok((stream, Instant::now() + options.deadline)),
            None => connect(options.target, options.deadline),
        };
        let (made, again) = attempt(&format!("{client}-k{}", attempts.len()), stream);
        attempts.push(made);
        kept = again;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    attempts
}

/// The ids that the counter has; asked again for a while, because it may just be changing places.
fn list(options: &ClientOptions) -> Option<BTreeSet<String>> {
    let until = Instant::now() + LIST_WITHIN;
    while Instant::now() < until {
        if let Ok(text) = connect(options.target, options.deadline).and_then(read_list) {
            let id = |line: &str| line.split(' ').next().map(str::to_owned);
            return Some(text.lines().filter_map(id).collect());
        }
        thread::sleep(LIST_PAUSE);
    }
    None
}

fn read_list((mut stream, _): Connected) -> io::Result<String> {
    stream.set_read_timeout(Some(LIST_WITHIN))?;
    stream.write_all(b"list\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map(|_| text)
}

#[cfg(test)]
mod tests {
    use super::super::counter::tests::start;
    use super::*;

    fn options(target: SocketAddr) -> ClientOptions {
        let (interval, duration) = (Duration::from_millis(5), Duration::from_millis(50));
        ClientOptions { target, interval, duration, deadline: Duration::from_secs(10) }
    }

    #[test]
    fn a_counter_that_runs_loses_nothing() {
        let state = tempfile::tempdir().unwrap();
        let mut output = Vec::new();
        let count = run(&options(start(state.path(), 7, None)), &mut output).unwrap();
        assert_eq!((count.fresh.requests, count.fresh.failed, count.kept.failed), (10, 0, 0));
        assert!(count.kept.requests > 0);
        assert_eq!(count.acknowledged, 10 + count.kept.requests);
        assert_eq!(count.lost, Some(0));
        let text = String::from_utf8(output).unwrap();
        assert_eq!(text.lines().filter(|line| line.starts_with("fresh,")).count(), 10);
        assert!(text.ends_with(&format!("# acknowledged={} lost=0\n", count.acknowledged)), "{text}");
    }

    #[test]
    fn only_acknowledged_increments_can_be_lost() {
        let attempt = |id: &str, outcome| Attempt {
            id: id.to_owned(),
            sample: Sample { start_ns: 0, end_ns: 1, outcome, pod: String::new() },
        };
        let fresh = [attempt("a", Outcome::Ok), attempt("b", Outcome::Ok), attempt("c", Outcome::Timeout)];
        let kept = [attempt("d", Outcome::Ok)];
        let listed = BTreeSet::from(["a".to_owned()]);
        let lost = |listed| (count(&fresh, &kept, listed).acknowledged, count(&fresh, &kept, listed).lost);
        assert_eq!(lost(Some(&listed)), (3, Some(2)));
        assert_eq!(lost(None), (3, None));
    }
}
