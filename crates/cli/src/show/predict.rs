//! `predict`.

use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use phalanx_cost::{Bottleneck, Limit, PathClass, Point};
use phalanx_spec::quantity::format_memory;

use super::table::{Color, Grid, cell, dim};
use super::{Page, clean, count, field};
use crate::verbs::predict::{ChosenBy, Forecast, Row, Section};

/// A table for each placement, in the columns of nccl-tests.
pub(crate) fn page(page: &Page, forecast: &Forecast) -> String {
    let mut text = String::new();
    let mut last: Option<&Section> = None;
    for section in &forecast.placements {
        // Where both choose alike, one table says it.
        if section.chosen_by == ChosenBy::FirstFit && last.is_some_and(|last| last.devices == section.devices)
        {
            if !page.quiet {
                field(&mut text, page, "first fit", "counting devices alone would choose the same");
            }
            continue;
        }
        if last.is_some() {
            text.push('\n');
        }
        if !page.quiet {
            text += &heading(page, section);
        }
        text += &table(page, section);
        if !page.quiet {
            text += &step(page, section);
            if let Some(ours) = last.filter(|_| section.chosen_by == ChosenBy::FirstFit) {
                field(&mut text, page, "first fit", &compared(page, ours, section));
            }
        }
        last = Some(section);
    }
    if page.quiet {
        return text;
    }
    text.push('\n');
    let mut assumed: Vec<&String> = forecast.placements.iter().flat_map(|section| &section.assumed).collect();
    assumed.sort();
    assumed.dedup();
    for what in assumed {
        field(&mut text, page, "assumed", &clean(what));
    }
    field(
        &mut text,
        page,
        "basis",
        "predicted by the cost model, not measured; docs/cost-model.md has its errors",
    );
    text
}

fn heading(page: &Page, section: &Section) -> String {
    let by = match section.chosen_by {
        ChosenBy::Given => "",
        ChosenBy::Scheduler => " (the scheduler's placement)",
        ChosenBy::FirstFit => " (first fit: counting devices alone)",
    };
    let title = format!(
        "{} among {} on {}{by}",
        section.collective,
        count(section.gpus.into(), "GPU"),
        count(section.nodes.into(), "node")
    );
    let mut text = format!("{}\n", title.bold());
    if let Some(gang) = section.gang {
        field(&mut text, page, "gang", &gang.to_string());
    }
    field(&mut text, page, "GPUs", &clean(&section.shown));
    text
}

fn table(page: &Page, section: &Section) -> String {
    let headings = [">SIZE", ">TIME us", ">ALGBW GB/s", ">BUSBW GB/s", "ALGORITHM", "BOTTLENECK"];
    let mut grid = Grid::new(page, &headings);
    for row in &section.points {
        let bottleneck = match row.is_latency {
            true => cell(format!("latency{}", class_of(&row.bottleneck))).fg(Color::Yellow),
            false => dim(clean(&row.bottleneck)),
        };
        grid.row(vec![
            cell(format_memory(row.bytes)),
            cell(short(row.time_us)),
            cell(short(row.algbw_gb_per_s)),
            cell(short(row.busbw_gb_per_s)),
            cell(format!("{} {}", row.algorithm, row.protocol)),
            bottleneck,
        ]);
    }
    grid.render()
}

/// ` (NET)`: the class of path at the end of a bottleneck.
fn class_of(bottleneck: &str) -> &str {
    bottleneck.rfind(" (").and_then(|at| bottleneck.get(at..)).unwrap_or("")
}

/// What a step of the job takes, where it declares what it computes.
fn step(page: &Page, section: &Section) -> String {
    let mut text = String::new();
    let (Some(compute_us), [row]) = (section.compute_us, section.points.as_slice()) else { return text };
    let all = compute_us + row.time_us;
    let said = format!(
        "{} us: {} us computing and {} us communication ({:.0} %)",
        short(all),
        short(compute_us),
        short(row.time_us),
        row.time_us / all.max(1e-9) * 100.0
    );
    field(&mut text, page, "step", &said);
    text
}

/// `as fast at 1MiB, 7.1× slower at 8GiB`.
fn compared(page: &Page, ours: &Section, other: &Section) -> String {
    let pairs = || ours.points.iter().zip(&other.points);
    let ratio = |(ours, other): (&Row, &Row)| {
        let (slower, times) = (other.time_us / ours.time_us.max(1e-9), page.times());
        let said = match () {
            () if slower >= 1.05 => format!("{slower:.1}{times} slower"),
            () if slower <= 0.95 => format!("{:.1}{times} faster", 1.0 / slower.max(1e-9)),
            () => "as fast".to_owned(),
        };
        format!("{said} at {}", format_memory(ours.bytes))
    };
    let mut said: Vec<String> = pairs().take(1).chain(pairs().skip(1).last()).map(ratio).collect();
    said.dedup();
    said.join(", ")
}

/// Four digits at most where there is a point, as nccl-tests prints them.
fn short(number: f64) -> String {
    let decimals = match number {
        ..10.0 => 2,
        ..1_000.0 => 1,
        _ => 0,
    };
    format!("{number:.decimals$}")
}

/// The slowest part of the way in the words of NCCL and of the field: `PCIe host bridge of n1 (PHB)`.
pub(crate) fn bottleneck(point: &Point) -> String {
    let class = point.path.map_or("", PathClass::name);
    match &point.bottleneck {
        Bottleneck::None => "nothing is sent".to_owned(),
        Bottleneck::NvLink { node } => format!("NVLink of {node} ({class})"),
        Bottleneck::Xgmi { node } => format!("xGMI of {node} ({class})"),
        Bottleneck::Pcie { node } => {
            let part = match point.path {
                Some(PathClass::Pix) => "PCIe switch",
                Some(PathClass::Pxb) => "PCIe switches",
                Some(PathClass::Phb) => "PCIe host bridge",
                Some(PathClass::Sys) => "PCIe host bridges",
                _ => "PCIe",
            };
            format!("{part} of {node} ({class})")
        }
        Bottleneck::Socket { node } => format!("link between the sockets of {node} ({class})"),
        Bottleneck::HostMemory { node } => format!("host memory of {node}"),
        Bottleneck::NvLinkDomain { level, domain } => format!("NVLink of {level} {domain} (NVL)"),
        Bottleneck::Nic { node } => format!("NICs of {node} (NET)"),
        Bottleneck::DomainNics { level, domain } => format!("NICs of {level} {domain} (NET)"),
        Bottleneck::Uplink { level, domain } => format!("uplink of {level} {domain} (NET)"),
    }
    .replace(" ()", "")
}

/// One line for each placement and size, for spreadsheets.
pub(crate) fn csv(forecast: &Forecast) -> String {
    let mut text = String::from(
        "collective,placement,gpus,nodes,bytes,time_us,algbw_gb_per_s,busbw_gb_per_s,algorithm,protocol,bottleneck,limit\n",
    );
    for section in &forecast.placements {
        for row in &section.points {
            // Names hold no commas and no quotes. Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{},{},{},{},{}",
                section.collective,
                section.chosen_by.word(),
                section.gpus,
                section.nodes,
                row.bytes,
                row.time_us,
                row.algbw_gb_per_s,
                row.busbw_gb_per_s,
                row.algorithm,
                row.protocol,
                clean(&row.bottleneck),
                if row.is_latency { "latency" } else { "bandwidth" }
            );
        }
    }
    text
}

/// Whether latency is most of the time.
pub(crate) fn is_latency(point: &Point) -> bool {
    point.time.limit == Limit::Latency
}
