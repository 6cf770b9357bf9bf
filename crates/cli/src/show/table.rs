//! Tables without lines: columns that fit their contents, and a last one that takes what is left.

use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Row, Table, presets,
};

use super::Page;

pub(super) use comfy_table::Color;

/// A table that is being filled.
pub(super) struct Grid<'a> {
    page: &'a Page,
    headings: Vec<&'a str>,
    rows: Vec<Vec<Cell>>,
    indent: u16,
    one_line: bool,
}

impl<'a> Grid<'a> {
    /// A `>` before a heading aligns its column to the right. A grid whose headings are all empty has none.
    pub(super) fn new(page: &'a Page, headings: &[&'a str]) -> Self {
        Self { page, headings: headings.to_vec(), rows: Vec::new(), indent: 0, one_line: false }
    }

    /// Moves the whole table to the right.
    pub(super) fn indented(self, columns: u16) -> Self {
        Self { indent: columns, ..self }
    }

    /// Cuts a row at the edge of the terminal, where others wrap.
    pub(super) fn one_line(self) -> Self {
        Self { one_line: !self.page.wide, ..self }
    }

    pub(super) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Lines end with a newline and without spaces. A column without a heading and without contents is left out.
    pub(super) fn render(mut self) -> String {
        for at in (0..self.headings.len()).rev() {
            let is_empty = |row: &Vec<Cell>| row.get(at).is_none_or(|cell| cell.content().is_empty());
            if self.headings.get(at).is_some_and(|h| h.is_empty()) && self.rows.iter().all(is_empty) {
                self.headings.remove(at);
                self.rows.iter_mut().filter(|row| at < row.len()).for_each(|row| drop(row.remove(at)));
            }
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING).enforce_styling();
        table.style_text_only();
        let heading = |text: &&str| styled(text.trim_start_matches('>'), Attribute::Bold);
        if !self.page.quiet && self.headings.iter().any(|h| h.len() > 1) {
            table.set_header(self.headings.iter().map(heading).collect::<Vec<_>>());
        }
        table.set_truncation_indicator(self.page.ellipsis());
        for row in self.rows {
            let mut row = Row::from(row);
            if self.one_line {
                row.max_height(1);
            }
            table.add_row(row);
        }
        for (column, heading) in table.column_iter_mut().zip(&self.headings) {
            column.set_padding((0, GAP));
            if heading.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        if let Some(width) = self.page.width {
            let width = width.saturating_sub(self.indent).max(20);
            // The gap after the last column may be cut off.
            table.set_width(width.saturating_add(GAP)).set_content_arrangement(ContentArrangement::Dynamic);
            fit(&mut table, width);
        }
        let pad = " ".repeat(usize::from(self.indent));
        table.lines().map(|line| format!("{pad}{}", line.trim_end()).trim_end().to_owned() + "\n").collect()
    }
}

/// All but the last column keep their width, while that leaves something for the last one.
fn fit(table: &mut Table, width: u16) {
    let widths = table.column_max_content_widths();
    let Some((_, front)) = widths.split_last() else { return };
    let taken = front.iter().fold(0_u16, |sum, own| sum.saturating_add(own.saturating_add(GAP)));
    if taken.saturating_add(LAST_MIN) <= width {
        let front = front.len();
        table.column_iter_mut().take(front).for_each(|c| {
            c.set_constraint(ColumnConstraint::ContentWidth);
        });
    }
}

/// Columns between columns.
const GAP: u16 = 2;
/// The least that is left for the last column.
const LAST_MIN: u16 = 16;

pub(super) fn cell(text: impl ToString) -> Cell {
    Cell::new(text)
}

pub(super) fn dim(text: impl Into<String>) -> Cell {
    styled(&text.into(), Attribute::Dim)
}

/// A style on nothing would leave codes that keep spaces from being cut.
fn styled(text: &str, attribute: Attribute) -> Cell {
    let cell = Cell::new(text);
    if text.is_empty() { cell } else { cell.add_attribute(attribute) }
}

/// The colour of a state of a job, a member or a node.
pub(super) fn state(word: &str) -> Cell {
    let cell = Cell::new(word);
    match word {
        "pending" | "requested" | "cordoned" | "maintenance" | "drained" | "kept" | "given_back"
        | "waiting" => cell.fg(Color::Yellow),
        "starting" | "ready" => cell.fg(Color::Cyan),
        "running" | "open" => cell.fg(Color::Green),
        "stopping" | "draining" | "leaving" => cell.fg(Color::Magenta),
        "failed" | "refused" | "time_limit" | "preempted" | "deadline_missed" | "dependency_failed"
        | "severe" | "unhealthy" => cell.fg(Color::Red),
        "cancelled" | "exited" | "succeeded" => cell.add_attribute(Attribute::Dim),
        _ => cell,
    }
}
