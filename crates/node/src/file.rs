//! Small files that are written whole, and outlast a loss of power.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, fchown};
use std::path::Path;

use phalanx_model::Owner;

/// Writes a file whole or not at all, and durably; its owner alone can read it.
///
/// # Errors
/// As for [`write`].
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    write(path, text.as_bytes(), 0o600, None)
}

/// Writes a file whole or not at all. When this returns, a loss of power takes neither the content nor the name. A
/// daemon of root gives the file to its owner, if one is named.
///
/// # Errors
/// When the folder is not there, or does not take the file.
pub fn write(path: &Path, bytes: &[u8], mode: u32, owner: Option<&Owner>) -> io::Result<()> {
    let next = path.with_added_extension("next");
    // A crash may have left one, of another mode or owner.
    match fs::remove_file(&next) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&next)?;
    file.write_all(bytes)?;
    if let Some(owner) = owner.filter(|_| nix::unistd::geteuid().is_root()) {
        fchown(&file, Some(owner.uid), Some(owner.gid))?;
    }
    file.sync_all()?;
    fs::rename(next, path)?;
    sync_dir(folder_of(path))
}

/// The folder of a file, which of a mere name is the present one.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Makes the names in a folder durable: a new file is only safe once its folder is, too.
///
/// # Errors
/// When the folder cannot be opened or written.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// `File::open("")` finds nothing: a file in the present folder was written, and then reported as an error.
    #[test]
    fn the_folder_of_a_mere_name_is_the_present_one() {
        for (path, folder) in [("a", "."), ("./a", "."), ("b/a", "b"), ("/a", "/")] {
            assert_eq!(folder_of(Path::new(path)), Path::new(folder), "{path}");
        }
    }

    #[test]
    fn a_file_is_replaced_whole_and_what_a_crash_left_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let (path, next) = (dir.path().join("KEY"), dir.path().join("KEY.next"));
        fs::write(&next, "a half").unwrap();
        fs::set_permissions(&next, fs::Permissions::from_mode(0o666)).unwrap();
        for text in ["one", "two"] {
            write(&path, text.as_bytes(), 0o400, None).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o400);
        }
        assert!(!next.exists());
        assert!(write(&dir.path().join("absent/KEY"), b"", 0o400, None).is_err());
    }
}
