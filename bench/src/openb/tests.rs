use std::path::PathBuf;

use super::engine::{gang, placer};
use super::go_rand::Table;
use super::replay::{self, Decider};
use super::trace::{Arrivals, Node, published};
use super::{Policy, Trace};

fn data() -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/traces"));
    if folder.join("openb").is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: {} is not there", folder.display());
    None
}

/// The bench in short: a quarter of the cluster, one seed.
#[test]
fn fewer_gpus_stay_unallocated_than_with_fgd_or_first_fit() {
    let Some(data) = data() else { return };
    let trace = Trace::read(&data, "default").unwrap().thinned(4);
    let table = Table::new();
    let unallocated = |decider| {
        let arrivals = trace.arrivals(42, &table);
        replay::run(&trace, arrivals, false, decider).unwrap().at[0]
    };
    let others = [Policy::Fgd, Policy::FirstFit].map(|policy| unallocated(Decider::Other(policy)));
    let ours = unallocated(Decider::Ours);
    assert!(others.iter().all(|other| ours < *other), "{ours} against {others:?}");
}

/// The order of arrivals and of nodes is that of the published runs, to the last draw.
#[test]
fn a_published_run_comes_out_as_published() {
    let Some(data) = data() else { return };
    let trace = Trace::read(&data, "default").unwrap();
    let arrivals = trace.arrivals(42, &Table::new());
    let ours = replay::run(&trace, arrivals, false, Decider::Other(Policy::BestFit)).unwrap().at;
    let theirs = &published(&data).unwrap()[&("default".to_owned(), "BestFit".to_owned())][&42];
    assert!(
        theirs.iter().zip(ours).all(|(allocated, ours)| (100.0 - allocated - ours).abs() < 1e-6),
        "{ours:?}"
    );
}

/// Every place it gives is one by the trace's own books, and it refuses only what fits nowhere.
#[test]
fn places_hold_and_refusals_are_right() {
    let Some(data) = data() else { return };
    let trace = Trace::read(&data, "gpuspec33").unwrap().thinned(8);
    let arrivals = trace.arrivals(43, &Table::new());
    assert!(checked(&trace, &arrivals).unwrap() > trace.capacity() * 9 / 10);
}

/// What a decision gave, checked against the trace's own books.
fn checked(trace: &Trace, arrivals: &Arrivals) -> Result<i64, String> {
    let mut nodes = trace.nodes.clone();
    let mut placer = placer(&nodes).map_err(|error| error.to_string())?;
    let by_tree: Vec<usize> =
        placer.nodes().map(|name| name.as_str().trim_start_matches("node-").parse().unwrap()).collect();
    let mut used = 0;
    for pod in arrivals.pods.iter().map(|pod| &trace.pods[*pod]) {
        let gang = gang(trace, pod);
        if placer.place(&gang).is_none() {
            if nodes.iter().any(|node| pod.fits(node)) {
                return Err(format!("{pod:?} fits somewhere"));
            }
            continue;
        }
        placer.take(&gang);
        let share = placer.shares().next().ok_or("a place of nothing")?;
        let node = &mut nodes[by_tree[share.node as usize]];
        let device = if pod.is_share() { share.devices.0.trailing_zeros() as usize } else { 0 };
        if !pod.fits(node) || pod.is_share() && node.gpus[device] < pod.milli {
            return Err(format!("{pod:?} does not fit {node:?}"));
        }
        node.put(pod, device);
        used += pod.total();
    }
    let free: i64 = nodes.iter().map(Node::left).sum();
    assert_eq!(free + used, trace.capacity());
    Ok(used)
}
