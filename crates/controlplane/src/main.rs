//! `phalanx-controlplane up`: a control plane to play with.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nix::sys::signal::{SigSet, Signal};
use phalanx_controlplane::{
    ControlPlane, Error, Fleet, Image, Kubectl, KubernetesVersion, Options, Program, RELEASE, Renderer,
    binary,
};

/// A real Kubernetes control plane on this machine, with fake GPU nodes; and the image of Phalanx for any other.
///
/// PHALANX_KUBERNETES chooses its version: 1.36, or 1.37 by default.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Start one and keep it until Ctrl-C
    Up(Up),
    /// Build all programs of a control plane that are not there yet
    Build,
    /// Write the image of `phalanx` as an archive, without a container daemon
    Image(ImageArguments),
}

#[derive(clap::Args)]
struct ImageArguments {
    /// The program, built on this machine
    #[arg(long, default_value = "target/release/phalanx")]
    program: PathBuf,
    /// Name of the image, with registry and tag
    #[arg(long, default_value = RELEASE)]
    name: String,
    /// The archive, an OCI image layout that `docker load` reads too
    #[arg(long, default_value = "target/phalanx-image.tar")]
    to: PathBuf,
}

#[derive(clap::Args)]
struct Up {
    /// Fake nodes, 32 in a rack and 256 in a block
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    nodes: u32,
    /// GPUs of each node
    #[arg(long, default_value_t = 8)]
    gpus: u32,
    /// Nodes of a rack
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    rack: u32,
    /// Also run kube-scheduler
    #[arg(long)]
    kube_scheduler: bool,
    /// Nodes with a real kubelet, containerd and runc (needs root)
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=8))]
    real: u32,
    /// Also run the job controllers of kubeflow: PyTorchJob, MPIJob and others
    #[arg(long)]
    training_operator: bool,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().verb {
        Verb::Up(arguments) => up(&arguments),
        Verb::Build => build(),
        Verb::Image(arguments) => image(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn up(arguments: &Up) -> Result<(), Error> {
    // Blocked before anything starts, so that Ctrl-C is waited for and not died of.
    let mut ends = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        ends.add(signal);
    }
    let blocked = ends.thread_block().map_err(std::io::Error::from);
    blocked.map_err(|source| Error::Io {
        what: "wait for signals of",
        path: "this process".into(),
        source,
    })?;
    let plane = ControlPlane::start(&Options {
        controller_manager: true,
        kube_scheduler: arguments.kube_scheduler,
        kwok: true,
        training_operator: arguments.training_operator,
        real_nodes: arguments.real as usize,
        ..Options::default()
    })?;
    let fleet = Fleet {
        gpus: arguments.gpus,
        nodes_per_rack: arguments.rack as usize,
        ..Fleet::new(arguments.nodes as usize)
    };
    fleet.create(plane.api())?;
    let release = plane.kubernetes().release();
    println!("Kubernetes {release} with {} nodes of {} GPUs", fleet.nodes, fleet.gpus);
    for node in plane.nodes() {
        println!("real node {}, its kubelet's folder is {}", node.name(), node.kubelet_folder().display());
    }
    println!("racks are {}, blocks are {}", Fleet::RACK, Fleet::BLOCK);
    println!("  export KUBECONFIG={}", plane.kubeconfig().display());
    println!("Logs are in {}. Ctrl-C ends it.", plane.folder().display());
    let _ = ends.wait();
    Ok(())
}

fn build() -> Result<(), Error> {
    let kubernetes = KubernetesVersion::chosen()?;
    for program in Program::ALL {
        println!("{}", binary(program.source(kubernetes))?.display());
    }
    for renderer in [Renderer::Helm, Renderer::Kustomize] {
        println!("{}", binary(renderer)?.display());
    }
    println!("{}", binary(Kubectl)?.display());
    Ok(())
}

fn image(arguments: &ImageArguments) -> Result<(), Error> {
    let ImageArguments { program, name, to } = arguments;
    let digest = Image::of_release(name, program)?.write(to)?;
    let to = to.display();
    println!("{name}\n{digest}\n{to}");
    println!("Load it on a node, or push it:");
    println!("  ctr --namespace k8s.io images import {to}");
    println!("  podman load --input {to}");
    println!("  docker load --input {to}");
    // Nobody pushes to the registry of the default name.
    let pushed = if name == RELEASE { "REGISTRY/phalanx:TAG" } else { name };
    println!("  skopeo copy oci-archive:{to} docker://{pushed}");
    Ok(())
}
