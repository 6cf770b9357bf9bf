//! What a step costs in a journal: `cargo run -p phalanx-journal --example append_bench --release [FOLDER]`.
//!
//! The folder decides: a file system in memory shows the encoding alone, a disk shows its `fdatasync`.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use phalanx_journal::{Header, Journal, read};
use phalanx_model::{Change, Epoch, GangId, Input, JobId, MemberId, Outcome, SyncKind, Timestamp};

const STEPS: u32 = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let dir =
        env::args_os().nth(1).map_or_else(|| env::temp_dir().join("phalanx-append-bench"), PathBuf::from);
    println!("{STEPS} steps each in {}", dir.display());
    println!(
        "{:>7} {:>7} {:>12} {:>12} {:>12} {:>10}",
        "facts", "sync", "median µs", "p99 µs", "steps/s", "B/step"
    );
    for facts in [1, 8, 1_000] {
        for sync in [false, true] {
            measure(&dir, facts, sync)?;
        }
    }
    Ok(())
}

fn measure(dir: &std::path::Path, facts: u32, sync: bool) -> Result<(), Box<dyn Error>> {
    let mut journal = Journal::create(dir, Header::new("bench", Epoch(1), Timestamp(0)))?;
    let all: Vec<Input> = [SyncKind::Nodes, SyncKind::Jobs, SyncKind::Members]
        .into_iter()
        .flat_map(|kind| [Input::SyncBegin { kind }, Input::SyncEnd { kind }])
        .collect();
    journal.facts(Timestamp(0), &all)?;
    journal.decisions(&Outcome::default())?;
    journal.sync()?;

    let gang = GangId { job: JobId(1), index: 0 };
    let inputs: Vec<Input> =
        (0..facts).map(|rank| Input::MemberReady { member: MemberId { gang, attempt: 1, rank } }).collect();
    let outcome = Outcome { changes: vec![Change::GangRunning { gang, attempt: 1 }], ..Outcome::default() };
    let begun_bytes = journal.bytes();
    let begun = Instant::now();
    let mut spans = Vec::new();
    for step in 0..STEPS {
        let before = Instant::now();
        journal.facts(Timestamp(step.into()), &inputs)?;
        journal.decisions(&outcome)?;
        if sync {
            journal.sync()?;
        }
        spans.push(before.elapsed());
    }
    let whole = begun.elapsed();
    spans.sort_unstable();
    let micros = |d: Option<&Duration>| d.map_or(0, Duration::as_micros);
    println!(
        "{facts:>7} {sync:>7} {:>12} {:>12} {:>12} {:>10}",
        micros(spans.get(spans.len() / 2)),
        micros(spans.get(spans.len() * 99 / 100)),
        u128::from(STEPS) * 1_000_000 / whole.as_micros().max(1),
        (journal.bytes() - begun_bytes) / u64::from(STEPS),
    );
    let begun = Instant::now();
    let (_, records, _) = read(journal.path())?;
    println!("{:>15} records read in {} ms", records.len(), begun.elapsed().as_millis());
    std::fs::remove_file(journal.path())?;
    Ok(())
}
