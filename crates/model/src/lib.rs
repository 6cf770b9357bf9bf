//! The vocabulary of Phalanx as types.
//!
//! Everything that crosses the boundary of a crate is defined here: names and ids, time, amounts, machines and the
//! domain tree, jobs and gangs, the facts that enter the engine ([`Input`]), the orders that leave it ([`Effect`]),
//! and its reports ([`Change`], [`Report`]). No type here needs a clock, a file or a thread.

pub mod array;
pub mod bandwidth;
mod change;
pub mod cost_table;
mod defragmentation;
pub mod domains;
pub mod effect;
pub mod gang;
pub mod graph;
pub mod health;
mod idle;
pub mod ids;
pub mod input;
pub mod job;
pub mod later;
mod lookup;
pub mod machine;
pub mod mask;
mod migration;
pub mod needs;
pub mod node;
mod parallel;
pub mod past;
pub mod plan;
mod policy;
pub mod price;
pub mod product;
pub mod question;
pub mod queue;
mod records;
pub mod report;
mod service;
pub mod shape;
pub mod show;
mod snapshot;
pub mod time;
mod torus;
mod update;
mod vitals;

pub use array::{Array, Progress, TASKS_MAX, Tasks, TasksError};
pub use bandwidth::{Bandwidth, Bandwidths, Uplink, WeighedLink};
pub use change::Change;
pub use cost_table::{CollectiveCost, CostTable, DomainCost, LevelCost, NicCost, ShapeCost, Transport};
pub use defragmentation::{Defragmentation, Move, Opening};
pub use effect::{Effect, EffectId, Epoch, Order, Outcome, Signal, Wake};
pub use gang::{
    Boundary, Exit, GangRecord, Leave, MemberRecord, MemberState, Phase, Placement, Preemption,
    PreemptionRule, Reserved, Resize, Served, Slot, StopCause, StopStage,
};
pub use graph::{End, FabricLink, Graph, Host, Measured, Membership, Switch, Torus, TorusPlace};
pub use health::{Grade, Graded, Health, NodeHealth};
pub use idle::{IdlePolicy, IdleThen};
pub use ids::{
    ClassName, DomainName, GangId, JobId, JobName, LevelName, MemberId, NameError, NodeName, QueueName,
    ResourceName, RoleName, ShapeName,
};
pub use input::{Input, SyncKind};
pub use job::{
    After, Boost, EndOf, Ending, FailureClass, Gang, Job, LaunchKind, Owner, Pattern, Program, Role,
    SecretSource, Segment, Spread, Topology, Traffic, Turn,
};
pub use lookup::JobLookup;
pub use machine::{Device, DeviceGroup, Link, LinkKind, Machine, Nic, Origin, Port};
pub use mask::DeviceMask;
pub use migration::Migration;
pub use needs::{DevicePart, ModelNeed, Needs, PartNeed, profile_milli};
pub use node::{Admin, DomainLimit, ForeignUse, Kept, Levels, Node, NodeSet, Spare, Spot};
pub use parallel::{Axis, AxisKind, Collective};
pub use past::PastRuns;
pub use plan::{Decision, Plan};
pub use policy::{Advisory, Policy, Preempt, PreemptMode, Retry, Stop};
pub use price::{Budget, Period, PricedHours, Tariff};
pub use product::Product;
pub use question::{Answer, Question};
pub use queue::{
    Access, Amounts, Caps, Class, DecayedUsage, Delay, Pool, PoolReport, Pools, Queue, QueueOrder,
    QueueReport, Reclaim, Resource, ResourceReport, SERVICE_LEVELS_DEFAULT_MS, SERVICE_LEVELS_MAX, Settings,
    ShapeQuota, ShapeReport, Spares,
};
pub use report::{
    Confidence, Estimate, LevelCount, LikelyStart, QueueBound, QueueLimit, Reason, Rejection, Report, Rule,
    Unblock,
};
pub use service::{Look, Replicas, Service, Session, Target};
pub use snapshot::Snapshot;
pub use time::Timestamp;
pub use update::JobUpdate;
pub use vitals::{
    LinkVitals, PortState, PortVitals, Pressure, RemappedRows, Stall, Stalls, Throttle, Vitals,
};

/// The largest number of devices on one node: a [`DeviceMask`] has this many bits.
pub const DEVICES_PER_NODE_MAX: u32 = 64;
/// The largest gang that is read, a guard against absurd input; far above 100,000 devices.
pub const MEMBERS_PER_GANG_MAX: u32 = 1_000_000;
