//! `ps` and `get`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use phalanx_api::protocol::{ArrayView, GangView, JobView, UsageView};
use phalanx_model::{Gang, Job, LaunchKind, Phase};

use super::asked;
use super::placed::{self, Fleet};
use super::progress;
use super::table::{self, Grid, cell, dim};
use super::time::span;
use super::turn;
use super::why::Names;
use super::{Page, clean, count, field, nothing};

/// Members that `get` lists before the rest is only counted.
const MEMBERS_SHOWN: usize = 64;
/// Gangs that `get` lists before the rest is only counted.
const GANGS_SHOWN: usize = 8;
/// Tasks of an array that `get` lists.
const TASKS_SHOWN: usize = 32;
/// Events that `get` lists, the newest.
const EVENTS_SHOWN: usize = 20;

/// One line for each job.
pub(crate) fn list(page: &Page, jobs: &[JobView], finished: bool) -> String {
    if jobs.is_empty() {
        let hint =
            if finished { "no jobs" } else { "no jobs wait or run; `phalanx ps -a` shows finished ones" };
        return nothing(page, hint);
    }
    let first = jobs.first().map(|job| &job.queue);
    let has_queues = page.wide || jobs.iter().any(|job| Some(&job.queue) != first);
    let headings: Vec<&str> = [
        (true, ">ID"),
        (true, "NAME"),
        (true, "OWNER"),
        (has_queues, "QUEUE"),
        (page.wide, "CLASS"),
        (page.wide, ">PRIORITY"),
        (true, "STATE"),
        (page.wide, ">RANKS"),
        (true, ">GPUS"),
        (page.wide, ">ATTEMPT"),
        (true, "SUBMITTED"),
        (true, ">RAN"),
        (true, "WHERE OR WHY"),
    ]
    .into_iter()
    .filter_map(|(is_shown, heading)| is_shown.then_some(heading))
    .collect();
    let mut grid = Grid::new(page, &headings).one_line();
    for job in jobs {
        let mut cells = vec![cell(job.id), cell(clean(&job.name)), cell(clean(&job.owner))];
        if has_queues {
            cells.push(cell(clean(&job.queue)));
        }
        if page.wide {
            let class = if job.class.is_empty() { "-".to_owned() } else { clean(&job.class) };
            cells.extend([cell(class), cell(job.priority)]);
        }
        cells.push(table::state(&job.state));
        if page.wide {
            cells.push(cell(job.gangs.iter().map(|g| u64::from(g.member_count())).sum::<u64>()));
        }
        cells.push(cell(devices(job)));
        if page.wide {
            cells.push(cell(job.gangs.iter().map(|g| g.attempt).max().unwrap_or(0)));
        }
        cells.extend([dim(page.ago(job.submitted_at)), cell(ran(page, job)), cell(where_or_why(page, job))]);
        grid.row(cells);
    }
    grid.render()
}

fn devices(job: &JobView) -> u64 {
    if let Some(array) = &job.array {
        // Those that its tasks hold now, or that its next task needs.
        let holding = array.progress.starting + array.progress.running + array.progress.stopping;
        let each = job.gangs.first().map_or(0, GangView::device_count);
        return u64::from(each) * u64::from(holding.max(1));
    }
    // Of a service those that are wanted.
    let wanted = job.service.as_ref().map_or(usize::MAX, |service| service.wanted as usize);
    job.gangs.iter().take(wanted).map(|g| u64::from(g.device_count())).sum()
}

/// Time since the first start, up to the end.
fn ran(page: &Page, job: &JobView) -> String {
    job.started_at.map_or_else(|| "-".to_owned(), |at| span(job.finished_at.unwrap_or(page.now).since(at)))
}

/// Where it runs, why it waits, or how it ended.
fn where_or_why(page: &Page, job: &JobView) -> String {
    if job.ending.is_some() {
        let counts = job.array.as_ref().map(|array| counts(page, array));
        let parts = counts.into_iter().chain(Some(ended(job)).filter(|how| !how.is_empty()));
        return clean(&parts.collect::<Vec<_>>().join("; "));
    }
    let placement = job.gangs.iter().find_map(|g| g.placement.as_ref());
    let text = match (job.state.as_str(), placement) {
        _ if job.service.is_some() => replicas(job),
        _ if job.array.is_some() => tasks(page, job),
        ("pending", _) | (_, None) => reason(job),
        (_, Some(placement)) => {
            let place = elastic(job) + &placed::short(placement, &Fleet::default());
            let idle = job.gangs.iter().find_map(|gang| gang.usage?.idle_since);
            let idle = idle.map(|since| format!("; GPUs idle {}", span(page.now.since(since))));
            let stalled = job.gangs.iter().find_map(|gang| gang.progress.as_ref()?.stalled_since);
            let stalled = stalled.map(|since| format!("; no step for {}", span(page.now.since(since))));
            place + &idle.unwrap_or_default() + &stalled.unwrap_or_default()
        }
    };
    let evictions = job.gangs.iter().map(|gang| gang.evictions).sum();
    turn::times_preempted(page, evictions) + &clean(&text)
}

/// `87 % busy`, or how long they have been idle.
fn used(page: &Page, usage: &UsageView) -> String {
    match usage.idle_since {
        Some(since) => format!("idle for {}: no kernel ran", span(page.now.since(since))),
        None => format!("{} % busy", usage.busy_percent),
    }
}

/// `4 of 2-8 members; ` of an elastic job, or nothing.
fn elastic(job: &JobView) -> String {
    let gang = job.gangs.iter().find(|gang| gang.elastic.is_some());
    gang.map(|gang| size_of(gang, "member") + "; ").unwrap_or_default()
}

/// `32 running · 99000 pending · 968 succeeded; ArrayLimit: …`
fn tasks(page: &Page, job: &JobView) -> String {
    let Some(array) = &job.array else { return String::new() };
    let why = if array.progress.running == 0 { reason(job) } else { String::new() };
    let counts = counts(page, array);
    if why.is_empty() { counts } else { format!("{counts}; {why}") }
}

fn counts(page: &Page, array: &ArrayView) -> String {
    let counts: Vec<String> =
        array.counts().iter().map(|(count, state)| format!("{count} {state}")).collect();
    counts.join(&format!(" {} ", page.dot()))
}

/// `2 of 3 replicas, Resources: …`
fn replicas(job: &JobView) -> String {
    let Some(service) = &job.service else { return String::new() };
    let count = format!("{} of {} replicas", service.running, service.wanted);
    let why = reason(job);
    if service.running < service.wanted && !why.is_empty() { format!("{count}, {why}") } else { count }
}

/// `Resources: needs 8 members at once …`.
fn reason(job: &JobView) -> String {
    match (job.reason.as_str(), job.detail.as_str()) {
        ("" | "None", detail) => detail.to_owned(),
        (word, "") => word.to_owned(),
        (word, detail) => format!("{word}: {detail}"),
    }
}

/// `exit code 3: …`.
fn ended(job: &JobView) -> String {
    let code = job.exit_code.filter(|code| *code != 0 && job.state == "failed");
    let code = code.map(|code| format!("exit code {code}"));
    let parts: Vec<String> = code.into_iter().chain(Some(reason(job)).filter(|r| !r.is_empty())).collect();
    parts.join(", ")
}

/// Everything about one job.
pub(crate) fn one(page: &Page, job: &JobView, fleet: &Fleet) -> String {
    let mut text = title(job);
    let owner = format!("{} (queue {}, priority {})", clean(&job.owner), job.queue, job.priority);
    field(&mut text, page, "owner", &owner);
    let submitted = format!("{} ({})", page.ago(job.submitted_at), page.date(job.submitted_at));
    field(&mut text, page, "submitted", &submitted);
    if let Some(at) = job.started_at {
        field(&mut text, page, "started", &format!("{} ({})", page.ago(at), page.date(at)));
    }
    if let Some(at) = job.finished_at {
        let ended = format!("{} ({}), after {}", page.ago(at), page.date(at), ran(page, job));
        field(&mut text, page, "ended", &ended);
    }
    if let Some(service) = job.service.as_ref().filter(|_| job.ending.is_none()) {
        let count = format!("{} run, {} are wanted", service.running, service.wanted)
            + if service.is_set && service.has_target {
                ", set by hand: the metric changes nothing"
            } else {
                ""
            };
        field(&mut text, page, "replicas", &count);
    }
    if let Some(array) = &job.array {
        let all = format!("{}: {}", count(u64::from(array.tasks), "task"), counts(page, array));
        field(&mut text, page, "tasks", &all);
    }
    let why = if job.ending.is_some() { ended(job) } else { reason(job) };
    if !why.is_empty() {
        field(&mut text, page, if job.ending.is_some() { "how" } else { "why" }, &clean(&why));
    }
    if let Some(spot) = &job.spot {
        field(&mut text, page, "on spot", &format!("{} of GPU time {spot}", span(spot.device_ms)));
    }
    if let Some(job) = &job.job {
        turn::fields(&mut text, page, job);
    }
    text += &gangs(page, job, fleet);
    text += &events(page, job);
    if job.job.is_none() && !page.quiet {
        text += &format!("\n{}\n", "what it runs is shown to its owner and to operators only".dimmed());
    }
    text
}

/// Each gang; of many, those that have not ended, and how many there are in each state.
fn gangs(page: &Page, job: &JobView, fleet: &Fleet) -> String {
    let mut text = String::new();
    let shown = if page.wide { usize::MAX } else { GANGS_SHOWN };
    if let Some(array) = &job.array {
        return tasks_listed(page, job, array, fleet);
    }
    let is_over = |gang: &GangView| matches!(gang.phase, Some(Phase::Finished { .. }));
    let many = job.gangs.len() > shown;
    let all = job.gangs.iter().enumerate().filter(|(_, gang)| !many || !is_over(gang));
    for (i, gang) in all.take(shown) {
        if job.gangs.len() > 1 {
            let _ = writeln!(text, "\n{}", format!("gang {}", gang.id).bold());
        }
        let asked = job.job.as_deref().and_then(|j| Some((j, j.gangs.get(i)?)));
        text += &gang_text(page, gang, asked, fleet);
    }
    if many {
        let mut states: BTreeMap<&str, u64> = BTreeMap::new();
        for gang in &job.gangs {
            *states.entry(gang.phase.as_ref().map_or("pending", Phase::word)).or_default() += 1;
        }
        let states: Vec<String> = states.into_iter().map(|(word, n)| format!("{n} {word}")).collect();
        let _ = writeln!(text, "\n  {} in all: {}", count(job.gangs.len() as u64, "gang"), states.join(", "));
    }
    text
}

/// The description that all tasks share, and a line for each task that is listed; of one task everything.
fn tasks_listed(page: &Page, job: &JobView, array: &ArrayView, fleet: &Fleet) -> String {
    let asked = |gang: &GangView| job.job.as_deref().and_then(|j| Some((j, j.gang_at(gang.id.index)?)));
    let heading = |gang: &GangView| format!("task {}.{}", job.id, gang.task.unwrap_or(gang.id.index));
    let mut text = String::new();
    if let [gang] = job.gangs.as_slice() {
        let state = gang.phase.as_ref().map_or("pending", state_of_task);
        let _ = writeln!(text, "\n{}  {state}", heading(gang).bold());
        return text + &gang_text(page, gang, asked(gang), fleet);
    }
    if let Some((job, gang)) = job.gangs.first().and_then(asked) {
        asked_text(&mut text, page, job, gang);
    }
    let mut grid = Grid::new(page, &["TASK", "STATE", ">ATTEMPT", ">EXIT", "WHERE"]).indented(2);
    let shown = if page.wide { job.gangs.len() } else { TASKS_SHOWN };
    for gang in job.gangs.iter().take(shown) {
        let code = match &gang.phase {
            Some(Phase::Finished { ending, .. }) => ending.exit_code().to_string(),
            _ => "-".to_owned(),
        };
        let place = gang.placement.as_ref().map(|placement| placed::short(placement, &Fleet::default()));
        grid.row(vec![
            cell(format!("{}.{}", job.id, gang.task.unwrap_or(gang.id.index))),
            table::state(gang.phase.as_ref().map_or("pending", state_of_task)),
            cell(gang.attempt),
            cell(code),
            cell(place.unwrap_or_else(|| "-".to_owned())),
        ]);
    }
    let _ = write!(text, "\n{}", grid.render());
    let more = u64::from(array.left_out) + job.gangs.len().saturating_sub(shown) as u64;
    if more > 0 {
        let _ = writeln!(text, "  and {}; `phalanx get {}.N` shows task N", count(more, "more task"), job.id);
    }
    text
}

/// The state of a task: of one that has ended, how.
const fn state_of_task(phase: &Phase) -> &'static str {
    match phase {
        Phase::Finished { ending, .. } => ending.word(),
        phase => phase.word(),
    }
}

/// `job 7  train  running`.
pub(super) fn title(job: &JobView) -> String {
    let state = match job.state.as_str() {
        "running" => job.state.green().to_string(),
        "pending" => job.state.yellow().to_string(),
        "starting" => job.state.cyan().to_string(),
        "failed" | "time_limit" => job.state.red().to_string(),
        _ => job.state.clone(),
    };
    format!("{} {}  {state}\n", format!("job {}", job.id).bold(), clean(&job.name).bold())
}

fn gang_text(page: &Page, gang: &GangView, asked: Option<(&Job, &Gang)>, fleet: &Fleet) -> String {
    let mut text = String::new();
    let size = |members: &str, devices: u32| match devices {
        0 => format!("{members} without GPUs"),
        n => format!("{members} with {} each", count(u64::from(n), "GPU")),
    };
    let own = size(&size_of(gang, "member"), gang.devices_per_member);
    let roles = gang
        .roles
        .iter()
        .map(|role| size(&format!("{} {}", role.size, clean(&role.name)), role.devices_per_member));
    let all: Vec<String> = std::iter::once(own).chain(roles).collect();
    field(&mut text, page, "size", &all.join(", "));
    if let Some((job, gang)) = asked {
        asked_text(&mut text, page, job, gang);
    }
    let is_on = gang.attempt > 1 || gang.failures > 0;
    if is_on {
        field(
            &mut text,
            page,
            "attempt",
            &format!("{} after {}", gang.attempt, count(u64::from(gang.failures), "failure")),
        );
    }
    if let Some(Phase::Stopping { next_at, .. }) = &gang.phase {
        field(&mut text, page, "stopping", &format!("next stage {}", page.ahead(*next_at)));
    }
    if let Some(at) = gang.estimated_start {
        field(&mut text, page, "would start", &format!("{} ({})", page.ahead(at), page.clock(at)));
    }
    turn::of_gang(&mut text, page, gang, &Names::new());
    if let Some(predicted) = &gang.predicted {
        field(&mut text, page, "predicted", &clean(&predicted.sentence));
    }
    if let Some(usage) = &gang.usage {
        field(&mut text, page, "GPUs", &used(page, usage));
    }
    if let Some(told) = &gang.progress {
        progress::of_gang(&mut text, page, gang, told);
    }
    if let Some(placement) = &gang.placement {
        field(&mut text, page, "placed", &placed::summary(placement));
        text.push('\n');
        text += &placed::table(page, placement, fleet);
    }
    text += &members(page, gang);
    text
}

/// `8 members`; of an elastic gang `4 of 2-8 members`.
fn size_of(gang: &GangView, what: &str) -> String {
    match &gang.elastic {
        Some(sizes) => format!("{} of {}-{} {what}s", gang.size, sizes.min, sizes.max),
        None => count(u64::from(gang.size), what),
    }
}

fn asked_text(text: &mut String, page: &Page, job: &Job, gang: &Gang) {
    let program = &gang.program;
    let words: Vec<String> = program.argv.iter().map(|word| quoted(word)).collect();
    let launch = match program.launch {
        LaunchKind::Ranks => String::new(),
        LaunchKind::Torchrun => "torchrun: ".into(),
        LaunchKind::Jax => "jax: ".into(),
        LaunchKind::Mpi => "mpi: ".into(),
        LaunchKind::None => "one per node: ".into(),
    };
    field(text, page, "runs", &clean(&format!("{launch}{}", words.join(" "))));
    field(text, page, "in", &clean(&program.workdir));
    let mut limits = vec![match job.policy.time_limit_ms {
        Some(ms) => format!("time limit {}", span(ms)),
        None => "no time limit".to_owned(),
    }];
    if job.policy.retry.max > 0 {
        let on: Vec<&str> = job.policy.retry.on.iter().map(|class| class.word()).collect();
        let restarts = match job.policy.retry.max {
            u32::MAX => "restarts without end".to_owned(),
            max => count(u64::from(max), "restart"),
        };
        limits.push(format!("{restarts} on {}", on.join(", ")));
    }
    limits.push(format!("grace {}", span(job.policy.stop.grace_ms)));
    field(text, page, "limits", &limits.join(&format!(" {} ", page.dot())));
    if let Some(level) = &gang.topology.required {
        field(text, page, "topology", &format!("all inside one {level}"));
    }
    if let Some(near) = asked::nearness(gang) {
        field(text, page, "prefers", &near);
    }
    if !gang.topology.segments.is_empty() {
        field(text, page, "segments", &asked::segments(gang));
    }
    for (word, what) in asked::rest(gang) {
        field(text, page, word, &what);
    }
}

/// A word as a shell would want it typed.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn members(page: &Page, gang: &GangView) -> String {
    let shown = if page.wide { gang.members.len() } else { gang.members.len().min(MEMBERS_SHOWN) };
    if shown == 0 {
        return String::new();
    }
    let mut grid = Grid::new(page, &[">RANK", "NODE", "GPUS", "STATE", ">EXIT", ""]).indented(2);
    for member in gang.members.iter().take(shown) {
        let exit = member.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string());
        grid.row(vec![
            cell(member.rank),
            cell(&member.node),
            cell(member.devices),
            table::state(&member.state),
            cell(exit),
            cell(clean(&member.detail)),
        ]);
    }
    let mut text = format!("\n{}", grid.render());
    if shown < gang.members.len() {
        let _ = writeln!(text, "  and {} more; `-o wide` lists them", gang.members.len() - shown);
    }
    text
}

fn events(page: &Page, job: &JobView) -> String {
    let skipped = if page.wide { 0 } else { job.events.len().saturating_sub(EVENTS_SHOWN) };
    if job.events.is_empty() {
        return String::new();
    }
    let mut grid = Grid::new(page, &["", "", ""]).indented(2);
    for event in job.events.iter().skip(skipped) {
        grid.row(vec![dim(page.clock(event.at)), cell(clean(&event.what)), dim(clean(&event.detail))]);
    }
    let earlier =
        if skipped > 0 { format!("  {skipped} earlier ones; `-o wide` lists them\n") } else { String::new() };
    format!("\n{earlier}{}", grid.render())
}

/// One line that says how a job ended.
pub(crate) fn ended_line(page: &Page, job: &JobView) -> String {
    let how = ended(job);
    let how = if how.is_empty() { String::new() } else { format!(": {}", clean(&how)) };
    format!("{} after {}{how}\n", title(job).trim_end(), ran(page, job))
}
