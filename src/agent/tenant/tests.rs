//! The course of an application that cannot be started, in both modes.

use super::*;

const POSTURE: Posture = Posture { epoch: Epoch { term: 1, sequence: 0 }, peer: None };

fn tenant(runs_in_standby: bool) -> Tenant {
    let hooks = Hooks { runs_in_standby, ..Hooks::default() };
    Tenant::new("/no/such/launcher".into(), vec!["true".into()], hooks, Duration::from_millis(200))
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
async fn a_second_start_waits_and_is_never_made_once_it_was_told_to_stop() {
    let mut tenant = tenant(false);
    tenant.activate(BootTime(0), POSTURE);
    assert!(tenant.has_just_ended().unwrap());

    tenant.activate(BootTime(1), POSTURE);
    assert_eq!(tenant.due(), Some(BootTime(0) + STARTS_APART));
    tenant.go_on(BootTime(2)).unwrap();
    assert!(!tenant.has_just_ended().unwrap());
    tenant.stop(BootTime(3), BootTime(4)).unwrap();
    assert!(tenant.has_just_ended().unwrap());

    tenant.activate(BootTime(5), POSTURE);
    tenant.go_on(BootTime(0) + STARTS_APART).unwrap();
    assert!(tenant.has_just_ended().unwrap(), "the start was tried");
    assert_eq!(tenant.due(), None);
}

#[tokio::test]
async fn a_standby_that_ends_is_started_again_and_is_no_end_of_a_tenure() {
    let mut tenant = tenant(true);
    tenant.stand_by(BootTime(0), POSTURE);
    assert!(!tenant.ended().await.unwrap());
    assert_eq!(tenant.due(), Some(BootTime(0) + STARTS_APART));
    tenant.activate(BootTime(1), POSTURE);
    tenant.go_on(BootTime(0) + STARTS_APART).unwrap();
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
