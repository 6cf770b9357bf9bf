//! The name of a domain with several switches.

use std::collections::{BTreeMap, BTreeSet};

use crate::{DomainName, Graph};

/// A name per group: that of its one switch, or what the names of its switches begin with; the first switch's
/// name where that says nothing or is taken.
pub(super) fn name_switches(graph: &Graph, of_switch: &BTreeMap<u32, u32>) -> Vec<DomainName> {
    let mut members: BTreeMap<u32, Vec<&DomainName>> = BTreeMap::new();
    for (switch, group) in of_switch {
        if let Some(switch) = graph.switches.get(*switch as usize) {
            members.entry(*group).or_default().push(&switch.name);
        }
    }
    let stems: Vec<Option<DomainName>> = members.values().map(|names| stem(names)).collect();
    let mut seen: BTreeMap<&DomainName, u32> = BTreeMap::new();
    stems.iter().flatten().for_each(|stem| *seen.entry(stem).or_default() += 1);
    let switches: BTreeSet<&DomainName> = members.values().flatten().copied().collect();
    let mut names = Vec::with_capacity(members.len());
    for (stem, group) in stems.iter().zip(members.values()) {
        let unique = stem
            .as_ref()
            .filter(|stem| seen.get(*stem) == Some(&1) && (group.len() == 1 || !switches.contains(*stem)));
        names.extend(unique.or(group.first().copied()).cloned());
    }
    names
}

/// The longest common start, without a number cut in two and without separators at its end.
fn stem(names: &[&DomainName]) -> Option<DomainName> {
    let (first, rest) = names.split_first()?;
    if rest.is_empty() {
        return Some((*first).clone());
    }
    let mut common = first.as_str();
    for name in rest {
        let same = common.bytes().zip(name.as_str().bytes()).take_while(|(a, b)| a == b).count();
        common = common.get(..same)?;
    }
    // Whether the names go on with a digit where they part.
    let goes_on =
        names.iter().any(|name| name.as_str().as_bytes().get(common.len()).is_some_and(u8::is_ascii_digit));
    if goes_on {
        common = common.trim_end_matches(|c: char| c.is_ascii_digit());
    }
    DomainName::new(common.trim_end_matches(|c: char| !c.is_ascii_alphanumeric())).ok()
}
