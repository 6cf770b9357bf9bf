//! A rank's step number, in `DIR/rank-R.ckpt`.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::RingError;

pub(crate) struct Checkpoint {
    path: PathBuf,
}

impl Checkpoint {
    pub(crate) fn open(dir: &Path, rank: u32) -> Result<Self, RingError> {
        fs::create_dir_all(dir).map_err(|source| RingError::Checkpoint {
            doing: "create the folder",
            path: dir.to_owned(),
            source,
        })?;
        Ok(Self { path: dir.join(format!("rank-{rank}.ckpt")) })
    }

    /// Steps that are complete, if any were saved.
    pub(crate) fn read(&self) -> Result<Option<u64>, RingError> {
        let mut text = String::new();
        match File::open(&self.path).and_then(|file| file.take(64).read_to_string(&mut text)) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(self.error("read")(e)),
        }
        let step = text.strip_suffix('\n').and_then(|line| line.parse().ok());
        step.map(Some).ok_or_else(|| RingError::BadCheckpoint { path: self.path.clone(), found: text })
    }

    /// Replaces the file whole, or not at all.
    pub(crate) fn write(&self, step: u64) -> Result<(), RingError> {
        let next = self.path.with_extension("ckpt.next");
        let replace = || {
            let mut file = File::create(&next)?;
            writeln!(file, "{step}")?;
            file.sync_all()?;
            fs::rename(&next, &self.path)?;
            self.path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
        };
        replace().map_err(self.error("write"))
    }

    fn error(&self, doing: &'static str) -> impl FnOnce(io::Error) -> RingError {
        let path = self.path.clone();
        move |source| RingError::Checkpoint { doing, path, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_number_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = Checkpoint::open(&dir.path().join("a/b"), 3).unwrap();
        assert_eq!(checkpoint.read().unwrap(), None);
        for step in [1, 20, 3] {
            checkpoint.write(step).unwrap();
            assert_eq!(checkpoint.read().unwrap(), Some(step));
        }
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = Checkpoint::open(dir.path(), 0).unwrap();
        for bad in ["", "12", "x\n", "-1\n", "1\n2\n"] {
            fs::write(dir.path().join("rank-0.ckpt"), bad).unwrap();
            assert!(checkpoint.read().unwrap_err().to_string().contains("remove it"), "{bad:?}");
        }
    }
}
