//! Racks in a row.

use super::*;

fn place(
    levels: &[u8],
    free: &[u32],
    nodes: u32,
    segment: u32,
    within: Option<u8>,
) -> Result<RackChoice, NoRacks> {
    let mut out = RackChoice::default();
    let ask = RackAsk { nodes, segment, within };
    Racks::new(levels).unwrap().place(free, &ask, &mut out).map(|()| out)
}

/// Level (16 for the row), blocks of the level below, racks, nodes left: over all sets of racks.
fn best(
    levels: &[u8],
    free: &[u32],
    nodes: u32,
    segment: u32,
    within: Option<u8>,
) -> Option<(u8, u32, u32, u32)> {
    let (units, rest) = (nodes / segment, nodes % segment);
    let holds = |set: &[usize]| {
        let one = |rest_in: Option<usize>| {
            let room = |i: usize| free[i].checked_sub(if rest_in == Some(i) { rest } else { 0 });
            set.iter().try_fold(0, |sum, i| Some(sum + room(*i)? / segment)).is_some_and(|sum| sum >= units)
        };
        if rest == 0 { one(None) } else { set.iter().any(|i| one(Some(*i))) }
    };
    let mut all: BTreeSet<u8> = levels.iter().copied().collect();
    all.extend([0, 16]);
    let all: Vec<u8> = all.into_iter().collect();
    let sets = (1..1_usize << free.len())
        .map(|bits| (0..free.len()).filter(|i| bits >> i & 1 == 1).collect::<Vec<_>>());
    let merits = sets.filter(|set| holds(set)).flat_map(|set| {
        let (all, within) = (all.clone(), within);
        (0..all.len()).filter_map(move |i| {
            let blocks = |level: u8| set.iter().map(|rack| rack >> level).collect::<BTreeSet<_>>().len();
            let is_allowed = within.is_none_or(|within| all[i] <= within || i == 0);
            let below = if i == 0 { 1 } else { blocks(all[i - 1]) };
            let sum: u32 = set.iter().map(|rack| free[*rack]).sum();
            let count = |n: usize| u32::try_from(n).unwrap();
            (is_allowed && blocks(all[i]) == 1).then(|| (all[i], count(below), count(set.len()), sum - nodes))
        })
    });
    merits.min()
}

/// That the answer is one: all segments in racks that have the nodes.
fn check(choice: &RackChoice, free: &[u32], nodes: u32, segment: u32) {
    let mut left = free.to_vec();
    let segments: Vec<_> = choice.segments_by_rank(segment).collect();
    for (rack, taken) in &segments {
        left[*rack as usize] = left[*rack as usize].checked_sub(*taken).unwrap();
    }
    assert_eq!(segments.iter().map(|(_, nodes)| nodes).sum::<u32>(), nodes);
    assert!(segments.iter().rev().skip(1).all(|(_, nodes)| *nodes == segment), "only the last is smaller");
    assert!(choice.racks.iter().all(|used| used.segments + used.rest > 0), "no rack for nothing");
    assert!(choice.racks.windows(2).all(|pair| pair[0].rack < pair[1].rack));
    let left: u32 = choice.racks.iter().map(|used| left[used.rack as usize]).sum();
    assert_eq!(left, choice.left);
}

proptest! {
    #![proptest_config(config(1_500))]

    #[test]
    fn racks_are_chosen_as_brute_force_would(
        free in vec(0..=9_u32, 1..=9),
        nodes in 1..40_u32,
        segment in 1..8_u32,
        levels in select(vec![vec![], vec![1], vec![2], vec![1, 2], vec![1, 2, 3]]),
        within in select(vec![None, None, Some(0), Some(1), Some(2), Some(16)]),
    ) {
        let segment = segment.min(nodes);
        let found = place(&levels, &free, nodes, segment, within);
        let best = best(&levels, &free, nodes, segment, within);
        match &found {
            Ok(choice) => {
                check(choice, &free, nodes, segment);
                let racks = u32::try_from(choice.racks.len()).unwrap();
                let merit = (choice.level.unwrap_or(16), choice.blocks, racks, choice.left);
                prop_assert_eq!(best, Some(merit), "{:?}", choice);
                prop_assert!(choice.is_best);
            }
            Err(why) => prop_assert_eq!(best, None, "{}", why),
        }
        // A free node more never hurts.
        for i in 0..free.len() {
            let mut more = free.clone();
            more[i] += 1;
            prop_assert!(found.is_err() || place(&levels, &more, nodes, segment, within).is_ok());
        }
    }

    #[test]
    fn wide_racks_of_many_sizes_are_exchanged_exactly(
        free in vec(0..=40_u32, 6..=11),
        nodes in 20..200_u32,
        segment in 1..4_u32,
    ) {
        let found = place(&[], &free, nodes, segment, None);
        let best = best(&[], &free, nodes, segment, None);
        if let Ok(choice) = &found {
            check(choice, &free, nodes, segment);
        }
        let merit = found.ok().map(|choice| (u32::try_from(choice.racks.len()).unwrap(), choice.left));
        prop_assert_eq!(merit, best.map(|(_, _, racks, left)| (racks, left)));
    }
}

#[test]
fn segments_of_16_leave_two_nodes_of_a_rack_and_those_of_18_none() {
    // Two rows of 16 racks with 18 nodes each, 16 of them free in every second rack of the first.
    let free: Vec<u32> = (0..32).map(|i| if i < 16 && i % 2 == 0 { 16 } else { 18 }).collect();
    let choice = place(&[4], &free, 128, 16, None).unwrap();
    assert_eq!((choice.level, choice.racks.len(), choice.left), (Some(4), 8, 0));
    assert!(
        choice.racks.iter().all(|used| used.rack < 16 && used.rack % 2 == 0),
        "where nothing is left over"
    );
    let choice = place(&[4], &free, 18 * 16, 18, None).unwrap();
    assert_eq!((choice.level, choice.racks.first().unwrap().rack), (Some(4), 16));
    let choice = place(&[4], &free, 18 * 20, 18, None).unwrap();
    assert_eq!((choice.level, choice.blocks, choice.racks.len()), (None, 2, 20));
    let why = place(&[4], &free, 18 * 20, 18, Some(4)).unwrap_err();
    assert_eq!(
        why.to_string(),
        "no block of 16 racks has room for 20 segments of 18 nodes: 16 fit at most, 560 nodes are free"
    );
    let why = place(&[4], &free, 18 * 25, 18, None).unwrap_err();
    assert_eq!(
        why.to_string(),
        "there is no room for 25 segments of 18 nodes: 24 fit at most, 560 nodes are free"
    );
    let why = place(&[4], &free, 38, 19, None).unwrap_err();
    assert_eq!(why.to_string(), "no rack has 19 free nodes: 560 are free, 18 at most in one rack");
}

#[test]
fn a_rest_is_put_where_segments_leave_room() {
    let choice = place(&[], &[18, 18, 18], 34, 16, None).unwrap();
    assert_eq!(choice.segments_by_rank(16).collect::<Vec<_>>(), [(0, 16), (1, 16), (0, 2)]);
    let choice = place(&[], &[16, 18, 16], 34, 16, None).unwrap();
    assert_eq!(choice.segments_by_rank(16).collect::<Vec<_>>(), [(0, 16), (1, 16), (1, 2)]);
    assert!(place(&[], &[16, 17, 16], 50, 16, None).is_err());
}

#[test]
fn a_row_of_any_length_has_an_answer() {
    let free: Vec<u32> = (0..65_536).map(|i| i * 7 % 19).collect();
    for (nodes, segment) in [(400_000, 1), (30_000, 1), (30_001, 4), (1_024, 16), (590_000, 1)] {
        match place(&[4, 8], &free, nodes, segment, None) {
            Ok(choice) => check(&choice, &free, nodes, segment),
            Err(why) => assert!(nodes > free.iter().sum(), "{why}"),
        }
    }
    assert_eq!(place(&[], &[1; 65_537], 1, 1, None), Err(NoRacks::Bad(RacksError::TooManyRacks(65_537))));
    assert!(matches!(place(&[], &[1, 257], 1, 1, None), Err(NoRacks::Bad(_))));
    assert_eq!(place(&[], &[1], 0, 1, None), Err(NoRacks::Empty));
    assert!(Racks::new(&[17]).is_err());
    assert_eq!(
        place(&[1], &[], 5, 0, None).unwrap_err().to_string(),
        "no rack has 1 free nodes: 0 are free, 0 at most in one rack"
    );
    assert_eq!(place(&[1], &[3], u32::MAX, u32::MAX, Some(0)).map(|choice| choice.left).ok(), None);
}
