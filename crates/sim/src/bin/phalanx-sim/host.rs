//! Files and the terminal.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
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
    fn read(&mut self, file: &str, bytes_max: u64) -> Result<Vec<u8>, String> {
        let mut text = Vec::new();
        let read = match file {
            "-" => io::stdin().lock().take(bytes_max).read_to_end(&mut text),
            _ => File::open(file).and_then(|file| file.take(bytes_max).read_to_end(&mut text)),
        };
        read.map(|_| text).map_err(|error| format!("cannot read {file}: {error}"))
    }

    fn write(&mut self, file: &str, text: &str) -> Result<(), String> {
        std::fs::write(file, text).map_err(|error| format!("cannot write {file}: {error}"))
    }

    fn print(&mut self, text: &[u8]) -> Result<(), String> {
        let mut out = io::stdout().lock();
        let written = out.write_all(text).and_then(|()| out.flush());
        written.map_err(|error| format!("cannot write to standard output: {error}"))
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn segments(&mut self, dir: &str) -> Result<Vec<String>, String> {
        let segments =
            phalanx_journal::segments(std::path::Path::new(dir)).map_err(|error| error.to_string())?;
        Ok(segments.iter().map(|segment| segment.path.display().to_string()).collect())
    }

    #[cfg(target_arch = "wasm32")]
    fn segments(&mut self, _: &str) -> Result<Vec<String>, String> {
        Err("there are no files here".to_owned())
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
        let Some(Progress { policy, ended, jobs }) = progress else {
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
        let rate = ended as f64 / now.duration_since(start).as_secs_f64();
        let left_s = jobs.saturating_sub(ended) as f64 / rate.max(1.0);
        eprint!("\r\x1b[K{policy}: {ended} of {jobs} jobs, {rate:.0}/s, {left_s:.0} s left");
    }
}
