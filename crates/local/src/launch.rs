//! From a placement to members that a shim can hold: files, ports, secrets, limits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::unistd::geteuid;
use phalanx_model::{GangId, Job, JobId, MemberId, Node, NodeName, Owner, Placement, SecretSource, Slot};
use phalanx_node::{IsolationChoice, MemberSpec, Secret, THIS_PROGRAM};

use crate::Paths;
use crate::endpoints;
use crate::env::{Attempt, CHECKPOINTED, launcher};
use crate::limits::Limits;
use crate::progress;
use crate::share::{self, RankLimits};
use crate::terminal;
use crate::user::Account;
use phalanx_node::file;

/// What a rank leaves behind when it ends gets SIGTERM, and this long to go.
const LEFTOVER_GRACE_MS: u64 = 2_000;

/// Everything about one attempt that its members share; written to disk, so that a successor of this daemon
/// starts a missing member just as this one would have.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) job: Job,
    pub(crate) gang: GangId,
    pub(crate) attempt: u32,
    pub(crate) placement: Placement,
    pub(crate) gate_deadline_ms: u64,
    /// The owner's account. It is looked up just before the start, and empty until then.
    pub(crate) account: Account,
}

/// Makes the folder and the files that the ranks read.
pub(crate) fn prepare(paths: &Paths, start: &Start, nodes: &BTreeMap<NodeName, Node>) -> io::Result<u16> {
    let dir = paths.attempt(start.gang, start.attempt);
    make_dir(&dir, 0o755)?;
    let master_port = port_of(&dir)?;
    let Some(attempt) = attempt(paths, start, nodes, &dir, master_port) else { return Ok(master_port) };
    if attempt.gang.program.terminal {
        let member = MemberId { gang: start.gang, attempt: start.attempt, rank: 0 };
        terminal::make_dir(&paths.terminals(member), start.job.owner.uid, start.job.owner.gid)?;
    }
    make_touchable(&dir.join(CHECKPOINTED), &start.job.owner)?;
    for rank in 0..attempt.gang.size {
        make_touchable(&dir.join(progress::file_of(rank)), &start.job.owner)?;
    }
    fs::OpenOptions::new().append(true).create(true).open(dir.join(progress::CHECKPOINT_EVERY))?;
    if start.job.turn.service.is_some() {
        make_touchable(&dir.join(endpoints::FILE), &start.job.owner)?;
    }
    fs::write(dir.join("hostfile"), attempt.hostfile())?;
    fs::write(dir.join("rankfile"), attempt.rankfile())?;
    fs::write(dir.join("topology.json"), attempt.topology().to_string())?;
    Ok(master_port)
}

/// An empty file of the owner's that was touched long ago; left alone where it is. It appears whole: one that was just
/// made would say that work was just saved.
fn make_touchable(path: &Path, owner: &Owner) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    let next = path.with_added_extension("next");
    let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&next)?;
    file.set_modified(SystemTime::UNIX_EPOCH)?;
    if geteuid().is_root() {
        fchown(&file, Some(owner.uid), Some(owner.gid))?;
    }
    fs::rename(next, path)
}

fn attempt<'a>(
    paths: &'a Paths,
    start: &'a Start,
    nodes: &'a BTreeMap<NodeName, Node>,
    dir: &'a Path,
    master_port: u16,
) -> Option<Attempt<'a>> {
    let gang = start.job.gang_at(start.gang.index)?;
    let (job, placement, number, index) = (&start.job, &start.placement, start.attempt, start.gang.index);
    let (state, home) = (paths.root(), &*start.account.home);
    Some(Attempt { job, gang, placement, index, number, nodes, master_port, dir, state, home })
}

/// One port per attempt, the same after a restart of the daemon: the one in the file, or a free one.
fn port_of(dir: &Path) -> io::Result<u16> {
    let file = dir.join("master_port");
    if let Some(port) = fs::read_to_string(&file).ok().and_then(|t| t.trim().parse().ok()) {
        return Ok(port);
    }
    let port = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr()?.port();
    fs::write(file, port.to_string())?;
    Ok(port)
}

/// How this daemon starts ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Means<'a> {
    pub(crate) isolation: &'a IsolationChoice,
    pub(crate) shim_exe: &'a Path,
    pub(crate) limits: &'a Limits,
}

/// What the shim of one rank is told. `None` for a rank that the placement does not have.
pub(crate) fn member_spec(
    paths: &Paths,
    start: &Start,
    nodes: &BTreeMap<NodeName, Node>,
    master_port: u16,
    rank: u32,
    by: &Means<'_>,
) -> Option<MemberSpec> {
    let dir = paths.attempt(start.gang, start.attempt);
    let attempt = attempt(paths, start, nodes, &dir, master_port)?;
    let (gang, owner) = (attempt.gang, &start.job.owner);
    let program = attempt.program(rank);
    let slot = start.placement.slots.get(rank as usize)?.clone();
    let member = MemberId { gang: start.gang, attempt: start.attempt, rank };
    let holds_slots = rank < gang.size && launcher(gang).is_some_and(|launcher| launcher != rank);
    let argv = if holds_slots {
        placeholder()
    } else if terminal::rank(gang) == Some(rank) {
        terminal::of_rank(&paths.terminals(member), program.argv.clone())
    } else {
        program.argv.clone()
    };
    let ports = attempt.rendezvous_port().filter(|_| rank == 0).into_iter().collect();
    let secrets = program.secrets.iter().map(|(name, source)| Secret {
        name: name.clone(),
        path: match source {
            SecretSource::Submitted => paths.secrets(start.job.id).join(name),
            SecretSource::File(path) => PathBuf::from(path),
        },
    });
    let mut env = attempt.env(rank);
    // For `tell`; no search path of a job is ours to choose.
    env.entry("PHALANX_EXE".to_owned()).or_insert_with(|| by.shim_exe.display().to_string());
    let share = limits_of(&attempt, rank, by.limits);
    Some(MemberSpec {
        member,
        token: token(paths, member),
        argv,
        env,
        workdir: PathBuf::from(&program.workdir),
        uid: owner.uid,
        gid: owner.gid,
        groups: start.account.groups.clone(),
        log_path: paths.log(member),
        gate_deadline_ms: start.gate_deadline_ms,
        ports,
        secrets: secrets.collect(),
        rdma: program.rdma,
        cpus: Vec::new(),
        cpu_milli: share.cpu_milli,
        cpu_weight: share.cpu_weight,
        memory_bytes: share.memory_bytes,
        pids_max: share.pids,
        pids_of_user: share.pids_of_user,
        pids_of_all: share.pids_of_all,
        term_grace_ms: LEFTOVER_GRACE_MS,
        umask: program.umask,
        isolation: by.isolation.clone(),
        log_bytes_max: None,
        slot: Some(slot),
    })
}

/// What a rank may take. A launcher starts the processes of all slots that other ranks hold for it.
fn limits_of(attempt: &Attempt<'_>, rank: u32, limits: &Limits) -> RankLimits {
    let launches = launcher(attempt.gang) == Some(rank);
    let is_held = |slot: &&Slot| slot.rank == rank || (launches && slot.rank < attempt.gang.size);
    let machine = |slot: &Slot| attempt.nodes.get(&slot.node).map(|node| &*node.machine);
    let held: Vec<_> = attempt
        .placement
        .slots
        .iter()
        .filter(is_held)
        .filter_map(|slot| Some((slot, attempt.needs(slot.rank), machine(slot)?)))
        .collect();
    // A daemon of an ordinary user serves nobody from whom memory could be taken.
    let memory_share_percent = if geteuid().is_root() { limits.memory_share_percent } else { 0 };
    share::of_rank(&Limits { memory_share_percent, ..*limits }, &held, share::kernel_pids())
}

/// A rank that only holds its slots while the launcher runs.
fn placeholder() -> Vec<String> {
    vec![THIS_PROGRAM.to_owned(), "__hold".to_owned()]
}

/// Unique on this machine.
fn token(paths: &Paths, member: MemberId) -> String {
    let MemberId { gang, attempt, rank } = member;
    format!("{}-{}-{}-{attempt}-{rank}", mark(paths), gang.job, gang.index)
}

/// Tells the cgroups of daemons with different state folders apart.
pub(crate) fn mark(paths: &Paths) -> String {
    let root = paths.root().as_os_str().as_encoded_bytes();
    // FNV-1a.
    let hash = root
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    format!("{:08x}", hash >> 32)
}

/// Secret values that came with a submission, each in a file that only the owner reads. They are durable before the
/// submission is acknowledged, as the job in the journal is: the client forgets them then.
pub(crate) fn keep_secrets(paths: &Paths, job: &Job, secrets: &BTreeMap<String, String>) -> io::Result<()> {
    if secrets.is_empty() {
        return Ok(());
    }
    let dir = paths.secrets(job.id);
    make_dir(&dir, 0o711)?;
    for (name, value) in secrets {
        file::write(&dir.join(name), value.as_bytes(), 0o400, Some(&job.owner))?;
    }
    // The names of the folders that this may have made.
    file::sync_dir(&paths.all_secrets())?;
    file::sync_dir(paths.root())
}

/// After a crash: secrets of jobs that have ended, or that were never taken, are of no use.
pub(crate) fn forget_secrets_but(paths: &Paths, wanted: &BTreeSet<JobId>) {
    let Ok(kept) = fs::read_dir(paths.all_secrets()) else { return };
    let job = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok().map(JobId);
    kept.flatten().filter_map(job).filter(|id| !wanted.contains(id)).for_each(|id| forget_secrets(paths, id));
}

pub(crate) fn forget_secrets(paths: &Paths, job: JobId) {
    // Nothing there is the usual case.
    let _ = fs::remove_dir_all(paths.secrets(job));
}

/// A folder and its parents, passable for the owner of a job, whatever the umask.
pub(crate) fn make_dir(dir: &Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(dir)?;
    fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(mode))
}
