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

impl Fake {
    /// Builds it; `None`, and a line that says so, where this host has no compiler.
    pub(crate) fn new(description: &str) -> Option<Self> {
        let fake = Self { folder: TempDir::new().unwrap() };
        let told = fake.folder.path().join("description");
        fake.describe(description);
        let source = fake.folder.path().join("fake_nvml.c");
        std::fs::write(&source, include_str!("../fake_nvml.c")).unwrap();
        let lacks = description.lines().filter_map(|line| line.strip_prefix("lacks "));
        let renamed = lacks.flat_map(str::split_whitespace).map(|name| format!("-D{name}=lacks_{name}"));
        let cc = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
            .arg(fake.library())
            .arg(format!("-DDESCRIPTION=\"{}\"", told.display()))
            .args(renamed)
            .arg(source)
            .status();
        match cc {
            Err(e) => {
                println!(
                    "SKIPPED: the C compiler `cc` cannot be started, so there is no library to read: {e}"
                );
                None
            }
            Ok(status) => {
                assert!(status.success(), "cc: {status}");
                Some(fake)
            }
        }
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.folder.path().join("libnvidia-ml.so.1")
    }

    /// The same library with another description, also for those that have it open. The new file replaces the old one
    /// in one step, so that no call reads half of it.
    pub(crate) fn describe(&self, description: &str) {
        let next = self.folder.path().join("description.next");
        std::fs::write(&next, description).unwrap();
        std::fs::rename(next, self.folder.path().join("description")).unwrap();
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
