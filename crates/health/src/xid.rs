//! What to do about each Xid, NVIDIA's number of an error in the kernel log. The table is data: `data/xid.csv`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use phalanx_model::product::Generation;
use serde::{Deserialize, Serialize};

const TABLE: &str = include_str!("data/xid.csv");

/// What an Xid asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Recorded only.
    Ignore,
    /// The fault of the job. It never drains by itself, and counts in the comparison of devices.
    Application,
    /// Suspect. With a repair, it drains after the job if it repeats.
    Watch,
    DrainAfterJob,
    DrainNow,
    Broken,
}

impl Action {
    pub const ALL: [Self; 6] =
        [Self::Ignore, Self::Application, Self::Watch, Self::DrainAfterJob, Self::DrainNow, Self::Broken];

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ignore => "ignore",
            Self::Application => "application",
            Self::Watch => "watch",
            Self::DrainAfterJob => "drain_after_job",
            Self::DrainNow => "drain_now",
            Self::Broken => "broken",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What brings a device back, from the cheapest to the dearest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// Nothing: it comes back when it is free and quiet.
    #[default]
    None,
    /// A reset of the device.
    Reset,
    /// A reboot of the node.
    Reboot,
    /// Work by people. Only an operator clears it.
    Service,
}

impl Repair {
    pub const ALL: [Self; 4] = [Self::None, Self::Reset, Self::Reboot, Self::Service];

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Reset => "reset",
            Self::Reboot => "reboot",
            Self::Service => "service",
        }
    }
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub number: u32,
    /// Empty: any.
    pub generations: Vec<Generation>,
    pub action: Action,
    pub repair: Repair,
    /// How often it has to come within an hour before its action follows. Until then it is watched.
    pub needs: u32,
    pub meaning: String,
    pub source: String,
}

/// What follows from one Xid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub action: Action,
    pub repair: Repair,
    pub needs: u32,
    /// `Xid 79: the GPU has fallen off the bus`.
    pub detail: String,
    /// Whether the table has the number.
    pub is_known: bool,
}

/// What to do about an Xid on a device of a generation. `text` is the line of the kernel log.
#[must_use]
pub fn verdict(number: u32, generation: Option<Generation>, text: &str) -> Verdict {
    if number == RECOVERY {
        return recovery(text);
    }
    lookup(number, generation).map_or_else(
        || Verdict {
            action: Action::Watch,
            repair: Repair::None,
            needs: 1,
            detail: format!("unknown Xid {number}"),
            is_known: false,
        },
        |row| Verdict {
            action: row.action,
            repair: row.repair,
            needs: row.needs,
            detail: format!("Xid {number}: {}", row.meaning),
            is_known: true,
        },
    )
}

/// The row of a number. A row for the generation takes precedence over a row for any.
#[must_use]
pub fn lookup(number: u32, generation: Option<Generation>) -> Option<&'static Row> {
    let rows = ROWS.get(&number)?;
    let is_for = |row: &&Row| generation.is_some_and(|generation| row.generations.contains(&generation));
    rows.iter().find(is_for).or_else(|| rows.iter().find(|row| row.generations.is_empty()))
}

/// All rows, by number.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    ROWS.values().flatten()
}

/// "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)".
const RECOVERY: u32 = 154;

/// The driver states the action that it wants in the text.
fn recovery(text: &str) -> Verdict {
    let text = text.to_ascii_lowercase();
    let target = text.rsplit_once(" to ").map(|(_, target)| target).unwrap_or_default();
    let target = target.split_once('(').map(|(_, rest)| rest).unwrap_or_default();
    let target = target.split_once(')').map(|(name, _)| name).unwrap_or_default();
    let (action, repair, what) = match target {
        "none" => (Action::Ignore, Repair::None, "the driver asks for no recovery"),
        _ if target.contains("drain and reset") => {
            (Action::DrainNow, Repair::Reset, "the driver asks for a drain and a reset of the GPU")
        }
        _ if target.contains("drain p2p") => {
            (Action::DrainAfterJob, Repair::Reset, "the driver asks for an end of peer-to-peer traffic")
        }
        // Some drivers write `PF FLR`, a reset of the PCIe function.
        _ if target.contains("gpu reset") || target.contains("flr") => {
            (Action::DrainNow, Repair::Reset, "the driver asks for a reset of the GPU")
        }
        // `Node Reboot Required`, and `OS Reboot` in newer drivers.
        _ if target.contains("reboot") => {
            (Action::DrainNow, Repair::Reboot, "the driver asks for a reboot of the node")
        }
        _ => (Action::Watch, Repair::None, "the driver asks for an unknown recovery action"),
    };
    Verdict { action, repair, needs: 1, detail: format!("Xid {RECOVERY}: {what}"), is_known: true }
}

/// Rows that do not parse are left out; a test reads the whole table.
static ROWS: LazyLock<BTreeMap<u32, Vec<Row>>> = LazyLock::new(|| {
    let mut rows: BTreeMap<u32, Vec<Row>> = BTreeMap::new();
    for row in lines().filter_map(|line| parse(line).ok()) {
        rows.entry(row.number).or_default().push(row);
    }
    rows
});

/// The lines that hold rows.
fn lines() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
}

fn parse(line: &str) -> Result<Row, String> {
    let fields: Vec<&str> = line.split(',').collect();
    let [number, generations, action, repair, needs, meaning, source] = fields.as_slice() else {
        return Err(format!("expected 7 fields, and found {}: {line}", fields.len()));
    };
    let bad = |what: &str| format!("bad {what}: {line}");
    let generations = match *generations {
        "any" => Vec::new(),
        names => {
            let all: Option<Vec<Generation>> = names.split_whitespace().map(generation).collect();
            all.filter(|all| !all.is_empty()).ok_or_else(|| bad("generations"))?
        }
    };
    let needs: u32 = needs.parse().map_err(|_| bad("needs"))?;
    if needs == 0 || meaning.is_empty() || source.is_empty() {
        return Err(bad("row"));
    }
    Ok(Row {
        number: number.parse().map_err(|_| bad("number"))?,
        generations,
        action: Action::ALL.into_iter().find(|of| of.word() == *action).ok_or_else(|| bad("action"))?,
        repair: Repair::ALL.into_iter().find(|of| of.word() == *repair).ok_or_else(|| bad("repair"))?,
        needs,
        meaning: (*meaning).to_owned(),
        source: (*source).to_owned(),
    })
}

fn generation(name: &str) -> Option<Generation> {
    Some(match name {
        "pascal" => Generation::Pascal,
        "volta" => Generation::Volta,
        "ampere" => Generation::Ampere,
        "ampere_graphics" => Generation::AmpereGraphics,
        "hopper" => Generation::Hopper,
        "blackwell" => Generation::Blackwell,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_parses() {
        let rows: Result<Vec<Row>, String> = lines().map(parse).collect();
        let rows = rows.unwrap();
        assert_eq!(rows.len(), super::rows().count());
        let written = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        assert_eq!(rows.len(), written - 1, "a line besides the header is no row");
        for (n, row) in rows.iter().enumerate() {
            let twins = rows[..n].iter().filter(|other| other.number == row.number);
            let overlaps = |other: &Row| match (&*row.generations, &*other.generations) {
                ([], []) => true,
                (mine, theirs) => mine.iter().any(|of| theirs.contains(of)),
            };
            assert!(!twins.clone().any(overlaps), "two rows for {row:?}");
            assert!(row.meaning.len() <= 100 && row.needs <= 8, "{row:?}");
            let closes = row.action >= Action::DrainAfterJob;
            assert!(!closes || row.repair != Repair::None, "nothing brings it back: {row:?}");
        }
        assert!(
            rows.iter()
                .all(|row| super::rows().any(|of| of.generations.is_empty() && of.number == row.number))
        );
    }

    #[test]
    fn malformed_rows_are_refused() {
        for bad in [
            "",
            "1,any,watch,none,1,a",
            "x,any,watch,none,1,a,b",
            "1,,watch,none,1,a,b",
            "1,any,a,none,1,a,b",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        for bad in [
            "1,kepler,watch,none,1,a,b",
            "1,any,watch,a,1,a,b",
            "1,any,watch,none,0,a,b",
            "1,any,watch,none,1,,b",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_driver_says_what_recovery_it_wants() {
        let of = |target: &str| {
            let text = format!("GPU recovery action changed from 0x0 (None) to {target}");
            let Verdict { action, repair, .. } = verdict(154, None, &text);
            (action, repair)
        };
        assert_eq!(of("0x0 (None)"), (Action::Ignore, Repair::None));
        assert_eq!(of("0x1 (GPU Reset Required)"), (Action::DrainNow, Repair::Reset));
        assert_eq!(of("0x1 (PF FLR)"), (Action::DrainNow, Repair::Reset));
        assert_eq!(of("0x2 (Node Reboot Required)"), (Action::DrainNow, Repair::Reboot));
        assert_eq!(of("0x2 (OS Reboot)"), (Action::DrainNow, Repair::Reboot));
        assert_eq!(of("0x3 (Drain P2P)"), (Action::DrainAfterJob, Repair::Reset));
        assert_eq!(of("0x4 (Drain and Reset)"), (Action::DrainNow, Repair::Reset));
        for odd in ["", "0x9 (Pray)", "(", ")(", "0x2"] {
            assert_eq!(of(odd), (Action::Watch, Repair::None), "{odd}");
        }
        assert_eq!(verdict(154, None, "").action, Action::Watch);
    }

    #[test]
    fn a_row_of_the_generation_takes_precedence() {
        let of = |generation| verdict(92, generation, "").action;
        assert_eq!([of(None), of(Some(Generation::Hopper))], [Action::Ignore; 2]);
        assert_eq!(of(Some(Generation::Volta)), Action::Watch);
        assert_eq!(verdict(4_000, None, "").detail, "unknown Xid 4000");
    }
}
