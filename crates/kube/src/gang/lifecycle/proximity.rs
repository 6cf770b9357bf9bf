//! What joins a gang that runs comes near to it: to its nodes where there is room, otherwise next to them, and where the gang
//! has to be inside one domain of a level, inside that.

use std::collections::BTreeSet;

use phalanx_model::NodeName;

use crate::cluster::node_sets::Condition;
use crate::gang::Lifecycle;
use crate::recognise::GangKey;

use super::topology::rule_of;

impl Lifecycle {
    /// The nodes of the gang that a pod by itself has joined; none where that does not run.
    pub(in crate::gang) fn near(&self, key: &GangKey) -> Vec<NodeName> {
        let of = self.joined_gang(key).and_then(|of| self.gangs.get(of)?.run());
        let nodes: BTreeSet<&NodeName> =
            of.into_iter().flat_map(|run| &run.placement.slots).map(|slot| &slot.node).collect();
        nodes.into_iter().cloned().collect()
    }

    /// The domain that the gang of a pod by itself has to be in, as a condition of nodes.
    ///
    /// # Errors
    /// Where that cannot be said now.
    pub(in crate::gang) fn domain_of_gang(&mut self, key: &GangKey) -> Result<Option<Condition>, String> {
        let Some(of) = self.joined_gang(key).cloned() else { return Ok(None) };
        let Ok(Some(spec)) = self.spec(&of) else { return Ok(None) };
        let Some(asked) = rule_of(&spec).required.as_ref() else { return Ok(None) };
        let level = self.cluster.nodes.domain_of(asked)?;
        let Some(first) = self.near(key).into_iter().next() else {
            return Err(format!("{of} does not run, and pods that join it have to be in its {level}"));
        };
        let condition = Condition::from(format!("the {level} of {of}"));
        self.cluster.nodes.meet(&condition, self.cluster.nodes.around(&first, &level));
        Ok(Some(condition))
    }

    /// Whether what a pod joined is on other nodes than when it was handed in.
    pub(in crate::gang) fn has_moved_away(&self, key: &GangKey) -> bool {
        let submitted = self.gangs.get(key).and_then(|gang| gang.job.as_ref());
        submitted.is_some_and(|submitted| submitted.near != self.near(key))
    }

    /// A gang begins or ends: pods that have joined it and wait are looked at again.
    pub(in crate::gang) fn tell_joiners(&mut self, key: &GangKey) {
        self.tell_siblings(key);
        let Some(joiners) = self.joining.get_mut(key) else { return };
        let gangs = &self.gangs;
        joiners.retain(|joiner| gangs.get(joiner).is_some_and(|gang| gang.run().is_none()));
        self.changed.extend(joiners.iter().cloned());
        if joiners.is_empty() {
            self.joining.remove(key);
        }
    }

    /// A pod by itself is no more.
    pub(in crate::gang) fn forget_joiner(&mut self, key: &GangKey) {
        let Some(of) = self.joined_gang(key).cloned() else { return };
        let Some(joiners) = self.joining.get_mut(&of) else { return };
        joiners.remove(key);
        if joiners.is_empty() {
            self.joining.remove(&of);
        }
    }

    fn joined_gang(&self, key: &GangKey) -> Option<&GangKey> {
        self.gangs.get(key)?.kin.as_ref().filter(|kin| kin.has_joined).map(|kin| &kin.of)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::gang::constraints::tests::Play;
    use crate::gang::lifecycle::scale_up::tests::{cluster, pod};

    /// A gang of two on `b1`: when it started, the nodes of the other zone were full.
    fn on_b1(more: impl Fn(Value) -> Value) -> Play {
        let mut play = Play::of(4);
        for node in ["a1", "a2"] {
            play.fill(node, "8");
        }
        play.object(&more(cluster(1)));
        play.see("head", pod("head", "headgroup"));
        play.see("worker-0", pod("worker-0", "gpus"));
        play.turn();
        for node in ["a1", "a2"] {
            play.delete(&format!("fills-{node}"));
        }
        play.object(&more(cluster(4)));
        play.turn();
        assert_eq!((&*play.bound["head"], &*play.bound["worker-0"]), ("b1", "b1"));
        play
    }

    fn in_a_zone(mut cluster: Value) -> Value {
        cluster["metadata"]["annotations"] =
            json!({ "phalanx.dev/topology-required": "topology.kubernetes.io/zone" });
        cluster
    }

    #[test]
    fn what_joins_goes_to_the_nodes_of_its_gang_then_next_to_them_then_anywhere() {
        let mut play = on_b1(|cluster| cluster);
        play.see("worker-1", pod("worker-1", "gpus"));
        play.turn();
        assert_eq!(play.bound["worker-1"], "b1", "{:?}", play.bound);
        play.fill("b1", "5");
        play.see("worker-2", pod("worker-2", "gpus"));
        play.turn();
        assert_eq!(play.bound["worker-2"], "b2", "the same zone: {:?}", play.bound);
        play.fill("b2", "7");
        play.see("worker-3", pod("worker-3", "gpus"));
        play.turn();
        assert_eq!(play.bound["worker-3"], "a1", "{:?}", play.bound);
    }

    #[test]
    fn what_joins_is_in_the_domain_that_its_gang_has_to_be_in_or_waits() {
        let mut play = on_b1(in_a_zone);
        play.fill("b1", "6");
        play.fill("b2", "8");
        play.see("worker-1", pod("worker-1", "gpus"));
        play.turn();
        assert!(!play.bound.contains_key("worker-1"), "{:?}", play.bound);
        // A node that comes to the zone is one more of it.
        play.add_node(5);
        play.turn();
        assert_eq!(play.bound["worker-1"], "b3", "{:?} {:?}", play.bound, play.reasons);
    }

    /// It would have to be in a domain that is known when the gang has started again.
    #[test]
    fn what_has_joined_and_waits_follows_its_gang_elsewhere() {
        let mut play = on_b1(in_a_zone);
        play.fill("b1", "6");
        play.fill("b2", "8");
        play.see("worker-1", pod("worker-1", "gpus"));
        play.turn();
        // Somebody else is where both ranks were; those that are made in their stead find room in the other zone alone.
        play.fill("b1", "8");
        for name in ["head", "worker-0"] {
            play.delete(name);
        }
        play.wait(5_000);
        let why = "RayCluster x/ray does not run, and pods that join it have to be in its zone";
        assert_eq!(play.reasons.get("worker-1").map(String::as_str), Some(why));
        play.see("head", pod("head", "headgroup"));
        play.see("worker-0", pod("worker-0", "gpus"));
        play.turn();
        play.wait(60_000);
        assert_eq!(&play.bound["head"][..1], "a", "{:?} {:?}", play.bound, play.reasons);
        assert_eq!(&play.bound["worker-1"][..1], "a", "{:?} {:?}", play.bound, play.reasons);
    }
}
