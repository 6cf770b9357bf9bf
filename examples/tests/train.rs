//! The toy trainer, as a job would run it.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn start(dir: &Path, words: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    command.args(words.split_whitespace()).env_clear();
    command.env("PHALANX_CKPT_DIR", dir.join("ckpt")).env("PHALANX_CHECKPOINTED", dir.join("told"));
    command.env("PHALANX_PROGRESS", dir.join("progress")).env("PHALANX_CHECKPOINT_EVERY", dir.join("advice"));
    command.stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn it_saves_when_asked_says_so_and_resumes_there() {
    let dir = tempfile::tempdir().unwrap();
    File::create(dir.path().join("told")).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    // Asked, and on no schedule.
    let mut first = start(dir.path(), "--steps 1000000 --step 5ms --save-every 1h");
    let pid = Pid::from_raw(first.id().try_into().unwrap());
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    // A signal that comes before it is handled would end it.
    let status = format!("/proc/{pid}/status");
    let handles = || {
        let text = fs::read_to_string(&status).unwrap();
        let caught = text.lines().find_map(|l| l.strip_prefix("SigCgt:")).unwrap().trim().to_owned();
        u64::from_str_radix(&caught, 16).unwrap() >> (Signal::SIGTERM as u32 - 1) & 1 == 1
    };
    while !handles() {
        std::thread::yield_now();
    }
    kill(pid, Signal::SIGUSR1).unwrap();
    let said = lines.next().unwrap().unwrap();
    let saved: u64 = said.strip_prefix("saved step ").unwrap().parse().unwrap();
    while fs::metadata(dir.path().join("told")).unwrap().modified().unwrap() == SystemTime::UNIX_EPOCH {
        std::thread::yield_now();
    }
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(143));
    let last: u64 = fs::read_to_string(dir.path().join("ckpt/step")).unwrap().trim().parse().unwrap();
    assert!(last >= saved, "saved once more: {last} after {saved}");

    // Saves on a schedule, and another rank saves nothing.
    fs::write(dir.path().join("ckpt/step"), "7\n").unwrap();
    let mut second = start(dir.path(), "--steps 12 --step 1ms --save-every 0s");
    let mut text = String::new();
    second.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(second.wait().unwrap().success());
    let saves: String = (8..=12).map(|step| format!("saved step {step}\n")).collect();
    assert_eq!(text, format!("resumed at step 7\n{saves}done at step 12\n"));
    let mut other = start(dir.path(), "--rank 1 --steps 13 --step 1ms --save-every 0s");
    assert!(other.wait().unwrap().success());
    assert_eq!(fs::read_to_string(dir.path().join("ckpt/step")).unwrap(), "12\n");

    // As often as it is advised to.
    for (advice, saved) in [("", 12), ("3600\n", 12), ("0\n", 14)] {
        fs::write(dir.path().join("advice"), advice).unwrap();
        let advised = "--steps 14 --step 1ms --save-every advised --save-at-first 1h";
        assert!(start(dir.path(), advised).wait().unwrap().success());
        let step = fs::read_to_string(dir.path().join("ckpt/step")).unwrap();
        assert_eq!(step, format!("{saved}\n"), "{advice:?}");
    }
    let told = fs::read_to_string(dir.path().join("progress")).unwrap();
    assert!(
        told.starts_with("step=14 of=14 work=") && told.contains("us saved=") && told.ends_with("us\n"),
        "{told}"
    );

    fs::write(dir.path().join("ckpt/step"), "half\n").unwrap();
    assert!(!start(dir.path(), "--steps 1").wait().unwrap().success());
}
