//! A real `mpirun`: its launcher finds the other pods by name and starts the ranks there over SSH.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_controlplane::{Image, OPEN_MPI, OPEN_MPI_SETTINGS, Options, missing_for_open_mpi};
use phalanx_kube::submit::{self, Launch, Trainer, Work, indexed};
use serde_json::{Value, json};

use super::Site;
use crate::support::{JOBS, PODS, Seat, assert_disjoint};

const PODS_OF_IT: usize = 2;
/// Of each pod.
const RANKS: u32 = 2;

/// Two pods of eight GPUs, two ranks in each, which go on until they are ended.
fn ring() -> Work {
    let rank = "echo rank $OMPI_COMM_WORLD_RANK on $(uname -n); exec sleep 86399";
    Work {
        name: "ring".to_owned(),
        trainer: Trainer::Mpi,
        workers: u32::try_from(PODS_OF_IT).unwrap(),
        gpus: 8,
        image: OPEN_MPI.to_owned(),
        pull_policy: Some("Never".to_owned()),
        argv: ["mpirun", "sh", "-c", rank].map(str::to_owned).into(),
        env: OPEN_MPI_SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        launch: Launch::Mpi { per_pod: RANKS },
        retry: 20,
        grace_s: Some(1),
        ..Work::default()
    }
}

/// Waits until all ranks run under a launcher that is none of `before`, and says who the pods are, the launcher first.
fn until_all_ranks_run(site: &Site, before: &[String]) -> Vec<Seat> {
    site.cluster.until("all ranks of the ring", |cluster| {
        let mut seats = cluster.seats();
        seats.retain(|seat| seat.gang == "ring" && seat.phase == "Running");
        seats.sort_by(|a, b| a.name.cmp(&b.name));
        let launcher = seats.first().filter(|first| !before.contains(&first.name))?;
        let node = site.node(site.place(launcher.node.as_deref()?));
        let printed = node.printed("default", &launcher.name);
        let ranks = printed.lines().filter(|line| line.starts_with("rank "));
        (seats.len() == PODS_OF_IT && ranks.count() == PODS_OF_IT * RANKS as usize).then_some(seats)
    })
}

/// Kills one of the ranks; from outside their namespaces they are processes as any other.
fn kill_a_rank() {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_rank = |pid: &i32| {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        read("cmdline").starts_with(b"sleep\x0086399")
            && String::from_utf8_lossy(&read("environ")).contains("OMPI_COMM_WORLD_RANK=3\0")
    };
    let rank: i32 = { processes }.find(is_rank).expect("rank 3 runs");
    kill(Pid::from_raw(rank), Signal::SIGKILL).unwrap();
}

#[test]
#[ignore = "needs Open MPI and sshd, and builds CoreDNS: `make test-kubelet`"]
fn an_mpi_gang_outlives_the_death_of_a_rank_and_a_drain() {
    if let Some(missing) = missing_for_open_mpi() {
        eprintln!("skipped, for MPI cannot run: {missing}");
        return;
    }
    let Some(mut site) = Site::of_options(3, Options { cluster_dns: true, ..Options::default() }) else {
        return;
    };
    site.cluster.plane.import(&Image::open_mpi()).unwrap();
    site.serve_all();
    site.cluster.schedule(0);
    for manifest in indexed(&ring()).unwrap() {
        let path = match manifest.plural {
            "jobs" => JOBS.to_owned(),
            others => format!("/api/v1/namespaces/default/{others}"),
        };
        site.cluster.create(&path, &manifest.object);
    }
    let first = until_all_ranks_run(&site, &[]);
    assert_disjoint(&first);

    // `mpirun` ends the others, and the Job makes a new launcher, which keeps the place of the one before.
    kill_a_rank();
    let known: Vec<String> = first.iter().map(|seat| seat.name.clone()).collect();
    let second = until_all_ranks_run(&site, &known);
    assert_disjoint(&second);
    assert_eq!(second[0].node, first[0].node, "a launcher whose node is well stays there");

    // As `kubectl drain` does with the node of the other pod: with it go its ranks, and with them the launcher.
    let drained = second[1].node.clone().unwrap();
    let cordon = json!({ "spec": { "unschedulable": true } });
    site.cluster.api().patch(&format!("/api/v1/nodes/{drained}"), &cordon).unwrap();
    let eviction: Value =
        json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": second[1].name } });
    site.cluster.create(&format!("{PODS}/{}/eviction", second[1].name), &eviction);
    let known: Vec<String> = known.into_iter().chain(second.iter().map(|seat| seat.name.clone())).collect();
    let third = until_all_ranks_run(&site, &known);
    assert_disjoint(&third);
    assert!(third.iter().all(|seat| seat.node.as_deref() != Some(&drained)), "{third:#?}");
    let job = site.cluster.api().get(&format!("{JOBS}/ring")).unwrap();
    assert_eq!(job["metadata"]["labels"][submit::JOB], "ring", "{job:#}");
    assert_eq!(job["spec"]["suspend"], false, "{job:#}");
}
