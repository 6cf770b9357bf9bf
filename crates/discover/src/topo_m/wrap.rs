//! Lines that a terminal or a mail program broke into several, put together again.
//!
//! A row starts with a name and a cell. So a line that starts with a cell, an affinity or the rest of a word continues
//! the row above it, and a line of names between a header and the first row continues the header.

use std::borrow::Cow;

use super::glue;
use super::table::{Header, header_of};
use super::text::{Word, words};

/// The most lines that one line is broken into: 320 columns of 8 characters at 80 characters a line.
const LINES_MAX: usize = 40;
const TAB: usize = 8;

type Line<'a> = (u32, Cow<'a, str>);

/// The lines of a text up to its first matrix, that matrix with each broken line as one line (with the number of its
/// first part), and the lines after it.
pub(super) fn joined<'a>(lines: &[(u32, &'a str)]) -> Vec<Line<'a>> {
    let mut all: Vec<Line<'a>> = Vec::with_capacity(lines.len());
    let whole = |line: &(u32, &'a str)| (line.0, Cow::Borrowed(line.1));
    let mut rest = lines;
    while let Some((first, after)) = rest.split_first() {
        if let Some((header, used)) = whole_header(rest) {
            let width = Width::of(rest).or(header.is_hard);
            all.push((first.0, header.text));
            let (rows, after) = rows(rest.get(used..).unwrap_or_default(), &header.names, width);
            all.extend(rows);
            all.extend(after.iter().map(whole));
            return all;
        }
        all.push(whole(first));
        rest = after;
    }
    all
}

struct Whole<'a> {
    text: Cow<'a, str>,
    names: Vec<String>,
    /// A word of the header was broken, so lines end where the terminal ends.
    is_hard: bool,
}

/// How wide the lines are.
#[derive(Clone, Copy)]
struct Width {
    most: usize,
    is_hard: bool,
}

impl Width {
    fn of(lines: &[(u32, &str)]) -> Self {
        let most = lines.iter().take_while(|(_, l)| !l.trim().is_empty()).map(|(_, l)| width(l)).max();
        Self { most: most.unwrap_or(0), is_hard: false }
    }

    const fn or(self, is_hard: bool) -> Self {
        Self { is_hard: self.is_hard || is_hard, ..self }
    }
}

/// A header that the row of its first name follows, and the number of its lines.
fn whole_header<'a>(lines: &[(u32, &'a str)]) -> Option<(Whole<'a>, usize)> {
    let (number, first) = *lines.first()?;
    let words_of_first = glue::header(&words(first));
    let name = header_of(number, &words_of_first)?.names.first()?.text;
    let mut used = 1;
    loop {
        let (_, line) = *lines.get(used)?;
        let words = words(line);
        let is_row =
            glue::starts_row(&words, |_| false) && glue::row(&words).first().is_some_and(|w| w.text == name);
        if is_row {
            break;
        }
        if words.is_empty() || words.first().is_some_and(|w| w.text == name) || used == LINES_MAX {
            return None;
        }
        used += 1;
    }
    let parts: Vec<&str> = lines.iter().take(used).map(|(_, l)| *l).collect();
    if used == 1 {
        let names = names_of(number, first)?;
        return Some((Whole { text: Cow::Borrowed(first), names, is_hard: false }, 1));
    }
    let most = Width::of(lines).most;
    let join = |between: &dyn Fn(&str) -> &'static str| {
        let mut text = String::new();
        for (at, part) in parts.iter().enumerate() {
            text.push_str(if at == 0 { "" } else { between(parts.get(at - 1).unwrap_or(&"")) });
            text.push_str(part);
        }
        text
    };
    let blanks = join(&|_| " ");
    if let Some(names) = names_of(number, &blanks) {
        return Some((Whole { text: Cow::Owned(blanks), names, is_hard: false }, used));
    }
    let hard = join(&|before| if width(before) == most { "" } else { " " });
    let names = names_of(number, &hard)?;
    Some((Whole { text: Cow::Owned(hard), names, is_hard: true }, used))
}

/// The names of a header that consists of names and the titles of the affinities, and names no column twice.
fn names_of(number: u32, text: &str) -> Option<Vec<String>> {
    let words = glue::header(&words(text));
    let Header { names, .. } = header_of(number, &words)?;
    let rest = words.get(names.len()..).unwrap_or_default();
    if !rest.iter().all(|w| matches!(w.text, "CPU" | "NUMA" | "GPU" | "Affinity" | "ID")) {
        return None;
    }
    let mut sorted: Vec<&str> = names.iter().map(|n| n.text).collect();
    sorted.sort_unstable();
    let is_unique = sorted.windows(2).all(|pair| pair.first() != pair.last());
    // `NIC1` and `1` on the next line are `NIC11`.
    let is_part = |name: &str| name.starts_with('_') || name.bytes().all(|c| c.is_ascii_digit());
    (is_unique && !names.iter().any(|n| is_part(n.text)))
        .then(|| names.iter().map(|n| n.text.to_owned()).collect())
}

/// The rows after a header, up to the next empty line or header, and the lines after them.
fn rows<'a, 'b>(
    mut lines: &'b [(u32, &'a str)],
    names: &[String],
    width: Width,
) -> (Vec<Line<'a>>, &'b [(u32, &'a str)]) {
    let mut rows: Vec<Line<'a>> = Vec::new();
    // The last part of the last row, and whether that row goes on.
    let mut last: Option<&str> = None;
    while let Some((&(number, line), after)) = lines.split_first() {
        let words = words(line);
        let is_header = words.len() > 1 && header_of(number, &glue::header(&words)).is_some();
        if words.is_empty() || is_header {
            break;
        }
        let is_row = glue::starts_row(&words, |name| names.iter().any(|n| n == name));
        match (last, rows.last_mut()) {
            (Some(before), Some((_, row))) if !is_row && continues(before, &words, width) => {
                join(row.to_mut(), before, line, width);
                last = Some(line);
            }
            _ => {
                rows.push((number, Cow::Borrowed(line)));
                last = is_row.then_some(line);
            }
        }
        lines = after;
    }
    (rows, lines)
}

/// Whether a line is the rest of the line before it.
fn continues(before: &str, words: &[Word<'_>], width: Width) -> bool {
    let is_legend = words.get(1).is_some_and(|w| w.text == "=");
    let Some(first) = words.first().map(|w| w.text).filter(|_| !is_legend) else { return false };
    let starts_with_cell = glue::row(words).first().is_some_and(|w| glue::is_cell(w.text) || is_list(w.text));
    starts_with_cell || (width.is_hard || self::width(before) == width.most) && is_rest(first)
}

/// What may be the rest of a cell or an affinity: letters of a class, digits, a range.
fn is_rest(text: &str) -> bool {
    text.len() <= 4 && text.bytes().all(|c| c.is_ascii_uppercase()) || is_list(text)
}

fn is_list(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit() || matches!(c, b',' | b'-'))
}

/// Adds the next part to a row. If it is open whether the cut parts two numbers or goes through one, a `?` stands
/// between them, so that the affinity is not read.
fn join(row: &mut String, before: &str, next: &str, width: Width) {
    let ends_full = self::width(before) == width.most;
    let digits =
        before.ends_with(|c: char| c.is_ascii_digit()) && next.starts_with(|c: char| c.is_ascii_digit());
    let left = before.rsplit([' ', '\t']).next().unwrap_or_default();
    let right = next.split([' ', '\t']).next().unwrap_or_default();
    let between = if !ends_full {
        " "
    } else if width.is_hard || !digits || left.starts_with("NV") || !is_list(left) {
        ""
    } else {
        // `0-127,25` and `6-383`: read as two lists, the first one does not ascend.
        match (ascends(&format!("{left}{right}")), ascends(left)) {
            (true, false) => "",
            (false, true) => " ",
            _ => "?",
        }
    };
    row.push_str(between);
    row.push_str(next);
}

fn ascends(list: &str) -> bool {
    let mut last = None;
    list.split([',', '-']).all(|part| {
        let number: Option<u32> = part.parse().ok();
        let is_next = number.is_some() && number > last;
        last = number;
        is_next
    })
}

/// The columns that a line takes on a terminal.
fn width(line: &str) -> usize {
    line.chars().fold(0, |at, c| if c == '\t' { (at / TAB + 1) * TAB } else { at + 1 })
}
