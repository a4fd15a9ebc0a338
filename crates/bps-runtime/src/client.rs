//! Builds the Kubernetes client: named, bounded, counted, and without hidden retries.
//!
//! kube retries 429, 503 and 504 up to 15 times by default. Here nothing is retried below the caller: a write that was
//! not acknowledged goes back to the next snapshot, which decides anew, and watches have their own back-off.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderValue, Request};
use kube::client::Body;
use kube::config::{
    AuthInfo, Cluster, Context, InClusterError, InferConfigError, KubeConfigOptions, Kubeconfig,
    KubeconfigError, NamedAuthInfo, NamedCluster, NamedContext,
};
use kube::{Client, Config};
use tower::service_fn;

use self::bounded::BoundedLayer;
pub use self::bounded::NoAnswer;
pub use self::connections::keep_open;
pub use self::transport::{OwnConnection, Transport, transport};
use super::metrics::rest::{Host, RestMetrics};

mod bounded;
mod connections;
mod transport;

/// How the API server sees the operator in its audit log.
pub const USER_AGENT_OPERATOR: &str = concat!("backuppodset-operator/", env!("CARGO_PKG_VERSION"));

/// How the API server sees agents in its audit log.
pub const USER_AGENT_AGENT: &str = concat!("bps-agent/", env!("CARGO_PKG_VERSION"));

/// How the API server sees the extender of the scheduler in its audit log.
pub const USER_AGENT_EXTENDER: &str = concat!("bps-extender/", env!("CARGO_PKG_VERSION"));

/// Time to open a TCP connection.
///
/// 5 s: a dead API server address must not use up the 10 s of [`WRITE_TIMEOUT`].
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for a GET or a page of a LIST, to the last byte, and for the head of a watch's answer.
///
/// 30 s: half of the API server's own limit of 60 s (`--request-timeout`). A watch's stream has no limit here: its
/// watcher ends a silent one.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for any other request, to the last byte.
///
/// 10 s: many times what a write takes (4-11 ms), yet short enough that a connection to a vanished API server is given
/// up soon. The server may still carry out a write that timed out here.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither a kubeconfig nor a Pod's service account was found.
    #[error("find the cluster's configuration")]
    Configure {
        /// What was tried.
        #[source]
        source: Box<InferConfigError>,
    },
    /// There is no service account, as in a Pod.
    #[error("find the Pod's service account; outside a Pod let KUBECONFIG name a kubeconfig in JSON")]
    Outside {
        /// What is missing.
        #[source]
        source: InClusterError,
    },
    /// The kubeconfig of an agent outside a Pod cannot be used.
    #[error("use the kubeconfig {path}; write it with: kubectl config view --raw --flatten -o json", path = path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<UnreadError>,
    },
    /// The environment does not say where the API server is.
    #[error("find the API server in the variable {name}, which Kubernetes sets in every container")]
    Server {
        /// The variable.
        name: &'static str,
        /// What is wrong with it.
        #[source]
        source: std::env::VarError,
    },
    /// The files for the API server cannot be used.
    #[error(
        "use the token {token} and the certificates {certificates}",
        token = api_files.token.display(),
        certificates = api_files.certificates.display()
    )]
    ApiFiles {
        /// Where they should be.
        api_files: ApiFiles,
        /// What is wrong with them.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// A proxy is asked for.
    #[error(
        "the API server is behind the proxy {host}, which is not supported: unset proxy-url and HTTPS_PROXY"
    )]
    Proxy {
        /// The proxy's host.
        host: String,
    },
    /// The configuration cannot be used.
    #[error("build the client")]
    Build {
        /// What kube refused.
        #[source]
        source: Box<kube::Error>,
    },
}

/// A client for the cluster of `KUBECONFIG`, `~/.kube/config` or the Pod's service account, in this order.
///
/// # Errors
/// `Configure` if there is none of these, and those of [`transport()`].
pub async fn connect(user_agent: &'static str, metrics: &RestMetrics) -> Result<Client, Error> {
    let config = Config::infer().await.map_err(|source| Error::Configure { source: Box::new(source) })?;
    build(config, user_agent, metrics)
}

/// The files by which an API server is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiFiles {
    /// The token; read anew when it is renewed.
    pub token: PathBuf,
    /// The certificates of the cluster, in PEM.
    pub certificates: PathBuf,
}

/// A client for the cluster of the own Pod, by these files.
///
/// # Errors
/// `Server` if the environment does not name the API server, `ApiFiles` if the files cannot be used, and those of
/// [`transport()`].
pub async fn connect_by(
    api_files: &ApiFiles,
    user_agent: &'static str,
    metrics: &RestMetrics,
) -> Result<Client, Error> {
    let variable = |name: &'static str| std::env::var(name).map_err(|source| Error::Server { name, source });
    let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
    let unusable =
        |source: KubeconfigError| Error::ApiFiles { api_files: api_files.clone(), source: Box::new(source) };
    let kubeconfig = kubeconfig(api_files, &host, &port);
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    build(of_pod(config.map_err(unusable)?, api_files), user_agent, metrics)
}

/// What a configuration from a file has otherwise: the proxy of the application's environment, and certificates that are read once.
fn of_pod(mut config: Config, api_files: &ApiFiles) -> Config {
    config.proxy_url = None;
    config.root_cert_file = Some(api_files.certificates.clone());
    config
}

fn kubeconfig(api_files: &ApiFiles, host: &str, port: &str) -> Kubeconfig {
    // Of IPv6 it is an address without brackets.
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let path = |path: &Path| Some(path.to_string_lossy().into_owned());
    let cluster = Cluster {
        server: Some(format!("https://{host}:{port}")),
        certificate_authority: path(&api_files.certificates),
        ..Cluster::default()
    };
    let user = AuthInfo { token_file: path(&api_files.token), ..AuthInfo::default() };
    let name = || "own".to_owned();
    let context = Context { cluster: name(), user: Some(name()), ..Context::default() };
    Kubeconfig {
        clusters: vec![NamedCluster { name: name(), cluster: Some(cluster), ..NamedCluster::default() }],
        auth_infos: vec![NamedAuthInfo { name: name(), auth_info: Some(user), ..NamedAuthInfo::default() }],
        contexts: vec![NamedContext { name: name(), context: Some(context), ..NamedContext::default() }],
        current_context: Some(name()),
        ..Kubeconfig::default()
    }
}

/// A client for the cluster of the own Pod's service account, if there is one: an agent has the environment of its
/// application, which may manage another cluster. Else `KUBECONFIG` names one file, in JSON and with all data in it: what reads
/// YAML would be a tenth of an agent's memory.
///
/// # Errors
/// `Outside` and `Kubeconfig` if there is no configuration, and those of [`transport()`].
pub async fn connect_to_own(user_agent: &'static str, metrics: &RestMetrics) -> Result<Client, Error> {
    let config = match (Config::incluster(), std::env::var_os("KUBECONFIG").map(PathBuf::from)) {
        (Ok(config), _) => config,
        (Err(_), Some(path)) => {
            read_json(&path).await.map_err(|source| Error::Kubeconfig { path, source: Box::new(source) })?
        }
        (Err(source), None) => return Err(Error::Outside { source }),
    };
    build(config, user_agent, metrics)
}

/// Why a kubeconfig in JSON could not be used.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum UnreadError {
    /// The file cannot be read.
    File(#[from] std::io::Error),
    /// It is no kubeconfig in JSON.
    Json(#[from] serde_json::Error),
    /// It does not say how to reach a cluster.
    Incomplete(#[from] KubeconfigError),
}

async fn read_json(path: &Path) -> Result<Config, UnreadError> {
    let kubeconfig: Kubeconfig = serde_json::from_slice(&std::fs::read(path)?)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// A client for the cluster of `config`; its User-Agent, timeouts and retries are replaced by ours.
///
/// # Errors
/// See [`transport()`].
pub fn build(mut config: Config, user_agent: &'static str, metrics: &RestMetrics) -> Result<Client, Error> {
    config.headers.retain(|(name, _)| name != USER_AGENT);
    config.headers.push((USER_AGENT, HeaderValue::from_static(user_agent)));
    let bounded = BoundedLayer::new(Host::of(&config.cluster_url), metrics.clone());
    Ok(transport(&config)?.with_layer(&bounded).build())
}

/// A client for the same cluster that opens a connection for each request: one of several API servers may be gone, and the
/// connections that are kept all lead to it.
pub fn connecting_anew(client: &Client) -> Client {
    let (client, namespace) = (client.clone(), client.default_namespace().to_owned());
    let service = service_fn(move |mut request: Request<Body>| {
        request.extensions_mut().insert(OwnConnection);
        let client = client.clone();
        async move { client.send(request).await }
    });
    Client::new(service, namespace)
}

/// Whether a request was given up after its time, in which case it may still have been carried out.
pub fn is_no_answer(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<NoAnswer>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests;
