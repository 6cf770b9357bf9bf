//! A report of a gang that waits, as sentences: why it waits, when it would start, and what would change that.

use phalanx_model::show::count;
use phalanx_model::{
    Confidence, Estimate, GangId, JobId, LikelyStart, Reason, Report, Rule, Timestamp, Unblock,
};

/// How names and times are written for somebody.
pub trait Reader {
    /// A gang with the name of its job: `job 3 (eval)`.
    fn gang(&self, id: GangId) -> String;
    /// How long it is until then: `in 20m 00s`, or `now`.
    fn ahead(&self, at: Timestamp) -> String;
    /// The time of day: `14:02:11`.
    fn clock(&self, at: Timestamp) -> String;
    /// The day and the time.
    fn date(&self, at: Timestamp) -> String;
    /// Whether the job was submitted: values of others are changed with flags of their submission.
    fn is_submitted(&self) -> bool {
        true
    }
    /// Between a number and what it multiplies.
    fn times(&self) -> &'static str {
        "×"
    }
}

/// Everything, one sentence for each line. Nothing for a gang that does not wait.
#[must_use]
pub fn report(reader: &dyn Reader, report: &Report) -> Vec<String> {
    if report.position == 0 {
        return Vec::new();
    }
    let mut lines = vec![capital(&reason(reader, &report.reason)) + "."];
    lines.push(format!("Its place in the order is {} of {}.", report.position, report.of));
    lines.push(match report.estimated_start {
        None if report.likely_start.is_none() => format!("Its start cannot be estimated{}.", because(report)),
        _ => format!("It would start {}.", start(reader, report)),
    });
    for (at, unblock) in report.unblock.iter().enumerate() {
        let first = if at == 0 { "It starts if" } else { "Or if" };
        let way = way_out(reader, report.gang.job, unblock) + &ahead_of(report, unblock);
        lines.push(format!("{first} {way}."));
    }
    lines
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// When it would start, and why that is not known.
#[must_use]
pub fn start(reader: &dyn Reader, report: &Report) -> String {
    let likely = report.likely_start.map_or_else(String::new, |start| likely(reader, start));
    format!("{likely}{}{}", estimate(reader, report.estimated_start), because(report))
}

/// Why nobody knows when it would start; nothing where somebody does.
fn because(report: &Report) -> &'static str {
    let endless = |u: &Unblock| matches!(u, Unblock::GangsEnd { at: None, .. });
    let short = matches!(
        report.reason,
        Reason::Resources { .. } | Reason::Topology { .. } | Reason::Nodes { .. } | Reason::Shape { .. }
    );
    match report.estimated_start {
        None if report.unblock.iter().any(endless) => ": a job in its way has no time limit",
        // No job of ours is in the way.
        None if short && report.unblock.is_empty() => ": others hold what it needs",
        _ => "",
    }
}

/// Why a gang waits, with the name of the job where it speaks of another gang.
#[must_use]
pub fn reason(reader: &dyn Reader, reason: &Reason) -> String {
    match reason {
        Reason::Priority { ahead, at: None } => {
            format!("{} has reached its bypass limit and must start first", reader.gang(*ahead))
        }
        Reason::Priority { ahead, at: Some(at) } => format!(
            "cannot backfill: would still be running when {} is due to start ({})",
            reader.gang(*ahead),
            reader.clock(*at)
        ),
        Reason::Preempting { victims } => {
            let victims = list(victims.iter().map(|id| reader.gang(*id)));
            format!("reserved; waiting for these jobs to leave: {victims}")
        }
        Reason::Dependency { jobs } => {
            format!("waits for the end of {}", list(jobs.iter().map(|job| reader.gang(job.gang(0)))))
        }
        Reason::BeginTime { at } => {
            format!("not to start before {} ({})", reader.date(*at), reader.ahead(*at))
        }
        Reason::BackOff { until } => format!("failed before, and is tried again {}", reader.ahead(*until)),
        Reason::Window { ends_at: Timestamp::MAX, .. } => {
            format!("{reason}; nobody said when that is over")
        }
        Reason::Window { ends_at, .. } => format!("{reason}; the first is over {}", reader.clock(*ends_at)),
        Reason::PreferredWait { until: Timestamp::MAX, .. }
        | Reason::NearerWait { until: Timestamp::MAX, .. } => format!("{reason}, however long that takes"),
        Reason::PreferredWait { until, .. } | Reason::NearerWait { until, .. } => {
            format!("{reason}, until {}", reader.clock(*until))
        }
        Reason::None => "was not considered yet".to_owned(),
        _ => reason.to_string(),
    }
}

/// It starts at once.
#[must_use]
pub const fn is_now(estimate: Option<Estimate>) -> bool {
    matches!(estimate, Some(Estimate { confidence: Confidence::Now, .. }))
}

/// When it would start, and how sure that is.
#[must_use]
pub fn estimate(reader: &dyn Reader, estimate: Option<Estimate>) -> String {
    match estimate {
        Some(Estimate { confidence: Confidence::Now, .. }) => "now".to_owned(),
        Some(Estimate { at, confidence: Confidence::AtLatest }) => {
            format!("{} at the latest ({}), if nothing goes ahead of it", reader.ahead(at), reader.clock(at))
        }
        None => "unknown".to_owned(),
    }
}

/// `in about 20m 00s (14:20:00) by the last 6 runs of what is in its way; `
#[must_use]
pub fn likely(reader: &dyn Reader, LikelyStart { at, runs }: LikelyStart) -> String {
    let (ahead, clock) = (reader.ahead(at).replacen("in ", "in about ", 1), reader.clock(at));
    format!("{ahead} ({clock}) by the last {runs} runs of what is in its way; ")
}

/// One way in which it would start.
#[must_use]
pub fn way_out(reader: &dyn Reader, job: JobId, unblock: &Unblock) -> String {
    match unblock {
        Unblock::GangsEnd { gangs, at } => {
            let listed = list(gangs.iter().map(|id| reader.gang(*id)));
            let verb = if gangs.len() == 1 { "ends" } else { "end" };
            format!("{listed} {verb}{}", by(reader, *at))
        }
        Unblock::RelaxTo { level, domain, times_milli } => {
            let times = times_milli.map(|milli| {
                let tenths = (milli + 50) / 100;
                format!(
                    ", where its collective takes {}.{}{} the time (predicted)",
                    tenths / 10,
                    tenths % 10,
                    reader.times()
                )
            });
            format!(
                "it may spread over one {level}: it starts now in {domain}{} (`--topology {level}`)",
                times.unwrap_or_default()
            )
        }
        Unblock::Without { rule: Rule::Spares } => {
            "it may use spare nodes, which are kept for jobs whose hardware fails (`phalanx nodes` marks them): it fits there now"
                .to_owned()
        }
        Unblock::Without { rule } => format!("it does without {rule}: it fits now"),
        Unblock::StartFarther { nodes } => format!(
            "it does not wait for a nearer place: it starts now on {} (`--topology anywhere`)",
            count(u64::from(*nodes), "node")
        ),
        Unblock::Uncordon { nodes } => {
            let each = list(nodes.iter().map(|node| format!("`phalanx uncordon {node}`")));
            format!("nodes take work again: {each}")
        }
        Unblock::Repair { closed } => {
            let each = closed.iter().map(|(node, devices)| {
                if devices.is_empty() { node.to_string() } else { format!("{node}:{devices}") }
            });
            format!("hardware is repaired: {} (`phalanx health` says what is wrong)", list(each))
        }
        Unblock::At { at } => format!("time passes: {} ({})", reader.ahead(*at), reader.clock(*at)),
        Unblock::Preempt { at } => format!(
            "a job that it may preempt has run for the least time of its class: {} ({})",
            reader.ahead(*at),
            reader.clock(*at)
        ),
        Unblock::ShorterLimit { limit_ms } => {
            let minutes = limit_ms / 60_000;
            let update =
                if reader.is_submitted() { format!("phalanx update {job} ") } else { String::new() };
            format!("its time limit is at most {minutes} minutes: it starts now (`{update}--time {minutes}m`)")
        }
    }
}

/// The end of jobs makes room at a time at which the gang does not start yet, for gangs go before it.
#[must_use]
pub fn ahead_of(report: &Report, unblock: &Unblock) -> String {
    let ahead = report.position.saturating_sub(1);
    let starts_at = report.estimated_start.map_or(Timestamp::MAX, |start| start.at);
    match unblock {
        Unblock::GangsEnd { at, .. } if ahead > 0 && at.is_none_or(|at| at < starts_at) => {
            let (who, leave) = if ahead == 1 { ("the gang", "leaves") } else { ("the gangs", "leave") };
            format!(", and {who} ahead of it {leave} it that room")
        }
        _ => String::new(),
    }
}

fn by(reader: &dyn Reader, at: Option<Timestamp>) -> String {
    at.map_or_else(
        || " (no time limit says when)".to_owned(),
        |at| format!(", {} at the latest ({})", reader.ahead(at), reader.clock(at)),
    )
}

/// `a, b and c`, and how many more.
fn list(items: impl Iterator<Item = String>) -> String {
    const SHOWN: usize = 6;
    let mut items: Vec<String> = items.collect();
    if items.len() > SHOWN {
        let more = items.len() - SHOWN;
        items.truncate(SHOWN);
        items.push(format!("{more} more"));
    }
    match items.split_last() {
        Some((last, front)) if !front.is_empty() => format!("{} and {last}", front.join(", ")),
        _ => items.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Plain;

    impl Reader for Plain {
        fn gang(&self, id: GangId) -> String {
            format!("job {}", id.job)
        }

        fn ahead(&self, at: Timestamp) -> String {
            format!("in {} ms", at.0)
        }

        fn clock(&self, at: Timestamp) -> String {
            format!("at {}", at.0)
        }

        fn date(&self, at: Timestamp) -> String {
            format!("on {}", at.0)
        }
    }

    #[test]
    fn a_report_is_whole_sentences() {
        let gang = JobId(2).gang(0);
        let held = Report {
            gang,
            reason: Reason::None,
            levels: Vec::new(),
            position: 1,
            of: 3,
            unblock: Vec::new(),
            estimated_start: None,
            nearest: None,
            likely_start: None,
            less_served: 0,
            weighed: Vec::new(),
        };
        let said = report(&Plain, &held);
        assert_eq!(
            said,
            [
                "Was not considered yet.",
                "Its place in the order is 1 of 3.",
                "Its start cannot be estimated."
            ]
        );
        let ends = Unblock::GangsEnd { gangs: vec![JobId(1).gang(0)], at: None };
        let blocked = Report { unblock: vec![ends], ..held.clone() };
        assert_eq!(
            report(&Plain, &blocked)[2..],
            [
                "Its start cannot be estimated: a job in its way has no time limit.",
                "It starts if job 1 ends (no time limit says when)."
            ]
        );
        let estimated_start = Some(Estimate { at: Timestamp(9), confidence: Confidence::AtLatest });
        let known = Report { estimated_start, ..held.clone() };
        assert_eq!(
            report(&Plain, &known)[2],
            "It would start in 9 ms at the latest (at 9), if nothing goes ahead of it."
        );
        assert_eq!(report(&Plain, &Report { position: 0, ..held }), [""; 0]);
    }
}
