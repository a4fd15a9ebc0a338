//! Claims about a gate under attack: thousands of connections cost it neither memory nor its readiness.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};

use bps_wakeup::protocol::Answer;
use bps_wakeup::server::CONNECTIONS_MAX;

use crate::support::{GateProcess, connect_from, forged, valid, wake_through_a_crowd};

const CONNECTIONS: usize = 5_000;
const ATTACKERS: usize = 8;

/// Files of a gate beside its connections and those that it has when nobody talks to it, which may include some of the process
/// that started it: the connection being admitted, and the file with a ticket.
const OTHER_FILES_MAX: usize = 1 + 1;

/// What the gate's memory may grow by: its log lines, and stack and heap pages touched for the first time.
/// 5,000 connections kept with a frame each would be 1,000 KiB and more.
const GROWTH_MAX_KIB: u64 = 512;

/// Opens its share of the connections, from many addresses, and keeps the newest 80 open.
async fn attack(attacker: usize, address: SocketAddr) {
    let junk = [0x5a; 4096];
    let forged = forged().encode();
    let mut oversized = forged.to_vec();
    oversized.resize(65_536, 0);
    let mut kept = std::collections::VecDeque::new();
    for round in 0..CONNECTIONS / ATTACKERS {
        let host = u8::try_from(1 + round % 25).expect("a byte");
        let subnet = u8::try_from(2 + attacker).expect("a byte");
        let mut stream = connect_from(Ipv4Addr::new(127, 0, subnet, host), address).await.expect("connect");
        stream.set_nonblocking(true).expect("a socket");
        let bytes: &[u8] = match round % 5 {
            0 => &[],
            1 => &forged[..100],
            2 => &forged,
            3 => &junk,
            _ => &oversized,
        };
        // The gate hangs up in the midst of most of these.
        let _ = stream.write(bytes);
        kept.push_back(stream);
        if kept.len() > 80 {
            let mut oldest = kept.pop_front().expect("not empty");
            let _ = oldest.read(&mut [0; 64]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_hostile_connections_cost_no_memory_and_an_honest_ticket_gets_through() {
    let directory = tempfile::tempdir().unwrap();
    let gate = GateProcess::start(directory.path());
    let address = gate.address;
    // One refusal, so that all code has run once before memory is measured.
    assert!(crate::support::wake(address, &forged()).await.is_ok());
    let before = gate.peak_memory_kib();
    let idle_files = gate.open_files();

    let attackers: Vec<_> = (0..ATTACKERS).map(|attacker| tokio::spawn(attack(attacker, address))).collect();
    let mut most_files = 0;
    while !attackers.iter().all(tokio::task::JoinHandle::is_finished) {
        most_files = most_files.max(gate.open_files());
        tokio::task::yield_now().await;
    }
    for attacker in attackers {
        attacker.await.unwrap();
    }
    let growth = gate.peak_memory_kib() - before;
    assert!(most_files > idle_files + OTHER_FILES_MAX, "the flood was never seen");
    assert!(
        most_files <= idle_files + CONNECTIONS_MAX + OTHER_FILES_MAX,
        "{most_files} files, {idle_files} of them idle"
    );
    assert!(growth <= GROWTH_MAX_KIB, "{growth} KiB more than {before} KiB");

    assert_eq!(wake_through_a_crowd(address, &valid()).await, Answer::Accepted);
    let (code, log) = gate.finish();
    assert_eq!(code, Some(0));
    assert_the_log_is_short_and_clean(&log);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_honest_ticket_gets_through_in_the_midst_of_a_flood() {
    let directory = tempfile::tempdir().unwrap();
    let gate = GateProcess::start(directory.path());
    let address = gate.address;
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let flood = tokio::spawn(async move {
        let mut begun = Some(begun);
        // Ends with the gate, or with the test.
        for round in 0..usize::MAX {
            let source = Ipv4Addr::new(127, 0, 20, u8::try_from(1 + round % 200).expect("a byte"));
            let Ok(mut stream) = connect_from(source, address).await else { return };
            let _ = stream.write_all(&forged().encode());
            if round == 200
                && let Some(begun) = begun.take()
            {
                let _ = begun.send(());
            }
        }
    });
    has_begun.await.unwrap();
    assert_eq!(wake_through_a_crowd(address, &valid()).await, Answer::Accepted);
    assert_eq!(gate.finish().0, Some(0));
    flood.await.unwrap();
}

fn assert_the_log_is_short_and_clean(log: &[String]) {
    // Five at once and one a second; the test would have to last ten minutes for this many.
    assert!(log.len() < 600, "{} lines", log.len());
    for line in log {
        let value: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let expected = ["Refused a wake-up", "Woken"];
        assert!(expected.contains(&value["message"].as_str().unwrap()), "{line}");
        // Numbers of what was suppressed may have some ones in a row.
        assert!(!line.contains("1111111111111111"), "a signature in the log: {line}");
    }
    let suppressed: u64 = log.iter().map(|line| suppressed(line)).sum();
    assert!(suppressed > 0, "every refusal was written");
}

fn suppressed(line: &str) -> u64 {
    let value: serde_json::Value = serde_json::from_str(line).expect("checked above");
    value["suppressed"].as_u64().unwrap_or(0)
}
