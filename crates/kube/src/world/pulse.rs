//! Whether the process does its work: the desk and the engine are asked now and then, and have to answer.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use phalanx_shell::Handle;
use tokio::sync::oneshot;

use super::desk::Message;
use super::metrics::Seconds;

/// Between two questions.
const EVERY: Duration = Duration::from_secs(5);
/// For so long each may be at work. After an outage the lists of a large cluster come all at once, and a scheduling cycle
/// over all of it follows: at 5,000 nodes and 100,000 pods that is some ten seconds on a busy machine. One that is killed
/// for that begins with the same lists. What hangs is found soon enough: its gangs wait for a minute and a half instead of
/// for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers to a question of the pulse: the way to the engine, once there is one.
pub(super) type Beat = oneshot::Sender<Option<Handle>>;

/// What is asked now, and since when.
#[derive(Clone, Default)]
pub(crate) struct Pulse(Arc<Mutex<Option<(&'static str, Instant)>>>);

impl Pulse {
    /// Until the process does not do its work any more; why.
    pub(super) async fn hangs(&self) -> String {
        loop {
            tokio::time::sleep(EVERY).await;
            if let Err(why) = self.check() {
                return why;
            }
        }
    }

    /// Why the process does not do its work any more.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_within(PATIENCE)
    }

    fn check_within(&self, patience: Duration) -> Result<(), String> {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((what, since)) if since.elapsed() > patience => {
                Err(format!("{what} has not answered for {} s", since.elapsed().as_secs()))
            }
            _ => Ok(()),
        }
    }

    fn asks(&self, what: Option<&'static str>) {
        let now = what.map(|what| (what, Instant::now()));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Asks until the desk is gone: the process ends then. Nothing is asked again before it has answered.
    pub(super) async fn beat(self, desk: Sender<Message>, lag: Seconds<0>) {
        self.beat_every(EVERY, desk, lag).await;
    }

    async fn beat_every(self, every: Duration, desk: Sender<Message>, lag: Seconds<0>) {
        loop {
            tokio::time::sleep(every).await;
            self.asks(Some("the event loop"));
            let (answer, answered) = oneshot::channel();
            let asked = Instant::now();
            let engine = match desk.send(Message::Beat(answer)) {
                Ok(()) => answered.await,
                Err(_) => return self.asks(None),
            };
            let Ok(engine) = engine else { return self.asks(None) };
            lag.observe(asked.elapsed());
            if let Some(engine) = engine {
                self.asks(Some("the engine"));
                look(engine).await;
            }
            self.asks(None);
        }
    }
}

/// Waits until the engine has a moment, or has stopped. On a thread of its own: the runtime would wait for it at the end.
async fn look(engine: Handle) {
    let (answer, answered) = oneshot::channel();
    let looks = move || {
        let _ = engine.look(|_| ());
        let _ = answer.send(());
    };
    if std::thread::Builder::new().name("pulse".to_owned()).spawn(looks).is_ok() {
        let _ = answered.await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use phalanx_model::{Change, Effect, Epoch, Input, Timestamp};
    use phalanx_shell::{Config, Engine, Pump, World, unix_now};

    use super::*;

    struct Nothing;

    impl World for Nothing {
        fn carry_out(&mut self, _: &[Effect], _: &Engine) {}
        fn changed(&mut self, _: Timestamp, _: &[Input], _: &[Change], _: &Engine) {}
        fn warn(&mut self, _: &str) {}
    }

    const SHORT: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_millis(300);

    /// Answers so many times, and hangs then.
    fn desk(messages: Receiver<Message>, times: usize, engine: Option<Handle>) {
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for (at, message) in messages.iter().enumerate() {
                match message {
                    Message::Beat(beat) if at < times => drop(beat.send(engine.clone())),
                    other => held.push(other),
                }
            }
        });
    }

    fn after(times: usize, engine: Option<Handle>) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (sender, messages) = channel();
            desk(messages, times, engine);
            let pulse = Pulse::default();
            let beats = tokio::spawn(pulse.clone().beat_every(SHORT, sender, Seconds::default()));
            tokio::time::sleep(3 * LONG).await;
            beats.abort();
            pulse.check_within(LONG)
        })
    }

    /// It was alive for ever, whatever hung.
    #[test]
    fn what_hangs_is_named_and_what_answers_is_alive() {
        assert_eq!(after(usize::MAX, None), Ok(()), "it still lists, or does not lead");
        assert_eq!(after(2, None), Err("the event loop has not answered for 0 s".to_owned()));
        let engine = || Pump::<_>::new(Engine::new(Epoch(1), Config::default()), None, unix_now, |_| Nothing);
        let (pump, handle) = engine();
        let runs = std::thread::spawn(move || pump.run());
        assert_eq!(after(usize::MAX, Some(handle.clone())), Ok(()));
        handle.stop();
        drop(runs.join());
        assert_eq!(after(usize::MAX, Some(handle)), Ok(()), "it has stopped: the process ends");
        // This one never comes to it.
        let (_pump, handle) = engine();
        assert_eq!(after(usize::MAX, Some(handle)), Err("the engine has not answered for 0 s".to_owned()));
    }

    #[test]
    fn a_process_that_does_not_live_says_so_with_the_code_that_probes_look_at() {
        let pulse = Pulse::default();
        assert_eq!(pulse.check(), Ok(()), "nothing was asked yet");
        let long_ago = Instant::now().checked_sub(PATIENCE + Duration::from_secs(2)).unwrap();
        *pulse.0.lock().unwrap() = Some(("the engine", long_ago));
        assert_eq!(pulse.check(), Err("the engine has not answered for 62 s".to_owned()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let why = runtime.block_on(async { tokio::time::timeout(2 * EVERY, pulse.hangs()).await });
        assert!(why.unwrap().starts_with("the engine has not answered"), "nor does it keep the lease");
    }
}
