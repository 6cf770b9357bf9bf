//! Cubes behind optical switches.

use super::*;

fn of_cubes(chips: [u16; 3]) -> Torus {
    Torus { cube: 4, ..torus(chips, [true; 3], [2, 2, 1]) }
}

/// All of it is free but what is given.
fn without(torus: &Torus, used: &BTreeSet<[u16; 3]>) -> Cubes {
    let mut cubes = Cubes::default();
    cubes.lay_out(torus);
    every(torus.chips).filter(|at| !used.contains(at)).for_each(|at| cubes.set_free(at));
    cubes
}

/// The chips of a slice, member by member.
fn chips(slice: &CubeSlice) -> Vec<[u16; 3]> {
    let of_member = |at: [u16; 3]| every(slice.block).map(move |by| [0, 1, 2].map(|i| at[i] + by[i]));
    slice.corners(RankOrder::ring).flat_map(of_member).collect()
}

#[test]
fn the_largest_job_takes_96_cubes_and_leaves_44() {
    let pod = of_cubes([16, 20, 28]);
    let (mut small, mut large) = (CubeSlice::default(), CubeSlice::default());
    let mut used = BTreeSet::new();
    assert!(without(&pod, &used).place(request([2, 2, 1], 4), &mut small));
    used.extend(chips(&small));
    used.insert([15, 19, 27]);
    let mut cubes = without(&pod, &used);
    assert_eq!(cubes.free_count(), 8_955);
    assert!(cubes.place(request([16, 16, 24], 4), &mut large));
    let taken = chips(&large);
    assert_eq!((taken.len(), large.is_whole, large.block), (6_144, true, [2, 2, 1]));
    assert!(taken.iter().all(|at| !used.contains(at)));
    used.extend(taken);
    assert_eq!(used.len(), 6_149, "each once");
    let mut cubes = without(&pod, &used);
    assert!(!cubes.place(request([12, 16, 16], 4), &mut large));
    assert_eq!(cubes.most_free(request([12, 16, 16], 4)), 43 * 64 + 59);
    assert_eq!(cubes.largest(request([12, 16, 16], 4)).map(volume), Some(36 * 64));
}

#[test]
fn all_of_a_pod_is_one_slice() {
    let pod = of_cubes([16, 20, 28]);
    let mut slice = CubeSlice::default();
    assert!(without(&pod, &BTreeSet::new()).place(request([16, 20, 28], 4), &mut slice));
    assert_eq!(chips(&slice).into_iter().collect::<BTreeSet<_>>().len(), 8_960);
    let mut broken = without(&pod, &BTreeSet::from([[0; 3]]));
    assert!(!broken.place(request([16, 20, 28], 4), &mut slice));
    assert_eq!(broken.most_free(request([16, 20, 28], 4)), 8_959);
    assert_eq!(broken.largest(request([16, 20, 28], 4)).map(volume), Some(7_680));
}

#[test]
fn small_slices_share_cubes_until_they_are_full() {
    let pod = of_cubes([4, 4, 16]);
    let (mut used, mut slice) = (BTreeSet::new(), CubeSlice::default());
    let mut numbers = Vec::new();
    for sides in [[2, 4, 4], [2, 2, 1], [2, 2, 4], [1, 1, 1], [2, 2, 2], [2, 2, 1], [2, 4, 4]] {
        assert!(without(&pod, &used).place(request(sides, 1), &mut slice));
        used.extend(chips(&slice));
        numbers.push(chips(&slice)[0][2] / 4);
    }
    assert_eq!(numbers, [0, 0, 0, 0, 0, 1, 1], "a cube that is begun comes first, the fullest of them first");
    let mut cubes = without(&pod, &used);
    assert!(
        !cubes.place(request([4, 4, 12], 4), &mut slice) && cubes.place(request([4, 4, 8], 4), &mut slice)
    );
    assert_eq!(cubes.largest(request([4, 4, 12], 4)), Some([4, 4, 8]));
    used.extend(chips(&slice));
    let mut cubes = without(&pod, &used);
    assert!(!cubes.place(request([2, 4, 4], 4), &mut slice));
    assert_eq!((cubes.free_count(), cubes.largest(request([2, 4, 4], 4)).map(volume)), (31, Some(24)));
}

proptest! {
    #![proptest_config(config(64))]

    /// In a cube a box is a box: the search on a mesh of 4x4x4 finds one exactly when this one does, as tight.
    #[test]
    fn a_cube_is_a_small_mesh(
        rolls in vec(0..4_u32, 64),
        host in select(vec![[1; 3], [2, 2, 1], [2, 4, 1]]),
        member in select(vec![1, 2, 4_u32]),
        hosts in select(vec![Hosts::Any, Hosts::Whole, Hosts::One]),
    ) {
        let pod = Torus { host_chips: host, ..of_cubes([4; 3]) };
        let used: BTreeSet<_> = every([4; 3]).zip(rolls).filter(|(_, roll)| *roll == 0).map(|(at, _)| at).collect();
        let (mut cubes, mut mesh) = (without(&pod, &used), Chips::default());
        mesh.lay_out(&torus([4; 3], [false; 3], host));
        every([4; 3]).filter(|at| !used.contains(at)).for_each(|at| mesh.set_free(at));
        let (mut slice, mut scratch) = (CubeSlice::default(), Scratch::default());
        for sides in every([4; 3]).map(|at| at.map(|side| side + 1)).filter(|sides| *sides != [4; 3]) {
            let request = BoxRequest { sides, member, hosts };
            let placed = mesh.place(request, |_, _| 0, &mut scratch);
            let found = cubes.place(request, &mut slice);
            prop_assert_eq!(placed.is_some(), found, "{:?}", request);
            prop_assert_eq!(cubes.most_free(request), mesh.most_free(request, &mut scratch), "{:?}", request);
            if let Some(placed) = placed {
                prop_assert_eq!(u32::from(placed.exposed), slice.exposed);
                prop_assert_eq!(placed.block.into_iter().max(), slice.block.into_iter().max());
                let all = chips(&slice);
                prop_assert_eq!(all.len() as u64, volume(sides));
                prop_assert!(all.iter().collect::<BTreeSet<_>>().is_disjoint(&used.iter().collect()));
            }
        }
    }
}

#[test]
fn ranks_of_cubes_follow_the_links_of_the_slice() {
    let pod = of_cubes([16, 16, 16]);
    let mut slice = CubeSlice::default();
    assert!(without(&pod, &BTreeSet::from([[0, 0, 9]])).place(request([4, 8, 12], 1), &mut slice));
    let cube = |at: [u16; 3]| at.map(|at| at / 4);
    let wanted = [[0, 0, 0], [0, 0, 1], [0, 0, 3], [0, 1, 0], [0, 1, 1], [0, 1, 2]];
    let grid = torus([4, 8, 12], [true; 3], [1; 3]);
    let in_slice = |at: [u16; 3]| {
        let i = u16::try_from(wanted.iter().position(|c| *c == cube(at)).unwrap()).unwrap();
        [at[0] % 4, at[1] % 4 + i / 3 * 4, at[2] % 4 + i % 3 * 4]
    };
    let ranks: Vec<_> = slice.corners(RankOrder::ring).map(in_slice).collect();
    assert_eq!(ranks.iter().collect::<BTreeSet<_>>().len(), 384);
    assert!(
        ranks.windows(2).all(|pair| is_link(&grid, pair[0], pair[1])) && is_link(&grid, ranks[383], ranks[0])
    );
}
