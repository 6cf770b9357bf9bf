//! A library of our own in the place of NVIDIA's, which answers from a description. Tests of other crates include this
//! file by its path.
#![allow(dead_code, reason = "not every test that includes this file uses all of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Lives as long as the library is in use.
pub(crate) struct Fake {
    folder: TempDir,
}

/// Why the library cannot be built.
#[derive(Debug)]
pub(crate) enum NoFake {
    /// The host has no C compiler.
    NoCompiler(String),
    /// Anything else, with the compiler's message.
    Failed(String),
}

impl Fake {
    /// Builds it; `None`, and a line that says so, where this host has no compiler.
    pub(crate) fn new(description: &str) -> Option<Self> {
        match Self::build(description) {
            Ok(fake) => Some(fake),
            Err(NoFake::NoCompiler(why)) => {
                println!(
                    "SKIPPED: the C compiler `cc` cannot be started, so there is no library to read: {why}"
                );
                None
            }
            Err(NoFake::Failed(why)) => panic!("{why}"),
        }
    }

    pub(crate) fn build(description: &str) -> Result<Self, NoFake> {
        let failed = |e: std::io::Error| NoFake::Failed(format!("the library cannot be built: {e}"));
        let fake = Self { folder: TempDir::new().map_err(failed)? };
        let told = fake.folder.path().join("description");
        fake.replace(description).map_err(failed)?;
        let source = fake.folder.path().join("fake_nvml.c");
        std::fs::write(&source, include_str!("../fake_nvml.c")).map_err(failed)?;
        let lacks = description.lines().filter_map(|line| line.strip_prefix("lacks "));
        let renamed = lacks.flat_map(str::split_whitespace).map(|name| format!("-D{name}=lacks_{name}"));
        let cc = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
            .arg(fake.library())
            .arg(format!("-DDESCRIPTION=\"{}\"", told.display()))
            .args(renamed)
            .arg(source)
            .output()
            .map_err(|e| match e.kind() {
                std::io::ErrorKind::NotFound => NoFake::NoCompiler(e.to_string()),
                _ => failed(e),
            })?;
        if cc.status.success() {
            return Ok(fake);
        }
        Err(NoFake::Failed(format!("cc: {}: {}", cc.status, String::from_utf8_lossy(&cc.stderr).trim())))
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.folder.path().join("libnvidia-ml.so.1")
    }

    /// The same library with another description, also for those that have it open. The new file replaces the old one
    /// in one step, so that no call reads half of it.
    pub(crate) fn describe(&self, description: &str) {
        self.replace(description).unwrap();
    }

    fn replace(&self, description: &str) -> std::io::Result<()> {
        let next = self.folder.path().join("description.next");
        std::fs::write(&next, description)?;
        std::fs::rename(next, self.folder.path().join("description"))
    }
}

/// Machines of fixtures/live, each of another kind.
pub(crate) const MACHINES: [&str; 6] = [
    "h100-nvswitch-8.txt",
    "h100-lost-nvlink-8.txt",
    "gb200-tray-4.txt",
    "a100-mig-4.txt",
    "v100-old-driver-4.txt",
    "a6000-bridged-3-of-4.txt",
];

/// A machine of fixtures/live.
pub(crate) fn description(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/live").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
