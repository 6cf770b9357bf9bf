//! `study`: a question about schedulers, answered by the simulator on an input file.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, ValueHint};

use super::{CommandError, Document, Host, hang};
use crate::cluster::Cluster;
use crate::report::Progress;
use crate::studies::{self, Around, Page, STUDIES, StudyError};

/// Of input files.
const BYTES_MAX: u64 = 1 << 20;
const ALL: &str = "all";

#[derive(Debug, Args)]
pub struct Study {
    /// Study; `all` answers all of them on their default inputs
    #[arg(value_parser = PossibleValuesParser::new(names()))]
    name: Option<String>,
    /// Input file; `-` reads standard input [default: the input that --show-input prints]
    #[arg(long, value_name = "FILE", requires = "name", value_hint = ValueHint::FilePath)]
    input: Option<String>,
    /// Print the default input, to change it and give it with --input
    #[arg(long, requires = "name", conflicts_with = "input")]
    show_input: bool,
    /// Write the page as Markdown
    #[arg(short = 'o', long = "output", value_name = "FILE", requires = "name", value_hint = ValueHint::FilePath)]
    page: Option<String>,
    /// Write the figures as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", requires = "name", value_hint = ValueHint::FilePath)]
    json: Option<String>,
}

/// A line for each study.
fn listed() -> String {
    STUDIES.iter().map(|study| format!("  {:15} {}\n", study.name, study.about)).collect()
}

fn names() -> Vec<PossibleValue> {
    let of = |study: &studies::Study| PossibleValue::new(study.name).help(study.about);
    STUDIES
        .iter()
        .map(of)
        .chain([PossibleValue::new(ALL).help("all studies on their default inputs")])
        .collect()
}

impl Study {
    pub(super) fn run(&self, host: &mut dyn Host) -> Result<(), CommandError> {
        let Some(name) = &self.name else {
            return host.print(listed().as_bytes()).map_err(CommandError::Input);
        };
        let studies: Vec<&studies::Study> =
            STUDIES.iter().filter(|study| [study.name, ALL].contains(&name.as_str())).collect();
        if self.show_input {
            let inputs: Vec<&str> = studies.iter().map(|study| study.default).collect();
            return host.print(inputs.join("---\n").as_bytes()).map_err(CommandError::Input);
        }
        if self.input.is_some() && studies.len() > 1 {
            return Err(CommandError::Usage("--input is the input of one study: name it".to_owned()));
        }
        let json = self.json.as_deref();
        let mut pages = Vec::new();
        for study in studies {
            let page = answer(study, self.input.as_deref(), host)?;
            if json != Some("-") {
                host.print(page.markdown().as_bytes()).map_err(CommandError::Input)?;
            }
            pages.push(page);
        }
        if let Some(file) = &self.page {
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
}

#[derive(serde::Serialize)]
struct Studies {
    studies: Vec<Page>,
}

fn answer(study: &studies::Study, input: Option<&str>, host: &mut dyn Host) -> Result<Page, CommandError> {
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
