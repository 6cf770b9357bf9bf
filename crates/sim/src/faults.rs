//! What goes wrong, and how often. All zero: every answer comes at once and in order.

/// Chances are in percent, times in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Every order and every answer takes up to this long, each on its own: so they overtake each other.
    pub delay_max_ms: u64,
    /// An answer comes a second time.
    pub duplicate: u64,
    /// An order is lost, and its outcome is unknown.
    pub order_lost: u64,
    /// An order is carried out, and its answer is lost.
    pub answer_lost: u64,
    /// Nothing of an order to start happens.
    pub start_refused: u64,
    /// One member cannot be started.
    pub member_start: u64,
    /// A member of a gang never comes to the gate.
    pub member_stuck: u64,
}

impl Faults {
    #[must_use]
    pub const fn none() -> Self {
        Self {
            delay_max_ms: 0,
            duplicate: 0,
            order_lost: 0,
            answer_lost: 0,
            start_refused: 0,
            member_start: 0,
            member_stuck: 0,
        }
    }
}
