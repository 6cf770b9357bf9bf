//! One port of an adapter.

use std::net::Ipv4Addr;
use std::path::Path;

use super::{Check, Verdict, check};
use crate::sysfs::{entries, name_of, text};

/// An Ethernet MTU from which RDMA packets carry 4,096 bytes: RoCE takes the next lower of 256 to 4,096 below the MTU
/// less its headers.
const MTU_FOR_4096: u64 = 4_200;

/// An address of a RoCE port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Gid {
    index: u32,
    /// Of version 2, which is routed.
    address: Option<Ipv4Addr>,
    interface: Option<String>,
}

pub(super) fn examine(root: &Path, adapter: &str, port: &Path) -> Vec<Check> {
    let subject = format!("{adapter}:{}", name_of(port));
    // `4: ACTIVE`.
    let state = text(&port.join("state")).unwrap_or_default();
    let state = state.split_once(": ").map_or(state.as_str(), |(_, word)| word);
    let rate = text(&port.join("rate")).unwrap_or_else(|| "an unknown rate".to_owned());
    let layer = text(&port.join("link_layer")).unwrap_or_default();
    if state != "ACTIVE" {
        let physical = text(&port.join("phys_state")).unwrap_or_default();
        let physical = physical.split_once(": ").map_or(physical.as_str(), |(_, word)| word);
        let detail = format!("the port is {}, its link {}", lower(state), lower(physical));
        let hint = "look at the cable and the switch; an InfiniBand fabric also needs a subnet manager";
        return vec![check(Verdict::Weak, subject, detail, hint)];
    }
    let mut found = vec![];
    if layer == "Ethernet" {
        found.extend(roce(root, &subject, port, &rate));
    } else {
        found.push(check(Verdict::Good, subject.clone(), format!("active, {rate}, {layer}"), ""));
    }
    found.extend(errors(&subject, port));
    found
}

/// A port of Ethernet needs an IP address and large frames.
fn roce(root: &Path, subject: &str, port: &Path, rate: &str) -> Vec<Check> {
    let gids = gids(port);
    let Some(best) = gids.iter().find(|gid| gid.address.is_some()).or_else(|| gids.first()) else {
        let detail = format!("active, {rate}, RoCE, and it has no address of version 2");
        let hint = "give its network interface an IP address";
        return vec![check(Verdict::Broken, subject, detail, hint)];
    };
    let address = best.address.map_or_else(|| "IPv6".to_owned(), |address| address.to_string());
    let mut found = vec![check(
        Verdict::Good,
        subject,
        format!("active, {rate}, RoCE v2 with {address} (GID index {})", best.index),
        "",
    )];
    let Some(interface) = &best.interface else { return found };
    let folder = root.join("sys/class/net").join(interface);
    let mtu = text(&folder.join("mtu")).and_then(|mtu| mtu.parse::<u64>().ok());
    if let Some(mtu) = mtu.filter(|mtu| *mtu < MTU_FOR_4096) {
        let detail = format!(
            "{interface} has an MTU of {mtu}: packets are smaller than the 4096 bytes that RDMA could use"
        );
        let hint = format!("ip link set {interface} mtu 9000, on the switches too");
        found.push(check(Verdict::Weak, subject, detail, hint));
    }
    found.extend(congestion(subject, interface, &folder));
    found
}

/// Addresses of RoCE version 2, by index.
fn gids(port: &Path) -> Vec<Gid> {
    let attributes = port.join("gid_attrs");
    let mut found: Vec<Gid> = entries(&port.join("gids"))
        .iter()
        .filter_map(|path| {
            let index: u32 = name_of(path).parse().ok()?;
            let gid = text(path).filter(|gid| gid.chars().any(|c| !matches!(c, '0' | ':')))?;
            let kind = text(&attributes.join("types").join(index.to_string()))?;
            let interface = text(&attributes.join("ndevs").join(index.to_string()));
            (kind == "RoCE v2").then(|| Gid { index, address: ipv4(&gid), interface })
        })
        .collect();
    found.sort_by_key(|gid| gid.index);
    found
}

/// `0000:0000:0000:0000:0000:ffff:0a00:0001` is an address of IPv4 within one of IPv6.
fn ipv4(gid: &str) -> Option<Ipv4Addr> {
    gid.parse::<std::net::Ipv6Addr>().ok()?.to_ipv4_mapped()
}

/// Mellanox's driver says for each priority whether congestion is notified (ECN), at its sender and at its receiver.
fn congestion(subject: &str, interface: &str, folder: &Path) -> Option<Check> {
    let is_on = |side: &str| {
        let priorities = entries(&folder.join("ecn").join(side).join("enable"));
        let states: Vec<String> = priorities.iter().filter_map(|path| text(path)).collect();
        (!states.is_empty()).then(|| states.iter().any(|state| state == "1"))
    };
    let sides = [is_on("roce_np"), is_on("roce_rp")];
    sides.contains(&Some(false)).then(|| {
        let detail = format!(
            "{interface} notifies no congestion (ECN) for any priority: RoCE loses packets under load"
        );
        let hint = "turn ECN on for the priority of RDMA traffic, and PFC on adapters and switches";
        check(Verdict::Weak, subject, detail, hint)
    })
}

/// Errors since the counters were cleared.
fn errors(subject: &str, port: &Path) -> Option<Check> {
    let count =
        |name: &str| text(&port.join("counters").join(name)).and_then(|text| text.parse::<u64>().ok());
    let counters = [
        ("link_downed", "times down"),
        ("link_error_recovery", "recoveries of the link"),
        ("symbol_error", "symbol errors"),
    ];
    let seen: Vec<String> = counters
        .into_iter()
        .filter_map(|(name, what)| {
            count(name).filter(|count| *count > 0).map(|count| format!("{count} {what}"))
        })
        .collect();
    (!seen.is_empty()).then(|| {
        let detail = format!("{} since its counters were cleared", seen.join(", "));
        check(
            Verdict::Weak,
            subject,
            detail,
            "`perfquery -x` tells whether they grow; look at the cable if they do",
        )
    })
}

fn lower(word: &str) -> String {
    if word.is_empty() { "in an unknown state".to_owned() } else { word.to_lowercase() }
}
