//! A map as a picture: boxes in boxes for domains, a small box for each host, what leaves each domain at its
//! edge, and in another colour what [`super::check()`] finds fault with.

mod layout;
mod machine;
mod words;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use phalanx_model::domains::Domains;
use phalanx_model::{End, Graph};

use super::check::{MapFinding, SubjectKind, check};
use super::scene::Scene;
use super::view::{View, counted};
use crate::check::Severity;
use layout::{BAR, GAP, LINE, PAD, Tile, What, text_width};

/// Colours of both themes. White letters on the colours of hosts have a contrast of at least 4.5 to 1.
const STYLE: &str = "\
text{font:11px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;fill:#1f2933}\
.b{fill:#fff}.t{font-weight:600}.m{fill:#52606d}.w{fill:#a34700;font-weight:600}\
.d{fill:#3d6aa8;fill-opacity:.06;stroke:#8fa5bd}.d.warn{stroke:#b45f06;fill-opacity:.06}.d.severe{stroke:#c92a2a;stroke-width:2;fill-opacity:.06}\
.ok{fill:#23795a}.warn{fill:#a85a00}.severe{fill:#c92a2a}.none{fill:#66717d}.s{fill:#3b5f9a}.s.warn{fill:#a85a00}.s.severe{fill:#c92a2a}\
.n{fill:#fff;text-anchor:middle}.h{font-size:9px}.e{text-anchor:end}\
@media(prefers-color-scheme:dark){text{fill:#e4e9ef}.b{fill:#12161c}.m{fill:#a7b2be}.w{fill:#ffb454}\
.d{fill:#7ea6dc;fill-opacity:.07;stroke:#4b5f76}.n{fill:#fff}}";

/// The most findings that are written below the picture.
const FINDINGS_MAX: usize = 8;

/// An SVG picture without script, readable on light and on dark. Beyond some hundreds of hosts, domains are
/// folded to numbers; 12,800 hosts are some hundred kilobytes. Of one machine alone, its sockets, PCIe switches, GPUs,
/// NICs and links.
#[must_use]
pub fn svg(graph: &Graph, domains: &Domains) -> String {
    if let Some(machine) = super::machine::only_machine(graph) {
        return machine::svg(graph.hosts.first().map_or("", |host| host.name.as_str()), machine);
    }
    let view = View::of(graph, domains);
    let scene = Scene::of(&view);
    let findings = check(graph, domains);
    let findings: Vec<MapFinding> = findings.into_iter().filter(|f| f.severity > Severity::Note).collect();
    let mut worst = BTreeMap::new();
    for finding in &findings {
        for name in &finding.subject.names {
            // The most severe come first.
            worst.entry((finding.subject.kind, name.as_str())).or_insert(finding.severity);
        }
    }
    let tile = layout::lay_out(&view, &scene);
    let mut picture = Picture { view: &view, scene: &scene, worst, text: String::new() };
    let width = (tile.w + 2 * PAD).max(640);
    let foot = picture.foot(&findings, width, tile.h + 2 * PAD);
    let height = tile.h + 2 * PAD + foot.1;
    let title = escaped(&words::counts(&view, &scene, None, false));
    picture.text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<rect class=\"b\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    picture.tile(&tile, PAD, PAD);
    picture.text.push_str(&foot.0);
    picture.text.push_str("</svg>\n");
    picture.text
}

struct Picture<'a> {
    view: &'a View<'a>,
    scene: &'a Scene,
    worst: BTreeMap<(SubjectKind, &'a str), Severity>,
    text: String,
}

impl Picture<'_> {
    /// Appends a line. Writing to a string cannot fail.
    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.text.write_fmt(text);
        self.text.push('\n');
    }

    fn class(&self, kind: SubjectKind, name: &str) -> &'static str {
        match self.worst.get(&(kind, name)) {
            Some(Severity::Severe) => "severe",
            Some(_) => "warn",
            None => "",
        }
    }

    fn tile(&mut self, tile: &Tile, x: u32, y: u32) {
        let Tile { w, h, .. } = *tile;
        match &tile.what {
            What::Domain(id) => self.domain(*id, false, (x, y, w, h)),
            What::Folded(id) => {
                self.domain(*id, true, (x, y, w, h));
                self.bar(*id, (x + PAD, y + h - PAD - BAR + 2, w - 2 * PAD));
            }
            What::Host { host, is_named } => self.host(*host, *is_named, (x, y, w, h)),
            What::Switch { switch, is_named } => self.switch(*switch, *is_named, (x, y, w, h)),
            What::Switches(id) => self.switches(*id, (x, y, w, h)),
            What::More(count) => {
                let text = format!("and {} more", counted(*count as u64, "domain", "domains"));
                self.line(format_args!("<text class=\"m\" x=\"{x}\" y=\"{}\">{text}</text>", y + LINE));
            }
        }
        for inner in &tile.inner {
            self.tile(inner, x + inner.x, y + inner.y);
        }
    }

    fn domain(&mut self, id: Option<u32>, is_folded: bool, (x, y, w, h): (u32, u32, u32, u32)) {
        let path = id.map_or_else(String::new, |id| self.view.path(id));
        let class = self.class(SubjectKind::Domain, &path);
        let title = escaped(&words::title(self.view, id));
        let (uplink, is_low) = words::uplink(self.view, id);
        let counts = escaped(&words::counts(self.view, self.scene, id, is_folded));
        self.line(format_args!(
            "<rect class=\"d {class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"6\"><title>{}</title></rect>",
            escaped(&path)
        ));
        let (left, right, base) = (x + PAD, x + w - PAD, y + LINE);
        self.line(format_args!("<text class=\"t\" x=\"{left}\" y=\"{base}\">{title}</text>"));
        if !uplink.is_empty() {
            let class = if is_low { "e w" } else { "e m" };
            self.line(format_args!("<text class=\"{class}\" x=\"{right}\" y=\"{base}\">{uplink}</text>"));
        }
        self.line(format_args!("<text class=\"m\" x=\"{left}\" y=\"{}\">{counts}</text>", base + LINE - 2));
    }

    /// How many of the hosts in a folded domain have findings: a bar in three colours.
    fn bar(&mut self, id: Option<u32>, (x, y, w): (u32, u32, u32)) {
        let mut counts = [0_u64; 3];
        let mut domains = vec![id];
        while let Some(id) = domains.pop() {
            domains.extend(self.scene.domains(id).iter().map(|id| Some(*id)));
            for host in self.scene.hosts(id) {
                let at = match self.class(SubjectKind::Host, self.view.host_name(*host)) {
                    "severe" => 2,
                    "warn" => 1,
                    _ => 0,
                };
                counts.get_mut(at).into_iter().for_each(|count| *count += 1);
            }
        }
        let all: u64 = counts.iter().sum();
        let mut left = u64::from(x);
        for (count, class) in counts.iter().zip(["ok", "warn", "severe"]) {
            // A single host still shows.
            let share = (u64::from(w) * count).checked_div(all).unwrap_or(0);
            let share = if *count > 0 { share.max(3) } else { 0 };
            if share > 0 {
                self.line(format_args!(
                    "<rect class=\"{class}\" x=\"{left}\" y=\"{y}\" width=\"{share}\" height=\"{BAR}\"/>"
                ));
                left += share;
            }
        }
    }

    fn host(&mut self, host: u32, is_named: bool, (x, y, w, h): (u32, u32, u32, u32)) {
        let name = self.view.host_name(host);
        let machine = self.view.graph.hosts.get(host as usize).and_then(|host| host.machine.as_ref());
        let class = match (self.class(SubjectKind::Host, name), machine) {
            ("", Some(machine)) if machine.device_count() > 0 => "ok",
            ("", _) => "none",
            (class, _) => class,
        };
        let about = escaped(&words::about_host(self.view, host));
        let count = machine.map(|machine| machine.device_count()).filter(|count| *count > 0);
        let middle = x + w / 2;
        self.line(format_args!(
            "<g><title>{about}</title><rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"3\"/>"
        ));
        if is_named {
            let letters = usize::try_from(w.saturating_sub(4) * 10 / 57).unwrap_or(usize::MAX);
            let short = escaped(&words::cut(name, letters));
            let y = if count.is_some() { y + 12 } else { y + h / 2 + 3 };
            self.line(format_args!("<text class=\"n h\" x=\"{middle}\" y=\"{y}\">{short}</text>"));
        }
        let count =
            count.map(|count| format!("<text class=\"n\" x=\"{middle}\" y=\"{}\">{count}</text>", y + h - 5));
        self.line(format_args!("{}</g>", count.unwrap_or_default()));
    }

    fn switch(&mut self, switch: End, is_named: bool, (x, y, w, h): (u32, u32, u32, u32)) {
        let name = self.view.name(switch);
        let class = self.class(SubjectKind::Switch, name);
        let about = escaped(&words::about_switch(self.view, switch));
        self.line(format_args!(
            "<g><title>{about}</title><rect class=\"s {class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"{}\"/></g>",
            h / 2
        ));
        if is_named {
            let letters = usize::try_from(w.saturating_sub(PAD) * 10 / 62).unwrap_or(usize::MAX);
            let short = escaped(&words::cut(name, letters));
            self.line(format_args!("<text class=\"n\" x=\"{}\" y=\"{}\">{short}</text>", x + w / 2, y + 12));
        }
    }

    fn switches(&mut self, id: Option<u32>, (x, y, w, h): (u32, u32, u32, u32)) {
        let switches = self.scene.switches(id);
        let classes: Vec<&str> =
            switches.iter().map(|s| self.class(SubjectKind::Switch, self.view.name(*s))).collect();
        let class = ["severe", "warn"].into_iter().find(|class| classes.contains(class)).unwrap_or("");
        let text = counted(switches.len() as u64, "switch", "switches");
        self.line(format_args!(
            "<rect class=\"s {class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"8\"/>"
        ));
        self.line(format_args!("<text class=\"n\" x=\"{}\" y=\"{}\">{text}</text>", x + w / 2, y + 12));
    }

    /// The legend and the worst findings, and how high they are.
    fn foot(&self, findings: &[MapFinding], width: u32, top: u32) -> (String, u32) {
        let mut text = String::new();
        let mut x = PAD;
        let entries = [
            ("ok", "host, with its devices"),
            ("none", "host, inside not known"),
            ("warn", "slower or misplaced"),
            ("severe", "broken"),
            ("s", "switch"),
            ("", "↑ what leaves a domain, one way"),
        ];
        let mut y = top + PAD;
        for (class, words) in entries {
            let w = 22 + text_width(words) + PAD;
            if x + w > width {
                (x, y) = (PAD, y + LINE);
            }
            if class.is_empty() {
                let _ = writeln!(text, "<text class=\"m\" x=\"{x}\" y=\"{y}\">{words}</text>");
                continue;
            }
            let round = if class == "s" { 6 } else { 3 };
            let _ = writeln!(
                text,
                "<rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"16\" height=\"12\" rx=\"{round}\"/>",
                y - 10
            );
            let _ = writeln!(text, "<text x=\"{}\" y=\"{y}\">{words}</text>", x + 20);
            x += w;
        }
        let letters = usize::try_from((width - 2 * PAD) * 10 / 62).unwrap_or(usize::MAX);
        y += GAP;
        for finding in findings.iter().take(FINDINGS_MAX) {
            y += LINE;
            for (at, line) in words::wrapped(&finding.to_string(), letters).iter().enumerate() {
                // What goes on is set in.
                y += if at > 0 { LINE - 2 } else { 0 };
                let x = if at > 0 { 2 * PAD } else { PAD };
                let _ = writeln!(text, "<text x=\"{x}\" y=\"{y}\">{}</text>", escaped(line));
            }
        }
        if findings.len() > FINDINGS_MAX {
            y += LINE;
            let more = findings.len() - FINDINGS_MAX;
            let _ = writeln!(text, "<text class=\"m\" x=\"{PAD}\" y=\"{y}\">and {more} more</text>");
        }
        (text, y + PAD - top)
    }
}

/// Text between tags.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
