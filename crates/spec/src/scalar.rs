//! The kinds of values that files and flags hold, and how each is read.

use phalanx_model::{
    AxisKind, ClassName, Collective, Delay, DomainName, EndOf, JobId, JobName, LaunchKind, LevelName,
    NodeName, Pattern, PreemptMode, QueueName, Reclaim, ResourceName, RoleName, Transport,
};
use schemars::{Schema, json_schema};

use crate::error::nearest;
use crate::place::{Scalar, wrong};
use crate::quantity;

/// Largest count of nodes, ranks or GPUs that is read.
pub const COUNT_MAX: u32 = phalanx_model::MEMBERS_PER_GANG_MAX;
/// Most units of a named resource: a million members with as many each stay inside a `u64`.
pub const AMOUNT_MAX: u64 = 1_000_000_000_000;
/// Longest single argument or variable that Linux hands to a program: `MAX_ARG_STRLEN`, 32 pages (execve(2)).
pub const ARGUMENT_BYTES_MAX: usize = 128 * 1024 - 1;

/// How many: from 1 to [`COUNT_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u32);

/// Units of a resource that is counted by name, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(pub u64);

/// Chips along x, y, z of a torus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sides(pub [u16; 3]);

impl Sides {
    /// At most [`COUNT_MAX`].
    #[must_use]
    pub fn chips(self) -> u32 {
        self.0.iter().fold(1, |chips, side| u32::from(*side).saturating_mul(chips))
    }
}

/// Logical CPUs in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus(pub u64);

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(pub u64);

/// Bytes per second, one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth(pub u64);

/// Nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub u64);

impl Span {
    /// Whole milliseconds, rounded up.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }
}

/// How long to hold out for a closer place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    For(Span),
    /// As long as it is worth: what an hour of waiting is worth, in thousandths of an hour of running.
    Priced(u32),
}

impl Wait {
    /// An hour of waiting is worth an hour of running.
    const PAR: u32 = 1_000;
    /// Milli-hours of running, for one hour of waiting.
    pub const PRICE_MAX: u32 = 1_000_000;
}

impl Scalar for Wait {
    const ACCEPTED: &'static str =
        "a duration such as 10m, `priced`, or `priced:2` where an hour of waiting is worth two of running";

    fn read(text: &str) -> Result<Self, String> {
        // No wait at all.
        if text == "0s" {
            return Ok(Self::For(Span(0)));
        }
        let Some(price) = text.strip_prefix("priced") else { return Span::read(text).map(Self::For) };
        let milli = match price.strip_prefix(':') {
            None if price.is_empty() => return Ok(Self::Priced(Self::PAR)),
            None => return Err(wrong(text, "is no price")),
            Some(number) => quantity::parse_milli(number).map_err(|error| wrong(text, error))?,
        };
        match u32::try_from(milli).ok().filter(|milli| (1..=Self::PRICE_MAX).contains(milli)) {
            Some(milli) => Ok(Self::Priced(milli)),
            None => Err(wrong(text, "is not from 0.001 to 1000")),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::For(span) => span.write(),
            Self::Priced(Self::PAR) => "priced".to_owned(),
            Self::Priced(milli) => format!("priced:{}", quantity::format_milli(u64::from(*milli))),
        }
    }

    fn schema() -> Schema {
        json_schema!({ "anyOf": [
            Span::schema(),
            { "type": "string", "pattern": "^priced(:[0-9]+([.][0-9]+)?)?$" },
        ], "examples": ["priced"] })
    }
}

impl From<Wait> for Delay {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::For(span) => Self::For(span.millis()),
            Wait::Priced(milli) => Self::Priced(milli),
        }
    }
}

impl From<Delay> for Wait {
    fn from(delay: Delay) -> Self {
        match delay {
            Delay::For(ms) => Self::For(Span(ms.saturating_mul(1_000_000))),
            Delay::Priced(milli) => Self::Priced(milli),
        }
    }
}

/// Nanoseconds, also in Slurm's spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeLimit(pub u64);

/// A signal's number on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalNumber(pub i32);

/// Name of a variable of the environment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VariableName(pub String);

/// Whether a level must hold the whole gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Required,
    Preferred,
    /// No level; the nearest place there is.
    Nearest,
    /// No level; any place that is free.
    Anywhere,
}

/// Failures that restart a job, as users name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryCause {
    UserCode,
    StartUp,
    Node,
    Preemption,
    Infrastructure,
}

/// Links between the devices of a declared machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeclaredLinkKind {
    /// Every pair over NVLink.
    Nvlink,
    /// Every pair over PCIe.
    Pcie,
}

/// Devices by index: `3`, `GPU3` or `4-7`, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRange {
    pub first: u32,
    pub last: u32,
}

/// Words, and those that mean something which is not there.
/// Millionths, without finer decimals.
pub(crate) fn micro(text: &str, most: u64) -> Result<u64, String> {
    let text = text.trim();
    let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.trim_end_matches('0').len());
    match quantity::parse_micro(text).map_err(|error| wrong(text, error))? {
        _ if decimals > 6 => Err(wrong(text, "has more than 6 decimals")),
        micro if micro > most => Err(wrong(text, "is too large")),
        micro => Ok(micro),
    }
}

macro_rules! define_words {
    ($kind:ty, $accepted:literal, $($word:literal => $value:expr),+ $(; $other:literal => $why:literal)?) => {
        impl Scalar for $kind {
            const ACCEPTED: &'static str = $accepted;

            fn read(text: &str) -> Result<Self, String> {
                let known: &[(&str, Self)] = &[$(($word, $value)),+];
                $(if text == $other {
                    return Err(wrong(text, $why));
                })?
                let found = known.iter().find(|(word, _)| *word == text);
                found.map(|(_, value)| *value).ok_or_else(|| $crate::scalar::unknown_word(text, known))
            }

            fn write(&self) -> String {
                let known: &[(&str, Self)] = &[$(($word, $value)),+];
                known.iter().find(|(_, value)| value == self).map(|(word, _)| *word).unwrap_or_default().to_owned()
            }

            fn schema() -> Schema {
                json_schema!({ "type": "string", "enum": [$($word),+] })
            }
        }
    };
}

pub(crate) use define_words;

pub(crate) fn unknown_word<T>(text: &str, known: &[(&str, T)]) -> String {
    let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
    match nearest(text, &words) {
        Some(word) => wrong(text, format_args!("is not known; did you mean {word:?}?")),
        None => wrong(text, "is not known"),
    }
}

define_words!(LaunchKind, "one of ranks, torchrun, jax, mpi, none",
    "ranks" => Self::Ranks, "torchrun" => Self::Torchrun, "jax" => Self::Jax, "mpi" => Self::Mpi, "none" => Self::None);
define_words!(Pattern, "one of all_reduce, all_to_all",
    "all_reduce" => Self::AllReduce, "all_to_all" => Self::AllToAll);
define_words!(AxisKind, "one of tensor (or tp), expert (or ep), data (or dp), pipeline (or pp)",
    "tensor" => Self::Tensor, "expert" => Self::Expert, "data" => Self::Data, "pipeline" => Self::Pipeline,
    "tp" => Self::Tensor, "ep" => Self::Expert, "dp" => Self::Data, "pp" => Self::Pipeline);
define_words!(Collective, "one of all_reduce, all_gather, all_to_all, point_to_point",
    "all_reduce" => Self::AllReduce, "all_gather" => Self::AllGather, "all_to_all" => Self::AllToAll,
    "point_to_point" => Self::PointToPoint);
define_words!(Transport, "one of verbs, roce, efa, tcpx, tcpxo, sockets",
    "verbs" => Self::Verbs, "roce" => Self::Roce, "efa" => Self::Efa, "tcpx" => Self::Tcpx,
    "tcpxo" => Self::Tcpxo, "sockets" => Self::Sockets);
define_words!(Mode, "one of required, preferred, nearest, anywhere", "required" => Self::Required,
    "preferred" => Self::Preferred, "nearest" => Self::Nearest, "anywhere" => Self::Anywhere);
define_words!(RetryCause, "one of user_code (or error), start_up, node (or node_failure), preemption, infrastructure",
    "user_code" => Self::UserCode, "error" => Self::UserCode, "start_up" => Self::StartUp, "node" => Self::Node,
    "node_failure" => Self::Node, "preemption" => Self::Preemption, "infrastructure" => Self::Infrastructure);
define_words!(EndOf, "one of success, failure, any",
    "success" => Self::Success, "failure" => Self::Failure, "any" => Self::Any);
define_words!(PreemptMode, "one of requeue, cancel, never",
    "requeue" => Self::Requeue, "cancel" => Self::Cancel, "never" => Self::Never;
    "pause" => "is not there yet: who makes way saves its work and ends");
define_words!(Reclaim, "one of fair_share, guarantee",
    "fair_share" => Self::FairShare, "guarantee" => Self::Guarantee);
define_words!(DeclaredLinkKind, "one of nvlink, pcie", "nvlink" => Self::Nvlink, "pcie" => Self::Pcie);

impl Scalar for bool {
    const ACCEPTED: &'static str = "true or false";

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| unknown_word(text, &[("true", true), ("false", false)]))
    }

    fn write(&self) -> String {
        self.to_string()
    }

    fn schema() -> Schema {
        json_schema!({ "type": "boolean" })
    }
}

macro_rules! define_names {
    ($($name:ty),+) => { $(
        impl Scalar for $name {
            const ACCEPTED: &'static str =
                "1 to 253 letters, digits, '.', '_', '-', '/' and ':', such as llama-8b";

            fn read(text: &str) -> Result<Self, String> {
                Self::new(text).map_err(|error| wrong(text, format_args!("is not a name: {error}")))
            }

            fn write(&self) -> String {
                self.to_string()
            }

            fn schema() -> Schema {
                json_schema!({ "type": ["string", "integer"], "pattern": "^[A-Za-z0-9._/:-]{1,253}$" })
            }
        }
    )+ };
}

define_names!(JobName, QueueName, ClassName, LevelName, DomainName, NodeName, ResourceName, RoleName);

/// A decimal integer, told apart from what only looks like one.
pub(crate) fn integer(text: &str) -> Result<i128, String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) {
        return Err(wrong(text, "is not a whole number"));
    }
    text.parse().map_err(|_| wrong(text, "is too large"))
}

/// Whole numbers from 0 or 1 up to a bound: what makes the value of the number, and what takes it out again.
macro_rules! define_whole {
    ($kind:ty, $least:literal, $most:expr, $accepted:literal, $of:expr, $number:expr) => {
        impl $crate::place::Scalar for $kind {
            const ACCEPTED: &'static str = $accepted;

            fn read(text: &str) -> Result<Self, String> {
                let number = $crate::scalar::whole(text, $least, u64::from($most))?;
                number.try_into().map($of).map_err(|_| $crate::place::wrong(text, "is too large"))
            }

            fn write(&self) -> String {
                let number: fn(&Self) -> _ = $number;
                number(self).to_string()
            }

            fn schema() -> schemars::Schema {
                schemars::json_schema!({ "type": "integer", "minimum": $least, "maximum": $most })
            }
        }
    };
}
pub(crate) use define_whole;

/// A whole number between two bounds.
pub(crate) fn whole(text: &str, least: u64, most: u64) -> Result<u64, String> {
    match integer(text)? {
        n if n >= i128::from(least) => {
            u64::try_from(n).ok().filter(|n| *n <= most).ok_or_else(|| wrong(text, "is too large"))
        }
        _ if least == 0 => Err(wrong(text, "is negative")),
        _ => Err(wrong(text, format_args!("is less than {least}"))),
    }
}

define_whole!(Count, 1, COUNT_MAX, "a whole number from 1 to 1000000", Self, |count| count.0);
define_whole!(u32, 0, COUNT_MAX, "a whole number from 0 to 1000000", |number: Self| number, |number| *number);
define_whole!(Amount, 1, AMOUNT_MAX, "a whole number from 1 to 1000000000000", Self, |amount| amount.0);

impl Scalar for i32 {
    const ACCEPTED: &'static str = "a whole number from -2147483648 to 2147483647; a higher one goes first";

    fn read(text: &str) -> Result<Self, String> {
        Self::try_from(integer(text)?).map_err(|_| wrong(text, "is out of range"))
    }

    fn write(&self) -> String {
        self.to_string()
    }

    fn schema() -> Schema {
        json_schema!({ "type": "integer", "minimum": Self::MIN, "maximum": Self::MAX })
    }
}

impl Scalar for JobId {
    const ACCEPTED: &'static str = "the number of a job, such as 12, as `phalanx ps` shows it";

    fn read(text: &str) -> Result<Self, String> {
        match integer(text) {
            Ok(1..) => text.parse().map(Self).map_err(|_| wrong(text, "is too large")),
            _ => Err(wrong(text, "is not the number of a job")),
        }
    }

    fn write(&self) -> String {
        self.0.to_string()
    }

    fn schema() -> Schema {
        json_schema!({ "type": "integer", "minimum": 1 })
    }
}

/// Any text that can be handed to a program.
impl Scalar for String {
    const ACCEPTED: &'static str =
        "text of at most 131071 bytes, as Linux allows for one argument; keep a longer script in a file";

    fn read(text: &str) -> Result<Self, String> {
        if text.contains('\0') {
            return Err(wrong(text, "holds a NUL character, which no program can be given"));
        }
        if text.len() > ARGUMENT_BYTES_MAX {
            return Err(wrong(text, format_args!("has {} bytes", text.len())));
        }
        Ok(text.to_owned())
    }

    fn write(&self) -> String {
        self.clone()
    }

    fn schema() -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

impl Scalar for VariableName {
    const ACCEPTED: &'static str = "letters, digits and '_', not beginning with a digit, such as NCCL_DEBUG";

    fn read(text: &str) -> Result<Self, String> {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if text.is_empty()
            || text.len() > 255
            || text.starts_with(|c: char| c.is_ascii_digit())
            || !text.chars().all(good)
        {
            return Err(wrong(text, "is not a variable's name"));
        }
        Ok(Self(text.to_owned()))
    }

    fn write(&self) -> String {
        self.0.clone()
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" })
    }
}

impl Scalar for Sides {
    const ACCEPTED: &'static str = "chips along x, y and z, such as 4x4x8, or along x and y, such as 4x4";

    fn read(text: &str) -> Result<Self, String> {
        let mut sides = [1; 3];
        let parts: Vec<&str> = text.trim().split(['x', 'X']).collect();
        if !(2..=3).contains(&parts.len()) {
            return Err(wrong(text, "is no box of chips"));
        }
        for (side, part) in sides.iter_mut().zip(parts) {
            let number = integer(part).map_err(|_| wrong(text, "is no box of chips"))?;
            *side = u16::try_from(number)
                .ok()
                .filter(|side| *side > 0)
                .ok_or_else(|| wrong(text, format_args!("has a side of {number}")))?;
        }
        match Self(sides) {
            sides if sides.chips() <= COUNT_MAX => Ok(sides),
            _ => Err(wrong(text, "is too large")),
        }
    }

    fn write(&self) -> String {
        let [x, y, z] = self.0;
        format!("{x}x{y}x{z}")
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+x[0-9]+(x[0-9]+)?$", "examples": ["4x4x8", "4x4"] })
    }
}

macro_rules! define_quantity {
    ($kind:ident, $parse:path, $format:path, $accepted:literal, $schema:tt) => {
        impl Scalar for $kind {
            const ACCEPTED: &'static str = $accepted;

            fn read(text: &str) -> Result<Self, String> {
                match $parse(text) {
                    Ok(0) => Err(wrong(text, "is zero")),
                    Ok(amount) => Ok(Self(amount)),
                    Err(error) => Err(wrong(text, error)),
                }
            }

            fn write(&self) -> String {
                $format(self.0)
            }

            fn schema() -> Schema {
                json_schema!($schema)
            }
        }
    };
}

define_quantity!(Cpus, quantity::parse_cpu_milli, quantity::format_cpu_milli,
    "a number of CPUs, such as 64, 0.5 or 500m",
    { "anyOf": [{ "type": "number", "exclusiveMinimum": 0 }, { "type": "string", "pattern": "^[0-9.]+ ?m?$" }], "examples": [64] });
define_quantity!(Memory, quantity::parse_memory, quantity::format_memory,
    "bytes with a unit, such as 512GB (powers of 1000) or 512GiB (powers of 1024)",
    { "anyOf": [{ "type": "integer", "minimum": 1 }, { "type": "string", "pattern": "^[0-9.]+ ?([kKmMgGtTpP][iI]?)?[bB]?$|^[0-9.]+ ?[kKmMgGtTpP][iI]$" }],
      "examples": ["512GB", "512GiB"] });
define_quantity!(Bandwidth, quantity::parse_bandwidth, quantity::format_bandwidth,
    "bytes or bits per second, such as 12.5GB/s or 100Gb/s",
    { "type": "string", "pattern": "^[0-9.]+ ?([kKMGTP]|[KMGTP]i)?(B|b|bit)(/s|ps)$", "examples": ["12.5GB/s", "100Gb/s"] });
define_quantity!(TimeLimit, quantity::parse_time_limit_ns, quantity::format_duration_ns,
    "a duration such as 24h or 1h30m, or Slurm's MM, MM:SS, HH:MM:SS, D-HH or D-HH:MM:SS; at most ten years",
    { "anyOf": [{ "type": "integer", "minimum": 1 }, { "type": "string" }], "examples": ["24h", "1-12:00:00"] });
define_quantity!(Span, quantity::parse_duration_ns, quantity::format_duration_ns,
    "a duration with its unit, such as 250ms, 90s, 10m or 1h30m; at most ten years",
    { "type": "string", "pattern": "^([0-9.]+ ?(d|h|m|min|s|sec|ms|us|µs|ns) ?)+$", "examples": ["90s", "1h30m"] });

/// Signals of Linux in order of their numbers, from 1 (signal(7), x86 and ARM).
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// Largest signal number, the last real-time signal (signal(7)).
const SIGNAL_MAX: i128 = 64;

impl Scalar for SignalNumber {
    const ACCEPTED: &'static str =
        "a signal that a program can handle, by name or number: USR1, SIGUSR1 or 10";

    fn read(text: &str) -> Result<Self, String> {
        let upper = text.trim().to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let number = match SIGNALS.iter().zip(1_i128..).find(|(known, _)| **known == name) {
            Some((_, number)) => number,
            None if name.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                return Err(match nearest(name, &SIGNALS) {
                    Some(near) => wrong(text, format_args!("is not a signal; did you mean {near}?")),
                    None => wrong(text, "is not a signal"),
                });
            }
            None => integer(text.trim())?,
        };
        if matches!(number, 9 | 19) {
            return Err(wrong(text, "cannot be handled by a program"));
        }
        match i32::try_from(number) {
            Ok(signal) if (1..=SIGNAL_MAX).contains(&number) => Ok(Self(signal)),
            _ => Err(wrong(text, "is not a signal")),
        }
    }

    fn write(&self) -> String {
        let at = usize::try_from(self.0 - 1).unwrap_or(usize::MAX);
        SIGNALS.get(at).map_or_else(|| self.0.to_string(), |name| (*name).to_owned())
    }

    fn schema() -> Schema {
        json_schema!({ "type": ["string", "integer"], "examples": ["USR1"] })
    }
}

impl Scalar for DeviceRange {
    const ACCEPTED: &'static str = "devices by index from 0 to 63: 3, GPU3 or 4-7";

    fn read(text: &str) -> Result<Self, String> {
        let bare = text.trim().strip_prefix("GPU").unwrap_or(text.trim());
        let (first, last) = bare.split_once('-').unwrap_or((bare, bare));
        let index = |part: &str| match integer(part) {
            Ok(n) if (0..i128::from(phalanx_model::DEVICES_PER_NODE_MAX)).contains(&n) => {
                Ok(u32::try_from(n).unwrap_or(0))
            }
            _ => Err(wrong(text, "is not an index of devices")),
        };
        let (first, last) = (index(first)?, index(last)?);
        if first > last {
            return Err(wrong(text, "ends before it begins"));
        }
        Ok(Self { first, last })
    }

    fn write(&self) -> String {
        if self.first == self.last { self.first.to_string() } else { format!("{}-{}", self.first, self.last) }
    }

    fn schema() -> Schema {
        json_schema!({ "type": ["integer", "string"], "examples": ["GPU0", 3, "4-7"] })
    }
}
