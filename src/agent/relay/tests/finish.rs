//! A relay that is about to end: who waits for an answer gets it, and whoever asks next does so elsewhere.

use super::*;

/// Much more than a relay takes to notice.
const A_WHILE: Duration = Duration::from_millis(20);

/// A client that is relayed to the other connection.
async fn relayed(stage: &Stage) -> [TcpStream; 2] {
    let target = stage.target().await;
    stage.aim(Some(ACTIVE));
    let client = stage.client().await;
    [client, target.accept().await.expect("a connection").0]
}

async fn passes([from, to]: [&mut TcpStream; 2], word: &[u8]) {
    from.write_all(word).await.expect("it is relayed");
    let mut read = vec![0; word.len()];
    to.read_exact(&mut read).await.expect("it is relayed");
    assert_eq!(read, word);
}

#[tokio::test]
async fn who_was_answered_sees_an_orderly_end() {
    let stage = Stage::set();
    let [mut client, mut target] = relayed(&stage).await;
    passes([&mut client, &mut target], b"question").await;
    passes([&mut target, &mut client], b"answer").await;
    stage.relay.finish().await;
    assert_eq!(client.read(&mut [0]).await.expect("no reset"), 0);
    assert_eq!(target.read(&mut [0]).await.expect("no reset"), 0);
}

#[tokio::test]
async fn who_waits_for_an_answer_gets_it_first() {
    let stage = Stage::set();
    let [mut client, mut target] = relayed(&stage).await;
    passes([&mut client, &mut target], b"question").await;
    let answer = async {
        sleep(A_WHILE).await;
        passes([&mut target, &mut client], b"answer").await;
        client.read(&mut [0]).await.expect("no reset")
    };
    let ((), end) = tokio::join!(stage.relay.finish(), answer);
    assert_eq!(end, 0);
}

#[tokio::test]
async fn who_is_never_answered_is_not_waited_for() {
    let stage = Stage::set();
    let [mut client, mut target] = relayed(&stage).await;
    passes([&mut client, &mut target], b"question").await;
    stage.relay.finish().await;
    // It goes on as long as the process does.
    passes([&mut target, &mut client], b"answer").await;
    assert_eq!(client.read(&mut [0]).await.expect("no reset"), 0);
}

#[tokio::test]
async fn without_ports_or_connections_nothing_is_waited_for() {
    let stage = Stage::set();
    stage.aim(Some(ACTIVE));
    let (mut tasks, settings) = (Tasks::new(), RelaySettings { ip: OWN, ports: BTreeSet::new() });
    for relay in [&stage.relay, &Relay::start(&mut tasks, &Shutdown::new(), settings)] {
        assert_eq!(relay.finish().now_or_never(), Some(()));
    }
}
