//! How many instructions a decision costs, held against what it cost before. Counted and not timed, so that other work
//! on the machine changes nothing.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::cargo::{cargo, metadata};

/// Kept figures: `NODES INSTRUCTIONS` by line.
const KEPT: &str = "crates/engine/examples/decisions.txt";
/// Decisions of the shorter run; the longer one has as many more, and the difference is what they cost.
const DECISIONS: u64 = 3_000;
/// What a decision may cost more than what is kept, in percent.
const MORE_PERCENT: u64 = 10;
/// From the smallest to the largest cluster.
const GROWTH_PERCENT: u64 = 250;

pub(crate) fn run(root: &Path, is_update: bool) -> ExitCode {
    if !has_valgrind() {
        println!("work: not counted, for valgrind is not here (apt-get install valgrind)");
        return ExitCode::SUCCESS;
    }
    match check(root, is_update) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("work: {why}");
            ExitCode::FAILURE
        }
    }
}

fn has_valgrind() -> bool {
    let status =
        Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn check(root: &Path, is_update: bool) -> Result<String, String> {
    let mut build = cargo();
    // For the same packages as `make swarm`: then both have the same features, and the engine is built once.
    build.args(["build", "--quiet", "--profile", "decisions", "-p", "phalanx-engine", "-p", "phalanx-sim"]);
    build.args(["--example", "decisions"]);
    let status = build.current_dir(root).status().map_err(|e| e.to_string())?;
    if !status.success() {
        return Err("the example does not build".to_owned());
    }
    let program = metadata(root).map_err(|e| e.to_string())?.target.join("decisions/examples/decisions");
    let text = std::fs::read_to_string(root.join(KEPT)).map_err(|e| format!("{KEPT}: {e}"))?;
    let mut report = String::new();
    let mut counted: Vec<(u64, u64)> = Vec::new();
    let mut failures = Vec::new();
    for (nodes, kept) in parse(&text)? {
        let each = (instructions(&program, nodes, 2 * DECISIONS)?
            - instructions(&program, nodes, DECISIONS)?)
            / DECISIONS;
        report += &format!("  {nodes} nodes: {each} instructions a decision, {kept} kept\n");
        if each * 100 > kept * (100 + MORE_PERCENT) {
            failures.push(format!("{nodes} nodes: {each} instructions a decision, and {kept} before"));
        }
        counted.push((nodes, each));
    }
    if is_update {
        let lines: String = counted.iter().map(|(nodes, each)| format!("{nodes} {each}\n")).collect();
        std::fs::write(root.join(KEPT), lines).map_err(|e| format!("{KEPT}: {e}"))?;
        return Ok(report);
    }
    if let (Some((_, first)), Some((_, last))) = (counted.first(), counted.last())
        && last * 100 > first * GROWTH_PERCENT
    {
        failures.push(format!("a decision grows from {first} to {last} with the cluster"));
    }
    if failures.is_empty() {
        return Ok(report);
    }
    Err(format!("{}\nwhere that is meant: cargo run -p xtask -- work --update", failures.join("\n")))
}

fn parse(text: &str) -> Result<Vec<(u64, u64)>, String> {
    let line = |line: &str| {
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        match (words.next(), words.next()) {
            (Some(Ok(nodes)), Some(Ok(instructions))) => Ok((nodes, instructions)),
            _ => Err(format!("{KEPT}: {line} is not NODES INSTRUCTIONS")),
        }
    };
    text.lines().map(line).collect()
}

/// Of one run, from its beginning to its end.
fn instructions(program: &Path, nodes: u64, decisions: u64) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([nodes.to_string(), decisions.to_string()])
        .output()
        .map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split("Collected : ").nth(1));
    collected.and_then(|text| text.trim().parse().ok()).ok_or_else(|| format!("valgrind says: {said}"))
}
