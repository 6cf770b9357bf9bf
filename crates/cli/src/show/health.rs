//! `health`.

use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use phalanx_api::protocol::{HealthView, PortView, PressureView, SampleView};
use phalanx_health::{Line, Next, Repair, Seen};
use phalanx_model::bandwidth::percent;
use phalanx_model::{Bandwidth, Grade, PortVitals, Throttle};

use super::table::{self, Grid, cell, dim};
use super::{Page, clean, count};

/// What is not ok; of one node also all evidence, and the last samples.
pub(crate) fn page(page: &Page, view: &HealthView, is_one: bool) -> String {
    let mut text = String::new();
    let shown: Vec<&Line> =
        view.lines.iter().filter(|line| is_one || line.grade != Grade::Ok || line.held.is_some()).collect();
    if !shown.is_empty() {
        text += &rows(page, &shown);
    }
    if page.quiet {
        return text;
    }
    text += &bandwidths(page, &view.bandwidths);
    if is_one {
        text += &evidence(page, &view.lines);
        text += &samples(page, &view.samples);
        text += &ports(page, &view.ports);
        text += &pressure(page, &view.pressure);
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let closed = view.lines.iter().filter(|line| line.grade.is_closed() && line.device.is_some()).count();
    let watched = if view.sources.is_empty() {
        "only what is reported is known".to_owned()
    } else {
        format!("watched: {}", view.sources.join(", "))
    };
    let devices = count(u64::from(view.devices), "GPU");
    let is_left = |line: &Line| matches!(line.next, Next::WhenReset | Next::WhenRebooted | Next::WhenCleared);
    if let Some(line) = view.lines.iter().find(|line| is_left(line)) {
        let hint = format!("after a repair: `phalanx health clear {}`", hardware(line));
        let _ = writeln!(text, "{}", hint.dimmed());
    }
    let closed = if closed == 0 {
        format!("none of {devices} is closed")
    } else {
        format!("{closed} of {devices} closed")
    };
    let _ = writeln!(text, "{}", format!("{closed}; {watched}").dimmed());
    if let Some(why) = &view.breaker {
        let _ = writeln!(text, "{} circuit breaker: {}", "warning:".yellow(), clean(why));
    }
    for missing in &view.missing {
        let _ = writeln!(text, "{} {}", "note:".cyan(), clean(missing));
    }
    text
}

/// `gpu-1:3`, or `gpu-1` for the node itself.
pub(crate) fn hardware(line: &Line) -> String {
    line.device.map_or_else(|| line.node.to_string(), |device| format!("{}:{device}", line.node))
}

fn rows(page: &Page, lines: &[&Line]) -> String {
    let mut grid = Grid::new(page, &["GPU", "GRADE", "SINCE", "WHY", "NEXT"]);
    for line in lines {
        let why = if line.detail.is_empty() {
            line.evidence.first().map_or_else(String::new, |seen| clean(&seen.what))
        } else {
            clean(&line.detail)
        };
        let grade = line.grade.word().replace('_', " ");
        let grade = line.held.map_or_else(
            || grade.clone(),
            |held| format!("{grade} (held: {})", held.word().replace('_', " ")),
        );
        grid.row(vec![
            cell(hardware(line)),
            colour(line.grade, &grade),
            dim(page.ago(line.since)),
            cell(why),
            cell(next(page, line)),
        ]);
    }
    grid.render()
}

fn colour(grade: Grade, text: &str) -> comfy_table::Cell {
    let cell = cell(text);
    match grade {
        Grade::Ok => cell.fg(table::Color::Green),
        Grade::Suspect => cell.fg(table::Color::Yellow),
        Grade::DrainAfterJob => cell.fg(table::Color::Magenta),
        Grade::DrainNow | Grade::Broken => cell.fg(table::Color::Red),
    }
}

/// What happens next, or has to be done first.
fn next(page: &Page, line: &Line) -> String {
    match line.next {
        Next::Nothing => String::new(),
        Next::OkAt(at) if line.probation_until.is_some() => format!("on probation, ok {}", page.ahead(at)),
        Next::OkAt(at) => format!("ok {}", page.ahead(at)),
        Next::Held => "held by the circuit breaker".to_owned(),
        Next::WhenFree => "back once free and quiet".to_owned(),
        Next::WhenQuiet => "back once the fault is gone".to_owned(),
        Next::WhenReset => "reset, then clear".to_owned(),
        Next::WhenRebooted => format!("reboot {}", line.node),
        Next::WhenItAnswers => "back once it answers".to_owned(),
        Next::WhenCleared if line.repair == Repair::Service => "repair, then clear".to_owned(),
        Next::WhenCleared => "clear".to_owned(),
    }
}

/// Links that new gangs of several nodes avoid.
fn bandwidths(page: &Page, links: &[Bandwidth]) -> String {
    if links.is_empty() {
        return String::new();
    }
    let mut grid = Grid::new(page, &["NETWORK", ">MEASURED", ">COUNTS AS", "SINCE", "WHY"]);
    for of in links {
        grid.row(vec![
            cell(&of.uplink),
            cell(percent(of.permille)),
            cell(percent(of.share())),
            dim(page.ago(of.at)),
            cell(clean(&of.detail)),
        ]);
    }
    format!("\n{}", grid.render())
}

fn evidence(page: &Page, lines: &[Line]) -> String {
    let mut grid = Grid::new(page, &["SEEN", "GPU", ">TIMES", "EVIDENCE"]);
    let mut all: Vec<(&Line, &Seen)> =
        lines.iter().flat_map(|line| line.evidence.iter().map(move |seen| (line, seen))).collect();
    all.sort_by_key(|(_, seen)| std::cmp::Reverse(seen.at));
    if all.is_empty() {
        return String::new();
    }
    for (line, seen) in all {
        let device = line.device.map_or_else(|| "-".to_owned(), |device| device.to_string());
        grid.row(vec![dim(page.ago(seen.at)), cell(device), cell(seen.times), cell(clean(&seen.what))]);
    }
    format!("\n{}", grid.render())
}

fn samples(page: &Page, samples: &[SampleView]) -> String {
    if samples.is_empty() {
        return String::new();
    }
    let headings = ["GPU", ">BUSY", ">MEMORY", ">TEMP", ">POWER", ">CLOCK", ">ECC", ">LINKS", "THROTTLED"];
    let mut grid = Grid::new(page, &headings);
    let or_dash = |text: Option<String>| cell(text.unwrap_or_else(|| "-".to_owned()));
    for SampleView { device, vitals, .. } in samples {
        if vitals.is_lost {
            grid.row(vec![cell(device), cell("lost")]);
            continue;
        }
        let up = vitals.links.iter().filter(|link| link.is_up).count();
        grid.row(vec![
            cell(device),
            or_dash(vitals.busy_percent.map(|percent| format!("{percent} %"))),
            or_dash(vitals.memory_used_bytes.map(|bytes| format!("{} MiB", bytes >> 20))),
            or_dash(vitals.temperature_c.map(|c| format!("{c} °C"))),
            or_dash(vitals.power_mw.map(|mw| format!("{} W", mw / 1_000))),
            or_dash(vitals.sm_clock_mhz.map(|mhz| format!("{mhz} MHz"))),
            or_dash(vitals.ecc_uncorrected.map(|errors| errors.to_string())),
            or_dash((!vitals.links.is_empty()).then(|| format!("{up}/{}", vitals.links.len()))),
            cell(vitals.throttle.map_or("", throttled)),
        ]);
    }
    format!("\n{}", grid.render())
}

fn ports(page: &Page, ports: &[PortView]) -> String {
    if ports.is_empty() {
        return String::new();
    }
    let headings =
        ["PORT", "STATE", ">RATE", ">RECEIVED", ">SENT", ">ERRORS", ">DOWNED", ">DISCARDS", ">WAITS"];
    let mut grid = Grid::new(page, &headings);
    let or_dash = |text: Option<String>| cell(text.unwrap_or_else(|| "-".to_owned()));
    let number = |value: Option<u64>| or_dash(value.map(|value| value.to_string()));
    let gib = |value: Option<u64>| or_dash(value.map(|bytes| format!("{} GiB", bytes >> 30)));
    for PortView { port, .. } in ports {
        grid.row(vec![
            cell(clean(&port.name)),
            cell(port.state.word()),
            or_dash(port.bytes_per_s.map(rate)),
            gib(port.received_bytes),
            gib(port.sent_bytes),
            number(errors(port)),
            number(port.downed),
            number(port.send_discards),
            number(port.send_wait_ticks),
        ]);
    }
    format!("\n{}", grid.render())
}

/// Shares of the time in which some processes wait, and all of them.
fn pressure(page: &Page, views: &[PressureView]) -> String {
    let mut grid = Grid::new(page, &["PRESSURE", ">10S", ">1M", ">5M", ">FULL 10S", ">FULL 1M", ">FULL 5M"]);
    let share = |hundredths: Option<u32>| {
        cell(hundredths.map_or_else(|| "-".to_owned(), |of| format!("{}.{} %", of / 100, of % 100 / 10)))
    };
    let counted = views.iter().flat_map(|view| view.pressure.by_resource());
    let counted: Vec<_> = counted.filter_map(|(resource, stalls)| Some((resource, stalls?))).collect();
    if counted.is_empty() {
        return String::new();
    }
    for (resource, stalls) in counted {
        let mut row = vec![cell(resource)];
        for of in [Some(stalls.some), stalls.full] {
            row.push(share(of.map(|of| of.avg10_hundredths)));
            row.push(share(of.map(|of| of.avg60_hundredths)));
            row.push(share(of.map(|of| of.avg300_hundredths)));
        }
        grid.row(row);
    }
    format!("\n{}", grid.render())
}

/// All kinds of errors that the port counts.
fn errors(port: &PortVitals) -> Option<u64> {
    let kinds = [port.symbol_errors, port.recoveries, port.receive_errors];
    kinds.into_iter().flatten().reduce(u64::saturating_add)
}

/// As the kernel gives it: `400 Gb/s`, `2.5 Gb/s`, `100 Mb/s`.
fn rate(bytes_per_s: u64) -> String {
    match bytes_per_s / 125_000 {
        mbit if mbit < 1_000 => format!("{mbit} Mb/s"),
        mbit if mbit % 1_000 < 100 => format!("{} Gb/s", mbit / 1_000),
        mbit => format!("{}.{} Gb/s", mbit / 1_000, mbit % 1_000 / 100),
    }
}

const fn throttled(throttle: Throttle) -> &'static str {
    match throttle {
        Throttle { is_power_brake: true, .. } => "power brake",
        Throttle { is_hot: true, .. } => "too hot",
        Throttle { is_hardware: true, .. } => "by the hardware",
        Throttle { is_warm: true, .. } => "warm",
        _ => "",
    }
}
