//! What a state folder lost: kept where every verb can say it, until an operator has seen it.

use std::fs;
use std::io;

use phalanx_model::{Epoch, Timestamp};
use phalanx_shell::unix_now;
use tracing::warn;

use crate::Paths;
use phalanx_node::file::replace;

/// Losses that are kept; older ones are dropped.
const KEPT_MAX: usize = 50;

/// Something that a journal no longer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub at: Timestamp,
    pub what: String,
}

/// The losses that no operator has seen yet, oldest first.
#[must_use]
pub fn unseen(paths: &Paths) -> Vec<Loss> {
    let text = fs::read_to_string(paths.losses()).unwrap_or_default();
    let loss = |line: &str| {
        let (at, what) = line.split_once('\t')?;
        Some(Loss { at: Timestamp(at.parse().ok()?), what: what.to_owned() })
    };
    text.lines().filter_map(loss).collect()
}

/// An operator has seen them. Returns how many there were.
///
/// # Errors
/// If the file cannot be removed.
pub fn forget(paths: &Paths) -> io::Result<usize> {
    let count = unseen(paths).len();
    match fs::remove_file(paths.losses()) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(count),
    }
}

/// Remembers a loss, and logs it.
pub(crate) fn add(paths: &Paths, what: &str) {
    warn!(loss = what, "the state folder lost something");
    let mut losses = unseen(paths);
    losses.push(Loss { at: unix_now(), what: what.replace(['\n', '\t'], " ") });
    let newest = losses.split_off(losses.len().saturating_sub(KEPT_MAX));
    let text: String = newest.iter().map(|loss| format!("{}\t{}\n", loss.at.0, loss.what)).collect();
    if let Err(e) = replace(&paths.losses(), &text) {
        warn!(file = %paths.losses().display(), error = %e, "losses cannot be kept");
    }
}

/// The last epoch of which the journal was durable. It stands outside of the journal, so that a journal which went back,
/// or is gone, is noticed.
pub(crate) fn last_epoch(paths: &Paths) -> Option<Epoch> {
    fs::read_to_string(paths.epoch()).ok()?.trim().parse().ok().map(Epoch)
}

pub(crate) fn remember_epoch(paths: &Paths, epoch: Epoch) {
    if let Err(e) = replace(&paths.epoch(), &format!("{}\n", epoch.0)) {
        warn!(file = %paths.epoch().display(), error = %e, "the epoch cannot be kept");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_told_until_it_was_seen() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        assert_eq!((unseen(&paths).len(), forget(&paths).unwrap()), (0, 0));
        (0..60).for_each(|n| add(&paths, &format!("loss {n}\nof two lines")));
        let losses = unseen(&paths);
        assert_eq!(losses.len(), KEPT_MAX);
        assert_eq!(losses.last().unwrap().what, "loss 59 of two lines");
        assert_eq!(forget(&paths).unwrap(), KEPT_MAX);
        assert_eq!(unseen(&paths), []);
    }
}
