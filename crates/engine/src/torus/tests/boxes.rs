//! Boxes of chips.

use super::*;

/// A torus as a set of what is there.
#[derive(Clone, Debug)]
struct Naive {
    torus: Torus,
    free: BTreeSet<[u16; 3]>,
    dead: BTreeSet<([u16; 3], usize)>,
}

/// Sides left open, links to free chips, position: the same as the search calls better.
type Merit = (usize, usize, [u16; 3]);

impl Naive {
    fn chips(&self) -> Chips {
        let mut chips = Chips::new(&self.torus).unwrap();
        for (i, at) in every(self.torus.chips).filter(|at| !self.free.contains(at)).enumerate() {
            // Taken and broken are equally little free.
            if i % 2 == 0 {
                chips.take(&ChipBox::one(at)).unwrap();
            } else {
                chips.set_broken(at, true).unwrap();
            }
        }
        for (at, axis) in &self.dead {
            chips.set_link(*at, *axis, false).unwrap();
        }
        chips
    }

    fn inside(&self, chips: &ChipBox) -> Option<BTreeSet<[u16; 3]>> {
        let torus = &self.torus;
        every(chips.sides)
            .map(|by| {
                let mut at = [0; 3];
                for i in 0..3 {
                    at[i] = chips.at[i] + by[i];
                    if at[i] >= torus.chips[i] && !torus.wraps[i] {
                        return None;
                    }
                    at[i] %= torus.chips[i];
                }
                self.free.contains(&at).then_some(at)
            })
            .collect()
    }

    fn under(&self, sides: [u16; 3]) -> u16 {
        (0..3).map(|i| sides[i].div_ceil(self.torus.host_chips[i])).product()
    }

    fn merit(&self, chips: &ChipBox, hosts: Hosts) -> Option<Merit> {
        let Self { torus, free, dead } = self;
        let (sides, host) = (chips.sides, torus.host_chips);
        let inside = self.inside(chips)?;
        for axis in 0..3 {
            // Every chip but those of the last layer along the axis has a live link forwards.
            let mut layers = sides;
            layers[axis] -= 1;
            let linked = self.inside(&ChipBox { sides: layers, ..*chips })?;
            if layers[axis] > 0 && linked.iter().any(|at| dead.contains(&(*at, axis))) {
                return None;
            }
        }
        let touched =
            |i: usize| (0..sides[i]).map(|by| (chips.at[i] + by) / host[i]).collect::<BTreeSet<_>>().len();
        if hosts == Hosts::Fewest && (0..3).any(|i| touched(i) > usize::from(sides[i].div_ceil(host[i]))) {
            return None;
        }
        let is_ring = |axis: &usize| {
            torus.wraps[*axis]
                && sides[*axis] == torus.chips[*axis]
                && sides[*axis] > 1
                && inside.iter().all(|at| !dead.contains(&(*at, *axis)))
        };
        let neighbours = inside
            .iter()
            .flat_map(|at| (0..3).flat_map(|axis| [true, false].map(|way| torus.neighbour(*at, axis, way))));
        let exposed = neighbours.flatten().filter(|at| free.contains(at) && !inside.contains(at)).count();
        Some(((0..3).filter(|axis| !is_ring(axis)).count(), exposed, chips.at))
    }

    fn best(&self, ask: &BoxAsk) -> Option<Merit> {
        let turned = || {
            rotations(ask.sides, ask.rotate)
                .map(|(_, sides)| sides)
                .filter(|sides| (0..3).all(|i| sides[i] <= self.torus.chips[i]))
        };
        let fewest = turned().map(|sides| self.under(sides)).min()?;
        turned()
            .filter(|sides| ask.hosts == Hosts::Any || self.under(*sides) == fewest)
            .flat_map(|sides| every(self.torus.chips).map(move |at| ChipBox { at, sides }))
            .filter_map(|chips| self.merit(&chips, ask.hosts))
            .min()
    }
}

prop_compose! {
    fn any_torus()(
        host in select(vec![[1, 1, 1], [2, 1, 1], [2, 2, 1], [1, 2, 2]]),
        hosts in select(vec![[1, 1, 3], [2, 1, 1], [2, 2, 2], [1, 2, 4], [3, 1, 2], [2, 2, 3], [1, 1, 1]]),
        wraps in any::<[bool; 3]>(),
        percent in select(vec![20, 60, 90, 100_u32]),
        with_dead in any::<bool>(),
    )(
        rolls in vec(0..100_u32, 200),
        cuts in vec(0..100_u32, 600),
        sides in Just([host[0] * hosts[0], host[1] * hosts[1], host[2] * hosts[2]]),
        host in Just(host), wraps in Just(wraps), percent in Just(percent), with_dead in Just(with_dead),
    ) -> Naive {
        let torus = torus(sides, wraps, host);
        let free = every(sides).zip(rolls).filter(|(_, roll)| *roll < percent).map(|(at, _)| at).collect();
        let links = every(sides).flat_map(|at| (0..3).map(move |axis| (at, axis)));
        let dead = links
            .zip(cuts)
            .filter(|((at, axis), cut)| with_dead && *cut < 5 && torus.neighbour(*at, *axis, true).is_some())
            .map(|(link, _)| link)
            .collect();
        Naive { torus, free, dead }
    }
}

fn all_asks(sides: [u16; 3]) -> impl Iterator<Item = BoxAsk> {
    let most = sides.into_iter().max().unwrap_or(1);
    every([most; 3]).map(|at| at.map(|side| side + 1)).flat_map(|sides| {
        [(true, Hosts::Any), (false, Hosts::Any), (true, Hosts::Fewest)].map(|(rotate, hosts)| BoxAsk {
            sides,
            rotate,
            hosts,
        })
    })
}

proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn every_shape_is_placed_as_brute_force_would(naive in any_torus()) {
        let (chips, mut scratch) = (naive.chips(), Scratch::default());
        prop_assert_eq!(chips.free_count(), naive.free.len() as u64);
        for ask in all_asks(naive.torus.chips).filter(|ask| volume(ask.sides) <= 40) {
            let best = naive.best(&ask);
            match chips.place(&ask, &mut scratch) {
                Ok(placed) => {
                    let merit = naive.merit(&placed.chips, ask.hosts);
                    prop_assert_eq!(best, merit, "{:?} for {:?}", placed, ask);
                    let (open, exposed, _) = merit.unwrap();
                    prop_assert_eq!(exposed, usize::from(placed.exposed));
                    prop_assert_eq!(open, placed.rings.iter().filter(|ring| !**ring).count());
                }
                Err(why) => prop_assert_eq!(best, None, "{:?}: {}", ask, why),
            }
        }
    }

    #[test]
    fn the_largest_box_is_the_largest(naive in any_torus()) {
        let largest = naive.chips().largest(&mut Scratch::default());
        let boxes = every(naive.torus.chips).map(|at| at.map(|side| side + 1)).flat_map(|sides| {
            every(naive.torus.chips).map(move |at| ChipBox { at, sides })
        });
        let most = boxes.filter(|chips| naive.merit(chips, Hosts::Any).is_some()).map(|chips| chips.chip_count()).max();
        prop_assert_eq!(largest.map(|chips| chips.chip_count()), most);
        if let Some(largest) = largest {
            prop_assert!(naive.merit(&largest, Hosts::Any).is_some());
        }
    }

    #[test]
    fn turning_the_torus_turns_the_place(naive in any_torus(), turn in select(ROTATIONS.to_vec())) {
        let lie = |at: [u16; 3]| turn.map(|axis| at[axis]);
        let turned = Naive {
            torus: torus(lie(naive.torus.chips), turn.map(|axis| naive.torus.wraps[axis]), lie(naive.torus.host_chips)),
            free: naive.free.iter().map(|at| lie(*at)).collect(),
            dead: naive.dead.iter().map(|(at, axis)| (lie(*at), turn.iter().position(|a| a == axis).unwrap())).collect(),
        };
        let (before, after, mut scratch) = (naive.chips(), turned.chips(), Scratch::default());
        for ask in all_asks(naive.torus.chips).filter(|ask| ask.rotate) {
            let merit = |placed: Placed| (placed.rings.iter().filter(|ring| **ring).count(), placed.exposed);
            let (a, b) = (before.place(&ask, &mut scratch), after.place(&ask, &mut scratch));
            prop_assert_eq!(a.map(merit).ok(), b.map(merit).ok(), "{:?}", ask);
        }
    }

    #[test]
    fn a_free_chip_more_never_hurts(naive in any_torus(), which in any::<prop::sample::Index>()) {
        let chips = naive.chips();
        let used: Vec<_> = every(naive.torus.chips).filter(|at| !chips.is_free(*at)).collect();
        prop_assume!(!used.is_empty());
        let mut more = naive.clone();
        more.free.insert(*which.get(&used));
        let (more, mut scratch) = (more.chips(), Scratch::default());
        for ask in all_asks(naive.torus.chips) {
            prop_assert!(chips.place(&ask, &mut scratch).is_err() || more.place(&ask, &mut scratch).is_ok());
        }
    }

    #[test]
    fn what_is_released_is_free_again(naive in any_torus(), sides in vec(0..30_usize, 1..12)) {
        let (mut chips, mut scratch, mut held) = (naive.chips(), Scratch::default(), Vec::new());
        let shapes: Vec<_> = all_asks(naive.torus.chips).collect();
        let mut books = vec![chips.clone()];
        for i in sides {
            if let Ok(placed) = chips.place(&shapes[i % shapes.len()], &mut scratch) {
                chips.take(&placed.chips).unwrap();
                prop_assert!(matches!(chips.take(&placed.chips), Err(TorusError::NotFree(_))));
                held.push(placed.chips);
                books.push(chips.clone());
            }
        }
        while let Some(last) = held.pop() {
            prop_assert_eq!(&chips, &books.pop().unwrap());
            chips.release(&last).unwrap();
            let before = chips.clone();
            prop_assert!(matches!(chips.release(&last), Err(TorusError::NotTaken(_))));
            prop_assert_eq!(&chips, &before, "a refused release changes nothing");
        }
        prop_assert_eq!(&chips, &books[0]);
    }
}

#[test]
fn a_whole_pod_is_one_box() {
    let (mut chips, mut scratch) = (Chips::new(&pod()).unwrap(), Scratch::default());
    let whole = BoxAsk { hosts: Hosts::Fewest, ..ask([28, 16, 20]) };
    let placed = chips.place(&whole, &mut scratch).unwrap();
    assert_eq!(placed.chips, ChipBox { at: [0; 3], sides: [16, 20, 28] });
    assert_eq!((placed.rings, placed.axes, placed.exposed), ([true; 3], [2, 0, 1], 0));
    assert_eq!(placed.hosts_by_rank(&chips).unwrap().count(), 2_240);
    chips.take(&placed.chips).unwrap();
    assert_eq!(
        chips.place(&ask([1, 1, 1]), &mut scratch).unwrap_err().to_string(),
        "1x1x1 has 1 chips, and 0 are free"
    );
    chips.release(&placed.chips).unwrap();
    chips.set_broken([5, 5, 5], true).unwrap();
    assert_eq!(
        chips.place(&whole, &mut scratch).unwrap_err().to_string(),
        "28x16x20 has 8960 chips, and 8959 are free"
    );
    assert_eq!(
        chips.place(&ask([16, 20, 26]), &mut scratch).map(|placed| placed.chips.chip_count()),
        Ok(8_320),
        "around the broken chip"
    );
    assert_eq!(chips.largest(&mut scratch).map(|chips| chips.sides), Some([16, 20, 27]));
}

#[test]
fn the_picture_of_a_box_is_right() {
    let rows = ["...###", "...###", "###.##", "###.##", "....##", "....##"];
    let mut chips = Chips::new(&torus([6, 6, 1], [false, true, false], [1; 3])).unwrap();
    for (y, row) in (0..).zip(rows) {
        for (x, _) in (0..).zip(row.chars()).filter(|(_, chip)| *chip == '#') {
            chips.take(&ChipBox::one([x, y, 0])).unwrap();
        }
    }
    let best = chips.place(&ask([2, 3, 1]), &mut Scratch::default()).unwrap();
    assert_eq!((best.chips, best.exposed), (ChipBox { at: [0, 0, 0], sides: [3, 2, 1] }, 3));
    let upright = BoxAsk { rotate: false, ..ask([2, 3, 1]) };
    assert_eq!(chips.place(&upright, &mut Scratch::default()).map(|placed| placed.exposed), Ok(5));
}

#[test]
fn a_refusal_says_what_is_free() {
    let (mut chips, mut scratch) = (Chips::new(&pod()).unwrap(), Scratch::default());
    // Walls along all three axes leave rooms of 3x3x3.
    for at in every([16, 20, 28]).filter(|at| at.iter().any(|at| at % 4 == 0)) {
        chips.take(&ChipBox::one(at)).unwrap();
    }
    let why = chips.place(&ask([4, 1, 1]), &mut scratch).unwrap_err();
    assert_eq!(why.to_string(), "3780 chips are free, and no 4x1x1 of them lie together");
    assert_eq!(chips.largest(&mut scratch), Some(ChipBox { at: [1, 1, 1], sides: [3, 3, 3] }));
    let why = chips.place(&ask([17, 17, 17]), &mut scratch).unwrap_err();
    assert_eq!(why.to_string(), "17x17x17 does not fit a torus of 16x20x28");
    assert_eq!(chips.place(&ask([0, 1, 1]), &mut scratch), Err(NoBox::Empty));
}

#[test]
fn a_second_box_leans_on_the_first() {
    let (mut chips, mut scratch) = (Chips::new(&pod()).unwrap(), Scratch::default());
    for (i, at) in [[0, 0, 0], [8, 0, 0], [0, 0, 8], [8, 0, 8], [0, 0, 16]].into_iter().enumerate() {
        let placed = chips.place(&ask([8, 8, 8]), &mut scratch).unwrap();
        assert_eq!(placed.chips.at, at, "box {i}");
        chips.take(&placed.chips).unwrap();
    }
    let flat = chips.place(&ask([4, 8, 8]), &mut scratch).unwrap();
    assert_eq!(flat.chips, ChipBox { at: [0, 0, 24], sides: [8, 8, 4] }, "turned to close the gap of four");
}

#[test]
fn a_dead_link_opens_a_ring_and_is_never_inside() {
    let (mut chips, mut scratch) =
        (Chips::new(&torus([1, 2, 6], [true; 3], [1; 3])).unwrap(), Scratch::default());
    let place = |chips: &Chips, scratch: &mut Scratch, sides| chips.place(&ask(sides), scratch).unwrap();
    assert_eq!(place(&chips, &mut scratch, [6, 1, 1]).rings, [true, false, false]);
    chips.set_link([0, 0, 2], 2, false).unwrap();
    assert_eq!(place(&chips, &mut scratch, [6, 1, 1]).chips.at, [0, 1, 0], "the other row is a ring still");
    chips.set_link([0, 1, 4], 2, false).unwrap();
    let placed = place(&chips, &mut scratch, [6, 1, 1]);
    assert_eq!((placed.chips.at, placed.rings), ([0, 0, 3], [false; 3]));
    assert!(matches!(chips.place(&ask([6, 2, 1]), &mut scratch), Err(NoBox::Apart { .. })));
    chips.set_link([0, 1, 4], 2, true).unwrap();
    chips.set_link([0, 0, 2], 2, true).unwrap();
    assert_eq!(chips, Chips::new(&torus([1, 2, 6], [true; 3], [1; 3])).unwrap());
}

#[test]
fn small_slices_stay_inside_a_host() {
    let flat = torus([16, 16, 1], [true, true, false], [2, 4, 1]);
    let (mut chips, mut scratch) = (Chips::new(&flat).unwrap(), Scratch::default());
    chips.take(&ChipBox::one([0, 0, 0])).unwrap();
    let fewest = |sides| BoxAsk { hosts: Hosts::Fewest, ..ask(sides) };
    let at = |sides, scratch: &mut Scratch| chips.place(&fewest(sides), scratch).unwrap().chips;
    assert_eq!(
        at([2, 2, 1], &mut scratch),
        ChipBox { at: [0, 1, 0], sides: [2, 2, 1] },
        "in the host in use"
    );
    assert_eq!(at([4, 2, 1], &mut scratch).sides, [2, 4, 1], "one host, and not two halves");
    let placed = chips.place(&fewest([4, 8, 1]), &mut scratch).unwrap();
    assert_eq!(placed.hosts_by_rank(&chips).unwrap().count(), 4);
    assert!(chips.place(&fewest([2, 2, 1]), &mut scratch).unwrap().hosts_by_rank(&chips).is_none());
}

#[test]
fn ranks_of_a_box_follow_the_links() {
    let grid = pod();
    let (mut chips, mut scratch) = (Chips::new(&grid).unwrap(), Scratch::default());
    chips.take(&ChipBox { at: [3, 3, 0], sides: [13, 17, 28] }).unwrap();
    let placed = chips.place(&ask([28, 2, 20]), &mut scratch).unwrap();
    assert_eq!((placed.axes, placed.rings), ([2, 0, 1], [true, false, true]));
    let ranks: Vec<_> = placed.chips_by_rank(&chips).collect();
    assert_eq!(ranks.iter().collect::<BTreeSet<_>>().len(), 1_120);
    let is_link = |a: [u16; 3], b| {
        (0..3).any(|axis| [true, false].iter().any(|way| grid.neighbour(a, axis, *way) == Some(b)))
    };
    assert!(ranks.windows(2).all(|pair| is_link(pair[0], pair[1])));
    assert!(is_link(ranks[1_119], ranks[0]), "the ring over all ranks is closed");
}

#[test]
fn bad_tori_and_boxes_are_refused() {
    let new = |chips, host| Chips::new(&torus(chips, [true; 3], host)).unwrap_err().to_string();
    assert_eq!(new([0, 1, 1], [1; 3]), "a torus of 0x1x1 chips: sides are 1 to 64");
    assert_eq!(new([65, 1, 1], [1; 3]), "a torus of 65x1x1 chips: sides are 1 to 64");
    assert_eq!(new([3, 2, 1], [2, 2, 1]), "hosts of 2x2x1 chips do not fill a torus of 3x2x1");
    let twisted = Torus { is_twisted: true, ..torus([4, 4, 8], [true; 3], [1; 3]) };
    assert_eq!(Chips::new(&twisted), Err(TorusError::Twisted));
    let mut chips = Chips::new(&torus([4, 4, 4], [false, true, true], [1; 3])).unwrap();
    for (at, sides) in
        [([2, 0, 0], [3, 1, 1]), ([4, 0, 0], [1; 3]), ([0; 3], [0, 1, 1]), ([0; 3], [u16::MAX; 3])]
    {
        let outside = ChipBox { at, sides };
        assert_eq!(chips.take(&outside), Err(TorusError::Outside(outside)));
        assert_eq!(chips.release(&outside), Err(TorusError::Outside(outside)));
    }
    assert!(chips.set_link([3, 0, 0], 0, false).is_err() && chips.set_link([0; 3], 3, false).is_err());
    assert!(chips.set_broken([0, 9, 0], true).is_err() && !chips.is_free([0, 9, 0]));
    chips.take(&ChipBox { at: [1, 3, 2], sides: [3, 2, 4] }).unwrap();
    assert_eq!((chips.free_count(), chips.is_free([3, 0, 1]), chips.is_free([3, 1, 1])), (40, false, true));
}
