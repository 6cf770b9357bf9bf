//! How fast one gang is placed or refused in a cluster that is 90 % used, and how that grows with the cluster.

pub(crate) mod cluster;
pub(crate) mod mix;

#[cfg(test)]
mod tests;

use std::process::Command;
use std::time::{Duration, Instant};

use phalanx_engine::{Found, Placer, Share};
use phalanx_model::Gang;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use cluster::GPUS_PER_NODE;

/// Nodes of the sizes of `--growth`: 1,600, 12,800 and 102,400 GPUs.
pub(crate) const GROWTH: [u32; 3] = [200, 1_600, 12_800];
const SEED: u64 = 42;
/// Percent of the GPUs that are used when decisions are timed.
const USED: u32 = 90;
/// Times that the cluster is emptied by 30 percent and filled again before that.
const AGED: u32 = 4;
/// GPUs of the large gang.
const LARGE: u32 = 4_096;
/// Leaves of 32 nodes in one block.
const LEAVES_PER_BLOCK: u32 = 8;
/// Distinct gangs; they come again in turn.
const GANGS: usize = 1 << 16;

#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    nodes: u32,
    gpus: u32,
    decisions: usize,
    decisions_per_s: f64,
    placed: usize,
    refused: usize,
    /// Of those placed: proved that no placement takes less time.
    proved_best: usize,
    /// Of the others: how far above the bound they are at most, on average, as a part of it.
    gap_of_others: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    refused_p50_us: f64,
    refused_p99_us: f64,
    release_p50_us: f64,
    /// A gang of 4,096 GPUs on the same cluster, emptied as far as it needs: the median of ten.
    gang_4096_us: Option<f64>,
    bytes_per_gpu: f64,
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let (mut nodes, mut seconds, mut json, mut growth) = (12_800_u32, 10_u64, false, false);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut number = || {
            let text = rest.next().ok_or_else(|| format!("{argument} wants a number"))?;
            text.parse::<u32>().map_err(|_| format!("{text} is no number"))
        };
        match argument.as_str() {
            "--nodes" => nodes = number()?,
            "--seconds" => seconds = u64::from(number()?),
            "--json" => json = true,
            "--growth" => growth = true,
            other => return Err(format!("{other} is not known here")),
        }
    }
    let all: Vec<Measured> = if growth {
        let arguments = |nodes: &u32| {
            ["placement", "--json", "--nodes", &nodes.to_string(), "--seconds", &seconds.to_string()]
                .map(str::to_owned)
        };
        GROWTH.iter().map(|nodes| in_own_process(&arguments(nodes))).collect::<Result<_, _>>()?
    } else {
        vec![measure(nodes, Duration::from_secs(seconds))?]
    };
    for measured in &all {
        if json {
            println!("{}", serde_json::to_string(measured).map_err(|e| e.to_string())?);
        } else {
            print(measured);
        }
    }
    if let (true, Some(first), Some(last)) = (growth && !json, all.first(), all.last()) {
        println!(
            "{} times the GPUs: p50 {:.2} times, p99 {:.2} times",
            last.gpus / first.gpus,
            last.p50_us / first.p50_us,
            last.p99_us / first.p99_us
        );
    }
    Ok(())
}

/// Runs this program with `--json`, and reads what it prints: its memory is that of one size alone.
pub(crate) fn in_own_process<T: DeserializeOwned>(arguments: &[String]) -> Result<T, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let output = Command::new(program).args(arguments).output().map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())
}

fn measure(nodes: u32, time: Duration) -> Result<Measured, String> {
    let (levels, all, costs) = cluster::build(nodes, LEAVES_PER_BLOCK)?;
    let before = resident_bytes();
    let placer = Placer::new(&levels, all, &costs);
    let held = resident_bytes().saturating_sub(before);
    let gpus = nodes * GPUS_PER_NODE;
    let mut trial = Trial {
        placer,
        gangs: mix::gangs(SEED, GANGS),
        next: 0,
        running: Vec::new(),
        random: mix::Random(SEED),
        gpus,
    };
    trial.age()?;
    let mut timed = trial.timed(time);
    let large_ns = if gpus > 2 * LARGE { trial.large()? } else { Vec::new() };

    let mut both: Vec<u64> = timed.placed_ns.iter().chain(&timed.refused_ns).copied().collect();
    let total_s = both.iter().sum::<u64>() as f64 / 1e9;
    let (placed, refused) = (timed.placed_ns.len(), timed.refused_ns.len());
    Ok(Measured {
        nodes,
        gpus,
        decisions: both.len(),
        decisions_per_s: both.len() as f64 / total_s,
        placed,
        refused,
        proved_best: placed - timed.gaps.len(),
        gap_of_others: timed.gaps.iter().sum::<f64>() / timed.gaps.len().max(1) as f64,
        p50_us: percentile_us(&mut both, 50),
        p99_us: percentile_us(&mut both, 99),
        max_us: percentile_us(&mut both, 100),
        refused_p50_us: percentile_us(&mut timed.refused_ns, 50),
        refused_p99_us: percentile_us(&mut timed.refused_ns, 99),
        release_p50_us: percentile_us(&mut timed.release_ns, 50),
        gang_4096_us: (!large_ns.is_empty()).then(|| percentile_us(&mut large_ns.clone(), 50)),
        bytes_per_gpu: held as f64 / f64::from(gpus),
    })
}

/// A cluster in use.
struct Trial {
    placer: Placer,
    gangs: Vec<Gang>,
    next: usize,
    /// Gangs that run, and where.
    running: Vec<(usize, Vec<Share>)>,
    random: mix::Random,
    gpus: u32,
}

/// What was timed, in nanoseconds.
#[derive(Default)]
struct Timed {
    placed_ns: Vec<u64>,
    refused_ns: Vec<u64>,
    release_ns: Vec<u64>,
    /// Of each that was not proved the best: how far above the bound it is at most, as a part of it.
    gaps: Vec<f64>,
}

impl Trial {
    fn used_percent(&self) -> u32 {
        (self.gpus - self.placer.free_devices()) * 100 / self.gpus
    }

    /// Places the next gang of the mix and takes the place; the gang, and what was found.
    fn place_next(&mut self) -> (usize, Option<Found>, u64) {
        let at = self.next % self.gangs.len();
        self.next += 1;
        let begin = Instant::now();
        let found = self.placer.place(&self.gangs[at]);
        if found.is_some() {
            self.placer.take(&self.gangs[at]);
        }
        (at, found, nanos(begin))
    }

    fn remember(&mut self, gang: usize) {
        let shares = self.placer.shares().collect();
        self.running.push((gang, shares));
    }

    /// A random gang ends.
    fn release(&mut self) -> u64 {
        let at = self.random.below(self.running.len() as u64);
        let (gang, shares) = self.running.swap_remove(usize::try_from(at).unwrap_or(0));
        let begin = Instant::now();
        self.placer.give_back(&self.gangs[gang], &shares);
        nanos(begin)
    }

    /// Fills and empties the cluster in turn, so that what is free lies in pieces, and leaves it full.
    fn age(&mut self) -> Result<(), String> {
        for round in 0..=AGED {
            while self.used_percent() < USED {
                let (gang, found, _) = self.place_next();
                if found.is_some() {
                    self.remember(gang);
                } else if self.running.is_empty() {
                    return Err("nothing fits into the empty cluster".to_owned());
                }
            }
            while round < AGED && self.used_percent() > USED - 30 {
                self.release();
            }
        }
        Ok(())
    }

    fn timed(&mut self, time: Duration) -> Timed {
        let mut timed = Timed::default();
        let started = Instant::now();
        while started.elapsed() < time {
            let (gang, found, ns) = self.place_next();
            if let Some(found) = found {
                timed.placed_ns.push(ns);
                if found.least_ns < found.time_ns {
                    timed.gaps.push((found.time_ns - found.least_ns) as f64 / found.least_ns.max(1) as f64);
                }
                self.remember(gang);
            } else {
                timed.refused_ns.push(ns);
            }
            while self.used_percent() >= USED && !self.running.is_empty() {
                let ns = self.release();
                timed.release_ns.push(ns);
            }
        }
        timed
    }

    /// Gangs end until a large one fits; then it is placed ten times.
    fn large(&mut self) -> Result<Vec<u64>, String> {
        let large = mix::of_size(LARGE);
        while self.placer.place(&large).is_none() && !self.running.is_empty() {
            self.release();
        }
        (0..10)
            .map(|_| {
                let begin = Instant::now();
                let found = self.placer.place(&large);
                let ns = nanos(begin);
                found.map(|_| ns).ok_or_else(|| format!("a gang of {LARGE} that fitted fits no more"))
            })
            .collect()
    }
}

fn print(m: &Measured) {
    println!("{} GPUs on {} nodes, {USED} % used: {} decisions", m.gpus, m.nodes, m.decisions);
    println!(
        "  p50 {:.2} us, p99 {:.1} us, most {:.0} us; {:.0} decisions/s",
        m.p50_us, m.p99_us, m.max_us, m.decisions_per_s
    );
    println!(
        "  placed {} ({:.2} % proved best, the others within {:.1} % on average), refused {}: p50 {:.2} us, p99 {:.1} us",
        m.placed,
        100.0 * m.proved_best as f64 / m.placed.max(1) as f64,
        100.0 * m.gap_of_others,
        m.refused,
        m.refused_p50_us,
        m.refused_p99_us
    );
    println!("  release p50 {:.2} us; {:.0} bytes per GPU", m.release_p50_us, m.bytes_per_gpu);
    if let Some(us) = m.gang_4096_us {
        println!("  a gang of 4,096 GPUs: {us:.0} us");
    }
}

pub(crate) fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn percentile_us(ns: &mut [u64], percent: usize) -> f64 {
    ns.sort_unstable();
    let at = (ns.len() * percent / 100).min(ns.len().saturating_sub(1));
    ns.get(at).copied().unwrap_or(0) as f64 / 1_000.0
}

/// Resident memory of this process.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap_or(0) * 1024
}
