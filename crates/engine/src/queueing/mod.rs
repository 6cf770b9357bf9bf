//! Which gang goes next, which gang is preempted, and by which rule: queues with their guarantees, the pending gangs,
//! and the order between them.

mod attained_service;
mod bounds;
mod configured;
mod entitlement;
mod fair_share;
mod fill_order;
mod fronts;
mod order;
mod pending;
pub(crate) mod pools;
mod preemption_rules;
mod queues;
mod report;
mod request_class;
mod resources;
mod usage_decay;

pub(crate) use bounds::Full;
pub(crate) use fill_order::FillOrder;
pub(crate) use fronts::SetAside;
pub(crate) use order::Next;
pub(crate) use pending::{OrderKey, PendingQueue, is_for_nearness};
pub(crate) use preemption_rules::{Claim, Contender, Rule};
pub(crate) use queues::{Holder, HolderKey, QueueAt, Queues, ROOT};
pub(crate) use request_class::{Near, RequestClass, RequestClassId, RequestKey, Versions, longest_ms};
pub(crate) use resources::{GPUS, ResourceList};
