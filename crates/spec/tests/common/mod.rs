//! What the tests share.
#![allow(dead_code, reason = "not every test uses everything")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use phalanx_model::{JobId, Owner, Timestamp};
use phalanx_spec::SubmitContext;

pub(crate) fn context() -> SubmitContext {
    SubmitContext {
        id: JobId(7),
        owner: Owner { uid: 1000, gid: 1000, name: "ada".to_owned() },
        submitted_at: Timestamp(1),
        default_workdir: "/home/ada".to_owned(),
    }
}

/// Compares with a file of the crate, or writes it when `UPDATE` is set.
pub(crate) fn golden(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = kept.lines().zip(text.lines()).position(|(a, b)| a != b);
    assert!(kept == text, "{} differs from line {differs:?}; UPDATE=1 rewrites it:\n{text}", path.display());
}
