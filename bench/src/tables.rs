//! Tables as text for a terminal, as Markdown for the pages of `bench/results`, and as one HTML page.

use std::fmt::Write;
use std::path::Path;

/// The lines of a file between which stands what is generated.
pub(crate) struct Marks {
    pub(crate) begin: &'static str,
    pub(crate) end: &'static str,
}

/// Rows of text under columns.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// Whether a column is of words: they stand left, and numbers right.
    fn is_words(&self, column: usize) -> bool {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.into_iter().all(|cell| cell.is_empty() || cell.starts_with(char::is_alphabetic))
    }

    pub(crate) fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.columns[column].chars().count()]).max().unwrap_or(0)
        };
        let line = |cells: &[&str]| {
            let cell = |(column, cell): (usize, &&str)| {
                let width = width(column);
                if self.is_words(column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            };
            let cells: Vec<String> = cells.iter().enumerate().map(cell).collect();
            format!("  {}\n", cells.join("  ").trim_end())
        };
        let mut text = format!("{}\n{}", self.title, line(&self.columns));
        self.rows.iter().for_each(|row| text += &line(&row.iter().map(String::as_str).collect::<Vec<_>>()));
        text
    }

    fn markdown(&self) -> String {
        let rule = |column| if self.is_words(column) { "---" } else { "---:" };
        let rules: Vec<&str> = (0..self.columns.len()).map(rule).collect();
        let mut text =
            format!("### {}\n\n| {} |\n|{}|\n", self.title, self.columns.join(" | "), rules.join("|"));
        self.rows.iter().for_each(|row| _ = writeln!(text, "| {} |", row.join(" | ")));
        text
    }

    fn html(&self) -> String {
        let cell = |tag: &str, (column, cell): (usize, &str)| {
            let class = if self.is_words(column) { "" } else { " class=n" };
            format!("<{tag}{class}>{}</{tag}>", escaped(cell))
        };
        let head: String = self.columns.iter().copied().enumerate().map(|of| cell("th", of)).collect();
        let row = |row: &Vec<String>| {
            let cells: String = row.iter().map(String::as_str).enumerate().map(|of| cell("td", of)).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let rows: String = self.rows.iter().map(row).collect();
        format!("<h2>{}</h2>\n<table><tr>{head}</tr>\n{rows}</table>\n", escaped(&self.title))
    }
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// One page that opens offline.
pub(crate) fn page(tables: &[Table]) -> String {
    let tables: String = tables.iter().map(Table::html).collect();
    format!(
        "<!doctype html>\n<html lang=en><meta charset=utf-8><title>Phalanx: the simulator's tables</title>\n<style>\n\
         body{{font:15px/1.4 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color-scheme:light dark}}\n\
         table{{border-collapse:collapse;margin:0 0 2em}}th,td{{padding:.15em .7em;text-align:left}}\n\
         .n{{text-align:right;font-variant-numeric:tabular-nums}}tr:nth-child(even){{background:#8882}}\n\
         th{{border-bottom:1px solid}}\n</style>\n<h1>The simulator's tables</h1>\n{tables}</html>\n"
    )
}

impl Marks {
    /// Puts `body` in place of what stands between the marks in a file.
    ///
    /// # Errors
    /// When the file cannot be read or written, or the marks are not there.
    pub(crate) fn splice(&self, file: &Path, body: &str) -> Result<(), String> {
        write(file, &self.read(file, |_| body.to_owned())?)
    }

    /// Between the marks in a file, puts tables in place of those with the same titles, and new ones behind the others.
    ///
    /// # Errors
    /// As [`Self::splice`].
    pub(crate) fn merge(&self, file: &Path, tables: &[Table]) -> Result<(), String> {
        write(file, &self.read(file, |old| merged(old, tables))?)
    }

    /// Whether [`Self::splice`] would work, to be asked before hours are spent on what it is to write.
    ///
    /// # Errors
    /// When the file cannot be read, or the marks are not there.
    pub(crate) fn check(&self, file: &Path) -> Result<(), String> {
        self.read(file, str::to_owned).map(|_| ())
    }

    /// A file with another body between the marks.
    fn read(&self, file: &Path, body: impl FnOnce(&str) -> String) -> Result<String, String> {
        let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
        let old = std::fs::read_to_string(file).map_err(|e| wrong(&e))?;
        self.spliced(&old, body).map_err(|e| wrong(&e))
    }

    fn spliced(&self, text: &str, body: impl FnOnce(&str) -> String) -> Result<String, String> {
        let Self { begin, end } = self;
        let (before, old, after) = self.parts(text)?;
        Ok(format!("{before}{begin}\n\n{}\n{end}{after}", body(old)))
    }

    /// What stands before, between and after the marks.
    fn parts<'a>(&self, text: &'a str) -> Result<(&'a str, &'a str, &'a str), String> {
        let Self { begin, end } = self;
        let parts = text.split_once(begin).and_then(|(before, rest)| {
            let (between, after) = rest.split_once(end)?;
            Some((before, between, after))
        });
        parts.ok_or_else(|| {
            format!("the lines {begin:?} and {end:?} are not there, between which tables belong")
        })
    }
}

pub(crate) fn write(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))
}

/// Tables as Markdown: a new table takes the place of the old one with its title, and stands behind the others if there is
/// none.
fn merged(old: &str, tables: &[Table]) -> String {
    let mut all: Vec<(&str, String)> = Vec::new();
    let old = format!("\n{}", old.trim());
    for part in old.split("\n### ").filter(|part| !part.trim().is_empty()) {
        let title = part.lines().next().unwrap_or_default();
        all.push((title, format!("### {}\n", part.trim_end())));
    }
    for table in tables {
        match all.iter_mut().find(|(title, _)| *title == table.title) {
            Some((_, text)) => *text = table.markdown(),
            None => all.push((&table.title, table.markdown())),
        }
    }
    all.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("\n")
}

/// All tables, one after the other.
pub(crate) fn markdown(tables: &[Table]) -> String {
    tables.iter().map(Table::markdown).collect::<Vec<_>>().join("\n")
}

/// With commas between thousands.
pub(crate) fn number(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text
        .split_once('.')
        .map_or((text.as_str(), String::new()), |(whole, rest)| (whole, format!(".{rest}")));
    let groups: Vec<&str> = (0..whole.len().div_ceil(3))
        .rev()
        .map(|group| {
            let end = whole.len() - 3 * group;
            &whole[end.saturating_sub(3)..end]
        })
        .collect();
    let is_nothing = text.chars().all(|digit| matches!(digit, '0' | '.'));
    let sign = if value < 0.0 && !is_nothing { "−" } else { "" };
    format!("{sign}{}{rest}", groups.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_the_marks_is_replaced() {
        let table = Table {
            title: "A < B".to_owned(),
            columns: vec!["policy", "mean"],
            rows: vec![
                vec!["fifo".to_owned(), number(1_234_567.0, 0)],
                vec!["las".to_owned(), number(-12.345, 1)],
            ],
        };
        let marks = Marks { begin: "<!-- from -->", end: "<!-- to -->" };
        let body = markdown(std::slice::from_ref(&table));
        let new_body = |_: &str| body.clone();
        let new = marks.spliced("before\n<!-- from -->\nold\n<!-- to -->\nafter\n", new_body).unwrap();
        assert!(new.starts_with("before\n") && new.ends_with("after\n") && !new.contains("old"), "{new}");
        assert!(
            new.contains("| policy | mean |\n|---|---:|\n| fifo | 1,234,567 |\n| las | −12.3 |\n"),
            "{new}"
        );
        assert_eq!(marks.spliced(&new, new_body).unwrap(), new, "again is the same");
        assert_eq!(table.text(), "A < B\n  policy       mean\n  fifo    1,234,567\n  las         −12.3\n");
        assert!(page(&[table]).contains("<h2>A &lt; B</h2>"));
        assert_eq!(number(-0.001, 2), "0.00");
        assert!(marks.spliced("no marks", new_body).unwrap_err().contains("are not there"));
    }

    #[test]
    fn a_part_of_the_tables_replaces_no_others() {
        let table = |title: &str, cell: &str| Table {
            title: title.to_owned(),
            columns: vec!["a"],
            rows: vec![vec![cell.to_owned()]],
        };
        let old = markdown(&[table("one", "1"), table("two", "2")]);
        let found = merged(&old, &[table("two", "3"), table("three", "4")]);
        assert_eq!(found, markdown(&[table("one", "1"), table("two", "3"), table("three", "4")]));
        assert_eq!(merged("", &[table("one", "1")]), markdown(&[table("one", "1")]));
    }
}
