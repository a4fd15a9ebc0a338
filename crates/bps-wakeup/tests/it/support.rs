//! Gates, tickets and hostile clients for the tests of the wake-up server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bps_wakeup::client;
use bps_wakeup::protocol::{ANSWER_BYTES, Answer, Refusal, SignedTicket, Ticket};
use bps_wakeup::signing::{KeyId, SigningKey};
use bps_wakeup::uid::Uid;

pub(crate) const POD: &str = "3e0d6f0c-2b57-4b9b-8f43-52a2c6a0f6d1";
pub(crate) const SET: &str = "86a5c0d4-0b3c-44a8-9a3e-0f4d7f0c1b11";

/// Far beyond anything that a gate may take; a test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A port may be lost between finding and using it; more tries than this mean something else.
const PORT_ATTEMPTS: usize = 5;

pub(crate) fn key() -> SigningKey {
    SigningKey::from_seed(&[1; 32])
}

pub(crate) fn uid(text: &str) -> Uid {
    Uid::parse(text).unwrap()
}

#[allow(clippy::disallowed_methods, reason = "the gate under test reads the real clock")]
pub(crate) fn ticket() -> Ticket {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    Ticket { pod: uid(POD), set: uid(SET), epoch: 7, expiry: now + 120, key: KeyId([0; 8]) }
}

pub(crate) fn valid() -> SignedTicket {
    ticket().sign(&key())
}

/// Passes every check but the last: what costs a gate most.
pub(crate) fn forged() -> SignedTicket {
    SignedTicket { signature: [0x11; 64], ..valid() }
}

pub(crate) async fn wake(address: SocketAddr, ticket: &SignedTicket) -> Result<Answer, client::Error> {
    client::wake(address, ticket, PATIENCE).await
}

/// Wakes with a ticket that is asked to try again as long as the gate is busy.
pub(crate) async fn wake_through_a_crowd(address: SocketAddr, ticket: &SignedTicket) -> Answer {
    const ATTEMPTS_MAX: usize = 200;
    for _ in 0..ATTEMPTS_MAX {
        match client::wake(address, ticket, PATIENCE).await {
            // A refused crowd member may also see its connection reset.
            Ok(Answer::Refused(Refusal::Busy)) | Err(client::Error::Talk { .. }) => {}
            Ok(answer) => return answer,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("busy {ATTEMPTS_MAX} times");
}

/// Connects to the gate from a loopback address of choice.
pub(crate) async fn connect_from(source: Ipv4Addr, address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    let stream = socket.connect(address).await?.into_std()?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// What a gate answers to these bytes.
pub(crate) fn answer_to(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    read_answer(&mut stream)
}

pub(crate) fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut answer = [0; ANSWER_BYTES];
    stream.read_exact(&mut answer).unwrap();
    Answer::decode(&answer).unwrap()
}

/// The `bps-wakeup` binary holding a gate; killed and reaped when dropped.
pub(crate) struct GateProcess {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    log: BufReader<ChildStderr>,
    pub(crate) first_line: String,
}

impl GateProcess {
    /// Starts a gate and returns after its first line of log.
    pub(crate) fn start(directory: &Path) -> Self {
        for _ in 0..PORT_ATTEMPTS {
            let gate = Self::start_on(free_port(), directory);
            if !gate.first_line.contains("listen on") {
                return gate;
            }
        }
        panic!("no free port in {PORT_ATTEMPTS} attempts");
    }

    fn start_on(port: u16, directory: &Path) -> Self {
        let mut child = gate_command(directory)
            .env("BPS_GATE_PORT", port.to_string())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut first_line = String::new();
        log.read_line(&mut first_line).unwrap();
        Self { child, address: (Ipv4Addr::LOCALHOST, port).into(), log, first_line }
    }

    /// Waits for the end; the exit code and all lines of log after the first.
    pub(crate) fn finish(mut self) -> (Option<i32>, Vec<String>) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        (status.code(), rest.lines().map(str::to_owned).collect())
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, Iterator::count)
    }

    /// Highest resident memory so far. Unit: KiB.
    pub(crate) fn peak_memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for GateProcess {
    fn drop(&mut self) {
        // Already gone in most tests.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bps-wakeup"));
    command.env_clear();
    command
}

pub(crate) fn gate_command(directory: &Path) -> Command {
    let mut command = binary();
    command
        .arg("gate")
        .env("BPS_POD_UID", POD)
        .env("BPS_SET_UID", SET)
        .env("BPS_WAKE_KEYS", key().public().to_string())
        .env("BPS_TICKET_FILE", directory.join("ticket"));
    command
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((IpAddr::from(Ipv4Addr::LOCALHOST), 0)).unwrap();
    listener.local_addr().unwrap().port()
}
