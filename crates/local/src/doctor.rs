//! `phalanx doctor`: what is wrong with a state folder, and the cut of a damaged journal. It works without a daemon.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use phalanx_model::Epoch;
use phalanx_shell::{JournalError, cut_at_damage, segment_state, segments, usable_segment};

use crate::Paths;
use crate::daemon::{UpError, lock};
use crate::losses;
use phalanx_api::client;
use phalanx_api::protocol::NodesView;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Good,
    /// Something is lost or will be, and the daemon works.
    Warning,
    /// The daemon does not start, or does not know what runs.
    Damage,
}

impl Severity {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Warning => "warning",
            Self::Damage => "damage",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// `daemon`, `journal`, `losses`, …
    pub subject: &'static str,
    pub detail: String,
    /// What to do; may be empty.
    pub hint: String,
}

fn finding(
    severity: Severity,
    subject: &'static str,
    detail: impl Into<String>,
    hint: impl Into<String>,
) -> Finding {
    Finding { severity, subject, detail: detail.into(), hint: hint.into() }
}

#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    #[error("a daemon runs with {}", .0.display())]
    Running(PathBuf),
    #[error(transparent)]
    Up(UpError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

/// Looks at a state folder, and asks its daemon if one runs.
#[must_use]
pub fn examine(paths: &Paths) -> Vec<Finding> {
    if let Err(e) = fs::read_dir(paths.root()) {
        let detail = format!("cannot read the state folder {}: {e}", paths.root().display());
        return vec![finding(Severity::Damage, "state", detail, "--state names another folder")];
    }
    let nodes = client::nodes(&paths.socket()).ok();
    let mut found = vec![match nodes {
        Some(_) => finding(Severity::Good, "daemon", "runs", ""),
        None => finding(Severity::Warning, "daemon", "does not answer", "`phalanx up --detach` starts it"),
    }];
    found.extend(journal(paths, nodes.is_some()));
    found.extend(losses(paths, nodes.as_ref()));
    found
}

/// All that a daemon warns of, or what it would.
fn losses(paths: &Paths, nodes: Option<&NodesView>) -> Vec<Finding> {
    let told: Vec<String> = match nodes {
        Some(view) => view.warnings.clone(),
        None => losses::unseen(paths).into_iter().map(|loss| loss.what).collect(),
    };
    if told.is_empty() {
        return vec![finding(Severity::Good, "losses", "none", "")];
    }
    let hint = "`phalanx doctor --seen` takes losses that were dealt with off the list";
    told.into_iter().map(|what| finding(Severity::Warning, "losses", what, hint)).collect()
}

fn journal(paths: &Paths, is_running: bool) -> Vec<Finding> {
    let dir = paths.journal();
    let unreadable = |e: &JournalError| {
        let hint = "run this as root, or as the user of the daemon";
        finding(Severity::Damage, "journal", e.to_string(), hint)
    };
    let all = match segments(&dir) {
        Ok(all) => all,
        Err(e) => return vec![unreadable(&e)],
    };
    if all.is_empty() {
        let detail = format!("{} has no segment", dir.display());
        return match losses::last_epoch(paths) {
            None => vec![finding(Severity::Good, "journal", detail + "; no daemon ran here yet", "")],
            Some(_) => {
                let hint = "restore the folder from a copy before the next `phalanx up`, \
                            which otherwise goes on with what the history and living ranks say";
                vec![finding(
                    Severity::Damage,
                    "journal",
                    detail + ", and a daemon ran here: it is lost",
                    hint,
                )]
            }
        };
    }
    let mut found = Vec::new();
    // Those before the segment that a start reads are for `phalanx replay` alone.
    let mut is_needed = true;
    for segment in all.iter().rev() {
        let said = of_segment(&segment.path, is_needed, is_running);
        is_needed &= !matches!(said.severity, Severity::Good);
        found.push(said);
    }
    found
}

fn of_segment(path: &Path, is_needed: bool, is_running: bool) -> Finding {
    let worst = if is_needed { Severity::Damage } else { Severity::Warning };
    let name = path.display();
    match segment_state(path) {
        Ok((steps, None)) => finding(Severity::Good, "journal", format!("{name}: {steps} steps"), ""),
        // The daemon may be writing.
        Ok((steps, Some(_))) if is_running && is_needed => {
            finding(Severity::Good, "journal", format!("{name}: {steps} steps"), "")
        }
        Ok((steps, Some(torn))) => {
            let detail = format!("{name}: {steps} steps, then a torn end ({torn})");
            let hint = "`phalanx up` cuts it off and keeps a copy beside it";
            finding(Severity::Warning, "journal", detail, hint)
        }
        Err(e @ JournalError::Damaged { .. }) => {
            let hint = "restore the file from a copy; or stop the daemon, and `phalanx doctor --cut` cuts the \
                        journal there and keeps a copy of what it cuts";
            finding(worst, "journal", e.to_string(), hint)
        }
        Err(e @ JournalError::BadHeader { .. }) => {
            let hint = "restore the file from a copy; `phalanx up` uses the newest segment before it";
            finding(worst, "journal", e.to_string(), hint)
        }
        Err(e) => finding(worst, "journal", e.to_string(), ""),
    }
}

/// Cuts the journal where it is damaged, so that a daemon starts with what stands before. Copies of what was cut are
/// kept beside the segments. Returns what was done.
///
/// # Errors
/// If a daemon runs, or a file cannot be read or written.
pub fn cut(paths: &Paths) -> Result<Vec<String>, DoctorError> {
    if let Err(source) = fs::read_dir(paths.root()) {
        return Err(DoctorError::Io { doing: "read", path: paths.root().to_owned(), source });
    }
    let _lock = lock(paths).map_err(|e| match e {
        UpError::AlreadyRunning(root) => DoctorError::Running(root),
        other => DoctorError::Up(other),
    })?;
    let mut done = Vec::new();
    loop {
        let path = match usable_segment(&paths.journal()) {
            Ok(None) => break,
            Ok(Some(usable)) => usable.segment.path,
            Err(JournalError::Damaged { path, .. }) => path,
            Err(e) => return Err(e.into()),
        };
        // Once it is cut, the segment before it may be the one to start from.
        let Some(message) = cut_at_damage(&path)? else { break };
        losses::add(paths, &format!("the journal was cut: {message}"));
        done.push(message);
    }
    if !done.is_empty() {
        // The next start looks at what the history and living ranks know beyond the journal.
        let last = losses::last_epoch(paths).unwrap_or_default();
        losses::remember_epoch(paths, Epoch(last.0 + 1));
    }
    Ok(done)
}
