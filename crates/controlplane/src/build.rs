//! Programs are built once and kept by version; building takes minutes, and several tests may ask at once.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::program::Source;

/// The end of the compiler's output that an error shows.
const OUTPUT_LINES: usize = 30;

/// The executable of a program, which is built first when it is not there: minutes, once for each version.
///
/// It lies in `$XDG_CACHE_HOME/phalanx/controlplane/NAME-VERSION/NAME` (`~/.cache` where that is not set).
///
/// # Errors
/// When Go is missing, the build fails or the cache cannot be written.
pub fn binary(source: impl Into<Source>) -> Result<PathBuf, Error> {
    let source = source.into();
    let home = cache()?.join(format!("{}-{}", source.name, source.version));
    let executable = home.join(source.name);
    if executable.exists() {
        return Ok(executable);
    }
    fs::create_dir_all(&home).map_err(Error::io("create", &home))?;
    let _lock = locked(&home.join("lock"))?;
    // Whoever held the lock before may have built it.
    if !executable.exists() {
        build(&source, &home)?;
    }
    Ok(executable)
}

/// The CRDs that the training operator needs beside itself, one YAML file each.
pub(crate) fn crds(operator: Source) -> Result<Vec<PathBuf>, Error> {
    let executable = binary(operator)?;
    let folder = executable.with_file_name("crds");
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).map_err(Error::io("read", &folder))? {
        files.push(entry.map_err(Error::io("read", &folder))?.path());
    }
    files.sort();
    Ok(files)
}

/// The folder of this crate in the user's cache.
pub(crate) fn cache() -> Result<PathBuf, Error> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    Ok(caches.ok_or(Error::NoCache)?.join("phalanx/controlplane"))
}

/// An exclusive lock on `path`, waited for, held as long as the value lives.
fn locked(path: &Path) -> Result<File, Error> {
    let file = File::create(path).map_err(Error::io("create", path))?;
    file.lock().map_err(Error::io("lock", path))?;
    Ok(file)
}

fn build(source: &Source, home: &Path) -> Result<(), Error> {
    // Moved into place when it is whole: a build that was cut off must not look like a program.
    let unfinished = home.join(format!("{}.unfinished", source.name));
    eprintln!("building {source} from source, which takes minutes, once");
    // Without symbols.
    let flags = format!("-s -w {}", source.linker_flags);
    go(source, |go| {
        go.args(["build", "-trimpath", "-ldflags", &flags, "-o"]).arg(&unfinished).arg(&source.package)
    })?;
    if let Some(crds) = source.crds {
        keep_crds(source, crds, home)?;
    }
    let executable = home.join(source.name);
    fs::rename(&unfinished, &executable).map_err(Error::io("move into place", &executable))
}

/// Copies the CRDs out of the module's source, which comes with the download.
fn keep_crds(source: &Source, crds: &str, home: &Path) -> Result<(), Error> {
    let folder = go(source, |go| go.args(["list", "-m", "-f", "{{.Dir}}", source.module]))?;
    let from = Path::new(folder.trim()).join(crds);
    let to = home.join("crds");
    fs::create_dir_all(&to).map_err(Error::io("create", &to))?;
    for entry in fs::read_dir(&from).map_err(Error::io("read", &from))? {
        let file = entry.map_err(Error::io("read", &from))?;
        let name = file.file_name();
        if name != "kustomization.yaml" {
            let text = fs::read(file.path()).map_err(Error::io("read", file.path()))?;
            fs::write(to.join(&name), text).map_err(Error::io("write", to.join(&name)))?;
        }
    }
    Ok(())
}

/// What `go` printed, run in the folder of the program's `go.mod`.
fn go(source: &Source, arguments: impl FnOnce(&mut Command) -> &mut Command) -> Result<String, Error> {
    let folder = source.folder.clone();
    let mut go = Command::new("go");
    let answer = arguments(go.current_dir(&folder)).output().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Error::GoIsMissing(source.name),
        _ => Error::Io { what: "run go in", path: folder.clone(), source: e },
    })?;
    if answer.status.success() {
        return Ok(String::from_utf8_lossy(&answer.stdout).into_owned());
    }
    let output = last_lines(&String::from_utf8_lossy(&answer.stderr), OUTPUT_LINES);
    Err(Error::Build { program: source.name, folder, output })
}

/// The end of a text, as errors show it.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
