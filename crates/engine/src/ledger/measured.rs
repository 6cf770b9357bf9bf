//! Measured links. The world measures, lets a measurement count for less with time, and reports each step of it: the engine
//! has no timer for that.

use phalanx_model::{Bandwidth, Outcome, Uplink};

use super::Ledger;
use super::apply::refuse;

impl Ledger {
    pub(super) fn measure(&mut self, fact: &Bandwidth, out: &mut Outcome) {
        let is_known = match &fact.uplink {
            Uplink::Node(node) => self.nodes.contains_key(node),
            Uplink::Domain(path) => {
                !path.is_empty() && self.nodes.values().any(|node| node.path.starts_with(path))
            }
        };
        let why = match is_known {
            false => "no such node or domain",
            true if fact.permille > Bandwidth::NOMINAL => "more than its nominal bandwidth",
            true => "",
        };
        if !why.is_empty() {
            return refuse(out, format!("the bandwidth of {}", fact.uplink), why);
        }
        let now = fact.share();
        let before = if now < Bandwidth::NOMINAL {
            self.measured.insert(fact.uplink.clone(), fact.clone())
        } else {
            self.measured.remove(&fact.uplink)
        };
        if before.map_or(Bandwidth::NOMINAL, |before| before.share()) == now {
            self.tree.note_measured(fact);
        } else {
            self.redraw();
        }
    }

    /// The links whose measurement counts, in the order of their names.
    pub(crate) fn measured(&self) -> impl Iterator<Item = &Bandwidth> {
        self.measured.values()
    }
}
