//! The open-loop load client: one new connection per interval, whatever became of the earlier ones.
//!
//! Judges nothing; `outage` does.

use super::dial::dial;
use super::outage::Outage;
use super::sample::{CSV_HEADER, Outcome, Sample};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Default deadline of a request.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(1);
/// Requests in flight at once at most, so threads: deadline divided by interval must not exceed it.
pub const IN_FLIGHT_MAX: u128 = 4096;
/// Requests of one run at most: they are kept in memory for the summary, about 80 bytes each.
pub const REQUESTS_MAX: u128 = 2_000_000;
/// Stack of a request's thread. Unit: bytes.
const STACK_BYTES: usize = 64 * 1024;
/// Longest answer that is read. Unit: bytes. The stand-in's is below 400.
pub(super) const ANSWER_MAX_BYTES: usize = 2048;
/// Longest name of a Pod. Unit: bytes (Kubernetes: DNS subdomain).
const POD_NAME_MAX_BYTES: usize = 253;

/// What the client sends, where and how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientOptions {
    /// Address of a Pod or of a Service. No names: a static binary has no resolver.
    pub target: SocketAddr,
    /// Time between the starts of two requests.
    pub interval: Duration,
    /// Length of the run; the last requests may end one deadline later.
    pub duration: Duration,
    /// Time for one request, from the start of its connection.
    pub deadline: Duration,
}

/// Sends requests for the whole duration, writes one line of CSV for each as it ends, then a last line that
/// begins with `# ` and holds the [`Outage`]. SIGTERM or SIGINT end the run early, with its summary.
///
/// # Errors
/// When a signal cannot be caught, a thread cannot be started or the lines cannot be written.
pub fn run(options: &ClientOptions, output: &mut (impl Write + Send)) -> io::Result<Outage> {
    let is_stopped = stop_on_signal()?;
    let samples = thread::scope(|scope| {
        let (sender, receiver) = channel::<Sample>();
        let writer = scope.spawn(|| {
            writeln!(output, "{CSV_HEADER}")?;
            let mut samples = Vec::new();
            for sample in receiver {
                writeln!(output, "{sample}")?;
                samples.push(sample);
            }
            writeln!(output, "# {}", Outage::from_samples(&samples))?;
            output.flush()?;
            Ok::<_, io::Error>(samples)
        });
        // The writer ends when the last request has dropped its sender.
        let (target, deadline) = (options.target, options.deadline);
        open_loop(options, &is_stopped, (sender, move |_| request(target, deadline)))?;
        writer.join().map_err(|_| io::Error::other("the writer of samples panicked"))?
    })?;
    Ok(Outage::from_samples(&samples))
}

/// Set when SIGTERM or SIGINT has come.
pub(super) fn stop_on_signal() -> io::Result<Arc<AtomicBool>> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&is_stopped))?;
    }
    Ok(is_stopped)
}

/// Starts a numbered request each interval, whatever became of the earlier ones, and sends what becomes of each.
pub(super) fn open_loop<T: Send + 'static>(
    options: &ClientOptions,
    is_stopped: &AtomicBool,
    (sender, request): (Sender<T>, impl Fn(u64) -> T + Clone + Send + 'static),
) -> io::Result<()> {
    let begin = Instant::now();
    let (mut due, mut number) = (Duration::ZERO, 0);
    while due < options.duration && !is_stopped.load(Ordering::Relaxed) {
        thread::sleep(due.saturating_sub(begin.elapsed()));
        let (request, sender) = (request.clone(), sender.clone());
        thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            // The receiver is gone only if writing failed, which the run reports.
            let _ = sender.send(request(number));
        })?;
        due += options.interval;
        number += 1;
    }
    Ok(())
}

pub(super) fn realtime_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn request(target: SocketAddr, deadline: Duration) -> Sample {
    let start_ns = realtime_ns();
    let result = exchange(target, Instant::now() + deadline);
    let end_ns = realtime_ns();
    let (outcome, pod) = match result {
        Ok(answer) => {
            pod_of(&answer).map_or((Outcome::Malformed, String::new()), |pod| (Outcome::Ok, pod.to_owned()))
        }
        Err(error) => (outcome_of(&error), String::new()),
    };
    Sample { start_ns, end_ns, outcome, pod }
}

fn exchange(target: SocketAddr, until: Instant) -> io::Result<Vec<u8>> {
    let mut stream = dial(target, until)?;
    stream.set_write_timeout(Some(remaining(until)?))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")?;
    read_answer(&mut stream, until)
}

/// Reads until an answer is whole.
pub(super) fn read_answer(stream: &mut TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut buffer = [0; ANSWER_MAX_BYTES];
    while answer.len() < ANSWER_MAX_BYTES && !is_whole(&answer) {
        stream.set_read_timeout(Some(remaining(until)?))?;
        match read_on(stream, &mut buffer)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => answer.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(answer)
}

/// Reads what comes next. A signal that comes first, as the one that ends a run does, is none of the server's doing: the kernel
/// starts a read with a time limit not again by itself.
pub(super) fn read_on(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// A kept connection, unless the other side has ended it between two requests, as servers do that stop. What comes later than
/// this look is for the request that follows it.
pub(super) fn reusable(stream: TcpStream) -> Option<TcpStream> {
    let looked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let is_quiet = looked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    (is_quiet && stream.set_nonblocking(false).is_ok()).then_some(stream)
}

/// Whether the head and as many bytes as it announces are there: half of a name is a name as well.
pub(super) fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    length.and_then(|length| length.parse().ok()).is_none_or(|length: usize| body.len() >= length)
}

/// Time left; a zero timeout would mean "for ever" to the socket.
pub(super) fn remaining(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Whether the server ends the connection after this answer.
pub(super) fn is_last(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let head = text.split("\r\n\r\n").next().unwrap_or_default();
    head.lines().any(|line| line == "Connection: close")
}

pub(super) fn pod_of(answer: &[u8]) -> Option<&str> {
    let (head, body) = std::str::from_utf8(answer).ok()?.split_once("\r\n\r\n")?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let is_valid = head.starts_with("HTTP/1.1 200 ")
        && (1..=POD_NAME_MAX_BYTES).contains(&body.len())
        && body.bytes().all(is_name);
    is_valid.then_some(body)
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the kinds of std are open")]
pub(super) fn outcome_of(error: &io::Error) -> Outcome {
    match error.kind() {
        ErrorKind::ConnectionRefused => Outcome::Refused,
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Outcome::Timeout,
        ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::AddrNotAvailable
        | ErrorKind::PermissionDenied => Outcome::Unreachable,
        // Reset, aborted, broken pipe, an end before the answer: the connection existed and was cut.
        _ => Outcome::Reset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    /// A stream whose first reads meet signals.
    struct Signalled(Vec<ErrorKind>);

    impl Read for Signalled {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.pop().map_or(Ok(buffer.len()), |kind| Err(kind.into()))
        }
    }

    #[test]
    fn a_signal_is_no_failure_of_the_server() {
        let interrupted = ErrorKind::Interrupted;
        let read = |errors| read_on(&mut Signalled(errors), &mut [0; 3]).map_err(|error| error.kind());
        assert_eq!(read(vec![interrupted, interrupted]), Ok(3));
        assert_eq!(read(vec![ErrorKind::ConnectionReset, interrupted]), Err(ErrorKind::ConnectionReset));
    }

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Gives each connection the next of the answers; `None` leaves it open for ever.
    fn server(answers: Vec<Option<&'static str>>) -> SocketAddr {
        let (listener, address) = listener();
        thread::spawn(move || {
            let mut open = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 256]).unwrap();
                match answer {
                    Some(answer) => stream.write_all(answer.as_bytes()).unwrap(),
                    None => open.push(stream),
                }
            }
            thread::park();
        });
        address
    }

    fn outcome(answer: Option<&'static str>) -> (Outcome, String) {
        let sample = request(server(vec![answer]), Duration::from_millis(200));
        assert!(sample.start_ns <= sample.end_ns);
        (sample.outcome, sample.pod)
    }

    #[test]
    fn each_way_a_request_ends_has_its_outcome() {
        assert_eq!(outcome(Some("HTTP/1.1 200 OK\r\n\r\nweb-1")), (Outcome::Ok, "web-1".to_owned()));
        assert_eq!(outcome(Some("HTTP/1.1 503 No\r\n\r\nweb-1")), (Outcome::Malformed, String::new()));
        assert_eq!(outcome(Some("HTTP/1.1 200 OK\r\n\r\na,b")), (Outcome::Malformed, String::new()));
        assert_eq!(outcome(Some("")), (Outcome::Reset, String::new()));
        let half = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwe";
        assert_eq!(outcome(Some(half)), (Outcome::Reset, String::new()));
        assert_eq!(outcome(None), (Outcome::Timeout, String::new()));
        let (closed, address) = listener();
        drop(closed);
        assert_eq!(request(address, DEFAULT_DEADLINE).outcome, Outcome::Refused);
    }

    #[test]
    fn a_hanging_request_does_not_delay_the_ones_after_it() {
        let good = Some("HTTP/1.1 200 OK\r\n\r\nweb-1");
        let options = ClientOptions {
            target: server(vec![None, good, good, good]),
            interval: Duration::from_millis(5),
            duration: Duration::from_millis(20),
            deadline: Duration::from_secs(2),
        };
        let mut output = Vec::new();
        let outage = run(&options, &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((outage.requests, outage.failed), (4, 1));
        assert_eq!(lines[0], CSV_HEADER);
        assert_eq!(lines.iter().filter(|line| line.ends_with(",ok,web-1")).count(), 3);
        // Written last although it was not sent last: the others did not wait for it.
        assert!(lines[4].ends_with(",timeout,"), "{text}");
        assert_eq!(lines[5], format!("# {outage}"));
    }
}
