//! The group of a node in every hierarchy of cgroups, and of what was left by processes that were killed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// How the state folders of control planes begin, and so the names of their groups.
pub(crate) const PREFIX: &str = "phalanx-controlplane-";

/// A group of one node, removed with it.
#[derive(Debug)]
pub(super) struct Cgroup {
    /// From the root of each hierarchy.
    path: String,
    hierarchies: Vec<PathBuf>,
}

impl Cgroup {
    /// For a node of the control plane whose state is in `folder`.
    pub(super) fn create(folder: &Path, node: &str) -> Result<Self, Error> {
        let plane = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let cgroup = Self { path: format!("/{plane}/{node}"), hierarchies: hierarchies() };
        for hierarchy in &cgroup.hierarchies {
            let outer = hierarchy.join(&plane);
            for (parent, group) in [(hierarchy.clone(), outer.clone()), (outer.clone(), outer.join(node))] {
                fs::create_dir_all(&group).map_err(Error::io("create", &group))?;
                inherit(&parent, &group)?;
            }
        }
        Ok(cgroup)
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

/// A group of version 1 begins without CPUs and memory; one of version 2 without controllers.
fn inherit(parent: &Path, group: &Path) -> Result<(), Error> {
    for name in ["cpuset.cpus", "cpuset.mems"] {
        let (from, to) = (parent.join(name), group.join(name));
        if from.exists() && !parent.join("cgroup.controllers").exists() {
            let value = fs::read(&from).map_err(Error::io("read", &from))?;
            fs::write(&to, value).map_err(Error::io("write", &to))?;
        }
    }
    let controllers = group.join("cgroup.controllers");
    if controllers.exists() {
        let has = fs::read_to_string(parent.join("cgroup.controllers")).unwrap_or_default();
        let all: Vec<String> = has.split_whitespace().map(|name| format!("+{name}")).collect();
        for at in [parent, group] {
            let to = at.join("cgroup.subtree_control");
            fs::write(&to, all.join(" ")).map_err(Error::io("write", &to))?;
        }
    }
    Ok(())
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for hierarchy in &self.hierarchies {
            let group = hierarchy.join(self.path.trim_start_matches('/'));
            remove(&group);
            // Stays as long as it has other nodes.
            let _ = group.parent().map(fs::remove_dir);
        }
    }
}

/// Removes the groups of control planes whose folder is gone.
pub(super) fn remove_abandoned() {
    for hierarchy in hierarchies() {
        for group in fs::read_dir(&hierarchy).into_iter().flatten().flatten() {
            let name = group.file_name();
            let is_ours = name.to_string_lossy().starts_with(PREFIX);
            if is_ours && !std::env::temp_dir().join(&name).exists() {
                remove(&group.path());
            }
        }
    }
}

/// From the leaves on. What still has processes stays.
fn remove(group: &Path) {
    for child in fs::read_dir(group).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&child.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// The hierarchies of version 1 that limit something, or the one of version 2 where there are none.
fn hierarchies() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let of = |kind: &str| -> Vec<PathBuf> {
        let mounts = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (path, is) = (words.next()?, words.next()?);
            (is == kind).then(|| PathBuf::from(path))
        });
        mounts.collect()
    };
    let first = of("cgroup");
    if first.is_empty() { of("cgroup2") } else { first }
}
