//! `topo calibrate`.

use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use phalanx_cost::calibrate::{Fit, Kept};

use super::table::{Color, Grid, cell};
use super::{Page, clean, count, field};
use crate::verbs::topo::calibrate::{Group, is_scoped};

/// What moved, what the measurements do not determine, and which of them the fit makes worse.
pub(crate) fn page(page: &Page, measurements: usize, fit: &Fit, groups: &[Group]) -> String {
    let mut grid = Grid::new(page, &["CONSTANT", ">BEFORE", ">AFTER", ">MEASUREMENTS"]);
    for moved in &fit.moved {
        grid.row(vec![
            cell(moved.parameter.name()),
            cell(value(moved.before)),
            cell(value(moved.after)),
            cell(moved.measurements),
        ]);
    }
    let mut text = if fit.moved.is_empty() { String::new() } else { grid.render() };
    text += &kept(page, &fit.kept);
    text += &worse(page, groups);
    text.push('\n');
    if is_scoped(fit) {
        let said = "constants under `kinds` hold for that kind of machine alone: no other kind was measured";
        field(&mut text, page, "scope", said);
    }
    let said = format!(
        "{} before, {} after, over {} (predicted against measured)",
        percent(fit.error_before),
        percent(fit.error_after),
        count(measurements as u64, "measurement")
    );
    field(&mut text, page, "mean error", &said);
    text.trim_start_matches('\n').to_owned()
}

/// Constants that stay: those that some measurements depend on with what is missing, the others in one line.
fn kept(page: &Page, kept: &[Kept]) -> String {
    let (some, none): (Vec<&Kept>, Vec<&Kept>) = kept.iter().partition(|kept| kept.sizes > 0);
    let mut text = String::new();
    if !some.is_empty() {
        let mut grid = Grid::new(page, &["NOT DETERMINED", ">SIZES", ">NEEDS"]);
        for kept in some {
            grid.row(vec![cell(kept.parameter.name()), cell(kept.sizes), cell(kept.needs)]);
        }
        text += &format!("\n{}", grid.render());
    }
    if !none.is_empty() && !page.quiet {
        let all: Vec<String> = none.iter().map(|kept| kept.parameter.name()).collect();
        // A network of which nothing is known is named once.
        let both = |name: &String| {
            let network = name.strip_suffix(".share").or_else(|| name.strip_suffix(".hop_ns"))?;
            let is_whole = |end| all.iter().any(|other| *other == format!("{network}{end}"));
            (is_whole(".share") && is_whole(".hop_ns")).then(|| network.to_owned())
        };
        let mut names: Vec<String> =
            all.iter().map(|name| both(name).unwrap_or_else(|| name.clone())).collect();
        names.dedup();
        text.push('\n');
        field(&mut text, page, "unmeasured", &format!("{} stay as they are", names.join(", ")));
    }
    text
}

fn worse(page: &Page, groups: &[Group]) -> String {
    let worse: Vec<&Group> = groups.iter().filter(|group| group.is_worse()).collect();
    if worse.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "\n{}", "predicted worse than before".yellow());
    let mut grid = Grid::new(page, &[">BEFORE", ">AFTER", "FILE", "SETUP"]);
    for group in worse {
        grid.row(vec![
            cell(percent(group.error_before)),
            cell(percent(group.error_after)).fg(Color::Yellow),
            cell(clean(&group.file)),
            cell(clean(&group.setup)),
        ]);
    }
    text + &grid.render()
}

fn percent(error: f64) -> String {
    format!("{:.1} %", error * 100.0)
}

fn value(value: f64) -> String {
    format!("{:.*}", if value < 100.0 { 3 } else { 0 }, value)
}
