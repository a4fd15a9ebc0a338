//! Tests of the bounds, over loopback; time is paused, so that it moves on only when nothing else can happen.

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;

async fn start(router: Router) -> (SocketAddr, Shutdown, JoinHandle<()>) {
    let listener = listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let (address, shutdown) = (listener.local_addr().unwrap(), Shutdown::new());
    (address, shutdown.clone(), tokio::spawn(serve(listener, router, None, shutdown)))
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

/// What a client that sends `request` reads until the server closes; a reset counts as closed.
async fn talk(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn a_connection_carries_one_request() {
    let (address, ..) = start(hello()).await;
    let answer = talk(address, &REQUEST.repeat(2)).await;
    assert_eq!(answer.matches("hello").count(), 1, "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_ends_its_head_is_cut_after_its_time() {
    let (address, ..) = start(hello()).await;
    let start = Instant::now();
    let answer = talk(address, "GET / HTTP/1.1\r\nhost:").await;
    assert!(!answer.contains("hello"), "{answer}");
    assert_eq!(start.elapsed().as_secs(), HEAD_MAX.as_secs());
}

#[tokio::test]
async fn a_head_beyond_its_size_is_refused() {
    let (address, ..) = start(hello()).await;
    let answer =
        talk(address, &format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(2 * HEAD_MAX_BYTES))).await;
    assert!(!answer.contains("hello"), "{answer}");
}

/// Idle connections from an address of this machine.
async fn idle(count: usize, from: [u8; 4], to: SocketAddr) -> Vec<TcpStream> {
    let mut idle = Vec::new();
    for _ in 0..count {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        idle.push(socket.connect(to).await.unwrap());
    }
    idle
}

/// Whether the server has closed a connection on which nothing was sent; others are there to be read from after a moment.
async fn is_closed(stream: &mut TcpStream) -> bool {
    timeout(Duration::from_millis(100), stream.read_u8()).await.is_ok()
}

#[tokio::test]
async fn the_oldest_connection_of_an_address_makes_room_for_its_next_one() {
    let (address, ..) = start(hello()).await;
    let mut idle = idle(CONNECTIONS_PER_ADDRESS_MAX, [127, 0, 0, 1], address).await;
    assert!(talk(address, REQUEST).await.ends_with("hello"));

    let mut first = idle.remove(0);
    assert!(is_closed(&mut first).await);
    for other in &mut idle {
        assert!(!is_closed(other).await);
    }
    // All of them have a whole answer yet.
    let mut last = idle.pop().unwrap();
    last.write_all(REQUEST.as_bytes()).await.unwrap();
    let mut answer = String::new();
    last.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn whoever_has_most_makes_room_where_there_are_too_many_in_all() {
    let (address, ..) = start(hello()).await;
    let mut held = Vec::new();
    for last in 1..=CONNECTIONS_MAX / CONNECTIONS_PER_ADDRESS_MAX {
        let from = [127, 0, 1, u8::try_from(last).unwrap()];
        held.extend(idle(CONNECTIONS_PER_ADDRESS_MAX, from, address).await);
    }
    assert_eq!(held.len(), CONNECTIONS_MAX);
    for _ in 0..CONNECTIONS_PER_ADDRESS_MAX {
        assert!(talk(address, REQUEST).await.ends_with("hello"), "a probe gets through");
    }
    // Each answer has freed its place.
    assert!(is_closed(&mut held[0]).await);
    assert!(!is_closed(&mut held[1]).await);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_an_answer_no_longer_than_its_bound() {
    let stuck = Router::new().route("/", get(std::future::pending::<&'static str>));
    let (address, shutdown, task) = start(stuck).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(REQUEST.as_bytes()).await.unwrap();
    tokio::task::yield_now().await;
    shutdown.request();
    let start = Instant::now();
    task.await.unwrap();
    assert!(start.elapsed() <= STOP_MAX, "{:?}", start.elapsed());
}

#[tokio::test]
async fn whoever_listens_everywhere_is_reached_by_ipv4() {
    let listener = listen("[::]:0".parse().unwrap()).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_ok());
    assert!(listen(listener.local_addr().unwrap()).await.is_err(), "the port is taken");
}
