//! What watches at the API server saw of pods and events, and what follows from it: nothing can change it later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use phalanx_controlplane::Api;
use phalanx_model::DeviceMask;
use serde_json::Value;

use crate::drill::record::{Phases, Sample};
use crate::drill::ring::now_ms;

/// Records what becomes of objects until the API server ends.
pub(super) struct Recorder<T> {
    seen: Arc<Mutex<Vec<(u64, T)>>>,
    /// Why nothing is seen any more.
    ended: Arc<Mutex<Option<String>>>,
}

impl<T: Clone + Send + 'static> Recorder<T> {
    /// From now on, of the objects of a path.
    pub(super) fn start(api: &Api, path: &str, read: fn(&Value) -> Option<T>) -> Result<Self, String> {
        let events = api.follow(path).map_err(|e| e.to_string())?;
        let (seen, ended) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(None)));
        let recorder = Self { seen: Arc::clone(&seen), ended: Arc::clone(&ended) };
        std::thread::spawn(move || {
            let mut why = "the API server ended the watch".to_owned();
            for event in events {
                match event {
                    Ok(event) => {
                        let read = read(&event).map(|read| (now_ms(), read));
                        seen.lock().unwrap_or_else(PoisonError::into_inner).extend(read);
                    }
                    Err(error) => why = error.to_string(),
                }
            }
            *ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        });
        Ok(recorder)
    }

    /// All that was seen, each with its time in milliseconds since 1970.
    pub(super) fn seen(&self) -> Vec<(u64, T)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether something such was seen.
    pub(super) fn any(&self, is_it: impl Fn(&T) -> bool) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().any(|(_, seen)| is_it(seen))
    }

    pub(super) fn ended(&self) -> Option<String> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A pod of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) job: String,
    pub(super) rank: u32,
    pub(super) node: Option<String>,
    pub(super) devices: Option<String>,
    pub(super) phase: String,
    /// It has a time of deletion.
    pub(super) is_leaving: bool,
    /// The API server has it no more.
    pub(super) is_gone: bool,
}

impl Pod {
    /// Of an event of a watch.
    pub(super) fn of_event(event: &Value) -> Option<Self> {
        Some(Self { is_gone: event["type"] == "DELETED", ..Self::of(&event["object"])? })
    }

    /// A pod of an indexed Job.
    pub(super) fn of(pod: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let meta = &pod["metadata"];
        let annotations = &meta["annotations"];
        Some(Self {
            name: text(&meta["name"])?,
            uid: text(&meta["uid"])?,
            job: text(&meta["labels"]["batch.kubernetes.io/job-name"])?,
            rank: annotations["batch.kubernetes.io/job-completion-index"].as_str()?.parse().ok()?,
            node: text(&pod["spec"]["nodeName"]),
            devices: text(&annotations["phalanx.dev/devices"]),
            phase: text(&pod["status"]["phase"]).unwrap_or_default(),
            is_leaving: meta["deletionTimestamp"].is_string(),
            is_gone: false,
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_gone || matches!(&*self.phase, "Succeeded" | "Failed")
    }

    /// It has a node, and has not ended.
    fn holds(&self) -> bool {
        self.node.is_some() && !self.is_over()
    }

    /// `real-1: GPU 0-3`.
    pub(super) fn place(&self) -> String {
        let node = self.node.as_deref().unwrap_or("no node");
        format!("{node}: GPU {}", self.devices.as_deref().unwrap_or("none"))
    }
}

/// An event of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// The object, as in `pod/train-0-abcde`.
    pub(super) about: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) by: String,
}

impl Told {
    pub(super) fn of_event(event: &Value) -> Option<Self> {
        let (object, text) =
            (&event["object"], |value: &Value| value.as_str().unwrap_or_default().to_owned());
        let about = &object["involvedObject"];
        let by = [&object["reportingComponent"], &object["source"]["component"]].map(text);
        (event["type"] != "DELETED").then(|| Self {
            about: format!("{}/{}", text(&about["kind"]).to_lowercase(), text(&about["name"])),
            reason: text(&object["reason"]),
            message: text(&object["message"]),
            by: by.into_iter().find(|by| !by.is_empty()).unwrap_or_default(),
        })
    }
}

/// When a pod reached what, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    bound: Option<u64>,
    running: Option<u64>,
    leaving: Option<u64>,
    ended: Option<u64>,
}

fn times(pods: &[(u64, Pod)]) -> BTreeMap<&str, Times> {
    let mut all: BTreeMap<&str, Times> = BTreeMap::new();
    for (at, pod) in pods {
        let of = all.entry(&pod.uid).or_default();
        let facts = [
            (&mut of.bound, pod.node.is_some()),
            (&mut of.running, pod.phase == "Running"),
            (&mut of.leaving, pod.is_leaving),
            (&mut of.ended, pod.is_over()),
        ];
        for (first, holds) in facts {
            if holds {
                first.get_or_insert(*at);
            }
        }
    }
    all
}

/// What is known of a gang beside its pods.
pub(super) struct Around<'a> {
    pub(super) fault_ms: u64,
    pub(super) noticed_ms: Option<u64>,
    pub(super) ended_ms: Option<u64>,
    pub(super) samples: &'a [Sample],
}

/// When a gang reached which phase after a fault: pods that were bound before the fault end, and others run. Of a gang that had no step
/// yet, all pods are new.
pub(super) fn phases(pods: &[(u64, Pod)], around: &Around<'_>) -> Phases {
    let fault = around.fault_ms;
    let after = |at: u64| i64::try_from(at).unwrap_or(i64::MAX) - i64::try_from(fault).unwrap_or(i64::MAX);
    let samples = around.samples;
    let begun = samples.iter().rfind(|sample| sample.at_ms <= fault).map_or(0, |sample| sample.attempt);
    let last = samples.last().map(|sample| sample.attempt).filter(|attempt| *attempt > begun);
    let first_step = last.and_then(|last| samples.iter().find(|sample| sample.attempt == last));
    let mut phases = Phases {
        noticed_ms: around.noticed_ms.map(after),
        first_step_ms: first_step.map(|sample| after(sample.at_ms)),
        ended_ms: around.ended_ms.map(after),
        ..Phases::default()
    };
    let Some(until) = first_step.map(|sample| sample.at_ms) else { return phases };
    let in_time = |at: Option<u64>| at.filter(|at| *at <= until);
    let times = times(pods);
    let (old, new): (Vec<&Times>, Vec<&Times>) =
        times.values().partition(|of| begun > 0 && of.bound.is_some_and(|at| at <= fault));
    // A pod whose node is silent stays on its way out.
    let gone = old.iter().filter_map(|of| in_time(of.ended).or(in_time(of.leaving)));
    let going = old.iter().filter_map(|of| in_time(of.leaving).into_iter().chain(in_time(of.ended)).min());
    let (stopping, stopped) = (going.min(), gone.max());
    let latest = |of: fn(&Times) -> Option<u64>| new.iter().filter_map(|times| in_time(of(times))).max();
    let placed = latest(|of| of.bound).max(stopped);
    let running = latest(|of| of.running).max(placed);
    phases.stopping_ms = stopping.map(after);
    phases.stopped_ms = stopped.map(after);
    phases.placed_ms = placed.map(after);
    phases.running_ms = running.map(after);
    phases
}

/// An agent corrects the annotation of a pod to the GPUs that the kubelet gave it, pod after pod. Two annotations that name one GPU
/// for no longer are such a correction.
const CORRECTED_MS: u64 = 15_000;

/// For how long a gang held GPUs without all of its ranks at most, in milliseconds, and whether it does so at the end; and pods
/// whose annotations named one GPU for longer than a correction takes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) longest_ms: u64,
    pub(super) is_part: bool,
    pub(super) twice: BTreeSet<String>,
}

/// `pods` are those of all Jobs.
pub(super) fn whole(pods: &[(u64, Pod)], job: &str, ranks: u32) -> Whole {
    let mut now: BTreeMap<&str, &Pod> = BTreeMap::new();
    let (mut found, mut since) = (Whole::default(), None);
    let mut pairs: BTreeMap<String, u64> = BTreeMap::new();
    for (at, pod) in pods {
        // What has ended well counts as done, also when it is deleted.
        if pod.is_gone && now.get(&*pod.uid).is_some_and(|before| before.phase == "Succeeded") {
            continue;
        }
        now.insert(&pod.uid, pod);
        let holders: Vec<&Pod> = now.values().copied().filter(|pod| pod.holds()).collect();
        let sharing: BTreeSet<String> = shared(&holders).into_iter().collect();
        pairs.retain(|pair, from| {
            if at.saturating_sub(*from) > CORRECTED_MS {
                found.twice.insert(pair.clone());
            }
            sharing.contains(pair)
        });
        sharing.into_iter().for_each(|pair| _ = pairs.entry(pair).or_insert(*at));
        let of_it = || now.values().filter(|pod| pod.job == job);
        let holds = of_it().any(|pod| pod.holds());
        let there = of_it().filter(|pod| pod.holds() || pod.phase == "Succeeded").map(|pod| pod.rank);
        let is_part = holds && there.collect::<BTreeSet<u32>>().len() < ranks as usize;
        match since {
            None if is_part => since = Some(*at),
            Some(from) if !is_part => {
                found.longest_ms = found.longest_ms.max(at.saturating_sub(from));
                since = None;
            }
            _ => {}
        }
    }
    found.is_part = since.is_some();
    found
}

/// Pods whose annotations name a GPU of another one.
fn shared(holders: &[&Pod]) -> Vec<String> {
    let mask = |pod: &Pod| pod.devices.as_ref().and_then(|devices| devices.parse::<DeviceMask>().ok());
    let mut pairs = Vec::new();
    for (at, pod) in holders.iter().enumerate() {
        let Some(own) = mask(pod) else { continue };
        let others = holders[at + 1..].iter().filter(|other| other.node == pod.node);
        for other in others.filter(|other| mask(other).is_some_and(|theirs| !own.and(theirs).is_empty())) {
            let (low, high) = if pod.name < other.name { (pod, other) } else { (other, pod) };
            pairs.push(format!("{} ({}) and {} ({})", low.name, low.place(), high.name, high.place()));
        }
    }
    pairs
}
