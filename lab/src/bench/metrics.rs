//! Reads counters from the operator's leader, as a Prometheus would: HTTPS and the token of a ServiceAccount.

use std::net::SocketAddr;

use bps_api::keys::{METRICS_PORT, OPERATOR_NAMESPACE};
use http::Request;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::config::AuthInfo;
use kube::{Client, Config};
use serde_json::json;

use super::{Error, NAMESPACE, inside};
use crate::cluster::Cluster;
use crate::install;

/// ServiceAccount that reads; the role that lets it is shipped with the operator.
const READER: &str = "bps-bench-metrics";
/// Role that lets it.
const ROLE: &str = "bps-operator-metrics-reader";

/// Counters of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposition(String);

impl From<String> for Exposition {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl Exposition {
    /// The sum of all samples of a counter whose labels satisfy the predicate.
    pub fn sum(&self, name: &str, is_wanted: impl Fn(&str) -> bool) -> f64 {
        let values = self.0.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (found, labels) = series.split_once('{').unwrap_or((series, ""));
            (found == name && is_wanted(labels)).then(|| value.parse::<f64>().ok()).flatten()
        });
        values.sum()
    }

    /// Reconciles so far.
    pub fn reconciles(&self) -> f64 {
        self.sum("controller_runtime_reconcile_total", |_| true)
    }

    /// Answers 409 so far.
    pub fn conflicts(&self) -> f64 {
        self.sum("rest_client_requests_total", |labels| labels.contains("code=\"409\""))
    }

    /// Sets that wait in the queue or are being looked at.
    pub fn under_way(&self) -> f64 {
        self.sum("workqueue_depth", |_| true) + self.sum("controller_runtime_active_workers", |_| true)
    }
}

/// A reader of one operator's metrics.
#[derive(Debug, Clone)]
pub struct Reader {
    address: SocketAddr,
    token: String,
}

impl Reader {
    /// Prepares to read from an operator at an address.
    ///
    /// # Errors
    /// `Install` or `Request` if the ServiceAccount or its token is refused.
    pub async fn at(client: &Client, address: SocketAddr) -> Result<Self, Error> {
        Ok(Self { address, token: token(client).await? })
    }

    /// Prepares to read from the leader in the cluster.
    ///
    /// # Errors
    /// `Find` without a leader; as [`Self::at`].
    pub async fn of_leader(client: &Client) -> Result<Self, Error> {
        let missing = || Error::Find { what: "the operator's leader".to_owned() };
        let leader = install::leader(client).await.map_err(|error| Error::Install(Box::new(error)))?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), OPERATOR_NAMESPACE);
        let pod =
            pods.get(&leader.ok_or_else(missing)?).await.map_err(Error::request("read", "the leader"))?;
        let address = pod.status.and_then(|status| status.pod_ip?.parse().ok()).ok_or_else(missing)?;
        Self::at(client, SocketAddr::new(address, METRICS_PORT)).await
    }

    /// Reads from within a node's network.
    ///
    /// # Errors
    /// `Request` if the operator does not answer.
    pub async fn read_inside(&self, cluster: &Cluster, node: &str) -> Result<Exposition, Error> {
        let reader = self.clone();
        inside::run(cluster, node, move || async move { reader.read().await }).await?
    }

    /// Reads.
    ///
    /// # Errors
    /// `Request` if the operator does not answer.
    pub async fn read(&self) -> Result<Exposition, Error> {
        let failed = Error::request("read", "the operator's metrics");
        let url = format!("https://{}", self.address).parse().expect("an address makes a URL");
        let mut config = Config::new(url);
        // The operator's certificate is its own; the address is the lab's.
        config.accept_invalid_certs = true;
        config.auth_info = AuthInfo { token: Some(self.token.clone().into()), ..AuthInfo::default() };
        let client = Client::try_from(config).map_err(&failed)?;
        let request = Request::get("/metrics").body(Vec::new()).expect("a constant request");
        client.request_text(request).await.map(Exposition).map_err(failed)
    }
}

async fn token(client: &Client) -> Result<String, Error> {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": READER, "namespace": NAMESPACE},
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": READER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": NAMESPACE}],
    });
    let applied = install::apply(client, &[account, binding]).await;
    applied.map_err(|error| Error::Install(Box::new(error)))?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let (parameters, request) = (PostParams::default(), TokenRequest::default());
    let answer = accounts.create_token_request(READER, &parameters, &request).await;
    let answer = answer.map_err(Error::request("request", "a token"))?;
    answer.status.map(|status| status.token).ok_or_else(|| Error::Find { what: "a token".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_added_up_over_their_labels() {
        let text = concat!(
            "# TYPE controller_runtime_reconcile counter\n",
            "controller_runtime_reconcile_total{controller=\"a\",result=\"success\"} 3\n",
            "controller_runtime_reconcile_total{controller=\"a\",result=\"error\"} 2\n",
            "rest_client_requests_total{code=\"409\",method=\"PUT\"} 1\n",
            "rest_client_requests_total{code=\"200\",method=\"PUT\"} 7\n",
            "workqueue_depth{name=\"a\"} 4\n",
        );
        let exposition = Exposition(text.to_owned());
        let sums = [exposition.reconciles(), exposition.conflicts(), exposition.under_way()];
        assert_eq!(sums.map(|sum| format!("{sum:.1}")), ["5.0", "1.0", "4.0"]);
    }
}
