//! From entries of a cluster file to nodes, patterns written out.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_model::{DEVICES_PER_NODE_MAX, DeviceMask, DomainName, LevelName, NodeName, NodeSet, Torus};

use super::{
    ClusterFile, DeclaredDevices, DeclaredHardware, DeclaredNode, NODES_MAX, NodeFile, SpotFile, build,
    default_cluster,
};
use crate::error::{Place, SpecError, listed, quote};
use crate::pattern::NamePattern;
use crate::place::At;
use crate::queues::pools::label;
use crate::scalar::DeclaredLinkKind;

impl ClusterFile {
    /// The nodes of one entry.
    pub(super) fn expand(
        &self,
        file: &NodeFile,
        (above, tori): (&[LevelName], &[Torus]),
        room: usize,
    ) -> Result<Vec<DeclaredNode>, SpecError> {
        let wanted = file.name.value.count();
        if wanted > room {
            let what = format!(
                "{} is {wanted} nodes more, and a cluster has at most {NODES_MAX}",
                quote(file.name.value.text())
            );
            return Err(self.source.error(file.name.place, what, ""));
        }
        let hardware = Arc::new(DeclaredHardware {
            topo: file.topo.as_ref().map(|topo| topo.value.clone()),
            devices: self.devices(file)?,
            model: file.model.as_ref().map(|model| model.value.clone()),
            gpu_memory_bytes: file.gpu_memory.map(|memory| memory.value.0),
            cpu_milli: file.cpus.map(|cpus| cpus.value.0),
            memory_bytes: file.memory.map(|memory| memory.value.0),
            nic_bytes_per_s: file.nic_bandwidth.map(|bandwidth| bandwidth.value.0),
            transport: file.transport.map(|transport| transport.value),
            named: self.named(file)?,
            share_limit_milli: file.gpu_sharing.as_ref().map_or(0, |sharing| sharing.compute_limit.value.0),
        });
        let busy = self.busy(file)?;
        let labels = self.labels(file)?;
        let path = self.path(&file.path, file.name.place, above)?;
        let addresses = self.addresses(file)?;
        let places = self.places(file, tori)?;
        let mut nodes = Vec::with_capacity(wanted);
        for (at, name) in file.name.value.names().enumerate() {
            let name = NodeName::new(name)
                .map_err(|error| self.source.error(file.name.place, error.to_string(), ""))?;
            nodes.push(DeclaredNode {
                name,
                path: path.clone(),
                hardware: Arc::clone(&hardware),
                address: addresses.get(at).cloned(),
                busy,
                labels: labels.clone(),
                torus: places.get(at).copied(),
                price_micro_per_device_hour: file.price.map(|price| price.value.0),
                spot: file.spot.as_ref().map(SpotFile::model),
                line: if let Place::File { line, .. } = file.name.place { line } else { 0 },
            });
        }
        Ok(nodes)
    }

    /// In the order of sets.
    fn labels(&self, file: &NodeFile) -> Result<Vec<NodeSet>, SpecError> {
        let of = |(key, value): (&At<String>, &At<String>)| {
            label(&key.value, &value.value).map_err(|what| self.source.error(key.place, what, ""))
        };
        let mut labels: Vec<NodeSet> = file.labels.iter().map(of).collect::<Result<_, _>>()?;
        labels.sort();
        Ok(labels)
    }

    fn devices(&self, file: &NodeFile) -> Result<Option<DeclaredDevices>, SpecError> {
        if let Some(topo) = &file.topo
            && topo.value.is_empty()
        {
            return Err(self.source.error(topo.place, "is empty", "expected the path of a topology text"));
        }
        let Some(devices) = &file.devices else { return Ok(None) };
        if let Some(topo) = &file.topo {
            let error =
                self.source.error(topo.place, "`topo` and `devices` are both given", "give one of them");
            return Err(error.also(&self.source, devices.count.place, "the other one"));
        }
        let again = [
            (file.model.as_ref().map(|at| at.place), devices.model.as_ref().map(|at| at.place)),
            (file.gpu_memory.map(|at| at.place), devices.memory.map(|at| at.place)),
        ];
        if let Some((outer, inner)) = again.iter().find_map(|(outer, inner)| Some(((*outer)?, (*inner)?))) {
            let error = self.source.error(outer, "is given a second time", "give it inside `devices` only");
            return Err(error.also(&self.source, inner, "the first"));
        }
        let count = devices.count.value.0;
        if count > DEVICES_PER_NODE_MAX {
            let what = format!("{count} devices on one node");
            return Err(self.source.error(
                devices.count.place,
                what,
                format!("at most {DEVICES_PER_NODE_MAX}"),
            ));
        }
        let model = devices.model.as_ref().or(file.model.as_ref());
        let model = model.map(|model| model.value.clone()).unwrap_or_default();
        if let Some(link) = devices.link.filter(|link| link.value == DeclaredLinkKind::Nvlink) {
            let accepted =
                "expected a known product such as `model: NVIDIA H100`, or `topo:` in place of `devices:`";
            build::nvlinks(&model).map_err(|what| self.source.error(link.place, what, accepted))?;
        }
        Ok(Some(DeclaredDevices {
            count,
            model,
            memory_bytes: devices.memory.or(file.gpu_memory).map_or(0, |memory| memory.value.0),
            link: devices.link.map_or(DeclaredLinkKind::Pcie, |link| link.value),
        }))
    }

    fn busy(&self, file: &NodeFile) -> Result<DeviceMask, SpecError> {
        let count = file.devices.as_ref().map(|devices| devices.count.value.0);
        let mut mask = DeviceMask::EMPTY;
        for range in &file.busy {
            let limit = match (count, &file.topo) {
                (Some(count), _) => count,
                (None, Some(_)) => DEVICES_PER_NODE_MAX,
                (None, None) => 0,
            };
            if range.value.last >= limit {
                let what = format!("device {} does not exist: the node has {limit}", range.value.last);
                return Err(self.source.error(range.place, what, "devices count from 0"));
            }
            mask = mask.union((range.value.first..=range.value.last).collect());
        }
        Ok(mask)
    }

    /// One domain for each level; the outermost is the cluster itself unless it is named.
    pub(super) fn path(
        &self,
        said: &BTreeMap<At<LevelName>, At<DomainName>>,
        place: Place,
        above: &[LevelName],
    ) -> Result<Vec<DomainName>, SpecError> {
        if let Some((level, _)) = said.iter().find(|(level, _)| !above.contains(&level.value)) {
            return Err(self.unknown_level(level, above));
        }
        let mut path = Vec::with_capacity(above.len());
        for (depth, level) in above.iter().enumerate() {
            match said.get(&At::from(level.clone())) {
                Some(domain) => path.push(domain.value.clone()),
                None if depth == 0 => {
                    path.push(self.name.as_ref().map_or_else(default_cluster, |name| name.value.clone()));
                }
                None => {
                    let what = format!("the path says nothing about the level {level}");
                    let accepted =
                        format!("expected `path: {{{level}: NAME}}`; the levels are {}", listed(above));
                    return Err(self.source.error(place, what, accepted));
                }
            }
        }
        Ok(path)
    }

    /// As many addresses as names, or none.
    fn addresses(&self, file: &NodeFile) -> Result<Vec<String>, SpecError> {
        let Some(address) = &file.address else { return Ok(Vec::new()) };
        let names = file.name.value.count();
        // A colon or percent sign may stand in an IPv6 address, so brackets are the only thing looked at.
        let pattern =
            NamePattern::parse(&address.value).map_err(|what| self.source.error(address.place, what, ""))?;
        if pattern.count() != names {
            let what = format!("{} for {names} nodes", counted(pattern.count(), "address", "addresses"));
            let accepted = "expected a pattern with as many numbers as the name has, such as 10.0.0.[1-4]";
            let error = self.source.error(address.place, what, accepted);
            return Err(error.also(&self.source, file.name.place, "the nodes"));
        }
        let addresses: Vec<String> = pattern.names().collect();
        if !addresses.iter().all(|address| is_address(address)) {
            let what = format!("{} is neither a host name nor an IP address", quote(&address.value));
            return Err(self.source.error(
                address.place,
                what,
                "expected one such as node-1.example or 10.0.0.1",
            ));
        }
        Ok(addresses)
    }
}

/// Whether it can be the name of a host, or an IP address.
pub(super) fn is_address(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
    !text.is_empty() && text.len() <= 253 && text.chars().all(good)
}

fn counted(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}
