//! SIGUSR1 asks for a checkpoint; SIGTERM asks to stop after one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGTERM, SIGUSR1};
use signal_hook::flag;

use crate::error::RingError;

pub(crate) struct Signals {
    checkpoint: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    /// SIGTERM ends the process at once: before the steps, and the second time.
    at_once: Arc<AtomicBool>,
}

impl Signals {
    pub(crate) fn install() -> Result<Self, RingError> {
        let flag = |value| Arc::new(AtomicBool::new(value));
        let (checkpoint, stop, at_once) = (flag(false), flag(false), flag(true));
        flag::register(SIGUSR1, checkpoint.clone())
            .and_then(|_| flag::register_conditional_default(SIGTERM, at_once.clone()))
            .and_then(|_| flag::register(SIGTERM, stop.clone()))
            .and_then(|_| flag::register(SIGTERM, at_once.clone()))
            .map_err(RingError::system("handle signals"))?;
        Ok(Self { checkpoint, stop, at_once })
    }

    /// From now on SIGTERM waits for the end of a step.
    pub(crate) fn handled_by_steps(&self) {
        self.at_once.store(false, Ordering::SeqCst);
    }

    /// Whether a checkpoint was asked for since the last time.
    pub(crate) fn take_checkpoint(&self) -> bool {
        self.checkpoint.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn stop(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}
