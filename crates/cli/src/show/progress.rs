//! Progress of a gang.

use std::fmt::Write as _;

use phalanx_api::protocol::{CheckpointView, GangView, ProgressView, StragglerView};
use phalanx_spec::quantity::format_milli;

use super::time::{micros, span};
use super::{Page, clean, field};

pub(super) fn of_gang(text: &mut String, page: &Page, gang: &GangView, progress: &ProgressView) {
    if let Some(step) = progress.step {
        field(text, page, "progress", &how_far(page, step, progress));
    }
    if let Some(since) = progress.stalled_since {
        let behind: Vec<String> = progress.behind.iter().map(|rank| rank_of(gang, *rank)).collect();
        let behind = if behind.is_empty() {
            String::new()
        } else {
            format!("; behind the others: {}", behind.join(", "))
        };
        let what = format!("no further step for {}{behind}", span(page.now.since(since)));
        field(text, page, "stalled", &clean(&what));
    }
    for straggler in &progress.stragglers {
        field(text, page, "straggler", &clean(&slower(gang, straggler)));
    }
    if let Some(advice) = &progress.checkpoint {
        field(text, page, "checkpoints", &interval(advice));
    }
    if let Some(unread) = &progress.unread {
        field(text, page, "unread", &clean(unread));
    }
}

/// `step 1200 of 9000 (13 %), 2.42 steps/s; ends in 53m 32s (12:53:32) if it goes on so`.
fn how_far(page: &Page, step: u64, progress: &ProgressView) -> String {
    let mut text = format!("step {step}");
    if let Some(of) = progress.of {
        let percent = step.saturating_mul(100) / of.max(1);
        let _ = write!(text, " of {of} ({percent} %)");
    }
    if let Some(us) = progress.step_us.filter(|us| *us > 0) {
        text += &match us {
            ..1_000_000 => format!(", {} steps/s", format_milli(round(1_000_000_000 / us))),
            _ => format!(", {} a step", micros(us)),
        };
    }
    if let Some(at) = progress.ends_at {
        let _ = write!(text, "; ends {} ({}) if it goes on so", page.ahead(at), page.clock(at));
    }
    text
}

/// Thousandths, to three digits.
fn round(milli: u64) -> u64 {
    let digits = milli.checked_ilog10().unwrap_or(0);
    let least = 10_u64.pow(digits.saturating_sub(2));
    milli / least * least
}

/// `rank 5 on gpu-2`.
fn rank_of(gang: &GangView, rank: u32) -> String {
    let member = gang.members.iter().find(|member| member.rank == rank);
    member.map_or_else(|| format!("rank {rank}"), |member| format!("rank {rank} on {}", member.node))
}

fn slower(gang: &GangView, straggler: &StragglerView) -> String {
    let StragglerView { rank, work_us, median_us } = *straggler;
    let member = gang.members.iter().find(|member| member.rank == rank).filter(|of| !of.devices.is_empty());
    let devices = member.map(|member| format!(" (GPU {})", member.devices)).unwrap_or_default();
    let times = format_milli(round(work_us.saturating_mul(1_000) / median_us.max(1)));
    let (rank, work, median) = (rank_of(gang, rank), micros(work_us), micros(median_us));
    format!("{rank}{devices} works {work} on a step, {times} times the median of its gang, {median}")
}

fn interval(advice: &CheckpointView) -> String {
    let CheckpointView { takes_ms, loss_every_ms, every_ms } = *advice;
    let (every, takes, loss) = (span(every_ms), micros(takes_ms.saturating_mul(1_000)), span(loss_every_ms));
    format!(
        "every {every} costs least (estimated): one takes {takes}, and a node of the job fails every {loss}"
    )
}
