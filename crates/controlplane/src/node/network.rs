//! The network between nodes: a bridge that each is joined to by a pair of virtual interfaces.

use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::process::Keeper;

use super::namespaces::Namespaces;

/// The address of the switch itself.
pub(super) const SWITCH: &str = "10.78.0.254";
/// Of a node, to the switch.
const INTERFACE: &str = "eth0";
/// Nodes whose pods a node has a way to.
const NODES_MAX: usize = 16;
/// Of a link that is shaped, in bytes: twenty frames.
const BURST_MIN: u64 = 32 << 10;
/// What waits at most before a link that is shaped, in bytes: a sender is slowed, and loses nothing.
const QUEUE: &str = "16777216";

/// What the first process of the switch does; `$0` is its folder.
const FIRST: &str = r#"
set -e
ip link set lo up
ip link add switch type bridge
ip link set switch up
ip address add 10.78.0.254/24 dev switch
: > "$0/settled"
while :; do sleep 1000; done
"#;

/// The end of a node's pair in the switch.
fn port(at: usize) -> String {
    format!("node{at}")
}

/// The address of a node.
pub(super) fn address(at: usize) -> String {
    format!("10.78.0.{}", at + 1)
}

/// The addresses of its pods.
pub(super) fn pods(at: usize) -> String {
    format!("10.77.{at}.0/24")
}

/// In a network namespace of its own: nothing of it is seen on the machine.
#[derive(Debug)]
pub(super) struct Switch {
    pub(super) inside: Namespaces,
}

impl Switch {
    pub(super) fn start(folder: &Path, keeper: &mut Keeper) -> Result<Self, Error> {
        let folder = folder.join("switch");
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        Ok(Self { inside: Namespaces::of(&folder, FIRST, keeper)? })
    }

    /// Gives a node its address, and ways to the pods of others.
    pub(super) fn join(&self, node: &Namespaces, at: usize) -> Result<(), Error> {
        let (port, switch) = (port(at), self.inside.first().to_string());
        let pair = ["link", "add", INTERFACE, "type", "veth", "peer", "name", &port, "netns", &switch];
        node.network_tool("ip", &pair)?;
        self.inside.network_tool("ip", &["link", "set", &port, "master", "switch", "up"])?;
        node.network_tool("ip", &["address", "add", &format!("{}/24", address(at)), "dev", INTERFACE])?;
        node.network_tool("ip", &["link", "set", INTERFACE, "up"])?;
        for other in (0..NODES_MAX).filter(|other| *other != at) {
            node.network_tool("ip", &["route", "add", &pods(other), "via", &address(other)])?;
        }
        self.inside.network_tool("ip", &["route", "add", &pods(at), "via", &address(at)])
    }

    /// A token bucket at both ends of the pair that joins a node.
    pub(super) fn shape(&self, node: &Namespaces, at: usize, bytes_per_s: Option<u64>) -> Result<(), Error> {
        for (network, interface) in [(node, INTERFACE.to_owned()), (&self.inside, port(at))] {
            let device = ["dev", &interface, "root"];
            let Some(rate) = bytes_per_s else {
                network.network_tool("tc", &[&["qdisc", "delete"], &device[..]].concat())?;
                continue;
            };
            // `tc` reads `bps` as bytes/s. A hundredth of a second at once, and no less than a few frames.
            let (rate, burst) = (format!("{rate}bps"), (rate / 100).max(BURST_MIN).to_string());
            let bucket = ["tbf", "rate", &rate, "burst", &burst, "limit", QUEUE];
            network.network_tool("tc", &[&["qdisc", "replace"], &device[..], &bucket].concat())?;
        }
        Ok(())
    }
}
