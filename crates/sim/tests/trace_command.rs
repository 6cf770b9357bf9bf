//! The commands for traces, as a user types them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

/// Exit code, standard output and standard error.
fn sim(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_phalanx-sim")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

const PHILLY: &str = "\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-03 00:00:00,3600,8,28800.0,aaaa
2017-10-03 01:00:00,3600,1,3600.0,bbbb
2017-10-03 02:00:00,7200,8,57600.0,aaaa
2017-10-03 03:00:00,a day,8,57600.0,aaaa
";

fn philly(dir: &tempfile::TempDir) -> String {
    let file = dir.path().join("jobs.csv");
    std::fs::write(&file, PHILLY).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_trace_is_told_as_a_table_and_its_bad_rows_as_notes() {
    let dir = tempfile::tempdir().unwrap();
    let expected = "\
format          philly
jobs            3
bad rows        1
submitted       over 2 h 0 min, from 2017-10-03 00:00 UTC
GPU-hours       25
mean load       12.5 GPUs
run             mean 1 h 20 min, p50 1 h 0 min, p99 2 h 0 min, max 2 h 0 min
queues          2
GPUs                  jobs    share
             1           1   33.3 %
             8           2   66.6 %
";
    let notes = "note: row 5: duration: \"a day\" is no number of zero or more\n";
    assert_eq!(sim(&["trace", &philly(&dir)]), (Some(0), expected.to_owned(), notes.to_owned()));
    let (code, out, notes) = sim(&["trace", &philly(&dir), "--json", "--queue", "aaaa"]);
    assert_eq!((code, notes.as_str()), (Some(0), ""));
    let out: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out["summary"]["gpu_seconds"], 86_400);
    assert_eq!(out["bad_rows"][0]["row"], 5);
}

#[test]
fn a_part_of_a_trace_becomes_our_own_format_and_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let part = ["trace", &philly(&dir), "--gpus", "8", "--from", "2017-10-02", "--load", "2", "--csv"];
    let (code, out, _) = sim(&part);
    assert_eq!(code, Some(0));
    let jobs: Vec<&str> = out.lines().skip(1).collect();
    assert_eq!(jobs, ["2,,aaaa,0,3600000,,,,8,,,,,,,,,,,,", "4,,aaaa,3600000,7200000,,,,8,,,,,,,,,,,,"]);
    let own = dir.path().join("own.csv");
    std::fs::write(&own, &out).unwrap();
    assert_eq!(sim(&["trace", own.to_str().unwrap(), "--csv"]).1, out);
}

#[test]
fn drawn_jobs_are_the_same_for_a_seed() {
    let drawn = sim(&["generate", "--like", "gavel-multi", "--jobs", "50", "--seed", "3"]);
    assert_eq!((drawn.0, drawn.1.lines().count()), (Some(0), 51));
    assert_eq!(sim(&["generate", "--like", "gavel-multi", "--jobs", "50", "--seed", "3"]), drawn);
    assert_ne!(sim(&["generate", "--like", "gavel-multi", "--jobs", "50", "--seed", "4"]).1, drawn.1);
}

#[test]
fn what_is_wrong_ends_in_a_sentence_and_a_code() {
    let dir = tempfile::tempdir().unwrap();
    let file = philly(&dir);
    for (arguments, error) in [
        (vec!["trace", "nowhere.csv"], "phalanx-sim: cannot read nowhere.csv: "),
        (vec!["trace", &file, "--format", "muri"], "jobs.csv: the header \"timestamp,duration,num_gpus,"),
        (vec!["trace", &file, "--format", "excel"], "error: invalid value 'excel' for '--format <NAME>'"),
        (
            vec!["trace", &file, "--load", "0"],
            "error: invalid value '0' for '--load <X>': expected a number above 0",
        ),
        (
            vec!["trace", &file, "--until"],
            "error: a value is required for '--until <TIME>' but none was supplied",
        ),
        (vec!["trace", &file, "--user", "eve"], "none of 3 jobs is selected"),
        (vec!["trace", &file, "--usr", "eve"], "a similar argument exists: '--user'"),
        (vec!["trace", &file, "--jobs", &file], "--jobs is for tables of PAI alone"),
        (
            vec!["generate", "--jobs", "0"],
            "error: invalid value '0' for '--jobs <N>': 0 is not in 1..=16777216",
        ),
    ] {
        let (code, out, found) = sim(&arguments);
        // Words are wrong, or files.
        let is_words = ["error:", "--jobs", "similar"].iter().any(|part| error.contains(part));
        assert_eq!((code, out.as_str()), (Some(if is_words { 64 } else { 66 }), ""), "{arguments:?}");
        assert!(found.contains(error), "{arguments:?}: {found}");
    }
}
