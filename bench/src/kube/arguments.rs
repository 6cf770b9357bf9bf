//! What is typed behind `phalanx-bench kube`.

use std::path::PathBuf;
use std::time::Duration;

use super::runner::Runner;
use super::scenario::Scenario;

pub(super) struct Arguments {
    pub(super) nodes: Vec<usize>,
    pub(super) scenarios: Vec<Scenario>,
    pub(super) runners: Vec<Runner>,
    pub(super) runs: usize,
    pub(super) seed: u64,
    /// After which a run is cut off.
    pub(super) limit: Duration,
    /// The executable of the runner `phalanx`.
    pub(super) phalanx: PathBuf,
    pub(super) is_json: bool,
    /// Runs that were measured before, a line each as `--json` prints them; nothing is measured then.
    pub(super) from: Vec<PathBuf>,
    pub(super) into: Option<PathBuf>,
}

/// The largest cluster; Kubernetes itself promises 5,000 nodes.
const NODES_MAX: usize = 10_000;

pub(super) fn parse(words: &[String]) -> Result<Arguments, String> {
    let mut of = Arguments {
        nodes: Vec::new(),
        scenarios: Vec::new(),
        runners: Vec::new(),
        runs: 3,
        seed: 42,
        limit: Duration::from_secs(600),
        phalanx: beside_this("phalanx")?,
        is_json: false,
        from: Vec::new(),
        into: None,
    };
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut after = |what: &str| rest.next().ok_or_else(|| format!("{word} needs {what} after it"));
        match word.as_str() {
            "--json" => of.is_json = true,
            "--nodes" => of.nodes.push(number(word, after("a number")?, 1..=NODES_MAX)?),
            "--only" => of.scenarios.push(known(after("a scenario")?, &Scenario::ALL, Scenario::name)?),
            "--runner" => of.runners.push(known(after("a runner")?, &Runner::ALL, Runner::name)?),
            "--runs" => of.runs = number(word, after("a number")?, 1..=100)?,
            "--seed" => of.seed = number(word, after("a number")?, 0..=usize::MAX)? as u64,
            "--limit" => {
                of.limit = Duration::from_secs(number(word, after("seconds")?, 1..=86_400)? as u64);
            }
            "--phalanx" => of.phalanx = PathBuf::from(after("an executable")?),
            "--from" => of.from.push(PathBuf::from(after("a file")?)),
            "--into" => of.into = Some(PathBuf::from(after("a file")?)),
            _ => {
                let all =
                    "--json, --nodes, --only, --runner, --runs, --seed, --limit, --phalanx, --from, --into";
                return Err(format!("unknown argument {word}; known are {all}"));
            }
        }
    }
    if of.nodes.is_empty() {
        of.nodes = vec![1_000, 5_000];
    }
    if of.scenarios.is_empty() {
        of.scenarios = Scenario::ALL.to_vec();
    }
    if of.runners.is_empty() {
        of.runners = vec![Runner::Bare, Runner::KubeScheduler];
    }
    if of.runners.contains(&Runner::Phalanx) && !of.phalanx.exists() {
        return Err(format!(
            "{} is not there: build it with `cargo build --release -p phalanx-cli`, or name it with --phalanx",
            of.phalanx.display()
        ));
    }
    Ok(of)
}

fn number(word: &str, text: &str, within: std::ops::RangeInclusive<usize>) -> Result<usize, String> {
    let number = text.replace(',', "").parse().ok().filter(|number| within.contains(number));
    number.ok_or_else(|| format!("{word} {text}: a whole number from {} to {}", within.start(), within.end()))
}

fn known<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    let names = || all.iter().map(|one| name(*one)).collect::<Vec<_>>().join(", ");
    all.iter().copied().find(|one| name(*one) == text).ok_or_else(|| format!("{text} is none of {}", names()))
}

fn beside_this(name: &str) -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|e| format!("this executable cannot be found: {e}"))?;
    Ok(this.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn without_arguments_everything_is_measured_but_what_must_be_named() {
        let of = parse(&[]).unwrap();
        assert_eq!(of.nodes, [1_000, 5_000]);
        assert_eq!(of.scenarios.len(), Scenario::ALL.len());
        assert_eq!(of.runners, [Runner::Bare, Runner::KubeScheduler]);
    }

    #[test]
    fn what_is_unknown_is_refused_with_what_is_known() {
        assert!(parse(&words("--only fast")).err().unwrap().contains("single, gangs"));
        assert!(parse(&words("--nodes 0")).err().unwrap().contains("from 1 to 10000"));
        assert!(parse(&words("--runs")).err().unwrap().contains("needs a number"));
        let missing = parse(&words("--runner phalanx --phalanx nowhere/phalanx")).err().unwrap();
        assert!(missing.contains("cargo build"), "{missing}");
    }
}
