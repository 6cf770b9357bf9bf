//! What stands between the engine and the bugs that others had. A build for tests can take one guard away, and the test
//! that is named after the bug must then fail; in any other build every guard is a constant.

/// A condition that keeps out a known class of bugs, by what it says.
#[cfg_attr(not(feature = "mutation"), allow(unreachable_pub, reason = "a build for tests exports it"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guard {
    /// Nothing that is held for those behind stands in the way of who goes first.
    HoldsYield,
    /// What is given to one is taken before the next is looked at.
    TakenAtOnce,
    /// A place is free only when the last process of those in it is gone.
    FreeWhenGone,
    /// Who no longer has a place held is no longer counted for it.
    UncountedWithHold,
    /// Those that run are counted whatever the queues are now.
    RunningCounted,
    /// A queue is billed for what was found, not for the least that was asked.
    BilledAsFound,
    /// Only who ends in time goes in front of a reservation.
    EndsInTime,
    /// Room in a queue wakes who waits for it.
    RoomWakes,
    /// News that say nothing new are no reason to plan.
    OldNewsIgnored,
    /// Who evicts stands better than who is evicted.
    StandsBetter,
    /// Who may not be disrupted for now is not evicted.
    ProtectedStays,
    /// What can resume in one place only is placed there.
    PinnedStays,
    /// Requests that end at different times are different requests.
    SpanTellsApart,
    /// A place with a node that is gone is no place.
    PlaceIsThere,
    /// What others make way for is counted after a restart too.
    ClaimsSurvive,
    /// No queue stands below itself.
    NoCircles,
    /// The gate opens when all are there.
    AllAtTheGate,
    /// What an order to start did not bring up has ended.
    FailedIsEnded,
    /// What ran on a node that is gone is gone.
    GoneWithNode,
    /// What others hold is not free.
    OthersCounted,
    /// An answer is to an order of the leader that gave it.
    EpochTellsApart,
    /// What was said of a job is forgotten with it.
    ForgottenWithJob,
    /// Only whoever may use what came free is looked at.
    FreedAlone,
    /// Who runs keeps what it has when the nodes are counted anew.
    HeldIsTaken,
    /// What a gang had is free once it is gone.
    GivenBack,
    /// What came free is looked at by who waits.
    FreedWakes,
    /// Nobody is placed outside the level that he requires.
    InsideLevel,
    /// A queue that is at its limit gets nothing more.
    WithinLimit,
    /// All of a gang are ordered to start.
    OrderedWhole,
    /// A node that is closed takes no work.
    ClosedTakesNothing,
    /// What is due happens.
    TimersExpire,
    /// Who ran before a restart has what it has.
    RunsAfterRestart,
    /// An end that is told is believed.
    EndIsHeard,
    /// In a queue that goes by service, only who had more makes way.
    ServedMoreYields,
    /// What a gang had before a restart it had.
    ServiceSurvives,
}

/// The guards that stand: all.
#[cfg(not(feature = "mutation"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guards;

#[cfg(not(feature = "mutation"))]
impl Guards {
    pub(crate) const ALL: Self = Self;

    #[allow(clippy::unused_self, reason = "a build for tests looks at it")]
    pub(crate) const fn stand(self, _: Guard) -> bool {
        true
    }
}

/// The guards that stand: all but one.
#[cfg(feature = "mutation")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guards {
    pub(crate) without: Option<Guard>,
}

#[cfg(feature = "mutation")]
impl Guards {
    pub(crate) const ALL: Self = Self { without: None };

    pub(crate) fn stand(self, guard: Guard) -> bool {
        self.without != Some(guard)
    }
}
