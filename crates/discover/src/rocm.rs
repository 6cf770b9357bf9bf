//! AMD's tables of links: `rocm-smi --showtopo` (also its parts, and as JSON) and `amd-smi topology`.
//!
//! Four tables say how each pair of GPUs is joined. The kind and the weight are used: a weight is 15 for each
//! xGMI hop, and 20 for each PCIe segment, with the distance between sockets added (the kernel's amdkfd). The
//! table of hops is not: it says 1 for every xGMI pair, indirect ones included.

mod json;

use std::collections::BTreeMap;

use phalanx_model::{Device, Link, LinkKind, Machine, Origin, Port};

use crate::gap::{Gap, listed};
use crate::shape;
use crate::topo_m::DEVICES_MAX;
use crate::topo_m::prefix;
use crate::topo_m::square::{Square, squares};
use crate::topo_m::table::is_device;
use crate::topo_m::text;

/// The largest text that is read. The tables of 64 GPUs have about 400 KiB.
pub const TEXT_BYTES_MAX: usize = 4 << 20;
/// The weight of one xGMI hop.
const XGMI_HOP: u32 = 15;
/// The weight of one PCIe segment: a GPU and its CPU are one apart, two GPUs of one CPU two.
const PCIE_SEGMENT: u32 = 20;

/// Why nothing of a text is usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RocmError {
    #[error("the text is empty; give the output of `rocm-smi --showtopo`")]
    Empty,
    #[error("the text has {bytes} bytes, and at most {TEXT_BYTES_MAX} are read; give the tables alone")]
    TooLarge { bytes: usize },
    #[error("line {line}, column {column}: this is an error message, not a table: {text}")]
    Trouble { line: u32, column: u32, text: String },
    #[error(
        "line {line}: from here on, there is no table of weights or types of links; give the output of `rocm-smi --showtopo` or `amd-smi topology`"
    )]
    NoTable { line: u32 },
    #[error(
        "line {line}: this is the CSV of `amd-smi topology`, which is not read; give its plain output, or that of `amd-smi topology --json`"
    )]
    Csv { line: u32 },
    #[error("line {line}: more than {DEVICES_MAX} GPUs in one machine are not supported")]
    TooManyGpus { line: u32 },
}

/// What the tables say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rocm {
    /// Direct xGMI links alone are links of that kind; what is further goes over PCIe here, and has a way in
    /// `ways`.
    pub machine: Machine,
    /// Every pair that could be read, sorted by `(a, b)`.
    pub ways: Vec<Way>,
    pub gaps: Vec<Gap>,
}

/// How one pair of devices is joined, by their indices; `a < b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub a: u32,
    pub b: u32,
    pub is_xgmi: bool,
    /// xGMI hops or PCIe segments; 0 where the text has no weight.
    pub hops: u32,
    /// One way over all links of the pair, as the driver has it; 0 when the text does not say.
    pub mb_per_s: u32,
}

/// What is known of a pair so far.
#[derive(Clone, Debug, Default)]
struct Pair {
    weight: Option<u32>,
    is_xgmi: Option<bool>,
    mb_per_s: Option<u32>,
}

/// All that a form of the text says, before anything is concluded.
#[derive(Debug, Default)]
struct Facts {
    /// `GPU3`, or a PCI address.
    names: Vec<String>,
    pairs: BTreeMap<(u32, u32), Pair>,
    numa: BTreeMap<u32, u32>,
    models: BTreeMap<u32, String>,
    gaps: Vec<Gap>,
}

/// Reads the tables of a text.
///
/// # Errors
/// When the text has no table of weights or kinds, or one beyond the limits.
pub fn parse(text: &str) -> Result<Rocm, RocmError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(RocmError::TooLarge { bytes: text.len() });
    }
    let text = text::clean(text);
    let mut facts = match json::read(&text).or_else(|| json::read_csv(&text)) {
        Some(facts) => facts,
        None => of_tables(&text)?,
    };
    // With commas between the cells, or with what a log put before each line.
    let without_prefix = || prefix::without(&text, starts_table);
    for other in [text.contains(',').then(|| text.replace(',', " ")), without_prefix()].into_iter().flatten()
    {
        if facts.names.is_empty() {
            facts = json::read(&other).map_or_else(|| of_tables(&other), Ok)?;
        }
    }
    if facts.names.len() > DEVICES_MAX {
        return Err(RocmError::TooManyGpus { line: 1 });
    }
    if facts.names.is_empty() {
        return Err(why_nothing(&text));
    }
    let mut machine = Machine::bare(Origin::Declared);
    for (at, name) in (0..).zip(&facts.names) {
        let number = name.strip_prefix("GPU").and_then(|n| n.parse().ok()).unwrap_or(at);
        let address = is_address(name).then(|| name.to_ascii_lowercase());
        machine.devices.push(Device {
            name: if address.is_some() { format!("GPU{at}") } else { name.clone() },
            model: facts.models.get(&number).cloned().unwrap_or_default(),
            pci_address: address,
            numa: facts.numa.get(&number).copied(),
            ..Device::default()
        });
    }
    let ways = conclude(&mut facts, &mut machine);
    shape::finish(&mut machine);
    Ok(Rocm { machine, ways, gaps: listed(facts.gaps) })
}

/// A header: names of GPUs alone.
fn starts_table(words: &[text::Word<'_>]) -> bool {
    !words.is_empty() && words.iter().all(|w| is_device(w.text) || is_address(w.text))
}

fn why_nothing(text: &str) -> RocmError {
    let is_csv = |text: &str| text.trim().to_ascii_lowercase().starts_with("gpu,");
    if let Some((line, _)) = (1..).zip(text.lines()).find(|(_, text)| is_csv(text)) {
        return RocmError::Csv { line };
    }
    let trouble = ["ERROR", "Unable to", "No AMD GPUs", "not found", "Driver not initialized", "Traceback"];
    let first = (1..).zip(text.lines()).find(|(_, text)| !text.trim().is_empty());
    let told = (1..).zip(text.lines()).find(|(_, text)| trouble.iter().any(|t| text.contains(t)));
    match (told, first) {
        (Some((line, told)), _) => RocmError::Trouble { line, column: 1, text: text::shorten(told.trim()) },
        (None, Some((line, _))) => RocmError::NoTable { line },
        (None, None) => RocmError::Empty,
    }
}

fn is_address(text: &str) -> bool {
    text.contains(':') && super::nvidia::pci_address(text).is_some()
}

/// The tables of text, and the lines about single GPUs.
fn of_tables(text: &str) -> Result<Facts, RocmError> {
    let mut facts = Facts::default();
    let mut gaps = Vec::new();
    for square in squares(text, |word| is_device(word) || is_address(word), &mut gaps) {
        if square.names.len() > DEVICES_MAX {
            return Err(RocmError::TooManyGpus { line: square.line });
        }
        let title = square.title.to_ascii_lowercase();
        let take: fn(&mut Pair, &str) -> bool = if title.contains("weight") {
            take_weight
        } else if title.contains("link type") {
            take_kind
        } else if title.contains("bandwidth") || title.contains("numa bw") {
            take_bandwidth
        } else {
            continue;
        };
        if facts.names.is_empty() {
            facts.names.clone_from(&square.names);
        }
        if facts.names == square.names {
            read_square(&square, take, &mut facts);
        } else {
            gaps.push(Gap::new((square.line, 0), "this table is about other GPUs; it is left out"));
        }
    }
    for (line, text) in (1..).zip(text.lines()) {
        read_line(line, text, &mut facts);
    }
    facts.gaps.extend(gaps);
    Ok(facts)
}

fn read_square(square: &Square, take: fn(&mut Pair, &str) -> bool, facts: &mut Facts) {
    for row in 0..square.names.len() {
        for column in (0..square.names.len()).filter(|column| *column != row) {
            let Some(cell) = square.cell(row, column) else { continue };
            let (a, b) = (row.min(column), row.max(column));
            let (Ok(a), Ok(b)) = (u32::try_from(a), u32::try_from(b)) else { continue };
            if !take(facts.pairs.entry((a, b)).or_default(), &cell.text) {
                let what =
                    format!("{:?} cannot be, or differs from the other half", text::shorten(&cell.text));
                facts.gaps.push(Gap::new((cell.line, cell.column), what));
            }
        }
    }
}

/// Whether a value agrees with what is known; the first is kept.
fn keep<T: PartialEq>(slot: &mut Option<T>, value: T) -> bool {
    let agrees = slot.as_ref().is_none_or(|known| *known == value);
    slot.get_or_insert(value);
    agrees
}

fn take_weight(pair: &mut Pair, text: &str) -> bool {
    text == "N/A" || text.parse().is_ok_and(|weight: u32| weight > 0 && keep(&mut pair.weight, weight))
}

fn take_kind(pair: &mut Pair, text: &str) -> bool {
    match text {
        "XGMI" => keep(&mut pair.is_xgmi, true),
        "PCIE" | "PCIe" => keep(&mut pair.is_xgmi, false),
        "N/A" => true,
        _ => false,
    }
}

/// `50000-100000`: of one link, and of all of the pair together; `0-0` where there is no direct one.
fn take_bandwidth(pair: &mut Pair, text: &str) -> bool {
    let most = text.split_once('-').and_then(|(_, most)| most.parse().ok());
    text == "N/A" || most.is_some_and(|most| keep(&mut pair.mb_per_s, most))
}

/// `GPU[0] : (Topology) Numa Node: 0` and `GPU[0] : Card Series: AMD Instinct MI300X`.
fn read_line(line: u32, text: &str, facts: &mut Facts) {
    let Some((number, rest)) = text.trim().strip_prefix("GPU[").and_then(|t| t.split_once(']')) else {
        return;
    };
    let (Ok(number), Some((name, value))) =
        (number.parse(), rest.trim_start().trim_start_matches(':').trim().rsplit_once(':'))
    else {
        return;
    };
    if !facts.fact(number, name, value.trim()) {
        facts.gaps.push(Gap::new((line, 0), format!("{:?} is no NUMA node", text::shorten(value.trim()))));
    }
}

impl Facts {
    /// Takes a fact about one GPU; false when it should be a number and is none.
    fn fact(&mut self, number: u32, name: &str, value: &str) -> bool {
        match name.trim().to_ascii_lowercase().as_str() {
            // -1 where the firmware does not tell.
            "(topology) numa node" if !matches!(value, "-1" | "N/A") => match value.parse() {
                Ok(numa) => _ = self.numa.insert(number, numa),
                Err(_) => return false,
            },
            "card series" if value != "N/A" => _ = self.models.insert(number, value.to_owned()),
            _ => {}
        }
        true
    }
}

/// Links and ways from weights, kinds and bandwidths.
fn conclude(facts: &mut Facts, machine: &mut Machine) -> Vec<Way> {
    let mut ways = Vec::new();
    let count = machine.device_count();
    for (a, b) in (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))) {
        let name = |at: u32| machine.devices.get(at as usize).map_or("", |d| d.name.as_str());
        let pair = facts.pairs.remove(&(a, b)).unwrap_or_default();
        let Some(is_xgmi) = pair.is_xgmi.or_else(|| pair.weight.and_then(kind_of_weight)) else {
            let what = format!("the text does not say how {} and {} are joined", name(a), name(b));
            facts.gaps.push(Gap::new((0, 0), what));
            continue;
        };
        let unit = if is_xgmi { XGMI_HOP } else { PCIE_SEGMENT };
        let hops = pair.weight.map_or(0, |weight| (weight / unit).max(1));
        if is_xgmi && pair.weight.is_some_and(|weight| weight % XGMI_HOP != 0) {
            let what =
                format!("the weight of {} and {} is no number of xGMI hops of {XGMI_HOP}", name(a), name(b));
            facts.gaps.push(Gap::new((0, 0), what));
        }
        let way = Way { a, b, is_xgmi, hops, mb_per_s: pair.mb_per_s.unwrap_or(0) };
        let is_direct = is_xgmi && hops <= 1 && pair.mb_per_s != Some(0);
        let numa = |at: u32| machine.devices.get(at as usize).and_then(|d| d.numa);
        let kind = if is_direct { LinkKind::Xgmi } else { pcie(&way, numa(a), numa(b)) };
        let nominal_mb_per_s = if is_direct { way.mb_per_s } else { 0 };
        machine.links.push(Link { nominal_mb_per_s, ..Link::new(Port::Device(a), Port::Device(b), kind) });
        ways.push(way);
    }
    ways
}

/// Whether a weight alone means xGMI. 60 would be four hops or three segments, and says nothing.
const fn kind_of_weight(weight: u32) -> Option<bool> {
    match (weight % XGMI_HOP, weight % PCIE_SEGMENT) {
        (0, 0) => None,
        (0, _) => Some(true),
        _ => Some(false),
    }
}

/// How a pair reaches each other over PCIe. Two segments meet in one root complex; more weight than that is the
/// distance between CPUs. The driver does not tell switches apart.
fn pcie(way: &Way, a: Option<u32>, b: Option<u32>) -> LinkKind {
    match (a, b) {
        (Some(a), Some(b)) if a != b => LinkKind::Socket,
        _ if !way.is_xgmi && way.hops == 1 => LinkKind::PcieSwitch,
        _ if !way.is_xgmi && way.hops == 2 => LinkKind::HostBridge,
        (Some(_), Some(_)) => LinkKind::Numa,
        _ => LinkKind::Socket,
    }
}
