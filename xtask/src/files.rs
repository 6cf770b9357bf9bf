//! Files below a folder.

use std::path::{Path, PathBuf};

use crate::cargo::CargoError;

/// The files that are wanted, in order of their paths. Folders are entered if they are wanted.
pub(crate) fn below(
    folder: &Path,
    is_entered: &dyn Fn(&Path) -> bool,
    is_wanted: &dyn Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, CargoError> {
    let mut files = Vec::new();
    collect(folder, is_entered, is_wanted, &mut files)?;
    files.sort();
    Ok(files)
}

/// The files with this extension.
pub(crate) fn of_kind(folder: &Path, kind: &str) -> Result<Vec<PathBuf>, CargoError> {
    below(folder, &|_| true, &|file| file.extension().is_some_and(|extension| extension == kind))
}

fn collect(
    folder: &Path,
    is_entered: &dyn Fn(&Path) -> bool,
    is_wanted: &dyn Fn(&Path) -> bool,
    files: &mut Vec<PathBuf>,
) -> Result<(), CargoError> {
    let error = |source| CargoError::Read { path: folder.to_path_buf(), source };
    for entry in std::fs::read_dir(folder).map_err(error)? {
        let entry = entry.map_err(error)?;
        let path = entry.path();
        if entry.file_type().map_err(error)?.is_dir() {
            if is_entered(&path) {
                collect(&path, is_entered, is_wanted, files)?;
            }
        } else if is_wanted(&path) {
            files.push(path);
        }
    }
    Ok(())
}
