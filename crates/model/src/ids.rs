//! Names from the outside, and numbers of jobs and members.
//!
//! Names are parsed once and compared in natural order (`node-2` before `node-10`), because every tie in a
//! decision ends on a name and a person reads the result.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest accepted name, in bytes: the limit of a DNS name, so every Kubernetes name fits.
pub const NAME_BYTES_MAX: usize = 253;

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a name cannot be empty")]
    Empty,
    #[error("a name has at most {NAME_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
    #[error("a name holds letters, digits, '.', '_', '-', '/' and ':', not {0:?}")]
    BadCharacter(char),
}

fn check_name(text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong(text.len()));
    }
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':');
    text.chars().find(|c| !good(*c)).map_or(Ok(()), |c| Err(NameError::BadCharacter(c)))
}

/// Compares runs of digits by value and everything else by byte; equal only for equal texts.
#[must_use]
pub fn natural_cmp(a: &str, b: &str) -> Ordering {
    let (mut x, mut y) = (a.as_bytes(), b.as_bytes());
    while let (Some(&cx), Some(&cy)) = (x.first(), y.first()) {
        if cx.is_ascii_digit() && cy.is_ascii_digit() {
            let (dx, rest_x) = split_digits(x);
            let (dy, rest_y) = split_digits(y);
            // Without leading zeros, a longer run is a larger number.
            let by_value = dx.len().cmp(&dy.len()).then_with(|| dx.cmp(dy));
            if by_value != Ordering::Equal {
                return by_value;
            }
            (x, y) = (rest_x, rest_y);
        } else if cx == cy {
            (x, y) = (&x[1..], &y[1..]);
        } else {
            return cx.cmp(&cy);
        }
    }
    x.len().cmp(&y.len()).then_with(|| a.cmp(b))
}

fn split_digits(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|c| !c.is_ascii_digit()).unwrap_or(bytes.len());
    let (digits, rest) = bytes.split_at(end);
    let zeros = digits.iter().position(|c| *c != b'0').unwrap_or(digits.len());
    (&digits[zeros..], rest)
}

macro_rules! define_name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// # Errors
            /// When the text is empty, too long, or holds a character that a name cannot hold.
            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                check_name(&text)?;
                Ok(Self(text))
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                natural_cmp(&self.0, &other.0)
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    };
}

define_name!(
    /// A machine.
    NodeName
);
define_name!(
    /// A domain, without its parents; its identity is the whole path.
    DomainName
);
define_name!(
    /// A level of the domain tree, e.g. `leaf` or `nvlink`; configuration, never a constant.
    LevelName
);
define_name!(
    /// A resource that is counted by name: `nic`, `power_w`, `disk_gb`.
    ResourceName
);
define_name!(
    /// Some members of a gang: `launcher`, `ps`.
    RoleName
);
define_name!(
    /// A hardware shape: machines of one shape have equal devices and links.
    ShapeName
);
define_name!(
    /// A queue.
    QueueName
);
define_name!(
    /// A class of priority.
    ClassName
);
define_name!(
    /// A job's name; not unique, the [`JobId`] is.
    JobName
);

/// A job's number, given by the world at submission and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct JobId(pub u64);

/// One gang of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GangId {
    pub job: JobId,
    /// Of the gang in its job, from 0, see [`crate::Job::gang_at`]. A task of an array has a number besides.
    pub index: u32,
}

/// One member of one attempt of a gang. A restart makes new members: a rank's old exit never counts for its
/// successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberId {
    pub gang: GangId,
    /// Counts from 1.
    pub attempt: u32,
    pub rank: u32,
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for GangId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.index)
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}/{}", self.gang, self.attempt, self.rank)
    }
}

impl JobId {
    /// The only gang of a one-gang job.
    #[must_use]
    pub const fn gang(self, index: u32) -> GangId {
        GangId { job: self, index }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn natural_order_reads_numbers() {
        let mut names = vec!["n10", "n9", "n1", "n01", "n1a", "n", "m2"];
        names.sort_by(|a, b| natural_cmp(a, b));
        assert_eq!(names, ["m2", "n", "n01", "n1", "n1a", "n9", "n10"]);
    }

    #[test]
    fn natural_order_is_total_and_equal_only_for_equal_texts() {
        let texts = ["", "0", "00", "a0", "a00", "a0b", "a00b", "a1", "b", "1", "01", "10", "2"];
        for a in texts {
            for b in texts {
                assert_eq!(natural_cmp(a, b), natural_cmp(b, a).reverse(), "{a:?} {b:?}");
                assert_eq!(natural_cmp(a, b) == Ordering::Equal, a == b, "{a:?} {b:?}");
                for c in texts {
                    if natural_cmp(a, b).is_le() && natural_cmp(b, c).is_le() {
                        assert!(natural_cmp(a, c).is_le(), "{a:?} {b:?} {c:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_name_that_cannot_be_one_says_why() {
        assert_eq!(NodeName::new(""), Err(NameError::Empty));
        assert_eq!(NodeName::new("a b"), Err(NameError::BadCharacter(' ')));
        assert_eq!(NodeName::new("x".repeat(254)), Err(NameError::TooLong(254)));
    }
}
