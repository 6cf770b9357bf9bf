//! Arrays: many tasks in one submission, which are addressed by their numbers.

use std::time::Instant;

use phalanx_api::client::ask;
use phalanx_api::protocol::{Answer, ArrayView, JobFilter, JobRef, JobView, LogAsk, Verb};
use phalanx_model::{Array, Ending, Job, JobId, JobUpdate, Phase, Tasks};

use crate::support::{Bench, NODE_OF_8, eventually, refused, shell};

fn array(tasks: &str, running_max: u32, script: &str) -> Job {
    let mut job = shell(1, script);
    job.turn.array = Some(Array { tasks: Tasks::read(tasks).unwrap(), running_max: Some(running_max) });
    job
}

fn task(id: JobId, tasks: &str) -> JobRef {
    JobRef::parse(&format!("{id}.{tasks}"))
}

fn get(bench: &Bench, job: JobRef) -> JobView {
    match bench.ask(Verb::Get { job }) {
        Ok(Answer::Job(view)) => *view,
        other => panic!("{other:?}"),
    }
}

fn array_of(view: &JobView) -> ArrayView {
    *view.array.clone().unwrap()
}

fn lines(bench: &Bench, job: JobRef) -> Vec<(Option<u32>, String)> {
    let verb = Verb::Logs { job, ask: LogAsk::default() };
    let line = |answer| match answer {
        Ok(Answer::Log { task, line, .. }) => Some((task, line)),
        Ok(Answer::End) => None,
        other => panic!("{other:?}"),
    };
    ask(&bench.paths.socket(), verb).unwrap().filter_map(line).collect()
}

#[test]
fn tasks_are_addressed_by_their_numbers() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let script = "echo $PHALANX_ARRAY_INDEX/$PHALANX_ARRAY_SIZE: $PHALANX_ARRAY_MIN-$PHALANX_ARRAY_MAX:$PHALANX_ARRAY_STEP
                  [ $PHALANX_ARRAY_INDEX != 4 ] || exit 3";
    let id = bench.submit(array("1-10:3", 2, script));
    let ended = bench.ended(id);
    assert_eq!((ended.state.as_str(), ended.exit_code), ("failed", Some(3)));
    let all = array_of(&ended);
    assert_eq!((all.tasks, all.progress.succeeded, all.progress.failed, all.left_out), (4, 3, 1, 0));
    assert_eq!(ended.gangs.iter().map(|gang| gang.task.unwrap()).collect::<Vec<_>>(), [1, 4, 7, 10]);

    let of_all = lines(&bench, JobRef::Id(id));
    let said = |number: u32| (Some(number), format!("{number}/4: 1-10:3"));
    assert_eq!(of_all, [said(1), said(4), said(7), said(10)]);
    assert_eq!(lines(&bench, task(id, "7")), [said(7)]);
    assert_eq!(lines(&bench, task(id, "4-7:3")), [said(4), said(7)]);
    let one = get(&bench, task(id, "4"));
    let [gang] = one.gangs.as_slice() else { panic!("{one:#?}") };
    let Some(Phase::Finished { ending: Ending::Failed { code: Some(3), .. }, .. }) = gang.phase else {
        panic!("{gang:#?}")
    };
    let events: Vec<String> = one.events.iter().map(|e| format!("{} {}", e.what, e.detail)).collect();
    assert!(events.contains(&"succeeded task 7".to_owned()), "{events:#?}");
    assert!(events.iter().any(|event| event.starts_with("failed task 4: ")), "{events:#?}");
    assert!(events.contains(&"running task 10: attempt 1".to_owned()), "{events:#?}");

    let error = refused(bench.ask(Verb::Get { job: task(id, "5") }));
    assert_eq!(
        (error.message, error.hint),
        (format!("job {id} has no task 5"), "its tasks are 1-10:3".into())
    );
    let plain = bench.submit(shell(1, "true"));
    let error = refused(bench.ask(Verb::Cancel { job: task(plain, "1") }));
    assert_eq!(error.message, format!("job {plain} is not an array and has no tasks"));

    bench.down();
    bench.up();
    assert_eq!(array_of(&get(&bench, JobRef::Id(id))).progress, all.progress);
    assert_eq!(lines(&bench, task(id, "10")), [said(10)]);
}

/// As many ranks as this were refused.
#[test]
fn more_tasks_than_a_job_may_have_ranks_run_a_few_at_once() {
    let bench = Bench::up_with(NODE_OF_8);
    let mut job = array("0-1099", 8, "true");
    job.gangs[0].program.argv = vec!["/bin/true".to_owned()];
    let begun = Instant::now();
    let id = bench.submit(job);
    eventually("the end of many", || (array_of(&bench.get(id)).progress.succeeded >= 100).then_some(()));
    println!("100 tasks of `true`, 8 at once: {:?}", begun.elapsed());
    bench.cancel(id);
    let progress = array_of(&bench.ended(id)).progress;
    assert_eq!(progress.succeeded + progress.failed, 1_100);
}

#[test]
fn a_hundred_thousand_tasks_are_submitted_listed_addressed_and_cancelled() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let timed = |what: &str, begun: Instant| println!("{what}: {:?}", begun.elapsed());
    let begun = Instant::now();
    let id = bench.submit(array("0-99999", 4, "echo $PHALANX_ARRAY_INDEX; exec sleep 1000"));
    timed("submission", begun);
    eventually("four tasks", || (array_of(&bench.get(id)).progress.running == 4).then_some(()));

    let begun = Instant::now();
    let Ok(Answer::Jobs(jobs)) =
        bench.ask(Verb::List { finished: false, filter: JobFilter::default(), limit: 100 })
    else {
        panic!("no list")
    };
    timed("list", begun);
    let [listed] = jobs.as_slice() else { panic!("{} jobs", jobs.len()) };
    let all = array_of(listed);
    assert_eq!((listed.state.as_str(), all.tasks, all.progress.pending), ("running", 100_000, 99_996));
    assert!(serde_json::to_vec(&jobs).unwrap().len() < 32_768);

    let begun = Instant::now();
    let view = bench.get(id);
    timed("get", begun);
    assert_eq!((view.gangs.len(), array_of(&view).left_out), (64, 99_936));
    assert!(serde_json::to_vec(&view).unwrap().len() < 131_072);
    let begun = Instant::now();
    let Ok(Answer::Why(why)) = bench.ask(Verb::Why { job: task(id, "77777") }) else { panic!("no answer") };
    timed("why", begun);
    let [report] = why.reports.as_slice() else { panic!("{:?}", why.reports) };
    assert_eq!((report.gang.index, report.reason.word()), (77_777, "ArrayLimit"));

    let begun = Instant::now();
    assert_eq!(
        bench.done(Verb::Cancel { job: task(id, "2") }),
        format!("task 2 of job {id} is being cancelled")
    );
    let next = eventually("the next task", || {
        let view = get(&bench, task(id, "4"));
        matches!(view.gangs[0].phase, Some(Phase::Running { .. })).then_some(view)
    });
    timed("cancel of one task, and the start of the next", begun);
    assert_eq!(array_of(&next).progress.failed, 1);
    assert_eq!(lines(&bench, task(id, "4")), [(Some(4), "4".to_owned())]);
    bench.done(Verb::Cancel { job: task(id, "10-19,50000") });
    let counted = array_of(&bench.get(id)).progress;
    assert_eq!((counted.failed, counted.pending), (12, 99_984));

    let begun = Instant::now();
    bench.down();
    bench.up();
    timed("restart", begun);
    assert_eq!(array_of(&bench.get(id)).progress.pending, 99_984);

    let begun = Instant::now();
    bench.cancel(id);
    timed("cancel", begun);
    let ended = bench.ended(id);
    timed("its end", begun);
    assert_eq!((ended.state.as_str(), array_of(&ended).progress.failed), ("cancelled", 100_000));
    let told = ended.events.iter().find(|event| event.detail.starts_with("99984 tasks"));
    assert_eq!(told.unwrap().what, "cancelled");
    bench.await_nobody();
}

/// A hold of one task held all of its job.
#[test]
fn what_is_for_whole_jobs_is_not_done_for_a_task() {
    let bench = Bench::up_with(NODE_OF_8);
    let id = bench.submit(array("1-4", 1, "exec sleep 1000"));
    bench.await_state(id, "running");
    let update = JobUpdate { priority: Some(-1), ..JobUpdate::default() };
    let one = || task(id, "3");
    for verb in [
        Verb::Hold { job: one() },
        Verb::Release { job: one() },
        Verb::Boost { job: one(), boost: None },
        Verb::Update { job: one(), update },
        Verb::Requeue { job: one(), hold: true },
        Verb::Scale { job: one(), replicas: Some(1) },
    ] {
        let refusal = refused(bench.ask(verb));
        assert!(refusal.message.contains("is a part of job"), "{refusal:?}");
    }
    assert_eq!(get(&bench, JobRef::Id(id)).state, "running");
    bench.cancel(id);
    bench.await_nobody();
}
