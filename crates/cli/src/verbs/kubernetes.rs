//! The verbs against a Kubernetes cluster, with the rights of the user's kubeconfig.

mod health;

use std::io;
use std::process::ExitCode;

use clap::Parser as _;
use phalanx_kube::submit::{Launch, Refused, Trainer, Work, of_job};
use phalanx_kube::user::{Cluster, JobView, LogAsk, UserError};
use phalanx_model::Snapshot;
use serde::Serialize;
use serde_json::json;

use super::calendar::past;
use super::scheduler::options;
use super::sim::write as write_snapshot;
use crate::args::{Arena, ByDefault, Kind, Logs, Ps, Queues, Reach, Submit, Top, TopOf, Verb};
use crate::failure::Failure;
use crate::output::{Items, Output, now, try_print};
use crate::show;
use crate::submission::Submission;

/// A cluster, and where answers go.
struct Session {
    cluster: Cluster,
    out: Output,
}

/// One verb.
pub(super) fn run(out: &Output, reach: &Reach, verb: Verb) -> Result<ExitCode, Failure> {
    let session = || -> Result<Session, Failure> {
        let cluster = Cluster::connect(None, reach.context.as_deref(), reach.namespace.as_deref())?;
        Ok(Session { cluster, out: out.clone() })
    };
    match verb {
        Verb::Submit(submitted) => {
            let submitted: Submit = *submitted;
            // What is wrong with the flags needs no cluster.
            if let Some(kind) = submitted.kind {
                let work = arena(kind)?;
                return submit(&session()?, &work);
            }
            if submitted.dry_run || submitted.wait {
                let flag = if submitted.dry_run { "--dry-run" } else { "--wait" };
                return Err(Failure::usage(format!("{flag} is not for clusters"), "leave it out"));
            }
            let image = submitted.image.unwrap_or_default();
            let job = Submission::of_container(submitted.job)?.job;
            submit(&session()?, &of_job(&job, &image)?)
        }
        Verb::Ps(ps) => list(&session()?, &ps.verb),
        Verb::Get(get) => one(&session()?, &get.verb.job, trainer(get.verb.kind.as_deref())?),
        Verb::Why(asked) => why(&session()?, &asked.verb.job),
        Verb::Logs(logs) => follow(&session()?, &logs.verb),
        Verb::Cancel(cancel) => delete(&session()?, &cancel.verb.jobs, trainer(cancel.verb.kind.as_deref())?),
        Verb::Nodes(_) | Verb::Top(TopOf { of: Some(Top::Node(_)), .. }) => nodes(&session()?),
        Verb::Snapshot(asked) => write_snapshot(out, &snapshot(out, reach)?, asked.verb.file.as_deref()),
        Verb::Queues(asked) => queues(&session, &asked),
        Verb::Top(TopOf { of: Some(Top::Job(_)), .. }) => top_job(&session()?),
        Verb::Cordon(one) if one.verb.reason.is_some() => Err(Failure::usage(
            "--reason is not for clusters: a node of Kubernetes has no field for it",
            "leave it out, or annotate the node",
        )),
        Verb::Cordon(one) => cordon(&session()?, &one.verb.node, true),
        Verb::Uncordon(one) => cordon(&session()?, &one.verb.node, false),
        Verb::Health(asked) => health::health(&session()?, asked),
        _ => Err(Failure::usage(
            "this verb does not ask clusters",
            "those that do: submit, ps, get, why, logs, cancel, nodes, queues, top, cordon, uncordon, health, snapshot, sim whatif --live",
        )),
    }
}

fn trainer(word: Option<&str>) -> Result<Option<Trainer>, Failure> {
    let Some(word) = word else { return Ok(None) };
    let unknown = || Failure::usage(format!("--type {word:?} is no type"), "say mpijob, pytorchjob or job");
    Trainer::of(word).map(Some).ok_or_else(unknown)
}

/// Arena's flags as work.
fn arena(kind: Kind) -> Result<Work, Failure> {
    let (trainer, flags) = match kind {
        Kind::Mpi(flags) => (Trainer::Mpi, flags),
        Kind::Pytorch(flags) => (Trainer::PyTorch, flags),
    };
    if flags.gputopology && !flags.gang {
        let hint = "say --gang too: places close together can only be chosen for pods that start together";
        return Err(Failure::usage("--gputopology without --gang", hint));
    }
    let launch = match (trainer, flags.nproc_per_node) {
        (Trainer::Mpi, per_pod) => Launch::Mpi { per_pod: per_pod.unwrap_or(0) },
        (_, Some(per_pod)) => Launch::Torchrun { per_pod },
        (_, None) => Launch::Ranks,
    };
    let limit = |text: &String| {
        let bad = |error: &dyn std::fmt::Display| {
            Failure::usage(format!("--running-timeout {text:?}: {error}"), "write it like 90m or 1h30m")
        };
        let ns = phalanx_spec::quantity::parse_time_limit_ns(text).map_err(|error| bad(&error))?;
        Ok::<u64, Failure>(ns / 1_000_000_000)
    };
    let time_limit_s = flags.running_timeout.as_ref().map(limit).transpose()?;
    let Arena { command, shell, .. } = flags;
    Ok(Work {
        name: flags.name,
        trainer,
        workers: flags.workers,
        gpus: flags.gpus,
        cpu: flags.cpu,
        memory: flags.memory,
        image: flags.image,
        argv: words(command, shell),
        env: pairs("--env", &flags.env, '=')?.into_iter().collect(),
        workdir: flags.working_dir,
        launch,
        preferred: flags.gputopology.then(|| "node".to_owned()),
        priority_class: flags.priority,
        time_limit_s,
        retry: flags.retry,
        labels: pairs("--label", &flags.label, '=')?.into_iter().collect(),
        annotations: pairs("--annotation", &flags.annotation, '=')?.into_iter().collect(),
        node_selector: pairs("--selector", &flags.selector, '=')?.into_iter().collect(),
        tolerations: flags.toleration,
        data: pairs("--data", &flags.data, ':')?,
        pull_secrets: flags.image_pull_secret,
        pull_policy: flags.image_pull_policy,
        host_network: flags.host_network,
        shared_memory: flags.share_memory,
        ..Work::default()
    })
}

/// A single word is a line for a shell, as Arena takes it; several are a program and its arguments.
fn words(command: Vec<String>, shell: String) -> Vec<String> {
    match command.as_slice() {
        [line] => vec![shell, "-c".to_owned(), line.clone()],
        _ => command,
    }
}

fn pairs(flag: &str, texts: &[String], between: char) -> Result<Vec<(String, String)>, Failure> {
    let pair = |text: &String| {
        let (key, value) = text.split_once(between).filter(|(key, _)| !key.is_empty())?;
        Some((key.to_owned(), value.to_owned()))
    };
    let bad = |text: &String| {
        Failure::usage(
            format!("{flag} {text:?} has no `{between}`"),
            format!("write {flag} NAME{between}VALUE"),
        )
    };
    texts.iter().map(|text| pair(text).ok_or_else(|| bad(text))).collect()
}

#[derive(Serialize)]
struct Submitted<'a> {
    name: &'a str,
    namespace: &'a str,
    /// Of the object that was created.
    object: &'a str,
}

fn submit(session: &Session, work: &Work) -> Result<ExitCode, Failure> {
    let object = session.cluster.submit(work)?;
    let (name, namespace) = (work.name.as_str(), session.cluster.namespace());
    let body = Submitted { name, namespace, object: &object };
    let page = |page: &show::Page| {
        if page.quiet {
            return format!("{name}\n");
        }
        format!(
            "{object} {name} is submitted in namespace {namespace}; its pods come when all of them have a place\n"
        )
    };
    session.out.show("Submitted", body, page, || vec![name.to_owned()])?;
    Ok(ExitCode::SUCCESS)
}

fn list(session: &Session, ps: &Ps) -> Result<ExitCode, Failure> {
    let mut jobs = session.cluster.jobs()?;
    jobs.retain(|job| ps.all || !is_over(job));
    let limit = usize::try_from(ps.limit).unwrap_or(usize::MAX);
    let older = jobs.len().saturating_sub(limit);
    jobs.drain(..older);
    let names = || jobs.iter().map(|job| job.name.clone()).collect();
    let page = |page: &show::Page| show::kubernetes::list(page, &jobs);
    session.out.show("JobList", Items { items: &jobs }, page, names)?;
    Ok(ExitCode::SUCCESS)
}

fn is_over(job: &JobView) -> bool {
    matches!(job.state, "succeeded" | "failed")
}

fn one(session: &Session, name: &str, trainer: Option<Trainer>) -> Result<ExitCode, Failure> {
    let job = session.cluster.job(name, trainer)?;
    let page = |page: &show::Page| show::kubernetes::one(page, &job);
    session.out.show("Job", &job, page, || vec![job.name.clone()])?;
    Ok(ExitCode::SUCCESS)
}

fn why(session: &Session, name: &str) -> Result<ExitCode, Failure> {
    let mut job = session.cluster.job(name, None)?;
    let events = session.cluster.events(&job)?;
    job.learn(&events);
    let body = json!({ "job": job, "events": events });
    let page = |page: &show::Page| show::kubernetes::why(page, &job, &events);
    session.out.show("Why", body, page, || vec![job.detail.clone()])?;
    Ok(ExitCode::SUCCESS)
}

/// The output of one instance: of the rank that is asked for, otherwise of the chief.
fn follow(session: &Session, logs: &Logs) -> Result<ExitCode, Failure> {
    let job = session.cluster.job(&logs.job, None)?;
    let found = match logs.rank {
        Some(rank) => job.instances.iter().find(|instance| instance.rank == Some(rank)),
        None => job.instances.iter().find(|instance| instance.is_chief).or(job.instances.first()),
    };
    let Some(instance) = found else {
        let hint = format!("`phalanx why {} --to kubernetes` says why", job.name);
        return Err(Failure::not_found(format!("job {} has no such instance now", job.name), hint));
    };
    let mut broken = None;
    let now = now();
    let since = logs.since.as_deref().map(|text| past("--since", text, now)).transpose()?;
    let since_s = since.map(|at| now.since(at).div_ceil(1_000).max(1));
    let ask = LogAsk { follow: logs.follow, tail: logs.tail, since_s, timestamps: logs.timestamps };
    session.cluster.logs(&instance.name, &ask, |line| {
        let text = match session.out.format.is_document() {
            true => {
                format!("{}\n", json!({ "kind": "Log", "log": { "instance": instance.name, "line": line } }))
            }
            false => format!("{line}\n"),
        };
        try_print(&text).map_err(|error| broken = Some(error)).is_ok()
    })?;
    match broken {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::unavailable(format!("cannot write to standard output: {error}"), ""))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Every job is tried; the first failure is the exit code.
fn delete(session: &Session, names: &[String], trainer: Option<Trainer>) -> Result<ExitCode, Failure> {
    let mut first = ExitCode::SUCCESS;
    let mut done = Vec::new();
    for name in names {
        match session.cluster.delete(name, trainer) {
            Ok(()) => done.push(format!("job {name} is deleted")),
            Err(error) => {
                let code = Failure::from(error).report(&session.out.format);
                first = if first == ExitCode::SUCCESS { code } else { first };
            }
        }
    }
    say(session, &done)?;
    Ok(first)
}

fn cordon(session: &Session, node: &str, is: bool) -> Result<ExitCode, Failure> {
    session.cluster.cordon(node, is)?;
    let what = if is { "takes no new work" } else { "takes work again" };
    say(session, &[format!("{node} {what}")])?;
    Ok(ExitCode::SUCCESS)
}

fn say(session: &Session, done: &[String]) -> Result<(), Failure> {
    let items: Vec<_> = done.iter().map(|detail| json!({ "detail": detail })).collect();
    let page =
        |page: &show::Page| done.iter().filter(|_| !page.quiet).map(|detail| format!("{detail}\n")).collect();
    session.out.show("DoneList", json!({ "items": items }), page, Vec::new)
}

fn nodes(session: &Session) -> Result<ExitCode, Failure> {
    let nodes = session.cluster.nodes()?;
    let names = || nodes.iter().map(|node| node.name.clone()).collect();
    let page = |page: &show::Page| show::kubernetes::nodes(page, &nodes);
    session.out.show("NodeList", Items { items: &nodes }, page, names)?;
    Ok(ExitCode::SUCCESS)
}

/// The cluster as a scheduler without flags sees it, as far as this user may.
pub(super) fn snapshot(out: &Output, reach: &Reach) -> Result<Snapshot, Failure> {
    if reach.namespace.is_some() {
        let hint = "leave it out; nodes are shared by the gangs of all namespaces";
        return Err(Failure::usage("--namespace: a snapshot is of the whole cluster", hint));
    }
    let cluster = Cluster::connect(None, reach.context.as_deref(), None)?;
    let ByDefault { deciding } = ByDefault::parse_from(["phalanx"]);
    let seen = cluster.snapshot(options(deciding)?)?;
    if !seen.unread.is_empty() {
        let lists = seen.unread.join(", ");
        out.note(&format!("taken as empty, because this user may not list them: {lists}"));
    }
    Ok(seen.snapshot)
}

/// `session` is made when the flags are in order.
fn queues(session: &dyn Fn() -> Result<Session, Failure>, asked: &Queues) -> Result<ExitCode, Failure> {
    if asked.verb.is_some() {
        let hint =
            "queues of a cluster are objects: write each as one of kind Queue, and `kubectl apply -f FILE`";
        return Err(Failure::usage("a queue file is not for clusters", hint));
    }
    let session = session()?;
    if let Some(name) = &asked.name {
        let queue = session.cluster.queue(name)?;
        let page = |page: &show::Page| show::kubernetes::queues::one(page, &queue);
        session.out.show("Queue", &queue, page, || vec![queue.name.clone()])?;
        return Ok(ExitCode::SUCCESS);
    }
    let queues = session.cluster.queues()?;
    let names = || queues.iter().map(|queue| queue.name.clone()).collect();
    let page = |page: &show::Page| show::kubernetes::queues::list(page, &queues);
    session.out.show("QueueList", Items { items: &queues }, page, names)?;
    Ok(ExitCode::SUCCESS)
}

fn top_job(session: &Session) -> Result<ExitCode, Failure> {
    let jobs: Vec<JobView> = session.cluster.jobs()?.into_iter().filter(|job| !is_over(job)).collect();
    let names = || jobs.iter().map(|job| job.name.clone()).collect();
    let page = |page: &show::Page| show::kubernetes::top_job(page, &jobs);
    session.out.show("JobList", Items { items: &jobs }, page, names)?;
    Ok(ExitCode::SUCCESS)
}

impl From<UserError> for Failure {
    fn from(error: UserError) -> Self {
        let message = error.to_string();
        match error {
            UserError::Config(_) => Self::usage(message, "set KUBECONFIG, or name a --context that it has"),
            UserError::Server { code: 404, .. } => Self::not_found(message, ""),
            UserError::Server { code: 401 | 403, .. } => {
                Self::forbidden(message, "ask whoever runs the cluster")
            }
            UserError::Server { code: 409, .. } => {
                Self::usage(message, "delete it first, or choose another name")
            }
            UserError::Server { code: 400..=499, .. } => Self::usage(message, ""),
            UserError::Server { .. } | UserError::Transport(_) => Self::unavailable(message, "try again"),
            UserError::NoJob { .. } => {
                Self::not_found(message, "`phalanx ps -a --to kubernetes` lists all jobs")
            }
            UserError::NoDefinitions => {
                let hint = "`phalanx crds | kubectl apply -f -` installs their definition; the scheduler finds it within half a minute";
                Self::not_found(message, hint)
            }
            UserError::NoQueue(_) => {
                Self::not_found(message, "`phalanx queues --to kubernetes` lists all queues")
            }
            UserError::Refused(refused) => refused.into(),
            UserError::Unreadable(_) => Self::internal(message),
        }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::usage(refused.to_string(), refused.remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;

    fn parsed(words: &[&str]) -> Result<Work, Failure> {
        let line = ["phalanx", "submit"].iter().chain(words);
        let Verb::Submit(submit) = Cli::try_parse_from(line).unwrap().verb else { panic!("not submit") };
        arena(submit.kind.unwrap())
    }

    #[test]
    fn a_cluster_without_our_definitions_says_how_to_have_them() {
        let failure = Failure::from(UserError::NoDefinitions);
        assert_eq!((failure.code, failure.message.as_str()), ("not_found", "the cluster serves no queues"));
        assert!(failure.hint.contains("phalanx crds | kubectl apply -f -"), "{}", failure.hint);
    }

    /// It was passed over.
    #[test]
    fn a_snapshot_of_one_namespace_is_refused_before_a_cluster_is_asked() {
        let words = ["phalanx", "snapshot", "--to", "kubernetes", "--namespace", "team"];
        let Verb::Snapshot(asked) = Cli::try_parse_from(words).unwrap().verb else { panic!("not snapshot") };
        let out = Output::new(crate::output::Format::Table, true);
        let Err(failure) = snapshot(&out, &asked.reach) else { panic!("it was taken") };
        assert_eq!(failure.message, "--namespace: a snapshot is of the whole cluster");
    }

    /// With `PHALANX_TO` in the environment.
    #[test]
    fn a_queue_file_is_refused_before_a_cluster_is_asked() {
        let line = "phalanx queues apply queues.yaml";
        let Verb::Queues(asked) = Cli::try_parse_from(line.split(' ')).unwrap().verb else { panic!() };
        let nobody = || -> Result<Session, Failure> { panic!("asked") };
        let failure = queues(&nobody, &asked).unwrap_err();
        assert!(failure.hint.contains("kubectl apply"), "{failure:?}");
    }

    #[test]
    fn arenas_line_is_understood() {
        let line = [
            "mpi",
            "--name=tensorflow-topo-4-vgg16",
            "--gpus=1",
            "--workers=4",
            "--gang",
            "--gputopology=true",
            "--image=registry/horovod:1",
            "mpirun python train.py --model vgg16",
        ];
        let work = parsed(&line).unwrap();
        assert_eq!((work.trainer, work.workers, work.gpus), (Trainer::Mpi, 4, 1));
        assert_eq!(work.preferred.as_deref(), Some("node"));
        assert_eq!(work.argv, ["sh", "-c", "mpirun python train.py --model vgg16"]);
        assert_eq!(work.launch, Launch::Mpi { per_pod: 0 });
        let line =
            "pytorchjob --name a --image b --env A=1 --data pvc:/data --nproc-per-node 8 python train.py -x";
        let work = parsed(&line.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!(work.argv, ["python", "train.py", "-x"]);
        assert_eq!(work.launch, Launch::Torchrun { per_pod: 8 });
        assert_eq!(work.data, [("pvc".to_owned(), "/data".to_owned())]);
        assert_eq!(work.preferred, None);
    }

    #[test]
    fn gputopology_without_gang_is_explained() {
        let failure = parsed(&["pytorch", "--name=a", "--image=b", "--gputopology", "x"]).unwrap_err();
        assert_eq!(failure.message, "--gputopology without --gang");
        assert!(failure.hint.contains("start together"), "{}", failure.hint);
        let off = parsed(&["mpi", "--name=a", "--image=b", "--gputopology=false", "x"]).unwrap();
        assert_eq!(off.preferred, None);
    }

    #[test]
    fn flags_that_are_no_pairs_are_named() {
        for flag in ["--env", "--data", "--label", "--annotation", "--selector"] {
            let failure = parsed(&["mpi", "--name=a", "--image=b", flag, "odd", "x"]).unwrap_err();
            assert!(failure.message.starts_with(flag), "{failure:?}");
        }
        let failure =
            parsed(&["mpi", "--name=a", "--image=b", "--running-timeout", "soon", "x"]).unwrap_err();
        assert!(failure.message.starts_with("--running-timeout"), "{failure:?}");
    }

    #[test]
    fn a_job_that_a_cluster_cannot_be_told_is_refused_before_it_is_asked() {
        let refused = |words: &str| {
            let line = format!("phalanx submit --to kubernetes --image i {words}");
            let Verb::Submit(submit) = Cli::try_parse_from(line.split(' ')).unwrap().verb else { panic!() };
            let job = Submission::of_container(submit.job).unwrap().job;
            of_job(&job, "i").map(|work| work.workdir)
        };
        assert_eq!(refused("-n a -G 2 -- train"), Ok(None), "the folder is the image's");
        assert_eq!(refused("-n a --exclusive -G 2 -- train").unwrap_err().what, "exclusive");
    }
}
