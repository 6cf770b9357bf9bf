//! How gangs get on, as their ranks tell it: steps, a rank that is slower than the others, and how often to save.

use std::fs;

use phalanx_api::protocol::ProgressView;
use phalanx_model::JobId;

use crate::support::{Bench, NODE_OF_8, env, eventually, gang, shell, until};

/// Each rank counts steps; what it says of its work is written here, so that no clock decides.
const COUNTS: &str = r#"
step=0 work=400ms
[ "$PHALANX_RANK" = 3 ] && work=700ms
while sleep 0.2; do
    step=$((step + 1))
    [ -e "$OUT/even" ] && work=400ms
    if [ -e "$OUT/garbled" ]; then echo "epoch 7"; else echo "step=$step of=1000000 work=$work saved=5s"; fi > "$PHALANX_PROGRESS"
done
"#;

fn progress(bench: &Bench, job: JobId) -> Option<ProgressView> {
    bench.get(job).gangs[0].progress.clone()
}

#[test]
fn ranks_tell_how_far_they_are_which_is_slower_and_are_told_how_often_to_save() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let mut job = shell(4, COUNTS);
    let out = bench.path("out");
    fs::create_dir(&out).unwrap();
    gang(&mut job).program.env = env(&[("OUT", out.to_str().unwrap())]);
    let job = bench.submit(job);
    bench.await_state(job, "running");
    let slow = eventually("a straggler", || progress(&bench, job).filter(|told| !told.stragglers.is_empty()));
    let [straggler] = slow.stragglers[..] else { panic!("{slow:?}") };
    assert_eq!((straggler.rank, straggler.work_us, straggler.median_us), (3, 700_000, 400_000));
    assert_eq!((slow.of, slow.unread), (Some(1_000_000), None));
    until("its speed", || {
        progress(&bench, job).is_some_and(|told| told.step_us.is_some() && told.ends_at.is_some())
    });
    let event = || bench.get(job).events.into_iter().find(|event| event.what == "straggler");
    let event = eventually("an event", event);
    assert_eq!(event.detail, "rank 3 on n1 works 700 ms on a step, the median of its gang is 400 ms");

    // One node is lost in 264 days before anything else is known, and 5 s of writing are worth an interval of 4 hours.
    let advice = eventually("an advice", || progress(&bench, job)?.checkpoint);
    assert_eq!((advice.takes_ms, advice.loss_every_ms / 3_600_000), (5_000, 264 * 24));
    assert_eq!(advice.every_ms / 60_000, 251);
    let file = bench.member(job, 1, 0).parent().unwrap().join("checkpoint_every");
    assert_eq!(fs::read_to_string(file).unwrap(), format!("{}\n", advice.every_ms.div_ceil(1_000)));

    // Another daemon reads the same files.
    let before = progress(&bench, job).unwrap().step;
    bench.kill();
    bench.up();
    eventually("progress", || {
        progress(&bench, job).filter(|told| told.step > before && !told.stragglers.is_empty())
    });

    fs::write(out.join("even"), "").unwrap();
    until("no straggler", || progress(&bench, job).is_some_and(|told| told.stragglers.is_empty()));
    until("an event", || bench.get(job).events.iter().any(|event| event.what == "straggler no more"));
    fs::write(out.join("garbled"), "").unwrap();
    let unread = eventually("what cannot be read", || progress(&bench, job)?.unread);
    assert!(
        unread.starts_with("rank ") && unread.ends_with(": it has no step=NUMBER: \"epoch 7\""),
        "{unread}"
    );
    bench.cancel(job);
    assert_eq!(bench.ended(job).gangs[0].progress, None);
}
