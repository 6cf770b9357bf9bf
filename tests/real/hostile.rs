//! What one user may try against the daemon, and against others.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

use phalanx_api::client::ask;
use phalanx_api::protocol::{Answer, JobRef, LogAsk, Verb};
use phalanx_model::{JobName, LaunchKind};

use crate::support::{Bench, NOBODY, NODE_OF_8, env, gang, is_root, refused, shell, until};

#[test]
fn a_launcher_cannot_be_told_to_start_billions() {
    let bench = Bench::up_with(NODE_OF_8);
    let mut job = shell(1, "wc -l < $PHALANX_RANKFILE");
    gang(&mut job).program.launch = LaunchKind::Mpi;
    gang(&mut job).program.env = env(&[("PHALANX_RANKS_PER_NODE", "4000000000")]);
    let id = bench.submit(job);
    assert_eq!(bench.ended(id).state, "succeeded");
    assert_eq!(bench.logs(id)[0].1, "4096");
}

#[test]
fn a_job_too_large_for_one_machine_is_refused_at_the_door() {
    let bench = Bench::up_with(NODE_OF_8);
    let many = Verb::Submit { job: Box::new(shell(1_025, "true")), secrets: env(&[]) };
    assert!(refused(bench.ask(many)).message.contains("1025 ranks"));
    let mut heavy = shell(1, "true");
    gang(&mut heavy).program.env = env(&[("LARGE", &"x".repeat(2 << 20))]);
    let heavy = Verb::Submit { job: Box::new(heavy), secrets: env(&[]) };
    assert!(refused(bench.ask(heavy)).hint.contains("files"));
    for name in ["17", "--all"] {
        let mut job = shell(1, "true");
        job.name = JobName::new(name).unwrap();
        let verb = Verb::Submit { job: Box::new(job), secrets: env(&[]) };
        assert!(refused(bench.ask(verb)).message.contains(name));
    }
}

#[test]
fn a_name_that_could_mean_two_jobs_cancels_none() {
    let bench = Bench::up_with(NODE_OF_8);
    let sleeper = || {
        let mut job = shell(1, "exec sleep 1000");
        job.name = JobName::new("twin").unwrap();
        bench.submit(job)
    };
    let by_name = || Verb::Cancel { job: JobRef::Name("twin".to_owned()) };
    let (first, second) = (sleeper(), sleeper());
    let error = refused(bench.ask(by_name()));
    assert!(error.message.contains(&format!("{first}, {second}")), "{error:?}");
    bench.cancel(first);
    bench.ended(first);
    bench.done(by_name());
    assert_eq!(bench.ended(second).state, "cancelled");
}

#[test]
fn a_name_is_first_of_all_ones_own_job() {
    if !is_root("a_name_is_first_of_all_ones_own_job") {
        return;
    }
    let bench = Bench::up_with(NODE_OF_8);
    let mut own = shell(1, "exec sleep 1000");
    own.name = JobName::new("train").unwrap();
    let theirs = Verb::Submit { job: Box::new(own.clone()), secrets: env(&[]) };
    let own = bench.submit(own);
    let answers = format!("{:?}", bench.ask_as(NOBODY, &theirs));
    assert!(answers.contains("Submitted"), "{answers}");
    bench.done(Verb::Cancel { job: JobRef::Name("train".to_owned()) });
    assert_eq!(bench.ended(own).state, "cancelled");
    // Again is the same, and not the other user's.
    let again = bench.done(Verb::Cancel { job: JobRef::Name("train".to_owned()) });
    assert!(again.contains("ended already"), "{again}");
    let theirs = phalanx_model::JobId(2);
    assert_ne!(bench.get(theirs).state, "cancelled");
    bench.cancel(theirs);
    assert_eq!(bench.ended(theirs).state, "cancelled");
}

#[test]
fn open_connections_of_one_user_shut_nobody_out() {
    let bench = Bench::up_with(NODE_OF_8);
    // The operator's own, of which there may be 1,024; a user's stop at 64.
    let held: Vec<UnixStream> =
        (0..300).map(|_| UnixStream::connect(bench.paths.socket()).unwrap()).collect();
    assert!(bench.ask(Verb::Ping).is_ok());
    drop(held);
}

#[test]
fn a_rank_may_open_its_output_again() {
    if !is_root("a_rank_may_open_its_output_again") {
        return;
    }
    let bench = Bench::up_with(NODE_OF_8);
    let job = shell(1, "echo one; echo two >> /dev/stderr");
    let verb = Verb::Submit { job: Box::new(job), secrets: env(&[]) };
    let answers = format!("{:?}", bench.ask_as(NOBODY, &verb));
    assert!(answers.contains("Submitted"), "{answers}");
    let id = phalanx_model::JobId(1);
    assert_eq!(bench.ended(id).state, "succeeded");
    assert_eq!(bench.logs(id).len(), 2);
}

#[test]
fn a_process_whose_first_thread_has_ended_is_ended_too() {
    let bench = Bench::up_with(NODE_OF_8);
    let source = bench.path("orphan.c");
    let program = bench.path("orphan");
    let text = "#include <pthread.h>\n#include <unistd.h>\nstatic void *run(void *x) { for (;;) sleep(1); return x; }\n\
                int main(void) { pthread_t t; pthread_create(&t, 0, run, 0); pthread_exit(0); }\n";
    fs::write(&source, text).unwrap();
    let built = Command::new("cc").arg("-pthread").arg("-o").arg(&program).arg(&source).status();
    if !built.is_ok_and(|s| s.success()) {
        println!("SKIPPED a_process_whose_first_thread_has_ended_is_ended_too: no cc");
        return;
    }
    let mut job = shell(1, &format!("exec {}", program.display()));
    job.policy.stop.grace_ms = 500;
    let id = bench.submit(job);
    bench.await_state(id, "running");
    until("its first thread's end", || {
        let pid = bench.shim(id, 1, 0).rank_pid.unwrap_or(0);
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| s.contains(") Z "))
    });
    bench.cancel(id);
    assert_eq!(bench.ended(id).state, "cancelled");
    bench.await_nobody();
}

#[test]
fn a_slow_notice_of_one_user_holds_up_nobody_else() {
    if !is_root("a_slow_notice_of_one_user_holds_up_nobody_else") {
        return;
    }
    let bench = Bench::up_with(NODE_OF_8);
    let gate = bench.path("gate");
    let mut slow = shell(1, "true");
    // Would wait for its time-out, were it not let go at the end.
    gang(&mut slow).program.notify = Some(format!("while [ ! -e {} ]; do sleep 0.05; done", gate.display()));
    let verb = Verb::Submit { job: Box::new(slow), secrets: env(&[]) };
    assert!(format!("{:?}", bench.ask_as(NOBODY, &verb)).contains("Submitted"));
    bench.ended(phalanx_model::JobId(1));
    let mut quick = shell(1, "exit 4");
    let told = bench.path("told");
    gang(&mut quick).program.notify =
        Some(format!("echo $PHALANX_EVENT $PHALANX_EXIT_CODE >> {}", told.display()));
    bench.submit(quick);
    until("the notice of the end", || {
        assert!(!gate.exists());
        fs::read_to_string(&told).is_ok_and(|t| t.contains("end 4"))
    });
    fs::write(gate, "").unwrap();
}

/// A restart writes all jobs anew: what one user submitted could be too much for it, and nobody had a daemon any more.
#[test]
fn what_one_user_submits_does_not_keep_the_daemon_from_starting() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let heavy = || {
        let mut job = shell(1, "true");
        gang(&mut job).program.env = env(&[("LARGE", &"x".repeat(1_000_000))]);
        job.turn.held_by = Some("me".to_owned());
        Verb::Submit { job: Box::new(job), secrets: env(&[]) }
    };
    let mut taken = 0;
    let error = loop {
        match bench.ask(heavy()) {
            Ok(_) => taken += 1,
            full => break refused(full),
        }
        assert!(taken < 100, "no limit");
    };
    assert!(taken > 60, "{taken}");
    assert!(error.message.contains("one user may have 67108864"), "{error:?}");
    assert!(error.hint.contains("--pending-per-user"), "{error:?}");
    // Small jobs go on.
    let small = bench.submit(shell(1, "true"));
    assert_eq!(bench.ended(small).state, "succeeded");
    bench.down();
    bench.up();
    assert_eq!(bench.get(phalanx_model::JobId(1)).state, "pending");
    // The sum outlives the daemon, and what ends no longer counts.
    assert!(refused(bench.ask(heavy())).message.contains("one user may have"));
    bench.cancel(phalanx_model::JobId(1));
    bench.ended(phalanx_model::JobId(1));
    assert!(bench.ask(heavy()).is_ok());
}

#[test]
fn what_a_client_says_of_itself_is_no_line_of_the_log() {
    let bench = Bench::up_with(NODE_OF_8);
    let before = bench.daemon_log();
    let long = "x".repeat(1 << 20);
    let requests = [
        // As older versions of the command asked.
        format!("{{\"version\":\"0\\n[1.000] forged {long}\",\"verb\":\"ping\"}}\n"),
        "{\"version\":\"phalanx/v1\",\"verb\":\"ping\"}\n".to_owned(),
        format!(
            "GET /v1/{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            "%0a[1.000]%20forged".repeat(1_000)
        ),
        "GET /v1/jobs HTTP/1.1\r\nHost: x\nUser-Agent: [1.000] forged\r\nConnection: close\r\n\r\n"
            .to_owned(),
        format!("GET /v1/jobs HTTP/1.1\r\nHost: x\r\nUser-Agent: {long}\r\nConnection: close\r\n\r\n"),
    ];
    for request in requests.iter().cycle().take(20) {
        let mut client = UnixStream::connect(bench.paths.socket()).unwrap();
        // It need not read to the end what it refuses.
        let _ = client.write_all(request.as_bytes());
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 ") && answer.len() < 2_000, "{answer}");
        assert!(!answer.contains("forged"), "{answer}");
    }
    assert_eq!(bench.daemon_log(), before);
}

#[test]
fn followers_of_lines_without_an_end_take_no_memory() {
    const RANKS: u32 = 8;
    const FOLLOWERS: u64 = 40;
    const LINE_BYTES: u64 = 200_000;
    let bench = Bench::up_with(NODE_OF_8);
    let script = format!("echo whole; head -c {LINE_BYTES} /dev/zero | tr '\\0' x; exec sleep 1000");
    let id = bench.submit(shell(RANKS, &script));
    bench.await_state(id, "running");
    until("all output", || {
        let length = |rank| fs::metadata(bench.member(id, 1, rank).join("output.log")).map_or(0, |m| m.len());
        (0..RANKS).all(|rank| length(rank) > LINE_BYTES)
    });
    let before = resident(bench.daemon_pid());
    let follow = Verb::Logs { job: JobRef::Id(id), ask: LogAsk { follow: true, ..LogAsk::default() } };
    let follower = || {
        let mut answers = ask(&bench.paths.socket(), follow.clone()).unwrap();
        for _ in 0..RANKS {
            assert!(matches!(answers.next(), Some(Ok(Answer::Log { line, .. })) if line == "whole"));
        }
        answers
    };
    let followers: Vec<_> = (0..FOLLOWERS).map(|_| follower()).collect();
    let grown = resident(bench.daemon_pid()).saturating_sub(before);
    // Each has a thread and one buffer. What the ranks wrote is eight times the buffers.
    assert!(grown < FOLLOWERS * u64::from(RANKS) * LINE_BYTES / 2, "{grown} bytes");
    drop(followers);
}

/// Bytes of a process in memory.
fn resident(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1_024
}
