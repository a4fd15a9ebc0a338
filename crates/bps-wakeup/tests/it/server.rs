//! Claims about the gate, over real loopback sockets and with the real binary.

use std::io::Write as _;
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use bps_wakeup::client;
use bps_wakeup::protocol::{Answer, Refusal, Ticket};
use bps_wakeup::signing::SigningKey;

use crate::support::{
    GateProcess, PATIENCE, SET, answer_to, binary, connect_from, forged, gate_command, read_answer, ticket,
    uid, valid, wake,
};

fn json(line: &str) -> serde_json::Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
}

#[tokio::test]
async fn a_valid_ticket_opens_the_gate() {
    let directory = tempfile::tempdir().unwrap();
    let gate = GateProcess::start(directory.path());
    assert_eq!(json(&gate.first_line)["message"], "Started waiting");

    assert_eq!(wake(gate.address, &valid()).await.unwrap(), Answer::Accepted);
    let address = gate.address;
    let (code, log) = gate.finish();
    assert_eq!((code, log.len()), (Some(0), 1));
    assert_eq!((&json(&log[0])["message"], &json(&log[0])["attempt"]), (&"Woken".into(), &7.into()));
    assert!(matches!(wake(address, &valid()).await, Err(client::Error::ConnectionRefused { .. })));
}

#[test]
fn a_ticket_in_the_pods_annotations_opens_the_gate_without_a_connection_and_again_after_that() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ticket");
    // The kubelet shows an annotation that is not there as an empty file.
    std::fs::write(&file, "").unwrap();
    let gate = GateProcess::start(directory.path());
    assert_eq!(json(&gate.first_line)["message"], "Started waiting");
    // It has been posted for longer than any ticket that is sent is valid.
    let posted = Ticket { expiry: ticket().expiry - 3_600, ..ticket() }.sign(&crate::support::key());
    std::fs::write(&file, posted.to_text()).unwrap();
    let (code, log) = gate.finish();
    assert_eq!((code, log.len()), (Some(0), 1));
    assert_eq!((&json(&log[0])["message"], &json(&log[0])["attempt"]), (&"Woken".into(), &7.into()));

    // The sandbox is made again, twice: the init container runs again and must not wait.
    for _ in 0..2 {
        let again = GateProcess::start(directory.path());
        assert_eq!(json(&again.first_line)["message"], "Passed, woken before");
        assert_eq!(again.finish(), (Some(0), vec![]));
    }
}

#[tokio::test]
async fn the_ticket_of_another_pod_in_its_annotations_does_not_open_the_gate() {
    let directory = tempfile::tempdir().unwrap();
    let other = Ticket { pod: uid("another"), ..ticket() }.sign(&crate::support::key());
    std::fs::write(directory.path().join("ticket"), other.to_text()).unwrap();
    let gate = GateProcess::start(directory.path());
    assert_eq!(json(&gate.first_line)["message"], "Started waiting");
    assert_eq!(wake(gate.address, &valid()).await.unwrap(), Answer::Accepted);
    assert_eq!(gate.finish().0, Some(0));
}

#[tokio::test]
async fn every_wrong_ticket_is_refused_and_leaves_the_gate_closed() {
    let directory = tempfile::tempdir().unwrap();
    let mut gate = GateProcess::start(directory.path());
    let (key, stranger) = (crate::support::key(), SigningKey::from_seed(&[2; 32]));
    let mut foreign = ticket().sign(&stranger);
    foreign.ticket.key = key.id();
    let expiry = ticket().expiry;
    for (ticket, refusal) in [
        (Ticket { pod: uid(SET), ..ticket() }.sign(&key), Refusal::OtherPod),
        (Ticket { set: uid("other"), ..ticket() }.sign(&key), Refusal::OtherSet),
        (Ticket { expiry: expiry - 3600, ..ticket() }.sign(&key), Refusal::Expired),
        (Ticket { expiry: expiry + 3600, ..ticket() }.sign(&key), Refusal::TooFarAhead),
        (ticket().sign(&stranger), Refusal::UnknownKey),
        (foreign, Refusal::BadSignature),
        (forged(), Refusal::BadSignature),
    ] {
        assert_eq!(wake(gate.address, &ticket).await.unwrap(), Answer::Refused(refusal));
    }
    assert!(gate.is_running());
    assert_eq!(wake(gate.address, &valid()).await.unwrap(), Answer::Accepted);
    assert_eq!(gate.finish().0, Some(0));
}

#[test]
fn bytes_that_are_no_frame_are_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let gate = GateProcess::start(directory.path());
    let frame = valid().encode();
    assert_eq!(answer_to(gate.address, b"GET / HTTP/1.1\r\n"), Answer::Refused(Refusal::NotAFrame));
    assert_eq!(answer_to(gate.address, b"BPSW\x02"), Answer::Refused(Refusal::UnsupportedVersion));
    assert_eq!(answer_to(gate.address, b"BPSW\x01\xff"), Answer::Refused(Refusal::WrongLength));

    let mut cut_short = TcpStream::connect(gate.address).unwrap();
    cut_short.write_all(&frame[..191]).unwrap();
    cut_short.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_answer(&mut cut_short), Answer::Refused(Refusal::WrongLength));

    let mut too_long = frame.to_vec();
    too_long.push(0);
    assert_eq!(answer_to(gate.address, &too_long), Answer::Refused(Refusal::WrongLength));
}

#[test]
fn a_frame_that_trickles_in_is_cut_off_however_it_is_spread() {
    let directory = tempfile::tempdir().unwrap();
    let gate = GateProcess::start(directory.path());
    let mut silent = TcpStream::connect(gate.address).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut trickling = TcpStream::connect(gate.address).unwrap();
    // A byte every 50 ms needs 9.6 s for a frame: a deadline for each read would never end it.
    let mut reader = trickling.try_clone().unwrap();
    reader.set_read_timeout(Some(PATIENCE)).unwrap();
    let sender = std::thread::spawn(move || {
        valid().encode().iter().all(|byte| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            trickling.write_all(&[*byte]).is_ok()
        })
    });
    assert_eq!(read_answer(&mut reader), Answer::Refused(Refusal::TooSlow));
    assert_eq!(read_answer(&mut silent), Answer::Refused(Refusal::TooSlow));
    assert!(!sender.join().unwrap(), "the whole frame was taken");
}

#[tokio::test]
async fn an_honest_ticket_gets_in_while_silent_connections_hold_every_place() {
    let directory = tempfile::tempdir().unwrap();
    let gate = GateProcess::start(directory.path());
    let mut silent = Vec::new();
    for host in 0..64 {
        // Four connections from each of 16 addresses fill all 64 places.
        let source = Ipv4Addr::new(127, 0, 1, 1 + host / 4);
        silent.push(connect_from(source, gate.address).await.unwrap());
    }
    assert_eq!(wake(gate.address, &valid()).await.unwrap(), Answer::Accepted);
    assert_eq!(gate.finish().0, Some(0));
}

#[tokio::test]
async fn a_fifth_connection_of_a_source_takes_the_place_of_its_oldest() {
    let directory = tempfile::tempdir().unwrap();
    let gate = GateProcess::start(directory.path());
    let source = Ipv4Addr::new(127, 0, 1, 1);
    let mut oldest = connect_from(source, gate.address).await.unwrap();
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(connect_from(source, gate.address).await.unwrap());
    }
    assert_eq!(read_answer(&mut oldest), Answer::Refused(Refusal::Busy));
}

#[test]
fn sigterm_ends_a_gate_without_opening_it() {
    let directory = tempfile::tempdir().unwrap();
    let gate = GateProcess::start(directory.path());
    let pid = rustix::process::Pid::from_child(&gate.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(gate.finish(), (Some(143), vec![]));
}

#[test]
fn install_makes_a_copy_that_all_may_run_and_nobody_may_change() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("bps-wakeup");
    // The second run finds the first one's copy, as after a new sandbox.
    for _ in 0..2 {
        assert!(binary().arg("install").arg(directory.path()).status().unwrap().success());
        assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o7777, 0o555);
        assert!(Command::new(&copy).arg("pass").status().unwrap().success());
    }
    let original = std::fs::read(env!("CARGO_BIN_EXE_bps-wakeup")).unwrap();
    assert!(std::fs::read(&copy).unwrap() == original, "the copy differs");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn wrong_use_says_what_is_right_and_never_opens() {
    let directory = tempfile::tempdir().unwrap();
    let said = |command: &mut Command| {
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let usage = "bps-wakeup: usage: bps-wakeup install <directory> | pass | gate\n".to_owned();
    assert_eq!(said(&mut binary()), (Some(64), usage.clone()));
    assert_eq!(said(binary().arg("open")), (Some(64), usage));
    let missing = "bps-wakeup: read the settings: set BPS_POD_UID\n".to_owned();
    assert_eq!(said(binary().arg("gate")), (Some(1), missing));
    let no_key = "bps-wakeup: read the settings: BPS_WAKE_KEYS needs 1 to 8 keys\n".to_owned();
    assert_eq!(said(gate_command(directory.path()).env("BPS_WAKE_KEYS", "")), (Some(1), no_key));
    let (code, text) = said(binary().arg("install").arg(directory.path().join("missing")));
    assert_eq!(code, Some(1));
    assert!(text.starts_with("bps-wakeup: install the gate: No such file"), "{text}");
}
