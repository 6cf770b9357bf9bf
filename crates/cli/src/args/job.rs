//! Words about a job that was submitted.

use clap::Args;
use clap::builder::PossibleValuesParser;
use clap_complete::engine::ArgValueCompleter;

use phalanx_api::protocol::JobFilter;
use phalanx_model::{Ending, Phase, QueueName};

use crate::complete;

/// Which jobs are meant: those that have all that is said.
#[derive(Clone, Debug, Default, Args)]
#[group(id = "which", multiple = true)]
pub(crate) struct Which {
    /// In one of these states.
    #[arg(long, value_name = "STATE", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(Phase::LIVING.into_iter().chain(Ending::WORDS)))]
    states: Vec<String>,
    /// In this queue.
    #[arg(long, value_parser = queue_name)]
    queue: Option<QueueName>,
    /// With this name; `*` stands for any text, `?` for one letter.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Of this user.
    #[arg(long, value_name = "USER")]
    user: Option<String>,
}

fn queue_name(text: &str) -> Result<QueueName, String> {
    QueueName::new(text).map_err(|e| e.to_string())
}

impl Which {
    pub(crate) const FLAGS: [&str; 4] = ["states", "queue", "name", "user"];

    pub(crate) const fn names_a_user(&self) -> bool {
        self.user.is_some()
    }

    /// The jobs that are meant, of one user if that is said.
    pub(crate) fn filter(&self, uid: Option<u32>) -> JobFilter {
        let Self { states, queue, name, user } = self.clone();
        JobFilter { uid, user, queue, name, states, ..JobFilter::default() }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Update {
    /// Number or name.
    #[arg(add = ArgValueCompleter::new(complete::jobs))]
    pub(crate) job: String,
    /// Longest running time: `90m`, `2-00:00:00`; a plain number is minutes. Of a job that runs: shorter, or by an operator.
    #[arg(short, long, required_unless_present_any = ["priority", "queue"])]
    pub(crate) time: Option<String>,
    /// Higher goes first.
    #[arg(short, long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) priority: Option<i32>,
    /// Another queue, for a job that waits.
    #[arg(short, long)]
    pub(crate) queue: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Requeue {
    /// Number or name.
    #[arg(add = ArgValueCompleter::new(complete::jobs))]
    pub(crate) job: String,
    /// Let it wait until it is released.
    #[arg(long)]
    pub(crate) hold: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Scale {
    /// Number or name.
    #[arg(add = ArgValueCompleter::new(complete::jobs))]
    pub(crate) job: String,
    /// Replicas, until the next word; `auto`: as many as its metric needs.
    #[arg(value_name = "N|auto", value_parser = set_or_auto)]
    pub(crate) replicas: ByUser,
}

#[derive(Debug, Args)]
pub(crate) struct Resize {
    /// Number or name.
    #[arg(add = ArgValueCompleter::new(complete::jobs))]
    pub(crate) job: String,
    /// Members, as `get` shows its size; it grows no further by itself. `auto`: it grows where nobody waits.
    #[arg(value_name = "N|auto", value_parser = set_or_auto)]
    pub(crate) size: ByUser,
}

/// A number that a user sets, or gives back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByUser(pub(crate) Option<u32>);

fn set_or_auto(text: &str) -> Result<ByUser, String> {
    match text {
        "auto" => Ok(ByUser(None)),
        number => number.parse().map(|n| ByUser(Some(n))).map_err(|_| "say a number, or `auto`".to_owned()),
    }
}
