//! One error for everything a user wrote: what is wrong, where it stands, and what would be accepted.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::yaml;

/// Widest part of a line that is shown.
const EXCERPT_CHARS: usize = 100;
/// Longest part of a value that a message repeats.
const QUOTE_CHARS: usize = 60;

/// Where a value was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: a default, or the file as a whole.
    #[default]
    Nowhere,
    /// Line and column count from 1, in characters; `length` is in characters too.
    File { line: u32, column: u32, length: u32 },
    /// A flag of the command line, as it is typed: `--gpus`.
    Flag(&'static str),
}

/// A text and its name, kept to show lines of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source(Arc<SourceText>);

#[derive(Debug, Default, PartialEq, Eq)]
struct SourceText {
    name: String,
    text: String,
}

impl Source {
    #[must_use]
    pub fn new(name: &str, text: &str) -> Self {
        Self(Arc::new(SourceText { name: printable(name), text: text.to_owned() }))
    }

    /// The file's name, empty for a command line.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// An error at `place`, with the field and the line found in this source.
    #[must_use]
    pub fn error(&self, place: Place, what: impl Into<String>, accepted: impl Into<String>) -> SpecError {
        self.build(place, what.into(), accepted.into(), false)
    }

    /// An error about the mapping that begins at `place`, and not about its first key.
    pub(crate) fn error_about_mapping(&self, place: Place, what: String) -> SpecError {
        self.build(place, what, String::new(), true)
    }

    fn build(&self, place: Place, what: String, accepted: String, container: bool) -> SpecError {
        let field = match place {
            Place::File { line, column, .. } => yaml::field_at(&self.0.text, line, column, container),
            Place::Flag(_) | Place::Nowhere => None,
        };
        SpecError(Box::new(Details {
            source_name: self.0.name.clone(),
            place,
            field: field.filter(|name| !name.is_empty()),
            what,
            notes: if accepted.is_empty() { Vec::new() } else { vec![accepted] },
            excerpts: self.excerpt(place, String::new()).into_iter().collect(),
        }))
    }

    fn excerpt(&self, place: Place, label: String) -> Option<Excerpt> {
        let Place::File { line, column, length } = place else { return None };
        let at = usize::try_from(line.checked_sub(1)?).ok()?;
        let text = self.0.text.lines().nth(at)?;
        Some(Excerpt::new(line, text, column, length, label))
    }
}

/// What is wrong with a file or a command line. Its `Display` shows the line and a caret under the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SpecError(Box<Details>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Details {
    source_name: String,
    place: Place,
    field: Option<String>,
    what: String,
    notes: Vec<String>,
    excerpts: Vec<Excerpt>,
}

/// One line of the source with carets.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    line: u32,
    text: String,
    /// Characters before the caret, and carets.
    indent: usize,
    carets: usize,
    label: String,
}

impl SpecError {
    /// Where the value stands.
    #[must_use]
    pub fn place(&self) -> Place {
        self.0.place
    }

    /// Line from 1, when it is about a place in a file.
    #[must_use]
    pub fn line(&self) -> Option<u32> {
        if let Place::File { line, .. } = self.0.place { Some(line) } else { None }
    }

    /// Column from 1, in characters, when it is about a place in a file.
    #[must_use]
    pub fn column(&self) -> Option<u32> {
        if let Place::File { column, .. } = self.0.place { Some(column) } else { None }
    }

    /// Name of the file, empty for a command line.
    #[must_use]
    pub fn source_name(&self) -> &str {
        &self.0.source_name
    }

    /// Path of the field, e.g. `resources.gpus` or `nodes[2].name`.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        self.0.field.as_deref()
    }

    /// What is wrong, in one line.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// What would be accepted, and other advice.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.0.notes
    }

    pub(crate) fn note(mut self, text: impl Into<String>) -> Self {
        self.0.notes.push(text.into());
        self
    }

    /// Shows a second place, with a label beside its carets.
    pub(crate) fn also(mut self, source: &Source, place: Place, label: &str) -> Self {
        match place {
            Place::Flag(flag) => self.0.notes.push(format!("{label}: {flag}")),
            Place::File { .. } | Place::Nowhere => {
                self.0.excerpts.extend(source.excerpt(place, label.to_owned()));
                self.0.excerpts.sort_by_key(|excerpt| excerpt.line);
            }
        }
        self
    }
}

/// `file:line:column: field: what`, the lines with carets, and a `= note` for each note.
impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { source_name, place, field, what, notes, excerpts } = &*self.0;
        match place {
            Place::File { line, column, .. } => write!(f, "{source_name}:{line}:{column}: ")?,
            Place::Flag(flag) => write!(f, "{flag}: ")?,
            Place::Nowhere if source_name.is_empty() => {}
            Place::Nowhere => write!(f, "{source_name}: ")?,
        }
        if let Some(field) = field {
            write!(f, "{field}: ")?;
        }
        f.write_str(what)?;
        let width = excerpts.iter().map(|e| e.line.to_string().len()).max().unwrap_or(0);
        if !excerpts.is_empty() {
            write!(f, "\n{:width$} |", "")?;
        }
        let mut shown = 0;
        for Excerpt { line, text, indent, carets, label } in excerpts {
            if *line != shown {
                write!(f, "\n{line:width$} | {text}")?;
            }
            shown = *line;
            let label = if label.is_empty() { String::new() } else { format!(" {label}") };
            write!(f, "\n{:width$} | {:indent$}{:^<carets$}{label}", "", "", "")?;
        }
        for note in notes {
            write!(f, "\n{:width$} = {note}", "")?;
        }
        Ok(())
    }
}

impl Excerpt {
    /// Cuts a window of the line around the column.
    fn new(line: u32, text: &str, column: u32, length: u32, label: String) -> Self {
        let start = usize::try_from(column.saturating_sub(1)).unwrap_or(0);
        let length = usize::try_from(length).unwrap_or(1).max(1);
        let total = text.chars().count();
        let skip =
            if total <= EXCERPT_CHARS { 0 } else { start.saturating_sub(EXCERPT_CHARS / 3).min(total) };
        let shown = text.chars().skip(skip).take(EXCERPT_CHARS);
        let mut window = if skip > 0 { "…".to_owned() } else { String::new() };
        window.extend(shown.map(|c| if c.is_control() { ' ' } else { c }));
        let end = window.chars().count();
        if skip + EXCERPT_CHARS < total {
            window.push('…');
        }
        let indent = (start - skip.min(start) + usize::from(skip > 0)).min(end);
        let carets = length.min(end.saturating_sub(indent)).max(1);
        Self { line, text: window.trim_end().to_owned(), indent, carets, label }
    }
}

/// A value as a message repeats it: in quotes, escaped, and cut when it is long.
pub(crate) fn quote(text: &str) -> String {
    let mut shown: String = text.chars().take(QUOTE_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// Without characters that could steer a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Items in a sentence: `a, b and c`, cut after 30.
pub(crate) fn listed<T: AsRef<str>>(items: &[T]) -> String {
    const SHOWN: usize = 30;
    let mut text = String::new();
    for (i, item) in items.iter().take(SHOWN).enumerate() {
        if i > 0 {
            text += if i + 1 == items.len() { " and " } else { ", " };
        }
        text += item.as_ref();
    }
    if items.len() > SHOWN {
        let _ = write!(text, " and {} more", items.len() - SHOWN);
    }
    text
}

/// The known word nearest to `word`, when it is near enough to be a slip of the finger.
pub(crate) fn nearest<'a, T: AsRef<str>>(word: &str, known: &'a [T]) -> Option<&'a str> {
    let word = word.to_lowercase();
    if word.len() > 64 {
        return None;
    }
    let allowed = (word.chars().count() / 3).max(1);
    let candidates = known.iter().map(AsRef::as_ref).map(|k| (edit_distance(&word, &k.to_lowercase()), k));
    candidates.filter(|(distance, _)| *distance <= allowed).min().map(|(_, k)| k)
}

/// Insertions, deletions and replacements between two short words (Levenshtein).
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b.chars()) {
            let best = (diagonal + usize::from(x != y)).min(left + 1).min(*cell + 1);
            diagonal = *cell;
            *cell = best;
            left = best;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let known = ["gpus", "cpus", "memory", "ranks_per_node"];
        assert_eq!(nearest("gpu", &known), Some("gpus"));
        assert_eq!(nearest("rank_per_node", &known), Some("ranks_per_node"));
        assert_eq!(nearest("Memory", &known), Some("memory"));
        assert_eq!(nearest("accelerators", &known), None);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
    }

    #[test]
    fn a_long_line_is_cut_around_its_caret_and_cannot_steer_a_terminal() {
        let text = format!("{}\u{1b}[31mX{}", "a".repeat(300), "b".repeat(300));
        let source = Source::new("f\u{7}", &text);
        let error = source.error(Place::File { line: 1, column: 306, length: 1 }, "bad", "x");
        let shown = error.to_string();
        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}'), "{shown}");
        let lines: Vec<&str> = shown.lines().collect();
        let at = lines[3].chars().position(|c| c == '^').unwrap();
        assert_eq!(lines[2].chars().nth(at), Some('X'), "{shown}");
        assert!(lines[2].chars().count() < 120);
    }

    #[test]
    fn a_place_outside_of_the_text_shows_no_line() {
        let source = Source::new("f", "a: 1");
        for (line, column) in [(0, 0), (9, 1), (u32::MAX, u32::MAX), (1, u32::MAX)] {
            let _ = source.error(Place::File { line, column, length: u32::MAX }, "bad", "").to_string();
        }
    }
}
