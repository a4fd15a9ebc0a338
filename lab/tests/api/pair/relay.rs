//! What a client sees that knows only the address of the old active, as behind a node whose rules are late.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use bps_api::keys;
use lab::app::Outcome;
use lab::app::client::{ClientOptions, run};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use tokio::task::JoinHandle;

use super::journal::{Start, print_outages};
use super::stage::{Stage, pod};
use super::{LONG_ROUNDS, ROUNDS};

/// Answers with the name of its Pod, at the address that is only its own.
const APPLICATION: &str = r#"
say() { echo "$1 $HA_EPOCH $AGENT $$ $(date +%s%N) $HA_PEER" >> "$JOURNAL"; }
exec 9>> "$JOURNAL.lock"
flock -n 9 || say two
say start
HOSTNAME=web-$AGENT exec "$LAB_APP" --address "$ADDRESS" --port "$(cat "$JOURNAL.port")" --finish-ms 90 \
    --listen-after-ms "$(cat "$JOURNAL.start")""#;

/// How long the client runs before the fault.
const BEFORE: Duration = Duration::from_millis(300);
/// How long it runs: less than an agent that leaves goes on relaying.
const RUN: Duration = Duration::from_millis(1_800);
/// How long an agent that leaves goes on relaying.
const LINGER: Duration = Duration::from_secs(2);
/// Requests at the end of a run that must all be answered by the new active.
const LAST: usize = 100;

/// A pair that relays, and the port of its application.
async fn relaying(name: &'static str) -> (Stage, u16) {
    relaying_to(name, Duration::ZERO).await
}

/// The same with an application that takes so long to start.
async fn relaying_to(name: &'static str, start: Duration) -> (Stage, u16) {
    let mut stage = Stage::set(name).await;
    let port = stage.relay();
    fs::write(stage.directory.join("journal.port"), port.to_string()).expect("a file");
    fs::write(stage.directory.join("journal.start"), start.as_millis().to_string()).expect("a file");
    stage.application = APPLICATION;
    stage.start_agents();
    (stage, port)
}

/// A client that has begun to send requests to one address.
struct Client(JoinHandle<String>);

/// What it saw.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Nobody listened.
    refused: usize,
    /// Requests without an answer for other reasons: most were with the old application when it ended.
    cut: usize,
    /// Longest time between two answers; a request is sent each 5 ms.
    silence: Duration,
}

impl Client {
    async fn start(target: SocketAddr) -> Self {
        let (interval, deadline) = (Duration::from_millis(5), Duration::from_secs(5));
        let options = ClientOptions { target, interval, duration: RUN, deadline };
        let client = tokio::task::spawn_blocking(move || {
            let mut lines = Vec::new();
            run(&options, &mut lines).expect("it runs");
            String::from_utf8(lines).expect("text")
        });
        tokio::time::sleep(BEFORE).await;
        Self(client)
    }

    /// What it saw; the last answers must be those of this Pod.
    async fn seen(self, active: usize) -> Seen {
        let lines = self.0.await.expect("no panic");
        let samples = lines.lines().filter(|line| line.starts_with(char::is_numeric));
        let mut samples: Vec<[&str; 4]> = samples
            .map(|line| line.split(',').collect::<Vec<_>>().try_into().expect("four fields"))
            .collect();
        samples.sort_unstable();
        let last = &samples[samples.len() - LAST..];
        let is_answered = |[_, _, outcome, _]: &&[&str; 4]| *outcome == Outcome::Ok.as_str();
        assert!(last.iter().all(|sample| is_answered(&sample) && sample[3] == pod(active)), "{lines}");
        let refused = samples.iter().filter(|[_, _, outcome, _]| *outcome == Outcome::Refused.as_str());
        let refused = refused.count();
        let mut answers: Vec<u64> =
            samples.iter().filter(is_answered).map(|[_, end, ..]| end.parse().expect("a time")).collect();
        answers.sort_unstable();
        let silence = answers.windows(2).map(|pair| pair[1] - pair[0]).max().expect("answers");
        let cut = samples.len() - answers.len() - refused;
        Seen { refused, cut, silence: Duration::from_nanos(silence) }
    }
}

/// What clients saw of one kind of fault.
fn print(what: &str, seen: &[Seen]) {
    let sum = |count: fn(&Seen) -> usize| seen.iter().map(count).sum::<usize>();
    let rounds = seen.len();
    println!("{what}: {} requests refused, {} cut, in {rounds} rounds", sum(|s| s.refused), sum(|s| s.cut));
    let mut silences: Vec<_> = seen.iter().map(|seen| seen.silence).collect();
    print_outages("longest time between two answers", &mut silences);
}

/// An agent that ends its application keeps the sockets on which that listens, where it may.
fn assert_nobody_was_refused(seen: &[Seen]) {
    let itself = pidfd_open(getpid(), PidfdFlags::empty()).expect("a descriptor of this process");
    match pidfd_getfd(&itself, itself.as_raw_fd(), PidfdGetfdFlags::empty()) {
        Ok(_) => assert!(seen.iter().all(|seen| seen.refused == 0), "{seen:?}"),
        Err(error) => println!("Nothing was asserted: an agent may not keep sockets here ({error})."),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_still_comes_to_a_pod_whose_application_was_killed_is_served_by_the_other_one() {
    let (stage, port) = relaying("relay-crash").await;
    let mut seen = Vec::new();
    for _ in 0..ROUNDS {
        let before = stage.settled().await;
        let client = Client::start((stage.address(before.agent), port).into()).await;
        before.kill();
        let after = stage.start_after(before).await;
        assert_eq!(after.agent, 1 - before.agent);
        seen.push(client.seen(after.agent).await);
    }
    print("application killed, seen at its address", &seen);
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_still_comes_to_a_pod_after_a_switchover_is_served_by_the_other_one() {
    let (stage, port) = relaying("relay-switch").await;
    let mut seen = Vec::new();
    let order = async |start: Start| {
        stage.annotate(keys::ANNOTATION_HA_SWITCH_OVER, Some(start.epoch.to_string())).await;
    };
    for _ in 0..ROUNDS {
        let before = stage.settled().await;
        let client = Client::start((stage.address(before.agent), port).into()).await;
        order(before).await;
        let after = stage.start_after(before).await;
        seen.push(client.seen(after.agent).await);
    }
    print("switchover, seen at the old address", &seen);
    assert_nobody_was_refused(&seen);
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_led_to_a_new_active_that_was_handed_over_to_when_it_listens() {
    let (stage, port) = relaying_to("relay-slow", Duration::from_millis(300)).await;
    let before = stage.settled().await;
    stage.annotate(keys::ANNOTATION_HA_SWITCH_OVER, Some(before.epoch.to_string())).await;
    let after = stage.start_after(before).await;
    assert_eq!(after.agent, 1 - before.agent);
    stage.shows(after).await;
    TcpStream::connect((stage.address(after.agent), port)).expect("it listens");
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_leaves_relays_for_a_while_and_then_closes_its_ports() {
    let (mut stage, port) = relaying("relay-leave").await;
    let (mut seen, mut leaves) = (Vec::new(), Vec::new());
    for _ in 0..LONG_ROUNDS {
        let before = stage.settled().await;
        let old = SocketAddr::from((stage.address(before.agent), port));
        let client = Client::start(old).await;
        let asked = Instant::now();
        assert_eq!(stage.terminate_agent(before.agent).await, Some(0));
        leaves.push(asked.elapsed());
        assert!(asked.elapsed() >= LINGER, "{leaves:?}");
        let error = TcpStream::connect(old).expect_err("nobody listens any more");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        let after = stage.start_after(before).await;
        seen.push(client.seen(after.agent).await);

        // A standby has nobody to relay for once it leaves.
        stage.start_agent(before.agent);
        stage.settled().await;
        let asked = Instant::now();
        assert_eq!(stage.terminate_agent(before.agent).await, Some(0));
        assert!(asked.elapsed() < LINGER, "{:?}", asked.elapsed());
        stage.start_agent(before.agent);
    }
    print("agent terminated, seen at its address", &seen);
    assert_nobody_was_refused(&seen);
    print_outages("from SIGTERM to the end of the agent", &mut leaves);
    stage.end();
}
