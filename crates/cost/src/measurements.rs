//! Measured collectives as people keep them: a CSV with a header and one measurement per line.
//!
//! ```csv
//! collective,bytes,nodes,gpus_per_node,hardware,nic,busbw
//! all_reduce,1073741824,2,8,H100,8x400G verbs,446.21
//! all_reduce,1GiB,1,8,A100,-,229.04
//! ```
//!
//! | column | meaning |
//! |---|---|
//! | `collective` | `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `broadcast`, `send_recv` |
//! | `bytes` | size of the message as nccl-tests prints it; a number, or one with `KiB`, `MiB`, `GiB` |
//! | `nodes`, `gpus_per_node` | how many took part |
//! | `hardware` | product name, e.g. `NVIDIA H100 80GB HBM3` |
//! | `link` | optional: `nvlink:N` (N links of each GPU into a switch), `mesh:N` (all pairs joined by N NVLinks), `xgmi`, `pcie`; without it what the product usually has |
//! | `nic` | NICs of one node used: `8x400G`, with a network: `verbs` (default), `efa100`, `efa`, `tcpx`, `tcpxo`, `sockets`; `-` on one node |
//! | `launch` | optional: `benchmark` (default; one process per GPU), `framework` (through a framework, or one process for all GPUs) |
//! | `time_us` or `busbw` | time of one call in microseconds, or bus bandwidth in GB/s as nccl-tests defines it |
//!
//! Columns come in any order. Empty lines and lines that begin with `#` are left out. Commas stand in no field.

use crate::collective::Collective;
use crate::link::{generation_of, slot};
use crate::span::{Era, Inner};
use crate::{Network, Span};

/// Bytes of one file.
pub const FILE_BYTES_MAX: usize = 16 << 20;
/// Measurements of one file.
pub const MEASUREMENTS_MAX: usize = 100_000;

/// One measured call.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    pub collective: Collective,
    pub bytes: u64,
    pub span: Span,
    /// What it was measured on, in words: `all_reduce, 2 x 8 H100, 8x400G verbs`.
    pub setup: String,
    /// Through a framework, which takes its own time to launch.
    pub is_framework: bool,
    pub ns: f64,
}

/// What is wrong, and where. Lines and columns count from 1; a column is a place in the line's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct MeasurementError {
    pub line: usize,
    pub column: usize,
    pub what: String,
}

/// # Errors
/// At the first line that cannot be understood, with its place and what to write instead.
pub fn parse(text: &str) -> Result<Vec<Measurement>, MeasurementError> {
    if text.len() > FILE_BYTES_MAX {
        let what = format!("the file has more than {FILE_BYTES_MAX} bytes; leave out repeated measurements");
        return Err(MeasurementError { line: 1, column: 1, what });
    }
    let mut header: Option<Header> = None;
    let mut measurements = Vec::new();
    for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let row = Row::new(number, line);
        match &header {
            None => header = Some(Header::read(&row)?),
            Some(_) if measurements.len() >= MEASUREMENTS_MAX => {
                return Err(
                    row.error(1, format!("more than {MEASUREMENTS_MAX} measurements; leave some out"))
                );
            }
            Some(header) => measurements.push(header.measurement(&row)?),
        }
    }
    if header.is_none() {
        let what = format!("the file is empty; begin with a header: {}", REQUIRED.join(","));
        return Err(MeasurementError { line: 1, column: 1, what });
    }
    Ok(measurements)
}

const REQUIRED: [&str; 7] =
    ["collective", "bytes", "nodes", "gpus_per_node", "hardware", "nic", "time_us or busbw"];
const KNOWN: [&str; 10] = [
    "collective",
    "bytes",
    "nodes",
    "gpus_per_node",
    "hardware",
    "nic",
    "link",
    "launch",
    "time_us",
    "busbw",
];

/// Fields of a line with their columns.
struct Row<'a> {
    line: usize,
    fields: Vec<(usize, &'a str)>,
}

impl<'a> Row<'a> {
    fn new(line: usize, text: &'a str) -> Self {
        let mut column = 1;
        let fields = text.split(',').map(|field| {
            let lead = field.chars().take_while(|c| c.is_whitespace()).count();
            let at = column + lead;
            column += field.chars().count() + 1;
            (at, field.trim())
        });
        Self { line, fields: fields.collect() }
    }

    fn error(&self, column: usize, what: impl Into<String>) -> MeasurementError {
        MeasurementError { line: self.line, column, what: what.into() }
    }
}

/// Where each known column stands.
struct Header {
    at: [Option<usize>; KNOWN.len()],
    columns: usize,
}

impl Header {
    fn read(row: &Row<'_>) -> Result<Self, MeasurementError> {
        let mut at = [None; KNOWN.len()];
        for (place, (column, name)) in row.fields.iter().enumerate() {
            let Some(slot) = KNOWN.iter().position(|known| known == name).and_then(|known| at.get_mut(known))
            else {
                let known = KNOWN.join(", ");
                let name: String = name.chars().take(40).collect();
                return Err(row.error(*column, format!("no column is called `{name}`; known are {known}")));
            };
            if slot.replace(place).is_some() {
                return Err(row.error(*column, format!("the column {name} stands there twice; remove one")));
            }
        }
        let header = Self { at, columns: row.fields.len() };
        for name in ["collective", "bytes", "nodes", "gpus_per_node", "hardware"] {
            if header.place(name).is_none() {
                return Err(
                    row.error(1, format!("the column {name} is missing; a header is {}", REQUIRED.join(",")))
                );
            }
        }
        match (header.place("time_us"), header.place("busbw")) {
            (Some(_), Some(_)) => Err(row.error(1, "time_us and busbw say the same; keep one of them")),
            (None, None) => Err(row.error(1, "a column time_us or busbw is missing: what was measured")),
            _ => Ok(header),
        }
    }

    fn place(&self, name: &str) -> Option<usize> {
        let known = KNOWN.iter().position(|known| *known == name)?;
        self.at.get(known).copied().flatten()
    }

    /// The field of a column with its place in the line; empty when the column is not there.
    fn field<'a>(&self, row: &Row<'a>, name: &str) -> (usize, &'a str) {
        self.place(name).and_then(|place| row.fields.get(place)).copied().unwrap_or((1, ""))
    }

    fn measurement(&self, row: &Row<'_>) -> Result<Measurement, MeasurementError> {
        if row.fields.len() != self.columns {
            let column = row.fields.get(self.columns).or(row.fields.last()).map_or(1, |(column, _)| *column);
            let what = format!("{} fields, but the header has {}", row.fields.len(), self.columns);
            return Err(row.error(column, what));
        }
        let read = |name: &str, wanted: &str, parse: &dyn Fn(&str) -> Option<f64>| {
            let (column, text) = self.field(row, name);
            parse(text).ok_or_else(|| {
                let text: String = text.chars().take(40).collect();
                row.error(column, format!("{name} is `{text}`; write {wanted}"))
            })
        };
        let count =
            |text: &str| text.parse::<u32>().ok().filter(|n| (1..=1 << 20).contains(n)).map(f64::from);
        let nodes = read("nodes", "a number from 1", &count)?;
        let per_node = read("gpus_per_node", "a number from 1", &count)?;
        let bytes = read("bytes", "a number, or one with KiB, MiB or GiB", &bytes)?;
        let (column, name) = self.field(row, "collective");
        let collective = collective(name).ok_or_else(|| {
            row.error(column, "unknown collective; write all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or send_recv")
        })?;
        let (column, launch) = self.field(row, "launch");
        let is_framework = match launch {
            "" | "benchmark" => false,
            "framework" => true,
            _ => return Err(row.error(column, "unknown launch; write benchmark or framework")),
        };
        let (column, nic) = self.field(row, "nic");
        let (nic_mb, network) = nics(nic).ok_or_else(|| {
            row.error(column, "not a set of NICs; write e.g. `8x400G verbs`, or - on one node")
        })?;
        let (column, link) = self.field(row, "link");
        let hardware = self.field(row, "hardware").1;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "read as u32")]
        let (nodes, per_node) = (nodes as u32, per_node as u32);
        let site = Site { hardware, link, nodes, per_node, nic_mb, network };
        let span = site
            .span()
            .ok_or_else(|| row.error(column, "unknown link; write nvlink:N, mesh:N, xgmi or pcie"))?;
        if nodes > 1 && nic_mb <= 0.0 {
            return Err(row.error(self.field(row, "nic").0, "several nodes need NICs; write e.g. `8x400G`"));
        }
        let positive = |text: &str| text.parse::<f64>().ok().filter(|v| v.is_finite() && *v > 0.0);
        let ns = if self.place("time_us").is_some() {
            read("time_us", "a time in microseconds", &positive)? * 1e3
        } else {
            bytes / read("busbw", "a bandwidth in GB/s", &positive)? * bus_factor(collective, span.ranks)
        };
        let setup = [format!("{}, {nodes} x {per_node} {hardware}", collective.name()), link.to_owned()];
        let nic = if nodes > 1 { nic } else { "" };
        let setup =
            setup.iter().map(String::as_str).chain([nic, if is_framework { "framework" } else { "" }]);
        let setup = setup.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 2^60")]
        Ok(Measurement { collective, bytes: bytes as u64, span, setup, is_framework, ns })
    }
}

/// Bus bandwidth is this x bytes / time (nccl-tests, doc/PERFORMANCE.md).
#[must_use]
pub fn bus_factor(collective: Collective, ranks: u32) -> f64 {
    let n = f64::from(ranks.max(1));
    match collective {
        Collective::AllReduce => 2.0 * (n - 1.0) / n,
        Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => (n - 1.0) / n,
        Collective::Broadcast | Collective::PointToPoint => 1.0,
    }
}

fn collective(name: &str) -> Option<Collective> {
    Some(match name {
        "all_reduce" | "allreduce" => Collective::AllReduce,
        "all_gather" | "allgather" => Collective::AllGather,
        "reduce_scatter" => Collective::ReduceScatter,
        "all_to_all" | "alltoall" => Collective::AllToAll,
        "broadcast" => Collective::Broadcast,
        "send_recv" | "sendrecv" => Collective::PointToPoint,
        _ => return None,
    })
}

fn bytes(text: &str) -> Option<f64> {
    let (number, unit) = match text.find(|c: char| c.is_ascii_alphabetic()) {
        Some(at) => text.split_at_checked(at)?,
        None => (text, ""),
    };
    let unit = match unit {
        "" | "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        _ => return None,
    };
    let bytes = number.trim().replace('_', "").parse::<f64>().ok()? * unit;
    (1.0..=1e18).contains(&bytes).then_some(bytes)
}

/// `8x400G verbs`: all NICs of a node together in MB/s, and the network they belong to.
fn nics(text: &str) -> Option<(f64, Network)> {
    let mut words = text.split_whitespace();
    let Some(speed) = words.next().filter(|word| *word != "-") else {
        return words.next().is_none().then_some((0.0, Network::Verbs));
    };
    let network = match words.next() {
        None => Network::Verbs,
        Some(name) => *Network::ALL.iter().find(|network| network.name() == name)?,
    };
    let (count, gigabits) = speed.split_once('x').unwrap_or(("1", speed));
    let count: u32 = count.parse().ok().filter(|count| (1..=64).contains(count))?;
    let gigabits: f64 = gigabits.strip_suffix('G')?.parse().ok().filter(|g| *g > 0.0 && *g <= 1e5)?;
    words.next().is_none().then_some((f64::from(count) * gigabits * 125.0, network))
}

/// Equal nodes, all of whose devices take part, described in words instead of by a topology.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Product name of the devices.
    pub hardware: &'a str,
    /// As in the column `link` of a measurement file.
    pub link: &'a str,
    pub nodes: u32,
    pub per_node: u32,
    /// All NICs of one node, MB/s.
    pub nic_mb: f64,
    pub network: Network,
}

impl Site<'_> {
    /// `None` when the link is not one of those known.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        let generation = generation_of(self.hardware);
        let era = Era::of(generation);
        let g = f64::from(self.per_node);
        let port = |links: u32| f64::from(links) * f64::from(generation.nvlink_mb_per_s);
        let (kind, count) = self.link.split_once(':').unwrap_or((self.link, ""));
        let count: Option<u32> = count.parse().ok().filter(|count| (1..=255).contains(count));
        let usual = if generation.xgmi_mb_per_s > 0 {
            "xgmi"
        } else if generation.has_nvlink_switch {
            "nvlink"
        } else {
            "pcie"
        };
        // A path through a full mesh can leave each device on another link than a ring closes on.
        let ways = if self.nodes > 1 { g } else { g - 1.0 };
        let (inner, ring_mb, pair_mb, is_direct) = match (if kind.is_empty() { usual } else { kind }, count) {
            ("nvlink", count) => {
                let port = port(count.unwrap_or(generation.nvlink_ports).max(1));
                (Inner::Nvlink, port, port, false)
            }
            ("mesh", Some(links)) => (Inner::Nvlink, port(links) * (g - 1.0), port(links), true),
            ("xgmi", None) => {
                let pair = f64::from(generation.xgmi_mb_per_s.max(1));
                (Inner::Xgmi, pair * ways, pair, true)
            }
            ("pcie", None) => {
                let slot = f64::from(slot(generation.pcie));
                (Inner::Pcie, slot, slot, false)
            }
            _ => return None,
        };
        let ranks = self.nodes.checked_mul(self.per_node)?;
        let (j, n) = (g, f64::from(ranks));
        let has_nvls = inner == Inner::Nvlink && !is_direct && self.per_node > 2;
        Some(Span {
            ranks,
            nodes: self.nodes,
            per_node: self.per_node,
            ring_mb: if self.per_node > 1 { ring_mb } else { f64::INFINITY },
            pair_mb,
            is_direct,
            nvls_mb: if has_nvls && era >= Era::Hopper { ring_mb } else { 0.0 },
            inner,
            era,
            nic_mb: if self.nodes > 1 { self.nic_mb } else { f64::INFINITY },
            network: self.network,
            nic_cut_us: if self.nodes > 1 { j * (n - j) / n / self.nic_mb } else { 0.0 },
            ..Span::ALONE
        })
    }
}
