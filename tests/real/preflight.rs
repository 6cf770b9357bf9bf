//! The check of GPUs before ranks start.

use phalanx_api::protocol::{Answer, HealthView, Verb};
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
    until("the warning", || bench.daemon_log().contains("the preflight was not run"));
}

/// Its check ran on, and judged GPUs that another gang had by then.
#[test]
fn a_check_ends_with_its_gang_and_the_next_one_has_the_gpus_after_that() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    // The first one hangs, with a process of another session; the next one there passes if nothing of it lives.
    let command = format!(
        "if mkdir {at}/first; then setsid sleep 1000 & echo $! > {at}/$PHALANX_NODE; touch {at}/pid; sleep 1000; exit 1; fi; \
         ! [ -e {at}/$PHALANX_NODE ] || ! [ -e /proc/$(cat {at}/$PHALANX_NODE) ]"
    );
    let bench = checked_by(&command);
    let mut job = on_gpus(8);
    gang(&mut job).program.argv = vec!["touch".to_owned(), format!("{at}/started")];
    let job = bench.submit(job);
    until("the check", || folder.path().join("pid").exists());
    // It needs both nodes' GPUs.
    let next = [bench.submit(on_gpus(8)), bench.submit(on_gpus(8))];
    bench.cancel(job);
    assert_eq!(bench.ended(job).state, "cancelled");
    next.iter().for_each(|job| drop(bench.await_state(*job, "running")));
    assert!(next.iter().all(|job| bench.get(*job).gangs[0].attempt == 1));
    assert!(health(&bench).lines.is_empty(), "{:#?}", health(&bench));
    for job in next {
        bench.cancel(job);
    }
    assert!(!folder.path().join("started").exists());
}

/// A daemon that is killed takes its check along; the next one checks the GPUs again before the gang starts.
#[test]
fn a_restarted_daemon_checks_again_what_its_predecessor_had_not_done() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let command = format!("echo $$ >> {at}/log; [ -e {at}/goes-on ] || exec sleep 1000");
    let mut bench = checked_by(&command);
    let job = bench.submit(on_gpus(8));
    let log = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    until("the check", || log().lines().count() == 1);
    bench.kill();
    let pid = log().trim().to_owned();
    until("its end", || !std::path::Path::new("/proc").join(&pid).exists());
    std::fs::write(folder.path().join("goes-on"), "").unwrap();
    bench.up_by(Some(&format!("PHALANX_TEST_PREFLIGHT='{command}' exec \"$0\" \"$@\"")));
    bench.await_state(job, "running");
    assert_eq!((log().lines().count(), bench.get(job).gangs[0].attempt), (2, 1));
    bench.cancel(job);
}

/// A check that cannot be done in time is none.
#[test]
fn a_job_with_a_short_start_deadline_starts_without_a_check() {
    let bench = checked_by("exit 1");
    let mut job = on_gpus(8);
    job.policy.start_deadline_ms = 10_000;
    let job = bench.submit(job);
    bench.await_state(job, "running");
    assert!(health(&bench).lines.is_empty(), "{:#?}", health(&bench));
    bench.cancel(job);
}
