//! A ring all-reduce over TCP among `WORLD_SIZE` processes, as a user's program would be.
//!
//! Each rank holds a buffer of float32, and after a step every rank holds the sum of all buffers: a
//! reduce-scatter and an all-gather, 2(n−1) exchanges with the two neighbours in the ring (Patarasuk and
//! Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009). Every element of
//! every step is verified.
//!
//! ```sh
//! for RANK in 0 1 2 3; do
//!   RANK=$RANK WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ring-allreduce --bytes 64MB --steps 20 &
//! done; wait
//! ```
#![forbid(unsafe_code)]

mod buffer;
mod checkpoint;
mod control;
mod error;
mod rendezvous;
mod report;
mod ring;
mod settings;
mod signals;
mod wire;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::checkpoint::Checkpoint;
use crate::control::Control;
use crate::error::RingError;
use crate::rendezvous::Meeting;
use crate::report::Table;
use crate::ring::Ring;
use crate::settings::Settings;
use crate::signals::Signals;
use crate::wire::Vote;

fn main() -> ExitCode {
    let settings = Settings::parse();
    match run(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rank {}: {error}", settings.rank);
            ExitCode::from(error.exit_code())
        }
    }
}

/// Where this rank stands.
struct Run<'a> {
    settings: &'a Settings,
    signals: Signals,
    control: Control,
    ring: Ring,
    checkpoint: Option<Checkpoint>,
    data: Vec<f32>,
    /// Steps that are complete.
    done: u64,
    /// Own work for the last step, without the time that the rank waited for others.
    work: Duration,
}

fn run(settings: &Settings) -> Result<(), RingError> {
    settings.check()?;
    let signals = Signals::install()?;
    let checkpoint =
        settings.checkpoint.as_deref().map(|dir| Checkpoint::open(dir, settings.rank)).transpose()?;
    let own = checkpoint.as_ref().map(Checkpoint::read).transpose()?.flatten();
    let Meeting { start, listener, peers } = rendezvous::meet(settings, own.unwrap_or(0))?;
    let control = Control::new(settings, peers)?;
    let ring = Ring::connect(settings, &start, &listener).map_err(|failure| control.blame(failure))?;
    control.watch(ring.sockets());
    if start.resume > 0 {
        println!("rank {}: resumed from step {}", settings.rank, start.resume);
    }
    let data = vec![0.0; settings.elements()];
    let mut run =
        Run { settings, signals, control, ring, checkpoint, data, done: start.resume, work: Duration::ZERO };
    let ended = run.work();
    // Where the others do not know of the end, a connection that breaks tells them best.
    if ended.as_ref().err().is_none_or(RingError::is_known_to_all) {
        run.control.leave();
    }
    ended
}

impl Run<'_> {
    fn work(&mut self) -> Result<(), RingError> {
        self.signals.handled_by_steps();
        let mut table = Table::begin(self.settings, self.done);
        for warmup in 0..self.settings.warmup {
            if self.done < self.settings.last_step() {
                self.step(warmup)?;
            }
        }
        while self.done < self.settings.last_step() {
            self.fail_if_asked()?;
            let vote = self.step(self.done)?;
            self.done += 1;
            table.step(self.done, vote.nanos);
            self.settings.report(self.done, self.work);
            if vote.checkpoint || self.done.is_multiple_of(self.settings.checkpoint_every) {
                self.save()?;
            }
            if vote.stop {
                self.save()?;
                table.end(true);
                return Err(RingError::Stopped { step: self.done });
            }
            if vote.finish {
                self.save()?;
                break;
            }
        }
        table.end(false);
        Ok(())
    }

    /// One all-reduce, verified by all. Returns what all ranks together say of it.
    fn step(&mut self, step: u64) -> Result<Vote, RingError> {
        let (rank, world) = (self.settings.rank, self.settings.world_size);
        let filling = Instant::now();
        buffer::fill(&mut self.data, rank, step);
        let filled = filling.elapsed();
        self.control.agree(&Vote::default())?;
        let begun = Instant::now();
        if let Err(failure) = self.ring.all_reduce(&mut self.data) {
            return Err(self.control.blame(failure));
        }
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let working = Instant::now();
        let wrong = buffer::first_wrong(&self.data, world, step);
        if let Some(wrong) = &wrong {
            eprintln!("rank {rank}: step {step}: {wrong}");
        }
        self.sleep()?;
        self.work = filled + working.elapsed();
        let vote = self.control.agree(&Vote {
            nanos,
            wrong: wrong.is_some().then_some(rank),
            checkpoint: self.signals.take_checkpoint(),
            stop: self.signals.stop(),
            finish: self.settings.is_finished(),
        })?;
        match vote.wrong {
            Some(rank) => Err(RingError::WrongSum { rank, step }),
            None => Ok(vote),
        }
    }

    /// What a real program would compute; ends early when there is a reason to.
    fn sleep(&self) -> Result<(), RingError> {
        let until = Instant::now() + Duration::from_millis(self.settings.step_sleep_ms);
        while Instant::now() < until && !self.signals.stop() {
            self.control.check()?;
            std::thread::sleep(
                Duration::from_millis(20).min(until.saturating_duration_since(Instant::now())),
            );
        }
        Ok(())
    }

    fn save(&self) -> Result<(), RingError> {
        let Some(checkpoint) = &self.checkpoint else { return Ok(()) };
        checkpoint.write(self.done)?;
        self.settings.report_checkpoint();
        Ok(())
    }

    /// Not after a restart that resumed: the second attempt gets past it.
    fn fail_if_asked(&self) -> Result<(), RingError> {
        let Some(fail) = self.settings.fail_at else { return Ok(()) };
        let rank = fail.rank.unwrap_or(self.settings.world_size - 1);
        if (fail.step, rank) == (self.done, self.settings.rank) && self.ring.resumed_from == 0 {
            return Err(RingError::AskedToFail { step: self.done });
        }
        Ok(())
    }
}
