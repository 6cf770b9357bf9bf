//! Completion that knows the jobs, nodes and levels of the daemon. Silent and quick where there is none.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::sync::mpsc;
use std::time::Duration;

use clap::CommandFactory;
use clap_complete::CompleteEnv;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::Shells;
use phalanx_api::client;
use phalanx_api::protocol::{Answer, JobFilter, NodeFilter, TopologyView, Verb};
use phalanx_model::LevelName;

use crate::args::Cli;
use crate::failure::Failure;
use crate::output;

/// The variable by which a shell asks.
const VARIABLE: &str = "COMPLETE";
/// Longest wait for the daemon: nobody waits for a completion.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answers a shell that asks for candidates, and ends the process then.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).bin("phalanx").complete();
}

/// `N:DOMAIN` for the innermost domains of nodes, once the number is typed.
pub(crate) fn counted_domains(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let Some((count, _)) = typed.split_once(':') else { return Vec::new() };
    let Some(Answer::Topology(view)) = ask(Verb::Topology) else { return Vec::new() };
    let domains: BTreeSet<String> =
        view.nodes.iter().filter_map(|node| node.path.last().map(ToString::to_string)).collect();
    matching(current, domains.iter().map(|domain| CompletionCandidate::new(format!("{count}:{domain}"))))
}

/// `queues.NAME.weight=` for every queue.
pub(crate) fn queue_fields(current: &OsStr) -> Vec<CompletionCandidate> {
    const FIELDS: [&str; 4] = ["weight", "guaranteed.gpus", "limit.gpus", "max_running"];
    let Some(Answer::Queues(queues)) = ask(Verb::Queues) else { return Vec::new() };
    let all = queues.iter().flat_map(|queue| FIELDS.map(|field| format!("queues.{}.{field}=", queue.name)));
    matching(current, all.map(CompletionCandidate::new))
}

/// Prints the script that makes a shell ask.
pub(crate) fn register(shell: &str) -> Result<(), Failure> {
    let shells = Shells::builtins();
    let Some(completer) = shells.completer(shell) else {
        return Err(Failure::usage(
            format!("no completion for {shell}"),
            "bash, zsh, fish, elvish or powershell",
        ));
    };
    let program = std::env::args().next().unwrap_or_else(|| "phalanx".to_owned());
    let mut script = Vec::new();
    completer
        .write_registration(VARIABLE, "phalanx", "phalanx", &program, &mut script)
        .map_err(|e| Failure::internal(e.to_string()))?;
    output::print(&String::from_utf8_lossy(&script))
}

/// Numbers and names of jobs that are not finished.
pub(crate) fn jobs(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(Answer::Jobs(jobs)) =
        ask(Verb::List { finished: false, filter: JobFilter::default(), limit: 200 })
    else {
        return Vec::new();
    };
    let help = |text: String| Some(text.into());
    let ids = jobs.iter().map(|job| (job.id.to_string(), help(format!("{} ({})", job.name, job.state))));
    let names = jobs.iter().map(|job| (job.name.clone(), help(format!("job {} ({})", job.id, job.state))));
    matching(current, ids.chain(names).map(|(value, help)| CompletionCandidate::new(value).help(help)))
}

/// Names of jobs, also of those that have ended.
pub(crate) fn job_names(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(Answer::Jobs(jobs)) =
        ask(Verb::List { finished: true, filter: JobFilter::default(), limit: 200 })
    else {
        return Vec::new();
    };
    let names: BTreeSet<String> = jobs.into_iter().map(|job| job.name).collect();
    matching(current, names.into_iter().map(CompletionCandidate::new))
}

/// Names of nodes.
pub(crate) fn nodes(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(Answer::Nodes(view)) = ask(Verb::FindNodes(NodeFilter::default())) else { return Vec::new() };
    matching(current, view.nodes.iter().map(|node| CompletionCandidate::new(node.name.to_string())))
}

/// Names of nodes, and `LEVEL=DOMAIN` of the domains that they stand in.
pub(crate) fn nodes_and_domains(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(Answer::Topology(view)) = ask(Verb::Topology) else { return nodes(current) };
    let mut words: BTreeSet<String> = BTreeSet::new();
    for node in &view.nodes {
        let domains = view.levels.above.iter().zip(&node.path);
        words.extend(domains.map(|(level, domain)| format!("{level}={domain}")));
    }
    let names = view.nodes.iter().map(|node| node.name.to_string());
    matching(current, names.chain(words).map(CompletionCandidate::new))
}

/// Names of queues.
pub(crate) fn queues(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(Answer::Queues(queues)) = ask(Verb::Queues) else { return Vec::new() };
    matching(current, queues.iter().map(|queue| CompletionCandidate::new(queue.name.clone())))
}

/// `RANKS@LEVEL` for every level, once the ranks are typed.
pub(crate) fn segments(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let Some((ranks, _)) = typed.split_once('@') else { return Vec::new() };
    let Some(Answer::Topology(view)) = ask(Verb::Topology) else { return Vec::new() };
    matching(current, levels(&view).iter().map(|level| CompletionCandidate::new(format!("{ranks}@{level}"))))
}

/// The axes of parallelism that are not typed yet.
pub(crate) fn axes(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let (before, _) =
        typed.rsplit_once(',').map_or(("", ""), |(before, _)| (&typed[..=before.len()], before));
    let words = ["tensor", "expert", "data", "pipeline"];
    let left = words.iter().filter(|word| !before.contains(*word));
    matching(current, left.map(|word| CompletionCandidate::new(format!("{before}{word}="))))
}

/// Outermost first; levels inside the nodes by name.
fn levels(view: &TopologyView) -> Vec<LevelName> {
    let groups = view.nodes.iter().flat_map(|node| &node.machine.groups);
    let inside: BTreeSet<&LevelName> = groups.map(|group| &group.level).collect();
    view.levels.above.iter().chain([&view.levels.node]).chain(inside).cloned().collect()
}

fn matching(current: &OsStr, all: impl Iterator<Item = CompletionCandidate>) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    all.filter(|candidate| candidate.get_value().to_string_lossy().starts_with(&*typed)).collect()
}

/// `None` on any failure, and after [`PATIENCE`].
fn ask(verb: Verb) -> Option<Answer> {
    let server = crate::verbs::server(&phalanx_local::Paths::of_client()).ok()?;
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = tell.send(client::ask_once(&server, verb).ok());
    });
    told.recv_timeout(PATIENCE).ok().flatten()
}
