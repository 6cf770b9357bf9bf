//! What follows from each Xid, in one file that people can read.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use phalanx_health::xid::{lookup, rows, verdict};
use phalanx_model::product::Generation;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/xids.txt");

#[test]
fn the_table_says_what_people_read() {
    let mut shown = String::new();
    for row in rows() {
        let names: Vec<String> =
            row.generations.iter().map(|of| format!("{of:?}").to_ascii_lowercase()).collect();
        let generations = if names.is_empty() { "any".to_owned() } else { names.join(" ") };
        let verdict = verdict(row.number, row.generations.first().copied(), "");
        assert!(verdict.is_known);
        let needs = if row.needs > 1 { format!(" ({} in 1 h)", row.needs) } else { String::new() };
        let (action, repair, meaning) = (row.action, row.repair, &row.meaning);
        shown += &format!("{} {generations} -> {action}, {repair}{needs}: {meaning}\n", row.number);
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(GOLDEN, &shown).unwrap();
    }
    let known = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    assert_eq!(shown, known, "{GOLDEN} differs; UPDATE=1 writes it again");
}

/// The numbers of section 4.5 of the reference, and those in common use.
#[test]
fn the_catalogue_is_complete() {
    let mut numbers: BTreeSet<u32> = [8, 11, 13, 14, 25, 31, 32, 37, 38, 54, 60, 61, 62, 63, 64].into();
    let ranges = [
        39..=41,
        43..=46,
        48..=48,
        66..=72,
        74..=80,
        82..=86,
        88..=89,
        92..=110,
        119..=121,
        126..=137,
        139..=141,
    ];
    numbers.extend(ranges.into_iter().flatten());
    numbers.extend(143..=158);
    numbers.extend(160..=161);
    let missing: Vec<u32> = numbers.into_iter().filter(|number| lookup(*number, None).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(lookup(79, Some(Generation::Instinct)).is_some());
}
