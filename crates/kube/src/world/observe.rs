//! The watches of a scheduler for a process that only reads: the same lists, and nothing that is decided.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use kube::Client;

use super::desk::Message;
use super::kinds::{Watches, kinds, read_core};
use crate::messages::Event;

/// What watches report.
pub(crate) enum Observed {
    Event(Box<Event>),
    /// The first list of a kind is complete, or the kind is watched again.
    Listed(&'static str),
    /// The API server refuses to list a kind.
    Unwatched(&'static str),
    /// A watch failed, and is tried again.
    Failed,
    /// Nothing came in time.
    Nothing,
}

/// All watches have ended.
#[derive(Debug)]
pub(crate) struct Ended;

/// Watches of everything that a scheduler watches.
pub(crate) struct Observer {
    messages: Receiver<Message>,
    /// Lists that are not complete.
    pub(crate) unlisted: Vec<&'static str>,
}

impl Observer {
    /// Begins the watches, on the runtime of the caller.
    ///
    /// # Errors
    /// When the API server does not say which kinds it serves.
    pub(crate) async fn begin(client: &Client) -> Result<Self, kube::Error> {
        let (sender, messages) = channel();
        let mut watches = Watches::new(sender);
        read_core(client, &mut watches);
        watches.take(client, kinds(client).await?);
        let unlisted = watches.names();
        tokio::spawn(watches.keep(client.clone()));
        Ok(Self { messages, unlisted })
    }

    /// What comes next, if it comes in time.
    ///
    /// # Errors
    /// When all watches have ended.
    pub(crate) fn next(&mut self, patience: Duration) -> Result<Observed, Ended> {
        let message = match self.messages.recv_timeout(patience) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => return Ok(Observed::Nothing),
            Err(RecvTimeoutError::Disconnected) => return Err(Ended),
        };
        Ok(match message {
            Message::Event(event) => Observed::Event(Box::new(event)),
            Message::Listed(list) => {
                self.unlisted.retain(|known| *known != list);
                Observed::Listed(list)
            }
            Message::Unwatched(list, trouble) => {
                self.unlisted.retain(|known| *known != list);
                trouble.say();
                Observed::Unwatched(list)
            }
            Message::Trouble(trouble) => {
                trouble.say();
                Observed::Failed
            }
            // The messages of a scheduler. Watches send none of them.
            Message::Orders(_)
            | Message::News(_)
            | Message::Beat(_)
            | Message::Stop(_)
            | Message::Leads(_) => Observed::Nothing,
        })
    }
}
