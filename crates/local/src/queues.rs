//! The queue file: who may use how much, and who goes first.

use std::fs;
use std::path::{Path, PathBuf};

use phalanx_model::{Input, Queue, Resource, Settings, SyncKind};
use phalanx_shell::Engine;
use phalanx_spec::{QueueFile, SharePolicy};

#[derive(Debug, thiserror::Error)]
pub enum QueuesError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// The place and what is accepted stand below the first line.
    #[error("{0}")]
    Spec(String),
}

/// Reads a queue file.
///
/// # Errors
/// When it cannot be read, or is no queue file.
pub fn read(path: &Path) -> Result<SharePolicy, QueuesError> {
    let unreadable = |source| QueuesError::Unreadable { path: path.to_owned(), source };
    let size = fs::metadata(path).map_err(unreadable)?.len();
    if size > phalanx_spec::FILE_BYTES_MAX as u64 {
        let most = phalanx_spec::FILE_BYTES_MAX;
        return Err(QueuesError::Spec(format!(
            "{}: has {size} bytes, at most {most} are read",
            path.display()
        )));
    }
    parse(&fs::read_to_string(path).map_err(unreadable)?, &path.display().to_string())
}

/// Reads the text of a queue file; `name` stands in errors.
///
/// # Errors
/// When it is no queue file.
pub fn parse(text: &str, name: &str) -> Result<SharePolicy, QueuesError> {
    let spec = |e: phalanx_spec::SpecError| QueuesError::Spec(e.to_string());
    QueueFile::from_yaml(text, name).and_then(QueueFile::into_policy).map_err(spec)
}

/// The facts that make these queues, and no others, those of the cluster.
pub(crate) fn facts(settings: Settings, queues: Vec<Queue>) -> Vec<Input> {
    let kind = SyncKind::Queues;
    let mut facts =
        vec![Input::SettingsConfigured { settings: Box::new(settings) }, Input::SyncBegin { kind }];
    facts.extend(queues.into_iter().map(|queue| Input::QueueObserved { queue: Box::new(queue) }));
    facts.push(Input::SyncEnd { kind });
    facts
}

/// What is wrong with guarantees that the cluster cannot keep at a time.
pub(crate) fn beyond_capacity(engine: &Engine) -> Option<String> {
    let guaranteed_milli = engine
        .outermost_queues()
        .filter_map(|queue| queue.guaranteed.get(&Resource::Gpus).copied())
        .fold(0, u64::saturating_add);
    let devices: u64 = engine.nodes().map(|node| u64::from(node.machine.device_count())).sum();
    (guaranteed_milli > devices.saturating_mul(1_000)).then(|| {
        let guaranteed = Resource::Gpus.show(guaranteed_milli);
        format!("queues are guaranteed {guaranteed} GPUs together, and there are {devices}: not all guarantees can be kept")
    })
}
