//! Pages whose commands are run in one shell, in the order of the page, and print what the page shows.
//!
//! A block `yaml` is written to the file that its first line names. In a block `console`, a line that begins with `$ ` is a
//! command, which has to succeed, and the lines below it are output: each has to be among the lines that the command printed,
//! in any order. Numbers, durations and widths of columns may differ, and `…` is anything. Commands that only ask are repeated
//! until their output is as shown, as people look again.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Stands before the exit code of each command, in a line of its own.
const END: &str = "end-of-the-command";
const AGAIN_AFTER: Duration = Duration::from_millis(300);

pub(crate) struct Step {
    pub(crate) command: String,
    shown: Vec<String>,
}

pub(crate) enum Block {
    File { name: String, text: String },
    Steps(Vec<Step>),
}

/// The blocks of a page of `docs/tutorials` that are run. A block without a file name or a command is only shown.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/tutorials").join(page);
    let page = std::fs::read_to_string(path).unwrap();
    let fenced = page.split("\n```").skip(1).step_by(2);
    fenced
        .filter_map(|block| {
            let (language, text) = block.split_once('\n')?;
            match language {
                "yaml" => {
                    let name = text.strip_prefix("# ")?.split([':', '\n']).next()?;
                    Some(Block::File { name: name.to_owned(), text: text.to_owned() })
                }
                "console" if text.starts_with("$ ") => Some(Block::Steps(steps(text))),
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

/// A line without what differs from run to run: numbers are 0, all durations `0s`, columns one space apart, and times of another
/// day, which are printed with their date, like those of today.
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
    words.join(" ").replace("0-0-0 0:0", "0:0")
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

/// One shell in a folder of its own.
pub(crate) struct Shell {
    dir: tempfile::TempDir,
    shell: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    patience: Duration,
    /// The last commands of the page, which a failure before them leaves out.
    last: &'static str,
}

impl Shell {
    /// `programs` are the folders of the programs that the page names. No command takes longer than `patience`.
    pub(crate) fn new(
        programs: &[&Path],
        variables: &[(&str, &OsStr)],
        patience: Duration,
        last: &'static str,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut path: Vec<String> = programs.iter().map(|folder| folder.display().to_string()).collect();
        path.push(std::env::var("PATH").unwrap());
        let mut bash = Command::new("bash");
        bash.current_dir(dir.path())
            .env("PATH", path.join(":"))
            .env("PHALANX_STATE", dir.path().join("state"));
        bash.env_remove("PHALANX_TO").envs(variables.iter().copied());
        let mut shell =
            bash.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (mut input, output) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        writeln!(input, "exec 2>&1").unwrap();
        Self { dir, shell, input, lines, patience, last }
    }

    /// Where the files of the page are.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// The exit code of a command, and what it printed.
    pub(crate) fn run(&mut self, command: &str) -> (String, Vec<String>) {
        writeln!(self.input, "{command}\nprintf '\\n%s %s\\n' {END} $?").unwrap();
        let mut output = Vec::new();
        loop {
            let line = self.lines.recv_timeout(self.patience);
            let line = line.unwrap_or_else(|_| panic!("no end: {command}\n{output:?}"));
            if let Some(code) = line.strip_prefix(END) {
                return (code.trim().to_owned(), output);
            }
            output.push(line);
        }
    }

    /// Runs a command and compares what it printed, `as_shown` without names that differ from run to run.
    pub(crate) fn step(&mut self, step: &Step, only_asks: bool, as_shown: impl Fn(&str) -> String) {
        let end = Instant::now() + self.patience;
        let shown: Vec<String> = step.shown.iter().map(|line| as_shown(line)).collect();
        loop {
            let (code, output) = self.run(&step.command);
            let text = output.join("\n");
            let is_over = !only_asks || Instant::now() > end;
            let printed: Vec<String> = output.iter().map(|line| as_shown(line)).collect();
            let missing = missing(&shown, &printed);
            if code == "0" && missing.is_empty() {
                return;
            }
            assert!(!is_over, "$ {}\n{text}\nexit code {code}, missing: {missing:#?}", step.command);
            std::thread::sleep(AGAIN_AFTER);
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = writeln!(self.input, "{{ {}; }} >/dev/null 2>&1; exit", self.last);
        let _ = self.shell.wait();
    }
}

#[test]
fn output_may_differ_in_numbers_and_widths_and_where_the_page_says_so() {
    let fits = |shown: &str, line: &str| fits(&masked(shown), &masked(line));
    assert!(fits(
        " 2  llama  root   running    16  1s ago      0s",
        "12 llama root running 16 1m 02s ago 3s"
    ));
    assert!(fits("in 20m 29s at the latest (03:57:30)", "in 19m 58s at the latest (23:07:01)"));
    assert!(fits("valid 12h 00m (until 15:37:00)", "valid 12h 00m (until 2026-12-01 00:13:35)"));
    assert!(fits("attempt 1 on … (inside one nvlink)", "attempt 1 on b1 (inside one nvlink)"));
    assert!(fits("32 of 32 GPUs free; isolation: …", "32 of 32 GPUs free; isolation: cgroup v2"));
    assert!(fits("", "") && fits("…", "anything"));
    assert!(!fits("job 3 (bert) is submitted", "job 3 (vit) is submitted"));
    assert!(!fits("attempt 1 on … (inside one nvlink)", "attempt 1 on a1, a2 (inside one rack)"));
    assert!(!fits("saved", ""));
}
