//! The two fleets while they are apart.

use phalanx_model::QueueName;

use super::{Cell, Consolidation, FleetReport, HOUR_MS, SLICES, Service, percent};
use crate::fleet::Served;

const MINUTE_MS: u64 = 60_000;

impl Consolidation {
    /// What both are used for while they are apart. Of training it is what ran on its own nodes.
    pub(super) fn row_before(&self, training: &FleetReport, queue: &QueueName) -> Vec<Cell> {
        let served = self.served_before(&self.services(1_000, false, queue));
        let used =
            percent(training.trained_gpu_ms + served.busy_gpu_ms, self.gpus_before() * self.lasts.0 as f64);
        vec![
            Cell::word("apart"),
            Cell::word("rigid"),
            Cell::None,
            Cell::Number(self.gpus_before(), 0),
            Cell::Number(used, 1),
            Cell::Number(1.0, 2),
            Cell::Number(f64::from(training.restarts), 0),
            Cell::Number(training.lost_gpu_ms / HOUR_MS, 1),
            Cell::Number(served.mean_ms(), 1),
            Cell::Number(served.late_percent(), 3),
            Cell::None,
            Cell::None,
        ]
    }

    /// Whole GPUs, as many for each service as it has of all requests, whatever the hour.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "hundreds of GPUs")]
    fn served_before(&self, services: &[Service]) -> Served {
        let peaks: u64 = services.iter().map(|service| service.load.peak_milli).sum();
        let rate = self.rate_milli() as f64 / 1_000.0;
        let mut all = Served::default();
        for service in services {
            let part = service.load.peak_milli as f64 / peaks.max(1) as f64;
            let gpus = ((f64::from(self.inference.gpus.0) * part + 0.5) as u32).max(1);
            for minute in 0..self.lasts.0 / MINUTE_MS {
                let per_s = service.load.at(minute * MINUTE_MS) as f64 / 1_000.0;
                all.count(MINUTE_MS as f64, per_s, gpus * SLICES, rate);
                all.busy_gpu_ms += per_s / rate / f64::from(SLICES) * MINUTE_MS as f64;
            }
        }
        all
    }
}
