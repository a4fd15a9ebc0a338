//! The relay between real sockets of the loopback interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};

use super::connection::{REACH_MAX, Turns, Way};
use super::*;

mod finish;
mod kept;

/// The Pod that acts.
const ACTIVE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 22));
/// The Pod with the relay.
const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 21));

/// Number of ports to choose from, and the first of them.
const PORTS: u16 = 10_000;

/// A relay, and a port that is free at both addresses.
struct Stage {
    relay: Relay,
    port: u16,
    _tasks: Tasks,
}

impl Stage {
    fn set() -> Self {
        let port = free_port();
        let mut tasks = Tasks::new();
        let settings = RelaySettings { ip: OWN, ports: BTreeSet::from([port]) };
        let relay = Relay::start(&mut tasks, &Shutdown::new(), settings);
        Self { relay, port, _tasks: tasks }
    }

    fn aim(&self, active: Option<IpAddr>) {
        self.relay.open(Aim { active, others: vec![ACTIVE] });
    }

    /// The application of the Pod that acts.
    async fn target(&self) -> TcpListener {
        TcpListener::bind((ACTIVE, self.port)).await.expect("the port is free")
    }

    fn here(&self) -> SocketAddr {
        (OWN, self.port).into()
    }

    /// A client, as soon as somebody listens here.
    async fn client(&self) -> TcpStream {
        loop {
            match TcpStream::connect(self.here()).await {
                Ok(client) => return client,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused),
            }
            tokio::task::yield_now().await;
        }
    }
}

/// A port that is free at both addresses and stays so: each is given once, and the kernel chooses from higher ones for the
/// connections of other tests.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // The kernel may remember connections of another run, and refuses those ports, as nothing is reused here.
    let offset = u16::try_from(std::process::id() % u32::from(PORTS)).expect("it is less than a port");
    let is_free = |ip, port| TcpSocket::new_v4().expect("a socket").bind((ip, port).into()).is_ok();
    loop {
        let port = PORTS + offset.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS;
        if is_free(ACTIVE, port) && is_free(OWN, port) {
            return port;
        }
    }
}

/// Whether a connection has ended without a byte.
async fn is_cut(client: &mut TcpStream) -> bool {
    let read = client.read(&mut [0; 1]).await;
    read.map_or_else(|error| error.kind() == io::ErrorKind::ConnectionReset, |length| length == 0)
}

/// Answers one connection with what it asks, after it has asked all.
async fn answer(target: &TcpListener) -> IpAddr {
    let (mut stream, from) = target.accept().await.expect("a connection");
    let mut asked = Vec::new();
    stream.read_to_end(&mut asked).await.expect("an end in order");
    stream.write_all(&asked).await.expect("it still reads");
    from.ip()
}

async fn ask(mut client: TcpStream, question: &[u8]) -> Vec<u8> {
    client.write_all(question).await.expect("it is relayed");
    client.shutdown().await.expect("it is relayed");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.expect("an end in order");
    answer
}

#[tokio::test]
async fn bytes_and_ends_are_passed_on_in_both_directions() {
    let stage = Stage::set();
    let target = stage.target().await;
    stage.aim(Some(ACTIVE));
    for length in [0, 1, 1_000_000] {
        let question = vec![7; length];
        let client = stage.client().await;
        let (answered, from) = tokio::join!(ask(client, &question), answer(&target));
        assert!(answered == question, "{} of {length}", answered.len());
        assert_eq!(from, OWN, "the other agent must know whom it comes from");
    }
}

#[tokio::test]
async fn a_client_waits_until_somebody_acts_and_listens() {
    let stage = Stage::set();
    stage.aim(None);
    let client = stage.client().await;
    let late = async {
        tokio::task::yield_now().await;
        stage.aim(Some(ACTIVE));
        // Some attempts are refused.
        sleep(Duration::from_millis(20)).await;
        answer(&stage.target().await).await
    };
    let (answered, _) = tokio::join!(ask(client, b"there?"), late);
    assert_eq!(answered, b"there?");
}

#[tokio::test(start_paused = true)]
async fn a_client_does_not_wait_for_ever() {
    let stage = Stage::set();
    for active in [None, Some(ACTIVE)] {
        stage.aim(active);
        let mut client = stage.client().await;
        let began = Instant::now();
        assert!(is_cut(&mut client).await);
        assert!(began.elapsed() <= REACH_MAX + Duration::from_millis(10), "{:?}", began.elapsed());
        assert!(began.elapsed() >= REACH_MAX, "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn all_who_wait_are_served() {
    const CLIENTS: usize = 100;
    let stage = Stage::set();
    stage.aim(Some(ACTIVE));
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(stage.client().await);
    }
    // Nobody listens there, so that each attempt is refused.
    sleep(Duration::from_millis(20)).await;
    let target = stage.target().await;
    let answers = async {
        for _ in 0..CLIENTS {
            answer(&target).await;
        }
    };
    let began = Instant::now();
    let (answered, ()) =
        tokio::join!(join_all(clients.into_iter().map(|client| ask(client, b"me?"))), answers);
    println!("{CLIENTS} clients were served {:?} after their target listened", began.elapsed());
    assert_eq!(answered, vec![b"me?"; CLIENTS]);
}

#[tokio::test]
async fn who_acts_now_is_reached_although_an_attempt_to_reach_another_hangs() {
    let port = free_port();
    let silent = TcpSocket::new_v4().expect("a socket");
    silent.bind((OWN, port).into()).expect("the port is free");
    let full = silent.listen(0).expect("it listens");
    // The kernel drops whatever comes to a queue that is full.
    let _queued = [TcpStream::connect((OWN, port)).await.expect("the first finds room")];
    let (aims, active) = tokio::sync::watch::channel(Some(OWN));
    let own = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let reached = tokio::spawn(reach(Way { own, active, port, turns: Turns::default() }));
    sleep(Duration::from_millis(20)).await;
    let target = TcpListener::bind((ACTIVE, port)).await.expect("the port is free");
    let began = Instant::now();
    aims.send_replace(Some(ACTIVE));
    target.accept().await.expect("it is tried");
    println!("reached after {:?}", began.elapsed());
    assert!(reached.await.expect("no panic").is_some());
    drop(full);
}

#[tokio::test]
async fn what_the_other_agent_relays_is_not_relayed_back() {
    let stage = Stage::set();
    let target = stage.target().await;
    stage.aim(Some(ACTIVE));
    drop(stage.client().await);
    target.accept().await.expect("a client of no agent is relayed");

    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((ACTIVE, 0).into()).unwrap();
    let mut relayed = socket.connect(stage.here()).await.unwrap();
    assert!(is_cut(&mut relayed).await);
}

#[tokio::test]
async fn connections_beyond_the_bound_are_closed_at_once_and_others_stay() {
    let stage = Stage::set();
    let station = stage.relay.station.clone().unwrap();
    locked(&station).connections_max = 2;
    let target = stage.target().await;
    stage.aim(Some(ACTIVE));
    let first = stage.client().await;
    target.accept().await.unwrap();
    let second = stage.client().await;
    let (mut served, _) = target.accept().await.unwrap();
    assert!(is_cut(&mut stage.client().await).await);
    drop(first);
    let answered = async {
        served.write_all(b"still here").await.unwrap();
        drop(served);
    };
    let (answered, ()) = tokio::join!(ask(second, b""), answered);
    assert_eq!(answered, b"still here");
    // Both ended, so that there is room again.
    let client = stage.client().await;
    let (answered, _) = tokio::join!(ask(client, b"again"), answer(&target));
    assert_eq!(answered, b"again");
}

#[tokio::test]
async fn when_it_is_closed_the_port_is_free_at_once_and_every_connection_cut() {
    const CONNECTIONS: usize = 100;
    let stage = Stage::set();
    let target = stage.target().await;
    stage.aim(Some(ACTIVE));
    let (mut clients, mut served) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        clients.push(stage.client().await);
        served.push(target.accept().await.unwrap());
    }

    let began = std::time::Instant::now();
    stage.relay.close();
    println!("closed with {CONNECTIONS} connections in {:?}", began.elapsed());
    let application = TcpListener::bind(stage.here()).await.expect("the port is free");
    for client in &mut clients {
        assert!(is_cut(client).await);
    }
    for (stream, _) in &mut served {
        assert!(is_cut(stream).await);
    }
    drop(stage.client().await);
    application.accept().await.expect("the application alone listens");
}

#[tokio::test]
async fn no_connection_that_was_cut_occupies_the_port() {
    let stage = Stage::set();
    let target = stage.target().await;
    stage.aim(Some(ACTIVE));
    let mut client = stage.client().await;
    let served = target.accept().await.unwrap();
    stage.relay.close();
    assert!(is_cut(&mut client).await);
    // Even for an application that asks for an address that nobody uses.
    let application = TcpSocket::new_v4().unwrap();
    application.bind(stage.here()).unwrap();
    drop((served, application.listen(1).unwrap()));
}

#[tokio::test]
async fn it_listens_as_soon_as_the_application_has_left_its_port() {
    const ROUNDS: usize = 20;
    let stage = Stage::set();
    let target = stage.target().await;
    let mut gaps = Vec::new();
    for _ in 0..ROUNDS {
        let application = TcpListener::bind(stage.here()).await.unwrap();
        stage.aim(Some(ACTIVE));
        let own = stage.client().await;
        application.accept().await.expect("the application still has its port");
        drop((own, application));
        let began = Instant::now();
        let client = stage.client().await;
        gaps.push(began.elapsed());
        let (answered, _) = tokio::join!(ask(client, b"moved?"), answer(&target));
        assert_eq!(answered, b"moved?");
        stage.relay.close();
    }
    gaps.sort();
    println!("nobody listened: n = {ROUNDS}, median {:?}, worst {:?}", gaps[ROUNDS / 2], gaps[ROUNDS - 1]);
}

/// Writes to a relay as fast as it takes it, until the relay is closed; how much that was.
fn pour(to: SocketAddr) -> std::thread::JoinHandle<u64> {
    std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(to).expect("somebody listens");
        let (block, mut poured) = (vec![0; 65_536], 0);
        while std::io::Write::write_all(&mut stream, &block).is_ok() {
            poured += block.len() as u64;
        }
        poured
    })
}

#[test]
fn a_busy_relay_leaves_the_loop_its_turns() {
    const CLIENTS: usize = 4;
    const TURNS: u32 = 200;
    let loops = async {
        let stage = Stage::set();
        let target = std::net::TcpListener::bind((ACTIVE, stage.port)).expect("the port is free");
        std::thread::spawn(move || {
            for stream in target.incoming().take(CLIENTS) {
                let mut stream = stream.expect("a connection");
                std::thread::spawn(move || drop(std::io::copy(&mut stream, &mut std::io::sink())));
            }
        });
        stage.aim(Some(ACTIVE));
        drop(stage.client().await);
        let clients: Vec<_> = (0..CLIENTS - 1).map(|_| pour(stage.here())).collect();
        let (began, mut late) = (Instant::now(), Vec::new());
        for _ in 0..TURNS {
            let due = Instant::now() + Duration::from_millis(2);
            tokio::time::sleep_until(due).await;
            late.push(due.elapsed());
        }
        let elapsed = began.elapsed();
        stage.relay.close();
        // On another thread: the task that cuts them needs this one.
        let ends = move || clients.into_iter().map(|client| client.join().expect("no panic")).sum::<u64>();
        let poured = tokio::task::spawn_blocking(ends).await.expect("no panic");
        late.sort();
        println!("relayed {} MiB in {elapsed:?}", poured >> 20);
        println!("late: n = {TURNS}, median {:?}, worst {:?}", late[late.len() / 2], late[late.len() - 1]);
        assert!(poured > 0);
    };
    let turns = crate::member::TURNS_BESIDE_LOOP;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().event_interval(turns).build();
    runtime.expect("a runtime").block_on(loops);
}

#[tokio::test]
async fn without_ports_there_is_nothing_to_wait_for() {
    let (mut tasks, shutdown) = (Tasks::new(), Shutdown::new());
    let settings = RelaySettings { ip: OWN, ports: BTreeSet::new() };
    let relay = Relay::start(&mut tasks, &shutdown, settings);
    relay.open(Aim::default());
    relay.close();
    assert_eq!(relay.linger(), Duration::ZERO);
    assert_eq!(Stage::set().relay.linger(), LINGER);
}

#[tokio::test]
async fn a_successor_serves_when_it_listens_at_every_port() {
    let mut tasks = Tasks::new();
    let (port, other) = (free_port(), free_port());
    let settings = RelaySettings { ip: OWN, ports: [port, other].into() };
    let relay = Relay::start(&mut tasks, &Shutdown::new(), settings);
    let served = tokio::spawn(relay.served(ACTIVE));
    let first = TcpListener::bind((ACTIVE, port)).await.expect("the port is free");
    let (_, from) = first.accept().await.expect("it is tried");
    assert_eq!(from.ip(), OWN);
    assert!(!served.is_finished(), "nobody listens at the other port");
    let _second = TcpListener::bind((ACTIVE, other)).await.expect("the port is free");
    timeout(REACH_MAX, served).await.expect("it has been tried again").expect("no panic");
}
