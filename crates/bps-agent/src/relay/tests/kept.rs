//! Sockets on which an application listened that has ended.

use super::*;

#[tokio::test]
async fn who_connected_before_the_application_ended_is_served_after_it() {
    let stage = Stage::set();
    let application = std::net::TcpListener::bind(stage.here()).expect("the port is free");
    stage.relay.keep(vec![application.try_clone().expect("a descriptor is free").into()]);
    stage.aim(Some(ACTIVE));
    // Still the application's affair.
    let mut client = stage.client().await;
    let mut served = application.accept().expect("a connection").0;
    std::io::Write::write_all(&mut served, b"own").expect("it still reads");
    let mut answered = [0; 3];
    client.read_exact(&mut answered).await.expect("the application's answer");
    assert_eq!(&answered, b"own");

    let client = stage.client().await;
    drop(application);
    stage.relay.inherit();
    stage.aim(Some(ACTIVE));
    let target = stage.target().await;
    let (answered, from) = tokio::join!(ask(client, b"still there?"), answer(&target));
    assert_eq!((&*answered, from), (&b"still there?"[..], OWN));
}

#[tokio::test]
async fn an_application_that_starts_again_finds_the_port_that_was_kept() {
    let stage = Stage::set();
    let application = TcpListener::bind(stage.here()).await.expect("the port is free");
    let kept = application.into_std().expect("it is registered");
    stage.relay.keep(vec![kept.into()]);
    stage.relay.inherit();
    stage.aim(None);
    stage.relay.close();
    TcpListener::bind(stage.here()).await.expect("the port is free again");
}

#[tokio::test]
async fn a_socket_that_the_application_has_shut_down_keeps_nobody_from_its_port() {
    let stage = Stage::set();
    let application = std::net::TcpListener::bind(stage.here()).expect("the port is free");
    stage.relay.keep(vec![application.try_clone().expect("a descriptor is free").into()]);
    rustix::net::shutdown(&application, rustix::net::Shutdown::Both).expect("it listens");
    drop(application);
    stage.relay.inherit();
    stage.aim(Some(ACTIVE));
    let target = stage.target().await;
    let client = stage.client().await;
    let (answered, _) = tokio::join!(ask(client, b"still there?"), answer(&target));
    assert_eq!(answered, b"still there?");
}

/// As a server does that takes no new connections while it answers those that it has.
#[tokio::test]
async fn a_port_that_the_application_shuts_down_long_before_it_ends_is_open_again() {
    let stage = Stage::set();
    let application = std::net::TcpListener::bind(stage.here()).expect("the port is free");
    stage.relay.keep(vec![application.try_clone().expect("a descriptor is free").into()]);
    stage.aim(Some(ACTIVE));
    let target = stage.target().await;
    rustix::net::shutdown(&application, rustix::net::Shutdown::Both).expect("it listens");
    let client = stage.client().await;
    let (answered, _) = tokio::join!(ask(client, b"still there?"), answer(&target));
    assert_eq!(answered, b"still there?");
}
