//! Values that many pods have alike, each kept once as long as a pod has it.

use std::collections::BTreeSet;
use std::sync::Arc;

/// So many are kept before any is dropped.
const KEPT_MIN: usize = 1_024;

/// See the module.
pub(crate) struct Interned<T> {
    all: BTreeSet<Arc<T>>,
    /// How many were left when unused ones were dropped last.
    left: usize,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { all: BTreeSet::new(), left: 0 }
    }
}

impl<T: Ord> Interned<T> {
    /// The one that is equal to this.
    pub(crate) fn get(&mut self, one: T) -> Arc<T> {
        if let Some(known) = self.all.get(&one) {
            return Arc::clone(known);
        }
        // Twice as many as were in use: each costs a constant share of the sweeps.
        if self.all.len() >= 2 * self.left.max(KEPT_MIN) {
            self.all.retain(|one| Arc::strong_count(one) > 1);
            self.left = self.all.len();
        }
        let new = Arc::new(one);
        self.all.insert(Arc::clone(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_pod_has_any_more_is_dropped() {
        let mut all = Interned::default();
        let held: Vec<Arc<usize>> = (0..10).map(|at| all.get(at)).collect();
        for at in 0..100_000 {
            drop(all.get(at));
        }
        assert!(all.all.len() <= 2 * KEPT_MIN, "{}", all.all.len());
        assert!(held.iter().all(|one| Arc::ptr_eq(one, &all.get(**one))), "those in use are the same");
    }
}
