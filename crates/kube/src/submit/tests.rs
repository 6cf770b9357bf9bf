use kube::api::DynamicObject;
use phalanx_model::{
    Array, Gang, Job, JobId, JobName, Needs, Owner, Policy, Program, QueueName, Tasks, Timestamp, Turn,
};

use super::*;
use crate::recognise::{GangSpec, LevelRef, spec_of};

/// Arena's example.
fn work(trainer: Trainer) -> Work {
    Work {
        name: "tensorflow-topo-4-vgg16".to_owned(),
        trainer,
        workers: 4,
        gpus: 1,
        image: "registry/horovod:1".to_owned(),
        argv: ["sh", "-c", "mpirun python train.py"].map(str::to_owned).to_vec(),
        launch: if trainer == Trainer::Mpi { Launch::Mpi { per_pod: 0 } } else { Launch::Ranks },
        preferred: Some("node".to_owned()),
        queue: Some("vision".to_owned()),
        time_limit_s: Some(3_600),
        ..Work::default()
    }
}

/// What the scheduler makes of the first manifest.
fn recognised(manifests: &[Manifest]) -> GangSpec {
    let mut object: DynamicObject = serde_json::from_value(manifests[0].object.clone()).unwrap();
    object.metadata.namespace = Some("default".to_owned());
    spec_of(&object).unwrap().remove(0)
}

#[test]
fn the_scheduler_understands_each_kind_as_one_gang_that_it_may_start() {
    for (manifests, size) in [
        (indexed(&work(Trainer::Job)).unwrap(), 4),
        (indexed(&work(Trainer::Mpi)).unwrap(), 4),
        (mpi_job(&work(Trainer::Mpi), "kubeflow.org/v2beta1").unwrap(), 5),
        (pytorch_job(&work(Trainer::PyTorch), "kubeflow.org/v1").unwrap(), 4),
    ] {
        let spec = recognised(&manifests);
        let kind = &manifests[0].object["kind"];
        assert_eq!((spec.size(), spec.is_suspended, spec.is_lone), (size, true, false), "{kind}");
        assert_eq!(spec.queue.as_ref().map(|queue| &*queue.name), Some("vision"), "{kind}");
        assert_eq!(spec.topology.preferred, Some(LevelRef::of("node")), "{kind}");
        assert_eq!(spec.time_limit_s, Some(3_600), "{kind}");
        let annotations = &manifests[0].object["metadata"]["annotations"];
        assert!(annotations[SUSPENDED].is_string(), "without it the scheduler leaves it suspended: {kind}");
        for role in &spec.roles {
            let template = role.template.as_ref().unwrap();
            assert_eq!(template.spec.scheduler_name.as_deref(), Some("phalanx"), "{kind}");
        }
    }
}

/// Variables of the only container of a Job.
fn env(work: &Work) -> std::collections::BTreeMap<String, Value> {
    let job = indexed(work).unwrap().remove(0).object;
    let env = job["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
    env.into_iter().map(|one| (one["name"].as_str().unwrap().to_owned(), one)).collect()
}

#[test]
fn ranks_are_told_where_they_meet() {
    let of_ranks = env(&work(Trainer::PyTorch));
    assert_eq!(of_ranks["WORLD_SIZE"]["value"], "4");
    assert_eq!(of_ranks["LOCAL_RANK"]["value"], "0");
    assert_eq!(of_ranks["MASTER_ADDR"]["value"], "tensorflow-topo-4-vgg16-0.tensorflow-topo-4-vgg16");
    let index = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
    assert_eq!(of_ranks["RANK"]["valueFrom"]["fieldRef"]["fieldPath"], index);
    let agents = Work { gpus: 8, launch: Launch::Torchrun { per_pod: 0 }, ..work(Trainer::PyTorch) };
    let of_agents = env(&agents);
    assert_eq!(
        (&of_agents["NNODES"]["value"], &of_agents["NPROC_PER_NODE"]["value"]),
        (&json!("4"), &json!("8"))
    );
    assert!(!of_agents.contains_key("RANK"), "torchrun says that itself");
    let own = Work { env: [("WORLD_SIZE".to_owned(), "9".to_owned())].into(), ..work(Trainer::PyTorch) };
    assert_eq!(env(&own)["WORLD_SIZE"]["value"], "9", "the user's own wins");
}

#[test]
fn a_launcher_of_ours_ends_the_job_and_finds_every_host_with_a_key_of_its_own() {
    let manifests = indexed(&work(Trainer::Mpi)).unwrap();
    let kinds: Vec<&str> = manifests.iter().map(|m| m.object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Job", "Service", "Secret"]);
    let spec = &manifests[0].object["spec"];
    assert_eq!(spec["successPolicy"]["rules"][0]["succeededIndexes"], "0");
    let command = spec["template"]["spec"]["containers"][0]["command"].as_array().unwrap();
    let script = command[2].as_str().unwrap();
    assert!(script.contains("host=\"tensorflow-topo-4-vgg16-$rank.tensorflow-topo-4-vgg16\""), "{script}");
    assert!(script.contains("slots=1\""), "{script}");
    for left in ["SSH_PORT", "SSH_OPTIONS", "HOSTFILE", "JOB_NAME", "SLOTS"] {
        assert!(!script.contains(left), "{left} is left in {script}");
    }
    assert_eq!(command.last().unwrap(), "mpirun python train.py");
    let key = |manifests: &[Manifest]| manifests[2].object["stringData"]["authorized_keys"].clone();
    let public = key(&manifests);
    assert!(
        public.as_str().unwrap().starts_with("ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYA"),
        "{public}"
    );
    assert_ne!(public, key(&indexed(&work(Trainer::Mpi)).unwrap()), "no two jobs share a key");
}

#[test]
fn what_no_cluster_would_take_is_refused_by_its_name() {
    let mut bad = work(Trainer::Job);
    for name in ["Train", "4train", "train_a", "train-", "", &"t".repeat(60)] {
        bad.name = name.to_owned();
        assert_eq!(bad.check().unwrap_err().what, "--name", "{name:?}");
    }
    assert_eq!(Work { workers: 0, ..work(Trainer::Job) }.check().unwrap_err().what, "size");
    assert_eq!(Work { image: " ".to_owned(), ..work(Trainer::Job) }.check().unwrap_err().what, "--image");
    assert_eq!(work(Trainer::Job).check(), Ok(()));
}

fn job() -> Job {
    let gang = Gang {
        size: 16,
        min: 16,
        max: 16,
        needs: Needs { devices: 1, cpu_milli: 4_000, memory_bytes: 1 << 30, ..Needs::default() },
        roles: Vec::new(),
        members_per_node: Some(8),
        topology: phalanx_model::Topology::default(),
        traffic: None,
        grid: Vec::new(),
        program: Program { argv: vec!["train".to_owned()], ..Program::default() },
    };
    Job {
        id: JobId(0),
        name: JobName::new("train").unwrap(),
        key: None,
        owner: Owner { uid: 1, gid: 1, name: "a".to_owned() },
        queue: QueueName::new("default").unwrap(),
        priority: 0,
        submitted_at: Timestamp(0),
        gangs: vec![gang],
        policy: Policy::default(),
        turn: Turn::default(),
    }
}

#[test]
fn a_job_file_becomes_work_or_says_what_a_cluster_cannot_be_told() {
    let work = of_job(&job(), "image").unwrap();
    assert_eq!((work.workers, work.gpus, work.cpu.as_deref()), (16, 1, Some("4000m")));
    assert_eq!((work.segments, work.queue), (vec!["8:node".to_owned()], None));
    let waits = |topology: phalanx_model::Topology| {
        let mut job = job();
        job.gangs[0].topology = topology;
        of_job(&job, "image").unwrap().topology()["phalanx.dev/topology-wait"].clone()
    };
    let anywhere = phalanx_model::Topology::ANYWHERE;
    assert_eq!(
        waits(phalanx_model::Topology { price_milli: Some(anywhere), ..Default::default() }),
        "anywhere"
    );
    assert_eq!(waits(phalanx_model::Topology { wait_ms: 600_000, ..Default::default() }), "10m");
    let refused = |change: fn(&mut Job)| {
        let mut job = job();
        change(&mut job);
        of_job(&job, "image").unwrap_err().what
    };
    assert_eq!(refused(|job| job.priority = 3), "priority");
    assert_eq!(refused(|job| job.turn.begins_at = Some(Timestamp(5))), "begin");
    assert_eq!(refused(|job| job.gangs[0].max = 32), "nodes: MIN-MAX");
    assert_eq!(refused(|job| job.gangs[0].needs.is_exclusive = true), "exclusive");
    assert_eq!(
        refused(|job| job.turn.array = Some(Array { tasks: Tasks::first(3), running_max: None })),
        "array"
    );
    assert_eq!(refused(|job| job.gangs[0].topology.slice = Some([4, 4, 1])), "slice");
    assert_eq!(refused(|job| job.gangs[0].program.notify = Some("x".to_owned())), "notify");
}

/// sshd ends with 0 when a pod is evicted: the Job took the index for complete, and never made a pod in its place.
#[test]
fn a_worker_of_mpi_that_is_told_to_end_has_not_succeeded() {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    let folder = tempfile::tempdir().unwrap();
    let serve = "#!/bin/sh\ntrap 'exit 0' TERM\necho serves\nfor i in $(seq 100); do sleep 0.1; done\n";
    for (name, text) in [("mkdir", "#!/bin/sh\n"), ("ssh-keygen", "#!/bin/sh\n"), ("sshd", serve)] {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let command = mpi::command(&work(Trainer::Mpi), 1);
    let words: Vec<&str> = command.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut worker = Command::new(words[0])
        .args(&words[1..])
        .env("PATH", path)
        .env("JOB_COMPLETION_INDEX", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(worker.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "serves\n");
    assert!(Command::new("kill").args(["-TERM", &worker.id().to_string()]).status().unwrap().success());
    assert_eq!(worker.wait().unwrap().code(), Some(143));
}
