//! Four single-GPU workers on two nodes of eight V100, on a real Kubernetes control plane: as kube-scheduler places them, and
//! as `phalanx submit mpi --gang --gputopology=true` does.
//!
//! Where pods are is read back from the API server. What a step takes is predicted, and said to be. Exit code 0 only if
//! everything happened.

mod cluster;

use std::collections::BTreeSet;
use std::process::ExitCode;

use comfy_table::{Table, presets::NOTHING};
use phalanx_examples::stage::Stage;
use phalanx_examples::v100::{MODELS, Model, Site};
use phalanx_model::Placement;

use cluster::{CPUS, Cluster, NODES, REGULAR};

/// The job of the documentation that Arena's users know.
const JOB: &str = "tensorflow-topo-4-vgg16";
const WORKERS: usize = 4;

fn main() -> ExitCode {
    let stage = Stage::of_stdout();
    match run(&stage) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            stage.failed(&why);
            ExitCode::FAILURE
        }
    }
}

fn run(stage: &Stage) -> Result<(), String> {
    let site = Site::of(&NODES)?;
    stage.title("Phalanx on Kubernetes: four workers, and where they talk");
    stage.say("The control plane is real: etcd, kube-apiserver, controllers, kube-scheduler, the training operator of kubeflow.");
    stage.say("Nodes are FAKE (kwok runs their pods), their GPUs DECLARED: two machines of 8 V100 in two NVLink islands of four.");
    stage.say("The first time the control plane is built from source: about ten minutes. After that it takes seconds.");
    let cluster = Cluster::start(stage, &site)?;

    stage.title("As kube-scheduler does it: GPUs are a count");
    cluster.create_regular(WORKERS)?;
    let regular = cluster.until_placed(stage, REGULAR, WORKERS)?;
    for (worker, node, _) in &regular {
        stage.say(&format!("  {worker}  {node}"));
    }
    stage.say(
        "  Which GPUs of its node a pod gets is the kubelet's choice; taken here: the first that are free.",
    );
    cluster.delete_regular()?;

    stage.title("As Phalanx does it: whole, and where its ranks talk fastest");
    let workers = format!("--workers={WORKERS}");
    let (name, cpus) = (format!("--name={JOB}"), format!("--cpu={CPUS}"));
    cluster.phalanx(
        stage,
        &[
            "submit",
            "mpi",
            &name,
            "--gpus=1",
            &cpus,
            &workers,
            "--gang",
            "--gputopology=true",
            "--image=registry.example/horovod:1",
            "mpirun python train.py --model vgg16 --batch_size 64",
        ],
    )?;
    let chosen = cluster.until_placed(stage, JOB, WORKERS)?;
    cluster.phalanx(stage, &["get", JOB, "--type", "mpijob"])?;
    cluster.phalanx(stage, &["top", "node"])?;
    let (regular, chosen) = (site.regular(&regular)?, site.placement(&chosen)?);
    let nodes: BTreeSet<_> = chosen.slots.iter().map(|slot| &slot.node).collect();
    holds(stage, nodes.len() == 1, "all workers are on one node")?;
    holds(stage, site.is_island(&chosen), "their GPUs are one NVLink island")?;

    stage.title("What a step takes: PREDICTED by the cost model, not measured");
    stage.say("Batch 64 per GPU in FP32, an all-reduce of the gradients after it; between nodes sockets over 10 Gb/s.");
    println!("{}", table(&site, &regular, &chosen)?);
    holds(stage, is_faster(&site, &chosen, &regular)?, "the step of each model is shorter there")?;
    stage.say("Published for the same two models on such machines, with a split that is not published: 4.95 and 1.97 times.");
    stage.say("How the model comes to its numbers, and where it errs: docs/cost-model.md.");
    cluster.phalanx(stage, &["cancel", JOB])
}

fn holds(stage: &Stage, holds: bool, claim: &str) -> Result<(), String> {
    if !holds {
        return Err(format!("it does not hold that {claim}"));
    }
    stage.holds(claim);
    Ok(())
}

/// For every model, as the cost model has it.
fn is_faster(site: &Site, chosen: &Placement, regular: &Placement) -> Result<bool, String> {
    for model in &MODELS {
        if site.predict(chosen, model)?.step_ns >= site.predict(regular, model)?.step_ns {
            return Ok(false);
        }
    }
    Ok(true)
}

fn table(site: &Site, regular: &Placement, chosen: &Placement) -> Result<Table, String> {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["MODEL", "PLACED BY", "WHERE", "ALL-REDUCE", "OVER", "STEP", "IMAGES/S", "TIMES"]);
    for model in &MODELS {
        let base = site.predict(regular, model)?;
        for (by, placement) in [("kube-scheduler", regular), ("phalanx", chosen)] {
            let step = site.predict(placement, model)?;
            table.add_row([
                model.name.to_owned(),
                by.to_owned(),
                spoken(placement),
                format!("{:.0} ms", ms(step.communication_ns)),
                step.bottleneck,
                format!("{:.0} ms", ms(step.step_ns)),
                format!("{:.0}", images_per_s(model, step.step_ns)),
                format!("{:.2}", ms(base.step_ns) / ms(step.step_ns)),
            ]);
        }
    }
    Ok(table)
}

/// GPUs by node: `node-00000: 0,1`.
fn spoken(placement: &Placement) -> String {
    let on = |node: &str| {
        let gpus: Vec<String> = placement
            .slots
            .iter()
            .filter(|slot| slot.node.as_str() == node)
            .map(|slot| slot.devices.to_string())
            .collect();
        (!gpus.is_empty()).then(|| format!("{node}: {}", gpus.join(",")))
    };
    NODES.iter().filter_map(|node| on(node)).collect::<Vec<_>>().join("  ")
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds for people")]
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn images_per_s(model: &Model, step_ns: u64) -> f64 {
    f64::from(model.batch) * WORKERS as f64 * 1e3 / ms(step_ns)
}
