//! Studies: questions about a scheduler that are answered by the simulator, each on an input file that declares all it rests
//! on. Every study has a default input, `examples/studies/NAME.yaml`.

mod consolidation;
mod failures;
mod input;
mod jobs;
mod page;
mod sharing;
mod spot;
mod strict;
mod topology;

use phalanx_spec::from_yaml;
use serde::de::DeserializeOwned;

pub use page::{Cell, Page, Table};
pub use strict::WAITS;

use crate::Failure;
use crate::cluster::{Clos, Cluster};
use crate::report::Input;

/// A study: its name, its question in one line, and its default input.
#[derive(Clone, Copy, Debug)]
pub struct Study {
    pub name: &'static str,
    pub about: &'static str,
    pub default: &'static str,
    make: fn(&Source<'_>, &mut dyn Around) -> Result<Page, StudyError>,
}

macro_rules! study {
    ($module:ident, $about:literal) => {
        Study {
            name: stringify!($module),
            about: $about,
            default: include_str!(concat!("../../../../examples/studies/", stringify!($module), ".yaml")),
            make: $module::page,
        }
    };
}

pub const STUDIES: [Study; 6] = [
    study!(topology, "how much faster do jobs run if the scheduler knows the topology"),
    study!(consolidation, "how few GPUs do training and inference need on one cluster"),
    study!(spot, "what does training on spot nodes save"),
    study!(sharing, "how many GPUs do small tenants need on whole GPUs, MIG slices and shares"),
    study!(strict, "should a job wait for near places or start on far ones"),
    study!(failures, "what do lost nodes cost one large job, and how many spare nodes does it take"),
];

/// An input file: what it is called, and its text.
struct Source<'a> {
    name: &'a str,
    text: &'a str,
}

/// What a study needs from around it.
pub trait Around {
    /// The cluster that an input names.
    ///
    /// # Errors
    /// Why there is none.
    fn cluster(&mut self, word: &str) -> Result<Cluster, String>;

    /// One more of so many runs begins.
    fn begin(&mut self, what: &str, run: u64, of: u64);
}

/// Why there is no page.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StudyError {
    /// Of the input file: what, where, and what to do.
    #[error("{0}")]
    Input(String),
    #[error("{0}")]
    Run(Failure),
}

impl From<Failure> for StudyError {
    fn from(failure: Failure) -> Self {
        Self::Run(failure)
    }
}

impl Study {
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        STUDIES.iter().find(|study| study.name == name)
    }

    /// The path of the default input in the source tree.
    #[must_use]
    pub fn file(&self) -> String {
        format!("examples/studies/{}.yaml", self.name)
    }

    /// Runs the study on an input.
    ///
    /// # Errors
    /// What is wrong with the input, or what a run found.
    pub fn run(&self, name: &str, text: &str, around: &mut dyn Around) -> Result<Page, StudyError> {
        (self.make)(&Source { name, text }, around)
    }
}

impl Source<'_> {
    fn read<T: DeserializeOwned>(&self) -> Result<T, StudyError> {
        from_yaml(self.text, self.name).map_err(|error| StudyError::Input(error.to_string()))
    }

    /// What is wrong with a field, beyond the form of its value.
    fn wrong(&self, what: impl std::fmt::Display) -> StudyError {
        StudyError::Input(format!("{}: {what}", self.name))
    }

    fn input(&self) -> Input {
        Input::of(self.name, self.text.as_bytes())
    }
}

/// One leaf with so many nodes of 8 GPUs: a cluster on which places do not matter.
fn one_leaf(nodes: u32) -> Result<Cluster, StudyError> {
    let clos = Clos::read(&format!("1x{nodes}x8"));
    clos.and_then(|clos| Cluster::of_clos(&clos)).map_err(|error| StudyError::Input(error.to_string()))
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole * 100.0 } else { 0.0 }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}
