//! What the presets of the product cost when a cluster is full, over best-fit, and what a wait for near places is worth.
//!
//! Each trace runs on as many nodes of 8 GPUs as make it ask for a share of what they have; no job says how long it takes. Jobs
//! of several GPUs communicate for a part of their time at their best place, a start takes 30 s, a restart 30 s more, and
//! jobs save their work every half hour. What the presets say was chosen on the traces marked `chosen`; the others were kept
//! back.

mod picture;

use std::path::Path;

use phalanx_model::Settings as Policy;
use phalanx_sim::cluster::{Clos, Cluster};
use phalanx_sim::policies::{Rules, named};
use phalanx_sim::replay::{Job, Machines, Placed, Replay, Settings, StartCost};
use phalanx_sim::studies::WAITS;
use phalanx_sim::trace::Format;
use serde::Serialize;

use crate::tables::{Table, number};

const SETTINGS: Settings = Settings {
    stretches_limits: false,
    start_ms: 30_000,
    restore_ms: 30_000,
    start_cost: StartCost::AtStart,
    checkpoint_every_ms: Some(1_800_000),
    checkpoint_ms: 0,
};
/// The load as recorded.
const RECORDED_MILLI: u32 = 1_000;
/// What jobs communicate of their time.
const TRAFFIC_MILLI: u32 = 50;
const TRAFFICS_MILLI: [u32; 4] = [20, 50, 150, 300];
/// GPUs of a node, and the most nodes of a leaf.
const GPUS: u64 = 8;
const LEAF_MAX: u64 = 16;

const POLICIES: [&str; 7] =
    ["best-fit", "topology", "las", "gavel", "phalanx", "phalanx-fair", "phalanx-first-come"];

/// A trace that asks for a share of a cluster.
struct World {
    name: &'static str,
    file: &'static str,
    format: Format,
    days: std::ops::Range<u64>,
    /// Asked device time over that of the cluster, in thousandths.
    load_milli: u64,
    is_chosen: bool,
}

const ALL: std::ops::Range<u64> = 0..u64::MAX;

const fn elasticflow(name: &'static str, file: &'static str, load_milli: u64, is_chosen: bool) -> World {
    World { name, file, format: Format::ElasticFlow, days: ALL, load_milli, is_chosen }
}

const fn philly(name: &'static str, days: std::ops::Range<u64>, load_milli: u64, is_chosen: bool) -> World {
    World { name, file: "philly/philly_pollux.csv", format: Format::Philly, days, load_milli, is_chosen }
}

const WORLDS: [World; 12] = [
    elasticflow("elasticflow-02", "elasticflow_itp/raw/cluster02.csv", 800, true),
    elasticflow("elasticflow-02", "elasticflow_itp/raw/cluster02.csv", 1_100, true),
    elasticflow("elasticflow-03", "elasticflow_itp/raw/cluster03.csv", 800, true),
    elasticflow("elasticflow-03", "elasticflow_itp/raw/cluster03.csv", 1_100, true),
    philly("philly-20-40", 20..40, 800, true),
    philly("philly-20-40", 20..40, 1_100, true),
    elasticflow("elasticflow-01", "elasticflow_itp/raw/cluster01.csv", 800, false),
    elasticflow("elasticflow-04", "elasticflow_itp/raw/cluster04.csv", 800, false),
    elasticflow("elasticflow-04", "elasticflow_itp/raw/cluster04.csv", 1_000, false),
    elasticflow("elasticflow-05", "elasticflow_itp/raw/cluster05.csv", 800, false),
    philly("philly-60-80", 60..80, 800, false),
    philly("philly-60-80", 60..80, 1_100, false),
];

/// One policy in one world.
#[derive(Clone, Debug, Serialize)]
struct Figures {
    world: String,
    policy: String,
    is_chosen: bool,
    mean_s: f64,
    p99_s: f64,
    held_percent: f64,
    goodput_percent: f64,
    places_percent: f64,
    unfair_percent: f64,
    lost_percent: f64,
    /// Of a job, in an hour of its run.
    stops: f64,
    seconds: f64,
}

/// A trace on its cluster.
struct Scene {
    name: String,
    is_chosen: bool,
    machines: Machines,
    jobs: Vec<Job>,
}

/// All worlds, or those that are named. Each table is handed on as soon as it is there; a picture is returned.
pub(super) fn measure(
    folder: &Path,
    only: &[String],
    is_json: bool,
    mut show: impl FnMut(Table),
) -> Result<String, String> {
    let is_wanted = |world: &&World| only.is_empty() || only.iter().any(|wanted| wanted == world.name);
    let mut all: Vec<Vec<Figures>> = Vec::new();
    for world in WORLDS.iter().filter(is_wanted) {
        let scene = Scene::of(folder, world, TRAFFIC_MILLI)?;
        let figures: Result<Vec<Figures>, String> =
            POLICIES.iter().map(|policy| scene.run(policy, policy, &Rules::default())).collect();
        let figures = figures?;
        tell(&figures, is_json)?;
        show(table(&scene, &figures));
        all.push(figures);
    }
    if all.is_empty() {
        let known: Vec<&str> = WORLDS.iter().map(|world| world.name).collect();
        return Err(format!("{} is no world of these; known are {}", only.join(", "), known.join(", ")));
    }
    for (title, is_chosen) in [("chosen", Some(true)), ("kept back", Some(false)), ("all", None)] {
        show(means(title, &all, is_chosen));
    }
    let mut far = Vec::new();
    for world in WORLDS.iter().filter(is_wanted).filter(|world| world.load_milli == 800) {
        for traffic_milli in TRAFFICS_MILLI {
            let figures = waits(&Scene::of(folder, world, traffic_milli)?)?;
            tell(&figures, is_json)?;
            far.push((traffic_milli, figures));
        }
    }
    show(far_places(&far));
    Ok(picture::draw(&all))
}

fn tell(figures: &[Figures], is_json: bool) -> Result<(), String> {
    for figures in figures.iter().filter(|_| is_json) {
        println!("{}", serde_json::to_string(figures).map_err(|e| e.to_string())?);
    }
    Ok(())
}

/// The default with a wait for near places that is priced, endless, and none.
fn waits(scene: &Scene) -> Result<Vec<Figures>, String> {
    let of = |(word, wait)| {
        let settings = Policy { wait, ..Rules::default().settings };
        scene.run(word, "phalanx", &Rules { settings, ..Rules::default() })
    };
    WAITS.into_iter().map(of).collect()
}

impl Scene {
    fn of(folder: &Path, world: &World, traffic_milli: u32) -> Result<Self, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", world.name);
        let file = folder.join(world.file);
        let mut jobs = super::jobs_of_days(&file, world.format, &world.days, RECORDED_MILLI)?;
        let nodes = nodes(&jobs, world.load_milli);
        let leaf = (nodes / 4).clamp(2, LEAF_MAX);
        let fabric = format!("{}x{leaf}x{GPUS}", nodes.div_ceil(leaf));
        let cluster = Clos::read(&fabric).and_then(|clos| Cluster::of_clos(&clos)).map_err(|e| wrong(&e))?;
        for job in &mut jobs {
            job.traffic_milli = if job.gpus > 1 { traffic_milli } else { 0 };
        }
        let load = world.load_milli as f64 / 1_000.0;
        let name = format!("{} at {load:.1} on {fabric}", world.name);
        Ok(Self { name, is_chosen: world.is_chosen, machines: Machines::from(cluster), jobs })
    }

    fn run(&self, word: &str, policy: &str, rules: &Rules) -> Result<Figures, String> {
        let rules = Rules { starts_ms: SETTINGS.start_ms + SETTINGS.restore_ms, ..rules.clone() };
        let mut scheduler = named(policy, &self.machines, &rules, &std::collections::BTreeMap::new())?;
        let progress = Placed::default();
        let replay = Replay {
            cluster: &self.machines,
            jobs: &self.jobs,
            progress: &progress,
            settings: SETTINGS,
            node_events: &[],
        };
        let (of, seconds) =
            super::replayed(scheduler.as_mut(), &replay).map_err(|e| format!("{}: {e}", self.name))?;
        let run_h = (of.completion_s.mean - of.waited_s.mean).max(1.0) * of.ended as f64 / 3_600.0;
        let part_of_held = |gpu_hours: f64| 100.0 * gpu_hours / of.gpu_hours.held.max(1e-9);
        Ok(Figures {
            world: self.name.clone(),
            policy: word.to_owned(),
            is_chosen: self.is_chosen,
            mean_s: of.completion_s.mean,
            p99_s: of.completion_s.p99,
            held_percent: of.allocated_percent,
            goodput_percent: of.goodput_percent,
            places_percent: part_of_held(of.gpu_hours.places),
            unfair_percent: of.fairness.unfair_percent,
            lost_percent: part_of_held(of.lost_gpu_hours),
            stops: of.preemptions as f64 / run_h,
            seconds,
        })
    }
}

/// As many nodes as make a trace ask for a share of them until its last submission; no fewer than its largest job needs.
fn nodes(jobs: &[Job], load_milli: u64) -> u64 {
    let asked_ms: f64 = jobs.iter().map(|job| job.work * f64::from(job.gpus)).sum();
    let first = jobs.iter().map(|job| job.submit_ms).min().unwrap_or(0);
    let span_ms = jobs.iter().map(|job| job.submit_ms).max().unwrap_or(0).saturating_sub(first).max(1);
    let largest = jobs.iter().map(|job| u64::from(job.gpus)).max().unwrap_or(1);
    let gpus = asked_ms / span_ms as f64 * 1_000.0 / load_milli as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of GPUs")]
    let gpus = gpus.ceil() as u64;
    gpus.div_ceil(GPUS).max(largest.div_ceil(GPUS)).max(2)
}

fn best_fit(figures: &[Figures]) -> &Figures {
    figures.iter().find(|figures| figures.policy == "best-fit").unwrap_or(&figures[0])
}

const COLUMNS: [&str; 9] =
    ["policy", "mean", "p99", "useful %", "held %", "far %", "lost %", "stops/h", "unfair %"];

fn row(of: &Figures, (mean, p99): (f64, f64)) -> Vec<String> {
    vec![
        of.policy.clone(),
        number(mean, 2),
        number(p99, 2),
        number(of.goodput_percent, 1),
        number(of.held_percent, 1),
        number(of.places_percent, 1),
        number(of.lost_percent, 1),
        number(of.stops, 2),
        number(of.unfair_percent, 1),
    ]
}

fn table(scene: &Scene, figures: &[Figures]) -> Table {
    let best = best_fit(figures);
    let rows = figures.iter().map(|of| row(of, (of.mean_s / best.mean_s, of.p99_s / best.p99_s)));
    let title = format!("{}: {} jobs, completion over best-fit", scene.name, scene.jobs.len());
    Table { title, columns: COLUMNS.to_vec(), rows: rows.collect() }
}

/// Geometric means of completion over best-fit, and means of the rest.
fn means(title: &str, all: &[Vec<Figures>], is_chosen: Option<bool>) -> Table {
    let worlds: Vec<&Vec<Figures>> = all
        .iter()
        .filter(|figures| is_chosen.is_none_or(|is_chosen| figures[0].is_chosen == is_chosen))
        .collect();
    let count = worlds.len().max(1) as f64;
    let of_policy = |(at, policy): (usize, &&str)| {
        let geometric = |of: &dyn Fn(&Figures) -> f64| {
            let logs = worlds.iter().map(|figures| (of(&figures[at]) / of(best_fit(figures))).ln());
            (logs.sum::<f64>() / count).exp()
        };
        let mean = |of: &dyn Fn(&Figures) -> f64| worlds.iter().map(|w| of(&w[at])).sum::<f64>() / count;
        let figures = Figures {
            world: title.to_owned(),
            policy: (*policy).to_owned(),
            is_chosen: is_chosen == Some(true),
            mean_s: 0.0,
            p99_s: 0.0,
            held_percent: mean(&|of| of.held_percent),
            goodput_percent: mean(&|of| of.goodput_percent),
            places_percent: mean(&|of| of.places_percent),
            unfair_percent: mean(&|of| of.unfair_percent),
            lost_percent: mean(&|of| of.lost_percent),
            stops: mean(&|of| of.stops),
            seconds: mean(&|of| of.seconds),
        };
        row(&figures, (geometric(&|of| of.mean_s), geometric(&|of| of.p99_s)))
    };
    let title = format!("When the cluster is full, {title}: {} worlds", worlds.len());
    Table { title, columns: COLUMNS.to_vec(), rows: POLICIES.iter().enumerate().map(of_policy).collect() }
}

/// What a wait is worth: completion over the better of the endless wait and of none.
fn far_places(all: &[(u32, Vec<Figures>)]) -> Table {
    let row = |(traffic_milli, figures): &(u32, Vec<Figures>)| {
        let hours = |of: &Figures| number(of.mean_s / 3_600.0, 2);
        let better = figures[1].mean_s.min(figures[2].mean_s);
        let traffic = format!("{} %", traffic_milli / 10);
        let cells = figures.iter().map(hours);
        let over = number(figures[0].mean_s / better, 3);
        [figures[0].world.clone(), traffic].into_iter().chain(cells).chain([over]).collect()
    };
    let columns = vec!["world", "communication", "priced, h", "nearest, h", "anywhere, h", "over the better"];
    let title = "A wait for near places: mean completion".to_owned();
    Table { title, columns, rows: all.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use phalanx_sim::policies::NAMES;

    use super::*;

    #[test]
    fn every_policy_is_known() {
        assert!(POLICIES.iter().all(|policy| NAMES.iter().any(|(known, _)| known == policy)));
    }
}
