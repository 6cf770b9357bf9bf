//! How close together a job must be: the whole of it, and its segments.

use std::fmt;
use std::marker::PhantomData;

use phalanx_model::{LaunchKind, LevelName, Segment, Topology};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_saphyr::Spanned;

use crate::error::{Place, SpecError};
use crate::job::JobFile;
use crate::place::{At, Scalar, wrong};
use crate::scalar::{Count, Mode, Span};
use crate::shape::Shape;
use crate::yaml;

/// Segments inside each other, as many as the engine takes.
const SEGMENTS_MAX: usize = 8;

/// How close together the whole job must or should be, and which parts of it share a lower domain. It has a level,
/// or segments, or both.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TopologyFile {
    /// All of the job inside one domain of this level, e.g. `leaf`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<At<LevelName>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<At<Mode>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<At<Span>>,
    /// In any order; the larger hold the smaller.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<SegmentFile>,
}

/// Consecutive ranks that must share a domain. Where the size does not divide the job, the last segment is smaller.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SegmentFile {
    /// Ranks.
    pub size: At<Count>,
    pub level: At<LevelName>,
}

impl TopologyFile {
    pub(crate) const SHORT: &'static str = "LEVEL, LEVEL:required, LEVEL:preferred, each with @WAIT or without, such as leaf:required or leaf:preferred@10m";

    /// Reads the short form `LEVEL[:required|preferred][@wait]`.
    ///
    /// # Errors
    /// What is wrong, and on the second line what is accepted.
    pub fn from_short(text: &str, place: Place) -> Result<Self, String> {
        let (rest, wait) = match text.split_once('@') {
            Some((rest, wait)) => (rest, Some(Span::read_at(wait, place)?)),
            None => (text, None),
        };
        let (level, mode) = match rest.rsplit_once(':') {
            Some((level, mode)) => (level, Some(Mode::read_at(mode, place)?)),
            None => (rest, None),
        };
        let level = LevelName::read(level)
            .map_err(|_| format!("{}\n{}", wrong(text, "does not begin with a level"), Self::SHORT))?;
        Ok(Self { level: Some(At::new(level, place)), mode, wait, segments: Vec::new() })
    }
}

impl SegmentFile {
    const SHORT: &'static str = "RANKS@LEVEL, such as 8@node";

    /// Reads the short form `RANKS@LEVEL`.
    ///
    /// # Errors
    /// What is wrong, and on the second line what is accepted.
    pub fn from_short(text: &str, place: Place) -> Result<Self, String> {
        let Some((size, level)) = text.split_once('@') else {
            return Err(format!("{}\n{}", wrong(text, "names no level"), Self::SHORT));
        };
        Ok(Self { size: Count::read_at(size, place)?, level: LevelName::read_at(level, place)? })
    }
}

impl JobFile {
    /// A level that is held out for is preferred for that long, also when it is called required: the model's
    /// required level is never given up.
    pub(crate) fn topology(&self, shape: &Shape) -> Result<Topology, SpecError> {
        let Some(topology) = &self.topology else { return Ok(Topology::default()) };
        let level = topology.level.as_ref().map(|level| level.value.clone());
        let mode = topology.mode.map_or(Mode::Preferred, |mode| mode.value);
        let whole = match (mode, topology.wait) {
            (Mode::Required, None) => Topology { required: level, ..Topology::default() },
            (Mode::Required | Mode::Preferred, wait) => Topology {
                preferred: level,
                wait_ms: wait.map_or(0, |wait| wait.value.millis()),
                ..Topology::default()
            },
        };
        Ok(Topology { segments: self.segments(&topology.segments, shape)?, ..whole })
    }

    /// Segments of members, widest first: each a whole number of times the next.
    fn segments(&self, written: &[SegmentFile], shape: &Shape) -> Result<Vec<Segment>, SpecError> {
        let mut widest_first: Vec<&SegmentFile> = written.iter().collect();
        widest_first.sort_by_key(|segment| std::cmp::Reverse(segment.size.value));
        if let Some(one_more) = written.get(SEGMENTS_MAX) {
            let what = format!("{} segments inside each other", written.len());
            let place = one_more.size.place;
            return Err(self.source.error(place, what, format!("expected at most {SEGMENTS_MAX}")));
        }
        for (outer, inner) in widest_first.iter().zip(widest_first.iter().skip(1)) {
            let (wide, narrow) = (outer.size.value.0, inner.size.value.0);
            if !wide.is_multiple_of(narrow) {
                let what = format!("segments of {narrow} ranks do not divide segments of {wide}");
                let part = (1..narrow).rev().find(|size| wide.is_multiple_of(*size)).unwrap_or(1);
                let accepted = format!("expected a whole part of {wide}, such as {part}");
                return Err(self.source.error(inner.size.place, what, accepted));
            }
            if outer.level == inner.level {
                let what = format!("{} has segments of {wide} and of {narrow} ranks", inner.level.value);
                let error = self.source.error(inner.level.place, what, "expected one segment for each level");
                return Err(error.also(&self.source, outer.level.place, "the other one"));
            }
        }
        let each = self.ranks_per_member(shape);
        let of_members = |segment: &&SegmentFile| {
            let ranks = segment.size.value.0;
            if ranks.is_multiple_of(each) {
                return Ok(Segment { size: ranks / each, level: segment.level.value.clone() });
            }
            let what =
                format!("segments of {ranks} ranks cut through what one launcher starts, {each} on a node");
            let accepted = format!("expected a multiple of {each}, or `launch: ranks`");
            Err(self.source.error(segment.size.place, what, accepted))
        };
        widest_first.iter().map(of_members).collect()
    }

    /// Ranks that one member of the gang starts: those of a node, where a launcher starts them.
    fn ranks_per_member(&self, shape: &Shape) -> u32 {
        match self.launch_kind() {
            LaunchKind::Ranks | LaunchKind::Jax | LaunchKind::None => 1,
            LaunchKind::Torchrun | LaunchKind::Mpi => shape.ranks_per_node.unwrap_or(shape.devices).max(1),
        }
    }
}

/// A value with a short form, which does not know its place while it is read, and fields.
trait ShortOrLong: Sized {
    type Fields: for<'de> Deserialize<'de> + TryInto<Self, Error = &'static str>;
    const EXPECTED: &'static str;

    fn short(text: &str) -> Result<Self, String>;

    fn set_place(&mut self, place: Place);
}

/// What was read, and whether in its short form.
struct Unplaced<T>(T, bool);

impl<'de, T: ShortOrLong> Deserialize<'de> for Unplaced<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);

        impl<'de, T: ShortOrLong> de::Visitor<'de> for Visitor<T> {
            type Value = Unplaced<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Unplaced<T>, E> {
                T::short(text).map(|value| Unplaced(value, true)).map_err(E::custom)
            }

            // A level may be called `1`, which YAML takes for a number.
            fn visit_u64<E: de::Error>(self, level: u64) -> Result<Unplaced<T>, E> {
                self.visit_str(&level.to_string())
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Unplaced<T>, A::Error> {
                let fields = T::Fields::deserialize(de::value::MapAccessDeserializer::new(map))?;
                fields.try_into().map(|value| Unplaced(value, false)).map_err(de::Error::missing_field)
            }
        }

        deserializer.deserialize_any(Visitor(PhantomData))
    }
}

fn read_placed<'de, T: ShortOrLong, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let spanned = Spanned::<Unplaced<T>>::deserialize(deserializer)?;
    let Unplaced(mut value, is_short) = spanned.value;
    if is_short {
        value.set_place(yaml::place_of(&spanned.referenced));
    }
    Ok(value)
}

/// The long form of a topology.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("anyOf" = [{ "required": ["level"] }, { "required": ["segments"] }]))]
#[schemars(extend("dependentRequired" = { "mode": ["level"], "wait": ["level"] }))]
struct TopologyFields {
    /// All of the job inside one domain of this level, e.g. `leaf`.
    level: Option<At<LevelName>>,
    /// `preferred` (the default): inside one domain if possible, otherwise anywhere. `required`: inside one
    /// domain, or it does not start.
    mode: Option<At<Mode>>,
    /// How long to hold out for such a domain before any other place is taken, whatever the `mode`. Default:
    /// `required` holds out for ever, and `preferred` not at all.
    wait: Option<At<Span>>,
    /// Parts of the job that must each share a lower domain, the smaller inside the larger:
    /// `[32@leaf, 8@node]`.
    #[serde(default)]
    segments: Vec<SegmentFile>,
}

impl TryFrom<TopologyFields> for TopologyFile {
    type Error = &'static str;

    fn try_from(
        TopologyFields { level, mode, wait, segments }: TopologyFields,
    ) -> Result<Self, &'static str> {
        if level.is_none() && (segments.is_empty() || mode.is_some() || wait.is_some()) {
            return Err("level");
        }
        Ok(Self { level, mode, wait, segments })
    }
}

impl ShortOrLong for TopologyFile {
    type Fields = TopologyFields;
    const EXPECTED: &'static str = "LEVEL, LEVEL:required, LEVEL:preferred, each with @WAIT or without, such as leaf:required or leaf:preferred@10m, or {level, mode, wait, segments}";

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
                "description": "LEVEL[:required|preferred][@WAIT]",
                "pattern": "^[^@]+(:(required|preferred))?(@.+)?$",
                "examples": ["leaf", "leaf:required", "leaf:preferred@10m"],
            },
            fields,
        ]})
    }
}

/// The long form of a segment.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SegmentFields {
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
