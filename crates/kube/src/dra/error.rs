//! Why claims cannot be allocated on a node.

use std::fmt;

use thiserror::Error;

/// Nothing was changed in any of these cases.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unallocatable {
    /// What is asked cannot be understood or is not allowed, on whichever node.
    #[error("claim {claim}, {field}: {why}")]
    Refused { claim: String, field: String, why: String },
    /// A selector could not be evaluated for a device. As upstream, this ends the attempt: a device is not passed
    /// over because of a mistake in a selector.
    #[error("claim {claim}, {field}: {why} (for the device {device})")]
    Selector { claim: String, field: String, device: String, why: String },
    /// All devices are asked for, and which these are is not known now.
    #[error("claim {claim}, {field}: asks for all devices, and the pool {pool} cannot be used: {why}")]
    Pool { claim: String, field: String, pool: String, why: String },
    /// No choice of devices satisfies the claims.
    #[error("{}", words(.0))]
    Short(Vec<Shortage>),
    /// The search was ended before all choices were tried; there may be one.
    #[error("no devices found among the first {tried} that were tried; what is asked may still be possible")]
    BudgetExhausted { tried: u32 },
}

/// What a node has for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub claim: String,
    /// Its name; `request/subrequest` for an alternative.
    pub request: String,
    /// Devices; `None` for all of them.
    pub wanted: Option<usize>,
    /// Devices that class and selectors select.
    pub selected: usize,
    /// Of these, how many other claims hold.
    pub taken: usize,
    /// Of these, how many have a taint that is not tolerated.
    pub tainted: usize,
    /// Of these, how many have too little capacity or counters left.
    pub small: usize,
}

impl Shortage {
    /// Devices that the request could have for itself.
    #[must_use]
    pub const fn free(&self) -> usize {
        self.selected - self.taken - self.tainted - self.small
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claim, request, selected, .. } = self;
        let wanted = self.wanted.map_or_else(|| "all".to_owned(), |wanted| wanted.to_string());
        write!(f, "claim {claim}, request {request}: wants {wanted} of {selected} matching devices")?;
        for (count, what) in
            [(self.taken, "taken"), (self.tainted, "tainted"), (self.small, "without enough left")]
        {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

/// Requests that are short by themselves; where none is, it is their sum or a constraint.
fn words(shortages: &[Shortage]) -> String {
    let is_short = |shortage: &&Shortage| shortage.free() < shortage.wanted.unwrap_or(1).max(1);
    let short: Vec<String> = shortages.iter().filter(is_short).map(ToString::to_string).collect();
    if short.is_empty() {
        let all: Vec<String> = shortages.iter().map(ToString::to_string).collect();
        return format!(
            "no choice of devices satisfies all requests and constraints together ({})",
            all.join("; ")
        );
    }
    short.join("; ")
}
