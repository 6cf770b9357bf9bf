//! What cargo knows of the workspace, and the builds that the walls need.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

pub(crate) const WASM: &str = "wasm32-unknown-unknown";
/// Enough of a failed build to find the cause.
const ERROR_LINES_MAX: usize = 40;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CargoError {
    #[error("{program} cannot be started ({source}); install Rust from https://rustup.rs")]
    Start { program: String, source: std::io::Error },
    #[error("cargo metadata failed in {root}: {stderr}")]
    Metadata { root: PathBuf, stderr: String },
    #[error("cargo metadata answered something else than expected: {0}")]
    Answer(String),
    #[error("{path} cannot be read: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} is not TOML: {why}")]
    Toml { path: PathBuf, why: String },
}

/// The workspace's own packages.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) is_dev: bool,
    /// A path inside the workspace, and no foreign crate.
    pub(crate) is_own: bool,
}

impl Package {
    /// The name without the project's prefix, as the table of walls has it.
    pub(crate) fn room(&self) -> &str {
        room(&self.name)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.manifest.parent().unwrap_or(&self.manifest)
    }
}

pub(crate) fn room(package: &str) -> &str {
    package.strip_prefix("phalanx-").unwrap_or(package)
}

impl Workspace {
    /// A target folder of its own, so that these unusual builds push no usual one out.
    fn wasm_target(&self) -> PathBuf {
        self.target.join("walls")
    }

    /// Where [`build_wasm`] leaves a package's library.
    pub(crate) fn wasm_library(&self, package: &str) -> PathBuf {
        let file = format!("lib{}.rlib", package.replace('-', "_"));
        self.wasm_target().join(WASM).join("release").join(file)
    }
}

pub(crate) fn read(path: &Path) -> Result<String, CargoError> {
    std::fs::read_to_string(path).map_err(|source| CargoError::Read { path: path.to_path_buf(), source })
}

pub(crate) fn read_toml(path: &Path) -> Result<toml::Table, CargoError> {
    let toml = |why: toml::de::Error| CargoError::Toml { path: path.to_path_buf(), why: why.to_string() };
    read(path)?.parse().map_err(toml)
}

/// The cargo that runs this program, or the one on the path.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

pub(crate) fn metadata(root: &Path) -> Result<Workspace, CargoError> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|source| CargoError::Start { program: "cargo".to_owned(), source })?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(CargoError::Metadata { root: root.to_path_buf(), stderr });
    }
    let answer = serde_json::from_slice(&output.stdout).map_err(|e| CargoError::Answer(e.to_string()))?;
    workspace(&answer).ok_or_else(|| CargoError::Answer("a field is missing".to_owned()))
}

fn workspace(answer: &Value) -> Option<Workspace> {
    let path = |value: &Value| value.as_str().map(PathBuf::from);
    let mut packages: Vec<Package> =
        answer.get("packages")?.as_array()?.iter().map(package).collect::<Option<_>>()?;
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Some(Workspace {
        root: path(answer.get("workspace_root")?)?,
        target: path(answer.get("target_directory")?)?,
        packages,
    })
}

fn package(value: &Value) -> Option<Package> {
    let dependency = |value: &Value| {
        Some(Dependency {
            name: value.get("name")?.as_str()?.to_owned(),
            is_dev: value.get("kind")?.as_str() == Some("dev"),
            is_own: value.get("path").is_some_and(|path| !path.is_null()),
        })
    };
    Some(Package {
        name: value.get("name")?.as_str()?.to_owned(),
        manifest: PathBuf::from(value.get("manifest_path")?.as_str()?),
        dependencies: value.get("dependencies")?.as_array()?.iter().map(dependency).collect::<Option<_>>()?,
    })
}

/// Builds a package's library for wasm32; the error is what the compiler said.
pub(crate) fn build_wasm(workspace: &Workspace, package: &str) -> Result<(), String> {
    // Functions that nothing calls yet count as well.
    for_wasm(workspace, package, "rustc", &["--", "-C", "link-dead-code"])
}

/// Checks that a package's library is one for wasm32 too.
pub(crate) fn check_wasm(workspace: &Workspace, package: &str) -> Result<(), String> {
    for_wasm(workspace, package, "check", &[])
}

fn for_wasm(workspace: &Workspace, package: &str, verb: &str, more: &[&str]) -> Result<(), String> {
    let output = cargo()
        .args([verb, "--quiet", "--release", "--lib", "--target", WASM, "-p", package])
        .arg("--target-dir")
        .arg(workspace.wasm_target())
        .args(more)
        // Link-time optimisation would leave bitcode in the library, which holds no instructions to read, and
        // optimisation leaves small functions out of it, for the crates that call them to compile.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
        .current_dir(&workspace.root)
        .output()
        .map_err(|error| format!("cargo cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr.lines().take(ERROR_LINES_MAX).collect();
    let hint = format!("is the target installed? `rustup target add {WASM}`");
    Err(format!("cargo {verb} --target {WASM} -p {package} failed ({hint}):\n{}", lines.join("\n")))
}
