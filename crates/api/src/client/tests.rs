use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};

use phalanx_model::{Job, JobId, JobUpdate, NodeName, Owner, QueueName, Settings, Tasks, Timestamp};

use super::*;
use crate::http::{Backend, NoPeer, serve_socket};
use crate::protocol::{
    AddedNodes, AdviseAsk, AuditFilter, BillAsk, BillBy, BoostAsk, ExecAsk, HealthReport, JobRef, LogAsk,
    News, NodeState, TokenAsk, WhatIfAsk, WindowAsk,
};
use crate::{Peer, Reply};

/// Remembers what it was asked, and answers what it is told to.
struct World {
    asked: Mutex<Vec<(u32, String)>>,
    answers: fn(&Verb) -> Result<Vec<Answer>, ErrorView>,
}

impl Backend for World {
    fn peer(&self, _: &str) -> Result<Peer, NoPeer> {
        panic!("nobody has a token here")
    }

    fn answer(&self, peer: &Peer, verb: Verb, reply: &mut dyn Reply) -> Result<(), ErrorView> {
        self.asked.lock().unwrap().push((peer.owner.uid, serde_json::to_string(&verb).unwrap()));
        for answer in (self.answers)(&verb)? {
            reply.send(&answer).unwrap();
        }
        Ok(())
    }
}

/// A world behind a socket in a folder of its own.
struct Served {
    dir: tempfile::TempDir,
    world: Arc<World>,
    _runtime: Runtime,
}

impl Served {
    fn new(answers: fn(&Verb) -> Result<Vec<Answer>, ErrorView>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("sock")).unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let world = Arc::new(World { asked: Mutex::default(), answers });
        let backend: Arc<dyn Backend> = Arc::<World>::clone(&world);
        runtime.spawn(serve_socket(listener, backend, peer, |peer| peer));
        Self { dir, world, _runtime: runtime }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    fn ask(&self, verb: Verb) -> Vec<Result<Answer, ClientError>> {
        match ask(&self.socket(), verb) {
            Ok(answers) => answers.collect(),
            Err(error) => vec![Err(error)],
        }
    }
}

fn peer(uid: u32, gid: u32) -> Peer {
    let owner = Owner { uid, gid, name: uid.to_string() };
    Peer { owner, is_operator: true, is_known: true, is_reader: false, login: None, cluster_user: None }
}

fn no(_: &Verb) -> Result<Vec<Answer>, ErrorView> {
    let field = Some(crate::protocol::WrongField { path: "a.b".to_owned(), what: "wrong".to_owned() });
    Err(ErrorView { field, ..ErrorView::new(ErrorCode::Rejected, "said the world", "do this") })
}

/// A job as the command line sends it.
pub(crate) fn resolved_job() -> Job {
    let file = phalanx_spec::JobFile::from_yaml("nodes: 2\ncommand: [sleep, \"1\"]\n", "job").unwrap();
    let context = phalanx_spec::SubmitContext {
        id: JobId(0),
        owner: Owner { uid: 1, gid: 1, name: "ann".to_owned() },
        submitted_at: Timestamp(1),
        default_workdir: "/tmp".to_owned(),
    };
    file.into_job(context).unwrap()
}

fn any_job() -> JobRef {
    JobRef::Name("a job/with 100 % & more=ü?".to_owned())
}

fn any_node() -> NodeName {
    NodeName::new("gpu-1.rack").unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "where a text may be given")]
fn any_text() -> Option<String> {
    Some("x, y&z".to_owned())
}

/// Each verb about jobs with all that it can carry.
fn verbs_of_jobs() -> Vec<Verb> {
    let (job, node, whole) = (any_job, any_node, resolved_job());
    let filter = JobFilter {
        uid: Some(0),
        user: any_text(),
        queue: Some(QueueName::new("speech").unwrap()),
        name: Some("a*?".to_owned()),
        text: any_text(),
        states: vec!["running".to_owned(), "failed".to_owned()],
        before: Some(JobId(9)),
    };
    let logs = LogAsk {
        rank: Some(1),
        attempt: Some(2),
        tail: Some(3),
        since: Some(Timestamp(4)),
        follow: true,
        timestamps: true,
    };
    let tasks = JobRef::Tasks(JobId(7), Tasks::read("1,3-9").unwrap());
    vec![
        Verb::List { finished: true, filter, limit: 7 },
        Verb::Submit { job: Box::new(whole.clone()), secrets: [("A".to_owned(), "b".to_owned())].into() },
        Verb::SubmitFile { text: "name: x\n".to_owned(), key: Some("k".to_owned()), dry_run: false },
        Verb::SubmitFile { text: "name: x\n".to_owned(), key: None, dry_run: true },
        Verb::DryRun { job: Box::new(whole) },
        Verb::Get { job: tasks },
        Verb::Why { job: JobRef::Id(JobId(3)) },
        Verb::Logs { job: job(), ask: logs },
        Verb::Follow { job: job() },
        Verb::Wait { jobs: vec![JobId(1), JobId(2)] },
        Verb::Terminal { job: job() },
        Verb::Exec {
            job: job(),
            ask: ExecAsk { rank: Some(1), argv: vec!["ls".to_owned()], terminal: Some("xterm".to_owned()) },
        },
        Verb::Cancel { job: job() },
        Verb::Hold { job: job() },
        Verb::Release { job: job() },
        Verb::Boost { job: job(), boost: None },
        Verb::Boost { job: job(), boost: Some(BoostAsk { priority: 3, for_ms: 4 }) },
        Verb::Update { job: job(), update: JobUpdate::default() },
        Verb::Requeue { job: job(), hold: true },
        Verb::Scale { job: job(), replicas: Some(3) },
        Verb::Scale { job: job(), replicas: None },
        Verb::Endpoints { job: job(), from: Some(node()) },
        Verb::Defrag { job: Some(job()), apply: true },
        Verb::Defrag { job: None, apply: false },
        Verb::Resize { job: job(), size: Some(2) },
        Verb::Tell { job: job(), gang: 1, news: News::Metric { name: "loss".to_owned(), value_milli: 5 } },
        Verb::History { job: Some(job()), limit: 3 },
        Verb::History { job: None, limit: 3 },
    ]
}

/// Each other verb.
fn verbs_of_the_cluster() -> Vec<Verb> {
    let (node, text) = (any_node, any_text);
    let queue = || QueueName::new("speech").unwrap();
    let window = WindowAsk {
        nodes: vec!["rack=r1".to_owned(), "gpu-[1,3]".to_owned()],
        begins_at: Timestamp(1),
        ends_at: Timestamp(2),
        held_for: Some(queue()),
        reason: Some("new NICs".to_owned()),
    };
    let report = r#"{"node":"n1","device":3,"finding":{"xid":79},"reason":"a b"}"#;
    vec![
        Verb::ReportHealth(serde_json::from_str::<HealthReport>(report).unwrap()),
        Verb::Ping,
        Verb::Whoami,
        Verb::Overview,
        Verb::Map,
        Verb::Node { node: node() },
        Verb::Watch { after: None },
        Verb::Watch { after: Some(5) },
        Verb::NewToken(TokenAsk { name: "ci".to_owned(), read_only: true, for_ms: 5 }),
        Verb::Tokens,
        Verb::RevokeToken { name: "ci".to_owned(), uid: Some(4) },
        Verb::FindNodes(NodeFilter {
            text: text(),
            state: Some(NodeState::Draining),
            after: Some(node()),
            limit: 7,
        }),
        Verb::Topology,
        Verb::Queues,
        Verb::Queue { queue: queue() },
        Verb::ApplyQueues { settings: Box::<Settings>::default(), queues: Vec::new() },
        Verb::Audit {
            filter: AuditFilter { user: text(), node: Some(node()), since: Some(Timestamp(1)) },
            limit: 3,
        },
        Verb::Bill(BillAsk {
            by: vec![BillBy::Queue, BillBy::ListPrice],
            user: text(),
            queue: text(),
            since: Some(Timestamp(1)),
            until: Some(Timestamp(2)),
        }),
        Verb::Advise(AdviseAsk { job: text(), user: text(), since: Some(Timestamp(1)) }),
        Verb::Cordon { node: node(), reason: text() },
        Verb::Drain { node: node(), by: Some(Timestamp(3)), reason: text() },
        Verb::Uncordon { node: node() },
        Verb::Health { node: Some(node()) },
        Verb::ClearHealth { node: node(), device: Some(3) },
        Verb::Calendar,
        Verb::AddWindow(window.clone()),
        Verb::RemoveWindow { nodes: window.nodes, begins_at: Some(Timestamp(3)) },
        Verb::NoticeSpot { node: node(), in_ms: Some(4) },
        Verb::Snapshot,
        Verb::WhatIf(WhatIfAsk {
            set: vec!["queues.speech.weight=2".to_owned()],
            queues: text(),
            drain: vec!["n1".to_owned()],
            add_nodes: vec![AddedNodes { count: 2, domain: "leaf-1".to_owned() }],
            job: text(),
            horizon: Some("1h".to_owned()),
        }),
        Verb::Stop,
    ]
}

#[test]
fn each_verb_reaches_the_world_as_it_was_said() {
    let served = Served::new(no);
    for verb in verbs_of_jobs().into_iter().chain(verbs_of_the_cluster()) {
        let answers = served.ask(verb.clone());
        let [Err(ClientError::Refused(error))] = answers.as_slice() else { panic!("{verb:?}: {answers:?}") };
        assert_eq!((error.message.as_str(), error.hint.as_str()), ("said the world", "do this"), "{verb:?}");
        assert_eq!(error.code, ErrorCode::Rejected);
        assert_eq!(error.field.as_ref().unwrap().path, "a.b");
        let (uid, asked) = served.world.asked.lock().unwrap().pop().unwrap();
        assert_eq!(uid, nix_uid());
        // Whether there is a next part is known by one job more.
        let said = serde_json::to_string(&match verb {
            Verb::List { finished, filter, limit } => Verb::List { finished, filter, limit: limit + 1 },
            other => other,
        });
        assert_eq!(asked, said.unwrap());
    }
}

fn nix_uid() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").unwrap().uid()
}

#[test]
fn streams_end_as_they_are_said_to() {
    let served = Served::new(|verb| {
        let line =
            |line: &str| Answer::Log { task: None, rank: 1, attempt: 2, at: None, line: line.to_owned() };
        match verb {
            Verb::Logs { job: JobRef::Id(JobId(1)), .. } => {
                Ok(vec![line("a"), line("b\n\nc\r"), Answer::End])
            }
            Verb::Logs { job: JobRef::Id(JobId(2)), .. } => {
                let mut lines = vec![line(&"x".repeat(100_000)); 50];
                lines.push(Answer::End);
                Ok(lines)
            }
            Verb::Logs { job: JobRef::Id(JobId(4)), .. } => Ok(vec![line("a")]),
            other => no(other),
        }
    });
    let logs = |job| Verb::Logs { job: JobRef::Id(JobId(job)), ask: LogAsk::default() };
    let lines = |job| -> Vec<String> {
        let told = served.ask(logs(job));
        told.into_iter()
            .map(|answer| match answer {
                Ok(Answer::Log { line, .. }) => line,
                other => panic!("{other:?}"),
            })
            .collect()
    };
    assert_eq!(lines(1), ["a", "b\n\nc\r"]);
    assert_eq!(lines(2).iter().map(String::len).collect::<Vec<_>>(), [100_000; 50]);
    assert!(matches!(served.ask(logs(3)).as_slice(), [Err(ClientError::Refused(_))]));
    let cut = served.ask(logs(4));
    assert!(matches!(cut.as_slice(), [Ok(_), Err(ClientError::Broken(_))]), "{cut:?}");
}

#[test]
fn what_speaks_no_http_is_told_from_a_daemon_that_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("sock");
    let away = ask_once(&socket, Verb::Ping);
    assert!(matches!(away, Err(ClientError::NoDaemon { .. })), "{away:?}");
    let listener = UnixListener::bind(&socket).unwrap();
    let older = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = [0; 4];
        stream.read_exact(&mut line).unwrap();
        stream.write_all(b"{\"error\":{}}\n").unwrap();
    });
    let older_daemon = ask_once(&socket, Verb::Ping);
    assert!(matches!(older_daemon, Err(ClientError::NoHttp)), "{older_daemon:?}");
    older.join().unwrap();
}
