//! `daemon.log`: the standard error of a daemon in the background. It is moved aside when it is large, also while the daemon
//! runs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::unistd::{dup2_stderr, dup2_stdout};

/// A log beyond this is moved aside; one older log is kept.
const BYTES_MAX: u64 = 16 << 20;

/// Opens the log at its end, and moves a large one aside. Returns it with its length.
///
/// # Errors
/// If it cannot be moved or opened.
pub fn open(path: &Path) -> io::Result<(File, u64)> {
    if fs::metadata(path).is_ok_and(|meta| meta.len() >= BYTES_MAX) {
        fs::rename(path, path.with_extension("log.1"))?;
    }
    let log = OpenOptions::new().create(true).append(true).mode(0o644).open(path)?;
    let length = log.metadata()?.len();
    Ok((log, length))
}

/// Standard error that is `daemon.log`. Cheap to clone.
#[derive(Clone)]
pub struct DaemonLog {
    path: PathBuf,
    /// Bytes in the log, of what was written through this.
    length: Arc<Mutex<u64>>,
}

impl DaemonLog {
    /// The log that standard error is already.
    #[must_use]
    pub fn of_stderr(path: PathBuf) -> Self {
        let length = fs::metadata(&path).map_or(0, |meta| meta.len());
        Self { path, length: Arc::new(Mutex::new(length)) }
    }

    /// Standard output and standard error are a new log. Panics of the runtime go there too.
    fn begin_anew(&self) -> io::Result<u64> {
        let (log, length) = open(&self.path)?;
        dup2_stdout(&log)?;
        dup2_stderr(&log)?;
        Ok(length)
    }
}

impl Write for DaemonLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut length = self.length.lock().unwrap_or_else(PoisonError::into_inner);
        if *length >= BYTES_MAX {
            // A disk that is full is no reason to stop: the old log goes on, and later lines try again.
            *length = self.begin_anew().unwrap_or(0);
        }
        let written = io::stderr().write(bytes)?;
        *length = length.saturating_add(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const CHILD: &str = "PHALANX_TEST_DAEMON_LOG";

    /// The test runs itself again, for standard error belongs to the whole process.
    #[test]
    fn a_large_log_is_moved_aside_while_the_daemon_runs() {
        if let Some(path) = std::env::var_os(CHILD) {
            let mut log = DaemonLog::of_stderr(path.into());
            let line = format!("{}\n", "x".repeat((1 << 20) - 1));
            (0..40).for_each(|_| log.write_all(line.as_bytes()).unwrap());
            eprintln!("what the runtime says");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.log");
        let name = "daemon_log::tests::a_large_log_is_moved_aside_while_the_daemon_runs";
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", name, "--nocapture"]).env(CHILD, &path);
        let status = child.stdout(open(&path).unwrap().0).stderr(open(&path).unwrap().0).status().unwrap();
        assert!(status.success(), "{status}");
        let lengths =
            ["daemon.log", "daemon.log.1"].map(|name| dir.path().join(name).metadata().unwrap().len());
        assert!(lengths[0] >= 8 << 20 && lengths[0] < 9 << 20 && lengths[1] >= BYTES_MAX, "{lengths:?}");
        assert!(lengths[1] < BYTES_MAX + (1 << 20), "{lengths:?}");
        assert!(fs::read_to_string(&path).unwrap().contains("what the runtime says"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
