//! The binary against a daemon that answers what it is told to: exit codes, documents, streams, signals.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod fake;
mod page;
mod views;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;

use fake::{API_TOKEN, Fake, Run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use page::same;
use phalanx_account::State;
use phalanx_api::protocol::{
    Answer, BillBy, BillLine, BillView, DefragView, EndpointsView, ErrorCode, ErrorView, JobRef, JobView,
    Verb,
};
use phalanx_model::{Ending, FailureClass, JobId, Rejection, Snapshot};
use serde_json::Value;

/// A daemon with the hand-made world.
fn world(verb: &Verb) -> Vec<Answer> {
    let done = |detail: &str| vec![Answer::Done { detail: detail.to_owned() }];
    match verb {
        Verb::Ping => vec![Answer::Pong { version: "0.1.0".to_owned(), pid: 1, epoch: 1 }],
        Verb::Submit { .. } => {
            vec![Answer::Submitted { job: JobId(7), name: "train".to_owned(), existing: false }]
        }
        Verb::DryRun { .. } => vec![Answer::DryRun(views::dry_run())],
        Verb::List { .. } => vec![Answer::Jobs(views::jobs())],
        Verb::Get { job: JobRef::Name(name) } if name == "nope" => {
            vec![Answer::Error(ErrorView::new(
                ErrorCode::NotFound,
                "no job nope",
                "`phalanx ps -a` lists all jobs",
            ))]
        }
        Verb::Get { job: JobRef::Id(JobId(9)) } => vec![Answer::Job(Box::new(views::service()))],
        Verb::Get { .. } => vec![Answer::Job(Box::new(views::running()))],
        Verb::Why { job: JobRef::Id(JobId(7)) } => vec![Answer::Why(views::why_preempted())],
        Verb::Why { .. } => vec![Answer::Why(views::why())],
        Verb::Logs { ask, .. } => {
            let at = ask.timestamps.then_some(views::NOW);
            let line =
                |rank, line: &str| Answer::Log { task: None, rank, attempt: 1, at, line: line.to_owned() };
            vec![line(0, "zero"), line(1, "one"), Answer::End]
        }
        Verb::FindNodes(_) => vec![Answer::Nodes(views::nodes())],
        Verb::Endpoints { job: JobRef::Name(name), .. } if name == "nope" => {
            vec![Answer::Error(ErrorView::new(ErrorCode::NotFound, "job 8 (nope) has ended", "-"))]
        }
        Verb::Endpoints { job: JobRef::Id(JobId(8)), .. } => {
            vec![Answer::Endpoints(endpoints_without_capacity())]
        }
        Verb::Defrag { apply, .. } => {
            vec![Answer::Defrag(Box::new(DefragView { is_applied: *apply, ..views::defrag() }))]
        }
        Verb::Endpoints { .. } => vec![Answer::Endpoints(views::endpoints())],
        Verb::Topology => vec![Answer::Topology(views::topology())],
        Verb::Map => vec![Answer::Map(views::map())],
        Verb::Queues => vec![Answer::Queues(views::queues())],
        Verb::Queue { .. } => vec![Answer::Queue(Box::new(views::queue()))],
        Verb::History { .. } => vec![Answer::History(views::history())],
        Verb::Hold { .. }
        | Verb::Release { .. }
        | Verb::Boost { .. }
        | Verb::Update { .. }
        | Verb::Requeue { .. }
        | Verb::Scale { .. }
        | Verb::Resize { .. }
        | Verb::Tell { .. } => done("said"),
        Verb::ApplyQueues { queues, .. } => done(&format!("{} queues", queues.len())),
        Verb::Drain { .. } => {
            vec![Answer::Error(ErrorView::new(
                ErrorCode::Forbidden,
                "user alice may not do this",
                "ask an operator",
            ))]
        }
        Verb::Audit { .. } => vec![Answer::Audit(views::audit())],
        Verb::Bill(ask) if ask.by.len() == 9 => vec![Answer::Bill(bill_of_days())],
        Verb::Bill(_) => vec![Answer::Bill(views::bill())],
        Verb::Advise(_) => vec![Answer::Advice(views::advice())],
        Verb::Cordon { node, .. } => done(&format!("{node} takes no new work")),
        Verb::Uncordon { .. } | Verb::Cancel { .. } | Verb::Stop => done("done"),
        Verb::Health { node: None } => vec![Answer::Health(views::health())],
        Verb::Health { .. } => vec![Answer::Health(views::health_of_one())],
        Verb::ReportHealth(report) => done(&format!("{report:?}")),
        Verb::ClearHealth { node, device } => done(&format!("{node} {device:?}")),
        Verb::Calendar => vec![Answer::Calendar(views::calendar())],
        Verb::Snapshot => {
            let snapshot = Snapshot::of("0.1.0", views::NOW, Vec::new());
            vec![Answer::Snapshot(Box::new(snapshot))]
        }
        Verb::AddWindow(_) | Verb::RemoveWindow { .. } | Verb::NoticeSpot { .. } => done("told"),
        Verb::Terminal { .. } | Verb::Exec { .. } => {
            vec![Answer::Error(ErrorView::new(ErrorCode::BadRequest, "job 7 has no terminal", ""))]
        }
        Verb::NewToken(_) => vec![Answer::Token(views::new_token())],
        Verb::Tokens => vec![Answer::Tokens(views::tokens())],
        Verb::RevokeToken { name, .. } => done(&format!("token {name} is no longer valid")),
        // The command line does not ask so here.
        Verb::Whoami
        | Verb::Overview
        | Verb::Node { .. }
        | Verb::Watch { .. }
        | Verb::SubmitFile { .. }
        | Verb::Follow { .. }
        | Verb::WhatIf(_)
        | Verb::Wait { .. } => Vec::new(),
    }
}

fn line(rank: u32, line: &str) -> Answer {
    Answer::Log { task: None, rank, attempt: 1, at: None, line: line.to_owned() }
}

fn event(what: &str) -> Answer {
    Answer::Event { at: views::NOW, what: what.to_owned(), detail: String::new() }
}

fn ended(ending: Ending) -> JobView {
    JobView {
        id: JobId(7),
        state: ending.word().to_owned(),
        exit_code: Some(ending.exit_code()),
        finished_at: Some(views::NOW),
        ending: Some(ending),
        ..views::running()
    }
}

fn user_code(code: i32) -> Ending {
    let class = FailureClass::UserCode;
    Ending::Failed { class, rank: Some(0), code: Some(code), detail: String::new() }
}

#[test]
fn every_answer_is_a_document() {
    let fake = Fake::start(world);
    for (name, kind, words) in [
        ("ps", "JobList", "ps"),
        ("get", "Job", "get 3"),
        ("why", "Why", "why 5"),
        ("why-preempted", "Why", "why 7"),
        ("nodes", "NodeList", "nodes"),
        ("queues", "QueueList", "queues"),
        ("queue", "Queue", "queues vision"),
        ("history", "History", "history"),
        ("audit", "Audit", "audit"),
        ("bill", "Bill", "bill"),
        ("advise", "Advice", "advise"),
        ("health", "Health", "health"),
        ("endpoints", "Endpoints", "endpoints chat --from gpu-2"),
        ("defrag", "Defrag", "defrag"),
        ("map", "Map", "map"),
        ("calendar", "Calendar", "calendar"),
        ("submit", "Submitted", "submit -- x"),
        ("dry-run", "DryRun", "submit --dry-run -- x"),
        ("cordon", "Done", "cordon gpu-1"),
        ("token", "Token", "token create ci"),
        ("tokens", "TokenList", "token list"),
    ] {
        let Run { code, out, err } = fake.run(&format!("-o json {words}"));
        assert_eq!((code, err.as_str()), (0, ""), "{words}");
        let document: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&document["apiVersion"], &document["kind"]), (&"phalanx/v1".into(), &kind.into()));
        same(&format!("{name}.json"), &out);
        let yaml = fake.run(&format!("-o yaml {words}")).out;
        let again: Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(again, document, "{words}: YAML says the same as JSON");
    }
    let topology: Value = serde_json::from_str(&fake.run("topo show -o json").out).unwrap();
    assert_eq!(topology["kind"], "Topology");
    assert_eq!(topology["nodes"].as_array().unwrap().len(), 3);
    let one: Value = serde_json::from_str(&fake.run("topo show gpu-3 -o json").out).unwrap();
    assert_eq!(one["nodes"].as_array().unwrap().len(), 1);
}

/// [`views::endpoints`] if no replica reports a capacity.
fn endpoints_without_capacity() -> EndpointsView {
    let mut view = views::endpoints();
    for one in &mut view.endpoints {
        (one.capacity, one.weight) = (None, 256);
    }
    view
}

/// As `-o focus` asks for it.
fn bill_of_days() -> BillView {
    let line = |of: [&str; 9], state, minutes: i64, cost_micro| BillLine {
        of: of.map(str::to_owned).to_vec(),
        device_us: BTreeMap::from([(state, minutes * 60_000_000)]),
        cost_micro,
        list_cost_micro: cost_micro * 2,
        rates: BTreeMap::new(),
    };
    let idle = ["2026-11-20", "", "", "", "NVIDIA H100", "idle", "", "2500000", "5000000"];
    let lost = ["2026-11-30", "vision", "bob", "7 llama, \"2nd\"", "", "lost_to_failure", "spot", "", ""];
    use BillBy::{Day, Job, ListPrice, Model, Price, Queue, Spot, User};
    BillView {
        by: vec![Day, Queue, User, Job, Model, BillBy::State, Spot, Price, ListPrice],
        until: views::NOW,
        lines: vec![line(idle, State::Idle, 600, 25_000_000), line(lost, State::LostToFailure, 1, 0)],
        is_cut: false,
    }
}

#[test]
fn a_token_is_asked_for_with_what_it_may_and_for_how_long() {
    let fake = Fake::start(world);
    let Run { code, out, err } = fake.run("dashboard -o name");
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out, "http://127.0.0.1:7077/#token=phx_0123\n");
    assert_eq!(fake.run("token create ci --for 30d --read-only -o name").out, "phx_0123\n");
    assert_eq!(fake.run("token revoke ci --uid 1000").code, 0);
    for wrong in ["token create ci --for 0s", "token create ci --for 400d", "dashboard --for soon"] {
        assert_eq!(fake.run(wrong).code, 64, "{wrong}");
    }
    let asked: Vec<String> = fake.asked().iter().map(|verb| serde_json::to_string(verb).unwrap()).collect();
    assert!(
        asked[0].contains(r#""name":"dashboard-"#) && asked[0].contains(r#""for_ms":43200000"#),
        "{asked:?}"
    );
    assert_eq!(
        asked[1..],
        [
            r#"{"new_token":{"name":"ci","read_only":true,"for_ms":2592000000}}"#,
            r#"{"revoke_token":{"name":"ci","uid":1000}}"#,
        ]
    );
}

#[test]
fn a_bill_is_a_table_for_other_programs_too() {
    let fake = Fake::start(world);
    for (name, words) in [
        ("bill.csv", "bill --by queue,model -o csv"),
        ("bill-focus.csv", "bill -o focus --currency EUR"),
        ("advise.csv", "advise -o csv"),
    ] {
        let Run { code, out, err } = fake.run(words);
        assert_eq!((code, err.as_str()), (0, ""), "{words}");
        same(name, &out);
    }
    assert_eq!(fake.run("bill --by nothing").code, 64);
    let shown: Vec<String> = fake.asked().iter().map(|verb| serde_json::to_string(verb).unwrap()).collect();
    assert!(
        shown[1].contains(r#""by":["day","queue","user","job","model","state","spot","price","list_price"]"#),
        "{shown:?}"
    );
}

#[test]
fn endpoints_are_files_of_routers_too() {
    let fake = Fake::start(world);
    for (name, words) in [
        ("endpoints-haproxy.cfg", "endpoints 9 -o haproxy"),
        ("endpoints-haproxy-without-capacity.cfg", "endpoints 8 -o haproxy"),
        ("endpoints-envoy.json", "endpoints 9 -o envoy"),
        ("endpoints-prometheus-sd.json", "endpoints 9 -o prometheus-sd"),
    ] {
        let Run { code, out, err } = fake.run(words);
        assert_eq!((code, err.as_str()), (0, ""), "{words}");
        same(name, &out);
    }
    assert_eq!(fake.run("endpoints 9 -o name").out, "10.0.0.2:8080\n[fd00::3]:8080\n");
    for (words, code) in [
        ("endpoints nope --into x -o haproxy", 66),
        ("endpoints 9 --into x", 64),
        ("endpoints 9 --then y", 64),
    ] {
        assert_eq!(fake.run(words).code, code, "{words}");
    }
}

#[test]
fn names_are_one_per_line() {
    let fake = Fake::start(world);
    assert_eq!(fake.run("ps -o name").out, "1\n2\n3\n4\n5\n");
    assert_eq!(fake.run("nodes -o name").out, "gpu-1\ngpu-2\nlogin\n");
    assert_eq!(fake.run("submit -o name -- x").out, "7\n");
    assert_eq!(fake.run("submit --quiet -- x").out, "7\n");
}

#[test]
fn failures_have_their_codes() {
    let fake = Fake::start(world);
    for (words, code, said) in [
        ("get nope", 66, "error: no job nope\nhint: `phalanx ps -a` lists all jobs\n"),
        ("drain gpu-1", 77, "error: user alice may not do this\nhint: ask an operator\n"),
        ("topo show gpu-9", 66, "error: no node and no file gpu-9"),
        ("topo show ./gpu-9", 66, "error: there is no file ./gpu-9"),
        ("submit -G none -- x", 64, "error: --gpus: "),
        ("submit", 64, "error: "),
        ("submit -f /nonexistent.yaml", 66, "error: cannot read /nonexistent.yaml"),
        ("ps --colour", 64, "error: unexpected argument"),
        ("cordon a/../b?", 64, "error: "),
        (
            "run -G 8 sleep 600",
            64,
            "error: \"sleep\" is no option\nhint: put `--` before the command: `phalanx run -G 8 -- sleep 600`\n",
        ),
        ("submit -J a -- x", 64, "error: -J is an option of Slurm\nhint: `--name NAME` says it here; "),
    ] {
        let run = fake.run(words);
        assert_eq!((run.code, run.out.as_str()), (code, ""), "{words}: {}", run.err);
        assert!(run.err.starts_with(said), "{words}: {}", run.err);
    }
}

#[test]
fn without_a_daemon_it_says_how_to_start_one() {
    let fake = Fake::absent();
    let run = fake.run("ps");
    assert_eq!((run.code, run.out.as_str()), (69, ""));
    assert!(run.err.starts_with("error: no daemon answers at "), "{}", run.err);
    assert!(run.err.ends_with("hint: start one with `phalanx up --detach`\n"), "{}", run.err);
    let run = fake.run("ps -o json");
    let document: Value = serde_json::from_str(&run.err).unwrap();
    assert_eq!((run.code, &document["error"]["code"]), (69, &"no_daemon".into()));
    let run = fake.run("ps --nope -o json");
    let document: Value = serde_json::from_str(&run.err).unwrap();
    assert_eq!((run.code, &document["error"]["code"]), (64, &"usage".into()));
    // What needs no daemon works without one.
    assert_eq!(fake.run("schema job").code, 0);
    assert_eq!(fake.run("topo show").code, 0);
    assert_eq!(fake.run("--help").code, 0);
    assert_eq!(fake.run("").code, 64);
}

#[test]
fn the_definitions_of_our_resources_are_printed_as_they_stand_in_deploy() {
    let run = Fake::absent().run("crds");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let mut documents: Vec<&str> = run.out.split("---\n").collect();
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|file| !file.ends_with("kustomization.yaml"));
    let mut files: Vec<String> = files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
    documents.sort_unstable();
    files.sort_unstable();
    assert_eq!((run.code, documents), (0, files.iter().map(String::as_str).collect()));
}

#[test]
fn a_daemon_that_breaks_off_or_lies_is_an_error() {
    // Closes each connection, or answers as versions did that spoke no HTTP.
    for (answer, code, told) in [("", 75, "broke off"), ("{\"error\":{}}\n", 70, "older version")] {
        let fake = Fake::absent();
        let listener = UnixListener::bind(fake.state().join("phalanx.sock")).unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut begin = [0; 8];
                stream.read_exact(&mut begin).and_then(|()| stream.write_all(answer.as_bytes())).unwrap();
            }
        });
        let run = fake.run("ps");
        assert_eq!(run.code, code, "{}", run.err);
        assert!(run.err.contains(told), "{}", run.err);
    }
    let silent = Fake::start(|_| Vec::new());
    let lying = Fake::start(|_| vec![Answer::Queues(Vec::new())]);
    for run in [silent.run("ps"), lying.run("ps")] {
        assert_eq!(run.code, 70);
        assert!(run.err.contains("unexpected answer"), "{}", run.err);
    }
}

#[test]
fn a_job_that_can_never_run_is_refused() {
    let fake = Fake::start(|verb| match verb {
        Verb::DryRun { .. } => {
            let rejected =
                Rejection::LargerThanCluster { asked: 64, largest: 16, where_: "in main".to_owned() };
            let view = phalanx_api::protocol::DryRunView { rejected: Some(rejected), ..views::dry_run() };
            vec![Answer::DryRun(view)]
        }
        other => world(other),
    });
    let run = fake.run("submit --dry-run -G 64 -- x");
    assert_eq!(run.code, 64);
    assert!(
        run.err.starts_with("error: this job would be refused: a gang of 64 members can never fit"),
        "{}",
        run.err
    );
    let run = fake.run("submit --dry-run -G 64 -o json -- x");
    let document: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((run.code, &document["rejected"]["larger_than_cluster"]["asked"]), (64, &64.into()));
}

#[test]
fn a_dry_run_on_a_machine_without_gpus_says_so() {
    let fake = Fake::start(|verb| match verb {
        Verb::DryRun { .. } => {
            let rejected =
                Rejection::LargerThanCluster { asked: 1, largest: 0, where_: "in main".to_owned() };
            let view = phalanx_api::protocol::DryRunView { rejected: Some(rejected), ..views::dry_run() };
            vec![Answer::DryRun(view)]
        }
        Verb::FindNodes(_) => {
            let mut view = views::nodes();
            view.nodes.iter_mut().for_each(|node| node.devices = 0);
            vec![Answer::Nodes(view)]
        }
        other => world(other),
    });
    let run = fake.run("submit --dry-run -G 1 -- x");
    assert_eq!(run.code, 64);
    assert!(run.err.contains("the job needs GPUs, and this machine has none"), "{}", run.err);
    assert!(run.err.contains("phalanx up --detach --cluster FILE"), "{}", run.err);
}

#[test]
fn the_job_reaches_the_daemon_and_the_secret_beside_it() {
    let fake = Fake::start(world);
    assert_eq!(fake.run("submit -n train -G 4 --secret TOKEN -e MODE=fast -- python train.py").code, 0);
    let asked = fake.asked();
    let Some(Verb::Submit { job, secrets }) = asked.first() else { panic!("{asked:?}") };
    assert_eq!((job.name.as_str(), job.gangs[0].size), ("train", 4));
    assert_eq!(job.gangs[0].program.env["MODE"], "fast");
    assert_eq!(secrets["TOKEN"], fake::TOKEN);
    assert!(!serde_json::to_string(job).unwrap().contains(fake::TOKEN));
}

#[test]
fn what_ranks_and_operators_say_reaches_the_daemon() {
    let fake = Fake::start(world);
    let in_job = |words: &str| {
        let run = fake.command(words).env("PHALANX_JOB_ID", "7").env("PHALANX_GANG", "2").output().unwrap();
        assert!(run.status.success(), "{words}: {run:?}");
    };
    in_job("tell checkpoint");
    in_job("tell metric tokens_per_s=8000.5");
    in_job("tell boundary --job train --gang 0");
    for words in
        ["hold train", "release 3", "resize train 4", "boost 3 --priority -5 --for 1h30m", "boost 3 --clear"]
    {
        assert_eq!(fake.run(words).code, 0, "{words}");
    }
    let shown: Vec<String> = fake.asked().iter().map(|verb| serde_json::to_string(verb).unwrap()).collect();
    assert_eq!(
        shown,
        [
            r#"{"tell":{"job":{"id":7},"gang":2,"news":"checkpoint"}}"#,
            r#"{"tell":{"job":{"id":7},"gang":2,"news":{"metric":{"name":"tokens_per_s","value_milli":8000500}}}}"#,
            r#"{"tell":{"job":{"name":"train"},"gang":0,"news":"boundary"}}"#,
            r#"{"hold":{"job":{"name":"train"}}}"#,
            r#"{"release":{"job":{"id":3}}}"#,
            r#"{"resize":{"job":{"name":"train"},"size":4}}"#,
            r#"{"boost":{"job":{"id":3},"boost":{"priority":-5,"for_ms":5400000}}}"#,
            r#"{"boost":{"job":{"id":3},"boost":null}}"#,
        ]
    );
    for words in
        ["tell checkpoint", "boost 3", "boost 3 --priority 1", "boost 3 --priority 1 --for soon", "hold"]
    {
        assert_eq!(fake.run(words).code, 64, "{words}");
    }
}

#[test]
fn what_operators_say_of_nodes_reaches_the_daemon() {
    let fake = Fake::start(world);
    let (from, until) = ("--from 2026-12-01T08:00Z", "--until 2026-12-01T12:00Z");
    for words in [
        &format!("calendar add gpu-[1-2] rack=r1 {from} {until}"),
        &format!("calendar add gpu-1 {from} {until} --for vision --reason course"),
        &format!("calendar remove gpu-1 {from}"),
        "calendar remove gpu-1",
        "notice gpu-2 --in 2m",
        "notice gpu-2",
    ] {
        assert_eq!(fake.run(words).code, 0, "{words}");
    }
    assert_eq!(fake.run("drain gpu-1 --by 2026-12-01T08:00Z --reason fan").code, 77);
    assert_eq!(fake.run("audit --node gpu-1 --user bob --since 2026-12-01T08:00Z").code, 0);
    assert_eq!(fake.run("bill --by user,model --queue vision --since 2026-12-01T08:00Z").code, 0);
    assert_eq!(fake.run("advise --job sweep-* --user ada --since 2026-12-01T08:00Z").code, 0);
    assert_eq!(fake.run("advise --since yesterday").code, 64);
    let shown: Vec<String> = fake.asked().iter().map(|verb| serde_json::to_string(verb).unwrap()).collect();
    assert_eq!(
        shown,
        [
            r#"{"add_window":{"nodes":["gpu-[1-2]","rack=r1"],"begins_at":1796112000000,"ends_at":1796126400000,"held_for":null}}"#,
            r#"{"add_window":{"nodes":["gpu-1"],"begins_at":1796112000000,"ends_at":1796126400000,"held_for":"vision","reason":"course"}}"#,
            r#"{"remove_window":{"nodes":["gpu-1"],"begins_at":1796112000000}}"#,
            r#"{"remove_window":{"nodes":["gpu-1"],"begins_at":null}}"#,
            r#"{"notice_spot":{"node":"gpu-2","in_ms":120000}}"#,
            r#"{"notice_spot":{"node":"gpu-2","in_ms":null}}"#,
            r#"{"drain":{"node":"gpu-1","by":1796112000000,"reason":"fan"}}"#,
            r#"{"audit":{"filter":{"user":"bob","node":"gpu-1","since":1796112000000},"limit":200}}"#,
            r#"{"bill":{"by":["user","model"],"queue":"vision","since":1796112000000}}"#,
            r#"{"advise":{"job":"sweep-*","user":"ada","since":1796112000000}}"#,
        ]
    );
    for words in [
        "calendar add gpu-1",
        "calendar add --until +2h",
        "calendar add gpu-1 --until 2h",
        "calendar add gpu-1 --until tomorrow",
        "notice gpu-1 --in soon",
        "notice",
        "drain gpu-1 --by 2026-12-01",
    ] {
        assert_eq!(fake.run(words).code, 64, "{words}");
    }
}

#[test]
fn a_queue_file_is_put_in_force_or_shown_with_its_mistake() {
    let fake = Fake::start(world);
    let file = fake.state().join("queues.yaml");
    let apply = format!("queues apply {}", file.display());
    assert_eq!(fake.run(&apply).code, 66, "there is none");
    std::fs::write(&file, "queues: [{name: vision, guaranteed: {gpus: 4}}, {name: speech}]\n").unwrap();
    let run = fake.run(&apply);
    assert_eq!((run.code, run.out.as_str()), (0, "2 queues\n"), "{}", run.err);
    let Some(Verb::ApplyQueues { queues, .. }) = fake.asked().pop() else { panic!() };
    assert_eq!(queues[1].guaranteed.values().copied().collect::<Vec<_>>(), [4_000]);
    std::fs::write(&file, "queues: [{nam: vision}]\n").unwrap();
    let run = fake.run(&apply);
    assert_eq!(run.code, 64);
    assert!(run.err.contains("queues.yaml:1:11: queues[0].nam: no such field"), "{}", run.err);
    let run = Fake::absent().run(&format!("up --queues {}", file.display()));
    assert_eq!(run.code, 64);
    assert!(run.err.contains("no such field") && run.err.contains('^'), "{}", run.err);
}

#[test]
fn logs_name_the_rank_where_there_are_several() {
    let fake = Fake::start(world);
    assert_eq!(fake.run("logs 3").out, "[0] zero\n[1] one\n");
    assert_eq!(fake.run("logs 3 --rank 0").out, "zero\none\n");
    let timed = fake.run("logs 3 --since 10m --timestamps --rank 0");
    assert_eq!(timed.out, "2026-11-21 12:00:00 zero\n2026-11-21 12:00:00 one\n");
    let run = fake.run("logs 3 -o json");
    let first: Value = serde_json::from_str(run.out.lines().next().unwrap()).unwrap();
    assert_eq!((&first["kind"], &first["log"]["line"]), (&"Log".into(), &"zero".into()));
}

/// Answers `Follow` with these events and this end, and `Get` with the end.
fn following(ending: Ending) -> impl Fn(&Verb) -> Vec<Answer> + Send + Sync + 'static {
    move |verb| match verb {
        Verb::Follow { .. } => {
            vec![
                event("submitted"),
                event("running"),
                Answer::Job(Box::new(ended(ending.clone()))),
                Answer::End,
            ]
        }
        Verb::Get { .. } => vec![Answer::Job(Box::new(ended(ending.clone())))],
        other => world(other),
    }
}

#[test]
fn run_exits_as_the_job_does() {
    let endings = [
        (Ending::Succeeded, 0),
        (user_code(3), 3),
        (user_code(256), 1),
        (Ending::TimeLimit, 124),
        (Ending::IdleLimit, 124),
        (Ending::Cancelled { by: "root".to_owned() }, 130),
    ];
    for (ending, code) in endings {
        let fake = Fake::start(following(ending.clone()));
        let run = fake.run("run -G 2 -- x");
        assert_eq!((run.code, run.out.as_str()), (code, "[0] zero\n[1] one\n"), "{ending:?}: {}", run.err);
        assert_eq!(fake.run("submit --wait -- x").code, code);
        let waited = fake.run("submit --wait -o json -- x");
        let document: Value = serde_json::from_str(&waited.out).unwrap();
        assert_eq!((waited.code, &document["state"]), (code, &ending.word().into()));
    }
}

#[test]
fn a_daemon_that_is_restarted_is_waited_for_and_nothing_is_said_twice() {
    let follows = std::sync::atomic::AtomicU32::new(0);
    let logs = std::sync::atomic::AtomicU32::new(0);
    let next = |n: &std::sync::atomic::AtomicU32| n.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    let fake = Fake::start(move |verb| match verb {
        // The first streams break off in the middle.
        Verb::Follow { .. } if next(&follows) == 0 => vec![event("starting")],
        Verb::Follow { .. } => {
            vec![event("starting"), event("running"), Answer::Job(Box::new(ended(user_code(5))))]
        }
        Verb::Logs { .. } if next(&logs) == 0 => vec![line(0, "zero")],
        Verb::Logs { .. } => vec![line(0, "zero"), line(0, "one"), Answer::End],
        // Running, until the log was read twice.
        Verb::Get { .. } if logs.load(std::sync::atomic::Ordering::SeqCst) < 2 => {
            vec![Answer::Job(Box::new(views::running()))]
        }
        Verb::Get { .. } => vec![Answer::Job(Box::new(ended(user_code(5))))],
        other => world(other),
    });
    let run = fake.run("run -- x");
    assert_eq!((run.code, run.out.as_str()), (5, "zero\none\n"), "{}", run.err);
    assert_eq!(run.err.matches("starting").count(), 1, "{}", run.err);
}

/// Job 1 succeeds, and job N ends with code N.
fn end_of(id: JobId) -> Answer {
    let ending = if id.0 == 1 { Ending::Succeeded } else { user_code(i32::try_from(id.0).unwrap()) };
    Answer::Job(Box::new(JobView { id, ..ended(ending) }))
}

#[test]
fn wait_exits_with_the_highest_code_and_any_with_the_first() {
    let fake = Fake::start(|verb| match verb {
        Verb::Wait { jobs } => jobs.iter().map(|id| end_of(*id)).chain([Answer::End]).collect(),
        other => world(other),
    });
    for (words, code) in [("1", 0), ("4", 4), ("1 5 4 5", 5), ("--any 1 5 4", 0), ("--timeout 1h 4 1", 4)] {
        let run = fake.run(&format!("wait {words}"));
        assert_eq!((run.code, run.out.as_str()), (code, ""), "{words}: {}", run.err);
    }
    let run = fake.run("wait 1 5 4");
    assert_eq!(run.err.lines().count(), 3, "{}", run.err);
    let run = fake.run("wait -o json 4 1");
    let document: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((&document["kind"], &document["items"][1]["id"]), (&"JobList".into(), &4.into()));
    assert_eq!(fake.run("wait nope").code, 66);
    assert_eq!(fake.run("wait --timeout soon 1").code, 64);
    assert_eq!(fake.run("wait").code, 64);
}

#[test]
fn wait_asks_a_restarted_daemon_for_the_jobs_that_are_left() {
    let asked = std::sync::atomic::AtomicU32::new(0);
    let fake = Fake::start(move |verb| match verb {
        // The first stream breaks off after one job.
        Verb::Wait { .. } if asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 => {
            vec![end_of(JobId(4))]
        }
        Verb::Wait { jobs } => jobs.iter().map(|id| end_of(*id)).chain([Answer::End]).collect(),
        other => world(other),
    });
    let run = fake.run("wait 1 4 5");
    assert_eq!(run.code, 5, "{}", run.err);
    assert!(run.err.contains("the daemon is gone"), "{}", run.err);
    let waits: Vec<Vec<JobId>> = fake
        .asked()
        .into_iter()
        .filter_map(|verb| if let Verb::Wait { jobs } = verb { Some(jobs) } else { None })
        .collect();
    assert_eq!(waits, [vec![JobId(1), JobId(4), JobId(5)], vec![JobId(1), JobId(5)]]);
}

#[test]
fn wait_gives_up_after_its_timeout_and_says_which_jobs_go_on() {
    let fake = Fake::stream(|verb, say| match verb {
        Verb::Wait { .. } => {
            say(end_of(JobId(1)));
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
        other => world(other).into_iter().for_each(say),
    });
    let run = fake.run("wait --timeout 300ms 1 2 3");
    assert_eq!(run.code, 75, "{}", run.err);
    assert!(run.err.contains("jobs 2, 3 did not end"), "{}", run.err);
}

/// A job that runs until it is cancelled; the first line of its log says that it runs.
fn endless() -> Fake {
    let cancelled = std::sync::Arc::new((std::sync::Mutex::new(false), std::sync::Condvar::new()));
    Fake::stream(move |verb, say| {
        let (is_cancelled, changed) = &*cancelled;
        let until_cancelled = || drop(changed.wait_while(is_cancelled.lock().unwrap(), |c| !*c).unwrap());
        let end = || Box::new(ended(Ending::Cancelled { by: "alice".to_owned() }));
        match verb {
            Verb::Follow { .. } => {
                until_cancelled();
                say(Answer::Job(end()));
            }
            Verb::Logs { .. } => {
                say(line(0, "zero"));
                until_cancelled();
                say(Answer::End);
            }
            Verb::Get { .. } => say(Answer::Job(end())),
            Verb::Cancel { .. } => {
                *is_cancelled.lock().unwrap() = true;
                changed.notify_all();
                say(Answer::Done { detail: "cancelled".to_owned() });
            }
            other => world(other).into_iter().for_each(say),
        }
    })
}

/// Starts `run`, waits for its first line, interrupts it, and returns its exit code and whether it cancelled.
fn interrupted(words: &str) -> (Option<i32>, bool) {
    let fake = endless();
    let mut child = fake.command(words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "zero");
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let code = child.wait().unwrap().code();
    (code, fake.asked().iter().any(|verb| matches!(verb, Verb::Cancel { .. })))
}

#[test]
fn an_interrupt_cancels_or_leaves() {
    assert_eq!(interrupted("run -- x"), (Some(130), true));
    assert_eq!(interrupted("run --detach-on-interrupt -- x"), (Some(130), false));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let fake = Fake::start(|verb| match verb {
        Verb::List { .. } => vec![Answer::Jobs(views::jobs().into_iter().cycle().take(3_000).collect())],
        Verb::Logs { .. } => (0..100_000).map(|_| line(0, "a line that fills the pipe")).collect(),
        other => world(other),
    });
    for words in ["ps", "ps -o json", "logs 3"] {
        let mut child = fake.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut start = [0; 64];
        child.stdout.take().unwrap().read_exact(&mut start).unwrap();
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""), "{words}");
    }
}

#[test]
fn colours_come_when_they_are_wanted() {
    let fake = Fake::start(world);
    assert!(!fake.run("ps").out.contains('\u{1b}'));
    assert!(fake.run("ps --color always").out.contains('\u{1b}'));
    assert!(!fake.run("ps --color never").out.contains('\u{1b}'));
}

#[test]
fn completion_knows_jobs_and_nodes() {
    let fake = Fake::start(world);
    assert_eq!(fake.complete(&["why", "b"]), "big\n");
    assert_eq!(fake.complete(&["advise", "--job", "b"]), "big\n");
    assert_eq!(fake.complete(&["drain", "gpu"]), "gpu-1\ngpu-2\n");
    assert_eq!(fake.complete(&["notice", "gpu-1"]), "gpu-1\n");
    assert_eq!(fake.complete(&["calendar", "a"]), "add\n");
    assert_eq!(fake.complete(&["calendar", "remove", "leaf"]), "leaf=leaf-1\nleaf=leaf-2\n");
    assert_eq!(fake.complete(&["sim", "wh"]), "whatif\n");
    assert_eq!(fake.complete(&["sim", "study", "s"]), "spot\nsharing\nstrict\n");
    assert_eq!(fake.complete(&["sim", "generate", "--like", "g"]), "gavel\ngavel-multi\n");
    assert_eq!(fake.complete(&["sim", "replay", "--job", "b"]), "big\n");
    assert_eq!(fake.complete(&["replay", "--job", "b"]), "big\n");
    assert_eq!(fake.complete(&["sim", "run", "--tra"]), "--traffic\n--trace\n");
    assert_eq!(fake.complete(&["sim", "compare", "--policies", "fifo,the"]), "fifo,themis\n");
    assert_eq!(fake.complete(&["sim", "whatif", "--drain", "gpu"]), "gpu-1\ngpu-2\n");
    assert_eq!(fake.complete(&["sim", "whatif", "--add-nodes", "2:"]), "2:leaf-1\n2:leaf-2\n");
    assert_eq!(Fake::absent().complete(&["why", "b"]), "");
    assert!(fake.run("completion bash").out.contains("complete"));
    assert_eq!(fake.run("completion tcsh").code, 64);
}

#[test]
fn the_simulator_is_a_part_of_the_command_line() {
    let fake = Fake::absent();
    let help = fake.run("sim run --help");
    assert_eq!(help.code, 0, "{}", help.err);
    for option in ["--policy <NAME>", "--trace <FILE>", "--checkpoint-cost <TIME>", "--state <DIR>"] {
        assert!(help.out.contains(option), "{option}: {}", help.out);
    }
    let listed = fake.run("sim --help").out;
    for command in ["run", "compare", "policies", "study", "trace", "generate", "swarm", "whatif", "replay"] {
        assert!(listed.contains(&format!("\n  {command} ")), "{command}: {listed}");
    }
    for (words, wanted) in [
        ("sim wahtif now.json", "a similar subcommand exists: 'whatif'"),
        ("sim run --polcy fifo", "a similar argument exists: '--policy'"),
        ("sim compare --trace t.csv --policies fifo,gavell", "a similar value exists: 'gavel'"),
        ("sim run --trace t.csv --traffic 2", "'--traffic <X>': expected a number from 0 to 1"),
        ("sim swarm --seed", "a value is required for '--seed <N>'"),
        ("sim whatif now.json --horizon 1s", "'--horizon <TIME>': expected a duration from 1m to 365d"),
        ("sim whatif now.json --to kubernetes", "give --live instead of SNAPSHOT"),
        ("sim run --trace t.csv --share-links", "hint: `phalanx sim COMMAND --help` lists the options"),
        ("replay . --from 2026-11-21 --until 2026-11-20", "hint: `phalanx replay --help` lists the options"),
        ("sim", "Usage: phalanx sim"),
    ] {
        let run = fake.run(words);
        assert_eq!((run.code, run.out.as_str()), (64, ""), "{words}");
        assert!(run.err.contains(wanted), "{words}: {}", run.err);
    }
    assert_eq!(fake.run("sim policies").code, 0);
}

/// `-o` before the command is a format, and behind it a file of those commands that write reports.
#[test]
fn a_report_of_the_simulator_is_no_document() {
    let fake = Fake::absent();
    let folder = fake.state().display().to_string();
    let trace = fake.run("sim generate --jobs 3");
    assert_eq!(trace.code, 0, "{}", trace.err);
    std::fs::write(format!("{folder}/t.csv"), trace.out).unwrap();
    let line = format!("-o json sim run --trace {folder}/t.csv --cluster 1x1x8 -o {folder}/r.html -q");
    let run = fake.run(&line);
    assert_eq!((run.code, run.out.as_str()), (0, ""), "{}", run.err);
    let page = std::fs::read_to_string(format!("{folder}/r.html")).unwrap();
    assert!(page.contains("sim run --trace"), "a report names its command");
}

/// The tests on a control plane give a `Fabric` what stands there.
#[test]
fn a_fabric_is_printed_as_a_cluster_takes_it() {
    let fabric = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/fabric");
    let printed = Fake::absent().run(&format!("topo import {}/leaves.conf", fabric.display()));
    assert_eq!(printed.code, 0, "{}", printed.err);
    assert_eq!(printed.out, std::fs::read_to_string(fabric.join("leaves.cluster.yaml")).unwrap());
}

#[test]
fn a_text_is_imported_into_a_cluster_file() {
    let fake = Fake::absent();
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/topo_m/v100-hcm-8.txt");
    let (text, dir) = (text.display(), fake.state().display().to_string());
    let flags = "--model V100 --gpu-memory 32GB --memory 512GB";
    let printed = fake.run(&format!("topo import {text} --name v100-1 {flags}"));
    assert!(
        printed.out.starts_with("nodes:\n  - name: v100-1\n    topo: "),
        "{}{}",
        printed.out,
        printed.err
    );
    for name in ["v100-1", "v100-2"] {
        let run = fake.run(&format!("topo import {text} --name {name} {flags} -o {dir}/c.yaml"));
        assert_eq!(run.code, 0, "{}", run.err);
    }
    let file = std::fs::read_to_string(format!("{dir}/c.yaml")).unwrap();
    assert_eq!(file.matches("- name:").count(), 2, "{file}");
    assert!(Path::new(&format!("{dir}/v100-2.topo.txt")).is_file());
    let again = fake.run(&format!("topo import {text} --name v100-2 -o {dir}/c.yaml"));
    assert_eq!(again.code, 64);
    assert!(again.err.contains("declared twice"), "{}", again.err);
    assert_eq!(std::fs::read_to_string(format!("{dir}/c.yaml")).unwrap(), file);
    let bad = fake.run("topo import Cargo.toml");
    assert_eq!((bad.code, bad.out.as_str()), (64, ""));
}

/// A fabric and a machine become a cluster file that says the same as the fabric, and every other format again.
#[test]
fn a_fabric_goes_into_a_cluster_file_and_out_again() {
    let fake = Fake::absent();
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/topo_m/h100-nvswitch-8.txt");
    let dir = fake.state().display().to_string();
    let fabric = format!("{dir}/fabric.csv");
    let hosts = (1..=12).map(|host| format!("gpu-{host},leaf-{},spine-1\n", (host - 1) / 4 + 1));
    std::fs::write(&fabric, format!("host,leaf,spine\n{}login,leaf-1,spine-1\n", hosts.collect::<String>()))
        .unwrap();
    let run = fake.run(&format!("topo import {fabric} {machine} --hosts gpu-* --name lab -o {dir}/c.yaml"));
    assert_eq!(run.code, 0, "{}", run.err);
    let file = std::fs::read_to_string(format!("{dir}/c.yaml")).unwrap();
    assert!(file.contains("name: gpu-[5-8]") && !file.contains("login"), "{file}");
    let shown = fake.run(&format!("topo show {dir}/c.yaml"));
    assert!(shown.out.contains("gpu-12    8 of 8 GPUs free (declared)"), "{}", shown.out);
    assert!(shown.out.contains("and 11 more machines like it"), "{}", shown.out);
    let same = fake.run(&format!("topo diff {dir}/c.yaml {fabric} --hosts gpu-* --exit-code"));
    assert_eq!((same.code, same.out.as_str()), (0, "no difference\n"), "{}", same.err);
    let less = fake.run(&format!("topo diff {dir}/c.yaml {fabric} --hosts gpu-? --exit-code"));
    assert_eq!(less.code, 1);
    assert!(less.out.contains("gpu-[10-12]"), "{}", less.out);
    for format in ["cluster", "nccl", "slurm", "volcano", "dot", "svg"] {
        let out = fake.run(&format!("topo export {dir}/c.yaml --to {format}"));
        assert_eq!(out.code, 0, "{format}: {}", out.err);
        assert!(out.out.len() > 100, "{format}: {}", out.out);
    }
    let slurm = fake.run(&format!("topo export {dir}/c.yaml --to slurm -o {dir}/topology.yaml"));
    assert_eq!(slurm.code, 0, "{}", slurm.err);
    let again = fake.run(&format!("topo show {dir}/topology.yaml"));
    assert!(again.out.contains("leaf-2") && again.out.contains("gpu-8"), "{}", again.out);
    let none = fake.run(&format!("topo show {fabric} --hosts nobody-*"));
    assert_eq!(none.code, 64);
    assert!(none.err.contains("none of 13 hosts"), "{}", none.err);
}

/// What the flags say of a machine holds for the machine beside a fabric, or is refused.
#[test]
fn flags_of_a_machine_apply_beside_a_fabric_or_are_refused() {
    let fake = Fake::absent();
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/topo_m/h100-nvswitch-8.txt");
    let dir = fake.state().display().to_string();
    let fabric = format!("{dir}/fabric.csv");
    std::fs::write(&fabric, "host,leaf,spine\na-1,leaf-1,s\na-2,leaf-1,s\na-3,leaf-2,s\na-4,leaf-2,s\n")
        .unwrap();
    let flags = "--gpu-memory 80GB --memory 2TB --cpus 64";
    let run = fake.run(&format!("topo import {fabric} {machine} --model H100 {flags} -o {dir}/c.yaml"));
    assert_eq!(run.code, 0, "{}", run.err);
    let shown: Value =
        serde_json::from_str(&fake.run(&format!("topo show {dir}/c.yaml -o json")).out).unwrap();
    let node = &shown["nodes"][0]["machine"];
    assert_eq!(
        (&node["devices"][7]["model"], &node["cpu_milli"]),
        (&"H100".into(), &64_000.into()),
        "{shown}"
    );
    assert_eq!(node["devices"][0]["memory_bytes"].as_u64(), Some(80_000_000_000));
    assert_eq!(node["memory_bytes"].as_u64(), Some(2_000_000_000_000));
    // The speed of NICs is assumed from the model, and said so.
    let shown = fake.run(&format!("topo show {dir}/c.yaml"));
    let assumed = "the speed of 8 NICs is unknown; 400 Gb/s each is assumed, as in usual machines of H100";
    assert!(shown.out.contains(assumed), "{}", shown.out);
    let checked = fake.run(&format!("topo check {dir}/c.yaml"));
    assert!(checked.out.contains("400 Gb/s each is assumed"), "{}", checked.out);
    for flag in ["--model H100", "--gpu-memory 80GB", "--memory 2TB", "--cpus 64"] {
        let run = fake.run(&format!("topo import {fabric} {flag}"));
        let name = flag.split(' ').next().unwrap();
        assert_eq!(run.code, 64, "{}", run.out);
        assert!(
            run.err.contains(&format!("{name} describes a machine, and the files name none")),
            "{}",
            run.err
        );
    }
    // `links: node:` says what all NICs of a node carry.
    let file = std::fs::read_to_string(format!("{dir}/c.yaml")).unwrap();
    std::fs::write(format!("{dir}/c.yaml"), format!("{file}links: {{node: {{bandwidth: 1600Gb/s}}}}\n"))
        .unwrap();
    let shown: Value =
        serde_json::from_str(&fake.run(&format!("topo show {dir}/c.yaml -o json")).out).unwrap();
    assert_eq!(shown["nodes"][0]["machine"]["nics"][0]["bytes_per_s"].as_u64(), Some(25_000_000_000));
    assert!(!fake.run(&format!("topo show {dir}/c.yaml")).out.contains("assumed"));
}

#[test]
fn hosts_without_gpus_are_no_machine_for_nccl() {
    let fake = Fake::absent();
    let fabric = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/fabric/leaves.conf");
    let run = fake.run(&format!("topo export {} --to nccl", fabric.display()));
    assert_eq!(run.code, 64);
    assert!(run.err.contains("no machine is described, only hosts and switches"), "{}", run.err);
    assert!(run.err.contains("nvidia-smi topo -m"), "{}", run.err);
}

#[test]
fn measurements_fit_the_constants_of_a_site() {
    let fake = Fake::absent();
    let dir = fake.state().display().to_string();
    let header = "collective,bytes,nodes,gpus_per_node,hardware,nic,busbw";
    std::fs::write(format!("{dir}/m.csv"), format!("{header}\nall_reduce,1GiB,2,8,H100,8x400G verbs,300\n"))
        .unwrap();
    let run = fake.run(&format!("topo calibrate {dir}/m.csv -o {dir}/site.toml"));
    assert_eq!(run.code, 0, "{}", run.err);
    // One size determines nothing.
    assert!(run.out.starts_with("NOT DETERMINED") && run.out.contains("over 1 measurement"), "{}", run.out);
    let again = fake.run(&format!("topo calibrate {dir}/m.csv --start {dir}/site.toml"));
    assert_eq!(again.code, 0, "{}", again.err);
    std::fs::write(format!("{dir}/bad.csv"), format!("{header}\nall_reduce,1GiB,two,8,H100,-,300\n"))
        .unwrap();
    let bad = fake.run(&format!("topo calibrate {dir}/bad.csv"));
    assert_eq!(bad.code, 64);
    assert!(bad.err.contains("line 2, column"), "{}", bad.err);
}

#[test]
fn check_fails_on_what_is_severe() {
    let fake = Fake::absent();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/topo_m");
    assert_eq!(fake.run(&format!("topo check {folder}/h100-degraded-8.txt")).code, 1);
    assert_eq!(fake.run(&format!("topo check {folder}/h100-nvswitch-8.txt")).code, 0);
}

#[test]
fn hold_sleeps_until_it_is_told_to_end() {
    let fake = Fake::absent();
    let mut child = fake.command("__hold").spawn().unwrap();
    let syscall = format!("/proc/{}/syscall", child.id());
    // A signal before it waits for one would end it as any other program.
    let waits = nix::libc::SYS_rt_sigtimedwait.to_string();
    while std::fs::read_to_string(&syscall).unwrap().split(' ').next() != Some(&waits) {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// A daemon that a failing test would leave behind.
struct EndedByPid(i64);

impl Drop for EndedByPid {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.try_into().unwrap()), Signal::SIGTERM);
    }
}

#[test]
fn a_daemon_goes_to_the_background_and_comes_down() {
    let fake = Fake::absent();
    let run = fake.run("up --detach -o json");
    assert_eq!(run.code, 0, "{}", run.err);
    let document: Value = serde_json::from_str(&run.out).unwrap();
    let _daemon = EndedByPid(document["pid"].as_i64().unwrap());
    let twice = fake.run("up --detach");
    assert_eq!(twice.code, 75, "{}", twice.err);
    assert!(twice.err.starts_with("error: a daemon already runs"), "{}", twice.err);
    assert_eq!(fake.run("ps").code, 0);
    assert_eq!(fake.run("down").code, 0);
    assert_eq!(fake.run("ps").code, 69);
}

#[test]
fn a_daemon_that_dies_at_once_says_why() {
    let fake = Fake::absent();
    let file = fake.state().join("bad.yaml");
    std::fs::write(&file, "nodes:\n  - nam: x\n").unwrap();
    let run = fake.run(&format!("up --detach --cluster {}", file.display()));
    assert_eq!((run.code, run.out.as_str()), (64, ""), "{}", run.err);
    assert!(run.err.starts_with("error: the daemon did not start"), "{}", run.err);
    assert!(run.err.contains("no such field") && run.err.contains("bad.yaml:2"), "{}", run.err);
}

#[test]
fn a_job_to_wait_for_may_be_named() {
    let fake = Fake::start(world);
    let run = fake.run("submit --after train:any,12 -- x");
    assert_eq!(run.code, 0, "{}", run.err);
    let submitted = fake.asked().into_iter().find_map(|verb| match verb {
        Verb::Submit { job, .. } => Some(job),
        _ => None,
    });
    let after = submitted.unwrap().turn.after;
    assert_eq!(after.iter().map(|after| after.job).collect::<Vec<_>>(), [views::running().id, JobId(12)]);
    let run = fake.run("submit --after nope -- x");
    assert_eq!((run.code, run.err.contains("no job nope")), (66, true), "{}", run.err);
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::absent();
    let into = dir.path().join("man");
    assert_eq!(fake.run(&format!("man --into {}", into.display())).code, 0);
    let help = fake.run("help").out;
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let verbs: Vec<&str> = listed
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .collect();
    assert!(verbs.len() > 40 && verbs.contains(&"slurm"), "{verbs:?}");
    for verb in verbs {
        let page = std::fs::read_to_string(into.join(format!("phalanx-{verb}.1"))).unwrap_or_default();
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{verb}: {page}");
    }
    let main = std::fs::read_to_string(into.join("phalanx.1")).unwrap();
    assert!(main.contains("phalanx\\-submit(1)"), "{main}");
    let hidden = std::fs::read_dir(&into)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("__"));
    assert_eq!(hidden.count(), 0);
}

/// A server on another machine is asked by the same verbs, with a token. A job goes there as its file: folders and variables of
/// this machine mean nothing there.
#[test]
fn a_port_is_asked_with_a_token_as_the_socket_is() {
    let (fake, url) = Fake::port(|verb| match verb {
        Verb::SubmitFile { .. } => {
            vec![Answer::Submitted { job: JobId(7), name: "train".to_owned(), existing: false }]
        }
        other => world(other),
    });
    let run = |words: &str, url: &str, token: &str| {
        let mut command = fake.command(words);
        command.env("PATH", "/bin").env("PHALANX_URL", url).env("PHALANX_TOKEN", token);
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Run { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    };
    let good = |words: &str| run(words, &url, API_TOKEN);
    let socket = Fake::start(world);
    for words in ["ps", "nodes", "why 4", "logs 4", "get 4 -o json", "queues", "calendar"] {
        let (there, here) = (good(words), socket.run(words));
        assert_eq!((there.code, there.out), (0, here.out), "{words}: {}", there.err);
    }
    let submitted = good("submit -n train -G 8 -e DEBUG=1 -- ./train.py --deep");
    assert_eq!(submitted.out, "job 7 (train) is submitted\n", "{}", submitted.err);
    let Some(Verb::SubmitFile { text, .. }) = fake.asked().pop() else { panic!("{:?}", fake.asked()) };
    let file = phalanx_spec::JobFile::from_yaml(&text, "sent").unwrap();
    assert!(file.workdir.is_none() && text.contains("--deep") && text.contains("DEBUG"), "{text}");
    assert!(!text.contains("PATH"), "{text}");
    let secret = good("submit --secret TOKEN -- ./train.py");
    assert!(secret.code == 64 && secret.err.contains("is not sent to another machine"), "{}", secret.err);

    let wrong = run("ps", &url, "phx_bad");
    assert_eq!(wrong.code, 77, "{}", wrong.err);
    assert!(wrong.err.contains("not valid") && !wrong.err.contains("phx_bad"), "{}", wrong.err);
    let away = run("ps", "http://127.0.0.1:9", API_TOKEN);
    assert!(away.code == 69 && away.err.contains("http://127.0.0.1:9"), "{}", away.err);
    let clear = run("ps", "http://gpu1.example.com:7077", API_TOKEN);
    assert!(clear.code == 64 && clear.err.contains("in the clear"), "{}", clear.err);
    assert_eq!(run("ps", &url, "").code, 64, "no token");
    assert_eq!(run("schema job", &url, "").code, 0, "what asks nobody needs none");
    assert_eq!(run("down", &url, "").code, 64, "no other daemon is stopped instead");
}
