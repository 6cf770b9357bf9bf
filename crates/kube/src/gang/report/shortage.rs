//! What a pod requests that no node offers, even an empty one: which resource, how much of it, and what the largest node has.
//!
//! The engine counts members; a person has to know which field of the pod to change, or which nodes to buy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use phalanx_model::JobId;
use phalanx_model::show::milli;

use crate::api;
use crate::cluster::nodes::NodeState;
use crate::filter::{Amounts, Capacity, DividedGpus, Held, Lack, Refusal, Requirements};
use crate::gang::Lifecycle;
use crate::gang::state::Seat;

/// The most requests of a gang that one message names.
const NAMED_MAX: usize = 3;

const KIB: u64 = 1 << 10;

/// What nodes offer, and what requests lack there: counted once until nodes change.
#[derive(Default)]
pub(in crate::gang) struct Shortages {
    seen: Option<u64>,
    offers: Vec<(api::Node, Capacity)>,
    /// By request, and whether claims for devices serve what nodes do not offer.
    known: BTreeMap<(Arc<Requirements>, bool), Option<Shortage>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Shortage {
    /// The resources of which no node has enough.
    resources: BTreeSet<Box<str>>,
    text: Arc<str>,
}

impl Lifecycle {
    /// What the pods of a gang request and no node has, as a clause; `None` if a node could hold each of them alone.
    pub(in crate::gang) fn shortage(&mut self, job: JobId) -> Option<String> {
        self.shortages_of(job).map(|(text, _)| text)
    }

    /// Why the engine refused a gang, with what is short; and whether that is a resource that nodes may bring which are not
    /// there yet.
    pub(in crate::gang) fn refusal_in_full(&mut self, job: JobId, why: &str) -> (String, bool) {
        let Some((text, resources)) = self.shortages_of(job) else { return (why.to_owned(), false) };
        // The engine names a resource that it has never heard of, and those that it has.
        let is_of = |resource: &str| {
            why.strip_prefix(resource).is_some_and(|rest| rest.starts_with(": this cluster has"))
                || why.contains(&format!(".{resource}: this cluster has"))
        };
        if resources.iter().any(|resource| is_of(resource)) {
            (text, true)
        } else {
            (format!("{why}; {text}"), false)
        }
    }

    fn shortages_of(&mut self, job: JobId) -> Option<(String, BTreeSet<Box<str>>)> {
        let gang = self.gangs.get(self.jobs.get(&job)?)?;
        let seats = &gang.job.as_ref()?.seats;
        let has_roles = seats.iter().any(|seat| seat.role != seats[0].role);
        let of_seat = |seat: &Seat| (Arc::clone(&seat.requirements), seat.more.claims.is_some());
        let mut asked: BTreeMap<(Arc<Requirements>, bool), &Seat> = BTreeMap::new();
        for seat in seats {
            asked.entry(of_seat(seat)).or_insert(seat);
        }
        let mut texts = Vec::new();
        let mut resources = BTreeSet::new();
        for (request, seat) in asked {
            let Some(shortage) = self.shortages.of(&self.cluster.nodes, request) else { continue };
            let whose = seat.role.as_ref().filter(|_| has_roles);
            let whose = whose.map_or(String::new(), |role| format!("pods of {role}: "));
            texts.push(format!("{whose}{}", shortage.text));
            resources.extend(shortage.resources);
        }
        texts.extend(self.unused_shares(seats));
        let more = texts.len().saturating_sub(NAMED_MAX);
        texts.truncate(NAMED_MAX);
        if more > 0 {
            texts.push(format!("and {more} more requests that no node can hold"));
        }
        (!texts.is_empty()).then(|| (texts.join("; "), resources))
    }
}

impl Shortages {
    fn of(&mut self, nodes: &NodeState, request: (Arc<Requirements>, bool)) -> Option<Shortage> {
        let version = nodes.offers_version();
        if self.seen != Some(version) {
            let offered = nodes.offered().filter_map(|(_, node, _)| {
                let capacity = Capacity::of(node).ok()?;
                Some((node.clone(), capacity))
            });
            *self = Self { seen: Some(version), offers: offered.collect(), known: BTreeMap::new() };
        }
        if let Some(known) = self.known.get(&request) {
            return known.clone();
        }
        let shortage = self.find(&request.0, request.1);
        self.known.insert(request, shortage.clone());
        shortage
    }

    fn find(&self, pod: &Requirements, has_claims: bool) -> Option<Shortage> {
        let mut refusals: BTreeMap<Refusal, usize> = BTreeMap::new();
        let mut largest = Amounts::default();
        let mut matching = 0;
        for (node, capacity) in &self.offers {
            if let Err(refusal) = pod.terms.admits(node) {
                *refusals.entry(refusal).or_default() += 1;
                continue;
            }
            if let Some(Err(refusal)) = DividedGpus::of(node).map(|divided| divided.admits(pod)) {
                *refusals.entry(refusal).or_default() += 1;
                continue;
            }
            let mut lacking = capacity.lacking(&Held::default(), pod);
            lacking.retain(|lack| !(has_claims && is_extended(lack, pod)));
            if lacking.is_empty() {
                return None;
            }
            matching += 1;
            largest.raise(&capacity.amounts);
        }
        let all = self.offers.len();
        if all == 0 {
            return None;
        }
        if matching == 0 {
            let why: Vec<String> =
                refusals.iter().map(|(refusal, count)| format!("{count} {refusal}")).collect();
            let text = format!("0 of {all} nodes may have such a pod: {}", why.join(", "));
            return Some(Shortage { resources: BTreeSet::new(), text: text.into() });
        }
        let which = if matching < all { "node that may have it" } else { "node" };
        let mut resources = BTreeSet::new();
        let mut texts = Vec::new();
        let mut all_asked = Vec::new();
        for Asked { name, wants, has } in
            asked(pod, &largest).filter(|of| !(has_claims && of.is_extended(pod)))
        {
            all_asked.push(format!("{name}: {}", amount(name, wants, true)));
            if wants > has {
                let most = match has {
                    0 => format!("no {which} has any"),
                    _ => format!("the largest {which} has {}", amount(name, has, false)),
                };
                texts.push(format!("{name}: {} requested, {most}", amount(name, wants, true)));
                resources.insert(Box::from(name));
            }
        }
        if texts.is_empty() {
            texts.push(format!("no node has all of {} at once", all_asked.join(", ")));
        }
        // Such nodes offer the resource, and a person who sees that has to know why they are not used.
        let divided = refusals.iter().filter(|(refusal, _)| matches!(refusal, Refusal::Divided { .. }));
        texts.extend(divided.map(|(refusal, count)| format!("{count} {refusal}")));
        Some(Shortage { resources, text: texts.join(", ").into() })
    }
}

/// A resource that a pod requests, and the most that a node has of it.
struct Asked<'a> {
    name: &'a str,
    wants: u64,
    has: u64,
}

impl Asked<'_> {
    fn is_extended(&self, pod: &Requirements) -> bool {
        pod.amounts.extended.contains_key(self.name)
    }
}

fn is_extended(lack: &Lack, pod: &Requirements) -> bool {
    pod.amounts.extended.contains_key(lack.name())
}

fn asked<'a>(pod: &'a Requirements, largest: &'a Amounts) -> impl Iterator<Item = Asked<'a>> {
    let wants = &pod.amounts;
    let plain = [
        ("cpu", wants.cpu_milli, largest.cpu_milli),
        ("memory", wants.memory_bytes, largest.memory_bytes),
        ("ephemeral-storage", wants.ephemeral_bytes, largest.ephemeral_bytes),
    ];
    let extended = wants
        .extended
        .iter()
        .map(|(name, wants)| (&**name, *wants, largest.extended.get(name).copied().unwrap_or(0)));
    let all = plain.into_iter().chain(extended).filter(|(_, wants, _)| *wants > 0);
    all.map(|(name, wants, has)| Asked { name, wants, has })
}

impl Amounts {
    /// The larger amount of each resource.
    fn raise(&mut self, other: &Self) {
        self.cpu_milli = self.cpu_milli.max(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.max(other.memory_bytes);
        self.ephemeral_bytes = self.ephemeral_bytes.max(other.ephemeral_bytes);
        for (name, amount) in &other.extended {
            let most = self.extended.entry(name.clone()).or_default();
            *most = (*most).max(*amount);
        }
    }
}

/// As people write it. Requests are rounded up and offers down, so that the smaller one looks smaller.
fn amount(name: &str, amount: u64, is_up: bool) -> String {
    match name {
        "cpu" => milli(amount),
        "memory" | "ephemeral-storage" => bytes(amount, is_up),
        name if name.starts_with("hugepages-") => bytes(amount, is_up),
        _ => amount.to_string(),
    }
}

fn bytes(bytes: u64, is_up: bool) -> String {
    let units = [("GiB", KIB * KIB * KIB), ("MiB", KIB * KIB), ("KiB", KIB)];
    let Some((unit, of)) = units.into_iter().find(|(_, of)| bytes >= *of) else {
        return format!("{bytes} bytes");
    };
    let (whole, rest) = (bytes / of, u128::from(bytes % of) * 10);
    let tenths = if is_up { rest.div_ceil(u128::from(of)) } else { rest / u128::from(of) };
    match tenths {
        0 => format!("{whole} {unit}"),
        10 => format!("{} {unit}", whole + 1),
        tenths => format!("{whole}.{tenths} {unit}"),
    }
}

#[cfg(test)]
mod tests;
