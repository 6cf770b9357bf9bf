//! The reference lists every ending of a job with its exit code.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use phalanx_model::{Ending, FailureClass, JobId};

const PAGE: &str = include_str!("../../../docs/reference/exit-codes.md");

#[test]
fn every_ending_is_documented_with_its_exit_code() {
    let failed =
        |code| Ending::Failed { class: FailureClass::UserCode, rank: Some(0), code, detail: String::new() };
    let endings = [
        Ending::Succeeded,
        Ending::Cancelled { by: String::new() },
        Ending::TimeLimit,
        Ending::Preempted { detail: String::new() },
        Ending::DeadlineMissed,
        Ending::DependencyFailed { job: JobId(1) },
        Ending::IdleLimit,
    ];
    let mut expected: Vec<(&str, String)> =
        endings.iter().map(|ending| (ending.word(), ending.exit_code().to_string())).collect();
    assert_eq!((failed(Some(7)).exit_code(), failed(None).exit_code()), (7, 1));
    let of_failed = "the exit code of the rank that failed first; 1 if it has none";
    expected.push((failed(None).word(), of_failed.to_owned()));
    expected.sort();

    let (_, table) = PAGE.split_once("## Endings of jobs\n").unwrap();
    let rows = table.lines().skip_while(|line| !line.starts_with('|')).skip(2);
    let rows = rows.map_while(|row| row.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "));
    let mut documented: Vec<(&str, String)> = rows.map(|(word, code)| (word, code.to_owned())).collect();
    documented.sort();
    assert_eq!(documented, expected);
    assert_eq!(documented.len(), Ending::WORDS.len());
}
