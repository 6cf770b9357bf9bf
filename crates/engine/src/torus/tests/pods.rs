//! Cubes behind optical switches.

use super::*;

fn free_chips(pod: &Cubes) -> u64 {
    pod.free_count()
}

#[test]
fn the_largest_job_takes_96_cubes_and_leaves_44() {
    let mut pod = Cubes::new(140, [2, 2, 1], TPU_V5P).unwrap();
    assert_eq!(free_chips(&pod), 8_960);
    let (mut small, mut large) = (CubeSlice::default(), CubeSlice::default());
    pod.place([2, 2, 1], &mut small).unwrap();
    pod.take(&small).unwrap();
    pod.set_broken(7, [3, 3, 3], true).unwrap();
    pod.set_cut_off(9, true).unwrap();
    pod.place([16, 16, 24], &mut large).unwrap();
    assert_eq!((large.cubes.len(), large.part, large.can_twist()), (96, Part::Whole, false));
    assert!(!large.cubes.contains(&0) && !large.cubes.contains(&7) && !large.cubes.contains(&9));
    pod.take(&large).unwrap();
    assert_eq!((pod.whole_count(), free_chips(&pod)), (41, 2_811));
    let why = pod.place([12, 16, 16], &mut CubeSlice::default()).unwrap_err();
    assert_eq!(why.to_string(), "12x16x16 takes 48 whole cubes, and 41 are free; 3 more are so in part");
    let why = pod.place([16, 20, 28], &mut CubeSlice::default()).unwrap_err();
    assert!(why.to_string().ends_with("there are 6144 at most; the next smaller is 16x16x24"), "{why}");
    let before = pod.clone();
    assert_eq!(pod.take(&large), Err(TorusError::NotFree([0; 3])));
    assert_eq!(pod, before);
    pod.release(&large).unwrap();
    pod.release(&small).unwrap();
    assert_eq!(pod.release(&small), Err(TorusError::NotTaken([0; 3])));
    assert_eq!(pod.whole_count(), 138);
}

#[test]
fn small_slices_share_cubes_until_they_are_full() {
    let mut pod = Cubes::new(4, [2, 2, 1], TPU_V4).unwrap();
    let mut slice = CubeSlice::default();
    let mut numbers = Vec::new();
    for sides in [[2, 4, 4], [2, 2, 1], [2, 2, 4], [1, 1, 1], [2, 2, 2], [2, 2, 1], [2, 4, 4]] {
        pod.place(sides, &mut slice).unwrap();
        pod.take(&slice).unwrap();
        numbers.push(slice.cubes[0]);
    }
    assert_eq!(numbers, [0, 0, 0, 0, 0, 1, 1], "a cube that is begun comes first, the fullest of them first");
    assert_eq!(pod.whole_count(), 2);
    let why = pod.place([4, 4, 12], &mut slice).unwrap_err();
    assert_eq!(why.to_string(), "4x4x12 takes 3 whole cubes, and 2 are free; 2 more are so in part");
    pod.place([4, 4, 8], &mut slice).unwrap();
    pod.take(&slice).unwrap();
    assert!(slice.can_twist());
    let why = pod.place([2, 4, 4], &mut slice).unwrap_err();
    assert_eq!(why.to_string(), "no cube has room for 2x4x4: 31 chips are free, 28 at most in one cube");
}

proptest! {
    #![proptest_config(config(64))]

    /// In a cube a box is a box: the search on a mesh of 4x4x4 finds one exactly when this one does, as tight.
    #[test]
    fn a_cube_is_a_small_mesh(taken in any::<u64>(), more in any::<u64>(), host in select(vec![[1; 3], [2, 2, 1]])) {
        let mut pod = Cubes::new(1, host, TPU_V4).unwrap();
        let mut mesh = Chips::new(&torus([4; 3], [false; 3], host)).unwrap();
        for (i, at) in every([4; 3]).enumerate().filter(|(i, _)| taken & more >> i & 1 == 1) {
            let one = CubeSlice { sides: [1; 3], part: Part::Inside { at, axes: [0, 1, 2] }, cubes: vec![0] };
            pod.take(&one).unwrap();
            mesh.take(&ChipBox::one(at)).unwrap();
            prop_assert!(i < 64);
        }
        let (mut slice, mut scratch) = (CubeSlice::default(), Scratch::default());
        for sides in every([4; 3]).map(|at| at.map(|side| side + 1)).filter(|sides| *sides != [4; 3]) {
            let placed = mesh.place(&BoxAsk { hosts: Hosts::Fewest, ..ask(sides) }, &mut scratch);
            let found = pod.place(sides, &mut slice);
            prop_assert_eq!(placed.is_ok(), found.is_ok(), "{:?}", sides);
            if let Ok(placed) = placed {
                let chips: BTreeSet<_> = slice.chips_by_rank().map(|(_, at)| at).collect();
                prop_assert_eq!(chips.len() as u64, volume(sides));
                let next = chips.iter().flat_map(|at| {
                    let grid = torus([4; 3], [false; 3], host);
                    (0..3).flat_map(move |axis| [true, false].map(|way| grid.neighbour(*at, axis, way)))
                });
                let exposed = next.flatten().filter(|at| mesh.is_free(*at) && !chips.contains(at)).count();
                prop_assert_eq!(usize::from(placed.exposed), exposed);
                let before = pod.clone();
                pod.take(&slice).unwrap();
                pod.release(&slice).unwrap();
                prop_assert_eq!(&pod, &before);
            }
        }
    }
}

#[test]
fn ranks_of_cubes_follow_the_links_of_the_slice() {
    let mut pod = Cubes::new(64, [2, 2, 1], TPU_V4).unwrap();
    let mut slice = CubeSlice::default();
    pod.set_broken(2, [0; 3], true).unwrap();
    pod.place([4, 8, 12], &mut slice).unwrap();
    assert_eq!(slice.cubes, [0, 1, 3, 4, 5, 6]);
    let grid = torus([4, 8, 12], [true; 3], [1; 3]);
    let in_slice = |(cube, at): (u32, [u16; 3])| {
        let i = u16::try_from(slice.cubes.iter().position(|c| *c == cube).unwrap()).unwrap();
        [at[0], at[1] + i / 3 * 4, at[2] + i % 3 * 4]
    };
    let ranks: Vec<_> = slice.chips_by_rank().map(in_slice).collect();
    assert_eq!(ranks.iter().collect::<BTreeSet<_>>().len(), 384);
    let is_link = |a: [u16; 3], b| {
        (0..3).any(|axis| [true, false].iter().any(|way| grid.neighbour(a, axis, *way) == Some(b)))
    };
    assert!(ranks.windows(2).all(|pair| is_link(pair[0], pair[1])) && is_link(ranks[383], ranks[0]));
}

#[test]
fn bad_pods_are_refused() {
    assert!(Cubes::new(70_000, [2, 2, 1], TPU_V4).is_err());
    assert!(Cubes::new(1, [3, 1, 1], TPU_V4).is_err() && Cubes::new(1, [0, 1, 1], TPU_V4).is_err());
    let mut pod = Cubes::new(2, [1; 3], TPU_V4).unwrap();
    assert_eq!(pod.set_broken(2, [0; 3], true), Err(TorusError::NoCube(2)));
    assert!(pod.set_broken(1, [4, 0, 0], true).is_err() && pod.set_cut_off(5, true).is_err());
    let twice = CubeSlice { sides: [4, 4, 8], part: Part::Whole, cubes: vec![1, 1] };
    assert_eq!(pod.take(&twice), Err(TorusError::NoCube(1)));
    let none = pod.place([1, 1, 0], &mut CubeSlice::default());
    assert!(matches!(none, Err(NoCubes::Illegal(_))));
}
