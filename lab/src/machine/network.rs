//! Makes the bridge between the nodes and each node's way to it.
//!
//! Only the bridge and the outer ends of the nodes' cables are in the machine's own network namespace; no
//! packet filter rule, forwarding setting or default route of the machine is touched.

use std::path::Path;

use super::{Error, command, sysctls};
use crate::addresses::{HOST, HOST_PREFIX_LENGTH, NodeAddresses};
use crate::cuts;

/// The bridge that all nodes are plugged into.
pub const BRIDGE: &str = "bpslab0";

/// Its hardware address, a locally administered one. Without one of its own a bridge has the lowest of its cables', and
/// another one when that cable is pulled: the other nodes would send to the old one for some seconds, and a node that is
/// cut off would take the API server with it.
const BRIDGE_HARDWARE: &str = "02:62:70:73:6c:61";

/// Whether a link of this name exists in the machine's own network namespace.
pub fn link_exists(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).exists()
}

/// All links of the lab in the machine's own network namespace.
pub fn links() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name == BRIDGE || name.starts_with(CABLE_PREFIX)).collect()
}

const CABLE_PREFIX: &str = "bpslab-";

/// Name of the outer end of a node's cable.
pub fn cable(node: &str) -> String {
    format!("{CABLE_PREFIX}{node}")
}

/// Makes the bridge, with the address that the control plane listens on.
///
/// # Errors
/// `Refuse` if the address is in use or the kernel has no bridges.
pub fn create_bridge(alias: &str) -> Result<(), Error> {
    ip(&["link", "add", BRIDGE, "address", BRIDGE_HARDWARE, "type", "bridge"])?;
    // Whoever meets the bridge later can see which run directory it belongs to.
    ip(&["link", "set", BRIDGE, "alias", alias])?;
    ip(&["address", "add", &format!("{HOST}/{HOST_PREFIX_LENGTH}"), "dev", BRIDGE])?;
    ip(&["link", "set", BRIDGE, "up"])
}

/// The run directory that the bridge on this machine belongs to; `None` if there is no bridge.
pub fn bridge_alias() -> Option<String> {
    let alias = std::fs::read_to_string(format!("/sys/class/net/{BRIDGE}/ifalias")).ok()?;
    Some(alias.trim().to_owned())
}

/// Removes a link; one that is not there is no error.
///
/// # Errors
/// `Refuse` if the kernel does not let go of it.
pub fn delete_link(name: &str) -> Result<(), Error> {
    if link_exists(name) { ip(&["link", "delete", name]) } else { Ok(()) }
}

/// Plugs the node whose network namespace is pinned at `pin` into the bridge and tells it the way to its
/// peers' Pods.
///
/// # Errors
/// `Refuse` if a link or a route is refused.
pub fn connect(node: &NodeAddresses, peers: &[NodeAddresses], pin: &Path) -> Result<(), Error> {
    let cable = cable(&node.name);
    let pin_name = pin.display().to_string();
    delete_link(&cable)?;
    let card = ["peer", "name", "eth0", "address", &node.hardware(), "netns", &pin_name];
    ip(&[&["link", "add", &cable, "type", "veth"], &card[..]].concat())?;
    refuse_strangers(&cable)?;
    ip(&["link", "set", &cable, "master", BRIDGE, "up"])?;
    // Replies may come by another way than the request when a Service's address is translated.
    for (setting, value) in [("ip_forward", "1"), ("conf/all/rp_filter", "0")] {
        inside(pin, &["sh", "-c", &format!("echo {value} > /proc/sys/net/ipv4/{setting}")])?;
    }
    inside(pin, &["ip", "link", "set", "lo", "up"])?;
    inside(pin, &["ip", "address", "add", &format!("{}/{HOST_PREFIX_LENGTH}", node.address), "dev", "eth0"])?;
    inside(pin, &["ip", "link", "set", "eth0", "up"])?;
    // Without any route to the Services' range the kernel would refuse a packet before it is translated.
    inside(pin, &["ip", "route", "add", "default", "via", &HOST.to_string()])?;
    for peer in peers.iter().filter(|peer| peer.name != node.name) {
        let (range, gateway) = (peer.pods.to_string(), peer.address.to_string());
        inside(pin, &["ip", "route", "add", &range, "via", &gateway])?;
    }
    ip(&["route", "replace", &node.pods.to_string(), "via", &node.address.to_string(), "dev", BRIDGE])
}

/// Lets the machine take nothing from the cable itself, and answer nobody who asks there for its address, while the cable
/// is out of the bridge: by the routes everybody comes by the bridge.
fn refuse_strangers(cable: &str) -> Result<(), Error> {
    sysctls::write(&format!("net/ipv4/conf/{cable}/rp_filter"), "1")
}

/// Pulls a node's cable out of the bridge: both ends stay up, and nothing passes in either direction.
///
/// # Errors
/// `Refuse` if the cable is gone.
pub fn unplug(node: &str) -> Result<(), Error> {
    ip(&["link", "set", &cable(node), "nomaster"])
}

/// Puts a node's cable back into the bridge.
///
/// # Errors
/// `Refuse` if the cable or the bridge is gone.
pub fn plug(node: &str) -> Result<(), Error> {
    ip(&["link", "set", &cable(node), "master", BRIDGE])
}

/// Replaces the packet filter rules that cut a node off from others.
///
/// # Errors
/// `Refuse` if nft does not take the rules.
pub fn apply_cuts(pin: &Path, rules: &str, scratch: &Path) -> Result<(), Error> {
    let file = scratch.join(format!("{}.nft", cuts::TABLE));
    super::write_file(&file, rules.as_bytes())?;
    inside(pin, &["nft", "-f", &file.display().to_string()])
}

/// Runs a program in the network namespace pinned at `pin`.
fn inside(pin: &Path, words: &[&str]) -> Result<(), Error> {
    let namespace = format!("--net={}", pin.display());
    command::run("nsenter", std::iter::once(namespace.as_str()).chain(words.iter().copied())).map(drop)
}

fn ip(words: &[&str]) -> Result<(), Error> {
    command::run("ip", words).map(drop)
}
