//! A map for Graphviz: `dot -Tsvg` draws it.

mod machine;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use phalanx_model::domains::Domains;
use phalanx_model::{End, Graph};

use super::scene::Scene;
use super::view::{View, counted, gb_per_s, listed};

/// Equal hosts, or equal switches, of one domain that are drawn one by one.
const EQUAL_MAX: usize = 16;

/// Clusters in clusters, at most; what is deeper is left out.
const DEPTH_MAX: usize = 64;

/// What decides whether two hosts or switches are equal: devices, tier, and the links.
type Likeness = (u32, u8, Vec<(End, u16, u16, u32)>);

/// A Graphviz graph: clusters for domains, boxes for switches with the highest tier on top, and hosts below.
/// Cables that are down make a link red. More than 16 equal hosts or switches of a domain are one node. Of one machine
/// alone, its sockets, PCIe switches, GPUs, NICs and links.
#[must_use]
pub fn dot(graph: &Graph, domains: &Domains) -> String {
    if let Some(machine) = super::machine::only_machine(graph) {
        return machine::dot(graph.hosts.first().map_or("", |host| host.name.as_str()), machine);
    }
    let view = View::of(graph, domains);
    let scene = Scene::of(&view);
    let mut writer = Writer { view: &view, scene: &scene, text: String::new(), node_of: BTreeMap::new() };
    writer
        .text
        .push_str("graph fabric {\n  graph [rankdir=TB, compound=true, ranksep=1, fontname=\"Helvetica\"]\n");
    writer.text.push_str(
        "  node [fontname=\"Helvetica\", fontsize=10]\n  edge [fontname=\"Helvetica\", fontsize=8]\n",
    );
    writer.domain(None, 1);
    writer.edges();
    writer.text.push_str("}\n");
    writer.text
}

struct Writer<'a> {
    view: &'a View<'a>,
    scene: &'a Scene,
    text: String,
    /// The node that each end is drawn as, by its number, and how the node is called.
    node_of: BTreeMap<End, (usize, String)>,
}

impl Writer<'_> {
    fn line(&mut self, depth: usize, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{:1$}{text}", "", depth * 2);
    }

    fn domain(&mut self, id: Option<u32>, depth: usize) {
        if depth > DEPTH_MAX {
            return;
        }
        for group in self.alike(self.scene.switches(id)) {
            self.switches(&group, depth);
        }
        let hosts: Vec<End> = self.scene.hosts(id).iter().map(|host| End::Host(*host)).collect();
        for group in self.alike(&hosts) {
            self.hosts(&group, depth);
        }
        for child in self.scene.domains(id).to_vec() {
            let Some(domain) = self.view.domains.domains.get(child as usize) else { continue };
            let level =
                self.view.domains.levels.get(domain.level as usize).map_or("", |level| level.as_str());
            let title = if level == domain.name.as_str() {
                level.to_owned()
            } else {
                format!("{level} {}", domain.name)
            };
            self.line(depth, &format!("subgraph cluster_{child} {{"));
            self.line(depth + 1, &format!("label={}; style=rounded; color=gray50", quoted(&[&title])));
            self.domain(Some(child), depth + 1);
            self.line(depth, "}");
        }
    }

    /// Groups of equal ends, where there are more than [`EQUAL_MAX`]; the others one by one.
    fn alike(&self, ends: &[End]) -> Vec<Vec<End>> {
        let mut groups: BTreeMap<Likeness, Vec<End>> = BTreeMap::new();
        for end in ends {
            let links = self.view.links(*end).map(|(far, l)| (far, l.cables, l.live, l.mb_per_s));
            let mut links: Vec<_> = links.collect();
            links.sort_unstable();
            groups.entry((self.devices(*end), self.view.tier(*end), links)).or_default().push(*end);
        }
        let mut first: BTreeMap<End, Vec<End>> = BTreeMap::new();
        for group in groups.into_values() {
            let one_by_one = group.len() <= EQUAL_MAX;
            let parts = if one_by_one { group.iter().map(|end| vec![*end]).collect() } else { vec![group] };
            first.extend(parts.into_iter().filter_map(|part| Some((*part.first()?, part))));
        }
        // In the order that they came in.
        ends.iter().filter_map(|end| first.remove(end)).collect()
    }

    fn devices(&self, end: End) -> u32 {
        let End::Host(host) = end else { return 0 };
        let machine = self.view.graph.hosts.get(host as usize).and_then(|host| host.machine.as_ref());
        machine.map_or(0, |machine| machine.device_count())
    }

    fn switches(&mut self, group: &[End], depth: usize) {
        let Some(first) = group.first() else { return };
        let tier = match self.view.tier(*first) {
            0 => "no host below".to_owned(),
            tier => format!("tier {tier}"),
        };
        let title = self.title(group, "switches");
        let node = self.node(group, "s");
        let text = quoted(&[&title, &tier]);
        self.line(depth, &format!("{node} [shape=box, style=filled, fillcolor=\"#dbe7f3\", label={text}]"));
    }

    fn hosts(&mut self, group: &[End], depth: usize) {
        let Some(first) = group.first() else { return };
        let devices = self.devices(*first);
        let each = if group.len() > 1 { " each" } else { "" };
        let inside = match devices {
            0 => String::new(),
            count => format!("{}{each}", counted(count.into(), "device", "devices")),
        };
        let title = self.title(group, "hosts");
        let node = self.node(group, "h");
        let text = quoted(&[&title, &inside]);
        self.line(depth, &format!("{node} [shape=ellipse, label={text}]"));
    }

    /// `n1`, or `32 hosts: n[1-32]`.
    fn title(&self, group: &[End], many: &str) -> String {
        let names: Vec<&str> = group.iter().map(|end| self.view.name(*end)).collect();
        if names.len() == 1 { listed(&names) } else { format!("{} {many}: {}", names.len(), listed(&names)) }
    }

    /// Registers the node of a group, and returns how it is called: by its first member.
    fn node(&mut self, group: &[End], prefix: &str) -> String {
        let first = group.first().map_or("", |end| self.view.name(*end));
        let name = quoted(&[&format!("{prefix}:{first}")]);
        let number = self.node_of.len();
        for end in group {
            self.node_of.insert(*end, (number, name.clone()));
        }
        name
    }

    /// One edge for all links between two nodes.
    fn edges(&mut self) {
        let mut edges: BTreeMap<(usize, usize, u32), (String, u64, u64)> = BTreeMap::new();
        for link in &self.view.graph.links {
            let tier = |end: End| self.view.tier(end);
            // The higher end first, which is then drawn above.
            let (high, low) = if tier(link.a) >= tier(link.b) { (link.a, link.b) } else { (link.b, link.a) };
            let (Some((a, name_a)), Some((b, name_b))) = (self.node_of.get(&high), self.node_of.get(&low))
            else {
                continue;
            };
            let names = || format!("{name_a} -- {name_b}");
            let edge = edges.entry((*a, *b, link.mb_per_s)).or_insert_with(|| (names(), 0, 0));
            edge.1 += u64::from(link.cables);
            edge.2 += u64::from(link.live.min(link.cables));
        }
        for ((_, _, mb_per_s), (names, cables, live)) in edges {
            let speed =
                if mb_per_s > 0 { format!(" x {} GB/s", gb_per_s(mb_per_s.into())) } else { String::new() };
            let (text, colour) = if live < cables {
                (format!("{live} of {cables}{speed} up"), ", color=red, fontcolor=red")
            } else {
                (format!("{cables}{speed}"), "")
            };
            self.line(1, &format!("{names} [label={}{colour}]", quoted(&[&text])));
        }
    }
}

/// Lines of text as a quoted string of Graphviz.
fn quoted(lines: &[&str]) -> String {
    let mut text = String::from("\"");
    for line in lines.iter().filter(|line| !line.is_empty()) {
        if text.len() > 1 {
            text.push_str("\\n");
        }
        for c in line.chars() {
            if matches!(c, '"' | '\\') {
                text.push('\\');
            }
            text.push(if c.is_control() { ' ' } else { c });
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted() {
        assert_eq!(quoted(&["a\"b", "", "c\\d"]), r#""a\"b\nc\\d""#);
    }
}
