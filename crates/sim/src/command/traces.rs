//! `trace` and `generate`: what a trace holds, a part of it in our own format, and work that is drawn.

use serde_json::json;

use super::words::Words;
use super::{CommandError, Host};
use crate::report::Input;
use crate::trace::generate::Load;
use crate::trace::{BYTES_MAX, Format, Selection, Trace, pai, write_csv, write_jsonl};

/// Bad rows that are told before the rest is only counted.
const BAD_SHOWN: usize = 10;

/// One line for each option with which a trace is read.
pub(super) fn options() -> String {
    format!(
        "  --format NAME     {}; without it recognised
  --jobs FILE       the table of jobs beside PAI's table of tasks
{}",
        Format::ALL.map(Format::name).join(", "),
        Selection::OPTIONS
    )
}

pub(super) fn trace_help() -> String {
    format!(
        "\
usage: trace FILE [options]

What a trace of jobs holds; `-` reads standard input.

{}
  --json            the summary and bad rows as JSON
  --csv, --jsonl    the jobs themselves in our own format
",
        options()
    )
}

pub(super) fn generate_help() -> String {
    format!(
        "\
usage: generate [options]

Jobs drawn from distributions, as CSV.

{}
  --jsonl           as JSON lines
",
        Load::OPTIONS
    )
}

/// A trace, and the part of it that was asked for.
pub(super) struct Selected {
    pub(super) format: Format,
    pub(super) trace: Trace,
    pub(super) inputs: Vec<Input>,
}

/// Reads a trace. All options that are left are taken for those of its selection.
pub(super) fn select(
    file: &str,
    mut words: Words<'_>,
    host: &mut dyn Host,
) -> Result<Selected, CommandError> {
    let (format, jobs) = (words.take("--format"), words.take("--jobs"));
    let cpus_are_gpus = words.has("--cpus-as-gpus");
    let (format, trace, inputs) = load(file, format, jobs, host)?;
    let mut selection = Selection { cpus_are_gpus, ..Selection::default() };
    for (option, value) in words.rest() {
        let wrong = |error| CommandError::Usage(format!("{option}: {error}"));
        if !selection.set(option, value, &trace).map_err(wrong)? {
            return Err(CommandError::Usage(format!("unknown option {option:?}")));
        }
    }
    words.done()?;
    let trace = selection.apply(trace).map_err(|error| CommandError::Input(error.to_string()))?;
    Ok(Selected { format, trace, inputs })
}

fn load(
    file: &str,
    format: Option<&str>,
    jobs: Option<&str>,
    host: &mut dyn Host,
) -> Result<(Format, Trace, Vec<Input>), CommandError> {
    let mut read = |file: &str| host.read(file, BYTES_MAX as u64 + 1).map_err(CommandError::Input);
    let text = read(file)?;
    let wrong = |error| CommandError::Input(format!("{file}: {error}"));
    let format = match format {
        None => Format::guess(file, &text),
        Some(name) => {
            let unknown = || CommandError::Usage(format!("{name:?} is no format"));
            Some(Format::of_name(name).ok_or_else(unknown)?)
        }
    };
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
pub(super) fn tell_bad(trace: &Trace, host: &mut dyn Host) {
    trace.bad.iter().take(BAD_SHOWN).for_each(|bad| host.note(&bad.to_string()));
    if let Some(more) = trace.bad.len().checked_sub(BAD_SHOWN).filter(|more| *more > 0) {
        host.note(&format!("and {more} more bad rows; `trace FILE --json` lists all"));
    }
}

pub(super) fn trace(words: &[&str], host: &mut dyn Host) -> Result<(), CommandError> {
    let mut words = Words::read(words, &["--json", "--csv", "--jsonl", "--cpus-as-gpus"])?;
    let [file] = *std::mem::take(&mut words.bare).as_slice() else {
        return Err(CommandError::Usage("trace needs one file".to_owned()));
    };
    let (is_json, is_csv, is_jsonl) = (words.has("--json"), words.has("--csv"), words.has("--jsonl"));
    let Selected { format, trace, .. } = select(file, words, host)?;
    let mut out = Vec::new();
    let cannot = |error: std::io::Error| CommandError::Input(format!("cannot write: {error}"));
    if is_csv {
        write_csv(&trace, &mut out).map_err(cannot)?;
    } else if is_jsonl {
        write_jsonl(&trace, &mut out).map_err(cannot)?;
    } else if is_json {
        let bad =
            |bad: &crate::trace::BadRow| json!({"row": bad.row, "field": bad.field, "problem": bad.problem});
        let bad: Vec<_> = trace.bad.iter().map(bad).collect();
        let all = json!({ "format": format.name(), "summary": trace.summary(), "bad_rows": bad });
        out = format!("{all}\n").into_bytes();
    } else {
        out = format!("format          {format}\n{}", trace.summary()).into_bytes();
    }
    host.print(&out).map_err(CommandError::Input)?;
    if !is_json {
        tell_bad(&trace, host);
    }
    Ok(())
}

pub(super) fn generate(words: &[&str], host: &mut dyn Host) -> Result<(), CommandError> {
    let is_lines = words.contains(&"--jsonl");
    let words: Vec<&str> = words.iter().copied().filter(|option| *option != "--jsonl").collect();
    let trace = Load::parse(&words).and_then(|load| load.generate().map_err(|error| error.to_string()));
    let trace = trace.map_err(CommandError::Usage)?;
    let mut out = Vec::new();
    let written = if is_lines { write_jsonl(&trace, &mut out) } else { write_csv(&trace, &mut out) };
    written.map_err(|error| CommandError::Input(format!("cannot write: {error}")))?;
    host.print(&out).map_err(CommandError::Input)
}
