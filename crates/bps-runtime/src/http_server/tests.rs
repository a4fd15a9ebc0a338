//! Tests of the bounds, over loopback; time is paused, so that it moves on only when nothing else can happen.

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
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

#[tokio::test]
async fn one_address_gets_only_its_share_and_gets_it_back() {
    let (address, ..) = start(hello()).await;
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS_PER_ADDRESS_MAX {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    assert_eq!(talk(address, REQUEST).await, "");

    // A whole answer on one of them frees its place before the server closes the next.
    let mut freed = idle.pop().unwrap();
    freed.write_all(REQUEST.as_bytes()).await.unwrap();
    let mut answer = String::new();
    freed.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("hello"), "{answer}");
    drop(freed);
    let mut again = String::new();
    while again.is_empty() {
        again = talk(address, REQUEST).await;
    }
    assert!(again.ends_with("hello"), "{again}");
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
