//! Host ports: what a pod takes on its node.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::core::v1::ContainerPort;

use crate::api::{Container, Pod};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
    Sctp,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    pub protocol: Protocol,
    pub port: u16,
    /// None: on every address of the node.
    pub address: Option<Box<str>>,
}

impl HostPort {
    /// Those of all containers that run as long as the pod does: not of init containers that end.
    pub(super) fn of(pod: &Pod) -> Box<[Self]> {
        let sidecars = pod.spec.init_containers.iter().filter(|container| container.is_sidecar());
        let ports: BTreeSet<Self> = sidecars
            .chain(&pod.spec.containers)
            .flat_map(|Container { ports, .. }| ports)
            .filter_map(Self::read)
            .collect();
        ports.into_iter().collect()
    }

    fn read(port: &ContainerPort) -> Option<Self> {
        let number =
            port.host_port.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0)?;
        let protocol = match port.protocol.as_deref() {
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => Protocol::Sctp,
            _ => Protocol::Tcp,
        };
        let address = port.host_ip.as_deref().filter(|address| !matches!(*address, "" | "0.0.0.0"));
        Some(Self { protocol, port: number, address: address.map(Box::from) })
    }

    /// Whether two pods on one node cannot have both.
    #[must_use]
    pub fn clashes(&self, other: &Self) -> bool {
        let is_same_door = (self.protocol, self.port) == (other.protocol, other.port);
        is_same_door && (self.address.is_none() || other.address.is_none() || self.address == other.address)
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        };
        write!(f, "{}:{}/{protocol}", self.address.as_deref().unwrap_or("*"), self.port)
    }
}
