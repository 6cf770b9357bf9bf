//! Real processes, real sockets on the loopback interface.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// One run of the program; what is left of it is killed at the end.
struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn rank(rank: u32, world: u32, port: u16, args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ring-allreduce"));
    command
        .args(args.split_whitespace())
        .env_remove("PHALANX_CKPT_DIR")
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", world.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn start(world: u32, args: &str) -> Ranks {
    let port = free_port();
    // Rank 0 comes last: the others must try again.
    Ranks((0..world).rev().map(|r| rank(r, world, port, args).spawn().unwrap()).rev().collect())
}

impl Ranks {
    fn ended(mut self) -> Vec<Output> {
        std::mem::take(&mut self.0).into_iter().map(|child| child.wait_with_output().unwrap()).collect()
    }

    fn signal(&self, rank: usize, signal: &str) {
        let pid = self.0[rank].id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

fn run(world: u32, args: &str) -> Vec<Output> {
    start(world, args).ended()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn result(outputs: &[Output]) -> Value {
    let text = stdout(&outputs[0]);
    let line = text.lines().last().and_then(|line| line.strip_prefix("RESULT ")).unwrap_or_else(|| {
        panic!("no result: {text}\n{}", outputs.iter().map(stderr).collect::<String>());
    });
    serde_json::from_str(line).unwrap()
}

fn assert_success(outputs: &[Output]) {
    for (rank, output) in outputs.iter().enumerate() {
        assert!(output.status.success(), "rank {rank}: {}", stderr(output));
    }
}

/// Reads until a line contains the text; the rest of the output is lost.
fn wait_for(child: &mut Child, text: &str) {
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line.contains(text)), "{text:?} never came");
}

fn wait_until(what: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !what() {
        assert!(Instant::now() < until, "it did not happen in time");
        thread::sleep(Duration::from_millis(10));
    }
}

fn saved(dir: &Path, rank: u32) -> Option<u64> {
    fs::read_to_string(dir.join(format!("rank-{rank}.ckpt"))).ok()?.trim().parse().ok()
}

#[test]
fn every_size_of_ring_sums_exactly() {
    for (world, bytes) in [(1, "1KB"), (2, "1MB"), (3, "100KB"), (4, "4"), (4, "3000004"), (8, "64KB")] {
        let outputs = run(world, &format!("--bytes {bytes} --steps 4 --warmup 1"));
        assert_success(&outputs);
        let result = result(&outputs);
        assert_eq!((&result["world_size"], &result["steps_measured"]), (&world.into(), &4.into()));
        let (algbw, busbw) = (result["algbw_gb_s"].as_f64().unwrap(), result["busbw_gb_s"].as_f64().unwrap());
        let factor = 2.0 * f64::from(world - 1) / f64::from(world);
        assert!(algbw > 0.0 && (busbw - algbw * factor).abs() < 1e-9, "{result}");
    }
}

#[test]
fn a_killed_rank_is_named_by_all_others() {
    for victim in [0, 2] {
        let mut ranks = start(4, "--bytes 1MB --steps 1000000 --warmup 0 --step-sleep-ms 20");
        // Any rank's first checkpoint or line would do; rank 0 prints the head of its table at the start.
        wait_for(&mut ranks.0[0], "busbw");
        thread::sleep(Duration::from_millis(100));
        ranks.signal(victim, "-KILL");
        for (rank, output) in ranks.ended().iter().enumerate() {
            if rank != victim {
                assert_eq!(output.status.code(), Some(1));
                assert!(
                    stderr(output).contains(&format!("rank {victim} lost")),
                    "{rank}: {}",
                    stderr(output)
                );
            }
        }
    }
}

#[test]
fn a_rank_that_hangs_is_named() {
    let mut ranks = start(3, "--bytes 1MB --steps 1000000 --warmup 0 --timeout-s 2");
    wait_for(&mut ranks.0[0], "busbw");
    ranks.signal(1, "-STOP");
    let hung = ranks.0.remove(1);
    let _hung = Ranks(vec![hung]);
    for output in ranks.ended() {
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("rank 1 lost"), "{}", stderr(&output));
    }
}

#[test]
fn a_run_that_failed_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let args =
        format!("--bytes 64KB --steps 8 --warmup 1 --fail-at 5:1 --checkpoint {}", dir.path().display());
    let failed = run(3, &args);
    assert_eq!(failed[1].status.code(), Some(3));
    assert!(stderr(&failed[1]).contains("fails at step 5"), "{}", stderr(&failed[1]));
    for rank in [0, 2] {
        assert_eq!(failed[rank].status.code(), Some(1));
        assert!(stderr(&failed[rank]).contains("rank 1 lost"), "{}", stderr(&failed[rank]));
    }
    // One rank is a step behind, as if the failure came between two checkpoints.
    assert_eq!(saved(dir.path(), 0), Some(5));
    fs::write(dir.path().join("rank-0.ckpt"), "4\n").unwrap();

    let resumed = run(3, &args);
    assert_success(&resumed);
    for (rank, output) in resumed.iter().enumerate() {
        assert!(stdout(output).contains(&format!("rank {rank}: resumed from step 4")), "{}", stdout(output));
    }
    assert_eq!(
        (&result(&resumed)["resumed_from"], &result(&resumed)["steps_measured"]),
        (&4.into(), &4.into())
    );

    let done = run(3, &args);
    assert_success(&done);
    assert_eq!(result(&done)["steps_measured"], 0);
}

#[test]
fn signals_save_and_stop() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let args = "--bytes 4KB --steps 1000000 --warmup 0 --step-sleep-ms 5 --checkpoint-every 1000000";
    let spawn = |r| rank(r, 2, port, args).env("PHALANX_CKPT_DIR", dir.path()).spawn().unwrap();
    let mut ranks = Ranks((0..2).map(spawn).collect());
    wait_for(&mut ranks.0[0], "busbw");
    assert_eq!(saved(dir.path(), 1), None);
    // One rank is asked, and all save.
    ranks.signal(0, "-USR1");
    wait_until(|| saved(dir.path(), 0).is_some() && saved(dir.path(), 1).is_some());
    let first = saved(dir.path(), 0);
    assert_eq!(first, saved(dir.path(), 1));
    ranks.signal(1, "-TERM");
    for output in ranks.ended() {
        assert_eq!(output.status.code(), Some(143), "{}", stderr(&output));
        assert!(stderr(&output).contains("stopped by SIGTERM after step"), "{}", stderr(&output));
    }
    assert_eq!(saved(dir.path(), 0), saved(dir.path(), 1));
    assert!(saved(dir.path(), 0) > first);
}

#[test]
fn a_file_ends_a_run_after_the_same_step_on_all_ranks() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("finish");
    let args = format!(
        "--bytes 4KB --until {} --warmup 0 --step-sleep-ms 5 --checkpoint-every 1000000 --checkpoint {}",
        file.display(),
        dir.path().display()
    );
    let mut ranks = start(3, &args);
    wait_for(&mut ranks.0[0], "   100 ");
    fs::write(&file, "").unwrap();
    let outputs = ranks.ended();
    assert_success(&outputs);
    let result = result(&outputs);
    let steps = saved(dir.path(), 0).unwrap();
    assert!(steps > 100 && [1, 2].iter().all(|rank| saved(dir.path(), *rank) == Some(steps)));
    assert_eq!((&result["steps"], &result["steps_measured"]), (&steps.into(), &steps.into()));
    let both = rank(0, 1, free_port(), "--steps 3 --until x").output().unwrap();
    assert_eq!(both.status.code(), Some(2), "{}", stderr(&both));
}

#[test]
fn who_does_not_come_is_named() {
    let port = free_port();
    let ranks = [0, 2].map(|r| rank(r, 4, port, "--timeout-s 1").spawn().unwrap());
    let outputs = Ranks(ranks.into()).ended();
    assert_eq!(outputs[0].status.code(), Some(1));
    assert!(
        stderr(&outputs[0]).contains("only 2 of 4 ranks came within 1 s; missing: 1, 3"),
        "{}",
        stderr(&outputs[0])
    );
    assert!(stderr(&outputs[1]).contains("missing: 1, 3"), "{}", stderr(&outputs[1]));

    let alone = rank(1, 2, port, "--timeout-s 1").output().unwrap();
    assert!(stderr(&alone).contains("cannot reach rank 0"), "{}", stderr(&alone));
}

#[test]
fn strangers_and_mistakes_are_refused() {
    let port = free_port();
    let args = "--bytes 4KB --steps 2 --timeout-s 20";
    let mut ranks = Ranks(vec![rank(0, 2, port, args).spawn().unwrap()]);
    let connect = || TcpStream::connect(("127.0.0.1", port));
    wait_until(|| connect().is_ok());
    let _silent = connect().unwrap();
    connect().unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let other = rank(1, 2, port, "--bytes 8KB --steps 2").output().unwrap();
    assert!(stderr(&other).contains("rank 0 refused this rank: it was started with"), "{}", stderr(&other));
    ranks.0.push(rank(1, 2, port, args).spawn().unwrap());
    assert_success(&ranks.ended());

    for (rank_, world) in [(0, 0), (2, 2), (0, 2000)] {
        let output = rank(rank_, world, port, "").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    }
}

#[test]
fn a_checkpoint_that_cannot_be_used_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let args = format!("--bytes 4 --steps 1 --checkpoint {}", dir.path().display());
    fs::write(dir.path().join("rank-0.ckpt"), "nonsense").unwrap();
    let output = &run(1, &args)[0];
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(output).contains("remove it to begin again"), "{}", stderr(output));
}
