//! What can be typed of windows, drains and notices.

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;

use crate::complete;

#[derive(Debug, Args)]
pub(crate) struct Calendar {
    #[command(subcommand)]
    pub(crate) verb: Option<CalendarVerb>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CalendarVerb {
    /// Close nodes for maintenance, or keep them for a queue: nothing is started there that would still run then.
    Add {
        #[command(flatten)]
        nodes: Nodes,
        /// When it begins: `2026-12-01T08:00Z`, or `+2h` from now [default: now].
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// When it ends: `2026-12-01T12:00Z`, or `+6h` from now.
        #[arg(long, value_name = "TIME")]
        until: String,
        /// Queue that the nodes are kept for, with those below it [default: nobody, for maintenance].
        #[arg(long = "for", value_name = "QUEUE", add = ArgValueCompleter::new(complete::queues))]
        queue: Option<String>,
        /// Why, for all who list nodes or the calendar.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Call off windows of nodes.
    Remove {
        #[command(flatten)]
        nodes: Nodes,
        /// Only those that begin then [default: all].
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Nodes {
    /// Names, patterns such as `gpu-[1-4]`, or domains such as `rack=r1`.
    #[arg(required = true, add = ArgValueCompleter::new(complete::nodes_and_domains))]
    pub(crate) nodes: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Drain {
    #[arg(add = ArgValueCompleter::new(complete::nodes))]
    pub(crate) node: String,
    /// Be empty by this time, and let go on and start there what ends before: `2026-12-01T08:00Z`, or `+2h` from now.
    #[arg(long, value_name = "TIME")]
    pub(crate) by: Option<String>,
    /// Why, for all who list nodes.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Notice {
    #[arg(add = ArgValueCompleter::new(complete::nodes))]
    pub(crate) node: String,
    /// How soon it is gone, e.g. `2m` [default: the notice of the node in the cluster file].
    #[arg(long = "in", value_name = "TIME")]
    pub(crate) time: Option<String>,
}
