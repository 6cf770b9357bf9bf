//! A cluster of a test: nodes `n0`, `n1` and so on, with H100 devices, and a grader.
#![allow(dead_code, reason = "each test uses a part")]

use phalanx_health::{Evidence, Grader, Line, Policy, State};
use phalanx_model::{Grade, JobId, NodeName, Timestamp, Vitals};

pub(crate) const MINUTE: u64 = 60_000;
pub(crate) const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;

pub(crate) struct Site {
    pub(crate) grader: Grader,
    pub(crate) now: u64,
}

pub(crate) fn node(number: u32) -> NodeName {
    NodeName::new(format!("n{number}")).unwrap()
}

/// A device without complaints.
pub(crate) fn healthy() -> Vitals {
    Vitals { ecc_corrected: Some(0), ecc_uncorrected: Some(0), pcie_replays: Some(0), ..Vitals::default() }
}

impl Site {
    pub(crate) fn new(nodes: u32, devices: usize) -> Self {
        let mut grader = Grader::new(Policy::default());
        grader.set_nodes((0..nodes).map(|n| (node(n), vec!["NVIDIA H100 80GB HBM3".to_owned(); devices])));
        Self { grader, now: DAY }
    }

    /// Time passes, and everything is free.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now += ms;
        self.grader.tick(Timestamp(self.now), &|_, _| true);
    }

    /// Time passes, and everything is held.
    pub(crate) fn pass_busy(&mut self, ms: u64) {
        self.now += ms;
        self.grader.tick(Timestamp(self.now), &|_, _| false);
    }

    pub(crate) fn observe(&mut self, of: u32, device: Option<u32>, job: u64, evidence: Evidence) {
        self.grader.observe(Timestamp(self.now), &node(of), device, &[JobId(job)], evidence);
    }

    pub(crate) fn xid(&mut self, of: u32, device: u32, job: u64, number: u32) {
        self.observe(of, Some(device), job, Evidence::Xid { number, text: String::new() });
    }

    /// A sample, ten seconds after what was before.
    pub(crate) fn sample(&mut self, of: u32, device: u32, vitals: Vitals) {
        self.now += 10_000;
        self.observe(of, Some(device), 1, Evidence::Vitals(Box::new(vitals)));
    }

    pub(crate) fn report(&mut self, of: u32, device: Option<u32>, grade: Grade) {
        self.observe(of, device, 1, Evidence::Report { grade, by: "ana".into(), text: "it smells".into() });
    }

    pub(crate) fn preflight(&mut self, of: u32, device: u32, is_passed: bool) {
        let failure = (!is_passed).then(|| "exit code 1".into());
        self.observe(of, Some(device), 1, Evidence::Preflight { failure });
    }

    pub(crate) fn reboot(&mut self, of: u32) {
        self.grader.rebooted(Timestamp(self.now), &node(of));
    }

    pub(crate) fn clear(&mut self, of: u32, device: Option<u32>) -> Result<(), String> {
        self.grader.clear(Timestamp(self.now), &node(of), device, "ana")
    }

    pub(crate) fn line(&self, of: u32, device: Option<u32>) -> Option<Line> {
        self.grader.report().into_iter().find(|line| line.node == node(of) && line.device == device)
    }

    pub(crate) fn grade(&self, of: u32, device: u32) -> Grade {
        self.line(of, Some(device)).map_or(Grade::Ok, |line| line.grade)
    }

    pub(crate) fn detail(&self, of: u32, device: u32) -> String {
        self.line(of, Some(device)).map_or(String::new(), |line| line.detail)
    }

    /// As after a restart of the daemon.
    pub(crate) fn restart(&mut self) {
        let text = serde_json::to_string(self.grader.state()).unwrap();
        let state: State = serde_json::from_str(&text).unwrap();
        assert_eq!(&state, self.grader.state());
        self.grader = Grader::resume(Policy::default(), state);
    }

    /// Devices and nodes that are closed.
    pub(crate) fn closed(&self) -> Vec<(NodeName, Option<u32>)> {
        let lines = self.grader.report().into_iter().filter(|line| line.grade.is_closed());
        lines.map(|line| (line.node, line.device)).collect()
    }
}
