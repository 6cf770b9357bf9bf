//! The terminal.

use std::io::{self, IsTerminal};
use std::time::Instant;

use phalanx_sim::command::Host;
use phalanx_sim::report::Progress;

/// Seconds between two looks at how far it is.
const EVERY_S: f64 = 0.5;

#[derive(Debug)]
pub(super) struct Terminal {
    begin: Instant,
    /// Since when, and when it was told last.
    started: Option<(Instant, Instant)>,
    is_drawn: bool,
}

impl Terminal {
    pub(super) fn new() -> Self {
        Self { begin: Instant::now(), started: None, is_drawn: false }
    }
}

impl Host for Terminal {
    /// `phalanx sim` has the same commands, so a report is the same from both programs.
    fn words(&mut self) -> Vec<String> {
        let typed = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
        std::iter::once("sim".to_owned()).chain(typed).collect()
    }

    fn seconds(&mut self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    fn note(&mut self, text: &str) {
        eprintln!("note: {text}");
    }

    fn progress(&mut self, progress: Option<Progress<'_>>) {
        if !io::stderr().is_terminal() {
            return;
        }
        let Some(Progress { what, done, all, unit }) = progress else {
            if self.is_drawn {
                eprint!("\r\x1b[K");
            }
            (self.started, self.is_drawn) = (None, false);
            return;
        };
        let now = Instant::now();
        let (start, told) = *self.started.get_or_insert((now, now));
        if now.duration_since(told).as_secs_f64() < EVERY_S {
            return;
        }
        self.started = Some((start, now));
        self.is_drawn = true;
        let rate = done as f64 / now.duration_since(start).as_secs_f64();
        let left_s = all.saturating_sub(done) as f64 / rate.max(1.0);
        eprint!("\r\x1b[K{what}: {done} of {all} {unit}, {rate:.0}/s, {left_s:.0} s left");
    }
}
