//! Jobs of people on a real control plane: suspended until all of their pods have a place, found again by name, and gone
//! with all that was created for them.

use std::collections::BTreeSet;

use phalanx_kube::submit::{Launch, Trainer, Work, of_job};
use phalanx_kube::user::Cluster as UserCluster;
use phalanx_model::{JobId, Owner, Timestamp};
use phalanx_spec::{SubmitContext, SubmitFlags};
use serde_json::json;

use crate::support::{Cluster, JOBS, PODS, assert_disjoint, job};

/// Arena's line: `submit mpi --name=tensorflow-topo-4-vgg16 --gpus=1 --workers=4 --gang --gputopology=true`.
fn arena() -> Work {
    Work {
        name: "tensorflow-topo-4-vgg16".to_owned(),
        trainer: Trainer::Mpi,
        workers: 4,
        gpus: 1,
        image: "none".to_owned(),
        argv: ["sh", "-c", "mpirun python train.py"].map(str::to_owned).to_vec(),
        launch: Launch::Mpi { per_pod: 0 },
        preferred: Some("node".to_owned()),
        ..Work::default()
    }
}

#[test]
fn arenas_line_waits_suspended_starts_whole_on_one_node_and_is_deleted_with_all_that_it_made() {
    let mut cluster = Cluster::of(2);
    cluster.schedule(0);
    // All 16 GPUs are taken: 6 of each node by one job, the others by another.
    let mut filling = job("filling", 2, 6, &json!({}));
    filling["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
    cluster.create(JOBS, &filling);
    cluster.until_runs("filling", 2);
    let mut more = job("more", 2, 2, &json!({}));
    more["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
    cluster.create(JOBS, &more);
    cluster.until_runs("more", 2);
    let user = UserCluster::connect(Some(&cluster.plane.kubeconfig()), None, Some("default")).unwrap();
    assert_eq!(user.submit(&arena()).unwrap(), "Job", "no operator serves an MPIJob here");
    let of_it = |cluster: &Cluster| {
        let seats = cluster.seats().into_iter();
        seats.filter(|seat| seat.gang == "tensorflow-topo-4-vgg16").collect::<Vec<_>>()
    };
    // Whatever a scheduler would do at once it has done when a job that came later waits with a reason.
    cluster.create(PODS, &crate::support::pod("later", 8));
    cluster.until_explained("later", "");
    assert_eq!(of_it(&cluster), [], "no pod is there while there is no place for all");
    let waiting = user.job("tensorflow-topo-4-vgg16", Some(Trainer::Mpi)).unwrap();
    assert_eq!((waiting.state, waiting.size, waiting.gpus, waiting.trainer), ("pending", 4, 4, "mpijob"));
    cluster.api().delete(&format!("{PODS}/later")).unwrap();
    user.delete("filling", None).unwrap();
    let seats = cluster.until_runs("tensorflow-topo-4-vgg16", 4);
    let nodes: BTreeSet<_> = seats.iter().map(|seat| seat.node.clone()).collect();
    assert_eq!(nodes.len(), 1, "four GPUs fit on one node: {seats:?}");
    let running = user.job("tensorflow-topo-4-vgg16", Some(Trainer::Mpi)).unwrap();
    assert_eq!((running.state, running.instances.len()), ("running", 4));
    let chiefs: Vec<_> = running.instances.iter().map(|instance| instance.is_chief).collect();
    assert_eq!(chiefs, [true, false, false, false]);
    let names: Vec<_> = user.jobs().unwrap().into_iter().map(|job| job.name).collect();
    assert!(names.contains(&"tensorflow-topo-4-vgg16".to_owned()), "{names:?}");
    let held: u64 = user.nodes().unwrap().iter().map(|node| node.gpus_held).sum();
    assert_eq!(held, 4 + 4, "this job and `more`");
    let again = user.submit(&arena()).unwrap_err().to_string();
    assert!(again.contains("already exists"), "as the server says it: {again}");
    user.delete("tensorflow-topo-4-vgg16", Some(Trainer::Mpi)).unwrap();
    cluster.until("everything of it gone", |cluster| {
        let is_gone = |path: &str| cluster.api().get(path).is_err();
        let service = "/api/v1/namespaces/default/services/tensorflow-topo-4-vgg16";
        let secret = "/api/v1/namespaces/default/secrets/tensorflow-topo-4-vgg16-ssh";
        (of_it(cluster).is_empty() && is_gone(service) && is_gone(secret)).then_some(())
    });
}

/// The line `submit --to kubernetes -n ranks -G 2 -- python train.py`.
fn two_gpus() -> Work {
    let flags = SubmitFlags {
        name: Some("ranks".to_owned()),
        gpus: Some("2".to_owned()),
        argv: ["python", "train.py"].map(str::to_owned).to_vec(),
        ..SubmitFlags::default()
    };
    let context = SubmitContext {
        id: JobId(0),
        owner: Owner { uid: 0, gid: 0, name: "somebody".to_owned() },
        submitted_at: Timestamp(0),
        default_workdir: String::new(),
    };
    of_job(&flags.into_job_file().unwrap().into_job(context).unwrap(), "none").unwrap()
}

/// Also a job of PyTorch where nobody controls those.
#[test]
fn what_no_operator_knows_is_an_indexed_job_that_starts_whole() {
    let mut cluster = Cluster::of(1);
    cluster.schedule(0);
    let user = UserCluster::connect(Some(&cluster.plane.kubeconfig()), None, Some("default")).unwrap();
    let generic = two_gpus();
    assert_eq!((generic.workers, generic.gpus), (2, 1));
    let pytorch = Work {
        name: "torch".to_owned(),
        trainer: Trainer::PyTorch,
        workers: 7,
        grace_s: Some(1),
        ..generic.clone()
    };
    assert_eq!(user.submit(&pytorch).unwrap(), "Job");
    assert_disjoint(&cluster.until_runs("torch", 7));
    // One of two would fit.
    assert_eq!(user.submit(&generic).unwrap(), "Job");
    cluster.create(PODS, &crate::support::pod("later", 8));
    cluster.until_explained("later", "");
    assert_eq!(user.job("ranks", None).unwrap().state, "pending");
    assert!(cluster.seats().iter().all(|seat| seat.gang != "ranks"), "{:?}", cluster.seats());
    cluster.api().delete(&format!("{PODS}/later")).unwrap();
    user.delete("torch", None).unwrap();
    let seats = cluster.until_runs("ranks", 2);
    assert_disjoint(&seats);
    assert!(seats.iter().all(|seat| seat.devices.as_deref() != Some("-")), "{seats:?}");
}
