//! How long the HTTP API of a daemon takes to answer, with many jobs and nodes, and what that does to a submission.
//!
//! One client asks over one connection that is kept, as programs do; a page of the dashboard asks for the same documents.

use std::fmt::Write as _;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use phalanx_api::protocol::{Answer, TokenAsk, Verb};
use phalanx_model::{Job, JobName, Needs};
use serde::Serialize;

use crate::daemon::{self, Daemon};

/// What people are promised, per answer.
const PROMISE: Duration = Duration::from_millis(50);
/// Clients that submit jobs at the same time: a daemon writes the journal once for all of them.
const SUBMITTERS: usize = 16;
/// Jobs that run, of one rank on a node of eight GPUs each.
const RUNNING: usize = 500;
/// What all jobs want, and so many nodes have as run jobs.
const MODEL: &str = "NVIDIA H200";
/// One of them is asked for by its number.
const JOBS_MIN: usize = 1_000;
/// How much a document holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    List,
    Whole,
}

/// Documents that are asked for. Of lists an answer within [`PROMISE`] is promised; the others hold the
/// whole cluster or all jobs, and are megabytes.
const ASKED: [(&str, &str, Size); 14] = [
    ("jobs, the newest 200", "/v1/jobs", Size::List),
    ("jobs that are pending, 200", "/v1/jobs?state=pending", Size::List),
    ("jobs by a name with wildcards", "/v1/jobs?name=train-*7", Size::List),
    ("jobs from the middle on", "/v1/jobs?after=5000", Size::List),
    ("jobs, ended ones too", "/v1/jobs?finished=true", Size::List),
    ("one job", "/v1/jobs/17", Size::List),
    ("why one waits", "/v1/jobs/900/why", Size::List),
    ("queues", "/v1/queues", Size::List),
    ("overview", "/v1/overview", Size::List),
    ("health", "/v1/health", Size::List),
    ("nodes, the first 200", "/v1/nodes?limit=200", Size::List),
    ("nodes, the first 10,000", "/v1/nodes?limit=10000", Size::Whole),
    ("map of all GPUs", "/v1/map", Size::Whole),
    ("jobs, the newest 10,000", "/v1/jobs?limit=10000", Size::Whole),
];
/// Between two questions of one of four clients that read.
const READER_PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, Serialize)]
struct Setting {
    nodes: usize,
    jobs: usize,
    requests: usize,
}

#[derive(Clone, Debug, Serialize)]
struct Row {
    what: &'static str,
    path: &'static str,
    /// Of the body.
    bytes: usize,
    p50_ms: f64,
    p99_ms: f64,
    /// More than [`PROMISE`] was not promised.
    is_list: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Measured {
    setting: Setting,
    rows: Vec<Row>,
    /// A submission of one client: with nobody else, and while four clients read the newest 200 jobs and the map.
    submit_p99_ms: f64,
    submit_p99_among_readers_ms: f64,
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let mut setting = Setting { nodes: 12_800, jobs: 10_000, requests: 200 };
    let (mut is_json, mut only) = (false, Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let mut number = || {
            let text = value()?;
            text.parse::<usize>().map_err(|e| format!("{word} {text}: {e}"))
        };
        match word.as_str() {
            "--json" => is_json = true,
            "--only" => only.push(value()?.as_str()),
            "--nodes" => setting.nodes = number()?.max(RUNNING),
            "--jobs" => setting.jobs = number()?.max(JOBS_MIN),
            "--requests" => setting.requests = number()?.max(1),
            _ => return Err(format!("{word} is no flag of api")),
        }
    }
    let measured = measure(setting, &only);
    // Ranks outlive a daemon that did not end in order.
    if let Some(left) = daemon::left().first() {
        return Err(left.clone());
    }
    let measured = measured?;
    if is_json {
        println!("{}", serde_json::to_string(&measured).map_err(|e| e.to_string())?);
    } else {
        print!("{}", text(&measured));
    }
    let is_late = |row: &&Row| row.is_list && row.p99_ms > PROMISE.as_secs_f64() * 1e3;
    let late: Vec<&str> = measured.rows.iter().filter(is_late).map(|row| row.what).collect();
    if late.is_empty() {
        return Ok(());
    }
    Err(format!("more than {} ms: {}", PROMISE.as_millis(), late.join(", ")))
}

fn measure(setting: Setting, only: &[&str]) -> Result<Measured, String> {
    let daemon = Daemon::start(&cluster(setting.nodes), QUEUES)?;
    eprintln!("submits {} jobs", setting.jobs);
    fill(&daemon, setting.jobs)?;
    eprintln!("asks");
    let client = Client::new(&daemon)?;
    let row = |&(what, path, size): &(&'static str, &'static str, Size)| {
        let mut bytes = 0;
        let times = times(setting.requests, || {
            bytes = client.get(path)?;
            Ok(())
        })?;
        let (p50_ms, p99_ms) = (percentile(&times, 50), percentile(&times, 99));
        Ok(Row { what, path, bytes, p50_ms, p99_ms, is_list: size == Size::List })
    };
    let is_wanted = |path: &str| only.is_empty() || only.iter().any(|word| path.contains(word));
    let rows = ASKED.iter().filter(|(_, path, _)| is_wanted(path));
    let rows = rows.map(row).collect::<Result<Vec<Row>, String>>()?;
    let submit = || times(setting.requests, || daemon.submit(waiting(1)?).map(drop));
    let alone = submit()?;
    let is_over = AtomicBool::new(false);
    let among = std::thread::scope(|scope| {
        let read = |path: &'static str| {
            // A user may ask 100 times a second, and a daemon that refuses has little work.
            while !is_over.load(Ordering::Relaxed) && client.get(path).is_ok() {
                std::thread::sleep(READER_PAUSE);
            }
        };
        for path in ["/v1/jobs", "/v1/map", "/v1/jobs", "/v1/map"] {
            scope.spawn(move || read(path));
        }
        let among = submit();
        is_over.store(true, Ordering::Relaxed);
        among
    })?;
    Ok(Measured {
        setting,
        rows,
        submit_p99_ms: percentile(&alone, 99),
        submit_p99_among_readers_ms: percentile(&among, 99),
    })
}

const QUEUES: &str = "queues: [{name: a}, {name: b}, {name: c}, {name: default}]\n";

/// Nodes of eight GPUs in leaves of 32: on some, jobs run; of the rest, every second is in use by others.
fn cluster(nodes: usize) -> String {
    let mut text = "levels: [cluster, block, leaf]\n\
         links:\n  block: {bandwidth: 25GB/s, latency: 3us}\n  leaf: {bandwidth: 50GB/s, latency: 2us}\n  \
         node: {bandwidth: 50GB/s, latency: 5us}\nnodes:\n"
        .to_owned();
    for at in 0..nodes {
        let (leaf, block) = (at / 32, at / 1_024);
        let model = if at < RUNNING { MODEL } else { "NVIDIA H100 80GB HBM3" };
        let busy = if at >= RUNNING && at % 2 == 1 { ", busy: [GPU0, GPU1, GPU2]" } else { "" };
        let _ = writeln!(
            text,
            "  - {{name: n{at}, devices: {{count: 8, link: nvlink, model: {model}}}, cpus: 96, memory: 768GB, \
             path: {{leaf: leaf-{leaf}, block: block-{block}}}{busy}}}",
        );
    }
    text
}

/// Jobs that run on all nodes of a model, and many that wait for these nodes or for their release.
fn fill(daemon: &Daemon, jobs: usize) -> Result<(), String> {
    for _ in 0..RUNNING {
        let mut job = daemon::job(1, "exec sleep 100000")?;
        wants(&mut job);
        daemon.submit(job)?;
    }
    std::thread::scope(|scope| {
        let part = |of: usize| {
            (RUNNING + of..jobs).step_by(SUBMITTERS).try_for_each(|at| daemon.submit(waiting(at)?).map(drop))
        };
        let parts: Vec<_> = (0..SUBMITTERS).map(|of| scope.spawn(move || part(of))).collect();
        parts.into_iter().try_for_each(|part| part.join().map_err(|_| "a submitter panicked".to_owned())?)
    })?;
    daemon.until("all that fit run", || match daemon.ask(Verb::Overview) {
        Ok(Answer::Overview(view)) => (view.jobs.running as usize >= RUNNING).then_some(()),
        _ => None,
    })
}

fn wants(job: &mut Job) {
    for gang in &mut job.gangs {
        gang.needs.models = Needs::of_model(MODEL);
    }
}

/// Of 24 kinds of requests; every fifth is held.
fn waiting(at: usize) -> Result<Job, String> {
    let mut job = daemon::job(1 + u32::try_from(at % 24).unwrap_or(0), "true")?;
    wants(&mut job);
    job.name = JobName::new(format!("train-{at}")).map_err(|e| e.to_string())?;
    if at.is_multiple_of(5) {
        job.turn.held_by = Some("bench".to_owned());
    }
    Ok(job)
}

struct Client {
    agent: ureq::Agent,
    address: String,
    bearer: String,
}

impl Client {
    fn new(daemon: &Daemon) -> Result<Self, String> {
        let ask = TokenAsk { name: "bench".to_owned(), read_only: true, for_ms: 3_600_000 };
        let Answer::Token(made) = daemon.ask(Verb::NewToken(ask))? else {
            return Err("the daemon made no token".to_owned());
        };
        let agent = ureq::Agent::new_with_defaults();
        Ok(Self { agent, address: made.address, bearer: format!("Bearer {}", made.text) })
    }

    /// Bytes of the body.
    fn get(&self, path: &str) -> Result<usize, String> {
        let wrong = |e: ureq::Error| format!("GET {path}: {e}");
        let request = self.agent.get(format!("{}{path}", self.address));
        let mut answer = request.header("Authorization", &self.bearer).call().map_err(wrong)?;
        let mut body = Vec::new();
        answer.body_mut().as_reader().read_to_end(&mut body).map_err(|e| format!("GET {path}: {e}"))?;
        Ok(body.len())
    }
}

/// Sorted, in milliseconds. Not more often than a user may ask.
fn times(count: usize, mut act: impl FnMut() -> Result<(), String>) -> Result<Vec<f64>, String> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        act()?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        std::thread::sleep(Duration::from_millis(11).saturating_sub(began.elapsed()));
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100);
    sorted[at.clamp(1, sorted.len()) - 1]
}

fn text(measured: &Measured) -> String {
    let Measured { setting, rows, submit_p99_ms, submit_p99_among_readers_ms } = measured;
    let mut text = format!(
        "{} nodes of 8 GPUs (declared), {} jobs, of which {RUNNING} run (real processes); {} requests of each kind\n\n\
         {:<32} {:>10} {:>9} {:>9}\n",
        setting.nodes, setting.jobs, setting.requests, "", "kB", "p50 ms", "p99 ms"
    );
    for Row { what, bytes, p50_ms, p99_ms, .. } in rows {
        let _ = writeln!(text, "{what:<32} {:>10.1} {p50_ms:>9.1} {p99_ms:>9.1}", *bytes as f64 / 1e3);
    }
    let _ = writeln!(
        text,
        "\na submission takes {submit_p99_ms:.1} ms (p99), and {submit_p99_among_readers_ms:.1} ms while four clients read \
         jobs and the map without a pause"
    );
    text
}
