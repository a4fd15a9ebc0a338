//! Everything that a forecast is made from, as it was at one moment; it can be saved, and looked at elsewhere.

use std::collections::BTreeMap;

use bps_api::{BackupPodSet, keys};
use bps_observe::requests::Amounts;
use bps_observe::slim::{SlimNode, SlimPod};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, ObjectList};
use kube::core::ResourceExt as _;
use serde::{Deserialize, Serialize};

use super::Error;
use super::cluster::{Cluster, SetObjects, SetPods};
use super::room::requested;

/// A set, and everything that decides what becomes of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scene {
    /// When it was listed.
    pub taken: Timestamp,
    /// The set.
    pub set: BackupPodSet,
    /// What its plan is made from.
    pub objects: SetObjects,
    /// The nodes; `None` if they may not be listed.
    pub nodes: Option<Vec<Node>>,
    /// What all Pods request on each node, by its name, in thousandths; `None` if the Pods of others may not be listed.
    pub requested: Option<BTreeMap<String, Amounts>>,
}

impl Scene {
    /// Lists everything that may be listed, and each kind once.
    ///
    /// # Errors
    /// As [`Cluster::set_objects`].
    pub async fn take(cluster: &Cluster, set: BackupPodSet) -> Result<Self, Error> {
        let nodes = Api::<Node>::all(cluster.client.clone()).list(&ListParams::default()).await;
        let nodes = permitted(nodes, "list nodes")?;
        let nodes = nodes.map(|nodes| nodes.into_iter().map(trimmed).collect::<Vec<_>>());
        let slim = nodes.as_ref().map(|nodes| nodes.iter().map(slim_node).collect());

        // One list for both: two would be of two moments, and most Pods would be sent twice.
        let all = Api::<Pod>::all(cluster.client.clone()).list(&ListParams::default()).await;
        let all = permitted(all, "list all Pods")?;
        let requested = all.as_deref().map(requested);
        let pods = match all {
            Some(pods) => SetPods { pods: of_sets(pods)?, is_cluster_wide: true },
            None => cluster.namespace_pods(&set).await?,
        };

        let objects = cluster.set_objects_with(&set, pods, slim).await?;
        Ok(Self { taken: Timestamp::now(), set, objects, nodes, requested })
    }

    /// Has decisions see the nodes as they are now.
    pub(super) fn renew_nodes(&mut self) {
        self.objects.nodes = self.nodes.as_ref().map(|nodes| nodes.iter().map(slim_node).collect());
    }
}

/// What was listed; `None` if that is not permitted.
fn permitted<K: Clone>(listed: kube::Result<ObjectList<K>>, what: &str) -> Result<Option<Vec<K>>, Error> {
    match listed {
        Ok(list) => Ok(Some(list.items)),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        Err(error) => Err(Error::request(what)(error)),
    }
}

/// The Pods of sets among all, as decisions see them.
fn of_sets(pods: Vec<Pod>) -> Result<Vec<SlimPod>, Error> {
    let of_sets = pods.into_iter().filter(|pod| pod.labels().contains_key(keys::LABEL_SET));
    of_sets.map(slim_pod).collect()
}

/// A Pod as decisions of the operator see it. There may be thousands, so it goes through text and not through a tree of
/// values, which allocates each of them.
fn slim_pod(mut pod: Pod) -> Result<SlimPod, Error> {
    pod.metadata.managed_fields = None;
    let known = serde_json::to_vec(&pod).and_then(|text| serde_json::from_slice(&text));
    known.map_err(|error| Error::Write(Box::new(error)))
}

/// A node without what no decision reads.
fn trimmed(mut node: Node) -> Node {
    node.metadata.managed_fields = None;
    node.metadata.annotations = None;
    if let Some(status) = &mut node.status {
        (status.images, status.volumes_attached, status.volumes_in_use) = (None, None, None);
    }
    node
}

/// A node as decisions of the operator see it.
pub(super) fn slim_node(node: &Node) -> SlimNode {
    let known = serde_json::to_value(node).and_then(serde_json::from_value);
    // Both are written from the same description of a node; one that is understood by neither is called off by its name alone.
    known.unwrap_or_else(|_| {
        let mut unknown = SlimNode::default();
        unknown.metadata.name = Some(node.name_any());
        unknown
    })
}

/// A node of which only that is known.
pub(super) fn full_node(node: &SlimNode) -> Node {
    let known = serde_json::to_value(node).and_then(serde_json::from_value);
    known.unwrap_or_else(|_| Node { metadata: node.metadata.clone(), ..Node::default() })
}
