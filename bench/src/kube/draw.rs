//! The gangs of a scenario, drawn from a seed: whole nodes in powers of two, which always pack into racks of 32
//! exactly, and single pods of 1 to 4 GPUs.

use crate::rng::split_mix;

/// GPUs of a node.
pub(super) const GPUS: usize = 8;
pub(super) const NODES_PER_RACK: usize = 32;

/// Of the GPUs that are asked for, in single pods of 1 to 4.
const SMALL_PERCENT: usize = 10;

/// Equal pods that start together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gang {
    pub(super) pods: usize,
    /// Of each pod.
    pub(super) gpus: usize,
}

impl Gang {
    fn gpus(self) -> usize {
        self.pods * self.gpus
    }
}

/// Gangs that ask for `percent` of the GPUs of `nodes` nodes, in an order that says nothing of their size. Up to 90 %
/// all of them fit, each in one rack.
pub(super) fn gangs(nodes: usize, percent: usize, seed: u64) -> Vec<Gang> {
    let mut state = seed;
    let all = nodes * GPUS * percent / 100;
    let small = all * SMALL_PERCENT / 100;
    let mut gangs = Vec::new();
    // As if node after node were filled with them, so that they fill whole nodes.
    let mut left = small / GPUS * GPUS;
    while left > 0 {
        let room = (left - 1) % GPUS + 1;
        let gpus = (1 + below(&mut state, 4)).min(room);
        gangs.push(Gang { pods: 1, gpus });
        left -= gpus;
    }
    let mut left = (all - small) / GPUS;
    while left > 0 {
        let size = 1_usize << below(&mut state, 6);
        let size = (1..=size).rev().find(|size| size.is_power_of_two() && *size <= left).unwrap_or(1);
        gangs.push(Gang { pods: size, gpus: GPUS });
        left -= size;
    }
    shuffle(&mut gangs, &mut state);
    gangs
}

/// A place for each pod of each gang, as nodes by number: the largest first, each in the first rack with room. Pods for
/// which there is no room have none.
pub(super) fn places(gangs: &[Gang], nodes: usize) -> Vec<Vec<Option<usize>>> {
    let mut free = vec![GPUS; nodes];
    let mut places = vec![Vec::new(); gangs.len()];
    let mut order: Vec<usize> = (0..gangs.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(gangs[*at].gpus()));
    for at in order {
        let gang = gangs[at];
        let found = (0..nodes.div_ceil(NODES_PER_RACK)).find_map(|rack| place(&free, gang, rack));
        for node in found.iter().flatten() {
            free[*node] -= gang.gpus;
        }
        places[at] =
            found.map_or_else(|| vec![None; gang.pods], |nodes| nodes.into_iter().map(Some).collect());
    }
    places
}

/// Nodes of one rack that hold the gang, if it has room for it.
pub(super) fn place(free: &[usize], gang: Gang, rack: usize) -> Option<Vec<usize>> {
    let nodes = rack * NODES_PER_RACK..((rack + 1) * NODES_PER_RACK).min(free.len());
    let slots = nodes.flat_map(|node| std::iter::repeat_n(node, free[node] / gang.gpus));
    let chosen: Vec<usize> = slots.take(gang.pods).collect();
    (chosen.len() == gang.pods).then_some(chosen)
}

/// How many of equal gangs there is room for, each in one rack: racks are apart, and so are equal pods in them.
pub(super) fn room(free: &[usize], gang: Gang) -> usize {
    free.chunks(NODES_PER_RACK)
        .map(|rack| rack.iter().map(|gpus| gpus / gang.gpus).sum::<usize>() / gang.pods)
        .sum()
}

/// Pods of 1 to 4 GPUs that fill all nodes, as node and GPUs, and whether each is to be deleted again.
pub(super) fn fragments(nodes: usize, deleted_percent: usize, seed: u64) -> Vec<(usize, usize, bool)> {
    let mut state = seed;
    let mut pods = Vec::new();
    for node in 0..nodes {
        let mut left = GPUS;
        while left > 0 {
            let gpus = (1 + below(&mut state, 4)).min(left);
            pods.push((node, gpus, below(&mut state, 100) < deleted_percent));
            left -= gpus;
        }
    }
    pods
}

fn below(state: &mut u64, limit: usize) -> usize {
    usize::try_from(split_mix(state) % limit as u64).unwrap_or(0)
}

fn shuffle<T>(items: &mut [T], state: &mut u64) {
    for at in (1..items.len()).rev() {
        items.swap(at, below(state, at + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gangs_up_to_the_capacity_all_have_a_place_in_one_rack() {
        for (nodes, percent) in [(128, 90), (1_000, 90), (5_000, 90)] {
            for seed in 0..20 {
                let gangs = gangs(nodes, percent, seed);
                let asked: usize = gangs.iter().map(|gang| gang.gpus()).sum();
                let wanted = nodes * GPUS * percent / 100;
                assert!(asked <= wanted && asked + 2 * GPUS > wanted, "{asked} of {wanted}");
                let places = places(&gangs, nodes);
                let mut used = vec![0; nodes];
                for (gang, places) in gangs.iter().zip(&places) {
                    let racks: Vec<usize> =
                        places.iter().map(|node| node.unwrap() / NODES_PER_RACK).collect();
                    assert!(racks.windows(2).all(|pair| pair[0] == pair[1]), "{nodes} {percent} {seed}");
                    places.iter().for_each(|node| used[node.unwrap()] += gang.gpus);
                }
                assert!(used.iter().all(|used| *used <= GPUS));
            }
        }
    }

    #[test]
    fn room_counts_gangs_rack_by_rack() {
        // 33 nodes: the last is a rack of its own. Slots of 2 GPUs: 31 of 1 and one of 4 in the first, 4 in the second.
        let mut free = vec![3; 33];
        free[0] = 8;
        free[32] = 8;
        assert_eq!(room(&free, Gang { pods: 16, gpus: 2 }), 2);
        assert_eq!(room(&free, Gang { pods: 4, gpus: 2 }), 8 + 1);
        assert_eq!(room(&free, Gang { pods: 1, gpus: 8 }), 2);
    }

    #[test]
    fn fragments_fill_every_node_and_about_the_wanted_part_is_deleted() {
        let pods = fragments(1_000, 30, 7);
        let mut used = vec![0; 1_000];
        pods.iter().for_each(|(node, gpus, _)| used[*node] += gpus);
        assert!(used.iter().all(|used| *used == GPUS));
        let deleted = pods.iter().filter(|(.., deleted)| *deleted).count() * 100 / pods.len();
        assert!((25..=35).contains(&deleted), "{deleted} %");
    }
}
