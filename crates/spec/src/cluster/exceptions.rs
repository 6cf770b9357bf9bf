//! What differs from the rule: single uplinks, and measurements.

use std::collections::BTreeMap;

use phalanx_model::{DEVICES_PER_NODE_MAX, DomainName, LevelName, NodeName};

use super::{ClusterFile, DeclaredLink, DeclaredNode, MeasuredEnd, MeasuredPair, UplinkFile, node_level};
use crate::error::{Place, SpecError, listed, quote};
use crate::place::At;

/// Most measurements in one file: all pairs of a few hundred nodes, or some for each of 100,000.
const MEASURED_MAX: usize = 200_000;

pub(super) type Known<'a> = BTreeMap<&'a NodeName, &'a DeclaredNode>;

impl ClusterFile {
    pub(super) fn uplinks(
        &self,
        above: &[LevelName],
        links: &BTreeMap<LevelName, DeclaredLink>,
        nodes: &Known<'_>,
    ) -> Result<Vec<(Vec<DomainName>, DeclaredLink)>, SpecError> {
        let mut found = BTreeMap::new();
        for uplink in &self.uplinks {
            let (level, path) = self.uplink_path(uplink, above, nodes)?;
            // What joins the devices is that of the level: its uplink alone differs.
            let usual = links.get(&level).copied().unwrap_or_default();
            let link = DeclaredLink {
                bytes_per_s: self.speed(uplink.bandwidth)?,
                latency_ns: self.latency(uplink.latency)?.unwrap_or(usual.latency_ns),
                ..usual
            };
            if found.insert(path, link).is_some() {
                let what = "the uplink of this domain is given twice";
                return Err(self.source.error(uplink.bandwidth.place, what, "give every uplink once"));
            }
        }
        Ok(found.into_iter().collect())
    }

    fn uplink_path(
        &self,
        uplink: &UplinkFile,
        above: &[LevelName],
        nodes: &Known<'_>,
    ) -> Result<(LevelName, Vec<DomainName>), SpecError> {
        let place = uplink.bandwidth.place;
        match (&uplink.node, uplink.path.is_empty()) {
            (Some(node), true) => {
                let known = NodeName::new(node.value.as_str()).ok().and_then(|name| nodes.get(&name));
                let known = known.ok_or_else(|| self.unknown_node(node.place, &node.value))?;
                let own = DomainName::new(node.value.as_str());
                Ok((node_level(), known.path.iter().cloned().chain(own.ok()).collect()))
            }
            (None, false) => self.domain_path(&uplink.path, place, above, nodes),
            _ => {
                let what = "an uplink is that of a `node` or of a domain's `path`";
                Err(self.source.error(place, what, "give one of them"))
            }
        }
    }

    /// The level and path of a domain that some node stands in.
    pub(super) fn domain_path(
        &self,
        said: &BTreeMap<At<LevelName>, At<DomainName>>,
        place: Place,
        above: &[LevelName],
        nodes: &Known<'_>,
    ) -> Result<(LevelName, Vec<DomainName>), SpecError> {
        if let Some((level, _)) = said.iter().find(|(level, _)| !above.contains(&level.value)) {
            return Err(self.unknown_level(level, above));
        }
        let inner = above.iter().rposition(|l| said.contains_key(&At::from(l.clone())));
        let levels = above.get(..=inner.unwrap_or(0)).unwrap_or(above);
        let path = self.path(said, place, levels)?;
        if !nodes.values().any(|node| node.path.starts_with(&path)) {
            let what = format!("no node stands in {}", listed(&path));
            return Err(self.source.error(place, what, "give the path that its nodes have"));
        }
        Ok((levels.last().cloned().unwrap_or_else(node_level), path))
    }

    pub(super) fn measured(&self, nodes: &Known<'_>) -> Result<Vec<MeasuredPair>, SpecError> {
        if let Some(first) = self.measured.get(MEASURED_MAX) {
            let what = format!("{} measurements", self.measured.len());
            return Err(self.source.error(first.a.place, what, format!("at most {MEASURED_MAX}")));
        }
        let pair = |said: &super::MeasuredFile| {
            let (a, b) = (self.end(&said.a, nodes)?, self.end(&said.b, nodes)?);
            let bytes_per_s = self.speed(said.bandwidth)?;
            let latency_ns = self.latency(said.latency)?.unwrap_or(0);
            if a == b || (a.node == b.node && (a.device.is_none() || b.device.is_none())) {
                let accepted = "expected two nodes, or two devices such as node-1/0 and node-1/3";
                return Err(self.source.error(said.b.place, "is the same end again", accepted));
            }
            let by = said.by.as_ref().map(|by| by.value.clone());
            Ok(MeasuredPair { a, b, bytes_per_s, latency_ns, by })
        };
        self.measured.iter().map(pair).collect()
    }

    /// `node-1`, or `node-1/3` for its device 3. A node's own name may hold a slash.
    fn end(&self, said: &At<String>, nodes: &Known<'_>) -> Result<MeasuredEnd, SpecError> {
        let known = |name: &str| NodeName::new(name).ok().filter(|name| nodes.contains_key(name));
        if let Some(node) = known(&said.value) {
            return Ok(MeasuredEnd { node, device: None });
        }
        let (name, device) = said.value.rsplit_once('/').unwrap_or((&said.value, ""));
        let device = device.parse::<u32>().ok().filter(|device| *device < DEVICES_PER_NODE_MAX);
        match (known(name), device) {
            (Some(node), Some(_)) => Ok(MeasuredEnd { node, device }),
            _ => Err(self.unknown_node(said.place, &said.value)),
        }
    }

    fn unknown_node(&self, place: Place, name: &str) -> SpecError {
        let accepted = "expected the name of a node of this file, or NODE/DEVICE";
        self.source.error(place, format!("no node is named {}", quote(name)), accepted)
    }
}
