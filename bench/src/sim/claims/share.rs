//! Tenants that need parts of GPUs, on whole ones and on parts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use phalanx_model::{Needs, PartNeed, Queue, QueueName, Settings};
use phalanx_sim::Rng;
use phalanx_sim::cluster::{Clos, Cluster};
use phalanx_sim::fleet::{Fleet, Load, Service};

use super::draw::unit;
use super::percent;

const TENANTS: usize = 100;
const NODES: u32 = 13;
/// What a tenant uses of a GPU, uniform between these, in thousandths.
const USES_MILLI: (f64, f64) = (50.0, 450.0);
/// What a tenant asks for over what it uses.
const HEADROOM: f64 = 1.15;
const GB: u64 = 1_000_000_000;

fn needs(how: &str, asks_milli: u32) -> Needs {
    // Memory in proportion: 80 GB are a whole one.
    let memory_bytes = u64::from(asks_milli) * 80 * GB / 1_000;
    match how {
        "whole GPUs" => Needs { devices: 1, ..Needs::default() },
        "shares" => {
            let trust = "all".to_owned();
            let share = PartNeed::Share { compute_milli: asks_milli, memory_bytes: 0, trust };
            Needs { part: Some(share), ..Needs::default() }
        }
        _ => {
            let slice = PartNeed::Slice { compute_milli: asks_milli, memory_bytes: memory_bytes / 2 };
            Needs { part: Some(slice), ..Needs::default() }
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "thousandths")]
pub(super) fn measure(folder: &Path) -> Result<String, String> {
    let mut rng = Rng::new(1);
    let uses: Vec<f64> =
        (0..TENANTS).map(|_| USES_MILLI.0 + (USES_MILLI.1 - USES_MILLI.0) * unit(&mut rng)).collect();
    let queue = QueueName::new("all").map_err(|e| e.to_string())?;
    let clos = Clos::read(&format!("1x{NODES}x8")).map_err(|e| e.to_string())?;
    let cluster = Cluster::of_clos(&clos).map_err(|e| e.to_string())?;
    let sum: f64 = uses.iter().sum::<f64>() / 1_000.0;
    let mut out = format!(
        "### Parts of GPUs (modelled)\n\nClaimed: sharing lifts the use of GPUs from 20-30 % to 60-80 %. Declared: {TENANTS} tenants, \
         each of which uses 5 to 45 % of a GPU (uniform; {sum:.1} GPUs in all) and asks for 15 % more than that; half as much memory as \
         compute; H100, MIG in sevenths. Used: what tenants use, of the GPUs that are open.\n\n\
         | | GPUs | used |\n|---|---|---|\n"
    );
    for how in ["whole GPUs", "MIG slices", "shares"] {
        let service = |uses: &f64| Service {
            queue: queue.clone(),
            needs: needs(how, (uses * HEADROOM) as u32),
            min: 1,
            max: 1,
            workers: 1,
            rate_milli: 1_000,
            gpu_milli: *uses as u32,
            target_milli: 1_000,
            starts_ms: 1_000,
            load: Load { peak_milli: 1_000, later_ms: 0, noise_milli: 0, seed: 1 },
        };
        let fleet = Fleet {
            levels: cluster.levels.clone(),
            nodes: cluster.nodes.clone(),
            settings: Settings::default(),
            queues: vec![Queue::named(queue.clone())],
            services: uses.iter().map(service).collect(),
            training: Vec::new(),
            reclaims: None,
            end_ms: 300_000,
            seed: 1,
        };
        let open = fleet.run().map_err(|e| e.to_string())?.open_most;
        let _ = writeln!(out, "| {how} | {open} | {:.1} % |", percent(sum, open as f64));
    }
    let (pairs, together, least) =
        measured(&super::super::read(&folder.join("gavel/simulation_throughputs.json"))?)?;
    let _ = writeln!(
        out,
        "\nMIG keeps tenants apart. Shares do not: of {pairs} pairs of training jobs that Gavel measured on one V100, which each \
         would fill it alone, both together do {together:.2} times the work of one, and each of them {:.0} % of what it does alone in \
         the mean ({:.0} % for a tenth of them, or less).",
        together / 2.0 * 100.0,
        least * 100.0
    );
    Ok(out)
}

/// Pairs on one V100 by `simulation_throughputs.json`: how many, the mean of what both do over what each does alone,
/// summed, and the tenth part of the least that one does.
fn measured(text: &str) -> Result<(usize, f64, f64), String> {
    type Table = BTreeMap<String, BTreeMap<String, BTreeMap<String, serde_json::Value>>>;
    let table: Table = serde_json::from_str(text).map_err(|e| format!("no table of throughputs: {e}"))?;
    let of_one = table.get("v100").ok_or("the table has no v100")?;
    let alone = |kind: &str| of_one.get(kind)?.get("null")?.as_f64().filter(|speed| *speed > 0.0);
    let mut parts: Vec<[f64; 2]> = Vec::new();
    for (kind, with) in of_one.iter().filter(|(kind, _)| kind.ends_with(", 1)")) {
        for (other, both) in with.iter().filter(|(other, _)| *other >= kind && other.as_str() != "null") {
            let both =
                both.as_array().and_then(|both| Some([both.first()?.as_f64()?, both.get(1)?.as_f64()?]));
            let (Some([a, b]), Some(a_alone), Some(b_alone)) = (both, alone(kind), alone(other)) else {
                continue;
            };
            // Where both are 0, they did not fit into the memory.
            if a > 0.0 && b > 0.0 {
                parts.push([a / a_alone, b / b_alone]);
            }
        }
    }
    let mut each: Vec<f64> = parts.concat();
    each.sort_by(f64::total_cmp);
    let together = parts.iter().flatten().sum::<f64>() / parts.len().max(1) as f64;
    Ok((parts.len(), together, each.get(each.len() / 10).copied().unwrap_or(0.0)))
}

#[test]
fn pairs_that_were_measured_are_held_against_each_alone() {
    let table = r#"{"v100": {
        "('A', 1)": {"null": 10.0, "('A', 1)": [5.0, 5.0], "('B', 1)": [8.0, 2.0], "('C', 1)": [0.0, 0.0]},
        "('B', 1)": {"null": 4.0, "('A', 1)": [2.0, 8.0]},
        "('C', 1)": {"null": 1.0},
        "('A', 2)": {"null": 20.0}}}"#;
    // A with A: half each. A with B: 0.8 and 0.5. C does not fit beside A.
    let (pairs, together, least) = measured(table).unwrap_or_default();
    assert_eq!(pairs, 2);
    assert!((together - (1.0 + 1.3) / 2.0).abs() < 1e-9 && (least - 0.5).abs() < 1e-9, "{together} {least}");
}
