//! A counter for pairs of an active and a standby: an increment is on disk before it is acknowledged, and on the standby's
//! disk, too, if the agent replicates the state folder.
//!
//! A connection carries lines. `add <id>` is answered by `<id> <epoch> <pod>`; `list` by one line `<id> <epoch>` for each
//! increment, and the end of the connection. The epoch is what the agent gave; nothing here decides who is active.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::listen::{self, Desk, FINISH_WITHIN, Requests, Then, exit_on_signal, pod_name};
use super::stamp::{Stamp, Teller};

/// Name of the log in the state folder.
const LOG: &str = "increments";
/// Longest request. Unit: bytes.
const LINE_MAX_BYTES: u64 = 128;
/// Most increments that one sync puts on disk: as many as there are connections.
const BATCH_MAX: usize = 1024;

/// What the counter needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterOptions {
    /// TCP port on all IPv4 addresses.
    pub port: u16,
    /// Folder of the log; it must exist.
    pub state: PathBuf,
    /// Of this tenure.
    pub stamp: Stamp,
    /// Where the agent is asked for a barrier before increments are acknowledged.
    pub barriers: Option<PathBuf>,
}

/// Why the counter could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot serve.
    #[error(transparent)]
    Serve(listen::Error),
    /// The log cannot be written.
    #[error("open the log in {state}")]
    OpenLog {
        /// The state folder.
        state: PathBuf,
        /// The operating system's answer.
        #[source]
        source: io::Error,
    },
}

/// Counts until a signal ends the process, which then answers what it has taken.
///
/// # Errors
/// See [`Error`].
pub fn run(options: &CounterOptions) -> Result<(), Error> {
    let (counter, desk) = (Counter::open(options, &pod_name())?, Desk::default());
    let ending = desk.clone();
    exit_on_signal(move || ending.finish(FINISH_WITHIN)).map_err(Error::Serve)?;
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, options.port));
    let listener = listen::open(address).map_err(Error::Serve)?;
    listen::serve(&listener, &desk, move |stream, requests| counter.converse(stream, requests));
    Ok(())
}

/// One increment on its way to the disk.
struct Increment {
    id: String,
    /// Told when it is there; dropped if it never gets there.
    done: Sender<()>,
}

struct Counter {
    log: PathBuf,
    /// What follows the id in an answer.
    tag: String,
    increments: Sender<Increment>,
}

impl Counter {
    fn open(options: &CounterOptions, pod: &str) -> Result<Self, Error> {
        let failed = |source| Error::OpenLog { state: options.state.clone(), source };
        let log = options.state.join(LOG);
        let mut file = OpenOptions::new().create(true).append(true).open(&log).map_err(failed)?;
        end_half_line(&log, &mut file).map_err(failed)?;
        let teller = Teller::open(&options.stamp, pod)
            .map_err(|source| Error::Serve(listen::Error::OpenSink(source)))?;
        let (sender, increments) = channel();
        let (epoch, agent) = (options.stamp.epoch, Agent { socket: options.barriers.clone(), stream: None });
        thread::Builder::new()
            .spawn(move || keep((file, epoch), &increments, (&teller, agent)))
            .map_err(failed)?;
        Ok(Self { log, tag: format!("{epoch} {pod}"), increments: sender })
    }

    /// Answers one request after the other.
    fn converse(&self, mut stream: TcpStream, mut requests: Requests) -> io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        loop {
            line.clear();
            if (&mut lines).take(LINE_MAX_BYTES).read_line(&mut line)? == 0 {
                return Ok(());
            }
            // Until it is answered.
            let _in_hand = requests.take();
            match line.strip_suffix('\n').and_then(parse) {
                Some(Request::Add(id)) => {
                    self.add(id)?;
                    let answer = format!("{id} {}\n", self.tag);
                    if requests.answer(&mut stream, answer.as_bytes())? == Then::End {
                        return Ok(());
                    }
                }
                Some(Request::List) => return io::copy(&mut File::open(&self.log)?, &mut stream).map(drop),
                None => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    /// Returns when the increment is on disk.
    fn add(&self, id: &str) -> io::Result<()> {
        let (done, is_done) = channel();
        let lost = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.increments.send(Increment { id: id.to_owned(), done }).map_err(|_| lost())?;
        is_done.recv().map_err(|_| lost())
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Request<'a> {
    Add(&'a str),
    List,
}

fn parse(line: &str) -> Option<Request<'_>> {
    let is_id =
        |id: &&str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    match line {
        "list" => Some(Request::List),
        line => line.strip_prefix("add ").filter(is_id).map(Request::Add),
    }
}

/// What a killed counter has half written was never acknowledged, and must not become the beginning of another line.
fn end_half_line(log: &Path, file: &mut File) -> io::Result<()> {
    let text = std::fs::read(log)?;
    if text.last().is_none_or(|last| *last == b'\n') { Ok(()) } else { file.write_all(b"\n") }
}

/// Puts increments on disk, many with one sync, and tells the sink and those who wait. Ends when the log cannot be
/// written: then nothing is acknowledged any more. What the agent does not keep is not acknowledged, and stays.
fn keep(
    (mut log, epoch): (File, u64),
    increments: &Receiver<Increment>,
    (teller, mut agent): (&Teller, Agent),
) {
    let end = format!(" {epoch}\n");
    while let Ok(first) = increments.recv() {
        let others = increments.try_iter().take(BATCH_MAX - 1);
        let batch: Vec<Increment> = std::iter::once(first).chain(others).collect();
        let lines: String = batch.iter().flat_map(|increment| [increment.id.as_str(), &end]).collect();
        if log.write_all(lines.as_bytes()).and_then(|()| log.sync_data()).is_err() {
            return;
        }
        if let Err(error) = agent.barrier() {
            eprintln!("lab-app: {} increments are not acknowledged: {error}", batch.len());
            continue;
        }
        for increment in batch {
            teller.tell();
            // Whoever asked may be gone; the increment stays.
            let _ = increment.done.send(());
        }
    }
}

/// The agent, which replicates the state folder; without a socket there is none.
struct Agent {
    socket: Option<PathBuf>,
    stream: Option<BufReader<UnixStream>>,
}

impl Agent {
    /// Returns when all that is in the state folder now is safe.
    fn barrier(&mut self) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => BufReader::new(UnixStream::connect(socket)?),
        };
        stream.get_mut().write_all(b"sync\n")?;
        let mut answer = String::new();
        (&mut stream).take(LINE_MAX_BYTES).read_line(&mut answer)?;
        self.stream = Some(stream);
        match answer.split_once(' ') {
            Some(("ok" | "alone", _)) => Ok(()),
            Some(_) | None => Err(io::Error::other(answer)),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    use super::*;

    pub(in super::super) fn start(state: &Path, epoch: u64, sink: Option<SocketAddr>) -> SocketAddr {
        let stamp = Stamp { pair: "web".to_owned(), epoch, sink };
        start_with(&CounterOptions { port: 0, state: state.to_owned(), stamp, barriers: None }).0
    }

    fn with_barriers(state: &Path, socket: PathBuf) -> CounterOptions {
        let stamp = Stamp { pair: "web".to_owned(), epoch: 7, sink: None };
        CounterOptions { port: 0, state: state.to_owned(), stamp, barriers: Some(socket) }
    }

    fn start_with(options: &CounterOptions) -> (SocketAddr, Desk) {
        let (counter, desk) = (Counter::open(options, "web-0").unwrap(), Desk::default());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (serving, serve) = (desk.clone(), move |stream, requests| counter.converse(stream, requests));
        thread::spawn(move || listen::serve(&listener, &serving, serve));
        (address, desk)
    }

    /// A counter, and the socket on which it asks for barriers.
    fn start_behind_barriers(state: &Path) -> (UnixListener, (SocketAddr, Desk)) {
        let socket = state.join("sync");
        let listener = UnixListener::bind(&socket).unwrap();
        (listener, start_with(&with_barriers(state, socket)))
    }

    fn told(address: SocketAddr, requests: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(requests.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn an_acknowledged_increment_is_in_the_log_of_the_next_tenure() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(told(start(state.path(), 7, None), "add a-1\nadd a-2\n"), "a-1 7 web-0\na-2 7 web-0\n");
        let next = start(state.path(), 8, None);
        assert_eq!(told(next, "add b\n"), "b 8 web-0\n");
        assert_eq!(told(next, "list\n"), "a-1 7\na-2 7\nb 8\n");
    }

    #[test]
    fn what_the_agent_does_not_keep_is_not_acknowledged() {
        let state = tempfile::tempdir().unwrap();
        let socket = state.path().join("sync");
        let listener = UnixListener::bind(&socket).unwrap();
        let agent = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut requests = BufReader::new(stream);
            for answer in ["ok 7 1\n", "error too late\n", "alone 7 2\n"] {
                let mut request = String::new();
                requests.read_line(&mut request).unwrap();
                assert_eq!(request, "sync\n");
                requests.get_mut().write_all(answer.as_bytes()).unwrap();
            }
        });
        let counter = Counter::open(&with_barriers(state.path(), socket), "web-0").unwrap();
        let added = ["a", "b", "c"].map(|id| counter.add(id).is_ok());
        assert_eq!(added, [true, false, true]);
        agent.join().unwrap();
        assert_eq!(std::fs::read_to_string(state.path().join(LOG)).unwrap(), "a 7\nb 7\nc 7\n");
    }

    #[test]
    fn who_is_asked_to_end_answers_what_it_has_taken() {
        let state = tempfile::tempdir().unwrap();
        let (listener, (address, desk)) = start_behind_barriers(state.path());
        let client = thread::spawn(move || told(address, "add a\n"));
        let (stream, _) = listener.accept().unwrap();
        let mut barriers = BufReader::new(stream);
        barriers.read_line(&mut String::new()).unwrap();
        assert!(!desk.is_empty());
        barriers.get_mut().write_all(b"ok 7 1\n").unwrap();
        desk.finish(Duration::from_secs(60));
        assert!(desk.is_empty());
        assert_eq!(client.join().unwrap(), "a 7 web-0\n");
    }

    #[test]
    fn the_end_of_a_kept_connection_comes_with_its_last_answer() {
        let state = tempfile::tempdir().unwrap();
        let (listener, (address, desk)) = start_behind_barriers(state.path());
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"add a\n").unwrap();
        let mut barriers = BufReader::new(listener.accept().unwrap().0);
        barriers.read_line(&mut String::new()).unwrap();
        let ending = thread::spawn({
            let desk = desk.clone();
            move || desk.finish(Duration::from_secs(60))
        });
        while !desk.is_ending() {
            thread::yield_now();
        }
        barriers.get_mut().write_all(b"ok 7 1\n").unwrap();
        let mut answer = [0; 64];
        let length = client.read(&mut answer).unwrap();
        assert_eq!(&answer[..length], b"a 7 web-0\n");
        client.set_nonblocking(true).unwrap();
        assert_eq!(client.read(&mut answer).unwrap(), 0, "who has read the one sees the other");
        ending.join().unwrap();
    }

    #[test]
    fn half_a_line_of_a_killed_counter_spoils_no_other() {
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join(LOG), "a 1\nb").unwrap();
        let address = start(state.path(), 2, None);
        assert_eq!(told(address, "add c\n"), "c 2 web-0\n");
        assert_eq!(told(address, "list\n"), "a 1\nb\nc 2\n");
    }

    #[test]
    fn every_output_is_told_to_the_sink() {
        let state = tempfile::tempdir().unwrap();
        let sink = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = start(state.path(), 7, Some(sink.local_addr().unwrap()));
        assert_eq!(told(address, "add a\n"), "a 7 web-0\n");
        let mut buffer = [0; 64];
        let length = sink.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"web 7 web-0");
    }

    #[test]
    fn other_requests_are_cut_without_an_answer() {
        let state = tempfile::tempdir().unwrap();
        let address = start(state.path(), 7, None);
        for request in ["add \n", "add a b\n", "sum\n", "add a"] {
            assert_eq!(told(address, request), "", "{request:?}");
        }
        assert_eq!(told(address, "list\n"), "");
    }
}
