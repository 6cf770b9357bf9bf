//! The picture of a fault: the phases of its gang over time, and the steps below them.

use std::fmt::Write;

use super::record::{Notice, Phases, Record, Sample, time};

/// Heights, in pixels.
const BAR: [f64; 2] = [22.0, 24.0];
const CURVE: [f64; 2] = [60.0, 78.0];
const AXIS: f64 = 156.0;
const HEIGHT: f64 = 162.0;
const MARGIN: f64 = 4.0;
/// Between two labels of the axis, at least.
const TICK: f64 = 70.0;

/// A part of the bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Segment {
    /// The class of its colour.
    pub(super) class: &'static str,
    pub(super) label: &'static str,
    pub(super) from_ms: i64,
    pub(super) to_ms: i64,
}

/// Times that a picture shows, in milliseconds from the fault.
fn window(fault: &Record) -> [i64; 2] {
    let Phases { noticed_ms, first_step_ms, ended_ms, .. } = fault.phases;
    let last_note = fault.done.last().and_then(|note| note.at_ms).filter(|_| first_step_ms.is_none());
    let end = [noticed_ms, first_step_ms, last_note].into_iter().flatten().max().unwrap_or_default();
    let end = (end + end / 3).max(400);
    let end = ended_ms.map_or(end, |ended| end.min(ended.max(400)));
    [-end / 5, end]
}

/// What the gang did, from left to right.
pub(super) fn segments(phases: &Phases, notice: Notice, [from, to]: [i64; 2]) -> Vec<Segment> {
    let Phases { noticed_ms, stopping_ms, stopped_ms, placed_ms, running_ms, ended_ms, .. } = *phases;
    // The fault came while the gang started for the first time.
    let starts = stopping_ms.is_none() && placed_ms.is_some();
    let (before, on) = if starts { ("starts", "is placed") } else { ("runs", "runs on") };
    let edges = [
        (if starts { "starting" } else { "runs" }, before, Some(from)),
        ("unnoticed", notice.before(), Some(0)),
        (if starts { "placing" } else { "runs" }, on, noticed_ms),
        ("stopping", "stops", stopping_ms),
        ("placing", "is placed", stopped_ms),
        ("starting", "starts", placed_ms),
        ("runs", "runs", running_ms),
        ("ended", "ended", ended_ms),
    ];
    let reached: Vec<(&str, &str, i64)> = edges
        .iter()
        .filter_map(|(class, label, at)| Some((*class, *label, (*at)?.clamp(from, to))))
        .collect();
    let ends = reached.iter().skip(1).map(|(_, _, at)| *at).chain([to]);
    let all = reached.iter().zip(ends).map(|((class, label, from_ms), to_ms)| Segment {
        class,
        label,
        from_ms: *from_ms,
        to_ms,
    });
    all.filter(|segment| segment.to_ms > segment.from_ms).collect()
}

/// As SVG of a width in pixels.
#[allow(clippy::cast_precision_loss, reason = "pixels")]
pub(super) fn strip(fault: &Record, width: f64) -> String {
    let [from, to] = window(fault);
    let x = |ms: i64| MARGIN + (ms - from) as f64 / (to - from) as f64 * (width - 2.0 * MARGIN);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {width} {HEIGHT}\" width=\"{width}\" height=\"{HEIGHT}\" role=img \
         aria-label=\"phases and steps of the gang over time\">"
    );
    for Segment { class, label, from_ms, to_ms } in segments(&fault.phases, fault.notice, [from, to]) {
        let (left, wide) = (x(from_ms), (x(to_ms) - x(from_ms)).max(1.5));
        let [top, high] = BAR;
        let title = format!("{label}: {} to {}", time(from_ms), time(to_ms));
        _ = write!(
            svg,
            "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top}\" width=\"{wide:.1}\" height=\"{high}\"><title>{title}</title></rect>"
        );
        // A label needs about seven pixels for a letter.
        if wide > 7.0 * label.len() as f64 + 6.0 {
            let (at, line) = (left + wide / 2.0, top + high / 2.0 + 4.0);
            _ = write!(svg, "<text class=\"in {class}\" x=\"{at:.1}\" y=\"{line}\">{label}</text>");
        }
    }
    svg += &curve(fault, &x, [from, to]);
    svg += &axis(&x, [from, to], width);
    let (at, bottom) = (x(0), CURVE[0] + CURVE[1]);
    _ = write!(
        svg,
        "<path class=\"fault\" d=\"M{at:.1} 16V{bottom}\"/><text class=\"fault\" x=\"{at:.1}\" y=\"12\">fault</text></svg>"
    );
    svg
}

/// Completed steps of each attempt.
#[allow(clippy::cast_precision_loss, reason = "pixels")]
fn curve(fault: &Record, x: &impl Fn(i64) -> f64, [from, to]: [i64; 2]) -> String {
    let Some(zero) = fault.fault_ms.and_then(|ms| i64::try_from(ms).ok()) else { return String::new() };
    let at = |sample: &Sample| i64::try_from(sample.at_ms).unwrap_or(i64::MAX) - zero;
    let shown: Vec<&Sample> =
        fault.samples.iter().filter(|sample| (from..=to).contains(&at(sample))).collect();
    let (Some(least), Some(most)) =
        (shown.iter().map(|of| of.step).min(), shown.iter().map(|of| of.step).max())
    else {
        return String::new();
    };
    let [top, high] = CURVE;
    let y = |step: u64| top + high - (step - least) as f64 / (most - least).max(1) as f64 * high;
    let mut svg = String::new();
    for attempt in shown.chunk_by(|a, b| a.attempt == b.attempt) {
        let mut path = String::new();
        for sample in attempt {
            let (x, y) = (x(at(sample)), y(sample.step));
            let _ =
                if path.is_empty() { write!(path, "M{x:.1} {y:.1}") } else { write!(path, "H{x:.1}V{y:.1}") };
        }
        // The last attempt that is shown goes on to the right edge, and others until they were stopped.
        let end = if attempt.last() == shown.last() { Some(to) } else { fault.phases.stopped_ms };
        if let Some(end) = end {
            _ = write!(path, "H{:.1}", x(end.clamp(from, to)));
        }
        _ = write!(svg, "<path class=\"steps\" d=\"{path}\"/>");
    }
    let (low, line, right) = (top + high - 4.0, top + 9.0, x(to));
    _ = write!(
        svg,
        "<text class=\"axis\" x=\"{MARGIN}\" y=\"{line}\">step {most}</text>\
         <text class=\"low\" x=\"{right:.1}\" y=\"{low}\">step {least}</text>"
    );
    svg
}

/// Times below the curve.
#[allow(clippy::cast_precision_loss, reason = "pixels")]
fn axis(x: &impl Fn(i64) -> f64, [from, to]: [i64; 2], width: f64) -> String {
    let steps = [50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000];
    let wide = |step: &i64| *step as f64 / (to - from) as f64 * width >= TICK;
    let step = steps.into_iter().find(wide).unwrap_or(120_000);
    let mut svg =
        format!("<path class=\"axis\" d=\"M{MARGIN} {0}H{1}\"/>", CURVE[0] + CURVE[1], width - MARGIN);
    let mut at = (from / step) * step;
    while at <= to {
        let left = x(at);
        if left > 16.0 && left < width - 24.0 {
            let label = if at == 0 { "0".to_owned() } else { time(at) };
            _ = write!(svg, "<text class=\"tick\" x=\"{left:.1}\" y=\"{AXIS}\">{label}</text>");
        }
        at += step;
    }
    svg
}
