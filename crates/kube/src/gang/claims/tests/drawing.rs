//! What is drawn by chance, played by engine and scheduler together.

use std::collections::BTreeMap;

use phalanx_model::Epoch;
use phalanx_shell::{Config, Engine};

use super::*;
use crate::gang::turn::step;

/// `SplitMix64` (Steele, Lea, Flood, 2014).
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// Node of each pod that was bound, and what it is reserved before that.
pub(super) fn play(lifecycle: &mut Lifecycle) -> BTreeMap<String, (String, Vec<Reservation>)> {
    let mut engine = Engine::new(Epoch(1), Config::default());
    let mut all = BTreeMap::new();
    let mut facts = lifecycle.begin(NOW);
    for _ in 0..100 {
        for call in lifecycle.calls() {
            if let Call::Bind { pod, node, member, before, .. } = call {
                lifecycle.observe(NOW, Event::Bound { member, result: Ok(()) });
                let claims = before.into_iter().filter_map(|step| match step {
                    Step::Claim(reservation) => Some(*reservation),
                    Step::Patch { .. } => None,
                });
                all.insert(pod.name.to_string(), (node.to_string(), claims.collect()));
            }
        }
        if facts.is_empty() {
            return all;
        }
        facts = step(lifecycle, &mut engine, NOW, &facts);
        facts.extend(lifecycle.settle(NOW));
    }
    panic!("it never comes to rest: {facts:#?}");
}
