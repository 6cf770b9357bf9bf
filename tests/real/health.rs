//! Sick hardware: evidence by people, by the kernel log and by NVIDIA's library (ours, which answers from a
//! description), what becomes of running jobs, and what a restart knows of it.

#[path = "../../crates/discover/tests/common/fake.rs"]
mod fake;

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use fake::Fake;
use phalanx_account::State;
use phalanx_api::protocol::{
    Answer, ErrorCode, HealthFinding, HealthReport, HealthView, JobRef, NodeFilter, NodeView, Verb,
};
use phalanx_health::{Line, Next};
use phalanx_model::{Grade, IdlePolicy, IdleThen, Job, JobId, NodeName, Queue, QueueName};

use crate::support::{Bench, NOBODY, TWO_NODES_OF_8, env, eventually, gang, is_root, refused, shell, until};

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// One rank with so many devices of one node.
fn on_gpus(count: u32) -> Job {
    let mut job = shell(1, "exec sleep 1000");
    gang(&mut job).needs.devices = count;
    job
}

fn report(node_name: &str, device: Option<u32>, finding: HealthFinding) -> Verb {
    let reason = "seen by hand".to_owned();
    Verb::ReportHealth(HealthReport { node: node(node_name), device, finding, reason })
}

fn health(bench: &Bench) -> HealthView {
    match bench.ask(Verb::Health { node: None }) {
        Ok(Answer::Health(view)) => view,
        other => panic!("{other:?}"),
    }
}

fn line(bench: &Bench, device: Option<u32>) -> Option<Line> {
    health(bench).lines.into_iter().find(|line| line.device == device)
}

fn grade(bench: &Bench, device: Option<u32>) -> Grade {
    line(bench, device).map_or(Grade::Ok, |line| line.grade)
}

fn nodes(bench: &Bench) -> Vec<NodeView> {
    match bench.ask(Verb::FindNodes(NodeFilter::default())) {
        Ok(Answer::Nodes(view)) => view.nodes,
        other => panic!("{other:?}"),
    }
}

fn devices(bench: &Bench, job: JobId) -> String {
    let view = bench.get(job);
    view.gangs[0].placement.as_ref().unwrap().slots[0].devices.to_string()
}

/// Runs again, in a later attempt.
fn await_attempt(bench: &Bench, job: JobId, attempt: u32) {
    until("another attempt that runs", || {
        let view = bench.get(job);
        view.state == "running" && view.gangs[0].attempt == attempt
    });
}

#[test]
fn a_gpu_that_an_operator_reports_moves_its_job_and_stays_closed_over_a_restart() {
    let mut bench = Bench::up_with(TWO_NODES_OF_8);
    let job = bench.submit(on_gpus(8));
    bench.await_state(job, "running");
    let (sick, other) = if bench.node_of(job) == "n1" { ("n1", "n2") } else { ("n2", "n1") };
    // The fault of a program closes nothing.
    bench.done(report(sick, Some(3), HealthFinding::Xid(31)));
    assert_eq!((grade(&bench, Some(3)), bench.get(job).gangs[0].attempt), (Grade::Ok, 1));

    let said = bench.done(report(sick, Some(3), HealthFinding::Xid(48)));
    assert_eq!(said, format!("GPU {sick}:3 is graded drain_now"));
    // It is counted among the losses of hardware, and so kept whole.
    let losses = || bench.get(job).events.into_iter().filter_map(|event| event.record);
    until("the loss", || {
        losses().any(|record| record["gang_stopping"]["cause"]["displaced"]["class"] == "node")
    });
    await_attempt(&bench, job, 2);
    assert_eq!(bench.node_of(job), other);
    let view = bench.get(job);
    let why = format!("device 3 of node {sick} is graded drain_now: Xid 48");
    assert!(view.events.iter().any(|event| event.detail.contains(&why)), "{:#?}", view.events);
    let known = line(&bench, Some(3)).unwrap();
    assert_eq!(known.next, Next::WhenReset, "{known:?}");
    let waits = bench.submit(on_gpus(8));
    assert_eq!(bench.get(waits).state, "pending");

    bench.kill();
    bench.up();
    assert_eq!(line(&bench, Some(3)), Some(known));
    let of_sick = nodes(&bench).into_iter().find(|of| of.name.as_str() == sick).unwrap();
    assert_eq!((of_sick.free.to_string().as_str(), bench.get(waits).state.as_str()), ("0-2,4-7", "pending"));

    // Without its file, the journal still knows the grades, and an operator hears of the loss.
    bench.kill();
    fs::write(bench.paths.root().join("health.json"), "{").unwrap();
    bench.up();
    assert_eq!(grade(&bench, Some(3)), Grade::DrainNow);
    assert!(bench.warnings().iter().any(|warning| warning.contains("health.json")), "{:?}", bench.warnings());

    bench.done(Verb::ClearHealth { node: node(sick), device: Some(3) });
    bench.await_state(waits, "running");
    assert_eq!(bench.node_of(waits), sick);
    assert_eq!(grade(&bench, Some(3)), Grade::Suspect, "it is watched");
    bench.cancel(waits);
    bench.cancel(job);
}

#[test]
fn gangs_avoid_a_node_whose_network_was_measured_to_be_slow() {
    let mut bench = Bench::up_with("nodes:\n- {name: 'n[1-3]', devices: {count: 8, model: Test GPU}}\n");
    let two_nodes = || {
        let mut job = on_gpus(8);
        (gang(&mut job).size, gang(&mut job).min, gang(&mut job).max) = (2, 2, 2);
        job
    };
    let on = |bench: &Bench, job: JobId| -> Vec<String> {
        bench.await_state(job, "running");
        let placement = bench.get(job).gangs[0].placement.clone().unwrap();
        placement.slots.iter().map(|slot| slot.node.to_string()).collect()
    };
    let said = bench.done(report("n1", None, HealthFinding::Bandwidth(400)));
    let measured = "its network has 40% of its bandwidth, measured just now";
    assert!(
        said.starts_with("new gangs of several nodes avoid node n1") && said.contains(measured),
        "{said}"
    );
    let of_gpu = bench.ask(report("n1", Some(1), HealthFinding::Bandwidth(400)));
    assert_eq!(refused(of_gpu).code, ErrorCode::BadRequest);
    let job = bench.submit(two_nodes());
    assert_eq!(on(&bench, job), ["n2", "n3"]);
    let starting = bench.get(job).events.into_iter().find(|event| event.what == "starting").unwrap();
    assert!(starting.detail.contains("n1 was avoided: its network has 40%"), "{starting:?}");
    bench.cancel(job);
    bench.await_state(job, "cancelled");

    // A restart knows it, also one that lost the file of the evidence.
    for is_lost in [false, true] {
        bench.kill();
        if is_lost {
            fs::remove_file(bench.paths.root().join("health.json")).unwrap();
        }
        bench.up();
        let slow = nodes(&bench).into_iter().find(|node| node.name.as_str() == "n1").unwrap().bandwidth;
        assert_eq!(slow.map(|of| of.permille), Some(400), "the file is lost: {is_lost}");
        assert_eq!(health(&bench).bandwidths.len(), 1);
    }
    bench.done(Verb::ClearHealth { node: node("n1"), device: None });
    assert!(health(&bench).bandwidths.is_empty());
    let job = bench.submit(two_nodes());
    assert_eq!(on(&bench, job), ["n1", "n2"]);
    bench.cancel(job);
}

#[test]
fn a_node_that_is_reported_is_left_as_a_whole() {
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let job = bench.submit(on_gpus(2));
    bench.await_state(job, "running");
    let sick = bench.node_of(job);
    bench.done(report(&sick, None, HealthFinding::Grade(Grade::DrainAfterJob)));
    let next = bench.submit(on_gpus(2));
    bench.await_state(next, "running");
    assert_ne!(bench.node_of(next), sick);
    assert_eq!(bench.get(job).gangs[0].attempt, 1, "it may end there");
    bench.done(report(&sick, None, HealthFinding::Grade(Grade::Broken)));
    await_attempt(&bench, job, 2);
    assert_ne!(bench.node_of(job), sick);
    for job in [job, next] {
        bench.cancel(job);
    }
}

/// The node has not failed yet. The job goes on until its next checkpoint, and another node is kept for it while it stops, also
/// by the next daemon.
#[test]
fn a_job_moves_off_a_degraded_gpu_after_a_checkpoint() {
    let mut bench = Bench::new(TWO_NODES_OF_8);
    let queues = bench.path("queues.yaml");
    fs::write(&queues, "migration: {when: always}\n").unwrap();
    bench.up_with_queues(&queues);
    let out = bench.path("out");
    fs::create_dir(&out).unwrap();
    let stops_late = "trap 'until [ -e $OUT/saved ]; do sleep 0.05; done; exit 0' TERM
        while :; do [ -e $OUT/save ] && touch $PHALANX_CHECKPOINTED; sleep 0.1; done";
    let mut job = shell(1, stops_late);
    job.policy.stop.grace_ms = 600_000;
    gang(&mut job).needs.devices = 8;
    gang(&mut job).program.env = env(&[("OUT", out.to_str().unwrap())]);
    let job = bench.submit(job);
    bench.await_state(job, "running");
    let (sick, other) = if bench.node_of(job) == "n1" { ("n1", "n2") } else { ("n2", "n1") };
    bench.done(report(sick, Some(3), HealthFinding::Grade(Grade::DrainAfterJob)));
    assert_eq!(bench.get(job).state, "running");

    fs::write(out.join("save"), "").unwrap();
    bench.await_state(job, "stopping");
    let next = bench.submit(on_gpus(8));
    let kept = |bench: &Bench| -> Vec<String> {
        let kept = nodes(bench).into_iter().filter(|node| node.is_spare);
        kept.map(|node| node.name.to_string()).collect()
    };
    assert_eq!((bench.get(next).state.as_str(), kept(&bench)), ("pending", vec![other.to_owned()]));
    bench.kill();
    bench.up_with_queues(&queues);
    assert_eq!((bench.get(next).state.as_str(), kept(&bench)), ("pending", vec![other.to_owned()]));

    fs::remove_file(out.join("save")).unwrap();
    fs::write(out.join("saved"), "").unwrap();
    await_attempt(&bench, job, 2);
    assert_eq!((bench.node_of(job).as_str(), kept(&bench)), (other, vec![]));
    let why = format!(
        "device 3 of node {sick} is graded drain_after_job: root: seen by hand; moves after a checkpoint"
    );
    let view = bench.get(job);
    assert!(view.events.iter().any(|event| event.detail == why), "{:#?}", view.events);
    for job in [job, next] {
        bench.cancel(job);
    }
}

#[test]
fn only_operators_report_and_clear_and_what_does_not_exist_is_refused() {
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let xid = || HealthFinding::Xid(79);
    let error = refused(bench.ask(report("n1", Some(8), xid())));
    assert_eq!((error.code, error.hint.as_str()), (ErrorCode::NotFound, "its GPUs are 0 to 7"));
    let error = refused(bench.ask(report("n9", None, xid())));
    assert_eq!((error.code, error.hint.as_str()), (ErrorCode::NotFound, "nodes are n1, n2"));
    let error = refused(bench.ask(Verb::ClearHealth { node: node("n1"), device: Some(0) }));
    assert_eq!(error.code, ErrorCode::BadRequest);
    if !is_root("only_operators_report_and_clear_and_what_does_not_exist_is_refused") {
        return;
    }
    let clear = Verb::ClearHealth { node: node("n1"), device: Some(0) };
    for verb in [report("n1", Some(0), xid()), clear] {
        match &bench.ask_as(NOBODY, &verb)[..] {
            [Answer::Error(error)] => assert_eq!(error.code, ErrorCode::Forbidden),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(grade(&bench, Some(0)), Grade::Ok);
}

/// Four GPUs at these addresses.
const FOUR: [&str; 4] = ["00000000:3B:00.0", "00000000:5E:00.0", "00000000:86:00.0", "00000000:AF:00.0"];

/// `more`: further lines.
fn four(more: &str) -> String {
    four_busy([90, 91, 92, 93], more)
}

/// With these shares of time in which kernels run.
fn four_busy(busy: [u32; 4], more: &str) -> String {
    let gpus = FOUR.iter().zip(busy).enumerate().map(|(at, (address, busy))| {
        format!(
            "gpu{at} at {address}\ngpu{at} name NVIDIA H100 80GB HBM3\ngpu{at} uuid GPU-{at}\n\
             gpu{at} memory 85899345920\ngpu{at} vitals busy={busy} memory=1073741824 temperature=6{at} power=650000 ecc=0,0\n"
        )
    });
    format!("driver 580.65.06\n{}{more}", gpus.collect::<String>())
}

/// A daemon on a machine with these GPUs.
struct Machine {
    bench: Bench,
    fake: Fake,
    /// A DCGM exporter.
    dcgm: Option<String>,
}

impl Machine {
    fn new() -> Option<Self> {
        Self::scraped(None)
    }

    fn scraped(dcgm: Option<String>) -> Option<Self> {
        let fake = Fake::new(&four(""))?;
        let mut machine = Self { bench: Bench::new("nodes: []\n"), fake, dcgm };
        fs::write(machine.bench.path("kernel.log"), "").unwrap();
        machine.up();
        Some(machine)
    }

    fn up(&mut self) {
        let folder = self.fake.library().parent().unwrap().display().to_string();
        let log = self.bench.path("kernel.log").display().to_string();
        let dcgm = self.dcgm.as_ref().map_or_else(String::new, |url| format!("PHALANX_TEST_DCGM={url} "));
        let script = format!(
            "{dcgm}LD_LIBRARY_PATH={folder} PHALANX_TEST_KERNEL_LOG={log} exec \"$0\" \"$1\" \"$2\" /dev/null"
        );
        self.bench.up_by(Some(&script));
    }

    fn kernel_says(&self, line: &str) {
        let mut log = OpenOptions::new().append(true).open(self.bench.path("kernel.log")).unwrap();
        writeln!(log, "{line}").unwrap();
    }
}

#[test]
fn xids_and_lost_gpus_of_a_found_machine_move_its_jobs() {
    let Some(mut machine) = Machine::new() else { return };
    let bench = &machine.bench;
    let job = bench.submit(on_gpus(1));
    bench.await_state(job, "running");
    let device: usize = devices(bench, job).parse().unwrap();
    let samples = eventually("samples", || Some(health(bench).samples).filter(|all| all.len() == 4));
    let busy: Vec<Option<u32>> = samples.iter().map(|sample| sample.vitals.busy_percent).collect();
    assert_eq!(busy, [Some(90), Some(91), Some(92), Some(93)]);

    // A program cannot report an Xid: its words do not begin the message of the kernel.
    let address = FOUR[device].replacen("00000000", "0000", 1).to_lowercase();
    machine.kernel_says(&format!(
        "[  100.5] my NVRM: Xid (PCI:{address}): 79, pid=1, GPU has fallen off the bus."
    ));
    machine.kernel_says(&format!("[  100.5] NVRM: Xid (PCI:{address}): 13, pid=1, Graphics Exception"));
    let index = u32::try_from(device).unwrap();
    until("the Xid", || line(bench, Some(index)).is_some());
    assert_eq!((grade(bench, Some(index)), bench.get(job).gangs[0].attempt), (Grade::Ok, 1));

    machine
        .kernel_says(&format!("[  100.5] NVRM: Xid (PCI:{address}): 79, pid=1, GPU has fallen off the bus."));
    await_attempt(bench, job, 2);
    let second: u32 = devices(bench, job).parse().unwrap();
    assert_ne!(second, index);
    assert_eq!(grade(bench, Some(index)), Grade::Broken);

    // The GPU of the job does not answer any more.
    machine.fake.describe(&four(&format!("gpu{second} lost\n")));
    await_attempt(bench, job, 3);
    let third: u32 = devices(bench, job).parse().unwrap();
    assert!(third != index && third != second, "{third}");

    // A daemon that starts meanwhile does not number the others anew.
    machine.bench.kill();
    machine.up();
    let bench = &machine.bench;
    let all = nodes(bench).remove(0);
    assert_eq!((all.devices, all.health.closed_devices().count()), (4, 2), "{all:?}");
    assert_eq!(devices(bench, job), third.to_string());
    assert_eq!(bench.get(job).gangs[0].attempt, 3);
    let lost = line(bench, Some(second)).unwrap();
    assert_eq!((lost.grade, lost.next), (Grade::Broken, Next::WhenRebooted), "{lost:?}");

    // It answers again, and an operator trusts it.
    machine.fake.describe(&four(""));
    until("a sample", || health(bench).samples.iter().all(|sample| !sample.vitals.is_lost));
    bench.done(Verb::ClearHealth { node: all.name, device: Some(second) });
    until("a free GPU", || nodes(bench)[0].free.contains(second));
    bench.cancel(job);
}

#[test]
fn a_job_that_does_not_use_its_gpus_is_said_and_charged_as_idle() {
    let Some(machine) = Machine::new() else { return };
    let bench = &machine.bench;
    let notices = bench.path("notices");
    let mut job = on_gpus(2);
    let command = format!("sh -c 'echo $PHALANX_EVENT >> {}'", notices.display());
    gang(&mut job).program.notify = Some(command);
    let job = bench.submit(job);
    bench.await_state(job, "running");
    // DCGM's exporter reads whose the GPUs are.
    let mapped = || -> Vec<(String, String)> {
        let files = fs::read_dir(bench.path("state/dcgm")).unwrap().map(Result::unwrap);
        let whole = files.filter(|file| file.path().extension().is_none());
        let mut all: Vec<(String, String)> = whole
            .map(|file| {
                (file.file_name().into_string().unwrap(), fs::read_to_string(file.path()).unwrap_or_default())
            })
            .collect();
        all.sort();
        all
    };
    let held = bench.get(job).gangs[0].members[0].devices;
    let of_job: Vec<(String, String)> =
        held.iter().map(|device| (device.to_string(), format!("test-{job}\n"))).collect();
    until("the mapping", || mapped() == of_job);
    let usage = || bench.get(job).gangs[0].usage;
    let busy = eventually("a sample", usage);
    assert!(busy.busy_percent >= 90 && busy.idle_since.is_none(), "{busy:?}");

    machine.fake.describe(&four_busy([0; 4], ""));
    until("idle GPUs", || usage().is_some_and(|usage| usage.idle_since.is_some()));
    let said = |what: &str| bench.get(job).events.iter().filter(|event| event.what == what).count();
    assert_eq!((said("idle"), said("idle no more")), (1, 0));
    until("the notice", || bench.read("notices").lines().any(|line| line == "idle"));
    let charged = |state| {
        let view = crate::account::bill(bench, &[]);
        view.lines.iter().map(|line| line.sum(|of| of == state)).sum::<i64>()
    };
    until("the charge", || charged(State::HeldIdle) > 0);

    machine.fake.describe(&four(""));
    until("work", || usage().is_some_and(|usage| usage.idle_since.is_none()));
    assert_eq!((said("idle"), said("idle no more")), (1, 1));
    bench.cancel(job);
    bench.ended(job);
    until("an empty mapping", || mapped().is_empty());
    let after = charged(State::HeldIdle);
    assert_eq!(charged(State::HeldIdle), after, "it holds nothing any more");
}

/// The queue takes GPUs of idle jobs for others, and of no more jobs than these need.
#[test]
fn an_idle_job_is_stopped_and_held_by_the_rule_of_its_queue_once_another_waits() {
    let Some(machine) = Machine::new() else { return };
    let bench = &machine.bench;
    let idle = |then| IdlePolicy { after_ms: 1, notice_ms: 1, then, ..IdlePolicy::default() };
    let apply = |rule: IdlePolicy| {
        let queue = |name: &str| Queue::named(QueueName::new(name).unwrap());
        let research = Queue { idle: Some(rule), ..queue("research") };
        let vision = Queue { parent: Some(research.name.clone()), ..queue("vision") };
        let queues = vec![research, vision];
        bench.done(Verb::ApplyQueues { settings: Box::new(crate::story::settings()), queues });
    };
    let notices = bench.path("notices");
    let submit = |count: u32| {
        let mut job = on_gpus(count);
        job.queue = QueueName::new("vision").unwrap();
        let command = format!("sh -c 'echo $PHALANX_JOB_ID $PHALANX_EVENT >> {}'", notices.display());
        gang(&mut job).program.notify = Some(command);
        bench.submit(job)
    };
    apply(idle(IdleThen::Hold));
    machine.fake.describe(&four_busy([0; 4], ""));
    let (first, second) = (submit(2), submit(2));
    let idle_since = |job| bench.get(job).gangs[0].usage.and_then(|usage| usage.idle_since);
    until("idle GPUs", || idle_since(first).is_some() && idle_since(second).is_some());
    assert!([first, second].iter().all(|job| bench.get(*job).state == "running"), "nobody waits");

    let next = submit(2);
    bench.await_state(next, "running");
    let reason = |job| bench.get(job).reason;
    let (taken, stays) = if bench.get(first).state == "pending" { (first, second) } else { (second, first) };
    until("the hold", || reason(taken) == "Held");
    let events = bench.get(taken).events;
    let by = "by the idle rule of queue research";
    assert!(events.iter().any(|e| e.what == "stopped and held" && e.detail.contains(by)), "{events:#?}");
    assert_eq!((bench.get(stays).state.as_str(), bench.get(stays).gangs[0].attempt), ("running", 1));
    let lines = |event: &str, job: JobId| {
        let wanted = format!("{job} {event}");
        bench.read("notices").lines().filter(|line| *line == wanted).count()
    };
    until("the notices", || lines("idle_taken", taken) == 1 && lines("idle", taken) == 1);
    assert_eq!(lines("idle_taken", stays), 0);

    // Whoever uses them keeps them, though another waits.
    machine.fake.describe(&four(""));
    until("work", || [stays, next].iter().all(|job| idle_since(*job).is_none()));
    bench.done(Verb::Release { job: JobRef::Id(taken) });
    until("a job that waits for room", || reason(taken) == "Resources");
    assert!([stays, next].iter().all(|job| bench.get(*job).gangs[0].attempt == 1));
    bench.cancel(taken);

    // The same with a rule that cancels in any case.
    apply(IdlePolicy { is_on_demand: false, ..idle(IdleThen::End) });
    machine.fake.describe(&four_busy([0; 4], ""));
    for job in [stays, next] {
        assert_eq!(bench.ended(job).state, "cancelled");
    }
}

/// Somebody started a program on the machine without asking for a GPU.
#[test]
fn a_gpu_that_others_use_goes_to_no_job_until_they_end() {
    let Some(machine) = Machine::new() else { return };
    let bench = &machine.bench;
    let foreign = || nodes(bench)[0].foreign;
    assert!(foreign().is_empty());
    let taken = four("").replacen("busy=92 memory=1073741824", "busy=92 memory=21474836480", 1);
    machine.fake.describe(&taken);
    until("its use", || foreign().to_string() == "2");
    let warning = "processes outside of jobs use its memory";
    assert!(bench.warnings().iter().any(|said| said.contains(warning)), "{:?}", bench.warnings());
    let all = bench.submit(on_gpus(4));
    let three = bench.submit(on_gpus(3));
    bench.await_state(three, "running");
    assert_eq!((devices(bench, three).as_str(), bench.get(all).state.as_str()), ("0-1,3", "pending"));
    // What jobs hold is their own, however full it is.
    machine.fake.describe(&taken.replace("memory=1073741824", "memory=64424509440"));
    let sampled = |device: usize| health(bench).samples[device].vitals.memory_used_bytes;
    until("other samples", || sampled(0) == Some(64_424_509_440));
    machine.fake.describe(&four(""));
    until("no use", || foreign().is_empty());
    assert!(bench.warnings().iter().all(|said| !said.contains(warning)));
    bench.cancel(three);
    bench.await_state(all, "running");
}

/// A DCGM exporter that serves this text, or answers that it is unavailable.
fn exporter(text: &Arc<Mutex<Option<String>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    let text = Arc::clone(text);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while request.read_line(&mut line).unwrap_or(0) > 2 {
                line.clear();
            }
            let (status, body) = match text.lock().unwrap().clone() {
                Some(body) => ("200 OK", body),
                None => ("503 Service Unavailable", String::new()),
            };
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    url
}

#[test]
fn a_dcgm_exporter_takes_the_place_of_nvml_and_its_silence_grades_nothing() {
    let series = |metric: &str, gpu: u32, value: u32| {
        format!("DCGM_FI_DEV_{metric}{{gpu=\"{gpu}\",UUID=\"GPU-{gpu}\",Hostname=\"gpu-1\"}} {value}\n")
    };
    let all = |errors: u32| {
        let gpu = |gpu| series("GPU_TEMP", gpu, 40 + gpu) + &series("ECC_DBE_VOL_TOTAL", gpu, errors * gpu);
        [3, 2, 1].map(gpu).concat()
    };
    let text = Arc::new(Mutex::new(Some(all(0))));
    let Some(machine) = Machine::scraped(Some(exporter(&text))) else { return };
    let bench = &machine.bench;
    let temperatures = || -> Vec<(u32, Option<u32>, Option<u32>)> {
        let samples = health(bench).samples.into_iter();
        samples.map(|of| (of.device, of.vitals.temperature_c, of.vitals.busy_percent)).collect()
    };
    // NVIDIA's library says 60 and more, and how busy they are.
    let found = [(1, Some(41), None), (2, Some(42), None), (3, Some(43), None)];
    until("samples", || temperatures() == found);
    let sources = health(bench).sources;
    assert!(
        sources.iter().any(|source| source.starts_with("the DCGM exporter at 127.0.0.1:")),
        "{sources:?}"
    );

    *text.lock().unwrap() = None;
    let why = "telemetry: the DCGM exporter answered 503";
    until("the note", || health(bench).missing.iter().any(|missing| missing == why));
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(temperatures(), []);
    assert!(health(bench).lines.is_empty());

    *text.lock().unwrap() = Some(all(1));
    until("new errors", || grade(bench, Some(2)) == Grade::Suspect);
    assert_eq!(line(bench, Some(2)).unwrap().detail, "2 uncorrected ECC errors");
    assert!(health(bench).missing.iter().all(|missing| !missing.starts_with("telemetry")));
}
