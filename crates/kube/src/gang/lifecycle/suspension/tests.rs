//! Lifecycle and engine together, with an API server that does at once what it is asked for, and the controller of one Job.

use std::collections::BTreeMap;

use phalanx_model::{Epoch, FailureClass, MemberId, QueueName, Timestamp};
use phalanx_shell::{Config, Engine};
use serde_json::{Value, json};

use crate::gang::pods::{ATTEMPT, DEVICES, RANK};
use crate::gang::turn::step;
use crate::gang::{Lifecycle, Options, SUSPENDED};
use crate::messages::{Call, Event, Found, Unbound};

const NOW: Timestamp = Timestamp(1_800_000_000_000);
/// Ranks of the only gang.
pub(in crate::gang) const SIZE: usize = 4;

pub(in crate::gang) struct Play {
    lifecycle: Lifecycle,
    engine: Engine,
    now: Timestamp,
    has_begun: bool,
    pub(in crate::gang) job: Value,
    pub(in crate::gang) pods: BTreeMap<String, Value>,
    /// Pods that the controller has made so far.
    pub(in crate::gang) made: usize,
    /// Pods that were deleted by name, each of which counts against the Job.
    pub(in crate::gang) deleted: usize,
    pub(in crate::gang) suspensions: usize,
    /// The rank whose pods nobody can bind.
    refused: Option<usize>,
    /// It is not said yet that it cannot be bound.
    is_slow: bool,
    tried: Vec<MemberId>,
    pub(in crate::gang) is_controlled: bool,
    /// Pods that were bound do not run yet.
    pub(in crate::gang) are_slow: bool,
    /// Indices that have completed; their pods may be gone.
    completed: Vec<usize>,
    /// What is asked for in vain for now: that a sign is taken away.
    keeps_signs: bool,
    version: u32,
    /// Nobody takes the pods of this node away, deleted or not.
    pub(in crate::gang) silent: Option<String>,
}

impl Play {
    /// A node of 4 devices, and a Job that needs all of them.
    pub(in crate::gang) fn begin() -> Self {
        let template = json!({
            "spec": { "schedulerName": "phalanx",
                "containers": [{ "name": "c", "resources": { "limits": { "nvidia.com/gpu": "1" } } }] },
        });
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": { "namespace": "x", "name": "g", "uid": "g" },
            "spec": { "completions": SIZE, "parallelism": SIZE, "completionMode": "Indexed", "suspend": false,
                "template": template },
        });
        let mut play = Self {
            lifecycle: lifecycle(),
            engine: Engine::new(Epoch(1), Config::default()),
            now: NOW,
            has_begun: false,
            job,
            pods: BTreeMap::new(),
            made: 0,
            deleted: 0,
            suspensions: 0,
            refused: None,
            is_slow: false,
            tried: Vec::new(),
            is_controlled: true,
            are_slow: false,
            completed: Vec::new(),
            keeps_signs: false,
            version: 0,
            silent: None,
        };
        play.see_node();
        play
    }

    fn see_node(&mut self) {
        self.node("a", 4, &json!({}));
    }

    /// A node of so many devices, and what else its specification says.
    pub(in crate::gang) fn node(&mut self, name: &str, devices: u32, spec: &Value) {
        let allocatable =
            json!({ "cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": devices.to_string() });
        let node =
            json!({ "metadata": { "name": name }, "spec": spec, "status": { "allocatable": allocatable } });
        self.lifecycle.observe(self.now, Event::Node(Box::new(serde_json::from_value(node).unwrap())));
    }

    /// What the agent of a node with 4 devices says of the health of some.
    pub(in crate::gang) fn grade(&mut self, node: &str, grades: &[(u32, &str)]) {
        let mut machine = phalanx_model::Machine::bare(phalanx_model::Origin::Found);
        let device = |at: u32| phalanx_model::Device { name: format!("GPU{at}"), ..Default::default() };
        machine.devices = (0..4).map(device).collect();
        phalanx_model::shape::finish(&mut machine);
        let of = |(device, grade): &(u32, &str)| {
            let said = json!({ "grade": grade, "reason": "Xid 79", "since": "2026-11-28T20:00:00Z", "automatic": true });
            (Some(*device), serde_json::from_value(said).unwrap())
        };
        let grades = grades.iter().map(of).collect();
        let found = Found { machine: machine.into(), lost: phalanx_model::DeviceMask::EMPTY, grades };
        self.lifecycle.observe(self.now, Event::Found { node: node.to_owned(), found: Some(found) });
    }

    pub(in crate::gang) fn remove_node(&mut self, name: &str) {
        self.lifecycle.observe(self.now, Event::NodeGone(name.to_owned()));
    }

    /// Somebody deletes a pod, and it is on its way out from now on.
    pub(in crate::gang) fn delete(&mut self, name: &str) {
        let mut pod = self.pods[name].clone();
        pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
        self.see(name, pod);
    }

    /// Somebody changed the Job; its controller follows.
    pub(in crate::gang) fn change_job(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.job);
        self.see_job();
        self.control();
    }

    fn see_job(&mut self) {
        self.version += 1;
        self.job["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let job = serde_json::from_value(self.job.clone()).unwrap();
        self.lifecycle.observe(self.now, Event::Object(Box::new(job)));
    }

    pub(in crate::gang) fn is_suspended(&self) -> bool {
        self.job["spec"]["suspend"] == true
    }

    pub(in crate::gang) fn is_signed(&self) -> bool {
        self.job["metadata"]["annotations"][SUSPENDED].is_string()
    }

    /// What the controller of Jobs does.
    fn control(&mut self) {
        if !self.is_controlled {
            return;
        }
        if self.is_suspended() {
            let has_ended =
                |pod: &Value| ["Succeeded", "Failed"].iter().any(|end| pod["status"]["phase"] == *end);
            let is_active = |(name, pod): &(&String, &Value)| name.starts_with("g-") && !has_ended(pod);
            let all: Vec<String> = self.pods.iter().filter(is_active).map(|(name, _)| name.clone()).collect();
            for name in all {
                let stays =
                    self.silent.as_ref().is_some_and(|node| self.pods[&name]["spec"]["nodeName"] == **node);
                if stays { self.delete(&name) } else { self.lose(&name) }
            }
            return;
        }
        for at in 0..SIZE {
            if self.completed.contains(&at) {
                continue;
            }
            let stays = |pod: &Value| {
                pod["metadata"]["deletionTimestamp"].is_null() && pod["status"]["phase"] != "Failed"
            };
            let of_it = |(name, pod): (&String, &Value)| name.starts_with(&format!("g-{at}-")) && stays(pod);
            if !self.pods.iter().any(of_it) {
                self.make(at);
            }
        }
    }

    /// The controller makes a pod of an index.
    pub(in crate::gang) fn make(&mut self, at: usize) -> String {
        let name = format!("g-{at}-{}", self.made);
        self.made += 1;
        let pod = json!({
            "metadata": {
                "namespace": "x", "name": name, "uid": name,
                "labels": { "batch.kubernetes.io/job-name": "g" },
                "annotations": { "batch.kubernetes.io/job-completion-index": at.to_string() },
                "ownerReferences": [{
                    "apiVersion": "batch/v1", "kind": "Job", "name": "g", "uid": "g", "controller": true,
                }],
            },
            "spec": self.job["spec"]["template"]["spec"],
        });
        self.see(&name, pod);
        name
    }

    /// The pod of an index fails, and is kept as it is; what it was then.
    pub(in crate::gang) fn fail(&mut self, at: usize) -> Value {
        let name = self.pods.keys().find(|name| name.starts_with(&format!("g-{at}-"))).unwrap().clone();
        let mut pod = self.pods[&name].clone();
        pod["status"]["phase"] = json!("Failed");
        self.see(&name, pod.clone());
        pod
    }

    pub(in crate::gang) fn see(&mut self, name: &str, pod: Value) {
        self.pods.insert(name.to_owned(), pod.clone());
        self.lifecycle.observe(self.now, Event::Pod(Box::new(serde_json::from_value(pod).unwrap())));
    }

    pub(in crate::gang) fn lose(&mut self, name: &str) {
        self.pods.remove(name);
        let (namespace, name, uid) = ("x".to_owned(), name.to_owned(), name.to_owned());
        self.lifecycle.observe(self.now, Event::PodGone { namespace, name, uid });
    }

    /// So much later, until nothing happens any more.
    pub(in crate::gang) fn after(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
        let mut more = Vec::new();
        for turn in 0..1_000 {
            let mut facts = std::mem::take(&mut more);
            if std::mem::replace(&mut self.has_begun, true) {
                facts.extend(self.lifecycle.settle(self.now));
            } else {
                facts.extend(self.lifecycle.begin(self.now));
            }
            self.answer();
            if facts.is_empty() && turn > 0 {
                return;
            }
            more = step(&mut self.lifecycle, &mut self.engine, self.now, &facts);
            self.answer();
        }
        panic!("it never comes to rest: {:?}", self.pods.keys());
    }

    fn answer(&mut self) {
        for call in self.lifecycle.calls() {
            match call {
                Call::Bind { pod, node, member, annotations, .. } => {
                    let is_refused = self.refused.is_some_and(|at| pod.name.starts_with(&format!("g-{at}-")));
                    if is_refused && self.is_slow {
                        self.tried.push(member);
                        continue;
                    }
                    let detail = format!("pod {} could not be bound", pod.name);
                    let result = match self.pods.get(&*pod.name) {
                        Some(object) if !is_refused => Ok(object.clone()),
                        _ => Err(Unbound { class: FailureClass::StartUp, detail, may_come: false }),
                    };
                    let bound = result.clone().map(drop);
                    self.lifecycle.observe(self.now, Event::Bound { member, result: bound });
                    if let Ok(mut object) = result {
                        object["spec"]["nodeName"] = json!(node.as_str());
                        for (key, text) in annotations {
                            object["metadata"]["annotations"][key] = json!(text);
                        }
                        let phase = if self.are_slow { "Pending" } else { "Running" };
                        object["status"] = json!({ "phase": phase });
                        self.see(&pod.name, object);
                    }
                }
                Call::Stop { suspend: Some(_), note, .. } => {
                    self.suspensions += 1;
                    if !self.is_suspended() {
                        self.change_job(|job| {
                            job["spec"]["suspend"] = json!(true);
                            job["metadata"]["annotations"][SUSPENDED] = json!(note);
                        });
                    }
                }
                Call::Stop { pods, .. } => {
                    for pod in pods {
                        self.deleted += 1;
                        self.lose(&pod.name);
                    }
                    self.control();
                }
                Call::Resume { .. } if self.is_signed() => self.change_job(let_go),
                Call::TakeSign { version, .. } if !self.keeps_signs => {
                    assert_eq!(self.job["metadata"]["resourceVersion"], version);
                    self.change_job(|job| {
                        job["metadata"]["annotations"].as_object_mut().map(|all| all.remove(SUSPENDED));
                    });
                }
                _ => {}
            }
        }
    }

    /// The pod of a rank ends well; its Job counts that, and the collector of ended pods takes it.
    fn complete(&mut self, at: usize) {
        let name = self.pods.keys().find(|name| name.starts_with(&format!("g-{at}-"))).unwrap().clone();
        let mut pod = self.pods[&name].clone();
        pod["status"]["phase"] = json!("Succeeded");
        self.see(&name, pod);
        self.completed.push(at);
        let text: Vec<String> = self.completed.iter().map(ToString::to_string).collect();
        self.job["status"]["completedIndexes"] = json!(text.join(","));
        self.see_job();
        self.lose(&name);
    }

    /// Another process: it knows what the API server has.
    pub(in crate::gang) fn succeed(&mut self) {
        (self.lifecycle, self.engine, self.has_begun) =
            (lifecycle(), Engine::new(Epoch(2), Config::default()), false);
        self.see_node();
        self.see_job();
        for (name, pod) in self.pods.clone() {
            self.see(&name, pod);
        }
    }

    /// What was tried for long could not be bound.
    fn give_up(&mut self) {
        (self.is_slow, self.refused) = (false, None);
        for member in std::mem::take(&mut self.tried) {
            let result =
                Err(Unbound { class: FailureClass::StartUp, detail: "no answer".to_owned(), may_come: true });
            self.lifecycle.observe(self.now, Event::Bound { member, result });
        }
        self.after(0);
    }

    pub(in crate::gang) fn bound(&self) -> usize {
        self.pods.values().filter(|pod| pod["spec"]["nodeName"].is_string()).count()
    }
}

fn lifecycle() -> Lifecycle {
    Lifecycle::new(Options {
        ready_ms: 60_000,
        vacant_ms: 20_000,
        min_run_ms: 0,
        ..Options::of_queue(QueueName::new("default").unwrap())
    })
}

pub(in crate::gang) fn let_go(job: &mut Value) {
    job["spec"]["suspend"] = json!(false);
    job["metadata"]["annotations"].as_object_mut().map(|all| all.remove(SUSPENDED));
}

/// Its pods are there, and nothing was decided so far.
pub(in crate::gang) fn made() -> Play {
    let mut play = Play::begin();
    play.see_job();
    play.control();
    play
}

#[test]
fn a_gang_that_cannot_start_whole_is_taken_back_and_brought_again_by_its_owner() {
    let mut play = made();
    play.refused = Some(2);
    play.after(0);
    assert!(play.is_suspended() && play.is_signed(), "{}", play.job);
    assert_eq!((play.pods.len(), play.deleted, play.suspensions), (0, 0, 1));
    play.refused = None;
    play.after(2_000);
    assert_eq!((play.bound(), play.deleted, play.suspensions), (SIZE, 0, 1));
    assert!(!play.is_suspended() && !play.is_signed(), "{}", play.job);
    assert_eq!(play.made, 2 * SIZE, "all of them anew");
}

#[test]
fn an_owner_that_its_user_suspends_while_its_gang_is_taken_back_stays_so() {
    for is_before in [true, false] {
        let mut play = made();
        let by_user = |play: &mut Play| {
            play.change_job(|job| {
                let_go(job);
                job["spec"]["suspend"] = json!(true);
            });
        };
        play.refused = Some(2);
        play.is_slow = is_before;
        play.after(0);
        assert_eq!((play.bound(), play.is_signed()), if is_before { (3, false) } else { (0, true) });
        by_user(&mut play);
        play.after(0);
        play.give_up();
        play.refused = None;
        play.after(600_000);
        assert!(play.is_suspended() && !play.is_signed(), "{}", play.job);
        assert_eq!((play.pods.len(), play.deleted), (0, 0));
        play.change_job(let_go);
        play.after(1_000);
        assert_eq!((play.bound(), play.deleted), (SIZE, 0));
    }
}

/// The user may suspend what runs, too: nothing of it is looked for elsewhere meanwhile.
#[test]
fn a_gang_whose_user_suspends_it_gives_its_places_back_and_waits() {
    let mut play = made();
    play.after(0);
    assert_eq!(play.bound(), SIZE);
    play.change_job(|job| job["spec"]["suspend"] = json!(true));
    play.after(0);
    assert_eq!((play.pods.len(), play.deleted), (0, 0));
    play.after(600_000);
    assert!(play.is_suspended() && !play.is_signed(), "{}", play.job);
    play.change_job(let_go);
    play.after(1_000);
    assert_eq!((play.bound(), play.deleted), (SIZE, 0));
}

/// Each time it waited twice as long as the time before: a suspension counted as a failure.
#[test]
fn a_user_who_suspends_a_gang_again_and_again_has_it_back_soon_each_time() {
    let mut play = made();
    play.after(0);
    for time in 0..10 {
        assert_eq!(play.bound(), SIZE, "after {time} times");
        play.change_job(|job| job["spec"]["suspend"] = json!(true));
        play.after(0);
        assert_eq!((play.pods.len(), play.deleted), (0, 0));
        play.change_job(let_go);
        play.after(1_000);
    }
}

/// It finished the gang where others of its pods went, or waited for those until their time was over.
#[test]
fn a_successor_goes_on_with_a_gang_whose_owner_was_suspended_and_not_let_go() {
    // Of the pods that were bound so many are left.
    for left in 0..=SIZE {
        let mut play = made();
        play.after(0);
        play.is_controlled = false;
        play.change_job(|job| {
            job["spec"]["suspend"] = json!(true);
            job["metadata"]["annotations"][SUSPENDED] = json!("it could not start whole");
        });
        let names: Vec<String> = play.pods.keys().skip(left).cloned().collect();
        names.iter().for_each(|name| play.lose(name));
        play.succeed();
        play.after(0);
        play.is_controlled = true;
        play.control();
        play.after(0);
        play.after(2_000);
        assert_eq!((play.bound(), play.deleted), (SIZE, 0), "{left} were left: {}", play.job);
        assert!(!play.is_suspended() && !play.is_signed(), "{left} were left: {}", play.job);
    }
}

/// Nobody acts on its suspension, or somebody begins to and goes no further: the deadline holds all the same.
#[test]
fn what_a_suspended_owner_leaves_is_deleted_when_it_makes_no_headway() {
    let mut play = made();
    play.refused = Some(2);
    play.is_controlled = false;
    play.after(0);
    assert_eq!((play.bound(), play.deleted, play.suspensions), (3, 0, 1));
    let first = play.pods.keys().next().unwrap().clone();
    play.lose(&first);
    play.after(10_000);
    assert_eq!((play.bound(), play.deleted), (2, 0), "it is at work");
    play.after(10_000);
    assert_eq!((play.bound(), play.deleted), (0, 2));
}

/// Of a gang that was bound in part some pods ended before a successor began: it waited for pods that nobody makes again.
#[test]
fn the_rest_of_a_gang_starts_when_what_was_bound_of_it_has_ended_well() {
    for ended in 1..SIZE {
        let mut play = made();
        (play.refused, play.is_slow) = (Some(SIZE - 1), true);
        play.after(0);
        assert_eq!(play.bound(), SIZE - 1);
        for pod in play.pods.values_mut().take(ended) {
            pod["status"]["phase"] = json!("Succeeded");
        }
        play.refused = None;
        play.succeed();
        for _ in 0..10 {
            play.after(5_000);
        }
        assert_eq!((play.bound(), play.deleted), (SIZE, 0), "{ended} have ended: {}", play.job);
        assert!(!play.is_suspended(), "{ended} have ended: {}", play.job);
    }
}

/// The same without another process: what could not be bound is looked for again, without those that have ended.
#[test]
fn the_rest_of_a_gang_starts_when_one_of_it_ended_before_all_were_bound() {
    let mut play = made();
    (play.refused, play.is_slow) = (Some(SIZE - 1), true);
    play.after(0);
    let first = play.pods.keys().next().unwrap().clone();
    let mut pod = play.pods[&first].clone();
    pod["status"]["phase"] = json!("Succeeded");
    play.see(&first, pod);
    play.after(0);
    play.give_up();
    for _ in 0..10 {
        play.after(5_000);
    }
    assert_eq!((play.bound(), play.deleted), (SIZE, 0), "{}", play.job);
    assert!(!play.is_suspended(), "{}", play.job);
}

/// It waited for pods that nobody makes again.
#[test]
fn the_rest_of_a_gang_starts_without_what_has_completed_and_was_collected() {
    for has_successor in [false, true] {
        let mut play = made();
        play.after(0);
        play.complete(1);
        play.after(0);
        assert_eq!(play.bound(), SIZE - 1);
        // Its user suspends it, and lets it go on.
        play.change_job(|job| job["spec"]["suspend"] = json!(true));
        play.after(0);
        if has_successor {
            play.succeed();
            play.after(0);
        }
        play.change_job(let_go);
        (0..5).for_each(|_| play.after(5_000));
        assert_eq!((play.bound(), play.deleted, play.suspensions), (SIZE - 1, 0, 0), "{}", play.job);
    }
}

/// A gang that ran was taken back a minute after its scheduler was replaced.
#[test]
fn a_successor_does_not_miss_what_has_completed_and_was_collected() {
    let mut play = made();
    play.after(0);
    (1..3).for_each(|at| play.complete(at));
    play.after(0);
    play.succeed();
    (0..20).for_each(|_| play.after(30_000));
    assert_eq!((play.bound(), play.deleted, play.suspensions), (SIZE - 2, 0, 0), "{}", play.job);
    // It makes way, and comes back without them.
    play.change_job(|job| job["spec"]["suspend"] = json!(true));
    play.after(0);
    play.change_job(let_go);
    (0..5).for_each(|_| play.after(5_000));
    assert_eq!((play.bound(), play.deleted), (SIZE - 2, 0), "{}", play.job);
}

/// Whoever lets it go on by hand has decided; what it says of us from then on is not true any more.
#[test]
fn an_owner_that_its_user_lets_go_on_by_hand_is_its_users_again() {
    let mut play = made();
    play.refused = Some(2);
    play.after(0);
    assert!(play.is_suspended() && play.is_signed(), "{}", play.job);
    play.refused = None;
    // Nobody takes the sign away so soon, and its user suspends it again.
    play.keeps_signs = true;
    play.change_job(|job| job["spec"]["suspend"] = json!(false));
    play.change_job(|job| job["spec"]["suspend"] = json!(true));
    play.after(600_000);
    assert!(play.is_suspended() && play.is_signed() && play.pods.is_empty(), "{}", play.job);
    play.keeps_signs = false;
    play.change_job(|job| job["metadata"]["labels"] = json!({ "touched": "" }));
    play.after(600_000);
    assert!(play.is_suspended() && !play.is_signed(), "{}", play.job);
    // It goes on, and is suspended by us once more: that is ours.
    play.change_job(|job| job["spec"]["suspend"] = json!(false));
    play.refused = Some(2);
    play.after(1_000);
    assert!(play.is_suspended() && play.is_signed(), "{}", play.job);
    play.refused = None;
    (0..5).for_each(|_| play.after(5_000));
    assert_eq!((play.bound(), play.is_signed()), (SIZE, false), "{}", play.job);
}

/// The same of a sign that was there before this process was.
#[test]
fn a_sign_that_a_former_leader_left_on_an_owner_that_goes_on_is_taken_away() {
    let mut play = Play::begin();
    play.job["metadata"]["annotations"][SUSPENDED] = json!("it could not start whole");
    play.see_job();
    play.control();
    play.after(0);
    assert_eq!((play.bound(), play.is_signed()), (SIZE, false), "{}", play.job);
}

/// Jobs keep pods that failed. Whoever came in the stead of one had no rank as long as that one was there, and its gang was
/// started anew for want of it.
#[test]
fn a_pod_that_is_made_for_one_that_failed_has_its_place_also_for_a_successor() {
    for succeeded in ["never", "before it came", "after it came"] {
        let mut play = made();
        play.after(0);
        let failed = play.fail(1);
        play.after(0);
        if succeeded == "before it came" {
            play.succeed();
            play.after(0);
        }
        let name = play.make(1);
        if succeeded == "after it came" {
            play.succeed();
        }
        for _ in 0..10 {
            play.after(5_000);
        }
        let pod = play.pods.get(&name).unwrap_or_else(|| panic!("{succeeded}: {:#?}", play.pods.keys()));
        for key in ["phalanx.dev/devices", "phalanx.dev/rank", "phalanx.dev/attempt"] {
            let of = |pod: &Value| pod["metadata"]["annotations"][key].clone();
            assert_eq!(of(pod), of(&failed), "{key}, succeeded {succeeded}");
        }
        assert_eq!((play.bound(), play.deleted, play.suspensions), (SIZE + 1, 0, 0), "succeeded {succeeded}");
    }
}

/// Pods fail before their Job does. It was started again when the time was over that their places were kept for others, and had
/// them with no pod at all.
#[test]
fn a_gang_whose_owner_fails_after_its_pods_gives_its_places_back_for_good() {
    let mut play = made();
    play.after(0);
    (0..SIZE).for_each(|at| drop(play.fail(at)));
    play.after(0);
    play.is_controlled = false;
    play.change_job(|job| job["status"]["conditions"] = json!([{ "type": "Failed", "status": "True" }]));
    play.after(0);
    let mut other = play.job["spec"]["template"].clone();
    other["metadata"] = json!({ "namespace": "x", "name": "other", "uid": "other" });
    other["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = json!(SIZE.to_string());
    play.see("other", other);
    play.after(0);
    assert_eq!(play.pods["other"]["spec"]["nodeName"], "a", "nobody else is there");
}

/// Its devices were given to others, and it came on top of them.
#[test]
fn a_binding_that_was_given_up_without_an_answer_keeps_its_devices_until_it_can_come_no_more() {
    let held = |play: &Play| play.engine.nodes().next().unwrap().foreign.count();
    // Nobody deletes a pod that nobody makes again.
    let given_up = || {
        let mut play = made();
        for pod in play.pods.values_mut() {
            pod["metadata"]["ownerReferences"] = json!([]);
        }
        for (name, pod) in play.pods.clone() {
            play.see(&name, pod);
        }
        play.is_controlled = false;
        (play.refused, play.is_slow) = (Some(2), true);
        play.after(0);
        assert_eq!((play.bound(), held(&play)), (SIZE - 1, 0));
        play.give_up();
        let others: Vec<String> =
            play.pods.keys().filter(|name| !name.starts_with("g-2-")).cloned().collect();
        others.iter().for_each(|name| play.lose(name));
        play.after(0);
        assert_eq!(held(&play), 1, "where it may still come");
        let left = play.pods.keys().next().unwrap().clone();
        (play, left)
    };
    let (mut play, left) = given_up();
    play.lose(&left);
    play.after(0);
    assert_eq!(held(&play), 0, "the pod is gone");
    let (mut play, left) = given_up();
    let mut pod = play.pods[&left].clone();
    let devices = play.engine.nodes().next().unwrap().foreign.to_string();
    pod["spec"]["nodeName"] = json!("a");
    for (key, text) in [(RANK, "2"), (DEVICES, &devices), (ATTEMPT, "1")] {
        pod["metadata"]["annotations"][key] = json!(text);
    }
    play.see(&left, pod);
    play.after(60_000);
    assert_eq!(held(&play), 1, "it has come");
    let (mut play, _) = given_up();
    play.after(60_000);
    assert_eq!(held(&play), 0, "it comes no more");
}

/// The engine freed the rank when its binding was given up, and other pods of its gang are still there.
#[test]
fn a_binding_that_comes_late_while_its_gang_is_stopped_holds_its_device() {
    let mut play = made();
    for pod in play.pods.values_mut() {
        pod["metadata"]["ownerReferences"] = json!([]);
    }
    for (name, pod) in play.pods.clone() {
        play.see(&name, pod);
    }
    play.is_controlled = false;
    (play.refused, play.is_slow) = (Some(2), true);
    play.after(0);
    play.give_up();
    assert_eq!(play.bound(), SIZE - 1, "nobody deletes pods that nobody makes again");
    let foreign = |play: &Play| play.engine.nodes().next().unwrap().foreign;
    let devices = foreign(&play);
    assert_eq!(devices.count(), 1, "it may still come");
    let name = play.pods.keys().find(|name| name.starts_with("g-2-")).unwrap().clone();
    let mut pod = play.pods[&name].clone();
    pod["spec"]["nodeName"] = json!("a");
    for (key, text) in [(RANK, "2"), (DEVICES, &devices.to_string()), (ATTEMPT, "1")] {
        pod["metadata"]["annotations"][key] = json!(text);
    }
    play.see(&name, pod);
    play.after(0);
    assert_eq!(foreign(&play), devices, "it has come, and no gang holds its device");
}

/// A rank that ends well on SIGTERM: its pod has succeeded, and is there for a moment longer. It counted as bound by the next
/// start, which therefore took the suspension of its owner for one of the user's, and was stopped at once.
#[test]
fn a_pod_that_ended_well_on_its_way_out_is_none_of_the_next_start() {
    let mut play = made();
    play.after(0);
    play.node("b", 4, &json!({}));
    play.is_controlled = false;
    play.grade("a", &[(0, "Broken")]);
    play.after(0);
    assert!(play.is_suspended() && play.is_signed(), "{}", play.job);
    let names: Vec<String> = play.pods.keys().cloned().collect();
    let mut last = play.pods[&names[0]].clone();
    last["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
    last["status"]["phase"] = json!("Succeeded");
    play.see(&names[0], last.clone());
    names.iter().skip(1).for_each(|name| play.lose(name));
    play.after(0);
    assert!(!play.is_suspended(), "it has its place on the other node: {}", play.job);
    // The kubelet has more to say of it, and then it is gone.
    play.see(&names[0], last);
    play.lose(&names[0]);
    play.is_controlled = true;
    play.control();
    play.after(0);
    assert_eq!((play.bound(), play.suspensions), (SIZE, 1), "{}", play.job);
    let attempts = play.pods.values().map(|pod| pod["metadata"]["annotations"][ATTEMPT].clone());
    assert!(attempts.into_iter().all(|attempt| attempt == "2"), "{:#?}", play.pods);
}
