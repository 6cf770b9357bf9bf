//! An elastic job: it starts with what fits, gives ranks to one that waits, takes them back when nobody does, and loses no
//! step over it.

use std::fs;

use phalanx_api::protocol::{Answer, ElasticView, GangView, JobRef, News, Verb};
use phalanx_model::{Job, JobId};

use crate::support::{Bench, NODE_OF_8, gang, number, refused, shell, until};

/// Eight ranks with a GPU each, or as few as two. Rank 0 counts steps for all; where a file `go` lies it saves, and tells a
/// boundary. Every rank writes which of how many it is.
fn training(bench: &Bench) -> Job {
    let script = "
        cd $PHALANX_CKPT_DIR
        echo $PHALANX_ATTEMPT: $PHALANX_RANK of $WORLD_SIZE >> ranks
        [ $PHALANX_RANK = 0 ] || exec sleep 1000
        n=$(cat step 2>/dev/null || echo 0); echo resumed=$n; echo resume=$PHALANX_RESUME
        while true; do
          sleep 0.05; n=$((n + 1)); echo $n > reached
          if [ -e go ]; then
            rm go; echo $n > step
            echo \"{\\\"tell\\\": {\\\"job\\\": {\\\"id\\\": $PHALANX_JOB_ID}, \\\"gang\\\": 0, \\\"news\\\": \\\"boundary\\\"}}\" |
              $PHALANX_EXE ask $PHALANX_STATE/phalanx.sock
          fi
        done";
    let mut job = shell(8, script);
    let gang = gang(&mut job);
    (gang.min, gang.needs.devices) = (2, 1);
    gang.program.checkpoint_dir = Some(bench.path("").display().to_string());
    job
}

fn only_gang(bench: &Bench, id: JobId) -> (GangView, ElasticView) {
    let gang = bench.get(id).gangs.remove(0);
    let sizes = gang.elastic.clone().unwrap();
    (gang, sizes)
}

/// It has as many ranks as that, they run, and each was told how many there are.
fn await_size(bench: &Bench, id: JobId, attempt: u32, size: u32) {
    until(&format!("{size} ranks"), || {
        let view = bench.get(id);
        let gang = &view.gangs[0];
        view.state == "running" && (gang.attempt, gang.size) == (attempt, size)
    });
    let all: Vec<String> = (0..size).map(|rank| format!("{attempt}: {rank} of {size}")).collect();
    let told = || {
        let of_attempt = |line: &String| line.starts_with(&format!("{attempt}: "));
        bench.lines("ranks").into_iter().filter(of_attempt).collect::<Vec<_>>()
    };
    until("the word of all ranks", || told() == all);
    assert_eq!(only_gang(bench, id).0.members.len(), size as usize);
}

/// The ranks reach a boundary.
fn boundary(bench: &Bench, id: JobId) {
    let before = only_gang(bench, id).0.checkpointed_at;
    fs::write(bench.path("go"), "").unwrap();
    until("the boundary", || only_gang(bench, id).0.checkpointed_at > before);
}

/// It went on from where it saved.
fn assert_resumed(bench: &Bench, id: JobId) {
    until("the first rank's word", || bench.said(id).contains_key("resume"));
    let (said, saved) = (bench.said(id), number(bench, "step").to_string());
    assert_eq!((said["resumed"].as_str(), said["resume"].as_str()), (saved.as_str(), "1"));
}

#[test]
fn a_job_shrinks_for_one_that_waits_and_grows_back_and_loses_nothing() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let of_gpus = |gpus| {
        let mut job = shell(1, "exec sleep 1000");
        gang(&mut job).needs.devices = gpus;
        job
    };
    let filler = bench.submit(of_gpus(4));
    bench.await_state(filler, "running");
    let id = bench.submit(training(&bench));
    await_size(&bench, id, 1, 4);

    // Nothing is free at its first boundary; from there on it is known that it has some.
    boundary(&bench, id);
    await_size(&bench, id, 1, 4);
    let waits = bench.submit(of_gpus(2));
    until("what is asked of it", || only_gang(&bench, id).1.resize.is_some());
    let resize = only_gang(&bench, id).1.resize.unwrap();
    assert_eq!((resize.size, resize.by), (2, Some(waits.gang(0))));
    assert_eq!(bench.get(waits).reason, "Preempting");
    let wish = |size| bench.ask(Verb::Resize { job: JobRef::Id(id), size: Some(size) });
    assert!(refused(wish(4)).message.contains("the gang shrinks for gang"));

    // A daemon that is killed knows what it asked for.
    bench.kill();
    bench.up();
    assert_eq!(only_gang(&bench, id).1.resize, Some(resize));
    boundary(&bench, id);
    bench.await_state(waits, "running");
    await_size(&bench, id, 2, 2);
    assert_resumed(&bench, id);

    bench.cancel(waits);
    bench.cancel(filler);
    bench.ended(filler);
    bench.ended(waits);
    boundary(&bench, id);
    await_size(&bench, id, 3, 8);
    assert_resumed(&bench, id);
    let view = bench.get(id);
    assert_eq!((view.gangs[0].evictions, view.gangs[0].failures), (0, 0), "{view:#?}");
    let events: Vec<String> = view.events.iter().map(|e| format!("{}: {}", e.what, e.detail)).collect();
    for line in [
        format!("resize: to 2 members at its next boundary, for job {waits} (test)"),
        "stopping: restarts with 2 members".to_owned(),
        "reserved: n1; kept until the gang restarts".to_owned(),
        "resize: to 8 members: no pending gang needs the free devices".to_owned(),
    ] {
        assert!(events.contains(&line), "{line} is not in {events:#?}");
    }
    bench.cancel(id);
    bench.await_nobody();
}

#[test]
fn a_user_asks_for_another_size() {
    let bench = Bench::up_with(NODE_OF_8);
    let id = bench.submit(training(&bench));
    await_size(&bench, id, 1, 8);
    let resize = |size| Verb::Resize { job: JobRef::Id(id), size: Some(size) };
    let done = bench.done(resize(3));
    assert!(done.starts_with(&format!("job {id} is to have 3 members from its next boundary on")), "{done}");
    assert_eq!(only_gang(&bench, id).1.resize.unwrap().size, 3);
    for size in [1, 9] {
        let message = refused(bench.ask(resize(size))).message;
        assert!(message.contains(&format!("{size} is not within 2 to 8")), "{message}");
    }
    boundary(&bench, id);
    await_size(&bench, id, 2, 3);
    assert_resumed(&bench, id);

    // Nobody waits, and it keeps to what the user said, until that is taken back.
    boundary(&bench, id);
    await_size(&bench, id, 2, 3);
    assert_eq!(only_gang(&bench, id).1.grows_to, Some(3));
    bench.done(Verb::Resize { job: JobRef::Id(id), size: None });
    boundary(&bench, id);
    await_size(&bench, id, 3, 8);

    let fixed = bench.submit(shell(1, "exec sleep 1000"));
    bench.await_state(fixed, "running");
    let refusal = refused(bench.ask(Verb::Resize { job: JobRef::Id(fixed), size: Some(1) }));
    assert!(refusal.message.contains("one size only") && refusal.hint.contains("elastic"), "{refusal:?}");
    bench.cancel(id);
    bench.ended(id);
    assert!(refused(bench.ask(resize(4))).message.contains("has ended"));
    let told = Verb::Tell { job: JobRef::Id(fixed), gang: 0, news: News::Boundary };
    assert!(matches!(bench.ask(told), Ok(Answer::Done { .. })), "of one size it is a checkpoint");
    bench.cancel(fixed);
}
