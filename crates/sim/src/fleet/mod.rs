//! Training and serving on one cluster under the production engine: services whose load goes up and down with the day, on
//! whole devices or on parts of them, training beside them that makes way and comes back, nodes that are taken back.
//!
//! It runs in the world of scenarios ([`crate::World`]): every replica and every rank is a process, and the checker looks
//! at each step.

mod load;
mod queueing;
mod run;

use phalanx_model::{Levels, Needs, Node, Queue, QueueName, Settings};

pub use load::{DAY_MILLI, Load};
pub use queueing::{Response, response};

/// What runs where, for how long.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub levels: Levels,
    /// Those with [`Node::spot`] are taken back as [`Self::reclaims`] says.
    pub nodes: Vec<Node>,
    pub settings: Settings,
    pub queues: Vec<Queue>,
    pub services: Vec<Service>,
    /// Sorted by submission.
    pub training: Vec<Training>,
    pub reclaims: Option<Reclaims>,
    pub end_ms: u64,
    pub seed: u64,
}

/// Replicas that serve requests, as many as the engine finds are needed for the load.
#[derive(Clone, Debug)]
pub struct Service {
    pub queue: QueueName,
    /// Of one replica.
    pub needs: Needs,
    pub min: u32,
    pub max: u32,
    /// Requests that a replica serves at a time, and a second in thousandths of one that each of these does.
    pub workers: u32,
    pub rate_milli: u64,
    /// What a worker uses of a device while it serves, in thousandths.
    pub gpu_milli: u32,
    /// The load that a replica is to have, in thousandths of what its workers can do.
    pub target_milli: u32,
    /// From the order to start until it serves: its model is loaded.
    pub starts_ms: u64,
    pub load: Load,
}

/// A job that trains on whole devices.
#[derive(Clone, Debug)]
pub struct Training {
    pub queue: QueueName,
    pub submit_ms: u64,
    /// What it asks for, and has unless it is elastic.
    pub gpus: u32,
    pub elastic: Option<Elastic>,
    /// Work, on as many devices as it asks for.
    pub run_ms: u64,
    pub starts_ms: u64,
    /// It saves its work every so often, and when it is told in time that it has to go, which takes `save_ms`.
    pub checkpoint_ms: u64,
    pub save_ms: u64,
    pub takes_spot: bool,
}

/// A job that runs on fewer devices than it asks for, and on more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elastic {
    pub min: u32,
    pub max: u32,
    /// On twice the devices it does twice this part of the work, in thousandths, and so on with each doubling. On fewer
    /// devices than it asks for it does as much less work.
    pub efficiency_milli: u32,
}

/// How often spot nodes are taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reclaims {
    /// Mean of the exponential time until a node is.
    pub every_ms: u64,
    pub notice_ms: u64,
    /// Mean of the exponential time until there is one in its stead.
    pub back_ms: u64,
}

/// What came of it. Device times are in ms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetReport {
    /// Devices of all nodes, times the whole time.
    pub gpu_ms: f64,
    /// By job, from submission to end; nothing where it did not end.
    pub completions_ms: Vec<Option<u64>>,
    /// Of training: work that is done and kept, work in vain, and devices held in all.
    pub trained_gpu_ms: f64,
    pub lost_gpu_ms: f64,
    pub held_gpu_ms: f64,
    /// Devices on which anything was, and the most of them at a time.
    pub open_gpu_ms: f64,
    pub open_most: usize,
    /// Attempts of training jobs, less one for each that started.
    pub restarts: u32,
    /// By service.
    pub serving: Vec<Served>,
}

/// One service over the whole time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Served {
    pub requests: f64,
    /// Requests that waited longer than one takes to serve, or found all workers busy for good.
    pub late: f64,
    /// Sum of the times that requests took, in ms, where the workers were enough.
    pub response_ms: f64,
    /// Requests of such times.
    pub answered: f64,
    /// Device time that served, and that replicas had (parts of a device count as parts).
    pub busy_gpu_ms: f64,
    pub held_gpu_ms: f64,
    pub replica_starts: u32,
}

impl FleetReport {
    /// Of all device time: training that was kept, and serving.
    #[must_use]
    pub fn useful_gpu_ms(&self) -> f64 {
        self.trained_gpu_ms + self.served().busy_gpu_ms
    }

    /// All services together.
    #[must_use]
    pub fn served(&self) -> Served {
        self.serving.iter().fold(Served::default(), |sum, one| Served {
            requests: sum.requests + one.requests,
            late: sum.late + one.late,
            response_ms: sum.response_ms + one.response_ms,
            answered: sum.answered + one.answered,
            busy_gpu_ms: sum.busy_gpu_ms + one.busy_gpu_ms,
            held_gpu_ms: sum.held_gpu_ms + one.held_gpu_ms,
            replica_starts: sum.replica_starts + one.replica_starts,
        })
    }
}

impl Served {
    /// In ms, of requests that found enough workers.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        if self.answered > 0.0 { self.response_ms / self.answered } else { 0.0 }
    }

    #[must_use]
    pub fn late_percent(&self) -> f64 {
        if self.requests > 0.0 { self.late / self.requests * 100.0 } else { 0.0 }
    }

    /// A span of time with so many requests a second and so many workers, each of which does `rate` of them a second.
    pub fn count(&mut self, span_ms: f64, per_s: f64, workers: u32, rate: f64) {
        let requests = per_s * span_ms / 1_000.0;
        self.requests += requests;
        match response(per_s, workers, rate) {
            Some(Response { mean_s, late }) => {
                self.late += requests * late;
                self.response_ms += requests * mean_s * 1_000.0;
                self.answered += requests;
            }
            None => self.late += requests,
        }
    }
}
