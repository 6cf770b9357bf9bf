//! One machine as a picture: sockets side by side, GPUs above NICs in each PCIe switch, links between GPUs below.

use std::fmt::Write as _;

use phalanx_model::{LinkKind, Machine};

use super::layout::{LINE, PAD, text_width};
use super::{STYLE, escaped};
use crate::map::machine::{Inside, Socket, Unit, link_text};

/// A GPU or a NIC.
const CELL: (u32, u32) = (112, 34);
/// Between two arcs of links that end at one GPU.
const ARC: u32 = 10;
/// The colours of links and switches beside those of a fabric.
const OWN_STYLE: &str =
    ".p{fill:#8fa5bd;fill-opacity:.18;stroke:#8fa5bd}.l{fill:none;stroke:#5a8f1f}.i{fill:#5a8f1f}";

pub(super) fn svg(name: &str, machine: &Machine) -> String {
    let inside = Inside::of(machine);
    let mut drawing = Drawing { inside: &inside, text: String::new(), gpus: Vec::new(), bottom: 0 };
    let mut x = PAD;
    let top = PAD + 2 * LINE;
    for socket in &inside.sockets {
        x = drawing.socket(socket, x, top) + PAD;
    }
    let width = x.max(640);
    let height = drawing.links() + PAD;
    let title = escaped(&format!("{name}: {}", inside.title()));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>{title}</title>\n<style>{STYLE}{OWN_STYLE}</style>\n<rect class=\"b\" width=\"{width}\" height=\"{height}\"/>\n\
         <text class=\"t\" x=\"{PAD}\" y=\"{}\">{title}</text>\n{}</svg>\n",
        PAD + LINE,
        drawing.text
    )
}

struct Drawing<'a> {
    inside: &'a Inside<'a>,
    text: String,
    /// The middle of each GPU.
    gpus: Vec<(u32, u32)>,
    bottom: u32,
}

impl Drawing<'_> {
    /// Draws a socket, and returns its right edge.
    fn socket(&mut self, socket: &Socket, x: u32, y: u32) -> u32 {
        let columns: u32 = socket.units.iter().map(Self::columns).sum();
        let gaps = u32::try_from(socket.units.len()).unwrap_or(0) + 1;
        let w = (columns * (CELL.0 + PAD) + gaps * PAD).max(text_width(&socket.title) + 2 * PAD);
        let h = 2 * (CELL.1 + PAD) + 3 * LINE + PAD;
        let _ = writeln!(
            self.text,
            "<rect class=\"d\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"6\"/>"
        );
        let title = escaped(&socket.title);
        let _ = writeln!(self.text, "<text class=\"t\" x=\"{}\" y=\"{}\">{title}</text>", x + PAD, y + LINE);
        let mut at = x + PAD;
        for unit in &socket.units {
            at = self.unit(unit, at, y + LINE + PAD) + PAD;
        }
        self.bottom = self.bottom.max(y + h);
        x + w
    }

    fn columns(unit: &Unit) -> u32 {
        u32::try_from(unit.devices.len().max(unit.nics.len())).unwrap_or(1).max(1)
    }

    fn unit(&mut self, unit: &Unit, x: u32, y: u32) -> u32 {
        let w = Self::columns(unit) * (CELL.0 + PAD);
        let h = 2 * (CELL.1 + PAD) + LINE + PAD / 2;
        if unit.devices.len() + unit.nics.len() > 1 {
            let label = escaped(&self.inside.pcie_text(unit));
            let _ = writeln!(
                self.text,
                "<rect class=\"p\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"4\"/>"
            );
            let _ = writeln!(
                self.text,
                "<text class=\"m\" x=\"{}\" y=\"{}\">{label}</text>",
                x + PAD / 2,
                y + LINE - 4
            );
        }
        let nics = unit.nics.iter().map(|nic| (None, self.inside.nic_text(*nic)));
        let gpus = unit
            .devices
            .iter()
            .map(|gpu| (Some(*gpu), (self.inside.device_name(*gpu).to_owned(), String::new())));
        for (row, cells) in [nics.collect::<Vec<_>>(), gpus.collect()].into_iter().enumerate() {
            let top = y + LINE + u32::try_from(row).unwrap_or(0) * (CELL.1 + PAD);
            for (column, (gpu, (name, about))) in (0_u32..).zip(cells) {
                let left = x + PAD / 2 + column * (CELL.0 + PAD);
                self.cell(gpu, (&name, &about), left, top);
            }
        }
        x + w
    }

    fn cell(&mut self, gpu: Option<u32>, (name, about): (&str, &str), x: u32, y: u32) {
        let (w, h) = CELL;
        let (class, round) = if gpu.is_some() { ("ok", 3) } else { ("s", 12) };
        let name = escaped(&super::words::cut(name, 18));
        let (middle, base) = (x + w / 2, if about.is_empty() { y + h / 2 + 4 } else { y + 14 });
        let _ = writeln!(
            self.text,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"{round}\"/>"
        );
        let _ = writeln!(self.text, "<text class=\"n\" x=\"{middle}\" y=\"{base}\">{name}</text>");
        if !about.is_empty() {
            let about = escaped(about);
            let _ = writeln!(self.text, "<text class=\"n h\" x=\"{middle}\" y=\"{}\">{about}</text>", y + 27);
        }
        if let Some(gpu) = gpu {
            self.gpus.push((gpu, middle));
        }
    }

    fn middle(&self, gpu: u32) -> Option<u32> {
        self.gpus.iter().find(|(known, _)| *known == gpu).map(|(_, middle)| *middle)
    }

    /// A bar for each island, joined with its GPUs, and an arc for each other pair. Returns where the picture ends.
    fn links(&mut self) -> u32 {
        let top = self.bottom;
        let gpu_edge = PAD + 2 * LINE + LINE + PAD + LINE + 2 * CELL.1 + PAD;
        let mut y = top + PAD;
        for island in &self.inside.islands {
            let ends: Vec<u32> = island.devices.iter().filter_map(|gpu| self.middle(gpu)).collect();
            let (Some(first), Some(last)) = (ends.iter().min(), ends.iter().max()) else { continue };
            let (x, w) = (first - CELL.0 / 2, last - first + CELL.0);
            for end in &ends {
                let _ =
                    writeln!(self.text, "<path class=\"l\" stroke-width=\"3\" d=\"M{end} {gpu_edge}V{y}\"/>");
            }
            let label = escaped(&format!("{}: {}, every pair", link_text(island.kind), island.devices));
            let _ = writeln!(
                self.text,
                "<rect class=\"i\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"20\" rx=\"4\"/>"
            );
            let _ =
                writeln!(self.text, "<text class=\"n\" x=\"{}\" y=\"{}\">{label}</text>", x + w / 2, y + 14);
            y += 20 + PAD;
        }
        let mut deepest = y;
        for (at, (a, b, kind)) in (0_u32..).zip(&self.inside.pairs) {
            let (Some(from), Some(to)) = (self.middle(*a), self.middle(*b)) else { continue };
            let depth = y + from.abs_diff(to) / 6 + at % 4 * ARC;
            let wide = match kind {
                LinkKind::Nvlink(count) => u32::from(*count).min(4),
                _ => 2,
            };
            let title = escaped(&format!(
                "{} to {}: {}",
                self.inside.device_name(*a),
                self.inside.device_name(*b),
                link_text(*kind)
            ));
            let _ = writeln!(
                self.text,
                "<path class=\"l\" stroke-width=\"{wide}\" d=\"M{from} {gpu_edge}Q{} {depth} {to} {gpu_edge}\"><title>{title}</title></path>",
                u32::midpoint(from, to)
            );
            deepest = deepest.max(depth);
        }
        deepest + PAD
    }
}
