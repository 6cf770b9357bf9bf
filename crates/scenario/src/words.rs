//! One line as words with their columns.

use std::str::FromStr;

use phalanx_spec::quantity::parse_duration_ns;

use crate::ScenarioError;

/// A word with its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'a> {
    pub(crate) text: &'a str,
    pub(crate) column: usize,
}

/// The words of one line, without the comment.
#[derive(Debug)]
pub(crate) struct Words<'a> {
    line: usize,
    text: &'a str,
    words: std::vec::IntoIter<Word<'a>>,
    end: usize,
}

impl<'a> Words<'a> {
    pub(crate) fn of(line: usize, text: &'a str) -> Self {
        let code = text.split('#').next().unwrap_or_default();
        let words: Vec<Word<'a>> = code
            .split_whitespace()
            .map(|word| {
                // A word is a slice of the line, so its offset is the difference of the two.
                let offset = word.as_ptr().addr() - text.as_ptr().addr();
                let column = text.get(..offset).map_or(0, |before| before.chars().count()) + 1;
                Word { text: word, column }
            })
            .collect();
        let end = code.trim_end().chars().count() + 1;
        Self { line, text, words: words.into_iter(), end }
    }

    pub(crate) fn next(&mut self) -> Option<Word<'a>> {
        self.words.next()
    }

    pub(crate) fn expect(&mut self, what: &str) -> Result<Word<'a>, ScenarioError> {
        let end = Word { text: "", column: self.end };
        self.next().ok_or_else(|| self.error(end, format!("{what} is missing")))
    }

    pub(crate) fn end(&mut self) -> Result<(), ScenarioError> {
        match self.next() {
            None => Ok(()),
            Some(word) => Err(self.error(word, format!("unexpected word {:?}", word.text))),
        }
    }

    pub(crate) fn error(&self, word: Word<'_>, what: String) -> ScenarioError {
        ScenarioError {
            line: self.line,
            column: word.column,
            what,
            text: self.text.to_owned(),
            output: String::new(),
        }
    }

    /// A name of the model.
    pub(crate) fn name<T>(&self, word: Word<'_>) -> Result<T, ScenarioError>
    where
        T: TryFrom<String>,
        T::Error: std::fmt::Display,
    {
        T::try_from(word.text.to_owned()).map_err(|e| self.error(word, e.to_string()))
    }

    pub(crate) fn number<T: FromStr>(&self, word: Word<'_>) -> Result<T, ScenarioError> {
        let what = || format!("expected a whole number in range, and found {:?}", word.text);
        word.text.parse().map_err(|_| self.error(word, what()))
    }

    /// Milliseconds.
    pub(crate) fn duration_ms(&self, word: Word<'_>) -> Result<u64, ScenarioError> {
        let ns = parse_duration_ns(word.text)
            .map_err(|e| self.error(word, format!("{:?} {e}; write 90s or 1h30m", word.text)))?;
        Ok(ns / 1_000_000)
    }

    /// The rest of the line as `key=value`. A key may occur once, and a word alone is a key without a value.
    pub(crate) fn options(&mut self) -> Result<Options<'a>, ScenarioError> {
        let rest: Vec<Word<'a>> = self.words.by_ref().collect();
        Options::of(rest, self)
    }
}

/// Options, which are taken by name. Options that are left at the end are unknown.
#[derive(Debug)]
pub(crate) struct Options<'a> {
    found: Vec<(Word<'a>, Word<'a>)>,
    known: Vec<String>,
}

impl<'a> Options<'a> {
    /// Words of the form `key=value`.
    pub(crate) fn of(
        given: impl IntoIterator<Item = Word<'a>>,
        words: &Words<'_>,
    ) -> Result<Self, ScenarioError> {
        let mut found: Vec<(Word<'a>, Word<'a>)> = Vec::new();
        for word in given {
            let (key, value) = word.text.split_once('=').unwrap_or((word.text, ""));
            if found.iter().any(|(k, _)| k.text == key) {
                return Err(words.error(word, format!("{key} is given twice")));
            }
            let value = Word { text: value, column: word.column + key.chars().count() + 1 };
            found.push((Word { text: key, column: word.column }, value));
        }
        Ok(Self { found, known: Vec::new() })
    }

    /// All options that were not taken.
    pub(crate) fn rest(self) -> Vec<(Word<'a>, Word<'a>)> {
        self.found
    }

    pub(crate) fn take(&mut self, key: &str) -> Option<Word<'a>> {
        self.known.push(key.to_owned());
        let at = self.found.iter().position(|(k, _)| k.text == key)?;
        Some(self.found.remove(at).1)
    }

    pub(crate) fn end(&self, words: &Words<'_>) -> Result<(), ScenarioError> {
        let Some((key, _)) = self.found.first() else { return Ok(()) };
        let known = self.known.join(", ");
        Err(words.error(*key, format!("unknown option {:?}; known here: {known}", key.text)))
    }
}
