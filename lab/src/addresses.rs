//! Decides who has which address; everything is in 198.18.0.0/15, the range that RFC 2544 sets aside for
//! measurements between isolated devices, so that no address of the lab is ever a real host's. Of IPv6 there are addresses in objects
//! only, from the range that RFC 5180 sets aside for the same: no device has one.

use std::fmt;
use std::net::Ipv4Addr;

/// The machine itself, as the nodes see it: here the API server listens.
pub const HOST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Length of the prefix of the network between the machine and the nodes.
pub const HOST_PREFIX_LENGTH: u8 = 24;
/// Addresses of Services.
pub const SERVICES: Range = Range { base: Ipv4Addr::new(198, 19, 0, 0), prefix_length: 20 };
/// Addresses of Services that have IPv6 as well. The API server takes at most 20 bits.
pub const SERVICES_V6: &str = "2001:2:0:1::/112";
/// Address of the Service `kubernetes`: always the first of the range.
pub const API_SERVICE: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 1);
/// Address of the Service that answers for names: the tenth, as most installers choose it.
pub const DNS_SERVICE: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 10);
/// All nodes and Pods.
pub const CLUSTER: Range = Range { base: Ipv4Addr::new(198, 18, 0, 0), prefix_length: 16 };
/// Most nodes of a cluster. Source: 63 ranges of 1,024 addresses fit into [`CLUSTER`] beside the network of
/// the nodes; 32 kubelets are already more than a development machine carries.
pub const NODES_MAX: u8 = 32;

/// Length of the prefix of a node's Pod range: 1,022 addresses for at most 250 Pods, so that the addresses of
/// Pods that were just deleted need not be handed out again at once.
const PODS_PREFIX_LENGTH: u8 = 22;
/// Last part of the address of node 0; node N has this plus N.
const NODE_OFFSET: u8 = 10;

/// A range of addresses, shown as `198.19.0.0/20`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub base: Ipv4Addr,
    /// Number of leading bits that all addresses share.
    pub prefix_length: u8,
}

impl fmt::Display for Range {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.base, self.prefix_length)
    }
}

/// Name and addresses of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddresses {
    /// Name of the node, `n1` and so on.
    pub name: String,
    /// Zone of the node, `z1` and so on: the value of the label `topology.kubernetes.io/zone`.
    pub zone: String,
    /// Its own address.
    pub address: Ipv4Addr,
    /// Its Pods' addresses.
    pub pods: Range,
}

impl NodeAddresses {
    /// Hardware address of its network card, a locally administered one. As a machine, a node has the same after its power was off:
    /// with another one its peers would send to the former one for some 8 s (5 s `delay_first_probe_time` and 3 probes, Linux).
    pub fn hardware(&self) -> String {
        let [_, second, third, fourth] = self.address.octets();
        format!("02:62:6e:{second:02x}:{third:02x}:{fourth:02x}")
    }
}

/// The nodes `n1` to `n<count>`; more than [`NODES_MAX`] are not planned.
pub fn nodes(count: u8) -> Vec<NodeAddresses> {
    (1..=count.min(NODES_MAX)).map(node).collect()
}

/// Sorts names as people count: `n2` before `n10`.
pub fn order(name: &str) -> (usize, &str) {
    (name.len(), name)
}

fn node(index: u8) -> NodeAddresses {
    NodeAddresses {
        name: format!("n{index}"),
        zone: format!("z{index}"),
        address: Ipv4Addr::new(198, 18, 0, NODE_OFFSET + index),
        pods: Range { base: Ipv4Addr::new(198, 18, 4 * index, 0), prefix_length: PODS_PREFIX_LENGTH },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(range: Range) -> (u32, u32) {
        let base = range.base.to_bits();
        (base, base + (1 << (32 - range.prefix_length)) - 1)
    }

    #[test]
    fn no_two_ranges_overlap_and_all_are_in_the_benchmark_range() {
        let between = Range { base: Ipv4Addr::new(198, 18, 0, 0), prefix_length: HOST_PREFIX_LENGTH };
        let mut ranges: Vec<_> = nodes(NODES_MAX).iter().map(|node| bounds(node.pods)).collect();
        ranges.extend([bounds(between), bounds(SERVICES)]);
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ranges:?}");
        let allowed = bounds(Range { base: Ipv4Addr::new(198, 18, 0, 0), prefix_length: 15 });
        assert!(ranges.iter().all(|range| allowed.0 <= range.0 && range.1 <= allowed.1));
    }

    #[test]
    fn the_second_node_has_its_own_name_zone_and_addresses() {
        assert_eq!(
            nodes(2)[1],
            NodeAddresses {
                name: "n2".into(),
                zone: "z2".into(),
                address: Ipv4Addr::new(198, 18, 0, 12),
                pods: Range { base: Ipv4Addr::new(198, 18, 8, 0), prefix_length: 22 },
            }
        );
        assert_eq!(nodes(2)[1].hardware(), "02:62:6e:12:00:0c");
    }

    #[test]
    fn a_pod_range_holds_more_than_the_250_pods_of_a_node() {
        let (first, last) = bounds(nodes(1)[0].pods);
        assert!(last - first > 2 * 250);
    }
}
