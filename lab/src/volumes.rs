//! Volumes that stay on a node: a fixed number of folders on each, offered as persistent volumes.
//!
//! Nobody makes more of them, and none is used twice: a released volume keeps what was written to it until the
//! cluster is removed.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::addresses::NodeAddresses;
use crate::paths::{NodeDirectory, RunDirectory};

/// The storage class; it is the default one.
pub const CLASS: &str = "lab-local";
/// Volumes of each node. Source: more than the claims that one test makes; none is used twice.
pub const PER_NODE: u8 = 8;
/// What a volume claims to hold. Nothing enforces it.
const CAPACITY: &str = "1Gi";

/// The folder and the number of each volume of a node.
pub fn folders(node: &NodeDirectory) -> impl Iterator<Item = (u8, PathBuf)> {
    let volumes = node.join("volumes");
    (1..=PER_NODE).map(move |number| (number, volumes.join(number.to_string())))
}

/// The storage class and the volumes of all nodes.
pub fn objects(run: &RunDirectory, nodes: &[NodeAddresses]) -> Vec<Value> {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner",
        // A Pod is placed first, and then gets a volume of its node.
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    let of_node = |node: &NodeAddresses| {
        let name = node.name.clone();
        folders(&run.node(&name)).map(move |(number, path)| volume(&name, number, &path)).collect::<Vec<_>>()
    };
    std::iter::once(class).chain(nodes.iter().flat_map(of_node)).collect()
}

fn volume(node: &str, number: u8, path: &Path) -> Value {
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": format!("{node}-{number}")},
        "spec": {
            "storageClassName": CLASS,
            "capacity": {"storage": CAPACITY},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::nodes;

    #[test]
    fn each_volume_is_a_folder_of_the_node_that_it_is_bound_to() {
        let objects = objects(&RunDirectory::at("/run/lab"), &nodes(2));
        assert_eq!(objects.len(), 1 + 2 * usize::from(PER_NODE));
        let last = &objects[16];
        assert_eq!(last["metadata"]["name"], "n2-8");
        assert_eq!(last["spec"]["local"]["path"], "/run/lab/nodes/n2/volumes/8");
        let term = &last["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0];
        assert_eq!(term["matchExpressions"][0]["values"], json!(["n2"]));
    }
}
