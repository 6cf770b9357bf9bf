//! How the network is laid out: as the `Fabric` says, as HyperNodes say, or as the labels of the nodes tell.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::DynamicObject;
use phalanx_model::{CostTable, DomainCost, DomainName, LevelCost, LevelName, Membership, NodeName};

use super::queues::accepted;
use crate::api::Node;
use crate::crd::{self, FabricSource, FabricStatus, LevelStatus, SINGLETON};
use crate::messages::{Call, GangEvent};
use crate::recognise::ObjectRef;
use crate::recognise::topology::{Levels, ROOT};

/// Gaps that a status lists.
const GAPS_SHOWN: usize = 16;

/// What is said of the fabric, and what was made of it last.
#[derive(Default)]
pub(crate) struct FabricState {
    object: Option<crd::Fabric>,
    /// The last that could be used. It goes on when the object is changed into something that cannot be.
    source: Option<FabricSource>,
    /// Why the object as it is now is not in force.
    wrong: Option<String>,
    /// Why HyperNodes that are asked for cannot be used.
    broken: Option<String>,
    /// What was told of that.
    told: Option<String>,
    /// By name.
    hyper_nodes: BTreeMap<String, DynamicObject>,
    /// Of the status that was written last.
    written: Option<FabricStatus>,
    calls: Vec<Call>,
}

impl FabricState {
    /// The object as it is now; whether something is to be drawn anew.
    pub(crate) fn see(&mut self, object: Option<crd::Fabric>) -> bool {
        // Its status is ours.
        let spec = |of: &Option<crd::Fabric>| of.as_ref().map(|of| of.spec.clone());
        let is_same = spec(&self.object) == spec(&object) && self.object.is_some() == object.is_some();
        self.object = object;
        if is_same {
            return false;
        }
        (self.wrong, self.broken) = (None, None);
        match &self.object {
            None => (self.source, self.written, self.told) = (None, None, None),
            Some(object) => match object.spec.source() {
                Ok(source) => self.source = Some(source),
                Err(error) => self.wrong = Some(error.to_string()),
            },
        }
        true
    }

    /// A HyperNode as it is now; whether something is to be drawn anew.
    pub(crate) fn see_hyper_node(&mut self, object: &DynamicObject, is_gone: bool) -> bool {
        let name = object.metadata.name.clone().unwrap_or_default();
        let mut kept = object.clone();
        kept.metadata.managed_fields = None;
        if let Some(fields) = kept.data.as_object_mut() {
            fields.remove("status");
        }
        let before = if is_gone {
            self.hyper_nodes.remove(&name)
        } else {
            self.hyper_nodes.insert(name.clone(), kept)
        };
        let now = self.hyper_nodes.get(&name);
        let is_same = before.as_ref().map(|of| &of.data) == now.map(|of| &of.data);
        !is_same && matches!(self.source, None | Some(FabricSource::HyperNodes))
    }

    /// Where every node stands. What contradicts itself leaves `before` in force.
    pub(crate) fn levels<'n>(
        &mut self,
        nodes: impl Iterator<Item = &'n Node> + Clone,
        before: Option<Levels>,
    ) -> Levels {
        let by_hyper_nodes = |this: &Self| {
            let all: Vec<DynamicObject> = this.hyper_nodes.values().cloned().collect();
            Levels::by_hyper_nodes(&all, nodes.clone())
        };
        match &self.source {
            Some(FabricSource::Labels(preset)) => Levels::by_labels(nodes, Some(preset)),
            Some(FabricSource::Map(cluster)) => Levels::by_map(cluster),
            Some(FabricSource::HyperNodes) => match by_hyper_nodes(self) {
                Ok(levels) => {
                    self.broken = None;
                    levels
                }
                Err(error) => {
                    self.broken = Some(format!("spec.hyperNodes: {error}"));
                    before.unwrap_or_else(|| Levels::by_labels(nodes, None))
                }
            },
            None if self.hyper_nodes.is_empty() => Levels::by_labels(nodes, None),
            // Nobody asked for them: where they cannot be read, labels may.
            None => by_hyper_nodes(self).unwrap_or_else(|_| Levels::by_labels(nodes, None)),
            Some(FabricSource::Detected) => Levels::by_labels(nodes, None),
        }
    }

    /// What links between levels carry, where a map says it.
    pub(crate) fn level_costs(&self) -> BTreeMap<LevelName, LevelCost> {
        match &self.source {
            Some(FabricSource::Map(cluster)) => cluster.level_costs(),
            _ => BTreeMap::new(),
        }
    }

    /// What single uplinks carry, by our paths, which begin with the whole cluster.
    pub(crate) fn add_domain_costs(&self, root: &DomainName, table: &mut CostTable) {
        let Some(FabricSource::Map(cluster)) = &self.source else { return };
        let skipped = usize::from(cluster.levels.above.first().is_some_and(is_root));
        let costs = cluster.domain_costs().into_iter().map(|DomainCost { path, cost }| {
            let inside = path.into_iter().skip(skipped);
            DomainCost { path: std::iter::once(root.clone()).chain(inside).collect(), cost }
        });
        table.domains = costs.collect();
        table.domains.sort_by(|a, b| a.path.cmp(&b.path));
    }

    /// Says in the status of the object what was made of it, and in an event what is wrong.
    pub(crate) fn report<'n>(&mut self, levels: &Levels, nodes: impl Iterator<Item = &'n NodeName>) {
        let Some(object) = &self.object else { return };
        let wrong = self.wrong.as_ref().or(self.broken.as_ref());
        let status = status_of(object, levels, nodes, wrong);
        if self.written.as_ref() != Some(&status) {
            self.written = Some(status.clone());
            self.calls.push(Call::FabricStatus { status: Box::new(status) });
        }
        if self.told.as_ref() != wrong {
            let wrong = wrong.cloned();
            self.told.clone_from(&wrong);
            if let Some(why) = wrong {
                let about = ObjectRef {
                    api_version: format!("{}/v1alpha1", crd::GROUP),
                    kind: "Fabric".to_owned(),
                    namespace: String::new(),
                    name: SINGLETON.to_owned(),
                    uid: object.metadata.uid.clone(),
                    any_version: false,
                };
                let note = format!("not in force, what was before it goes on: {why}");
                let tidings = GangEvent { about, reason: "FabricRefused", is_warning: true, note };
                self.calls.push(Call::Tell(Box::new(tidings)));
            }
        }
    }

    pub(crate) fn calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }
}

/// The level around everything, which a map may name as well.
fn is_root(level: &LevelName) -> bool {
    level.as_str() == ROOT
}

fn status_of<'n>(
    object: &crd::Fabric,
    levels: &Levels,
    nodes: impl Iterator<Item = &'n NodeName>,
    wrong: Option<&String>,
) -> FabricStatus {
    let known: BTreeMap<&NodeName, &[Membership]> =
        levels.reading.graph.hosts.iter().map(|host| (&host.name, &*host.domains)).collect();
    let mut domains: BTreeMap<&LevelName, BTreeSet<&DomainName>> = BTreeMap::new();
    let (mut placed, mut unplaced) = (0_i64, 0_i64);
    for node in nodes {
        let of_node = known.get(node).copied().unwrap_or_default();
        for at in of_node {
            domains.entry(&at.level).or_default().insert(&at.domain);
        }
        let has = |level: &LevelName| of_node.iter().any(|at| at.level == *level);
        *(if levels.reading.levels.iter().all(has) { &mut placed } else { &mut unplaced }) += 1;
    }
    let count = |level: &LevelName| domains.get(level).map_or(0, BTreeSet::len);
    let level = |level: &LevelName| LevelStatus {
        name: level.to_string(),
        domains: i64::try_from(count(level)).unwrap_or(i64::MAX),
    };
    FabricStatus {
        observed_generation: object.metadata.generation,
        levels: levels.reading.levels.iter().map(level).collect(),
        nodes: placed,
        unplaced,
        gaps: levels.reading.gaps.iter().take(GAPS_SHOWN).map(ToString::to_string).collect(),
        conditions: vec![accepted(wrong)],
    }
}
