//! Tori of a cluster file, and where nodes stand in them.

use std::collections::BTreeMap;

use phalanx_model::{DomainName, NodeName, Torus, TorusPlace};
use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Serialize};

use super::{ClusterFile, DeclaredNode, NodeFile};
use crate::error::{Place, SpecError};
use crate::place::{At, Scalar, wrong};
use crate::scalar::{Bandwidth, Count, Sides};

/// Most tori in one file: a pod for each hundred of the largest cluster's nodes.
pub(super) const TORI_MAX: usize = 1_000;

/// Chips in a grid whose opposite faces may be joined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TorusFile {
    /// Name that nodes give.
    pub name: At<DomainName>,
    /// Chips along x, y and z: `16x20x28`.
    pub chips: At<Sides>,
    /// Sides that close to rings: `xyz`, `xy`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wraps: Option<At<Wraps>>,
    /// Whether the rings of the short sides come back shifted along the long ones. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub twisted: Option<At<bool>>,
    /// Chips along each side of the cubes that optical switches join: `4`. Default: there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cube: Option<At<Count>>,
    /// Chips of one host: `2x2x1`.
    pub host: At<Sides>,
    /// One link, one way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<At<Bandwidth>>,
}

/// Where a node stands in a torus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TorusPlaceFile {
    /// Name of the torus.
    pub name: At<DomainName>,
    /// Where its first chip is, along x, y and z from 0: `0,4,0`. Default: `0,0,0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<At<Spot>>,
}

/// Which sides close to rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wraps(pub [bool; 3]);

/// A chip along x, y and z, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot(pub [u16; 3]);

impl Scalar for Wraps {
    const ACCEPTED: &'static str = "the sides that close to rings, such as xyz or xy";

    fn read(text: &str) -> Result<Self, String> {
        let mut wraps = [false; 3];
        for letter in text.chars() {
            let side = "xyz".chars().position(|known| known == letter).and_then(|side| wraps.get_mut(side));
            match side {
                Some(side) if !*side => *side = true,
                _ => return Err(wrong(text, "is no set of sides")),
            }
        }
        Ok(Self(wraps))
    }

    fn write(&self) -> String {
        "xyz".chars().zip(self.0).filter(|(_, wraps)| *wraps).map(|(letter, _)| letter).collect()
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^x?y?z?$", "examples": ["xyz"] })
    }
}

impl Scalar for Spot {
    const ACCEPTED: &'static str = "chips along x, y and z from 0, such as 0,4,0";

    fn read(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(|part| part.trim().parse::<u16>());
        let parts = parts.collect::<Result<Vec<u16>, _>>().ok();
        let spot = parts.and_then(|parts| <[u16; 3]>::try_from(parts).ok());
        spot.map(Self).ok_or_else(|| wrong(text, "is no place of a chip"))
    }

    fn write(&self) -> String {
        let [x, y, z] = self.0;
        format!("{x},{y},{z}")
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+, ?[0-9]+, ?[0-9]+$", "examples": ["0,4,0"] })
    }
}

impl ClusterFile {
    pub(super) fn tori(&self) -> Result<Vec<Torus>, SpecError> {
        if let Some(beyond) = self.tori.get(TORI_MAX) {
            let what = format!("{} tori", self.tori.len());
            return Err(self.source.error(beyond.name.place, what, format!("at most {TORI_MAX}")));
        }
        let mut seen: BTreeMap<&DomainName, Place> = BTreeMap::new();
        for said in &self.tori {
            if let Some(first) = seen.insert(&said.name.value, said.name.place) {
                let what = format!("the torus {} is declared twice", said.name.value);
                let error = self.source.error(said.name.place, what, "give every torus a name of its own");
                return Err(error.also(&self.source, first, "the first"));
            }
        }
        self.tori.iter().map(|said| self.torus(said)).collect()
    }

    fn torus(&self, said: &TorusFile) -> Result<Torus, SpecError> {
        let (chips, host) = (said.chips.value.0, said.host.value.0);
        let cube = said.cube.map_or(0, |cube| u16::try_from(cube.value.0).unwrap_or(u16::MAX));
        for (chips, host) in chips.into_iter().zip(host) {
            if !chips.is_multiple_of(host) {
                let what = format!("{host} chips of a host do not divide a side of {chips}");
                let error = self.source.error(said.host.place, what, "expected whole hosts along each side");
                return Err(error.also(&self.source, said.chips.place, "the torus"));
            }
            if let Some(at) = said.cube.filter(|_| !chips.is_multiple_of(cube)) {
                let what = format!("cubes of {cube} chips do not divide a side of {chips}");
                let error = self.source.error(at.place, what, "expected whole cubes along each side");
                return Err(error.also(&self.source, said.chips.place, "the torus"));
            }
        }
        let link = said.link.map(|link| self.speed(link)).transpose()?.unwrap_or(0);
        Ok(Torus {
            name: said.name.value.clone(),
            chips,
            wraps: said.wraps.map_or([false; 3], |wraps| wraps.value.0),
            is_twisted: said.twisted.is_some_and(|twisted| twisted.value),
            cube,
            host_chips: host,
            link_mb_per_s: u32::try_from(link / 1_000_000).unwrap_or(u32::MAX),
        })
    }

    /// Of the nodes of one entry: the first where the file says, the others behind it along x, then y, then z.
    pub(super) fn places(&self, file: &NodeFile, tori: &[Torus]) -> Result<Vec<TorusPlace>, SpecError> {
        let Some(said) = &file.torus else { return Ok(Vec::new()) };
        let Some((index, torus)) = (0_u32..).zip(tori).find(|(_, torus)| torus.name == said.name.value)
        else {
            let what = format!("no torus is named {:?}", said.name.value.as_str());
            return Err(self.source.error(said.name.place, what, "expected one of `tori`"));
        };
        let place = said.at.map_or(said.name.place, |at| at.place);
        let first = said.at.map_or([0; 3], |at| at.value.0);
        let mut steps = [0_u64; 3];
        let mut before = 0_u64;
        let mut stride = 1_u64;
        for (((step, at), chips), host) in steps.iter_mut().zip(first).zip(torus.chips).zip(torus.host_chips)
        {
            if at >= chips || !at.is_multiple_of(host) {
                let what = format!("no host of {} stands there", torus.name);
                let [x, y, z] = torus.host_chips;
                let accepted = format!("expected whole hosts of {x}x{y}x{z} chips inside of it, from 0 on");
                return Err(self.source.error(place, what, accepted));
            }
            *step = u64::from(chips / host);
            before += u64::from(at / host) * stride;
            stride *= *step;
        }
        let (wanted, left) = (file.name.value.count() as u64, stride - before);
        if wanted > left {
            let what = format!("{wanted} hosts, and {left} stand there and behind it in {}", torus.name);
            return Err(self.source.error(place, what, "give each part of the torus an entry of its own"));
        }
        let [along_x, along_y, _] = steps;
        let spot = |host: u64| {
            let sides = [host % along_x, host / along_x % along_y, host / along_x / along_y];
            let mut at = [0; 3];
            for ((at, side), host) in at.iter_mut().zip(sides).zip(torus.host_chips) {
                *at = u16::try_from(side).unwrap_or(u16::MAX).saturating_mul(host);
            }
            TorusPlace { torus: index, at }
        };
        Ok((before..before + wanted).map(spot).collect())
    }

    /// No two nodes in one place.
    pub(super) fn check_places(
        &self,
        tori: &[Torus],
        nodes: &[DeclaredNode],
        said: &BTreeMap<NodeName, Place>,
    ) -> Result<(), SpecError> {
        let mut taken: BTreeMap<(u32, [u16; 3]), &DeclaredNode> = BTreeMap::new();
        for node in nodes {
            let Some(place) = node.torus else { continue };
            let Some(first) = taken.insert((place.torus, place.at), node) else { continue };
            let torus = tori.get(place.torus as usize).map_or("", |torus| torus.name.as_str());
            let spot = Spot(place.at).write();
            let what = format!("{} and {} both stand at {spot} of {torus}", first.name, node.name);
            let said_of = |node: &DeclaredNode| said.get(&node.name).copied().unwrap_or_default();
            let error = self.source.error(said_of(node), what, "give every node a place of its own");
            return Err(error.also(&self.source, said_of(first), "the first"));
        }
        Ok(())
    }
}
