//! `run --pty`, `attach` and `exec` in a real terminal: `script` (of bsdutils) gives one.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

const EXE: &str = env!("CARGO_BIN_EXE_phalanx");

/// A daemon with one declared node, ended with the test.
struct World(tempfile::TempDir);

impl World {
    fn up() -> Self {
        let world = Self(tempfile::tempdir().unwrap());
        let cluster = world.0.path().join("cluster.yaml");
        std::fs::write(&cluster, "nodes:\n- {name: n1, devices: {count: 8, model: Test GPU}}\n").unwrap();
        let cluster = cluster.display().to_string();
        let up = world.phalanx(&["up", "--detach", "--cluster", &cluster]);
        assert!(up.status.success(), "{up:?}");
        world
    }

    fn state(&self) -> std::path::PathBuf {
        self.0.path().join("state")
    }

    /// Without a terminal.
    fn phalanx(&self, words: &[&str]) -> Output {
        let mut command = Command::new(EXE);
        command.args(words).env("PHALANX_STATE", self.state()).stdin(Stdio::null()).output().unwrap()
    }

    /// In a terminal; `words` are read by a shell.
    fn at_terminal(&self, words: &str) -> AtTerminal {
        let mut child = Command::new("script")
            .args(["--quiet", "--return", "--command", &format!("{EXE} {words}"), "/dev/null"])
            .env("PHALANX_STATE", self.state())
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        AtTerminal { child, input: Some(input), output, shown: String::new() }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.phalanx(&["cancel", "--name", "*"]);
        self.phalanx(&["down"]);
    }
}

struct AtTerminal {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    shown: String,
}

impl AtTerminal {
    fn shows(&mut self, text: &str) {
        while !self.shown.contains(text) {
            let mut chunk = [0; 4096];
            let count = self.output.read(&mut chunk).unwrap();
            assert!(count > 0, "{text:?} was not shown, but {:?}", self.shown);
            self.shown += &String::from_utf8_lossy(&chunk[..count]);
        }
    }

    fn types(&mut self, keys: &str) {
        self.input.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// The exit code, once the program has ended.
    fn ends(mut self) -> (i32, String) {
        let mut rest = Vec::new();
        self.output.read_to_end(&mut rest).unwrap();
        self.shown += &String::from_utf8_lossy(&rest);
        drop(self.input.take());
        (self.child.wait().unwrap().code().unwrap(), self.shown)
    }
}

fn has_script() -> bool {
    let found = Path::new("/usr/bin/script").exists();
    assert!(found || std::env::var_os("CI").is_none(), "script is missing: apt-get install bsdutils");
    found
}

#[test]
fn a_job_at_a_terminal_is_left_entered_again_and_ends_with_its_shell() {
    if !has_script() {
        return;
    }
    let world = World::up();
    let mut run = world.at_terminal("run --pty -G 2 -- sh");
    run.shows("attached to job 1; Ctrl-] d leaves it running");
    run.types("echo gpus=$CUDA_VISIBLE_DEVICES term=$TERM\r");
    run.shows("gpus=0,1 term=xterm-256color");
    run.types("\x1dd");
    let (code, shown) = run.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("`phalanx attach 1` comes back to it"), "{shown}");

    let mut exec = world.at_terminal("exec 1 -- tty");
    exec.shows("/dev/pts/");
    assert_eq!(exec.ends().0, 0);
    let piped = world.phalanx(&["exec", "1", "--", "sh", "-c", "echo out; echo err >&2; exit 9"]);
    assert_eq!(piped.status.code(), Some(9));
    assert_eq!(
        (piped.stdout.as_slice(), piped.stderr.as_slice()),
        (b"out\n".as_slice(), b"err\n".as_slice())
    );

    let mut attach = world.at_terminal("attach 1");
    attach.shows("attached to job 1");
    attach.types("exit 5\r");
    let (code, shown) = attach.ends();
    assert_eq!(code, 5, "{shown}");
}

#[test]
fn an_allocation_is_one_shell_for_all_nodes_and_ends_with_it() {
    if !has_script() {
        return;
    }
    let world = World::up();
    let mut alloc = world.at_terminal("alloc -G 8 -- sh");
    alloc.shows("attached to job 1");
    alloc.types("echo gpus=$CUDA_VISIBLE_DEVICES; cat $PHALANX_HOSTFILE\r");
    alloc.shows("gpus=0,1,2,3,4,5,6,7");
    alloc.shows("slots=8");
    alloc.types("exit\r");
    assert_eq!(alloc.ends().0, 0);
    let jobs = world.phalanx(&["ps", "-a", "-o", "json"]);
    assert!(String::from_utf8_lossy(&jobs.stdout).contains("\"state\": \"succeeded\""), "{jobs:?}");
}

#[test]
fn without_a_terminal_a_job_at_one_is_refused_before_it_is_submitted() {
    let world = World::up();
    for words in
        [&["run", "--pty", "--", "sh"][..], &["alloc"], &["attach", "1"], &["exec", "-t", "1", "--", "sh"]]
    {
        let refused = world.phalanx(words);
        assert_eq!(refused.status.code(), Some(64), "{refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("standard input is not a terminal"), "{said}");
    }
    let jobs = world.phalanx(&["ps", "-a", "-o", "name"]);
    assert!(jobs.stdout.is_empty(), "{jobs:?}");
}
