//! Arrays: tasks share one description, and each task lives by itself.

use phalanx_engine::{Config, Engine};
use phalanx_model::{
    Change, EndOf, Ending, Epoch, GangId, Input, Job, JobId, Outcome, Phase, Progress, SyncKind, Tasks,
};
use phalanx_testkit::{gang, job, levels, node};

use crate::world::{SECOND, World, octets};

fn phase(world: &World, task: u32) -> &'static str {
    world.watched.record(JobId(1).gang(task)).phase.word()
}

fn progress(world: &World) -> Progress {
    world.watched.engine.progress(JobId(1)).unwrap()
}

#[test]
fn a_few_tasks_run_at_once_and_each_ends_by_itself() {
    let mut world = World::new(&octets(1));
    world.submit_for(job(1, gang(1).devices(1)).array(40, Some(3)), SECOND);
    assert_eq!((progress(&world).running, progress(&world).pending), (3, 37));
    world.watched.restart();
    world.advance(5 * SECOND);
    assert_eq!((progress(&world).running, progress(&world).succeeded), (3, 15));
    world.advance(20 * SECOND);
    assert_eq!(progress(&world).succeeded, 40);
    assert_eq!(world.watched.engine.ending(JobId(1)), Some(&Ending::Succeeded));
    assert_eq!(progress(&world).ended_at, Some(phalanx_model::Timestamp(15 * SECOND)));
}

/// A size belongs to one task, and not to the description that the tasks share.
#[test]
fn a_task_that_shrinks_leaves_the_others_as_they_are() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(4).devices(1).elastic(2, 8)).array(2, None));
    let sizes = |world: &World| {
        let of = |task| {
            let id: GangId = JobId(1).gang(task);
            let job = world.watched.engine.job(JobId(1)).unwrap();
            (world.watched.record(id).members.len(), job.gang_at(task).unwrap().size)
        };
        [of(0), of(1)]
    };
    assert_eq!(sizes(&world), [(4, 4), (4, 4)]);
    let task = JobId(1).gang(1);
    world.tell(&[Input::GangResized { gang: task, size: Some(2) }]);
    world.tell(&[Input::BoundaryReached { gang: task, at: world.now() }]);
    world.advance(10 * SECOND);
    assert_eq!(sizes(&world), [(4, 4), (2, 2)]);
    world.watched.restart();
    assert_eq!(sizes(&world), [(4, 4), (2, 2)]);
    assert_eq!(world.successor().job(JobId(1)), world.watched.engine.job(JobId(1)));
}

#[test]
fn tasks_are_cancelled_by_their_numbers() {
    let mut world = World::new(&octets(1));
    let mut array = job(1, gang(1).devices(1)).array(4, Some(1));
    array = array.tasks(Tasks::read("1-10:3").unwrap());
    world.submit_for(array, SECOND);
    let cancel = |tasks: &str| Input::TasksCancelRequested {
        job: JobId(1),
        tasks: Tasks::read(tasks).unwrap(),
        by: "user".to_owned(),
    };
    // Task 5 does not exist.
    world.tell(&[cancel("4-7")]);
    let is_cancelled = |world: &World, task| {
        let record = world.watched.record(JobId(1).gang(task));
        matches!(&record.phase, Phase::Finished { ending: Ending::Cancelled { .. }, .. })
    };
    assert_eq!((phase(&world, 0), phase(&world, 3)), ("running", "pending"));
    assert!(is_cancelled(&world, 1) && is_cancelled(&world, 2));
    world.advance(5 * SECOND);
    assert_eq!((progress(&world).succeeded, progress(&world).failed), (2, 2));

    world.submit(job(2, gang(1).devices(1)));
    let refused = world.watched.step(&[Input::TasksCancelRequested {
        job: JobId(2),
        tasks: Tasks::one(0),
        by: "user".to_owned(),
    }]);
    let is_refused = |change: &Change| matches!(change, Change::InputRejected { why, .. } if why == "the job is not an array");
    assert!(refused.changes.iter().any(is_refused), "{:?}", refused.changes);
    assert_eq!(world.phase(2), "running");
}

#[test]
fn other_jobs_wait_for_the_whole_array() {
    let mut world = World::new(&octets(1));
    world.submit_for(job(1, gang(1).devices(1)).array(4, Some(2)), SECOND);
    world.submit(job(2, gang(1).devices(1)).after(1, EndOf::Success));
    world.submit(job(3, gang(1).devices(1)).after(1, EndOf::Any).array(3, None));
    world.submit(job(4, gang(1).devices(1)).after(1, EndOf::Failure));
    world.advance(SECOND);
    assert_eq!((progress(&world).succeeded, world.phase(2), world.phase(3)), (2, "pending", "pending"));
    world.advance(2 * SECOND);
    assert_eq!((world.phase(2), world.phase(3), world.phase(4)), ("running", "running", "dependency_failed"));
}

/// An array of 100,000 tasks is admitted once, and its reason is reported once.
#[test]
fn a_hundred_thousand_tasks_are_one_submission() {
    for running_max in [Some(32), None] {
        let mut engine = Engine::new(Epoch(1), Config::default());
        let mut facts = vec![
            Input::LevelsConfigured { levels: levels(&["cluster"]) },
            Input::SyncBegin { kind: SyncKind::Nodes },
        ];
        facts.extend((0..8).map(|at| Input::NodeObserved {
            node: Box::new(node(&format!("n{at}")).gpus(8).nvswitch().build()),
        }));
        facts.push(Input::SyncEnd { kind: SyncKind::Nodes });
        let mut out = Outcome::default();
        let mut now = phalanx_model::Timestamp(1);
        let _ = engine.step(now, &facts, &mut out);

        let mut step = |engine: &mut Engine, input: Input| {
            now = now.plus(1);
            let _ = engine.step(now, &[input], &mut out);
            (out.changes.len(), out.effects.len())
        };
        let array: Job = job(1, gang(1).devices(1)).array(100_000, running_max).build();
        let starts = running_max.map_or(64, |max| max as usize);
        let (changes, effects) = step(&mut engine, Input::JobSubmitted { job: Box::new(array) });
        assert_eq!((changes, effects), (starts + 2, starts));
        assert_eq!(engine.progress(JobId(1)).unwrap().pending, 100_000 - u32::try_from(starts).unwrap());

        let member = phalanx_model::MemberId { gang: JobId(1).gang(0), attempt: 1, rank: 0 };
        let _ = step(&mut engine, Input::MemberReady { member });
        let _ = step(&mut engine, Input::MemberReleased { member });
        let exit = phalanx_model::Exit::succeeded();
        let (changes, effects) = step(&mut engine, Input::MemberExited { member, exit });
        assert!(changes <= 4 && effects == 1, "{changes} changes, {effects} effects");

        let _ = step(&mut engine, Input::CancelRequested { job: JobId(1), by: "user".to_owned() });
        assert_eq!(engine.progress(JobId(1)).unwrap().pending, 0);
    }
}

/// Before, a job carried a description for each task.
#[test]
fn an_array_of_an_older_journal_is_read() {
    let mut old = job(1, gang(1).devices(1)).array(3, Some(2)).tasks(Tasks::default()).build();
    old.gangs = vec![old.gangs[0].clone(); 3];
    assert_eq!((old.gang_count(), old.task_number(2), old.task_index(2)), (3, Some(2), Some(2)));
    let mut world = World::new(&octets(1));
    world.tell(&[Input::JobSubmitted { job: Box::new(old) }]);
    assert_eq!((phase(&world, 0), phase(&world, 1), phase(&world, 2)), ("running", "running", "pending"));
    world.watched.restart();
}

#[test]
fn numbers_that_do_not_match_the_descriptions_are_refused() {
    let mut world = World::new(&octets(1));
    let mut array = job(1, gang(1).devices(1)).array(3, None).build();
    array.gangs = vec![array.gangs[0].clone(); 2];
    let out = world.watched.step(&[Input::JobSubmitted { job: Box::new(array) }]);
    let [Change::JobRejected { why, .. }] = out.changes.as_slice() else { panic!("{:?}", out.changes) };
    assert!(why.to_string().contains("3 tasks do not match 2 descriptions"), "{why}");
}
