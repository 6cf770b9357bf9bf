//! Ranks that live though the journal does not say so, because it was lost, overwritten or cut. Their job is taken over
//! from what the history and the folders of the ranks know; else their devices are held as unknown use.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use phalanx_model::{
    DeviceMask, Exit, ForeignUse, GangId, GangRecord, Input, Job, JobId, MemberId, MemberRecord, MemberState,
    NodeName, Phase, Placement, Slot, Timestamp,
};
use phalanx_node::{Inspected, inspect, reap, spec_of};
use phalanx_shell::Recovered;
use tracing::warn;

use crate::Paths;
use crate::clock::{Clock, written_at};
use crate::cluster::Cluster;
use crate::daemon::Daemon;
use crate::logs::numbered;
use crate::record::Recorder;
use phalanx_api::protocol::{GangView, JobRef, JobView};

/// How often ranks of unknown jobs are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Processes that one warning names.
const PIDS_SHOWN: usize = 8;

/// A rank that lives, and of whose job nothing is known.
#[derive(Clone, Debug)]
pub(crate) struct Unknown {
    pub(crate) member: MemberId,
    pid: i32,
    /// What it holds; none if its folder does not say, which an older version left so.
    slot: Option<Slot>,
    cpu_milli: u64,
    memory_bytes: u64,
}

/// Jobs with the records of their gangs.
type Books = BTreeMap<JobId, (Job, Vec<GangRecord>)>;

/// What was found beyond the journal.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) unknown: Vec<Unknown>,
    /// Jobs that the history restored, and jobs whose living ranks were taken over.
    restored: BTreeSet<JobId>,
    taken_over: BTreeSet<JobId>,
}

/// Brings the recovered facts up to what the history and living ranks say. Jobs without a living rank are restored only
/// if the journal `is_lost`, or does not know of living ranks: otherwise it knows them better than the history.
pub(crate) fn take_over(
    paths: &Paths,
    recovered: &mut Recovered,
    recorder: &Recorder,
    cluster: &Cluster,
    clock: &Clock,
    is_lost: bool,
) -> Found {
    let mut books = books(recovered);
    let mut search = Search { paths, recorder, cluster, clock, books: &mut books, found: Found::default() };
    search.look_for_living();
    // A job that was not known to run is a sign of more that is not known.
    if is_lost || !search.found.taken_over.is_empty() {
        search.restore();
    }
    let found = search.found;
    let changed = found.restored.union(&found.taken_over);
    for job in changed.filter_map(|id| books.remove(id)) {
        put(recovered, job);
    }
    found
}

fn books(recovered: &Recovered) -> Books {
    let job = |fact: &Input| match fact {
        Input::JobObserved { job, gangs } => Some((job.id, ((**job).clone(), gangs.clone()))),
        _ => None,
    };
    recovered.facts.iter().filter_map(job).collect()
}

fn put(recovered: &mut Recovered, (job, gangs): (Job, Vec<GangRecord>)) {
    let is_of = |fact: &Input| matches!(fact, Input::JobObserved { job: known, .. } if known.id == job.id);
    recovered.facts.retain(|fact| !is_of(fact));
    recovered.facts.push(Input::JobObserved { job: Box::new(job), gangs });
}

impl Found {
    /// What an operator should know of a lost journal.
    pub(crate) fn summary(&self) -> String {
        let jobs = self.restored.union(&self.taken_over).count();
        format!(
            "{jobs} jobs were restored from the history and from ranks that live; jobs that neither knows are gone. \
             Queues, settings, cordons and windows are those of the journal that is left, or of a first start: \
             apply the queue file again"
        )
    }

    /// The same where the journal itself seemed whole.
    pub(crate) fn surprise(&self) -> Option<String> {
        let jobs: Vec<String> = self.taken_over.iter().map(ToString::to_string).collect();
        (!jobs.is_empty()).then(|| {
            format!(
                "the journal did not know of living ranks of job {}: they were taken over; the journal was cut or is old",
                jobs.join(", ")
            )
        })
    }
}

struct Search<'a> {
    paths: &'a Paths,
    recorder: &'a Recorder,
    cluster: &'a Cluster,
    clock: &'a Clock,
    books: &'a mut Books,
    found: Found,
}

impl Search<'_> {
    /// Jobs as the history last wrote them, where that is more than the books say.
    fn restore(&mut self) {
        let unfinished = self.recorder.unfinished().unwrap_or_else(|e| {
            warn!(error = %e, "the history cannot be read, and restores no jobs");
            Vec::new()
        });
        for view in unfinished {
            if !self.books.contains_key(&view.id)
                && let Some(job) = job_of(&view)
            {
                self.found.restored.insert(view.id);
                self.books.insert(view.id, job);
            }
        }
        let ids: Vec<JobId> = self.books.keys().copied().collect();
        for id in ids {
            let view = self.recorder.find(&JobRef::Id(id)).ok().flatten();
            if let Some(finished) = view.as_ref().filter(|view| view.ending.is_some()).and_then(job_of) {
                if self.books.get(&id).is_some_and(|(_, gangs)| !gangs.iter().all(GangRecord::is_finished)) {
                    self.found.restored.insert(id);
                    self.books.insert(id, finished);
                }
                continue;
            }
            self.catch_up(id, view.as_ref());
        }
    }

    /// Attempts that the books do not know left folders: they are not begun again.
    fn catch_up(&mut self, id: JobId, view: Option<&JobView>) {
        let Some((job, gangs)) = self.books.get(&id).cloned() else { return };
        for record in gangs.iter().filter(|record| !record.is_finished()) {
            let Some(attempt) = self.newest_attempt(record.id).filter(|newest| *newest > record.attempt)
            else {
                continue;
            };
            let known = self.record(&job, record, view, attempt, true);
            let pending = record.is_pending().then(|| GangRecord { attempt, ..record.clone() });
            if let Some(record) = known.or(pending) {
                self.found.restored.insert(id);
                self.replace(record);
            }
        }
    }

    fn newest_attempt(&self, gang: GangId) -> Option<u32> {
        let dir = self.paths.job(gang.job).join(format!("gang-{}", gang.index));
        numbered(&dir, "attempt-").ok()?.into_iter().map(|(_, number)| number).max()
    }

    fn replace(&mut self, record: GangRecord) {
        let gangs = self.books.get_mut(&record.id.job).map(|(_, gangs)| gangs);
        if let Some(known) = gangs.and_then(|gangs| gangs.get_mut(record.id.index as usize)) {
            *known = record;
        }
    }

    fn look_for_living(&mut self) {
        let mut living: BTreeMap<GangId, BTreeMap<u32, Vec<(MemberId, Inspected)>>> = BTreeMap::new();
        for (member, inspected) in members(self.paths) {
            if self.is_held(member) {
                continue;
            }
            if inspected.is_alive {
                living
                    .entry(member.gang)
                    .or_default()
                    .entry(member.attempt)
                    .or_default()
                    .push((member, inspected));
            } else if let Err(e) = reap(&self.paths.member(member)) {
                warn!(%member, error = %e, "processes of a rank are left");
            }
        }
        for (gang, attempts) in living {
            let newest = attempts.keys().max().copied();
            for (attempt, members) in attempts {
                let is_taken = Some(attempt) == newest && self.take_gang(gang, attempt, &members);
                if is_taken {
                    self.found.taken_over.insert(gang.job);
                } else {
                    self.found.unknown.extend(members.into_iter().map(|(member, i)| Unknown::of(member, &i)));
                }
            }
        }
    }

    /// Whether the books say that this member may live.
    fn is_held(&self, member: MemberId) -> bool {
        let gangs = self.books.get(&member.gang.job).map(|(_, gangs)| gangs);
        let record = gangs.and_then(|gangs| gangs.get(member.gang.index as usize));
        record.is_some_and(|record| {
            let state = record.members.get(member.rank as usize).map(|m| &m.state);
            record.holds_capacity()
                && record.attempt == member.attempt
                && state.is_some_and(|state| !matches!(state, MemberState::Exited(_)))
        })
    }

    fn take_gang(&mut self, gang: GangId, attempt: u32, members: &[(MemberId, Inspected)]) -> bool {
        let view = self.recorder.find(&JobRef::Id(gang.job)).ok().flatten();
        let known = self.books.get(&gang.job).cloned();
        let known = known.or_else(|| job_of(view.as_ref().filter(|view| view.ending.is_none())?));
        let Some((job, gangs)) = known else { return false };
        let Some(record) = gangs.get(gang.index as usize).filter(|r| !r.is_finished()) else {
            return false;
        };
        let is_released = members.iter().all(|(_, inspected)| inspected.is_released);
        let newer = record.attempt < attempt || (record.attempt == attempt && record.placement.is_none());
        let record = newer.then(|| self.record(&job, record, view.as_ref(), attempt, is_released)).flatten();
        let Some(record) = record.or_else(|| held_before(&gangs, gang, attempt)) else { return false };
        self.books.entry(gang.job).or_insert((job, gangs));
        self.replace(record);
        members.iter().all(|(member, _)| self.is_held(*member))
    }

    /// The record of a gang in an attempt of which the books do not know. `None` if nothing says what it holds.
    fn record(
        &self,
        job: &Job,
        before: &GangRecord,
        view: Option<&JobView>,
        attempt: u32,
        is_released: bool,
    ) -> Option<GangRecord> {
        let shown = view.and_then(|view| view.gangs.iter().find(|gang| gang.id == before.id));
        let shown = shown.filter(|gang| gang.attempt == attempt && gang.placement.is_some());
        let placement = shown
            .and_then(|gang| gang.placement.clone())
            .or_else(|| self.placement(job, before.id, attempt))?;
        let started = self.started(before.id, attempt);
        let phase = shown.and_then(|gang| gang.phase.clone()).filter(holds_capacity).unwrap_or_else(|| {
            if is_released {
                Phase::Running { since: started }
            } else {
                Phase::Starting { deadline: self.clock.now().plus(job.policy.start_deadline_ms) }
            }
        });
        let state = if is_released { MemberState::Running } else { MemberState::Requested };
        Some(GangRecord {
            phase,
            attempt,
            first_started_at: before.first_started_at.or(Some(started)),
            members: vec![MemberRecord { state }; placement.slots.len()],
            placement: Some(placement),
            reserved: None,
            resize: None,
            saves_every_ms: None,
            moves_to: Vec::new(),
            ..before.clone()
        })
    }

    /// The placement of an attempt, put together from what each of its ranks holds.
    fn placement(&self, job: &Job, gang: GangId, attempt: u32) -> Option<Placement> {
        let count = job.gang_at(gang.index)?.member_count();
        let slot = |rank| spec_of(&self.paths.member(MemberId { gang, attempt, rank })).ok()??.slot;
        let slots: Vec<Slot> = (0..count).map(slot).collect::<Option<_>>()?;
        let nodes = || slots.iter().map(|slot| self.cluster.nodes.iter().find(|node| node.name == slot.node));
        let levels = &self.cluster.map.levels;
        let first = nodes().next()??;
        let shared = |depth: usize| {
            nodes().all(|n| n.is_some_and(|n| n.path.get(..=depth) == first.path.get(..=depth)))
        };
        let level = if slots.iter().all(|slot| slot.node == first.name) {
            levels.node.clone()
        } else {
            let narrowest = levels.above.iter().enumerate().rev().find(|(depth, _)| shared(*depth));
            narrowest.map(|(_, level)| level).or(levels.above.first())?.clone()
        };
        Some(Placement { slots, level })
    }

    /// When an attempt began: its first file was written then.
    fn started(&self, gang: GangId, attempt: u32) -> Timestamp {
        let file = self.paths.attempt(gang, attempt).join("master_port");
        written_at(&file).map_or_else(|| self.clock.now(), |at| self.clock.of_wall(at))
    }
}

const fn holds_capacity(phase: &Phase) -> bool {
    matches!(phase, Phase::Starting { .. } | Phase::Running { .. } | Phase::Stopping { .. })
}

/// The record of a gang that the history has in this attempt.
fn held_before(gangs: &[GangRecord], gang: GangId, attempt: u32) -> Option<GangRecord> {
    let record = gangs.get(gang.index as usize)?;
    (record.attempt == attempt && record.holds_capacity()).then(|| record.clone())
}

/// A job as the history has it.
fn job_of(view: &JobView) -> Option<(Job, Vec<GangRecord>)> {
    let job = (**view.job.as_ref()?).clone();
    let mut gangs: Vec<GangRecord> =
        view.gangs.iter().map(|gang| record_of(view, gang)).collect::<Option<_>>()?;
    if job.turn.array.is_some() {
        gangs = all_tasks(view, &job, gangs);
    }
    (gangs.len() == job.gang_ids().len()).then_some((job, gangs))
}

/// The records of all tasks of an array, of which the history lists a part. The folders say which others have started.
fn all_tasks(view: &JobView, job: &Job, listed: Vec<GangRecord>) -> Vec<GangRecord> {
    let mut listed: BTreeMap<GangId, GangRecord> =
        listed.into_iter().map(|record| (record.id, record)).collect();
    let phase = view.ending.clone().zip(view.finished_at).map(|(ending, at)| Phase::Finished { ending, at });
    let other = |id| {
        let pending = GangRecord::pending(id, view.submitted_at);
        GangRecord { phase: phase.clone().unwrap_or_else(|| pending.phase.clone()), ..pending }
    };
    job.gang_ids().map(|id| listed.remove(&id).unwrap_or_else(|| other(id))).collect()
}

fn record_of(view: &JobView, gang: &GangView) -> Option<GangRecord> {
    let phase = gang.phase.clone()?;
    let members = gang.members.iter().map(|member| MemberRecord {
        state: match member.state.as_str() {
            "requested" => MemberState::Requested,
            "ready" => MemberState::Ready,
            "exited" => MemberState::Exited(Exit {
                detail: member.detail.clone(),
                ..Exit::code(member.exit_code.unwrap_or(0))
            }),
            _ => MemberState::Running,
        },
    });
    let mut record = GangRecord {
        phase,
        attempt: gang.attempt,
        failures: gang.failures,
        first_started_at: view.started_at,
        checkpointed_at: gang.checkpointed_at,
        placement: gang.placement.clone(),
        members: members.collect(),
        reserved: gang.reserved.clone(),
        evicted: gang.evicted.clone(),
        evictions: gang.evictions,
        leaves: gang.leaves.clone(),
        ..GangRecord::pending(gang.id, view.submitted_at)
    };
    if record.is_pending() {
        (record.placement, record.members) = (None, Vec::new());
    }
    Some(record)
}

/// Every member that has not ended, by its folder.
fn members(paths: &Paths) -> Vec<(MemberId, Inspected)> {
    let mut found = Vec::new();
    let list = |dir: &Path, prefix: &str| numbered(dir, prefix).unwrap_or_default();
    for (job_dir, job) in list(&paths.jobs(), "") {
        for (gang_dir, index) in list(&job_dir, "gang-") {
            for (attempt_dir, attempt) in list(&gang_dir, "attempt-") {
                for (dir, rank) in list(&attempt_dir, "rank-") {
                    let member = MemberId { gang: JobId(job.into()).gang(index), attempt, rank };
                    match inspect(&dir) {
                        Ok(inspected) => found.extend(inspected.map(|inspected| (member, inspected))),
                        Err(e) => warn!(%member, error = %e, "a rank cannot be looked at"),
                    }
                }
            }
        }
    }
    found
}

impl Unknown {
    fn of(member: MemberId, found: &Inspected) -> Self {
        let Inspected { spec, shim, .. } = found;
        Self {
            member,
            pid: shim.pid,
            slot: spec.slot.clone(),
            cpu_milli: spec.cpu_milli.unwrap_or(0),
            memory_bytes: spec.memory_bytes.unwrap_or(0),
        }
    }

    fn lives(&self, paths: &Paths) -> bool {
        lives(&paths.member(self.member))
    }
}

/// Whether the rank of a folder lives, or may: what a rank without a shim left is ended first.
pub(crate) fn lives(member: &Path) -> bool {
    match inspect(member) {
        Ok(None) => false,
        Ok(Some(found)) if found.is_alive => true,
        Ok(Some(_)) => reap(member).is_err(),
        Err(_) => true,
    }
}

/// Use that no job of this daemon accounts for, on top of the foreign use of each node that the cluster file declares.
#[derive(Debug, Default)]
pub(crate) struct UnknownUse {
    living: Mutex<Vec<Unknown>>,
    /// Devices of the machine that is found which processes outside of jobs use.
    outsiders: Mutex<Option<(NodeName, DeviceMask)>>,
    /// All devices of each node, and what the cluster file declares busy.
    nodes: BTreeMap<NodeName, (DeviceMask, DeviceMask, ForeignUse)>,
}

impl UnknownUse {
    pub(crate) fn new(cluster: &Cluster, living: Vec<Unknown>) -> Self {
        let node = |node: &phalanx_model::Node| {
            let all = DeviceMask::first(node.machine.device_count());
            (node.name.clone(), (all, node.foreign, node.foreign_use.clone()))
        };
        let nodes = cluster.nodes.iter().map(node).collect();
        Self { living: Mutex::new(living), outsiders: Mutex::default(), nodes }
    }

    fn living(&self) -> MutexGuard<'_, Vec<Unknown>> {
        // What a panicking thread left is still a list.
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outsiders(&self) -> MutexGuard<'_, Option<(NodeName, DeviceMask)>> {
        self.outsiders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the devices that processes outside of jobs use on the machine. Whether they changed.
    pub(crate) fn set_outsiders(&self, node: &NodeName, devices: DeviceMask) -> bool {
        let next = (!devices.is_empty()).then(|| (node.clone(), devices));
        let mut known = self.outsiders();
        let changed = *known != next;
        *known = next;
        changed
    }

    /// The same use as facts for the engine.
    pub(crate) fn facts(&self) -> Vec<Input> {
        let fact = |(node, foreign, foreign_use)| Input::NodeUseObserved { node, foreign, foreign_use };
        self.of_nodes().into_iter().map(fact).collect()
    }

    /// The devices of a node that these ranks hold. One that does not say what it holds may hold any.
    fn devices(living: &[Unknown], node: &NodeName, all: DeviceMask) -> DeviceMask {
        living.iter().fold(DeviceMask::EMPTY, |held, unknown| match &unknown.slot {
            None => all,
            Some(slot) if slot.node == *node => held.union(slot.devices),
            Some(_) => held,
        })
    }

    pub(crate) fn held(&self, node: &NodeName) -> DeviceMask {
        let all = self.nodes.get(node).map_or(DeviceMask::EMPTY, |(all, _, _)| *all);
        Self::devices(&self.living(), node, all)
    }

    /// The foreign use of every node that has some unknown, or had.
    pub(crate) fn of_nodes(&self) -> Vec<(NodeName, DeviceMask, ForeignUse)> {
        let (living, outsiders) = (self.living(), self.outsiders().clone());
        let use_of = |(name, (all, foreign, used)): (&NodeName, &(DeviceMask, DeviceMask, ForeignUse))| {
            let mut used = used.clone();
            let here = living.iter().filter(|u| u.slot.as_ref().is_some_and(|slot| slot.node == *name));
            for unknown in here {
                used.cpu_milli = used.cpu_milli.saturating_add(unknown.cpu_milli);
                used.memory_bytes = used.memory_bytes.saturating_add(unknown.memory_bytes);
            }
            let others = outsiders.as_ref().filter(|(node, _)| node == name).map(|(_, devices)| *devices);
            let foreign = foreign.union(others.unwrap_or(DeviceMask::EMPTY));
            (name.clone(), foreign.union(Self::devices(&living, name, *all)), used)
        };
        self.nodes.iter().map(use_of).collect()
    }

    /// One sentence for each job.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut jobs: BTreeMap<JobId, Vec<i32>> = BTreeMap::new();
        for unknown in self.living().iter() {
            jobs.entry(unknown.member.gang.job).or_default().push(unknown.pid);
        }
        let sentence = |(job, pids): (JobId, Vec<i32>)| {
            let shown: Vec<String> = pids.iter().take(PIDS_SHOWN).map(ToString::to_string).collect();
            let more = if pids.len() > PIDS_SHOWN { ", …" } else { "" };
            format!(
                "unknown use: {} ranks of job {job} live, and neither the journal nor the history knows the job; \
                 their devices are held until they end (`kill -9 {}{more}` ends their shims, and the ranks with them)",
                pids.len(),
                shown.join(" ")
            )
        };
        let outsiders = self.outsiders().as_ref().map(|(node, devices)| {
            format!(
                "GPU {devices} of {node}: processes outside of jobs use its memory; no new job gets it until they end"
            )
        });
        jobs.into_iter().map(sentence).chain(outsiders).collect()
    }

    /// Frees what ranks held that have ended since.
    pub(crate) fn watch(daemon: &std::sync::Arc<Daemon>) -> io::Result<()> {
        if daemon.unknown.living().is_empty() {
            return Ok(());
        }
        Daemon::watch(daemon, "unknown use", LOOK, |daemon| {
            let known = daemon.unknown.living().clone();
            let living: Vec<Unknown> = known.iter().filter(|u| u.lives(&daemon.paths)).cloned().collect();
            let (is_over, changed) = (living.is_empty(), living.len() < known.len());
            *daemon.unknown.living() = living;
            if changed {
                return daemon.engine.report(daemon.unknown.facts()).is_ok() && !is_over;
            }
            !is_over
        })
    }
}
