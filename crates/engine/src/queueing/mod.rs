//! Who goes next, who yields, and by what right: queues with what they are guaranteed, the line of those that wait, and
//! the order between them.

mod ask;
mod bounds;
mod configured;
mod due;
mod fade;
mod goods;
mod line;
mod order;
mod owed;
mod queues;
mod report;
mod right;
mod service;

pub(crate) use ask::{Ask, AskId, AskKey, Versions, longest_ms};
pub(crate) use bounds::Full;
pub(crate) use goods::Bill;
pub(crate) use line::{Line, Turn};
pub(crate) use order::Next;
pub(crate) use queues::{Holder, QueueAt, Queues, ROOT, Seat};
pub(crate) use right::{Claim, Party, Right};
