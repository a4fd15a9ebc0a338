//! Decides which packets a node drops when it is cut off from others, as one nft ruleset per node.
//!
//! A cut between two nodes is made at both receivers, so that a sender notices nothing but silence, as with a
//! broken switch; one between two Pods where the receiving Pod is. A cut from everything is no rule at all: the
//! node's cable is pulled out of the bridge.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::Ipv4Addr;

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
    /// Only one Pod, and only for one Pod on the node.
    Pod(Flow),
}

/// Packets from one Pod to another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Flow {
    /// Who sends them.
    pub from: PodAddress,
    /// Who shall get them.
    pub to: PodAddress,
}

/// A Pod and where it is reached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodAddress {
    /// `<namespace>/<pod>`.
    pub pod: String,
    /// The address that it had when it was looked up.
    pub address: Ipv4Addr,
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
    let mut flows = String::new();
    for cut in cuts {
        match &cut.from {
            Peer::Api if cut.node == node => {
                incoming.push(HOST.to_string());
                outgoing.push(HOST.to_string());
            }
            Peer::Node(peer) if cut.node == node => incoming.extend(sources(peer, nodes)),
            Peer::Node(peer) if peer == node => incoming.extend(sources(&cut.node, nodes)),
            Peer::Pod(Flow { from, to }) if cut.node == node => {
                writeln!(flows, "    ip saddr {} ip daddr {} drop", from.address, to.address)
                    .expect("writing to a string does not fail");
            }
            Peer::Api | Peer::Node(_) | Peer::All | Peer::Pod(_) => {}
        }
    }
    // Before connection tracking on the way in, and with the final address on the way out.
    let chains = [
        addressed("prerouting priority -300", "iifname eth0 ip saddr", &incoming),
        addressed("postrouting priority 300", "oifname eth0 ip daddr", &outgoing),
        chain(FORWARD, &flows),
    ];
    // Two Pods of one node are neighbours on its bridge: what they send each other is not routed.
    table("inet", &chains.concat()) + &table("bridge", &chain(FORWARD, &flows))
}

/// Where the addresses are the Pods' own, also if a Service's was used.
const FORWARD: &str = "forward priority 0";

/// Replaces a table, or only removes it if there are no chains.
fn table(family: &str, chains: &str) -> String {
    // Declared first, so that deleting it cannot fail when it is not there.
    let cleared = format!("table {family} {TABLE} {{}}\ndelete table {family} {TABLE}\n");
    if chains.is_empty() { cleared } else { format!("{cleared}table {family} {TABLE} {{\n{chains}}}\n") }
}

fn addressed(hook: &str, matching: &str, addresses: &[String]) -> String {
    let is_any = !addresses.is_empty();
    let rule = is_any.then(|| format!("    {matching} {{ {} }} drop\n", addresses.join(", ")));
    chain(hook, &rule.unwrap_or_default())
}

fn chain(hook: &str, rules: &str) -> String {
    if rules.is_empty() {
        return String::new();
    }
    let name = hook.split(' ').next().expect("a hook starts with its name");
    format!("  chain {name} {{\n    type filter hook {hook};\n{rules}  }}\n")
}

fn sources<'a>(name: &'a str, nodes: &'a [NodeAddresses]) -> impl Iterator<Item = String> + 'a {
    nodes
        .iter()
        .filter(move |node| node.name == name)
        .flat_map(|node| [node.address.to_string(), node.pods.to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::nodes;

    const CLEARED: &str = "table inet backuppodset-lab-cuts {}\ndelete table inet backuppodset-lab-cuts\n";
    const BRIDGE_CLEARED: &str =
        "table bridge backuppodset-lab-cuts {}\ndelete table bridge backuppodset-lab-cuts\n";

    fn cut(node: &str, from: Peer) -> BTreeSet<Cut> {
        BTreeSet::from([Cut { node: node.into(), from }])
    }

    #[test]
    fn a_node_without_cuts_has_no_table() {
        let cleared = format!("{CLEARED}{BRIDGE_CLEARED}");
        assert_eq!(render("n1", &BTreeSet::new(), &nodes(2)), cleared);
        assert_eq!(render("n1", &cut("n1", Peer::All), &nodes(2)), cleared);
        assert_eq!(render("n3", &cut("n1", Peer::Node("n2".into())), &nodes(3)), cleared);
    }

    #[test]
    fn a_cut_between_nodes_drops_at_both_receivers() {
        let cuts = cut("n1", Peer::Node("n2".into()));
        let rule = |from: &str| {
            format!(
                "{CLEARED}table inet backuppodset-lab-cuts {{\n  chain prerouting {{\n    type filter hook \
                 prerouting priority -300;\n    iifname eth0 ip saddr {{ {from} }} drop\n  }}\n}}\n{BRIDGE_CLEARED}"
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

    #[test]
    fn a_cut_between_pods_drops_one_way_where_the_receiver_is() {
        let end = |pod: &str, address: [u8; 4]| PodAddress { pod: pod.into(), address: address.into() };
        let (from, to) = (end("default/a", [198, 18, 4, 2]), end("default/b", [198, 18, 8, 2]));
        let cuts = cut("n2", Peer::Pod(Flow { from, to }));
        let chain = "  chain forward {\n    type filter hook forward priority 0;\n    ip saddr 198.18.4.2 ip \
                     daddr 198.18.8.2 drop\n  }\n";
        let table = |family: &str| format!("table {family} backuppodset-lab-cuts {{\n{chain}}}\n");
        let expected = format!("{CLEARED}{}{BRIDGE_CLEARED}{}", table("inet"), table("bridge"));
        assert_eq!(render("n2", &cuts, &nodes(2)), expected);
        assert_eq!(render("n1", &cuts, &nodes(2)), format!("{CLEARED}{BRIDGE_CLEARED}"));
    }
}
