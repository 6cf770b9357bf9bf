//! Gangs of every kind make way and come back: by a suspension that somebody ends, or by evictions. The controllers are played
//! as theirs do it.

use std::collections::BTreeMap;

use phalanx_model::{Epoch, QueueName, Timestamp};
use phalanx_shell::{Config, Engine};
use serde_json::{Value, json};

use crate::gang::turn::step;
use crate::gang::{Lifecycle, Options, SUSPENDED};
use crate::messages::{Call, Event};
use crate::recognise::Suspend;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
/// Pods of the gang that makes way, of one device each: as many as the node has.
const SIZE: u32 = 4;

/// A kind of owner with what its controller makes.
struct Kind {
    /// What the user wrote.
    owner: Value,
    /// What the controller makes of it beside pods, as it makes it the so-manieth time.
    made: fn(u32) -> Vec<Value>,
    /// What each pod has beside its number: labels, annotations, the owner.
    sign: fn(u32, u32) -> Value,
    /// What the controller does with what it made when its owner is suspended: it stays, or goes.
    keeps: bool,
}

struct Play {
    lifecycle: Lifecycle,
    engine: Engine,
    now: Timestamp,
    has_begun: bool,
    kind: Kind,
    owner: Value,
    made: Vec<Value>,
    /// How often the controller has made its objects.
    round: u32,
    pods: BTreeMap<String, Value>,
    /// Names of pods of it so far.
    names: u32,
    suspended: Vec<Suspend>,
    resumed: Vec<Suspend>,
    evicted: usize,
    /// The owner was written, and its controller has not seen it.
    is_changed: bool,
}

fn template() -> Value {
    let limits = json!({ "limits": { "nvidia.com/gpu": "1" } });
    json!({ "spec": { "schedulerName": "phalanx", "containers": [{ "name": "c", "resources": limits }] } })
}

fn lifecycle() -> Lifecycle {
    Lifecycle::new(Options {
        ready_ms: 60_000,
        vacant_ms: 20_000,
        min_run_ms: 0,
        ..Options::of_queue(QueueName::new("default").unwrap())
    })
}

impl Play {
    fn of(kind: Kind) -> Self {
        let mut play = Self {
            lifecycle: lifecycle(),
            engine: Engine::new(Epoch(1), Config::default()),
            now: NOW,
            has_begun: false,
            owner: kind.owner.clone(),
            kind,
            made: Vec::new(),
            round: 0,
            pods: BTreeMap::new(),
            names: 0,
            suspended: Vec::new(),
            resumed: Vec::new(),
            evicted: 0,
            is_changed: false,
        };
        play.list();
        play.control();
        play.after(0);
        assert_eq!(play.bound("low"), SIZE, "{:?}", play.pods);
        play
    }

    fn list(&mut self) {
        let amounts =
            json!({ "cpu": "64", "memory": "64Gi", "pods": "20", "nvidia.com/gpu": SIZE.to_string() });
        let node = json!({ "metadata": { "name": "a" }, "status": { "allocatable": amounts } });
        self.lifecycle.observe(self.now, Event::Node(Box::new(serde_json::from_value(node).unwrap())));
        let objects: Vec<Value> = std::iter::once(&self.owner).chain(&self.made).cloned().collect();
        objects.iter().for_each(|object| self.object(object, false));
        for pod in self.pods.clone().into_values() {
            self.see(pod);
        }
    }

    fn object(&mut self, object: &Value, is_gone: bool) {
        let object = Box::new(serde_json::from_value(object.clone()).unwrap());
        let event = if is_gone { Event::ObjectGone(object) } else { Event::Object(object) };
        self.lifecycle.observe(self.now, event);
    }

    fn see(&mut self, pod: Value) {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        self.pods.insert(name, pod.clone());
        self.lifecycle.observe(self.now, Event::Pod(Box::new(serde_json::from_value(pod).unwrap())));
    }

    fn lose(&mut self, name: &str) {
        self.pods.remove(name);
        let (namespace, name, uid) = ("x".to_owned(), name.to_owned(), name.to_owned());
        self.lifecycle.observe(self.now, Event::PodGone { namespace, name, uid });
    }

    fn of_gang(&self, gang: &str) -> Vec<String> {
        self.pods.keys().filter(|name| name.starts_with(gang)).cloned().collect()
    }

    fn bound(&self, gang: &str) -> u32 {
        let bound =
            self.of_gang(gang).into_iter().filter(|name| self.pods[name]["spec"]["nodeName"].is_string());
        u32::try_from(bound.count()).unwrap()
    }

    /// The owner, by the field that its controller looks at.
    fn is_suspended(&self) -> bool {
        let spec = &self.owner["spec"];
        spec["suspend"] == true || spec["runPolicy"]["suspend"] == true
    }

    /// What the controller does until there is nothing to do.
    fn control(&mut self) {
        if self.is_suspended() {
            self.of_gang("low").iter().for_each(|name| self.lose(name));
            if !self.kind.keeps {
                for object in std::mem::take(&mut self.made) {
                    self.object(&object, true);
                }
            }
            return self.follow(true);
        }
        if self.made.is_empty() {
            self.round += 1;
            self.made = (self.kind.made)(self.round);
            for object in self.made.clone() {
                self.object(&object, false);
            }
        }
        for at in 0..SIZE {
            let end = format!("-{at}");
            if self.of_gang("low").iter().any(|name| name.ends_with(&end)) {
                continue;
            }
            self.names += 1;
            let name = format!("low-{}{end}", self.names);
            let mut pod = json!({
                "metadata": { "namespace": "x", "name": name, "uid": name, "labels": {}, "annotations": {} },
                "spec": template()["spec"],
            });
            let sign = (self.kind.sign)(at, self.round);
            pod["metadata"].as_object_mut().unwrap().extend(sign.as_object().unwrap().clone());
            self.see(pod);
        }
        self.follow(false);
    }

    /// A made object that has the field too follows its owner, and later than that.
    fn follow(&mut self, is: bool) {
        for at in 0..self.made.len() {
            if self.made[at]["kind"] == "JobSet" {
                self.made[at]["spec"]["suspend"] = json!(is);
                let object = self.made[at].clone();
                self.object(&object, false);
            }
        }
    }

    fn write(&mut self, suspend: &Suspend, is: bool, note: Option<&str>) {
        assert_eq!(self.owner["kind"], *suspend.object.kind);
        let pointer = format!("/{}", suspend.path.join("/"));
        *self.owner.pointer_mut(&pointer).unwrap() = json!(is);
        self.owner["metadata"]["annotations"] =
            note.map_or_else(|| json!({}), |note| json!({ SUSPENDED: note }));
        let owner = self.owner.clone();
        self.object(&owner, false);
        self.is_changed = true;
    }

    fn after(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
        let mut more = Vec::new();
        for turn in 0..1_000 {
            let mut facts = std::mem::take(&mut more);
            facts.extend(match std::mem::replace(&mut self.has_begun, true) {
                true => self.lifecycle.settle(self.now),
                false => self.lifecycle.begin(self.now),
            });
            // What the owner's controller makes of a change comes after the change.
            let is_changed = std::mem::take(&mut self.is_changed);
            let has_answered = self.answer();
            if facts.is_empty() && !has_answered && !is_changed && turn > 0 {
                return;
            }
            more = step(&mut self.lifecycle, &mut self.engine, self.now, &facts);
            if is_changed {
                self.control();
            }
        }
        panic!("it never comes to rest: {:?}", self.pods.keys());
    }

    fn answer(&mut self) -> bool {
        let calls = self.lifecycle.calls();
        let is_any = !calls.is_empty();
        for call in calls {
            match call {
                Call::Bind { pod, node, member, annotations, .. } => {
                    let Some(mut object) = self.pods.get(&*pod.name).cloned() else { continue };
                    self.lifecycle.observe(self.now, Event::Bound { member, result: Ok(()) });
                    object["spec"]["nodeName"] = json!(node.as_str());
                    for (key, text) in annotations {
                        object["metadata"]["annotations"][key] = json!(text);
                    }
                    object["status"] = json!({ "phase": "Running" });
                    self.see(object);
                }
                Call::Stop { suspend: Some(suspend), note, .. } if !self.is_suspended() => {
                    self.write(&suspend, true, Some(&note));
                    self.suspended.push(suspend);
                }
                Call::Stop { suspend: None, pods, .. } => {
                    self.evicted += pods.len();
                    pods.iter().for_each(|pod| self.lose(&pod.name));
                    self.control();
                }
                Call::Resume { suspend } if self.is_suspended() => {
                    self.write(&suspend, false, None);
                    self.resumed.push(suspend);
                }
                _ => {}
            }
        }
        is_any
    }

    /// Another gang, of higher priority, that needs the whole node.
    fn high(&mut self) {
        for at in 0..2 {
            let name = format!("high-{at}");
            let mut pod = json!({
                "metadata": { "namespace": "x", "name": name, "uid": name, "annotations": {}, "labels": {
                    "pod-group.scheduling.sigs.k8s.io/name": "high",
                    "pod-group.scheduling.sigs.k8s.io/min-available": "2",
                } },
                "spec": template()["spec"],
            });
            pod["spec"]["priority"] = json!(1_000);
            pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = json!("2");
            self.see(pod);
        }
        (0..20).for_each(|_| self.after(2_000));
        assert_eq!((self.bound("high"), self.bound("low")), (2, 0), "{:?}", self.pods);
    }

    fn high_ends(&mut self) {
        self.of_gang("high").iter().for_each(|name| self.lose(name));
        (0..20).for_each(|_| self.after(2_000));
    }

    /// Another process: it knows what the API server has.
    fn succeed(&mut self) {
        (self.lifecycle, self.engine, self.has_begun) =
            (lifecycle(), Engine::new(Epoch(2), Config::default()), false);
        self.list();
        self.after(0);
    }
}

fn note_is_gone(owner: &Value) -> bool {
    owner["metadata"]["annotations"][SUSPENDED].is_null()
}

fn object(api: &str, kind: &str, name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": api, "kind": kind, "spec": spec,
        "metadata": { "namespace": "x", "name": name, "uid": name, "annotations": {} } })
}

fn owned(mut object: Value, api: &str, kind: &str, name: &str) -> Value {
    object["metadata"]["ownerReferences"] = owner(api, kind, name);
    object
}

fn owner(api: &str, kind: &str, name: &str) -> Value {
    json!([{ "apiVersion": api, "kind": kind, "name": name, "uid": name, "controller": true }])
}

fn nothing(_: u32) -> Vec<Value> {
    Vec::new()
}

fn kubeflow(at: u32, kind: &str) -> Value {
    let role = if at == 0 { "master" } else { "worker" };
    json!({
        "labels": { "training.kubeflow.org/replica-type": role,
            "training.kubeflow.org/replica-index": at.saturating_sub(1).to_string() },
        "ownerReferences": owner("kubeflow.org/v1", kind, "low"),
    })
}

fn job() -> Kind {
    let spec = json!({ "completions": SIZE, "parallelism": SIZE, "completionMode": "Indexed", "suspend": false,
        "template": template() });
    Kind {
        owner: object("batch/v1", "Job", "low", &spec),
        made: nothing,
        sign: |at, _| {
            json!({
                "annotations": { "batch.kubernetes.io/job-completion-index": at.to_string() },
                "ownerReferences": owner("batch/v1", "Job", "low"),
            })
        },
        keeps: true,
    }
}

fn set_spec() -> Value {
    let job = json!({ "parallelism": SIZE, "completions": SIZE, "completionMode": "Indexed", "template": template() });
    json!({ "suspend": false, "replicatedJobs": [{ "name": "w", "replicas": 1, "template": { "spec": job } }] })
}

fn sign_of_set(at: u32, _: u32) -> Value {
    json!({
        "labels": { "jobset.sigs.k8s.io/jobset-name": "low", "jobset.sigs.k8s.io/replicatedjob-name": "w",
            "jobset.sigs.k8s.io/job-index": "0" },
        "annotations": { "batch.kubernetes.io/job-completion-index": at.to_string() },
        "ownerReferences": owner("batch/v1", "Job", "low-w-0"),
    })
}

fn job_set() -> Kind {
    let owner = object("jobset.x-k8s.io/v1alpha2", "JobSet", "low", &set_spec());
    Kind { owner, made: nothing, sign: sign_of_set, keeps: true }
}

fn train_job() -> Kind {
    let api = "trainer.kubeflow.org/v1alpha1";
    Kind {
        owner: object(api, "TrainJob", "low", &json!({ "suspend": false })),
        made: |_| {
            let set = object("jobset.x-k8s.io/v1alpha2", "JobSet", "low", &set_spec());
            vec![owned(set, "trainer.kubeflow.org/v1alpha1", "TrainJob", "low")]
        },
        sign: sign_of_set,
        keeps: true,
    }
}

fn pytorch_job() -> Kind {
    let role = |replicas: u32| json!({ "replicas": replicas, "template": template() });
    let spec = json!({ "runPolicy": { "suspend": false },
        "pytorchReplicaSpecs": { "Master": role(1), "Worker": role(SIZE - 1) } });
    Kind {
        owner: object("kubeflow.org/v1", "PyTorchJob", "low", &spec),
        made: nothing,
        sign: |at, _| kubeflow(at, "PyTorchJob"),
        keeps: true,
    }
}

fn mpi_job() -> Kind {
    let spec = json!({ "runPolicy": { "suspend": false },
        "mpiReplicaSpecs": { "Worker": { "replicas": SIZE, "template": template() } } });
    Kind {
        owner: object("kubeflow.org/v2beta1", "MPIJob", "low", &spec),
        made: nothing,
        sign: |at, _| {
            json!({
                "labels": { "training.kubeflow.org/replica-type": "worker",
                    "training.kubeflow.org/replica-index": at.to_string() },
                "ownerReferences": owner("kubeflow.org/v2beta1", "MPIJob", "low"),
            })
        },
        keeps: true,
    }
}

fn leader_worker_set() -> Kind {
    let spec =
        json!({ "replicas": 1, "leaderWorkerTemplate": { "size": SIZE, "workerTemplate": template() } });
    Kind {
        owner: object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "low", &spec),
        made: nothing,
        sign: |at, _| {
            json!({
                "labels": { "leaderworkerset.sigs.k8s.io/name": "low", "leaderworkerset.sigs.k8s.io/group-index": "0",
                    "leaderworkerset.sigs.k8s.io/worker-index": at.to_string() },
                "annotations": { "leaderworkerset.sigs.k8s.io/size": SIZE.to_string() },
                "ownerReferences": owner("apps/v1", "StatefulSet", "low-0"),
            })
        },
        keeps: true,
    }
}

fn ray_spec() -> Value {
    json!({ "headGroupSpec": { "template": template() },
        "workerGroupSpecs": [{ "groupName": "w", "replicas": SIZE - 1, "maxReplicas": SIZE, "template": template() }] })
}

fn ray_pod(at: u32, cluster: &str) -> Value {
    json!({
        "labels": { "ray.io/cluster": cluster, "ray.io/group": if at == 0 { "headgroup" } else { "w" } },
        "ownerReferences": owner("ray.io/v1", "RayCluster", cluster),
    })
}

fn ray_cluster() -> Kind {
    let mut spec = ray_spec();
    spec["suspend"] = json!(false);
    Kind {
        owner: object("ray.io/v1", "RayCluster", "low", &spec),
        made: nothing,
        sign: |at, _| ray_pod(at, "low"),
        keeps: true,
    }
}

/// With a cluster of another name each time.
fn ray_job(more: &Value) -> Kind {
    let mut spec = json!({ "entrypoint": "python train.py", "suspend": false, "rayClusterSpec": ray_spec() });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Kind {
        owner: object("ray.io/v1", "RayJob", "low", &spec),
        made: |round| {
            let cluster = object("ray.io/v1", "RayCluster", &format!("low-{round}"), &ray_spec());
            vec![owned(cluster, "ray.io/v1", "RayJob", "low")]
        },
        sign: |at, round| ray_pod(at, &format!("low-{round}")),
        keeps: false,
    }
}

/// The gang is a group that its owner made: the group does not say what its pods ask for.
fn group_of_volcano() -> Kind {
    let role = json!({ "replicas": SIZE, "template": template() });
    let spec = json!({ "runPolicy": { "suspend": false }, "pytorchReplicaSpecs": { "Worker": role } });
    Kind {
        owner: object("kubeflow.org/v1", "PyTorchJob", "low", &spec),
        made: |_| {
            let group =
                object("scheduling.volcano.sh/v1beta1", "PodGroup", "low", &json!({ "minMember": SIZE }));
            vec![owned(group, "kubeflow.org/v1", "PyTorchJob", "low")]
        },
        sign: |_, _| {
            json!({
                "annotations": { "scheduling.k8s.io/group-name": "low" },
                "ownerReferences": owner("kubeflow.org/v1", "PyTorchJob", "low"),
            })
        },
        keeps: true,
    }
}

fn kinds(suspended: &[Suspend]) -> Vec<&str> {
    suspended.iter().map(|suspend| suspend.object.kind.as_str()).collect()
}

/// It waits without its pods, also where another process goes on, and its owner is let go on when there is room.
fn is_suspended_and_comes_back(kind: fn() -> Kind) {
    for has_successor in [false, true] {
        let mut play = Play::of(kind());
        let owner = play.owner["kind"].as_str().unwrap().to_owned();
        play.high();
        assert_eq!((kinds(&play.suspended), play.evicted), (vec![&*owner], 0));
        assert!(play.is_suspended() && !note_is_gone(&play.owner), "{}", play.owner);
        if has_successor {
            play.succeed();
        }
        (0..10).for_each(|_| play.after(60_000));
        assert!(play.resumed.is_empty(), "{owner}: there is no room");
        play.high_ends();
        assert_eq!((play.bound("low"), kinds(&play.resumed)), (SIZE, vec![&*owner]), "{:?}", play.pods);
        assert!(!play.is_suspended() && note_is_gone(&play.owner), "{}", play.owner);
        assert_eq!(
            (play.names, play.evicted),
            (2 * SIZE, 0),
            "{owner}: all of them once more, and none in vain"
        );
    }
}

/// Its pods are taken away one by one, made again, and wait.
fn is_evicted_and_comes_back(kind: Kind) {
    let mut play = Play::of(kind);
    play.high();
    assert!(play.suspended.is_empty() && !play.is_suspended(), "{}", play.owner);
    assert_eq!(play.evicted, SIZE as usize);
    play.high_ends();
    assert_eq!((play.bound("low"), play.evicted), (SIZE, SIZE as usize), "{:?}", play.pods);
}

#[test]
fn a_job_makes_way_and_comes_back() {
    is_suspended_and_comes_back(job);
}

#[test]
fn a_job_set_makes_way_and_comes_back() {
    is_suspended_and_comes_back(job_set);
}

/// Its `JobSet` says for a while that it is suspended when the job is not any more: the start that came to nothing by that.
#[test]
fn a_train_job_makes_way_and_comes_back() {
    is_suspended_and_comes_back(train_job);
}

#[test]
fn jobs_of_kubeflow_make_way_and_come_back() {
    is_suspended_and_comes_back(pytorch_job);
    is_suspended_and_comes_back(mpi_job);
}

#[test]
fn a_ray_cluster_makes_way_and_comes_back() {
    is_suspended_and_comes_back(ray_cluster);
}

/// Its cluster is deleted with its suspension: nobody set it free again.
#[test]
fn a_ray_job_makes_way_and_comes_back_with_another_cluster() {
    is_suspended_and_comes_back(|| ray_job(&json!({ "shutdownAfterJobFinishes": true })));
}

/// KubeRay refuses a suspended one for good.
#[test]
fn ray_jobs_that_may_not_be_suspended_are_evicted() {
    is_evicted_and_comes_back(ray_job(&json!({})));
    is_evicted_and_comes_back(ray_job(
        &json!({ "shutdownAfterJobFinishes": true, "submissionMode": "InteractiveMode" }),
    ));
}

#[test]
fn kinds_that_nobody_can_suspend_are_evicted() {
    is_evicted_and_comes_back(leader_worker_set());
    is_evicted_and_comes_back(group_of_volcano());
}

/// What a cluster of a job grows to while it runs is the job's.
#[test]
fn a_ray_job_is_as_large_as_its_cluster_says_by_now_and_over_with_that() {
    let mut play = Play::of(ray_job(&json!({ "shutdownAfterJobFinishes": true })));
    let key = play.lifecycle.gangs.keys().next().unwrap().clone();
    assert_eq!(key.to_string(), "RayJob x/low");
    let size = |play: &Play| play.lifecycle.spec(&key).unwrap().unwrap().size();
    assert_eq!(size(&play), SIZE);
    play.made[0]["spec"]["workerGroupSpecs"][0]["replicas"] = json!(SIZE);
    let cluster = play.made[0].clone();
    play.object(&cluster, false);
    assert_eq!(size(&play), SIZE + 1);
    // It has ended, and its cluster stays for a while.
    play.owner["status"] = json!({ "jobDeploymentStatus": "Complete" });
    let owner = play.owner.clone();
    play.object(&owner, false);
    assert!(play.lifecycle.makes_pods(&key) && play.lifecycle.suspend_of(&key).is_none());
    play.object(&cluster, true);
    assert!(!play.lifecycle.makes_pods(&key));
    play.of_gang("low").iter().for_each(|name| play.lose(name));
    (0..5).for_each(|_| play.after(10_000));
    assert_eq!(play.lifecycle.counts().1, 0, "nothing of it waits");
}

/// Of a set in stages that one waits which goes on: it started the first anew, whose pods nobody makes again.
#[test]
fn of_a_suspended_set_the_stage_that_goes_on_waits() {
    for stage in 0..2 {
        let job = |name: &str, after: Value| {
            let job = json!({ "parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template() });
            json!({ "name": name, "replicas": 1, "dependsOn": after, "template": { "spec": job } })
        };
        let after = json!([{ "name": "a", "status": "Complete" }]);
        let spec = json!({ "suspend": true, "replicatedJobs": [job("a", json!([])), job("b", after)] });
        let mut set = object("jobset.x-k8s.io/v1alpha2", "JobSet", "low", &spec);
        set["metadata"]["annotations"][SUSPENDED] = json!("for a test");
        let succeeded = if stage == 1 { 1 } else { 0 };
        set["status"]["replicatedJobsStatus"] = json!([{ "name": "a", "succeeded": succeeded }]);
        let mut lifecycle = lifecycle();
        lifecycle.observe(NOW, Event::Object(Box::new(serde_json::from_value(set).unwrap())));
        let gangs: Vec<String> = lifecycle.gangs.keys().map(ToString::to_string).collect();
        assert_eq!(gangs, [format!("JobSet x/low, stage {stage}")]);
    }
}
