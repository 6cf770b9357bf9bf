//! The facts that a successor needs.

use phalanx_model::{Input, SyncKind};

use super::Ledger;

impl Ledger {
    /// Everything persistent, in the order in which a world lists its objects.
    pub(crate) fn facts(&self) -> Vec<Input> {
        let mut facts = vec![
            Input::LevelsConfigured { levels: self.levels.clone() },
            Input::CostsCompiled { table: self.costs.clone() },
            Input::SettingsConfigured { settings: Box::new(self.queues.settings().clone()) },
            Input::SyncBegin { kind: SyncKind::Queues },
        ];
        let queues = self.queues.configured().values();
        facts.extend(queues.map(|queue| Input::QueueObserved { queue: Box::new(queue.clone()) }));
        facts.push(Input::SyncEnd { kind: SyncKind::Queues });
        facts.push(Input::SyncBegin { kind: SyncKind::Nodes });
        facts.extend(self.nodes.values().map(|n| Input::NodeObserved { node: Box::new(n.clone()) }));
        facts.push(Input::SyncEnd { kind: SyncKind::Nodes });
        let measured = self.measured.values().cloned();
        facts.extend(measured.map(|bandwidth| Input::BandwidthMeasured { bandwidth }));
        facts.push(Input::SyncBegin { kind: SyncKind::Jobs });
        facts.extend(
            self.jobs
                .values()
                .map(|e| Input::JobObserved { job: Box::new(e.job.clone()), gangs: e.gangs.clone() }),
        );
        facts.push(Input::SyncEnd { kind: SyncKind::Jobs });
        let past = self.queues.past();
        facts.extend(past.map(|(queue, usage)| Input::UsageObserved { queue: queue.clone(), usage }));
        facts.extend(self.windows.facts());
        facts.extend(self.history.facts());
        facts.extend(self.noted.facts());
        // After the metrics, which might ask for other replicas while not all metrics are known.
        facts.extend(self.serving.facts());
        facts
    }
}
