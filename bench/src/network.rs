//! Nodes of this machine as network namespaces with links to a switch, which can be degraded and cut.

use std::path::Path;
use std::process::Command;

use phalanx_model::NodeName;

use crate::daemon::word;

/// Of the nodes' addresses, in namespaces of their own.
const NET: &str = "10.99.0";

/// A switch, and a namespace for each node.
pub(crate) struct Network {
    prefix: String,
    nodes: usize,
}

/// Whether network namespaces can be made and shaped: that takes root, `ip`, `tc` and `nsenter`.
pub(crate) fn is_possible() -> bool {
    let name = format!("phalanx-bench-{}", std::process::id());
    let can = run("ip", &["netns", "add", &name]).is_ok()
        && ["tc", "nsenter"]
            .into_iter()
            .all(|tool| run(tool, &["--help"]).is_ok() || run(tool, &["-V"]).is_ok());
    let _ = run("ip", &["netns", "del", &name]);
    can
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    let why = || format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    output.status.success().then_some(()).ok_or_else(why)
}

impl Network {
    /// For nodes `n1` to `nN`.
    pub(crate) fn build(nodes: usize) -> Result<Self, String> {
        let network = Self { prefix: format!("phalanx-bench-{}", std::process::id()), nodes };
        let switch = network.of("switch");
        run("ip", &["netns", "add", &switch])?;
        run("ip", &["-n", &switch, "link", "add", "switch", "type", "bridge"])?;
        run("ip", &["-n", &switch, "link", "set", "switch", "up"])?;
        for at in 1..=nodes {
            let (node, port) = (network.of(&format!("n{at}")), format!("n{at}"));
            run("ip", &["netns", "add", &node])?;
            let pair = [
                "link", "add", &port, "netns", &switch, "type", "veth", "peer", "name", "eth0", "netns",
                &node,
            ];
            run("ip", &pair)?;
            run("ip", &["-n", &switch, "link", "set", &port, "master", "switch", "up"])?;
            run("ip", &["-n", &node, "address", "add", &format!("{NET}.{at}/24"), "dev", "eth0"])?;
            run("ip", &["-n", &node, "link", "set", "lo", "up"])?;
            run("ip", &["-n", &node, "link", "set", "eth0", "up"])?;
        }
        Ok(network)
    }

    /// A shell script by which each rank of a gang runs a command in the namespace of its node. Rank 0 writes its address to a
    /// file of the folder for the others.
    pub(crate) fn script(&self, folder: &Path, command: &str) -> String {
        format!(
            "folder={folder}
             root=$folder/root-$PHALANX_ATTEMPT
             if [ $PHALANX_RANK = 0 ]; then echo {NET}.${{PHALANX_NODE#n}} > \"$root.next\" && mv \"$root.next\" \"$root\"; fi
             until [ -s \"$root\" ]; do sleep 0.01; done
             export MASTER_ADDR=$(cat \"$root\") PHALANX_CKPT_DIR=\"$folder/checkpoint\"
             exec nsenter --net=/run/netns/{prefix}-$PHALANX_NODE {command}",
            folder = word(folder),
            prefix = self.prefix
        )
    }

    fn of(&self, node: &str) -> String {
        format!("{}-{node}", self.prefix)
    }

    /// Lets 20 Mbit/s pass in each direction.
    pub(crate) fn degrade(&self, node: &NodeName) -> Result<(), String> {
        for (namespace, interface) in [(self.of(node.as_str()), "eth0"), (self.of("switch"), node.as_str())] {
            let shape = ["-n", &namespace, "qdisc", "add", "dev", interface, "root", "tbf", "rate", "20mbit"];
            run("tc", &[&shape[..], &["burst", "32kbit", "latency", "100ms"]].concat())?;
        }
        Ok(())
    }

    pub(crate) fn cut(&self, node: &NodeName) -> Result<(), String> {
        run("ip", &["-n", &self.of("switch"), "link", "set", node.as_str(), "down"])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let nodes = (1..=self.nodes).map(|at| format!("n{at}"));
        for node in nodes.chain(["switch".to_owned()]) {
            let _ = run("ip", &["netns", "del", &self.of(&node)]);
        }
    }
}
