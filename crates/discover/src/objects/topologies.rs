//! The topology objects of other schedulers: Kueue and KAI name the label of each level, Volcano names the domains.

use crate::gap::{self, Gap};

use super::hyper_nodes::{self, HyperNode};
use super::preset::HOSTNAME;
use super::tree::{self, Tree};
use super::{ObjectError, Preset, printable};

/// The most levels of one object; Kueue allows 16.
const LEVELS_MAX: usize = 64;

/// With the number of a level from 0, outermost first: the label with the level's name, for which Kueue's object has no
/// field.
const LEVEL_LABEL: &str = "phalanx.dev/level-";

/// What a text says about topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topologies {
    /// In the order of the text.
    pub topologies: Vec<Topology>,
    /// In the order of the text; [`hyper_nodes::place`] makes hosts of them.
    pub hyper_nodes: Vec<HyperNode>,
    pub gaps: Vec<Gap>,
}

/// Who reads an object of the kind `Topology`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// `kueue.x-k8s.io`.
    Kueue,
    /// `kai.scheduler`.
    Kai,
    /// `grove.io`.
    Grove,
}

/// Levels by node label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    pub name: String,
    pub scheduler: Scheduler,
    /// Without the level of the node itself, which may be the only one.
    pub preset: Option<Preset>,
}

/// Reads the topology objects of a text; other kinds are passed over.
///
/// # Errors
/// When the text is neither YAML nor JSON, holds no topology, or is beyond the limits.
pub fn parse(text: &str) -> Result<Topologies, ObjectError> {
    let found = tree::read(text)?;
    let mut topologies = Topologies { gaps: found.gaps, ..Topologies::default() };
    for tree in &found.objects {
        match tree.kind() {
            "Topology" | "ClusterTopology" => match topology(tree) {
                Ok(topology) => topologies.topologies.push(topology),
                Err(what) => topologies.gaps.push(Gap::new(tree.place(), what)),
            },
            "HyperNode" => match hyper_nodes::read(tree, &mut topologies.gaps) {
                Ok(hyper_node) => topologies.hyper_nodes.push(hyper_node),
                Err(what) => topologies.gaps.push(Gap::new(tree.place(), what)),
            },
            _ => {}
        }
    }
    if topologies.topologies.is_empty() && topologies.hyper_nodes.is_empty() {
        let found = match topologies.gaps.first() {
            Some(gap) => gap.to_string(),
            None => tree::kinds(&found.objects),
        };
        let command = "kubectl get topologies,hypernodes -o yaml";
        return Err(ObjectError::Missing { wanted: "Topology or HyperNode", found, command });
    }
    topologies.gaps = gap::listed(topologies.gaps);
    Ok(topologies)
}

fn topology(tree: &Tree) -> Result<Topology, String> {
    let name = printable(tree.name().unwrap_or_default());
    let left_out = |why: &str| format!("the topology {name:?} is left out: {why}");
    let scheduler = match tree.group() {
        "kueue.x-k8s.io" => Scheduler::Kueue,
        "kai.scheduler" => Scheduler::Kai,
        "grove.io" => Scheduler::Grove,
        other => return Err(left_out(&format!("objects of {:?} are not known", printable(other)))),
    };
    let levels = tree.items_at(&["spec", "levels"]);
    if levels.is_empty() || levels.len() > LEVELS_MAX {
        return Err(left_out(&format!("it has {} levels, and there are 1 to {LEVELS_MAX}", levels.len())));
    }
    let labels = tree.at(&["metadata", "labels"]).map_or(&[][..], Tree::entries);
    let mut keys = Vec::with_capacity(levels.len());
    for (at, level) in levels.iter().enumerate() {
        // Grove writes `key` and `domain`; an alias of KAI and a domain of Grove name the level.
        let key = level.text_at(&["nodeLabel"]).or_else(|| level.text_at(&["key"]));
        let key = key.ok_or_else(|| left_out(&format!("line {}: a level names no nodeLabel", level.line)))?;
        let alias = level.text_at(&["alias"]).or_else(|| level.text_at(&["domain"]));
        let own = format!("{LEVEL_LABEL}{at}");
        let own = || labels.iter().find(|(key, _)| *key == own).and_then(|(_, value)| value.text());
        keys.push((alias.or_else(own), key));
    }
    let usual =
        Preset::of_keys(keys.iter().map(|(_, key)| *key)).map_err(|error| left_out(&error.to_string()))?;
    // The usual names lack the level of the node, wherever it stands.
    let above = keys.iter().filter(|(_, key)| *key != HOSTNAME);
    let named =
        above.zip(&usual.levels).map(|((alias, key), level)| (alias.unwrap_or(level.level.as_str()), *key));
    let preset = if usual.levels.is_empty() {
        None
    } else {
        let preset = Preset::custom(named).map_err(|error| left_out(&error.to_string()))?;
        Some(Preset { name: name.clone(), ..preset })
    };
    Ok(Topology { name, scheduler, preset })
}

/// A Kueue `Topology` for the levels of a preset, the node's own level last. A level of several labels is written
/// with its first. Labels of the object have the names of the levels.
#[must_use]
pub fn to_kueue(name: &str, preset: &Preset) -> String {
    let levels: Vec<_> = preset.levels.iter().filter(|level| !level.keys.is_empty()).collect();
    let keys = levels.iter().filter_map(|level| level.keys.first()).map(String::as_str);
    let mut labels = String::new();
    let named = levels.iter().enumerate().filter(|(_, level)| hyper_nodes::is_label(level.level.as_str()));
    for (at, level) in named {
        labels.push_str(if labels.is_empty() { "  labels:\n" } else { "" });
        labels.push_str(&format!("    {LEVEL_LABEL}{at}: {:?}\n", level.level.as_str()));
    }
    let mut text = format!(
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: Topology\nmetadata:\n  name: {}\n{labels}spec:\n  levels:\n",
        hyper_nodes::object_name(name)
    );
    for key in keys.chain([HOSTNAME]) {
        // A label holds nothing that has to be escaped.
        text.push_str(&format!("  - nodeLabel: {key:?}\n"));
    }
    text
}
