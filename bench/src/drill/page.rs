//! The report as one HTML page that opens offline.

use std::fmt::Write;

use jiff::Timestamp;

use super::record::{Basis, Check, Notice, Phases, Record, Report, Verdict, time};
use super::strip::strip;
use crate::tables::escaped;

const STYLE: &str = include_str!("page.css");
/// Widths of the pictures, in pixels: of a page on a screen, and on a phone.
const WIDE: f64 = 894.0;
const NARROW: f64 = 316.0;

pub(super) fn page(report: &Report) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\n\
         <title>{}: {}</title>\n<style>\n{STYLE}</style>\n<main>\n",
        report.setting.title,
        escaped(&report.summary())
    );
    html += &head(report);
    html += &overview(report);
    report.faults.iter().for_each(|fault| html += &section(fault, report.setting.quotes));
    _ = write!(
        html,
        "<footer>\n<p>{}</p>\n<p>Repeat the drill with <code>{}</code>.</p>\n</footer>\n</main>\n</html>\n",
        escaped(report.setting.times),
        report.setting.command
    );
    html
}

fn head(report: &Report) -> String {
    let began = i64::try_from(report.began_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let began = began.map(|at| at.strftime("%-d %B %Y, %H:%M UTC").to_string()).unwrap_or_default();
    let took = time(i64::try_from(report.took_ms).unwrap_or(i64::MAX));
    let count = |verdict| report.count(verdict);
    let (passed, failed, skipped) =
        (count(Verdict::Passed), count(Verdict::Failed), count(Verdict::PassedOver));
    let (badge, word) = match failed {
        0 if report.is_empty() => ("passed_over", "nothing tried"),
        0 => ("passed", "passed"),
        _ => ("failed", "failed"),
    };
    let slowest = report.faults.iter().filter_map(|fault| fault.phases.first_step_ms).max();
    let slowest = slowest.map_or_else(|| "–".to_owned(), time);
    let again: u64 = report.faults.iter().map(|fault| fault.steps.again).sum();
    let over = if skipped > 0 { format!(", {skipped} passed over") } else { String::new() };
    format!(
        "<header>\n<h1>{} <span class=\"badge {badge}\">{word}</span></h1>\n\
         <p class=lead>{}</p>\n\
         <p class=note>{began}. Phalanx {}, on {}. {}</p>\n</header>\n\
         <div class=figures>\n<div><b>{passed} of {}</b><span>faults passed{over}</span></div>\n\
         <div><b>{slowest}</b><span>longest time from a fault to the next step of a restarted gang</span></div>\n\
         <div><b>{again}</b><span>steps done again, over all faults</span></div>\n\
         <div><b>{took}</b><span>duration of the drill</span></div>\n</div>\n",
        report.setting.title,
        escaped(&report.summary()),
        report.version,
        escaped(&report.machine),
        escaped(report.setting.about),
        report.faults.len(),
    )
}

fn badge(verdict: Verdict) -> String {
    let class = match verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "failed",
        Verdict::PassedOver => "passed_over",
    };
    format!("<span class=\"badge {class}\">{}</span>", verdict.word().to_lowercase())
}

fn overview(report: &Report) -> String {
    let mut html = "<table>\n<thead><tr><th>fault<th>verdict<th>noticed<th class=optional>stopped<th class=optional>running\
                    <th>next step<th class=optional>steps again</tr></thead>\n<tbody>\n"
        .to_owned();
    for fault in &report.faults {
        let Phases { noticed_ms, stopped_ms, running_ms, first_step_ms, .. } = fault.phases;
        let of = |ms: Option<i64>| ms.map_or_else(|| "–".to_owned(), time);
        let is_tried = fault.fault_ms.is_some();
        let goes_on = if is_tried { "runs on" } else { "–" };
        _ = writeln!(
            html,
            "<tr><td><a href=\"#{}\">{}</a><td>{}<td>{}<td class=optional>{}<td class=optional>{}<td>{}<td class=optional>{}</tr>",
            fault.id,
            escaped(fault.title),
            badge(fault.verdict),
            if fault.notice == Notice::Drill && is_tried {
                "by the drill".to_owned()
            } else {
                of(noticed_ms)
            },
            of(stopped_ms),
            of(running_ms),
            first_step_ms.map_or_else(|| goes_on.to_owned(), time),
            if is_tried { fault.steps.again.to_string() } else { "–".to_owned() },
        );
    }
    html += "</tbody>\n</table>\n<ul class=keys>";
    for (class, label) in [
        ("runs", "the gang runs"),
        ("unnoticed", "Phalanx has not noticed the fault yet"),
        ("stopping", "the gang stops"),
        ("placing", "the gang waits for its placement"),
        ("starting", "the gang starts"),
        ("ended", "the job has ended"),
    ] {
        _ = write!(html, "<li><i class={class}></i>{label}</li>");
    }
    _ = writeln!(
        html,
        "</ul>\n<p class=note>Colours of the time lines below. The black line shows the completed steps of rank 0: it drops where \
         steps are done again. {}</p>",
        escaped(report.setting.phases)
    );
    html
}

/// `heading` is that of the quotes.
fn section(fault: &Record, heading: &str) -> String {
    let mut html = format!(
        "<section id=\"{}\">\n<div class=head><h2>{}</h2>{}</div>\n",
        fault.id,
        escaped(fault.title),
        badge(fault.verdict)
    );
    if let Some(why) = &fault.why {
        _ = writeln!(html, "<p>{}.</p>", escaped(why));
    }
    if fault.fault_ms.is_some() {
        html += &story(fault);
        html += &picture(fault);
    }
    html += &checks(&fault.checks);
    html += &quotes(fault, heading);
    html += &more(fault);
    html + "</section>\n"
}

/// What was done and what came of it, in sentences.
fn story(fault: &Record) -> String {
    let steps = fault.steps;
    let mut text = format!("After step {} the drill {}.", steps.at_fault, fault.injected);
    if let Some(noticed) = fault.phases.noticed_ms {
        _ = write!(text, " {} {}.", fault.notice.sentence(), time(noticed));
    }
    match (steps.resumed_from, fault.phases.first_step_ms) {
        (Some(from), Some(first)) => {
            _ = write!(
                text,
                " The gang restarted from step {from} and completed its next step {} after the fault; {}.",
                time(first),
                again(steps.again)
            );
        }
        (None, Some(first)) if fault.phases.stopping_ms.is_none() => {
            _ = write!(text, " The gang completed its first step {} after the fault.", time(first));
        }
        _ => {
            let pause = steps.pause_ms.and_then(|ms| i64::try_from(ms).ok()).map(time);
            let pause = pause.map(|pause| format!("; its longest pause between two steps was {pause}"));
            _ = write!(text, " The gang ran on{}.", pause.unwrap_or_default());
        }
    }
    format!("<p>{}</p>\n", escaped(&text))
}

fn again(steps: u64) -> String {
    match steps {
        0 => "no step was done again".to_owned(),
        1 => "1 step was done again".to_owned(),
        n => format!("{n} steps were done again"),
    }
}

fn picture(fault: &Record) -> String {
    let Phases { noticed_ms, stopping_ms, stopped_ms, placed_ms, running_ms, first_step_ms, ended_ms } =
        fault.phases;
    let mut caption = String::new();
    for (label, at) in [
        (fault.notice.word(), noticed_ms),
        ("stopping", stopping_ms),
        ("stopped", stopped_ms),
        ("placed", placed_ms),
        ("running", running_ms),
        ("next step", first_step_ms),
        ("job ended", ended_ms),
    ] {
        if let Some(at) = at {
            _ = write!(caption, "<span>{label} <b>{}</b></span>", time(at));
        }
    }
    format!(
        "<figure><div class=wide>{}</div><div class=narrow>{}</div>\n<figcaption>{caption}</figcaption></figure>\n",
        strip(fault, WIDE),
        strip(fault, NARROW)
    )
}

fn checks(checks: &[Check]) -> String {
    if checks.is_empty() {
        return String::new();
    }
    let mut html = "<h3>Expected before the fault, and found</h3>\n<ul class=checks>\n".to_owned();
    for Check { expected, holds, found } in checks {
        let class = if *holds { "holds" } else { "misses" };
        let expected = upper(expected);
        _ = writeln!(html, "<li class={class}>{}.<small>{}</small></li>", escaped(&expected), escaped(found));
    }
    html + "</ul>\n"
}

/// With a capital letter.
fn upper(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn quotes(fault: &Record, heading: &str) -> String {
    if fault.noticed.is_empty() {
        return String::new();
    }
    let mut html = format!("<h3>{heading}</h3>\n<dl class=log>\n");
    for quote in &fault.noticed {
        let at = quote.at_ms.map(time).unwrap_or_default();
        let (text, from) = (escaped(&quote.text), escaped(&quote.from));
        _ = writeln!(html, "<dt>{at}</dt><dd><code>{text}</code><small>{from}</small></dd>");
    }
    html + "</dl>\n"
}

fn more(fault: &Record) -> String {
    let Basis { real, declared, emulated } = fault.basis;
    let mut html = "<h3>Real, declared, emulated</h3>\n<dl class=\"log basis\">\n".to_owned();
    for (word, what) in [("real", real), ("declared", declared), ("emulated", emulated)] {
        _ = writeln!(html, "<dt>{word}</dt><dd>{}</dd>", escaped(what));
    }
    html += "</dl>\n";
    if fault.done.is_empty() {
        return html;
    }
    html += "<details><summary>What the drill did, and where the ranks ran</summary>\n<dl class=log>\n";
    for note in &fault.done {
        _ = writeln!(
            html,
            "<dt>{}</dt><dd>{}</dd>",
            note.at_ms.map(time).unwrap_or_default(),
            escaped(&note.what)
        );
    }
    let [before, after] = &fault.placed;
    for (label, places) in [("before", before), ("at the end", after)] {
        let ranks = places.iter().enumerate().map(|(rank, place)| format!("rank {rank} on {place}"));
        _ = writeln!(html, "<dt>{label}</dt><dd>{}</dd>", escaped(&ranks.collect::<Vec<_>>().join("; ")));
    }
    html + "</dl></details>\n"
}
