//! How others talk to the pump: facts, facts that wait for their step, and read-only questions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use phalanx_engine::Engine;
use phalanx_model::{Change, Input};

/// What waits in the channel at most; a sender beyond that waits too.
const ASKS_MAX: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum PumpError {
    #[error("the scheduler has stopped")]
    Stopped,
    /// Nothing was changed; what runs goes on.
    #[error("nothing new is accepted: {0}")]
    NotDurable(String),
    /// The scheduler goes on.
    #[error("the answer could not be worked out, which is a bug; please report the panic in the log")]
    Panicked,
}

type Look = Box<dyn FnOnce(&Engine) + Send>;
pub(crate) type Reply = Box<dyn FnOnce(Result<(&Engine, &[Change]), &str>) + Send>;

pub(crate) enum Ask {
    /// Facts that nobody waits for.
    Facts(Vec<Input>),
    /// Facts whose sender waits until they are durable and stepped; refused while the journal cannot be
    /// written.
    Request(Vec<Input>, Reply),
    Look(Look),
    Stop,
}

/// A way in. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    asks: SyncSender<Ask>,
}

pub(crate) fn channel() -> (Handle, Receiver<Ask>) {
    let (asks, receiver) = sync_channel(ASKS_MAX);
    (Handle { asks }, receiver)
}

/// Whoever asks cannot end the scheduler: what reads changes nothing, so a panic there leaves the engine whole.
fn guarded<T>(read: impl FnOnce() -> T) -> Result<T, PumpError> {
    catch_unwind(AssertUnwindSafe(read)).map_err(|_| PumpError::Panicked)
}

impl Handle {
    /// Reports facts. They are never lost while the process lives, also when the disk is full.
    ///
    /// # Errors
    /// When the pump has stopped.
    pub fn report(&self, facts: Vec<Input>) -> Result<(), PumpError> {
        self.asks.send(Ask::Facts(facts)).map_err(|_| PumpError::Stopped)
    }

    /// Hands in facts and waits until they are durable and the engine has stepped.
    ///
    /// # Errors
    /// When the pump has stopped, or the journal cannot be written: then nothing happened.
    pub fn request<T: Send + 'static>(
        &self,
        facts: Vec<Input>,
        read: impl FnOnce(&Engine, &[Change]) -> T + Send + 'static,
    ) -> Result<T, PumpError> {
        let (answer, answered) = sync_channel(1);
        let reply: Reply = Box::new(move |result| {
            let result = match result {
                Ok((engine, changes)) => guarded(|| read(engine, changes)),
                Err(why) => Err(PumpError::NotDurable(why.to_owned())),
            };
            // The asker may have gone away; the facts stand all the same.
            let _ = answer.send(result);
        });
        self.asks.send(Ask::Request(facts, reply)).map_err(|_| PumpError::Stopped)?;
        answered.recv().map_err(|_| PumpError::Stopped)?
    }

    /// Looks at the engine without changing it.
    ///
    /// # Errors
    /// When the pump has stopped.
    pub fn look<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, PumpError> {
        let (answer, answered) = sync_channel(1);
        let look: Look = Box::new(move |engine| {
            let _ = answer.send(guarded(|| read(engine)));
        });
        self.asks.send(Ask::Look(look)).map_err(|_| PumpError::Stopped)?;
        answered.recv().map_err(|_| PumpError::Stopped)?
    }

    /// Ends the pump after what is already in the channel.
    pub fn stop(&self) {
        let _ = self.asks.send(Ask::Stop);
    }
}
