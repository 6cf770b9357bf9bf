//! Lines with something before each: a time, the header of a log, the name of a host.

use super::text::{Word, words};

/// The text without what stands before the first line that is an anchor (`starts` says so of the words after the
/// prefix). A word that ends with a colon is the name of a host: lines of other hosts are left empty, so that lines keep
/// their numbers. In other words of the prefix, digits may differ from line to line.
///
/// `None` if no line is an anchor or the first anchor has nothing before it.
pub(crate) fn without(text: &str, starts: impl Fn(&[Word<'_>]) -> bool) -> Option<String> {
    const WORDS_MAX: usize = 8;
    let prefix: Vec<String> = text.lines().find_map(|line| {
        let words = words(line);
        let after =
            (0..WORDS_MAX.min(words.len())).find(|at| starts(words.get(*at..).unwrap_or_default()))?;
        Some(words.iter().take(after).map(|w| shape(w.text)).collect())
    })?;
    if prefix.is_empty() {
        return None;
    }
    let lines = text.lines().map(|line| after(line, &prefix).unwrap_or_default());
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// What follows a prefix, and one blank after it.
fn after<'a>(line: &'a str, prefix: &[String]) -> Option<&'a str> {
    let words = words(line);
    if words.len() < prefix.len()
        || words.iter().zip(prefix).any(|(word, shape)| self::shape(word.text) != *shape)
    {
        return None;
    }
    let last = words.get(prefix.len().checked_sub(1)?)?;
    let skip = (last.column as usize).saturating_sub(1) + last.text.chars().count();
    let at = line.char_indices().nth(skip).map_or(line.len(), |(at, _)| at);
    let rest = line.get(at..)?;
    Some(rest.strip_prefix(' ').unwrap_or(rest))
}

/// A word with each number as one `0`; the name of a host as it is.
fn shape(word: &str) -> String {
    if word.ends_with(':') {
        return word.to_owned();
    }
    let mut shape = String::new();
    for c in word.chars() {
        let c = if c.is_ascii_digit() { '0' } else { c };
        if c != '0' || !shape.ends_with('0') {
            shape.push(c);
        }
    }
    shape
}
