//! One door for every text: says what it is, and reads it.

mod detect;

use phalanx_model::Machine;

use crate::check::Finding;
use crate::fabric::{self, Reading};
use crate::gap::{Gap, listed};
use crate::nccl::graph::NcclGraphs;
use crate::nic_text::{self, NicSpeeds};
use crate::nvidia::{mig::Mig, nvlink::NvlinkStatus, p2p::P2p, query::Query};
use crate::objects::nodes::NodeObjects;
use crate::objects::topologies::Topologies;
use crate::{hwloc, nccl, nvidia, objects, pcie, rocm, topo_m};

/// What a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    TopoM,
    PeerAccess,
    Nvlink,
    Query,
    Mig,
    Nics,
    NcclTopo,
    NcclGraph,
    Hwloc,
    Rocm,
    NvmlProfile,
    Ibnetdiscover,
    Lldp,
    ClosCsv,
    SlurmConf,
    SlurmYaml,
    Gres,
    Topograph,
    Nodes,
    Topologies,
    ResourceSlices,
}

impl Kind {
    /// Every kind, in the order in which help and documentation list them.
    pub const ALL: [Self; 21] = [
        Self::TopoM,
        Self::PeerAccess,
        Self::Nvlink,
        Self::Query,
        Self::Mig,
        Self::Nics,
        Self::NcclTopo,
        Self::NcclGraph,
        Self::Hwloc,
        Self::Rocm,
        Self::NvmlProfile,
        Self::Ibnetdiscover,
        Self::Lldp,
        Self::ClosCsv,
        Self::SlurmConf,
        Self::SlurmYaml,
        Self::Gres,
        Self::Topograph,
        Self::Nodes,
        Self::Topologies,
        Self::ResourceSlices,
    ];

    /// The word that users write.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::TopoM => "topo-m",
            Self::PeerAccess => "p2p",
            Self::Nvlink => "nvlink",
            Self::Query => "nvidia-q",
            Self::Mig => "mig",
            Self::Nics => "nics",
            Self::NcclTopo => "nccl-topo",
            Self::NcclGraph => "nccl-graph",
            Self::Hwloc => "hwloc",
            Self::Rocm => "rocm",
            Self::NvmlProfile => "nvml-profile",
            Self::Ibnetdiscover => "ibnetdiscover",
            Self::Lldp => "lldp",
            Self::ClosCsv => "csv",
            Self::SlurmConf => "slurm-conf",
            Self::SlurmYaml => "slurm-yaml",
            Self::Gres => "gres",
            Self::Topograph => "topograph",
            Self::Nodes => "nodes",
            Self::Topologies => "topologies",
            Self::ResourceSlices => "resource-slices",
        }
    }

    /// What prints or holds such a text.
    #[must_use]
    pub const fn source(self) -> &'static str {
        match self {
            Self::TopoM => "nvidia-smi topo -m",
            Self::PeerAccess => "nvidia-smi topo -p2p r",
            Self::Nvlink => "nvidia-smi nvlink -s",
            Self::Query => "nvidia-smi -q",
            Self::Mig => "nvidia-smi mig -lgip, -lgipp or -lgi",
            Self::Nics => "ibstat, ibstatus or ethtool",
            Self::NcclTopo => "NCCL_TOPO_DUMP_FILE, or a vendor's NCCL or RCCL topology file",
            Self::NcclGraph => "NCCL_GRAPH_DUMP_FILE",
            Self::Hwloc => "lstopo --of xml",
            Self::Rocm => "rocm-smi --showtopo, or amd-smi topology",
            Self::NvmlProfile => "a profile of nvml-mock",
            Self::Ibnetdiscover => "ibnetdiscover",
            Self::Lldp => "lldpctl, in any of its formats",
            Self::ClosCsv => "a table of host, leaf, spine",
            Self::SlurmConf => "Slurm's topology.conf",
            Self::SlurmYaml => "Slurm's topology.yaml",
            Self::Gres => "Slurm's gres.conf, or the nodes of its slurm.conf",
            Self::Topograph => "a model or an output of topograph",
            Self::Nodes => "kubectl get nodes -o yaml",
            Self::Topologies => "kubectl get topologies or hypernodes -o yaml",
            Self::ResourceSlices => "kubectl get resourceslices -o yaml",
        }
    }

    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// What a text is, by its content.
    #[must_use]
    pub fn detect(text: &str) -> Option<Self> {
        detect::kind(text)
    }
}

/// What was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// One machine.
    Machine(Box<MachineReading>),
    /// Adds to a machine.
    Overlay(Box<Overlay>),
    /// Rings and trees that NCCL chose; says nothing of what is there.
    Graphs(NcclGraphs),
    /// Hosts, and what stands between them.
    Fabric(Reading),
    /// Hosts with labels, whose meaning a preset tells.
    Nodes(NodeObjects),
    /// The meaning of labels, or domains by name.
    Topologies(Topologies),
}

/// A machine that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineReading {
    pub machine: Machine,
    /// In the order of the devices; empty where the source does not tell.
    pub uuids: Vec<String>,
    /// `<cluster UUID>.<clique>` of an NVLink fabric that reaches beyond the machine.
    pub nvlink_domain: Option<String>,
    /// The tree of a source that has one: a vendor's tree may have no devices, and completes another reading.
    pub tree: Option<pcie::Tree>,
    /// The devices are slots of a vendor's tree, and no machine was asked for them.
    pub is_vendors: bool,
    /// What is laid over it found wrong.
    pub findings: Vec<Finding>,
    pub gaps: Vec<Gap>,
}

/// What is laid over a machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Overlay {
    Nvlink(NvlinkStatus),
    Query(Query),
    PeerAccess(P2p),
    Mig(Mig),
    Nics(NicSpeeds),
}

impl Overlay {
    /// What to say where there is no machine to lay it over.
    #[must_use]
    pub const fn lacks(&self) -> &'static str {
        match self {
            Self::Nvlink(_) => "nvidia-smi nvlink tells of links and not which GPUs they join",
            Self::Query(_) => "nvidia-smi -q describes GPUs and not how they are linked",
            Self::PeerAccess(_) => "nvidia-smi topo -p2p tells who may reach whom, and not how",
            Self::Mig(_) => "nvidia-smi mig lists slices and not how GPUs are linked",
            Self::Nics(_) => "ibstat and ethtool describe NICs and not what is near them",
        }
    }
}

/// Why a text was not read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("nothing in the text tells what it is; name its kind, one of: {}", words())]
    Unknown,
    #[error("this is the output of {0}, which describes no machine; give one of nvidia-smi topo -m")]
    NoMachine(&'static str),
    #[error(transparent)]
    Topo(#[from] topo_m::TopoError),
    #[error(transparent)]
    Smi(#[from] nvidia::SmiError),
    #[error(transparent)]
    NicText(#[from] nic_text::NicTextError),
    #[error(transparent)]
    Rocm(#[from] rocm::RocmError),
    #[error(transparent)]
    Nccl(#[from] nccl::NcclError),
    #[error(transparent)]
    Hwloc(#[from] hwloc::HwlocError),
    #[error(transparent)]
    Fabric(#[from] fabric::FabricError),
    #[error(transparent)]
    Object(#[from] objects::ObjectError),
}

fn words() -> String {
    Kind::ALL.map(Kind::word).join(", ")
}

/// Reads a text of any kind. `host` names the host of texts that tell of one host and do not say which.
///
/// # Errors
/// When nothing tells what the text is, or its reader can use nothing of it.
pub fn read(text: &str, kind: Option<Kind>, host: Option<&str>) -> Result<Found, SourceError> {
    let kind = kind.or_else(|| Kind::detect(text)).ok_or_else(|| unknown(text))?;
    Ok(match kind {
        Kind::TopoM => {
            let found = topo_m::parse(text)?;
            Found::machine(found.machine, found.gaps)
        }
        Kind::Rocm => {
            let found = rocm::parse(text)?;
            Found::machine(found.machine, found.gaps)
        }
        Kind::NcclTopo => {
            let found = nccl::topo::parse(text)?;
            let (machine, more) = found.tree().machine();
            let hosts = found.trees.len();
            let others = (hosts > 1).then(|| {
                Gap::new((0, 0), format!("the file tells of {hosts} hosts, of which the first is read"))
            });
            let gaps = found.gaps.iter().cloned().chain(more).chain(others).collect();
            let mut reading = MachineReading::new(machine, gaps);
            reading.is_vendors = found.is_vendors;
            reading.tree = Some(found.tree().clone());
            Found::Machine(Box::new(reading))
        }
        Kind::Hwloc => {
            let found = hwloc::parse(text)?;
            let (machine, gaps) = found.machine();
            let tree = Some(found.tree);
            Found::Machine(Box::new(MachineReading { tree, ..MachineReading::new(machine, gaps) }))
        }
        Kind::NvmlProfile => {
            let found = objects::nvml_profile::parse(text)?;
            let reading = MachineReading::new(found.machine, found.gaps);
            let (uuids, nvlink_domain) = (found.uuids, found.clique);
            Found::Machine(Box::new(MachineReading { uuids, nvlink_domain, ..reading }))
        }
        Kind::Nvlink => Found::overlay(Overlay::Nvlink(nvidia::nvlink::parse(text)?)),
        Kind::Query => Found::overlay(Overlay::Query(nvidia::query::parse(text)?)),
        Kind::PeerAccess => Found::overlay(Overlay::PeerAccess(nvidia::p2p::parse(text)?)),
        Kind::Mig => Found::overlay(Overlay::Mig(nvidia::mig::parse(text)?)),
        Kind::Nics => Found::overlay(Overlay::Nics(nic_text::parse(text)?)),
        Kind::NcclGraph => Found::Graphs(nccl::graph::parse(text)?),
        Kind::Ibnetdiscover => Found::Fabric(fabric::ibnetdiscover::parse(text)?),
        Kind::Lldp => Found::Fabric(fabric::lldp::parse(text, host)?),
        Kind::ClosCsv => Found::Fabric(fabric::clos_csv::parse(text)?),
        Kind::SlurmConf => Found::Fabric(fabric::slurm_conf::parse(text)?),
        Kind::SlurmYaml => Found::Fabric(fabric::slurm_yaml::parse(text)?),
        Kind::Gres => Found::Fabric(fabric::gres::parse(text, host)?),
        Kind::Topograph => Found::Fabric(fabric::topograph::parse(text)?),
        Kind::Nodes => Found::Nodes(objects::nodes::read(text)?),
        Kind::Topologies => Found::Topologies(objects::topologies::parse(text)?),
        Kind::ResourceSlices => Found::Fabric(objects::resource_slices::parse(text)?.reading),
    })
}

/// What stands in place of an output, if it is a message that a tool failed.
fn unknown(text: &str) -> SourceError {
    let trouble = topo_m::text::trouble_in(&topo_m::text::clean(text));
    trouble.map_or(SourceError::Unknown, |(line, column, text)| {
        SourceError::Smi(nvidia::SmiError::Trouble { line, column, text })
    })
}

impl Found {
    fn machine(machine: Machine, gaps: Vec<Gap>) -> Self {
        Self::Machine(Box::new(MachineReading::new(machine, gaps)))
    }

    fn overlay(overlay: Overlay) -> Self {
        Self::Overlay(Box::new(overlay))
    }
}

impl MachineReading {
    /// A machine of which nothing more is known.
    #[must_use]
    pub fn new(machine: Machine, gaps: Vec<Gap>) -> Self {
        let gaps = listed(gaps);
        Self {
            machine,
            uuids: Vec::new(),
            nvlink_domain: None,
            tree: None,
            is_vendors: false,
            findings: Vec::new(),
            gaps,
        }
    }

    /// Lays what another source tells over the machine.
    pub fn lay(&mut self, overlay: &Overlay) {
        match overlay {
            Overlay::Nvlink(status) => {
                self.gaps.extend(status.gaps.iter().cloned());
                self.gaps.extend(status.apply(&mut self.machine));
                self.findings.extend(status.check(&self.machine));
            }
            Overlay::Query(query) => {
                self.gaps.extend(query.gaps.iter().cloned());
                self.gaps.extend(query.apply(&mut self.machine));
                self.findings.extend(query.check(&self.machine));
                self.nvlink_domain = query.nvlink_domain().or(self.nvlink_domain.take());
                let uuids: Vec<String> =
                    query.gpus.iter().map(|gpu| gpu.uuid.clone().unwrap_or_default()).collect();
                if uuids.len() == self.machine.devices.len() && uuids.iter().any(|uuid| !uuid.is_empty()) {
                    self.uuids = uuids;
                }
            }
            Overlay::PeerAccess(p2p) => {
                self.gaps.extend(p2p.gaps.iter().cloned());
                self.findings.extend(p2p.check(&self.machine));
            }
            Overlay::Mig(mig) => self.gaps.extend(mig.gaps.iter().cloned()),
            Overlay::Nics(speeds) => {
                self.gaps.extend(speeds.gaps.iter().cloned());
                self.gaps.extend(speeds.apply(&mut self.machine));
            }
        }
    }

    /// The devices that `nvidia-smi -q` tells of, where nothing tells of their links.
    #[must_use]
    pub fn of_query(query: &Query) -> Self {
        Self::new(query.machine(), Vec::new())
    }

    /// Takes the tree of a vendor's file, which places the devices of this machine by their PCI addresses.
    pub fn place(&mut self, tree: &pcie::Tree) {
        let merged = nccl::merge(tree, &self.machine);
        self.machine = merged.machine;
        self.gaps.extend(merged.gaps);
    }
}

/// Reads a text that tells of one machine, as a cluster file names it.
///
/// # Errors
/// When nothing tells what the text is, its reader can use nothing of it, or it tells of something else.
pub fn read_machine(text: &str) -> Result<MachineReading, SourceError> {
    match read(text, None, None)? {
        Found::Machine(reading) => Ok(*reading),
        _ => Err(SourceError::NoMachine(Kind::detect(text).map_or("", Kind::source))),
    }
}
