//! Tests of the metrics port: answers of the router, and TLS over a loopback socket.

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::ServiceExt;

use super::*;
use crate::metrics::Metrics;
use crate::review::tests::api_server;

async fn scrape(authorization: Option<&str>) -> (u16, String) {
    let router = router(Metrics::new("1.2.3").registry(), api_server().0);
    let mut request = Request::get("/metrics");
    if let Some(value) = authorization {
        request = request.header(AUTHORIZATION, value);
    }
    let answer = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn only_a_known_bearer_with_the_right_gets_anything() {
    let nothing = |status| (status, String::new());
    let long = format!("Bearer {}", "x".repeat(TOKEN_MAX_BYTES + 1));
    assert_eq!(scrape(None).await, nothing(401));
    assert_eq!(scrape(Some("Bearer ")).await, nothing(401));
    assert_eq!(scrape(Some("Basic reader")).await, nothing(401));
    assert_eq!(scrape(Some("reader")).await, nothing(401));
    assert_eq!(scrape(Some(&long)).await, nothing(401));
    assert_eq!(scrape(Some("Bearer nobody")).await, nothing(401));
    assert_eq!(scrape(Some("Bearer stranger")).await, nothing(403));
    assert_eq!(scrape(Some("Bearer broken")).await, nothing(500));
    for good in ["Bearer reader", "bearer  reader"] {
        let (status, text) = scrape(Some(good)).await;
        assert_eq!(status, 200);
        assert!(text.contains("backuppodset_build_info{version=\"1.2.3\"} 1\n"), "{text}");
    }
}

#[tokio::test]
async fn metrics_are_served_over_tls_until_shutdown() {
    let certified = certify().unwrap();
    let router = router(Metrics::new("1.2.3").registry(), api_server().0);
    let server = MetricsServer::open(([127, 0, 0, 1], 0).into(), router, &certified).await.unwrap();
    let address = server.address().unwrap();
    let shutdown = Shutdown::new();
    let task = tokio::spawn(server.run(shutdown.clone()));

    let mut roots = RootCertStore::empty();
    roots.add(certified.cert.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(NAME).unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nhost: x\r\nauthorization: Bearer reader\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();

    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"));
    assert!(answer.ends_with("# EOF\n"));
    shutdown.request();
    task.await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}
