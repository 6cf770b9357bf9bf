//! `phalanx-sim trace` and `generate`: what a trace holds, a part of it in our own format, and work that is drawn.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};

use phalanx_sim::trace::generate::Load;
use phalanx_sim::trace::{BYTES_MAX, Format, Selection, Trace, pai, write_csv, write_jsonl};
use serde_json::json;

use super::{USAGE_CODE, usage};

/// Bad rows that are printed before the rest is only counted.
const BAD_SHOWN: usize = 10;

/// What is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    Table,
    Json,
    Csv,
    Jsonl,
}

pub(super) fn help() -> String {
    format!(
        "\
usage: phalanx-sim trace FILE [options]      what a trace holds; `-` reads standard input
  --format NAME     {}; without it recognised
  --jobs FILE       the table of jobs beside PAI's table of tasks
{}
  --json            the summary and bad rows as JSON
  --csv, --jsonl    the jobs themselves in our own format

usage: phalanx-sim generate [options]        jobs drawn from distributions, as CSV
{}
  --jsonl           as JSON lines",
        Format::ALL.map(Format::name).join(", "),
        Selection::OPTIONS,
        Load::OPTIONS
    )
}

/// Reads, selects and prints.
pub(super) fn trace(file: &str, options: &[&str]) -> u8 {
    match summarise(file, options) {
        Ok(()) => 0,
        Err(Failed::Usage(what)) => usage(what),
        Err(Failed::Input(what)) => {
            eprintln!("phalanx-sim: {what}");
            USAGE_CODE
        }
    }
}

/// The usage is printed for the first alone.
enum Failed {
    Usage(String),
    Input(String),
}

fn summarise(file: &str, options: &[&str]) -> Result<(), Failed> {
    let (mut format, mut jobs, mut output, mut said) = (None, None, Output::Table, Vec::new());
    let mut is_processors = false;
    let mut rest = options.iter().copied();
    while let Some(option) = rest.next() {
        match option {
            "--json" => output = Output::Json,
            "--csv" => output = Output::Csv,
            "--jsonl" => output = Output::Jsonl,
            "--cpus-as-gpus" => is_processors = true,
            _ => {
                let missing = || Failed::Usage(format!("{option} needs a value behind it"));
                said.push((option, rest.next().ok_or_else(missing)?));
            }
        }
    }
    said.retain(|(option, value)| {
        let kept = match *option {
            "--format" => &mut format,
            "--jobs" => &mut jobs,
            _ => return true,
        };
        *kept = Some(*value);
        false
    });
    let (format, trace) = load(file, format, jobs)?;
    let mut selection = Selection { cpus_are_gpus: is_processors, ..Selection::default() };
    for (option, value) in said {
        let is_known =
            selection.set(option, value, &trace).map_err(|e| Failed::Usage(format!("{option}: {e}")))?;
        if !is_known {
            return Err(Failed::Usage(format!("unknown option {option:?}")));
        }
    }
    let trace = selection.apply(trace).map_err(|error| Failed::Input(error.to_string()))?;
    print(format, &trace, output).map_err(|error| Failed::Input(format!("cannot write: {error}")))
}

fn load(file: &str, format: Option<&str>, jobs: Option<&str>) -> Result<(Format, Trace), Failed> {
    let text = read(file)?;
    let wrong = |error| Failed::Input(format!("{file}: {error}"));
    let format = match format {
        None => Format::guess(file, &text),
        Some(name) => {
            let unknown = || Failed::Usage(format!("{name:?} is no format"));
            Some(Format::of_name(name).ok_or_else(unknown)?)
        }
    };
    match (format, jobs) {
        (Some(Format::Pai), Some(jobs)) => {
            let trace = pai::read(&text, Some(&read(jobs)?)).map_err(wrong)?;
            Ok((Format::Pai, trace))
        }
        (_, Some(_)) => Err(Failed::Usage("--jobs is for tables of PAI alone".to_owned())),
        (Some(format), None) => Ok((format, format.read(&text).map_err(wrong)?)),
        (None, None) => Format::read_any(file, &text).map_err(wrong),
    }
}

fn read(file: &str) -> Result<Vec<u8>, Failed> {
    let limit = BYTES_MAX as u64 + 1;
    let mut text = Vec::new();
    let read = match file {
        "-" => io::stdin().lock().take(limit).read_to_end(&mut text),
        _ => File::open(file).and_then(|file| file.take(limit).read_to_end(&mut text)),
    };
    read.map(|_| text).map_err(|error| Failed::Input(format!("cannot read {file}: {error}")))
}

fn print(format: Format, trace: &Trace, output: Output) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match output {
        Output::Table => write!(out, "format          {format}\n{}", trace.summary())?,
        Output::Csv => write_csv(trace, &mut out)?,
        Output::Jsonl => write_jsonl(trace, &mut out)?,
        Output::Json => {
            let bad: Vec<_> = trace
                .bad
                .iter()
                .map(|bad| json!({"row": bad.row, "field": bad.field, "problem": bad.problem}))
                .collect();
            let all = json!({ "format": format.name(), "summary": trace.summary(), "bad_rows": bad });
            writeln!(out, "{all}")?;
        }
    }
    out.flush()?;
    if output != Output::Json {
        trace.bad.iter().take(BAD_SHOWN).for_each(|bad| eprintln!("note: {bad}"));
        if let Some(more) = trace.bad.len().checked_sub(BAD_SHOWN).filter(|more| *more > 0) {
            eprintln!("note: and {more} more bad rows; --json lists all");
        }
    }
    Ok(())
}

/// Draws and prints.
pub(super) fn generate(options: &[&str]) -> u8 {
    let is_lines = options.contains(&"--jsonl");
    let options: Vec<&str> = options.iter().copied().filter(|option| *option != "--jsonl").collect();
    let trace = Load::parse(&options).and_then(|load| load.generate().map_err(|error| error.to_string()));
    let trace = match trace {
        Ok(trace) => trace,
        Err(what) => return usage(what),
    };
    let out = BufWriter::new(io::stdout().lock());
    let written = if is_lines { write_jsonl(&trace, out) } else { write_csv(&trace, out) };
    match written {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("phalanx-sim: cannot write: {error}");
            USAGE_CODE
        }
    }
}
