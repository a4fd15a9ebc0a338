//! How requests reach the API server: connections that send at once.
//!
//! kube's own connector leaves Nagle's algorithm on. A request is written in two parts, head and body, and the second
//! then waits for the acknowledgement of the first, which Linux delays by 40 ms: every write would take that long.

use std::time::Duration;

use http::{Request, Response};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Builder, Client as HyperClient};
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::{Body, ClientBuilder, ConfigExt as _, DynBody};
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder, ServiceExt as _, service_fn};

use super::{CONNECT_TIMEOUT, Error};

/// After which time without a byte a connection is asked whether it still is one, how often then, and how many of that may
/// stay unanswered. 16 s in all: a watch through a server that lost its power says nothing, for up to five minutes else.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(2), 3);

/// Marks a request, among its extensions, that goes by a connection of its own; see [`super::connecting_anew`].
#[derive(Clone, Copy, Debug)]
pub struct OwnConnection;

/// A service that sends requests to the API server.
pub type Transport = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// The transport for the cluster of `config`: authenticated, without retries, and without time limits but that of
/// [`CONNECT_TIMEOUT`].
///
/// # Errors
/// `Proxy` if `config` asks for a proxy, `Build` if its certificates, keys or headers are unusable.
pub fn transport(config: &Config) -> Result<ClientBuilder<Transport>, Error> {
    if let Some(proxy) = &config.proxy_url {
        return Err(Error::Proxy { host: proxy.host().unwrap_or_default().to_owned() });
    }
    let build = |source| Error::Build { source: Box::new(source) };
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let (idle, interval, retries) = KEEP_ALIVE;
    connector.set_keepalive(Some(idle));
    connector.set_keepalive_interval(Some(interval));
    connector.set_keepalive_retries(Some(retries));
    let connector = config.rustls_https_connector_with_connector(connector).map_err(build)?;
    let pooled: HyperClient<_, Body> = Builder::new(TokioExecutor::new()).build(connector.clone());
    // Without a pool each request opens a connection, which ends with its answer.
    let anew: HyperClient<_, Body> =
        Builder::new(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
    let client = service_fn(move |request: Request<Body>| {
        let is_own = request.extensions().get::<OwnConnection>().is_some();
        if is_own { anew.request(request) } else { pooled.request(request) }
    });
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(build)?)
        .layer(config.extra_headers_layer().map_err(build)?)
        .map_err(BoxError::from)
        .service(client)
        .map_response(|answer: Response<_>| answer.map(boxed))
        .boxed();
    Ok(ClientBuilder::new(service, config.default_namespace.clone()))
}

fn boxed(body: hyper::body::Incoming) -> Box<DynBody> {
    Box::new(http_body_util::BodyExt::map_err(body, BoxError::from))
}
