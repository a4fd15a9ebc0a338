//! Node objects and heartbeat Leases of hollow nodes.
//!
//! Knows nothing of Pods.

use super::{Error, Options};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Namespace of the heartbeat Leases; the API server makes it.
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// Validity of a heartbeat (kubelet `nodeLeaseDurationSeconds`). Unit: seconds.
const LEASE_SECONDS: i32 = 40;
/// Tries to edit a node's taints while somebody else edits the node as well.
const EDIT_ATTEMPTS: usize = 5;
/// Taint of a node that the node lifecycle controller hears nothing from.
const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";
/// Taint that the API server puts on each new node until the node lifecycle controller finds it ready.
const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
/// CPU of a node for each Pod that it has room for. Not much more than what the scheduler assumes of a Pod without
/// requests (100 m and 200 MiB): it scores in whole per cent, and on a far larger node a hundred Pods are none.
const POD_MILLICORES: usize = 200;
/// Memory of a node for each Pod that it has room for.
const POD_MEBIBYTES: usize = 512;
/// Address of the first node: in no real network (RFC 2544), above the Pods and Services of the lab.
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 19, 128, 1);

/// What is fixed about one hollow node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HollowNode {
    /// Its name.
    pub name: String,
    /// Value of its zone label.
    pub zone: String,
    /// Its internal address; nothing listens there.
    pub address: Ipv4Addr,
    /// What can be allocated of it.
    pub shape: NodeShape,
}

/// What can be allocated of a node, as quantities of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeShape {
    /// Processors.
    pub cpu: String,
    /// Memory.
    pub memory: String,
    /// Space for files of Pods.
    pub ephemeral_storage: String,
    /// Number of Pods.
    pub pods: usize,
}

impl NodeShape {
    /// A node with room for so many Pods of 200 m and 512 MiB.
    pub(super) fn for_pods(pods: usize) -> Self {
        Self {
            cpu: (pods * POD_MILLICORES).div_ceil(1000).to_string(),
            memory: format!("{}Mi", pods * POD_MEBIBYTES),
            ephemeral_storage: "4Ti".to_owned(),
            pods,
        }
    }
}

/// The first `count` nodes of these options, spread over the zones in turn.
pub(super) fn nodes(count: u16, options: &Options) -> Vec<HollowNode> {
    let mut shapes = options.shapes.iter().cycle();
    let node = |index: u16| HollowNode {
        name: format!("{}-{}", options.name_prefix, index + 1),
        zone: format!("z{}", index % options.zones.max(1) + 1),
        address: Ipv4Addr::from_bits(FIRST_ADDRESS.to_bits() + u32::from(index)),
        shape: shapes.next().cloned().unwrap_or_else(|| NodeShape::for_pods(options.pods_per_node)),
    };
    (0..count).map(node).collect()
}

/// The Node object as a kubelet registers it.
pub(super) fn document(node: &HollowNode, now: Timestamp) -> Node {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let labels = [
        label("kubernetes.io/hostname", &node.name),
        label("kubernetes.io/os", "linux"),
        label("kubernetes.io/arch", "amd64"),
        label("node.kubernetes.io/instance-type", "hollow"),
        label("topology.kubernetes.io/zone", &node.zone),
    ];
    let quantity = |key: &str, value: &str| (key.to_owned(), Quantity(value.to_owned()));
    let capacity = BTreeMap::from([
        quantity("pods", &node.shape.pods.to_string()),
        quantity("cpu", &node.shape.cpu),
        quantity("memory", &node.shape.memory),
        quantity("ephemeral-storage", &node.shape.ephemeral_storage),
    ]);
    let address = |type_: &str, address: String| NodeAddress { type_: type_.to_owned(), address };
    Node {
        metadata: ObjectMeta {
            name: Some(node.name.clone()),
            labels: Some(BTreeMap::from(labels)),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec { provider_id: Some(format!("hollow://{}", node.name)), ..NodeSpec::default() }),
        status: Some(NodeStatus {
            addresses: Some(vec![
                address("InternalIP", node.address.to_string()),
                address("Hostname", node.name.clone()),
            ]),
            allocatable: Some(capacity.clone()),
            capacity: Some(capacity),
            conditions: Some(vec![ready_condition(Readiness::Ready, now)]),
            daemon_endpoints: Some(NodeDaemonEndpoints::default()),
            node_info: Some(NodeSystemInfo {
                architecture: "amd64".to_owned(),
                operating_system: "linux".to_owned(),
                os_image: "hollow".to_owned(),
                kubelet_version: "v1.36.4-hollow".to_owned(),
                ..NodeSystemInfo::default()
            }),
            ..NodeStatus::default()
        }),
    }
}

/// What the condition Ready of a node says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// As its kubelet reports.
    Ready,
    /// As the node lifecycle controller writes it when heartbeats stay away.
    Unknown,
}

fn ready_condition(readiness: Readiness, now: Timestamp) -> NodeCondition {
    let (status, reason, message) = match readiness {
        Readiness::Ready => ("True", "KubeletReady", "kubelet is posting ready status"),
        Readiness::Unknown => ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."),
    };
    NodeCondition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// Creates or refreshes the Node and its Lease, and takes the taint of a new node away.
///
/// # Errors
/// [`Error::RegisterNode`].
pub(super) async fn register(client: &Client, node: &HollowNode) -> Result<(), Error> {
    let failed = |source| Error::RegisterNode { node: node.name.clone(), source };
    let nodes: Api<Node> = Api::all(client.clone());
    let document = document(node, Timestamp::now());
    match nodes.create(&PostParams::default(), &document).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let patch = Patch::Strategic(json!({ "status": document.status }));
            nodes.patch_status(&node.name, &PatchParams::default(), &patch).await.map_err(failed)?;
        }
        Err(error) => return Err(failed(error)),
    }
    edit_taints(client, &node.name, |taints| {
        taints.retain(|taint| taint.key != NOT_READY_TAINT && taint.key != UNREACHABLE_TAINT);
    })
    .await
    .map_err(failed)?;
    renew(client, &node.name).await.map_err(failed)
}

/// Renews the heartbeat of a node, creating its Lease if there is none.
///
/// # Errors
/// What the API server answered.
pub(super) async fn renew(client: &Client, node: &str) -> kube::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    let renew_time = MicroTime(Timestamp::now());
    let patch = Patch::Merge(json!({ "spec": { "renewTime": renew_time } }));
    match leases.patch(node, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => return other.map(drop),
    }
    let lease = Lease {
        metadata: ObjectMeta { name: Some(node.to_owned()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some(node.to_owned()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(renew_time),
            ..LeaseSpec::default()
        }),
    };
    leases.create(&PostParams::default(), &lease).await.map(drop)
}

/// Writes what the node lifecycle controller would write about a node after its grace period, or what the
/// kubelet and that controller write when it is back.
///
/// # Errors
/// What the API server answered.
pub(super) async fn write_readiness(client: &Client, node: &str, readiness: Readiness) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let now = Timestamp::now();
    let status = json!({ "status": { "conditions": [ready_condition(readiness, now)] } });
    nodes.patch_status(node, &PatchParams::default(), &Patch::Strategic(status)).await?;
    let unreachable = |effect: &str| Taint {
        key: UNREACHABLE_TAINT.to_owned(),
        effect: effect.to_owned(),
        time_added: Some(Time(now)),
        value: None,
    };
    edit_taints(client, node, |taints| {
        taints.retain(|taint| taint.key != UNREACHABLE_TAINT);
        if readiness == Readiness::Unknown {
            taints.extend([unreachable("NoSchedule"), unreachable("NoExecute")]);
        }
    })
    .await
}

/// Taints are one atomic list: read, edit, and write on the version that was read.
async fn edit_taints(client: &Client, node: &str, edit: impl Fn(&mut Vec<Taint>)) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut attempt = 1;
    loop {
        let current = nodes.get(node).await?;
        let before = current.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let mut taints = before.clone();
        edit(&mut taints);
        if taints == before {
            return Ok(());
        }
        let patch = Patch::Merge(json!({
            "metadata": { "resourceVersion": current.resource_version() },
            "spec": { "taints": taints },
        }));
        match nodes.patch(node, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.is_conflict() && attempt < EDIT_ATTEMPTS => attempt += 1,
            other => return other.map(drop),
        }
    }
}

/// Deletes the Node and its Lease; one that is gone already is no error.
///
/// # Errors
/// What the API server answered.
pub(super) async fn remove(client: &Client, node: &str) -> kube::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    let nodes: Api<Node> = Api::all(client.clone());
    let parameters = DeleteParams::default();
    let gone = |error: kube::Error| {
        let is_gone = matches!(&error, kube::Error::Api(status) if status.is_not_found());
        if is_gone { Ok(()) } else { Err(error) }
    };
    leases.delete(node, &parameters).await.map(drop).or_else(gone)?;
    nodes.delete(node, &parameters).await.map(drop).or_else(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_spread_over_the_zones_in_turn() {
        let named = |node: HollowNode| (node.name, node.zone, node.address.to_string());
        let found: Vec<_> =
            nodes(3, &Options { zones: 2, ..Options::default() }).into_iter().map(named).collect();
        let expected = [
            ("hollow-1", "z1", "198.19.128.1"),
            ("hollow-2", "z2", "198.19.128.2"),
            ("hollow-3", "z1", "198.19.128.3"),
        ];
        assert_eq!(found, expected.map(|(name, zone, at)| (name.to_owned(), zone.to_owned(), at.to_owned())));
    }

    #[test]
    fn the_capacity_of_a_node_follows_from_its_number_of_pods() {
        let options = Options { pods_per_node: 7, ..Options::default() };
        let document = document(&nodes(1, &options)[0], Timestamp::UNIX_EPOCH);
        let capacity = document.status.and_then(|status| status.allocatable).unwrap();
        let quantity = |key: &str| capacity[key].0.clone();
        assert_eq!([quantity("pods"), quantity("cpu"), quantity("memory")], ["7", "2", "3584Mi"]);
    }

    #[test]
    fn nodes_have_the_given_shapes_in_turn() {
        let shape = |pods| NodeShape { pods, ..NodeShape::for_pods(1) };
        let options = Options { shapes: vec![shape(10), shape(20)], ..Options::default() };
        let pods: Vec<usize> = nodes(3, &options).into_iter().map(|node| node.shape.pods).collect();
        assert_eq!(pods, [10, 20, 10]);
    }
}
