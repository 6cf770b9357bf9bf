//! A fault drill: real daemons and gangs of real processes on one machine, one fault after another, and a report.
//!
//! | module | what lives there |
//! |---|---|
//! | `catalogue` | the faults, and what is expected of Phalanx |
//! | `scene` | one fault: its daemon, its gang, and what is seen of them |
//! | `ranks`, `hardware`, `host` | how faults are injected |
//! | `watch` | steps of a gang over time |
//! | `phases` | when its gang reached which phase |
//!
//! Shared with the drill on Kubernetes, which is in `kube`:
//!
//! | module | what lives there |
//! |---|---|
//! | `settings`, `interrupt` | the command line, and Ctrl-C |
//! | `ring` | the program of the gang |
//! | `findings`, `record` | what is found and recorded of a fault |
//! | `report` | the table, the exit code |
//! | `page`, `strip` | the report as a page, and its pictures |

mod catalogue;
mod findings;
mod hardware;
mod host;
mod interrupt;
mod kube;
mod page;
mod phases;
mod ranks;
mod record;
mod report;
mod ring;
mod scene;
mod settings;
mod strip;
#[cfg(test)]
mod tests;
mod watch;

#[path = "../../../crates/discover/tests/common/fake.rs"]
mod fake;

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use catalogue::{FAULTS, Fault};
use interrupt::is_over;
pub(crate) use kube::run as run_on_kubernetes;
use record::{Record, Report, Setting, Verdict};
use report::{end, guarded, machine, millis};
use ring::now_ms;
use scene::{Scene, Unplanned};
use settings::{Settings, Tools};

use crate::daemon::left;

/// Faults at once, each with a daemon of its own: most of the time a drill waits.
const LANES: usize = 3;
/// The fault that takes longest: a job is stalled after a minute.
const FIRST: &str = "rank-frozen";

const SETTING: Setting = Setting {
    title: "Fault drill",
    command: "make drill",
    about: "Each fault met a daemon of its own and a gang job of its own, which runs a ring all-reduce over sockets, checks every \
            sum, and writes a checkpoint every 10 steps.",
    times: "Times come from the clock of this machine: events of the job as the daemon wrote them, and the files in which rank 0 \
            reports its steps. They say what this machine does with ranks that stop within milliseconds; a real training job takes \
            longer to stop and to load its checkpoint.",
    phases: "",
    quotes: "What Phalanx reported",
};

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let settings = Settings::parse("drill", &FAULTS.each_ref().map(|fault| fault.id), args)?;
    let tools = settings.tools()?;
    let faults: Vec<&Fault> = FAULTS.iter().filter(|fault| settings.takes(fault.id)).collect();
    interrupt::watch()?;
    let (began_ms, began) = (now_ms(), Instant::now());
    let records = drill(&tools, &faults);
    let left = left();
    if is_over() {
        let jobs =
            if left.is_empty() { "all jobs of the drill were cancelled".to_owned() } else { left.join("; ") };
        return Err(format!("interrupted; {jobs}"));
    }
    let report = Report {
        setting: SETTING,
        began_ms,
        took_ms: millis(began),
        version: env!("CARGO_PKG_VERSION"),
        machine: machine(),
        faults: records,
    };
    end(&report, &settings, &left)
}

/// All faults, some at once; their records in the order of the faults.
fn drill(tools: &Tools, faults: &[&Fault]) -> Vec<Record> {
    let mut order: Vec<usize> = (0..faults.len()).collect();
    order.sort_by_key(|at| faults[*at].id != FIRST);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Record)>> = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for _ in 0..LANES.min(faults.len()) {
            threads.spawn(|| {
                while let Some(at) = order.get(next.fetch_add(1, Ordering::SeqCst)).filter(|_| !is_over()) {
                    let fault = faults[*at];
                    let has_job = Cell::new(false);
                    let record = guarded(|| blank(fault), || one(tools, fault, &has_job));
                    let record = Record { has_job: has_job.get(), ..record };
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((*at, record));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, record)| record).collect()
}

/// Of a fault that was not tried.
fn blank(fault: &Fault) -> Record {
    Record::blank(fault.id, fault.title, fault.basis, fault.notice)
}

/// One fault, from the start of its daemon to the end of its job.
fn one(tools: &Tools, fault: &Fault, has_job: &Cell<bool>) -> Record {
    let mut record = Record { verdict: Verdict::Failed, ..blank(fault) };
    let plan = match (fault.plan)() {
        Ok(plan) => plan,
        Err(Unplanned::Missing(why)) => {
            return Record { verdict: Verdict::PassedOver, why: Some(why), ..record };
        }
        Err(Unplanned::Failed(why)) => return Record { why: Some(why), ..record },
    };
    let mut scene = match Scene::start(tools, plan, fault.expects) {
        Ok(scene) => scene,
        Err(why) => return Record { why: Some(why), ..record },
    };
    has_job.set(true);
    let injected = scene.begin().and_then(|()| (fault.inject)(&mut scene));
    // Whatever became of the fault, the job is to finish.
    let ended = scene.finish();
    let ended = injected.and(ended);
    scene.record(&mut record);
    record
        .judge(ended.map_err(|why| format!("{why}; the daemon logged last: {}", scene.daemon.last_lines())));
    record
}
