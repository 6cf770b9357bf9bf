//! The check of GPUs before ranks start.

use phalanx_local::protocol::{Answer, HealthView, Verb};
use phalanx_model::{Grade, Job};

use crate::support::{Bench, TWO_NODES_OF_8, gang, shell, until};

/// Two declared nodes, and a daemon with this check.
fn checked_by(command: &str) -> Bench {
    let mut bench = Bench::new(TWO_NODES_OF_8);
    let folder = bench.path(".").display().to_string();
    let script = format!("FOLDER={folder} PHALANX_TEST_PREFLIGHT='{command}' exec \"$0\" \"$@\"");
    bench.up_by(Some(&script));
    bench
}

fn on_gpus(count: u32) -> Job {
    let mut job = shell(1, "exec sleep 1000");
    gang(&mut job).needs.devices = count;
    job
}

fn health(bench: &Bench) -> HealthView {
    match bench.ask(Verb::Health { node: None }) {
        Ok(Answer::Health(view)) => view,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_gang_whose_gpus_do_not_pass_starts_elsewhere_and_they_stay_closed() {
    // The GPUs that are checked first are bad.
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let command = format!(
        "gpus=\"$PHALANX_NODE $PHALANX_DEVICES\"; echo $gpus >> {at}/log; [ -e {at}/bad ] || echo $gpus > {at}/bad; \
         [ \"$gpus\" != \"$(cat {at}/bad)\" ] || {{ yes | head -c 1000000; echo all-reduce: 40 of 400 GB/s; exit 3; }}"
    );
    let bench = checked_by(&command);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let checks = || read("log").lines().map(str::to_owned).collect::<Vec<_>>();
    let gpus = |job| {
        let slot = bench.get(job).gangs[0].placement.as_ref().unwrap().slots[0].clone();
        format!("{} {}", slot.node, slot.devices)
    };
    let first = bench.submit(on_gpus(4));
    bench.await_state(first, "running");
    let bad = read("bad").trim().to_owned();
    assert_eq!(checks(), [bad.clone(), gpus(first)]);
    let view = health(&bench);
    assert_eq!(view.lines.len(), 4, "{view:#?}");
    for line in &view.lines {
        let why = "preflight: exit code 3: all-reduce: 40 of 400 GB/s";
        let is = (line.node.as_str(), line.grade, line.detail.as_str());
        assert_eq!(is, (bad.split(' ').next().unwrap(), Grade::DrainNow, why));
    }

    // GPUs that passed are not checked again for an hour.
    let good = gpus(first);
    bench.cancel(first);
    bench.ended(first);
    let again = bench.submit(on_gpus(4));
    bench.await_state(again, "running");
    assert_eq!((gpus(again), checks().len()), (good, 2));

    // After their repair GPUs are checked again.
    std::fs::write(folder.path().join("bad"), "none").unwrap();
    for line in &view.lines {
        bench.done(Verb::ClearHealth { node: line.node.clone(), device: line.device });
    }
    for _ in 0..3 {
        let next = bench.submit(on_gpus(4));
        bench.await_state(next, "running");
    }
    assert_eq!(checks().iter().filter(|gpus| **gpus == bad).count(), 2, "{:?}", checks());
    assert!(health(&bench).lines.iter().all(|line| line.grade == Grade::Suspect), "they are watched");
}

#[test]
fn a_check_that_cannot_be_run_closes_nothing_and_the_gang_starts() {
    let bench = checked_by("/no/such/check");
    let job = bench.submit(on_gpus(8));
    bench.await_state(job, "running");
    assert!(health(&bench).lines.is_empty(), "{:#?}", health(&bench));
    until("the warning", || bench.daemon_log().contains("the preflight cannot be run"));
}

#[test]
fn a_gang_that_is_cancelled_while_it_is_checked_never_starts() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let bench = checked_by(&format!("touch {at}/begun; while ! [ -e {at}/goes-on ]; do sleep 0.05; done"));
    let mut job = on_gpus(8);
    gang(&mut job).program.argv = vec!["touch".to_owned(), format!("{at}/started")];
    let job = bench.submit(job);
    until("the check", || folder.path().join("begun").exists());
    bench.cancel(job);
    assert_eq!(bench.ended(job).state, "cancelled");
    std::fs::write(folder.path().join("goes-on"), "").unwrap();
    // The next one is checked, and starts.
    let next = bench.submit(on_gpus(8));
    bench.await_state(next, "running");
    assert!(!folder.path().join("started").exists());
}
