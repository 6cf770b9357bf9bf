//! Nodes that are nominated for the pods of a gang for which others are preempted: another scheduler beside this one would
//! otherwise give the capacity away that comes free.

use phalanx_model::{GangId, NodeName, Slot};

use crate::gang::Lifecycle;
use crate::gang::state::{Pod, Submitted};
use crate::messages::Call;

impl Lifecycle {
    /// The engine reserved these slots for a gang, and preempts others for it.
    pub fn nominate(&mut self, id: GangId, slots: &[Slot]) {
        self.write_nomination(id, |rank| slots.get(rank).map(|slot| slot.node.clone()));
    }

    /// The gang lost that reservation.
    pub fn end_nomination(&mut self, id: GangId) {
        let is_nominated =
            self.jobs.get(&id.job).and_then(|key| self.gangs.get(key)).is_some_and(|gang| gang.is_nominated);
        if is_nominated {
            self.write_nomination(id, |_| None);
        }
    }

    fn write_nomination(&mut self, id: GangId, node: impl Fn(usize) -> Option<NodeName>) {
        let Some(gang) = self.jobs.get(&id.job).and_then(|key| self.gangs.get_mut(key)) else { return };
        let Some(Submitted { seats, .. }) = &gang.job else { return };
        let mut pods = Vec::new();
        for (rank, name) in
            seats.iter().enumerate().filter_map(|(rank, seat)| Some((rank, seat.pod.as_ref()?)))
        {
            let waits = |pod: &&Pod| pod.known.node.is_none() && !pod.known.is_going;
            if gang.pods.get(name).filter(waits).is_some() {
                pods.extend(gang.pod_ref(name).map(|pod| (pod, node(rank))));
            }
        }
        if !pods.is_empty() {
            gang.is_nominated = pods.iter().any(|(_, node)| node.is_some());
            self.calls.push(Call::Nominate { pods });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::gang::constraints::tests::Play;

    /// A scheduler beside this one took the node that had been cleared.
    #[test]
    fn pods_for_which_others_are_preempted_have_a_nominated_node() {
        let mut play = Play::of(1);
        let pod = |name: &str, priority: i32| {
            json!({ "metadata": { "namespace": "x", "name": name, "uid": name },
                "spec": { "schedulerName": "phalanx", "priority": priority, "terminationGracePeriodSeconds": 30,
                    "containers": [{ "name": "c", "resources": { "requests": { "cpu": "8" } } }] } })
        };
        play.see("low", pod("low", 1));
        play.turn();
        assert!(play.bound.contains_key("low"), "{:?}", play.reasons);
        play.see("high", pod("high", 1_000));
        play.turn();
        assert_eq!(play.nominated.get("high").map(Option::as_deref), Some(Some("a1")), "{:?}", play.stops);
        assert!(play.bound.contains_key("high"), "{:?}", play.reasons);
    }
}
