//! A client of Redis that works in a node's network: one connection, one command at a time.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Longest wait for a connection: a Pod that is gone answers nothing.
const CONNECT_WITHIN: Duration = Duration::from_millis(200);
/// Longest wait for an answer: longer than a `WAIT` of 1 s.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);

/// What Redis answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Number(i64),
    Text(String),
    /// The first word of an error.
    Refused(String),
}

/// A connection.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_WITHIN)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a command without special characters and waits for its answer.
    pub(crate) fn ask(&mut self, command: &str) -> io::Result<Answer> {
        self.stream.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let (kind, rest) = line.trim_end().split_at_checked(1).ok_or(io::ErrorKind::UnexpectedEof)?;
        let number = || rest.parse::<i64>().map_err(|_| io::ErrorKind::InvalidData);
        match kind {
            ":" => Ok(Answer::Number(number()?)),
            "+" => Ok(Answer::Text(rest.to_owned())),
            "-" => Ok(Answer::Refused(rest.split(' ').next().unwrap_or_default().to_owned())),
            "$" => self.bulk(usize::try_from(number()?).unwrap_or(0)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn bulk(&mut self, length: usize) -> io::Result<Answer> {
        let mut bytes = vec![0; length + "\r\n".len()];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        String::from_utf8(bytes).map(Answer::Text).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

/// Starts a thread that has the network of a node, given by the file that keeps it.
pub(crate) fn start_in<Output: Send + 'static>(
    network: PathBuf,
    work: impl FnOnce() -> Output + Send + 'static,
) -> JoinHandle<Output> {
    std::thread::spawn(move || {
        let network = File::open(network).unwrap();
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    })
}
