//! A month on 512 devices: failures of jobs, slowness and corrected errors drain nothing, and one lemon is found.

#![allow(clippy::unwrap_used)]

mod site;

use std::collections::BTreeSet;

use phalanx_health::Evidence;
use phalanx_model::{JobId, NodeName, Throttle, Timestamp, Vitals};
use site::{DAY, HOUR, MINUTE, Site, node};

const NODES: u64 = 64;
const DEVICES: u64 = 8;
const LEMON: (u64, u64) = (17, 3);

/// Knuth's MMIX generator.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

struct Month {
    site: Site,
    random: Lcg,
    job: u64,
}

impl Month {
    /// A job fails on some devices: each shows one of the Xids of jobs, some of them often.
    fn fail(&mut self, devices: &[(u64, u64)]) {
        self.job += 1;
        let number = [13, 31, 43, 45, 94][usize::try_from(self.random.below(5)).unwrap()];
        for (of, device) in devices {
            let now = Timestamp(self.site.now + self.random.below(HOUR));
            for _ in 0..=self.random.below(3) {
                let evidence = Evidence::Xid { number, text: String::new() };
                let (of, device) = (u32::try_from(*of).unwrap(), u32::try_from(*device).unwrap());
                self.site.grader.observe(now, &node(of), Some(device), &[JobId(self.job)], evidence);
            }
        }
    }

    fn anywhere(&mut self) -> (u64, u64) {
        (self.random.below(NODES), self.random.below(DEVICES))
    }

    /// Samples of all devices: warm ones are slow, and corrected errors grow everywhere.
    fn sample(&mut self) {
        for of in 0..NODES {
            for device in 0..DEVICES {
                let is_warm = self.random.below(3) == 0;
                // Less than half of the time, the hardware has to slow it down.
                let is_hot = self.random.below(5) == 0;
                let vitals = Vitals {
                    ecc_corrected: Some(self.site.now / 1_000 * (1 + of)),
                    ecc_uncorrected: Some(0),
                    throttle: Some(Throttle { is_hardware: is_hot, is_hot, is_warm, ..Throttle::default() }),
                    pcie_replays: Some(u32::try_from(self.site.now / (2 * MINUTE)).unwrap()),
                    ..Vitals::default()
                };
                let (of, device) = (u32::try_from(of).unwrap(), u32::try_from(device).unwrap());
                let evidence = Evidence::Vitals(Box::new(vitals));
                self.site.grader.observe(Timestamp(self.site.now), &node(of), Some(device), &[], evidence);
            }
        }
    }
}

/// The devices that are closed at some time of a month.
fn drained(seed: u64, jobs_per_hour_percent: u64, has_lemon: bool) -> BTreeSet<(NodeName, String)> {
    let site = Site::new(u32::try_from(NODES).unwrap(), usize::try_from(DEVICES).unwrap());
    let mut month = Month { site, random: Lcg(seed), job: 0 };
    let mut closed = BTreeSet::new();
    let begin = month.site.now;
    for hour in 0..30 * 24 {
        month.site.now = begin + hour * HOUR;
        for _ in 0..10 {
            if month.random.below(1_000) < jobs_per_hour_percent {
                let device = month.anywhere();
                month.fail(&[device]);
            }
        }
        if month.random.below(1_000) < jobs_per_hour_percent {
            let (of, _) = month.anywhere();
            month.fail(&(0..DEVICES).map(|device| (of, device)).collect::<Vec<_>>());
        }
        // A bad workload, tried five times on 100 devices.
        if hour % (3 * 24) == 5 {
            let devices: Vec<_> = (0..100).map(|_| month.anywhere()).collect();
            (0..5).for_each(|_| month.fail(&devices));
        }
        if has_lemon && hour % 4 == 0 {
            month.fail(&[LEMON]);
        }
        if hour % 144 < 2 {
            for _ in 0..12 {
                month.site.now += 5 * MINUTE;
                month.sample();
            }
        }
        month.site.grader.tick(Timestamp(month.site.now), &|_, _| true);
        let facts = month.site.grader.take_changes();
        let facts = facts.into_iter().filter(|fact| fact.grade.is_closed());
        closed.extend(facts.map(|fact| (fact.node, fact.devices.to_string())));
        assert_eq!(month.site.grader.is_breaker_open(), None);
    }
    assert!(month.job > 100 && month.site.now < begin + 31 * DAY);
    closed
}

#[test]
fn noise_drains_nothing() {
    // Per hour, 1, 3 and 10 jobs fail on a device of the cluster: 0.3 to 3 in a week on each device. (60 seeds were tried.)
    for (seed, rate) in [(2, 100), (3, 300), (4, 1_000)] {
        assert_eq!(drained(seed, rate, false), BTreeSet::new(), "seed {seed}, rate {rate}");
    }
}

#[test]
fn the_lemon_is_drained_and_nothing_else() {
    let (of, device) = LEMON;
    let lemon = (node(u32::try_from(of).unwrap()), device.to_string());
    for (seed, rate) in [(5, 300), (6, 1_000)] {
        assert_eq!(drained(seed, rate, true), BTreeSet::from([lemon.clone()]), "seed {seed}, rate {rate}");
    }
}
