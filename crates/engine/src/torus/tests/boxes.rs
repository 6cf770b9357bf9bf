//! Boxes of chips.

use super::*;

/// A torus as a set of what is there.
#[derive(Clone, Debug)]
struct Naive {
    torus: Torus,
    free: BTreeSet<[u16; 3]>,
}

/// Beyond the fewest hosts, time, sides left open, longest side of a member, a part of a host that was whole, links to
/// free chips, position: the same as the search calls better.
type Merit = (bool, u64, u32, u16, bool, usize, [u16; 3]);

impl Naive {
    fn chips(&self) -> Chips {
        let mut chips = Chips::default();
        chips.lay_out(&self.torus);
        self.free.iter().for_each(|at| chips.set_free(*at));
        chips
    }

    /// The chips of a box; none where it runs over an open end.
    fn inside(&self, at: [u16; 3], sides: [u16; 3]) -> Option<BTreeSet<[u16; 3]>> {
        every(sides)
            .map(|by| {
                let beyond = [0, 1, 2].map(|i| at[i] + by[i]);
                let torus = &self.torus;
                let is_there = (0..3).all(|i| beyond[i] < torus.chips[i] || torus.wraps[i]);
                is_there.then(|| [0, 1, 2].map(|i| beyond[i] % torus.chips[i]))
            })
            .collect()
    }

    fn hosts(&self, chips: &BTreeSet<[u16; 3]>) -> usize {
        let host = self.torus.host_chips;
        chips.iter().map(|at| [0, 1, 2].map(|i| at[i] / host[i])).collect::<BTreeSet<_>>().len()
    }

    /// Every place for a box: its chips, how it is cut into members, and what it is worth.
    fn places(&self, request: BoxRequest) -> Vec<(BTreeSet<[u16; 3]>, [u16; 3], Merit)> {
        let (torus, host) = (&self.torus, self.torus.host_chips);
        let hold = |sides: &[u16; 3]| (0..3).all(|i| sides[i] <= torus.chips[i]);
        let ways: Vec<_> = ROTATIONS.iter().map(|axes| lie(request.sides, *axes)).filter(hold).collect();
        // Members fill hosts, and their corners stand at multiples of their own sides.
        let blocks: Vec<_> = every(host)
            .map(|at| at.map(|side| side + 1))
            .filter(|block| volume(*block) == u64::from(request.member))
            .filter(|block| (0..3).all(|i| host[i].is_multiple_of(block[i])))
            .collect();
        let mut found = Vec::new();
        for (sides, block) in ways.iter().flat_map(|sides| blocks.iter().map(move |block| (*sides, *block))) {
            for at in every(torus.chips) {
                let is_cut =
                    (0..3).all(|i| at[i].is_multiple_of(block[i]) && sides[i].is_multiple_of(block[i]));
                let Some(chips) = self.inside(at, sides).filter(|_| is_cut) else { continue };
                let hosts = self.hosts(&chips);
                let is_asked = match request.hosts {
                    Hosts::Any => true,
                    Hosts::One => hosts == 1,
                    Hosts::Whole => hosts as u64 * volume(host) == volume(sides),
                };
                if is_asked {
                    found.push((chips, block, (false, 0, 0, 0, false, hosts, at), sides));
                }
            }
        }
        // In the fewest hosts that a way to lie takes, at its best, and a torus without ends.
        let fewest = found.iter().map(|(.., sides)| hosts_under(*sides, host)).min().unwrap_or(0);
        let graded = found.into_iter().map(|(chips, block, (.., at), sides)| {
            let rings = [0, 1, 2].map(|i| torus.wraps[i] && sides[i] == torus.chips[i] && sides[i] > 1);
            let neighbours = chips.iter().flat_map(|at| {
                (0..3).flat_map(|axis| [true, false].map(|way| torus.neighbour(*at, axis, way)))
            });
            let exposed =
                neighbours.flatten().filter(|at| self.free.contains(at) && !chips.contains(at)).count();
            let touches = |i: usize| {
                (0..sides[i]).map(|by| (at[i] + by) % torus.chips[i] / host[i]).collect::<BTreeSet<_>>().len()
                    as u64
            };
            let beyond = touches(0) * touches(1) * touches(2) > fewest;
            let open = rings.iter().map(|ring| u32::from(!ring)).sum();
            let of_host = |chip: [u16; 3]| {
                every(host).map(move |by| [0, 1, 2].map(|i| chip[i] / host[i] * host[i] + by[i]))
            };
            let is_small = sides != host && hosts_under(sides, host) == 1;
            let breaks = is_small && of_host(at).all(|chip| self.free.contains(&chip));
            (
                chips,
                block,
                (beyond, time(sides, rings), open, block.into_iter().max().unwrap(), breaks, exposed, at),
            )
        });
        graded.collect()
    }

    fn best(&self, request: BoxRequest) -> Option<Merit> {
        let free = self.places(request).into_iter().filter(|(chips, ..)| chips.is_subset(&self.free));
        free.map(|(.., merit)| merit).min()
    }
}

prop_compose! {
    fn any_torus()(
        host in select(vec![[1, 1, 1], [2, 1, 1], [2, 2, 1], [1, 2, 2], [2, 4, 1]]),
        hosts in select(vec![[1, 1, 3], [2, 1, 1], [2, 2, 2], [1, 2, 4], [3, 1, 2], [2, 2, 3], [1, 1, 1]]),
        wraps in any::<[bool; 3]>(),
        percent in select(vec![20, 60, 90, 100_u32]),
    )(
        rolls in vec(0..100_u32, 200),
        sides in Just([host[0] * hosts[0], host[1] * hosts[1], host[2] * hosts[2]]),
        host in Just(host), wraps in Just(wraps), percent in Just(percent),
    ) -> Naive {
        let free = every(sides).zip(rolls).filter(|(_, roll)| *roll < percent).map(|(at, _)| at).collect();
        Naive { torus: torus(sides, wraps, host), free }
    }
}

/// Sides up to those of the torus and beyond, members up to a host and beyond.
fn all_requests(torus: &Torus) -> Vec<BoxRequest> {
    let most = torus.chips.into_iter().max().unwrap_or(1);
    let sides = every([most; 3]).map(|at| at.map(|side| side + 1)).filter(|sides| volume(*sides) <= 40);
    let of_sides = |sides: [u16; 3]| {
        let members =
            [1, 2, 4, 8].into_iter().filter(move |member| volume(sides).is_multiple_of(u64::from(*member)));
        members.flat_map(move |member| {
            let how = [Hosts::Any, Hosts::Whole, Hosts::One].into_iter();
            how.map(move |hosts| BoxRequest { sides, member, hosts })
        })
    };
    sides.flat_map(of_sides).collect()
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn every_shape_is_placed_as_brute_force_would(naive in any_torus(), skip in 0..29_usize) {
        let (chips, mut scratch) = (naive.chips(), Scratch::default());
        prop_assert_eq!(chips.free_count(), naive.free.len() as u64);
        for request in all_requests(&naive.torus).into_iter().skip(skip).step_by(29) {
            let placed = chips.place(request, time, &mut scratch);
            prop_assert_eq!(placed.is_some(), naive.best(request).is_some(), "{:?}", request);
            let Some(placed) = placed else { continue };
            let found = naive.inside(placed.at, placed.sides).unwrap();
            let places = naive.places(request);
            let merit = places.into_iter().find(|(chips, block, (.., at))| {
                (chips, *block, *at) == (&found, placed.block, placed.at)
            });
            prop_assert_eq!(merit.map(|(.., merit)| merit), naive.best(request), "{:?} for {:?}", placed, request);
            let members: Vec<_> = placed.corners(RankOrder::ring).collect();
            let of_members: Vec<_> =
                members.iter().flat_map(|corner| naive.inside(*corner, placed.block).unwrap()).collect();
            prop_assert_eq!(of_members.len(), found.len());
            prop_assert_eq!(of_members.into_iter().collect::<BTreeSet<_>>(), found, "each chip is one member's");
            for corner in members {
                prop_assert_eq!(naive.hosts(&naive.inside(corner, placed.block).unwrap()), 1);
            }
        }
    }

    #[test]
    fn the_best_place_is_counted(naive in any_torus(), skip in 0..29_usize) {
        let (chips, mut scratch) = (naive.chips(), Scratch::default());
        for request in all_requests(&naive.torus).into_iter().skip(skip).step_by(29) {
            let of_place = |(chips, ..): (BTreeSet<_>, _, _)| chips.intersection(&naive.free).count() as u64;
            let most = naive.places(request).into_iter().map(of_place).max().unwrap_or(0);
            prop_assert_eq!(chips.most_free(request, &mut scratch), most, "{:?}", request);
        }
    }

    #[test]
    fn the_largest_box_is_the_largest(naive in any_torus(), whole in any::<bool>()) {
        let unit = if whole { naive.torus.host_chips } else { [1; 3] };
        let largest = naive.chips().largest(unit, &mut Scratch::default());
        let is_free = |sides: &[u16; 3]| {
            every(naive.torus.chips).filter(|at| (0..3).all(|i| at[i].is_multiple_of(unit[i]))).any(|at| {
                naive.inside(at, *sides).is_some_and(|chips| chips.is_subset(&naive.free))
            })
        };
        let cut = |sides: &[u16; 3]| (0..3).all(|i| sides[i].is_multiple_of(unit[i]));
        let boxes = every(naive.torus.chips).map(|at| at.map(|side| side + 1)).filter(cut).filter(is_free);
        prop_assert_eq!(largest.map(volume), boxes.map(volume).max());
        prop_assert!(largest.is_none_or(|sides| is_free(&sides)));
    }

    #[test]
    fn turning_the_torus_turns_the_place(naive in any_torus(), turn in select(ROTATIONS.to_vec())) {
        let lie = |at: [u16; 3]| turn.map(|axis| at[axis]);
        let turned = Naive {
            torus: torus(lie(naive.torus.chips), turn.map(|axis| naive.torus.wraps[axis]), lie(naive.torus.host_chips)),
            free: naive.free.iter().map(|at| lie(*at)).collect(),
        };
        let (before, after, mut scratch) = (naive.chips(), turned.chips(), Scratch::default());
        // Silent, so that the order in which dimensions are reduced does not tell axes apart.
        let mut merit = |chips: &Chips, request| {
            chips.place(request, |_, _| 0, &mut scratch).map(|p| (p.rings.iter().filter(|r| **r).count(), p.exposed))
        };
        for request in all_requests(&naive.torus) {
            prop_assert_eq!(merit(&before, request), merit(&after, request), "{:?}", request);
        }
    }
}

/// All of it is free but what is given.
fn without(torus: &Torus, used: impl IntoIterator<Item = [u16; 3]>) -> Naive {
    let used: BTreeSet<_> = used.into_iter().collect();
    Naive { torus: torus.clone(), free: every(torus.chips).filter(|at| !used.contains(at)).collect() }
}

#[test]
fn a_whole_pod_is_one_box() {
    let (pod, mut scratch) = (pod(), Scratch::default());
    let whole = request([28, 16, 20], 4);
    let placed = without(&pod, []).chips().place(whole, time, &mut scratch).unwrap();
    assert_eq!((placed.at, placed.sides, placed.block), ([0; 3], [16, 20, 28], [2, 2, 1]));
    assert_eq!(
        (placed.rings, placed.exposed, placed.corners(RankOrder::ring).count()),
        ([true; 3], 0, 2_240)
    );
    let broken = without(&pod, [[5, 5, 5]]).chips();
    assert_eq!(broken.place(whole, time, &mut scratch), None);
    assert_eq!(broken.most_free(whole, &mut scratch), 8_959);
    let around = broken.place(request([16, 20, 26], 4), time, &mut scratch).unwrap();
    assert_eq!((around.at, around.rings), ([0, 0, 6], [true, true, false]));
    assert_eq!(broken.largest([2, 2, 1], &mut scratch), Some([16, 20, 27]));
}

#[test]
fn the_picture_of_a_box_is_right() {
    let rows = ["...###", "...###", "###.##", "###.##", "....##", "....##"];
    let used = (0..).zip(rows).flat_map(|(y, row)| {
        (0..).zip(row.chars()).filter(|(_, chip)| *chip == '#').map(move |(x, _)| [x, y, 0])
    });
    let naive = without(&torus([6, 6, 1], [false, true, false], [1; 3]), used);
    let best = naive.chips().place(request([2, 3, 1], 1), |_, _| 0, &mut Scratch::default()).unwrap();
    assert_eq!((best.at, best.sides, best.exposed), ([0, 0, 0], [3, 2, 1], 3));
    let upright = naive.places(request([2, 3, 1], 1)).into_iter().find(|(chips, _, (.., at))| {
        (chips.len(), *at) == (6, [0, 4, 0]) && chips.contains(&[1, 0, 0]) && !chips.contains(&[2, 0, 0])
    });
    assert_eq!(upright.map(|(.., (.., exposed, _))| exposed), Some(5));
}

#[test]
fn a_second_box_leans_on_the_first() {
    let (pod, mut scratch, mut used) = (pod(), Scratch::default(), BTreeSet::new());
    let mut add = |sides| {
        let naive = without(&pod, used.iter().copied());
        let placed = naive.chips().place(request(sides, 4), |_, _| 0, &mut scratch).unwrap();
        used.extend(naive.inside(placed.at, placed.sides).unwrap());
        (placed.at, placed.sides)
    };
    for at in [[0, 0, 0], [8, 0, 0], [0, 0, 8], [8, 0, 8], [0, 0, 16]] {
        assert_eq!(add([8, 8, 8]), (at, [8, 8, 8]));
    }
    assert_eq!(add([4, 8, 8]), ([0, 0, 24], [8, 8, 4]), "turned to close the gap of four");
}

#[test]
fn small_slices_stay_inside_a_host() {
    let flat = torus([16, 16, 1], [true, true, false], [2, 4, 1]);
    let (chips, mut scratch) = (without(&flat, [[0, 0, 0]]).chips(), Scratch::default());
    let mut at = |sides, member| {
        let placed = chips.place(request(sides, member), time, &mut scratch).unwrap();
        (placed.at, placed.sides, placed.block)
    };
    assert_eq!(at([2, 2, 1], 4), ([0, 2, 0], [2, 2, 1], [2, 2, 1]), "in the host in use, in a half of it");
    assert_eq!(at([2, 2, 1], 1), ([0, 1, 0], [2, 2, 1], [1, 1, 1]), "single chips anywhere in it");
    assert_eq!(at([4, 2, 1], 4), ([0, 12, 0], [2, 4, 1], [2, 2, 1]), "one host, and not two halves");
    assert_eq!(at([4, 8, 1], 8).2, [2, 4, 1]);
}

/// Fastest is what closes the long sides.
#[test]
fn the_way_to_lie_that_takes_the_least_time_wins() {
    let torus = torus([4, 8, 8], [true, true, false], [1; 3]);
    let placed =
        without(&torus, []).chips().place(request([8, 4, 4], 1), time, &mut Scratch::default()).unwrap();
    assert_eq!((placed.sides, placed.rings), ([4, 8, 4], [true, true, false]));
    assert_eq!(placed.time_ns, time([4, 8, 4], [true, true, false]));
}

#[test]
fn ranks_of_a_box_follow_the_links() {
    let pod = pod();
    let used = every([13, 17, 28]).map(|at| [at[0] + 3, at[1] + 3, at[2]]);
    let naive = without(&pod, used);
    let placed = naive.chips().place(request([28, 2, 20], 1), time, &mut Scratch::default()).unwrap();
    assert_eq!((placed.sides, placed.rings), ([2, 20, 28], [false, true, true]));
    let ranks: Vec<_> = placed.corners(RankOrder::ring).collect();
    assert_eq!(ranks.iter().collect::<BTreeSet<_>>().len(), 1_120);
    assert!(ranks.windows(2).all(|pair| is_link(&pod, pair[0], pair[1])));
    assert!(is_link(&pod, ranks[1_119], ranks[0]), "the ring over all ranks is closed");
}
