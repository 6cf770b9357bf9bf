//! How much a node has, what is held there, and what is lacking for one more pod.

use std::fmt;

use super::requirements::read;
use super::{Amounts, BadAmount, Refusal, Requirements};
use crate::api::Node;
use crate::quantity::Amount;

/// What a node offers to pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    pub amounts: Amounts,
    pub pods: u64,
}

/// What the pods of a node hold there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub amounts: Amounts,
    pub pods: u64,
    ports: Vec<super::HostPort>,
}

/// What a node has too little of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lack {
    Pods,
    /// By its name in Kubernetes: `cpu`, `memory`, `nvidia.com/gpu`.
    Resource(Box<str>),
}

impl Capacity {
    /// # Errors
    /// Where an amount cannot be read.
    pub fn of(node: &Node) -> Result<Self, BadAmount> {
        let list = read(&node.status.allocatable, || "status.allocatable".to_owned())?;
        let pods = list.get("pods").map_or(0, |amount| Amount::units_up(*amount));
        Ok(Self { amounts: Amounts::read(&list), pods })
    }

    /// What is lacking for one more pod beside those that are there; nothing where it fits. A resource that the pod
    /// does not need is never lacking, however over-committed the node is.
    #[must_use]
    pub fn lacking(&self, held: &Held, wanted: &Requirements) -> Vec<Lack> {
        let (has, held_amounts, wants) = (&self.amounts, &held.amounts, &wanted.amounts);
        let mut lacking = Vec::new();
        if held.pods >= self.pods {
            lacking.push(Lack::Pods);
        }
        let mut compare = |name: &str, wants: u64, has: u64, held: u64| {
            if wants > 0 && wants > has.saturating_sub(held) {
                lacking.push(Lack::Resource(name.into()));
            }
        };
        compare("cpu", wants.cpu_milli, has.cpu_milli, held_amounts.cpu_milli);
        compare("memory", wants.memory_bytes, has.memory_bytes, held_amounts.memory_bytes);
        compare(
            "ephemeral-storage",
            wants.ephemeral_bytes,
            has.ephemeral_bytes,
            held_amounts.ephemeral_bytes,
        );
        for (name, wants) in &wants.extended {
            let of = |amounts: &Amounts| amounts.extended.get(name).copied().unwrap_or(0);
            compare(name, *wants, of(has), of(held_amounts));
        }
        lacking
    }

    /// Of what pods hold more than there is. What a node does not offer at all is had from somewhere else, or by nobody.
    #[must_use]
    pub fn exceeded(&self, held: &Held) -> Vec<Lack> {
        let (has, held_amounts) = (&self.amounts, &held.amounts);
        let mut exceeded = Vec::new();
        if held.pods > self.pods {
            exceeded.push(Lack::Pods);
        }
        let plain = [
            ("cpu", has.cpu_milli, held_amounts.cpu_milli),
            ("memory", has.memory_bytes, held_amounts.memory_bytes),
            ("ephemeral-storage", has.ephemeral_bytes, held_amounts.ephemeral_bytes),
        ];
        let of_held = |name| held_amounts.extended.get(name).copied().unwrap_or(0);
        let extended = has.extended.iter().map(|(name, has)| (&**name, *has, of_held(name)));
        let resources = plain.into_iter().chain(extended).filter(|(_, has, held)| held > has);
        exceeded.extend(resources.map(|(name, ..)| Lack::Resource(name.into())));
        exceeded
    }
}

impl Held {
    /// One more pod.
    pub fn add(&mut self, pod: &Requirements) {
        self.pods += 1;
        self.ports.extend(pod.ports.iter().cloned());
        self.change(&pod.amounts, u64::saturating_add);
    }

    /// A pod that was added is gone.
    pub fn remove(&mut self, pod: &Requirements) {
        self.pods = self.pods.saturating_sub(1);
        for port in &pod.ports {
            if let Some(index) = self.ports.iter().position(|held| held == port) {
                self.ports.swap_remove(index);
            }
        }
        self.change(&pod.amounts, u64::saturating_sub);
        self.amounts.extended.retain(|_, amount| *amount > 0);
    }

    /// Host ports that are taken, in no order.
    pub fn ports(&self) -> impl Iterator<Item = &super::HostPort> {
        self.ports.iter()
    }

    /// # Errors
    /// Where a pod here has one of the host ports that are wanted.
    pub fn admits_ports(&self, wanted: &Requirements) -> Result<(), Refusal> {
        let is_free = |port| !self.ports.iter().any(|held| held.clashes(port));
        if wanted.ports.iter().all(is_free) { Ok(()) } else { Err(Refusal::Ports) }
    }

    fn change(&mut self, by: &Amounts, how: impl Fn(u64, u64) -> u64) {
        let amounts = &mut self.amounts;
        amounts.cpu_milli = how(amounts.cpu_milli, by.cpu_milli);
        amounts.memory_bytes = how(amounts.memory_bytes, by.memory_bytes);
        amounts.ephemeral_bytes = how(amounts.ephemeral_bytes, by.ephemeral_bytes);
        for (name, more) in &by.extended {
            let amount = amounts.extended.entry(name.clone()).or_default();
            *amount = how(*amount, *more);
        }
    }
}

impl Lack {
    /// As a node's list of amounts has it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Pods => "pods",
            Self::Resource(name) => name,
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods => f.write_str("Too many pods"),
            Self::Resource(name) => write!(f, "Insufficient {name}"),
        }
    }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "JSON is written where it is used")]
mod tests {
    use serde_json::{Value, json};

    use super::super::objects::{node, pod};
    use super::*;

    fn wanted(requests: Value, ports: Value) -> Requirements {
        let container = json!({"name": "a", "resources": {"requests": requests}, "ports": ports});
        Requirements::of(&pod(json!({"containers": [container]}))).unwrap()
    }

    fn capacity(allocatable: Value) -> Capacity {
        let mut node = node(json!({}), json!({}));
        node.status.allocatable = serde_json::from_value(allocatable).unwrap();
        Capacity::of(&node).unwrap()
    }

    fn said(lacking: &[Lack]) -> Vec<String> {
        lacking.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_lacking_is_said_as_upstream_says_it() {
        let node = capacity(json!({"cpu": "2", "memory": "1Gi", "pods": "2", "nvidia.com/gpu": "8"}));
        let mut held = Held::default();
        held.add(&wanted(json!({"cpu": "1", "nvidia.com/gpu": "6"}), json!([])));
        assert_eq!(node.lacking(&held, &wanted(json!({"cpu": "1", "nvidia.com/gpu": "2"}), json!([]))), []);
        let much = wanted(
            json!({"cpu": "1001m", "memory": "2Gi", "ephemeral-storage": "1", "nvidia.com/gpu": "3", "amd.com/gpu": "1"}),
            json!([]),
        );
        held.add(&wanted(json!({}), json!([])));
        let expected = [
            "Too many pods",
            "Insufficient cpu",
            "Insufficient memory",
            "Insufficient ephemeral-storage",
            "Insufficient amd.com/gpu",
            "Insufficient nvidia.com/gpu",
        ];
        assert_eq!(said(&node.lacking(&held, &much)), expected);
    }

    #[test]
    fn an_over_committed_node_takes_what_needs_none_of_it() {
        let node = capacity(json!({"cpu": "1", "memory": "1Gi", "pods": "9"}));
        let mut held = Held::default();
        held.add(&wanted(json!({"cpu": "5"}), json!([])));
        assert_eq!(node.lacking(&held, &wanted(json!({"memory": "1Mi"}), json!([]))), []);
        assert_eq!(
            said(&node.lacking(&held, &wanted(json!({"cpu": "1m"}), json!([])))),
            ["Insufficient cpu"]
        );
    }

    #[test]
    fn what_pods_hold_more_of_than_there_is_is_named() {
        let node = capacity(json!({"cpu": "2", "memory": "1Gi", "pods": "1", "nvidia.com/gpu": "4"}));
        let mut held = Held::default();
        held.add(&wanted(json!({"cpu": "2", "nvidia.com/gpu": "4", "elsewhere.com/one": "1"}), json!([])));
        assert_eq!(node.exceeded(&held), []);
        held.add(&wanted(json!({"nvidia.com/gpu": "1"}), json!([])));
        assert_eq!(node.exceeded(&held), [Lack::Pods, Lack::Resource("nvidia.com/gpu".into())]);
    }

    #[test]
    fn ports_clash_by_number_protocol_and_address() {
        let port = |port: u16, protocol: &str, address: &str| json!([{"containerPort": 1, "hostPort": port, "protocol": protocol, "hostIP": address}]);
        for (here, wants, is_free) in [
            (port(80, "TCP", ""), port(80, "TCP", ""), false),
            (port(80, "TCP", ""), port(81, "TCP", ""), true),
            (port(80, "TCP", ""), port(80, "UDP", ""), true),
            (port(80, "TCP", "10.0.0.1"), port(80, "TCP", "10.0.0.2"), true),
            (port(80, "TCP", "10.0.0.1"), port(80, "TCP", "10.0.0.1"), false),
            (port(80, "TCP", "10.0.0.1"), port(80, "TCP", "0.0.0.0"), false),
            (port(80, "TCP", ""), port(80, "TCP", "10.0.0.1"), false),
        ] {
            let mut held = Held::default();
            held.add(&wanted(json!({}), here.clone()));
            let verdict = held.admits_ports(&wanted(json!({}), wants.clone()));
            assert_eq!(verdict.is_ok(), is_free, "{here} {wants}");
            held.remove(&wanted(json!({}), here));
            assert_eq!(held, Held::default());
        }
    }
}
