//! Runs `step` in clusters of three sizes, each in its own process, and prints how the times grow.

use serde_json::{Map, Value};

use super::{Asked, Sizes};
use crate::placement::{GROWTH, in_own_process};

/// The figures of one cluster, by name.
type Measured = Map<String, Value>;

pub(super) fn run(asked: &Asked) -> Result<(), String> {
    let measured = |nodes: &u32| in_own_process(&arguments(asked, *nodes));
    let all: Vec<Measured> = GROWTH.iter().map(measured).collect::<Result<_, _>>()?;
    if asked.json {
        all.into_iter().for_each(|measured| println!("{}", Value::Object(measured)));
    } else {
        lines(&all).iter().for_each(|line| println!("{line}"));
    }
    Ok(())
}

/// Arguments of the process for the cluster with this part of the nodes of the largest: as small a part of the queues, the
/// running gangs and the pending gangs.
pub(super) fn arguments(asked: &Asked, nodes: u32) -> Vec<String> {
    let part = GROWTH[GROWTH.len() - 1] / nodes;
    let Sizes { gpus, queues, pending, running, seed } = asked.sizes;
    let mut arguments = vec!["step".to_owned(), "--json".to_owned()];
    let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    add("--gpus", (gpus / part).to_string());
    add("--queues", (queues / part).to_string());
    add("--pending", (pending / part as usize).to_string());
    add("--running", (running / part as usize).to_string());
    add("--seed", seed.to_string());
    if let Some(only) = &asked.only {
        add("--only", only.clone());
    }
    if let Some(repeat) = asked.repeat {
        add("--repeat", repeat.to_string());
    }
    arguments
}

/// A line for p50 and one for p99 of each time: at each size, and the largest size against the smallest.
pub(super) fn lines(all: &[Measured]) -> Vec<String> {
    let Some((first, last)) = all.first().zip(all.last()) else { return Vec::new() };
    let number = |measured: &Measured, name: &str| measured.get(name).and_then(Value::as_f64);
    let row = |head: &str, cells: &mut dyn Iterator<Item = Option<f64>>, digits: usize| -> String {
        let cell = |cell: Option<f64>| cell.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
        let cells = cells.map(|value| format!(" {:>11}", cell(value)));
        format!("  {head:<32}{}", cells.collect::<String>())
    };
    let mut lines =
        vec![row("GPUs", &mut all.iter().map(|measured| number(measured, "gpus")), 0) + "    growth"];
    for (name, unit) in last.keys().filter_map(|key| key.rsplit_once("_p50_")) {
        for part in ["p50", "p99"] {
            let key = format!("{name}_{part}_{unit}");
            let values = &mut all.iter().map(|measured| number(measured, &key));
            let mut line = row(&format!("{name} {part} {unit}"), values, 3);
            if let (Some(least), Some(most)) = (number(first, &key), number(last, &key)) {
                line += &format!(" {:>9.3}", most / least);
            }
            lines.push(line);
        }
    }
    lines
}
