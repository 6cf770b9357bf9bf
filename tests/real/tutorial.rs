//! The tutorial of one machine: its commands are run in one shell, in the order of the page, and print what the page shows.
//!
//! A block `yaml` is written to the file that its first line names. In a block `console`, a line that begins with `$ ` is a
//! command, which has to succeed, and the lines below it are output: each has to be among the lines that the command printed,
//! in any order. Numbers, durations and widths of columns may differ, the user is called root, and `…` is anything. Commands
//! that only ask are repeated until their output is as shown, as people look again.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::support::{LONG, exe};

const PAGE: &str = "../docs/tutorials/one-machine.md";
const ASKS: [&str; 6] = ["history", "logs", "nodes", "ps", "queues", "why"];
/// Stands before the exit code of each command, in a line of its own.
const END: &str = "end-of-the-command";
const AGAIN_AFTER: Duration = Duration::from_millis(300);

struct Step {
    command: String,
    shown: Vec<String>,
}

enum Block {
    File { name: String, text: String },
    Steps(Vec<Step>),
}

fn blocks(page: &str) -> Vec<Block> {
    let fenced = page.split("\n```").skip(1).step_by(2);
    fenced
        .filter_map(|block| {
            let (language, text) = block.split_once('\n')?;
            match language {
                "yaml" => {
                    let name = text.strip_prefix("# ")?.split([':', '\n']).next()?;
                    Some(Block::File { name: name.to_owned(), text: text.to_owned() })
                }
                "console" => Some(Block::Steps(steps(text))),
                _ => None,
            }
        })
        .collect()
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), shown: Vec::new() });
        } else {
            steps.last_mut().expect("output stands below its command").shown.push(line.to_owned());
        }
    }
    steps
}

/// A line without what differs from run to run: numbers are 0, all durations `0s`, and columns one space apart.
fn masked(line: &str) -> String {
    let mut zeros = String::new();
    for letter in line.chars() {
        match letter {
            '0'..='9' if zeros.ends_with('0') => {}
            '0'..='9' => zeros.push('0'),
            _ => zeros.push(letter),
        }
    }
    let mut words: Vec<&str> = Vec::new();
    for word in zeros.split_whitespace() {
        let word = if ["0d", "0h", "0m"].contains(&word) { "0s" } else { word };
        if word != "0s" || words.last() != Some(&"0s") {
            words.push(word);
        }
    }
    words.join(" ")
}

/// Whether a line is one that the page shows; both are masked.
fn fits(shown: &str, line: &str) -> bool {
    let Some((first, rest)) = shown.split_once('…') else { return shown == line };
    let Some(mut left) = line.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('…').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = left.split_once(part) else { return false };
        left = after;
    }
    left.ends_with(last)
}

/// What the page shows and a command did not print.
fn missing<'a>(shown: &'a [String], output: &[String]) -> Vec<&'a String> {
    let output: Vec<String> = output.iter().map(|line| masked(line)).collect();
    shown.iter().filter(|line| !output.iter().any(|printed| fits(&masked(line), printed))).collect()
}

/// One shell, with a state folder of its own; whatever the page leaves is ended when the test is over.
struct Shell {
    dir: tempfile::TempDir,
    shell: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    user: String,
}

impl Shell {
    fn new(programs: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut bash = Command::new("bash");
        bash.current_dir(dir.path()).env("PATH", path).env("PHALANX_STATE", dir.path().join("state"));
        bash.env_remove("PHALANX_TO").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = bash.spawn().unwrap();
        let (mut input, output) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        writeln!(input, "exec 2>&1").unwrap();
        let mut shell = Self { dir, shell, input, lines, user: String::new() };
        shell.user = shell.run("id -un").1.concat();
        shell
    }

    /// The exit code of a command, and what it printed.
    fn run(&mut self, command: &str) -> (String, Vec<String>) {
        writeln!(self.input, "{command}\nprintf '\\n%s %s\\n' {END} $?").unwrap();
        let mut output = Vec::new();
        loop {
            let line =
                self.lines.recv_timeout(LONG).unwrap_or_else(|_| panic!("no end: {command}\n{output:?}"));
            if let Some(code) = line.strip_prefix(END) {
                return (code.trim().to_owned(), output);
            }
            output.push(line);
        }
    }

    fn step(&mut self, step: &Step) {
        let mut words = step.command.split(' ');
        let only_asks =
            words.next() == Some("phalanx") && words.next().is_some_and(|verb| ASKS.contains(&verb));
        let end = Instant::now() + LONG;
        loop {
            let (code, output) = self.run(&step.command);
            let text = output.join("\n");
            assert_eq!(code, "0", "$ {}\n{text}", step.command);
            let named: Vec<String> = output.iter().map(|line| line.replace(&self.user, "root")).collect();
            let missing = missing(&step.shown, &named);
            if missing.is_empty() {
                return;
            }
            assert!(only_asks && Instant::now() < end, "$ {}\n{text}\nmissing: {missing:#?}", step.command);
            std::thread::sleep(AGAIN_AFTER);
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The last commands of the page, which a failure before them has left out.
        let last = "phalanx cancel --states pending,starting,running && sleep 1; phalanx down; exit";
        let _ = writeln!(self.input, "{{ {last}; }} >/dev/null 2>&1");
        let _ = self.shell.wait();
    }
}

#[test]
fn the_tutorial_of_one_machine_does_what_it_shows() {
    let phalanx = exe().with_file_name("phalanx");
    if !phalanx.exists() {
        let what = "the program beside the test daemon: cargo build -p phalanx-cli";
        assert!(std::env::var_os("CI").is_none(), "missing: {what}");
        eprintln!("passed over, missing: {what}");
        return;
    }
    let page = std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(PAGE)).unwrap();
    let mut shell = Shell::new(phalanx.parent().unwrap());
    let mut commands = 0;
    for block in blocks(&page) {
        match block {
            Block::File { name, text } => std::fs::write(shell.dir.path().join(name), text).unwrap(),
            Block::Steps(steps) => {
                commands += steps.len();
                steps.iter().for_each(|step| shell.step(step));
            }
        }
    }
    assert!(commands >= 30, "{commands} commands");
}

#[test]
fn output_may_differ_in_numbers_and_widths_and_where_the_page_says_so() {
    let fits = |shown: &str, line: &str| fits(&masked(shown), &masked(line));
    assert!(fits(
        " 2  llama  root   running    16  1s ago      0s",
        "12 llama root running 16 1m 02s ago 3s"
    ));
    assert!(fits("in 20m 29s at the latest (03:57:30)", "in 19m 58s at the latest (23:07:01)"));
    assert!(fits("attempt 1 on … (inside one nvlink)", "attempt 1 on b1 (inside one nvlink)"));
    assert!(fits("32 of 32 GPUs free; isolation: …", "32 of 32 GPUs free; isolation: cgroup v2"));
    assert!(fits("", "") && fits("…", "anything"));
    assert!(!fits("job 3 (bert) is submitted", "job 3 (vit) is submitted"));
    assert!(!fits("attempt 1 on … (inside one nvlink)", "attempt 1 on a1, a2 (inside one rack)"));
    assert!(!fits("saved", ""));
}
