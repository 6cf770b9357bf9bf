//! Parts of a GPU, speeds, and names of models and MIG profiles.

use schemars::{Schema, json_schema};

use crate::place::{Scalar, wrong};
use crate::quantity;

/// A part of one in thousandths: from 1 to [`Fraction::WHOLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fraction(pub u32);

/// How fast, in thousandths of what the job says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Speed(pub u32);

/// Compute that may be promised of one device, in thousandths of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeLimit(pub u32);

/// Text that a device's model contains, ignoring case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelName(pub String);

/// A MIG profile as `nvidia-smi mig -lgip` names it, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileName(pub String);

/// A hundred times: more is a slip of the finger.
const TIMES_MILLI_MAX: u32 = 100_000;

impl Fraction {
    pub const WHOLE: u32 = 1_000;
}

macro_rules! define_milli {
    ($kind:ident, $max:expr, $too_much:literal, $accepted:literal, $schema:tt) => {
        impl Scalar for $kind {
            const ACCEPTED: &'static str = $accepted;

            fn read(text: &str) -> Result<Self, String> {
                match quantity::parse_milli(text.trim()).map_err(|error| wrong(text, error))? {
                    0 => Err(wrong(text, "is less than a thousandth")),
                    milli => u32::try_from(milli)
                        .ok()
                        .filter(|milli| *milli <= $max)
                        .map(Self)
                        .ok_or_else(|| wrong(text, $too_much)),
                }
            }

            fn write(&self) -> String {
                quantity::format_milli(u64::from(self.0))
            }

            fn schema() -> Schema {
                json_schema!($schema)
            }
        }
    };
}

define_milli!(Fraction, Self::WHOLE, "is more than one GPU",
    "a part of one GPU, from 0.001 to 1, such as 0.25 or 2/7",
    { "anyOf": [
        { "type": "number", "exclusiveMinimum": 0, "maximum": 1 },
        { "type": "string", "pattern": "^[0-9]+([.][0-9]+)?(/[0-9]+)?$" },
    ], "examples": [0.25, "2/7"] });
define_milli!(Speed, TIMES_MILLI_MAX, "is too large",
    "a speed from 0.001 to 100, such as 0.4, where 1 is as fast as the job says",
    { "anyOf": [
        { "type": "number", "exclusiveMinimum": 0, "maximum": 100 },
        { "type": "string", "pattern": "^[0-9]+([.][0-9]+)?$" },
    ], "examples": [0.4] });
define_milli!(ComputeLimit, TIMES_MILLI_MAX, "is too large",
    "how often the compute of a GPU may be promised, from 0.001 to 100, such as 2.0",
    { "anyOf": [
        { "type": "number", "exclusiveMinimum": 0, "maximum": 100 },
        { "type": "string", "pattern": "^[0-9]+([.][0-9]+)?$" },
    ], "examples": [2.0] });

impl Scalar for ModelName {
    const ACCEPTED: &'static str = "1 to 64 letters, digits, spaces, '-', '_', '.' and '/', such as H100";

    fn read(text: &str) -> Result<Self, String> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '_' | '.' | '/');
        let name = text.trim();
        if name.is_empty() || name.len() > 64 || !name.chars().all(good) {
            return Err(wrong(text, "is no GPU model"));
        }
        Ok(Self(name.to_owned()))
    }

    fn write(&self) -> String {
        self.0.clone()
    }

    fn schema() -> Schema {
        json_schema!({ "type": ["string", "integer"], "pattern": "^[A-Za-z0-9 ._/-]{1,64}$" })
    }
}

impl Scalar for ProfileName {
    const ACCEPTED: &'static str =
        "a MIG profile as `nvidia-smi mig -lgip` names it, such as 1g.10gb or 1g.10gb+me";

    fn read(text: &str) -> Result<Self, String> {
        let lower = text.trim().to_ascii_lowercase();
        // As Kubernetes' device plugin and nvidia-smi put it.
        let name = lower.strip_prefix("mig-").or_else(|| lower.strip_prefix("mig ")).unwrap_or(&lower);
        let digits = |text: &str| (1..=4).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
        let is_profile = name.split_once("g.").is_some_and(|(compute, rest)| {
            let (memory, with) = rest.split_once("gb").unwrap_or((rest, "?"));
            let more = with.strip_prefix('+').unwrap_or("");
            let good = |c: char| c.is_ascii_alphanumeric() || c == '.';
            let is_more = with.is_empty() || (!more.is_empty() && more.len() <= 16 && more.chars().all(good));
            digits(compute) && digits(memory) && is_more
        });
        if !is_profile {
            return Err(wrong(text, "is no MIG profile"));
        }
        Ok(Self(name.to_owned()))
    }

    fn write(&self) -> String {
        self.0.clone()
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+g[.][0-9]+gb([+][a-z0-9.]+)?$",
            "examples": ["1g.10gb", "3g.40gb", "1g.10gb+me"] })
    }
}
