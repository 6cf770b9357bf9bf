//! Schedulers on a real API server: how fast they bind, what they leave in part, and what it costs.
//!
//! Nodes are fake and no kubelet plays them; pods are there before the scheduler starts; API server, etcd, scheduler
//! and this program share the machine. What happens is taken from a watch, not sampled.

mod arguments;
mod bare;
mod cluster;
mod draw;
mod figures;
mod report;
mod runner;
mod scenario;
mod takeover;
mod trace;
mod usage;

use std::path::Path;

use arguments::Arguments;
use figures::Outcome;

use crate::tables::markdown;

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if let [verb, kubeconfig] = arguments
        && verb == bare::VERB
    {
        return bare::bind(kubeconfig.as_ref());
    }
    let arguments = arguments::parse(arguments)?;
    arguments.into.as_ref().map_or(Ok(()), |file| report::MARKS.check(file))?;
    let outcomes = match &*arguments.from {
        [] => measured(&arguments)?,
        files => files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?.concat(),
    };
    let tables = report::tables(&outcomes);
    if !arguments.is_json {
        tables.iter().for_each(|table| println!("{}", table.text()));
    }
    let into = arguments.into.as_ref();
    into.map_or(Ok(()), |file| report::MARKS.splice(file, markdown(&tables).trim_end()))
}

/// Runners take turns, so that a machine that grows slower does so for all of them.
fn measured(arguments: &Arguments) -> Result<Vec<Outcome>, String> {
    let mut outcomes = Vec::new();
    for nodes in &arguments.nodes {
        for scenario in &arguments.scenarios {
            for run in 0..arguments.runs {
                for runner in arguments.runners.iter().filter(|runner| scenario.is_for(**runner)) {
                    outcomes.push(one(arguments, *nodes, *scenario, *runner, run)?);
                }
            }
        }
    }
    Ok(outcomes)
}

/// Runs as `--json` printed them, a line each.
fn read(file: &Path) -> Result<Vec<Outcome>, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty());
    let wrong = |at: usize, e| {
        format!("{}: line {at}: {e}; one run as --json prints it was expected", file.display())
    };
    lines.map(|(at, line)| serde_json::from_str(line).map_err(|e| wrong(at, e))).collect()
}

fn one(
    arguments: &Arguments,
    nodes: usize,
    scenario: scenario::Scenario,
    runner: runner::Runner,
    run: usize,
) -> Result<Outcome, String> {
    let (name, of) = (scenario.name(), runner.name());
    eprintln!("{name}, {nodes} nodes, {of}, run {} of {}", run + 1, arguments.runs);
    let outcome = scenario::measure(arguments, nodes, scenario, runner)
        .map_err(|e| format!("{name} with {nodes} nodes under {of}: {e}"))?;
    if arguments.is_json {
        println!("{}", serde_json::to_string(&outcome).map_err(|e| e.to_string())?);
    } else {
        eprintln!("  {}", report::line(&outcome));
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_printed_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs");
        let run =
            Outcome { scenario: "gangs".into(), nodes: 7, spreads: vec![(2, 0.5)], ..Outcome::default() };
        let line = serde_json::to_string(&run).unwrap();
        std::fs::write(&file, format!("{line}\n\n{line}\n")).unwrap();
        let runs = read(&file).unwrap();
        assert_eq!((runs.len(), runs[1].nodes, &runs[1].spreads), (2, 7, &run.spreads));
        std::fs::write(&file, format!("{line}\nnothing\n")).unwrap();
        assert!(read(&file).err().unwrap().contains("runs: line 2: "));
    }
}
