//! Answers on their way from the thread that finds them to the task that sends them.

use std::io;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;

use crate::Reply;
use crate::protocol::Answer;

/// How long a client may take to take an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The first answer alone: a verb with one answer gives no more.
#[derive(Default)]
pub(crate) struct First {
    pub(crate) answer: Option<Answer>,
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
        false
    }
}

pub(crate) struct Channel {
    answers: Sender<Answer>,
    runtime: Handle,
}

impl Channel {
    pub(crate) const fn new(answers: Sender<Answer>, runtime: Handle) -> Self {
        Self { answers, runtime }
    }
}

impl Reply for Channel {
    fn send(&mut self, answer: &Answer) -> io::Result<()> {
        let sending = self.answers.send(answer.clone());
        match self.runtime.block_on(async { timeout(PATIENCE, sending).await }) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn is_gone(&self) -> bool {
        self.answers.is_closed()
    }
}
