//! How topologies are written: in one word or as fields.

use std::fmt;

use phalanx_model::LevelName;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_saphyr::Spanned;

use super::{SegmentFile, SpreadFile, TopologyFile};
use crate::error::Place;
use crate::place::At;
use crate::scalar::{Count, Mode, Sides, Wait};
use crate::short::{ShortOrLong, read_placed};
use crate::yaml;

/// The long form of a topology.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("anyOf" = [
    { "required": ["level"] }, { "required": ["mode"] }, { "required": ["segments"] }, { "required": ["spread"] },
    { "required": ["slice"] }
]))]
pub(crate) struct TopologyFields {
    /// All of the job inside one domain of this level, e.g. `leaf`.
    level: Option<At<LevelName>>,
    /// `preferred` (the default): inside one domain if possible, otherwise anywhere. `required`: inside one
    /// domain, or it does not start. Without a level, `nearest`: where its steps take the least time, or it does not start;
    /// `anywhere`: in any place that is free.
    mode: Option<At<Mode>>,
    /// How long to hold out for such a domain before any other place is taken, whatever the `mode`. Default:
    /// `required` holds out for ever, and `preferred` as long as its queue says, or not at all. `priced`: until that
    /// has cost as much as another place would, by the predicted slowdown and the time limit; `priced:2` where an hour
    /// of waiting is worth two of running.
    wait: Option<At<Wait>>,
    /// Parts of the job that must each share a lower domain, the smaller inside the larger:
    /// `[32@leaf, 8@node]`.
    #[serde(default)]
    segments: Vec<SegmentFile>,
    /// At most so many ranks inside one domain of a level, so that one failure takes no more: `1@rack`, or a list.
    #[serde(default)]
    spread: SpreadsFile,
    /// Chips along x, y and z of a torus, in any rotation: `4x4x8`. All GPUs of the job are such a box of one torus.
    slice: Option<At<Sides>>,
}

impl TryFrom<TopologyFields> for TopologyFile {
    type Error = &'static str;

    fn try_from(
        TopologyFields { level, mode, wait, segments, spread, slice }: TopologyFields,
    ) -> Result<Self, &'static str> {
        let SpreadsFile(spread) = spread;
        let says_parts = !segments.is_empty() || !spread.is_empty() || slice.is_some();
        let is_about_none =
            mode.as_ref().is_some_and(|mode| matches!(mode.value, Mode::Nearest | Mode::Anywhere));
        if level.is_none() && !is_about_none && (!says_parts || mode.is_some() || wait.is_some()) {
            return Err("level");
        }
        Ok(Self { level, mode, wait, segments, spread, slice })
    }
}

impl ShortOrLong for TopologyFile {
    type Fields = TopologyFields;
    const EXPECTED: &'static str = "LEVEL, LEVEL:required, LEVEL:preferred, each with @WAIT or without, such as leaf:required or leaf:preferred@10m, nearest, nearest@10m, anywhere, or {level, mode, wait, segments, spread, slice}";

    fn short(text: &str) -> Result<Self, String> {
        Self::from_short(text, Place::Nowhere)
    }

    fn set_place(&mut self, place: Place) {
        self.level.iter_mut().for_each(|level| level.place = place);
        self.mode.iter_mut().for_each(|mode| mode.place = place);
        self.wait.iter_mut().for_each(|wait| wait.place = place);
    }
}

impl<'de> Deserialize<'de> for TopologyFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_placed(deserializer)
    }
}

impl JsonSchema for TopologyFile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TopologyFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let fields = TopologyFields::json_schema(generator);
        json_schema!({ "anyOf": [
            {
                "type": "string",
                "description": "LEVEL[:required|preferred][@WAIT], nearest[@WAIT] or anywhere",
                "pattern": "^[^@]+(:(required|preferred))?(@.+)?$",
                "examples": ["leaf", "leaf:required", "leaf:preferred@10m", "anywhere"],
            },
            fields,
        ]})
    }
}

/// The long form of a segment.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SegmentFields {
    /// Number of consecutive ranks. Where it does not divide the job, the last segment is smaller.
    size: At<Count>,
    /// Each segment inside one domain of this level, e.g. `node`.
    level: At<LevelName>,
}

impl TryFrom<SegmentFields> for SegmentFile {
    type Error = &'static str;

    fn try_from(SegmentFields { size, level }: SegmentFields) -> Result<Self, &'static str> {
        Ok(Self { size, level })
    }
}

impl ShortOrLong for SegmentFile {
    type Fields = SegmentFields;
    const EXPECTED: &'static str = "RANKS@LEVEL, such as 8@node, or {size, level}";

    fn short(text: &str) -> Result<Self, String> {
        Self::from_short(text, Place::Nowhere)
    }

    fn set_place(&mut self, place: Place) {
        self.size.place = place;
        self.level.place = place;
    }
}

impl<'de> Deserialize<'de> for SegmentFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_placed(deserializer)
    }
}

impl JsonSchema for SegmentFile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SegmentFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let fields = SegmentFields::json_schema(generator);
        json_schema!({ "anyOf": [
            {
                "type": "string",
                "description": "RANKS@LEVEL",
                "pattern": "^[0-9]+@[A-Za-z0-9._/:-]{1,253}$",
                "examples": ["32@leaf", "8@node"],
            },
            fields,
        ]})
    }
}

/// The long form of a spread.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpreadFields {
    /// Domains of this level, e.g. `rack`.
    level: At<LevelName>,
    /// Ranks inside one of them, at most.
    max: At<Count>,
}

impl TryFrom<SpreadFields> for SpreadFile {
    type Error = &'static str;

    fn try_from(SpreadFields { level, max }: SpreadFields) -> Result<Self, &'static str> {
        Ok(Self { level, max })
    }
}

impl ShortOrLong for SpreadFile {
    type Fields = SpreadFields;
    const EXPECTED: &'static str = "RANKS@LEVEL, such as 1@rack, or {level, max}";

    fn short(text: &str) -> Result<Self, String> {
        Self::from_short(text, Place::Nowhere)
    }

    fn set_place(&mut self, place: Place) {
        self.level.place = place;
        self.max.place = place;
    }
}

impl<'de> Deserialize<'de> for SpreadFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_placed(deserializer)
    }
}

impl JsonSchema for SpreadFile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SpreadFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let fields = SpreadFields::json_schema(generator);
        json_schema!({ "anyOf": [
            {
                "type": "string",
                "description": "RANKS@LEVEL",
                "pattern": "^[0-9]+@[A-Za-z0-9._/:-]{1,253}$",
                "examples": ["1@rack"],
            },
            fields,
        ]})
    }
}

/// One spread, or several of different levels.
#[derive(Default)]
struct SpreadsFile(Vec<SpreadFile>);

impl<'de> Deserialize<'de> for SpreadsFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = SpreadsFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}, or a list of such", SpreadFile::EXPECTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<SpreadsFile, E> {
                SpreadFile::short(text).map(|one| SpreadsFile(vec![one])).map_err(E::custom)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<SpreadsFile, A::Error> {
                let SpreadFields { level, max } =
                    SpreadFields::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(SpreadsFile(vec![SpreadFile { level, max }]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<SpreadsFile, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = list.next_element()? {
                    all.push(one);
                }
                Ok(SpreadsFile(all))
            }
        }

        struct Unplaced(SpreadsFile);

        impl<'de> Deserialize<'de> for Unplaced {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Visitor).map(Self)
            }
        }

        let spanned = Spanned::<Unplaced>::deserialize(deserializer)?;
        let Unplaced(mut all) = spanned.value;
        for one in all.0.iter_mut().filter(|one| matches!(one.max.place, Place::Nowhere)) {
            one.set_place(yaml::place_of(&spanned.referenced));
        }
        Ok(all)
    }
}

impl JsonSchema for SpreadsFile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SpreadsFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<SpreadFile>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
    }
}
