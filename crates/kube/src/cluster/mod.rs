//! The objects of the cluster as the scheduler last saw them, in the engine's words. Nothing here knows a gang.
//!
//! Events of watches come in through the fields, and [`NodeState::tell`] and [`Queues::tell`] turn what changed into facts for
//! the engine.
//!
//! | module | what lives there |
//! |---|---|
//! | `nodes` | nodes: shape, domain, and what other schedulers' pods use of them |
//! | `hardware` | the machine of a node: devices, links, memory |
//! | `rare` | resources that only some nodes offer |
//! | `published` | what device drivers publish for a node |
//! | `node_sets` | sets of nodes that pods may use |
//! | `distrust` | nodes whose kubelets turn pods away |
//! | `fabric` | where the levels of the network come from |
//! | `bound_pods` | the index of bound pods, for pod affinity and volumes |
//! | `budgets` | disruption budgets |
//! | `queues`, `classes`, `priorities` | queues and their policy, priority classes |
//! | `kinds` | which objects of the cluster as a whole are watched |
//! | `needs` | what pods request, in the engine's words |

pub(crate) mod bound_pods;
pub(crate) mod budgets;
pub(crate) mod classes;
pub(crate) mod distrust;
pub(crate) mod fabric;
pub(crate) mod hardware;
pub(crate) mod health;
pub mod kinds;
pub(crate) mod needs;
pub(crate) mod node_sets;
pub(crate) mod nodes;
pub(crate) mod priorities;
pub(crate) mod published;
pub(crate) mod queues;
pub(crate) mod rare;

use phalanx_health::Policy;

use crate::recognise::{BrokenSigns, NodesUsed};

use bound_pods::BoundPods;
use budgets::Budgets;
use nodes::NodeState;
use priorities::Priorities;
use queues::Queues;

/// See the module.
#[derive(Default)]
pub(crate) struct Cluster {
    pub(crate) nodes: NodeState,
    pub(crate) queues: Queues,
    pub(crate) priorities: Priorities,
    pub(crate) bound_pods: BoundPods,
    pub(crate) budgets: Budgets,
}

impl Cluster {
    /// New gangs go to these nodes alone, and not while they show signs of being broken; `min_run_ms` is the default of
    /// priorities.
    pub(crate) fn new(used: NodesUsed, broken: BrokenSigns, health: Policy, min_run_ms: u64) -> Self {
        let (nodes, queues) = (NodeState::new(used, broken, health), Queues::new(min_run_ms));
        Self { nodes, queues, ..Self::default() }
    }
}
