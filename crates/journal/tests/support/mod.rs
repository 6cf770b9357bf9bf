//! One step of everything that a journal can hold.
#![allow(clippy::unwrap_used, dead_code, reason = "each test file uses a part")]

use std::sync::Arc;

use phalanx_journal::Header;
use phalanx_model::later::{Calendar, Metric, SpotNotice};
use phalanx_model::*;

pub(crate) const NOW: Timestamp = Timestamp(1_767_225_600_000);

pub(crate) fn header() -> Header {
    Header {
        configuration: "sha256:aa".to_owned(),
        costs: "sha256:bb".to_owned(),
        ..Header::new("0.1.0", Epoch(7), NOW)
    }
}

/// A complete sync of an empty world.
pub(crate) fn sync_of_nothing() -> Vec<Input> {
    [SyncKind::Nodes, SyncKind::Jobs, SyncKind::Members]
        .into_iter()
        .flat_map(|kind| [Input::SyncBegin { kind }, Input::SyncEnd { kind }])
        .collect()
}

/// A complete sync with one node, one running job and its member.
pub(crate) fn sync() -> Vec<Input> {
    use SyncKind::{Jobs, Members, Nodes};
    let gangs = vec![record()];
    vec![
        Input::LevelsConfigured { levels: Levels::new(vec![level("leaf")], level("node")) },
        Input::CostsCompiled { table: costs() },
        Input::SyncBegin { kind: Nodes },
        Input::NodeObserved { node: Box::new(node()) },
        Input::SyncEnd { kind: Nodes },
        Input::SyncBegin { kind: Jobs },
        Input::JobObserved { job: Box::new(job()), gangs },
        Input::SyncEnd { kind: Jobs },
        Input::SyncBegin { kind: Members },
        Input::MemberObserved { member: member(), state: MemberState::Exited(Exit::succeeded()) },
        Input::SyncEnd { kind: Members },
    ]
}

/// Every fact that is not part of a sync.
pub(crate) fn facts() -> Vec<Input> {
    let (node, job, gang, at) = (node().name, JobId(1), JobId(1).gang(0), NOW);
    let effect = EffectId { epoch: Epoch(7), seq: 3 };
    let exit = Exit::failed(FailureClass::StartUp, "no such file: \"träin\"\n");
    vec![
        Input::NodeRemoved { node: node.clone() },
        Input::NodeCordoned { node: node.clone() },
        Input::NodeUncordoned { node: node.clone() },
        Input::DrainRequested { node: node.clone() },
        Input::JobSubmitted { job: Box::new(self::job()) },
        Input::CancelRequested { job, by: "ada".to_owned() },
        Input::JobForgotten { job },
        Input::MemberReady { member: member() },
        Input::MemberReleased { member: member() },
        Input::MemberExited { member: member(), exit },
        Input::GangCheckpointed { gang, at },
        Input::EffectDone { effect },
        Input::EffectFailed { effect, class: FailureClass::Node, detail: "gone".to_owned() },
        Input::EffectUnknown { effect },
        Input::GangResized { gang, size: Some(4) },
        Input::ServiceObserved { service: Service { job, replicas: 2, looks: Vec::new(), is_set: false } },
        Input::SessionObserved { session: Session { job, used_at: at } },
        Input::CalendarObserved {
            calendar: Calendar {
                node: node.clone(),
                begins_at: at,
                ends_at: at.plus(1),
                held_for: None,
                is_declared: false,
            },
        },
        Input::MetricObserved { metric: Metric { gang, name: "loss".to_owned(), value_milli: -5, at } },
        Input::SpotNoticed { notice: SpotNotice { node: node.clone(), ends_at: at } },
        Input::HealthGraded {
            health: Health { node, devices: DeviceMask::first(64), grade: Grade::Ok, detail: String::new() },
        },
    ]
}

/// Every decision.
fn plan() -> Plan {
    let gang = JobId(1).gang(0);
    let rule = PreemptionRule::Class {
        class: ClassName::new("serving").unwrap(),
        over: ClassName::new("training").unwrap(),
    };
    let preemption = Preemption { by: gang, rule, at: NOW, lost_device_ms: 1, grace_max_ms: None };
    let reserved = Reserved { placement: placement(), at: Some(NOW), evicts: true, made_at: NOW };
    let reason = Reason::Resources { asked: 2, fits: 1, segments: Vec::new() };
    Plan {
        decisions: vec![
            Decision::Release { gang, why: "late".to_owned() },
            Decision::Reserve { gang, reserved: reserved.clone(), reason },
            Decision::Reserve { gang, reserved, reason: Reason::None },
            Decision::Preempt { gang, preemption },
            Decision::Resize { gang, resize: Resize { size: 1, keeps: placement(), by: Some(gang) } },
            Decision::Grow { gang, size: 4 },
            Decision::Start { gang, placement: placement(), weighed: Vec::new() },
            Decision::Bypass { gang },
            Decision::Leave { gang },
        ],
    }
}

/// Every decision, every order, and changes.
pub(crate) fn outcome() -> Outcome {
    let (job, gang, attempt) = (JobId(1), JobId(1).gang(0), 1);
    let deadline = NOW.plus(60_000);
    let orders = [
        Order::StartMembers { gang, attempt, placement: placement(), deadline },
        Order::ReleaseMembers { gang, attempt },
        Order::SignalMembers { gang, attempt, signal: Signal::Advisory(10) },
        Order::SignalMembers { gang, attempt, signal: Signal::Terminate },
        Order::KillMembers { gang, attempt },
    ];
    let effects =
        (1..).zip(orders).map(|(seq, order)| Effect { id: EffectId { epoch: Epoch(7), seq }, order });
    let reason = Reason::Topology {
        level: level("leaf"),
        asked: 8,
        best: 4,
        best_domain: "leaf-1".to_owned(),
        segments: Vec::new(),
    };
    Outcome {
        plan: plan(),
        effects: effects.collect(),
        changes: vec![
            Change::JobAccepted { job },
            Change::JobRejected { job, why: Rejection::DuplicateKey { existing: JobId(2) } },
            Change::InputRejected { what: "a".to_owned(), why: "b".to_owned() },
            Change::GangPlaced { gang, attempt, placement: placement() },
            Change::GangRunning { gang, attempt },
            Change::GangStopping { gang, attempt, cause: StopCause::TimeLimit },
            Change::GangRetrying { gang, failures: 1, not_before: NOW },
            Change::GangFinished { gang, ending: Ending::Succeeded },
            Change::JobFinished { job, ending: Ending::TimeLimit },
            Change::ReasonChanged { gang, reason },
        ],
    }
}

fn level(name: &str) -> LevelName {
    LevelName::new(name).unwrap()
}

fn costs() -> CostTable {
    let shape = ShapeCost {
        devices: 2,
        pair_mb_per_s: vec![0, 300_000, 300_000, 0],
        nic_mb_per_s: 50_000,
        ..ShapeCost::default()
    };
    let uplink = LevelCost { uplink_mb_per_s: 400_000, latency_ns: 2_000, ..LevelCost::default() };
    CostTable {
        shapes: [(ShapeName::new("duo").unwrap(), shape)].into(),
        levels: [(level("leaf"), uplink)].into(),
        ..CostTable::default()
    }
}

fn node() -> Node {
    let device = |name: &str| Device { name: name.to_owned(), ..Device::default() };
    Node {
        name: NodeName::new("node-1").unwrap(),
        path: vec![DomainName::new("leaf-1").unwrap()],
        address: "127.0.0.1".to_owned(),
        admin: Admin::Open,
        uuids: Vec::new(),
        health: NodeHealth::default(),
        foreign_use: ForeignUse::default(),
        labels: Vec::new(),
        pools: Vec::new(),
        sets: Vec::new(),
        kept: Kept::default(),
        machine: Arc::new(Machine {
            shape: ShapeName::new("duo").unwrap(),
            origin: Origin::Declared,
            devices: vec![device("GPU0"), device("GPU1")],
            nics: vec![Nic { name: "mlx5_0".to_owned(), ..Nic::default() }],
            links: vec![Link::new(Port::Device(0), Port::Nic(0), LinkKind::Nvlink(18))],
            groups: vec![DeviceGroup::new(level("socket"), DeviceMask::first(2))],
            cpu_milli: 8_000,
            memory_bytes: 1 << 34,
            named: std::collections::BTreeMap::new(),
            share_limit_milli: 0,
            replicas: 0,
        }),
        foreign: DeviceMask::EMPTY,
        spot: None,
        spare: Spare::No,
        torus: None,
    }
}

pub(crate) fn job() -> Job {
    Job {
        id: JobId(1),
        name: JobName::new("train").unwrap(),
        key: Some("k".to_owned()),
        owner: Owner { uid: 1000, gid: 1000, name: "ada".to_owned() },
        queue: QueueName::new("default").unwrap(),
        priority: -1,
        submitted_at: NOW,
        gangs: vec![Gang {
            size: 2,
            min: 2,
            max: 2,
            needs: Needs { devices: 1, ..Needs::default() },
            roles: Vec::new(),
            members_per_node: None,
            topology: Topology::default(),
            traffic: Some(Traffic { pattern: Pattern::AllReduce, bytes: 1 << 26, compute_ns: 1 }),
            grid: Vec::new(),
            program: Program { argv: vec!["./train".to_owned(), "ü\n".to_owned()], ..Program::default() },
        }],
        policy: Policy::default(),
        turn: phalanx_model::Turn::default(),
    }
}

fn placement() -> Placement {
    let slot = |rank| Slot { rank, node: node().name, devices: DeviceMask::one(rank), part: None };
    Placement { slots: vec![slot(0), slot(1)], level: level("node") }
}

fn member() -> MemberId {
    MemberId { gang: JobId(1).gang(0), attempt: 1, rank: 0 }
}

fn record() -> GangRecord {
    GangRecord {
        phase: Phase::Running { since: NOW },
        attempt: 1,
        first_started_at: Some(NOW),
        placement: Some(placement()),
        members: vec![
            MemberRecord { state: MemberState::Running },
            MemberRecord { state: MemberState::Exited(Exit::code(0)) },
        ],
        ..GangRecord::pending(JobId(1).gang(0), NOW)
    }
}
