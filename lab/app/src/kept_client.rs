//! Asks all the time over one connection, which is made anew only when it fails, or when the server has ended it between two
//! requests.
//!
//! One request after the other: what hangs delays the next, until its deadline. Judges nothing; `outage` does.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::client::{
    ClientOptions, is_last, outcome_of, pod_of, read_answer, realtime_ns, remaining, reusable, stop_on_signal,
};
use super::dial::dial;
use super::outage::Outage;
use super::sample::{CSV_HEADER, Outcome, Sample};

/// Pause before the connection is made anew: as good as at once, and no busy loop while connections are refused.
const RECONNECT_PAUSE: Duration = Duration::from_millis(1);

/// Sends requests for the whole duration, then writes one line of CSV for each, and the [`Outage`] after `# `. SIGTERM or
/// SIGINT end the run early, with its summary.
///
/// # Errors
/// When a signal cannot be caught or the lines cannot be written.
pub fn run(options: &ClientOptions, output: &mut impl Write) -> io::Result<Outage> {
    let is_stopped = stop_on_signal()?;
    let (begin, mut samples, mut kept) = (Instant::now(), Vec::new(), None);
    while begin.elapsed() < options.duration && !is_stopped.load(std::sync::atomic::Ordering::Relaxed) {
        let next = Instant::now() + options.interval;
        let sample = request(&mut kept, options.target, options.deadline);
        let is_ok = sample.is_ok();
        samples.push(sample);
        let pause = if is_ok { next.saturating_duration_since(Instant::now()) } else { RECONNECT_PAUSE };
        thread::sleep(pause);
    }
    let outage = Outage::from_samples(&samples);
    writeln!(output, "{CSV_HEADER}")?;
    for sample in &samples {
        writeln!(output, "{sample}")?;
    }
    writeln!(output, "# {outage}")?;
    output.flush()?;
    Ok(outage)
}

/// Asks once; the connection is kept if it can be used again.
fn request(kept: &mut Option<TcpStream>, target: SocketAddr, deadline: Duration) -> Sample {
    let start_ns = realtime_ns();
    let until = Instant::now() + deadline;
    let mut stream = kept.take().and_then(reusable);
    let result = exchange(&mut stream, (target, until));
    let end_ns = realtime_ns();
    let (outcome, pod) = match result.as_deref().map(|answer| (pod_of(answer), is_last(answer))) {
        Ok((Some(pod), is_last)) => {
            *kept = stream.filter(|_| !is_last);
            (Outcome::Ok, pod.to_owned())
        }
        Ok((None, _)) => (Outcome::Malformed, String::new()),
        Err(error) => (outcome_of(error), String::new()),
    };
    Sample { start_ns, end_ns, outcome, pod }
}

fn exchange(kept: &mut Option<TcpStream>, (target, until): (SocketAddr, Instant)) -> io::Result<Vec<u8>> {
    let stream = match kept {
        Some(stream) => stream,
        None => kept.insert(dial(target, until)?),
    };
    stream.set_write_timeout(Some(remaining(until)?))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: lab\r\nConnection: keep-alive\r\n\r\n")?;
    read_answer(stream, until)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use std::io::Read as _;

    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nweb-1";
    const LAST_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nweb-1";

    /// Gives each connection these answers, and then ends it. An empty answer is none.
    fn server(connections: Vec<Vec<&'static [u8]>>) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for answers in connections {
                let (mut stream, _) = listener.accept().unwrap();
                for answer in answers {
                    let _ = stream.read(&mut [0; 256]).unwrap();
                    stream.write_all(answer).unwrap();
                }
            }
        });
        address
    }

    fn ask(kept: &mut Option<TcpStream>, target: SocketAddr) -> Outcome {
        request(kept, target, Duration::from_secs(10)).outcome
    }

    #[test]
    fn a_connection_is_used_until_it_is_cut_and_then_made_anew() {
        // The second request gets no answer.
        let (target, mut kept) = (server(vec![vec![ANSWER, b""], vec![ANSWER; 2]]), None);
        let outcomes = [(); 4].map(|()| ask(&mut kept, target));
        assert_eq!(outcomes, [Outcome::Ok, Outcome::Reset, Outcome::Ok, Outcome::Ok]);
    }

    #[test]
    fn a_connection_that_the_server_ends_between_two_requests_is_made_anew_before_the_next_one() {
        let (target, mut kept) = (server(vec![vec![LAST_ANSWER], vec![ANSWER], vec![ANSWER]]), None);
        assert_eq!((ask(&mut kept, target), kept.is_none()), (Outcome::Ok, true), "it said so");
        assert_eq!(ask(&mut kept, target), Outcome::Ok);
        // Its end has come.
        assert_eq!(kept.as_ref().unwrap().peek(&mut [0]).unwrap(), 0);
        assert_eq!(ask(&mut kept, target), Outcome::Ok);
    }

    #[test]
    fn a_run_reports_each_request_and_the_outage() {
        let options = ClientOptions {
            target: server(vec![vec![ANSWER, b""], vec![ANSWER; 1_000]]),
            interval: Duration::from_millis(5),
            duration: Duration::from_millis(50),
            deadline: Duration::from_secs(10),
        };
        let mut output = Vec::new();
        let outage = run(&options, &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        assert_eq!(outage.failed, 1, "{text}");
        assert_eq!(text.lines().count(), outage.requests + 2);
        assert!(text.ends_with(&format!("# {outage}\n")), "{text}");
    }
}
