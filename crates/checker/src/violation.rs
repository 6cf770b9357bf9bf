//! Violations and their messages.

use phalanx_model::{
    DeviceMask, GangId, MemberId, NodeName, NodeSet, QueueName, Resource, ResourceName, Timestamp,
};

/// A violated rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("gang {gang} was ordered to start and is not a known, unfinished gang")]
    UnknownGang { gang: GangId },
    #[error("gang {gang} was started while attempt {running} still holds devices")]
    StartedTwice { gang: GangId, running: u32 },
    #[error("gang {gang} started as attempt {attempt}, expected {expected}")]
    AttemptOutOfOrder { gang: GangId, attempt: u32, expected: u32 },
    #[error("gang {gang} has {size} members, the placement has {placed}")]
    NotWhole { gang: GangId, size: u32, placed: usize },
    #[error("rank {rank} of gang {gang} is at position {place} of the placement")]
    RankOutOfOrder { gang: GangId, rank: u32, place: usize },
    #[error("gang {gang} was placed on {node}, which does not exist or is not schedulable")]
    NodeNotOpen { gang: GangId, node: NodeName },
    #[error("gang {gang} was placed on {node}, which is not one of its required nodes")]
    NodeNotNamed { gang: GangId, node: NodeName },
    #[error("gang {gang} was placed on {node}, which is one of its avoided nodes")]
    NodeAvoided { gang: GangId, node: NodeName },
    #[error("gang {gang} was placed on {node}, which is not in the set {set}")]
    OutsideSet { gang: GangId, node: NodeName, set: NodeSet },
    #[error("gang {gang} was placed on {node}, which is in no pool of queue {queue}")]
    OutsidePools { gang: GangId, node: NodeName, queue: QueueName },
    #[error("gang {gang} was placed over several pools of queue {queue}")]
    InSeveralPools { gang: GangId, queue: QueueName },
    #[error("gang {gang} was placed on a spare node of {domain}")]
    SpareTaken { gang: GangId, domain: String },
    #[error("gang {gang} shares {node} with {other}, and one of them is exclusive")]
    NotAlone { gang: GangId, other: String, node: NodeName },
    #[error("rank {rank} of gang {gang} needs {needs} devices and got {got}")]
    WrongDeviceCount { gang: GangId, rank: u32, needs: u32, got: u32 },
    #[error(
        "gang {gang} was given devices {devices} of {node}, which do not exist, are in foreign use, or have another model"
    )]
    NotItsDevices { gang: GangId, node: NodeName, devices: DeviceMask },
    #[error("devices {devices} of {node} were given to gang {gang} while gang {holder} holds them")]
    DeviceTwice { gang: GangId, holder: GangId, node: NodeName, devices: DeviceMask },
    #[error(
        "rank {rank} of gang {gang} was given {part} on {node}, which does not match its request or the hardware"
    )]
    WrongPart { gang: GangId, rank: u32, node: NodeName, part: String },
    #[error("gang {gang} shares device {device} of {node} with gang {holder}, which does not trust it")]
    TrustMixed { gang: GangId, holder: GangId, node: NodeName, device: u32 },
    #[error(
        "slices of ranks {} and {} overlap on device {device} of {node}, where gang {gang} shares the device with gang {holder}",
        ranks.0,
        ranks.1
    )]
    SlicesOverlap { gang: GangId, holder: GangId, node: NodeName, device: u32, ranks: (u32, u32) },
    #[error("device {device} of {node} has {has} of {what} for shares, and {wanted} were allocated")]
    DeviceOverCommitted { node: NodeName, device: u32, what: &'static str, has: u64, wanted: u64 },
    #[error("{node} has {has} of {what}, and {wanted} were allocated")]
    OverCapacity { node: NodeName, what: String, has: u64, wanted: u64 },
    #[error("{domain} has {has} of {resource} for all of its nodes, and {wanted} were allocated")]
    OverLimit { domain: String, resource: ResourceName, has: u64, wanted: u64 },
    #[error("gang {gang} must be inside one {level} and is not")]
    OutsideRequiredLevel { gang: GangId, level: String },
    #[error(
        "ranks {first} to {last} of gang {gang} are a segment that must be inside one {level} and is not"
    )]
    SegmentApart { gang: GangId, level: String, first: u32, last: u32 },
    #[error("the tensor group of gang {gang} that begins with rank {first} is not on one node")]
    TensorApart { gang: GangId, first: u32 },
    #[error("ranks {first} and {other} of gang {gang} have roles that must be on one node")]
    RolesApart { gang: GangId, first: u32, other: u32 },
    #[error("gang {gang} has {got} members in {domain}, and at most {max} may be in one {level}")]
    NotSpread { gang: GangId, level: String, domain: String, max: u32, got: u32 },
    #[error("the devices of gang {gang} do not form a box of {asked} chips of one torus")]
    NoBox { gang: GangId, asked: String },
    #[error("gang {gang} needs {wanted} members on each node it uses, {node} has {got}")]
    UnequalNodes { gang: GangId, node: NodeName, wanted: u32, got: u32 },
    #[error("attempt {attempt} of gang {gang} is reported with another placement than its order had")]
    PlacementForgotten { gang: GangId, attempt: u32 },
    #[error("gang {gang} attempt {attempt} was released before every member had reached the start barrier")]
    ReleasedInPart { gang: GangId, attempt: u32 },
    #[error("gang {gang} attempt {attempt} got an order after it had ended")]
    OrderAfterEnd { gang: GangId, attempt: u32 },
    #[error("member {member} runs although its gang was never released")]
    RanBeforeGate { member: MemberId },
    #[error("gang {gang} was started after its job was cancelled")]
    StartedAfterCancel { gang: GangId },
    #[error("gang {gang} was started, and queue {queue} uses {} {resource} of its limit of {}",
        resource.show(*used), resource.show(*limit))]
    OverQuota { gang: GangId, queue: QueueName, resource: Resource, limit: u64, used: u64 },
    #[error("gang {gang} was started, and {of} runs more than its {most} gangs")]
    TooManyRunning { gang: GangId, of: String, most: u32 },
    #[error("gang {gang} was started out of order: {why}")]
    OutOfTurn { gang: GangId, why: String },
    #[error("gang {gang} was preempted by gang {by} against the rules: {why}")]
    WrongEviction { gang: GangId, by: GangId, why: String },
    #[error("gang {gang} was preempted by gang {by} in turn, and no fact from outside changed in between")]
    EvictedInTurn { gang: GangId, by: GangId },
    #[error("gang {gang} attained {seen} GPU-microseconds of service, and its record says {recorded}")]
    ServiceForgotten { gang: GangId, seen: u64, recorded: u64 },
    #[error("gang {gang} resumes on {node}, which cannot read its checkpoint")]
    NotWhereItSaved { gang: GangId, node: NodeName },
    #[error("gang {gang} had a reserved start at {} and is still pending at {}", at.0, now.0)]
    StartedLate { gang: GangId, at: Timestamp, now: Timestamp },
    #[error(
        "gang {gang} fits and is first, and was bypassed {times} times by gangs that took capacity it \
        could use; the bypass limit is {most}"
    )]
    Bypassed { gang: GangId, times: usize, most: u32 },
    #[error("effect {id} does not follow the effect before it")]
    EffectOrder { id: String },
}
