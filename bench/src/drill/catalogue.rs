//! The faults of a drill: what each does, what is expected of Phalanx, and on what it rests.

use phalanx_health::Action;

use super::hardware::{self, FOUND, LINK, XID};
use super::host::{self, Disk, FULL};
use super::ranks;
use super::record::{Basis, Notice};
use super::ring::FEW_AGAIN;
use super::scene::{Kept, Plan, Scene, Unplanned};

pub(super) struct Fault {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) basis: Basis,
    pub(super) notice: Notice,
    /// Stated before the fault. That the job finishes with the correct result is expected of each fault besides.
    pub(super) expects: &'static [&'static str],
    pub(super) plan: fn() -> Result<Plan, Unplanned>,
    pub(super) inject: fn(&mut Scene) -> Result<(), String>,
}

/// Judged at the end of the job.
const STAYS: &str = "Phalanx neither stops nor moves the gang until the end of the job";
const MOVES: &str = "Phalanx stops the gang and starts it again without this GPU";
const CLOSED: &str = "a job that needs all 8 GPUs waits until an operator clears the GPU";

/// In the order of the report.
pub(super) const FAULTS: [Fault; 13] = [
    Fault {
        id: "rank-killed",
        title: "A rank is killed",
        basis: ranks::BASIS,
        notice: Notice::Reports,
        expects: &[
            "Phalanx notices that a rank failed, and stops the whole gang",
            "Phalanx starts all ranks again, as attempt 2",
            FEW_AGAIN,
        ],
        plan: || Ok(ranks::plan(20)),
        inject: ranks::is_killed,
    },
    Fault {
        id: "rank-frozen",
        title: "A rank freezes, and goes on later",
        basis: ranks::BASIS,
        notice: Notice::Reports,
        expects: &[
            "Phalanx reports that the job is stalled, a minute after its last step",
            STAYS,
            "Phalanx reports that the job goes on",
        ],
        plan: || Ok(ranks::plan(20)),
        inject: ranks::is_frozen,
    },
    Fault {
        id: "rank-slow",
        title: "A rank is slower than the others",
        basis: ranks::BASIS,
        notice: Notice::Reports,
        expects: &["Phalanx names the straggler", STAYS],
        plan: || Ok(ranks::plan(40)),
        inject: ranks::is_slowed,
    },
    Fault {
        id: "gpu-lost",
        title: "A GPU is removed",
        basis: FOUND,
        notice: Notice::Reports,
        expects: &["Phalanx grades the GPU broken", MOVES, FEW_AGAIN],
        plan: || hardware::found(30),
        inject: hardware::gpu_is_lost,
    },
    xid(
        "xid-ignore",
        "Xid 45: the table says ignore",
        &["Phalanx records the Xid, and the GPU stays ok", STAYS],
        |scene| hardware::xid_is_logged(scene, Action::Ignore),
    ),
    xid(
        "xid-application",
        "Xid 31: a fault of the program",
        &["Phalanx records the Xid, and the GPU stays ok", STAYS],
        |scene| hardware::xid_is_logged(scene, Action::Application),
    ),
    xid("xid-watch", "Xid 63: the GPU is watched", &["Phalanx grades the GPU suspect", STAYS], |scene| {
        hardware::xid_is_logged(scene, Action::Watch)
    }),
    xid(
        "xid-drain-after-job",
        "Xid 78: the GPU is closed to new jobs",
        &["Phalanx grades the GPU drain_after_job", STAYS, CLOSED],
        |scene| hardware::xid_is_logged(scene, Action::DrainAfterJob),
    ),
    xid(
        "xid-drain-now",
        "Xid 48: a double-bit ECC error",
        &["Phalanx grades the GPU drain_now", MOVES, FEW_AGAIN, CLOSED],
        |scene| hardware::xid_is_logged(scene, Action::DrainNow),
    ),
    xid(
        "xid-broken",
        "Xid 79: the GPU has fallen off the bus",
        &["Phalanx grades the GPU broken", MOVES, FEW_AGAIN, CLOSED],
        |scene| hardware::xid_is_logged(scene, Action::Broken),
    ),
    Fault {
        id: "link-degraded",
        title: "A link degrades, and breaks later",
        basis: LINK,
        notice: Notice::Drill,
        expects: &[
            "Phalanx stops the gang for the move only after its next checkpoint",
            "the rank on the degraded node moves, and the other rank stays on its node",
            FEW_AGAIN,
            "the gang runs on when the link breaks, in the same attempt",
        ],
        plan: || hardware::networked(20),
        inject: hardware::link_degrades,
    },
    Fault {
        id: "disk-full",
        title: "The disk of the state folder is full",
        basis: FULL,
        notice: Notice::Reports,
        expects: &[
            "Phalanx refuses a new job, and names the missing space",
            "the running gang completes steps on the full disk",
            STAYS,
            "Phalanx accepts a new job once there is space, and runs it",
        ],
        plan: || {
            let disk = Some(Disk::mount()?);
            Ok(Plan { kept: Kept { disk, ..Kept::default() }, ..ranks::plan(20) })
        },
        inject: host::is_full,
    },
    Fault {
        id: "daemon-killed",
        title: "The daemon is killed, and started again",
        basis: ranks::BASIS,
        notice: Notice::Answers,
        expects: &["all ranks live on without a daemon, and complete steps", STAYS, "no step is done again"],
        plan: || Ok(ranks::plan(20)),
        inject: host::daemon_is_killed,
    },
];

const fn xid(
    id: &'static str,
    title: &'static str,
    expects: &'static [&'static str],
    inject: fn(&mut Scene) -> Result<(), String>,
) -> Fault {
    Fault { id, title, basis: XID, notice: Notice::Reports, expects, plan: || hardware::found(20), inject }
}
