//! The cgroups of one member, over every hierarchy.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{CPU_WEIGHT_MAX, Controller, Limits};
use crate::processes::{self, Process};

/// The period over which CPU time is limited, in microseconds: the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;
/// The kernel's least quota of a period, in microseconds.
const CPU_QUOTA_US_MIN: u64 = 1_000;
/// The default weight of a group in v2, the same in v1, and the least of v1.
const V2_WEIGHT: u64 = 100;
const V1_SHARES: u64 = 1_024;
const V1_SHARES_MIN: u64 = 2;
/// How deep groups that the member made inside its own are followed.
const DEPTH_MAX: u32 = 32;

/// The cgroups of one member; with none, it is held by its process tree alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub v2: Option<PathBuf>,
    pub v2_controllers: BTreeSet<Controller>,
    pub v1: BTreeMap<Controller, PathBuf>,
}

/// The `cgroup.procs` files by which a process joins.
pub(crate) struct Doors {
    pub(crate) must: Vec<File>,
    pub(crate) may: Vec<File>,
}

impl Group {
    /// Makes the groups and sets the limits. What cannot be had is left out of the group, and said in words:
    /// a missing limit never keeps a job from running.
    pub fn create(&mut self, limits: &Limits) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(dir) = self.v2.take_if(|dir| !make(dir, &mut notes)) {
            self.v2_controllers.clear();
            notes.push(format!("cgroup {} cannot be used", dir.display()));
        }
        self.v1.retain(|_, dir| make(dir, &mut notes));
        let quota = limits.cpu_milli.map(|milli| {
            let quota = u128::from(milli) * u128::from(CPU_PERIOD_US) / 1000;
            u64::try_from(quota).unwrap_or(u64::MAX).max(CPU_QUOTA_US_MIN)
        });
        if let Some(pids) = limits.pids_of_all
            && let Err(why) = self.set_above(Controller::Pids, "pids.max", &pids.to_string())
        {
            notes.push(format!("the pids limit of all members is not enforced: {why}"));
        }
        let weight = limits.cpu_weight.map(|weight| weight.clamp(1, CPU_WEIGHT_MAX));
        let settings = [
            (Controller::Cpu, "cpu.max", quota.map(|q| format!("{q} {CPU_PERIOD_US}"))),
            (Controller::Cpu, "cpu.weight", weight.map(|w| w.to_string())),
            (Controller::Memory, "memory.max", limits.memory_bytes.map(|b| b.to_string())),
            (Controller::Pids, "pids.max", limits.pids.map(|p| p.to_string())),
            (Controller::Cpuset, "cpuset.cpus", cpu_list(&limits.cpus)),
        ];
        for (controller, file, value) in settings {
            let Some(value) = value else { continue };
            if let Err(why) = self.set(controller, file, &value) {
                notes.push(format!("the {} limit is not enforced: {why}", controller.word()));
            }
        }
        notes
    }

    fn set(&self, controller: Controller, file: &str, value: &str) -> Result<(), String> {
        if let (Some(dir), true) = (&self.v2, self.v2_controllers.contains(&controller)) {
            // Controllers come down from parent to child.
            for parent in dir.ancestors().skip(1).take(2).collect::<Vec<_>>().into_iter().rev() {
                let _ = put(&parent.join("cgroup.subtree_control"), &format!("+{}", controller.word()));
            }
            return put(&dir.join(file), value).map_err(|e| e.to_string());
        }
        let Some(dir) = self.v1.get(&controller) else {
            // The affinity that every process of the member inherits does the same, only not by force.
            let by_affinity = controller == Controller::Cpuset;
            return if by_affinity {
                Ok(())
            } else {
                Err("this machine has no such cgroup controller".into())
            };
        };
        let shares = || value.parse().map_or(0, |weight: u64| weight.saturating_mul(V1_SHARES) / V2_WEIGHT);
        let (file, value) = match (controller, file) {
            (Controller::Cpu, "cpu.weight") => ("cpu.shares", &*shares().max(V1_SHARES_MIN).to_string()),
            (Controller::Cpu, _) => ("cpu.cfs_quota_us", value.split(' ').next().unwrap_or(value)),
            (Controller::Memory, _) => ("memory.limit_in_bytes", value),
            _ => (file, value),
        };
        put(&dir.join(file), value).map_err(|e| e.to_string())
    }

    /// Sets a limit of the folder that holds the groups of all members.
    fn set_above(&self, controller: Controller, file: &str, value: &str) -> Result<(), String> {
        let v2 = self.v2.as_ref().filter(|_| self.v2_controllers.contains(&controller));
        let above = v2.or_else(|| self.v1.get(&controller)).and_then(|dir| dir.parent());
        let Some(above) = above else { return Err("this machine has no such cgroup controller".into()) };
        if let Some(base) = above.parent().filter(|_| v2.is_some()) {
            let _ = put(&base.join("cgroup.subtree_control"), &format!("+{}", controller.word()));
        }
        put(&above.join(file), value).map_err(|e| e.to_string())
    }

    /// No cgroup holds this member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.v2.is_none() && self.v1.is_empty()
    }

    /// The files to write `0` to, by the process that joins. It must get into those that end it; the limits
    /// are best effort.
    pub(crate) fn doors(&self) -> io::Result<Doors> {
        let open = |dir: &PathBuf| OpenOptions::new().write(true).open(dir.join("cgroup.procs"));
        let mut doors = Doors { must: self.v2.iter().map(open).collect::<Result<_, _>>()?, may: Vec::new() };
        for (controller, dir) in &self.v1 {
            let list = if *controller == Controller::Freezer { &mut doors.must } else { &mut doors.may };
            list.push(open(dir)?);
        }
        Ok(doors)
    }

    /// Puts a living process into the groups.
    ///
    /// # Errors
    /// When a group does not take it.
    pub fn join(&self, process: Process) -> io::Result<()> {
        let doors = self.doors()?;
        for mut door in doors.must.iter().chain(&doors.may) {
            door.write_all(process.pid.to_string().as_bytes())?;
        }
        Ok(())
    }

    /// The living in any of the groups, and in groups made inside them.
    #[must_use]
    pub fn processes(&self) -> BTreeSet<Process> {
        let mut pids = BTreeSet::new();
        for dir in self.dirs() {
            visit(dir, 0, &mut |dir| {
                let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
                pids.extend(text.lines().filter_map(|line| line.trim().parse::<i32>().ok()));
            });
        }
        // 0 stands for a process outside this pid namespace.
        pids.into_iter().filter(|pid| *pid > 0).filter_map(Process::find).collect()
    }

    /// One round of ending every process in the groups. Repeat until [`Group::processes`] is empty.
    pub fn kill(&self) {
        // Since Linux 5.14; atomic against forks.
        let killed = self.v2.as_ref().is_some_and(|dir| put(&dir.join("cgroup.kill"), "1").is_ok());
        let freezer = self.v1.get(&Controller::Freezer).map(|dir| dir.join("freezer.state"));
        if let Some(state) = freezer.as_ref().filter(|_| !killed) {
            let _ = put(state, "FROZEN");
        }
        // Also after cgroup.kill: it passes over a process whose first thread has ended.
        processes::kill_round(|| self.processes());
        if let Some(state) = &freezer {
            // Only now are the signals delivered, also to what the member itself froze.
            let _ = put(state, "THAWED");
        }
    }

    /// How often the kernel ended a process of the group because it ran out of memory.
    #[must_use]
    pub fn oom_kills(&self) -> u64 {
        let v2 = self.v2.as_ref().map(|dir| dir.join("memory.events"));
        let v1 = self.v1.get(&Controller::Memory).map(|dir| dir.join("memory.oom_control"));
        v2.into_iter()
            .chain(v1)
            .filter_map(|file| fs::read_to_string(file).ok())
            .filter_map(|text| {
                text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
            })
            .max()
            .unwrap_or(0)
    }

    /// Removes the groups; their processes must be gone.
    ///
    /// # Errors
    /// When a group is still in use.
    pub fn remove(&self) -> io::Result<()> {
        self.dirs().try_for_each(|dir| remove(dir, 0))
    }

    fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.v2.iter().chain(self.v1.values()).map(PathBuf::as_path)
    }
}

/// Makes a group's folder; false, and a note, when it cannot be made or does not turn into a cgroup.
fn make(dir: &Path, notes: &mut Vec<String>) -> bool {
    let made =
        fs::create_dir_all(dir).and_then(|()| OpenOptions::new().write(true).open(dir.join("cgroup.procs")));
    made.map_err(|e| notes.push(format!("cgroup {}: {e}", dir.display()))).is_ok()
}

/// Writes a control file that the kernel made; never makes one.
fn put(file: &Path, value: &str) -> io::Result<()> {
    let annotate = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", file.display()));
    OpenOptions::new()
        .write(true)
        .open(file)
        .and_then(|mut f| f.write_all(value.as_bytes()))
        .map_err(annotate)
}

fn cpu_list(cpus: &[u32]) -> Option<String> {
    let words: Vec<String> = cpus.iter().map(u32::to_string).collect();
    (!words.is_empty()).then(|| words.join(","))
}

fn subdirs(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}

fn visit(dir: &Path, depth: u32, look: &mut impl FnMut(&Path)) {
    look(dir);
    if depth < DEPTH_MAX {
        subdirs(dir).iter().for_each(|sub| visit(sub, depth + 1, look));
    }
}

fn remove(dir: &Path, depth: u32) -> io::Result<()> {
    if depth < DEPTH_MAX {
        subdirs(dir).iter().try_for_each(|sub| remove(sub, depth + 1))?;
    }
    match fs::remove_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(dir: &Path, files: &[&str]) {
        fs::create_dir_all(dir).unwrap();
        for file in files {
            fs::write(dir.join(file), "").unwrap();
        }
    }

    fn all_limits() -> Limits {
        Limits {
            cpu_milli: Some(1500),
            cpu_weight: Some(1_250),
            memory_bytes: Some(1 << 30),
            pids: Some(64),
            pids_of_all: Some(4_096),
            cpus: vec![0, 2],
        }
    }

    #[test]
    fn v2_limits_are_written_and_controllers_handed_down() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("phalanx/t");
        member(&dir, &["cgroup.procs", "cpu.max", "cpu.weight", "memory.max", "pids.max", "cpuset.cpus"]);
        member(&root.path().join("phalanx"), &["pids.max"]);
        member(root.path(), &["cgroup.subtree_control"]);
        let mut group =
            Group { v2: Some(dir.clone()), v2_controllers: Controller::V2.into(), v1: BTreeMap::new() };
        assert_eq!(group.create(&all_limits()), Vec::<String>::new());
        let read = |file: &str| fs::read_to_string(dir.join(file)).unwrap();
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!(read("memory.max"), "1073741824");
        assert_eq!(read("cpu.weight"), "1250");
        assert_eq!(read("pids.max"), "64");
        assert_eq!(read("../pids.max"), "4096");
        assert_eq!(read("cpuset.cpus"), "0,2");
        let handed = fs::read_to_string(root.path().join("cgroup.subtree_control")).unwrap();
        assert!(handed.contains("+cpuset"), "{handed}");
    }

    #[test]
    fn v1_limits_have_their_own_files() {
        let root = tempfile::tempdir().unwrap();
        let mut group = Group::default();
        for (controller, file) in [
            (Controller::Cpu, "cpu.cfs_quota_us"),
            (Controller::Cpu, "cpu.shares"),
            (Controller::Memory, "memory.limit_in_bytes"),
            (Controller::Pids, "pids.max"),
        ] {
            let dir = root.path().join(controller.word()).join("phalanx/t");
            member(&dir, &["cgroup.procs", file]);
            group.v1.insert(controller, dir);
        }
        member(&root.path().join("pids/phalanx"), &["pids.max"]);
        assert_eq!(group.create(&all_limits()), Vec::<String>::new());
        let read = |file: &str| fs::read_to_string(root.path().join(file)).unwrap();
        assert_eq!(read("cpu/phalanx/t/cpu.cfs_quota_us"), "150000");
        assert_eq!(read("cpu/phalanx/t/cpu.shares"), "12800");
        assert_eq!(read("memory/phalanx/t/memory.limit_in_bytes"), "1073741824");
        assert_eq!([read("pids/phalanx/pids.max"), read("pids/phalanx/t/pids.max")], ["4096", "64"]);
        fs::write(root.path().join("memory/phalanx/t/memory.oom_control"), "oom_kill 3\n").unwrap();
        assert_eq!(group.oom_kills(), 3);
    }

    #[test]
    fn a_limit_that_cannot_be_set_is_a_note_and_no_failure() {
        let notes = Group::default().create(&all_limits());
        assert_eq!(notes.len(), 5, "{notes:?}");
        assert!(notes[1].contains("cpu limit is not enforced"), "{notes:?}");
    }

    #[test]
    fn a_group_that_cannot_be_made_is_left_out() {
        let mut group = Group {
            v2: Some("/proc/none/t".into()),
            v2_controllers: BTreeSet::new(),
            v1: BTreeMap::from([(Controller::Memory, "/proc/none/t".into())]),
        };
        let notes = group.create(&Limits::default());
        assert!(group.is_empty());
        assert_eq!(notes.len(), 3, "{notes:?}");
    }
}
