//! The command: a journal is decided again, byte by byte, and exit codes tell what is wrong.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use phalanx_engine::{Config, Engine, VERSION};
use phalanx_journal::{Header, Journal};
use phalanx_model::{Epoch, Input, Levels, NodeName, Outcome, SyncKind, Timestamp};

fn sim(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_phalanx-sim")).args(arguments).output().unwrap();
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
    assert_eq!(sim(&["replay", path]).0, Some(66), "nothing to replay is no success");

    record(dir.path(), |out| out);
    let (code, text) = sim(&["replay", path]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("all 2 steps"), "{text}");

    record(dir.path(), |_| Outcome::default());
    let (code, text) = sim(&["replay", path]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("step 2 is decided otherwise") && text.contains("1 of 4 steps"), "{text}");
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
    assert!(text.contains("line 3, column 1: expected j to be running, it is starting"), "{text}");
    assert_eq!(sim(&["swarm", "--seed", "1", "--runs", "3"]).0, Some(0));
    assert_eq!(sim(&["swarm", "--seed"]).0, Some(64));
    assert_eq!(sim(&["dance"]).0, Some(64));
}
