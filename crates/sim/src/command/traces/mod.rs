//! `trace` and `generate`: what a trace holds, a part of it in our own format, and work that is drawn.

mod load;
mod part;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum, ValueHint};
use serde_json::json;

use super::{CommandError, Host};
use crate::report::Input;
use crate::trace::{self, BYTES_MAX, BadRow, Format, pai, write_csv, write_jsonl};
use load::Drawn;
pub(super) use part::Part;

/// Bad rows that are told before the rest is only counted.
const BAD_SHOWN: usize = 10;

#[derive(Debug, Args)]
pub struct Trace {
    /// Trace in any of the formats; `-` reads standard input
    #[arg(value_hint = ValueHint::FilePath)]
    file: String,
    #[command(flatten)]
    part: Part,
    #[command(flatten)]
    shape: Shape,
}

/// How a trace is printed: as a summary for people if none is given.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct Shape {
    /// Print the summary and bad rows as JSON
    #[arg(long)]
    json: bool,
    /// Print the jobs themselves in our own format
    #[arg(long)]
    csv: bool,
    /// Print the jobs themselves in our own format, as JSON lines
    #[arg(long)]
    jsonl: bool,
}

#[derive(Debug, Args)]
pub struct Generate {
    #[command(flatten)]
    drawn: Drawn,
    /// Print JSON lines
    #[arg(long)]
    jsonl: bool,
}

impl ValueEnum for Format {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

/// A trace, and the part of it that was asked for.
pub(super) struct Selected {
    pub(super) format: Format,
    pub(super) trace: trace::Trace,
    pub(super) inputs: Vec<Input>,
}

/// Reads a trace.
pub(super) fn select(file: &str, part: &Part, host: &mut dyn Host) -> Result<Selected, CommandError> {
    let (format, trace, inputs) = load(file, part.format, part.jobs.as_deref(), host)?;
    let trace = part.of(&trace)?.apply(trace).map_err(|error| CommandError::Input(error.to_string()))?;
    Ok(Selected { format, trace, inputs })
}

fn load(
    file: &str,
    format: Option<Format>,
    jobs: Option<&str>,
    host: &mut dyn Host,
) -> Result<(Format, trace::Trace, Vec<Input>), CommandError> {
    let mut read = |file: &str| host.read(file, BYTES_MAX as u64 + 1).map_err(CommandError::Input);
    let text = read(file)?;
    let wrong = |error| CommandError::Input(format!("{file}: {error}"));
    let format = format.or_else(|| Format::guess(file, &text));
    let mut inputs = vec![Input::of(file, &text)];
    let (format, trace) = match (format, jobs) {
        (Some(Format::Pai), Some(jobs)) => {
            let table = read(jobs)?;
            inputs.push(Input::of(jobs, &table));
            (Format::Pai, pai::read(&text, Some(&table)).map_err(wrong)?)
        }
        (_, Some(_)) => {
            return Err(CommandError::Usage("--jobs is for tables of PAI alone".to_owned()));
        }
        (Some(format), None) => (format, format.read(&text).map_err(wrong)?),
        (None, None) => Format::read_any(file, &text).map_err(wrong)?,
    };
    Ok((format, trace, inputs))
}

/// The first bad rows, and how many more there are.
pub(super) fn tell_bad(trace: &trace::Trace, host: &mut dyn Host) {
    trace.bad.iter().take(BAD_SHOWN).for_each(|bad| host.note(&bad.to_string()));
    if let Some(more) = trace.bad.len().checked_sub(BAD_SHOWN).filter(|more| *more > 0) {
        host.note(&format!("and {more} more bad rows; `trace FILE --json` lists all"));
    }
}

impl Trace {
    pub(super) fn run(&self, host: &mut dyn Host) -> Result<(), CommandError> {
        let Selected { format, trace, .. } = select(&self.file, &self.part, host)?;
        let mut out = Vec::new();
        let cannot = |error: std::io::Error| CommandError::Input(format!("cannot write: {error}"));
        if self.shape.csv {
            write_csv(&trace, &mut out).map_err(cannot)?;
        } else if self.shape.jsonl {
            write_jsonl(&trace, &mut out).map_err(cannot)?;
        } else if self.shape.json {
            let bad = |bad: &BadRow| json!({"row": bad.row, "field": bad.field, "problem": bad.problem});
            let bad: Vec<_> = trace.bad.iter().map(bad).collect();
            let all = json!({ "format": format.name(), "summary": trace.summary(), "bad_rows": bad });
            out = format!("{all}\n").into_bytes();
        } else {
            out = format!("format          {format}\n{}", trace.summary()).into_bytes();
        }
        host.print(&out).map_err(CommandError::Input)?;
        if !self.shape.json {
            tell_bad(&trace, host);
        }
        Ok(())
    }
}

impl Generate {
    pub(super) fn run(&self, host: &mut dyn Host) -> Result<(), CommandError> {
        let trace = self.drawn.load().generate().map_err(|error| CommandError::Usage(error.to_string()))?;
        let mut out = Vec::new();
        let written = if self.jsonl { write_jsonl(&trace, &mut out) } else { write_csv(&trace, &mut out) };
        written.map_err(|error| CommandError::Input(format!("cannot write: {error}")))?;
        host.print(&out).map_err(CommandError::Input)
    }
}
