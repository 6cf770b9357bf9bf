//! A toy trainer: counts steps, saves how far it is, and goes on from there after it had to make way.
//!
//! ```sh
//! PHALANX_CKPT_DIR=/tmp/ckpt train --steps 600 --step 100ms --save-every 5s
//! ```
//!
//! Rank 0 saves for all. It does so on a schedule, at once on SIGUSR1, and before it ends on SIGTERM; each time it touches
//! the file that `PHALANX_CHECKPOINTED` names, which is all that the scheduler has to be told. Each rank writes how far it
//! is to the file that `PHALANX_PROGRESS` names.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use phalanx_examples::touch::touch;
use phalanx_spec::quantity::parse_duration_ns;
use signal_hook::consts::{SIGTERM, SIGUSR1};
use signal_hook::flag;

/// Longest sleep before a signal is looked for.
const NAP: Duration = Duration::from_millis(20);

#[derive(Debug, Parser)]
#[command(name = "train", version, about = "A toy trainer that saves its work and resumes.")]
struct Settings {
    /// Steps of the whole training, those before a resume included.
    #[arg(long, default_value_t = 600)]
    steps: u64,
    /// How long a step takes.
    #[arg(long, default_value = "100ms", value_name = "TIME", value_parser = span)]
    step: Duration,
    /// How often rank 0 saves; `advised`: as often as the scheduler advises.
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = save_every)]
    save_every: SaveEvery,
    /// Until there is an advice.
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = span)]
    save_at_first: Duration,
    /// Folder of the checkpoint; without one nothing is saved.
    #[arg(long, env = "PHALANX_CKPT_DIR", value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// File to touch after each save.
    #[arg(long, env = "PHALANX_CHECKPOINTED", value_name = "FILE")]
    told_by: Option<PathBuf>,
    /// File to write the progress to.
    #[arg(long, env = "PHALANX_PROGRESS", value_name = "FILE")]
    progress: Option<PathBuf>,
    /// File with the advised time between saves, in seconds.
    #[arg(long, env = "PHALANX_CHECKPOINT_EVERY", value_name = "FILE")]
    advice: Option<PathBuf>,
    #[arg(long, env = "PHALANX_RANK", default_value_t = 0)]
    rank: u32,
}

fn span(text: &str) -> Result<Duration, String> {
    parse_duration_ns(text).map(Duration::from_nanos).map_err(|e| e.to_string())
}

#[derive(Clone, Copy, Debug)]
enum SaveEvery {
    Advised,
    Time(Duration),
}

fn save_every(text: &str) -> Result<SaveEvery, String> {
    if text == "advised" { Ok(SaveEvery::Advised) } else { span(text).map(SaveEvery::Time) }
}

impl Settings {
    fn save_every(&self) -> Duration {
        match self.save_every {
            SaveEvery::Time(time) => time,
            SaveEvery::Advised => {
                let text = self.advice.as_deref().and_then(|file| fs::read_to_string(file).ok());
                let seconds = text.and_then(|text| text.trim().parse().ok());
                seconds.map_or(self.save_at_first, Duration::from_secs)
            }
        }
    }

    /// Tells how far it is; a file that is gone is no reason to end.
    fn tell(&self, step: u64, work: Duration, saved: Option<Duration>) {
        let Some(file) = &self.progress else { return };
        let saved = saved.map(|took| format!(" saved={}us", took.as_micros())).unwrap_or_default();
        let line = format!("step={step} of={} work={}us{saved}\n", self.steps, work.as_micros());
        let _ = fs::write(file, line);
    }
}

fn main() -> ExitCode {
    let settings = Settings::parse();
    match train(&settings) {
        Ok(End::Done) => ExitCode::SUCCESS,
        // As a shell says it of a program that SIGTERM ended.
        Ok(End::Told) => ExitCode::from(143),
        Err(error) => {
            eprintln!("rank {}: {error}", settings.rank);
            ExitCode::FAILURE
        }
    }
}

/// How a run ended.
enum End {
    Done,
    Told,
}

fn train(settings: &Settings) -> io::Result<End> {
    let (save_now, end_now) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    flag::register(SIGUSR1, Arc::clone(&save_now))?;
    flag::register(SIGTERM, Arc::clone(&end_now))?;
    let is_told = || save_now.load(Ordering::SeqCst) || end_now.load(Ordering::SeqCst);
    let file = settings.checkpoint.as_deref().map(|dir| dir.join("step"));
    let mut done = file.as_deref().map_or(Ok(0), read)?;
    if done > 0 {
        println!("resumed at step {done}");
    }
    let (mut next_save, mut saved) = (Instant::now() + settings.save_every(), None);
    while done < settings.steps {
        let begin = Instant::now();
        let end = begin + settings.step;
        while Instant::now() < end && !is_told() {
            std::thread::sleep(NAP.min(end.saturating_duration_since(Instant::now())));
        }
        let worked = begin.elapsed();
        let ends = end_now.load(Ordering::SeqCst);
        let was_told = save_now.swap(false, Ordering::SeqCst) || ends;
        // A step that was cut short does not count.
        done += u64::from(!was_told);
        if was_told || Instant::now() >= next_save {
            let begin = Instant::now();
            if save(settings, file.as_deref(), done)? {
                saved = Some(begin.elapsed());
            }
            next_save = Instant::now() + settings.save_every();
        }
        settings.tell(done, worked, saved);
        if ends {
            return Ok(End::Told);
        }
    }
    println!("done at step {done}");
    Ok(End::Done)
}

/// Whether this rank saves.
fn save(settings: &Settings, file: Option<&Path>, step: u64) -> io::Result<bool> {
    let (Some(file), 0) = (file, settings.rank) else { return Ok(false) };
    write(file, step)?;
    println!("saved step {step}");
    if let Some(told) = &settings.told_by {
        touch(told)?;
    }
    Ok(true)
}

/// The step that was saved; 0 where nothing was.
fn read(file: &Path) -> io::Result<u64> {
    match fs::read_to_string(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
        text => text?.trim().parse().map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{} holds no step; remove it", file.display()))
        }),
    }
}

/// Replaces the file whole, or not at all.
fn write(file: &Path, step: u64) -> io::Result<()> {
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir)?;
    }
    let next = file.with_extension("next");
    let mut new = File::create(&next)?;
    writeln!(new, "{step}")?;
    new.sync_all()?;
    fs::rename(&next, file)
}
