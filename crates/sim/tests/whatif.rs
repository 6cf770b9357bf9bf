//! What would change on a snapshot: what is told of it, beside which stands what was told before (`UPDATE=1` writes that
//! anew), and that it is what comes.

#![allow(clippy::unwrap_used, reason = "tests")]

mod live;

use std::collections::BTreeMap;
use std::path::Path;

use jiff::tz::TimeZone;
use live::{Live, MINUTE, job, two_teams};
use phalanx_engine::{Config, Engine};
use phalanx_model::{Epoch, JobId, Outcome};
use phalanx_sim::ahead::ahead;
use phalanx_sim::command::{Command, Host};
use phalanx_sim::report::Progress;
use serde_json::Value;

/// Files in memory, and a page of 100 columns.
#[derive(Default)]
struct Memory {
    files: BTreeMap<String, Vec<u8>>,
    printed: String,
}

impl Host for Memory {
    fn words(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn read(&mut self, file: &str, _: u64) -> Result<Vec<u8>, String> {
        self.files.get(file).cloned().ok_or_else(|| format!("cannot read {file}: there is none"))
    }

    fn print(&mut self, text: &[u8]) -> Result<(), String> {
        self.printed.push_str(std::str::from_utf8(text).unwrap());
        Ok(())
    }

    fn width(&mut self) -> Option<usize> {
        Some(100)
    }

    fn zone(&mut self) -> TimeZone {
        TimeZone::UTC
    }

    fn seconds(&mut self) -> f64 {
        0.0
    }

    fn note(&mut self, text: &str) {
        panic!("{text}");
    }

    fn progress(&mut self, _: Option<Progress<'_>>) {}
}

fn asked(live: &Live, options: &str) -> Result<String, String> {
    let files = [
        ("now.json", serde_json::to_string(&live.snapshot()).unwrap()),
        ("big.yaml", job("big", "speech", 1, "1h")),
        ("huge.yaml", job("huge", "speech", 99, "")),
        ("bad.yaml", "nmae: x\n".to_owned()),
        ("queues.yaml", "queues: [{name: vision, guaranteed: {gpus: 12}}, {name: speech}]\n".to_owned()),
        ("text", "no snapshot".to_owned()),
    ];
    let files = files.map(|(name, text)| (name.to_owned(), text.into_bytes()));
    let mut memory = Memory { files: files.into(), ..Memory::default() };
    let words: Vec<&str> = ["whatif"].into_iter().chain(options.split_whitespace()).collect();
    let command = Command::read(&words).map_err(|error| error.to_string())?;
    command.run(&mut memory).map(|()| memory.printed).map_err(|error| error.to_string())
}

#[test]
fn what_would_change_is_told_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let live = two_teams(dir.path());
    let cases = [
        ("expected", "now.json"),
        ("job", "now.json --job big.yaml"),
        ("nodes", "now.json --add-nodes 2:leaf-2 --horizon 12h"),
        ("drain", "now.json --drain a1,a2 --all"),
        ("queues", "now.json --queues queues.yaml --set queues.vision.weight=2 --job big.yaml"),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/told");
    let mut differing = Vec::new();
    for (name, options) in cases {
        let text = format!("$ phalanx sim whatif {options}\n{}", asked(&live, options).unwrap());
        let file = folder.join(format!("whatif-{name}.txt"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, &text).unwrap();
        } else if std::fs::read_to_string(&file).ok().as_deref() != Some(text.as_str()) {
            differing.push(format!("{name} tells something else (UPDATE=1 accepts it):\n{text}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn what_is_typed_wrong_is_told_with_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let live = two_teams(dir.path());
    for (options, wanted) in [
        ("", "required arguments were not provided:\n  <SNAPSHOT>"),
        ("now.json --live", "'[SNAPSHOT]' cannot be used with '--live'"),
        ("--live", "--live needs `phalanx sim`, which asks the daemon"),
        ("gone.json", "cannot read gone.json"),
        ("text", "text is no snapshot, as `phalanx snapshot > FILE` writes it: expected"),
        (
            "now.json --set weight",
            "invalid value 'weight' for '--set <PATH=VALUE>': expected PATH=VALUE, as in queues",
        ),
        (
            "now.json --set queues.vison.weight=2",
            "none of the queues is named \"vison\"; there are speech, vision",
        ),
        ("now.json --set queues.vision=2", "what of vision? as in queues.vision.weight"),
        ("now.json --set queues.vision.wait.x=2", "--set queues.vision.wait.x=2:"),
        ("now.json --set queues.vision.wieght=2", "did you mean \"weight\"?"),
        ("now.json --set queues.vision.weight=x", "expected a weight from 0 to 1000000"),
        ("now.json --set name.x.y=2", "known fields here: queues, preset, classes"),
        ("now.json --add-nodes 2", "'--add-nodes <N:DOMAIN>': expected N:DOMAIN, as in 16:leaf-9"),
        ("now.json --add-nodes 0:leaf-1", "expected from 1 to 100000 nodes"),
        (
            "now.json --add-nodes 2:leaf-9",
            "no node stands right in \"leaf-9\"; nodes stand in lab/leaf-1, lab/leaf-2",
        ),
        ("now.json --drain a9", "there is no node \"a9\"; there are a1, a2, b1, b2"),
        ("now.json --job bad.yaml", "bad.yaml:1:1: nmae: no such field"),
        ("now.json --job huge.yaml", "the engine does not take this: a gang of 396 members can never fit"),
        ("now.json --horizon 1s", "'1s' for '--horizon <TIME>': expected a duration from 1m to 365d"),
        ("now.json -o html", "[possible values: table, json, yaml]"),
        ("now.json --add-node 2:leaf-2", "a similar argument exists: '--add-nodes'"),
    ] {
        let error = asked(&live, options).unwrap_err();
        assert!(error.contains(wanted), "{options}: {error}");
    }
}

#[test]
fn a_document_is_the_same_in_json_and_yaml() {
    let dir = tempfile::tempdir().unwrap();
    let live = two_teams(dir.path());
    let json: Value = serde_json::from_str(&asked(&live, "now.json -o json").unwrap()).unwrap();
    let yaml: Value = serde_saphyr::from_str(&asked(&live, "now.json --output=yaml").unwrap()).unwrap();
    assert_eq!(yaml, json);
}

/// Nothing of it is a guess of ours: the live engine, told the same, decides the same.
#[test]
fn the_live_engine_does_what_was_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut live = two_teams(dir.path());
    let document: Value =
        serde_json::from_str(&asked(&live, "now.json --job big.yaml -o json").unwrap()).unwrap();
    assert_eq!(document["kind"], "WhatIf");
    let gangs = document["gangs"].as_array().unwrap();
    let of = |id: JobId| gangs.iter().find(|row| row["gang"]["job"] == id.0).unwrap();
    let big = live.submit(&job("big", "speech", 1, "1h"));
    let mut evicted = 0;
    for (job, records) in live.engine.jobs() {
        let record = &records[0];
        if record.is_finished() {
            continue;
        }
        let then = &of(job.id)["then"];
        let stops = then["stops"].as_array().unwrap();
        let now = stops.iter().find(|stop| stop["at"] == document["from"]);
        if let Some(eviction) = &record.evicted.as_ref().filter(|eviction| eviction.by == big.gang(0)) {
            evicted += 1;
            assert_eq!(now.unwrap()["eviction"], serde_json::to_value(eviction).unwrap(), "{then:#}");
        } else {
            assert_eq!(now, None, "job {}: {then:#}", job.id);
        }
    }
    assert_eq!(evicted, 1, "{document:#}");
    // The ranks of the live system end at once when they are told to, those of the model a second later.
    let start = &of(big)["then"]["starts"][0];
    let placement = live.engine.gang(big.gang(0)).unwrap().placement.as_ref().unwrap();
    assert_eq!(start["nodes"][0], placement.slots[0].node.as_str());
    let waited_ms = start["at"].as_u64().unwrap() - document["from"].as_u64().unwrap();
    assert!(waited_ms <= MINUTE, "{start:#}");
}

/// Whatever stands half-way at the moment of a snapshot comes to its end.
#[test]
fn what_is_being_started_or_stopped_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut live = Live::begin(dir.path());
    let answers = |live: &mut Live, is_answered| live.is_answered = is_answered;
    answers(&mut live, false);
    let starting = live.submit(&job("starting", "vision", 1, "2h"));
    answers(&mut live, true);
    let stopping = live.submit(&job("stopping", "vision", 3, "2h"));
    answers(&mut live, false);
    live.wait(MINUTE / 2);
    let wants = live.submit(&job("wants", "speech", 2, "2h"));
    let phase = |job: JobId| live.engine.gang(job.gang(0)).unwrap().phase.word();
    assert_eq!([starting, stopping, wants].map(phase), ["starting", "stopping", "pending"]);
    let gangs = ahead(&live.snapshot(), Vec::new(), 600 * MINUTE).unwrap().gangs;
    let of = |job: JobId| &gangs[&job.gang(0)];
    assert!(of(starting).is_running && of(starting).ending == Some("time_limit"), "{gangs:#?}");
    assert!(of(stopping).is_running && of(stopping).starts.len() == 1, "{gangs:#?}");
    assert!(of(wants).starts[0].at < of(stopping).starts[0].at, "{gangs:#?}");
    assert!(gangs.values().all(|course| course.ends_at.is_some()), "{gangs:#?}");
}

#[test]
fn a_snapshot_rebuilds_the_engine_and_tells_no_programs() {
    let dir = tempfile::tempdir().unwrap();
    let live = two_teams(dir.path());
    let snapshot = live.snapshot();
    let mut twin = Engine::new(Epoch(2), Config::default());
    let mut out = Outcome::default();
    let _ = twin.step(snapshot.taken_at, &snapshot.facts, &mut out);
    assert!(out.effects.is_empty(), "{:?}", out.effects);
    assert_eq!(twin.snapshot().facts, snapshot.facts);
    assert_eq!(twin.reasons(), live.engine.reasons());
    assert!(!serde_json::to_string(&snapshot).unwrap().contains("run: train"));
    assert!(!format!("{snapshot:?}").contains("\"train\"]"), "a command line");
    let once = || format!("{:?}", ahead(&snapshot, Vec::new(), 600 * MINUTE).unwrap());
    assert_eq!(once(), once());
}
