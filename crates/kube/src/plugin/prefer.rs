//! Which devices are preferred, given what pods are expected.

use std::collections::BTreeSet;

use phalanx_model::DeviceMask;

use crate::api::Pod;
use crate::gang::pods::DEVICES;

/// A pod that will start here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// `namespace/name`.
    pub pod: String,
    /// In the order in which its containers get them.
    pub devices: Vec<String>,
}

/// Pods of a node that still have to start, as their bindings say; `names` has the devices of the node by their numbers.
#[must_use]
pub fn expected_of<'p>(pods: impl IntoIterator<Item = &'p Pod>, names: &[String]) -> Vec<Expected> {
    let is_waiting = |pod: &&Pod| !pod.is_over() && pod.status.phase.as_deref() != Some("Running");
    let expected = pods.into_iter().filter(is_waiting).filter_map(|pod| {
        let chosen: DeviceMask = pod.annotation(DEVICES)?.parse().ok()?;
        let devices: Vec<String> =
            chosen.iter().filter_map(|index| names.get(index as usize).cloned()).collect();
        (!devices.is_empty()).then(|| Expected { pod: pod.path(), devices })
    });
    expected.collect()
}

/// So many of the available devices, those that must be among them first. A pod whose free devices are exactly as
/// many as are asked for comes before one that has more; where there is none, devices that nobody expects come
/// first. Fewer than asked for where there are no more.
pub(super) fn preferred(
    available: &[String],
    must: &[String],
    count: usize,
    expected: &[Expected],
) -> Vec<String> {
    let free: BTreeSet<&String> = available.iter().collect();
    let chosen = chosen(available, must, count, expected);
    let wanted: BTreeSet<&String> = expected.iter().flat_map(|pod| &pod.devices).collect();
    let nobodys = available.iter().filter(|device| !wanted.contains(device));
    let rest = nobodys.chain(available.iter().filter(|device| wanted.contains(device)));

    let mut preferred: Vec<String> = Vec::new();
    for device in must.iter().chain(chosen.iter().flatten()).chain(rest) {
        if preferred.len() < count && free.contains(device) && !preferred.contains(device) {
            preferred.push(device.clone());
        }
    }
    preferred
}

/// The free devices of a pod that may be the one that asks.
pub(super) fn chosen(
    available: &[String],
    must: &[String],
    count: usize,
    expected: &[Expected],
) -> Option<Vec<String>> {
    let free: BTreeSet<&String> = available.iter().collect();
    let of_pod = |pod: &Expected| -> Vec<String> {
        pod.devices.iter().filter(|device| free.contains(device)).cloned().collect()
    };
    let fits =
        |devices: &Vec<String>| devices.len() >= count && must.iter().all(|device| devices.contains(device));
    expected.iter().map(of_pod).filter(fits).min_by_key(Vec::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(devices: &str) -> Vec<String> {
        devices.split_whitespace().map(str::to_owned).collect()
    }

    fn expects(pods: &[&str]) -> Vec<Expected> {
        pods.iter().map(|devices| Expected { pod: format!("of {devices}"), devices: list(devices) }).collect()
    }

    #[test]
    fn the_choice_of_a_pod_that_wants_so_many_is_preferred() {
        let cases = [
            ("a b c d", "", 2, &["c d"][..], "c d"),
            ("a b c d", "", 2, &["a b c", "d b"], "d b"),
            ("a b c d", "", 1, &["c d"], "c"),
            // The first container of the pod has `c`.
            ("a b d", "", 1, &["c d"], "d"),
            // What is chosen is not free: devices that nobody expects.
            ("a b c", "", 2, &["c d"], "a b"),
            ("a b c", "", 3, &["a"], "b c a"),
            ("a b c d", "a", 2, &["c d", "b a"], "a b"),
            ("a b", "", 3, &[], "a b"),
            ("a b", "", 0, &["a"], ""),
        ];
        for (available, must, count, pods, expected) in cases {
            let got = preferred(&list(available), &list(must), count, &expects(pods));
            assert_eq!(got, list(expected), "{count} of {available} with {pods:?}");
        }
    }

    #[test]
    fn pods_that_still_have_to_start_are_expected() {
        let pod = |phase: &str, devices: &str| -> Pod {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": phase, "namespace": "n", "annotations": {DEVICES: devices}},
                "spec": {"containers": []}, "status": {"phase": phase},
            }))
            .unwrap()
        };
        let pods = [
            pod("Pending", "0,2-3"),
            pod("Running", "1"),
            pod("Failed", "4"),
            pod("Unknown", "-"),
            pod("Odd", "GPU-1"),
        ];
        let expected = vec![Expected { pod: "n/Pending".to_owned(), devices: list("a c d") }];
        assert_eq!(expected_of(&pods, &list("a b c d e")), expected);
        // A number that no device of the node has is nobody's.
        assert_eq!(expected_of(&pods, &list("a b c"))[0].devices, list("a c"));
    }
}
