//! What can be typed of the lines that a daemon says.

use clap::{Args, ValueEnum};
use phalanx_shell::log::{self, Format, Level};

#[derive(Debug, Args)]
pub(crate) struct Log {
    /// How its log looks on standard error [default: text at a terminal, otherwise json].
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// What it says, this and what is worse.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: LogLevel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people: the time, the level, a sentence, then facts as name=value.
    Text,
    /// One object a line.
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Why it cannot go on.
    Error,
    /// What does not work, and is tried again.
    Warn,
    /// What happens to gangs.
    Info,
    /// Also what they wait for, and what happens to single pods.
    Debug,
}

impl Log {
    /// From here on it says what it does, and why it ends.
    pub(crate) fn begin(&self) {
        let (format, level) = self.settings();
        log::begin(format.unwrap_or_else(Format::of_stderr), level);
    }

    /// The format where one is given, and the level.
    pub(crate) fn settings(&self) -> (Option<Format>, Level) {
        let format = self.log_format.map(|format| match format {
            LogFormat::Text => Format::Text,
            LogFormat::Json => Format::Json,
        });
        let level = match self.log_level {
            LogLevel::Error => Level::Error,
            LogLevel::Warn => Level::Warn,
            LogLevel::Info => Level::Info,
            LogLevel::Debug => Level::Debug,
        };
        (format, level)
    }

    /// The same flags for another process.
    pub(crate) fn flags(&self) -> Vec<String> {
        let name = |value: Option<clap::builder::PossibleValue>| value.map(|of| of.get_name().to_owned());
        let format = self.log_format.and_then(|format| name(format.to_possible_value()));
        let format = format.map(|format| format!("--log-format={format}"));
        let level = name(self.log_level.to_possible_value()).map(|level| format!("--log-level={level}"));
        format.into_iter().chain(level).collect()
    }
}
