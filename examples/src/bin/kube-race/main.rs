//! The same MPI job on the same two real nodes, as kube-scheduler places it and as Phalanx does; steps are measured.
//!
//! GPUs are declared, everything else is real: kubelets, containers, `mpirun` over SSH, computation on this machine's cores,
//! an all-reduce over TCP. The network between the nodes is slowed down until it is to the links inside a node what
//! 10 Gbit/s is to NVLink; time and bytes are scaled with it. Exit code 0 only if what the cost model predicted came out.

mod cluster;
mod race;

use std::process::ExitCode;

use clap::Parser;
use comfy_table::{Table, presets::NOTHING};
use phalanx_examples::stage::Stage;
use phalanx_examples::v100::{MODELS, Model, Site};

use cluster::{By, Cluster, NODES, WORKERS, spoken};
use race::{Outcome, Scale, measured, predicted_ms, predicted_times, ring_mb_per_s};

/// Published for VGG16 and ResNet-50 with four V100, Kubernetes' own placement against one that sees the topology; by which
/// split is not published.
const PUBLISHED: [f64; 2] = [4.95, 1.97];
/// How far a measured ratio of step times may be from the predicted one.
const WITHIN: f64 = 0.15;

/// A real MPI job on two real nodes: kube-scheduler's placement beside that of Phalanx.
#[derive(Parser)]
struct Arguments {
    /// Steps of each model and placement
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(3..=1_000))]
    steps: u32,
    /// How much slower than on V100 a phase of computation is: a machine with noise wants more
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    slower: u32,
}

fn main() -> ExitCode {
    let (arguments, stage) = (Arguments::parse(), Stage::of_stdout());
    match run(&stage, &arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            stage.failed(&why);
            ExitCode::FAILURE
        }
    }
}

fn run(stage: &Stage, arguments: &Arguments) -> Result<(), String> {
    let site = Site::of(&NODES)?;
    stage.title("Two real nodes, one MPI job, two schedulers");
    stage.say("Real: kubelets, containerd, runc, mpirun over SSH, computation, all-reduces over TCP between containers.");
    stage.say(
        "DECLARED: eight V100 on each node. SCALED: bytes and time, by the speed of this machine's memory.",
    );
    let cluster = Cluster::start(stage, &site)?;

    stage.title("What this machine has: four ranks on one node");
    let longest = MODELS.iter().map(|model| model.compute_ns).max().unwrap_or_default();
    let longest_ms = longest / 1_000_000 * u64::from(arguments.slower);
    let probe = cluster.run(stage, "probe", By::Phalanx, &[longest_ms.to_string()])?;
    let scale = Scale::of(&site, &probe, arguments.slower)?;
    stage.say(&format!(
        "  between pods of a node:  {:.0} MB/s for each of four that send in a ring, measured",
        scale.inside_mb_per_s
    ));
    stage.say(&format!(
        "  between the nodes:       {:.2} MB/s, shaped now: as 10 Gbit/s to NVLink",
        scale.between_mb_per_s
    ));
    stage.say(&format!(
        "  gradients:               1 byte for {:.0}; computation: {} times that of a V100",
        1.0 / scale.bytes,
        arguments.slower
    ));
    for node in 0..NODES.len() {
        cluster.plane.shape(node, Some(scale.between_bytes_per_s())).map_err(|e| e.to_string())?;
    }

    stage.title("The same job twice");
    let work = scale.arguments(longest, arguments.steps);
    let mut outcomes = Vec::new();
    for by in [By::KubeScheduler, By::Phalanx] {
        let run = cluster.run(stage, "train", by, &work)?;
        stage.say(&format!("  {:<16} {}", by.name(), spoken(&run.seats)));
        let placement = match by {
            By::KubeScheduler => site.regular(&run.seats)?,
            By::Phalanx => site.placement(&run.seats)?,
        };
        let steps = MODELS.iter().map(|model| measured(&run, model.name)).collect::<Result<_, _>>()?;
        outcomes.push(Outcome { by, placement, ring_mb_per_s: ring_mb_per_s(&run)?, steps });
    }
    let shaped = scale.site(&site)?;
    let scaled = MODELS.iter().enumerate().map(|(at, model)| scale.of_model(at, model, &outcomes));
    let scaled: Vec<Model> = scaled.collect();
    let predicted = predicted_times(&shaped, &scaled, &outcomes)?;
    let on_v100 = predicted_times(&site, &MODELS, &outcomes)?;
    println!("\n{}", table(&shaped, &scaled, &outcomes)?);
    stage.title("How many times longer a step is where kube-scheduler put it");
    println!("{}", ratios(&outcomes, &predicted, &on_v100));
    stage.say("PREDICTED by the cost model for the links as they are shaped, and for V100 with NVLink and 10 Gbit/s;");
    stage.say("PUBLISHED for four V100 under a split that is not published.");
    for (at, model) in MODELS.iter().enumerate() {
        let (measured, predicted) = (race::times(&outcomes, at), predicted[at]);
        let off = measured / predicted - 1.0;
        let claim =
            format!("{}: measured {measured:.2}, predicted {predicted:.2}, {:+.1} %", model.name, off * 1e2);
        if off.abs() > WITHIN {
            return Err(format!("{claim}: more than {:.0} % apart", WITHIN * 1e2));
        }
        stage.holds(&claim);
    }
    stage.holds(&format!("the {WORKERS} ranks of each job summed their gradients right in every step"));
    Ok(())
}

fn table(site: &Site, scaled: &[Model], outcomes: &[Outcome]) -> Result<Table, String> {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header([
        "MODEL",
        "PLACED BY",
        "RING",
        "COMPUTE",
        "ALL-REDUCE",
        "PREDICTED",
        "STEP",
        "QUARTILES",
    ]);
    for (at, model) in scaled.iter().enumerate() {
        for outcome in outcomes {
            let steps = &outcome.steps[at];
            let (low, middle, high) = steps.quartiles();
            table.add_row([
                model.name.to_owned(),
                outcome.by.name().to_owned(),
                format!("{:.2} MB/s", outcome.ring_mb_per_s),
                format!("{:.0} ms", steps.compute_ms()),
                format!("{:.0} ms", steps.all_reduce_ms()),
                format!("{:.0} ms", predicted_ms(site, model, outcome)?),
                format!("{middle:.0} ms"),
                format!("{low:.0} to {high:.0} ms"),
            ]);
        }
    }
    Ok(table)
}

fn ratios(outcomes: &[Outcome], predicted: &[f64], on_v100: &[f64]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["MODEL", "MEASURED", "PREDICTED", "PREDICTED FOR V100", "PUBLISHED"]);
    for (at, model) in MODELS.iter().enumerate() {
        let numbers = [race::times(outcomes, at), predicted[at], on_v100[at], PUBLISHED[at]];
        let cells = numbers.map(|number| format!("{number:.2}"));
        table.add_row([model.name.to_owned()].into_iter().chain(cells));
    }
    table
}
