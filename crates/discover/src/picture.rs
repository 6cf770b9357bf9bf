//! Draws one machine for a terminal: sockets as boxes, PCIe switches inside, a cell for each device, and a
//! bar along each NVLink island. At most [`WIDTH_MAX`] columns; no colours, so that a caller can add them.

mod block;

use phalanx_model::{DeviceMask, LinkKind, Machine, Port};

use crate::shape;
use block::{Block, Strokes};

/// The widest line, in columns.
pub const WIDTH_MAX: usize = 100;

/// Which characters are drawn with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Box drawing and geometric shapes, all of one column.
    #[default]
    Unicode,
    /// For terminals and logs that have nothing else.
    Ascii,
}

/// Draws a machine. A device in `busy` shows the mark that `owners` gives it, or a filled dot where that is
/// none; a mark that is not one narrow visible character counts as none. Lines end with a newline.
#[must_use]
pub fn draw(
    machine: &Machine,
    busy: DeviceMask,
    owners: &dyn Fn(u32) -> Option<char>,
    style: Style,
) -> String {
    let painter = Painter { machine, busy, owners, strokes: Strokes::of(style), style };
    let mut lines = vec![painter.title()];
    if machine.devices.is_empty() {
        lines.extend(painter.host().lines);
    } else {
        let boxes = painter.boxes();
        let sockets: Vec<Block> = boxes.iter().map(|devices| painter.socket(*devices, boxes.len())).collect();
        let body = block::flow(&sockets, WIDTH_MAX, 1);
        let width = body.width();
        lines.extend(body.lines);
        lines.extend(painter.wide_islands(&boxes, width));
        lines.extend(painter.notes(&boxes));
        lines.push(painter.key());
    }
    let mut text = String::new();
    for line in lines {
        text += line.trim_end();
        text.push('\n');
    }
    text
}

struct Painter<'a> {
    machine: &'a Machine,
    busy: DeviceMask,
    owners: &'a dyn Fn(u32) -> Option<char>,
    strokes: Strokes,
    style: Style,
}

/// Ports that hang on one PCIe switch, or one device that hangs on none.
struct Unit {
    devices: Vec<u32>,
    nics: Vec<u32>,
}

/// Names in a box beyond this are counted and not listed.
const NAMES_MAX: usize = 4;
/// A name beyond this is cut.
const NAME_COLUMNS_MAX: usize = 12;

impl Painter<'_> {
    fn title(&self) -> String {
        let machine = self.machine;
        let dot = self.strokes.dot;
        let mut parts = vec![machine.shape.to_string()];
        let mut models: Vec<(&str, u32)> = Vec::new();
        for device in machine.devices.iter().filter(|d| !d.model.is_empty()) {
            match models.iter_mut().find(|(model, _)| *model == device.model) {
                Some((_, count)) => *count += 1,
                None => models.push((&device.model, 1)),
            }
        }
        parts.extend(models.iter().map(|(model, count)| format!("{count} {} {model}", self.strokes.times)));
        if machine.cpu_milli > 0 {
            parts.push(format!("{} CPUs", machine.cpu_milli.div_ceil(1000)));
        }
        if machine.memory_bytes > 0 {
            parts.push(memory(machine.memory_bytes));
        }
        block::fit(&parts.join(&format!(" {dot} ")), WIDTH_MAX, self.style)
    }

    /// A machine without devices.
    fn host(&self) -> Block {
        let mut lines = vec![format!("{} no devices: CPU jobs only", self.strokes.free)];
        let nics: Vec<u32> = (0..).take(self.machine.nics.len()).collect();
        lines.extend(self.nic_lines(&nics, 60));
        Block::of(lines).padded(1).framed("host", self.strokes.soft)
    }

    /// One set for each NUMA node; devices of which nothing is known stand in one box, not in one each.
    fn boxes(&self) -> Vec<DeviceMask> {
        let mut sets: Vec<DeviceMask> = shape::groups(self.machine, shape::SOCKET).collect();
        let rest = sets.iter().fold(self.machine.device_mask(), |rest, set| rest.minus(*set));
        let (known, unknown): (Vec<u32>, Vec<u32>) = rest.iter().partition(|d| self.numa(*d).is_some());
        sets.extend(known.into_iter().map(DeviceMask::one));
        if !unknown.is_empty() {
            sets.push(unknown.into_iter().collect());
        }
        sets.sort_unstable_by_key(|set| set.0.trailing_zeros());
        sets
    }

    fn socket(&self, devices: DeviceMask, boxes: usize) -> Block {
        let units = self.units(devices);
        let has_switch = units.iter().any(|u| u.devices.len() + u.nics.len() > 1);
        let cells: Vec<Block> = units.iter().map(|unit| self.unit(unit, has_switch)).collect();
        let mut inside = block::flow(&cells, WIDTH_MAX - 4, 1);
        for island in shape::groups(self.machine, shape::NVLINK).filter(|i| i.is_subset_of(devices)) {
            inside.lines.push(self.bar(island, inside.width()));
        }
        let numa = devices.iter().next().and_then(|d| self.numa(d));
        let loose = self.loose_nics().into_iter();
        let others: Vec<u32> = loose.filter(|n| boxes == 1 || self.stands_with(*n, devices)).collect();
        let width = inside.width().max(24);
        inside.lines.extend(self.nic_lines(&others, width));
        let is_known = shape::groups(self.machine, shape::SOCKET).any(|g| g == devices);
        let title = match numa {
            Some(numa) => format!("NUMA {numa}"),
            None if is_known => "socket".into(),
            None => "socket unknown".into(),
        };
        inside.padded(1).framed(&title, self.strokes.soft)
    }

    /// Devices with what shares their switch, in order of the first device.
    fn units(&self, devices: DeviceMask) -> Vec<Unit> {
        let near = |d: u32, n: u32| {
            let kind = self.machine.link(Port::Device(d), Port::Nic(n));
            matches!(kind, Some(LinkKind::PcieSwitch | LinkKind::PcieBridges))
        };
        let mut units = Vec::new();
        let mut rest = devices;
        for first in devices.iter() {
            if !rest.contains(first) {
                continue;
            }
            let shared = shape::groups(self.machine, shape::PCIE).find(|g| g.contains(first));
            let set = shared.map_or(DeviceMask::one(first), |g| g.and(devices));
            rest = rest.minus(set);
            let nics = (0..).take(self.machine.nics.len());
            let nics = nics.filter(|n| set.iter().any(|d| near(d, *n))).collect();
            units.push(Unit { devices: set.iter().collect(), nics });
        }
        units
    }

    /// A switch as a box, or a bare cell moved down to stand level with cells in boxes.
    fn unit(&self, unit: &Unit, has_switch: bool) -> Block {
        let cells: Vec<Block> = unit.devices.iter().map(|d| self.cell(*d)).collect();
        let mut block = block::flow(&cells, WIDTH_MAX - 8, 0);
        if unit.devices.len() + unit.nics.len() > 1 {
            let names = self.nic_names(&unit.nics);
            let width = block.width().max(names.iter().map(|n| block::width(n)).max().unwrap_or(0));
            block.lines.extend(names.iter().map(|n| block::centred(n, width)));
            let title = if block.width() >= 10 { "PCIe" } else { "" };
            return block.framed(title, self.strokes.round);
        }
        if has_switch {
            block.lines.insert(0, String::new());
        }
        block
    }

    fn cell(&self, device: u32) -> Block {
        Block::of(vec![format!("{device:>2} {}", self.mark(device))]).framed("", self.strokes.cell)
    }

    fn mark(&self, device: u32) -> char {
        if !self.busy.contains(device) {
            return self.strokes.free;
        }
        let owner = (self.owners)(device).filter(|c| block::is_narrow(*c, self.style));
        owner.unwrap_or(self.strokes.busy)
    }

    /// On the NUMA node of these devices, or reached by one of them without crossing sockets.
    fn stands_with(&self, nic: u32, devices: DeviceMask) -> bool {
        let numa = self.machine.nics.get(nic as usize).and_then(|n| n.numa);
        devices.iter().any(|d| match (numa, self.numa(d)) {
            (Some(nic), Some(device)) => nic == device,
            _ => self.machine.link(Port::Device(d), Port::Nic(nic)).is_some_and(|k| k < LinkKind::Socket),
        })
    }

    /// NICs that share no switch with a device.
    fn loose_nics(&self) -> Vec<u32> {
        let units = self.units(self.machine.device_mask());
        (0..).take(self.machine.nics.len()).filter(|n| !units.iter().any(|u| u.nics.contains(n))).collect()
    }

    fn numa(&self, device: u32) -> Option<u32> {
        self.machine.devices.get(device as usize).and_then(|d| d.numa)
    }

    fn nic_name(&self, nic: u32) -> String {
        let name = self.machine.nics.get(nic as usize).map_or("", |n| n.name.as_str());
        block::fit(name, NAME_COLUMNS_MAX, self.style)
    }

    /// One name a line, for a box under cells.
    fn nic_names(&self, nics: &[u32]) -> Vec<String> {
        let listed = if nics.len() > NAMES_MAX { NAMES_MAX - 1 } else { nics.len() };
        let mut names: Vec<String> = nics.iter().take(listed).map(|n| self.nic_name(*n)).collect();
        if listed < nics.len() {
            names.push(format!("+{}", nics.len() - listed));
        }
        names
    }

    /// Names beside each other, wrapped.
    fn nic_lines(&self, nics: &[u32], width: usize) -> Vec<String> {
        if nics.is_empty() {
            return Vec::new();
        }
        let names = nics.iter().map(|n| self.nic_name(*n));
        block::wrap(["NICs:".to_owned()].into_iter().chain(names), width)
    }

    /// `╞══ NVLink × 18 ══ 0-7 ══╡`, as wide as what it connects.
    fn bar(&self, island: DeviceMask, width: usize) -> String {
        let mut least: Option<LinkKind> = None;
        let mut most: Option<LinkKind> = None;
        for (a, b, kind) in shape::fabric_links(self.machine) {
            if island.contains(a) && island.contains(b) {
                least = Some(least.map_or(kind, |k| k.min(kind)));
                most = Some(most.map_or(kind, |k| k.max(kind)));
            }
        }
        let times = self.strokes.times;
        let label = match (least, most) {
            (Some(LinkKind::Nvlink(a)), Some(LinkKind::Nvlink(b))) if a == b => format!("NVLink {times}{a}"),
            (Some(LinkKind::Nvlink(a)), Some(LinkKind::Nvlink(b))) => format!("NVLink {times}{a}-{b}"),
            (Some(LinkKind::Nvlink(_)), _) => "NVLink and xGMI".into(),
            _ => "xGMI".into(),
        };
        // Leaves room for the bar's ends and the frames around it.
        let label = block::fit(&format!("{label}: {island}"), WIDTH_MAX - 12, self.style);
        block::bar(&label, width, self.strokes)
    }

    /// Islands that reach over boxes.
    fn wide_islands(&self, boxes: &[DeviceMask], width: usize) -> Vec<String> {
        let islands = shape::groups(self.machine, shape::NVLINK);
        let wide = islands.filter(|island| !boxes.iter().any(|devices| island.is_subset_of(*devices)));
        wide.map(|island| self.bar(island, width)).collect()
    }

    /// Links between islands, and NICs that stand nowhere.
    fn notes(&self, boxes: &[DeviceMask]) -> Vec<String> {
        let islands: Vec<DeviceMask> = shape::groups(self.machine, shape::NVLINK).collect();
        let inside = |a: u32, b: u32| islands.iter().any(|i| i.contains(a) && i.contains(b));
        let mut between: Vec<String> = Vec::new();
        for (a, b, kind) in shape::fabric_links(self.machine).filter(|(a, b, _)| !inside(*a, *b)) {
            between.push(match kind {
                LinkKind::Nvlink(count) => format!("{a}-{b} {}{count}", self.strokes.times),
                _ => format!("{a}-{b}"),
            });
        }
        let hidden = between.len().saturating_sub(12);
        between.truncate(12);
        if hidden > 0 {
            between.push(format!("and {hidden} more"));
        }
        let mut lines = Vec::new();
        if !between.is_empty() {
            let separator = if self.style == Style::Unicode { " ·" } else { "," };
            let last = between.len() - 1;
            let parts = between.into_iter().enumerate();
            let parts = parts.map(|(i, p)| if i == last { p } else { format!("{p}{separator}") });
            lines.extend(block::wrap(["between islands:".to_owned()].into_iter().chain(parts), WIDTH_MAX));
        }
        let placed = |n: &u32| boxes.len() == 1 || boxes.iter().any(|b| self.stands_with(*n, *b));
        let away: Vec<u32> = self.loose_nics().into_iter().filter(|n| !placed(n)).collect();
        if !away.is_empty() {
            let names = away.iter().map(|n| self.nic_name(*n));
            lines.extend(block::wrap(["elsewhere:".to_owned()].into_iter().chain(names), WIDTH_MAX));
        }
        lines
    }

    fn key(&self) -> String {
        let Strokes { free, busy, .. } = self.strokes;
        let all = self.machine.device_mask();
        let used = self.busy.and(all);
        let mut key = format!("{free} free {}   {busy} busy {}", all.count() - used.count(), used.count());
        if used.iter().any(|d| self.mark(d) != busy) {
            key += "   other marks are owners";
        }
        key
    }
}

/// Binary units, one digit after the point.
fn memory(bytes: u64) -> String {
    let units = [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20)];
    let (unit, shift) = units.into_iter().find(|(_, shift)| bytes >> shift > 0).unwrap_or(("KiB", 10));
    let tenths = u128::from(bytes) * 10 / (1_u128 << shift);
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}
