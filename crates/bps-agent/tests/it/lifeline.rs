//! Death certificates between two ends in one process: given only for an application whose agent ended with it.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use bps_agent::doorman::Port;
use bps_agent::lifeline::bond::Bond;
use bps_agent::lifeline::{ANSWERED_WITHIN, Lifelines, Needs, Tenancy, Watching};
use bps_protocol::{AgentId, Epoch};
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::Tasks;
use bps_wire::frame::{self, Content, Frame};
use bps_wire::key_ring::KeyRing;
use bps_wire::lease::Record;
use bps_wire::testing::record;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Longest wait for something that takes milliseconds; only a hang lasts as long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than the pause between two looks of an agent at the processes.
const LOOKED_WITHIN: Duration = Duration::from_millis(1_500);
/// Time within which an agent denies that its application has ended, where a test does it. Longer than in earnest: a busy
/// machine lets a test sleep for that long.
const DENIED_WITHIN: Duration = Duration::from_millis(500);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// One agent, as far as lifelines go.
struct End {
    /// Dropped as if the process were killed: nothing is said any more.
    tasks: Tasks,
    lifelines: Lifelines,
    bonds: watch::Sender<Tenancy>,
    keys: watch::Sender<KeyRing>,
}

/// A process that ends with its test, also with one that fails.
struct Process(Child);

impl Process {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().expect("a process"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it was started here");
    }
}

/// An application of one process.
struct Application {
    bond: Arc<Bond>,
    process: Process,
}

impl Application {
    fn start() -> Self {
        let (bond, inherited) = Bond::new().expect("a bond");
        let process = Process::start();
        drop(inherited);
        Self { bond: Arc::new(bond), process }
    }

    async fn has_lifeline(&self) {
        let passed = async {
            while self.bond.passed() == 0 {
                sleep(LOOK_EVERY).await;
            }
        };
        timeout(PATIENCE, passed).await.expect("a lifeline");
    }

    fn kill(self) {
        drop(self.process);
    }
}

fn listen() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a socket");
    listener
}

fn key_ring() -> KeyRing {
    KeyRing::parse(&"5a".repeat(32)).expect("a key")
}

fn end(own: u128, listener: &TcpListener, record: &Record, answered_within: Duration) -> End {
    let (keys, present) = watch::channel(key_ring());
    let (bonds, present_bond) = watch::channel(None);
    let mut tasks = Tasks::new();
    let listener = listener.try_clone().expect("a descriptor");
    let needs = Needs {
        group: record.group,
        own: AgentId(own),
        keys: present,
        port: &Port::Own(listener),
        bonds: present_bond,
        answered_within,
    };
    let lifelines = Lifelines::start(&mut tasks, &Shutdown::new(), needs).expect("tasks");
    lifelines.know(record);
    End { tasks, lifelines, bonds, keys }
}

fn epoch(term: u32) -> Epoch {
    Epoch { term, sequence: 0 }
}

/// A new pair of agents, and where they listen.
fn pair() -> ([SocketAddr; 2], [End; 2]) {
    pair_that_waits(ANSWERED_WITHIN)
}

fn pair_that_waits(answered_within: Duration) -> ([SocketAddr; 2], [End; 2]) {
    let listeners = [listen(), listen()];
    let addresses = [0, 1].map(|index: usize| listeners[index].local_addr().expect("an address"));
    let record = record(7, [AgentId(1), AgentId(2)], addresses);
    (
        addresses,
        [1, 2].map(|own: u8| end(own.into(), &listeners[usize::from(own) - 1], &record, answered_within)),
    )
}

/// One test, because it is about all processes below this one.
#[tokio::test]
async fn only_an_application_that_ended_with_its_agent_is_certified() {
    let (addresses, [active, mut standby]) = pair();
    let crowd = tokio::spawn(crowd(addresses[0]));

    // A stranger gets no answer.
    let mut stranger = TcpStream::connect(addresses[0]).await.expect("it listens");
    stranger.write_all(&[0x5a; 128]).await.expect("it is open");
    let answer = timeout(PATIENCE, stranger.read(&mut [0])).await.expect("it is closed");
    assert!(matches!(answer, Ok(0) | Err(_)), "{answer:?}");

    // The agent lives: it passes on by itself.
    let first = Application::start();
    active.bonds.send_replace(Some((epoch(1), first.bond.clone())));
    first.has_lifeline().await;
    crowd.abort();
    first.kill();
    active.bonds.send_replace(None);

    // A second process that does not hold the bond keeps the lifeline back.
    let stray = Process::start();
    let second = Application::start();
    active.bonds.send_replace(Some((epoch(2), second.bond.clone())));
    sleep(LOOKED_WITHIN).await;
    assert_eq!(second.bond.passed(), 0);
    drop(stray);
    second.has_lifeline().await;
    // The word that confirms it may still be on its way.
    comes_to(&mut standby.lifelines, Watching::Confirmed).await;

    // The agent is killed, and its application ends after it.
    let End { tasks, lifelines, .. } = active;
    drop((tasks, lifelines));
    assert!(standby.lifelines.certificates.try_recv().is_err());
    second.kill();
    let certificate = timeout(PATIENCE, standby.lifelines.certificates.recv()).await;
    assert_eq!(certificate.expect("a certificate"), Some(epoch(2)));
    assert!(standby.lifelines.certificates.try_recv().is_err());
    drop((standby.tasks, standby.keys));

    only_while_all_its_processes_hold_the_bond().await;
    only_if_its_agent_does_not_deny_it().await;
}

/// Connects again and again from where the partner is not, and says nothing: for whom there is no room keeps nobody out.
async fn crowd(address: SocketAddr) {
    let mut silent = Vec::new();
    loop {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.9:0".parse().expect("an address")).expect("a loopback address");
        silent.extend(socket.connect(address).await);
        // As many as a process may have open are more than there is room for.
        silent.truncate(500);
        sleep(Duration::from_millis(2)).await;
    }
}

/// Lines that end in order although an agent lives are those of something between the two.
async fn only_if_its_agent_does_not_deny_it() {
    let (addresses, [active, mut standby]) = pair_that_waits(DENIED_WITHIN);
    let datagrams = UdpSocket::bind(addresses[0]).await.expect("the same port");
    let application = Application::start();
    active.bonds.send_replace(Some((epoch(1), application.bond.clone())));
    application.has_lifeline().await;
    comes_to(&mut standby.lifelines, Watching::Confirmed).await;
    drop((active.tasks, active.lifelines));
    application.kill();

    let mut bytes = [0; frame::FRAME_BYTES];
    let asked = timeout(PATIENCE, datagrams.recv(&mut bytes)).await.expect("a question");
    assert_eq!(asked.expect("a datagram"), bytes.len());
    let frame = Frame::open(&bytes, &key_ring()).expect("a genuine one");
    let Content::Question(question) = frame.content else { panic!("{frame:?}") };
    assert_eq!((frame.to, question.epoch), (AgentId(1), epoch(1)));
    // The process stands still for longer than it waits: what the other agent said meanwhile has not been read yet.
    std::thread::sleep(2 * DENIED_WITHIN);
    sleep(LOOK_EVERY).await;
    standby.lifelines.deny(question);
    comes_to(&mut standby.lifelines, Watching::Proxied).await;
    assert!(standby.lifelines.certificates.try_recv().is_err());
}

async fn comes_to(lifelines: &mut Lifelines, wanted: Watching) {
    let told = lifelines.watching.wait_for(|watching| *watching == wanted);
    timeout(PATIENCE, told).await.expect("it is told").expect("it lives");
}

/// As in a service mesh.
#[tokio::test]
async fn no_line_is_made_through_what_relays_connections() {
    let listeners = [listen(), listen()];
    let addresses = [0, 1].map(|index: usize| listeners[index].local_addr().expect("an address"));
    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let between = proxy.local_addr().expect("an address");
    let mut relays = JoinSet::new();
    relays.spawn(async move {
        let mut relays = JoinSet::new();
        while let Ok((mut from, _)) = proxy.accept().await {
            let mut to = TcpStream::connect(addresses[0]).await.expect("it listens");
            relays.spawn(async move { copy_bidirectional(&mut from, &mut to).await });
        }
    });
    let record = |active| record(7, [AgentId(1), AgentId(2)], [active, addresses[1]]);
    let _active = end(1, &listeners[0], &record(addresses[0]), ANSWERED_WITHIN);
    let mut standby = end(2, &listeners[1], &record(between), ANSWERED_WITHIN);
    comes_to(&mut standby.lifelines, Watching::Proxied).await;
    assert!(standby.lifelines.certificates.try_recv().is_err());
}

/// A process that is started later and does not hold the bond makes a lifeline worthless that was passed on before.
async fn only_while_all_its_processes_hold_the_bond() {
    let (_, [active, mut standby]) = pair();
    let application = Application::start();
    active.bonds.send_replace(Some((epoch(1), application.bond.clone())));
    application.has_lifeline().await;
    let late = Process::start();
    sleep(LOOKED_WITHIN).await;
    drop((active.tasks, active.lifelines));
    application.kill();
    assert!(timeout(LOOKED_WITHIN, standby.lifelines.certificates.recv()).await.is_err());
    drop(late);
}
