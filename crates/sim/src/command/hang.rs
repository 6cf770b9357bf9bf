//! The cluster that a trace is hung on, by what was typed behind `--cluster`.

use super::{CommandError, Host};
use crate::cluster::{Beside, Clos, Cluster, ClusterError, NodeShape};
use crate::report::Input;
use crate::trace::Trace;

/// Of a cluster that is modelled because none is named.
const NODES_PER_LEAF: u32 = 16;
const GPUS_PER_NODE: u32 = 8;
/// The share of it, in percent, that the mean load needs.
const LOAD_PERCENT: u64 = 80;
/// Of files of clusters.
const BYTES_MAX: u64 = 64 << 20;

/// A cluster, what it is called, and what was read for it.
pub(super) struct Hung {
    pub(super) cluster: Cluster,
    pub(super) name: String,
    pub(super) inputs: Vec<Input>,
}

pub(super) fn hang(what: Option<&str>, trace: &Trace, host: &mut dyn Host) -> Result<Hung, CommandError> {
    let Some(what) = what else {
        let clos = for_load(trace);
        let name = format!("{}x{}x{}", clos.leaves, clos.nodes, clos.node.gpus);
        host.note(&format!(
            "without --cluster the cluster is modelled for a mean load of {LOAD_PERCENT} %: {name}"
        ));
        let cluster = Cluster::of_clos(&clos);
        let cluster = cluster.map_err(|error| CommandError::Input(format!("--cluster: {error}")))?;
        return Ok(Hung { cluster, name, inputs: Vec::new() });
    };
    named(what, "--cluster", host)
}

/// The cluster of one of the forms of `--cluster`, which is the value of this field.
pub(super) fn named(what: &str, field: &str, host: &mut dyn Host) -> Result<Hung, CommandError> {
    let wrong = |error: ClusterError| CommandError::Input(format!("{field}: {error}"));
    let name = what.to_owned();
    if let Some(table) = what.strip_prefix("lingjun:") {
        let (file, ratio) = table.rsplit_once(':').unwrap_or((table, "1"));
        let ratio =
            phalanx_spec::quantity::parse_milli(ratio).ok().and_then(|ratio| u32::try_from(ratio).ok());
        let no_ratio = || CommandError::Usage(format!("{field}: {what:?} ends in no ratio such as 2"));
        let ratio = ratio.filter(|ratio| *ratio > 0).ok_or_else(no_ratio)?;
        let (text, input) = read(file, host)?;
        let cluster = Cluster::of_table(&text, &NodeShape::default(), ratio);
        return Ok(Hung { cluster: cluster.map_err(wrong)?, name, inputs: vec![input] });
    }
    if what.starts_with(|first: char| first.is_ascii_digit()) && !what.contains('.') {
        let clos = Clos::read(what).map_err(wrong)?;
        return Ok(Hung { cluster: Cluster::of_clos(&clos).map_err(wrong)?, name, inputs: Vec::new() });
    }
    let (text, input) = read(what, host)?;
    let mut inputs = vec![input];
    if what.ends_with(".csv") {
        let cluster = Cluster::of_published(text.as_bytes(), &Beside::default()).map_err(wrong)?;
        return Ok(Hung { cluster, name, inputs });
    }
    // Texts that a cluster file names lie beside it.
    let folder = what.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let topology = |file: &str| {
        let path = if file.starts_with('/') { file.to_owned() } else { format!("{folder}{file}") };
        let (text, input) = read(&path, host).map_err(|error| error.to_string())?;
        inputs.push(input);
        Ok(text)
    };
    let cluster =
        Cluster::of_file(&text, what, topology).map_err(|error| CommandError::Input(error.to_string()))?;
    Ok(Hung { cluster, name, inputs })
}

fn read(file: &str, host: &mut dyn Host) -> Result<(String, Input), CommandError> {
    let bytes = host.read(file, BYTES_MAX).map_err(CommandError::Input)?;
    let input = Input::of(file, &bytes);
    let text = String::from_utf8(bytes).map_err(|_| CommandError::Input(format!("{file} is no text")))?;
    Ok((text, input))
}

/// Leaves of 16 nodes with 8 GPUs: as many as the mean load needs, and the largest job.
fn for_load(trace: &Trace) -> Clos {
    let summary = trace.summary();
    let milli = summary.mean_load_milli_gpus.unwrap_or(0).saturating_mul(100) / LOAD_PERCENT;
    let largest = summary.gpus.keys().next_back().copied().unwrap_or(1);
    let gpus = milli.div_ceil(1_000).max(u64::from(largest)).max(1);
    let per_leaf = u64::from(NODES_PER_LEAF * GPUS_PER_NODE);
    let leaves = u32::try_from(gpus.div_ceil(per_leaf)).unwrap_or(u32::MAX);
    Clos {
        blocks: 0,
        leaves,
        nodes: NODES_PER_LEAF,
        node: NodeShape::default(),
        oversubscription_milli: 1_000,
    }
}
