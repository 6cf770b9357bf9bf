//! How much processes of this machine wait for its CPUs, memory and disks: the kernel's pressure stall information
//! (kernel documentation, `accounting/psi`).

use std::collections::BTreeSet;
use std::path::Path;

use phalanx_model::{Pressure, Stall, Stalls};

use crate::sysfs::text;

/// Reads the folder, `/proc/pressure`, with notes on files that are not as the kernel writes them. A kernel that does not count
/// has no files, or refuses to read them.
#[must_use]
pub fn read(folder: &Path) -> (Pressure, BTreeSet<String>) {
    let mut notes = BTreeSet::new();
    let mut of = |name: &str| {
        let text = text(&folder.join(name)).filter(|text| !text.is_empty())?;
        let stalls = stalls(&text);
        if stalls.is_none() {
            notes.insert(format!("the pressure on {name} cannot be read"));
        }
        stalls
    };
    let pressure = Pressure { cpu: of("cpu"), memory: of("memory"), io: of("io") };
    (pressure, notes)
}

/// Lines `some avg10=1.08 avg60=21.92 avg300=50.16 total=7633493531` and `full …`, which older kernels do not have of CPUs.
fn stalls(text: &str) -> Option<Stalls> {
    let line = |word: &str| text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    let full = match line("full") {
        Some(rest) => Some(stall(rest)?),
        None => None,
    };
    Some(Stalls { some: stall(line("some")?)?, full })
}

fn stall(text: &str) -> Option<Stall> {
    let value = |name: &str| {
        text.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    Some(Stall {
        avg10_hundredths: hundredths(value("avg10")?)?,
        avg60_hundredths: hundredths(value("avg60")?)?,
        avg300_hundredths: hundredths(value("avg300")?)?,
        total_us: value("total")?.parse().ok()?,
    })
}

/// Of a percentage with two decimals.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.')?;
    let (whole, part) =
        (whole.parse::<u32>().ok()?, Some(part).filter(|part| part.len() == 2)?.parse::<u32>().ok()?);
    whole.checked_mul(100)?.checked_add(part).filter(|hundredths| *hundredths <= 10_000)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_resource_is_read_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(read(folder.path()), (Pressure::default(), BTreeSet::new()));
        write("cpu", "some avg10=1.08 avg60=21.92 avg300=100.00 total=7633493531\n");
        write(
            "io",
            "some avg10=0.11 avg60=1.09 avg300=2.12 total=203787839\nfull avg10=0.01 avg60=0.31 avg300=0.19 total=51861187\n",
        );
        write("memory", "some avg10=0.00 avg60=0.00\n");
        let of = |avg10_hundredths, avg60_hundredths, avg300_hundredths, total_us| Stall {
            avg10_hundredths,
            avg60_hundredths,
            avg300_hundredths,
            total_us,
        };
        let pressure = Pressure {
            cpu: Some(Stalls { some: of(108, 2_192, 10_000, 7_633_493_531), full: None }),
            memory: None,
            io: Some(Stalls { some: of(11, 109, 212, 203_787_839), full: Some(of(1, 31, 19, 51_861_187)) }),
        };
        let notes = BTreeSet::from(["the pressure on memory cannot be read".to_owned()]);
        assert_eq!(read(folder.path()), (pressure, notes));
    }

    #[test]
    fn odd_files_are_notes() {
        let folder = tempfile::tempdir().unwrap();
        let good = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n";
        for odd in [
            "full avg10=0.00 avg60=0.00 avg300=0.00 total=1\n".to_owned(),
            good.replace("total=1", "total=-1"),
            good.replace("avg60=0.00", "avg60=100.01"),
            good.replace("avg60=0.00", "avg60=0.1"),
            good.replace("avg60=0.00", "avg60=99999999999.00"),
            format!("{good}full avg10=x\n"),
            "x".repeat(1 << 20),
        ] {
            fs::write(folder.path().join("cpu"), &odd).unwrap();
            let (pressure, notes) = read(folder.path());
            assert_eq!((pressure.cpu, notes.len()), (None, 1), "{odd:.80}");
        }
        fs::write(folder.path().join("cpu"), good).unwrap();
        assert!(read(folder.path()).0.cpu.is_some());
    }
}
