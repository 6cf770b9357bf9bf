//! What changed inside a machine: devices, NICs, links.

use std::collections::BTreeMap;

use phalanx_model::ids::natural_cmp;
use phalanx_model::{Device, Link, LinkKind, Machine, Nic, Port};

use super::super::view::{compressed, gb_per_s};
use super::{Sign, came_and_left, in_both, known, was, was_known};

/// Where a machine is known on both sides, and in it only what both tell.
pub(super) fn compare(before: Option<&Machine>, after: Option<&Machine>) -> Vec<String> {
    let (Some(a), Some(b)) = (before, after) else { return Vec::new() };
    if std::ptr::eq(a, b) {
        return Vec::new();
    }
    let mut texts = Vec::new();
    if !a.devices.is_empty() && !b.devices.is_empty() {
        texts.extend(devices(a, b));
    }
    if !a.nics.is_empty() && !b.nics.is_empty() {
        texts.extend(nics(a, b));
    }
    texts.extend(links(a, b));
    let gib = |gib: &u64| format!("{gib} GiB of memory");
    texts.extend(was_known(known(a.memory_bytes >> 30), known(b.memory_bytes >> 30), gib));
    let cpus = |milli: &u64| format!("{} CPUs", milli / 1000);
    texts.extend(was_known(known(a.cpu_milli), known(b.cpu_milli), cpus));
    texts
}

fn named(name: &str, word: &str, index: usize) -> String {
    if name.is_empty() { format!("{word}{index}") } else { name.to_owned() }
}

fn verb(sign: Sign) -> &'static str {
    if sign == Sign::Left { "lost" } else { "gained" }
}

fn devices(a: &Machine, b: &Machine) -> Vec<String> {
    fn by_name(machine: &Machine) -> BTreeMap<String, &Device> {
        let devices = machine.devices.iter().enumerate();
        devices.map(|(at, device)| (named(&device.name, "GPU", at), device)).collect()
    }
    let (a, b) = (by_name(a), by_name(b));
    let mut texts = Vec::new();
    for sign in [Sign::Left, Sign::Came] {
        let names: Vec<&String> =
            came_and_left(&a, &b).filter(|(s, ..)| *s == sign).map(|(_, name, _)| name).collect();
        if !names.is_empty() {
            texts.push(format!(
                "{} {}: {} devices, was {}",
                verb(sign),
                compressed(&names),
                b.len(),
                a.len()
            ));
        }
    }
    // What changed alike on many devices is told once.
    let mut alike: BTreeMap<String, Vec<&String>> = BTreeMap::new();
    for (name, a, b) in in_both(&a, &b) {
        let sliced = |sliced: &bool| if *sliced { "sliced" } else { "whole" }.to_owned();
        let mib = |device: &Device| known(device.memory_bytes >> 20);
        let is_moved = a.pci_address.as_ref().zip(b.pci_address.as_ref()).is_some_and(|(a, b)| a != b);
        let changed = [
            was_known(known(a.model.as_str()), known(b.model.as_str()), |model| (*model).to_owned()),
            was_known(mib(a), mib(b), |mib| format!("{mib} MiB")),
            was_known(a.numa, b.numa, |numa| format!("NUMA node {numa}")),
            was(&a.is_sliced, &b.is_sliced, sliced),
            is_moved.then(|| "another PCI address".to_owned()),
        ];
        for text in changed.into_iter().flatten() {
            alike.entry(text).or_default().push(name);
        }
    }
    texts.extend(alike.into_iter().map(|(text, names)| format!("{}: {text}", compressed(&names))));
    texts
}

fn nics(a: &Machine, b: &Machine) -> Vec<String> {
    fn by_name(machine: &Machine) -> BTreeMap<String, &Nic> {
        machine.nics.iter().enumerate().map(|(at, nic)| (named(&nic.name, "NIC", at), nic)).collect()
    }
    let (a, b) = (by_name(a), by_name(b));
    let mut texts = Vec::new();
    for sign in [Sign::Left, Sign::Came] {
        let names: Vec<&String> =
            came_and_left(&a, &b).filter(|(s, ..)| *s == sign).map(|(_, name, _)| name).collect();
        if !names.is_empty() {
            texts.push(format!("{} {}: {} NICs, was {}", verb(sign), compressed(&names), b.len(), a.len()));
        }
    }
    for (name, a, b) in in_both(&a, &b) {
        let speed = |bytes: &u64| format!("{} GB/s", gb_per_s(bytes / 1_000_000));
        let told = |nic: &Nic| nic.bytes_per_s.filter(|_| !nic.is_assumed);
        texts.extend(was_known(told(a), told(b), speed).map(|text| format!("{name}: {text}")));
    }
    texts
}

/// Links between ports that are there on both sides. Pairs that changed alike are told of the port that has
/// most of them: one device that lost a link shows in every pair it is in.
fn links(a: &Machine, b: &Machine) -> Vec<String> {
    fn ports(machine: &Machine) -> Vec<(Port, String)> {
        let devices = (0_u32..)
            .zip(&machine.devices)
            .map(|(i, d)| (Port::Device(i), named(&d.name, "GPU", i as usize)));
        let nics =
            (0_u32..).zip(&machine.nics).map(|(i, n)| (Port::Nic(i), named(&n.name, "NIC", i as usize)));
        devices.chain(nics).collect()
    }
    fn by_ports(machine: &Machine) -> BTreeMap<(String, String), (LinkKind, u32)> {
        let names: BTreeMap<Port, String> = ports(machine).into_iter().collect();
        let link = |link: &Link| {
            let (a, b) = (names.get(&link.a)?.clone(), names.get(&link.b)?.clone());
            let pair = if natural_cmp(&a, &b).is_le() { (a, b) } else { (b, a) };
            Some((pair, (link.kind, link.nominal_mb_per_s)))
        };
        machine.links.iter().filter_map(link).collect()
    }
    let (old, new) = (by_ports(a), by_ports(b));
    let mut alike: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
    // A pair without a link was not readable.
    for (pair, was, is) in in_both(&old, &new) {
        let text = if was.0 != is.0 {
            format!("{}, was {}", is.0, was.0)
        } else if was.1 != is.1 && was.1 > 0 && is.1 > 0 {
            format!("{} GB/s, was {}", gb_per_s(is.1.into()), gb_per_s(was.1.into()))
        } else {
            continue;
        };
        alike.entry(text).or_default().push((&pair.0, &pair.1));
    }
    let mut texts = Vec::new();
    for (text, mut pairs) in alike {
        while !pairs.is_empty() {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            pairs.iter().flat_map(|(a, b)| [a, b]).for_each(|name| *counts.entry(name).or_default() += 1);
            let best = counts.iter().max_by_key(|(name, count)| (**count, std::cmp::Reverse(**name)));
            let Some((whose, _)) = best.map(|(name, count)| (*name, *count)) else { break };
            let (own, rest): (Vec<_>, Vec<_>) = pairs.iter().partition(|(a, b)| *a == whose || *b == whose);
            let others: Vec<&str> = own.iter().map(|(a, b)| if *a == whose { *b } else { *a }).collect();
            texts.push(format!("{whose} to {}: {text}", compressed(&others)));
            pairs = rest;
        }
    }
    texts
}
