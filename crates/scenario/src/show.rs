//! Events and states as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use phalanx_model::report::show_path;
use phalanx_model::show::count;
use phalanx_model::{
    Admin, Change, Confidence, DeviceMask, DevicePart, Ending, Estimate, GangId, GangRecord, Job, JobId,
    LikelyStart, Node, NodeName, Order, Phase, Placement, Preemption, Reason, Report, Rule, Signal, Slot,
    StopCause, StopStage, Timestamp, Unblock,
};
use phalanx_spec::quantity::{format_duration_ns, format_milli};

use crate::Event;

/// The names of jobs, with their numbers of gangs.
#[derive(Default)]
pub(crate) struct Names(BTreeMap<JobId, (String, usize)>);

impl Names {
    /// A job keeps its first name.
    pub(crate) fn add(&mut self, id: JobId, job: &Job) {
        self.0.entry(id).or_insert_with(|| (job.name.to_string(), job.gang_ids().len()));
    }

    fn job(&self, job: JobId) -> &str {
        self.0.get(&job).map_or("?", |(name, _)| name)
    }

    /// `bert`, or `bert[2]` if the job has several gangs.
    pub(crate) fn gang(&self, gang: GangId) -> String {
        match self.0.get(&gang.job) {
            Some((name, 2..)) => format!("{name}[{}]", gang.index),
            _ => self.job(gang.job).to_owned(),
        }
    }
}

/// A time as the span since the start of the scenario.
pub(crate) fn time(at: Timestamp) -> String {
    format_duration_ns(at.0.saturating_mul(1_000_000))
}

/// One event as a sentence. `None` for events that the user of a scenario need not see.
pub(crate) fn event(event: &Event, names: &Names) -> Option<String> {
    match event {
        Event::Changed(change) => changed(change, names),
        Event::Ordered(order) => {
            let job = names.gang(order.gang());
            match order {
                Order::SignalMembers { signal: Signal::Advisory(n), .. } => {
                    Some(format!("{job} gets signal {n}"))
                }
                Order::SignalMembers { signal: Signal::Terminate, .. } => Some(format!("{job} gets SIGTERM")),
                Order::KillMembers { .. } => Some(format!("{job} gets SIGKILL")),
                Order::StartMembers { .. } | Order::ReleaseMembers { .. } => None,
            }
        }
    }
}

fn changed(change: &Change, names: &Names) -> Option<String> {
    let name = |job: &JobId| names.job(*job);
    let gang_name = |gang: &GangId| names.gang(*gang);
    Some(match change {
        Change::JobRejected { job, why } => format!("{} is rejected: {why}", name(job)),
        Change::InputRejected { what, why } => format!("input rejected: {what}: {why}"),
        Change::GangPlaced { gang, attempt, placement } => {
            let attempt = if *attempt > 1 { format!(" (attempt {attempt})") } else { String::new() };
            format!("{} starts on {}{attempt}", gang_name(gang), place(placement))
        }
        Change::GangRunning { gang, .. } => format!("{} runs", gang_name(gang)),
        Change::GangStopping { gang, cause, .. } => {
            format!("{} is stopped: {}", gang_name(gang), cause_words(cause, names))
        }
        Change::GangRetrying { gang, not_before, .. } => {
            format!("{} is requeued, not before {}", gang_name(gang), time(*not_before))
        }
        Change::JobFinished { job, ending } => format!("{} ends: {}", name(job), ending_words(ending, names)),
        Change::ServiceScaled { job, before, replicas, load_milli } => {
            let load = load_milli.map(|load| format!("; total of its metric: {}", format_milli(load)));
            format!(
                "{} is scaled from {before} to {replicas} replicas{}",
                name(job),
                load.unwrap_or_default()
            )
        }
        Change::ReplicaLeaves { gang, leave } => {
            format!("{} stops when its replacement runs: {}", gang_name(gang), leave.detail)
        }
        Change::ReplicaStays { gang } => format!("{} stays on its nodes", gang_name(gang)),
        Change::ReplicaReplaced { gang, by } => {
            format!("{} replaces {}", gang_name(by), gang_name(gang))
        }
        Change::ReasonChanged { gang, reason } => {
            format!("{} waits: {}", gang_name(gang), reason_words(reason, names))
        }
        Change::GangReserved { gang, reserved } => {
            let at =
                reserved.at.map_or_else(String::new, |at| format!(", free at {} at the latest", time(at)));
            format!("{} has reserved {}{at}", gang_name(gang), place(&reserved.placement))
        }
        Change::ResizeAsked { gang, resize } => {
            let whom = resize.by.as_ref().map_or_else(String::new, |by| format!(", for {}", gang_name(by)));
            format!("{} will be resized to {} members{whom}", gang_name(gang), resize.size)
        }
        Change::ReservationDropped { gang, why } => {
            format!("{} lost its reservation: {why}", gang_name(gang))
        }
        Change::JobAccepted { .. } | Change::GangFinished { .. } => return None,
    })
}

/// `a 0-3 4-7, b 0:1g.10gb@4 in one leaf`: per node the devices of its members in rank order, and their parts.
fn place(placement: &Placement) -> String {
    let mut text = String::new();
    let mut last: Option<&NodeName> = None;
    for slot in &placement.slots {
        if last != Some(&slot.node) {
            let comma = if last.is_some() { ", " } else { "" };
            write!(text, "{comma}{}", slot.node).unwrap_or_default();
            last = Some(&slot.node);
        }
        write!(text, " {}{}", slot.devices, part(slot)).unwrap_or_default();
    }
    format!("{text} in one {}", placement.level)
}

fn part(slot: &Slot) -> String {
    match &slot.part {
        None => String::new(),
        Some(DevicePart::Share) => ":share".to_owned(),
        Some(DevicePart::Slice { profile, start }) => format!(":{profile}@{start}"),
    }
}

fn cause_words(cause: &StopCause, names: &Names) -> String {
    match cause {
        StopCause::Failure { class, detail, .. } => format!("{class}: {detail}"),
        StopCause::Displaced { detail, .. } => detail.clone(),
        StopCause::Preempted(Preemption { by, rule, lost_device_ms, .. }) => {
            let lost = time(Timestamp(*lost_device_ms));
            format!("preempted by {}: {rule}; {lost} of GPU time lost", names.gang(*by))
        }
        StopCause::Moved { by, to, lost_device_ms } => {
            let (cost, by) = (time(Timestamp(*lost_device_ms)), names.gang(*by));
            format!("moves to {} to open a place for {by}; costs {cost} of GPU time", place(to))
        }
        StopCause::Cancelled { by } => format!("cancelled by {by}"),
        StopCause::TimeLimit => "time limit reached".to_owned(),
        StopCause::ScaledIn { replicas } => {
            format!("the service needs only {}", count(u64::from(*replicas), "replica"))
        }
        StopCause::IdleLimit => "idle limit reached: no use was reported".to_owned(),
        StopCause::Resized { size } => format!("restarts with {}", count(u64::from(*size), "member")),
    }
}

fn ending_words(ending: &Ending, names: &Names) -> String {
    match ending {
        Ending::Succeeded => "succeeded".to_owned(),
        Ending::Failed { class, detail, .. } => format!("failed, {class}: {detail}"),
        Ending::Cancelled { by } => format!("cancelled by {by}"),
        Ending::TimeLimit => "time limit reached".to_owned(),
        Ending::IdleLimit => "idle limit reached: no use was reported".to_owned(),
        Ending::Preempted { detail } => format!("preempted and not requeued: {detail}"),
        Ending::DeadlineMissed => "could not start by its deadline".to_owned(),
        Ending::DependencyFailed { job } => {
            format!("its dependency {} did not end as required", names.job(*job))
        }
    }
}

/// A reason's word and its sentence, with names for numbers.
fn reason_words(reason: &Reason, names: &Names) -> String {
    let sentence = match reason {
        Reason::Priority { ahead, at: None } => {
            format!("{} has reached its bypass limit and must start first", names.gang(*ahead))
        }
        Reason::Priority { ahead, at: Some(at) } => {
            format!(
                "cannot backfill: would still be running at {} when {} is due to start",
                time(*at),
                names.gang(*ahead)
            )
        }
        Reason::Preempting { victims } => {
            let victims: Vec<String> = victims.iter().map(|gang| names.gang(*gang)).collect();
            format!("reserved; waiting for these jobs to leave: {}", victims.join(", "))
        }
        Reason::Dependency { jobs } => {
            let jobs: Vec<&str> = jobs.iter().map(|job| names.job(*job)).collect();
            format!("waiting for these jobs to end: {}", jobs.join(", "))
        }
        Reason::Window { ends_at, .. } => format!("{reason}; the first window ends at {}", time(*ends_at)),
        Reason::BeginTime { at } => format!("its begin time is {}", time(*at)),
        other => other.to_string(),
    };
    format!("{}: {sentence}", reason.word())
}

/// Marks of jobs in the picture, by order of submission.
fn mark(at: usize) -> char {
    const MARKS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    MARKS.get(at % MARKS.len()).copied().map_or('?', char::from)
}

/// For each node a row of devices (`.` free, `#` in foreign use, a letter for a job, `*` for several jobs), then the
/// jobs.
pub(crate) fn picture(
    nodes: &[Node],
    jobs: &[(Job, Vec<GangRecord>)],
    reason: impl Fn(&GangRecord) -> Option<Reason>,
    saved_ms: impl Fn(&GangRecord) -> Option<u64>,
    names: &Names,
) -> String {
    let mut held: BTreeMap<NodeName, Vec<(DeviceMask, char)>> = BTreeMap::new();
    for (at, (_, gangs)) in jobs.iter().enumerate() {
        for placement in gangs.iter().filter_map(GangRecord::held) {
            for slot in &placement.slots {
                held.entry(slot.node.clone()).or_default().push((slot.devices, mark(at)));
            }
        }
    }
    let path = |n: &Node| format!("{}/{}", show_path(&n.path), n.name);
    let width = nodes.iter().map(|n| path(n).len()).max().unwrap_or(0);
    let mut text = String::new();
    for node in nodes {
        let marks = held.get(&node.name).map_or(&[][..], Vec::as_slice);
        let cell = |d: u32| match marks.iter().find(|(mask, _)| mask.contains(d)) {
            Some((_, mark)) if marks.iter().any(|(mask, other)| mask.contains(d) && other != mark) => '*',
            Some((_, mark)) => *mark,
            None if node.foreign.contains(d) => '#',
            None if node.health.closed_devices().contains(d) => 'x',
            None => '.',
        };
        let cells: String = (0..node.machine.device_count()).map(cell).collect();
        let admin = match node.admin {
            Admin::Open if !node.health.is_open() => "  closed by its health",
            Admin::Open => "",
            Admin::Cordoned => "  cordoned",
            Admin::Draining => "  draining",
        };
        writeln!(text, "  {:width$}  {cells}{admin}", path(node)).unwrap_or_default();
    }
    let ids = jobs.iter().flat_map(|(_, gangs)| gangs).map(|record| record.id);
    let width = ids.map(|id| names.gang(id).len()).max().unwrap_or(0);
    for (at, (_, gangs)) in jobs.iter().enumerate() {
        for record in gangs {
            let name = names.gang(record.id);
            let phase = phase_words(record, reason(record).as_ref(), names);
            let saved = saved_ms(record).filter(|_| !record.is_finished());
            let saved = saved.map_or_else(String::new, |ms| format!("; saved {}", time(Timestamp(ms))));
            let (word, mark) = (record.phase.word(), mark(at));
            writeln!(text, "  {mark} {name:width$}  {word:10}  {phase}{saved}").unwrap_or_default();
        }
    }
    // No line ends in blanks, because an editor could remove them from a golden file unnoticed.
    text.lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

fn phase_words(record: &GangRecord, reason: Option<&Reason>, names: &Names) -> String {
    match &record.phase {
        Phase::Pending { .. } => reason.map_or_else(String::new, |r| reason_words(r, names)),
        Phase::Starting { deadline } => format!("start deadline {}", time(*deadline)),
        Phase::Running { since } => format!("since {}, attempt {}", time(*since), record.attempt),
        Phase::Stopping { cause, stage, .. } => {
            let stage = match stage {
                StopStage::Advised => "advised",
                StopStage::Terminated => "SIGTERM sent",
                StopStage::Killed => "SIGKILL sent",
                StopStage::Lingering => "SIGKILL sent again",
            };
            format!("{stage}: {}", cause_words(cause, names))
        }
        Phase::Finished { ending, at } => format!("at {}: {}", time(*at), ending_words(ending, names)),
    }
}

/// Why a job is pending: the reason, the levels, ways to unblock it, its position and its estimated start.
pub(crate) fn report(report: &Report, names: &Names, now: Timestamp) -> String {
    let mut text = match &report.reason {
        Reason::None if report.of == 0 => "  is not pending\n".to_owned(),
        Reason::None => "  can start now\n".to_owned(),
        reason => format!("  {}\n", reason_words(reason, names)),
    };
    let width = report.levels.iter().map(|l| l.level.as_str().len()).max().unwrap_or(0);
    for l in &report.levels {
        let (level, fits, asked) = (&l.level, l.fits, l.asked);
        let (domain, free, all) = (&l.domain, l.free_devices, l.devices);
        writeln!(text, "  {level:width$}  {fits} of {asked} fit in {domain}, {free} of {all} devices free")
            .unwrap_or_default();
    }
    for unblock in &report.unblock {
        writeln!(text, "  {}", unblock_words(unblock, names)).unwrap_or_default();
    }
    if report.of > 0 {
        writeln!(text, "  position {} of {}", report.position, report.of).unwrap_or_default();
        if let Some(why) = report.by_service() {
            writeln!(text, "  {why}").unwrap_or_default();
        }
    }
    match report.estimated_start {
        Some(Estimate { confidence: Confidence::Now, .. }) => text += "  starts now",
        Some(Estimate { at, confidence: Confidence::AtLatest }) => {
            write!(text, "  starts at {} at the latest", time(at)).unwrap_or_default();
            if let Some(LikelyStart { at, runs }) = report.likely_start {
                write!(text, ", at about {} by the last {runs} runs,", time(at)).unwrap_or_default();
            }
        }
        None if report.of > 0 => text += "  start time unknown",
        None => {}
    }
    if let (Some(placement), Some(_)) = (&report.nearest, report.estimated_start) {
        write!(text, " on {}", place(placement)).unwrap_or_default();
    }
    if !text.ends_with('\n') {
        text += "\n";
    }
    for link in &report.weighed {
        writeln!(text, "  {}", link.sentence(now)).unwrap_or_default();
    }
    text
}

fn unblock_words(unblock: &Unblock, names: &Names) -> String {
    let join = |items: Vec<&str>| items.join(", ");
    match unblock {
        Unblock::GangsEnd { gangs, at } => {
            let by = at.map_or_else(String::new, |at| format!(", by {}", time(at)));
            let gangs: Vec<String> = gangs.iter().map(|gang| names.gang(*gang)).collect();
            format!("would start if {} ended{by}", gangs.join(", "))
        }
        Unblock::RelaxTo { level, domain, times_milli } => {
            let times = times_milli
                .map_or(String::new(), |t| format!(" at {}.{}x", (t + 50) / 1_000, (t + 50) / 100 % 10));
            format!("fits now inside one {level} ({domain}{times})")
        }
        Unblock::Without { rule: Rule::Spares } => "fits now on spare nodes".to_owned(),
        Unblock::Without { rule } => format!("fits now without {rule}"),
        Unblock::StartFarther { nodes } => {
            format!("starts now on {} with `topology: anywhere`", count(u64::from(*nodes), "node"))
        }
        Unblock::Uncordon { nodes } => {
            format!("would start if {} were schedulable", join(nodes.iter().map(NodeName::as_str).collect()))
        }
        Unblock::Repair { closed } => {
            let each = closed.iter().map(|(node, devices)| {
                if devices.is_empty() { node.to_string() } else { format!("{node}:{devices}") }
            });
            format!("would start if {} were repaired", each.collect::<Vec<_>>().join(", "))
        }
        Unblock::At { at } => format!("eligible at {}", time(*at)),
        Unblock::Preempt { at } => format!("may preempt from {} on", time(*at)),
        Unblock::ShorterLimit { limit_ms } => {
            format!("starts now with a time limit of at most {}", time(Timestamp(*limit_ms)))
        }
    }
}
