//! Topology-aware against naive placement: the same jobs in the same order, and only where they run differs.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::input::{Count, HOUR, List, Part, Time};
use super::jobs::{Drawn, Jobs};
use super::page::{Cell, Page, Table};
use super::{Around, Source, StudyError};
use crate::policies::{NAMES, Rules, named};
use crate::replay::metrics::Metrics;
use crate::replay::{Job, Machines, Placed, Replay, Settings};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Topology {
    cluster: String,
    policies: List<String, 24>,
    /// What the gain is counted against.
    against: String,
    jobs: Jobs,
    communication: List<Part, 8>,
    start: Time<0, HOUR>,
    restore: Time<0, HOUR>,
    seed: Count<0, { u32::MAX }>,
}

/// One policy: with full uplinks, and with uplinks that are shared by the jobs that send across them at the time.
struct Compared<'a> {
    policy: &'a str,
    full: Metrics,
    shared: Metrics,
}

pub(super) fn page(source: &Source<'_>, around: &mut dyn Around) -> Result<Page, StudyError> {
    let input: Topology = source.read()?;
    for policy in input.policies.0.iter().chain([&input.against]) {
        if NAMES.iter().all(|(known, _)| known != policy) {
            return Err(source.wrong(format!("there is no policy {policy:?}; `policies` lists them")));
        }
    }
    if !input.policies.0.contains(&input.against) {
        return Err(
            source.wrong(format!("against: {:?} is not among `policies`; add it there", input.against))
        );
    }
    let cluster = around.cluster(&input.cluster).map_err(|error| source.wrong(error))?;
    let machines = Machines::from(cluster);
    let drawn =
        input.jobs.draw(source, machines.gpus(), input.jobs.submitted_for.0, u64::from(input.seed.0))?;
    let mut table = Table::new(
        "",
        &[
            "communication, %",
            "policy",
            "useful, uplinks full, %",
            "gain, %",
            "useful, uplinks shared, %",
            "gain, %",
            "leaves over least",
            "mean completion, h",
        ],
    );
    let mut findings = Vec::new();
    let runs = (input.communication.0.len() * input.policies.0.len()) as u64;
    let mut run = 0;
    for communication in &input.communication.0 {
        let jobs: Vec<Job> = drawn.iter().map(|job| job.recorded(communication.0)).collect();
        let mut all = Vec::new();
        for policy in &input.policies.0 {
            run += 1;
            around.begin(policy, run, runs);
            all.push(input.compared(source, policy, &machines, &jobs)?);
        }
        input.rows(*communication, &all, &mut table);
        findings.extend(input.finding(*communication, &all));
    }
    Ok(Page {
        study: "topology",
        title: "Topology-aware against naive placement (predicted)",
        question: "How much more do jobs get done if the scheduler knows the topology? Claimed: 30 to 50 % more throughput on \
                   jobs that communicate much."
            .to_owned(),
        basis: format!(
            "{} on {} GPUs in {} leaves. The cost model predicts how much slower a job communicates on its place than on the \
             best place. Full uplinks: a job has the part of an uplink that its GPUs are of the GPUs below. Shared uplinks: the jobs \
             that send across an uplink at a time share it. Useful: work, over the GPU time that jobs hold. Gain: useful over \
             that of `{}`.",
            jobs_text(&drawn),
            machines.gpus(),
            machines.leaves(),
            input.against
        ),
        tables: vec![table],
        findings,
        input: source.input(),
        declared: source.text.to_owned(),
    })
}

fn jobs_text(drawn: &[Drawn]) -> String {
    let gpus: f64 = drawn.iter().map(|job| f64::from(job.gpus)).sum();
    format!("{} jobs of {:.0} GPUs in the mean", drawn.len(), gpus / drawn.len().max(1) as f64)
}

impl Topology {
    fn compared<'a>(
        &self,
        source: &Source<'_>,
        policy: &'a str,
        machines: &Machines,
        jobs: &[Job],
    ) -> Result<Compared<'a>, StudyError> {
        let run = |progress: &Placed| {
            let scheduler = named(policy, machines, &Rules::default(), &BTreeMap::new());
            let mut scheduler = scheduler.map_err(|error| source.wrong(error))?;
            let settings =
                Settings { start_ms: self.start.0, restore_ms: self.restore.0, ..Settings::default() };
            let replay = Replay { cluster: machines, jobs, progress, settings, node_events: &[] };
            Ok::<_, StudyError>(Metrics::of(&replay.run(scheduler.as_mut())?))
        };
        Ok(Compared { policy, full: run(&Placed::default())?, shared: run(&Placed::among_others())? })
    }

    fn rows(&self, communication: Part, all: &[Compared<'_>], table: &mut Table) {
        let Some(base) = all.iter().find(|one| one.policy == self.against) else { return };
        for Compared { policy, full, shared } in all {
            table.rows.push(vec![
                Cell::Number(communication.percent(), 1),
                Cell::word(*policy),
                Cell::Number(full.goodput_percent, 1),
                Cell::Number(gain(full, &base.full), 1),
                Cell::Number(shared.goodput_percent, 1),
                Cell::Number(gain(shared, &base.shared), 1),
                Cell::Number(shared.leaves_over_least, 2),
                Cell::Number(shared.completion_s.mean / 3_600.0, 2),
            ]);
        }
    }

    /// What the first policy gains over each of the others, and what there is to gain at all.
    fn finding(&self, communication: Part, all: &[Compared<'_>]) -> Option<String> {
        let (first, others) = all.split_first()?;
        let over =
            |one: &Compared<'_>| format!("{:+.1} % over {}", gain(&first.shared, &one.shared), one.policy);
        let gains: Vec<String> = others.iter().map(over).collect();
        let base = all.iter().find(|one| one.policy == self.against)?;
        Some(format!(
            "At {:.1} % communication and shared uplinks `{}` gains {}. The best place for every job would gain {:.1} % over \
             `{}`.",
            communication.percent(),
            first.policy,
            gains.join(", "),
            (base.shared.place_slowdown - 1.0) * 100.0,
            self.against
        ))
    }
}

fn gain(of: &Metrics, over: &Metrics) -> f64 {
    if over.goodput_percent > 0.0 { (of.goodput_percent / over.goodput_percent - 1.0) * 100.0 } else { 0.0 }
}
