//! The DNS of the cluster, `CoreDNS` on the switch between the nodes: names of services and of the pods behind them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::Command;

use crate::error::Error;
use crate::process::{Keeper, Process};

use super::network::{SWITCH, Switch};
use super::relay::Relay;

/// Below which all names of the cluster are.
pub(super) const DOMAIN: &str = "cluster.local";

/// It answers until it is dropped.
#[derive(Debug)]
pub(super) struct Dns {
    _server: Process,
    _relay: Relay,
}

impl Dns {
    pub(super) fn start(
        folder: &Path,
        switch: &Switch,
        program: &Path,
        kubeconfig: &Path,
        api_server: u16,
        keeper: &mut Keeper,
    ) -> Result<Self, Error> {
        let own = SocketAddrV4::new(Ipv4Addr::LOCALHOST, api_server);
        let relay = Relay::start(&switch.inside, own, api_server)?;
        let configuration = folder.join("Corefile");
        // Ranks ask for each other until all are there: what is not there yet must not be remembered for long.
        let text = format!(
            ".:53 {{\n  bind {SWITCH}\n  errors\n  kubernetes {DOMAIN} {{\n    kubeconfig {}\n    ttl 0\n  }}\n}}\n",
            kubeconfig.display()
        );
        fs::write(&configuration, text).map_err(Error::io("write", &configuration))?;
        let mut server = Command::new(program);
        server.arg("-conf").arg(&configuration);
        let server = switch.inside.run("coredns", &server, folder.join("coredns.log"), keeper)?;
        Ok(Self { _server: server, _relay: relay })
    }
}
