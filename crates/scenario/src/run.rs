//! Runs a scenario on a world: each line with its output and the events that follow.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use phalanx_model::{After, Bandwidth, Boost, Exit, GangRecord, JobId, JobName, NodeName, Phase, Placement};

use crate::show::{self, Names};
use crate::turn::USER;
use crate::{Expectation, Line, ScenarioError, Submission, Verb, World, parse, show_queues};

/// Reads and runs a scenario.
///
/// # Errors
/// The first line that cannot be parsed or run, or whose expectation fails. The error has the output so far.
pub fn run(text: &str, world: &mut impl World) -> Result<String, ScenarioError> {
    let lines = parse(text)?;
    let mut runner = Runner::default();
    for line in &lines {
        if let Err(what) = runner.line(line, world) {
            let output = runner.output;
            let text = line.text.clone();
            return Err(ScenarioError { line: line.number, column: 1, what, text, output });
        }
    }
    Ok(runner.output)
}

#[derive(Default)]
struct Runner {
    output: String,
    jobs: BTreeMap<JobName, JobId>,
    names: Names,
}

impl Runner {
    fn line(&mut self, line: &Line, world: &mut impl World) -> Result<(), String> {
        writeln!(self.output, "> {}", line.text).unwrap_or_default();
        match &line.verb {
            Verb::Levels(levels) => world.levels(levels)?,
            Verb::Uplink { level, mb_per_s } => world.uplink(level, *mb_per_s)?,
            Verb::Nodes(nodes) => nodes.iter().try_for_each(|n| world.node(n.clone()))?,
            Verb::Submit(submission) => self.submit(submission, world)?,
            Verb::Advance { ms } => world.advance(*ms)?,
            Verb::Exit { job, rank, code } => {
                world.end_member(self.job(job)?, *rank, Exit::code(*code))?;
            }
            Verb::KillRank { job, rank } => {
                let exit = Exit::by_signal(9);
                world.end_member(self.job(job)?, *rank, exit)?;
            }
            Verb::Cordon(node) => world.cordon(node)?,
            Verb::Uncordon(node) => world.uncordon(node)?,
            Verb::Drain(node) => world.drain(node)?,
            Verb::Defrag(job) => world.defrag(self.job(job)?)?,
            Verb::Grade(health) => world.grade(health)?,
            Verb::Measure(bandwidth) => {
                let at = world.now();
                world.measure(&Bandwidth { at, ..bandwidth.clone() })?;
            }
            Verb::Window(window) => world.window(window)?,
            Verb::SpotNotice(notice) => world.spot_notice(notice)?,
            Verb::NodeLost(node) => world.lose_node(node)?,
            Verb::NodeBack(node) => world.return_node(node)?,
            Verb::Cancel(job) => world.cancel(self.job(job)?)?,
            Verb::Queue(queue) => world.queue(queue)?,
            Verb::QueueGone(queue) => world.remove_queue(queue)?,
            Verb::Settings(settings) => world.settings(settings)?,
            Verb::Hold(job) => world.hold(self.job(job)?)?,
            Verb::Release(job) => world.release(self.job(job)?)?,
            Verb::Boost { job, priority, until } => {
                let boost = Boost { priority: *priority, until: *until, by: USER.to_owned() };
                world.boost(self.job(job)?, &boost)?;
            }
            Verb::Saved(job) => world.save(self.job(job)?)?,
            Verb::Scale { job, replicas } => world.scale(self.job(job)?, *replicas)?,
            Verb::Load { job, of } => world.load(self.job(job)?, of)?,
            Verb::Use(job) => world.use_session(self.job(job)?)?,
            Verb::Crash => world.crash()?,
            Verb::Show => self.show(world),
            Verb::ShowQueues => {
                writeln!(self.output, "  at {}", show::time(world.now())).unwrap_or_default();
                self.output += &show_queues::queues(&world.queues());
            }
            Verb::Why(job) => self.why(job, world)?,
            Verb::Expect(expectation) => self.expect(expectation, world)?,
        }
        self.events(world);
        Ok(())
    }

    fn submit(&mut self, submission: &Submission, world: &mut impl World) -> Result<(), String> {
        let mut submission = submission.clone();
        for (job, end) in &submission.after {
            submission.job.turn.after.push(After { job: self.job(job)?, end: *end });
        }
        let id = world.submit(&submission)?;
        self.jobs.insert(submission.job.name.clone(), id);
        // A second submission with the same key is the first job, and the first name stays.
        self.names.add(id, &submission.job);
        Ok(())
    }

    fn job(&self, name: &JobName) -> Result<JobId, String> {
        self.jobs.get(name).copied().ok_or_else(|| format!("no job {name} was submitted"))
    }

    fn events(&mut self, world: &mut impl World) {
        for (at, event) in world.take_events() {
            if let Some(sentence) = show::event(&event, &self.names) {
                writeln!(self.output, "  {:>6}  {sentence}", show::time(at)).unwrap_or_default();
            }
        }
    }

    fn show(&mut self, world: &impl World) {
        // The reason of the last step was printed as a change. Here is the current reason.
        let reason = |record: &GangRecord| world.report(record.id).map(|r| r.reason);
        let saved = |record: &GangRecord| world.saved_ms(record.id);
        let picture = show::picture(&world.nodes(), &world.jobs(), reason, saved, &self.names);
        writeln!(self.output, "  at {}", show::time(world.now())).unwrap_or_default();
        self.output += &picture;
    }

    fn why(&mut self, job: &JobName, world: &impl World) -> Result<(), String> {
        let id = self.job(job)?;
        let report = world.report(id.gang(0)).ok_or_else(|| format!("job {job} was not accepted"))?;
        self.output += &show::report(&report, &self.names, world.now());
        Ok(())
    }

    fn expect(&self, expectation: &Expectation, world: &impl World) -> Result<(), String> {
        let jobs = world.jobs();
        let record = |job: &JobName| -> Result<Option<&GangRecord>, String> {
            let id = self.job(job)?;
            Ok(jobs.iter().find(|(j, _)| j.id == id).and_then(|(_, gangs)| gangs.first()))
        };
        match expectation {
            Expectation::NothingHeld => {
                let holding = jobs.iter().flat_map(|(_, gangs)| gangs).find(|r| r.holds_capacity());
                holding.map_or(Ok(()), |r| Err(format!("{} holds devices", self.names.gang(r.id))))
            }
            Expectation::Job { job, state, reason } => {
                let record = record(job)?;
                let found = record.map_or("rejected", |r| r.phase.word());
                if found != state {
                    return Err(format!("expected {job} to be {state}, and it is {found}"));
                }
                let (Some(wanted), Some(record)) = (reason, record) else { return Ok(()) };
                let report = world.report(record.id);
                let word = report.as_ref().map_or("no report", |r| r.reason.word());
                if word == wanted {
                    return Ok(());
                }
                Err(format!("expected {job} to be pending with reason {wanted}, and its reason is {word}"))
            }
            Expectation::On { job, nodes } => {
                let held = record(job)?.filter(|r| r.holds_capacity());
                let found = nodes_of(held.and_then(|r| r.placement.as_ref()));
                if found.iter().copied().eq(nodes) {
                    return Ok(());
                }
                Err(format!("expected {job} on other nodes, and it is on {}", listed(&found)))
            }
            Expectation::Held { job, nodes } => {
                let held = record(job)?.and_then(|r| r.reserved.as_ref());
                let found = nodes_of(held.map(|held| &held.placement));
                if found.iter().copied().eq(nodes) {
                    return Ok(());
                }
                Err(format!(
                    "expected other nodes to be reserved for {job}, and its reservation is {}",
                    listed(&found)
                ))
            }
            Expectation::Evicted { job, times } => {
                let found = record(job)?.map_or(0, |r| r.evictions);
                if found == *times {
                    return Ok(());
                }
                Err(format!(
                    "expected {job} to be preempted {times} times, and it was preempted {found} times"
                ))
            }
            Expectation::Runs { job, gangs: wanted } => {
                let id = self.job(job)?;
                let of_job = jobs.iter().filter(|(j, _)| j.id == id).flat_map(|(_, gangs)| gangs);
                let found = of_job.filter(|r| matches!(r.phase, Phase::Running { .. })).count();
                if found == *wanted as usize {
                    return Ok(());
                }
                Err(format!("expected {wanted} running gangs of {job}, and there are {found}"))
            }
            Expectation::Uses { queue, amounts } => {
                let queues = world.queues();
                let report = queues.iter().find(|report| report.queue.name == *queue);
                let report = report.ok_or_else(|| format!("there is no queue {queue}"))?;
                for (resource, wanted) in amounts {
                    let good = report.resources.iter().find(|good| good.resource == *resource);
                    let found = good.map_or(0, |good| good.used);
                    if found != *wanted {
                        let (wanted, found) = (resource.show(*wanted), resource.show(found));
                        return Err(format!(
                            "expected {queue} to use {wanted} {resource}, and it uses {found}"
                        ));
                    }
                }
                Ok(())
            }
        }
    }
}

fn nodes_of(placement: Option<&Placement>) -> BTreeSet<&NodeName> {
    placement.iter().flat_map(|placement| &placement.slots).map(|slot| &slot.node).collect()
}

fn listed(nodes: &BTreeSet<&NodeName>) -> String {
    if nodes.is_empty() {
        return "none".to_owned();
    }
    let nodes: Vec<&str> = nodes.iter().map(|node| node.as_str()).collect();
    nodes.join(" ")
}
