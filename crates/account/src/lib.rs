//! The account: what every device is for at every moment.
//!
//! Each thousandth of each device is in exactly one [`State`] at a time, and each millisecond of it is charged to that
//! state: the entries of a [`Book`] over any time add up to the devices that there were, times that time. The book is told
//! what gangs hold and what nodes have ([`Holding`], [`Host`]); it reads no clock, and equal tellings give equal entries.
//! Amounts are thousandths of a device times milliseconds, that is microseconds of one device (`device_us`).

pub mod advice;
mod book;
mod rate;

use std::fmt;
use std::sync::Arc;

use phalanx_model::{DeviceMask, JobId, NodeName, QueueName};
use serde::{Deserialize, Serialize};

pub use book::{Book, HOUR_MS};
pub use rate::{Priced, Rate};

/// What a part of a device is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The ranks of a gang run, and their work counted in the end, or may still count.
    Running,
    /// The ranks of a gang run, and no kernel has run on its devices for a while.
    HeldIdle,
    /// The members of a gang are being prepared.
    Starting,
    /// The ranks of a gang were told to stop: they save their work and end.
    Stopping,
    /// Ranks ran, and their work was lost by a failure of the gang or its hardware.
    LostToFailure,
    /// Ranks ran, and their work was lost because the gang made way for others.
    LostToPreemption,
    /// Free, and kept for a gang that waits, or for a queue.
    Reserved,
    /// Free.
    Idle,
    /// Free, on a node that takes no new work: cordoned, or closed by the calendar.
    Closed,
    /// Free, on a node that is being drained.
    Draining,
    /// Free, and closed by the health of the device or its node.
    Broken,
    /// In use by processes that are not those of jobs.
    Foreign,
    /// Nobody looked: the scheduler did not run, and no gang held it throughout.
    Unobserved,
}

impl State {
    pub const ALL: [Self; 13] = [
        Self::Running,
        Self::HeldIdle,
        Self::Starting,
        Self::Stopping,
        Self::LostToFailure,
        Self::LostToPreemption,
        Self::Reserved,
        Self::Idle,
        Self::Closed,
        Self::Draining,
        Self::Broken,
        Self::Foreign,
        Self::Unobserved,
    ];

    /// The state as users read it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::HeldIdle => "held_idle",
            Self::Starting => "starting",
            Self::Stopping => "stopping",
            Self::LostToFailure => "lost_to_failure",
            Self::LostToPreemption => "lost_to_preemption",
            Self::Reserved => "reserved",
            Self::Idle => "idle",
            Self::Closed => "closed",
            Self::Draining => "draining",
            Self::Broken => "broken",
            Self::Foreign => "foreign",
            Self::Unobserved => "unobserved",
        }
    }

    /// The state of a word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// Whether a job held the device.
    #[must_use]
    pub const fn is_held(self) -> bool {
        matches!(
            self,
            Self::Running
                | Self::HeldIdle
                | Self::Starting
                | Self::Stopping
                | Self::LostToFailure
                | Self::LostToPreemption
        )
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Why the work of a gang is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    Failure,
    Preemption,
}

impl Loss {
    const fn state(self) -> State {
        match self {
            Self::Failure => State::LostToFailure,
            Self::Preemption => State::LostToPreemption,
        }
    }
}

/// The job that a device is charged to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Payer {
    pub queue: QueueName,
    pub uid: u32,
    pub user: String,
    pub job: JobId,
    pub name: String,
    /// Priority class; empty if the job names none.
    pub class: String,
}

/// What kind of device it is, and what it costs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// Empty if unknown.
    pub model: String,
    pub is_spot: bool,
    /// The price is that of spot nodes.
    pub has_spot_price: bool,
    /// Of one device for an hour, in millionths of the unit that the site counts in. 0: unknown.
    pub price_micro: u64,
}

/// What is charged together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub state: State,
    /// `None` if no job has the device.
    pub payer: Option<Arc<Payer>>,
    pub class: Arc<Class>,
}

/// An amount that was charged within one hour. It is negative if time that was charged before turned out to be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number of the hour since 1970.
    pub hour: u64,
    pub key: Key,
    pub device_us: i64,
}

/// What a gang holds, or has reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    pub payer: Arc<Payer>,
    /// [`State::Running`], `HeldIdle`, `Starting`, `Stopping`, or `Reserved` for what is kept for the gang.
    pub state: State,
    pub slots: Vec<Held>,
    /// Why the gang stops, if the work since its last checkpoint is lost with it.
    pub loss: Option<Loss>,
}

/// What one member of a gang holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub node: NodeName,
    pub devices: DeviceMask,
    /// Of each of the devices, in thousandths.
    pub each_milli: u64,
}

/// What a node has, and what becomes of devices that no gang holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// By device.
    pub devices: Vec<Arc<Class>>,
    /// Devices in use by others.
    pub foreign: DeviceMask,
    /// Devices that their health closes.
    pub broken: DeviceMask,
    /// The state of free devices that nobody has reserved.
    pub unused: State,
}

/// How a gang stands once it holds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It waits again: why it stopped decides whether work is lost.
    Waits,
    /// It ended, and nothing is lost.
    Ended,
    /// It ended, and its work since the last checkpoint is lost.
    Lost(Loss),
}
