//! `scontrol`: shows jobs, nodes and partitions, and changes jobs and nodes.

use std::fmt::Write as _;
use std::process::ExitCode;

use jiff::tz::TimeZone;
use phalanx_api::protocol::{Answer, JobRef, NodeView, Verb as Ask};
use phalanx_model::{Job, JobUpdate, NodeName, QueueName, Timestamp};

use super::allocation::Allocation;
use super::job::{FACTS, Facts};
use super::options::Where;
use super::rows::{self, Meant, Row};
use super::{hostlist, sacct, sinfo, size};
use crate::failure::Failure;
use crate::output;
use crate::verbs::Session;

const FROM: Where<'static> = Where { command: "scontrol", place: None };
const VERBS: &str =
    "show job|node|partition|hostnames|hostlist, hold, release, requeue, requeuehold, update, ping";

pub(super) fn scontrol(session: &Session, words: &[String]) -> Result<ExitCode, Failure> {
    let is_line = |word: &String| matches!(word.as_str(), "-o" | "--oneliner");
    let one_line = words.iter().any(is_line);
    let plain: Vec<&str> = words
        .iter()
        .filter(|word| {
            !is_line(word) && !matches!(word.as_str(), "-a" | "--all" | "-d" | "--details" | "-Q" | "--quiet")
        })
        .map(String::as_str)
        .collect();
    if let Some(flag) = plain.iter().find(|word| word.starts_with("--")) {
        return Err(FROM.refuse(
            &format!("{flag} is not supported: Phalanx does not know this option"),
            "--oneliner, --details",
        ));
    }
    match plain.as_slice() {
        ["show", rest @ ..] => show(session, rest, one_line),
        ["hold" | "uhold", jobs @ ..] => each(session, jobs, |job| Ask::Hold { job }),
        ["release", jobs @ ..] => each(session, jobs, |job| Ask::Release { job }),
        ["requeue", jobs @ ..] => each(session, jobs, |job| Ask::Requeue { job, hold: false }),
        ["requeuehold", jobs @ ..] => each(session, jobs, |job| Ask::Requeue { job, hold: true }),
        ["update", rest @ ..] => update(session, rest),
        ["ping"] => {
            let Answer::Pong { .. } = session.ask(Ask::Ping)? else { return Err(Failure::unexpected()) };
            output::print("Slurmctld(primary) at phalanx is UP\n")?;
            Ok(ExitCode::SUCCESS)
        }
        ["suspend" | "resume", ..] => {
            let hint = "`scontrol requeuehold JOB` stops a job and keeps it back; `scontrol release JOB` starts it again";
            Err(FROM.refuse("suspend is not supported: a stopped process would keep its GPUs", hint))
        }
        ["top", ..] => Err(FROM.refuse("top is not supported", "`scontrol update JobId=JOB Priority=N`")),
        ["reconfigure" | "shutdown" | "create" | "delete" | "reboot" | "write", ..] => {
            let hint = "`phalanx queues apply`, `phalanx calendar` and `phalanx down` are for operators";
            Err(FROM
                .refuse(&format!("{} is not supported", plain.first().copied().unwrap_or_default()), hint))
        }
        [other, ..] => Err(FROM.refuse(&format!("{other} is not supported"), &format!("it has {VERBS}"))),
        [] => Err(FROM.refuse("it is not said what to do", &format!("it has {VERBS}"))),
    }
}

fn show(session: &Session, words: &[&str], one_line: bool) -> Result<ExitCode, Failure> {
    let text = match words {
        ["job" | "jobs", rest @ ..] => show_jobs(session, rest, one_line)?,
        ["node" | "nodes", rest @ ..] => show_nodes(session, rest, one_line)?,
        ["partition" | "partitions", rest @ ..] => show_partitions(session, rest, one_line)?,
        ["hostnames" | "hostname", rest @ ..] => {
            let list = rest.first().map_or_else(
                || std::env::var("SLURM_JOB_NODELIST").unwrap_or_default(),
                |list| (*list).to_owned(),
            );
            let names = hostlist::expand(&list).map_err(|e| FROM.refuse(&e, "such as gpu-[1-3]"))?;
            names.into_iter().map(|name| name + "\n").collect()
        }
        ["hostlist" | "hostlistsorted", list] => {
            let names: Vec<String> = list.split(',').map(str::to_owned).collect();
            hostlist::compress(&names) + "\n"
        }
        ["config" | "topology" | "reservation" | "licenses" | "steps" | "step" | "assoc_mgr", ..] => {
            let what = format!("show {} is not supported", words.first().copied().unwrap_or_default());
            return Err(FROM.refuse(&what, "`phalanx topo show`, `phalanx queues`, `phalanx calendar`"));
        }
        _ => {
            return Err(
                FROM.refuse("it is not said what to show", "job, node, partition, hostnames or hostlist")
            );
        }
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Does the same with every job; each is tried.
fn each(session: &Session, jobs: &[&str], ask: impl Fn(JobRef) -> Ask) -> Result<ExitCode, Failure> {
    if jobs.is_empty() {
        return Err(FROM.refuse("no job is named", "such as 7"));
    }
    let mut code = ExitCode::SUCCESS;
    for id in jobs.iter().flat_map(|word| rows::split_ids(word.trim_start_matches("jobid="))) {
        let job = rows::job(&id, FROM)?;
        if let Err(failure) = session.ask(ask(job)) {
            code = failure.report(&session.out.format);
        }
    }
    Ok(code)
}

/// `JobId=7 TimeLimit=1:00:00`, or `NodeName=a State=DRAIN Reason=…`.
fn update(session: &Session, words: &[&str]) -> Result<ExitCode, Failure> {
    let mut pairs = Vec::new();
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(|| {
            FROM.refuse(&format!("{word:?} is no KEY=VALUE"), "such as JobId=7 TimeLimit=1:00:00")
        })?;
        pairs.push((key.to_ascii_lowercase(), value));
    }
    let find = |key: &str| pairs.iter().find(|(of, _)| of == key).map(|(_, value)| *value);
    if let Some(nodes) = find("nodename").or(find("node")) {
        return update_nodes(session, nodes, &pairs);
    }
    let Some(jobs) = find("jobid").or(find("job")) else {
        return Err(FROM.refuse("update names no job and no node", "JobId=JOB or NodeName=NODE"));
    };
    let mut changed = JobUpdate::default();
    for (key, value) in &pairs {
        let wrong = |what: &str| FROM.refuse(&format!("{key}={value}: {what}"), "");
        let number = || value.parse::<i32>().map_err(|_| wrong("is no number"));
        match key.as_str() {
            "jobid" | "job" => {}
            "timelimit" => {
                let limit = size::limit(value.trim_start_matches('+')).map_err(|e| wrong(&e))?;
                if value.starts_with(['+', '-']) {
                    return Err(
                        FROM.refuse(&format!("TimeLimit={value} is not supported"), "say the whole limit")
                    );
                }
                let hint = "a limit is shortened or moved, and not taken away";
                changed.time_limit_ms = Some(
                    limit
                        .ok_or_else(|| FROM.refuse(&format!("TimeLimit={value} is not supported"), hint))?
                        .saturating_mul(1_000),
                );
            }
            "priority" => changed.priority = Some(number()?),
            "nice" => changed.priority = Some(number()?.saturating_neg()),
            "partition" => changed.queue = Some(QueueName::new(*value).map_err(|e| wrong(&e.to_string()))?),
            other => {
                let hint =
                    "TimeLimit, Priority, Nice and Partition change; other things need a new submission";
                return Err(FROM.refuse(&format!("update of {other} is not supported"), hint));
            }
        }
    }
    each(session, &[jobs], |job| Ask::Update { job, update: changed.clone() })
}

fn update_nodes(session: &Session, nodes: &str, pairs: &[(String, &str)]) -> Result<ExitCode, Failure> {
    let find = |key: &str| pairs.iter().find(|(of, _)| of == key).map(|(_, value)| *value);
    if let Some((key, _)) =
        pairs.iter().find(|(key, _)| !matches!(key.as_str(), "nodename" | "node" | "state" | "reason"))
    {
        return Err(
            FROM.refuse(&format!("update of {key} of a node is not supported"), "State and Reason change")
        );
    }
    let state = find("state").unwrap_or_default().to_ascii_lowercase();
    let reason = find("reason").map(str::to_owned);
    let mut code = ExitCode::SUCCESS;
    for name in hostlist::expand(nodes).map_err(|e| FROM.refuse(&e, ""))? {
        let node = NodeName::new(&name).map_err(|e| FROM.refuse(&format!("{name:?} is no node: {e}"), ""))?;
        let ask = match state.as_str() {
            // Slurm lets jobs end there; `phalanx drain` moves them away.
            "drain" => Ask::Cordon { node, reason: reason.clone() },
            "resume" | "undrain" | "idle" => Ask::Uncordon { node },
            other => {
                let hint = "DRAIN and RESUME; `phalanx drain` also moves jobs away, and `phalanx health` reports broken hardware";
                return Err(FROM.refuse(&format!("State={other} is not supported"), hint));
            }
        };
        if let Err(failure) = session.ask(ask) {
            code = failure.report(&session.out.format);
        }
    }
    Ok(code)
}

fn show_jobs(session: &Session, words: &[&str], one_line: bool) -> Result<String, Failure> {
    let mut meant = Meant::default();
    for id in words.iter().flat_map(|word| rows::split_ids(word.trim_start_matches("jobid="))) {
        meant.jobs.push(rows::job(&id, FROM)?);
    }
    let views = meant.ask(session, !meant.jobs.is_empty(), true)?;
    let rows: Vec<Row> = views.iter().flat_map(rows::of).collect();
    if rows.is_empty() {
        return Ok("No jobs in the system\n".to_owned());
    }
    let (now, tz) = (session.out.page.now, &session.out.page.tz);
    Ok(rows.iter().map(|row| job_text(row, now, tz, one_line)).collect())
}

/// What was submitted: the script, or the command.
pub(super) fn command(job: &Job) -> String {
    let Some(program) = job.gangs.first().map(|gang| &gang.program) else { return String::new() };
    match facts(job) {
        Some(facts) if !facts.command.is_empty() => {
            if facts.command.starts_with('/') {
                facts.command
            } else {
                format!("{}/{}", facts.submit_dir, facts.command)
            }
        }
        Some(_) => "(null)".to_owned(),
        None => program.argv.join(" "),
    }
}

fn facts(job: &Job) -> Option<Facts> {
    serde_json::from_str(job.gangs.first()?.program.env.get(FACTS)?).ok()
}

pub(super) fn job_text(row: &Row, now: Timestamp, tz: &TimeZone, one_line: bool) -> String {
    let view = &row.view;
    let facts = row.job().and_then(facts);
    let array =
        row.task.map(|task| format!(" ArrayJobId={} ArrayTaskId={task}", view.id)).unwrap_or_default();
    let held = if view.reason == "Held" { 0 } else { view.priority };
    let class = if view.class.is_empty() { "normal" } else { &view.class };
    let ends = row.started_at.zip(row.limit_s()).map(|(at, limit)| at.plus(limit.saturating_mul(1_000)));
    let limit = row.limit_s().map_or_else(|| row.limit(), size::long);
    let tasks =
        facts.as_ref().map_or(row.node_count, |facts| facts.tasks_per_node.saturating_mul(row.node_count));
    let gang = row.job().and_then(|job| job.gangs.first());
    let list = if row.nodes.is_empty() { "(null)".to_owned() } else { row.node_list() };
    let restarts = view.gangs.first().map_or(0, |gang| gang.attempt.saturating_sub(1));
    let mut lines = vec![
        format!("JobId={}{array} JobName={}", view.id, view.name),
        format!("UserId={}({}) GroupId=N/A MCS_label=N/A", view.owner, view.uid),
        format!("Priority={held} Nice={} Account={} QOS={class}", view.priority.saturating_neg(), view.queue),
        format!("JobState={} Reason={} Dependency={}", row.state.word, row.reason, dependency(row.job())),
        format!(
            "Requeue=1 Restarts={restarts} BatchFlag={} Reboot=0 ExitCode={}",
            u8::from(facts.is_some()),
            sacct::exit_code(row.ending.as_ref())
        ),
        format!("RunTime={} TimeLimit={limit} TimeMin=N/A", size::long(row.elapsed_ms(now) / 1_000)),
        format!(
            "SubmitTime={} EligibleTime={}",
            size::date(Some(view.submitted_at), tz),
            size::date(Some(view.submitted_at), tz)
        ),
        format!(
            "StartTime={} EndTime={} Deadline=N/A",
            size::date(row.started_at.or(row.estimated_start), tz),
            size::date(row.ended_at.or(ends), tz)
        ),
        format!(
            "Partition={} AllocNode:Sid={}:N/A",
            view.queue,
            facts.as_ref().map_or("N/A", |facts| facts.submit_host.as_str())
        ),
        format!("NodeList={list}"),
        format!("BatchHost={}", row.nodes.first().map_or("(null)", String::as_str)),
        format!(
            "NumNodes={} NumCPUs={} NumTasks={tasks} CPUs/Task={}",
            row.node_count,
            row.cpus(),
            facts
                .as_ref()
                .and_then(|facts| facts.cpus_per_task)
                .map_or_else(|| "N/A".to_owned(), |n| n.to_string())
        ),
        format!("TRES={}", sacct::tres(row)),
        format!("TresPerNode={}", row.tres()),
        format!("Command={}", row.job().map_or_else(|| "(null)".to_owned(), command)),
        format!("WorkDir={}", gang.map_or("(null)", |gang| gang.program.workdir.as_str())),
    ];
    if let Some(facts) = &facts {
        let file = |pattern: &Option<String>| pattern.as_deref().map(|pattern| file_name(row, pattern));
        let output = file(&facts.output).unwrap_or_else(|| "(null)".to_owned());
        lines.push(format!("StdErr={}", file(&facts.error).unwrap_or_else(|| output.clone())));
        lines.push(format!("StdIn={}", file(&facts.input).unwrap_or_else(|| "/dev/null".to_owned())));
        lines.push(format!("StdOut={output}"));
    }
    paragraph(&lines, one_line)
}

/// The file that `sbatch` makes of a pattern, for the first task. The node has its letter until the job has nodes.
fn file_name(row: &Row, pattern: &str) -> String {
    let nodes = if row.nodes.is_empty() { vec!["%N".to_owned()] } else { row.nodes.clone() };
    let allocation = Allocation {
        job: row.view.id.to_string(),
        name: row.view.name.clone(),
        user: row.view.owner.clone(),
        task: row.task,
        nodes,
        ..Allocation::default()
    };
    allocation.file_name(pattern, 0, 0)
}

fn dependency(job: Option<&Job>) -> String {
    let after = job.map(|job| job.turn.after.as_slice()).unwrap_or_default();
    let one = |after: &phalanx_model::After| {
        let kind = match after.end {
            phalanx_model::EndOf::Success => "afterok",
            phalanx_model::EndOf::Failure => "afternotok",
            phalanx_model::EndOf::Any => "afterany",
        };
        format!("{kind}:{}", after.job)
    };
    if after.is_empty() { "(null)".to_owned() } else { after.iter().map(one).collect::<Vec<_>>().join(",") }
}

/// As Slurm: the first line at the margin, the others below it, and an empty line.
fn paragraph(lines: &[String], one_line: bool) -> String {
    if one_line { lines.join(" ") + "\n" } else { lines.join("\n   ") + "\n\n" }
}

fn show_nodes(session: &Session, words: &[&str], one_line: bool) -> Result<String, Failure> {
    let view = session.nodes()?;
    let mut wanted = Vec::new();
    for word in words {
        wanted.extend(hostlist::expand(word).map_err(|e| FROM.refuse(&e, ""))?);
    }
    if let Some(name) = wanted.iter().find(|name| !view.nodes.iter().any(|node| node.name.as_str() == **name))
    {
        return Err(Failure::not_found(
            format!("scontrol: node {name} is not known"),
            "`sinfo -N` lists nodes",
        ));
    }
    let is_wanted =
        |node: &&NodeView| wanted.is_empty() || wanted.iter().any(|name| name == node.name.as_str());
    let page = &session.out.page;
    let text = |node| node_text(node, (page.now, &page.tz), one_line);
    Ok(view.nodes.iter().filter(is_wanted).map(text).collect())
}

pub(super) fn node_text(node: &NodeView, (now, tz): (Timestamp, &TimeZone), one_line: bool) -> String {
    let cpus = node.cpu_milli / 1_000;
    let free = u64::try_from(node.cpu_free_milli).unwrap_or(0) / 1_000;
    let memory = node.memory_bytes >> 20;
    let free_memory = u64::try_from(node.memory_free_bytes).unwrap_or(0) >> 20;
    let used = node.devices.saturating_sub(node.free.count());
    let mut lines = vec![
        format!("NodeName={} Arch={} CoresPerSocket=1", node.name, std::env::consts::ARCH),
        format!("CPUAlloc={} CPUEfctv={cpus} CPUTot={cpus} CPULoad=N/A", cpus.saturating_sub(free)),
        format!("AvailableFeatures={}", if node.model.is_empty() { "(null)" } else { &node.model }),
        format!("Gres={}", sinfo::gres(node)),
        format!("NodeAddr={} NodeHostName={}", node.address, node.name),
        format!("RealMemory={memory} AllocMem={} FreeMem={free_memory}", memory.saturating_sub(free_memory)),
        format!(
            "State={} ThreadsPerCore=1 TmpDisk=0 Weight=1",
            sinfo::long_state(sinfo::state(node, now)).to_ascii_uppercase()
        ),
        format!("CfgTRES=cpu={cpus},mem={memory}M,gres/gpu={}", node.devices),
        format!("AllocTRES=gres/gpu={used}"),
    ];
    if let Some(by) = &node.closed_by {
        let reason = by.reason.as_deref().unwrap_or("none");
        lines.push(format!("Reason={reason} [{}@{}]", by.user, size::date(Some(by.at), tz)));
    }
    paragraph(&lines, one_line)
}

fn show_partitions(session: &Session, words: &[&str], one_line: bool) -> Result<String, Failure> {
    let Answer::Queues(queues) = session.ask(Ask::Queues)? else { return Err(Failure::unexpected()) };
    let view = session.nodes()?;
    let names = sinfo::partitions(&queues);
    let is_wanted = |name: &&String| words.is_empty() || words.contains(&name.trim_end_matches('*'));
    let nodes: Vec<String> = view.nodes.iter().map(|node| node.name.to_string()).collect();
    let cpus: u64 = view.nodes.iter().map(|node| node.cpu_milli / 1_000).sum();
    let gpus: u32 = view.nodes.iter().map(|node| node.devices).sum();
    let mut text = String::new();
    for name in names.iter().filter(is_wanted) {
        let is_default = if name.ends_with('*') { "YES" } else { "NO" };
        let lines = [
            format!("PartitionName={}", name.trim_end_matches('*')),
            format!("AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default={is_default}"),
            "MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0".to_owned(),
            format!("Nodes={}", hostlist::compress(&nodes)),
            format!("State=UP TotalCPUs={cpus} TotalNodes={}", nodes.len()),
            format!("TRES=cpu={cpus},node={},gres/gpu={gpus}", nodes.len()),
        ];
        let _ = write!(text, "{}", paragraph(&lines, one_line));
    }
    if text.is_empty() && !words.is_empty() {
        return Err(Failure::not_found(
            format!("scontrol: partition {} is not known", words.join(" ")),
            "`sinfo` lists them",
        ));
    }
    Ok(text)
}
