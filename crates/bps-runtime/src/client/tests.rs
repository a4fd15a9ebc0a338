//! Tests of the client: its bounds under paused time, its identity and its lack of retries over a loopback socket.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode};
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PostParams, WatchParams};
use kube::client::{Body, ClientBuilder};
use tokio::net::TcpListener;
use tokio::sync::{Barrier, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::service_fn;

use super::*;
use crate::metrics::Metrics;

/// A client whose requests are never answered.
fn unanswered(metrics: &Metrics) -> Client {
    let silent = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let url = "https://10.0.0.1:443".parse().unwrap();
    let layer = BoundedLayer::new(Host::of(&url), metrics.rest.clone());
    ClientBuilder::new(silent, "default").with_layer(&layer).build()
}

/// A client that gets the head of an answer and `chunk` of a body that then stalls.
fn stalled(chunk: &'static str) -> Client {
    let stalled = service_fn(move |_: Request<Body>| async move {
        let first =
            stream::iter([Ok::<_, Infallible>(Frame::data(bytes::Bytes::from_static(chunk.as_bytes())))]);
        Ok::<_, Infallible>(Response::new(StreamBody::new(first.chain(stream::pending()))))
    });
    let url = "https://10.0.0.1:443".parse().unwrap();
    let layer = BoundedLayer::new(Host::of(&url), Metrics::new("test").rest);
    ClientBuilder::new(stalled, "default").with_layer(&layer).build()
}

#[tokio::test(start_paused = true)]
async fn reads_and_writes_without_an_answer_end_after_their_time_and_are_counted() {
    let metrics = Metrics::new("test");
    let pods: Api<Pod> = Api::default_namespaced(unanswered(&metrics));

    let start = Instant::now();
    let error = pods.get("web-0").await.unwrap_err();
    assert!(is_no_answer(&error), "{error:?}");
    assert_eq!(start.elapsed(), READ_TIMEOUT);

    let start = Instant::now();
    let error = pods.create(&PostParams::default(), &Pod::default()).await.unwrap_err();
    assert!(is_no_answer(&error), "{error:?}");
    assert_eq!(start.elapsed(), WRITE_TIMEOUT);

    let text = metrics.encode().unwrap();
    for method in ["GET", "POST"] {
        let line = format!(
            "rest_client_requests_total{{code=\"<error>\",method=\"{method}\",host=\"10.0.0.1:443\"}} 1\n"
        );
        assert!(text.contains(&line), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_stalls_in_the_middle_ends_after_its_time() {
    let pods: Api<Pod> = Api::default_namespaced(stalled("{\"items\":"));
    let start = Instant::now();

    let error = pods.list(&ListParams::default()).await.unwrap_err();

    assert!(is_no_answer(&error), "{error:?}");
    assert_eq!(start.elapsed(), READ_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_is_left_alone() {
    let pods: Api<Pod> = Api::default_namespaced(stalled(""));
    let events = pods.watch(&WatchParams::default(), "0").await.unwrap();
    let mut events = std::pin::pin!(events);

    tokio::select! {
        event = events.next() => panic!("the watch ended with {event:?}"),
        () = sleep(READ_TIMEOUT * 10) => (),
    }
}

/// Serves on the loopback until it is aborted; returns how a client gets there.
async fn serve(router: Router) -> (Config, JoinHandle<std::io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    (Config::new(url), tokio::spawn(async move { axum::serve(listener, service).await }))
}

type Seen = Arc<Mutex<Vec<Option<String>>>>;

async fn refuse(
    State(seen): State<Seen>,
    headers: HeaderMap,
) -> (StatusCode, [(&'static str, &'static str); 1]) {
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).map(str::to_owned);
    seen.lock().unwrap().push(agent);
    (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "0")])
}

#[tokio::test]
async fn a_refused_request_is_returned_at_once_and_never_repeated() {
    let seen = Seen::default();
    let router = Router::new().fallback(refuse).with_state(seen.clone());
    let (config, server) = serve(router).await;
    let metrics = Metrics::new("test");
    let pods: Api<Pod> = Api::default_namespaced(build(config, USER_AGENT_AGENT, &metrics.rest).unwrap());

    let write = pods.create(&PostParams::default(), &Pod::default()).await;
    let read = pods.get("web-0").await;

    assert!(matches!(&write, Err(kube::Error::Api(status)) if status.code == 503), "{write:?}");
    assert!(matches!(&read, Err(kube::Error::Api(status)) if status.code == 503), "{read:?}");
    assert!(!is_no_answer(&write.unwrap_err()));
    assert_eq!(*seen.lock().unwrap(), vec![Some(USER_AGENT_AGENT.to_owned()); 2]);
    assert!(metrics.encode().unwrap().contains("rest_client_requests_total{code=\"503\",method=\"POST\""));
    server.abort();
}

/// Where two requests wait for each other, and where their connections are told.
type Pairs = Arc<(Barrier, mpsc::UnboundedSender<SocketAddr>)>;

async fn answer_two(State(pairs): State<Pairs>, ConnectInfo(from): ConnectInfo<SocketAddr>) -> &'static str {
    pairs.1.send(from).unwrap();
    pairs.0.wait().await;
    "{}"
}

#[tokio::test]
async fn requests_at_the_same_time_find_the_connections_that_were_kept_for_them() {
    let (told, mut connections) = mpsc::unbounded_channel();
    let router = Router::new().fallback(answer_two).with_state(Arc::new((Barrier::new(2), told)));
    let (config, server) = serve(router).await;
    let client = build(config, USER_AGENT_AGENT, &Metrics::new("test").rest).unwrap();
    let mut two = async || -> BTreeSet<SocketAddr> {
        [connections.recv().await.unwrap(), connections.recv().await.unwrap()].into()
    };
    connections::use_all(&client, 2).await;
    let kept = two().await;

    let pods: Api<Pod> = Api::default_namespaced(client);
    let (first, second) = tokio::join!(pods.get("web-0"), pods.get("web-1"));

    assert_eq!((first.is_ok(), second.is_ok()), (true, true));
    assert_eq!((kept.len(), two().await), (2, kept));
    server.abort();
}

#[tokio::test]
async fn an_agent_reads_a_kubeconfig_in_json_and_says_how_to_write_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    let read = async |text: &str| {
        std::fs::write(&path, text).unwrap();
        read_json(&path).await
    };
    let whole = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "near", "cluster": {"server": "https://10.1.2.3:6443"}}],
        "contexts": [{"name": "here", "context": {"cluster": "near", "user": "me"}}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
    });
    let config = read(&whole.to_string()).await.unwrap();
    assert_eq!(config.cluster_url, "https://10.1.2.3:6443");
    assert!(matches!(read("apiVersion: v1\nkind: Config\n").await, Err(UnreadError::Json(_))));
    assert!(matches!(read("{}").await, Err(UnreadError::Incomplete(_))));
    let source = Box::new(read_json(&directory.path().join("none")).await.err().unwrap());
    let told = Error::Kubeconfig { path: "none".into(), source }.to_string();
    assert_eq!(told, "use the kubeconfig none; write it with: kubectl config view --raw --flatten -o json");
}

/// Whether the files are there is found out when the configuration is made of it.
#[tokio::test]
async fn the_files_of_an_account_are_named_and_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let [token, certificates] = ["token", "ca.crt"].map(|name| folder.path().join(name));
    let account = ApiFiles { token: token.clone(), certificates: certificates.clone() };
    let made = async |host| {
        Config::from_custom_kubeconfig(kubeconfig(&account, host, "443"), &KubeConfigOptions::default()).await
    };
    assert!(made("10.0.0.1").await.is_err(), "there are no certificates");
    let authority = rcgen::generate_simple_self_signed(["kubernetes".to_owned()]).unwrap();
    std::fs::write(&certificates, authority.cert.pem()).unwrap();
    for (host, url) in [("10.0.0.1", "https://10.0.0.1:443/"), ("fd00::1", "https://[fd00::1]:443/")] {
        let config = made(host).await.unwrap();
        assert_eq!(config.cluster_url.to_string(), url);
        assert_eq!(config.auth_info.token_file, token.to_str().map(str::to_owned));
        assert_eq!(config.root_cert.as_ref().map(Vec::len), Some(1));
        let mut proxied = config;
        proxied.proxy_url = Some("http://proxy.example.com".parse().unwrap());
        let config = of_pod(proxied, &account);
        assert_eq!((config.proxy_url, config.root_cert_file.as_ref()), (None, Some(&certificates)));
    }
}
