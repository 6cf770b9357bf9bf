//! Clusters that are published beside traces: the shapes of Tiresias and Muri (`n8g8.csv`), and the nodes of openb.

use std::fmt::Write;

use super::{Cluster, ClusterError, NodeShape, no_topology, quoted};
use crate::trace::shown;

const SHAPE: &[&str] = &["num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node"];
const NODES: &[&str] = &["sn", "cpu_milli", "memory_mib", "gpu", "model"];

/// What the files leave open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Product of the devices of a shape; Tiresias and Muri measured on V100 and before.
    pub model: String,
    /// What all NICs of a node carry, one way, in MB/s.
    pub nic_mb_per_s: u64,
}

impl Default for Beside {
    /// A V100 machine with 100 Gb/s.
    fn default() -> Self {
        Self { model: "Tesla V100-SXM2-32GB".to_owned(), nic_mb_per_s: 12_500 }
    }
}

impl Cluster {
    /// A shape of Tiresias or Muri (switches with equal nodes, memory in GB), or openb's list of nodes, told apart by their
    /// headers. Switches are leaves.
    ///
    /// # Errors
    /// When it is neither, or a row is not what the header says; a cluster with a hole would be another one.
    pub fn of_published(text: &[u8], open: &Beside) -> Result<Self, ClusterError> {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text);
        let wrong = |error: &csv::Error| {
            let row = error.position().map_or(0, csv::Position::line);
            ClusterError::Row { row, problem: "is no row of a table of text".to_owned() }
        };
        let header = reader.headers().map_err(|error| wrong(&error))?.clone();
        let is = |columns: &[&str]| header.iter().eq(columns.iter().copied());
        let entry: fn(&Row<'_>, &Beside, &mut String) -> Result<(), ClusterError> = if is(SHAPE) {
            shape
        } else if is(NODES) {
            node
        } else {
            let found: Vec<&str> = header.iter().collect();
            return Err(ClusterError::Header { found: shown(&found.join(",")) });
        };
        let levels = if is(SHAPE) { "[cluster, leaf]" } else { "[cluster]" };
        let mut file = format!("levels: {levels}\nnodes:\n");
        for record in reader.records() {
            let record = record.map_err(|error| wrong(&error))?;
            let row = record.position().map_or(0, csv::Position::line);
            entry(&Row { row, record: &record }, open, &mut file)?;
        }
        Self::of_file(&file, "", no_topology)
    }
}

/// One row, whose cells are as many as the header's.
struct Row<'a> {
    row: u64,
    record: &'a csv::StringRecord,
}

impl Row<'_> {
    fn text(&self, column: usize) -> &str {
        self.record.get(column).unwrap_or_default()
    }

    fn number(&self, columns: &[&str], column: usize) -> Result<u64, ClusterError> {
        let bad = || {
            let name = columns.get(column).copied().unwrap_or_default();
            ClusterError::Row {
                row: self.row,
                problem: format!("{name}: {:?} is no whole number", shown(self.text(column))),
            }
        };
        self.text(column).parse::<u32>().map(u64::from).map_err(|_| bad())
    }

    fn gpus(&self, columns: &[&str], column: usize) -> Result<u32, ClusterError> {
        Ok(u32::try_from(self.number(columns, column)?).unwrap_or(u32::MAX))
    }
}

fn shape(row: &Row<'_>, open: &Beside, file: &mut String) -> Result<(), ClusterError> {
    let number = |column| row.number(SHAPE, column);
    let (switches, nodes) = (number(0)?, number(1)?);
    let count = switches.saturating_mul(nodes);
    if !(1..=super::NODES_MAX).contains(&count) {
        return Err(ClusterError::Nodes { nodes: count });
    }
    let node = NodeShape {
        gpus: row.gpus(SHAPE, 2)?,
        model: open.model.clone(),
        nic_mb_per_s: open.nic_mb_per_s,
        cpu_milli: Some(number(3)? * 1_000),
        memory_bytes: Some(number(4)? << 30),
    };
    let (entry, last) = (node.entry(), nodes - 1);
    for switch in 0..switches {
        // Writing to a string does not fail.
        let _ = writeln!(file, "  - {{name: \"s{switch}-n[0-{last}]\"{entry}, path: {{leaf: s{switch}}}}}");
    }
    Ok(())
}

fn node(row: &Row<'_>, open: &Beside, file: &mut String) -> Result<(), ClusterError> {
    let node = NodeShape {
        gpus: row.gpus(NODES, 3)?,
        model: row.text(4).to_owned(),
        nic_mb_per_s: open.nic_mb_per_s,
        cpu_milli: Some(row.number(NODES, 1)?),
        memory_bytes: Some(row.number(NODES, 2)? << 20),
    };
    let _ = writeln!(file, "  - {{name: {}{}}}", quoted(row.text(0)), node.entry());
    Ok(())
}
