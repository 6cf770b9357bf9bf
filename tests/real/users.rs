//! Several users: whose processes run as whom, who may do what, and where secrets are not.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use phalanx_api::protocol::{
    Answer, AuditFilter, AuditView, ErrorCode, JobFilter, JobRef, LogAsk, NodeFilter, Verb, WindowAsk,
};
use phalanx_model::{Job, JobId, NodeName, SecretSource, Timestamp};

use crate::support::{Bench, NOBODY, NODE_OF_8, env, gang, is_root, refused, shell, until};

fn submit_as_nobody(bench: &Bench, job: Job, secrets: &[(&str, &str)]) -> JobId {
    let verb = Verb::Submit { job: Box::new(job), secrets: env(secrets) };
    match bench.ask_as(NOBODY, &verb).as_slice() {
        [Answer::Submitted { job, .. }] => *job,
        other => panic!("{other:?}"),
    }
}

fn forbidden(answers: &[Answer]) -> bool {
    matches!(answers, [Answer::Error(error)] if error.code == ErrorCode::Forbidden)
}

#[test]
fn a_job_runs_as_the_user_who_submitted_it() {
    if !is_root("a_job_runs_as_the_user_who_submitted_it") {
        return;
    }
    let bench = Bench::up_with(NODE_OF_8);
    let script = "echo uid=$(id -u); echo gid=$(id -g); echo groups=$(id -G); echo user=$USER
        echo privileges=$(grep NoNewPrivs /proc/self/status | cut -f2)";
    let mut job = shell(1, script);
    // Whatever a client claims to be.
    job.owner.uid = 0;
    let id = submit_as_nobody(&bench, job, &[]);
    assert_eq!(bench.ended(id).state, "succeeded");
    let said = bench.said(id);
    for (name, value) in
        [("uid", "65534"), ("gid", "65534"), ("groups", "65534"), ("user", "nobody"), ("privileges", "1")]
    {
        assert_eq!(said[name], value, "{said:?}");
    }
    assert_eq!(bench.get(id).uid, NOBODY);
}

#[test]
fn another_user_may_look_and_not_touch() {
    if !is_root("another_user_may_look_and_not_touch") {
        return;
    }
    let bench = Bench::up_with(NODE_OF_8);
    let mut job = shell(1, "echo private; exec sleep 1000");
    gang(&mut job).program.env = env(&[("TOKEN", "a-private-value")]);
    let id = bench.submit(job);
    bench.await_state(id, "running");
    let job = || JobRef::Id(id);
    let node = || NodeName::new("n1").unwrap();
    let logs = Verb::Logs { job: job(), ask: LogAsk::default() };
    let verbs = [
        Verb::Cancel { job: job() },
        logs,
        Verb::Cordon { node: node(), reason: None },
        Verb::Drain { node: node(), by: None, reason: None },
        Verb::Drain { node: node(), by: Some(Timestamp::MAX), reason: None },
        Verb::Uncordon { node: node() },
        Verb::NoticeSpot { node: node(), in_ms: Some(1_000) },
        Verb::AddWindow(WindowAsk {
            nodes: vec!["n1".to_owned()],
            begins_at: Timestamp(0),
            ends_at: Timestamp::MAX,
            held_for: None,
            reason: None,
        }),
        Verb::RemoveWindow { nodes: vec!["n1".to_owned()], begins_at: None },
        Verb::Stop,
    ];
    for verb in verbs {
        let answers = bench.ask_as(NOBODY, &verb);
        assert!(forbidden(&answers), "{verb:?}: {answers:?}");
    }
    for verb in [
        Verb::Get { job: job() },
        Verb::Why { job: job() },
        Verb::List { finished: true, filter: JobFilter::default(), limit: 10 },
        Verb::Follow { job: job() },
    ] {
        if matches!(verb, Verb::Follow { .. }) {
            bench.cancel(id);
        }
        let answers = format!("{:?}", bench.ask_as(NOBODY, &verb));
        assert!(answers.contains(&format!("JobId({id})")) || answers.contains("cancelled"), "{answers}");
        assert!(!answers.contains("a-private-value"), "{answers}");
    }
    assert_eq!(bench.ended(id).state, "cancelled");
    // Also when only the history knows the job's file.
    let answers = format!("{:?}", bench.ask_as(NOBODY, &Verb::Get { job: job() }));
    assert!(!answers.contains("a-private-value"), "{answers}");
}

/// What a file mode mask takes from the daemon, its users' ranks still need.
#[test]
fn a_narrow_umask_of_the_daemon_does_not_shut_other_users_out() {
    if !is_root("a_narrow_umask_of_the_daemon_does_not_shut_other_users_out") {
        return;
    }
    let mut bench = Bench::new(NODE_OF_8);
    bench.up_by(Some("umask 077; exec \"$0\" \"$@\""));
    let mut job = shell(1, "cat $PHALANX_HOSTFILE && cat /dev/fd/$PHALANX_SECRET_KEY_FD >/dev/null");
    gang(&mut job).program.secrets.insert("KEY".to_owned(), SecretSource::Submitted);
    let id = submit_as_nobody(&bench, job, &[("KEY", "value")]);
    let view = bench.ended(id);
    assert_eq!(view.state, "succeeded", "{view:#?} {:?}", bench.logs(id));
}

/// Files below a folder that hold the text.
fn holding(dir: &Path, text: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            holding(&path, text, found);
        } else if contains(&fs::read(&path).unwrap_or_default(), text) {
            found.push(path.display().to_string());
        }
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn a_secret_is_seen_by_its_rank_alone_and_removed_at_the_end() {
    if !is_root("a_secret_is_seen_by_its_rank_alone_and_removed_at_the_end") {
        return;
    }
    let bench = Bench::up_with(NODE_OF_8);
    let shared = bench.path("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o777)).unwrap();
    // Put together here, so that this test's own files do not hold it.
    let value = ["very", "private", &std::process::id().to_string()].join("-");
    let script = format!(
        "cat /dev/fd/$PHALANX_SECRET_KEY_FD | wc -c > {0}/bytes; touch {0}/up; while [ ! -e {0}/go ]; do sleep 0.02; done",
        shared.display()
    );
    let mut job = shell(1, &script);
    gang(&mut job).program.secrets.insert("KEY".to_owned(), SecretSource::Submitted);
    let id = submit_as_nobody(&bench, job.clone(), &[("KEY", &value)]);
    bench.await_file("shared/up");
    assert_eq!(bench.read("shared/bytes").trim(), value.len().to_string());

    let file = bench.paths.secrets(id).join("KEY");
    let meta = fs::metadata(&file).unwrap();
    assert_eq!((meta.mode() & 0o777, meta.uid()), (0o400, NOBODY));
    let mut found = Vec::new();
    holding(bench.paths.root(), &value, &mut found);
    assert_eq!(found, [file.display().to_string()]);
    assert!(!contains(bench.daemon_log().as_bytes(), &value));
    for (_, pid) in bench.alive() {
        for file in ["cmdline", "environ"] {
            let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            assert!(!contains(&bytes, &value), "{file} of {pid}");
        }
    }
    fs::write(shared.join("go"), "").unwrap();
    assert_eq!(bench.ended(id).state, "succeeded");
    until("the secret's end", || !bench.paths.secrets(id).exists());
    let mut found = Vec::new();
    holding(bench.paths.root(), &value, &mut found);
    assert_eq!(found, [""; 0]);

    let verb = Verb::Submit { job: Box::new(job), secrets: env(&[]) };
    let error = refused(bench.ask(verb));
    assert_eq!((error.code, error.message.as_str()), (ErrorCode::BadRequest, "secret KEY has no value"));
}

/// A daemon that died between keeping a secret and taking its job left a folder in the way of the next job.
#[test]
fn secrets_of_a_submission_that_a_crash_cut_short_are_no_obstacle() {
    let mut bench = Bench::up_with(NODE_OF_8);
    bench.kill();
    let stale = bench.paths.secrets(JobId(1));
    fs::create_dir_all(&stale).unwrap();
    fs::write(stale.join("KEY"), "old").unwrap();
    fs::create_dir_all(bench.paths.secrets(JobId(2))).unwrap();
    bench.up();
    assert!(!bench.paths.secrets(JobId(2)).exists());
    let mut job = shell(1, "echo key=$(cat /dev/fd/$PHALANX_SECRET_KEY_FD)");
    gang(&mut job).program.secrets.insert("KEY".to_owned(), SecretSource::Submitted);
    let id = bench.submit_with(job, &[("KEY", "new")]);
    assert_eq!(id, JobId(1));
    assert_eq!(bench.ended(id).state, "succeeded");
    assert_eq!(bench.said(id)["key"], "new");
}

/// Any user could name a class that preempts all others, any queue and any priority.
#[test]
fn ordinary_users_preempt_nobody_unless_the_queue_file_lets_them() {
    if !is_root("ordinary_users_preempt_nobody_unless_the_queue_file_lets_them") {
        return;
    }
    let mut bench = Bench::up_with(NODE_OF_8);
    let of_class = |class: Option<&str>, priority: i32| {
        let mut job = shell(1, "true");
        job.turn.class = class.map(|class| phalanx_model::ClassName::new(class).unwrap());
        job.priority = priority;
        Verb::Submit { job: Box::new(job), secrets: env(&[]) }
    };
    let why = |bench: &Bench, verb: &Verb| match bench.ask_as(NOBODY, verb).as_slice() {
        [Answer::Error(error)] if error.code == ErrorCode::Forbidden => {
            format!("{}; {}", error.message, error.hint)
        }
        other => panic!("{other:?}"),
    };
    let told = why(&bench, &of_class(Some("serving"), 0));
    assert!(told.contains("user nobody may not use class serving; "), "{told}");
    assert!(told.ends_with("nobody may use opportunistic"), "{told}");
    assert!(why(&bench, &of_class(None, i32::MAX)).contains("is above 0"));
    let Verb::Submit { mut job, .. } = of_class(None, 0) else { panic!("a submission") };
    job.queue = phalanx_model::QueueName::new("theirs").unwrap();
    assert!(why(&bench, &Verb::DryRun { job }).contains("queue theirs is not in the queue file"));
    // A job that names no class has one that preempts nobody. Operators may use all.
    let id = submit_as_nobody(&bench, shell(1, "true"), &[]);
    assert_eq!(bench.ended(id).class, "opportunistic");
    assert!(bench.ask(of_class(Some("serving"), 1_000)).is_ok());

    // A file lets a group in, and outlives the daemon.
    let file = bench.path("queues.yaml");
    let text = "queues: [{name: default, max_priority: 7}, {name: vision, users: [root]}]
classes:
- {name: serving, rank: 300, groups: ['65534']}
- {name: training, rank: 200, users: [root]}
";
    fs::write(&file, text).unwrap();
    bench.down();
    bench.up_with_queues(&file);
    bench.kill();
    bench.up();
    assert!(matches!(
        bench.ask_as(NOBODY, &of_class(Some("serving"), 7)).as_slice(),
        [Answer::Submitted { .. }]
    ));
    assert!(why(&bench, &of_class(Some("serving"), 8)).contains("above 7"));
    assert!(why(&bench, &of_class(Some("training"), 0)).contains("users root may"));
    let Verb::Submit { mut job, .. } = of_class(Some("serving"), 0) else { panic!("a submission") };
    job.queue = phalanx_model::QueueName::new("vision").unwrap();
    let told = why(&bench, &Verb::Submit { job, secrets: env(&[]) });
    assert!(told.contains("may not submit to queue vision; users root may, and operators"), "{told}");
}

#[test]
fn ranks_have_the_file_mask_of_the_submitter() {
    let bench = Bench::up_with(NODE_OF_8);
    let said = |mask: Option<u32>| {
        let mut job = shell(1, "echo mask=$(umask)");
        gang(&mut job).program.umask = mask;
        let id = bench.submit(job);
        bench.ended(id);
        bench.said(id)["mask"].clone()
    };
    assert_eq!([said(Some(0o077)), said(Some(0o002)), said(None)], ["0077", "0002", "0022"]);
}

/// Who closed a node is said wherever nodes are listed, also by the next daemon; users see what they did themselves.
#[test]
fn the_audit_log_says_who_changed_what() {
    if !is_root("the_audit_log_says_who_changed_what") {
        return;
    }
    let mut bench = Bench::up_with(NODE_OF_8);
    let node = || NodeName::new("n1").unwrap();
    let audit = |bench: &Bench, uid: Option<u32>, filter: AuditFilter| -> Vec<String> {
        let verb = Verb::Audit { filter, limit: 100 };
        let answers = match uid {
            Some(uid) => bench.ask_as(uid, &verb),
            None => vec![bench.ask(verb).unwrap()],
        };
        let [Answer::Audit(acts)] = answers.as_slice() else { panic!("{answers:?}") };
        let line = |act: &AuditView| {
            let end = if act.refused.is_some() { "refused" } else { "done" };
            format!("{} {} {}: {end} {}", act.uid, act.verb, act.target, act.detail)
        };
        acts.iter().map(line).collect()
    };
    let closed_by = |bench: &Bench| {
        let Ok(Answer::Nodes(view)) = bench.ask(Verb::FindNodes(NodeFilter::default())) else { panic!() };
        view.nodes[0].closed_by.clone()
    };
    let long = Some("x".repeat(201));
    assert_eq!(refused(bench.ask(Verb::Cordon { node: node(), reason: long })).code, ErrorCode::BadRequest);
    assert!(forbidden(&bench.ask_as(NOBODY, &Verb::Uncordon { node: node() })));
    let id = submit_as_nobody(&bench, shell(1, "exec sleep 1000"), &[]);
    assert!(matches!(
        bench.ask_as(NOBODY, &Verb::Hold { job: JobRef::Id(id) }).as_slice(),
        [Answer::Done { .. }]
    ));
    bench.done(Verb::Cordon { node: node(), reason: Some("broken fan".to_owned()) });
    let of_nobody =
        [format!("{NOBODY} uncordon node n1: refused "), format!("{NOBODY} hold job {id}: done ")];
    assert_eq!(audit(&bench, Some(NOBODY), AuditFilter::default()), of_nobody);
    let of_node = AuditFilter { node: Some(node()), ..AuditFilter::default() };
    let all = audit(&bench, None, of_node);
    assert_eq!(all.len(), 3, "{all:?}");
    assert_eq!(all[2], "0 cordon node n1: done broken fan");
    bench.kill();
    bench.up();
    let by = closed_by(&bench).unwrap();
    assert_eq!((by.user.as_str(), by.reason.as_deref()), ("root", Some("broken fan")));
    bench.done(Verb::Uncordon { node: node() });
    assert_eq!(closed_by(&bench), None);
}
