//! The command on journals: what happened is told as before (`UPDATE=1` writes that anew), damage is told, every step is
//! decided again, byte by byte, and exit codes tell what is wrong.

#![allow(clippy::unwrap_used)]

mod live;

use std::path::{Path, PathBuf};
use std::process::Command;

use live::two_teams;

use phalanx_engine::{Config, Engine, VERSION};
use phalanx_journal::{Header, Journal};
use phalanx_model::{Epoch, Input, Levels, NodeName, Outcome, SyncKind, Timestamp};

fn sim(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx-sim"));
    let output = command.args(arguments).env("TZ", "UTC").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// Two steps of an engine; the journal tells of the second what `tell` makes of it.
fn record(dir: &Path, tell: impl FnOnce(Outcome) -> Outcome) {
    let header = Header::new(VERSION, Epoch(1), Timestamp(0));
    let mut journal = Journal::create(dir, header).unwrap();
    let mut engine = Engine::new(Epoch(1), Config::default());
    let mut out = Outcome::default();
    let mut first = vec![Input::LevelsConfigured {
        levels: Levels::new(
            vec![phalanx_model::LevelName::new("cluster").unwrap()],
            phalanx_model::LevelName::new("node").unwrap(),
        ),
    }];
    for kind in [SyncKind::Nodes, SyncKind::Jobs, SyncKind::Members] {
        first.extend([Input::SyncBegin { kind }, Input::SyncEnd { kind }]);
    }
    journal.facts(Timestamp(1), &first).unwrap();
    let _ = engine.step(Timestamp(1), &first, &mut out);
    journal.decisions(&out).unwrap();

    let refused = [Input::NodeCordoned { node: NodeName::new("nowhere").unwrap() }];
    journal.facts(Timestamp(2), &refused).unwrap();
    let _ = engine.step(Timestamp(2), &refused, &mut out);
    journal.decisions(&tell(out)).unwrap();
    journal.sync().unwrap();
}

#[test]
fn a_journal_is_decided_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    assert_eq!(sim(&["replay", "--check", path]).0, Some(66), "nothing to replay is no success");

    record(dir.path(), |out| out);
    let (code, text) = sim(&["replay", "--check", path]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("all 2 steps"), "{text}");

    record(dir.path(), |_| Outcome::default());
    let (code, text) = sim(&["replay", "--check", path]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("step 2 is decided otherwise") && text.contains("1 of 4 steps"), "{text}");
    let (code, text) = sim(&["replay", path]);
    assert_eq!(code, Some(0), "what was recorded is told all the same: {text}");
    assert!(text.contains("! ") && text.contains("step 2 is decided otherwise"), "{text}");
}

/// What is told, with the folder's name left out.
fn told(dir: &Path, options: &str) -> (Option<i32>, String) {
    let path = dir.to_str().unwrap();
    let words: Vec<&str> = ["replay", path].into_iter().chain(options.split_whitespace()).collect();
    let (code, text) = sim(&words);
    (code, text.replace(path, "journal"))
}

#[test]
fn what_happened_is_told_as_before() {
    let dir = tempfile::tempdir().unwrap();
    drop(two_teams(dir.path()));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/told");
    let mut differing = Vec::new();
    for (name, options) in [
        ("all", ""),
        ("then", "--from 2026-11-20T13:00 --until 2026-11-20T13:40:30"),
        ("job", "--job sweep-1"),
        ("queue", "--queue speech -o json"),
    ] {
        let (code, text) = told(dir.path(), options);
        assert_eq!(code, Some(0), "{text}");
        let text = format!("$ phalanx replay journal {options}\n{text}");
        let file = folder.join(format!("replay-{name}.txt"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, &text).unwrap();
        } else if std::fs::read_to_string(&file).ok().as_deref() != Some(text.as_str()) {
            differing.push(format!("{name} tells something else (UPDATE=1 accepts it):\n{text}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

fn segment(dir: &Path) -> PathBuf {
    dir.join("000001.journal")
}

#[test]
fn damage_is_told_and_what_stands_before_it() {
    let dir = tempfile::tempdir().unwrap();
    drop(two_teams(dir.path()));
    let whole = std::fs::read(segment(dir.path())).unwrap();
    let lines: Vec<usize> =
        whole.iter().enumerate().filter(|(_, c)| **c == b'\n').map(|(at, _)| at + 1).collect();
    let mut middle = whole.clone();
    middle[lines[lines.len() / 2] + 20] ^= 1;
    for (bytes, wanted) in [
        (&whole[..whole.len() - 7], "! journal/000001.journal ends in an incomplete step: line "),
        // Facts whose decisions were not written.
        (&whole[..lines[lines.len() - 2]], "ends before the decisions of its last step"),
        (&middle[..], "is damaged in the middle"),
    ] {
        std::fs::write(segment(dir.path()), bytes).unwrap();
        let (code, text) = told(dir.path(), "");
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(wanted), "{wanted}: {text}");
        assert!(text.contains("submitted") && text.contains("had a place"), "{text}");
        let is_torn = !wanted.contains("middle");
        assert_eq!(told(dir.path(), "--check").0, Some(if is_torn { 0 } else { 66 }));
    }
    std::fs::write(segment(dir.path()), "no journal\n").unwrap();
    let (code, text) = told(dir.path(), "");
    assert_eq!(code, Some(66), "{text}");
    assert!(
        text.contains("tells nothing of that time") && text.contains("is not a journal segment"),
        "{text}"
    );
}

#[test]
fn what_was_then_can_be_asked_what_if() {
    let dir = tempfile::tempdir().unwrap();
    drop(two_teams(dir.path()));
    let file = dir.path().join("then.json");
    let (code, text) = told(dir.path(), &format!("--until 2026-11-20T12:45 --snapshot {}", file.display()));
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = sim(&["whatif", file.to_str().unwrap(), "--drain", "b1"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("as of 2026-11-20 12:45:00") && text.contains("node b1 is drained"), "{text}");
}

#[test]
fn what_is_asked_wrong_is_told() {
    let dir = tempfile::tempdir().unwrap();
    drop(two_teams(dir.path()));
    for (options, code, wanted) in [
        (
            "--until tomorrow",
            64,
            "'tomorrow' for '--until <TIME>': expected a point in time such as 2026-11-20T14:03",
        ),
        ("--from 2026-11-21 --until 2026-11-20", 64, "--until is before --from"),
        ("--until 2020-01-01", 66, "journal tells nothing of that time: it begins 2026-11-20 12:00:00"),
        ("--job 99", 66, "--job: journal knows no job 99 in that time"),
        ("--queue vison", 66, "knows no queue \"vison\"; there are speech, vision"),
        ("--quue speech", 64, "a similar argument exists: '--queue'"),
    ] {
        let (found, text) = told(dir.path(), options);
        assert_eq!(found, Some(code), "{text}");
        assert!(text.contains(wanted), "{options}: {text}");
    }
}

#[test]
fn exit_codes_tell_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.scenario");
    let path = file.to_str().unwrap();
    assert_eq!(sim(&["scenario", path]).0, Some(66), "there is no such file");
    std::fs::write(&file, "node a gpus=4\nsubmit j gpus=4\nexpect j running\n").unwrap();
    let (code, text) = sim(&["scenario", path]);
    assert_eq!(code, Some(2));
    assert!(text.contains("line 3, column 1: expected j to be running, and it is starting"), "{text}");
    assert_eq!(sim(&["swarm", "--seed", "1", "--runs", "3"]).0, Some(0));
    assert_eq!(sim(&["swarm", "--seed"]).0, Some(64));
    assert_eq!(sim(&["swarm", "--seed", "-1"]).0, Some(64));
    assert_eq!(sim(&["dance"]).0, Some(64));
    assert_eq!(sim(&[]).0, Some(64));
    let (code, text) = sim(&["replay"]);
    assert_eq!(code, Some(64), "no state folder is known here");
    assert!(text.contains("DIR is missing"), "{text}");
    let (code, text) = sim(&["run", "--help"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("--checkpoint-cost <TIME>"), "{text}");
}
