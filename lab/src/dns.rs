//! The names of Services: CoreDNS beside the control plane, reached through a Service of its own.
//!
//! It answers for the cluster's domain and refuses everything else: no node reaches the world outside.

use serde_json::{Value, json};

use crate::addresses::{DNS_SERVICE, HOST};
use crate::paths::RunDirectory;

/// The domain of all names of the cluster.
pub const DOMAIN: &str = "cluster.local";
/// As whom CoreDNS talks to the API server.
pub const USER: &str = "system:coredns";
/// File name of its kubeconfig below the directory of keys.
pub const KUBECONFIG: &str = "coredns.kubeconfig";
/// Namespace of its Service.
pub const NAMESPACE: &str = "kube-system";

/// Port that it listens on. Not 53: a resolver of the machine may have that on all addresses.
const PORT: u16 = 10_053;
/// Port of the Service.
const SERVICE_PORT: u16 = 53;
/// Name of the Service, by which tools know it.
const SERVICE: &str = "kube-dns";

/// The configuration of CoreDNS. There is no cache in front, so that an answer is never older than its watches.
pub fn corefile(run: &RunDirectory) -> String {
    let kubeconfig = run.pki().join(KUBECONFIG);
    format!(
        ".:{PORT} {{\n    bind {HOST}\n    errors\n    kubernetes {DOMAIN} in-addr.arpa {{\n        \
         kubeconfig {}\n    }}\n}}\n",
        kubeconfig.display()
    )
}

/// What CoreDNS may read, and the Service that leads to it.
pub fn objects() -> Vec<Value> {
    let port =
        |name: &str, protocol: &str, port: u16| json!({"name": name, "protocol": protocol, "port": port});
    let ports = |number| [port("dns", "UDP", number), port("dns-tcp", "TCP", number)];
    let watched = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["list", "watch"]});
    vec![
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": USER},
            "rules": [
                watched("", &["services", "namespaces"]),
                watched("discovery.k8s.io", &["endpointslices"]),
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": USER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": NAMESPACE},
            "spec": {"clusterIP": DNS_SERVICE.to_string(), "ports": ports(SERVICE_PORT)},
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": SERVICE,
                "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": SERVICE},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [HOST.to_string()]}],
            "ports": ports(PORT),
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_on_the_address_of_the_nodes_network_only() {
        let text = corefile(&RunDirectory::at("/run/lab"));
        assert_eq!(
            text,
            ".:10053 {\n    bind 198.18.0.1\n    errors\n    kubernetes cluster.local in-addr.arpa {\n        \
             kubeconfig /run/lab/pki/coredns.kubeconfig\n    }\n}\n"
        );
    }

    #[test]
    fn the_service_leads_to_where_it_listens() {
        let objects = objects();
        let of = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
        assert_eq!(of("Service")["spec"]["clusterIP"], "198.19.0.10");
        assert_eq!(of("EndpointSlice")["endpoints"][0]["addresses"][0], "198.18.0.1");
        assert_eq!(of("EndpointSlice")["ports"][0]["port"], 10_053);
    }
}
