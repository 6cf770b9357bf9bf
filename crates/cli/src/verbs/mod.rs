//! What each verb does: asks the daemon, and prints what it says.

mod advise;
mod bill;
mod calendar;
mod cluster;
mod daemon;
mod defrag;
mod doctor;
mod endpoints;
pub(crate) mod follow;
mod health;
mod jobs;
mod kubernetes;
mod logs;
mod man;
mod node;
mod policy;
pub(crate) mod predict;
pub(crate) mod probe;
mod scheduler;
mod server;
mod sim;
pub(crate) mod submit;
pub(crate) mod terminal;
mod token;
mod top;
pub(crate) mod topo;
mod wait;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;
use phalanx_api::client::{self, ClientError, Port, PortError, Server};
use phalanx_api::protocol::{Answer, ErrorCode, JobRef, NodesView, Verb as Ask};
use phalanx_local::Paths;

use crate::args::{Cli, Global, Kind, Reach, SchemaOf, Top, TopOf, Verb, World};
use crate::complete;
use crate::failure::{Failure, USAGE};
use crate::measure;
use crate::output::{self, Format, Output};
use crate::show::Fleet;
use crate::slurm;

/// What every verb needs: where the daemon is, and where answers go.
pub(crate) struct Session {
    pub(crate) paths: Paths,
    /// Whom verbs are asked of, once one was asked.
    server: OnceLock<Server>,
    pub(crate) out: Output,
}

impl Session {
    /// Whom verbs are asked of. What asks nobody, such as a start of the daemon, does not look at PHALANX_URL.
    pub(crate) fn server(&self) -> Result<&Server, Failure> {
        match self.server.get() {
            Some(server) => Ok(server),
            None => server(&self.paths).map(|server| self.server.get_or_init(|| server)),
        }
    }

    /// One question, one answer.
    pub(crate) fn ask(&self, verb: Ask) -> Result<Answer, Failure> {
        Ok(client::ask_once(self.server()?, verb)?)
    }

    /// All nodes.
    pub(crate) fn nodes(&self) -> Result<NodesView, Failure> {
        Ok(client::nodes(self.server()?)?)
    }

    /// What is known of the nodes, to mark declared ones wherever nodes are shown.
    fn fleet(&self) -> Result<Fleet, Failure> {
        match client::nodes(self.server()?) {
            Ok(view) => Ok(Fleet::new(view.nodes)),
            // A user of a cluster may see jobs and no nodes: then no node is marked.
            Err(ClientError::Refused(view)) if view.code == ErrorCode::Forbidden => {
                Ok(Fleet::new(Vec::new()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A verb whose answer is one sentence.
    pub(crate) fn done(&self, verb: Ask) -> Result<ExitCode, Failure> {
        let Answer::Done { detail } = self.ask(verb)? else { return Err(Failure::unexpected()) };
        let body = serde_json::json!({ "detail": detail });
        self.out.show(
            "Done",
            body,
            |page| if page.quiet { String::new() } else { detail.clone() + "\n" },
            Vec::new,
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Runs the program.
pub(crate) fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = slurm::by_own_name(words.collect());
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error, &words),
    };
    cli.global.color.apply();
    let format = cli.global.output.clone();
    run(cli).unwrap_or_else(|failure| failure.report(&format))
}

fn run(Cli { global, verb }: Cli) -> Result<ExitCode, Failure> {
    let Global { state, output, quiet, .. } = global;
    let out = Output::new(output, quiet);
    if let Some(reach) = cluster_of(&verb) {
        return kubernetes::run(&out, &reach, verb);
    }
    let paths = paths(state, matches!(verb, Verb::Up(..)))?;
    let session = Session { paths, server: OnceLock::new(), out };
    match verb {
        Verb::Top(TopOf { interval, .. }) => top::top(&session, Duration::from_secs(interval)),
        Verb::Up(up) => daemon::up(&session, *up),
        Verb::Down => daemon::down(&session),
        Verb::Doctor(doctor) => doctor::doctor(&session, &doctor),
        Verb::Submit(submit) => submit::submit(&session, *submit),
        Verb::Run(run) => submit::run(&session, *run),
        Verb::Alloc(alloc) => terminal::alloc(&session, *alloc),
        Verb::Attach(one) => terminal::attach(&session, &one.job),
        Verb::Exec(exec) => terminal::exec(&session, &exec),
        Verb::Ps(ps) => jobs::ps(&session, &ps.verb),
        Verb::Get(one) => jobs::get(&session, &one.verb.job),
        Verb::Why(one) => jobs::why(&session, &one.verb.job),
        Verb::Logs(logs) => logs::logs(&session, &logs.verb),
        Verb::Wait(asked) => wait::wait(&session, &asked),
        Verb::Cancel(cancel) if cancel.verb.jobs.is_empty() => jobs::cancel_by(&session, &cancel.verb),
        Verb::Cancel(cancel) => jobs::cancel(&session, &cancel.verb.jobs),
        Verb::Nodes(_) => cluster::nodes(&session),
        Verb::Map(of) => cluster::map(&session, of.job.as_deref()),
        Verb::Dashboard(asked) => token::dashboard(&session, &asked),
        Verb::Token(asked) => token::token(&session, asked),
        Verb::Topo(topo) => topo::topo(&session, topo),
        Verb::Predict(asked) => predict::predict(&session, &asked),
        Verb::Queues(queues) => policy::queues(&session, &queues),
        Verb::History(history) => policy::history(&session, &history),
        Verb::Audit(asked) => policy::audit(&session, &asked),
        Verb::Bill(asked) => bill::bill(&session, &asked),
        Verb::Advise(asked) => advise::advise(&session, &asked),
        Verb::Endpoints(asked) => endpoints::endpoints(&session, &asked),
        Verb::Hold(one) => session.done(Ask::Hold { job: JobRef::parse(&one.job) }),
        Verb::Release(one) => session.done(Ask::Release { job: JobRef::parse(&one.job) }),
        Verb::Boost(boost) => policy::boost(&session, &boost),
        Verb::Update(update) => policy::update(&session, &update),
        Verb::Requeue(asked) => {
            session.done(Ask::Requeue { job: JobRef::parse(&asked.job), hold: asked.hold })
        }
        Verb::Scale(scale) => {
            session.done(Ask::Scale { job: JobRef::parse(&scale.job), replicas: scale.replicas.0 })
        }
        Verb::Resize(resize) => {
            session.done(Ask::Resize { job: JobRef::parse(&resize.job), size: resize.size.0 })
        }
        Verb::Defrag(asked) => defrag::defrag(&session, &asked),
        Verb::Tell(tell) => policy::tell(&session, &tell),
        Verb::Cordon(one) => {
            let node = cluster::node_name(&one.verb.node)?;
            session.done(Ask::Cordon { node, reason: one.verb.reason })
        }
        Verb::Drain(drain) => calendar::drain(&session, &drain),
        Verb::Uncordon(one) => session.done(Ask::Uncordon { node: cluster::node_name(&one.verb.node)? }),
        Verb::Health(asked) => health::health(&session, asked),
        Verb::Calendar(asked) => calendar::calendar(&session, asked),
        Verb::Notice(notice) => calendar::notice(&session, &notice),
        Verb::Slurm { words } => slurm::main(&session, &words),
        Verb::Completion { shell } => complete::register(&shell).map(|()| ExitCode::SUCCESS),
        Verb::Snapshot(asked) => sim::snapshot(&session, asked.verb.file.as_deref()),
        Verb::Node(asked) => Ok(node::node(asked)),
        Verb::Scheduler(asked) => Ok(scheduler::scheduler(asked)),
        Verb::Server(asked) => Ok(server::server(asked)),
        Verb::Replay(replay) => sim::replay(&session, replay.0),
        Verb::Sim(sim) => sim::sim(&session, sim.verb),
        Verb::Man { into } => man::man(&into),
        Verb::Schema { file } => schema(file),
        Verb::Crds => crds(),
        Verb::Shim { dir } => Ok(phalanx_node::shim::main(&dir)),
        Verb::HoldSlot => Ok(daemon::hold()),
        Verb::Keep { words } => Ok(terminal::keep(&words)),
        Verb::Confine => Ok(phalanx_node::confined::main()),
        Verb::Post => Ok(phalanx_local::post()),
        Verb::Measure(measure) => Ok(measure::main(&measure)),
    }
}

/// Whom verbs are asked of: the server of PHALANX_URL, else the daemon of the state folder.
pub(crate) fn server(paths: &Paths) -> Result<Server, Failure> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let Some(url) = variable("PHALANX_URL") else { return Ok(Server::from(&paths.socket())) };
    let token = variable("PHALANX_TOKEN").ok_or_else(|| {
        let hint = "`phalanx token create NAME` makes one on the machine of the daemon";
        Failure::usage("PHALANX_URL is set, and PHALANX_TOKEN is not", hint)
    })?;
    let ca_file = variable("PHALANX_CA_FILE").map(PathBuf::from);
    let port = Port::new(&url, token, ca_file.as_deref()).map_err(|error| {
        let hint = match error {
            PortError::InTheClear(_) => {
                "give an https:// address, or forward a port: `ssh -L 7077:127.0.0.1:7077 HOST`"
            }
            PortError::Address(_) => "`phalanx token create NAME` prints the address",
            PortError::File { .. } | PortError::NoCertificate(_) => {
                "PHALANX_CA_FILE is a PEM file (-----BEGIN CERTIFICATE-----)"
            }
        };
        Failure::usage(format!("PHALANX_URL: {error}"), hint)
    })?;
    Ok(Server::Port(port))
}

/// The cluster that a verb is to ask, if it is one. Images run nowhere else.
fn cluster_of(verb: &Verb) -> Option<Reach> {
    let reach = match verb {
        Verb::Submit(submit) => match &submit.kind {
            Some(Kind::Mpi(flags) | Kind::Pytorch(flags)) => return Some(flags.reach.clone()),
            None => &submit.reach,
        },
        Verb::Top(TopOf { of: Some(Top::Node(reach) | Top::Job(reach)), .. }) => return Some(reach.clone()),
        Verb::Ps(either) => &either.reach,
        // Types of jobs are there on clusters alone.
        Verb::Get(either) if either.verb.kind.is_some() => return Some(either.reach.clone()),
        Verb::Get(either) => &either.reach,
        Verb::Why(either) => &either.reach,
        Verb::Logs(either) => &either.reach,
        Verb::Cancel(either) => &either.reach,
        Verb::Nodes(reach) => reach,
        Verb::Queues(queues) => &queues.reach,
        Verb::Snapshot(either) => &either.reach,
        Verb::Cordon(either) => &either.reach,
        Verb::Health(health) => health.reach(),
        Verb::Uncordon(either) => &either.reach,
        _ => return None,
    };
    (reach.to == World::Kubernetes).then(|| reach.clone())
}

/// `--state` or `$PHALANX_STATE` (clap reads both), or the default.
fn paths(state: Option<PathBuf>, of_daemon: bool) -> Result<Paths, Failure> {
    let Some(state) = state.filter(|path| !path.as_os_str().is_empty()) else {
        return Ok(if of_daemon { Paths::from_env() } else { Paths::of_client() });
    };
    std::path::absolute(&state).map(Paths::new).map_err(|e| Failure::file("use", &state, &e))
}

fn schema(file: SchemaOf) -> Result<ExitCode, Failure> {
    let schema = match file {
        SchemaOf::Job => phalanx_spec::job_schema(),
        SchemaOf::Cluster => phalanx_spec::cluster_schema(),
        SchemaOf::Queues => phalanx_spec::queues_schema(),
    };
    output::print(&format!("{schema:#}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn crds() -> Result<ExitCode, Failure> {
    let documents = phalanx_kube::crd::documents().map_err(|error| Failure::internal(error.to_string()))?;
    let documents: Vec<String> = documents.into_iter().map(|(_, document)| document).collect();
    output::print(&documents.join("---\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Help and version go to standard output; everything else is an error of usage.
fn refuse(error: &clap::Error, words: &[OsString]) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return match output::print(&error.render().ansi().to_string()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(&Format::Table),
        };
    }
    if let Some(failure) = slurm::slip(error, words) {
        return failure.report(if wants_document(words) { &Format::Json } else { &Format::Table });
    }
    if !wants_document(words) || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        output::print_error(&error.render().ansi().to_string());
        return ExitCode::from(USAGE);
    }
    let text = error.render().to_string();
    let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    Failure::usage(message, "`phalanx help` lists verbs and flags").report(&Format::Json)
}

/// The flags could not be read, so this one is looked for by hand.
fn wants_document(words: &[OsString]) -> bool {
    let flags: Vec<&str> = words.iter().filter_map(|w| w.to_str()).take_while(|w| *w != "--").collect();
    let is_document = |word: &str| Format::of(word.trim_start_matches('=')).is_document();
    flags.windows(2).any(|pair| matches!(pair, ["-o" | "--output", format] if is_document(format)))
        || flags
            .iter()
            .any(|w| w.strip_prefix("--output=").or_else(|| w.strip_prefix("-o")).is_some_and(is_document))
}
