//! `study`: a question about schedulers, answered by the simulator on an input file.

use super::words::Words;
use super::{CommandError, Document, Host, hang};
use crate::cluster::Cluster;
use crate::report::Progress;
use crate::studies::{Around, Page, STUDIES, Study, StudyError};

/// Of input files.
const BYTES_MAX: u64 = 1 << 20;
const ALL: &str = "all";

pub(super) fn help() -> String {
    format!(
        "\
usage: study NAME [options]

A question about schedulers, answered by the simulator on inputs that are all declared. Without NAME: the list of studies.

{}  {ALL:15} all of them on their default inputs

  --input FILE    an input file; `-` reads standard input; without it the default input
  --show-input    print the default input, to change it and give it with --input
  -o FILE         the page as Markdown
  --json FILE     the figures as JSON; `-` is standard output
",
        listed()
    )
}

/// A line for each study.
fn listed() -> String {
    STUDIES.iter().map(|study| format!("  {:15} {}\n", study.name, study.about)).collect()
}

/// What stands behind the verb.
pub(super) fn names() -> Vec<&'static str> {
    STUDIES.iter().map(|study| study.name).chain([ALL]).collect()
}

pub(super) fn study(words: &[&str], host: &mut dyn Host) -> Result<(), CommandError> {
    let mut words = Words::read(words, &["--show-input"])?;
    let names = std::mem::take(&mut words.bare);
    let (input, json) = (words.take("--input"), words.take("--json"));
    let file = words.take("-o").or_else(|| words.take("--output"));
    let shows_input = words.has("--show-input");
    words.done()?;
    let studies: Vec<&Study> =
        match *names.as_slice() {
            [] => return host.print(listed().as_bytes()).map_err(CommandError::Input),
            [ALL] => STUDIES.iter().collect(),
            [name] => vec![Study::named(name).ok_or_else(|| {
                CommandError::Usage(format!("there is no study {name:?}; `study` lists them"))
            })?],
            _ => return Err(CommandError::Usage("study takes one name".to_owned())),
        };
    if shows_input {
        let inputs: Vec<&str> = studies.iter().map(|study| study.default).collect();
        return host.print(inputs.join("---\n").as_bytes()).map_err(CommandError::Input);
    }
    if input.is_some() && studies.len() > 1 {
        return Err(CommandError::Usage("--input is the input of one study: name it".to_owned()));
    }
    let mut pages = Vec::new();
    for study in studies {
        let page = run(study, input, host)?;
        if json != Some("-") {
            host.print(page.markdown().as_bytes()).map_err(CommandError::Input)?;
        }
        pages.push(page);
    }
    if let Some(file) = file {
        let text: Vec<String> = pages.iter().map(Page::markdown).collect();
        host.write(file, text.join("\n").as_bytes()).map_err(CommandError::Input)?;
    }
    let Some(file) = json else { return Ok(()) };
    let text = match pages.as_slice() {
        [page] => Document::new("Study", page).pretty(),
        _ => Document::new("Studies", &Studies { studies: pages }).pretty(),
    };
    match file {
        "-" => host.print(text.as_bytes()),
        _ => host.write(file, text.as_bytes()),
    }
    .map_err(CommandError::Input)
}

#[derive(serde::Serialize)]
struct Studies {
    studies: Vec<Page>,
}

fn run(study: &Study, input: Option<&str>, host: &mut dyn Host) -> Result<Page, CommandError> {
    let default = study.file();
    let (name, text) = match input {
        None => (default.as_str(), study.default.to_owned()),
        Some(file) => {
            let bytes = host.read(file, BYTES_MAX + 1).map_err(CommandError::Input)?;
            if bytes.len() as u64 > BYTES_MAX {
                return Err(CommandError::Input(format!(
                    "{file}: has more than {BYTES_MAX} bytes, which is the limit"
                )));
            }
            (file, String::from_utf8(bytes).map_err(|_| CommandError::Input(format!("{file} is no text")))?)
        }
    };
    let page = study.run(name, &text, &mut Bench { host });
    host.progress(None);
    page.map_err(|error| match error {
        StudyError::Input(what) => CommandError::Input(what),
        StudyError::Run(failure) => CommandError::Correctness(failure.to_string()),
    })
}

/// Files and the terminal for a study.
struct Bench<'a> {
    host: &'a mut dyn Host,
}

impl Around for Bench<'_> {
    fn cluster(&mut self, word: &str) -> Result<Cluster, String> {
        hang::named(word, "cluster", self.host).map(|hung| hung.cluster).map_err(|error| error.to_string())
    }

    fn begin(&mut self, what: &str, run: u64, of: u64) {
        self.host.progress(Some(Progress { what, done: run.saturating_sub(1), all: of, unit: "runs" }));
    }
}
