//! What a dry run says, without a daemon: a job on an empty cluster that stands in files.

use phalanx_model::{CostTable, Epoch, Input, Job, Levels, Node, Outcome, SyncKind, Timestamp};
use phalanx_shell::cost::{self, Constants};
use phalanx_shell::{Config, Engine};
use phalanx_spec::Preset;

use phalanx_api::protocol::DryRunView;
use phalanx_views::{self as views, Books, Map};

/// The placement that the engine gives `job` on these nodes while nothing else runs there, and the first fit beside it.
/// `costs` needs no shapes: those of the nodes are compiled.
#[must_use]
pub fn preview(
    nodes: &[Node],
    levels: &Levels,
    costs: &CostTable,
    constants: &Constants,
    job: &Job,
) -> DryRunView {
    let mut table = cost::compile(nodes, &costs.levels);
    table.domains.clone_from(&costs.domains);
    table.transports.clone_from(&costs.transports);
    table.collectives = constants.collectives();
    let map = Map { levels: levels.clone(), costs: table, constants: *constants };
    let mut facts = vec![
        Input::LevelsConfigured { levels: map.levels.clone() },
        Input::CostsCompiled { table: map.costs.clone() },
        Input::SyncBegin { kind: SyncKind::Nodes },
    ];
    facts.extend(nodes.iter().map(|node| Input::NodeObserved { node: Box::new(node.clone()) }));
    facts.push(Input::SyncEnd { kind: SyncKind::Nodes });
    facts.push(Input::SettingsConfigured { settings: Box::new(Preset::default().settings()) });
    for kind in [SyncKind::Queues, SyncKind::Jobs, SyncKind::Members] {
        facts.extend([Input::SyncBegin { kind }, Input::SyncEnd { kind }]);
    }
    let mut engine = Engine::new(Epoch(1), Config::default());
    let _ = engine.step(Timestamp(0), &facts, &mut Outcome::default());
    views::dry_run(&Books::all(&engine), &map, job, Timestamp(0))
}
