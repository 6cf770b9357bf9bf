//! The orders of FIFO, SJF, SRTF, SRSF, least attained service, and Gandiva's turns.
#![allow(clippy::cast_precision_loss, reason = "milliseconds are exact below 2^53")]

use super::ordered::Order;
use crate::replay::View;

/// Whoever was submitted first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

impl Order for Fifo {
    fn name(&self) -> String {
        "fifo".to_owned()
    }

    fn key(&mut self, _: &View<'_>, _: usize) -> (u64, f64) {
        (0, 0.0)
    }
}

/// What takes the least time in all: an oracle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sjf;

impl Order for Sjf {
    fn name(&self) -> String {
        "sjf".to_owned()
    }

    fn key(&mut self, view: &View<'_>, job: usize) -> (u64, f64) {
        (0, view.jobs[job].work)
    }
}

/// What takes the least time from now: an oracle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Srtf;

impl Order for Srtf {
    fn name(&self) -> String {
        "srtf".to_owned()
    }

    fn key(&mut self, view: &View<'_>, job: usize) -> (u64, f64) {
        (0, view.remaining(job))
    }
}

/// What takes the least device time from now: an oracle (Tiresias, NSDI 2019, calls it shortest remaining service
/// first).
#[derive(Clone, Copy, Debug, Default)]
pub struct Srsf;

impl Order for Srsf {
    fn name(&self) -> String {
        "srsf".to_owned()
    }

    fn key(&mut self, view: &View<'_>, job: usize) -> (u64, f64) {
        (0, view.remaining(job) * view.jobs[job].devices())
    }
}

/// What had the least device time (Tiresias, NSDI 2019, without its queues). With rounds, or jobs of equal service would
/// take each other's place at every event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Las;

impl Order for Las {
    fn name(&self) -> String {
        "las".to_owned()
    }

    fn key(&mut self, view: &View<'_>, job: usize) -> (u64, f64) {
        (0, view.held_gpu_ms(job) as f64)
    }
}

/// Gandiva (OSDI 2018): jobs take turns of equal length, whatever their size; with rounds of a minute. (Its packing of
/// several jobs on one device is not modelled.)
#[derive(Clone, Copy, Debug, Default)]
pub struct Gandiva;

impl Order for Gandiva {
    fn name(&self) -> String {
        "gandiva".to_owned()
    }

    fn key(&mut self, view: &View<'_>, job: usize) -> (u64, f64) {
        (0, view.held_ms(job) as f64)
    }
}
