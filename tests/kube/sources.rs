//! Everything that says which pods are a gang, once on a real control plane: pods and objects as their controllers make
//! them. Jobs are made by the real Job controller; the controllers of all other kinds are played.

use std::collections::BTreeSet;

use phalanx_controlplane::{Fleet, GPU};
use serde_json::{Value, json};

use crate::support::kinds::{define, define_of_cluster};
use crate::support::{Cluster, JOBS, PODS, Seat, assert_disjoint, options, pod, taken};

/// On nodes and as a selector of pods, so that no story meets another.
const POOL: &str = "example.com/pool";
const SUCCEEDS: &str = "controlplane.phalanx.dev/succeed-after";

/// What is there of each kind, as it is served: group, version, kind, and resource.
const KINDS: [[&str; 4]; 10] = [
    ["jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"],
    ["leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"],
    ["trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"],
    ["ray.io", "v1", "RayCluster", "rayclusters"],
    ["ray.io", "v1", "RayJob", "rayjobs"],
    ["kubeflow.org", "v2beta1", "MPIJob", "mpijobs"],
    ["scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups"],
    ["scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups"],
    ["scheduling.sigs.k8s.io", "v1alpha1", "PodGroup", "podgroups"],
    ["scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"],
];

/// Nodes by their pools, two in a rack; everything is served before the scheduler begins.
fn cluster(pools: &[&str]) -> Cluster {
    let cluster = Cluster::of_fleet(&options(), &Fleet { nodes_per_rack: 2, ..Fleet::new(pools.len()) });
    for (at, pool) in pools.iter().enumerate() {
        let label = json!({ "metadata": { "labels": { POOL: pool } } });
        cluster.api().patch(&format!("/api/v1/nodes/{}", Fleet::name(at)), &label).unwrap();
    }
    for [group, version, kind, plural] in KINDS {
        define(&cluster, group, version, kind, plural);
    }
    cluster
}

fn path_of(kind: &str) -> (String, String) {
    let (kind, group) = kind.split_once('.').unwrap();
    let [group, version, _, plural] = *KINDS.iter().find(|of| of[2] == kind && of[0] == group).unwrap();
    (format!("/apis/{group}/{version}/namespaces/default/{plural}"), format!("{group}/{version}"))
}

/// An object of `KIND.GROUP` as its user writes it.
fn object(cluster: &Cluster, kind: &str, name: &str, owner: Option<&Value>, spec: &Value) -> Value {
    let (path, api_version) = path_of(kind);
    let mut object = json!({
        "apiVersion": api_version, "kind": kind.split('.').next(), "metadata": { "name": name }, "spec": spec,
    });
    if let Some(owner) = owner {
        object["metadata"]["ownerReferences"] = owned(owner);
    }
    cluster.create(&path, &object)
}

/// As a controller writes who owns what it made.
fn owned(owner: &Value) -> Value {
    json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true,
    }])
}

/// A pod with so many GPUs on nodes of a pool, and what else its metadata says.
fn member(pool: &str, name: &str, gpus: u32, metadata: &Value) -> Value {
    let mut member = pod(name, gpus);
    member["spec"]["nodeSelector"] = json!({ POOL: pool });
    member["spec"]["terminationGracePeriodSeconds"] = json!(0);
    let whole = member["metadata"].as_object_mut().unwrap();
    whole.extend(metadata.as_object().unwrap().clone());
    member
}

/// The specification of such pods, as a template of their owner has it.
fn spec_of(pool: &str, gpus: u32) -> Value {
    member(pool, "", gpus, &json!({}))["spec"].take()
}

/// A real indexed Job of an owner, whose pods have these labels.
fn job_of(name: &str, owner: &Value, labels: &Value, pods: u32, spec: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": name, "labels": labels, "ownerReferences": owned(owner) },
        "spec": {
            "completions": pods, "parallelism": pods, "completionMode": "Indexed",
            "template": { "metadata": { "labels": labels }, "spec": spec },
        },
    })
}

fn seats_of(cluster: &Cluster, gang: &str) -> Vec<Seat> {
    cluster.seats().into_iter().filter(|seat| seat.gang == gang).collect()
}

fn nodes_of(seats: &[Seat]) -> BTreeSet<String> {
    seats.iter().filter_map(|seat| seat.node.clone()).collect()
}

fn nodes(at: impl IntoIterator<Item = usize>) -> BTreeSet<String> {
    at.into_iter().map(Fleet::name).collect()
}

/// A gang by hand: what is there first, of which nothing may start, and what makes it whole.
struct Case {
    name: &'static str,
    first: Vec<Value>,
    last: Value,
    /// What the first pod is told while the last is missing.
    why: &'static str,
}

impl Case {
    /// Three pods of one GPU with the same labels and annotations.
    fn of_three(name: &'static str, labels: &Value, annotations: &Value, why: &'static str) -> Self {
        let mut labels = labels.clone();
        labels["gang"] = json!(name);
        let metadata = json!({ "labels": labels, "annotations": annotations });
        let pod = |at: u32| member("group", &format!("{name}-{at}"), 1, &metadata);
        Self { name, first: vec![pod(0), pod(1)], last: pod(2), why }
    }
}

/// Signs on pods alone, and objects beside pods.
fn groups(cluster: &Cluster) -> Vec<Case> {
    let none = json!({});
    for (kind, name) in [
        ("PodGroup.scheduling.run.ai", "kai"),
        ("PodGroup.scheduling.x-k8s.io", "coscheduling"),
        ("PodGroup.scheduling.sigs.k8s.io", "old-group"),
    ] {
        object(cluster, kind, name, None, &json!({ "minMember": 3 }));
    }
    let kueue = json!({ "kueue.x-k8s.io/pod-group-name": "kueue" });
    let total = json!({ "kueue.x-k8s.io/pod-group-total-count": "3" });
    let koordinator = json!({
        "gang.scheduling.koordinator.sh/name": "koordinator", "gang.scheduling.koordinator.sh/min-available": "3",
    });
    let light = json!({
        "pod-group.scheduling.sigs.k8s.io/name": "light", "pod-group.scheduling.sigs.k8s.io/min-available": "3",
    });
    let grouped = |group: &str, name: &str| json!({ group: name });
    vec![
        Case::of_three("kueue", &kueue, &total, "2 of 3 pods are there"),
        Case::of_three("kai", &none, &grouped("pod-group-name", "kai"), "2 of 3 pods are there"),
        Case::of_three(
            "coscheduling",
            &grouped("scheduling.x-k8s.io/pod-group", "coscheduling"),
            &none,
            "2 of 3 pods are there",
        ),
        Case::of_three(
            "old-group",
            &grouped("pod-group.scheduling.sigs.k8s.io", "old-group"),
            &none,
            "2 of 3 pods are there",
        ),
        Case::of_three("koordinator", &none, &koordinator, "2 of 3 pods are there"),
        Case::of_three("light", &light, &none, "2 of 3 pods are there"),
        yunikorn(),
        joined_gangs(),
    ]
}

/// A driver and two executors of one application.
fn yunikorn() -> Case {
    let groups = json!([
        { "name": "driver", "minMember": 1, "minResource": { "cpu": 1 } }, { "name": "executor", "minMember": 2 },
    ]);
    let of = |task: &str, at: u32| {
        let metadata = json!({
            "labels": { "gang": "yunikorn", "applicationId": "spark-7" },
            "annotations": {
                "yunikorn.apache.org/task-group-name": task,
                "yunikorn.apache.org/task-groups": groups.to_string(),
            },
        });
        member("group", &format!("yunikorn-{task}-{at}"), 1, &metadata)
    };
    let first = vec![of("driver", 0), of("executor", 0)];
    Case { name: "yunikorn", first, last: of("executor", 1), why: "1 of 2 pods of executor are there" }
}

/// Two gangs of Koordinator that start together: one is whole, and waits for the other.
fn joined_gangs() -> Case {
    let of = |gang: &str, at: u32, min: &str| {
        let metadata = json!({ "labels": { "gang": "joined" }, "annotations": {
            "gang.scheduling.koordinator.sh/name": gang, "gang.scheduling.koordinator.sh/min-available": min,
            "gang.scheduling.koordinator.sh/groups": r#"["default/actors", "default/learners"]"#,
        } });
        member("group", &format!("{gang}-{at}"), 1, &metadata)
    };
    let first = vec![of("actors", 0, "2"), of("actors", 1, "2")];
    Case { name: "joined", first, last: of("learners", 0, "1"), why: "pods of learners are there" }
}

/// Pods that their owner made.
fn owners(cluster: &Cluster) -> Vec<Case> {
    let template = |gpus: u32| json!({ "spec": spec_of("group", gpus) });
    let workers = json!({ "groupName": "gpus", "replicas": 2, "minReplicas": 0, "maxReplicas": 4, "template": template(1) });
    let ray_job =
        object(cluster, "RayJob.ray.io", "sweep", None, &json!({ "entrypoint": "python sweep.py" }));
    let spec = json!({ "headGroupSpec": { "template": template(0) }, "workerGroupSpecs": [workers] });
    let pool = object(cluster, "RayCluster.ray.io", "ray", Some(&ray_job), &spec);
    let of_ray = |group: &str, at: u32, gpus: u32| {
        let node_type = if group == "headgroup" { "head" } else { "worker" };
        let metadata = json!({ "ownerReferences": owned(&pool), "labels": {
            "gang": "ray", "ray.io/cluster": "ray", "ray.io/group": group, "ray.io/is-ray-node": "yes",
            "ray.io/node-type": node_type,
        } });
        member("group", &format!("ray-{group}-{at}"), gpus, &metadata)
    };
    let ray = Case {
        name: "ray",
        first: vec![of_ray("headgroup", 0, 0), of_ray("gpus", 0, 1)],
        last: of_ray("gpus", 1, 1),
        why: "1 of 2 pods of gpus are there",
    };
    let replica = |count: u32, gpus: u32| json!({ "replicas": count, "template": template(gpus) });
    let spec = json!({ "slotsPerWorker": 1, "mpiReplicaSpecs": { "Launcher": replica(1, 0), "Worker": replica(2, 1) } });
    let mpi = object(cluster, "MPIJob.kubeflow.org", "nccl", None, &spec);
    cluster.create(JOBS, &launcher(&mpi, "nccl", &spec_of("group", 0)));
    let of_mpi = |at: u32| member("group", &format!("nccl-worker-{at}"), 1, &mpi_worker(&mpi, "nccl", at));
    let mpi = Case {
        name: "nccl",
        first: vec![of_mpi(0)],
        last: of_mpi(1),
        why: "1 of 2 pods of worker are there",
    };
    vec![ray, mpi]
}

fn mpi_labels(job: &str, role: &str) -> Value {
    json!({
        "gang": job, "training.kubeflow.org/job-name": job, "training.kubeflow.org/job-role": role,
        "training.kubeflow.org/operator-name": "mpi-operator",
    })
}

/// What the MPI operator says of a worker.
fn mpi_worker(owner: &Value, job: &str, at: u32) -> Value {
    let mut labels = mpi_labels(job, "worker");
    labels["training.kubeflow.org/replica-index"] = json!(at.to_string());
    json!({ "ownerReferences": owned(owner), "labels": labels })
}

/// The MPI operator's launcher is a Job.
fn launcher(owner: &Value, job: &str, spec: &Value) -> Value {
    let labels = mpi_labels(job, "launcher");
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": format!("{job}-launcher"), "labels": labels, "ownerReferences": owned(owner) },
        "spec": { "template": { "metadata": { "labels": labels }, "spec": spec } },
    })
}

/// None starts while one of its pods is missing, and all of them do when it is there.
#[test]
fn groups_of_every_scheduler_and_owner_start_whole() {
    let mut cluster = cluster(&["group", "group", "group", "group", "tas", "tas", "free", "tas"]);
    define_of_cluster(&cluster, "topology.volcano.sh", "v1alpha1", "HyperNode", "hypernodes");
    let cases: Vec<Case> = groups(&cluster).into_iter().chain(owners(&cluster)).collect();
    cluster.schedule(0);
    for case in &cases {
        case.first.iter().for_each(|pod| drop(cluster.create(PODS, pod)));
    }
    for case in &cases {
        cluster.until_explained(case.first[0]["metadata"]["name"].as_str().unwrap(), case.why);
    }
    for case in &cases {
        let bound: Vec<Seat> =
            seats_of(&cluster, case.name).into_iter().filter(|seat| seat.node.is_some()).collect();
        assert_eq!(bound, [], "one of its pods is missing");
    }
    for case in &cases {
        cluster.create(PODS, &case.last);
    }
    for case in &cases {
        // The launcher of the MPI operator comes from its Job.
        let pods = case.first.len() + 1 + usize::from(case.name == "nccl");
        let seats = cluster.until_runs(case.name, pods);
        let sizes: BTreeSet<String> =
            seats.iter().map(|seat| annotation(&cluster, seat, "gang-size")).collect();
        assert_eq!(sizes, [pods.to_string()].into(), "{seats:?}");
    }
    assert_disjoint(&cluster.seats());
    annotations_of_kueue_keep_a_gang_in_its_rack(&cluster);
    hyper_nodes_are_levels(&cluster);
}

fn annotation(cluster: &Cluster, seat: &Seat, name: &str) -> String {
    let pod = cluster.api().get(&format!("{PODS}/{}", seat.name)).unwrap();
    pod["metadata"]["annotations"][format!("phalanx.dev/{name}")].as_str().unwrap_or_default().to_owned()
}

/// Of two racks one node each is free: two whole nodes are there, and no rack has them.
fn annotations_of_kueue_keep_a_gang_in_its_rack(cluster: &Cluster) {
    cluster.create(PODS, &taken("in-the-way", 5));
    let metadata = json!({
        "labels": { "gang": "near", "kueue.x-k8s.io/pod-group-name": "near" },
        "annotations": {
            "kueue.x-k8s.io/pod-group-total-count": "2",
            "kueue.x-k8s.io/podset-required-topology": Fleet::RACK,
        },
    });
    for at in 0..2 {
        cluster.create(PODS, &member("tas", &format!("near-{at}"), 8, &metadata));
    }
    cluster.until_explained("near-0", "");
    assert_eq!(nodes_of(&seats_of(cluster, "near")), nodes([]), "both would fit, in two racks");
    cluster.api().delete(&format!("{PODS}/in-the-way")).unwrap();
    assert_eq!(nodes_of(&cluster.until_runs("near", 2)), nodes([4, 5]));
    for at in 0..2 {
        cluster.api().delete(&format!("{PODS}/near-{at}")).unwrap();
    }
}

/// Volcano's tree goes across the racks that the labels say, and goes before them.
fn hyper_nodes_are_levels(cluster: &Cluster) {
    for (name, members) in [("leaf-a", [4, 7]), ("leaf-b", [5, 6])] {
        let members: Vec<Value> = members
            .iter()
            .map(|at| json!({ "type": "Node", "selector": { "exactMatch": { "name": Fleet::name(*at) } } }))
            .collect();
        let hyper_node = json!({
            "apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": { "name": name },
            "spec": { "tier": 1, "members": members },
        });
        cluster.create("/apis/topology.volcano.sh/v1alpha1/hypernodes", &hyper_node);
    }
    let network = json!({ "minMember": 2, "networkTopology": { "mode": "hard", "highestTierAllowed": 1 } });
    object(cluster, "PodGroup.scheduling.volcano.sh", "tier", None, &network);
    let metadata =
        json!({ "labels": { "gang": "tier" }, "annotations": { "scheduling.k8s.io/group-name": "tier" } });
    for at in 0..2 {
        cluster.create(PODS, &member("tas", &format!("tier-{at}"), 8, &metadata));
    }
    assert_eq!(nodes_of(&cluster.until_runs("tier", 2)), nodes([4, 7]), "nodes 4 and 5 are one rack");
}

/// The first stage starts without the pods of the second, which its controller makes when the first is complete; what waits
/// for others to be ready has its place with them.
#[test]
fn stages_of_a_job_set_start_one_after_the_other_and_a_late_job_has_its_place() {
    let mut cluster = cluster(&["stages"]);
    cluster.schedule(0);
    let replicated = |name: &str, replicas: u32, pods: u32, gpus: u32, after: Value| {
        json!({ "name": name, "replicas": replicas, "dependsOn": after, "template": { "spec": {
            "parallelism": pods, "completions": pods, "completionMode": "Indexed",
            "template": { "spec": spec_of("stages", gpus) },
        } } })
    };
    let after = |name: &str, status: &str| json!([{ "name": name, "status": status }]);
    let spec = json!({ "replicatedJobs": [
        replicated("fetch", 1, 1, 8, json!([])),
        replicated("store", 1, 2, 1, after("fetch", "Complete")),
        replicated("workers", 3, 1, 2, after("store", "Ready")),
    ] });
    let set = object(&cluster, "JobSet.jobset.x-k8s.io", "stages", None, &spec);
    let job = |role: &str, at: u32, pods: u32, gpus: u32| {
        let labels = json!({
            "gang": format!("stages-{role}"), "jobset.sigs.k8s.io/jobset-name": "stages",
            "jobset.sigs.k8s.io/replicatedjob-name": role, "jobset.sigs.k8s.io/job-index": at.to_string(),
        });
        job_of(&format!("stages-{role}-{at}"), &set, &labels, pods, &spec_of("stages", gpus))
    };
    let mut fetch = job("fetch", 0, 1, 8);
    fetch["spec"]["template"]["metadata"]["annotations"] = json!({ SUCCEEDS: "1s" });
    cluster.create(JOBS, &fetch);
    cluster.until_runs("stages-fetch", 1);
    cluster.until("the end of fetch", |cluster| {
        let job = cluster.api().get(&format!("{JOBS}/stages-fetch-0")).ok()?;
        (job["status"]["succeeded"] == 1).then_some(())
    });
    // One of two is there.
    cluster.create(JOBS, &job("store", 0, 1, 1));
    let first = cluster.until("a pod of store", |cluster| seats_of(cluster, "stages-store").pop());
    cluster.until_explained(&first.name, "1 of 2 pods of store are there");
    assert_eq!(nodes_of(&seats_of(&cluster, "stages-store")), nodes([]));
    let whole = json!({ "spec": { "parallelism": 2, "completions": 2 } });
    cluster.api().patch(&format!("{JOBS}/stages-store-0"), &whole).unwrap();
    cluster.until_runs("stages-store", 2);
    // Six GPUs seem to be free, and are the workers'.
    cluster.create(PODS, &member("stages", "thief", 1, &json!({})));
    cluster.until_explained("thief", "");
    assert_eq!(seats_of(&cluster, "thief")[0].node, None);
    for at in 0..3 {
        cluster.create(JOBS, &job("workers", at, 1, 2));
    }
    cluster.until_runs("stages-workers", 3);
    assert_eq!(seats_of(&cluster, "thief")[0].node, None, "the node is full");
    assert_disjoint(&cluster.seats());
}

#[test]
fn each_group_of_a_leader_worker_set_starts_with_its_leader_and_keeps_the_places_of_its_workers() {
    let mut cluster = cluster(&["serve", "serve"]);
    cluster.schedule(0);
    let template = json!({ "spec": spec_of("serve", 2) });
    let spec = json!({
        "replicas": 2, "startupPolicy": "LeaderReady",
        "leaderWorkerTemplate": { "size": 4, "leaderTemplate": template, "workerTemplate": template },
    });
    let set = object(&cluster, "LeaderWorkerSet.leaderworkerset.x-k8s.io", "serve", None, &spec);
    let pod = |group: u32, at: u32| {
        let name = if at == 0 { format!("serve-{group}") } else { format!("serve-{group}-{at}") };
        let metadata = json!({
            "ownerReferences": owned(&set),
            "labels": {
                "gang": format!("serve-{group}"), "leaderworkerset.sigs.k8s.io/name": "serve",
                "leaderworkerset.sigs.k8s.io/group-index": group.to_string(),
                "leaderworkerset.sigs.k8s.io/worker-index": at.to_string(),
            },
            "annotations": { "leaderworkerset.sigs.k8s.io/size": "4" },
        });
        member("serve", &name, 2, &metadata)
    };
    let mut leaders = Vec::new();
    for group in 0..2 {
        cluster.create(PODS, &pod(group, 0));
        leaders.extend(cluster.until_runs(&format!("serve-{group}"), 1));
    }
    assert_eq!(nodes_of(&leaders).len(), 2, "each group has a whole node: {leaders:?}");
    cluster.create(PODS, &member("serve", "thief", 1, &json!({})));
    cluster.until_explained("thief", "");
    assert_eq!(
        seats_of(&cluster, "thief")[0].node,
        None,
        "twelve devices seem to be free, and are the workers'"
    );
    for group in [1, 0] {
        (1..4).for_each(|at| drop(cluster.create(PODS, &pod(group, at))));
        let seats = cluster.until_runs(&format!("serve-{group}"), 4);
        assert_eq!(nodes_of(&seats).len(), 1, "{seats:?}");
    }
    assert_eq!(seats_of(&cluster, "thief")[0].node, None, "both nodes are full");
    assert_disjoint(&cluster.seats());
}

/// The trainer suspends the set that it made: what makes way is the `TrainJob`, or it would undo that.
#[test]
fn a_train_job_starts_whole_and_makes_way_by_its_own_suspension() {
    let mut cluster = cluster(&["train"]);
    for (name, value) in [("low", 10), ("high", 1_000)] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name }, "value": value,
        });
        cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    }
    cluster.schedule(0);
    let mut spec = spec_of("train", 4);
    spec["priorityClassName"] = json!("low");
    let runtime = json!({ "runtimeRef": { "name": "torch-distributed" }, "trainer": { "numNodes": 2 } });
    let train = object(&cluster, "TrainJob.trainer.kubeflow.org", "tune", None, &runtime);
    let node = json!({ "name": "node", "replicas": 1, "template": { "spec": {
        "parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": { "spec": spec },
    } } });
    let set = object(
        &cluster,
        "JobSet.jobset.x-k8s.io",
        "tune",
        Some(&train),
        &json!({ "replicatedJobs": [node] }),
    );
    let labels = json!({
        "gang": "tune", "jobset.sigs.k8s.io/jobset-name": "tune", "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/job-index": "0",
    });
    cluster.create(JOBS, &job_of("tune-node-0", &set, &labels, 1, &spec));
    let first = cluster.until("a pod of tune", |cluster| seats_of(cluster, "tune").pop());
    cluster.until_explained(&first.name, "1 of 2 pods of node are there");
    let job = format!("{JOBS}/tune-node-0");
    cluster.api().patch(&job, &json!({ "spec": { "parallelism": 2, "completions": 2 } })).unwrap();
    cluster.until_runs("tune", 2);

    let mut urgent = member("train", "urgent", 8, &json!({}));
    urgent["spec"]["priorityClassName"] = json!("high");
    cluster.create(PODS, &urgent);
    let (train, _) = path_of("TrainJob.trainer.kubeflow.org");
    let (sets, _) = path_of("JobSet.jobset.x-k8s.io");
    cluster.until("a suspended TrainJob", |cluster| {
        let train = cluster.api().get(&format!("{train}/tune")).unwrap();
        (train["spec"]["suspend"] == true).then_some(())
    });
    let set = cluster.api().get(&format!("{sets}/tune")).unwrap();
    assert_eq!(set["spec"]["suspend"], Value::Null, "its trainer does that");
    // What the controllers of both do then.
    let suspend = json!({ "spec": { "suspend": true } });
    cluster.api().patch(&format!("{sets}/tune"), &suspend).unwrap();
    cluster.api().patch(&job, &suspend).unwrap();
    cluster.until_runs("urgent", 1);
    assert_eq!(cluster.failures("tune-node-0"), 0, "no retry is lost");
}

/// What fits between the workers and their launcher, which comes later, has to wait: of CPUs, which nobody counts as devices.
#[test]
fn the_place_of_a_launcher_is_kept_from_what_would_fill_it_with_cpus() {
    let mut cluster = cluster(&["mpi"]);
    cluster.schedule(0);
    // Of 96 CPUs.
    let with_cpus = |gpus: u32, cpus: u32| {
        let mut spec = spec_of("mpi", gpus);
        spec["containers"][0]["resources"]["limits"] =
            json!({ "cpu": cpus.to_string(), "memory": "8Gi", GPU: gpus.to_string() });
        spec
    };
    let replica = |count: u32, spec: &Value| json!({ "replicas": count, "template": { "spec": spec } });
    let (worker, launches) = (with_cpus(4, 40), with_cpus(0, 16));
    let spec = json!({
        "slotsPerWorker": 4, "launcherCreationPolicy": "WaitForWorkersReady",
        "mpiReplicaSpecs": { "Launcher": replica(1, &launches), "Worker": replica(2, &worker) },
    });
    let mpi = object(&cluster, "MPIJob.kubeflow.org", "vgg", None, &spec);
    for at in 0..2 {
        let mut pod = member("mpi", &format!("vgg-worker-{at}"), 4, &mpi_worker(&mpi, "vgg", at));
        pod["spec"] = worker.clone();
        cluster.create(PODS, &pod);
    }
    cluster.until_runs("vgg", 2);
    let mut filler = member("mpi", "filler", 0, &json!({}));
    filler["spec"] = with_cpus(0, 10);
    cluster.create(PODS, &filler);
    cluster.until_explained("filler", "");
    assert_eq!(seats_of(&cluster, "filler")[0].node, None, "16 CPUs seem to be free, and are the launcher's");
    cluster.create(JOBS, &launcher(&mpi, "vgg", &launches));
    cluster.until_runs("vgg", 3);
    assert_eq!(seats_of(&cluster, "filler")[0].node, None, "the node is full");
}
