//! The studies as a user types them, on short forms of their default inputs.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use phalanx_sim::command::{Command, CommandError, Host};
use phalanx_sim::report::Progress;
use phalanx_sim::studies::{STUDIES, Study};

/// Files in memory.
#[derive(Default)]
struct Memory {
    files: BTreeMap<String, String>,
    printed: String,
}

impl Host for Memory {
    fn words(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn read(&mut self, file: &str, _: u64) -> Result<Vec<u8>, String> {
        let text = self.files.get(file).ok_or_else(|| format!("cannot read {file}: there is none"))?;
        Ok(text.clone().into_bytes())
    }

    fn write(&mut self, file: &str, bytes: &[u8]) -> Result<(), String> {
        self.files.insert(file.to_owned(), String::from_utf8(bytes.to_vec()).unwrap());
        Ok(())
    }

    fn print(&mut self, text: &[u8]) -> Result<(), String> {
        self.printed.push_str(std::str::from_utf8(text).unwrap());
        Ok(())
    }

    fn seconds(&mut self) -> f64 {
        0.0
    }

    fn note(&mut self, _: &str) {}

    fn progress(&mut self, _: Option<Progress<'_>>) {}
}

impl Memory {
    fn with(text: &str) -> Self {
        Self { files: BTreeMap::from([("in.yaml".to_owned(), text.to_owned())]), ..Self::default() }
    }

    fn study(&mut self, line: &str) -> Result<(), CommandError> {
        let words: Vec<&str> = std::iter::once("study").chain(line.split_whitespace()).collect();
        Command::read(&words).map_err(|error| CommandError::Usage(error.to_string()))?.run(self)
    }
}

/// The default input of a study with some of its lines changed.
#[track_caller]
fn changed(name: &str, changes: &[(&str, &str)]) -> String {
    let mut text = Study::named(name).unwrap().default.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{name}.yaml has no {from:?}");
        text = text.replace(from, to);
    }
    text
}

/// What makes a study short.
fn short(name: &str) -> String {
    let changes: &[(&str, &str)] = match name {
        "topology" => &[
            ("106x8x8:2", "4x2x8:2"),
            ("32: 20, 64: 16, 128: 14, 256: 7, 512: 3", "32: 20"),
            ("[0.15, 0.3, 0.5]", "[0.3]"),
        ],
        "consolidation" => &[
            ("lasts: 3d", "lasts: 12h"),
            ("nodes: 4 ", "nodes: 1 "),
            ("8: 20, 16: 10", "8: 20"),
            ("submitted_for: 60h", "submitted_for: 6h"),
            ("gpus: 192", "gpus: 8"),
            ("services: 24", "services: 2"),
            ("[12, 13, 14, 15]", "[1]"),
        ],
        "spot" => &[
            ("nodes: 16", "nodes: 4"),
            ("lasts: 10d", "lasts: 2d"),
            (", 16: 25, 32: 10", ""),
            ("submitted_for: 7d", "submitted_for: 1d"),
            ("  - {every: 72h, notice: 120s}\n  - {every: 24h, notice: 120s}\n", ""),
            ("  - {every: 24h, notice: 0s}\n", ""),
        ],
        "sharing" => &[("nodes: 13", "nodes: 2"), ("tenants: 100", "tenants: 12")],
        "failures" => &[
            ("nodes: 1250", "nodes: 12"),
            ("mtbf: 264d", "mtbf: 2d"),
            ("job: {nodes: 1226, run: 30d}", "job: {nodes: 10, run: 3d}"),
            ("others: {nodes: 30,", "others: {nodes: 4,"),
            ("[0, 1, 2, 6]", "[0, 2]"),
        ],
        _ => &[
            ("[0.02, 0.05, 0.15, 0.3]", "[0.15]"),
            ("[1h, 12h]", "[1h]"),
            ("[5m, 20m, 2h]", "[20m]"),
            ("8x4x8:2", "2x2x8:2"),
            (", 32: 8, 64: 5", ""),
            ("submitted_for: 7d", "submitted_for: 1d"),
            ("[1, 2, 3]", "[1]"),
        ],
    };
    changed(name, changes)
}

/// Runs a study twice: the same input gives the same bytes, the page says what it is and shows its input.
#[track_caller]
fn check(name: &str) {
    let input = short(name);
    let run = || {
        let mut host = Memory::with(&input);
        host.study(&format!("{name} --input in.yaml -o page.md --json page.json")).unwrap();
        assert_eq!(host.printed, host.files["page.md"]);
        (host.files["page.md"].clone(), host.files["page.json"].clone())
    };
    let (page, json) = run();
    assert_eq!((page.clone(), json.clone()), run());
    assert!(page.contains("(modelled)") || page.contains("(predicted)"), "{page}");
    assert!(page.contains(input.trim_end()), "{page}");
    assert!(!page.contains("NaN") && !page.contains("inf "), "{page}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["kind"], &json["study"]), (&"Study".into(), &name.into()));
    assert!(!json["tables"][0]["rows"].as_array().unwrap().is_empty(), "{json}");
}

#[test]
fn topology_runs() {
    check("topology");
}

#[test]
fn failures_runs() {
    check("failures");
}

/// Without spare nodes others take the places of the job whenever it loses a node; with enough of them it never waits.
#[test]
fn spare_nodes_keep_a_large_job_running() {
    let mut host = Memory::with(&changed(
        "failures",
        &[
            ("nodes: 1250", "nodes: 40"),
            ("mtbf: 264d", "mtbf: 8d"),
            ("job: {nodes: 1226, run: 30d}", "job: {nodes: 24, run: 10d}"),
            ("others: {nodes: 30,", "others: {nodes: 20,"),
            ("[0, 1, 2, 6]", "[0, 12]"),
            ("[7m30s, 1h]", "[7m30s]"),
        ],
    ));
    host.study("failures --input in.yaml --json page.json").unwrap();
    let json: serde_json::Value = serde_json::from_str(&host.files["page.json"]).unwrap();
    let figure = |row: usize, column: usize| json["tables"][0]["rows"][row][column].as_f64().unwrap();
    let (ettr, by_formula, waited) = (3, 4, 6);
    assert!(figure(0, ettr) < 80.0, "{json}");
    assert!((figure(1, ettr) - figure(1, by_formula)).abs() < 1.0, "{json}");
    assert!(figure(0, waited) > 30.0 && figure(1, waited) == 0.0, "{json}");
}

#[test]
fn consolidation_runs() {
    check("consolidation");
}

#[test]
fn spot_runs() {
    check("spot");
}

#[test]
fn sharing_runs() {
    check("sharing");
}

#[test]
fn strict_runs() {
    check("strict");
}

#[test]
fn a_bad_input_is_told_with_its_place() {
    let bad = [
        ("spot", "seed: 1", "sead: 1", "sead"),
        ("spot", "nodes: 16", "nodes: 0", "a whole number from 1 to 1000"),
        ("spot", "nodes: 16", "nodes: 4000000000", "a whole number from 1 to 1000"),
        ("spot", "mean_run: 6h", "mean_run: 6", "a duration such as 30s"),
        ("spot", "mean_run: 6h", "mean_run: 1ms", "a duration such as 30s"),
        ("spot", "discounts: [0.6, 0.9]", "discounts: []", "1 to 8 of them"),
        ("spot", "discounts: [0.6, 0.9]", "discounts: [1.5]", "a number from 0.001 to 0.999"),
        ("spot", "{4: 25,", "{0: 25,", "a whole number from 1 to 10000"),
        ("spot", "32: 10}", "9999: 10}", "a job of 9999 GPUs is more than half"),
        ("spot", "mean_run: 6h", "mean_run: 1s", "100000 are the limit"),
        ("sharing", "to: 0.45", "to: 0.95", "more than a GPU"),
        ("sharing", "from: 0.05", "from: 0.5", "`from` is more than `to`"),
        ("sharing", "tenants: 100", "tenants: 105", "raise `nodes`"),
        ("topology", "[phalanx,", "[phalanks,", "there is no policy"),
        ("topology", "against: random", "against: fifo", "not among `policies`"),
        ("topology", "106x8x8:2", "106xx8", "106xx8"),
        ("topology", "106x8x8:2", "lingjun:none.csv", "none.csv"),
        ("strict", "[0.02, 0.05, 0.15, 0.3]", "[1.2]", "a number from 0 to 1"),
        ("strict", "8x4x8:2", "1x1x8:2", "does not fit"),
        ("consolidation", "used: 0.25", "used: 0", "a number from 0.001 to 1"),
    ];
    for (study, from, to, expected) in bad {
        let mut host = Memory::with(&changed(study, &[(from, to)]));
        let error = host.study(&format!("{study} --input in.yaml")).unwrap_err();
        assert!(matches!(error, CommandError::Input(_)), "{study} {to}: {error:?}");
        let error = error.to_string();
        assert!(error.contains(expected) && error.contains("in.yaml"), "{study} {to}: {error}");
    }
}

#[test]
fn studies_are_listed_and_their_inputs_shown() {
    let mut host = Memory::default();
    host.study("").unwrap();
    assert_eq!(host.printed.lines().count(), STUDIES.len());
    for study in &STUDIES {
        let mut host = Memory::default();
        host.study(&format!("{} --show-input", study.name)).unwrap();
        assert_eq!(host.printed, study.default);
    }
    let wrong = |line: &str| Memory::default().study(line).unwrap_err();
    assert!(matches!(wrong("spots"), CommandError::Usage(_)));
    assert!(matches!(wrong("all --input in.yaml"), CommandError::Usage(_)));
    assert!(matches!(wrong("spot --input none.yaml"), CommandError::Input(_)));
    assert!(matches!(wrong("spot --inptu in.yaml"), CommandError::Usage(_)));
}

#[test]
fn the_kept_results_are_of_the_default_inputs() {
    let kept = include_str!("../../../bench/STUDIES.md");
    for study in &STUDIES {
        let declared = format!("```yaml\n{}\n```", study.default.trim_end());
        assert!(
            kept.contains(&declared),
            "{} changed: `phalanx sim study all -o bench/STUDIES.md`",
            study.name
        );
    }
    // The quickest is made again.
    let mut host = Memory::default();
    host.study("sharing").unwrap();
    assert!(kept.contains(&host.printed), "{}", host.printed);
}
