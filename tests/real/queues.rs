//! Two teams on one node: one borrows, the other takes back what is its own, and work is lost since the last checkpoint
//! at most. Everything of it can be seen.

use std::fs;

use phalanx_api::protocol::{
    Answer, BoostAsk, ErrorCode, HistoryView, JobFilter, JobRef, JobView, News, QueueView, Verb,
};
use phalanx_model::{
    Advisory, Amounts, ClassName, Job, JobId, JobUpdate, PreemptionRule, Queue, QueueName, Resource,
};

use crate::story::settings;
use crate::support::{
    Bench, NOBODY, NODE_OF_8, TRAINER_EVERY, env, gang, is_root, number, refused, shell, trainer, until,
};

fn name(text: &str) -> QueueName {
    QueueName::new(text).unwrap()
}

/// Four GPUs are each team's own.
fn apply(bench: &Bench) {
    let queue = |text: &str| Queue {
        guaranteed: Amounts::from([(Resource::Gpus, 4_000)]),
        ..Queue::named(name(text))
    };
    let settings = Box::new(settings());
    bench.done(Verb::ApplyQueues { settings, queues: vec![queue("speech"), queue("vision")] });
}

/// Trains in steps on one GPU per rank, and saves at once on SIGUSR1.
fn training(bench: &Bench, queue: &str, size: u32, steps: u32) -> Job {
    let mut job = trainer(&bench.path(queue), size, steps);
    job.queue = name(queue);
    gang(&mut job).needs.devices = 1;
    let signal = nix::sys::signal::Signal::SIGUSR1 as i32;
    job.policy.stop.advisory = Some(Advisory { signal, lead_ms: 300 });
    job
}

fn queues(bench: &Bench) -> Vec<QueueView> {
    match bench.ask(Verb::Queues) {
        Ok(Answer::Queues(queues)) => queues,
        other => panic!("{other:?}"),
    }
}

/// What a queue uses of GPUs, in thousandths.
fn used(bench: &Bench, queue: &str) -> u64 {
    let queues = queues(bench);
    let report = queues.iter().find(|q| q.name == queue).unwrap().report.as_ref().unwrap();
    report.resources.iter().find(|good| good.resource == Resource::Gpus).map_or(0, |good| good.used)
}

fn history(bench: &Bench, job: Option<JobId>) -> Vec<HistoryView> {
    match bench.ask(Verb::History { job: job.map(JobRef::Id), limit: 1_000 }) {
        Ok(Answer::History(events)) => events,
        other => panic!("{other:?}"),
    }
}

/// Who was evicted, for whom and by which rule, as `ps`, `why` and `history` say it.
fn assert_evicted_for(bench: &Bench, view: &JobView, by: JobId) {
    let gang = &view.gangs[0];
    let evicted = gang.evicted.as_ref().unwrap();
    assert_eq!((gang.evictions, evicted.by), (1, by.gang(0)), "{view:#?}");
    let is_of_queues = match &evicted.rule {
        PreemptionRule::Guarantee { queue, borrower } | PreemptionRule::FairShare { queue, borrower } => {
            (queue.as_str(), borrower.as_str()) == ("vision", "speech")
        }
        PreemptionRule::Class { .. } | PreemptionRule::LessServed { .. } | PreemptionRule::Spare => false,
    };
    assert!(is_of_queues, "{evicted:?}");
    let Ok(Answer::Jobs(jobs)) =
        bench.ask(Verb::List { finished: false, filter: JobFilter::default(), limit: 10 })
    else {
        panic!()
    };
    let listed = jobs.iter().find(|job| job.id == view.id).unwrap();
    assert_eq!((listed.state.as_str(), listed.gangs[0].evictions), ("pending", 1));
    let Ok(Answer::Why(why)) = bench.ask(Verb::Why { job: JobRef::Id(view.id) }) else { panic!() };
    assert_eq!(why.job.gangs[0].evicted.as_ref(), Some(evicted));
    assert_eq!(why.reports[0].reason.word(), listed.reason);
    let events = history(bench, Some(view.id));
    let event = events.iter().find(|e| e.event.what == "preempted").unwrap();
    let sentence = format!("preempted by job {by} (test): vision reclaimed");
    assert!(event.event.detail.starts_with(&sentence), "{event:?}");
    let waits = format!("waiting for these jobs to leave: job {} (test)", view.id);
    let told = history(bench, Some(by));
    assert!(told.iter().any(|e| e.event.what == "pending" && e.event.detail.ends_with(&waits)), "{told:#?}");
    let record = &event.event.record.as_ref().unwrap()["gang_stopping"]["cause"]["preempted"];
    assert_eq!(*record, serde_json::to_value(evicted).unwrap());
    assert!(history(bench, None).iter().any(|e| e == event), "of all jobs too");
}

#[test]
fn a_team_takes_back_what_is_its_own_and_the_other_resumes_where_it_saved() {
    let mut bench = Bench::up_with(NODE_OF_8);
    apply(&bench);
    let speech = bench.submit(training(&bench, "speech", 8, 100));
    let before = bench.await_state(speech, "running");
    until("a checkpoint", || number(&bench, "speech/step") >= TRAINER_EVERY);
    assert_eq!(used(&bench, "speech"), 8_000, "borrows what nobody uses");

    let vision = bench.submit(training(&bench, "vision", 4, 1_000_000));
    bench.await_state(vision, "running");
    let view = bench.await_state(speech, "pending");
    assert_evicted_for(&bench, &view, vision);
    assert_eq!((used(&bench, "vision"), used(&bench, "speech")), (4_000, 0));
    let reserved = history(&bench, Some(vision)).into_iter().find(|e| e.event.what == "reserved");
    assert!(reserved.is_some_and(|e| e.event.record.unwrap()["gang_reserved"]["reserved"]["evicts"] == true));
    assert_eq!(view.submitted_at, before.submitted_at, "its old place of the line");

    // It was told when SIGTERM comes: the lead of its advice after it was evicted.
    let evicted_at = view.gangs[0].evicted.as_ref().unwrap().at.0 / 1_000;
    let told = number(&bench, "speech/told");
    assert!((evicted_at..=evicted_at + 2).contains(&told), "{told} after {evicted_at}");

    // A daemon that is killed knows all of it afterwards.
    bench.kill();
    bench.up();
    assert_evicted_for(&bench, &bench.get(speech), vision);
    assert_eq!(used(&bench, "vision"), 4_000);

    let (saved, reached) = (number(&bench, "speech/step"), number(&bench, "speech/reached"));
    assert!(reached.saturating_sub(saved) <= TRAINER_EVERY, "{reached} were done and {saved} saved");
    bench.cancel(vision);
    let ended = bench.ended(speech);
    assert_eq!((ended.state.as_str(), ended.gangs[0].attempt), ("succeeded", 2));
    let said = bench.said(speech);
    assert_eq!((said["resumed"].as_str(), said["resume"].as_str()), (saved.to_string().as_str(), "1"));
    bench.await_nobody();
}

/// With queues as the journal has them, and without a word of the user's.
#[test]
fn queues_come_back_after_a_restart_and_a_file_wins() {
    let mut bench = Bench::up_with(NODE_OF_8);
    apply(&bench);
    bench.kill();
    bench.up();
    let names = |bench: &Bench| queues(bench).into_iter().map(|q| q.name).collect::<Vec<_>>();
    assert_eq!(names(&bench), ["speech", "vision"]);
    bench.down();
    let file = bench.path("queues.yaml");
    fs::write(&file, "queues: [{name: vision, limit: {gpus: 2}}, {name: default}]\n").unwrap();
    bench.up_with_queues(&file);
    assert_eq!(names(&bench), ["default", "vision"]);
    let Ok(Answer::Queue(one)) = bench.ask(Verb::Queue { queue: name("vision") }) else { panic!() };
    let limit = &one.queue.report.unwrap().queue.limit;
    assert_eq!(*limit, Amounts::from([(Resource::Gpus, 2_000)]));
    let missing = refused(bench.ask(Verb::Queue { queue: name("speech") }));
    assert!(missing.hint.contains("default, vision"), "{missing:?}");
}

#[test]
fn a_held_job_waits_a_released_one_goes_and_a_boost_is_in_its_history() {
    let bench = Bench::up_with(NODE_OF_8);
    let mut job = shell(1, "exec sleep 1000");
    job.turn.held_by = Some("client".to_owned());
    job.turn.class = Some(ClassName::new("research").unwrap());
    let id = bench.submit(job);
    assert_eq!((bench.get(id).reason.as_str(), bench.get(id).class.as_str()), ("Held", "research"));
    let job = || JobRef::Id(id);
    let boost = Some(BoostAsk { priority: 50, for_ms: 3_600_000 });
    bench.done(Verb::Boost { job: job(), boost });
    let view = bench.get(id);
    assert_eq!(view.job.as_ref().unwrap().turn.boost.as_ref().map(|b| b.priority), Some(50));
    let boosted = view.events.iter().find(|e| e.what == "boosted").unwrap();
    assert!(boosted.detail.starts_with("priority +50 for 1h by "), "{boosted:?}");
    let too_high = Some(BoostAsk { priority: 1_000_000, for_ms: 1_000 });
    refused(bench.ask(Verb::Boost { job: job(), boost: too_high }));
    bench.done(Verb::Release { job: job() });
    bench.await_state(id, "running");
    bench.done(Verb::Hold { job: job() });
    assert_eq!(bench.get(id).state, "running", "what runs goes on");
    bench.cancel(id);
}

/// What ranks say of themselves: over the socket, and by touching a file.
#[test]
fn ranks_tell_that_they_saved_their_work() {
    let bench = Bench::up_with(NODE_OF_8);
    let go = bench.path("go");
    let script = format!(
        "say() {{ echo \"{{\\\"tell\\\": {{\\\"job\\\": {{\\\"id\\\": $PHALANX_JOB_ID}}, \\\"gang\\\": 0, \\\"news\\\": \\\"$1\\\"}}}}\"; }}
         until [ -e {go} ]; do sleep 0.02; done; touch $PHALANX_CHECKPOINTED
         until [ -e {go}.2 ]; do sleep 0.02; done
         say checkpoint | $PHALANX_EXE ask $PHALANX_STATE/phalanx.sock; sleep 1000",
        go = go.display()
    );
    let id = bench.submit(shell(1, &script));
    bench.await_state(id, "running");
    let saved = || bench.get(id).gangs[0].checkpointed_at;
    assert_eq!(saved(), None, "a file that nobody touched says nothing");
    let tell = |news| bench.ask(Verb::Tell { job: JobRef::Id(id), gang: 0, news });
    tell(News::Checkpoint).unwrap();
    let told = saved().unwrap();
    // The time of a file is that of the kernel's last tick, which was up to 10 ms before.
    std::thread::sleep(std::time::Duration::from_millis(50));
    fs::write(&go, "").unwrap();
    until("the file's word", || saved().is_some_and(|at| at > told));
    let told = saved();
    std::thread::sleep(std::time::Duration::from_millis(2));
    fs::write(bench.path("go.2"), "").unwrap();
    until("the rank's own word", || saved() > told);
    tell(News::Metric { name: "queue_length".to_owned(), value_milli: 12_000 }).unwrap();
    let boundary = Verb::Tell { job: JobRef::Id(id), gang: 0, news: News::Boundary };
    assert!(bench.done(boundary).ends_with("keeps its size"), "it is not elastic");
    let bad = || News::Metric { name: "queue length".to_owned(), value_milli: 0 };
    assert!(refused(tell(bad())).message.contains("no name of a metric"));
    for n in 0..63 {
        tell(News::Metric { name: format!("m{n}"), value_milli: n }).unwrap();
    }
    let more = || News::Metric { name: "one-too-many".to_owned(), value_milli: 0 };
    assert!(refused(tell(more())).message.contains("64 metrics"));
    let absent = bench.ask(Verb::Tell { job: JobRef::Id(id), gang: 1, news: News::Checkpoint });
    assert!(refused(absent).message.contains("no gang 1"));
    bench.cancel(id);
    bench.ended(id);
    assert!(refused(tell(News::Checkpoint)).message.contains("does not run"));
}

/// What only operators and owners may say.
#[test]
fn others_have_no_say() {
    if !is_root("others_have_no_say") {
        return;
    }
    let bench = Bench::up_with(NODE_OF_8);
    let as_nobody = |verb: Verb| match bench.ask_as(NOBODY, &verb).pop().unwrap() {
        Answer::Error(error) => Err(error.code),
        answer => Ok(answer),
    };
    let forbidden = |verb| assert_eq!(as_nobody(verb).unwrap_err(), ErrorCode::Forbidden);
    let changed = |priority, time_limit_ms| JobUpdate { priority, time_limit_ms, queue: None };
    let others = bench.submit(shell(1, "exec sleep 1000"));
    bench.await_state(others, "running");
    let job = || JobRef::Id(others);
    let boost = Some(BoostAsk { priority: 1, for_ms: 1_000 });
    forbidden(Verb::ApplyQueues { settings: Box::default(), queues: Vec::new() });
    forbidden(Verb::Hold { job: job() });
    forbidden(Verb::Release { job: job() });
    forbidden(Verb::Tell { job: job(), gang: 0, news: News::Checkpoint });
    forbidden(Verb::Resize { job: job(), size: Some(1) });
    forbidden(Verb::Update { job: job(), update: changed(None, Some(1)) });
    forbidden(Verb::Requeue { job: job(), hold: true });

    // Of its own job it may, but for a boost; and its ranks may touch their file.
    let script = "touch $PHALANX_CHECKPOINTED; exec sleep 1000";
    let own = as_nobody(Verb::Submit { job: Box::new(shell(1, script)), secrets: env(&[]) });
    let Ok(Answer::Submitted { job: own, .. }) = own else { panic!("{own:?}") };
    bench.await_state(own, "running");
    until("the rank's word", || bench.get(own).gangs[0].checkpointed_at.is_some());
    as_nobody(Verb::Tell { job: JobRef::Id(own), gang: 0, news: News::Checkpoint }).unwrap();
    forbidden(Verb::Boost { job: JobRef::Id(own), boost });
    // Others wait for the end of a job that runs.
    as_nobody(Verb::Update { job: JobRef::Id(own), update: changed(None, Some(3_600_000)) }).unwrap();
    forbidden(Verb::Update { job: JobRef::Id(own), update: changed(None, Some(3_600_001)) });
    forbidden(Verb::Update { job: JobRef::Id(own), update: changed(Some(1), None) });
    as_nobody(Verb::Update { job: JobRef::Id(own), update: changed(Some(-1), None) }).unwrap();
    bench.cancel(others);
    bench.cancel(own);
}
