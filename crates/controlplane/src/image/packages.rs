//! The contents of images of packages: files of Debian packages that are installed on this machine.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;

use super::archive::{Layer, append_folder, append_link};
use super::{MERGED, printed};

/// What nobody reads in a container.
const PASSED_OVER: [&str; 6] = [
    "/usr/share/bash-completion/",
    "/usr/share/doc/",
    "/usr/share/info/",
    "/usr/share/lintian/",
    "/usr/share/locale/",
    "/usr/share/man/",
];

pub(super) fn append_packages(layer: &mut Layer, paths: &BTreeSet<PathBuf>) -> io::Result<()> {
    for folder in ["usr", "tmp", "proc", "sys", "dev", "etc", "root", "run", "var"] {
        append_folder(layer, folder, 0o755)?;
    }
    for (name, target) in MERGED {
        append_folder(layer, target, 0o755)?;
        append_link(layer, name, target)?;
    }
    for path in paths {
        layer.append_path_with_name(path, path.strip_prefix("/").unwrap_or(path))?;
    }
    // Debian chooses between programs of one name by links that belong to no package.
    for folder in ["/usr/bin", "/usr/sbin"] {
        for entry in fs::read_dir(folder)? {
            let link = entry?.path();
            let is_choice = link.read_link().is_ok_and(|target| target.starts_with("/etc/alternatives"));
            if let Some(chosen) = link.canonicalize().ok().filter(|file| is_choice && paths.contains(file)) {
                let name = link.strip_prefix("/").unwrap_or(&link).display().to_string();
                append_link(layer, &name, &chosen.display().to_string())?;
            }
        }
    }
    Ok(())
}

/// The files and links of packages and of all that they depend on, each by its one path.
pub(super) fn files_of(packages: &[String]) -> Result<BTreeSet<PathBuf>, Error> {
    let mut depends = Command::new("apt-cache");
    depends.args([
        "depends",
        "--recurse",
        "--installed",
        "--no-recommends",
        "--no-suggests",
        "--no-enhances",
    ]);
    depends.args(["--no-conflicts", "--no-breaks", "--no-replaces"]).args(packages);
    let listed = printed("apt-cache", &mut depends)?;
    // A package begins its line; what it depends on is indented, and a name that several provide is in `<>`. One of several that would do is named although it is not there.
    let format = "--showformat=${Package} ${db:Status-Status}\n";
    let known = printed("dpkg-query", Command::new("dpkg-query").args(["--show", format]))?;
    let installed: BTreeSet<&str> =
        known.lines().filter_map(|line| line.strip_suffix(" installed")).collect();
    let all: BTreeSet<&str> = listed.lines().filter(|line| installed.contains(line)).collect();
    if let Some(absent) = packages.iter().find(|package| !all.contains(package.as_str())) {
        return Err(Error::Image { program: "dpkg-query", output: format!("{absent} is not installed") });
    }
    let files = printed("dpkg-query", Command::new("dpkg-query").arg("--listfiles").args(&all))?;
    let mut paths = BTreeSet::new();
    for line in files.lines().filter(|line| line.starts_with('/')) {
        let path = Path::new(line);
        let is_there = path.symlink_metadata().is_ok_and(|file| !file.is_dir());
        if !is_there || PASSED_OVER.iter().any(|folder| line.starts_with(folder)) {
            continue;
        }
        // `/lib/x` is `/usr/lib/x`.
        if let (Some(folder), Some(name)) =
            (path.parent().and_then(|at| at.canonicalize().ok()), path.file_name())
        {
            paths.insert(folder.join(name));
        }
    }
    Ok(paths)
}
