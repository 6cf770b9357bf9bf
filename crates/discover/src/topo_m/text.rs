//! Lines and words of a text that went through terminals, issue trackers and documents.

/// A word and where it stands: its column in characters, from 1, after control sequences are taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    pub(super) column: u32,
}

/// Takes out ANSI escape sequences, carriage returns, and marks that no one sees.
pub(super) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\r' | '\u{feff}' | '\u{200b}' | '\0' => {}
            _ => out.push(c),
        }
    }
    out
}

/// ECMA-48: `ESC [`, parameters, and a final byte `@` to `~`; other sequences have one byte.
/// A sequence that the end of the line cuts off keeps the line's end.
fn skip_escape(chars: &mut std::str::Chars<'_>) {
    let mut ahead = chars.clone();
    if ahead.next() != Some('[') {
        if ahead.as_str().len() < chars.as_str().len() && !chars.as_str().starts_with('\n') {
            *chars = ahead;
        }
        return;
    }
    *chars = ahead.clone();
    while let Some(c) = ahead.next() {
        if c == '\n' {
            return;
        }
        *chars = ahead.clone();
        if ('@'..='~').contains(&c) {
            return;
        }
    }
}

/// Words of a line. Signs of quotation and tables (`>`, `|`) are no words.
pub(super) fn words(line: &str) -> Vec<Word<'_>> {
    let mut found = Vec::new();
    let mut start: Option<(usize, u32)> = None;
    let mut column = 0;
    for (at, c) in line.char_indices().chain([(line.len(), ' ')]) {
        column += 1;
        match (start, c.is_whitespace()) {
            (None, false) => start = Some((at, column)),
            (Some((from, first)), true) => {
                if let Some(text) = line.get(from..at).filter(|t| !matches!(*t, ">" | "|")) {
                    found.push(Word { text, column: first });
                }
                start = None;
            }
            _ => {}
        }
    }
    found
}

/// Fields of a line between tabs, trimmed, with the column of their first character; some are empty.
pub(super) fn fields(line: &str) -> Vec<Word<'_>> {
    let mut column = 1;
    let mut found = Vec::new();
    for field in line.split('\t') {
        let start = field.trim_start();
        found.push(Word { text: start.trim_end(), column: column + count(field) - count(start) });
        column += count(field) + 1;
    }
    found
}

fn count(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_leave_no_trace() {
        assert_eq!(clean("\u{feff}\t\u{1b}[4mGPU0\tID\u{1b}[0m\r\n\u{1b}[1;31mX"), "\tGPU0\tID\nX");
        assert_eq!(clean("a\u{1b}[12\nb\u{1b}"), "a\nb");
        assert_eq!(clean("a\u{1b}\nb\u{1b}Mc"), "a\nbc");
    }

    #[test]
    fn words_and_fields_know_their_columns() {
        let word = |text, column| Word { text, column };
        assert_eq!(words("> GPU0\t X  |"), [word("GPU0", 3), word("X", 9)]);
        assert_eq!(fields("GPU0\t X \t\t0"), [word("GPU0", 1), word("X", 7), word("", 10), word("0", 11)]);
    }
}
