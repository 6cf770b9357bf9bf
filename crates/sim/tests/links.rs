//! Jobs that send across the same uplinks.
#![allow(clippy::unwrap_used, reason = "tests")]

use phalanx_model::DeviceMask;
use phalanx_sim::cluster::{Clos, Cluster};
use phalanx_sim::replay::metrics::Metrics;
use phalanx_sim::replay::{
    Act, Job, Machines, Outcome, Part, Placed, Progress, Replay, Scheduler, Settings, View,
};

/// Starts each job at once, on whole nodes that it was given.
struct Given(Vec<Vec<usize>>);

impl Scheduler for Given {
    fn name(&self) -> String {
        "given".to_owned()
    }

    fn decide(&mut self, view: &View<'_>, acts: &mut Vec<Act>) -> Option<u64> {
        let whole = |node: &usize| Part::whole(*node, DeviceMask::first(8));
        let start = |job: &usize| Act::Start { job: *job, place: self.0[*job].iter().map(whole).collect() };
        acts.extend(view.waiting.iter().map(start));
        None
    }
}

/// Two leaves of four nodes, with a quarter above them of what is below.
fn run(progress: &dyn Progress, jobs: &[(u64, f64, &[usize])]) -> Outcome {
    let machines = Machines::from(Cluster::of_clos(&Clos::read("2x4x8:4").unwrap()).unwrap());
    let job = |(submit_s, work_s, nodes): &(u64, f64, &[usize])| {
        let gpus = 8 * u32::try_from(nodes.len()).unwrap();
        let work = work_s * 1_000.0;
        let submit_ms = submit_s * 1_000;
        Job { submit_ms, work, gpus, gpus_min: gpus, gpus_max: gpus, traffic_milli: 500, ..Job::default() }
    };
    let all: Vec<Job> = jobs.iter().map(job).collect();
    let places = jobs.iter().map(|(.., nodes)| nodes.to_vec()).collect();
    let settings = Settings::default();
    let replay = Replay { cluster: &machines, jobs: &all, progress, settings, node_events: &[] };
    replay.run(&mut Given(places)).unwrap()
}

fn ends_s(outcome: &Outcome) -> Vec<f64> {
    #[expect(clippy::cast_precision_loss, reason = "hours")]
    outcome.jobs.iter().map(|job| job.end_ms.unwrap() as f64 / 1_000.0).collect()
}

#[test]
fn jobs_share_an_uplink_while_both_send_across_it() {
    let shared = || Placed::among_others();
    let alone = ends_s(&run(&shared(), &[(0, 1_000.0, &[0, 4])]))[0];
    // One node's NICs fit through a leaf's uplink, so nothing is lost but a switch more on the way.
    assert!((1_000.0..1_050.0).contains(&alone), "{alone}");

    // Two together have half of it each, and end together; a third that stays inside of a leaf feels nothing.
    let three: [(u64, f64, &[usize]); 3] =
        [(0, 1_000.0, &[0, 4]), (0, 1_000.0, &[1, 5]), (0, 1_000.0, &[2, 3])];
    let outcome = run(&shared(), &three);
    let ends = ends_s(&outcome);
    assert!((ends[0] - ends[1]).abs() < 1e-9 && ends[0] > 1.05 * alone, "{ends:?}");
    assert!((ends[2] - 1_000.0).abs() < 1.0, "{ends:?}");
    let metrics = Metrics::of(&outcome);
    let of = metrics.gpu_hours;
    assert!((of.held - of.useful - of.places).abs() < 1e-3 * of.held && of.places > 0.0, "{of:?}");

    // What one misses while the other is there is all that it misses.
    let ends_of = |work_s| ends_s(&run(&shared(), &[(0, 1_000.0, &[0, 4]), (100, work_s, &[1, 5])]));
    let (short, long) = (ends_of(100.0), ends_of(300.0));
    let slow = ends[0] / 1_000.0;
    for (ends, work_s) in [(&short, 100.0), (&long, 300.0)] {
        let together_s = ends[1] - 100.0;
        assert!((together_s - work_s * slow).abs() < 1.0, "{ends:?}");
        assert!(
            (ends[0] - alone - together_s * (1.0 - alone / 1_000.0 / slow)).abs() < 1.0,
            "{ends:?} {alone}"
        );
    }

    // Where uplinks are taken to be full, nobody else matters: each has a quarter for good.
    let full = |jobs: &[(u64, f64, &[usize])]| ends_s(&run(&Placed::default(), jobs))[0];
    assert!((full(&three) - full(&three[..1])).abs() < 1e-9 && full(&three) > ends[0], "{}", full(&three));
}
