//! What can be typed of the lines that a process of a cluster says.

use clap::{Args, ValueEnum};
use phalanx_kube::log::{self, Format, Level};

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
        let format = match self.log_format {
            Some(LogFormat::Text) => Format::Text,
            Some(LogFormat::Json) => Format::Json,
            None => Format::of_stderr(),
        };
        let level = match self.log_level {
            LogLevel::Error => Level::Error,
            LogLevel::Warn => Level::Warn,
            LogLevel::Info => Level::Info,
            LogLevel::Debug => Level::Debug,
        };
        log::begin(format, level);
    }
}
