//! Renders the configuration files of the components; JSON where they read YAML, which includes it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::addresses::{CLUSTER, DNS_SERVICE, NodeAddresses};
use crate::dns;
use crate::machine::cgroups;
use crate::paths::NodeDirectory;
use crate::pki::Identity;

/// Most Pods of a node. Source: 500-Pod churn on three nodes must fit beside what already runs.
pub const PODS_MAX: u16 = 250;

/// Name of the image of the process that keeps a Pod's namespaces, made by [`crate::pause`].
pub const PAUSE_IMAGE: &str = "registry.local/pause:1";

/// Name of the Pods' network on each node.
pub const POD_NETWORK: &str = "lab";

/// What a client needs to talk to the API server as somebody.
pub fn kubeconfig(server: &str, authority: &str, identity: &Identity) -> String {
    pretty(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(authority),
        }}],
        "users": [{"name": "lab", "user": {
            "client-certificate-data": STANDARD.encode(&identity.certificate),
            "client-key-data": STANDARD.encode(&identity.key),
        }}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "current-context": "lab",
    }))
}

/// Where a node's components find what is not below the node's own directory.
#[derive(Debug, Clone)]
pub struct NodeFiles {
    /// The cluster's certificate authority.
    pub authority: PathBuf,
    /// kube-proxy's kubeconfig.
    pub proxy_kubeconfig: PathBuf,
    /// Where the CNI plugins are installed.
    pub cni_plugins: PathBuf,
    /// What containerd starts for each Pod.
    pub shim: PathBuf,
}

/// Configuration of a node's containerd, version 2 (TOML).
pub fn containerd(node: &NodeDirectory, files: &NodeFiles) -> String {
    let at = |name: &str| quoted(&node.join(name));
    format!(
        r#"version = 3
root = {root}
state = {state}
# Nodes share the machine's directory for plugins of this interface, and have none.
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
  address = {socket}

[ttrpc]
  address = {ttrpc}

[plugins."io.containerd.internal.v1.opt"]
  path = {opt}

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
  # Lowering a score needs CAP_SYS_RESOURCE, which a root in a container often lacks.
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true

  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dir = {cni_plugins}
    conf_dir = {cni}

  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    # Whatever another containerd of this machine has brought is not taken.
    runtime_path = {shim}

    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
"#,
        root = at("root"),
        state = at("state"),
        socket = quoted(&node.containerd_socket()),
        ttrpc = at("containerd.sock.ttrpc"),
        opt = at("opt"),
        cni_plugins = quoted(&files.cni_plugins),
        cni = at("cni"),
        shim = quoted(&files.shim),
    )
}

/// Configuration of the Pods' network: one bridge per node, addresses from the node's range.
pub fn cni(directory: &NodeDirectory, node: &NodeAddresses) -> String {
    pretty(&json!({
        "cniVersion": "0.4.0",
        "name": POD_NETWORK,
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "ipMasq": false,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": directory.pod_addresses(),
                    "ranges": [[{"subnet": node.pods.to_string()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "loopback"},
        ],
    }))
}

/// Configuration of the kubelet of a node that may be silent for so long.
///
/// It says that it lives four times in the duration of its Lease, for which Kubernetes has four fifths of that time: 40 s of 50 s.
pub fn kubelet(
    directory: &NodeDirectory,
    node: &NodeAddresses,
    files: &NodeFiles,
    grace: Duration,
) -> String {
    pretty(&json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address.to_string(),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": files.authority},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": directory.join("kubelet.crt"),
        "tlsPrivateKeyFile": directory.join("kubelet.key"),
        "containerRuntimeEndpoint": format!("unix://{}", directory.containerd_socket().display()),
        "clusterDNS": [DNS_SERVICE.to_string()],
        "clusterDomain": dns::DOMAIN,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}/{}", cgroups::ROOT, node.name),
        "enforceNodeAllocatable": [],
        // Version 1 is what many development machines and continuous integration runners still have.
        "failCgroupV1": false,
        "failSwapOn": false,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        // Images come from archives only; one that is collected could not be pulled again.
        "imageMinimumGCAge": "24h",
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        // kube-proxy uses nftables only; nobody would read what the kubelet adds to iptables.
        "makeIPTablesUtilChains": false,
        "maxPods": PODS_MAX,
        "nodeLeaseDurationSeconds": grace.as_secs() * 4 / 5,
        "readOnlyPort": 0,
        "registerNode": true,
        "resolvConf": "/etc/resolv.conf",
        "volumePluginDir": directory.join("volume-plugins"),
    }))
}

/// Configuration of a node's kube-proxy.
pub fn kube_proxy(node: &NodeAddresses, files: &NodeFiles) -> String {
    pretty(&json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": files.proxy_kubeconfig},
        "hostnameOverride": node.name,
        "clusterCIDR": CLUSTER.to_string(),
        // The size of the connection table is one setting for the whole machine: leave it alone.
        "conntrack": {"maxPerCore": 0, "min": 0},
        "metricsBindAddress": "127.0.0.1:10249",
    }))
}

/// A path as a TOML string: TOML's basic strings have JSON's escapes.
fn quoted(path: &Path) -> String {
    json!(path).to_string()
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::nodes;
    use crate::paths::RunDirectory;

    fn files() -> NodeFiles {
        NodeFiles {
            authority: "/run/lab/pki/ca.crt".into(),
            proxy_kubeconfig: "/run/lab/pki/kube-proxy.kubeconfig".into(),
            cni_plugins: "/usr/lib/cni".into(),
            shim: "/cache/containerd-shim-runc-v2".into(),
        }
    }

    #[test]
    fn every_path_of_a_node_is_in_its_own_directory() {
        let directory = RunDirectory::at("/run/lab").node("n2");
        let text = containerd(&directory, &files());
        let own: Vec<_> = text.matches("\"/run/lab/nodes/n2/").collect();
        let all: Vec<_> = text.matches("\"/").collect();
        assert_eq!((own.len(), all.len()), (6, 8), "{text}");
        assert!(text.contains("bin_dir = \"/usr/lib/cni\""));
    }

    #[test]
    fn the_kubelet_owns_its_own_cgroup_and_listens_on_its_own_address() {
        let directory = RunDirectory::at("/run/lab").node("n2");
        let config: Value =
            serde_json::from_str(&kubelet(&directory, &nodes(2)[1], &files(), Duration::from_secs(50)))
                .unwrap();
        assert_eq!(config["cgroupRoot"], "/backuppodset-lab/n2");
        assert_eq!(config["address"], "198.18.0.12");
        assert_eq!(config["maxPods"], 250);
        assert_eq!(config["nodeLeaseDurationSeconds"], 40);
        assert_eq!(config["containerRuntimeEndpoint"], "unix:///run/lab/nodes/n2/containerd.sock");
    }

    #[test]
    fn a_kubeconfig_is_understood_by_the_client_that_the_operator_uses() {
        let identity = Identity { certificate: "certificate".into(), key: "key".into() };
        let text = kubeconfig("https://198.18.0.1:6443", "authority", &identity);
        let parsed = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        let cluster = parsed.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://198.18.0.1:6443"));
        assert_eq!(parsed.current_context.as_deref(), Some("lab"));
    }

    #[test]
    fn pods_of_a_node_come_from_its_own_range() {
        let directory = RunDirectory::at("/run/lab").node("n1");
        let config: Value = serde_json::from_str(&cni(&directory, &nodes(1)[0])).unwrap();
        assert_eq!(config["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "198.18.4.0/22");
    }

    #[test]
    fn kube_proxy_programs_nftables_for_its_own_node() {
        let config: Value = serde_json::from_str(&kube_proxy(&nodes(3)[2], &files())).unwrap();
        assert_eq!((&config["mode"], &config["hostnameOverride"]), (&json!("nftables"), &json!("n3")));
    }
}
