//! Hand-made answers of a daemon: two declared machines with eight GPUs, one without, and five jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_account::State;
use phalanx_account::advice::{Advice, Charged, Pace, What};
use phalanx_api::protocol::*;
use phalanx_health::{Line, Next, Repair, Seen};
use phalanx_model::*;

/// 2026-11-21 12:00:00 UTC.
pub const NOW: Timestamp = Timestamp(1_795_262_400_000);

pub fn ago(s: u64) -> Timestamp {
    Timestamp(NOW.0 - s * 1000)
}

pub fn node(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

pub fn level(text: &str) -> LevelName {
    LevelName::new(text).unwrap()
}

pub fn devices(indices: std::ops::Range<u32>) -> DeviceMask {
    indices.collect()
}

/// One rank for each `(node, devices)`.
pub fn placement(slots: &[(&str, std::ops::Range<u32>)], inside: &str) -> Placement {
    let slot = |(rank, (name, range)): (u32, &(&str, std::ops::Range<u32>))| Slot {
        rank,
        node: node(name),
        devices: devices(range.clone()),
        part: None,
    };
    Placement { slots: (0..).zip(slots).map(slot).collect(), level: level(inside) }
}

fn job_view(id: u64, name: &str, state: &str, submitted_s: u64) -> JobView {
    JobView {
        id: JobId(id),
        name: name.to_owned(),
        owner: "alice".to_owned(),
        uid: 1000,
        queue: "research".to_owned(),
        priority: 100,
        class: String::new(),
        state: state.to_owned(),
        reason: String::new(),
        detail: String::new(),
        submitted_at: ago(submitted_s),
        started_at: None,
        finished_at: None,
        ending: None,
        exit_code: None,
        gangs: vec![gang_view(id, 8, 1)],
        array: None,
        service: None,
        job: None,
        events: Vec::new(),
        spot: None,
    }
}

fn gang_view(job: u64, size: u32, devices_per_member: u32) -> GangView {
    GangView {
        task: None,
        id: JobId(job).gang(0),
        size,
        elastic: None,
        devices_per_member,
        roles: Vec::new(),
        phase: None,
        attempt: 1,
        failures: 0,
        placement: None,
        usage: None,
        progress: None,
        members: Vec::new(),
        estimated_start: None,
        reserved: None,
        evicted: None,
        evictions: 0,
        checkpointed_at: None,
        leaves: None,
        predicted: None,
    }
}

/// Two members with four GPUs each, one of which has ended.
pub fn running() -> JobView {
    let place = placement(&[("gpu-1", 0..4), ("gpu-2", 0..4)], "leaf");
    let member = |rank: u32, state: &str, exit_code| MemberView {
        rank,
        node: place.slots[rank as usize].node.clone(),
        devices: place.slots[rank as usize].devices,
        state: state.to_owned(),
        exit_code,
        detail: String::new(),
    };
    let gang = GangView {
        phase: Some(Phase::Running { since: ago(3600) }),
        attempt: 2,
        failures: 1,
        members: vec![member(0, "running", None), member(1, "exited", Some(0))],
        placement: Some(place.clone()),
        usage: Some(UsageView { busy_percent: 87, idle_since: None }),
        progress: Some(ProgressView {
            step: Some(1_200),
            of: Some(9_000),
            told_at: Some(ago(2)),
            step_us: Some(412_000),
            ends_at: Some(Timestamp(NOW.0 + 3_212_000)),
            stalled_since: None,
            behind: Vec::new(),
            stragglers: vec![StragglerView { rank: 1, work_us: 531_000, median_us: 402_000 }],
            checkpoint: Some(CheckpointView {
                takes_ms: 5_200,
                loss_every_ms: 132 * 24 * 3_600_000,
                every_ms: 10_890_000,
            }),
            unread: None,
        }),
        predicted: Some(predicted(12_400, 8_100, 12_500_000_000)),
        ..gang_view(3, 2, 4)
    };
    let events = [
        (3700, "submitted", ""),
        (3660, "starting", "attempt 2 on gpu-1, gpu-2"),
        (3600, "running", "attempt 2"),
    ];
    let event = |(s, what, detail): (u64, &str, &str)| EventView {
        at: ago(s),
        what: what.into(),
        detail: detail.into(),
        record: None,
    };
    JobView {
        started_at: Some(ago(3600)),
        gangs: vec![gang],
        job: Some(Box::new(job())),
        events: events.map(event).to_vec(),
        ..job_view(3, "llama", "running", 3700)
    }
}

/// What `running` was asked for.
pub fn job() -> Job {
    let program = Program {
        launch: LaunchKind::Torchrun,
        argv: ["/bin/bash", "-c", "python train.py --lr '1e-4'"].map(str::to_owned).to_vec(),
        env: BTreeMap::from([("NCCL_DEBUG".to_owned(), "WARN".to_owned())]),
        workdir: "/home/alice/llama".to_owned(),
        ..Program::default()
    };
    let gang = Gang {
        size: 2,
        min: 2,
        max: 2,
        needs: Needs {
            devices: 4,
            models: Needs::of_model("H100"),
            cpu_milli: 16_000,
            memory_bytes: 64 << 30,
            ..Needs::default()
        },
        members_per_node: Some(1),
        topology: Topology {
            required: Some(level("leaf")),
            preferred: None,
            wait_ms: 0,
            segments: vec![
                Segment { size: 2, level: level("leaf") },
                Segment { size: 1, level: level("nvlink") },
            ],
            ..Topology::default()
        },
        traffic: None,
        program,
        roles: Vec::new(),
        grid: Vec::new(),
    };
    let retry =
        Retry { max: 3, on: vec![FailureClass::Node, FailureClass::Preemption], ..Policy::default().retry };
    Job {
        id: JobId(3),
        name: JobName::new("llama").unwrap(),
        key: None,
        owner: Owner { uid: 1000, gid: 1000, name: "alice".to_owned() },
        queue: QueueName::new("research").unwrap(),
        priority: 100,
        submitted_at: ago(3700),
        gangs: vec![gang],
        policy: Policy { time_limit_ms: Some(86_400_000), retry, ..Policy::default() },
        turn: phalanx_model::Turn::default(),
    }
}

pub fn pending() -> JobView {
    JobView {
        reason: "Topology".to_owned(),
        detail: "needs 16 members inside one leaf, and the best, main/leaf-1, has room for 11 now".to_owned(),
        gangs: vec![gang_view(5, 16, 1)],
        ..job_view(5, "big", "pending", 192)
    }
}

pub fn failed() -> JobView {
    let ending = Ending::Failed {
        class: FailureClass::UserCode,
        rank: Some(2),
        code: Some(3),
        detail: "rank 2 on gpu-1: exit code 3".to_owned(),
    };
    JobView {
        reason: "user_code".to_owned(),
        detail: "rank 2 on gpu-1: exit code 3".to_owned(),
        started_at: Some(ago(90_000)),
        finished_at: Some(ago(86_400)),
        ending: Some(ending),
        exit_code: Some(3),
        ..job_view(1, "eval\u{1b}[31m", "failed", 90_061)
    }
}

/// In the order of their numbers; the rest is finished.
pub fn jobs() -> Vec<JobView> {
    let cancelled = JobView {
        detail: "by root".to_owned(),
        ending: Some(Ending::Cancelled { by: "root".to_owned() }),
        exit_code: Some(130),
        finished_at: Some(ago(60)),
        ..job_view(2, "sweep", "cancelled", 120)
    };
    let starting = JobView {
        gangs: vec![GangView {
            placement: Some(placement(&[("gpu-2", 4..6)], "node")),
            ..gang_view(4, 1, 2)
        }],
        ..job_view(4, "tune", "starting", 5)
    };
    vec![failed(), cancelled, running(), starting, pending()]
}

pub fn predicted(step_us: u64, communication_us: u64, bandwidth_bytes_per_s: u64) -> PredictedView {
    let sentence =
        "8.1 ms communication over the NIC of gpu-1 (12.5 GB/s) (for a 1 GiB all-reduce; predicted)"
            .to_owned();
    PredictedView { step_us, communication_us, bandwidth_bytes_per_s, sentence }
}

fn held(job: u64, name: &str, range: std::ops::Range<u32>) -> HeldView {
    HeldView { job: JobId(job), name: name.to_owned(), devices: devices(range) }
}

/// Two jobs that would move, so that a rack opens for a third.
pub fn defrag() -> DefragView {
    let one = |job, name: &str, from: &str, to: &str, lost_device_ms| MoveView {
        gang: JobId(job).gang(0),
        name: name.to_owned(),
        devices: 4,
        from: vec![node(from)],
        to: vec![node(to)],
        lost_device_ms,
    };
    DefragView {
        gang: JobId(12).gang(0),
        name: "llama".to_owned(),
        devices: 16,
        placement: placement(&[("gpu-1", 0..8), ("gpu-2", 0..8)], "leaf"),
        at: Some(Timestamp(NOW.0 + 90_000)),
        otherwise: Some(Estimate {
            at: Timestamp(NOW.0 + 7_290_000),
            confidence: phalanx_model::Confidence::AtLatest,
        }),
        pending_since: ago(1_500),
        moves: vec![one(7, "bert", "gpu-1", "gpu-3", 480_000), one(9, "resnet", "gpu-2", "gpu-4", 1_920_000)],
        restart_ms: 120_000,
        is_applied: false,
    }
}

/// Three replicas of a service, of which two take requests, as seen from `gpu-2`.
pub fn endpoints() -> EndpointsView {
    let domain = |name: &str| DomainName::new(name).unwrap();
    let one = |replica, of: &str, leaf: &str, distance| EndpointView {
        replica,
        attempt: 1,
        state: EndpointState::Ready,
        node: node(of),
        path: vec![domain("main"), domain(leaf)],
        devices: devices(0..2),
        address: "10.0.0.2".to_owned(),
        port: Some(8_080),
        load: Some(3),
        capacity: Some(16),
        weight: 256,
        distance: Some(distance),
        reported_at: Some(ago(4)),
        unread: None,
    };
    let near = one(1, "gpu-2", "leaf-1", 0);
    let far = EndpointView {
        address: "fd00::3".to_owned(),
        load: None,
        capacity: Some(4),
        weight: 64,
        ..one(2, "gpu-3", "leaf-2", 2)
    };
    let unread = Some("it has no port=NUMBER: \"8080\"".to_owned());
    let not_ready = EndpointView {
        state: EndpointState::NotReady,
        port: None,
        load: None,
        capacity: None,
        unread,
        ..one(0, "gpu-3", "leaf-2", 2)
    };
    EndpointsView {
        job: JobId(9),
        name: "chat".to_owned(),
        levels: vec![level("cluster"), level("leaf")],
        endpoints: vec![near, not_ready, far],
        from: Some(node("gpu-2")),
    }
}

/// The network of `gpu-2`, which others crowd.
pub fn slow() -> Bandwidth {
    Bandwidth {
        uplink: Uplink::Node(node("gpu-2")),
        permille: 400,
        counts_permille: 500,
        at: Timestamp(NOW.0 - 600_000),
        detail: "alice: perftest".to_owned(),
    }
}

pub fn nodes() -> NodesView {
    let gpu = |name: &str, free: DeviceMask, held: Vec<HeldView>| NodeView {
        name: node(name),
        path: vec!["main".to_owned(), "leaf-1".to_owned()],
        origin: Origin::Declared,
        admin: Admin::Open,
        address: "10.0.0.1".to_owned(),
        model: "8 × NVIDIA H100 80GB HBM3".to_owned(),
        devices: 8,
        free,
        foreign: DeviceMask::EMPTY,
        unknown: DeviceMask::EMPTY,
        cpu_milli: 192_000,
        cpu_free_milli: 160_500,
        memory_bytes: 2048 << 30,
        memory_free_bytes: 1984 << 30,
        held,
        spot: None,
        is_spare: false,
        health: NodeHealth::default(),
        bandwidth: None,
        closed_by: None,
        window: None,
    };
    let broken = Graded { grade: Grade::Broken, detail: "Xid 79: the GPU has fallen off the bus".to_owned() };
    let health = NodeHealth { devices: [(6, broken)].into(), ..NodeHealth::default() };
    let first = NodeView {
        foreign: devices(7..8),
        health,
        ..gpu("gpu-1", devices(4..6), vec![held(3, "llama", 0..4)])
    };
    let spot = Some(Spot { price_micro_per_device_hour: 1_200_000, notice_ms: 120_000 });
    let second = gpu("gpu-2", devices(6..8), vec![held(3, "llama", 0..4), held(4, "tune", 4..6)]);
    let said = ClosedBy {
        user: "bob".to_owned(),
        at: Timestamp(NOW.0 - 60_000),
        reason: Some("new NICs".to_owned()),
    };
    let begins_at = Timestamp(NOW.0 + 6 * 3_600_000);
    let added_by = Some(said.clone());
    let tonight =
        NodeWindowView { kind: WindowKind::Drain, begins_at, ends_at: None, held_for: None, added_by };
    let second =
        NodeView { spot, bandwidth: Some(slow()), closed_by: Some(said), window: Some(tonight), ..second };
    let host = NodeView {
        origin: Origin::Found,
        admin: Admin::Draining,
        closed_by: Some(ClosedBy {
            user: "alice".to_owned(),
            at: Timestamp(NOW.0 - 7_200_000),
            reason: Some("broken fan".to_owned()),
        }),
        model: String::new(),
        devices: 0,
        cpu_milli: 8_000,
        cpu_free_milli: -500,
        memory_bytes: 32 << 30,
        memory_free_bytes: 31 << 30,
        ..gpu("login", DeviceMask::EMPTY, Vec::new())
    };
    NodesView {
        nodes: vec![first, second, host],
        matching: 3,
        next: None,
        isolation: "cgroup v2".to_owned(),
        notes: vec!["the NVML library is not there".to_owned()],
        warnings: vec!["the journal was cut".to_owned()],
    }
}

/// A broken GPU, one whose job may end first, one that is held, and one on probation.
pub fn health() -> HealthView {
    let ago = |minutes: u64| Timestamp(NOW.0 - minutes * 60_000);
    let line = |of: &str, device: Option<u32>, grade, detail: &str, next| Line {
        node: node(of),
        device,
        grade,
        held: None,
        is_automatic: false,
        since: ago(5),
        detail: detail.to_owned(),
        repair: Repair::None,
        next,
        probation_until: None,
        failed_jobs: 0,
        drains: 0,
        evidence: vec![Seen { at: ago(5), what: detail.to_owned(), times: 1 }],
    };
    let lost =
        line("gpu-1", Some(6), Grade::Broken, "Xid 79: the GPU has fallen off the bus", Next::WhenRebooted);
    let row =
        line("gpu-1", Some(0), Grade::DrainAfterJob, "a row of memory waits for a reset", Next::WhenReset);
    let held = Line {
        held: Some(Grade::DrainNow),
        ..line("gpu-2", Some(3), Grade::Suspect, "Xid 48: a double-bit ECC error", Next::Held)
    };
    let until = Timestamp(NOW.0 + 3_600_000);
    let watched = Line {
        probation_until: Some(until),
        drains: 1,
        ..line("gpu-2", Some(5), Grade::Suspect, "on probation", Next::OkAt(until))
    };
    let disk = Line {
        repair: Repair::Service,
        ..line("login", None, Grade::DrainNow, "alice: the boot disk fails", Next::WhenCleared)
    };
    let fine =
        line("gpu-2", Some(0), Grade::Ok, "Xid 13: an exception in the graphics engine", Next::Nothing);
    HealthView {
        lines: vec![
            Line { repair: Repair::Reboot, ..lost },
            disk,
            Line { repair: Repair::Reset, ..row },
            held,
            watched,
            fine,
        ],
        samples: Vec::new(),
        ports: Vec::new(),
        pressure: Vec::new(),
        bandwidths: vec![slow()],
        devices: 16,
        sources: vec!["NVML every 15 s".to_owned()],
        missing: vec!["Xids: /dev/kmsg cannot be opened: Permission denied".to_owned()],
        breaker: Some("1 grade is held: automation closed 8 of 16 devices, and closes up to 8".to_owned()),
    }
}

/// With all evidence and the last samples.
pub fn health_of_one() -> HealthView {
    let mut view = health();
    view.lines.retain(|line| line.node.as_str() == "gpu-1");
    view.bandwidths.clear();
    let link = |number| LinkVitals { number, is_up: number != 3, ..LinkVitals::default() };
    let vitals = Vitals {
        busy_percent: Some(97),
        memory_used_bytes: Some(71 << 30),
        temperature_c: Some(61),
        power_mw: Some(655_000),
        sm_clock_mhz: Some(1_980),
        ecc_uncorrected: Some(0),
        throttle: Some(Throttle { is_hardware: true, is_hot: true, ..Throttle::default() }),
        links: (0..18).map(link).collect(),
        ..Vitals::default()
    };
    let lost = Vitals { is_lost: true, ..Vitals::default() };
    let samples = [(0, vitals), (1, Vitals::default()), (6, lost)].map(|(device, vitals)| SampleView {
        node: node("gpu-1"),
        device,
        at: NOW,
        vitals,
    });
    let port = PortVitals {
        name: "mlx5_0:1".to_owned(),
        state: PortState::Up,
        bytes_per_s: Some(50_000_000_000),
        received_bytes: Some(7 << 40),
        sent_bytes: Some(3 << 40),
        downed: Some(1),
        symbol_errors: Some(12),
        receive_errors: Some(1),
        send_discards: Some(0),
        send_wait_ticks: Some(123_456_789),
        ..PortVitals::default()
    };
    let management = PortVitals {
        name: "eno1".to_owned(),
        state: PortState::Up,
        bytes_per_s: Some(312_500_000),
        ..PortVitals::default()
    };
    let gone = PortVitals { name: "mlx5_1:1".to_owned(), state: PortState::Gone, ..PortVitals::default() };
    let ports = [management, port, gone].map(|port| PortView { node: node("gpu-1"), at: NOW, port });
    let of = |avg10_hundredths, avg60_hundredths, avg300_hundredths| Stall {
        avg10_hundredths,
        avg60_hundredths,
        avg300_hundredths,
        total_us: 1,
    };
    let io = Stalls { some: of(4_212, 3_900, 1_005), full: Some(of(2_050, 1_900, 0)) };
    let cpu = Stalls { some: of(108, 2_192, 10_000), full: None };
    let pressure = Pressure { cpu: Some(cpu), memory: None, io: Some(io) };
    let pressure = vec![PressureView { node: node("gpu-1"), at: NOW, pressure }];
    HealthView { samples: samples.into(), ports: ports.into(), pressure, devices: 8, breaker: None, ..view }
}

pub fn tokens() -> Vec<TokenView> {
    let token = |name: &str, user: &str, uid, read_only| TokenView {
        name: name.to_owned(),
        user: user.to_owned(),
        uid,
        read_only,
        created_at: Timestamp(NOW.0 - 7_200_000),
        expires_at: Timestamp(NOW.0 + 36_000_000),
    };
    vec![token("ci", "alice", 1000, false), token("wall-screen", "bob", 1001, true)]
}

pub fn new_token() -> NewTokenView {
    let address = "http://127.0.0.1:7077".to_owned();
    NewTokenView { token: tokens().swap_remove(0), text: "phx_0123".to_owned(), address }
}

pub fn audit() -> Vec<AuditView> {
    let act = |user: &str, uid, verb: &str, target: &str, detail: &str| AuditView {
        at: Timestamp(NOW.0 - 7_200_000),
        uid,
        user: user.to_owned(),
        login: None,
        verb: verb.to_owned(),
        target: target.to_owned(),
        detail: detail.to_owned(),
        refused: None,
    };
    let refused = Some("user bob may not do this".to_owned());
    vec![
        act("alice", 0, "drain", "node login", "broken fan"),
        AuditView { refused, ..act("bob", 1_001, "uncordon", "node login", "") },
        AuditView {
            login: Some("bob@example.com".to_owned()),
            ..act("bob", 1_001, "update", "job 7", "time limit 2h")
        },
    ]
}

/// Of two queues, and of what no job had.
pub fn bill() -> BillView {
    let line = |of: &[&str], states: &[(State, i64)], cost_micro, list_cost_micro| BillLine {
        of: of.iter().map(|text| (*text).to_owned()).collect(),
        device_us: states.iter().map(|(state, minutes)| (*state, minutes * 60_000_000)).collect(),
        cost_micro,
        list_cost_micro,
        rates: if cost_micro == list_cost_micro {
            BTreeMap::new()
        } else {
            BTreeMap::from([("class batch 0.5".to_owned(), 60_000_000)])
        },
    };
    let vision =
        [(State::Running, 4_800), (State::Starting, 6), (State::Stopping, 3), (State::LostToPreemption, 120)];
    BillView {
        by: vec![BillBy::Queue, BillBy::Model],
        until: NOW,
        lines: vec![
            line(&["", "NVIDIA H100"], &[(State::Idle, 600), (State::Draining, 61)], 27_541_666, 27_541_666),
            line(&["speech", "NVIDIA H100"], &[(State::Running, 1)], 41_666, 83_333),
            line(&["vision", "NVIDIA H100"], &vision, 205_375_000, 205_375_000),
        ],
        is_cut: false,
    }
}

fn an_advice(what: What, runs: u32, gpu_hours: i64, cost: i64) -> Advice {
    let saves = Charged { device_us: gpu_hours * 3_600_000_000, cost_micro: cost * 1_000_000 };
    Advice { what, runs, span_ms: 9 * 24 * HOUR_MS + 2 * HOUR_MS, saves }
}

const HOUR_MS: u64 = 3_600_000;

/// On whole GPUs and time.
fn advice_on_llama() -> Vec<Advice> {
    let pace = |width, runs, milli_steps_per_s, efficiency_percent| Pace {
        width,
        runs,
        milli_steps_per_s,
        efficiency_percent,
    };
    let measured = vec![pace(2, 3, 2_500, 100), pace(4, 3, 4_545, 90), pace(8, 5, 5_000, 50)];
    vec![
        an_advice(What::Width { now: 8, next: 4, is_of_ranks: false, measured }, 11, 425, 1_066),
        an_advice(What::Gpus { now: 8, next: 6, busy_gpus: 6, busy_percent: 71 }, 12, 240, 600),
        an_advice(
            What::TimeLimit {
                now_ms: Some(24 * HOUR_MS),
                next_ms: 3 * HOUR_MS,
                longest_ms: 8_400_000,
                median_ms: 7_990_000,
            },
            9,
            0,
            0,
        ),
        an_advice(
            What::Checkpoint {
                now_ms: 600_000,
                next_ms: 6_572_671,
                takes_ms: 60_000,
                loss_every_ms: 100 * HOUR_MS,
            },
            6,
            77,
            192,
        ),
    ]
}

/// All kinds of advice, and jobs without any.
pub fn advice() -> AdviceView {
    const GB: u64 = 1_000_000_000;
    let job = |name: &str, user: &str, runs, sampled_runs, gpu_hours: i64, advice| JobAdvice {
        name: name.to_owned(),
        user: user.to_owned(),
        uid: 1000,
        runs,
        sampled_runs,
        span_ms: 10 * 24 * HOUR_MS,
        charged: Charged { device_us: gpu_hours * 3_600_000_000, cost_micro: 0 },
        advice,
    };
    let (peak_bytes, device_bytes) = (17 * GB, 80 * GB);
    let (busy_percent, next_bytes) = (10, 19 * GB);
    let (now, next) = ("NVIDIA H100".to_owned(), "NVIDIA A30".to_owned());
    let jobs = vec![
        job("llama-*", "alice", 14, 14, 960, advice_on_llama()),
        job(
            "serve",
            "bob",
            3,
            3,
            300,
            vec![an_advice(
                What::Share { next_milli: 250, next_bytes, busy_percent, peak_bytes, device_bytes },
                3,
                225,
                0,
            )],
        ),
        job(
            "eval",
            "bob",
            5,
            5,
            20,
            vec![an_advice(
                What::Mig { next_sevenths: 2, next_bytes, busy_percent, peak_bytes, device_bytes },
                5,
                14,
                35,
            )],
        ),
        job(
            "embed",
            "bob",
            4,
            4,
            10,
            vec![an_advice(
                What::Model { now, next, next_device_bytes: 24 * GB, peak_bytes, device_bytes },
                4,
                0,
                7,
            )],
        ),
        job("declared", "alice", 7, 0, 12, Vec::new()),
        job("once", "alice", 1, 1, 0, Vec::new()),
    ];
    AdviceView { since: ago(10 * 24 * 3_600), until: NOW, jobs, is_cut: false }
}

pub fn report() -> Report {
    let count = |name: &str, domain: &str, fits, free_devices, devices| LevelCount {
        level: level(name),
        domain: domain.to_owned(),
        fits,
        asked: 16,
        free_devices,
        devices,
    };
    let slots: Vec<(&str, std::ops::Range<u32>)> =
        (0..8).map(|d| ("gpu-1", d..d + 1)).chain((0..8).map(|d| ("gpu-2", d..d + 1))).collect();
    Report {
        gang: JobId(5).gang(0),
        reason: Reason::Topology {
            level: level("leaf"),
            asked: 16,
            best: 11,
            best_domain: "main/leaf-1".to_owned(),
            segments: Vec::new(),
        },
        levels: vec![count("cluster", "main", 16, 24, 32), count("leaf", "main/leaf-1", 11, 11, 16)],
        less_served: 0,
        position: 1,
        of: 3,
        unblock: vec![
            Unblock::GangsEnd {
                gangs: vec![JobId(3).gang(0), JobId(4).gang(0)],
                at: Some(Timestamp(NOW.0 + 752_000)),
            },
            Unblock::RelaxTo { level: level("cluster"), domain: "main".to_owned(), times_milli: Some(1_812) },
            Unblock::Uncordon { nodes: vec![node("gpu-3")] },
            Unblock::ShorterLimit { limit_ms: 1_500_000 },
        ],
        estimated_start: Some(Estimate { at: Timestamp(NOW.0 + 752_000), confidence: Confidence::AtLatest }),
        nearest: Some(placement(&slots, "leaf")),
        likely_start: Some(LikelyStart { at: Timestamp(NOW.0 + 313_000), runs: 6 }),
        weighed: Vec::new(),
    }
}

pub fn why() -> WhyView {
    WhyView { job: pending(), reports: vec![report()], now: NOW, sentences: Vec::new() }
}

/// Starts now, on one machine, where first fit would take two.
pub fn dry_run() -> DryRunView {
    let ours = placement(&[("gpu-2", 6..8)], "node");
    let report = Report {
        reason: Reason::None,
        levels: Vec::new(),
        unblock: Vec::new(),
        estimated_start: Some(Estimate { at: NOW, confidence: Confidence::Now }),
        nearest: Some(ours),
        likely_start: None,
        less_served: 0,
        ..report()
    };
    let first_fit = FirstFitView {
        placement: placement(&[("gpu-1", 4..5), ("gpu-2", 6..7)], "leaf"),
        predicted: predicted(31_000, 26_700, 1_100_000_000),
    };
    DryRunView {
        rejected: None,
        reports: vec![report],
        predicted: vec![Some(predicted(12_400, 8_100, 12_500_000_000))],
        first_fit: vec![Some(first_fit)],
        levels: levels(),
        sentences: Vec::new(),
    }
}

fn levels() -> Levels {
    Levels::new(vec![level("cluster"), level("leaf")], level("node"))
}

fn queue_name(text: &str) -> QueueName {
    QueueName::new(text).unwrap()
}

/// A company of two teams, of which one borrows; and a queue that nobody configured.
pub fn queues() -> Vec<QueueView> {
    let queue = |name: &str, parent: Option<&str>, [used, wanted, guaranteed, due]: [u64; 4]| {
        let is_team = parent.is_some();
        let good = |resource: Resource, scale: u64| ResourceReport {
            used: used * scale,
            wanted: wanted * scale,
            guaranteed: if resource == Resource::Gpus { guaranteed * scale } else { 0 },
            limit: (is_team && resource == Resource::Gpus).then_some(12 * scale),
            fair_share: (resource == Resource::Gpus).then_some(due * scale),
            capacity: 16 * scale,
            resource,
        };
        let (shapes, caps) = match is_team {
            true => (
                vec![ShapeQuota { level: level("leaf"), count: 2, nodes: 1 }],
                Caps { running_max: Some(50), time_limit_max_ms: Some(86_400_000), ..Caps::default() },
            ),
            false => (Vec::new(), Caps::default()),
        };
        let report = QueueReport {
            queue: Queue {
                parent: parent.map(queue_name),
                guaranteed: Amounts::from([(Resource::Gpus, guaranteed * 1_000)]),
                lend_max: Amounts::from([(Resource::Gpus, 2_500)]),
                weight_milli: 1_500,
                shapes: shapes.clone(),
                caps,
                ..Queue::named(queue_name(name))
            },
            depth: u32::from(is_team),
            pending: u32::from(wanted > 0),
            running: 2,
            resources: vec![good(Resource::Gpus, 1_000), good(Resource::Cpus, 4_000)],
            share: used.saturating_sub(guaranteed) * 1_000_000 / 16,
            dominant: Resource::Gpus,
            decayed_usage: 12_345,
            pools: Vec::new(),
            places: shapes
                .iter()
                .map(|shape| ShapeReport { shape: shape.clone(), domains: vec!["main/l1".into()] })
                .collect(),
        };
        QueueView {
            name: name.to_owned(),
            pending: report.pending,
            running: report.running,
            devices_held: u32::try_from(used).unwrap(),
            devices_wanted: u32::try_from(wanted).unwrap(),
            report: Some(report),
            budget: None,
        }
    };
    let default = QueueView {
        name: "default".to_owned(),
        pending: 12,
        running: 2,
        devices_held: 10,
        devices_wanted: 1024,
        report: None,
        budget: None,
    };
    vec![
        queue("research", None, [14, 4, 16, 16]),
        queue("speech", Some("research"), [10, 0, 8, 8]),
        queue("vision", Some("research"), [4, 4, 8, 8]),
        default,
    ]
}

pub fn queue() -> QueueDetailView {
    let waiting = WaitingView {
        gang: JobId(5).gang(0),
        name: "big".to_owned(),
        owner: "alice".to_owned(),
        queue: "vision".to_owned(),
        class: "training".to_owned(),
        priority: 100,
        position: 1,
        devices: 4,
        waits_since: ago(192),
        evictions: 2,
        reason: "Preempting".to_owned(),
        detail: "reserved; waiting for these jobs to leave: 3.0".to_owned(),
        estimated_start: Some(Timestamp(NOW.0 + 30_000)),
    };
    let second = WaitingView {
        gang: JobId(6).gang(1),
        class: String::new(),
        evictions: 0,
        estimated_start: None,
        position: 7,
        reason: "QueueLimit".to_owned(),
        detail: "queue vision uses 12 of its limit of 12 gpus, and the gang needs 4".to_owned(),
        ..waiting.clone()
    };
    QueueDetailView { queue: queues().swap_remove(2), waiting: vec![waiting, second], more: 3 }
}

/// A training job that made way for job 5 and has a place from which others go.
pub fn preempted() -> JobView {
    let rule = PreemptionRule::Guarantee { queue: queue_name("vision"), borrower: queue_name("speech") };
    let evicted = Preemption {
        by: JobId(5).gang(0),
        rule,
        at: ago(120),
        lost_device_ms: 8 * 240_000,
        grace_max_ms: Some(30_000),
    };
    let reserved = Reserved {
        placement: placement(&[("gpu-1", 0..8)], "node"),
        at: Some(Timestamp(NOW.0 + 600_000)),
        evicts: false,
        made_at: ago(100),
    };
    let gang = GangView {
        evicted: Some(evicted),
        evictions: 2,
        reserved: Some(reserved),
        checkpointed_at: Some(ago(360)),
        leaves: None,
        attempt: 2,
        ..gang_view(7, 8, 1)
    };
    let turn = Turn {
        class: Some(ClassName::new("training").unwrap()),
        held_by: Some("root".to_owned()),
        boost: Some(Boost { priority: 20, until: Timestamp(NOW.0 + 7_200_000), by: "root".to_owned() }),
        after: vec![After { job: JobId(2), end: EndOf::Any }, After { job: JobId(3), end: EndOf::Success }],
        begins_at: Some(ago(3600)),
        deadline: Some(Timestamp(NOW.0 + 86_400_000)),
        array: Some(Array { tasks: phalanx_model::Tasks::default(), running_max: Some(2) }),
        takes_spot: true,
        service: None,
    };
    let mut job = Job { id: JobId(7), turn, ..job() };
    job.policy.preempt.is_pinned = true;
    JobView {
        class: "training".to_owned(),
        reason: "Resources".to_owned(),
        detail: "needs 8 members at once, and 4 fit now; it holds nothing while it waits".to_owned(),
        started_at: Some(ago(7200)),
        gangs: vec![gang],
        job: Some(Box::new(job)),
        spot: Some(SpotView { device_ms: 57_600_000, list_micro: 56_000_000, spot_micro: 19_200_000 }),
        ..job_view(7, "speech-train", "pending", 7300)
    }
}

/// Three of at most four replicas are wanted, and two run.
pub fn service() -> JobView {
    let gang = |index: u32, phase| GangView {
        id: JobId(9).gang(index),
        phase: Some(phase),
        placement: (index < 2).then(|| placement(&[("gpu-1", 0..2)], "node")),
        ..gang_view(9, 1, 2)
    };
    let (runs, waits) = (Phase::Running { since: ago(600) }, Phase::Pending { not_before: ago(600) });
    let target = Some(Target::new("tokens", 1_000_000));
    let spread = Some(level("node"));
    let turn =
        Turn { service: Some(Replicas { min: 1, target, spread, ..Replicas::default() }), ..Turn::default() };
    let mut asked = Job { id: JobId(9), turn, ..job() };
    asked.gangs = vec![asked.gangs[0].clone(); 4];
    asked.policy.idle_limit_ms = Some(1_800_000);
    JobView {
        reason: "Resources".to_owned(),
        detail: "needs 1 members at once, and 0 fit now".to_owned(),
        started_at: Some(ago(600)),
        gangs: vec![gang(0, runs.clone()), gang(1, runs), gang(2, waits.clone()), gang(3, waits)],
        service: Some(ServiceView { wanted: 3, running: 2, min: 1, max: 4, has_target: true, is_set: true }),
        job: Some(Box::new(asked)),
        ..job_view(9, "chat", "running", 700)
    }
}

pub fn calendar() -> Vec<WindowView> {
    let window = |kind, nodes: &[&str], from_s: u64, hours: Option<u64>| WindowView {
        kind,
        nodes: nodes.iter().map(|name| node(name)).collect(),
        begins_at: Timestamp(NOW.0 + from_s * 1_000 - 600_000),
        ends_at: hours.map(|hours| Timestamp(NOW.0 + from_s * 1_000 + hours * 3_600_000)),
        held_for: None,
        is_declared: false,
        added_by: None,
    };
    let by = |user: &str, s: u64, reason: Option<&str>| {
        Some(ClosedBy {
            user: user.to_owned(),
            at: Timestamp(NOW.0 - s * 1_000),
            reason: reason.map(str::to_owned),
        })
    };
    let block = window(WindowKind::Block, &["gpu-1"], 86_400, Some(48));
    vec![
        WindowView {
            added_by: by("root", 86_400, None),
            ..window(WindowKind::Maintenance, &["gpu-1", "gpu-2"], 0, Some(2))
        },
        window(WindowKind::SpotNotice, &["spot-7"], 720, None),
        WindowView {
            added_by: by("bob", 60, Some("fan swap, ticket 4711")),
            ..window(WindowKind::Drain, &["login"], 7_800, None)
        },
        WindowView { held_for: Some(queue_name("vision")), is_declared: true, ..block },
    ]
}

pub fn why_preempted() -> WhyView {
    let reason = Reason::Priority { ahead: JobId(5).gang(0), at: Some(Timestamp(NOW.0 + 60_000)) };
    WhyView {
        job: preempted(),
        reports: vec![Report { gang: JobId(7).gang(0), reason, ..report() }],
        now: NOW,
        sentences: Vec::new(),
    }
}

pub fn history() -> Vec<HistoryView> {
    let event = |job, name: &str, s, what: &str, detail: &str, record| HistoryView {
        job: JobId(job),
        name: name.to_owned(),
        event: EventView { at: ago(s), what: what.to_owned(), detail: detail.to_owned(), record },
    };
    let evicted = preempted().gangs.swap_remove(0).evicted;
    let record = serde_json::json!({ "gang_stopping": { "gang": "7.0", "cause": { "preempted": evicted } } });
    let sentence =
        "preempted by job 5: vision reclaimed its guarantee from speech; up to 32 GPU-minutes lost";
    vec![
        event(5, "big", 190, "reserved", "gpu-1; free in 30s at the latest", None),
        event(7, "speech-train", 120, "preempted", sentence, Some(record)),
        event(7, "speech-train", 110, "requeued", "", None),
    ]
}

/// Two leaves; the machines come from a topology text.
pub fn topology() -> TopologyView {
    let text = include_str!("../../../../fixtures/topo_m/h100-nvswitch-8.txt");
    let machine =
        phalanx_discover::topo_m::parse(text).unwrap().with_model("NVIDIA H100 80GB HBM3", 80 << 30).machine;
    let one = |name: &str, leaf: &str, foreign| Node {
        address: "10.0.0.1".to_owned(),
        foreign,
        ..Node::new(
            node(name),
            ["main", leaf].map(|d| DomainName::new(d).unwrap()).to_vec(),
            Arc::new(machine.clone()),
        )
    };
    let cordoned = Node { admin: Admin::Cordoned, ..one("gpu-3", "leaf-2", DeviceMask::EMPTY) };
    let nodes =
        vec![one("gpu-1", "leaf-1", devices(7..8)), one("gpu-2", "leaf-1", DeviceMask::EMPTY), cordoned];
    let uplink =
        |uplink_mb_per_s, latency_ns| LevelCost { uplink_mb_per_s, latency_ns, ..LevelCost::default() };
    let costs = CostTable {
        levels: BTreeMap::from([(level("leaf"), uplink(400_000, 2_000)), (level("node"), uplink(50_000, 0))]),
        ..CostTable::default()
    };
    let held = nodes_held();
    TopologyView { levels: levels(), costs, nodes, held }
}

fn nodes_held() -> Vec<(NodeName, Vec<HeldView>)> {
    nodes().nodes.into_iter().map(|n| (n.name, n.held)).collect()
}

/// Five nodes below two leaves: with jobs, closed, broken, in use by others.
pub fn map() -> MapView {
    let job = |id: u64, name: &str| MapJob {
        id: JobId(id),
        name: name.to_owned(),
        owner: "alice".to_owned(),
        queue: "research".to_owned(),
        state: "running".to_owned(),
    };
    let node = |name: &str, leaf: &str, held: &[i64]| MapNode {
        name: node(name),
        path: vec!["b1".to_owned(), leaf.to_owned()],
        model: format!("{} × NVIDIA H100", held.len()),
        admin: Admin::Open,
        grade: Grade::Ok,
        devices: held.iter().map(|of| (*of != 0).then_some(*of)).collect(),
        busy: None,
        grades: None,
    };
    let mut nodes = vec![
        node("gpu-1", "l1", &[3, 3, 3, 3, 3, 3, 3, 3]),
        node("gpu-2", "l1", &[3, 3, 3, 3, 5, 5, 0, 0]),
        node("gpu-3", "l1", &[0, 0, 0, 0, 0, 0, HELD_BY_OTHERS, TAKES_NO_WORK]),
        node("gpu-10", "l2", &[TAKES_NO_WORK; 4]),
        node("cpu-1", "l2", &[]),
    ];
    nodes[2].grades = Some([vec![Grade::Ok; 7], vec![Grade::Broken]].concat());
    nodes[3].admin = Admin::Cordoned;
    MapView {
        levels: vec![level("block"), level("leaf")],
        jobs: vec![job(3, "train"), job(5, "eval")],
        nodes,
    }
}
