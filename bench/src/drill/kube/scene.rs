//! One fault: a gang job that writes checkpoints, and what is seen of its pods.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_kube::submit::{Trainer, Work, indexed};
use phalanx_model::DeviceMask;
use serde_json::{Value, json};

use super::cluster::{Cluster, IMAGE, JOBS, PODS, gpu_of};
use super::seen::{Around, Pod, Told, phases, whole};
use super::steps::Steps;
use crate::drill::findings::Findings;
use crate::drill::record::{Record, time};
use crate::drill::ring::{EVERY, FINISHES, Printed, now_ms, steps};

pub(super) const RANKS: u32 = 4;
/// Of each rank: two ranks fill a node, and a third node is free.
pub(super) const GPUS_OF_RANK: u32 = 4;
/// The rank that suffers. Rank 0 reports the steps.
pub(super) const VICTIM: u32 = 2;
/// A gang holds GPUs without all of its ranks for the replacement deadline and the binding deadline of the scheduler at most.
const PART_MS: u64 = 90_000;
/// Expected of each fault.
pub(super) const WHOLE: &str =
    "no two pods hold one GPU, and a part of the gang holds GPUs without the others for at most 1 m 30 s";
/// The name of Phalanx in events.
const PHALANX: &str = "phalanx.dev/scheduler";
/// Reasons of events of a gang that is stopped.
const STOPS: [&str; 2] = ["Evicted", "Stopping"];
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// A launcher in each pod: it starts the rank again if another rank was lost, as torchrun's agent does. If its own rank is killed, or the
/// pod is to end, it ends. Each attempt of the gang meets at a port of its own, so that ranks on a node that is cut off do not join the
/// next one.
const LAUNCHER: &str = r#"
trap 'stop=1; kill -TERM $rank 2>/dev/null' TERM
export MASTER_PORT=$((29500 + ATTEMPT))
run=0 code=143
while [ -z "$stop" ]; do
  run=$((run + 1))
  if [ "$RANK" = 0 ]; then export PHALANX_PROGRESS="/drill/steps/$POD_UID.$run"; fi
  ring-allreduce --bytes 64KiB --warmup 0 --until /drill/finish --step-sleep-ms 50 --checkpoint /drill/checkpoint \
    --checkpoint-every 10 --timeout-s 300 &
  rank=$!
  wait $rank; code=$?
  while kill -0 $rank 2>/dev/null; do wait $rank; code=$?; done
  if [ -n "$stop" ] || [ $code = 0 ] || [ $code = 137 ]; then exit $code; fi
  sleep 0.5
done
exit $code
"#;

/// An expectation that is judged once the job has ended.
#[derive(Clone, Copy)]
pub(super) enum Late {
    /// The gang kept its pods, its nodes and its GPUs, and no rank started again.
    Stays,
    /// The pods of all other ranks than this one stayed.
    OthersStay(u32),
    /// No more steps were lost than lie between two checkpoints.
    FewAgain,
    NoneAgain,
}

pub(super) struct Scene<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) found: Findings,
    job: &'static str,
    folder: PathBuf,
    steps: Steps,
    /// Events of the cluster that are older than the job.
    old_events: usize,
    late: Vec<(usize, Late)>,
    printed: Option<Printed>,
    /// Of rank after rank.
    pub(super) before: Vec<Pod>,
    after: Vec<Pod>,
    ended_ms: Option<u64>,
    /// GPUs that two ranks saw at once.
    seen_twice: BTreeSet<String>,
    result: Option<String>,
}

impl<'a> Scene<'a> {
    /// Creates the job.
    pub(super) fn start(
        cluster: &'a mut Cluster,
        job: &'static str,
        expects: &[&'static str],
    ) -> Result<Self, String> {
        let folder = cluster.plane.folder().join(format!("work-{job}"));
        let steps = folder.join("steps");
        fs::create_dir_all(&steps).map_err(|e| e.to_string())?;
        let mut scene = Self {
            found: Findings::new(expects, &[WHOLE, FINISHES]),
            job,
            steps: Steps::start(&steps),
            folder,
            old_events: cluster.events.seen().len(),
            late: Vec::new(),
            printed: None,
            before: Vec::new(),
            after: Vec::new(),
            ended_ms: None,
            seen_twice: BTreeSet::new(),
            result: None,
            cluster,
        };
        for manifest in indexed(&scene.work()).map_err(|e| e.to_string())? {
            match manifest.plural {
                "jobs" => scene.cluster.post(JOBS, &mounted(manifest.object, &scene.folder))?,
                _ => scene.cluster.post(SERVICES, &manifest.object)?,
            };
        }
        scene.note(format!(
            "created an indexed Job of {RANKS} pods that writes a checkpoint every {EVERY} steps"
        ));
        Ok(scene)
    }

    fn work(&self) -> Work {
        Work {
            name: self.job.to_owned(),
            trainer: Trainer::Job,
            workers: RANKS,
            gpus: GPUS_OF_RANK,
            image: IMAGE.to_owned(),
            pull_policy: Some("Never".to_owned()),
            argv: ["/bin/sh", "-c", LAUNCHER].map(str::to_owned).into(),
            retry: 20,
            grace_s: Some(10),
            ..Work::default()
        }
    }

    /// Waits for two checkpoints.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        self.reach(2 * EVERY + EVERY / 2)?;
        self.before = self.inside()?;
        Ok(())
    }

    /// The pod of each rank, with the GPUs that its container was given: an annotation may still have those that were chosen.
    fn inside(&mut self) -> Result<Vec<Pod>, String> {
        let mut gang = self.gang()?;
        for pod in &mut gang {
            pod.devices = given(pod).or_else(|| pod.devices.take());
        }
        let all = gang.iter().map(|pod| (&pod.node, pod.devices.as_deref().unwrap_or_default()));
        let all: Vec<_> =
            all.map(|(node, gpus)| (node, gpus.parse::<DeviceMask>().unwrap_or_default())).collect();
        for (at, (node, gpus)) in all.iter().enumerate() {
            let twice =
                all[at + 1..].iter().any(|(other, theirs)| other == node && !gpus.and(*theirs).is_empty());
            if twice {
                self.seen_twice.insert(format!("containers of {}", gang[at].place()));
            }
        }
        Ok(gang)
    }

    pub(super) fn job(&self) -> &'static str {
        self.job
    }

    /// Waits until the first pod of the gang has a node: the scheduler binds the others now.
    pub(super) fn until_first_bound(&self) -> Result<(), String> {
        let is_bound = |pod: &Pod| pod.job == self.job && pod.node.is_some();
        self.cluster.wait_polled("a pod with a node", Duration::from_micros(200), || {
            self.cluster.pods.any(is_bound).then_some(())
        })
    }

    /// Waits for something that needs the job to run.
    pub(super) fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
        self.cluster.wait(what, || {
            // Looked at first: what came just before the end is seen.
            let ended = self.ending();
            look().map(Ok).or_else(|| ended.map(|how| Err(format!("the job ended before {what}: {how}"))))
        })?
    }

    /// How the job ended.
    fn ending(&self) -> Option<String> {
        let job = self.cluster.get(&format!("{JOBS}/{}", self.job)).ok()?;
        let conditions = job["status"]["conditions"].as_array()?;
        let ended = |one: &&Value| {
            one["status"] == "True" && matches!(one["type"].as_str(), Some("Complete" | "Failed"))
        };
        let ended = conditions.iter().find(ended)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Some(format!("{}: {}", text(&ended["type"]), text(&ended["message"])))
    }

    /// The pods of the job that have not ended and are not on their way out.
    pub(super) fn pods(&self) -> Result<Vec<Pod>, String> {
        let list = self.cluster.get(&format!("{PODS}?labelSelector=job-name%3D{}", self.job))?;
        let pods = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        let mut pods: Vec<Pod> = pods.iter().filter_map(Pod::of).collect();
        pods.retain(|pod| !pod.is_over() && !pod.is_leaving);
        pods.sort_by_key(|pod| pod.rank);
        Ok(pods)
    }

    /// The pod of each rank.
    pub(super) fn gang(&self) -> Result<Vec<Pod>, String> {
        let pods = self.pods()?;
        if pods.iter().map(|pod| pod.rank).eq(0..RANKS) {
            return Ok(pods);
        }
        Err(format!("the gang has {} pods in place of {RANKS}", pods.len()))
    }

    /// The pod that suffers, as it was before the fault.
    pub(super) fn victim(&self) -> Result<Pod, String> {
        let victim = self.before.iter().find(|pod| pod.rank == VICTIM);
        victim.cloned().ok_or_else(|| format!("rank {VICTIM} has no pod"))
    }

    /// Waits until all ranks run in such pods, and a step later.
    pub(super) fn runs_again(
        &mut self,
        what: &str,
        is_it: impl Fn(&Pod) -> bool,
    ) -> Result<Vec<Pod>, String> {
        self.until(&format!("all ranks run {what}"), || {
            let gang = self.gang().ok()?;
            gang.iter().all(|pod| pod.phase == "Running" && is_it(pod)).then_some(())
        })?;
        let attempt = self.attempt_at_fault();
        self.until("a step of it", || {
            self.steps.last().is_some_and(|sample| sample.attempt > attempt).then_some(())
        })?;
        self.inside()
    }

    /// The run of rank 0 during which the fault came.
    fn attempt_at_fault(&self) -> u32 {
        let samples = self.steps.samples();
        let before = samples.iter().rfind(|sample| self.found.fault_ms.is_none_or(|at| sample.at_ms <= at));
        before.map_or(0, |sample| sample.attempt)
    }

    pub(super) fn step(&self) -> u64 {
        self.steps.last().map(|sample| sample.step).unwrap_or_default()
    }

    /// Waits for a step, of whatever attempt.
    pub(super) fn reach(&self, step: u64) -> Result<(), String> {
        self.until(&format!("step {step}"), || (self.step() >= step).then_some(()))
    }

    /// Waits for more steps than those that are done.
    pub(super) fn go_on(&self, steps: u64) -> Result<(), String> {
        self.reach(self.step() + steps)
    }

    /// The fault itself comes now.
    pub(super) fn inject(&mut self, what: impl Into<String>) {
        self.inject_at(now_ms(), what);
    }

    /// The fault itself came at this time.
    pub(super) fn inject_at(&mut self, at_ms: u64, what: impl Into<String>) {
        let step = self.step();
        self.found.inject(at_ms, step, what.into());
    }

    /// The drill did something.
    pub(super) fn note(&mut self, what: impl Into<String>) {
        self.found.note(now_ms(), what);
    }

    /// The API server shows the fault now.
    pub(super) fn shown(&mut self, from: &str, what: impl Into<String>) {
        let at = now_ms();
        self.found.noticed(at);
        self.found.quote(from, Some(at), what);
    }

    /// Judges an expectation, by its number, once the job has ended.
    pub(super) fn at_end(&mut self, number: usize, late: Late) {
        self.late.push((number, late));
    }

    /// The process of the rank in a pod, which is not that of the launcher.
    pub(super) fn pid(pod: &Pod) -> Result<Pid, String> {
        let uid = format!("POD_UID={}\0", pod.uid);
        let is_it = |pid: &i32| {
            let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            read("cmdline").starts_with(b"ring-allreduce\0")
                && String::from_utf8_lossy(&read("environ")).contains(&uid)
        };
        let processes = fs::read_dir("/proc").map_err(|e| e.to_string())?;
        let mut pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.find(is_it).map(Pid::from_raw).ok_or_else(|| format!("no process of {} was found", pod.name))
    }

    pub(super) fn signal(pid: Pid, signal: Signal) -> Result<(), String> {
        kill(pid, signal).map_err(|e| format!("{signal} to process {pid}: {e}"))
    }

    /// Lets the job end some steps after the fault, and checks its result and what is judged at the end; once.
    pub(super) fn finish(&mut self) -> Result<(), String> {
        if self.found.are_finished() {
            return Ok(());
        }
        let goes_on = match self.found.fault_ms {
            Some(_) => self.reach(self.found.at_fault + EVERY),
            None => Ok(()),
        };
        self.after = self.inside().unwrap_or_default();
        let finish = self.folder.join("finish");
        fs::write(&finish, "").map_err(|e| format!("{}: {e}", finish.display()))?;
        let how = self.cluster.wait("the end of the job", || self.ending())?;
        self.ended_ms = Some(now_ms());
        let number = self.found.number(FINISHES).unwrap_or_default();
        match self.verified(&how) {
            Ok(result) => {
                self.found.check(number, true, format!("the job is {how}; {result}"));
                self.result = Some(result);
            }
            Err(why) => self.found.check(number, false, format!("the job is {how}; {why}")),
        }
        let (holds, found) = self.was_whole();
        self.found.check(self.found.number(WHOLE).unwrap_or_default(), holds, found);
        for (number, late) in std::mem::take(&mut self.late) {
            let (holds, found) = self.judge(late);
            self.found.check(number, holds, found);
        }
        goes_on
    }

    /// What the job printed and saved, if that is the correct result.
    fn verified(&mut self, how: &str) -> Result<String, String> {
        if !how.starts_with("Complete") {
            return Err("it did not complete".to_owned());
        }
        let first = self.after.first().ok_or("rank 0 had no pod before the end")?;
        let node = self.cluster.number(first.node.as_deref().unwrap_or_default())?;
        let printed = self.cluster.plane.nodes()[node].printed("default", &first.name);
        let printed = Printed::of_lines(printed.lines().map(str::to_owned))?;
        self.printed = Some(printed);
        printed.verified(RANKS, self.step(), &self.folder.join("checkpoint"))
    }

    fn was_whole(&self) -> (bool, String) {
        if let Some(why) = self.cluster.pods.ended() {
            return (false, format!("the watch of pods ended: {why}"));
        }
        let mut found = whole(&self.cluster.pods.seen(), self.job, RANKS);
        let longest = time(i64::try_from(found.longest_ms).unwrap_or(i64::MAX));
        found.twice.extend(self.seen_twice.iter().cloned());
        let twice: Vec<&str> = found.twice.iter().map(String::as_str).collect();
        let twice = if twice.is_empty() { "no GPU twice".to_owned() } else { twice.join("; ") };
        let is_part = if found.is_part { ", and does so still" } else { "" };
        let holds = found.twice.is_empty() && !found.is_part && found.longest_ms <= PART_MS;
        (holds, format!("in part for at most {longest}{is_part}; {twice}"))
    }

    /// Whether an expectation held until the end of the job, and what was found.
    fn judge(&self, late: Late) -> (bool, String) {
        let again =
            steps(&self.steps.samples(), self.printed.as_ref(), self.found.at_fault, self.found.fault_ms)
                .again;
        let same = |pods: &[Pod], rank: u32| {
            let pod = |pods: &[Pod]| {
                let pod = pods.iter().find(|pod| pod.rank == rank)?;
                Some((pod.uid.clone(), pod.place()))
            };
            pod(pods).is_some() && pod(pods) == pod(&self.before)
        };
        match late {
            Late::Stays => {
                let attempt = self.attempt_at_fault();
                let restarts = self.steps.last().map_or(0, |sample| sample.attempt.saturating_sub(attempt));
                let is_stop = |told: &&Told| STOPS.contains(&&*told.reason);
                let stops: Vec<Told> = self.told().into_iter().map(|(_, told)| told).collect();
                let stops: Vec<String> =
                    stops.iter().filter(is_stop).map(|told| told.message.clone()).collect();
                let kept = (0..RANKS).filter(|rank| same(&self.after, *rank)).count();
                let events = if stops.is_empty() { "none".to_owned() } else { stops.join("; ") };
                let found = format!(
                    "at the end: {kept} of {RANKS} pods of before on their nodes and GPUs, {restarts} restarts of ranks; events \
                     of a stop: {events}"
                );
                (kept == RANKS as usize && restarts == 0 && stops.is_empty(), found)
            }
            Late::OthersStay(victim) => {
                let others: Vec<u32> = (0..RANKS).filter(|rank| *rank != victim).collect();
                let kept = others.iter().filter(|rank| same(&self.after, **rank)).count();
                let found = format!("at the end: {kept} of {} other pods are those of before", others.len());
                (kept == others.len(), found)
            }
            Late::FewAgain | Late::NoneAgain => {
                let most = if matches!(late, Late::FewAgain) { EVERY } else { 0 };
                // The job itself says from where it went on.
                let is_known = self.printed.is_some();
                let found = if is_known { "" } else { "; the job printed no result" };
                (is_known && again <= most, format!("{again} steps were done again{found}"))
            }
        }
    }

    /// What Phalanx reported of the job in events.
    pub(super) fn told(&self) -> Vec<(u64, Told)> {
        let events = self.cluster.events.seen().into_iter().skip(self.old_events);
        let (job, pods) = (format!("job/{}", self.job), format!("pod/{}-", self.job));
        let is_ours = |told: &Told| told.about == job || told.about.starts_with(&pods);
        events.filter(|(_, told)| told.by == PHALANX && is_ours(told)).collect()
    }

    /// Puts all that was seen into the record of the fault.
    pub(super) fn record(&mut self, record: &mut Record) {
        let since = self.found.fault_ms.unwrap_or(u64::MAX);
        for (at, told) in self.told().into_iter().filter(|(at, _)| *at >= since) {
            let Told { about, reason, message, .. } = told;
            self.found.quote(
                format!("kubectl events --for {about}"),
                Some(at),
                format!("{reason}: {message}"),
            );
        }
        if let Some((at, _)) = self.told().iter().find(|(at, _)| *at >= since) {
            // A fault that no object shows before Phalanx reports it.
            self.found.noticed(*at);
        }
        self.found.fill(record);
        record.samples = self.steps.samples();
        let Findings { fault_ms, at_fault, noticed_ms, .. } = self.found;
        if let Some(fault_ms) = fault_ms {
            let mut pods = self.cluster.pods.seen();
            pods.retain(|(_, pod)| pod.job == self.job);
            let (samples, ended_ms) = (&*record.samples, self.ended_ms);
            record.phases = phases(&pods, &Around { fault_ms, noticed_ms, ended_ms, samples });
        }
        record.steps = steps(&record.samples, self.printed.as_ref(), at_fault, fault_ms);
        let places = |pods: &[Pod]| pods.iter().map(Pod::place).collect();
        record.placed = [places(&self.before), places(&self.after)];
        record.result.clone_from(&self.result);
    }
}

/// The GPUs that the rank in a pod sees.
fn given(pod: &Pod) -> Option<String> {
    let pid = Scene::pid(pod).ok()?;
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let environment = String::from_utf8_lossy(&environment);
    let gpus = environment.split('\0').find_map(|one| one.strip_prefix("NVIDIA_VISIBLE_DEVICES="))?;
    let mask: DeviceMask = gpus.split(',').filter_map(gpu_of).collect();
    Some(mask.to_string())
}

/// The pods of a Job see a folder of all nodes, know their UID and the attempt of their gang, and leave a node that is not heard of after two seconds.
fn mounted(mut job: Value, folder: &Path) -> Value {
    let spec = &mut job["spec"]["template"]["spec"];
    spec["volumes"] = json!([{ "name": "work", "hostPath": { "path": folder, "type": "Directory" } }]);
    let away = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"];
    let away = away.map(
        |key| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2 }),
    );
    spec["tolerations"] = json!(away);
    let main = &mut spec["containers"][0];
    main["volumeMounts"] = json!([{ "name": "work", "mountPath": "/drill" }]);
    let told = [("POD_UID", "metadata.uid"), ("ATTEMPT", "metadata.annotations['phalanx.dev/attempt']")];
    let told =
        told.map(|(name, path)| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } }));
    if let Some(env) = main["env"].as_array_mut() {
        env.extend(told);
    }
    job
}
