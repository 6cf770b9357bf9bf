//! What operations cost: telemetry of a large cluster, and recovery from lost nodes and migration off degraded ones on real
//! processes.

mod migration;
mod recovery;
mod telemetry;

use migration::Migration;
use recovery::Recovery;
use telemetry::Telemetry;

const RUNS: usize = 7;
const NODES: u32 = 12_800;

#[derive(serde::Serialize)]
struct Report {
    telemetry: Telemetry,
    recovery: Vec<Recovery>,
    /// With and without; empty where network namespaces cannot be made.
    migration: Vec<Migration>,
}

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let (mut is_json, mut nodes, mut runs) = (false, NODES, RUNS);
    let mut args = args.iter();
    let number = |text: Option<&String>| {
        let text = text.ok_or("a number is missing")?;
        text.parse::<u32>().ok().filter(|number| *number > 0).ok_or(format!("{text} is no number above 0"))
    };
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--json" => is_json = true,
            "--nodes" => nodes = number(args.next())?,
            "--runs" => runs = usize::try_from(number(args.next())?).map_err(|e| e.to_string())?,
            other => return Err(format!("{other}: ops [--json] [--nodes N] [--runs N]")),
        }
    }
    let telemetry = telemetry::measure(nodes)?;
    let recovery = [1, 3].into_iter().map(|lost| recovery::measure(lost, runs));
    let recovery = recovery.collect::<Result<_, _>>()?;
    let migration =
        [true, false].into_iter().filter_map(|migrates| migration::measure(migrates, runs).transpose());
    let report = Report { telemetry, recovery, migration: migration.collect::<Result<_, _>>()? };
    if is_json {
        println!("{}", serde_json::to_string(&report).map_err(|e| e.to_string())?);
        return Ok(());
    }
    println!("{}", report.telemetry);
    for recovery in &report.recovery {
        println!("{recovery}");
    }
    for migration in &report.migration {
        println!("{migration}");
    }
    if report.migration.is_empty() {
        println!("migration: not measured, for it takes root, ip, tc and nsenter");
    }
    Ok(())
}
