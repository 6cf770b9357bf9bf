//! The main job on real input: machine descriptions in, gangs of real processes out.
//!
//! Every sentence it prints about what happened was checked against the daemon first; what it only claims, it
//! does not print. Exit code 0 only if everything happened.

mod acts;
mod cluster;
mod daemon;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use daemon::Daemon;
use phalanx_examples::stage::Stage;

#[derive(Debug, Parser)]
#[command(name = "demo", version, about = "Phalanx on two declared 8-GPU nodes, with real processes")]
struct Settings {
    /// `nvidia-smi topo -m` text of the machines, instead of the one that comes with Phalanx. Needs 8 GPUs.
    #[arg(long, value_name = "FILE")]
    topo: Option<PathBuf>,
    /// Product name of the GPUs of `--topo`.
    #[arg(long, default_value = "Tesla V100-SXM2-32GB", value_name = "NAME")]
    model: String,
    /// Smaller messages and fewer steps: for tests.
    #[arg(long)]
    quick: bool,
    /// Leaves the state folder behind, to look at.
    #[arg(long)]
    keep: bool,
}

/// What a step of the demo says when it did not come out as promised.
type Check = Result<(), String>;

fn main() -> ExitCode {
    let settings = Settings::parse();
    let stage = Stage::of_stdout();
    match run(&settings, &stage) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            stage.failed(&why);
            ExitCode::FAILURE
        }
    }
}

fn run(settings: &Settings, stage: &Stage) -> Check {
    let folder = tempfile::Builder::new().prefix("phalanx-demo-").tempdir().map_err(|e| e.to_string())?;
    let files = cluster::write(folder.path(), settings)?;
    let daemon = Daemon::new(folder.path())?;
    stage.title("Phalanx: a gang starts whole, close together, and survives its failures");
    stage.say(
        "Two nodes of 8 GPUs each, DECLARED from `nvidia-smi topo -m` text: this machine need not have GPUs.",
    );
    stage.say("Their ranks are real processes of this machine, in a ring all-reduce over real sockets.");

    let played = play(settings, stage, &daemon, &files);
    daemon.down();
    if settings.keep {
        stage.say(&format!("The state folder is {}", folder.keep().display()));
    }
    played
}

fn play(settings: &Settings, stage: &Stage, daemon: &Daemon, files: &cluster::Files) -> Check {
    let mut results = acts::Results::default();
    acts::waits_whole(stage, daemon, files, settings, &mut results)?;
    acts::four_and_four(stage, daemon, files, settings, &mut results)?;
    acts::island(stage, daemon, files, settings, &mut results)?;
    acts::finale(stage, &results)
}
