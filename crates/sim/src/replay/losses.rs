//! Where the device time of a job went that did not come to work that was kept.

/// Device time in ms, by cause. With what came to work that was kept, as at the best place, it is all that a job held.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Losses {
    /// It stood still to save its work.
    pub saving: f64,
    /// A node of it was slow.
    pub slow_nodes: f64,
    /// It communicated across more than it has to.
    pub places: f64,
    /// Work that was done since the last checkpoint when a node was lost.
    pub lost_nodes: f64,
    /// The same, when the policy stopped it and did not wait for it to save.
    pub stops: f64,
    /// All work of a job that its time limit ended.
    pub limits: f64,
}

/// Why work was in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InVain {
    NodeLost,
    Stopped,
}

/// How fast a job gets on: the parts that are left of its speed at the best place, each of what the one before leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Speed {
    pub(super) saving: f64,
    pub(super) slow_node: f64,
    pub(super) place: f64,
}

impl Default for Speed {
    fn default() -> Self {
        Self { saving: 1.0, slow_node: 1.0, place: 1.0 }
    }
}

impl Losses {
    /// So much device time passed at a speed; taken back where it is less than 0.
    pub(super) fn count(&mut self, gpu_ms: f64, speed: Speed) {
        self.saving += gpu_ms * (1.0 - speed.saving);
        self.slow_nodes += gpu_ms * speed.saving * (1.0 - speed.slow_node);
        self.places += gpu_ms * speed.saving * speed.slow_node * (1.0 - speed.place);
    }

    /// Work that so much device time came to was in vain. What slowed it down meanwhile is in that.
    pub(super) fn lose(&mut self, gpu_ms: f64, speed: Speed, why: InVain) {
        self.count(-gpu_ms, speed);
        match why {
            InVain::NodeLost => self.lost_nodes += gpu_ms,
            InVain::Stopped => self.stops += gpu_ms,
        }
    }

    /// A time limit ended the job, which held devices for so much device time after it had started: whatever became of
    /// that, it was in vain.
    pub(super) fn lose_all(&mut self, gpu_ms: f64) {
        *self = Self { limits: gpu_ms, ..Self::default() };
    }

    /// Of work that was done and not kept.
    #[must_use]
    pub fn in_vain(&self) -> f64 {
        self.lost_nodes + self.stops + self.limits
    }
}
