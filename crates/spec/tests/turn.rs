//! When a job goes, how many times, and how small it may become.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::context;
use phalanx_model::{
    After, Array, ClassName, EndOf, FailureClass, Job, JobId, LevelName, Preempt, PreemptMode, Replicas,
    Target, Timestamp, Turn,
};
use phalanx_spec::{JobFile, SpecError, SubmitContext, SubmitFlags};

const HOUR_MS: u64 = 3_600_000;

fn read(yaml: &str) -> Result<Job, SpecError> {
    let context = SubmitContext { submitted_at: Timestamp(1_000), ..context() };
    JobFile::from_yaml(&format!("{yaml}\nrun: x\n"), "job.yaml").and_then(|file| file.into_job(context))
}

fn job(yaml: &str) -> Job {
    read(yaml).unwrap_or_else(|error| panic!("{error}"))
}

fn flags(set: impl FnOnce(&mut SubmitFlags), file: &str) -> Job {
    let mut flags = SubmitFlags::default();
    set(&mut flags);
    let file = JobFile::from_yaml(&format!("{file}\nrun: x\n"), "job.yaml").unwrap();
    let context = SubmitContext { submitted_at: Timestamp(1_000), ..context() };
    flags.over(file).and_then(|file| file.into_job(context)).unwrap_or_else(|error| panic!("{error}"))
}

fn after(job: u64, end: EndOf) -> After {
    After { job: JobId(job), end }
}

const FULL: &str = "
class: serving
hold: true
after: [12, {job: 13, end: any}, '14:failure']
begin: +2h
deadline: 1970-01-02T01:00+01:00
array: {size: 3, max_running: 2}
preempt: cancel
spot: true
checkpoint: {dir: /ckpt, shared: false}
ranks: 8
elastic: {min: 4, max: 16}";

#[test]
fn every_field_reaches_the_model() {
    let job = job(FULL);
    let turn = Turn {
        class: Some(ClassName::new("serving").unwrap()),
        held_by: Some("ada".to_owned()),
        boost: None,
        after: vec![after(12, EndOf::Success), after(13, EndOf::Any), after(14, EndOf::Failure)],
        begins_at: Some(Timestamp(1_000 + 2 * HOUR_MS)),
        deadline: Some(Timestamp(24 * HOUR_MS)),
        array: Some(Array { tasks: phalanx_model::Tasks::first(3), running_max: Some(2) }),
        takes_spot: true,
        service: None,
    };
    assert_eq!(job.turn, turn);
    assert_eq!(job.policy.preempt, Preempt { mode: PreemptMode::Cancel, is_pinned: true, may_move: false });
    assert_eq!((job.gangs.len(), job.gang_count()), (1, 3));
    assert!(job.gangs.iter().all(|gang| (gang.min, gang.size, gang.max) == (4, 8, 16)));
}

#[test]
fn a_job_that_says_nothing_goes_when_it_can() {
    for text in ["", "hold: false\nspot: false\nafter: []", "checkpoint: {dir: /ckpt, shared: true}"] {
        let job = job(text);
        assert_eq!((job.turn, job.policy.preempt), (Turn::default(), Preempt::default()), "{text}");
    }
}

#[test]
fn a_file_written_out_reads_back() {
    let text = format!("{FULL}\nrun: x\n");
    let yaml = JobFile::from_yaml(&text, "job.yaml").unwrap().to_yaml().unwrap();
    let again = JobFile::from_yaml(&yaml, "again.yaml").unwrap_or_else(|error| panic!("{yaml}\n{error}"));
    let first = JobFile::from_yaml(&text, "job.yaml").unwrap().into_job(context());
    assert_eq!(first, again.into_job(context()), "{yaml}");
}

#[test]
fn one_end_or_several_are_waited_for() {
    let of = |text: &str| job(&format!("after: {text}")).turn.after;
    assert_eq!(of("12"), [after(12, EndOf::Success)]);
    assert_eq!(of("12:any"), [after(12, EndOf::Any)]);
    assert_eq!(of("{job: 12, end: failure}"), [after(12, EndOf::Failure)]);
    assert_eq!(of("[{job: 12}]"), of("12"));
    let many: Vec<String> = (1..=1_001).map(|job: u64| job.to_string()).collect();
    let error = read(&format!("after: [{}]", many.join(", "))).unwrap_err();
    assert!(error.to_string().contains("at most 1000"), "{error}");
}

#[test]
fn flags_say_the_same_as_files_and_win() {
    let by_flags = flags(
        |f| {
            f.class = Some("serving".to_owned());
            f.hold = true;
            f.after = ["12", "13:any", "14:failure"].map(str::to_owned).to_vec();
            f.begin = Some("+2h".to_owned());
            f.deadline = Some("1970-01-02T00:00Z".to_owned());
            f.array = Some("3%2".to_owned());
            f.preempt = Some("cancel".to_owned());
            f.spot = true;
        },
        "after: 99\narray: 7\nclass: research\ncheckpoint: {dir: /ckpt, shared: false}\nranks: 8\nelastic: {min: 4, max: 16}",
    );
    assert_eq!(by_flags, job(FULL));
}

#[test]
fn tasks_share_one_description_and_have_numbers() {
    let of = |text: &str| {
        let job = job(&format!("array: {text}"));
        assert_eq!(job.gangs.len(), 1, "{text}");
        let array = job.turn.array.clone().unwrap();
        let last = job.task_number(job.gang_count() - 1).unwrap();
        (array.tasks.to_string(), job.gang_count(), last, array.running_max)
    };
    assert_eq!(of("3"), ("0-2".to_owned(), 3, 2, None));
    assert_eq!(of("100000%32"), ("0-99999".to_owned(), 100_000, 99_999, Some(32)));
    assert_eq!(of("1-100:3"), ("1-100:3".to_owned(), 34, 100, None));
    assert_eq!(of("1,4,7-9%2"), ("1-7:3,8-9".to_owned(), 5, 9, Some(2)));
    assert_eq!(of("7-7"), ("7".to_owned(), 1, 7, None));
    assert_eq!(of("{tasks: \"1-9:4\", max_running: 2}"), ("1-9:4".to_owned(), 3, 9, Some(2)));
    assert_eq!(of("{tasks: 5}"), ("5".to_owned(), 1, 5, None));
    assert_eq!(of("{size: 5}").1, 5);
    let bytes = serde_json::to_vec(&job("array: 100000%32")).unwrap().len();
    assert!(bytes < 4_096, "{bytes} bytes");
}

/// Journals of older versions have a description for each task, and no numbers.
#[test]
fn an_array_of_an_older_version_is_read() {
    let mut old = serde_json::to_value(job("array: 3%2")).unwrap();
    old["gangs"] = vec![old["gangs"][0].clone(); 3].into();
    old["turn"]["array"] = serde_json::json!({ "running_max": 2 });
    let old: Job = serde_json::from_value(old).unwrap();
    let array = old.turn.array.clone().unwrap();
    assert_eq!((array.running_max, old.gang_count(), old.task_number(2)), (Some(2), 3, Some(2)));
    assert_eq!((old.task_number(3), old.gang_at(2)), (None, old.gangs.get(2)));
}

/// A listing of a hundred thousand pending tasks is short, and one of a few different gangs is as it always was.
#[test]
fn equal_records_are_written_once() {
    use phalanx_model::{GangRecord, Input};
    let job = job("array: 100000%32");
    let mut gangs: Vec<GangRecord> = job.gang_ids().map(|id| GangRecord::pending(id, Timestamp(7))).collect();
    gangs[3].attempt = 2;
    let all = Input::JobObserved { job: Box::new(job.clone()), gangs: gangs.clone() };
    let text = serde_json::to_string(&all).unwrap();
    assert!(text.len() < 8_192, "{} bytes", text.len());
    assert_eq!(serde_json::from_str::<Input>(&text).unwrap(), all);
    for wrong in [text.replace("[3,1,99996]", "[3,1]"), text.replace("99996", "4294967295")] {
        assert_ne!(wrong, text);
        assert!(serde_json::from_str::<Input>(&wrong).is_err());
    }
    let few = Input::JobObserved { job: Box::new(job), gangs: gangs[3..5].to_vec() };
    let written = serde_json::to_value(&few).unwrap();
    assert_eq!(written["job_observed"]["gangs"], serde_json::to_value(&gangs[3..5]).unwrap());
    assert_eq!(serde_json::from_value::<Input>(written).unwrap(), few);
}

#[test]
fn arrays_that_cannot_be_read_say_why() {
    for (text, what) in [
        ("9-3", "the range 9-3 runs backwards"),
        ("1-9:0", "the range 1-9:0 has the step 0"),
        ("1-5,4", "task 4 is named twice"),
        ("1,x", "\"x\" is no number of a task"),
        ("0-100000", "more than 100000 tasks"),
        ("100001", "100001 tasks"),
        ("{max_running: 2}", "an array needs either `size` or `tasks`"),
        ("{size: 2, tasks: 3-4}", "an array needs either `size` or `tasks`"),
    ] {
        let error = read(&format!("array: {text}")).unwrap_err().to_string();
        assert!(error.contains(what), "{text}: {error}");
    }
    let error = read("array: 20000\nranks: 2\nelastic: {min: 1}").unwrap_err().to_string();
    assert!(error.contains("20000 tasks that change their size"), "{error}");
}

#[test]
fn elastic_sizes_are_ranks_and_become_members() {
    let sizes = |text: &str| {
        let gang = job(text).gangs.remove(0);
        (gang.min, gang.size, gang.max)
    };
    assert_eq!(sizes("resources: {gpus: 8}\nelastic: {min: 2}"), (2, 8, 8));
    assert_eq!(sizes("resources: {gpus: 8}\nelastic: {max: 12}"), (8, 8, 12));
    assert_eq!(sizes("nodes: 2\nresources: {gpus: 8}\nelastic: {min: 8, max: 32}"), (8, 16, 32));
    // A member is a launcher, with eight ranks.
    let torchrun = "launch: torchrun\nnodes: 4\nresources: {gpus: 8}\nelastic: {min: 16, max: 64}";
    assert_eq!(sizes(torchrun), (2, 4, 8));
    // Or the one process of a node.
    assert_eq!(sizes("launch: jax\nnodes: 4\nresources: {gpus: 8}\nelastic: {min: 1}"), (1, 4, 4));
    // Each of an array's tasks by itself.
    assert_eq!(sizes("array: 3\nranks: 4\nelastic: {min: 2}"), (2, 4, 4));
    let error = read("ranks: 4\nelastic: {}").unwrap_err();
    assert!(error.what().contains("says nothing"), "{error}");
}

const SERVICE: &str = "
service: {replicas: {min: 1, max: 4}, target: {metric: tokens, value: 0.7, settle: 1m}, spread: node, surge: 2}
resources: {gpus: 2}";

#[test]
fn a_service_has_a_gang_for_each_replica_and_restarts_them() {
    let job = job(SERVICE);
    let target = Target { settle_ms: 60_000, ..Target::new("tokens", 700) };
    let spread = Some(LevelName::new("node").unwrap());
    let service = Replicas { min: 1, target: Some(target), spread, surge: 2, numbers: Vec::new() };
    assert_eq!((job.gangs.len(), service.most(job.gang_count())), (6, 4));
    assert_eq!(job.turn.service, Some(service));
    assert!(job.gangs.iter().all(|gang| *gang == job.gangs[0]));
    assert_eq!((job.policy.retry.max, job.policy.retry.on.len()), (u32::MAX, FailureClass::ALL.len()));
    let own = self::job("service: {replicas: 2}\nretry: {max: 3, on: [node]}");
    assert_eq!((own.policy.retry.max, own.policy.retry.on), (3, vec![FailureClass::Node]));
    assert_eq!(own.turn.service, Some(Replicas { min: 2, ..Replicas::default() }));

    let yaml = JobFile::from_yaml(&format!("{SERVICE}\nrun: x\n"), "job.yaml").unwrap().to_yaml().unwrap();
    let again = JobFile::from_yaml(&yaml, "again.yaml").and_then(|file| file.into_job(context()));
    assert_eq!(again.unwrap_or_else(|error| panic!("{yaml}\n{error}")).turn, job.turn, "{yaml}");
}

#[test]
fn services_that_make_no_sense_are_refused_where_they_say_so() {
    for (text, what) in [
        ("service: {replicas: {min: 3, max: 2}}", "more than there may be"),
        ("service: {replicas: 2000}", "2000 replicas"),
        ("service: {replicas: 0}", "\"0\""),
        ("service: {replicas: 998, surge: 3}", "3 replicas more"),
        ("service: {replicas: 2, target: {metric: x, value: 0}}", "less than a thousandth"),
        ("service: {replicas: 2, target: {metric: '', value: 1}}", "a name of 0 bytes"),
        ("service: {replicas: 2}\narray: 3", "runs until it is cancelled"),
        ("service: {replicas: 2}\ndeadline: +1h", "runs until it is cancelled"),
        ("service: {replicas: 2}\nsession: {idle: 1h}", "runs until it is cancelled"),
        ("service: {}", "replicas"),
        ("session: {}", "idle"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.to_string().contains(what), "{text}: {error}");
    }
}

#[test]
fn a_session_says_how_long_it_may_be_idle() {
    assert_eq!(job("session: {idle: 30m}").policy.idle_limit_ms, Some(1_800_000));
}
