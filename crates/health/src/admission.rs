//! The circuit breaker of a cluster whose nodes grade themselves: each agent sees its own devices only, and the scheduler
//! decides how much of what they close together takes effect.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{NodeName, Timestamp};

use crate::{Policy, breaker};

/// What automation closed: a device, or a node itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Closing {
    /// Since when: what was closed first is admitted first.
    pub since: Timestamp,
    pub node: NodeName,
    /// `None`: the node itself.
    pub device: Option<u32>,
}

/// What takes effect.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    admitted: BTreeSet<(NodeName, Option<u32>)>,
    text: Option<String>,
}

impl Admission {
    /// Judges everything that automation closes now. `devices`: of each node; a node without any counts as one. What took
    /// effect before stays, so a new fault never opens an older one.
    pub fn judge(&mut self, policy: &Policy, devices: &BTreeMap<NodeName, u32>, mut closings: Vec<Closing>) {
        let weight = |node: &NodeName| u64::from(devices.get(node).copied().unwrap_or_default().max(1));
        let of = |closing: &Closing| if closing.device.is_some() { 1 } else { weight(&closing.node) };
        let all = devices.keys().map(weight).sum();
        let limit = breaker::limit(all, policy);
        let before = std::mem::take(&mut self.admitted);
        closings.sort_unstable();
        let is_known = |closing: &Closing| before.contains(&(closing.node.clone(), closing.device));
        let (known, new): (Vec<Closing>, Vec<Closing>) = closings.into_iter().partition(is_known);
        let mut closed: u64 = known.iter().map(of).sum();
        let mut held = 0_u64;
        self.admitted.extend(known.into_iter().map(|closing| (closing.node, closing.device)));
        for closing in new {
            if closed + of(&closing) > limit {
                held += 1;
                continue;
            }
            closed += of(&closing);
            self.admitted.insert((closing.node, closing.device));
        }
        let are = if held == 1 { "1 grade is".to_owned() } else { format!("{held} grades are") };
        let text =
            format!("{are} held: automation closed {closed} of {all} devices, and closes up to {limit}");
        self.text = (held > 0).then_some(text);
    }

    /// Whether what automation closed takes effect.
    #[must_use]
    pub fn admits(&self, node: &NodeName, device: Option<u32>) -> bool {
        self.admitted.contains(&(node.clone(), device))
    }

    /// Why grades are held, if any are.
    #[must_use]
    pub fn held(&self) -> Option<&str> {
        self.text.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closing(since: u64, node: &str, device: Option<u32>) -> Closing {
        Closing { since: Timestamp(since), node: NodeName::new(node).unwrap(), device }
    }

    fn cluster(nodes: u32) -> BTreeMap<NodeName, u32> {
        (0..nodes).map(|at| (NodeName::new(format!("n{at}")).unwrap(), 8)).collect()
    }

    fn admitted(admission: &Admission, closings: &[Closing]) -> Vec<bool> {
        closings.iter().map(|of| admission.admits(&of.node, of.device)).collect()
    }

    #[test]
    fn a_share_is_closed_the_oldest_first_and_what_is_closed_stays_so() {
        // 20 % of 80 devices.
        let (policy, devices) = (Policy::default(), cluster(10));
        let on = |node| (0..8).map(move |device| closing(5, node, Some(device)));
        let mut all: Vec<Closing> = on("n1").chain(on("n3")).collect();
        let mut admission = Admission::default();
        admission.judge(&policy, &devices, all.clone());
        assert!(admitted(&admission, &all).iter().all(|is| *is) && admission.held().is_none());
        // One more is held, although it is said to be older.
        all.push(closing(1, "n2", Some(0)));
        admission.judge(&policy, &devices, all.clone());
        assert!(!admission.admits(&all[16].node, Some(0)));
        let text = "1 grade is held: automation closed 16 of 80 devices, and closes up to 16";
        assert_eq!(admission.held(), Some(text));
        // The next leader judges all at once: the oldest are admitted.
        let mut next = Admission::default();
        next.judge(&policy, &devices, all.clone());
        assert!(next.admits(&all[16].node, Some(0)) && !next.admits(&all[15].node, Some(7)));
        // A repair makes room.
        all.remove(0);
        admission.judge(&policy, &devices, all.clone());
        assert!(admitted(&admission, &all).iter().all(|is| *is) && admission.held().is_none());
    }

    #[test]
    fn a_node_counts_with_all_its_devices() {
        let (policy, devices) = (Policy::default(), cluster(5));
        // 8 of 40: one node, and no device beside it.
        let all = [closing(1, "n0", None), closing(2, "n1", Some(3)), closing(3, "n2", None)];
        let mut admission = Admission::default();
        admission.judge(&policy, &devices, all.to_vec());
        assert_eq!(admitted(&admission, &all), [true, false, false]);
        assert!(admission.held().unwrap().starts_with("2 grades are held"));
    }
}
