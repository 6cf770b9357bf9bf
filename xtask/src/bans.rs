//! What lints hold: every crate inherits the workspace's, and the engine has more of its own.

use std::collections::BTreeSet;
use std::path::Path;

use toml::{Table, Value};

use crate::cargo::{CargoError, Workspace, read, read_toml};
use crate::lines::{code_lines, rust_files};
use crate::walls::Breach;

const INHERIT: &str = "every crate inherits the workspace's lints";
const REPEAT: &str = "the engine repeats every root ban";
const ENGINE: &str = "the engine bans clocks, hash order and I/O";
const CRATE_LINTS: &str = "the engine denies floats and forbids unsafe code";
const MODULES: &str = "the engine has no clock, environment, file, thread, process or socket";

/// Clippy bans items and not modules, so the doors to each forbidden module are listed. [`MODULES`] looks for
/// the modules themselves.
const ENGINE_BANS: &[&str] = &[
    "std::collections::HashMap",
    "std::collections::HashSet",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::env::args",
    "std::env::var",
    "std::env::var_os",
    "std::env::vars",
    "std::fs::File",
    "std::fs::OpenOptions",
    "std::fs::read",
    "std::fs::read_to_string",
    "std::fs::write",
    "std::thread::spawn",
    "std::thread::sleep",
    "std::thread::scope",
    "std::thread::Builder",
    "std::process::Command",
    "std::process::exit",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
];
const ENGINE_ATTRIBUTES: &[(&str, &str)] = &[("forbid", "unsafe_code"), ("deny", "clippy::float_arithmetic")];
const BANNED_MODULES: &[&str] = &["time", "env", "fs", "thread", "process", "net", "io", "os", "hash"];

pub(crate) fn check(workspace: &Workspace) -> Result<Vec<Breach>, CargoError> {
    let mut breaches = Vec::new();
    for package in &workspace.packages {
        let inherits = read_toml(&package.manifest)?
            .get("lints")
            .and_then(|lints| lints.get("workspace"))
            .and_then(Value::as_bool)
            .unwrap_or(false);
        if !inherits {
            breaches.push(Breach::new(&package.manifest, INHERIT, "add `[lints] workspace = true`"));
        }
        if package.room() == "engine" {
            breaches.extend(check_clippy(&workspace.root, package.folder())?);
            breaches.extend(check_attributes(&package.folder().join("src/lib.rs"))?);
            breaches.extend(check_modules(&package.folder().join("src"))?);
        }
    }
    Ok(breaches)
}

/// A member's `clippy.toml` replaces the root one, so it has to hold all of it and its own.
fn check_clippy(root: &Path, engine: &Path) -> Result<Vec<Breach>, CargoError> {
    let (root_file, file) = (root.join("clippy.toml"), engine.join("clippy.toml"));
    if !file.exists() {
        return Ok(vec![Breach::new(&file, ENGINE, "the file is missing")]);
    }
    let (root_table, table) = (read_toml(&root_file)?, read_toml(&file)?);
    let mut breaches = Vec::new();
    let (root_bans, bans) = (bans(&root_table), bans(&table));
    for (key, path) in root_bans.difference(&bans) {
        breaches.push(Breach::new(&file, REPEAT, format!("{path} is missing in {key}")));
    }
    for (key, value) in root_table.iter().filter(|(_, value)| !value.is_array()) {
        if table.get(key) != Some(value) {
            breaches.push(Breach::new(&file, REPEAT, format!("{key} is missing, or has another value")));
        }
    }
    let banned: BTreeSet<&str> = bans.iter().map(|(_, path)| path.as_str()).collect();
    for path in ENGINE_BANS.iter().filter(|path| !banned.contains(**path)) {
        breaches.push(Breach::new(&file, ENGINE, format!("{path} is not banned")));
    }
    Ok(breaches)
}

/// `(key, path)` of every entry of every `disallowed-*` list, each a path or a table that has one.
fn bans(table: &Table) -> BTreeSet<(String, String)> {
    let lists = table.iter().filter_map(|(key, value)| Some((key, value.as_array()?)));
    let entries = lists.flat_map(|(key, list)| list.iter().map(move |entry| (key, entry)));
    let path = |entry: &Value| entry.get("path").unwrap_or(entry).as_str().map(str::to_owned);
    entries.filter_map(|(key, entry)| Some((key.clone(), path(entry)?))).collect()
}

fn check_attributes(file: &Path) -> Result<Vec<Breach>, CargoError> {
    let text = read(file)?;
    let has = |level: &str, lint: &str| {
        let lists = text.lines().filter_map(|line| line.strip_prefix("#![")?.strip_prefix(level));
        let lists = lists.filter_map(|list| list.strip_prefix('(')?.strip_suffix(")]"));
        lists.flat_map(|list| list.split(',')).any(|name| name.trim() == lint)
    };
    let missing = ENGINE_ATTRIBUTES.iter().filter(|(level, lint)| !has(level, lint));
    Ok(missing
        .map(|(level, lint)| Breach::new(file, CRATE_LINTS, format!("add `#![{level}({lint})]`")))
        .collect())
}

/// Looks for the words themselves, because lints only see the items that they list.
fn check_modules(src: &Path) -> Result<Vec<Breach>, CargoError> {
    let mut breaches = Vec::new();
    for file in rust_files(src)? {
        let text = read(&file)?;
        for (number, line) in code_lines(&text) {
            for module in BANNED_MODULES.iter().filter(|module| names_module(line, module)) {
                let what = format!("line {number} uses std::{module}");
                breaches.push(Breach::new(&file, MODULES, what));
            }
        }
    }
    Ok(breaches)
}

/// `std::fs`, or `fs` in the braces of `use std::{...}`.
fn names_module(line: &str, module: &str) -> bool {
    let is_word = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let direct = line.split("std::").skip(1);
    if direct.clone().filter_map(|rest| rest.strip_prefix(module)).any(is_word) {
        return true;
    }
    let grouped = direct.filter_map(|rest| rest.strip_prefix('{'));
    grouped
        .flat_map(|list| list.split([',', '{', '}']))
        .any(|item| item.trim().strip_prefix(module).is_some_and(is_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_modules_however_they_are_named() {
        assert!(names_module("let t = std::time::Instant::now();", "time"));
        assert!(names_module("use std::{fmt, fs::File};", "fs"));
        assert!(names_module("use std::env;", "env"));
        assert!(!names_module("use std::{fmt, collections::BTreeMap};", "fs"));
        assert!(!names_module("let path = env!(\"CARGO_PKG_VERSION\");", "env"));
        assert!(!names_module("use std::iter;", "io"));
        assert!(!names_module("std::environment::x()", "env"));
    }
}
