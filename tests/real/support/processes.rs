//! Processes of members, found by the token that each carries.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_node::protocol::{MEMBER_FILE, TOKEN_VARIABLE};

/// Signals a process by its pid.
pub(crate) fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Folders below that hold a member.
pub(crate) fn member_dirs(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(below).into_iter().flatten().flatten();
    for dir in entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()) {
        if dir.join(MEMBER_FILE).exists() {
            found.push(dir);
        } else {
            found.extend(member_dirs(&dir));
        }
    }
    found.sort();
    found
}

/// The token of every member that was ever started, and its folder.
pub(crate) fn tokens(jobs: &Path) -> BTreeMap<String, PathBuf> {
    let token = |dir: &PathBuf| {
        let spec: phalanx_node::MemberSpec =
            serde_json::from_slice(&fs::read(dir.join(MEMBER_FILE)).ok()?).ok()?;
        Some(spec.token)
    };
    member_dirs(jobs).into_iter().filter_map(|dir| Some((token(&dir)?, dir))).collect()
}

/// Living processes (zombies have no environment) by the token they carry.
pub(crate) fn spawned_pids(tokens: &BTreeMap<String, PathBuf>) -> Vec<(String, i32)> {
    let name = format!("{TOKEN_VARIABLE}=");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
        let of_member = environ.split(|b| *b == 0).find_map(|text| {
            let token = std::str::from_utf8(text).ok()?.strip_prefix(&name)?;
            tokens.contains_key(token).then(|| token.to_owned())
        });
        found.extend(of_member.map(|token| (token, pid)));
    }
    found.sort();
    found
}
