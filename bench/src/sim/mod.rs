//! Results that other schedulers published from their simulators, and what comes out of our world under their settings.

mod claims;
mod compare;
mod gavel;
mod muri;
mod philly;
mod shockwave;

use std::path::{Path, PathBuf};

use phalanx_sim::trace::{Format, Trace};
use serde::Serialize;

/// One published figure, and ours.
#[derive(Serialize)]
pub(crate) struct Row {
    setting: String,
    policy: &'static str,
    measure: &'static str,
    published: f64,
    ours: f64,
    difference_percent: f64,
}

impl Row {
    fn new(setting: String, policy: &'static str, measure: &'static str, published: f64, ours: f64) -> Self {
        let difference_percent = (ours / published - 1.0) * 100.0;
        Self { setting, policy, measure, published, ours, difference_percent }
    }
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let (mut is_json, mut is_kept) = (false, false);
    let mut folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/traces");
    let (what, rest) =
        arguments.split_first().ok_or("say which: muri, shockwave, gavel, philly, compare, claims")?;
    let mut only = Vec::new();
    let mut rest = rest.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--json" => is_json = true,
            "--write" => is_kept = true,
            "--data" => folder = rest.next().map(PathBuf::from).ok_or("--data needs a path after it")?,
            "--only" => only.push(rest.next().ok_or("--only needs a name after it")?.clone()),
            other => {
                return Err(format!("unknown argument {other}; known are --json, --data, --only, --write"));
            }
        }
    }
    let rows = match what.as_str() {
        "muri" => muri::measure(&folder)?,
        "shockwave" => shockwave::measure(&folder)?,
        "gavel" => gavel::measure(&folder)?,
        "compare" => return compare::measure(&folder, &only, is_json),
        "claims" => return claims::measure(&folder, &only, is_kept),
        "philly" => return philly::measure(&folder, is_json),
        other => return Err(format!("{other} is none of muri, shockwave, gavel, philly, compare, claims")),
    };
    if is_json {
        println!("{}", serde_json::to_string(&rows).map_err(|e| e.to_string())?);
        return Ok(());
    }
    println!(
        "{:22} {:14} {:18} {:>14} {:>14} {:>9}",
        "setting", "policy", "measure", "published", "ours", ""
    );
    for Row { setting, policy, measure, published, ours, difference_percent } in rows {
        println!(
            "{setting:22} {policy:14} {measure:18} {published:>14.2} {ours:>14.2} {difference_percent:>+8.2}%"
        );
    }
    Ok(())
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|e| format!("{}: {e}; name the traces with --data", file.display()))
}

fn trace(file: &Path, format: Format) -> Result<Trace, String> {
    format.read(read(file)?.as_bytes()).map_err(|e| format!("{}: {e}", file.display()))
}
