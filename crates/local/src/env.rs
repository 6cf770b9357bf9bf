//! What a rank is told of its place: torchrun, JAX, MPI, CUDA, NCCL and our own variables.
//!
//! Everything here is a hint; the user's own values win. NCCL is told only what is known.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use phalanx_model::{
    DeviceMask, DevicePart, Gang, Job, LaunchKind, LinkKind, Needs, Node, NodeName, Origin, PartNeed,
    Placement, Port, Program, Slot,
};

use crate::endpoints;
use crate::progress;

/// One attempt of a gang, as its members see it.
pub(crate) struct Attempt<'a> {
    pub(crate) job: &'a Job,
    pub(crate) gang: &'a Gang,
    pub(crate) placement: &'a Placement,
    /// Of the gang in its job.
    pub(crate) index: u32,
    pub(crate) number: u32,
    pub(crate) nodes: &'a BTreeMap<NodeName, Node>,
    pub(crate) master_port: u16,
    /// Host file, rank file and topology are here.
    pub(crate) dir: &'a Path,
    /// The state folder: the control socket is there.
    pub(crate) state: &'a Path,
    /// The owner's.
    pub(crate) home: &'a str,
}

pub(crate) type Env = BTreeMap<String, String>;

/// Processes that a launcher may be told to start on one node. A user's number, so it has a limit.
const RANKS_PER_NODE_MAX: u32 = 4_096;

/// The file in the attempt's folder that ranks touch when they have saved their work.
pub(crate) const CHECKPOINTED: &str = "checkpointed";

/// What members that have no role of their own are called.
const MAIN: &str = "main";

/// A rank's place among the nodes of its gang.
struct Place {
    node_rank: usize,
    local_rank: usize,
    /// Members on this node.
    local_size: usize,
}

impl Attempt<'_> {
    /// The environment of one rank; the user's own values have the last word.
    pub(crate) fn env(&self, rank: u32) -> Env {
        let mut env = Env::new();
        self.account(&mut env);
        self.own(rank, &mut env);
        self.devices(rank, &mut env);
        self.part(rank, &mut env);
        self.nccl(rank, &mut env);
        match self.gang.program.launch {
            LaunchKind::Mpi => self.mpi(&mut env),
            LaunchKind::None => {}
            _ if self.gang.role_of(rank).is_some() => self.beside(&mut env),
            LaunchKind::Ranks => self.torch(rank, &mut env),
            LaunchKind::Torchrun => self.torchrun(rank, &mut env),
            LaunchKind::Jax => self.jax(rank, &mut env),
        }
        env.extend(self.program(rank).env.clone());
        env
    }

    /// What a rank runs.
    pub(crate) fn program(&self, rank: u32) -> &Program {
        self.gang.program_of(self.gang.role_of(rank))
    }

    pub(crate) fn needs(&self, rank: u32) -> &Needs {
        self.gang.needs_of(self.gang.role_of(rank))
    }

    /// The port that rank 0 will listen on, by the user's word or ours; `None` where nobody does.
    pub(crate) fn rendezvous_port(&self) -> Option<u16> {
        match self.gang.program.launch {
            LaunchKind::None | LaunchKind::Mpi => None,
            _ => match self.gang.program.env.get("MASTER_PORT") {
                Some(given) => given.parse().ok(),
                None => Some(self.master_port),
            },
        }
    }

    fn account(&self, env: &mut Env) {
        set(env, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        set(env, "HOME", self.home);
        set(env, "USER", &self.job.owner.name);
        set(env, "LOGNAME", &self.job.owner.name);
    }

    fn own(&self, rank: u32, env: &mut Env) {
        let (program, needs) = (self.program(rank), self.needs(rank));
        let Some(slot) = self.placement.slots.get(rank as usize) else { return };
        set(env, "PHALANX_JOB_ID", self.job.id);
        set(env, "PHALANX_JOB_NAME", &self.job.name);
        set(env, "PHALANX_ATTEMPT", self.number);
        set(env, "PHALANX_RESTART_COUNT", self.number.saturating_sub(1));
        if self.number > 1 {
            // An earlier attempt may have saved its work.
            set(env, "PHALANX_RESUME", 1);
        }
        set(env, "PHALANX_GANG", self.index);
        set(env, "PHALANX_RANK", rank);
        set(env, "PHALANX_WORLD_SIZE", self.gang.size);
        self.array(env);
        self.role(rank, env);
        set(env, "PHALANX_NODE", &slot.node);
        set(env, "PHALANX_NODE_RANK", self.place(rank).node_rank);
        set(env, "PHALANX_DEVICES", slot.devices);
        set(env, "PHALANX_HOSTFILE", self.dir.join("hostfile").display());
        set(env, "PHALANX_RANKFILE", self.dir.join("rankfile").display());
        set(env, "PHALANX_TOPOLOGY", self.dir.join("topology.json").display());
        set(env, "PHALANX_PREEMPT_AT", self.dir.join("preempt_at").display());
        set(env, "PHALANX_CHECKPOINTED", self.dir.join(CHECKPOINTED).display());
        if rank < self.gang.size {
            set(env, "PHALANX_PROGRESS", self.dir.join(progress::file_of(rank)).display());
        }
        set(env, "PHALANX_CHECKPOINT_EVERY", self.dir.join(progress::CHECKPOINT_EVERY).display());
        if rank == 0 && self.job.turn.service.is_some() {
            set(env, "PHALANX_ENDPOINT", self.dir.join(endpoints::FILE).display());
        }
        set(env, "PHALANX_STATE", self.state.display());
        if let Some(dir) = &program.checkpoint_dir {
            set(env, "PHALANX_CKPT_DIR", dir);
        }
        if needs.cpu_milli >= 1000 {
            set(env, "OMP_NUM_THREADS", needs.cpu_milli / 1000);
        }
    }

    /// A task of an array has its number, and the numbers that there are. Of numbers without a common step the step is 1.
    fn array(&self, env: &mut Env) {
        let Some(number) = self.job.task_number(self.index) else { return };
        let tasks = &self.job.turn.array.as_ref().map(|array| array.tasks.clone()).unwrap_or_default();
        let last = self.job.gang_count().saturating_sub(1);
        set(env, "PHALANX_ARRAY_INDEX", number);
        set(env, "PHALANX_ARRAY_SIZE", self.job.gang_count());
        set(env, "PHALANX_ARRAY_MIN", tasks.min().unwrap_or(0));
        set(env, "PHALANX_ARRAY_MAX", tasks.max().unwrap_or(last));
        set(env, "PHALANX_ARRAY_STEP", tasks.step().unwrap_or(1));
    }

    /// Ranks of a role follow those of the gang itself, which are the world: `PHALANX_WORLD_SIZE` counts these alone.
    fn role(&self, rank: u32, env: &mut Env) {
        let (name, size, first) = match self.gang.role_of(rank) {
            None => (MAIN, self.gang.size, 0),
            Some(at) => {
                let before: u32 = self.gang.roles[..at].iter().map(|role| role.size).sum();
                let role = &self.gang.roles[at];
                (role.name.as_str(), role.size, self.gang.size + before)
            }
        };
        set(env, "PHALANX_ROLE", name);
        set(env, "PHALANX_ROLE_RANK", rank - first);
        set(env, "PHALANX_ROLE_SIZE", size);
    }

    fn devices(&self, rank: u32, env: &mut Env) {
        let Some((slot, node)) = self.slot_and_node(rank) else { return };
        env.extend(visible_devices(node, slot.devices));
    }

    /// Memory of the one device of a slot; 0 where it is not known.
    fn device_bytes(&self, slot: &phalanx_model::Slot) -> u64 {
        let devices = self.nodes.get(&slot.node).map(|node| &node.machine.devices);
        let first = slot.devices.iter().next().and_then(|at| devices?.get(at as usize));
        first.map_or(0, |device| device.memory_bytes)
    }

    /// What a rank with a part of a device may use of it. A share is kept to its part by MPS, where the host runs it;
    /// which slice of a cut device it has, only its profile and first memory slice say.
    fn part(&self, rank: u32, env: &mut Env) {
        let Some(slot) = self.placement.slots.get(rank as usize) else { return };
        match (&slot.part, &self.needs(rank).part) {
            (Some(DevicePart::Share), Some(PartNeed::Share { compute_milli, memory_bytes, .. })) => {
                if *compute_milli > 0 {
                    set(env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", (compute_milli / 10).clamp(1, 100));
                }
                let bytes = PartNeed::share_bytes(*compute_milli, *memory_bytes, self.device_bytes(slot));
                if bytes > 0 {
                    // The one device that it sees, in MiB.
                    let mib = (bytes >> 20).max(1);
                    set(env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", format_args!("0={mib}M"));
                }
            }
            (Some(DevicePart::Slice { profile, start }), _) => {
                set(env, "PHALANX_MIG_PROFILE", profile);
                set(env, "PHALANX_MIG_START", start);
            }
            _ => {}
        }
    }

    /// Only what is known: the loopback interface where every rank is on this host, and the InfiniBand NICs
    /// next to a rank's devices where they were found here.
    fn nccl(&self, rank: u32, env: &mut Env) {
        let all_local = self.placement.slots.iter().all(|s| {
            self.nodes.get(&s.node).is_some_and(|n| n.address.starts_with("127.") || n.address == "localhost")
        });
        if all_local && self.placement.slots.len() > 1 {
            set(env, "NCCL_SOCKET_IFNAME", "lo");
        }
        let Some((slot, node)) = self.slot_and_node(rank) else { return };
        if node.machine.origin != Origin::Found {
            return;
        }
        let near = near_nics(node, slot.devices);
        if !near.is_empty() {
            set(env, "NCCL_IB_HCA", near.join(","));
        }
    }

    /// As torchrun would set them for each of its workers: one process per rank.
    fn torch(&self, rank: u32, env: &mut Env) {
        let place = self.place(rank);
        set(env, "RANK", rank);
        set(env, "WORLD_SIZE", self.gang.size);
        set(env, "LOCAL_RANK", place.local_rank);
        set(env, "LOCAL_WORLD_SIZE", place.local_size);
        set(env, "GROUP_RANK", place.node_rank);
        set(env, "GROUP_WORLD_SIZE", self.hosts().len());
        set(env, "ROLE_RANK", rank);
        set(env, "ROLE_WORLD_SIZE", self.gang.size);
        set(env, "ROLE_NAME", "default");
        set(env, "TORCHELASTIC_RUN_ID", self.job.id);
        set(env, "TORCHELASTIC_RESTART_COUNT", self.number.saturating_sub(1));
        set(env, "TORCHELASTIC_MAX_RESTARTS", self.job.policy.retry.max);
        self.master(env);
    }

    /// Members of a role are no part of the world, and are told where it meets.
    fn beside(&self, env: &mut Env) {
        match self.gang.program.launch {
            LaunchKind::Jax => self.coordinator(env),
            LaunchKind::Ranks => {
                set(env, "WORLD_SIZE", self.gang.size);
                self.master(env);
            }
            _ => self.master(env),
        }
    }

    /// One agent per node: torchrun reads its flags' defaults from `PET_*` and sets the rest itself.
    fn torchrun(&self, rank: u32, env: &mut Env) {
        let per_node = self.ranks_per_node();
        let nodes = self.gang.size;
        for (plain, flag, value) in [
            ("NODE_RANK", "PET_NODE_RANK", rank),
            ("NNODES", "PET_NNODES", nodes),
            ("NPROC_PER_NODE", "PET_NPROC_PER_NODE", per_node),
        ] {
            set(env, plain, value);
            set(env, flag, value);
        }
        self.master(env);
        set(env, "PET_MASTER_ADDR", self.master_address());
        set(env, "PET_MASTER_PORT", self.master_port);
        set(env, "PET_RDZV_ID", self.job.id);
    }

    fn jax(&self, rank: u32, env: &mut Env) {
        self.coordinator(env);
        set(env, "JAX_PROCESS_ID", rank);
    }

    fn coordinator(&self, env: &mut Env) {
        set(env, "JAX_COORDINATOR_ADDRESS", format_args!("{}:{}", self.master_address(), self.master_port));
        set(env, "JAX_NUM_PROCESSES", self.gang.size);
    }

    /// The launcher finds its hosts: Open MPI 4 and 5 read a default host file from these.
    fn mpi(&self, env: &mut Env) {
        let hostfile = self.dir.join("hostfile");
        set(env, "OMPI_MCA_orte_default_hostfile", hostfile.display());
        set(env, "PRTE_MCA_prte_default_hostfile", hostfile.display());
    }

    fn master(&self, env: &mut Env) {
        set(env, "MASTER_ADDR", self.master_address());
        set(env, "MASTER_PORT", self.master_port);
    }

    fn master_address(&self) -> &str {
        self.slot_and_node(0).map_or("127.0.0.1", |(_, node)| node.address.as_str())
    }

    fn slot_and_node(&self, rank: u32) -> Option<(&Slot, &Node)> {
        let slot = self.placement.slots.get(rank as usize)?;
        Some((slot, self.nodes.get(&slot.node)?))
    }

    /// The nodes of the gang itself, those of its roles not counted.
    fn hosts(&self) -> Vec<(&NodeName, Vec<u32>)> {
        self.hosts_of(|slot| slot.rank < self.gang.size)
    }

    /// The nodes in order of their first rank, with their members.
    fn hosts_of(&self, is_wanted: impl Fn(&Slot) -> bool) -> Vec<(&NodeName, Vec<u32>)> {
        let mut hosts: Vec<(&NodeName, Vec<u32>)> = Vec::new();
        for slot in self.placement.slots.iter().filter(|slot| is_wanted(slot)) {
            match hosts.iter_mut().find(|(name, _)| **name == slot.node) {
                Some((_, ranks)) => ranks.push(slot.rank),
                None => hosts.push((&slot.node, vec![slot.rank])),
            }
        }
        hosts
    }

    /// Nodes are numbered from that of rank 0 on; on a node, members of one role are counted by themselves.
    fn place(&self, rank: u32) -> Place {
        let role = self.gang.role_of(rank);
        for (node_rank, (_, mut ranks)) in self.hosts_of(|_| true).into_iter().enumerate() {
            ranks.retain(|other| self.gang.role_of(*other) == role);
            if let Some(local_rank) = ranks.iter().position(|r| *r == rank) {
                return Place { node_rank, local_rank, local_size: ranks.len() };
            }
        }
        Place { node_rank: 0, local_rank: 0, local_size: 1 }
    }

    /// Processes that a launcher starts on each node: as the job says, else one per device.
    fn ranks_per_node(&self) -> u32 {
        let said = self.gang.program.env.get(phalanx_spec::RANKS_PER_NODE_ENV).and_then(|n| n.parse().ok());
        said.unwrap_or(self.gang.needs.devices).clamp(1, RANKS_PER_NODE_MAX)
    }

    /// Processes of one member that MPI counts.
    fn processes_per_member(&self) -> usize {
        match self.gang.program.launch {
            // Members are nodes: the launcher starts one process per device.
            LaunchKind::Mpi => self.ranks_per_node() as usize,
            _ => 1,
        }
    }

    /// Slots of a host: processes that MPI may start there.
    fn mpi_slots(&self) -> Vec<(&str, usize)> {
        let per_member = self.processes_per_member();
        let mut slots: Vec<(&str, usize)> = Vec::new();
        for (node, ranks) in self.hosts() {
            let address = self.nodes.get(node).map_or("127.0.0.1", |n| n.address.as_str());
            let count = ranks.len() * per_member;
            // Declared nodes may share this host: MPI wants each host once.
            match slots.iter_mut().find(|(a, _)| *a == address) {
                Some((_, n)) => *n += count,
                None => slots.push((address, count)),
            }
        }
        slots
    }

    /// `host slots=n` per host.
    pub(crate) fn hostfile(&self) -> String {
        let mut text = String::new();
        for (address, count) in self.mpi_slots() {
            let _ = writeln!(text, "{address} slots={count}");
        }
        text
    }

    /// `rank n=host slot=i`, in rank order, which may go back and forth between hosts.
    pub(crate) fn rankfile(&self) -> String {
        let mut text = String::new();
        let mut used: BTreeMap<&str, usize> = BTreeMap::new();
        let mut rank = 0;
        for slot in self.placement.slots.iter().filter(|slot| slot.rank < self.gang.size) {
            let address = self.nodes.get(&slot.node).map_or("127.0.0.1", |n| n.address.as_str());
            let next = used.entry(address).or_default();
            for _ in 0..self.processes_per_member() {
                let _ = writeln!(text, "rank {rank}={address} slot={next}");
                *next += 1;
                rank += 1;
            }
        }
        text
    }

    /// Where every rank is, for programs that want to know.
    pub(crate) fn topology(&self) -> serde_json::Value {
        let ranks: Vec<serde_json::Value> = self
            .placement
            .slots
            .iter()
            .map(|slot| {
                let node = self.nodes.get(&slot.node);
                let role = self.gang.role_of(slot.rank).and_then(|role| self.gang.roles.get(role));
                serde_json::json!({
                    "rank": slot.rank,
                    "role": role.map_or(MAIN, |role| role.name.as_str()),
                    "node": slot.node,
                    "address": node.map(|n| n.address.as_str()),
                    "path": node.map(|n| &n.path),
                    "devices": slot.devices.iter().collect::<Vec<_>>(),
                    "origin": node.map(|n| n.machine.origin),
                })
            })
            .collect();
        serde_json::json!({
            "version": phalanx_api::protocol::VERSION,
            "job": self.job.id,
            "attempt": self.number,
            "narrowest_level": self.placement.level,
            "ranks": ranks,
        })
    }
}

/// InfiniBand NICs on the same PCIe switch as one of the devices, by the host's own names.
fn near_nics(node: &Node, devices: DeviceMask) -> Vec<String> {
    let near = |nic: u32| {
        devices.iter().any(|d| {
            let kind = node.machine.link(Port::Device(d), Port::Nic(nic));
            matches!(kind, Some(LinkKind::PcieSwitch | LinkKind::PcieBridges))
        })
    };
    (0..)
        .zip(&node.machine.nics)
        .filter(|(i, _)| near(*i))
        .map(|(_, nic)| nic.alias.as_ref().unwrap_or(&nic.name).clone())
        .filter(|name| name.starts_with("mlx") || name.starts_with("ib"))
        .collect()
}

/// By value, so that calls read like assignments.
#[allow(clippy::needless_pass_by_value)]
fn set(env: &mut Env, name: &str, value: impl ToString) {
    env.insert(name.to_owned(), value.to_string());
}

/// The variables by which programs see these devices of a node: by UUID where the devices are found and have one, and by
/// index otherwise.
pub(crate) fn visible_devices(node: &Node, devices: DeviceMask) -> Env {
    let (mut env, machine) = (Env::new(), &node.machine);
    if machine.devices.is_empty() {
        return env;
    }
    let known = devices.iter().filter_map(|i| node.uuids.get(i as usize));
    let uuids: Vec<&str> = known.map(String::as_str).filter(|id| !id.is_empty()).collect();
    let by_uuid = machine.origin == Origin::Found && uuids.len() == devices.count() as usize;
    let indices: Vec<String> = devices.iter().map(|i| i.to_string()).collect();
    let visible = if by_uuid { uuids.join(",") } else { indices.join(",") };
    if machine.links.iter().any(|l| l.kind == LinkKind::Xgmi) {
        set(&mut env, "ROCR_VISIBLE_DEVICES", indices.join(","));
    } else {
        set(&mut env, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
        set(&mut env, "CUDA_VISIBLE_DEVICES", visible);
    }
    env
}

/// The rank of an MPI job that launches: the first of a role without devices that runs what the gang runs, so that
/// every other member is a slot for its processes; else rank 0. `None` where nothing is launched so.
pub(crate) fn launcher(gang: &Gang) -> Option<u32> {
    if gang.program.launch != LaunchKind::Mpi {
        return None;
    }
    let mut first = gang.size;
    for (at, role) in gang.roles.iter().enumerate() {
        let has_devices = role.needs.devices > 0 || role.needs.part.is_some();
        if !has_devices && gang.program_of(Some(at)).launch == LaunchKind::Mpi {
            return Some(first);
        }
        first = first.saturating_add(role.size);
    }
    Some(0)
}

#[cfg(test)]
mod tests;
