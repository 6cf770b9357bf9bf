//! Attributes that must be the same, or different, for all devices of some requests.
//!
//! `distinctAttribute` holds for all devices that it covers, also of one request, as the API documents it.
//! Upstream's allocator compares a request's device with the last one of the same request only.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::DeviceConstraint;

use super::pools::Slot;

pub(super) struct Constraint<'a> {
    /// Requests and `request/subrequest`; none: all of the claim.
    requests: BTreeSet<&'a str>,
    attribute: &'a str,
    must_match: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Value<'a> {
    Int(i64),
    Bool(bool),
    Text(&'a str),
    Version(&'a str),
}

impl<'a> Constraint<'a> {
    /// None for a kind that is not known.
    pub(super) fn of(constraint: &'a DeviceConstraint) -> Option<Self> {
        let (attribute, must_match) = match (&constraint.match_attribute, &constraint.distinct_attribute) {
            (Some(attribute), None) => (attribute, true),
            (None, Some(attribute)) => (attribute, false),
            _ => return None,
        };
        let requests = constraint.requests.iter().flatten().map(String::as_str).collect();
        Some(Self { requests, attribute, must_match })
    }

    /// Whether it is about a choice, `request` or `request/subrequest`.
    pub(super) fn covers(&self, choice: &str) -> bool {
        let request = choice.split_once('/').map_or(choice, |(request, _)| request);
        self.requests.is_empty() || self.requests.contains(request) || self.requests.contains(choice)
    }

    /// Whether a device can join others that it covers. All of them need the attribute.
    pub(super) fn admits<'s>(
        &self,
        mut others: impl Iterator<Item = &'s Slot<'s>>,
        device: &Slot<'_>,
    ) -> bool {
        let mut values = self.values(device);
        if values.is_empty() {
            return false;
        }
        if self.must_match {
            // A list is what can match; a single value is a list of one.
            others.all(|other| {
                let of_other = self.values(other);
                values.retain(|value| of_other.contains(value));
                !values.is_empty()
            })
        } else {
            others.all(|other| !self.values(other).iter().any(|value| values.contains(value)))
        }
    }

    fn values<'d>(&self, slot: &'d Slot<'_>) -> Vec<Value<'d>> {
        let attributes = slot.device.attributes.as_ref();
        let own = self
            .attribute
            .split_once('/')
            .filter(|(domain, _)| *domain == slot.id.driver)
            .map(|(_, name)| name);
        let attribute =
            attributes.and_then(|attributes| attributes.get(self.attribute).or_else(|| attributes.get(own?)));
        let Some(attribute) = attribute else { return Vec::new() };
        let ints = attribute.int.iter().chain(attribute.ints.iter().flatten()).map(|int| Value::Int(*int));
        let bools =
            attribute.bool.iter().chain(attribute.bools.iter().flatten()).map(|truth| Value::Bool(*truth));
        let texts =
            attribute.string.iter().chain(attribute.strings.iter().flatten()).map(|text| Value::Text(text));
        let versions = attribute.version.iter().chain(attribute.versions.iter().flatten());
        ints.chain(bools).chain(texts).chain(versions.map(|version| Value::Version(version))).collect()
    }
}
