//! What a measurement is worth: beside what the link should carry, and beside others of its kind.

use std::collections::BTreeMap;

use phalanx_api::protocol::TopologyView;
use phalanx_model::{DomainName, JobId, LinkKind, Node};
use serde::Serialize;

use crate::measure::median;

/// A pair with less than this share of the median of its class is an outlier.
const OUTLIER_PERCENT: u64 = 75;
const BYTES_PER_MB: u64 = 1_000_000;

/// One pair, measured or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    /// A node, or `NODE/DEVICE`.
    pub(crate) a: String,
    pub(crate) b: String,
    /// The narrowest level that holds both nodes, or how two devices are linked.
    pub(crate) class: String,
    /// What carried it.
    pub(crate) over: String,
    /// One way.
    pub(crate) bytes_per_s: Option<u64>,
    pub(crate) latency_ns: Option<u64>,
    /// What the topology says that the way carries.
    pub(crate) nominal_bytes_per_s: Option<u64>,
    pub(crate) percent_of_nominal: Option<u64>,
    pub(crate) percent_of_median: Option<u64>,
    pub(crate) is_outlier: bool,
    pub(crate) is_loopback: bool,
    pub(crate) job: Option<JobId>,
    /// Why there is no measurement.
    pub(crate) error: Option<String>,
}

/// Compares every row with what is nominal and with the median of its class.
pub(super) fn judge(rows: &mut [Row]) {
    let mut classes: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for row in rows.iter() {
        classes.entry(row.class.clone()).or_default().extend(row.bytes_per_s);
    }
    let medians: BTreeMap<String, u64> = classes
        .into_iter()
        .filter(|(_, speeds)| speeds.len() > 1)
        .filter_map(|(class, mut speeds)| Some((class, median(&mut speeds)?)))
        .collect();
    for row in rows {
        let percent = |of: u64| row.bytes_per_s.and_then(|speed| percent(speed, of));
        row.percent_of_nominal = row.nominal_bytes_per_s.and_then(percent);
        row.percent_of_median = medians.get(&row.class).copied().and_then(percent);
        row.is_outlier = row.percent_of_median.is_some_and(|share| share < OUTLIER_PERCENT);
    }
}

fn percent(part: u64, of: u64) -> Option<u64> {
    u64::try_from((u128::from(part) * 100).checked_div(u128::from(of))?).ok()
}

/// The narrowest level that holds both nodes.
pub(super) fn level_of(view: &TopologyView, a: &Node, b: &Node) -> String {
    let shared = shared_depth(a, b).saturating_sub(1);
    view.levels.above.get(shared).unwrap_or(&view.levels.node).to_string()
}

fn shared_depth(a: &Node, b: &Node) -> usize {
    a.path.iter().zip(&b.path).take_while(|(a, b)| a == b).count()
}

/// What the way between two nodes carries: the least of their NICs and of every uplink that it crosses. `None`
/// where the topology names none of these.
pub(super) fn nominal_between(view: &TopologyView, a: &Node, b: &Node) -> Option<u64> {
    let shared = shared_depth(a, b);
    let ends = [a, b].into_iter().flat_map(|node| {
        let nics = view.costs.shapes.get(&node.machine.shape).map(|shape| shape.nic_mb_per_s);
        let own = DomainName::new(node.name.as_str()).ok();
        let whole: Vec<DomainName> = node.path.iter().cloned().chain(own).collect();
        let levels = view.levels.above.iter().chain([&view.levels.node]).enumerate().skip(shared);
        let crossed = levels.filter_map(|(depth, level)| {
            Some(view.costs.uplink(level, whole.get(..=depth)?)?.uplink_mb_per_s)
        });
        crossed.chain(nics).collect::<Vec<u32>>()
    });
    ends.filter(|mb_per_s| *mb_per_s > 0).min().map(|mb_per_s| u64::from(mb_per_s) * BYTES_PER_MB)
}

/// What two devices of a node carry between them.
pub(super) fn nominal_inside(view: &TopologyView, node: &Node, a: u32, b: u32) -> Option<u64> {
    let pair = view.costs.shapes.get(&node.machine.shape)?.pair(a, b);
    Some(u64::from(pair) * BYTES_PER_MB).filter(|speed| *speed > 0)
}

/// How two devices are linked, in a word.
pub(super) fn link_of(node: &Node, a: u32, b: u32) -> String {
    let word = match node.machine.device_link(a, b) {
        Some(LinkKind::Nvlink(_)) => "nvlink",
        Some(LinkKind::Xgmi) => "xgmi",
        Some(LinkKind::PcieSwitch | LinkKind::PcieBridges) => "pcie",
        Some(LinkKind::HostBridge | LinkKind::Numa) => "host",
        Some(LinkKind::Socket) => "socket",
        None => "unknown",
    };
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use phalanx_model::{CostTable, LevelCost, LevelName, Levels, Machine, NodeName, Origin};

    use super::*;

    fn row(class: &str, mb_per_s: Option<u64>, nominal: Option<u64>) -> Row {
        let bytes_per_s = mb_per_s.map(|speed| speed * BYTES_PER_MB);
        Row { class: class.to_owned(), bytes_per_s, nominal_bytes_per_s: nominal, ..Row::default() }
    }

    #[test]
    fn the_slow_of_a_class_are_flagged() {
        let mut rows = [
            row("leaf", Some(1000), Some(2_000_000_000)),
            row("leaf", Some(1010), None),
            row("leaf", Some(749), None),
            row("leaf", Some(9000), None),
            row("leaf", None, Some(1)),
            // Slow beside the others, and the only one of its class.
            row("cluster", Some(10), Some(0)),
        ];
        judge(&mut rows);
        assert_eq!(
            rows.iter().map(|r| r.is_outlier).collect::<Vec<_>>(),
            [false, false, true, false, false, false]
        );
        assert_eq!((rows[0].percent_of_nominal, rows[2].percent_of_median), (Some(50), Some(74)));
        assert_eq!((rows[4].percent_of_nominal, rows[5].percent_of_nominal), (None, None));
    }

    #[test]
    fn the_way_between_nodes_is_its_narrowest_part() {
        let level = |text: &str| LevelName::new(text).unwrap();
        let node = |name: &str, path: [&str; 2]| Node {
            address: String::new(),
            ..Node::new(
                NodeName::new(name).unwrap(),
                path.map(|d| DomainName::new(d).unwrap()).to_vec(),
                Arc::new(Machine::bare(Origin::Declared)),
            )
        };
        let nodes = vec![node("a", ["c", "l1"]), node("b", ["c", "l1"]), node("d", ["c", "l2"])];
        let cost = |uplink_mb_per_s| LevelCost { uplink_mb_per_s, ..LevelCost::default() };
        let levels = Levels::new(vec![level("cluster"), level("leaf")], level("node"));
        let costs = CostTable {
            levels: [(level("node"), cost(50_000)), (level("leaf"), cost(20_000))].into(),
            ..CostTable::default()
        };
        let mut view = TopologyView { levels, costs, nodes: nodes.clone(), held: Vec::new() };
        let [a, b, d] = nodes.as_slice() else { panic!("three") };
        assert_eq!((level_of(&view, a, b), level_of(&view, a, d)), ("leaf".to_owned(), "cluster".to_owned()));
        assert_eq!(nominal_between(&view, a, b), Some(50_000_000_000));
        assert_eq!(nominal_between(&view, a, d), Some(20_000_000_000));
        view.costs.levels.clear();
        assert_eq!(nominal_between(&view, a, d), None);
    }
}
