//! Words that lost the space between them: `NODENODE`, `NIC11CPU`, `AffinityGPU`.
//!
//! A word is split only if it consists of words of the matrix from end to end. The set of these words is closed, so
//! there is one way to split it. Digits take as many digits as follow, so `NV180-31` has several readings and stays
//! one word.

use super::table::{is_device, kind_of};
use super::text::Word;

/// Splits the words of a header. Without a glued word, they stay as they are.
pub(super) fn header<'a>(words: &[Word<'a>]) -> Vec<Word<'a>> {
    split_all(words, |word| split(word, header_token, true))
}

/// Splits the words of a row: a name from its first cell, cells from each other, and cells from affinities.
pub(super) fn row<'a>(words: &[Word<'a>]) -> Vec<Word<'a>> {
    split_all(words, |word| split(word, header_token, false).or_else(|| split(word, row_token, true)))
}

/// Splits a field between two tabs, in which blanks may part cells.
pub(super) fn field<'a>(field: Word<'a>) -> Vec<Word<'a>> {
    let words: Vec<Word<'a>> = super::text::words(field.text)
        .iter()
        .map(|w| Word { text: w.text, column: field.column.saturating_add(w.column).saturating_sub(1) })
        .collect();
    let split = row(&words);
    let is_list = |text: &str| text.bytes().all(|c| c.is_ascii_digit() || matches!(c, b',' | b'-'));
    let is_cells = split.len() > 1 && split.iter().all(|w| is_cell(w.text) || is_list(w.text));
    if is_cells { split } else { vec![field] }
}

/// A cell whose end is certain.
pub(super) fn is_cell(text: &str) -> bool {
    matches!(text, "X" | "x" | "N/A") || kind_of(text).is_some()
}

fn split_all<'a>(words: &[Word<'a>], split: impl Fn(&'a str) -> Option<Vec<&'a str>>) -> Vec<Word<'a>> {
    let mut all = Vec::with_capacity(words.len());
    for word in words {
        let Some(parts) = split(word.text) else {
            all.push(*word);
            continue;
        };
        let mut column = word.column;
        for text in parts {
            all.push(Word { text, column });
            column = column.saturating_add(u32::try_from(text.chars().count()).unwrap_or(u32::MAX));
        }
    }
    all
}

/// The parts of a word if it consists of tokens, of two at least. If `whole` is false, the first token may be
/// followed by what a row has after its name.
fn split(word: &str, token: fn(&str) -> Option<usize>, whole: bool) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let mut rest = word;
    while !rest.is_empty() {
        let Some((part, after)) = token(rest).and_then(|end| rest.split_at_checked(end)) else {
            // `GPU0X`: a name, and cells after it.
            if whole || parts.len() != 1 {
                return None;
            }
            let cells = split(rest, row_token, true).unwrap_or_else(|| vec![rest]);
            if !cells.iter().all(|cell| is_cell(cell)) {
                return None;
            }
            parts.extend(cells);
            return Some(parts);
        };
        parts.push(part);
        rest = after;
    }
    (whole && parts.len() > 1).then_some(parts)
}

/// The length of the word of a header that a text starts with: `GPU3`, `NIC11`, `mlx5_0`, `mlx5_bond_0`, `CPU`, `NUMA`,
/// `Affinity`, `GPU`, `ID`.
fn header_token(text: &str) -> Option<usize> {
    let digits = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        from + rest.bytes().take_while(u8::is_ascii_digit).count()
    };
    for word in ["GPU", "NIC"] {
        if text.starts_with(word) {
            let end = digits(word.len());
            return (end > word.len() || word == "GPU").then_some(end);
        }
    }
    if text.starts_with("mlx") {
        let family = digits(3);
        let rest = text.get(family..).unwrap_or_default();
        let middle = if rest.starts_with("_bond_") { "_bond_" } else { "_" };
        let from = family + middle.len();
        let end = rest.starts_with(middle).then(|| digits(from))?;
        return (end > from).then_some(end);
    }
    ["CPU", "NUMA", "Affinity", "ID"].iter().find(|word| text.starts_with(**word)).map(|word| word.len())
}

/// The length of the cell or the affinity that a text starts with. The end of `NV18` is certain only if no affinity
/// follows, which starts with a digit or a sign.
fn row_token(text: &str) -> Option<usize> {
    for word in ["XGMI", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC", "N/A", "X"] {
        if text.starts_with(word) {
            return Some(word.len());
        }
    }
    if let Some(count) = text.strip_prefix("NV") {
        let digits = count.bytes().take_while(u8::is_ascii_digit).count();
        let after = count.get(digits..).unwrap_or_default();
        let is_certain =
            digits > 0 && (after.is_empty() || after.starts_with(|c: char| c.is_ascii_uppercase()));
        return is_certain.then_some(2 + digits);
    }
    let list = text.bytes().take_while(|c| c.is_ascii_digit() || matches!(c, b',' | b'-')).count();
    let is_list = text.starts_with(|c: char| c.is_ascii_digit());
    is_list.then_some(list)
}

/// Whether a row starts here: a name and its first cell.
pub(super) fn starts_row(words: &[Word<'_>], is_name: impl Fn(&str) -> bool) -> bool {
    let words = row(words);
    let [name, cell, ..] = words.as_slice() else { return false };
    (is_name(name.text) || is_device(name.text)) && is_cell(cell.text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topo_m::text::words;

    fn texts(words: &[Word<'_>]) -> String {
        words.iter().map(|w| w.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn glued_words_are_split_if_there_is_one_way() {
        for (glued, split) in [
            ("GPU0GPU1 NIC10NIC11CPU Affinity", "GPU0 GPU1 NIC10 NIC11 CPU Affinity"),
            ("CPU AffinityNUMA AffinityGPU NUMA ID", "CPU Affinity NUMA Affinity GPU NUMA ID"),
            ("GPU1mlx5_0mlx5_bond_1CPU", "GPU1 mlx5_0 mlx5_bond_1 CPU"),
            ("my_gpuCPU NICs", "my_gpuCPU NICs"),
        ] {
            assert_eq!(texts(&header(&words(glued))), split);
        }
        for (glued, split) in [
            ("GPU0X NV12NV12", "GPU0 X NV12 NV12"),
            ("NIC10NODENODE XPIX", "NIC10 NODE NODE X PIX"),
            ("SYS0-31 N/AN/A", "SYS 0-31 N/A N/A"),
            ("NV180-31", "NV180-31"),
            ("GPU0 and", "GPU0 and"),
            ("NODENOD", "NODENOD"),
        ] {
            assert_eq!(texts(&row(&words(glued))), split);
        }
    }
}
