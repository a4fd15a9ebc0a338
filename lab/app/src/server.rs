//! The HTTP/1.1 server of the stand-in application: names its Pod, reports readiness, fails on request.
//!
//! One connection carries one request, or more if the client asks for that. Memory is bounded by the number of
//! connections, each with a small stack.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

pub use super::listen::Error;
use super::listen::{self, Desk, Requests, exit_on_signal, pod_name};
use super::stamp::{Stamp, Teller};

/// Longest request head. Unit: bytes. A probe of the kubelet is below 200.
const REQUEST_MAX_BYTES: usize = 2048;

/// What the server listens on and how it stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerOptions {
    /// Own address; all of IPv4 if it is the unspecified one.
    pub address: Ipv4Addr,
    /// TCP port.
    pub port: u16,
    /// How long it takes to start: nobody listens before.
    pub listens_after: Duration,
    /// What it does after SIGTERM.
    pub ending: Ending,
    /// Of this tenure; the sink is told of each answer with the Pod's name.
    pub stamp: Stamp,
}

/// How a server ends that was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It keeps serving, not ready, for so long, and then cuts what is open. Zero: at once, which is what nginx does (fast
    /// shutdown) and the harsh case for a failover.
    Drain(Duration),
    /// It takes no connection any more, and ends when all that it has taken is answered, or after this time.
    Finish(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Text(u16, &'static str),
    Pod,
    Crash,
    Hang,
}

/// What the requests of the process share.
#[derive(Debug, Default)]
struct Shared {
    pod: String,
    teller: Teller,
    desk: Desk,
    is_unready: AtomicBool,
    is_hung: AtomicBool,
    is_draining: AtomicBool,
}

impl Shared {
    /// Decides the answer to a path and keeps what the path asks for.
    fn answer(&self, path: &str) -> Answer {
        match path {
            "/" => Answer::Pod,
            "/healthz" => self.readiness(),
            "/unready" => self.set(true, false),
            "/hang" => self.set(false, true),
            "/ready" => self.set(false, false),
            "/crash" => Answer::Crash,
            _ => Answer::Text(404, "not found\n"),
        }
    }

    fn readiness(&self) -> Answer {
        if self.is_hung.load(Ordering::Relaxed) {
            Answer::Hang
        } else if self.is_unready.load(Ordering::Relaxed) || self.is_draining.load(Ordering::Relaxed) {
            Answer::Text(503, "not ready\n")
        } else {
            Answer::Text(200, "ready\n")
        }
    }

    fn set(&self, is_unready: bool, is_hung: bool) -> Answer {
        self.is_unready.store(is_unready, Ordering::Relaxed);
        self.is_hung.store(is_hung, Ordering::Relaxed);
        Answer::Text(200, "done\n")
    }
}

/// Serves until a signal ends the process.
///
/// Paths: `/` the Pod's name; `/healthz` 200, 503, or silence; `/unready`, `/hang` and `/ready` switch between
/// the three; `/crash` exits with code 1.
///
/// # Errors
/// See [`Error`].
pub fn run(options: &ServerOptions) -> Result<(), Error> {
    thread::sleep(options.listens_after);
    let address = SocketAddr::from((options.address, options.port));
    let listener = listen::open(address)?;
    let pod = pod_name();
    let teller = Teller::open(&options.stamp, &pod).map_err(Error::OpenSink)?;
    let shared = Arc::new(Shared { pod, teller, ..Shared::default() });
    let (ended, ending) = (Arc::clone(&shared), options.ending);
    exit_on_signal(move || end(&ended, ending))?;
    let desk = shared.desk.clone();
    listen::serve(&listener, &desk, move |stream, requests| converse(stream, requests, &shared));
    Ok(())
}

fn end(shared: &Shared, ending: Ending) {
    shared.is_draining.store(true, Ordering::Relaxed);
    match ending {
        Ending::Drain(time) => thread::sleep(time),
        Ending::Finish(longest) => shared.desk.finish(longest),
    }
}

/// Answers the first request, and further ones if the client asks for that.
fn converse(mut stream: TcpStream, mut requests: Requests, shared: &Shared) -> io::Result<()> {
    let mut buffer = [0; REQUEST_MAX_BYTES];
    loop {
        let Request { path, is_kept } = read_request(&mut stream, &mut buffer)?;
        // Until it is answered.
        let _in_hand = requests.take();
        let is_kept = is_kept && !requests.are_last();
        match shared.answer(path) {
            Answer::Text(status, body) => respond(&mut stream, (status, is_kept), body)?,
            Answer::Pod => {
                shared.teller.tell();
                respond(&mut stream, (200, is_kept), &shared.pod)?;
            }
            Answer::Crash => std::process::exit(1),
            Answer::Hang => {
                // Ends when the peer gives up, or when the read times out.
                let _ = stream.read(&mut [0])?;
                return Ok(());
            }
        }
        if !is_kept {
            return Ok(());
        }
    }
}

struct Request<'a> {
    path: &'a str,
    /// Whether the client asks for more on the same connection.
    is_kept: bool,
}

fn read_request<'a>(stream: &mut TcpStream, buffer: &'a mut [u8]) -> io::Result<Request<'a>> {
    let mut length = 0;
    while !buffer[..length].ends_with(b"\r\n\r\n") {
        if length == buffer.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        match stream.read(&mut buffer[length..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => length += count,
        }
    }
    let head = std::str::from_utf8(&buffer[..length]).map_err(|_| io::ErrorKind::InvalidData)?;
    let is_kept = head.lines().any(|line| line == "Connection: keep-alive");
    let mut words = head.split(' ');
    match (words.next(), words.next()) {
        (Some("GET"), Some(path)) => Ok(Request { path, is_kept }),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn respond(stream: &mut TcpStream, (status, is_kept): (u16, bool), body: &str) -> io::Result<()> {
    let reason = match status {
        200 => "OK",
        404 => "Not Found",
        _ => "Service Unavailable",
    };
    let head = format!("HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain\r\n");
    let (length, connection) = (body.len(), if is_kept { "keep-alive" } else { "close" });
    let answer = format!("{head}Content-Length: {length}\r\nConnection: {connection}\r\n\r\n{body}");
    // One write, so that a client never sees half of an answer because of a segment boundary of ours.
    stream.write_all(answer.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn start() -> SocketAddr {
        start_with_desk().0
    }

    fn start_with_desk() -> (SocketAddr, Desk) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Shared { pod: "web-1".to_owned(), ..Shared::default() };
        let desk = shared.desk.clone();
        let serve = move |stream, requests| converse(stream, requests, &shared);
        let serving = desk.clone();
        thread::spawn(move || listen::serve(&listener, &serving, serve));
        (address, desk)
    }

    fn exchange(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(address: SocketAddr, path: &str) -> String {
        exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: web\r\n\r\n"))
    }

    #[test]
    fn a_server_that_ends_says_so_with_the_last_answer_of_a_kept_connection() {
        let kept = "GET / HTTP/1.1\r\nConnection: keep-alive\r\n\r\n";
        let (address, desk) = start_with_desk();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(kept.as_bytes()).unwrap();
        let mut first = [0; 256];
        let length = stream.read(&mut first).unwrap();
        assert!(String::from_utf8_lossy(&first[..length]).contains("Connection: keep-alive"));
        let ending = thread::spawn(move || desk.finish(Duration::from_secs(60)));
        // Answers may have been on their way before it began to end.
        let mut last = String::new();
        while !last.contains("Connection: close") {
            stream.write_all(kept.as_bytes()).unwrap();
            let mut answer = [0; 256];
            let length = stream.read(&mut answer).unwrap();
            last = String::from_utf8_lossy(&answer[..length]).into_owned();
        }
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        ending.join().unwrap();
    }

    #[test]
    fn the_root_answers_the_name_of_the_pod() {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n";
        assert_eq!(get(start(), "/"), format!("{head}Connection: close\r\n\r\nweb-1"));
    }

    #[test]
    fn a_connection_carries_more_requests_if_the_client_asks_for_that() {
        let kept = "GET / HTTP/1.1\r\nConnection: keep-alive\r\n\r\n";
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n";
        let mut stream = TcpStream::connect(start()).unwrap();
        for _ in 0..2 {
            stream.write_all(kept.as_bytes()).unwrap();
            let expected = format!("{head}Connection: keep-alive\r\n\r\nweb-1");
            let mut answer = vec![0; expected.len()];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(String::from_utf8(answer).unwrap(), expected);
        }
    }

    #[test]
    fn the_sink_is_told_of_every_name_and_of_nothing_else() {
        let sink = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let stamp = Stamp { pair: "web-0".to_owned(), epoch: 7, sink: sink.local_addr().ok() };
        let teller = Teller::open(&stamp, "web-1").unwrap();
        let shared = Shared { pod: "web-1".to_owned(), teller, ..Shared::default() };
        let serve = move |stream, requests| converse(stream, requests, &shared);
        thread::spawn(move || listen::serve(&listener, &Desk::default(), serve));
        get(address, "/healthz");
        get(address, "/");
        let mut buffer = [0; 64];
        let length = sink.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"web-0 7 web-1");
        sink.set_nonblocking(true).unwrap();
        assert_eq!(sink.recv(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn readiness_follows_what_was_asked_for() {
        let address = start();
        let status = |path: &str| get(address, path).lines().next().unwrap_or_default().to_owned();
        assert_eq!(status("/healthz"), "HTTP/1.1 200 OK");
        assert_eq!(status("/unready"), "HTTP/1.1 200 OK");
        assert_eq!(status("/healthz"), "HTTP/1.1 503 Service Unavailable");
        assert_eq!(status("/ready"), "HTTP/1.1 200 OK");
        assert_eq!(status("/healthz"), "HTTP/1.1 200 OK");
        assert_eq!(status("/elsewhere"), "HTTP/1.1 404 Not Found");
    }

    #[test]
    fn a_hung_application_still_serves_but_is_silent_about_its_readiness() {
        let shared = Shared::default();
        assert_eq!(shared.answer("/hang"), Answer::Text(200, "done\n"));
        assert_eq!(shared.answer("/healthz"), Answer::Hang);
        assert_eq!(shared.answer("/"), Answer::Pod);
        assert_eq!(shared.answer("/ready"), Answer::Text(200, "done\n"));
        assert_eq!(shared.answer("/healthz"), Answer::Text(200, "ready\n"));
    }

    #[test]
    fn who_finishes_answers_what_it_took_and_takes_nothing_more() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { pod: "web-1".to_owned(), ..Shared::default() });
        let (served, desk) = (Arc::clone(&shared), shared.desk.clone());
        let serve = move |stream, requests| converse(stream, requests, &served);
        thread::spawn(move || listen::serve(&listener, &desk, serve));
        let mut taken = TcpStream::connect(address).unwrap();
        while shared.desk.is_empty() {
            thread::yield_now();
        }

        let ended = Arc::clone(&shared);
        let ending = thread::spawn(move || end(&ended, Ending::Finish(Duration::from_secs(60))));
        while !shared.is_draining.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        taken.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        taken.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("web-1"), "{answer}");
        ending.join().unwrap();

        let mut late = TcpStream::connect(address).unwrap();
        late.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        late.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert_eq!(late.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(shared.desk.is_empty());
    }

    #[test]
    fn a_draining_application_is_not_ready() {
        let shared = Shared { is_draining: AtomicBool::new(true), ..Shared::default() };
        assert_eq!(shared.answer("/healthz"), Answer::Text(503, "not ready\n"));
        assert_eq!(shared.answer("/"), Answer::Pod);
    }

    #[test]
    fn other_requests_are_cut_without_an_answer() {
        assert_eq!(exchange(start(), "POST / HTTP/1.1\r\n\r\n"), "");
    }
}
