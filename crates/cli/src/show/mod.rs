//! Pages for people. Every page is a pure function of what the daemon said and of a [`Page`]; colours are
//! written always and taken away where they are not wanted, when the page is printed.

pub(crate) mod advise;
mod asked;
pub(crate) mod audit;
pub(crate) mod bill;
pub(crate) mod calendar;
pub(crate) mod defrag;
pub(crate) mod dry_run;
pub(crate) mod endpoints;
pub(crate) mod fit;
pub(crate) mod health;
pub(crate) mod history;
pub(crate) mod jobs;
pub(crate) mod kubernetes;
pub(crate) mod map;
pub(crate) mod nodes;
mod placed;
pub(crate) mod predict;
pub(crate) mod probe;
mod progress;
pub(crate) mod queues;
mod table;
mod time;
pub(crate) mod tokens;
pub(crate) mod top;
pub(crate) mod topo;
mod turn;
pub(crate) mod why;

#[cfg(test)]
pub(crate) mod golden;

use std::fmt::Write as _;

use jiff::tz::TimeZone;
use owo_colors::OwoColorize as _;
use phalanx_model::Timestamp;

pub(crate) use placed::Fleet;

/// The paper that pages are written on.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// Columns; `None` when nothing limits them.
    pub(crate) width: Option<u16>,
    pub(crate) now: Timestamp,
    pub(crate) tz: TimeZone,
    pub(crate) wide: bool,
    pub(crate) quiet: bool,
    pub(crate) ascii: bool,
}

/// Characters that ASCII terminals do not have, and what stands for them.
impl Page {
    const fn dot(&self) -> &'static str {
        if self.ascii { "-" } else { "·" }
    }

    const fn times(&self) -> &'static str {
        if self.ascii { "x" } else { "×" }
    }

    const fn ellipsis(&self) -> &'static str {
        if self.ascii { "..." } else { "…" }
    }
}

/// What a page says when it has nothing to list.
fn nothing(page: &Page, what: &str) -> String {
    if page.quiet { String::new() } else { format!("{}\n", what.dimmed()) }
}

/// Marks hardware that is only declared in a file.
fn declared(is_declared: bool) -> &'static str {
    if is_declared { " (declared)" } else { "" }
}

/// `1 GPU`, `2 GPUs`.
fn count(n: u64, one: &str) -> String {
    let many = if n == 1 { "" } else { "s" };
    format!("{n} {one}{many}")
}

/// A line of a description: a key in a column of its own, and its value wrapped beside it.
fn field(text: &mut String, page: &Page, key: &str, value: &str) {
    const KEY: usize = 12;
    let width = page.width.map_or(usize::MAX, |w| usize::from(w).saturating_sub(KEY + 3).max(20));
    for (i, line) in wrap(value, width).iter().enumerate() {
        let key = if i == 0 { key } else { "" };
        let _ = writeln!(text, "  {} {line}", format!("{key:KEY$}").dimmed());
    }
}

/// Breaks at spaces; a word that is longer than a line stands alone.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// What others wrote, without characters that could steer a terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
