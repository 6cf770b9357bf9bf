//! The engine's place for a gang against the best there is, on seeded instances, by exact methods that know nothing
//! of the engine; and its places for a queue of gangs against the best for all of them together.

mod ask;
mod draw;
mod exhaustive;
mod hardware;
#[cfg(feature = "milp")]
mod milp;
mod objective;
mod problem;
mod queue;
mod report;
mod rng;
mod show;
mod single;
mod stats;
mod sweep;
#[cfg(test)]
mod tests;

/// A multiple of 180, so that every combination of kinds comes equally often.
const INSTANCES: u64 = 1_800;
const QUEUES: u64 = 200;

struct Arguments {
    is_json: bool,
    instances: u64,
    queues: u64,
    seed: Option<u64>,
    queue: Option<u64>,
}

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let arguments = parse(args)?;
    match arguments {
        Arguments { seed: Some(seed), .. } => return show::instance(seed),
        Arguments { queue: Some(seed), .. } => return show::queue(seed),
        _ => {}
    }
    let singles = (0..arguments.instances).map(single::judge).collect::<Result<Vec<_>, _>>()?;
    let queues = (0..arguments.queues).map(queue::judge).collect::<Result<Vec<_>, _>>()?;
    let report = report::Report::new(&singles, &queues);
    if arguments.is_json {
        println!("{}", serde_json::to_string(&report).map_err(|error| error.to_string())?);
    } else {
        report.print();
    }
    report.verdict()
}

fn parse(args: &[String]) -> Result<Arguments, String> {
    let mut parsed =
        Arguments { is_json: false, instances: INSTANCES, queues: QUEUES, seed: None, queue: None };
    let mut rest = args.iter();
    while let Some(argument) = rest.next() {
        let mut number = || {
            let text = rest.next().ok_or_else(|| format!("{argument} needs a number after it"))?;
            text.parse::<u64>().map_err(|_| format!("{text} is no number"))
        };
        match argument.as_str() {
            "--json" => parsed.is_json = true,
            "--instances" => parsed.instances = number()?,
            "--queues" => parsed.queues = number()?,
            "--seed" => parsed.seed = Some(number()?),
            "--queue" => parsed.queue = Some(number()?),
            other => {
                let known = "--json, --instances, --queues, --seed, --queue";
                return Err(format!("unknown argument {other}; known are {known}"));
            }
        }
    }
    Ok(parsed)
}
