//! What a shell can offer: read off the help texts, so that options are listed once.

/// A command and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub verb: &'static str,
    pub about: String,
    /// It takes a file, or a folder, that no option leads to.
    pub takes_file: bool,
    /// The words of which it takes one.
    pub names: Vec<&'static str>,
    pub options: Vec<Choice>,
}

/// An option as its help has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// `--trace`, or `-q`.
    pub name: String,
    /// What its value is called; none where it has none.
    pub value: Option<String>,
    pub about: String,
}

/// Every command that has its help.
#[must_use]
pub fn offers() -> Vec<Offer> {
    let offer = |verb| {
        let help = super::help_of(verb)?;
        let usage = help.lines().find_map(|line| line.strip_prefix("usage: ")?.strip_prefix(verb));
        let first = usage.and_then(|rest| rest.split_whitespace().next());
        let names = if verb == "study" { super::studies::names() } else { Vec::new() };
        let about = super::COMMANDS.lines().find_map(|line| {
            let (head, about) = line.trim_start().split_once("  ")?;
            head.split([' ', ',']).any(|word| word == verb).then(|| about.trim().to_owned())
        });
        Some(Offer {
            verb,
            about: about.unwrap_or_default(),
            takes_file: names.is_empty()
                && first.is_some_and(|word| word.starts_with(|c: char| c.is_ascii_uppercase())),
            names,
            options: help.lines().flat_map(choices).collect(),
        })
    };
    super::VERBS.into_iter().filter_map(offer).collect()
}

/// `  --csv, --jsonl  about` are two, and `  --seed N  about` has a value: it stands one space behind.
fn choices(line: &str) -> Vec<Choice> {
    let Some(rest) = line.strip_prefix("  -") else { return Vec::new() };
    let mut words = format!("-{rest}");
    let mut names = Vec::new();
    while let Some((name, rest)) = words.clone().split_once(", ") {
        if name.contains(' ') {
            break;
        }
        names.push(name.to_owned());
        words = rest.to_owned();
    }
    let (name, rest) = words.split_once(' ').unwrap_or((&words, ""));
    names.push(name.to_owned());
    let (value, about) = match rest.split_once(' ') {
        Some((value, about)) if !value.is_empty() => (Some(value.to_owned()), about),
        _ => (None, rest),
    };
    let choice = |name| Choice { name, value: value.clone(), about: about.trim().to_owned() };
    names.into_iter().map(choice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_off_the_help() {
        let offers = offers();
        let verbs: Vec<&str> = offers.iter().map(|offer| offer.verb).collect();
        assert_eq!(verbs, super::super::VERBS);
        let of = |verb: &str, name: &str| {
            let offer = offers.iter().find(|offer| offer.verb == verb).unwrap();
            let choice = offer.options.iter().find(|choice| choice.name == name);
            choice.map(|choice| (choice.value.clone().unwrap_or_default(), choice.about.clone()))
        };
        let some = |value: &str, about: &str| Some((value.to_owned(), about.to_owned()));
        assert_eq!(of("run", "--trace"), some("FILE", "`-` reads standard input"));
        assert_eq!(of("compare", "-q"), some("", "no table"));
        assert_eq!(of("run", "--policy"), some("NAME", "the policy; without it phalanx"));
        assert_eq!(of("trace", "--jsonl"), some("", "the jobs themselves in our own format"));
        assert_eq!(of("whatif", "--set").unwrap().0, "PATH=VALUE");
        assert_eq!(of("rerun", "--seed"), None);
        let takes_file: Vec<&str> =
            offers.iter().filter(|offer| offer.takes_file).map(|offer| offer.verb).collect();
        assert_eq!(takes_file, ["trace", "rerun", "whatif", "replay"]);
        let study = offers.iter().find(|offer| offer.verb == "study").unwrap();
        assert_eq!(
            study.names,
            ["topology", "consolidation", "spot", "sharing", "strict", "failures", "all"]
        );
        assert!(offers.iter().all(|offer| !offer.about.is_empty()), "{offers:#?}");
    }
}
