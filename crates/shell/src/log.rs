//! What a process says of itself: lines on standard error, as text for a person or as one JSON object each for a collector.
//!
//! A line has a time, a level, a message that never changes, and facts as fields of their own. At `info` there is one for what
//! happens to a gang or to the process, and none for a single pod.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::io::{IsTerminal, stderr};
use std::panic::PanicHookInfo;

use tracing::Dispatch;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{MakeWriter, layer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

impl Format {
    /// Where nobody says: text for a person at a terminal, otherwise JSON, because whoever keeps logs reads it.
    #[must_use]
    pub fn of_stderr() -> Self {
        if stderr().is_terminal() { Self::Text } else { Self::Json }
    }
}

/// What is said: this and what is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

impl Level {
    const fn filter(self) -> LevelFilter {
        match self {
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
        }
    }
}

/// From here on this process says on standard error what it does, panics included. The first call counts.
pub fn begin(format: Format, level: Level) {
    begin_in(format, level, stderr);
}

/// The same in a place of its own.
pub fn begin_in<W>(format: Format, level: Level, to: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    if tracing::dispatcher::set_global_default(lines(format, level, to)).is_ok() {
        std::panic::set_hook(Box::new(panicked));
    }
}

/// The last line of a process that cannot go on: why, and what to do, which may be empty.
pub fn end(error: &str, hint: &str) {
    let hint = (!hint.is_empty()).then_some(hint);
    tracing::error!(error, hint, "the process ends");
}

fn lines<W>(format: Format, level: Level, to: W) -> Dispatch
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let ours = level.filter();
    let said = Targets::new()
        .with_default(ours.min(LevelFilter::WARN))
        .with_target("phalanx", ours)
        // An error for each try of each call. Calls are tried again, and what came to nothing in the end is said by us.
        .with_target("kube_client::client::builder", LevelFilter::OFF);
    let layer = layer().with_writer(to).with_timer(Clock);
    match format {
        Format::Text => registry().with(said).with(layer.with_target(false)).into(),
        Format::Json => {
            let layer = layer.json().flatten_event(true).with_current_span(false).with_span_list(false);
            registry().with(said).with(layer).into()
        }
    }
}

fn panicked(what: &PanicHookInfo<'_>) {
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(
        error = what.payload_as_str().unwrap_or("no words"),
        place = what.location().map(ToString::to_string),
        thread = std::thread::current().name(),
        backtrace,
        "panicked"
    );
}

/// RFC 3339, UTC, milliseconds.
struct Clock;

impl FormatTime for Clock {
    fn format_time(&self, to: &mut Writer<'_>) -> fmt::Result {
        write!(to, "{}", jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ"))
    }
}

/// What lines are written, for tests of the worlds.
#[doc(hidden)]
pub mod testing {
    use std::io;
    use std::mem::take;
    use std::sync::{Arc, Mutex, PoisonError};

    use super::{Format, Level, lines};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is said meanwhile.
    pub fn text_of(format: Format, level: Level, what: impl FnOnce()) -> String {
        let kept = Kept::default();
        let to = kept.clone();
        tracing::dispatcher::with_default(&lines(format, level, move || to.clone()), what);
        let bytes = take(&mut *kept.0.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tracing::{debug, error, info, warn};

    use super::testing::text_of;
    use super::*;

    /// Each line as the object that it is.
    fn objects_of(level: Level, what: impl FnOnce()) -> Vec<Value> {
        let text = text_of(Format::Json, level, what);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn every_level() {
        error!("an error");
        warn!("a warning");
        info!("a word");
        debug!("a detail");
    }

    #[test]
    fn a_line_of_json_has_a_time_a_level_a_message_and_its_facts_as_fields() {
        let before = jiff::Timestamp::now();
        let mut lines = objects_of(Level::Info, || {
            let (gang, nobody) = ("train", None::<&str>);
            info!(gang, pods = 4, queue = nobody, reason = "two\nlines \"quoted\"", "gang starts");
        });
        let line = lines.remove(0);
        assert!(lines.is_empty());
        let time = line["timestamp"].as_str().unwrap();
        assert_eq!((time.len(), &time[19..20], &time[23..]), (24, ".", "Z"), "milliseconds, UTC: {time}");
        let time: jiff::Timestamp = time.parse().unwrap();
        assert!(time.as_millisecond() >= before.as_millisecond() && time <= jiff::Timestamp::now());
        let mut rest = line;
        rest.as_object_mut().unwrap().remove("timestamp");
        let wanted = json!({
            "level": "INFO", "message": "gang starts", "target": "phalanx_shell::log::tests",
            "gang": "train", "pods": 4, "reason": "two\nlines \"quoted\"",
        });
        assert_eq!(rest, wanted);
    }

    #[test]
    fn a_line_of_text_is_one_line_whatever_its_fields_hold() {
        let text = text_of(Format::Text, Level::Info, || {
            info!(gang = "train", pods = 4, reason = "two\nlines", "gang starts");
        });
        let [time, rest] = text.splitn(2, ' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "{text}");
        assert_eq!(rest, " INFO gang starts gang=\"train\" pods=4 reason=\"two\\nlines\"\n");
    }

    #[test]
    fn what_is_less_than_the_level_is_not_said() {
        let said = |level| objects_of(level, every_level).len();
        assert_eq!([Level::Error, Level::Warn, Level::Info, Level::Debug].map(said), [1, 2, 3, 4]);
    }

    #[test]
    fn of_others_there_are_warnings_and_of_tries_of_calls_nothing() {
        let others = || {
            error!(target: "kube_client::client::builder", "failed with error no connection");
            for_each_target();
        };
        fn for_each_target() {
            info!(target: "kube_client::client", "requesting");
            warn!(target: "kube_client::client", "odd");
            debug!(target: "rustls::client", "handshake");
            warn!(target: "hyper_util::client", "odd");
        }
        let said = |level| -> Vec<String> {
            let lines = objects_of(level, others);
            lines
                .iter()
                .map(|line| format!("{} {}", line["level"], line["target"]).replace('"', ""))
                .collect()
        };
        let warnings = ["WARN kube_client::client", "WARN hyper_util::client"];
        assert_eq!(said(Level::Debug), warnings);
        assert_eq!(said(Level::Error), [""; 0]);
    }

    #[test]
    fn the_last_line_says_why_and_what_to_do() {
        let lines = objects_of(Level::Error, || {
            end("the lease was deleted", "start it again");
            end("no nodes", "");
        });
        let of =
            |at: usize| [&lines[at]["level"], &lines[at]["message"], &lines[at]["error"], &lines[at]["hint"]];
        assert_eq!(
            of(0),
            [
                &json!("ERROR"),
                &json!("the process ends"),
                &json!("the lease was deleted"),
                &json!("start it again")
            ]
        );
        assert_eq!(of(1)[2..], [&json!("no nodes"), &json!(null)]);
    }
}
