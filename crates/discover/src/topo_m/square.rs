//! Square tables with the same names on both sides: `topo -p2p`, and those of AMD's tools.

use super::text::{shorten, words};
use crate::gap::Gap;

/// A word of a table, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// One table. Cells that the text does not have are `None`.
#[derive(Clone, Debug)]
pub(crate) struct Square {
    /// The last line before it that says something; empty at the start of a text.
    pub(crate) title: String,
    /// Of its header.
    pub(crate) line: u32,
    pub(crate) names: Vec<String>,
    rows: Vec<Option<Vec<Cell>>>,
}

impl Square {
    pub(crate) fn cell(&self, row: usize, column: usize) -> Option<&Cell> {
        self.rows.get(row)?.as_ref()?.get(column)
    }

    fn gaps(&self, gaps: &mut Vec<Gap>) {
        for (name, row) in self.names.iter().zip(&self.rows) {
            match row {
                None => gaps.push(Gap::new((self.line, 0), format!("there is no row for {name} below here"))),
                Some(cells) if cells.len() < self.names.len() => {
                    let end = cells.last().map_or((self.line, 0), |c| (c.line, c.column));
                    let what = format!("the row of {name} has {} of {} cells", cells.len(), self.names.len());
                    gaps.push(Gap::new(end, what));
                }
                Some(_) => {}
            }
        }
    }
}

/// All tables of a text that was cleaned. A header is a line of names alone, and a row starts with one.
pub(crate) fn squares(text: &str, is_name: impl Fn(&str) -> bool, gaps: &mut Vec<Gap>) -> Vec<Square> {
    let mut found: Vec<Square> = Vec::new();
    let mut title = String::new();
    for (line, text) in (1..).zip(text.lines()) {
        let words = words(text);
        let Some((first, cells)) = words.split_first() else { continue };
        // Between the header and the rows of a Markdown table.
        if words.iter().all(|w| w.text.bytes().all(|c| matches!(c, b'-' | b':' | b'+' | b'='))) {
            continue;
        }
        let row = found.last_mut().and_then(|s| Some((s.names.iter().position(|n| n == first.text)?, s)));
        let is_header = words.iter().all(|w| is_name(w.text));
        match row {
            Some((at, square)) if !is_header && title.is_empty() => {
                let cell =
                    |w: &super::text::Word<'_>| Cell { text: w.text.to_owned(), line, column: w.column };
                match square.rows.get_mut(at) {
                    Some(row @ None) => {
                        *row = Some(cells.iter().take(square.names.len()).map(cell).collect());
                    }
                    _ => {
                        let what = format!("a second row for {} is left out", first.text);
                        gaps.push(Gap::new((line, first.column), what));
                    }
                }
            }
            _ if is_header => {
                let names: Vec<String> = words.iter().map(|w| w.text.to_owned()).collect();
                let rows = vec![None; names.len()];
                found.push(Square { title: std::mem::take(&mut title), line, names, rows });
            }
            _ => title = shorten(text.trim()),
        }
    }
    // A name alone, without rows, is a row that was cut off, or a word in a sentence.
    found.retain(|square| square.rows.iter().any(Option::is_some));
    found.iter().for_each(|square| square.gaps(gaps));
    found
}
