//! Numbers of members that fit together, for several roles at once, and how those of two places add up.

/// For every number of members of all roles but one: the most of that one which fits beside them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Table {
    /// The largest number by role, that one left out.
    most: Vec<u32>,
    /// The first role runs fastest.
    values: Vec<Option<u32>>,
}

impl Table {
    /// Fills the table number by number; `None` if these numbers do not fit at all.
    pub(super) fn fill(most: Vec<u32>, mut value: impl FnMut(&[u32]) -> Option<u32>) -> Self {
        let mut counts = vec![0; most.len()];
        let mut values = Vec::with_capacity(len(&most));
        for _ in 0..len(&most) {
            values.push(value(&counts));
            advance(&mut counts, &most);
        }
        Self { most, values }
    }

    /// The table without members.
    pub(super) fn empty(roles: usize) -> Self {
        Self { most: vec![0; roles], values: vec![Some(0)] }
    }

    pub(super) fn get(&self, counts: &[u32]) -> Option<u32> {
        let mut at = 0;
        for (count, most) in counts.iter().zip(&self.most).rev() {
            if count > most {
                return None;
            }
            at = at * (*most as usize + 1) + *count as usize;
        }
        self.values.get(at).copied().flatten()
    }

    /// All numbers that fit, with the value beside them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Vec<u32>, u32)> + '_ {
        let mut counts = vec![0; self.most.len()];
        self.values.iter().filter_map(move |value| {
            let here = value.map(|value| (counts.clone(), value));
            advance(&mut counts, &self.most);
            here
        })
    }

    pub(super) fn states(&self) -> u64 {
        self.values.len() as u64
    }

    /// States that merging two tables goes through.
    pub(super) fn pairs(&self, other: &Self) -> u64 {
        self.states() * other.states()
    }

    pub(super) fn largest(&self) -> &[u32] {
        &self.most
    }

    /// What two nodes or domains hold together. Numbers above `wanted` are not distinguished.
    pub(super) fn merge(&self, other: &Self, wanted: &[u32], value_wanted: u32) -> Self {
        let most: Vec<u32> = self
            .most
            .iter()
            .zip(&other.most)
            .zip(wanted)
            .map(|((a, b), wanted)| (a + b).min(*wanted))
            .collect();
        let mut values = vec![None; len(&most)];
        let others: Vec<(Vec<u32>, u32)> = other.iter().collect();
        for (counts, value) in self.iter() {
            'next: for (beside, more) in &others {
                let mut at = 0;
                for ((a, b), most) in counts.iter().zip(beside).zip(&most).rev() {
                    if a + b > *most {
                        continue 'next;
                    }
                    at = at * (*most as usize + 1) + (a + b) as usize;
                }
                let sum = Some(value.saturating_add(*more).min(value_wanted));
                if let Some(known) = values.get_mut(at) {
                    *known = sum.max(*known);
                }
            }
        }
        Self { most, values }
    }
}

fn len(most: &[u32]) -> usize {
    most.iter().map(|most| *most as usize + 1).product()
}

/// Advances to the next numbers; after the last, all are 0 again.
fn advance(counts: &mut [u32], most: &[u32]) {
    for (count, most) in counts.iter_mut().zip(most) {
        if *count < *most {
            *count += 1;
            return;
        }
        *count = 0;
    }
}
