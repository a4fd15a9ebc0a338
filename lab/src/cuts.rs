//! Decides which packets a node drops when it is cut off from others, as one nft ruleset per node.
//!
//! A cut between two nodes is made at both receivers, so that a sender notices nothing but silence, as with a
//! broken switch. A cut from everything is no rule at all: the node's cable is pulled out of the bridge.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::addresses::{HOST, NodeAddresses};

/// Name of the nft table with the rules, in each node's own network namespace.
pub const TABLE: &str = "backuppodset-lab-cuts";

/// What a node is cut off from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Peer {
    /// The machine with the control plane.
    Api,
    /// Another node and its Pods.
    Node(String),
    /// Everything outside the node.
    All,
}

/// A connection that carries nothing at present.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cut {
    /// The node that is cut off.
    pub node: String,
    /// From what.
    pub from: Peer,
}

/// The rules of one node: they replace whatever rules of this table it had.
pub fn render(node: &str, cuts: &BTreeSet<Cut>, nodes: &[NodeAddresses]) -> String {
    let mut incoming = Vec::new();
    let mut outgoing = Vec::new();
    for cut in cuts {
        match &cut.from {
            Peer::Api if cut.node == node => {
                incoming.push(HOST.to_string());
                outgoing.push(HOST.to_string());
            }
            Peer::Node(peer) if cut.node == node => incoming.extend(sources(peer, nodes)),
            Peer::Node(peer) if peer == node => incoming.extend(sources(&cut.node, nodes)),
            Peer::Api | Peer::Node(_) | Peer::All => {}
        }
    }
    // Declared first, so that deleting it cannot fail when it is not there.
    let mut rules = format!("table inet {TABLE} {{}}\ndelete table inet {TABLE}\n");
    if incoming.is_empty() {
        return rules;
    }
    // Before connection tracking on the way in, and with the final address on the way out.
    chain(&mut rules, "prerouting priority -300", "iifname eth0 ip saddr", &incoming);
    chain(&mut rules, "postrouting priority 300", "oifname eth0 ip daddr", &outgoing);
    rules
}

fn sources<'a>(name: &'a str, nodes: &'a [NodeAddresses]) -> impl Iterator<Item = String> + 'a {
    nodes
        .iter()
        .filter(move |node| node.name == name)
        .flat_map(|node| [node.address.to_string(), node.pods.to_string()])
}

fn chain(rules: &mut String, hook: &str, matching: &str, addresses: &[String]) {
    if addresses.is_empty() {
        return;
    }
    let name = hook.split(' ').next().expect("a hook starts with its name");
    let addresses = addresses.join(", ");
    write!(
        rules,
        "table inet {TABLE} {{\n  chain {name} {{\n    type filter hook {hook};\n    \
         {matching} {{ {addresses} }} drop\n  }}\n}}\n"
    )
    .expect("writing to a string does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::nodes;

    const CLEARED: &str = "table inet backuppodset-lab-cuts {}\ndelete table inet backuppodset-lab-cuts\n";

    fn cut(node: &str, from: Peer) -> BTreeSet<Cut> {
        BTreeSet::from([Cut { node: node.into(), from }])
    }

    #[test]
    fn a_node_without_cuts_has_no_table() {
        assert_eq!(render("n1", &BTreeSet::new(), &nodes(2)), CLEARED);
        assert_eq!(render("n1", &cut("n1", Peer::All), &nodes(2)), CLEARED);
        assert_eq!(render("n3", &cut("n1", Peer::Node("n2".into())), &nodes(3)), CLEARED);
    }

    #[test]
    fn a_cut_between_nodes_drops_at_both_receivers() {
        let cuts = cut("n1", Peer::Node("n2".into()));
        let rule = |from: &str| {
            format!(
                "{CLEARED}table inet backuppodset-lab-cuts {{\n  chain prerouting {{\n    type filter hook \
                 prerouting priority -300;\n    iifname eth0 ip saddr {{ {from} }} drop\n  }}\n}}\n"
            )
        };
        assert_eq!(render("n1", &cuts, &nodes(2)), rule("198.18.0.12, 198.18.8.0/22"));
        assert_eq!(render("n2", &cuts, &nodes(2)), rule("198.18.0.11, 198.18.4.0/22"));
    }

    #[test]
    fn a_cut_from_the_api_server_drops_both_directions_at_the_node() {
        let rules = render("n1", &cut("n1", Peer::Api), &nodes(2));
        assert!(rules.contains("iifname eth0 ip saddr { 198.18.0.1 } drop"), "{rules}");
        assert!(rules.contains("oifname eth0 ip daddr { 198.18.0.1 } drop"), "{rules}");
    }
}
