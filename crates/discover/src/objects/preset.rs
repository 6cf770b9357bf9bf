//! Which labels of a node name its domains: the conventions of clouds and tools, as data.

use phalanx_model::{LevelName, NameError};

use super::nodes::NodeObjects;

/// How the values of a level's label are to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// One domain of the whole cluster, by an identity of its own.
    Id,
    /// A name that may be used again under another parent: then the parent's name goes before it.
    Name,
    /// A group that somebody asked for, no part of the fabric; it stands in where no level of the fabric is known.
    Group,
}

/// A level and the labels that carry it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetLevel {
    pub level: LevelName,
    /// The one that most nodes have is used; between equals, the first.
    pub keys: Vec<String>,
    pub sort: Sort,
    /// Only nodes with this label have the level.
    pub only_with: Option<String>,
}

/// Levels by label, outermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: String,
    pub levels: Vec<PresetLevel>,
}

/// Why labels are no preset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PresetError {
    #[error("no label was given; name the label of each level, outermost first")]
    Empty,
    #[error("{key:?} cannot name a level: {error}")]
    Name { key: String, error: NameError },
    #[error("{key:?} is no label: the key of one has at most 317 letters, digits, '.', '_', '-' and one '/'")]
    Key { key: String },
    #[error("the level {0} is named twice; give each level a name of its own")]
    Twice(LevelName),
}

/// The node itself, which is no level above it.
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
pub(super) const REGION: &str = "topology.kubernetes.io/region";
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
/// `<ClusterUUID>.<CliqueID>`, from NVIDIA's feature discovery and compute domain plugin.
pub(super) const CLIQUE: &str = "nvidia.com/gpu.clique";
pub(super) const TPU_TYPE: &str = "cloud.google.com/gke-tpu-accelerator";
pub(super) const TPU_TOPOLOGY: &str = "cloud.google.com/gke-tpu-topology";
/// Nodes of a pool that has several TPU hosts are one slice (GKE, "TPUs in GKE").
pub(super) const GKE_POOL: &str = "cloud.google.com/gke-nodepool";
pub(super) const SLICE: &str = "slice";
/// `cloud.google.com/gke-tpu-partition-4x4x4-id`: which part of that shape of a larger slice (GKE, "dynamic slices").
const TPU_PARTITION: (&str, &str) = ("cloud.google.com/gke-tpu-partition-", "-id");
const NVLINK_DOMAIN: &str = "nvlink-domain";

type Row = (&'static str, Sort, &'static [&'static str]);

/// Levels between zone and NVLink domain, outermost first. A preset that comes earlier wins between equals: what a
/// tool wrote on purpose says more than what a cloud gives to every node.
const PRESETS: [(&str, &[Row]); 8] = [
    // topograph 1.0 (tier 0 is the switch next to the node), 0.5 and before, and its first names.
    (
        "topograph",
        &[
            ("tier-5", Sort::Id, &["fabric.topograph.run/tier-5"]),
            ("tier-4", Sort::Id, &["fabric.topograph.run/tier-4"]),
            ("tier-3", Sort::Id, &["fabric.topograph.run/tier-3"]),
            (
                "core",
                Sort::Id,
                &[
                    "fabric.topograph.run/tier-2",
                    "network.topology.nvidia.com/core",
                    "network.topology.nvidia.com/datacenter",
                    "network.topology.kubernetes.io/datacenter",
                ],
            ),
            (
                "spine",
                Sort::Id,
                &[
                    "fabric.topograph.run/tier-1",
                    "network.topology.nvidia.com/spine",
                    "network.topology.kubernetes.io/spine",
                ],
            ),
            (
                "leaf",
                Sort::Id,
                &[
                    "fabric.topograph.run/tier-0",
                    "network.topology.nvidia.com/leaf",
                    "network.topology.nvidia.com/block",
                    "network.topology.kubernetes.io/block",
                ],
            ),
        ],
    ),
    // Amazon's instance topology: layer 1 is the outermost; the largest number is next to the node.
    (
        "aws",
        &[
            ("capacity-block", Sort::Group, &["topology.k8s.aws/capacity-block-id"]),
            ("network-node-layer-1", Sort::Id, &["topology.k8s.aws/network-node-layer-1"]),
            ("network-node-layer-2", Sort::Id, &["topology.k8s.aws/network-node-layer-2"]),
            ("network-node-layer-3", Sort::Id, &["topology.k8s.aws/network-node-layer-3"]),
            ("network-node-layer-4", Sort::Id, &["topology.k8s.aws/network-node-layer-4"]),
        ],
    ),
    ("gke-tpu", &[(SLICE, Sort::Id, &[GKE_POOL])]),
    // Google's physical topology of a virtual machine, and the labels that its early topology daemon wrote.
    (
        "gcp",
        &[
            ("placement-group", Sort::Group, &["cloud.google.com/gke-placement-group"]),
            ("block", Sort::Id, &["cloud.google.com/gce-topology-block", "topology.gke.io/cluster"]),
            ("subblock", Sort::Name, &["cloud.google.com/gce-topology-subblock", "topology.gke.io/rack"]),
            ("host", Sort::Name, &["cloud.google.com/gce-topology-host", "topology.gke.io/host"]),
        ],
    ),
    // Oracle's RDMA locality (hashes), and the older labels of its compute hosts.
    (
        "oci",
        &[
            ("cluster", Sort::Group, &["oci.oraclecloud.com/rdma.cluster_id"]),
            ("hpc-island", Sort::Id, &["oci.oraclecloud.com/rdma.hpc_island_id"]),
            (
                "network-block",
                Sort::Id,
                &["oci.oraclecloud.com/rdma.network_block_id", "oci.oraclecloud.com/host.network_block_id"],
            ),
            ("local-block", Sort::Id, &["oci.oraclecloud.com/rdma.local_block_id"]),
            ("rack", Sort::Id, &["oci.oraclecloud.com/host.rack_id"]),
        ],
    ),
    (
        "coreweave",
        &[
            ("fabric", Sort::Id, &["ib.coreweave.cloud/fabric"]),
            ("superpod", Sort::Name, &["ib.coreweave.cloud/superpod"]),
            ("leafgroup", Sort::Name, &["ib.coreweave.cloud/leafgroup"]),
            ("rack", Sort::Name, &["node.coreweave.cloud/rack"]),
        ],
    ),
    // AKS tells of a proximity placement group and of nothing below it.
    ("azure", &[("placement-group", Sort::Group, &["kubernetes.azure.com/ppg"])]),
    // Names that operators give; only region and zone are of Kubernetes itself.
    (
        "generic",
        &[
            ("datacenter", Sort::Name, &["topology.kubernetes.io/datacenter"]),
            ("block", Sort::Name, &["topology.kubernetes.io/block"]),
            ("rack", Sort::Name, &["topology.kubernetes.io/rack"]),
        ],
    ),
];

/// Levels that stand around every preset.
const OUTER: [Row; 2] = [("region", Sort::Id, &[REGION]), ("zone", Sort::Id, &[ZONE])];
const INNER: [Row; 2] = [
    (
        NVLINK_DOMAIN,
        Sort::Id,
        &[
            CLIQUE,
            "accelerator.topograph.run/domain",
            "network.topology.nvidia.com/accelerator",
            "network.topology.kubernetes.io/accelerator",
            "topology.k8s.aws/ultraserver-id",
            "oci.oraclecloud.com/host.gpu_memory_fabric_id",
        ],
    ),
    ("nvlink-subdomain", Sort::Name, &["accelerator.topograph.run/sub-domain"]),
];

impl Preset {
    /// The names of the presets that are known.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }

    /// A known preset; every one has region and zone around, and the NVLink domain inside.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let (name, rows) = PRESETS.iter().find(|(known, _)| *known == name)?;
        let mut levels: Vec<PresetLevel> =
            OUTER.iter().chain(*rows).chain(&INNER).filter_map(level_of).collect();
        for level in levels.iter_mut().filter(|level| level.level.as_str() == SLICE) {
            level.only_with = Some(TPU_TYPE.to_owned());
        }
        Some(Self { name: (*name).to_owned(), levels })
    }

    /// The preset whose labels most nodes have; `generic` where none has any.
    #[must_use]
    pub fn detect(nodes: &NodeObjects) -> Self {
        let mut best = ("generic", 0);
        let carried = nodes.carried();
        for (name, rows) in PRESETS {
            let keys = rows.iter().flat_map(|(_, _, keys)| *keys);
            let keys = keys.map(|key| if *key == GKE_POOL { TPU_TYPE } else { key });
            // Of most presets no node has any label.
            let keys: Vec<&str> = keys.filter(|key| carried.contains(key)).collect();
            let count = nodes.nodes().filter(|node| keys.iter().any(|key| node.label(key).is_some())).count();
            if count > best.1 {
                best = (name, count);
            }
        }
        let mut preset = Self::named(best.0).unwrap_or(Self { name: best.0.to_owned(), levels: Vec::new() });
        if best.0 == "gke-tpu" {
            preset.add_partitions(nodes);
        }
        preset
    }

    /// A preset of one's own: level names and label keys, outermost first. The label of the node itself may stand at
    /// the end and is left out.
    ///
    /// # Errors
    /// When there is no level, a level's name is no name, or one is given twice.
    pub fn custom<'a>(levels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, PresetError> {
        let mut preset = Self { name: "custom".to_owned(), levels: Vec::new() };
        let mut is_empty = true;
        for (name, key) in levels {
            is_empty = false;
            if key == HOSTNAME {
                continue;
            }
            if !is_label(key) {
                return Err(PresetError::Key { key: super::printable(key) });
            }
            let level = LevelName::new(name)
                .map_err(|error| PresetError::Name { key: super::printable(key), error })?;
            if preset.levels.iter().any(|known| known.level == level) {
                return Err(PresetError::Twice(level));
            }
            let sort = row_of(key)
                .map_or(Sort::Name, |(_, sort, _)| if *sort == Sort::Id { Sort::Id } else { Sort::Name });
            preset.levels.push(PresetLevel { level, keys: vec![key.to_owned()], sort, only_with: None });
        }
        if is_empty { Err(PresetError::Empty) } else { Ok(preset) }
    }

    /// A preset from label keys alone, outermost first. A key that is known has its usual level; any other names its
    /// level by what stands behind the `/`, or by all of it where that is taken.
    ///
    /// # Errors
    /// When there is no key, or one cannot name a level.
    pub fn of_keys<'a>(keys: impl IntoIterator<Item = &'a str>) -> Result<Self, PresetError> {
        let mut levels: Vec<(&str, &str)> = Vec::new();
        for key in keys {
            let short =
                row_of(key).map_or_else(|| key.rsplit('/').next().unwrap_or(key), |(level, _, _)| *level);
            let is_taken = levels.iter().any(|(level, _)| *level == short);
            levels.push((if is_taken { key } else { short }, key));
        }
        Self::custom(levels)
    }

    /// Partitions of TPU slices have a label per shape: the larger, the further out.
    fn add_partitions(&mut self, nodes: &NodeObjects) {
        let mut shapes: Vec<(u64, &str, &str)> = Vec::new();
        for (key, _) in nodes.nodes().flat_map(|node| &node.labels) {
            let shape = key.strip_prefix(TPU_PARTITION.0).and_then(|rest| rest.strip_suffix(TPU_PARTITION.1));
            let Some(shape) = shape.filter(|shape| !shapes.iter().any(|(_, known, _)| known == shape)) else {
                continue;
            };
            let sides: Option<Vec<u64>> = shape.split('x').map(|side| side.parse().ok()).collect();
            if let Some(chips) = sides.and_then(|s| s.into_iter().try_fold(1_u64, u64::checked_mul))
                && shapes.len() < 16
            {
                shapes.push((chips, shape, key));
            }
        }
        shapes.sort_unstable_by(|a, b| b.cmp(a));
        let after = self.levels.iter().position(|level| level.level.as_str() == SLICE).map_or(0, |at| at + 1);
        let levels = shapes.into_iter().filter_map(|(_, shape, key)| {
            let level = LevelName::new(format!("partition-{shape}")).ok()?;
            Some(PresetLevel { level, keys: vec![key.to_owned()], sort: Sort::Id, only_with: None })
        });
        let levels: Vec<PresetLevel> = levels.collect();
        self.levels.splice(after..after, levels);
    }
}

/// A prefix of at most 253 and a name of at most 63 characters (Kubernetes, "Labels and Selectors").
fn is_label(key: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    (1..=317).contains(&key.len()) && key.chars().all(is_part) && key.matches('/').count() <= 1
}

fn level_of((level, sort, keys): &Row) -> Option<PresetLevel> {
    let level = LevelName::new(*level).ok()?;
    Some(PresetLevel {
        level,
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        sort: *sort,
        only_with: None,
    })
}

fn row_of(key: &str) -> Option<&'static Row> {
    let rows = OUTER.iter().chain(PRESETS.iter().flat_map(|(_, rows)| *rows)).chain(&INNER);
    let mut rows = rows.filter(|(_, _, keys)| keys.contains(&key));
    rows.next()
}
