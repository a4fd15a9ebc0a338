//! The course of an application that cannot be started, in both modes; and what a standby is told about its peer.

use super::crashes::PAUSE_MIN;
use super::*;
use crate::settings::PairArguments;
use clap::Parser;

const POSTURE: Posture = Posture { epoch: Epoch { term: 1, sequence: 0 }, peer: None };

fn tenant(runs_in_standby: bool) -> Tenant {
    let hooks = Hooks { runs_in_standby, ..Hooks::default() };
    Tenant::new(Kernel, ("/no/such/launcher".into(), vec!["true".into()]), hooks, Duration::from_millis(200))
}

#[tokio::test]
async fn an_application_that_cannot_be_started_has_ended_once() {
    let mut tenant = tenant(false);
    tenant.activate(BootTime(0), POSTURE);
    assert!(!tenant.is_gone());
    assert!(tenant.ended().await.unwrap());
    assert!(tenant.is_gone());
    assert!(!tenant.has_just_ended().unwrap());
}

#[tokio::test]
async fn an_application_that_is_held_back_starts_when_it_is_let_go_or_ends_without_a_start() {
    let mut tenant = tenant(false);
    tenant.hold_back(true);
    tenant.activate(BootTime(0), POSTURE);
    tenant.go_on(BootTime(1)).unwrap();
    assert_eq!((tenant.due(), tenant.has_just_ended().unwrap()), (None, false));
    tenant.let_go(BootTime(2)).unwrap();
    assert!(tenant.has_just_ended().unwrap(), "the start was tried");

    tenant.hold_back(true);
    tenant.activate(BootTime(3), POSTURE);
    tenant.stop(BootTime(4), BootTime(5)).unwrap();
    assert!(tenant.has_just_ended().unwrap());
    tenant.let_go(BootTime(6)).unwrap();
    assert!(tenant.is_gone());
}

#[tokio::test]
async fn a_tenure_that_is_missed_ends_and_nothing_was_started_for_it() {
    let mut tenant = tenant(false);
    tenant.miss(POSTURE);
    assert!(tenant.has_just_ended().unwrap());
    assert_eq!((tenant.crashes.was_started(), tenant.is_gone()), (false, true));
}

#[tokio::test]
async fn nothing_of_a_tenure_begins_before_its_time() {
    let mut tenant = tenant(false);
    tenant.wait_until(BootTime(20));
    tenant.activate(BootTime(1), POSTURE);
    tenant.go_on(BootTime(19)).unwrap();
    assert_eq!((tenant.due(), tenant.has_just_ended().unwrap()), (Some(BootTime(20)), false));
    tenant.go_on(BootTime(20)).unwrap();
    assert!(tenant.has_just_ended().unwrap(), "the start was tried");
}

#[tokio::test]
async fn a_second_start_waits_and_is_never_made_once_it_was_told_to_stop() {
    let mut tenant = tenant(false);
    tenant.activate(BootTime(0), POSTURE);
    assert!(tenant.has_just_ended().unwrap());

    tenant.activate(BootTime(1), POSTURE);
    assert_eq!(tenant.due(), Some(BootTime(0) + PAUSE_MIN));
    tenant.go_on(BootTime(2)).unwrap();
    assert!(!tenant.has_just_ended().unwrap());
    tenant.stop(BootTime(3), BootTime(4)).unwrap();
    assert!(tenant.has_just_ended().unwrap());

    tenant.activate(BootTime(5), POSTURE);
    tenant.go_on(BootTime(0) + PAUSE_MIN).unwrap();
    assert!(tenant.has_just_ended().unwrap(), "the start was tried");
    assert_eq!(tenant.due(), None);
}

#[tokio::test]
async fn a_standby_that_ends_is_started_again_and_is_no_end_of_a_tenure() {
    let mut tenant = tenant(true);
    tenant.stand_by(BootTime(0), POSTURE);
    assert!(!tenant.ended().await.unwrap());
    assert_eq!(tenant.due(), Some(BootTime(0) + PAUSE_MIN));
    tenant.activate(BootTime(1), POSTURE);
    tenant.go_on(BootTime(0) + PAUSE_MIN).unwrap();
    assert!(tenant.has_just_ended().unwrap(), "it is the application of the tenure now");
    assert!(tenant.is_gone());
}

#[tokio::test]
async fn a_standby_that_retired_is_not_started() {
    let mut tenant = tenant(true);
    tenant.stand_by(BootTime(0), POSTURE);
    tenant.retire(BootTime(1), BootTime(2)).unwrap();
    assert!(tenant.is_gone());
    tenant.stand_by(BootTime(3), POSTURE);
    assert!(tenant.is_gone());
    tenant.enlist();
    tenant.stand_by(BootTime(4), POSTURE);
    assert!(!tenant.is_gone());
}

#[tokio::test]
async fn an_application_that_lingers_has_its_time_to_end_however_long_stopping_may_take_in_a_tenure() {
    let second = Duration::from_secs(1);
    for (stop, killed_after) in [(2 * second / 10, 49 * second / 10), (20 * second, 4 * second)] {
        // Whatever is to be launched ends at once, and nobody looks.
        let command = ("/bin/true".into(), vec!["true".into()]);
        let mut tenant = Tenant::new(Kernel, command, Hooks::default(), stop);
        tenant.activate(BootTime(0), POSTURE);
        tenant.linger(BootTime(0));
        let ends_at = BootTime(0) + second;
        tenant.relieve(ends_at);
        tenant.go_on(ends_at).unwrap();
        assert_eq!(tenant.due(), Some(ends_at + killed_after));
    }
}

#[test]
fn an_application_is_told_of_its_pair_once_there_is_one() {
    let mut tenant = tenant(false);
    let told = |tenant: &Tenant| tenant.environment(Occasion::Active).get(keys::ENV_HA_PAIR).cloned();
    assert_eq!(told(&tenant), None);
    tenant.join("web-0".to_owned(), Duration::from_millis(200));
    assert_eq!(told(&tenant), Some("web-0".to_owned()));
}

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    pair: PairArguments,
}

fn hooks(arguments: &[&str]) -> Hooks {
    let whole = [
        "agent",
        "--lease=web",
        "--key-file=/keys",
        "--peer-bind=0.0.0.0:20001",
        "--pod-uid=0a1b2c3d-0000-4000-8000-0123456789ab",
        "--pod=web-0",
        "--pod-ip=10.0.0.1",
    ];
    Program::parse_from([&whole, arguments].concat())
        .pair
        .settings()
        .expect("no contradiction")
        .expect("a pair")
        .hooks
}

#[tokio::test]
async fn a_standby_that_runs_is_told_each_new_address_of_its_peer_once() {
    // Whatever is to be launched ends at once, and nobody looks.
    let hooks = hooks(&["--run-in-standby", "--on-active=promote", "--on-standby=follow"]);
    let mut tenant =
        Tenant::new(Kernel, ("/bin/true".into(), vec!["true".into()]), hooks, Duration::from_millis(200));
    let told = |tenant: &mut Tenant, last: u8| {
        tenant.end_hook();
        tenant.follow(Some([192, 0, 2, last].into()));
        tenant.has_hook()
    };
    assert!(!told(&mut tenant, 1), "it gets the address when it starts");
    tenant.stand_by(BootTime(0), Posture { peer: Some([192, 0, 2, 1].into()), ..POSTURE });
    assert_eq!([1, 2, 2].map(|last| told(&mut tenant, last)), [false, true, false]);
    tenant.activate(BootTime(1), POSTURE);
    assert!(!told(&mut tenant, 3), "it acts");
}
