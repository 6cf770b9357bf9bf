//! What goes wrong, and how often. All zero: every answer comes at once and in order.

use serde::{Deserialize, Serialize};

/// Chances are in percent, times in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
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
    /// That a node is gone is told up to this much later: until then work is placed there, and fails.
    pub news_max_ms: u64,
    /// After a restart the leader before goes on deciding for a while, and its orders come late.
    pub two_leaders: u64,
    /// Something happens while the journal's disk is full: no fact is taken, and what was decided last has not left.
    pub disk_full: u64,
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
            news_max_ms: 0,
            two_leaders: 0,
            disk_full: 0,
        }
    }

    /// The same without one of them, for each that there is.
    pub(crate) fn fewer(self) -> impl Iterator<Item = Self> {
        let without: [fn(&mut Self) -> &mut u64; 10] = [
            |f| &mut f.delay_max_ms,
            |f| &mut f.duplicate,
            |f| &mut f.order_lost,
            |f| &mut f.answer_lost,
            |f| &mut f.start_refused,
            |f| &mut f.member_start,
            |f| &mut f.member_stuck,
            |f| &mut f.news_max_ms,
            |f| &mut f.two_leaders,
            |f| &mut f.disk_full,
        ];
        without.into_iter().filter_map(move |field| {
            let mut fewer = self;
            (std::mem::take(field(&mut fewer)) > 0).then_some(fewer)
        })
    }
}
