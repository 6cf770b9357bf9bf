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
mod trace;
mod usage;

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
    let mut outcomes = Vec::new();
    for nodes in &arguments.nodes {
        for scenario in &arguments.scenarios {
            for runner in arguments.runners.iter().filter(|runner| scenario.is_for(**runner)) {
                for run in 0..arguments.runs {
                    let outcome = one(&arguments, *nodes, *scenario, *runner, run)?;
                    outcomes.push(outcome);
                }
            }
        }
    }
    let tables = report::tables(&outcomes);
    if !arguments.is_json {
        tables.iter().for_each(|table| println!("{}", table.text()));
    }
    let into = arguments.into.as_ref();
    into.map_or(Ok(()), |file| report::MARKS.splice(file, markdown(&tables).trim_end()))
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
