//! The fault drill on Kubernetes: a real control plane, real kubelets, and gangs of real processes in containers.
//!
//! | module | what lives there |
//! |---|---|
//! | `catalogue` | the faults, and what is expected of Phalanx |
//! | `cluster` | the cluster of all faults |
//! | `scene` | one fault: its gang, and what is seen of it |
//! | `pods`, `hardware`, `nodes`, `control` | how faults are injected |
//! | `seen` | what watches at the API server saw, and what follows from it |
//! | `steps` | steps of a gang over time |

mod catalogue;
mod cluster;
mod control;
mod hardware;
mod nodes;
mod pods;
mod scene;
mod seen;
mod steps;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::time::Instant;

use catalogue::{Begins, FAULTS, Fault};
use cluster::Cluster;
use scene::Scene;

use super::interrupt::{self, is_over};
use super::record::{Record, Report, Setting, Verdict};
use super::report::{end, guarded, machine, millis};
use super::ring::now_ms;
use super::settings::{Settings, Tools};

const SETTING: Setting = Setting {
    title: "Fault drill on Kubernetes",
    command: "make kube-drill",
    about: "All faults met one cluster with a real control plane and three real kubelets, one after the other. Each fault met a gang \
            job of its own: an indexed Job of 4 pods with 4 GPUs each, which runs a ring all-reduce between containers, checks every \
            sum, and writes a checkpoint every 10 steps.",
    times: "Times come from the clock of this machine: when the API server showed a change to a watch, and the files in which rank 0 \
            reports its steps. Kubernetes has delays of its own in them: its Job controller waits 10 s or more before it replaces a pod \
            that failed, and a node counts as lost some seconds after its kubelet fell silent. Real clusters have longer ones.",
    phases: "A gang stops from the first of its pods that is deleted or ends to the last one that ends, is placed when the last new pod has a \
             node (before that its Job has to create the pod), and runs when all pods run.",
    quotes: "What the API server showed",
};

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let settings = Settings::parse("kube-drill", &FAULTS.each_ref().map(|fault| fault.id), args)?;
    let tools = settings.tools()?;
    let faults: Vec<&Fault> = FAULTS.iter().filter(|fault| settings.takes(fault.id)).collect();
    interrupt::watch()?;
    let (began_ms, began) = (now_ms(), Instant::now());
    let missing = cluster::missing();
    let records = if missing.is_empty() {
        drill(&tools, &faults)?
    } else {
        faults.iter().map(|fault| Record { why: Some(missing.join("; ")), ..blank(fault) }).collect()
    };
    if is_over() {
        return Err("interrupted; the cluster of the drill was ended".to_owned());
    }
    let report = Report {
        setting: SETTING,
        began_ms,
        took_ms: millis(began),
        version: env!("CARGO_PKG_VERSION"),
        machine: machine(),
        faults: records,
    };
    end(&report, &settings, &[])
}

/// All faults, one after the other: each begins with the repaired cluster of the one before.
fn drill(tools: &Tools, faults: &[&Fault]) -> Result<Vec<Record>, String> {
    eprintln!("starting a control plane and {} nodes", cluster::NODES);
    let mut cluster = Cluster::start(tools)?;
    let mut records = Vec::new();
    for fault in faults {
        if is_over() {
            break;
        }
        let has_job = Cell::new(false);
        let record = guarded(|| blank(fault), || one(&mut cluster, fault, &has_job));
        records.push(Record { has_job: has_job.get(), ..record });
    }
    Ok(records)
}

/// Of a fault that was not tried.
fn blank(fault: &Fault) -> Record {
    Record::blank(fault.id, fault.title, fault.basis, fault.notice)
}

/// One fault, from the creation of its job to the repair of what the fault broke.
fn one(cluster: &mut Cluster, fault: &Fault, has_job: &Cell<bool>) -> Record {
    let mut record = Record { verdict: Verdict::Failed, ..blank(fault) };
    let mut scene = match Scene::start(cluster, fault.id, fault.expects) {
        Ok(scene) => scene,
        Err(why) => return Record { why: Some(why), ..record },
    };
    has_job.set(true);
    let begun = match fault.begins {
        Begins::Running => scene.begin(),
        Begins::Starting => Ok(()),
    };
    let injected = begun.and_then(|()| (fault.inject)(&mut scene));
    // Whatever became of the fault, the job is to finish.
    let ended = scene.finish();
    let ended = injected.and(ended);
    scene.record(&mut record);
    drop(scene);
    let ended = ended.map_err(|why| format!("{why}; the scheduler logged last: {}", cluster.last_lines()));
    let repaired = cluster.repair().map_err(|why| format!("the cluster was not repaired: {why}"));
    record.judge(ended.and(repaired));
    record
}
