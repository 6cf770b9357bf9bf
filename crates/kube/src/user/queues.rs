//! Queues as people see them: what was asked for, and what the scheduler says of it in their statuses.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use phalanx_model::ids::natural_cmp;
use serde::Serialize;

use crate::crd::{self, Amount, PlaceStatus, PoolStatus, UsageStatus, WaitingStatus};

/// One queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueueView {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Queues above it.
    pub depth: u32,
    pub weight: String,
    /// Gangs, those of the queues below included.
    pub pending: i64,
    pub running: i64,
    /// By resource; empty until the scheduler has seen it.
    pub usage: BTreeMap<String, UsageStatus>,
    /// Parts of the cluster, as text; empty until the scheduler has seen it.
    pub share: String,
    /// The resource of that share.
    pub dominant: String,
    pub past: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PlaceStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolStatus>,
    /// Gangs for which no pool has room go to any node.
    pub goes_anywhere: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingStatus>,
    /// Why it is not in force; empty where it is.
    pub why: String,
}

impl QueueView {
    fn of(queue: &crd::Queue, depth: u32) -> Self {
        let status = queue.status.clone().unwrap_or_default();
        let weight = match &queue.spec.weight {
            None => "1".to_owned(),
            Some(Amount::Number(weight)) => weight.to_string(),
            Some(Amount::Text(weight)) => weight.clone(),
        };
        Self {
            name: queue.name_any(),
            parent: queue.spec.parent.clone(),
            depth,
            weight,
            why: why(queue),
            pending: status.pending,
            running: status.running,
            usage: status.usage,
            share: status.share,
            dominant: status.dominant,
            past: status.past,
            places: status.places,
            pools: status.pools,
            goes_anywhere: queue.spec.nodes.as_ref().is_some_and(|nodes| !nodes.preferred.is_empty()),
            waiting: status.waiting,
        }
    }

    /// The tree from its top, siblings in natural order. What hangs on nothing, or on itself, stands at the top.
    pub(super) fn tree(queues: &[crd::Queue]) -> Vec<Self> {
        let mut sorted: Vec<&crd::Queue> = queues.iter().collect();
        sorted.sort_by(|a, b| natural_cmp(&a.name_any(), &b.name_any()));
        let names: BTreeSet<String> = queues.iter().map(ResourceExt::name_any).collect();
        let mut below: BTreeMap<&str, Vec<&crd::Queue>> = BTreeMap::new();
        let mut tops = Vec::new();
        for queue in &sorted {
            match queue.spec.parent.as_deref().filter(|parent| names.contains(*parent)) {
                Some(parent) => below.entry(parent).or_default().push(queue),
                None => tops.push(*queue),
            }
        }
        let mut tree = Vec::new();
        let mut seen = BTreeSet::new();
        // Those in a circle are reached from no top.
        for top in tops.into_iter().chain(sorted) {
            let mut next = vec![(top, 0)];
            while let Some((queue, depth)) = next.pop() {
                let name = queue.name_any();
                if !seen.insert(name.clone()) {
                    continue;
                }
                let children = below.get(&*name).into_iter().flatten().rev();
                next.extend(children.map(|child| (*child, depth + 1)));
                tree.push(Self::of(queue, depth));
            }
        }
        tree
    }
}

/// A queue that nobody looked at yet is not in force either.
fn why(queue: &crd::Queue) -> String {
    let conditions = queue.status.iter().flat_map(|status| &status.conditions);
    let accepted = conditions.into_iter().find(|condition| condition.r#type == "Accepted");
    match accepted {
        None => "no scheduler has reported on it yet".to_owned(),
        Some(accepted) if accepted.status == "True" => String::new(),
        Some(accepted) if accepted.message.is_empty() => accepted.reason.clone(),
        Some(accepted) => accepted.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn queue(name: &str, parent: Option<&str>, status: &serde_json::Value) -> crd::Queue {
        let queue = json!({ "metadata": { "name": name }, "spec": { "parent": parent }, "status": status });
        serde_json::from_value(queue).unwrap()
    }

    fn places(queues: &[crd::Queue]) -> Vec<(String, u32)> {
        QueueView::tree(queues).into_iter().map(|view| (view.name, view.depth)).collect()
    }

    #[test]
    fn children_follow_their_parents_in_natural_order() {
        let none = json!(null);
        let of = |name, parent| queue(name, parent, &none);
        let all = [of("q10", Some("top")), of("b", None), of("q2", Some("top")), of("top", None)];
        let expected = [("b", 0), ("top", 0), ("q2", 1), ("q10", 1)].map(|(name, at)| (name.to_owned(), at));
        assert_eq!(places(&all), expected);
    }

    #[test]
    fn none_is_left_out_whatever_it_hangs_on() {
        let none = json!(null);
        let of = |name, parent| queue(name, Some(parent), &none);
        let all = [of("a", "b"), of("b", "a"), of("lost", "nobody"), of("self", "self")];
        let expected = [("lost", 0), ("a", 0), ("b", 1), ("self", 0)].map(|(name, at)| (name.to_owned(), at));
        assert_eq!(places(&all), expected);
    }

    #[test]
    fn why_a_queue_is_not_in_force_is_what_its_condition_says() {
        let with = |status: &str, message: &str| {
            let condition = json!({ "type": "Accepted", "status": status, "reason": "r", "message": message,
                "lastTransitionTime": "" });
            QueueView::tree(&[queue("a", None, &json!({ "conditions": [condition] }))])[0].why.clone()
        };
        assert_eq!(with("True", ""), "");
        assert_eq!(with("False", "guarantees more than there is"), "guarantees more than there is");
        let unseen = QueueView::tree(&[queue("a", None, &json!(null))]);
        assert!(unseen[0].why.contains("no scheduler"), "{:?}", unseen[0]);
    }
}
