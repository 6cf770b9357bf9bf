//! How pages and documents reach the terminal.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use clap::ValueEnum;
use jiff::tz::TimeZone;
use phalanx_api::protocol::VERSION;
use phalanx_model::Timestamp;
use serde::Serialize;

use crate::failure::Failure;
use crate::show::Page;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    #[default]
    Table,
    Wide,
    Json,
    Yaml,
    /// Numbers or names, one per line.
    Name,
    /// Of `predict`, `bill` and `advise`.
    Csv,
    /// Of `bill` alone: CSV with the columns of FOCUS 1.0.
    Focus,
    /// Of `endpoints` alone: a backend of an HAProxy configuration.
    Haproxy,
    /// Of `endpoints` alone: a `DiscoveryResponse` with one `ClusterLoadAssignment`, as Envoy reads it from a file.
    Envoy,
    /// Of `endpoints` alone: targets of the file-based service discovery of Prometheus.
    PrometheusSd,
    /// Of `topo import` alone.
    File(PathBuf),
}

impl Format {
    pub(crate) const WORDS: [&'static str; 5] = ["table", "wide", "json", "yaml", "name"];

    /// A word of [`Self::WORDS`], or a file.
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "table" => Self::Table,
            "wide" => Self::Wide,
            "json" => Self::Json,
            "yaml" => Self::Yaml,
            "name" => Self::Name,
            path => Self::File(path.into()),
        }
    }

    /// A word of [`Self::WORDS`], or of the formats of tables that some verbs know beside. (Elsewhere these words are
    /// files.)
    pub(crate) fn of_table(word: &str) -> Self {
        match word {
            "csv" => Self::Csv,
            "focus" => Self::Focus,
            other => Self::of(other),
        }
    }

    /// A word of [`Self::WORDS`], or of the formats of `endpoints`.
    pub(crate) fn of_endpoints(word: &str) -> Self {
        match word {
            "haproxy" => Self::Haproxy,
            "envoy" => Self::Envoy,
            "prometheus-sd" => Self::PrometheusSd,
            other => Self::of(other),
        }
    }

    pub(crate) const fn is_document(&self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    /// Decides for the whole process; `NO_COLOR` and the terminal decide when this is `auto`.
    pub(crate) fn apply(self) {
        match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::AlwaysAnsi,
            Self::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}

/// One answer as a document: `apiVersion`, `kind`, and the fields of the body.
#[derive(Serialize)]
pub(crate) struct Document<'a, T> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'a str,
    #[serde(flatten)]
    body: T,
}

/// The body of a list.
#[derive(Serialize)]
pub(crate) struct Items<'a, T> {
    pub(crate) items: &'a [T],
}

impl<'a, T: Serialize> Document<'a, T> {
    pub(crate) const fn new(kind: &'a str, body: T) -> Self {
        Self { api_version: VERSION, kind, body }
    }

    /// In one line, as it is kept in files.
    pub(crate) fn line(&self) -> Result<String, Failure> {
        let broken = |e: serde_json::Error| Failure::internal(format!("the answer cannot be written: {e}"));
        serde_json::to_string(self).map(|text| text + "\n").map_err(broken)
    }

    /// `None` for formats that are not documents.
    fn render(&self, format: &Format) -> Result<Option<String>, Failure> {
        let broken =
            |e: &dyn std::fmt::Display| Failure::internal(format!("the answer cannot be written: {e}"));
        match format {
            Format::Json => {
                let text = serde_json::to_string_pretty(self).map_err(|e| broken(&e))?;
                Ok(Some(text + "\n"))
            }
            Format::Yaml => {
                // By way of JSON, so that both have the same keys and the same spelling of values.
                let value = serde_json::to_value(self).map_err(|e| broken(&e))?;
                Ok(Some(serde_saphyr::to_string(&value).map_err(|e| broken(&e))?))
            }
            _ => Ok(None),
        }
    }
}

/// Where and how a verb prints.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) format: Format,
    pub(crate) page: Page,
}

impl Output {
    pub(crate) fn new(format: Format, quiet: bool) -> Self {
        let wide = format == Format::Wide;
        let page = Page {
            width: terminal_width(),
            now: now(),
            tz: TimeZone::system(),
            wide,
            quiet,
            ascii: is_ascii(),
        };
        Self { format, page }
    }

    /// Prints the document or, for people, the page; with `-o name` the names.
    pub(crate) fn show<T: Serialize>(
        &self,
        kind: &str,
        body: T,
        page: impl FnOnce(&Page) -> String,
        names: impl FnOnce() -> Vec<String>,
    ) -> Result<(), Failure> {
        if let Some(text) = Document::new(kind, body).render(&self.format)? {
            return print(&text);
        }
        if self.format == Format::Name {
            return print(&names().into_iter().map(|name| name + "\n").collect::<String>());
        }
        print(&page(&self.page))
    }

    /// A remark beside the answer; for people, and not with `--quiet`.
    pub(crate) fn note(&self, text: &str) {
        if !self.page.quiet && !self.format.is_document() {
            use owo_colors::OwoColorize as _;
            print_error(&format!("{} {text}\n", "note:".cyan()));
        }
    }

    /// Progress is drawn only where somebody can see it.
    pub(crate) fn has_progress(&self) -> bool {
        !self.page.quiet && !self.format.is_document() && io::stderr().is_terminal()
    }
}

/// Milliseconds since 1970, as the daemon counts.
pub(crate) fn now() -> Timestamp {
    Timestamp(u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0))
}

/// Columns of the terminal; `None` when there is none, so that nothing is cut in a pipe.
fn terminal_width() -> Option<u16> {
    let given = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).filter(|width| *width >= 20);
    given.or_else(|| comfy_table::Table::new().width())
}

/// Whether the locale or the terminal says that there is nothing but ASCII.
fn is_ascii() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
    set("TERM").is_some_and(|term| term == "dumb") || locale.is_some_and(|l| l == "C" || l == "POSIX")
}

/// Writes to standard output. A reader that went away (`phalanx ps | head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match try_print(text) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::unavailable(format!("cannot write to standard output: {e}"), ""))
        }
        _ => Ok(()),
    }
}

/// As [`print`], for those who must know that nobody reads any more.
pub(crate) fn try_print(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes to standard error; there is nobody to tell when that fails.
pub(crate) fn print_error(text: &str) {
    let _ = anstream::stderr().write_all(text.as_bytes());
}
