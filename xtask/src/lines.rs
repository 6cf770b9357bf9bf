//! How long a file is, without its tests.

use std::path::{Path, PathBuf};

use crate::cargo::{CargoError, Workspace, read};
use crate::files;
use crate::walls::{Breach, LINES_MAX, LONGER};

const RULE: &str = "a file stays readable";

pub(crate) fn check(workspace: &Workspace) -> Result<Vec<Breach>, CargoError> {
    let mut breaches = Vec::new();
    let crates = workspace.root.join("crates");
    for package in workspace.packages.iter().filter(|package| package.folder().starts_with(&crates)) {
        for file in rust_files(&package.folder().join("src"))? {
            let lines = own_lines(&read(&file)?).count();
            let name = file.strip_prefix(&workspace.root).unwrap_or(&file).to_string_lossy();
            let limit =
                LONGER.iter().find(|(longer, _)| *longer == name).map_or(LINES_MAX, |(_, limit)| *limit);
            if lines > limit {
                let what =
                    format!("{lines} lines without tests, and {limit} are the limit; split it by meaning");
                breaches.push(Breach::new(&file, RULE, what));
            }
        }
    }
    Ok(breaches)
}

/// Lines with their numbers from 1, without those of test modules at the end.
fn own_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_tests = |at: usize| {
        lines.get(at).is_some_and(|line| line.starts_with("#[cfg(test)]"))
            && lines.get(at + 1).is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    };
    let end = (0..lines.len()).find(|at| is_tests(*at)).unwrap_or(lines.len());
    (1..).zip(lines.into_iter().take(end))
}

/// Lines that hold code: no tests, no comment lines.
pub(crate) fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    own_lines(text).filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Every Rust file below a folder that is not a test on its own, in order of name.
pub(crate) fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, CargoError> {
    let is_own = |path: &Path| {
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        !(stem == "tests" || stem.ends_with("_tests") || stem == "fixtures")
    };
    let is_wanted = |path: &Path| path.extension().is_some_and(|extension| extension == "rs") && is_own(path);
    files::below(folder, &is_own, &is_wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_comments_do_not_count() {
        let text = "// why\nfn a() {}\n#[cfg(test)]\nmod fixtures;\n\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(own_lines(text).count(), 5);
        assert_eq!(code_lines(text).map(|(number, _)| number).collect::<Vec<_>>(), [2, 3, 4, 5]);
    }
}
