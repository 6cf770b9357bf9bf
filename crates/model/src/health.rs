//! The health of nodes and devices: grades, which an agent derives from evidence (telemetry, the kernel log, people).
//! Grades are facts for the engine; the evidence is not.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{DeviceMask, NodeName};

/// How far a device or a node can be trusted, from best to worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    #[default]
    Ok,
    /// Takes work as before, and is watched.
    Suspect,
    /// No new gangs are placed there. Running gangs go on.
    DrainAfterJob,
    /// No new gangs are placed there, and running gangs are stopped and placed elsewhere.
    DrainNow,
    /// As [`Self::DrainNow`], and only a repair brings it back.
    Broken,
}

impl Grade {
    pub const ALL: [Self; 5] = [Self::Ok, Self::Suspect, Self::DrainAfterJob, Self::DrainNow, Self::Broken];

    /// Whether new gangs are placed elsewhere.
    #[must_use]
    pub fn is_closed(self) -> bool {
        self >= Self::DrainAfterJob
    }

    /// Whether running gangs leave.
    #[must_use]
    pub fn drains(self) -> bool {
        self >= Self::DrainNow
    }

    /// The grade as users read it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Suspect => "suspect",
            Self::DrainAfterJob => "drain_after_job",
            Self::DrainNow => "drain_now",
            Self::Broken => "broken",
        }
    }

    /// The grade of a word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|grade| grade.word() == word)
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// In journals a grade is a number from 0, broken, to 100, ok, as it was before grades had words.
mod number {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Grade;

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    pub(super) fn serialize<S: Serializer>(grade: &Grade, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(match grade {
            Grade::Ok => 100,
            Grade::Suspect => 75,
            Grade::DrainAfterJob => 50,
            Grade::DrainNow => 25,
            Grade::Broken => 0,
        })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Grade, D::Error> {
        Ok(match u8::deserialize(deserializer)? {
            0..25 => Grade::Broken,
            25..50 => Grade::DrainNow,
            50..75 => Grade::DrainAfterJob,
            75..100 => Grade::Suspect,
            100.. => Grade::Ok,
        })
    }
}

/// The grade of devices of a node, or of the node itself, changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Health {
    pub node: NodeName,
    /// Empty: the node itself.
    pub devices: DeviceMask,
    #[serde(with = "number")]
    #[cfg_attr(feature = "schema", schemars(with = "u8"))]
    pub grade: Grade,
    /// The evidence, in words: `Xid 79, the GPU has fallen off the bus`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// A grade with its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Graded {
    pub grade: Grade,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// The grades of a node and its devices that are not [`Grade::Ok`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeHealth {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Graded>,
    /// By the number of the device.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<u32, Graded>,
}

impl NodeHealth {
    /// Whether everything is [`Grade::Ok`].
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.node.is_none() && self.devices.is_empty()
    }

    /// Whether the node itself takes new gangs.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.node.as_ref().is_none_or(|of| !of.grade.is_closed())
    }

    /// The devices that no new gang may have.
    #[must_use]
    pub fn closed_devices(&self) -> DeviceMask {
        let closed = self.devices.iter().filter(|(_, of)| of.grade.is_closed());
        closed.fold(DeviceMask::EMPTY, |all, (device, _)| all.union(DeviceMask::one(*device)))
    }

    /// Whether new gangs are placed elsewhere than on the node, or on any of its devices.
    #[must_use]
    pub fn closes(&self) -> bool {
        self.node.iter().chain(self.devices.values()).any(|of| of.grade.is_closed())
    }

    /// Whether running gangs leave the node, or one of these devices.
    #[must_use]
    pub fn drains_any(&self, devices: DeviceMask) -> bool {
        let is_one = |(device, of): (&u32, &Graded)| of.grade.drains() && devices.contains(*device);
        self.node.as_ref().is_some_and(|of| of.grade.drains()) || self.devices.iter().any(is_one)
    }

    /// The worst grade that closes the node or one of these devices to new gangs, with the device; `None`: no such grade.
    #[must_use]
    pub fn closing(&self, devices: DeviceMask) -> Option<(Option<u32>, &Graded)> {
        let of_devices = self.devices.iter().filter(|(device, _)| devices.contains(**device));
        let all = self.node.iter().map(|of| (None, of)).chain(of_devices.map(|(at, of)| (Some(*at), of)));
        all.filter(|(_, of)| of.grade.is_closed()).max_by_key(|(at, of)| (of.grade, std::cmp::Reverse(*at)))
    }

    /// Sets grades. Returns whether one changed.
    pub fn set(&mut self, fact: &Health) -> bool {
        let before = self.clone();
        let graded = Graded { grade: fact.grade, detail: fact.detail.clone() };
        let graded = (fact.grade != Grade::Ok).then_some(graded);
        if fact.devices.is_empty() {
            self.node = graded;
        } else if let Some(graded) = graded {
            self.devices.extend(fact.devices.iter().map(|device| (device, graded.clone())));
        } else {
            self.devices.retain(|device, _| !fact.devices.contains(*device));
        }
        *self != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(devices: &str, grade: Grade) -> Health {
        let devices = if devices.is_empty() { DeviceMask::EMPTY } else { devices.parse().unwrap() };
        Health { node: NodeName::new("a").unwrap(), devices, grade, detail: "Xid 48".into() }
    }

    #[test]
    fn grades_close_devices_until_they_are_ok_again() {
        let mut health = NodeHealth::default();
        assert!(health.set(&fact("1-3", Grade::DrainNow)) && !health.set(&fact("2", Grade::DrainNow)));
        assert!(health.set(&fact("2", Grade::Suspect)));
        assert_eq!(health.closed_devices().to_string(), "1,3");
        assert!(health.set(&fact("", Grade::DrainAfterJob)) && !health.is_open());
        let closing = |devices: &str| health.closing(devices.parse().unwrap()).map(|(at, of)| (at, of.grade));
        assert_eq!(closing("2-3"), Some((Some(3), Grade::DrainNow)));
        assert_eq!(closing("2"), Some((None, Grade::DrainAfterJob)));
        assert!(health.set(&fact("", Grade::Ok)) && health.is_open());
        assert!(health.set(&fact("1-3", Grade::Ok)) && health.is_ok());
    }

    #[test]
    fn grades_are_words_and_numbers_in_journals() {
        for (grade, number) in Grade::ALL.into_iter().zip([100, 75, 50, 25, 0]) {
            assert_eq!(serde_json::to_string(&grade).unwrap(), format!("\"{grade}\""));
            assert_eq!(Grade::of_word(grade.word()), Some(grade));
            let fact = fact("2", grade);
            let written = serde_json::to_value(&fact).unwrap();
            assert_eq!(written["grade"], number);
            assert_eq!(serde_json::from_value::<Health>(written).unwrap(), fact);
        }
        let read = |grade: u8| {
            let text = format!("{{\"node\":\"a\",\"devices\":4,\"grade\":{grade}}}");
            serde_json::from_str::<Health>(&text).unwrap().grade
        };
        assert_eq!([read(1), read(60), read(255)], [Grade::Broken, Grade::DrainAfterJob, Grade::Ok]);
    }
}
