//! The three acts, and the table at the end.

use std::collections::BTreeSet;
use std::fs;

use comfy_table::{Table, presets::NOTHING};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_api::protocol::{Answer, JobView, Verb};
use phalanx_model::{DeviceMask, Placement};

use crate::cluster::Files;
use crate::daemon::Daemon;
use crate::{Check, Settings};
use phalanx_examples::stage::Stage;

/// One line of the final table.
struct Line {
    job: String,
    asked: String,
    where_: String,
    attempts: u32,
    busbw: String,
    ended: String,
}

#[derive(Default)]
pub(crate) struct Results {
    lines: Vec<Line>,
    /// What was shown, in words.
    shown: Vec<String>,
}

/// Holds if the world is as claimed; else the demo fails.
fn check(stage: &Stage, results: &mut Results, holds: bool, claim: &str) -> Check {
    if !holds {
        return Err(format!("it does not hold that {claim}"));
    }
    stage.holds(claim);
    results.shown.push(claim.to_owned());
    Ok(())
}

fn ring_flags(settings: &Settings) -> [&'static str; 4] {
    if settings.quick { ["--bytes", "256KB", "--steps", "3"] } else { ["--bytes", "8MB", "--steps", "20"] }
}

fn submit_ring(stage: &Stage, daemon: &Daemon, settings: &Settings, name: &str, topology: &[&str]) -> Check {
    let ring = daemon.ring.display().to_string();
    let mut args = vec!["submit", "--name", name, "-G", "8"];
    args.extend(topology);
    args.extend(["--", ring.as_str()]);
    args.extend(ring_flags(settings));
    // Long enough to be seen running beside another.
    args.extend(["--step-sleep-ms", if settings.quick { "150" } else { "250" }]);
    daemon.show(stage, &args)
}

/// 6 + 2 free: what needs one node waits with a reason; of two that do not, one runs whole.
pub(crate) fn waits_whole(
    stage: &Stage,
    daemon: &Daemon,
    files: &Files,
    settings: &Settings,
    results: &mut Results,
) -> Check {
    stage.title("Act 1 · 6 + 2 GPUs free: a gang waits whole, and says why");
    daemon.up(stage, &files.six_and_two)?;
    daemon.show(stage, &["topo", "show"])?;
    daemon.show(stage, &["nodes"])?;

    submit_ring(stage, daemon, settings, "one-node", &["-N", "1"])?;
    let waiting = daemon
        .wait_until("one-node", "pending with a reason", |j| j.state == "pending" && j.reason != "None")?;
    daemon.show(stage, &["why", "one-node"])?;
    let claim = "a gang of 8 for one node waits while 6 of 8 are free there, and holds no GPU";
    let says_six = waiting.reason == "Topology" && waiting.detail.contains('6');
    check(stage, results, says_six && daemon.devices_held(waiting.id)? == 0, claim)?;
    daemon.cancel("one-node")?;
    record(results, &daemon.wait_until("one-node", "cancelled", |j| j.ending.is_some())?, "8, one node", "–");

    two_of_eight(stage, daemon, settings, results, ["first", "second"], "6 + 2")
}

/// The classic deadlock, with other numbers.
pub(crate) fn four_and_four(
    stage: &Stage,
    daemon: &Daemon,
    files: &Files,
    settings: &Settings,
    results: &mut Results,
) -> Check {
    stage.title("Act 2 · 4 + 4 GPUs free: two gangs of 8 that would deadlock if ranks started one by one");
    daemon.up(stage, &files.four_and_four)?;
    stage.say("A scheduler that starts ranks one by one can give each gang 4 GPUs; both then wait forever.");
    two_of_eight(stage, daemon, settings, results, ["third", "fourth"], "4 + 4")
}

/// Two gangs of 8 and 8 GPUs free on two nodes.
fn two_of_eight(
    stage: &Stage,
    daemon: &Daemon,
    settings: &Settings,
    results: &mut Results,
    [first, second]: [&str; 2],
    free: &str,
) -> Check {
    submit_ring(stage, daemon, settings, first, &[])?;
    submit_ring(stage, daemon, settings, second, &[])?;
    let running = daemon.wait_until(first, "running", |j| j.state == "running")?;
    let members = running.gangs.iter().flat_map(|g| &g.members).filter(|m| m.state == "running").count();
    daemon.show(stage, &["ps"])?;
    let waiting = daemon.job(second)?;
    let claim = format!("{free} free, two gangs of 8: {first} runs whole on 8 GPUs");
    check(stage, results, members == 8 && daemon.devices_held(running.id)? == 8, &claim)?;
    let claim = format!("{second} waits and holds nothing ({})", waiting.reason);
    check(stage, results, waiting.state == "pending" && daemon.devices_held(waiting.id)? == 0, &claim)?;

    for name in [first, second] {
        let _wait = stage.wait(&format!("{name}: 8 ranks in a ring over sockets"), None);
        let job = daemon.wait_finished(name)?;
        let result = daemon.ring_result(name)?;
        if result.wrong > 0 || result.stopped || result.world_size != 8 {
            return Err(format!("the ring of {name} is not right: {result:?}"));
        }
        record(results, &job, "8", &format!("{:.2} GB/s", result.busbw_gb_s));
    }
    check(
        stage,
        results,
        true,
        &format!("{first} and then {second} ran whole, and every rank verified every sum"),
    )
}

/// 3 + 6 free: the gang goes to one NVLink island, and comes back from a death.
pub(crate) fn island(
    stage: &Stage,
    daemon: &Daemon,
    files: &Files,
    settings: &Settings,
    results: &mut Results,
) -> Check {
    stage.title(
        "Act 3 · 3 + 6 GPUs free: four ranks that belong on one NVLink island, and one that is killed",
    );
    daemon.up(stage, &files.three_and_six)?;
    let file = write_job(files, daemon, settings)?;
    daemon.show(stage, &["submit", "--dry-run", "-f", &file])?;
    compare_with_first_fit(stage, daemon, settings, files, results)?;

    daemon.show(stage, &["submit", "-f", &file])?;
    let running = daemon.wait_until("island", "running", |j| j.state == "running")?;
    let slots = slots(&running);
    let nodes: BTreeSet<&str> = slots.iter().map(|(n, _)| n.as_str()).collect();
    let devices = slots.iter().fold(DeviceMask::EMPTY, |all, (_, d)| all.union(*d));
    let claim = format!("its 4 ranks run on one NVLink island: devices {devices} of {}", join(&nodes));
    let on_island = nodes.len() == 1 && is_nvlink_island(daemon, &slots)?;
    check(stage, results, on_island, &claim)?;

    kill_a_rank(stage, daemon, settings, results)?;
    let job = {
        let _wait = stage.wait("island: the whole gang again, from its checkpoint", None);
        daemon.wait_finished("island")?
    };
    let result = daemon.ring_result("island")?;
    daemon.show(stage, &["get", "island"])?;
    let attempts = job.gangs.iter().map(|g| g.attempt).max().unwrap_or(0);
    let claim = format!("the whole gang was started again and resumed from step {}", result.resumed_from);
    check(stage, results, attempts == 2 && result.resumed_from > 0 && result.wrong == 0, &claim)?;
    record(results, &job, "4", &format!("{:.2} GB/s", result.busbw_gb_s));
    Ok(())
}

/// The job as a user would write it.
fn write_job(files: &Files, daemon: &Daemon, settings: &Settings) -> Result<String, String> {
    let checkpoints = &files.checkpoints;
    let steps = if settings.quick { 12 } else { 40 };
    let bytes = if settings.quick { "256KB" } else { "8MB" };
    let text = format!(
        "name: island\nresources: {{gpus: 4}}\nlaunch: ranks\n\
         traffic: {{pattern: all_reduce, bytes: 500MB, compute: 120ms}}\n\
         checkpoint: {{dir: {}}}\nretry: {{max: 3, on: [error], backoff: 500ms}}\n\
         command: [{}, --bytes, {bytes}, --steps, \"{steps}\", --step-sleep-ms, \"120\"]\n",
        checkpoints.display(),
        daemon.ring.display(),
    );
    let path = checkpoints.with_file_name("island.yaml");
    fs::write(&path, text).map_err(|e| e.to_string())?;
    Ok(path.display().to_string())
}

/// The dry run's own figures: where Phalanx would put it, and where a counter of GPUs would.
fn compare_with_first_fit(
    stage: &Stage,
    daemon: &Daemon,
    _settings: &Settings,
    files: &Files,
    results: &mut Results,
) -> Check {
    let path = files.checkpoints.with_file_name("island.yaml");
    let text = fs::read_to_string(&path).map_err(|e| e.to_string())?;
    let view = daemon.dry_run(&text)?;
    let report = view.reports.first().ok_or("the dry run has no report")?;
    let ours = report.nearest.as_ref().ok_or("the dry run found no place")?;
    let naive = view.first_fit.first().and_then(Option::as_ref).ok_or("first fit found no place")?;
    let predicted = view.predicted.first().and_then(Option::as_ref).ok_or("nothing was predicted")?;
    let (good, bad) = (predicted.step_us, naive.predicted.step_us);
    let claim = format!(
        "first fit would split it {} across nodes: {:.0} ms per step predicted, against {:.0} ms on the island ({:.1}×)",
        counts(&naive.placement),
        ms(bad),
        ms(good),
        ms(bad) / ms(good).max(0.001),
    );
    check(stage, results, counts(&naive.placement) == "3 + 1" && counts(ours) == "4" && bad > good, &claim)
}

fn ms(us: u64) -> f64 {
    std::time::Duration::from_micros(us).as_secs_f64() * 1e3
}

/// Ranks per node, in rank order: `3 + 1`.
fn counts(placement: &Placement) -> String {
    let mut counts: Vec<(&str, u32)> = Vec::new();
    for slot in &placement.slots {
        match counts.iter_mut().find(|(n, _)| *n == slot.node.as_str()) {
            Some((_, n)) => *n += 1,
            None => counts.push((slot.node.as_str(), 1)),
        }
    }
    counts.iter().map(|(_, n)| n.to_string()).collect::<Vec<_>>().join(" + ")
}

fn slots(job: &JobView) -> Vec<(String, DeviceMask)> {
    let members = job.gangs.iter().flat_map(|g| &g.members);
    members.map(|m| (m.node.to_string(), m.devices)).collect()
}

/// Asks the map, not the placement: do these devices share a group of level `nvlink`?
fn is_nvlink_island(daemon: &Daemon, slots: &[(String, DeviceMask)]) -> Result<bool, String> {
    let devices = slots.iter().fold(DeviceMask::EMPTY, |all, (_, d)| all.union(*d));
    let Answer::Topology(map) =
        phalanx_api::client::ask_once(&daemon.paths.socket(), Verb::Topology).map_err(|e| e.to_string())?
    else {
        return Err("asked for the topology, got something else".to_owned());
    };
    let node = slots.first().and_then(|(name, _)| map.nodes.iter().find(|n| n.name.as_str() == name));
    let groups = node.map(|n| n.machine.groups.as_slice()).unwrap_or_default();
    Ok(groups.iter().any(|g| g.level.as_str() == "nvlink" && devices.is_subset_of(g.devices)))
}

/// SIGKILL to one rank, once every rank has a checkpoint.
fn kill_a_rank(stage: &Stage, daemon: &Daemon, settings: &Settings, results: &mut Results) -> Check {
    let goal = if settings.quick { 4 } else { 12 };
    {
        let wait = stage.wait("island: steps until a rank is killed", Some(goal));
        daemon.wait_until("island", "some steps on", |_| {
            let steps = daemon.steps_done("island");
            wait.at(steps.min(goal));
            steps >= goal
        })?;
    }
    let job = daemon.job("island")?;
    let pid = daemon.rank_pid(job.id, 1, 2)?;
    stage.command(&format!("kill -9 {pid}      # rank 2 of 4"));
    kill(Pid::from_raw(pid), Signal::SIGKILL).map_err(|e| format!("cannot kill rank 2 ({pid}): {e}"))?;
    // A neighbour whose connection broke may end, and be told of, before the rank that was killed.
    let told = daemon
        .wait_until("island", "stopped for its rank", |j| j.events.iter().any(|e| e.what == "stopping"))?;
    let event =
        told.events.iter().find(|e| e.what == "stopping").map(|e| e.detail.clone()).unwrap_or_default();
    check(stage, results, true, &format!("the death of one rank stopped the whole gang: {event}"))
}

fn join(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(", ")
}

fn record(results: &mut Results, job: &JobView, asked: &str, busbw: &str) {
    let placement = job.gangs.iter().find_map(|g| g.placement.as_ref());
    let where_ = placement.map_or_else(
        || "–".to_owned(),
        |p| {
            let nodes: BTreeSet<&str> = p.slots.iter().map(|s| s.node.as_str()).collect();
            format!("{} on {}", counts(p), join(&nodes))
        },
    );
    results.lines.push(Line {
        job: job.name.clone(),
        asked: asked.to_owned(),
        where_,
        attempts: job.gangs.iter().map(|g| g.attempt).max().unwrap_or(0),
        busbw: busbw.to_owned(),
        ended: job.state.clone(),
    });
}

pub(crate) fn finale(stage: &Stage, results: &Results) -> Check {
    stage.title("What happened");
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header([
        "job",
        "GPUs asked",
        "ranks on nodes (declared)",
        "attempts",
        "bus bandwidth (measured)",
        "ended",
    ]);
    for line in &results.lines {
        let attempts = line.attempts.to_string();
        table.add_row([&line.job, &line.asked, &line.where_, &attempts, &line.busbw, &line.ended]);
    }
    println!("{table}");
    stage.say("Bandwidths are those of sockets on this machine; step times are predicted for the declared hardware.");
    stage.say(&format!(
        "\n{} claims were checked against the daemon, and all of them hold.",
        results.shown.len()
    ));
    Ok(())
}
