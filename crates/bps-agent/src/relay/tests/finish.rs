//! A relay that is about to end: who waits for an answer gets it, and whoever asks next does so elsewhere.

use std::io::{Read as _, Write as _};

use super::*;

/// Ends of the kind that a race decides.
const ROUNDS: usize = 20;

/// Much more than a relay takes to notice.
const A_WHILE: Duration = Duration::from_millis(20);

/// As long as an answer takes that waits for a disk.
const SLOWLY: Duration = Duration::from_millis(100);

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

/// A client that has asked twice, so that the end of its connection ends no answer.
async fn kept(stage: &Stage) -> [TcpStream; 2] {
    let [mut client, mut target] = relayed(stage).await;
    passes([&mut client, &mut target], b"question").await;
    passes([&mut target, &mut client], b"answer").await;
    passes([&mut client, &mut target], b"question").await;
    [client, target]
}

async fn ended(stream: &mut TcpStream) -> bool {
    stream.read(&mut [0]).await.expect("no reset") == 0
}

#[tokio::test]
async fn who_was_answered_sees_an_orderly_end() {
    let stage = Stage::set();
    let [mut client, mut target] = kept(&stage).await;
    passes([&mut target, &mut client], b"answer").await;
    stage.relay.finish().await;
    assert!(ended(&mut client).await && ended(&mut target).await);
}

#[tokio::test]
async fn who_has_asked_nothing_yet_sees_an_orderly_end() {
    let stage = Stage::set();
    let [mut client, mut target] = relayed(&stage).await;
    stage.relay.finish().await;
    assert!(ended(&mut client).await && ended(&mut target).await);
}

#[tokio::test]
async fn who_waits_for_an_answer_gets_it_first() {
    let stage = Stage::set();
    let [mut client, mut target] = kept(&stage).await;
    let answer = async {
        sleep(SLOWLY).await;
        passes([&mut target, &mut client], b"answer").await;
        ended(&mut client).await
    };
    let ending = async {
        stage.relay.finish().await;
        // As the process ends.
        drop(stage);
    };
    let ((), has_ended) = tokio::join!(ending, answer);
    assert!(has_ended);
}

/// As who adds to a counter all the time: there is no moment without a question.
#[tokio::test(flavor = "multi_thread")]
async fn who_asks_again_right_after_an_answer_sees_the_end_before() {
    for _ in 0..ROUNDS {
        let stage = Stage::set();
        let [client, target] = kept(&stage).await.map(|stream| stream.into_std().expect("a socket"));
        let answering = std::thread::spawn(move || answer_all(target));
        let asking = std::thread::spawn(move || ask_until_the_end(client));
        sleep(A_WHILE).await;
        stage.relay.finish().await;
        let answers = asking.join().expect("no panic").expect("no question without an answer");
        assert_eq!(answers, answering.join().expect("no panic"));
    }
}

/// Answers until nobody asks any more; how often.
fn answer_all(mut stream: std::net::TcpStream) -> usize {
    stream.set_nonblocking(false).expect("a socket");
    let mut answers = 0;
    loop {
        stream.write_all(b"answer").expect("it is relayed");
        answers += 1;
        if stream.read(&mut [0; 64]).expect("no reset") == 0 {
            return answers;
        }
    }
}

/// Asks until the connection has ended; how many answers there were.
fn ask_until_the_end(mut stream: std::net::TcpStream) -> std::io::Result<usize> {
    let mut answers = 0;
    loop {
        stream.set_nonblocking(false)?;
        stream.read_exact(&mut [0; 6])?;
        answers += 1;
        stream.set_nonblocking(true)?;
        if stream.peek(&mut [0]).is_ok_and(|length| length == 0) {
            return Ok(answers);
        }
        stream.write_all(b"question")?;
    }
}

/// It would take what has come for all there is.
#[tokio::test]
async fn whose_first_answer_may_end_with_the_connection_sees_no_orderly_end() {
    let stage = Stage::set();
    let [mut client, mut target] = relayed(&stage).await;
    passes([&mut client, &mut target], b"question").await;
    passes([&mut target, &mut client], b"half of an").await;
    stage.relay.finish().await;
    passes([&mut target, &mut client], b" answer").await;
}

#[tokio::test]
async fn who_has_said_all_sees_no_orderly_end_before_that_of_the_answer() {
    let stage = Stage::set();
    let [mut client, mut target] = kept(&stage).await;
    client.shutdown().await.expect("it is connected");
    assert!(ended(&mut target).await);
    passes([&mut target, &mut client], b"half of an").await;
    stage.relay.finish().await;
    passes([&mut target, &mut client], b" answer").await;
}

/// The rest of the answer waits for room.
#[tokio::test]
async fn a_client_that_reads_slowly_gets_its_answer() {
    let stage = Stage::set();
    let [mut client, mut target] = kept(&stage).await;
    let answer = vec![7; 32 << 20];
    let answering = tokio::spawn(async move { target.write_all(&answer).await.map(|()| target) });
    sleep(A_WHILE).await;
    stage.relay.finish().await;
    let mut read = vec![0; 32 << 20];
    client.read_exact(&mut read).await.expect("all of it");
    answering.await.expect("no panic").expect("it is relayed");
    assert!(ended(&mut client).await);
}

#[tokio::test]
async fn who_is_never_answered_is_not_waited_for() {
    let stage = Stage::set();
    let [mut client, mut target] = kept(&stage).await;
    stage.relay.finish().await;
    // It goes on as long as the process does.
    passes([&mut target, &mut client], b"answer").await;
    assert!(ended(&mut client).await);
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
