//! The walls as data, and the walk along them. Each check names the file and the rule that was broken.

use std::fmt;
use std::path::PathBuf;

use crate::cargo::{self, Workspace};
use crate::{bans, floats, floors, graph, lines};

/// Who may use whom, as in the table of the design. Names are those of the folders in `crates/`.
pub(crate) const MAY_USE: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("account", &["model"]),
    ("health", &["model"]),
    ("spec", &["model"]),
    ("cost", &["model"]),
    ("engine", &["model"]),
    ("checker", &["model"]),
    ("journal", &["model"]),
    ("discover", &["model"]),
    ("scenario", &["model", "spec"]),
    ("sentences", &["model"]),
    ("sim", &["model", "spec", "cost", "engine", "checker", "journal", "discover", "scenario", "sentences"]),
    ("shell", &["model", "account", "health", "engine", "cost", "journal", "sentences"]),
    ("node", &["discover", "model"]),
    ("api", &["model", "account", "health", "spec", "shell"]),
    ("views", &["api", "shell", "model"]),
    ("kube", &["api", "views", "shell", "health", "model", "spec", "discover", "node"]),
    ("local", &["api", "views", "shell", "node", "account", "health", "model", "spec"]),
    ("cli", EVERYTHING_BELOW_CLI),
    ("testkit", &["model", "spec", "engine", "checker", "scenario"]),
    ("controlplane", &[]),
    ("tests", EVERYTHING),
    ("examples", EVERYTHING),
    ("bench", EVERYTHING),
    ("xtask", &[]),
];

/// What tests of a crate may use beside: the binary is run against a real control plane.
pub(crate) const IN_TESTS: &[(&str, &str)] = &[("cli", "controlplane")];

/// All that is below the command line: [`EVERYTHING`] without its last three.
const EVERYTHING_BELOW_CLI: &[&str] = EVERYTHING.split_at(EVERYTHING.len() - 3).0;

/// What only people who test or measure may use: all of it.
const EVERYTHING: &[&str] = &[
    "model",
    "account",
    "health",
    "spec",
    "cost",
    "engine",
    "checker",
    "journal",
    "discover",
    "scenario",
    "sentences",
    "sim",
    "shell",
    "kube",
    "node",
    "api",
    "views",
    "local",
    "cli",
    "testkit",
    "controlplane",
];

/// The pure crates name every foreign crate they use; the others are held by `deny.toml`.
pub(crate) const FOREIGN: &[(&str, &[&str])] = &[
    ("model", &["schemars", "serde", "thiserror"]),
    ("engine", &["serde", "thiserror"]),
    ("cost", &["serde", "thiserror"]),
    ("checker", &["serde", "thiserror"]),
    ("sentences", &[]),
    ("account", &["schemars", "serde"]),
    ("health", &["schemars", "serde"]),
];

/// These live behind the wall of the `kube` crate, for tests as well.
pub(crate) const ONLY_IN_KUBE: &[&str] = &["kube", "kube-core", "kube-client", "kube-runtime", "k8s-openapi"];

/// These have neither clock nor thread nor file, and so build for wasm32.
pub(crate) const PURE: &[&str] = &["model", "account", "engine", "cost", "checker", "sentences", "sim"];

/// Their wasm32 build is read, and may hold no float instruction.
pub(crate) const INTEGERS_ONLY: &[&str] = &["engine", "model"];

/// Lines of a file that are not tests.
pub(crate) const LINES_MAX: usize = 600;

/// Files that were longer when the limit came, with the length they may not outgrow. Only ever shrinks.
pub(crate) const LONGER: &[(&str, usize)] = &[];

/// What broke which rule, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Breach {
    pub(crate) file: PathBuf,
    pub(crate) rule: &'static str,
    pub(crate) what: String,
}

impl Breach {
    pub(crate) fn new(file: impl Into<PathBuf>, rule: &'static str, what: impl Into<String>) -> Self {
        Self { file: file.into(), rule, what: what.into() }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.file.display(), self.rule, self.what)
    }
}

/// Every breach in the workspace, the cheap checks first; the builds only run when those are clean.
///
/// # Errors
/// When cargo or a file cannot be read at all.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<Breach>, cargo::CargoError> {
    let mut breaches = check_text(workspace)?;
    if breaches.is_empty() {
        breaches = check_builds(workspace)?;
    }
    for breach in &mut breaches {
        if let Ok(inside) = breach.file.strip_prefix(&workspace.root) {
            breach.file = inside.to_path_buf();
        }
    }
    breaches.sort();
    Ok(breaches)
}

/// What can be seen without building.
pub(crate) fn check_text(workspace: &Workspace) -> Result<Vec<Breach>, cargo::CargoError> {
    let mut breaches = graph::check(workspace);
    breaches.extend(bans::check(workspace)?);
    breaches.extend(lines::check(workspace)?);
    breaches.extend(floors::check(workspace)?);
    Ok(breaches)
}

/// The pure crates on wasm32, and the engine's code in it.
fn check_builds(workspace: &Workspace) -> Result<Vec<Breach>, cargo::CargoError> {
    let mut breaches = Vec::new();
    for name in PURE {
        let Some(package) = workspace.packages.iter().find(|package| package.room() == *name) else {
            continue;
        };
        let is_read = INTEGERS_ONLY.contains(name);
        let build = if is_read { cargo::build_wasm } else { cargo::check_wasm };
        if let Err(why) = build(workspace, &package.name) {
            breaches.push(Breach::new(&package.manifest, "pure crates build for wasm32", why));
        } else if is_read {
            let library = workspace.wasm_library(&package.name);
            breaches.extend(floats::check(&library)?);
        }
    }
    Ok(breaches)
}
