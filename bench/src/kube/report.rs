//! Runs as tables: the ratios first, for they are what another machine can be compared by.

use crate::tables::{Marks, Table, number};

use super::figures::{Outcome, as_f64, percentile};
use super::runner::Runner;

pub(super) const MARKS: Marks =
    Marks { begin: "<!-- `make bench-kube` writes from here -->", end: "<!-- end of kube -->" };

/// A run in one line.
pub(super) fn line(run: &Outcome) -> String {
    format!(
        "{}: {} of {} pods in {:.1} s, {:.0} pods/s ({:.0} from the first bind to the last), partial {} at once, {:.1} s, \
         {} at the end",
        run.end,
        run.bound_pods,
        run.pods,
        run.last_bind_s,
        run.pods_per_s,
        run.binding_pods_per_s,
        run.partial_at_once,
        run.partial_longest_s,
        run.partial_at_end,
    )
}

/// The ratios of all, then each scenario and size with the median run of every runner.
pub(super) fn tables(runs: &[Outcome]) -> Vec<Table> {
    let mut settings: Vec<(&str, usize)> = Vec::new();
    for run in runs {
        let setting = (&*run.scenario, run.nodes);
        if !settings.contains(&setting) {
            settings.push(setting);
        }
    }
    let medians: Vec<Vec<&Outcome>> = settings
        .iter()
        .map(|(scenario, nodes)| {
            let of = |run: &&Outcome| run.scenario == *scenario && run.nodes == *nodes;
            Runner::ALL.iter().filter_map(|runner| median(runs.iter().filter(of), runner.name())).collect()
        })
        .collect();
    let ratios = ratios(&medians);
    let first = (!ratios.rows.is_empty()).then_some(ratios);
    first.into_iter().chain(medians.iter().map(|medians| details(medians))).collect()
}

/// The run in the middle by its rate, or by memory where nothing is bound.
fn median<'a>(runs: impl Iterator<Item = &'a Outcome>, runner: &str) -> Option<&'a Outcome> {
    let mut runs: Vec<&Outcome> = runs.filter(|run| run.runner == runner).collect();
    let key = |run: &Outcome| if run.pods > 0 { run.pods_per_s } else { run.scheduler_peak_mib };
    runs.sort_by(|left, right| key(left).total_cmp(&key(right)));
    runs.get(runs.len().saturating_sub(1) / 2).copied()
}

/// Every runner by the bare binder, and ours by kube-scheduler.
fn ratios(medians: &[Vec<&Outcome>]) -> Table {
    let mut rows = Vec::new();
    for runs in medians {
        let of = |runner: Runner| runs.iter().find(|run| run.runner == runner.name()).copied();
        // The bare binder's own row says what its binds spread, for those of the others to be seen against it.
        for run in runs.iter().filter(|run| run.pods > 0) {
            let by = |other: Option<&Outcome>, rate: fn(&Outcome) -> f64| {
                let other = other.filter(|other| other.runner != run.runner && rate(other) > 0.0);
                other.map_or_else(String::new, |other| number(rate(run) / rate(other), 2))
            };
            let (bare, kube) = (of(Runner::Bare), of(Runner::KubeScheduler));
            if bare.is_none() && kube.is_none() {
                continue;
            }
            rows.push(vec![
                run.scenario.to_string(),
                number(as_f64(run.nodes), 0),
                run.runner.to_string(),
                by(bare, |run| run.pods_per_s),
                by(bare, |run| run.binding_pods_per_s),
                by(kube, |run| run.pods_per_s),
                bare.map_or_else(String::new, |bare| spread(run, bare, 2)),
                bare.map_or_else(String::new, |bare| spread(run, bare, LARGE)),
            ]);
        }
    }
    let columns = vec![
        "scenario",
        "nodes",
        "scheduler",
        "pods/s by bare",
        "first bind to last by bare",
        "pods/s by kube-scheduler",
        "p99 of a gang's binds by its pods at the bare rate",
        "the same, gangs of 16 pods and more",
    ];
    Table { title: "Kubernetes: ratios".to_owned(), columns, rows }
}

/// Gangs whose binds take longer than one that the API server happens to be slow with.
const LARGE: usize = 16;

/// The time from a gang's first bind to its last, in times of what the bare binder takes for as many pods; over gangs of
/// so many pods and more.
fn spread(run: &Outcome, bare: &Outcome, least: usize) -> String {
    let of = run.spreads.iter().filter(|(pods, _)| *pods >= least);
    let mut times: Vec<f64> =
        of.map(|(pods, seconds)| seconds * bare.binding_pods_per_s / as_f64(*pods)).collect();
    if times.is_empty() { String::new() } else { number(percentile(&mut times, 99), 2) }
}

/// The name of a measure, and what a run says of it.
type Measure<'a> = (&'static str, &'a dyn Fn(&Outcome) -> String);

/// One column for each runner, one row for each measure.
fn details(runs: &[&Outcome]) -> Table {
    let whole = |count: usize| number(as_f64(count), 0);
    let maybe = |value: Option<f64>| value.map_or_else(String::new, |value| number(value, 0));
    let measures: [Measure; 19] = [
        ("pods bound", &|run| whole(run.bound_pods)),
        ("whole gangs", &|run| whole(run.whole_gangs)),
        ("over because", &|run| run.end.to_string()),
        ("pods/s, start to last bind", &|run| number(run.pods_per_s, 0)),
        ("pods/s, first bind to last", &|run| number(run.binding_pods_per_s, 0)),
        ("first bind after, s", &|run| number(run.first_bind_s, 2)),
        ("a gang's first bind to last p50, ms", &|run| number(run.spread_p50_ms, 0)),
        ("a gang's first bind to last p99, ms", &|run| number(run.spread_p99_ms, 0)),
        ("gangs partial at once", &|run| whole(run.partial_at_once)),
        ("longest partial, s", &|run| number(run.partial_longest_s, 1)),
        ("partial at the end", &|run| whole(run.partial_at_end)),
        ("racks / least", &|run| format!("{} / {}", whole(run.racks), whole(run.racks_least))),
        ("gangs that wait though they fit", &|run| whole(run.waiting_that_fit)),
        ("CPU-s of the scheduler", &|run| number(run.scheduler_cpu_s, 1)),
        ("CPU-s of API server + etcd", &|run| number(run.api_server_cpu_s + run.etcd_cpu_s, 1)),
        ("CPU when nothing changes, % of a core", &|run| maybe(run.idle_cpu_percent)),
        ("peak memory, MiB", &|run| number(run.scheduler_peak_mib, 0)),
        ("request to bind p50 / p99, ms", &|run| match (run.latency_p50_ms, run.latency_p99_ms) {
            (Some(p50), Some(p99)) => format!("{} / {}", number(p50, 0), number(p99, 0)),
            _ => String::new(),
        }),
        ("the leader killed: bind after the lease and its calls ran out, s", &|run| {
            run.takeover_s.map_or_else(String::new, |late| number(late, 1))
        }),
    ];
    let row = |(name, cell): &Measure| {
        let cells: Vec<String> = runs.iter().map(|run| cell(run)).collect();
        let is_there = cells.iter().any(|cell| !cell.is_empty());
        is_there.then(|| [(*name).to_owned()].into_iter().chain(cells).collect())
    };
    let title = runs.first().map_or_else(String::new, |run| {
        let (nodes, pods, gangs) = (whole(run.nodes), whole(run.pods), whole(run.gangs));
        format!("Kubernetes: {}, {nodes} nodes, {pods} pods in {gangs} gangs", run.scenario)
    });
    let names =
        runs.iter().filter_map(|run| Runner::ALL.iter().map(|of| of.name()).find(|name| *name == run.runner));
    let columns = ["measure"].into_iter().chain(names).collect();
    Table { title, columns, rows: measures.iter().filter_map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(runner: &'static str, rate: f64) -> Outcome {
        Outcome {
            scenario: "gangs".into(),
            runner: runner.into(),
            nodes: 1_000,
            pods: 100,
            pods_per_s: rate,
            binding_pods_per_s: rate,
            spreads: vec![(10, 0.5)],
            ..Outcome::default()
        }
    }

    #[test]
    fn ratios_are_of_medians_and_stand_first() {
        let runs = [
            run("bare", 100.0),
            run("bare", 400.0),
            run("bare", 200.0),
            run("kube-scheduler", 50.0),
            run("phalanx", 180.0),
        ];
        let tables = tables(&runs);
        assert_eq!(tables.len(), 2);
        // 10 pods at the bare rate of 200 take 50 ms, and the gang took ten times as long.
        assert_eq!(tables[0].rows[1][3..], ["0.25", "0.25", "", "10.00", ""]);
        assert_eq!(tables[0].rows[2][2..6], ["phalanx", "0.90", "0.90", "3.60"]);
        assert_eq!(tables[1].columns, ["measure", "bare", "kube-scheduler", "phalanx"]);
        let rate = tables[1].rows.iter().find(|row| row[0].starts_with("pods/s, start")).unwrap();
        assert_eq!(rate[1..], ["200", "50", "180"]);
    }
}
