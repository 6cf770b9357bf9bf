//! Each wall is broken on purpose in a small workspace, and has to say so.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::cargo::WASM;
use crate::walls::{Breach, LINES_MAX, check, check_text};
use crate::{cargo, floats};

const LINTS: &str = "[lints]\nworkspace = true\n";
const ENGINE_LIB: &str = "#![forbid(unsafe_code)]\n#![deny(clippy::float_arithmetic)]\npub fn add(a: u64, b: u64) -> u64 {\n    a.wrapping_add(b)\n}\n";

/// A workspace with `model` and `engine`, and the bans of the real one.
fn workspace() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(
        root,
        "Cargo.toml",
        "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n[workspace.lints.rust]\nunsafe_code = \"deny\"\n",
    );
    write(root, "clippy.toml", include_str!("../../clippy.toml"));
    add_crate(root, "model", "", "pub struct Word;\n");
    add_crate(root, "engine", "[dependencies]\nphalanx-model = { path = \"../model\" }\n", ENGINE_LIB);
    write(root, "crates/engine/clippy.toml", include_str!("../../crates/engine/clippy.toml"));
    folder
}

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn add_crate(root: &Path, room: &str, dependencies: &str, lib: &str) {
    let package = format!("[package]\nname = \"phalanx-{room}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    write(root, &format!("crates/{room}/Cargo.toml"), &format!("{package}{LINTS}{dependencies}"));
    write(root, &format!("crates/{room}/src/lib.rs"), lib);
}

/// `file: rule: what` of each breach that needs no build.
fn breaches(folder: &TempDir) -> Vec<String> {
    let workspace = cargo::metadata(folder.path()).unwrap();
    check_text(&workspace).unwrap().iter().map(Breach::to_string).collect()
}

fn assert_one(folder: &TempDir, file: &str, what: &str) {
    let breaches = breaches(folder);
    assert_eq!(breaches.len(), 1, "{breaches:#?}");
    assert!(breaches[0].contains(file) && breaches[0].contains(what), "{breaches:#?}");
}

#[test]
fn a_whole_workspace_has_no_breach() {
    assert_eq!(breaches(&workspace()), Vec::<String>::new());
}

#[test]
fn a_crate_that_uses_what_it_may_not() {
    let folder = workspace();
    let root = folder.path();
    add_crate(root, "checker", "[dependencies]\nphalanx-engine = { path = \"../engine\" }\n", "");
    assert_one(&folder, "crates/checker/Cargo.toml", "checker may not use engine; it may use model");
    add_crate(root, "checker", "[build-dependencies]\nphalanx-engine = { path = \"../engine\" }\n", "");
    assert_one(&folder, "crates/checker/Cargo.toml", "checker may not use engine");
    let target = "[target.'cfg(unix)'.dependencies]\nphalanx-engine = { path = \"../engine\" }\n";
    add_crate(root, "checker", target, "");
    assert_one(&folder, "crates/checker/Cargo.toml", "checker may not use engine");
    add_crate(root, "checker", "", "");
    add_crate(root, "testkit", "", "");
    add_crate(
        root,
        "engine",
        "[dev-dependencies]\nphalanx-testkit = { path = \"../testkit\" }\n",
        ENGINE_LIB,
    );
    assert_eq!(breaches(&folder), Vec::<String>::new(), "tests may use the testkit");
    add_crate(root, "engine", "[dependencies]\nphalanx-testkit = { path = \"../testkit\" }\n", ENGINE_LIB);
    assert_one(&folder, "crates/engine/Cargo.toml", "engine may not use testkit");
}

#[test]
fn tests_of_the_binary_may_start_a_control_plane_and_the_binary_may_not() {
    let folder = workspace();
    let root = folder.path();
    add_crate(root, "controlplane", "", "");
    let own = "phalanx-controlplane = { path = \"../controlplane\" }\n";
    add_crate(root, "cli", &format!("[dev-dependencies]\n{own}"), "");
    assert_eq!(breaches(&folder), Vec::<String>::new());
    add_crate(root, "cli", &format!("[dependencies]\n{own}"), "");
    assert_one(&folder, "crates/cli/Cargo.toml", "cli may not use controlplane");
    add_crate(root, "cli", "", "");
    add_crate(root, "local", &format!("[dev-dependencies]\n{own}"), "");
    assert_one(&folder, "crates/local/Cargo.toml", "local may not use controlplane");
}

#[test]
fn a_crate_that_is_in_no_row() {
    let folder = workspace();
    add_crate(folder.path(), "manager", "", "");
    assert_one(&folder, "crates/manager/Cargo.toml", "phalanx-manager is in no row");
}

#[test]
fn foreign_crates_in_pure_rooms_and_kubernetes_outside_its_room() {
    let folder = workspace();
    add_crate(folder.path(), "engine", "[dependencies]\nrand = \"1\"\n", ENGINE_LIB);
    assert_one(&folder, "crates/engine/Cargo.toml", "phalanx-engine depends on rand; it may use serde");
    add_crate(folder.path(), "engine", "", ENGINE_LIB);
    add_crate(folder.path(), "local", "[dev-dependencies]\nk8s-openapi = \"1\"\n", "");
    assert_one(&folder, "crates/local/Cargo.toml", "only phalanx-kube may");
}

#[test]
fn an_engine_without_its_bans() {
    let folder = workspace();
    let file = "crates/engine/clippy.toml";
    let whole = include_str!("../../crates/engine/clippy.toml");
    let without =
        |word: &str| whole.lines().filter(|line| !line.contains(word)).collect::<Vec<_>>().join("\n");
    write(folder.path(), file, &without("std::time::Instant"));
    assert_one(&folder, file, "std::time::Instant is not banned");
    write(folder.path(), file, &without("set_var"));
    assert_one(&folder, file, "std::env::set_var is missing in disallowed-methods");
    write(folder.path(), file, &without("allow-unwrap"));
    assert_one(&folder, file, "allow-unwrap-in-tests is missing");
    std::fs::remove_file(folder.path().join(file)).unwrap();
    assert_one(&folder, file, "the file is missing");
}

#[test]
fn an_engine_that_lifts_a_lint_or_names_a_module() {
    let folder = workspace();
    let file = "crates/engine/src/lib.rs";
    write(folder.path(), file, "#![forbid(unsafe_code)]\n// #![deny(clippy::float_arithmetic)]\n");
    assert_one(&folder, file, "add `#![deny(clippy::float_arithmetic)]`");
    write(folder.path(), file, &format!("{ENGINE_LIB}// std::fs is far\nuse std::{{fmt, fs}};\n"));
    assert_one(&folder, file, "line 7 uses std::fs");
}

#[test]
fn a_crate_that_does_not_inherit_the_lints() {
    let folder = workspace();
    let package = "[package]\nname = \"phalanx-model\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    write(folder.path(), "crates/model/Cargo.toml", package);
    assert_one(&folder, "crates/model/Cargo.toml", "add `[lints] workspace = true`");
}

#[test]
fn a_file_that_is_too_long() {
    let folder = workspace();
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    // a test\n".repeat(LINES_MAX));
    write(folder.path(), "crates/model/src/lib.rs", &format!("{}{tests}", "// a line\n".repeat(LINES_MAX)));
    assert_eq!(breaches(&folder), Vec::<String>::new(), "tests do not count");
    write(folder.path(), "crates/model/src/deep/long.rs", &"// a line\n".repeat(LINES_MAX + 1));
    assert_one(&folder, "crates/model/src/deep/long.rs", "601 lines");
}

#[test]
fn pure_crates_have_to_build_for_wasm32_without_floats() {
    let folder = workspace();
    let found = || {
        let mut workspace = cargo::metadata(folder.path()).unwrap();
        workspace.target = folder.path().join("target");
        check(&workspace).unwrap().iter().map(Breach::to_string).collect::<Vec<_>>()
    };
    assert_eq!(found(), Vec::<String>::new());
    // Clippy does not run here, so only the reader of the build can see it.
    let half = "#[inline]\npub fn half(a: f64) -> f64 {\n    a * 0.5\n}\n";
    write(folder.path(), "crates/engine/src/lib.rs", &format!("{ENGINE_LIB}{half}"));
    let floats = found();
    assert_eq!(floats.len(), 1, "{floats:#?}");
    assert!(floats[0].contains("half") && floats[0].contains("F64"), "{floats:#?}");
    let unix = "pub fn pid() -> std::os::unix::process::ExitStatusExt { 0 }\n";
    write(folder.path(), "crates/engine/src/lib.rs", ENGINE_LIB);
    add_crate(folder.path(), "cost", "", unix);
    let broken = found();
    assert_eq!(broken.len(), 1, "{broken:#?}");
    assert!(broken[0].starts_with("crates/cost/Cargo.toml: pure crates build for wasm32"), "{broken:#?}");
}

#[test]
fn floats_are_found_by_the_function_that_has_them() {
    let integers = "pub fn sum(a: &[u64]) -> u64 { a.iter().copied().fold(0, u64::wrapping_add) }";
    assert_eq!(floats_in(integers), Vec::<String>::new());
    let mean =
        format!("{integers}\npub fn mean(a: u64, b: u64) -> u64 {{ ((a as f32 + b as f32) / 2.0) as u64 }}");
    let found = floats_in(&mean);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains("mean") && found[0].contains("F32"), "{found:#?}");
}

/// Compiles one file to a library for wasm32 and reads it.
fn floats_in(source: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "lib.rs", source);
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--target", WASM, "--crate-type", "rlib", "--crate-name", "sample"])
        .args(["-C", "link-dead-code", "-o", "libsample.rlib", "lib.rs"])
        .current_dir(folder.path())
        .output()
        .expect("rustc is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let breaches = floats::check(&folder.path().join("libsample.rlib")).unwrap();
    breaches.iter().map(|breach| breach.what.clone()).collect()
}

#[test]
fn a_floor_that_builds_on_one_above_it_is_named() {
    let folder = workspace();
    write(folder.path(), "crates/engine/src/cluster.rs", "use crate::ledger::Ledger;\n");
    write(folder.path(), "crates/engine/src/attic.rs", "use crate::cluster;\n");
    let breaches = check_text(&cargo::metadata(folder.path()).unwrap()).unwrap();
    let said: Vec<String> = breaches.iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|line| line.contains("line 1: cluster must not use ledger")), "{said:?}");
    assert!(said.iter().any(|line| line.contains("attic has no floor")), "{said:?}");
}
