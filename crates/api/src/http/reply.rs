//! Answers on their way from the thread that finds them to the task that sends them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;

use crate::Reply;
use crate::protocol::Answer;

/// How long a client may take to take an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Answers of a batch, and bytes of the lines in it, at most.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 16 << 10;

/// The first answer alone: a verb with one answer gives no more.
#[derive(Default)]
pub(crate) struct First {
    pub(crate) answer: Option<Answer>,
    /// The client went away before it had its answer.
    is_gone: Arc<AtomicBool>,
}

impl First {
    /// For the task that waits for the answer: the client is gone once this is dropped.
    pub(crate) fn listener(&self) -> Listener {
        Listener(Arc::clone(&self.is_gone))
    }
}

/// The task of a client. It is dropped with the connection.
pub(crate) struct Listener(Arc<AtomicBool>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Reply for First {
    fn send(&mut self, answer: &Answer) -> io::Result<()> {
        self.answer.get_or_insert_with(|| answer.clone());
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

/// Answers that are sent together: a job may write many lines.
pub(crate) struct Batches {
    answers: Sender<Vec<Answer>>,
    runtime: Handle,
    batch: Vec<Answer>,
    /// Of the lines in the batch.
    bytes: usize,
}

impl Batches {
    pub(crate) const fn new(answers: Sender<Vec<Answer>>, runtime: Handle) -> Self {
        Self { answers, runtime, batch: Vec::new(), bytes: 0 }
    }
}

impl Reply for Batches {
    fn send(&mut self, answer: &Answer) -> io::Result<()> {
        if let Answer::Log { line, .. } = answer {
            self.bytes += line.len();
        }
        self.batch.push(answer.clone());
        if self.batch.len() >= BATCH || self.bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.bytes = 0;
        let sending = self.answers.send(std::mem::take(&mut self.batch));
        match self.runtime.block_on(async { timeout(PATIENCE, sending).await }) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn is_gone(&self) -> bool {
        self.answers.is_closed()
    }
}
