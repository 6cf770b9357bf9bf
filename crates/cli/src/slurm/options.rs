//! Options as Slurm's commands read them: `--long VALUE`, `--long=VALUE`, `-sVALUE`, `-s VALUE`, and short ones together.

use std::collections::BTreeMap;

use crate::failure::Failure;

/// Whether an option has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Value,
    /// `--long` or `--long=VALUE`; the next word is never its value.
    Optional,
}

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Used,
    /// It is another word for an option, with this value if it has none of its own. The later of the two wins.
    Means(&'static str, Option<&'static str>),
    /// It changes nothing here, and a note says why. An empty text needs no note.
    Ignored(&'static str),
    /// Why it is not supported, and what to use instead.
    Refused(&'static str, &'static str),
}

/// An option of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flag {
    pub(super) long: &'static str,
    pub(super) short: Option<char>,
    pub(super) takes: Takes,
    pub(super) fate: Fate,
}

/// A flag that is used.
pub(super) const fn used(long: &'static str, short: char, takes: Takes) -> Flag {
    Flag { long, short: letter(short), takes, fate: Fate::Used }
}

/// A flag that is another name of an option.
pub(super) const fn alias(long: &'static str, short: char, takes: Takes, of: &'static str) -> Flag {
    Flag { long, short: letter(short), takes, fate: Fate::Means(of, None) }
}

/// A flag that gives an option a value.
pub(super) const fn means(long: &'static str, of: &'static str, value: &'static str) -> Flag {
    Flag { long, short: None, takes: Takes::Nothing, fate: Fate::Means(of, Some(value)) }
}

/// A flag that changes nothing here.
pub(super) const fn ignored(long: &'static str, short: char, takes: Takes, why: &'static str) -> Flag {
    Flag { long, short: letter(short), takes, fate: Fate::Ignored(why) }
}

/// A flag that is refused by its name.
pub(super) const fn refused(
    long: &'static str,
    short: char,
    takes: Takes,
    why: &'static str,
    instead: &'static str,
) -> Flag {
    Flag { long, short: letter(short), takes, fate: Fate::Refused(why, instead) }
}

const fn letter(short: char) -> Option<char> {
    if short == ' ' { None } else { Some(short) }
}

/// The options of a command, in tables that several commands share.
pub(super) type Tables = &'static [&'static [Flag]];

/// Where options are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Where<'a> {
    /// `sbatch`.
    pub(super) command: &'a str,
    /// `train.sh:4`, for a line of a script.
    pub(super) place: Option<&'a str>,
}

impl Where<'_> {
    pub(super) fn refuse(&self, what: &str, hint: &str) -> Failure {
        let place = self.place.map(|place| format!("{place}: ")).unwrap_or_default();
        Failure::usage(format!("{}: {place}{what}", self.command), hint)
    }
}

/// Options by their long names, and the words that are no options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    values: BTreeMap<&'static str, String>,
    pub(super) words: Vec<String>,
    /// Options that change nothing, and why.
    pub(super) notes: Vec<(&'static str, &'static str)>,
}

impl Given {
    pub(super) fn has(&self, long: &str) -> bool {
        self.values.contains_key(long)
    }

    /// The value; empty for an option without one.
    pub(super) fn get(&self, long: &str) -> Option<&str> {
        self.values.get(long).map(String::as_str)
    }

    /// A list of values that commas separate.
    pub(super) fn list(&self, long: &str) -> Vec<&str> {
        self.get(long).into_iter().flat_map(|text| text.split(',')).filter(|one| !one.is_empty()).collect()
    }

    /// These options win over the ones given before.
    pub(super) fn over(self, mut before: Self) -> Self {
        before.values.extend(self.values);
        before.notes.extend(self.notes);
        before.notes.sort_unstable();
        before.notes.dedup();
        Self { words: self.words, ..before }
    }
}

/// How words after the first one that is no option are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// They belong to a program, with all their dashes.
    Program,
    /// They are options too.
    Options,
}

/// Reads options.
///
/// # Errors
/// If an option is unknown, refused, or lacks its value.
pub(super) fn read(
    tables: Tables,
    from: Where<'_>,
    words: &[String],
    after: After,
) -> Result<Given, Failure> {
    let mut given = Given::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            given.words.extend(words.by_ref().cloned());
        } else if let Some(long) = word.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let flag = of_name(tables, from, name)?;
            let value = match (flag.takes, value) {
                (Takes::Nothing, Some(_)) => {
                    return Err(from.refuse(&format!("--{name} takes no value"), ""));
                }
                (Takes::Value, None) => words.next().cloned().ok_or_else(|| lacks(from, flag))?,
                (_, value) => value.unwrap_or_default().to_owned(),
            };
            take(&mut given, from, flag, value)?;
        } else if word.len() > 1 && word.starts_with('-') && !is_number(word) {
            let mut letters = word.trim_start_matches('-').chars();
            while let Some(short) = letters.next() {
                let flag = of_letter(tables, from, short)?;
                let value = match flag.takes {
                    Takes::Nothing => String::new(),
                    Takes::Optional => letters.by_ref().collect(),
                    Takes::Value => match letters.by_ref().collect::<String>() {
                        rest if rest.is_empty() => words.next().cloned().ok_or_else(|| lacks(from, flag))?,
                        rest => rest.strip_prefix('=').map(str::to_owned).unwrap_or(rest),
                    },
                };
                take(&mut given, from, flag, value)?;
            }
        } else if after == After::Program {
            given.words.push(word.clone());
            given.words.extend(words.by_ref().cloned());
        } else {
            given.words.push(word.clone());
        }
    }
    Ok(given)
}

fn is_number(word: &str) -> bool {
    word.parse::<i64>().is_ok()
}

fn lacks(from: Where<'_>, flag: &Flag) -> Failure {
    from.refuse(&format!("--{} lacks its value", flag.long), "")
}

fn of_name(tables: Tables, from: Where<'_>, name: &str) -> Result<&'static Flag, Failure> {
    let all = || tables.iter().copied().flatten();
    if let Some(flag) = all().find(|flag| flag.long == name) {
        return Ok(flag);
    }
    // As getopt: a beginning that only one option has.
    let mut begun = all().filter(|flag| flag.long.starts_with(name));
    match (begun.next(), begun.next()) {
        (Some(flag), None) if !name.is_empty() => Ok(flag),
        _ => Err(unknown(from, &format!("--{name}"))),
    }
}

fn of_letter(tables: Tables, from: Where<'_>, letter: char) -> Result<&'static Flag, Failure> {
    let found = tables.iter().copied().flatten().find(|flag| flag.short == Some(letter));
    found.ok_or_else(|| unknown(from, &format!("-{letter}")))
}

fn unknown(from: Where<'_>, flag: &str) -> Failure {
    let hint = "docs/slurm.md lists the options that are supported; `phalanx submit --help` has all that a job can say";
    from.refuse(&format!("{flag} is not supported: Phalanx does not know this option"), hint)
}

fn take(given: &mut Given, from: Where<'_>, flag: &'static Flag, value: String) -> Result<(), Failure> {
    match flag.fate {
        Fate::Used => {
            given.values.insert(flag.long, value);
        }
        Fate::Means(of, said) => {
            given.values.insert(of, said.map_or(value, str::to_owned));
        }
        Fate::Ignored(why) => given.notes.push((flag.long, why)),
        Fate::Refused(why, instead) => {
            return Err(from.refuse(&format!("--{} is not supported: {why}", flag.long), instead));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: &[Flag] = &[
        used("nodes", 'N', Takes::Value),
        used("ntasks", 'n', Takes::Value),
        used("exclusive", ' ', Takes::Optional),
        used("hold", 'H', Takes::Nothing),
        alias("minnodes", ' ', Takes::Value, "nodes"),
        means("release", "hold", "no"),
        ignored("mail-user", ' ', Takes::Value, "no mail is sent"),
        refused("reservation", ' ', Takes::Value, "there are none", "a block for a queue"),
    ];

    fn parse(line: &str, after: After) -> Result<Given, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        read(&[FLAGS], Where { command: "sbatch", place: None }, &words, after)
    }

    #[test]
    fn every_spelling_of_an_option_is_the_same() {
        for line in [
            "-N 2 -n4 -H a -x",
            "--nodes=2 --ntasks 4 --hold a -x",
            "-HN2 -n=4 a -x",
            "--no 2 --nt 4 --ho a -x",
        ] {
            let given = parse(line, After::Program).unwrap();
            assert_eq!((given.get("nodes"), given.get("ntasks")), (Some("2"), Some("4")), "{line}");
            assert!(given.has("hold"));
            assert_eq!(given.words, ["a", "-x"]);
        }
        let given = parse("--exclusive job.sh --hold", After::Program).unwrap();
        assert_eq!((given.get("exclusive"), given.has("hold")), (Some(""), false));
        assert_eq!(parse("7 --hold 8 -N1", After::Options).unwrap().words, ["7", "8"]);
        let later = parse("-N 3", After::Program).unwrap().over(parse("-N 1 -n 2", After::Program).unwrap());
        assert_eq!((later.get("nodes"), later.get("ntasks")), (Some("3"), Some("2")));
    }

    #[test]
    fn of_two_words_for_an_option_the_later_wins() {
        let line = |line: &str| parse(line, After::Program).unwrap();
        let nodes = |given: &Given| given.get("nodes").map(str::to_owned);
        assert_eq!(nodes(&line("-N 1 --minnodes=2")).as_deref(), Some("2"));
        assert_eq!(nodes(&line("--minnodes=2").over(line("-N 1"))).as_deref(), Some("2"));
        assert_eq!(nodes(&line("-N 1").over(line("--minnodes=2"))).as_deref(), Some("1"));
        assert_eq!(line("--hold --release").get("hold"), Some("no"));
        assert_eq!(line("--release --hold").get("hold"), Some(""));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for (line, message) in [
            ("--reservation=x", "sbatch: --reservation is not supported: there are none"),
            ("--nope", "sbatch: --nope is not supported: Phalanx does not know this option"),
            ("-z", "sbatch: -z is not supported: Phalanx does not know this option"),
            ("-N", "sbatch: --nodes lacks its value"),
            ("--hold=1", "sbatch: --hold takes no value"),
            ("--n 1", "sbatch: --n is not supported: Phalanx does not know this option"),
        ] {
            assert_eq!(parse(line, After::Program).unwrap_err().message, message);
        }
        let given = parse("--mail-user=a", After::Program).unwrap();
        assert_eq!(given.notes, [("mail-user", "no mail is sent")]);
    }
}
