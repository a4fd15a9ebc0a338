//! What the hollow kubelets remember: sandboxes, addresses in use, nodes without power.
//!
//! No client and no clock; one lock, held for a few lines.

use super::node::HollowNode;
use super::pod::{Addresses, Sandbox};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// First address of Pods: the upper half of 198.18.0.0/16 (RFC 2544: never a real host).
const FIRST_ADDRESS: u32 = Ipv4Addr::new(198, 18, 128, 1).to_bits();
/// Addresses of Pods, 198.18.128.1 to 198.18.255.254.
const ADDRESSES: u32 = 0x7ffe;

/// Namespace and name.
pub(super) type Key = (String, String);

pub(super) fn key(pod: &ObjectRef<Pod>) -> Key {
    (pod.namespace.clone().unwrap_or_default(), pod.name.clone())
}

#[derive(Debug)]
struct Entry {
    uid: String,
    node: String,
    sandbox: Sandbox,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pods: BTreeMap<Key, Entry>,
    /// Pods by node, bound or about to be.
    counts: BTreeMap<String, usize>,
    addresses: BTreeSet<u32>,
    /// Where the search for a free address begins, so that an address is not used again at once.
    next_address: u32,
    without_power: BTreeSet<String>,
}

impl State {
    pub(super) fn set_power(&mut self, node: &str, has_power: bool) {
        if has_power {
            self.without_power.remove(node);
        } else {
            self.without_power.insert(node.to_owned());
        }
    }

    pub(super) fn has_power(&self, node: &str) -> bool {
        !self.without_power.contains(node)
    }

    /// The sandbox of a Pod on this node, made if it is new; `None` when all addresses are in use.
    pub(super) fn sandbox(&mut self, pod: &Pod, node: &HollowNode, now: Timestamp) -> Option<&mut Sandbox> {
        let key = key(&ObjectRef::from_obj(pod));
        let uid = pod.uid().unwrap_or_default();
        if self.pods.get(&key).is_some_and(|entry| entry.uid != uid || entry.node != node.name) {
            self.forget(&key);
        }
        if !self.pods.contains_key(&key) {
            let addresses = Addresses { pod: self.take_address(pod)?, host: node.address };
            let sandbox = Sandbox::new(pod, addresses, now);
            self.pods.insert(key.clone(), Entry { uid, node: node.name.clone(), sandbox });
            *self.counts.entry(node.name.clone()).or_default() += 1;
        }
        self.pods.get_mut(&key).map(|entry| &mut entry.sandbox)
    }

    /// Changes the sandbox of a known Pod; says whether it is known.
    pub(super) fn change(&mut self, pod: &ObjectRef<Pod>, change: impl FnOnce(&mut Sandbox)) -> bool {
        self.pods.get_mut(&key(pod)).map(|entry| change(&mut entry.sandbox)).is_some()
    }

    /// Gives the place and the address of a Pod back.
    pub(super) fn forget(&mut self, key: &Key) {
        if let Some(Entry { node, sandbox, uid: _ }) = self.pods.remove(key) {
            self.addresses.remove(&sandbox.address.to_bits());
            if let Some(count) = self.counts.get_mut(&node) {
                *count -= 1;
            }
        }
    }

    /// Forgets all Pods but these: what was deleted while the watch was interrupted.
    pub(super) fn retain(&mut self, present: &BTreeSet<Key>) {
        let gone: Vec<Key> = self.pods.keys().filter(|key| !present.contains(*key)).cloned().collect();
        for key in gone {
            self.forget(&key);
        }
    }

    /// The powered node with the fewest Pods, the first of equals; `None` when all are full.
    pub(super) fn emptiest<'a>(&self, nodes: &'a [HollowNode]) -> Option<&'a HollowNode> {
        let count = |node: &HollowNode| self.counts.get(&node.name).copied().unwrap_or_default();
        nodes
            .iter()
            .filter(|node| self.has_power(&node.name) && count(node) < node.shape.pods)
            .min_by_key(|node| count(node))
    }

    /// The address that the Pod's status names, if it is free, or the next free one.
    fn take_address(&mut self, pod: &Pod) -> Option<Ipv4Addr> {
        let named = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()?.parse().ok());
        let named = named.map(Ipv4Addr::to_bits).filter(|named| !self.addresses.contains(named));
        let from_next = (0..ADDRESSES).map(|step| FIRST_ADDRESS + (self.next_address + step) % ADDRESSES);
        let address = named.or_else(|| from_next.into_iter().find(|it| !self.addresses.contains(it)))?;
        if named.is_none() {
            self.next_address = (address - FIRST_ADDRESS + 1) % ADDRESSES;
        }
        self.addresses.insert(address);
        Some(Ipv4Addr::from_bits(address))
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::NodeShape;
    use super::*;
    use serde_json::json;

    fn pod(name: &str, uid: &str) -> Pod {
        let document = json!({ "metadata": { "namespace": "default", "name": name, "uid": uid } });
        serde_json::from_value(document).unwrap()
    }

    fn node(name: &str) -> HollowNode {
        let address = Ipv4Addr::new(198, 19, 128, 1);
        let shape = NodeShape::for_pods(1);
        HollowNode { name: name.to_owned(), zone: "z1".to_owned(), address, shape }
    }

    fn address(state: &mut State, pod: &Pod, on: &str) -> String {
        state.sandbox(pod, &node(on), Timestamp::UNIX_EPOCH).unwrap().address.to_string()
    }

    #[test]
    fn a_pod_keeps_its_address_and_a_namesake_gets_another() {
        let mut state = State::default();
        assert_eq!(address(&mut state, &pod("a", "1"), "n1"), "198.18.128.1");
        assert_eq!(address(&mut state, &pod("a", "1"), "n1"), "198.18.128.1");
        assert_eq!(address(&mut state, &pod("a", "2"), "n1"), "198.18.128.2");
        assert_eq!(state.counts, BTreeMap::from([("n1".to_owned(), 1)]));
    }

    #[test]
    fn addresses_are_given_back_and_used_again_only_after_the_others() {
        let mut state = State { next_address: ADDRESSES - 1, ..State::default() };
        assert_eq!(address(&mut state, &pod("a", "1"), "n1"), "198.18.255.254");
        state.retain(&BTreeSet::new());
        assert_eq!(address(&mut state, &pod("b", "2"), "n1"), "198.18.128.1");
        assert_eq!((state.addresses.len(), state.pods.len()), (1, 1));
    }

    #[test]
    fn the_address_in_a_status_is_taken_over() {
        let mut state = State::default();
        let mut pod = pod("a", "1");
        pod.status = serde_json::from_value(json!({ "podIP": "198.18.130.7" })).unwrap();
        assert_eq!(address(&mut state, &pod, "n1"), "198.18.130.7");
    }

    #[test]
    fn pods_go_to_the_emptiest_node_that_has_power_and_room() {
        let mut state = State::default();
        let chosen = |state: &State, pods: usize| {
            let nodes = ["n1", "n2"].map(|name| {
                let node = node(name);
                HollowNode { shape: NodeShape { pods, ..node.shape }, ..node }
            });
            state.emptiest(&nodes).map(|it| it.name.clone())
        };
        let (first, second) = (Some("n1".to_owned()), Some("n2".to_owned()));
        assert_eq!(chosen(&state, 1), first);
        address(&mut state, &pod("a", "1"), "n1");
        assert_eq!(chosen(&state, 1), second);
        state.set_power("n2", false);
        assert_eq!((chosen(&state, 1), chosen(&state, 2)), (None, first));
    }
}
