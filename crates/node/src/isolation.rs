//! What holds a member's processes together, so that its limits bind them and none outlives it.
//!
//! Three kinds, from the best: cgroup v2, cgroup v1, and plain process trees (a subreaper collects them). All
//! groups of a daemon lie in one folder `phalanx` per hierarchy, below the daemon's own group, so that limits
//! set on the daemon's surroundings still bind its members. Under systemd they lie in the group of a unit of their
//! own, which outlives the daemon's.

mod group;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};

pub(crate) use group::Doors;
pub use group::Group;

/// Where systems mount cgroups.
pub const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// The largest weight that the kernel takes.
pub const CPU_WEIGHT_MAX: u64 = 10_000;

/// A cgroup controller that is used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Controller {
    Cpu,
    /// Only asked for in v2; in v1 a process's own affinity does it.
    Cpuset,
    /// A controller of v1 alone; v2 freezes without one.
    Freezer,
    Memory,
    Pids,
}

impl Controller {
    const V1: [Self; 4] = [Self::Cpu, Self::Freezer, Self::Memory, Self::Pids];
    const V2: [Self; 4] = [Self::Cpu, Self::Cpuset, Self::Memory, Self::Pids];

    /// The kernel's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuset => "cpuset",
            Self::Freezer => "freezer",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }
}

/// Limits of one member; `None` sets none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Thousandths of a CPU.
    pub cpu_milli: Option<u64>,
    /// CPU time in proportion to the other members where they compete for it; [`CPU_WEIGHT_MAX`] at most.
    pub cpu_weight: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Processes and threads of all members together.
    pub pids_of_all: Option<u64>,
    /// CPUs it may run on; empty for any.
    pub cpus: Vec<u32>,
}

/// The isolation in force on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// One hierarchy; groups are made in `base`.
    CgroupV2 { base: PathBuf, controllers: BTreeSet<Controller> },
    /// A hierarchy per controller. `unified` is a v2 mount beside them, which has no controllers and can
    /// still end a whole group at once.
    CgroupV1 { hierarchies: BTreeMap<Controller, PathBuf>, unified: Option<PathBuf> },
    /// No cgroups that can be written: the process tree is followed instead, and limits are not enforced.
    ProcessGroups,
}

impl Isolation {
    /// What this process has.
    #[must_use]
    pub fn detect_live() -> Self {
        Self::detect_under(Path::new(CGROUP_ROOT))
    }

    /// What this process has, with members in that group.
    #[must_use]
    pub fn detect_in_live(group: &Path) -> Self {
        Self::detect_in(Path::new(CGROUP_ROOT), &own_text(), group)
    }

    /// What this process has below another mount point.
    #[must_use]
    pub fn detect_under(root: &Path) -> Self {
        Self::detect(root, &own_text())
    }

    /// `root` is where cgroups are mounted; `own` is the text of `/proc/self/cgroup` (cgroups(7)).
    #[must_use]
    pub fn detect(root: &Path, own: &str) -> Self {
        if root.join("cgroup.controllers").exists() {
            return v2_base(root, own_path(own, "")).map_or(Self::ProcessGroups, |base| {
                let controllers = v2_controllers(root, &base);
                Self::CgroupV2 { base, controllers }
            });
        }
        let hierarchies: BTreeMap<Controller, PathBuf> = Controller::V1
            .into_iter()
            .filter_map(|c| Some((c, v1_base(&root.join(c.word()), own_path(own, c.word()))?)))
            .collect();
        let unified = root.join("unified");
        let unified = unified
            .join("cgroup.controllers")
            .exists()
            .then(|| v1_base(&unified, own_path(own, "")))
            .flatten();
        if unified.is_some() || hierarchies.contains_key(&Controller::Freezer) {
            Self::CgroupV1 { hierarchies, unified }
        } else {
            Self::ProcessGroups
        }
    }

    /// In a group that is made for members, by its path below each mount: `/system.slice/phalanx-ranks.service`. A
    /// hierarchy without that group is used as by [`Self::detect`].
    #[must_use]
    pub fn detect_in(root: &Path, own: &str, group: &Path) -> Self {
        let below = |mount: &Path| dir_below(mount, group).filter(|dir| is_writable(dir));
        match Self::detect(root, own) {
            Self::CgroupV1 { mut hierarchies, unified } => {
                for (controller, base) in &mut hierarchies {
                    if let Some(dir) = below(&root.join(controller.word())) {
                        *base = dir;
                    }
                }
                Self::CgroupV1 { hierarchies, unified: below(&root.join("unified")).or(unified) }
            }
            other if root.join("cgroup.controllers").exists() => below(root).map_or(other, |base| {
                let controllers = v2_controllers(root, &base);
                Self::CgroupV2 { base, controllers }
            }),
            other => other,
        }
    }

    /// The group of the member with this token; nothing is made yet.
    #[must_use]
    pub fn group(&self, token: &str) -> Group {
        let place = |base: &Path| base.join("phalanx").join(token);
        match self {
            Self::CgroupV2 { base, controllers } => {
                Group { v2: Some(place(base)), v2_controllers: controllers.clone(), v1: BTreeMap::new() }
            }
            Self::CgroupV1 { hierarchies, unified } => Group {
                v2: unified.as_deref().map(place),
                v2_controllers: BTreeSet::new(),
                v1: hierarchies.iter().map(|(c, base)| (*c, place(base))).collect(),
            },
            Self::ProcessGroups => Group::default(),
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        match self {
            Self::CgroupV2 { controllers, .. } => {
                write!(f, "cgroup v2; limits: {}", list(controllers.iter().map(|c| c.word()).collect()))
            }
            Self::CgroupV1 { hierarchies, unified } => {
                let limits = hierarchies.keys().filter(|c| **c != Controller::Freezer);
                let end = if unified.is_some() { "cgroup.kill" } else { "the freezer" };
                write!(f, "cgroup v1, ended by {end}; limits: {}", list(limits.map(|c| c.word()).collect()))
            }
            Self::ProcessGroups => {
                write!(f, "process groups; limits: none, because no cgroup here can be written")
            }
        }
    }
}

fn own_text() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// This process's path in the hierarchy with that controller, from lines `ID:CONTROLLERS:PATH`; v2 has
/// no controllers there.
fn own_path<'a>(own: &'a str, controller: &str) -> &'a str {
    own.lines()
        .filter_map(|line| line.split_once(':')?.1.split_once(':'))
        .find(|(controllers, _)| controllers.split(',').any(|c| c == controller))
        .map_or("/", |(_, path)| path)
}

fn is_writable(dir: &Path) -> bool {
    dir.join("cgroup.procs").exists() && access(dir, AccessFlags::W_OK).is_ok()
}

/// The own group below `root`, or `root` itself where the own group is not in view (a container).
fn own_dir(root: &Path, own: &str) -> PathBuf {
    let own = Path::new(own.trim_start_matches('/'));
    let climbs = own.components().any(|part| !matches!(part, std::path::Component::Normal(_)));
    let dir = root.join(own);
    if climbs || !dir.is_dir() { root.to_owned() } else { dir }
}

/// A group by its path below a mount, where it is in view.
fn dir_below(mount: &Path, group: &Path) -> Option<PathBuf> {
    Some(own_dir(mount, &group.to_string_lossy())).filter(|dir| dir != mount)
}

fn v1_base(root: &Path, own: &str) -> Option<PathBuf> {
    [own_dir(root, own), root.to_owned()].into_iter().find(|dir| is_writable(dir))
}

/// Only a group without processes can give controllers to its children (the root is exempt). So a daemon in
/// a group of its own, as systemd makes with `DelegateSubgroup=`, has its members beside it, and only where
/// that cannot be, below it and without limits.
fn v2_base(root: &Path, own: &str) -> Option<PathBuf> {
    let own = own_dir(root, own);
    let is_free = |dir: &Path| {
        dir == root || fs::read_to_string(dir.join("cgroup.procs")).is_ok_and(|pids| pids.trim().is_empty())
    };
    let beside = if own == root { None } else { own.parent().map(Path::to_owned).filter(|dir| is_free(dir)) };
    beside.into_iter().chain([own]).find(|dir| is_writable(dir))
}

fn v2_controllers(root: &Path, base: &Path) -> BTreeSet<Controller> {
    let has_processes = base != root
        && fs::read_to_string(base.join("cgroup.procs")).is_ok_and(|pids| !pids.trim().is_empty());
    let file = if has_processes { "cgroup.subtree_control" } else { "cgroup.controllers" };
    let words = fs::read_to_string(base.join(file)).unwrap_or_default();
    Controller::V2
        .into_iter()
        .filter(|c| words.split_ascii_whitespace().any(|word| word == c.word()))
        .collect()
}

/// Moves what runs in a group of cgroup v2 into a group inside of it: only a group without processes of its own gives
/// controllers to its children.
///
/// # Errors
/// When the group is in no hierarchy, or takes no groups inside of it.
pub fn make_room(root: &Path, group: &Path) -> io::Result<()> {
    let mounts = [root.to_owned(), root.join("unified")]
        .into_iter()
        .chain(Controller::V1.into_iter().map(|controller| root.join(controller.word())));
    let dirs: Vec<PathBuf> = mounts.filter_map(|mount| dir_below(&mount, group)).collect();
    if dirs.is_empty() {
        let what = format!("no cgroup {} below {}", group.display(), root.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    }
    let v2 = dirs.into_iter().find(|dir| dir.join("cgroup.controllers").exists());
    let Some(dir) = v2 else { return Ok(()) };
    let pids = fs::read_to_string(dir.join("cgroup.procs"))?;
    if pids.trim().is_empty() {
        return Ok(());
    }
    let inner = dir.join("holder");
    match fs::create_dir(&inner) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    // One that ended meanwhile needs no room.
    pids.lines().for_each(|pid| drop(fs::write(inner.join("cgroup.procs"), pid)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "9:name=systemd:/\n4:memory:/box/7\n3:cpu,cpuacct:/\n1:freezer:/\n0::/\n";

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn v2_is_beside_the_daemon_when_that_group_is_free() {
        let root = tree(&[
            ("cgroup.controllers", "cpu memory pids io"),
            ("cgroup.procs", "1\n"),
            ("a/cgroup.procs", ""),
            ("a/cgroup.controllers", "memory pids"),
            ("a/daemon/cgroup.procs", "77\n"),
            ("a/daemon/cgroup.subtree_control", ""),
        ]);
        let found = Isolation::detect(root.path(), "0::/a/daemon\n");
        let controllers = BTreeSet::from([Controller::Memory, Controller::Pids]);
        assert_eq!(found, Isolation::CgroupV2 { base: root.path().join("a"), controllers });
        assert_eq!(found.to_string(), "cgroup v2; limits: memory, pids");
        assert_eq!(found.group("t").v2, Some(root.path().join("a/phalanx/t")));
    }

    #[test]
    fn v2_below_a_daemon_whose_parent_is_in_use_has_no_limits() {
        let root = tree(&[
            ("cgroup.controllers", "memory"),
            ("cgroup.procs", "1\n"),
            ("a/cgroup.procs", "5\n"),
            ("a/daemon/cgroup.procs", "77\n"),
            ("a/daemon/cgroup.controllers", "memory"),
            ("a/daemon/cgroup.subtree_control", ""),
        ]);
        let found = Isolation::detect(root.path(), "0::/a/daemon\n");
        let base = root.path().join("a/daemon");
        assert_eq!(found, Isolation::CgroupV2 { base, controllers: BTreeSet::new() });
    }

    #[test]
    fn v1_keeps_to_the_own_group_of_each_hierarchy() {
        let root = tree(&[
            ("freezer/cgroup.procs", ""),
            ("memory/cgroup.procs", ""),
            ("memory/box/7/cgroup.procs", ""),
            ("cpu/cgroup.procs", ""),
            ("unified/cgroup.controllers", ""),
            ("unified/cgroup.procs", ""),
        ]);
        let found = Isolation::detect(root.path(), OWN);
        let group = found.group("t");
        assert_eq!(group.v1[&Controller::Memory], root.path().join("memory/box/7/phalanx/t"));
        assert_eq!(group.v1[&Controller::Cpu], root.path().join("cpu/phalanx/t"));
        assert_eq!(group.v2, Some(root.path().join("unified/phalanx/t")));
        assert_eq!(found.to_string(), "cgroup v1, ended by cgroup.kill; limits: cpu, memory");
    }

    #[test]
    fn a_group_that_is_made_for_members_holds_them() {
        let unit = Path::new("/system.slice/ranks.service");
        let v2 = tree(&[
            ("cgroup.controllers", "memory pids"),
            ("cgroup.procs", "1\n"),
            ("system.slice/ranks.service/cgroup.procs", "70\n71\n"),
            ("system.slice/ranks.service/cgroup.controllers", "memory pids"),
            ("system.slice/daemon.service/cgroup.procs", "77\n"),
        ]);
        let own = "0::/system.slice/daemon.service\n";
        let base = v2.path().join("system.slice/ranks.service");
        make_room(v2.path(), unit).unwrap();
        assert!(base.join("holder/cgroup.procs").exists());
        fs::write(base.join("cgroup.procs"), "").unwrap(); // As the kernel shows it once they moved.
        let controllers = BTreeSet::from([Controller::Memory, Controller::Pids]);
        let found = Isolation::detect_in(v2.path(), own, unit);
        assert_eq!(found, Isolation::CgroupV2 { base, controllers });

        let v1 = tree(&[
            ("freezer/cgroup.procs", ""),
            ("memory/cgroup.procs", ""),
            ("memory/system.slice/ranks.service/cgroup.procs", ""),
        ]);
        let group = Isolation::detect_in(v1.path(), OWN, unit).group("t");
        let memory = v1.path().join("memory/system.slice/ranks.service/phalanx/t");
        assert_eq!(group.v1[&Controller::Memory], memory);
        assert_eq!(group.v1[&Controller::Freezer], v1.path().join("freezer/phalanx/t"));
        make_room(v1.path(), unit).unwrap();

        let why = make_room(v1.path(), Path::new("/system.slice/other.service")).unwrap_err();
        assert!(why.to_string().contains("no cgroup /system.slice/other.service"), "{why}");
        assert!(make_room(v1.path(), Path::new("/../../etc")).is_err());
    }

    #[test]
    fn what_cannot_end_a_group_is_no_isolation() {
        let root = tree(&[("memory/cgroup.procs", "")]);
        assert_eq!(Isolation::detect(root.path(), OWN), Isolation::ProcessGroups);
        assert_eq!(Isolation::detect(&root.path().join("absent"), ""), Isolation::ProcessGroups);
        assert_eq!(Isolation::ProcessGroups.group("t"), Group::default());
    }

    #[test]
    fn a_path_that_climbs_out_is_not_followed() {
        let root = tree(&[("r/freezer/cgroup.procs", ""), ("cgroup.procs", "")]);
        let found = Isolation::detect(&root.path().join("r"), "1:freezer:/../..\n");
        assert_eq!(found.group("t").v1[&Controller::Freezer], root.path().join("r/freezer/phalanx/t"));
    }
}
