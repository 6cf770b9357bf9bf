//! The matrix that `nvidia-smi topo -m` prints, in every dialect that is about.
//!
//! Texts of this kind come out of terminals, issue trackers and documents: columns are aligned by tabs,
//! spaces or both, rows are cut off, and colours are still in it. The reader takes what is there and lists
//! as [`Gap`]s what it could not read; only a text without any matrix is an error.

mod glue;
mod nics;
mod numa;
pub(crate) mod prefix;
pub(crate) mod square;
pub(crate) mod table;
pub(crate) mod text;
mod wrap;

use phalanx_model::{DEVICES_PER_NODE_MAX, Device, Link, LinkKind, Machine, Nic, Origin, Port};

use crate::cpulist::CpuSet;
use crate::gap::Gap;
use crate::shape;
use numa::Near;
use table::{Cell, Table};

/// The largest text that is read. The matrix of 64 devices and 256 NICs has about 600 KiB.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// The most devices, as many as a [`phalanx_model::DeviceMask`] has bits.
pub const DEVICES_MAX: usize = DEVICES_PER_NODE_MAX as usize;
/// The most NICs.
pub const NICS_MAX: usize = 256;

/// Why nothing of a text is usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopoError {
    #[error("the text is empty; give the output of `nvidia-smi topo -m`")]
    Empty,
    #[error("the text has {bytes} bytes, and at most {TEXT_BYTES_MAX} are read; give the matrix alone")]
    TooLarge { bytes: usize },
    #[error("line {line}, column {column}: this is an error message, not a matrix: {text}")]
    Trouble { line: u32, column: u32, text: String },
    #[error(
        "line {line}, column {column}: this is the matrix of `nvidia-smi topo -p2p`, which says who may reach whom and not how; give the output of `nvidia-smi topo -m`"
    )]
    PeerMatrix { line: u32, column: u32 },
    #[error(
        "line {line}, column {column}: from here on, no line starts with GPU0 and names the columns of a matrix; give the output of `nvidia-smi topo -m`, header included"
    )]
    NoMatrix { line: u32, column: u32 },
    #[error("line {line}: the header is followed by no row; give the whole output of `nvidia-smi topo -m`")]
    NoRows { line: u32 },
    #[error("line {line}: there is a header and rows, and not one link in them could be read")]
    NoLinks { line: u32 },
    #[error("line {line}, column {column}: more than {DEVICES_MAX} GPUs in one machine are not supported")]
    TooManyDevices { line: u32, column: u32 },
    #[error("line {line}, column {column}: more than {NICS_MAX} NICs in one machine are not supported")]
    TooManyNics { line: u32, column: u32 },
}

/// A matrix that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopoM {
    pub machine: Machine,
    /// By line, except for a last one that stands for many.
    pub gaps: Vec<Gap>,
}

impl TopoM {
    /// The matrix does not say what its GPUs are: sets product name and memory of every one.
    #[must_use]
    pub fn with_model(mut self, model: &str, memory_bytes: u64) -> Self {
        for device in &mut self.machine.devices {
            model.clone_into(&mut device.model);
            device.memory_bytes = memory_bytes;
        }
        shape::finish(&mut self.machine);
        self
    }
}

/// Reads the first matrix in a text.
///
/// Devices and NICs are in the order of the header. A NIC's NUMA node is that of the devices it reaches without
/// crossing sockets, where these agree. CPUs are those that any device is near to, a lower bound.
///
/// # Errors
/// When the text holds no matrix of links, or one beyond the limits.
pub fn parse(text: &str) -> Result<TopoM, TopoError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(TopoError::TooLarge { bytes: text.len() });
    }
    let (text, mut table) = read_as_it_came(text::clean(text))?;
    if let Some((line, column)) = table::peer_state_in(&text) {
        return Err(TopoError::PeerMatrix { line, column });
    }
    if let Some(line) = (1..).zip(text.lines()).find_map(|(n, l)| l.contains("topo -mp").then_some(n)) {
        table
            .gaps
            .push(Gap::new((line, 1), "`topo -mp` shows PCIe alone: NVLink may be there and is not shown"));
    }
    let mut machine = Machine::bare(Origin::Declared);
    let (ports, near) = read_ports(&mut table, &mut machine);
    read_links(&mut table, &ports, &mut machine);
    let alone = machine.devices.len() + machine.nics.len() == 1;
    if machine.links.is_empty() && !alone {
        return Err(TopoError::NoLinks { line: table.last_line });
    }
    numa::from_cpus(&mut machine, &near);
    // Links are looked up in their order.
    shape::finish(&mut machine);
    table.gaps.extend(nics::leave_out_virtual(&mut machine, &table.names, table.header_line));
    shape::finish(&mut machine);
    near_numa(&mut machine);
    shape::finish(&mut machine);
    Ok(TopoM { machine, gaps: crate::gap::listed(table.gaps) })
}

/// The text that was read and its matrix: as it stands, or taken out of strings of JSON and the like, or without what
/// a log or a parallel shell put before each line. Of several hosts, the first is read.
fn read_as_it_came(text: String) -> Result<(String, Table), TopoError> {
    let why = match table::read(&text) {
        Ok(table) => return Ok((text, table)),
        Err(why) => why,
    };
    if !matches!(why, TopoError::NoMatrix { .. } | TopoError::NoRows { .. }) {
        return Err(why);
    }
    let without_prefix = |text: &str| prefix::without(text, table::starts_header);
    let escaped = text::unescaped(&text);
    let bare = escaped.as_deref().and_then(without_prefix);
    for other in [escaped, without_prefix(&text), bare].into_iter().flatten() {
        if let Ok(table) = table::read(&other) {
            return Ok((other, table));
        }
    }
    match text::trouble_in(&text) {
        Some((line, column, text)) => Err(TopoError::Trouble { line, column, text }),
        None => Err(why),
    }
}

/// Devices and NICs with their affinities; the port of each column.
fn read_ports(table: &mut Table, machine: &mut Machine) -> (Vec<Port>, Vec<Near>) {
    let mut cpus = CpuSet::default();
    let mut all_near = Vec::new();
    let mut ports = Vec::with_capacity(table.names.len());
    for (name, row) in table.names.iter().zip(&table.rows) {
        if !name.is_device {
            let alias =
                table.aliases.iter().find(|(nic, _)| *nic == name.text).map(|(_, alias)| alias.clone());
            ports.push(Port::Nic(machine.nics.len().try_into().unwrap_or(u32::MAX)));
            machine.nics.push(Nic { name: name.text.clone(), alias, ..Nic::default() });
            continue;
        }
        let mut device = Device { name: name.text.clone(), ..Device::default() };
        let row = row.as_ref();
        let mut near = Near::default();
        if let Some(word) = row.and_then(|r| r.cpus.as_ref()).filter(|w| w.text != "N/A") {
            let (set, bad) = CpuSet::read(&word.text);
            if let Some(bad) = bad {
                let what = format!("{:?} is no CPU or range of CPUs", text::shorten(bad));
                table.gaps.push(Gap::new((word.line, word.column), what));
            }
            cpus.add(&set);
            near.cpus = bad.is_none().then_some(set);
        }
        if let Some(word) = row.and_then(|r| r.numa.as_ref()).filter(|w| !matches!(&*w.text, "N/A" | "-1")) {
            device.numa = word.text.parse().ok();
            // A list such as `0-1` says that the device is near to several.
            let (nodes, bad) = CpuSet::read(&word.text);
            near.nodes = bad.is_none().then_some(nodes);
            if device.numa.is_none() && bad.is_some() {
                let what = format!("{:?} is no NUMA node or list of them", text::shorten(&word.text));
                table.gaps.push(Gap::new((word.line, word.column), what));
            }
        }
        ports.push(Port::Device(machine.device_count()));
        machine.devices.push(device);
        all_near.push(near);
    }
    machine.cpu_milli = cpus.count() * 1000;
    (ports, all_near)
}

/// Both halves of the matrix. Where they differ, the row that has all its cells is kept, and of two such rows that of
/// the lower index.
fn read_links(table: &mut Table, ports: &[Port], machine: &mut Machine) {
    let cell = |table: &Table, row: usize, column: usize| -> Option<(Cell, bool)> {
        let row = table.rows.get(row)?.as_ref()?;
        Some((row.cells.get(column).copied().flatten()?, row.is_short))
    };
    for (i, name) in table.names.iter().enumerate() {
        if table.rows.get(i).is_some_and(Option::is_none) {
            let what = format!("there is no row for {}", name.text);
            table.gaps.push(Gap::new((table.last_line, 1), what));
        }
    }
    for (i, a) in ports.iter().enumerate() {
        for (j, b) in ports.iter().enumerate().skip(i + 1) {
            let (upper, lower) = (cell(table, i, j), cell(table, j, i));
            let keeps_lower = matches!((upper, lower), (Some((_, true)), Some((_, false))));
            if let (Some((u, _)), Some((l, _))) = (upper, lower)
                && u.kind != l.kind
            {
                let name = |at: usize| table.names.get(at).map_or("", |n| n.text.as_str());
                let what = format!(
                    "{} says {} to {}, whose own row says {}; the row of {} is kept",
                    name(j),
                    l.kind,
                    name(i),
                    u.kind,
                    name(if keeps_lower { j } else { i }),
                );
                table.gaps.push(Gap::new((l.line, l.column), what));
            }
            let found = if keeps_lower { lower } else { upper.or(lower) };
            if let Some((found, _)) = found {
                machine.links.push(Link::new(*a, *b, found.kind));
            }
        }
    }
}

/// A link that does not cross sockets joins ports of one NUMA node.
fn near_numa(machine: &mut Machine) {
    for (i, nic) in (0..).zip(&mut machine.nics) {
        let near = machine.links.iter().filter(|l| l.b == Port::Nic(i) && l.kind != LinkKind::Socket);
        let mut numas = near.filter_map(|l| match l.a {
            Port::Device(d) => machine.devices.get(d as usize).and_then(|d| d.numa),
            Port::Nic(_) => None,
        });
        let first = numas.next();
        nic.numa = first.filter(|first| numas.all(|n| n == *first));
    }
}
