//! Pages that sources, messages and settings name, such as `docs/cost-model.md`: each must exist.

use std::path::{Path, PathBuf};

use super::{BOOK, Fault};
use crate::cargo::CargoError;
use crate::files;

const FOLDERS: &[&str] =
    &["bench", "crates", "deploy", "examples", "fuzz", "python", "scenarios", "tests", "ui/src"];
const KINDS: &[&str] = &["py", "rs", "scenario", "sh", "svelte", "toml", "ts", "txt", "yaml"];
const BUILT: &[&str] = &["dist", "node_modules", "target"];

pub(super) fn check(root: &Path) -> Result<Vec<Fault>, CargoError> {
    let mut files = Vec::new();
    for folder in FOLDERS.iter().map(Path::new).filter(|folder| root.join(folder).is_dir()) {
        files.extend(super::relative(root, sources(&root.join(folder))?));
    }
    let mut faults = Vec::new();
    for file in files {
        let bytes = std::fs::read(root.join(&file))
            .map_err(|source| CargoError::Read { path: root.join(&file), source })?;
        for (line, text) in (1..).zip(String::from_utf8_lossy(&bytes).lines()) {
            let missing = mentioned(text).filter(|page| !root.join(page).is_file());
            faults.extend(missing.map(|page| Fault {
                file: file.clone(),
                line,
                what: format!("names {page}, which does not exist; correct the path"),
            }));
        }
    }
    Ok(faults)
}

/// Paths of pages below `docs/` in a line. A path that continues to the left is another folder's, unless that is `..`.
fn mentioned(line: &str) -> impl Iterator<Item = &str> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.');
    line.split(move |c: char| !is_path(c)).filter_map(|word| {
        let path = word.trim_start_matches("../").trim_end_matches('.');
        let below = path.strip_prefix(BOOK)?.strip_prefix('/')?;
        (below.ends_with(".md") && below.len() > ".md".len()).then_some(path)
    })
}

/// The sources below a folder.
fn sources(folder: &Path) -> Result<Vec<PathBuf>, CargoError> {
    let is_entered =
        |path: &Path| path.file_name().is_none_or(|name| !BUILT.iter().any(|built| *built == name));
    let is_wanted =
        |path: &Path| path.extension().is_some_and(|kind| KINDS.iter().any(|known| *known == kind));
    files::below(folder, &is_entered, &is_wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_in_sentences_and_paths() {
        let found = |line| mentioned(line).collect::<Vec<_>>();
        assert_eq!(
            found("see `docs/cost-model.md`, and docs/a/b.md."),
            ["docs/cost-model.md", "docs/a/b.md"]
        );
        assert_eq!(found("include_str!(\"../../../docs/operate/runbook.md\")"), ["docs/operate/runbook.md"]);
        assert_eq!(found("https://k8s.io/docs/x.md (`docs/v4`, docs/.md)"), Vec::<&str>::new());
    }

    #[test]
    fn a_page_that_does_not_exist_is_a_fault() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("crates/target")).unwrap();
        std::fs::create_dir(root.path().join("docs")).unwrap();
        std::fs::write(root.path().join("docs/a.md"), "").unwrap();
        std::fs::write(root.path().join("crates/x.rs"), "//! docs/a.md\n//! docs/b.md\n").unwrap();
        std::fs::write(root.path().join("crates/target/y.rs"), "docs/b.md").unwrap();
        let faults: Vec<String> = check(root.path()).unwrap().iter().map(Fault::to_string).collect();
        assert_eq!(faults, ["crates/x.rs:2: names docs/b.md, which does not exist; correct the path"]);
    }
}
