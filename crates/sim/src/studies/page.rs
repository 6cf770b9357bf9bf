//! What a study shows: one page of Markdown, and the same figures as JSON.

use std::fmt::Write;

use serde::{Serialize, Serializer};

use crate::report::Input;

/// The result of a study.
#[derive(Clone, Debug, Serialize)]
pub struct Page {
    pub study: &'static str,
    pub title: &'static str,
    pub question: String,
    /// What the figures rest on: what is modelled or predicted, and how it is measured.
    pub basis: String,
    pub tables: Vec<Table>,
    /// What comes out, in sentences that are written from the figures.
    pub findings: Vec<String>,
    pub input: Input,
    /// The input file as it was read.
    pub declared: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Table {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

/// One figure, or what it is of.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Word(String),
    /// A number and the decimals that are shown.
    Number(f64, usize),
    /// There is no such figure.
    None,
}

impl Cell {
    pub(super) fn word(text: impl Into<String>) -> Self {
        Self::Word(text.into())
    }

    fn text(&self) -> String {
        match self {
            Self::Word(text) => text.clone(),
            Self::Number(number, decimals) => with_commas(&format!("{number:.decimals$}")),
            Self::None => String::new(),
        }
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Word(text) => serializer.serialize_str(text),
            Self::Number(number, _) => serializer.serialize_f64(*number),
            Self::None => serializer.serialize_none(),
        }
    }
}

/// `-12345.6` as `-12,345.6`.
fn with_commas(number: &str) -> String {
    let whole = number.find('.').unwrap_or(number.len());
    let mut text = String::new();
    for (at, digit) in number.char_indices() {
        let left = whole.saturating_sub(at);
        if digit.is_ascii_digit()
            && left > 0
            && left.is_multiple_of(3)
            && text.ends_with(|c: char| c.is_ascii_digit())
        {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl Table {
    pub(super) fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        let columns = columns.iter().map(ToString::to_string).collect();
        Self { title: title.into(), columns, rows: Vec::new() }
    }

    /// In columns of one width, so that a terminal shows it as well.
    fn markdown(&self) -> String {
        let rows: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(Cell::text).collect()).collect();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.columns[column].chars().count(), 3]).max().unwrap_or(3)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let is_words = |column: usize| {
            self.rows.iter().all(|row| matches!(row.get(column), Some(Cell::Word(_) | Cell::None)))
        };
        let line = |cells: &[&str]| {
            let cell = |(column, cell): (usize, &&str)| match (widths.get(column), is_words(column)) {
                (Some(width), true) => format!("{cell:<width$}"),
                (Some(width), false) => format!("{cell:>width$}"),
                (None, _) => (*cell).to_owned(),
            };
            let cells: Vec<String> = cells.iter().enumerate().map(cell).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule = |(column, width): (usize, &usize)| match is_words(column) {
            true => "-".repeat(*width),
            false => "-".repeat(width - 1) + ":",
        };
        let rules: Vec<String> = widths.iter().enumerate().map(rule).collect();
        let mut text = line(&self.columns.iter().map(String::as_str).collect::<Vec<_>>());
        text += &line(&rules.iter().map(String::as_str).collect::<Vec<_>>());
        for row in &rows {
            text += &line(&row.iter().map(String::as_str).collect::<Vec<_>>());
        }
        text
    }
}

impl Page {
    /// The whole page.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n{}\n\n{}\n", self.title, self.question, self.basis);
        for table in &self.tables {
            if !table.title.is_empty() {
                let _ = write!(text, "\n## {}\n", table.title);
            }
            let _ = write!(text, "\n{}", table.markdown());
        }
        for finding in &self.findings {
            let _ = write!(text, "\n{finding}\n");
        }
        let Input { name, digest, .. } = &self.input;
        let declared = self.declared.trim_end();
        let _ = write!(text, "\n## Declared\n\n`{name}`, {digest}:\n\n```yaml\n{declared}\n```\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_thousands_apart() {
        let mut table = Table::new("", &["what", "saved"]);
        table.rows.push(vec![Cell::word("a year"), Cell::Number(-1_234_567.0, 0)]);
        table.rows.push(vec![Cell::None, Cell::Number(999.5, 1)]);
        let expected = "\
| what   |      saved |
| ------ | ---------: |
| a year | -1,234,567 |
|        |      999.5 |
";
        assert_eq!(table.markdown(), expected);
    }
}
