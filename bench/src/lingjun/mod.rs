//! The real Clos of 847 hosts (Alibaba Lingjun) under a mix of gangs: how many leaves each gang crosses,
//! against the fewest that could have held it at that moment, by policy. Every policy runs a cluster of its
//! own through the same arrivals and departures.

mod replay;
mod work;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use phalanx_discover::fabric::clos_csv;
use phalanx_model::LevelName;
use phalanx_model::domains::{derive, rules};
use serde::Serialize;

use crate::peers::Cluster;

/// Of all GPUs, in hundredths, what the gangs ask for together.
const FILL: u64 = 90;
const ARRIVALS: usize = 3_000;
const SEED: u64 = 42;

#[derive(Serialize)]
struct Report {
    hosts: usize,
    leaves: usize,
    psws: usize,
    arrivals: usize,
    fill: u64,
    seed: u64,
    policies: Vec<replay::Figures>,
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let mut is_json = false;
    let mut folder = data();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--json" => is_json = true,
            "--data" => folder = rest.next().map(PathBuf::from).ok_or("--data needs a path after it")?,
            other => return Err(format!("unknown argument {other}; known are --json, --data")),
        }
    }
    let report = measure(&cluster(&folder)?, ARRIVALS)?;
    if is_json {
        println!("{}", serde_json::to_string(&report).map_err(|e| e.to_string())?);
    } else {
        report.print();
    }
    Ok(())
}

/// Where the map lies beside the project.
fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/traces/lingjun")
}

/// The hosts of `topo.csv` under the levels that its columns are, outermost first.
fn cluster(folder: &Path) -> Result<Cluster, String> {
    let file = folder.join("topo.csv");
    let text = std::fs::read_to_string(&file);
    let text = text.map_err(|error| format!("{}: {error}; name its folder with --data", file.display()))?;
    let reading = clos_csv::parse(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    let root = LevelName::new("cluster").map_err(|e| e.to_string())?;
    let domains = derive(&reading.graph, &rules(&reading.graph, &root, &reading.levels));
    let path = |host: u32| domains.path(host).iter().map(ToString::to_string).collect();
    let hosts = (0..).zip(&reading.graph.hosts).map(|(index, host)| (host.name.to_string(), path(index)));
    let levels: Vec<&str> = domains.levels.iter().map(LevelName::as_str).collect();
    if levels.len() < 2 {
        return Err(format!("{} has no switches above the leaves", file.display()));
    }
    Ok(Cluster::new(&levels, hosts.collect()))
}

fn measure(cluster: &Cluster, arrivals: usize) -> Result<Report, String> {
    let events = work::draw(cluster, arrivals, FILL, SEED);
    let leaf = cluster.levels.len() - 1;
    Ok(Report {
        hosts: cluster.names.len(),
        leaves: cluster.spans[leaf].len(),
        psws: cluster.spans[leaf - 1].len(),
        arrivals,
        fill: FILL,
        seed: SEED,
        policies: replay::all(cluster, &events, SEED)?,
    })
}

impl Report {
    fn print(&self) {
        let Self { hosts, leaves, psws, arrivals, fill, seed, .. } = self;
        println!(
            "{hosts} hosts with 8 GPUs, {leaves} leaves, {psws} PSWs; {arrivals} gangs to {fill} %, seed {seed}"
        );
        println!("                        leaves  the fewest  more than those    at the fewest      PSWs");
        println!(
            "  policy       placed   mean    p95   mean      mean      p95    any   in one PSW    mean  fewest"
        );
        for f in &self.policies {
            println!(
                "  {:<12} {:>6} {:>6.2} {:>6} {:>6.2} {:>9.3} {:>8} {:>4.1} % {:>8.1} % {:>8.3} {:>6.3}",
                f.policy,
                f.placed,
                f.leaves_mean,
                f.leaves_p95,
                f.fewest_mean,
                f.excess_mean,
                f.excess_p95,
                f.at_fewest_percent,
                f.at_fewest_in_psw_percent,
                f.psws_mean,
                f.psws_fewest_mean,
            );
        }
        println!("  the fewest possible is that of each policy's own cluster at the moment of each gang");
    }
}
