//! Options and their values.

use phalanx_spec::quantity::parse_duration_ns;

use super::CommandError;

/// Options with what stands behind them, in the order in which they were typed.
pub(super) struct Words<'a> {
    said: Vec<(&'a str, &'a str)>,
    /// What stands behind no option.
    pub(super) bare: Vec<&'a str>,
}

impl<'a> Words<'a> {
    /// `--name value` and `--name=value`; `flags` have no value.
    pub(super) fn read(words: &[&'a str], flags: &[&str]) -> Result<Self, CommandError> {
        let (mut said, mut bare) = (Vec::new(), Vec::new());
        let mut rest = words.iter().copied();
        while let Some(word) = rest.next() {
            if word == "-" || !word.starts_with('-') {
                bare.push(word);
            } else if flags.contains(&word) {
                said.push((word, ""));
            } else if let Some(pair) = word.split_once('=') {
                said.push(pair);
            } else {
                let missing = || CommandError::Usage(format!("{word} needs a value behind it"));
                said.push((word, rest.next().ok_or_else(missing)?));
            }
        }
        Ok(Self { said, bare })
    }

    /// The last value of an option; all of them are taken out.
    pub(super) fn take(&mut self, name: &str) -> Option<&'a str> {
        self.take_all(name).pop()
    }

    /// The last value of an option, which stays.
    pub(super) fn peek(&self, name: &str) -> Option<&'a str> {
        self.said.iter().rev().find(|(option, _)| *option == name).map(|(_, value)| *value)
    }

    pub(super) fn take_all(&mut self, name: &str) -> Vec<&'a str> {
        let values =
            self.said.iter().filter(|(option, _)| *option == name).map(|(_, value)| *value).collect();
        self.said.retain(|(option, _)| *option != name);
        values
    }

    pub(super) fn has(&mut self, flag: &str) -> bool {
        self.take(flag).is_some()
    }

    /// Whether `-o json` asks for a document; `-o table` is as good as nothing.
    pub(super) fn take_json(&mut self) -> Result<bool, CommandError> {
        let format = self.take_all("-o").into_iter().chain(self.take_all("--output")).last();
        match format {
            None | Some("table") => Ok(false),
            Some("json") => Ok(true),
            Some(other) => Err(CommandError::Usage(format!("-o: {other:?} is neither table nor json"))),
        }
    }

    pub(super) fn take_ms(&mut self, name: &str) -> Result<Option<u64>, CommandError> {
        self.parsed(name, |text| parse_duration_ns(text).map(|ns| ns / 1_000_000).map_err(|e| e.to_string()))
    }

    pub(super) fn take_number(&mut self, name: &str) -> Result<Option<u64>, CommandError> {
        self.parsed(name, |text| text.parse().map_err(|_| "is no whole number".to_owned()))
    }

    pub(super) fn parsed<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, CommandError> {
        let wrong = |text, error| CommandError::Usage(format!("{name}: {text:?} {error}"));
        self.take(name).map(|text| parse(text).map_err(|error| wrong(text, error))).transpose()
    }

    /// What is left is for somebody else.
    pub(super) fn rest(&mut self) -> Vec<(&'a str, &'a str)> {
        std::mem::take(&mut self.said)
    }

    /// # Errors
    /// When anything is left.
    pub(super) fn done(&self) -> Result<(), CommandError> {
        let left = self.said.first().map(|(option, _)| option).or(self.bare.first());
        left.map_or(Ok(()), |word| Err(CommandError::Usage(format!("unknown option {word:?}"))))
    }
}
