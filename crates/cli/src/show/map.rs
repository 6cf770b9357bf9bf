//! The cluster as a map: a cell for each GPU, below the domains of the topology.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use owo_colors::{AnsiColors, OwoColorize as _, Style};
use phalanx_api::protocol::{HELD_BY_OTHERS, MapJob, MapNode, MapView, TAKES_NO_WORK};
use phalanx_model::{Admin, Grade, JobId};

use super::table::{Color, Grid, cell, state};
use super::{Page, clean, count, nothing};

const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const COLORS: [(AnsiColors, Color); 6] = [
    (AnsiColors::Cyan, Color::Cyan),
    (AnsiColors::Green, Color::Green),
    (AnsiColors::Yellow, Color::Yellow),
    (AnsiColors::Magenta, Color::Magenta),
    (AnsiColors::Blue, Color::Blue),
    (AnsiColors::Red, Color::Red),
];
/// Columns by which a domain stands right of the one around it.
const INDENT: usize = 2;
/// Columns between nodes that share a line.
const GAP: usize = 3;

/// How a job is drawn.
#[derive(Clone, Copy, Debug)]
struct Mark {
    letter: char,
    style: Style,
    color: Color,
}

/// Draws the map; with a job only that one has its letter.
pub(crate) fn page(page: &Page, view: &MapView, lit: Option<JobId>) -> String {
    if view.nodes.is_empty() {
        return nothing(page, "no nodes");
    }
    let held = held(view);
    let marks = marks(&held, lit);
    let name_width = view.nodes.iter().map(|node| node.name.as_str().len()).max().unwrap_or(0);
    let cells = view.nodes.iter().map(|node| node.devices.len()).max().unwrap_or(0);
    let indent = view.levels.len() * INDENT;
    let block = name_width + 1 + cells.max(1) + GAP;
    let width = page.width.map_or(block, usize::from).saturating_sub(indent);
    let per_line = ((width + GAP) / block).max(1);
    let mut text = String::new();
    let mut path: &[String] = &[];
    let mut on_line = 0;
    for node in &view.nodes {
        if node.path != path || on_line == per_line {
            if on_line > 0 {
                end_line(&mut text);
            }
            on_line = 0;
        }
        if node.path != path {
            domains(&mut text, view, path, &node.path);
            path = &node.path;
        }
        if on_line == 0 {
            text.push_str(&" ".repeat(indent));
        }
        let _ = write!(text, "{:name_width$} ", node.name.as_str());
        let drawn: String =
            (0..).zip(&node.devices).map(|(at, held)| device(page, node, at, *held, &marks)).collect();
        let rest = " ".repeat(cells - node.devices.len() + GAP);
        let _ = write!(text, "{drawn}{rest}");
        on_line += 1;
    }
    end_line(&mut text);
    if !page.quiet {
        text.push('\n');
        text += &signs(page, view, lit.is_some() || held.len() > LETTERS.len());
        text += &legend(page, view, &held, &marks);
    }
    text
}

fn end_line(text: &mut String) {
    let length = text.trim_end_matches(' ').len();
    text.truncate(length);
    text.push('\n');
}

/// The names of the domains that begin here.
fn domains(text: &mut String, view: &MapView, before: &[String], path: &[String]) {
    let same = before.iter().zip(path).take_while(|(a, b)| a == b).count();
    for (depth, name) in path.iter().enumerate().skip(same) {
        let level = view.levels.get(depth).map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "{}{} {}", " ".repeat(depth * INDENT), level.dimmed(), clean(name).bold());
    }
}

/// Letters go to the jobs with the most devices first, and among equal ones to the older.
fn marks(held: &BTreeMap<i64, u32>, lit: Option<JobId>) -> BTreeMap<i64, Mark> {
    let mut ids: Vec<(i64, u32)> = held.iter().map(|(id, count)| (*id, *count)).collect();
    ids.sort_by_key(|(id, count)| (std::cmp::Reverse(*count), *id));
    let is_lit = |id: i64| lit.is_none_or(|lit| i64::try_from(lit.0) == Ok(id));
    let letters = LETTERS.chars().map(Some).chain(std::iter::repeat(None));
    ids.into_iter()
        .zip(COLORS.into_iter().cycle())
        .zip(letters)
        .filter(|(((id, _), _), _)| is_lit(*id))
        .filter_map(|(((id, _), color), letter)| {
            let style = Style::new().color(color.0).bold();
            Some((id, Mark { letter: letter?, style, color: color.1 }))
        })
        .collect()
}

/// Devices of each job.
fn held(view: &MapView) -> BTreeMap<i64, u32> {
    let mut held = BTreeMap::new();
    for id in view.nodes.iter().flat_map(|node| &node.devices).flatten().filter(|id| **id >= 0) {
        *held.entry(*id).or_default() += 1;
    }
    held
}

const fn free(page: &Page) -> &'static str {
    if page.ascii { "." } else { "·" }
}

const fn other(page: &Page) -> &'static str {
    if page.ascii { "o" } else { "▒" }
}

fn device(page: &Page, node: &MapNode, at: usize, held: Option<i64>, marks: &BTreeMap<i64, Mark>) -> String {
    let bad = |grade: Grade| grade >= Grade::DrainAfterJob;
    let is_bad =
        bad(node.grade) || node.grades.as_ref().and_then(|all| all.get(at)).is_some_and(|grade| bad(*grade));
    match held {
        None => free(page).dimmed().to_string(),
        Some(TAKES_NO_WORK) if is_bad => "!".red().bold().to_string(),
        Some(TAKES_NO_WORK) => "x".yellow().to_string(),
        Some(HELD_BY_OTHERS) => "?".yellow().to_string(),
        Some(id) => match marks.get(&id) {
            Some(mark) => mark.letter.style(mark.style).to_string(),
            None => other(page).dimmed().to_string(),
        },
    }
}

/// What the signs mean that are on the map. With `has_others`, jobs without a letter are on it.
fn signs(page: &Page, view: &MapView, has_others: bool) -> String {
    let (mut free_count, mut closed, mut foreign, mut total) = (0_u64, 0_u64, 0_u64, 0_u64);
    for held in view.nodes.iter().flat_map(|node| &node.devices) {
        total += 1;
        match held {
            None => free_count += 1,
            Some(TAKES_NO_WORK) => closed += 1,
            Some(HELD_BY_OTHERS) => foreign += 1,
            Some(_) => {}
        }
    }
    let cordoned = view.nodes.iter().filter(|node| node.admin != Admin::Open).count() as u64;
    let mut parts = vec![format!("{} {free_count} of {} free", free(page), count(total, "GPU"))];
    if closed > 0 {
        let why = if cordoned > 0 { format!(" ({} closed)", count(cordoned, "node")) } else { String::new() };
        parts.push(format!("x ! {closed} take no work{why}, ! by their health"));
    }
    if foreign > 0 {
        parts.push(format!("? {foreign} in use by other programs"));
    }
    if has_others {
        parts.push(format!("{} other jobs", other(page)));
    }
    parts.join("   ") + "\n"
}

fn legend(page: &Page, view: &MapView, held: &BTreeMap<i64, u32>, marks: &BTreeMap<i64, Mark>) -> String {
    let mut rows: Vec<(char, &MapJob, u32, Color)> = view
        .jobs
        .iter()
        .filter_map(|job| {
            let id = i64::try_from(job.id.0).ok()?;
            let mark = marks.get(&id)?;
            Some((mark.letter, job, held.get(&id).copied().unwrap_or(0), mark.color))
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    rows.sort_by_key(|(letter, ..)| LETTERS.find(*letter));
    let mut grid = Grid::new(page, &["", ">JOB", "NAME", "USER", "QUEUE", "STATE", ">GPUS"]);
    for (letter, job, devices, color) in rows {
        grid.row(vec![
            cell(letter).fg(color),
            cell(job.id),
            cell(clean(&job.name)),
            cell(clean(&job.owner)),
            cell(clean(&job.queue)),
            state(&job.state),
            cell(devices),
        ]);
    }
    format!("\n{}", grid.render())
}
