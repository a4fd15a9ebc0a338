//! Serves `/metrics` over HTTPS to bearers whom the cluster's RBAC lets `get` the non-resource URL `/metrics`.
//!
//! The certificate is made at start and signed by itself, as controller-runtime does: it keeps tokens from listeners;
//! who needs to know the server as well scrapes with a certificate of the cluster's own in front.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use kube::Client;
use prometheus_client::registry::Registry;
use rcgen::{CertifiedKey, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::net::TcpListener;
use tracing::warn;

use super::http_server::{self, listen, serve};
use super::metrics;
use super::review::{Reviewer, Verdict};
use super::shutdown::Shutdown;
use super::tasks::TaskError;

/// Longest token that is looked at: a service account's has about 1 KiB.
const TOKEN_MAX_BYTES: usize = 8 * 1024;

/// Name in the certificate; clients cannot check more than that it does not change.
const NAME: &str = "backuppodset-metrics";

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port could not be opened.
    #[error("open the port for metrics")]
    Listen {
        /// Which and why.
        #[source]
        source: http_server::Error,
    },
    /// No certificate could be made.
    #[error("make a certificate for metrics")]
    Certify {
        /// What rcgen said.
        #[source]
        source: rcgen::Error,
    },
    /// The certificate could not be used.
    #[error("configure TLS for metrics")]
    Configure {
        /// What rustls said.
        #[source]
        source: rustls::Error,
    },
}

/// The port for metrics, open but not yet served.
pub struct MetricsServer {
    listener: TcpListener,
    router: Router,
    tls: Arc<ServerConfig>,
}

struct Serving {
    metrics: Arc<Registry>,
    reviewer: Reviewer,
}

impl MetricsServer {
    /// Makes a certificate and opens the port; `client` is asked who may read.
    ///
    /// # Errors
    /// `Listen` if the address is in use; `Certify` and `Configure` if there are no random numbers.
    pub async fn listen(address: SocketAddr, metrics: Arc<Registry>, client: Client) -> Result<Self, Error> {
        let certified = certify()?;
        Self::open(address, router(metrics, client), &certified).await
    }

    async fn open(
        address: SocketAddr,
        router: Router,
        certified: &CertifiedKey<KeyPair>,
    ) -> Result<Self, Error> {
        let tls = tls(certified)?;
        let listener = listen(address).await.map_err(|source| Error::Listen { source })?;
        Ok(Self { listener, router, tls })
    }

    /// Where it listens: tells the port if 0 was asked for.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Answers until `shutdown`.
    ///
    /// # Errors
    /// None; the type is that of a task.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), TaskError> {
        serve(self.listener, self.router, Some(self.tls), shutdown).await;
        Ok(())
    }
}

fn certify() -> Result<CertifiedKey<KeyPair>, Error> {
    rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(|source| Error::Certify { source })
}

/// TLS with that key; the provider is named because another crate might enable a second one.
fn tls(certified: &CertifiedKey<KeyPair>) -> Result<Arc<ServerConfig>, Error> {
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|config| {
            config.with_no_client_auth().with_single_cert(vec![certified.cert.der().clone()], key.into())
        })
        .map_err(|source| Error::Configure { source })?;
    Ok(Arc::new(config))
}

fn router(metrics: Arc<Registry>, client: Client) -> Router {
    let serving = Serving { metrics, reviewer: Reviewer::new(client) };
    Router::new().route("/metrics", get(answer)).with_state(Arc::new(serving))
}

async fn answer(State(serving): State<Arc<Serving>>, headers: HeaderMap) -> Response {
    let Some(token) = token(&headers) else { return StatusCode::UNAUTHORIZED.into_response() };
    match serving.reviewer.review(token).await {
        Ok(Verdict::Allowed) => text(&serving.metrics),
        Ok(Verdict::Forbidden) => StatusCode::FORBIDDEN.into_response(),
        Ok(Verdict::Unknown) => StatusCode::UNAUTHORIZED.into_response(),
        Err(error) => {
            warn!(error = &error as &dyn std::error::Error, "Could not review a request for metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// The bearer token of a request.
pub fn token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let is_usable =
        scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= TOKEN_MAX_BYTES;
    is_usable.then_some(token)
}

fn text(metrics: &Registry) -> Response {
    match metrics::encode(metrics) {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests;
