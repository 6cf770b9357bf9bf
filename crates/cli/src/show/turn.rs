//! What decides when a job goes, what is held for it, and for whom it made way.

use phalanx_api::protocol::{ElasticView, GangView};
use phalanx_model::{
    After, Boundary, EndOf, Job, Phase, PreemptMode, Preemption, Replicas, Reserved, Resize,
};
use phalanx_spec::quantity::format_milli;

use super::placed;
use super::time::span;
use super::why::{Names, gang};
use super::{Page, clean, count, field};

/// Class, holds, boosts and times of a job; nothing for one that says nothing of them.
pub(super) fn fields(text: &mut String, page: &Page, job: &Job) {
    let turn = &job.turn;
    let mut say = |key: &str, what: &str| field(text, page, key, &clean(what));
    if let Some(class) = &turn.class {
        say("class", class.as_str());
    }
    if let Some(by) = &turn.held_by {
        say("held", &format!("by {by}, until `phalanx release {}`", job.id));
    }
    if let Some(boost) = &turn.boost {
        let until = page.date(boost.until);
        say("boost", &format!("priority {:+} until {until}, by {}", boost.priority, boost.by));
    }
    if !turn.after.is_empty() {
        let all: Vec<String> = turn.after.iter().map(after).collect();
        say("after", &all.join(", "));
    }
    if let Some(at) = turn.begins_at {
        say("begins", &format!("not before {} ({})", page.date(at), page.ahead(at)));
    }
    if let Some(at) = turn.deadline {
        say(
            "deadline",
            &format!("of no use if it has not started by {} ({})", page.date(at), page.ahead(at)),
        );
    }
    if let Some(array) = &turn.array {
        let tasks = count(u64::from(job.gang_count()), "task");
        say("array", &array.running_max.map_or(tasks.clone(), |max| format!("{tasks}, {max} at once")));
    }
    if let Some(service) = &turn.service {
        say("service", &replicas(service, service.most(job.gang_count())));
    }
    if let Some(ms) = job.policy.idle_limit_ms {
        say("session", &format!("ends when nobody used it for {}", span(ms)));
    }
    if turn.takes_spot {
        say("spot", "also on nodes that may be taken back at short notice");
    }
    let preempt = job.policy.preempt;
    if preempt.may_move {
        say("may move", "to open a place for another job");
    }
    match preempt.mode {
        PreemptMode::Requeue if preempt.is_pinned => {
            say("if preempted", "it waits again, for the nodes where its checkpoint is");
        }
        PreemptMode::Requeue => {}
        PreemptMode::Cancel => say("if preempted", "it ends for good"),
        PreemptMode::Never => say("if preempted", "never; so it borrows nothing"),
    }
}

fn replicas(service: &Replicas, max: u32) -> String {
    let count = if service.min == max { String::new() } else { format!("{} to ", service.min) };
    let target = service.target.as_ref().map(|target| {
        format!(", so that each has {} of {}", format_milli(target.value_milli), target.metric)
    });
    let apart = service.spread.as_ref().map(|level| format!(", apart by {level}"));
    let surge = (service.surge > 0).then(|| format!(", {} more while others leave", service.surge));
    let replicas = crate::show::count(max.into(), "replica");
    let others: String = [target, apart, surge].into_iter().flatten().collect();
    format!("{count}{replicas}{others}")
}

fn after(After { job, end }: &After) -> String {
    let how = match end {
        EndOf::Success => "succeeded",
        EndOf::Failure => "failed",
        EndOf::Any => "ended",
    };
    format!("job {job} has {how}")
}

/// What is held for a gang, and for whom it last made way.
pub(super) fn of_gang(text: &mut String, page: &Page, view: &GangView, names: &Names) {
    if let Some(reserved) = &view.reserved {
        let is_kept = view.elastic.as_ref().is_some_and(|sizes| sizes.resize.is_some());
        field(text, page, "reserved", &reservation(page, reserved, is_kept));
    }
    if let Some(evicted) = &view.evicted {
        let times = count(u64::from(view.evictions), "time");
        field(text, page, "preempted", &format!("{times}, the last {}", eviction(page, evicted, names)));
    }
    if let Some(sizes) = &view.elastic {
        elastic(text, page, view, sizes, names);
    }
    if let Some(leave) = &view.leaves {
        let until = leave.until.map(|until| format!(", by {} at the latest", page.clock(until)));
        let what =
            format!("once another replica runs in its stead{}: {}", until.unwrap_or_default(), leave.detail);
        field(text, page, "leaves", &clean(&what));
    }
    if let Some(at) = view.checkpointed_at {
        field(text, page, "saved", &format!("{} ({})", page.ago(at), page.clock(at)));
    }
}

/// Which size an elastic gang is to have next, for whom, and when it could change last.
fn elastic(text: &mut String, page: &Page, view: &GangView, sizes: &ElasticView, names: &Names) {
    if let Some(Resize { size, by, .. }) = &sizes.resize {
        let whom = by.map(|by| format!(", for {}", gang(by, names))).unwrap_or_default();
        let when = match view.phase {
            Some(Phase::Running { .. }) => "from its next boundary on",
            _ => "when it starts again",
        };
        field(text, page, "resize", &format!("to {} {when}{whom}", count(u64::from(*size), "member")));
    }
    if let Some(size) = sizes.grows_to {
        let what = format!("to {} at most, set by hand", count(u64::from(size), "member"));
        field(text, page, "grows", &what);
    }
    if let Some(Boundary { at, every_ms }) = sizes.boundary {
        let every = every_ms.map(|ms| format!(", {} after the one before", span(ms))).unwrap_or_default();
        field(text, page, "boundary", &format!("{} ({}){every}", page.ago(at), page.clock(at)));
    }
}

/// Where, and from when.
fn reservation(page: &Page, reserved: &Reserved, is_kept: bool) -> String {
    if is_kept {
        return format!("{}; its own until it starts again", clean(&placed::summary(&reserved.placement)));
    }
    let from = match reserved.at {
        Some(at) => format!("{} at the latest ({})", page.ahead(at), page.clock(at)),
        None => "no time limit says from when".to_owned(),
    };
    let evicts = if reserved.evicts { "; others make way for it" } else { "" };
    format!("{}; {from}{evicts}", clean(&placed::summary(&reserved.placement)))
}

/// For whom, by which rule, and what it cost.
fn eviction(page: &Page, eviction: &Preemption, names: &Names) -> String {
    let Preemption { by, rule, at, lost_device_ms, grace_max_ms } = eviction;
    let grace = grace_max_ms.map(|ms| format!(", with {} to save its work", span(ms))).unwrap_or_default();
    clean(&format!(
        "{} for {}: {rule}; at most {} of GPU time were lost{grace}",
        page.ago(*at),
        gang(*by, names),
        span(*lost_device_ms)
    ))
}

/// `preempted ×2; `, or nothing.
pub(super) fn times_preempted(page: &Page, evictions: u32) -> String {
    match evictions {
        0 => String::new(),
        n => format!("preempted {}{n}; ", page.times()),
    }
}
