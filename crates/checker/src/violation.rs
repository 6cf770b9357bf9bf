//! What can be wrong, in words.

use phalanx_model::{
    DeviceMask, GangId, MemberId, NodeName, NodeSet, QueueName, Resource, ResourceName, Timestamp,
};

/// A broken promise.
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
    #[error("rank {rank} of gang {gang} stands at place {place} of the placement")]
    RankOutOfOrder { gang: GangId, rank: u32, place: usize },
    #[error("gang {gang} was placed on {node}, which is not there or takes no work")]
    NodeNotOpen { gang: GangId, node: NodeName },
    #[error("gang {gang} was placed on {node}, which is not one of the nodes it names")]
    NodeNotNamed { gang: GangId, node: NodeName },
    #[error("gang {gang} was placed on {node}, which it avoids")]
    NodeAvoided { gang: GangId, node: NodeName },
    #[error("gang {gang} was placed on {node}, which is not in the set {set}")]
    OutsideSet { gang: GangId, node: NodeName, set: NodeSet },
    #[error("gang {gang} stands on {node} beside {other}, and one of them wants to be alone there")]
    NotAlone { gang: GangId, other: String, node: NodeName },
    #[error("rank {rank} of gang {gang} needs {needs} devices and got {got}")]
    WrongDeviceCount { gang: GangId, rank: u32, needs: u32, got: u32 },
    #[error(
        "gang {gang} was given devices {devices} of {node}, which are not there, foreign, or of another model"
    )]
    NotItsDevices { gang: GangId, node: NodeName, devices: DeviceMask },
    #[error("devices {devices} of {node} were given to gang {gang} while gang {holder} holds them")]
    DeviceTwice { gang: GangId, holder: GangId, node: NodeName, devices: DeviceMask },
    #[error(
        "rank {rank} of gang {gang} was given {part} on {node}, which is not what it needs or what is there"
    )]
    WrongPart { gang: GangId, rank: u32, node: NodeName, part: String },
    #[error("gang {gang} shares device {device} of {node} with gang {holder}, which does not trust it")]
    TrustMixed { gang: GangId, holder: GangId, node: NodeName, device: u32 },
    #[error(
        "slices of ranks {} and {} overlap on device {device} of {node}, where gang {gang} was put beside gang {holder}",
        ranks.0,
        ranks.1
    )]
    SlicesOverlap { gang: GangId, holder: GangId, node: NodeName, device: u32, ranks: (u32, u32) },
    #[error("device {device} of {node} has {has} of {what} for shares, {wanted} were promised")]
    DeviceOverCommitted { node: NodeName, device: u32, what: &'static str, has: u64, wanted: u64 },
    #[error("{node} has {has} of {what}, {wanted} were given away")]
    OverCapacity { node: NodeName, what: String, has: u64, wanted: u64 },
    #[error("{domain} has {has} of {resource} for all of its nodes, {wanted} were given away")]
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
    #[error("the devices of gang {gang} are no box of {asked} chips of one torus")]
    NoBox { gang: GangId, asked: String },
    #[error("gang {gang} needs {wanted} members on each node it uses, {node} has {got}")]
    UnequalNodes { gang: GangId, node: NodeName, wanted: u32, got: u32 },
    #[error("attempt {attempt} of gang {gang} is told to stand elsewhere than it was ordered to")]
    PlacementForgotten { gang: GangId, attempt: u32 },
    #[error("gang {gang} attempt {attempt} was released and not every member stood at the gate")]
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
    #[error("gang {gang} was started out of its turn: {why}")]
    OutOfTurn { gang: GangId, why: String },
    #[error("gang {gang} has to make way for gang {by} and should not: {why}")]
    WrongEviction { gang: GangId, by: GangId, why: String },
    #[error("gang {gang} has to make way for gang {by} in turn, and nothing changed from outside in between")]
    EvictedInTurn { gang: GangId, by: GangId },
    #[error("gang {gang} had {seen} millionths of a second of one device, and its record says {told}")]
    ServiceForgotten { gang: GangId, seen: u64, told: u64 },
    #[error("gang {gang} resumes on {node}, where what it saved cannot be read")]
    NotWhereItSaved { gang: GangId, node: NodeName },
    #[error("gang {gang} was to start by {} at the latest and still waits at {}", at.0, now.0)]
    StartedLate { gang: GangId, at: Timestamp, now: Timestamp },
    #[error(
        "gang {gang} fits and is first, and was bypassed {times} times by gangs that took what it could use; \
        at most {most} are fair"
    )]
    Bypassed { gang: GangId, times: usize, most: u32 },
    #[error("order {id} does not follow the one before it")]
    EffectOrder { id: String },
}
