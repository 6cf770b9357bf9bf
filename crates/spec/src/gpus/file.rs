//! How GPUs are written: in one word or as fields.

use std::fmt;

use phalanx_model::ModelNeed;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    Fraction, GpusFile, MODELS_MAX, MigFile, ModelFile, ModelName, ModelsFile, ProfileName, ShareFile, Speed,
};
use crate::error::Place;
use crate::place::{At, Scalar};
use crate::scalar::{COUNT_MAX, Count, Memory};
use crate::short::{ShortOrLong, read_placed};

/// The long form of GPUs.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{ "required": ["count"] }, { "required": ["share"] }, { "required": ["mig"] }]))]
pub(crate) struct GpusFields {
    /// Number of whole GPUs: per NODE when `nodes` is given, otherwise in total.
    count: Option<At<Count>>,
    /// Any of these models, `[H100, A100]`, or with the speed of a step on each, `{H100: 1.0, A100: 0.4}`, where 1
    /// is as fast as `traffic.compute` says. A model's name contains the text. Default: any model.
    #[serde(default)]
    models: ModelsFile,
    /// A part of one GPU for each RANK, beside shares of other jobs: `0.25`, or with memory.
    share: Option<ShareFile>,
    /// A MIG slice for each RANK: `1g.10gb`, or the smallest that has some compute and memory.
    mig: Option<MigFile>,
}

impl TryFrom<GpusFields> for GpusFile {
    type Error = &'static str;

    fn try_from(GpusFields { count, models, share, mig }: GpusFields) -> Result<Self, &'static str> {
        if count.is_none() && share.is_none() && mig.is_none() {
            return Err("says not how many\n`count` of whole GPUs, a `share` of one, or a `mig` slice");
        }
        Ok(Self { count, models, share, mig })
    }
}

impl ShortOrLong for GpusFile {
    type Fields = GpusFields;
    const EXPECTED: &'static str =
        "a number of GPUs or a part of one, such as 8, H100:8 or 0.25, or {count, models, share, mig}";
    const IS_NUMBER: bool = true;

    fn short(text: &str) -> Result<Self, String> {
        Self::from_short(text, Place::Nowhere)
    }

    fn set_place(&mut self, place: Place) {
        self.count.iter_mut().for_each(|count| count.place = place);
        self.models.0.iter_mut().for_each(|model| model.model.place = place);
        self.share.iter_mut().flat_map(|share| &mut share.compute).for_each(|compute| compute.place = place);
    }
}

/// The long form of a share.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("anyOf" = [{ "required": ["compute"] }, { "required": ["memory"] }]))]
pub(crate) struct ShareFields {
    /// Part of what one GPU computes: `0.25`, `1/4`.
    compute: Option<At<Fraction>>,
    /// Memory of the GPU, e.g. `10GB`.
    memory: Option<At<Memory>>,
    /// Shares of different trust never stand on one GPU. Default: the user's name.
    trust: Option<At<String>>,
}

impl TryFrom<ShareFields> for ShareFile {
    type Error = &'static str;

    fn try_from(ShareFields { compute, memory, trust }: ShareFields) -> Result<Self, &'static str> {
        if compute.is_none() && memory.is_none() {
            return Err("says not how much\n`compute`, `memory` or both");
        }
        Ok(Self { compute, memory, trust })
    }
}

impl ShortOrLong for ShareFile {
    type Fields = ShareFields;
    const EXPECTED: &'static str = "a part of one GPU, such as 0.25, or {compute, memory, trust}";
    const IS_NUMBER: bool = true;

    fn short(text: &str) -> Result<Self, String> {
        Ok(Self { compute: Some(Fraction::read_at(text, Place::Nowhere)?), ..Self::default() })
    }

    fn set_place(&mut self, place: Place) {
        self.compute.iter_mut().for_each(|compute| compute.place = place);
    }
}

/// The long form of a MIG slice.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("anyOf" = [{ "required": ["compute"] }, { "required": ["memory"] }]))]
pub(crate) struct MigFields {
    /// At least this part of what one GPU computes: `2/7`, `0.28`.
    #[serde(skip_serializing_if = "Option::is_none")]
    compute: Option<At<Fraction>>,
    /// At least this much memory, e.g. `20GB`.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<At<Memory>>,
}

impl TryFrom<MigFields> for MigFile {
    type Error = &'static str;

    fn try_from(MigFields { compute, memory }: MigFields) -> Result<Self, &'static str> {
        if compute.is_none() && memory.is_none() {
            return Err("says not how much\n`compute`, `memory` or both");
        }
        Ok(Self::Least { compute, memory })
    }
}

impl ShortOrLong for MigFile {
    type Fields = MigFields;
    const EXPECTED: &'static str = "a MIG profile, such as 1g.10gb, or {compute, memory}";

    fn short(text: &str) -> Result<Self, String> {
        Self::from_short(text, Place::Nowhere)
    }

    fn set_place(&mut self, place: Place) {
        if let Self::Profile(name) = self {
            name.place = place;
        }
    }
}

impl Serialize for GpusFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { count, models, share, mig } = self;
        let prefix = models.prefix();
        let share_alone = share.as_ref().and_then(ShareFile::compute_alone);
        match (count, share, mig) {
            (Some(count), None, None) if prefix.is_empty() => return count.serialize(serializer),
            (Some(count), None, None) if !models.has_speeds() => {
                return serializer.serialize_str(&format!("{prefix}{}", count.value.0));
            }
            (None, Some(_), None) if !models.has_speeds() => {
                if let Some(compute) = share_alone.filter(|compute| compute.0 < Fraction::WHOLE) {
                    return serializer.serialize_str(&format!("{prefix}{}", compute.write()));
                }
            }
            _ => {}
        }
        let mut map = serializer.serialize_map(None)?;
        if let Some(count) = count {
            map.serialize_entry("count", count)?;
        }
        if !models.is_empty() {
            map.serialize_entry("models", models)?;
        }
        if let Some(share) = share {
            map.serialize_entry("share", share)?;
        }
        if let Some(mig) = mig {
            map.serialize_entry("mig", mig)?;
        }
        map.end()
    }
}

impl Serialize for MigFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Profile(name) => name.serialize(serializer),
            Self::Least { compute, memory } => {
                MigFields { compute: *compute, memory: *memory }.serialize(serializer)
            }
        }
    }
}

impl Serialize for ModelsFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.has_speeds() {
            return serializer.collect_seq(self.0.iter().map(|model| &model.model));
        }
        let as_said = At::from(Speed(ModelNeed::AS_SAID));
        serializer.collect_map(self.0.iter().map(|model| (&model.model, model.speed.unwrap_or(as_said))))
    }
}

impl<'de> Deserialize<'de> for GpusFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_placed(deserializer)
    }
}

impl<'de> Deserialize<'de> for ShareFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_placed(deserializer)
    }
}

impl<'de> Deserialize<'de> for MigFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_placed(deserializer)
    }
}

impl<'de> Deserialize<'de> for ModelsFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = ModelsFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of models, [H100, A100], or MODEL: SPEED, {H100: 1.0, A100: 0.4}")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<ModelsFile, A::Error> {
                let mut models = Vec::new();
                while let Some(model) = list.next_element::<At<ModelName>>()? {
                    models.push(ModelFile { model, speed: None });
                }
                Ok(ModelsFile(models))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<ModelsFile, A::Error> {
                let mut models = Vec::new();
                while let Some((model, speed)) = map.next_entry::<At<ModelName>, At<Speed>>()? {
                    models.push(ModelFile { model, speed: Some(speed) });
                }
                Ok(ModelsFile(models))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for GpusFile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "GpusFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let fields = GpusFields::json_schema(generator);
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": COUNT_MAX },
            { "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 },
            { "type": "string", "pattern": "^([A-Za-z0-9 ._/|-]+:)?([0-9]+|0?[.][0-9]+|[0-9]+/[0-9]+)$" },
            fields,
        ], "examples": [8, "H100:8", "H100|A100:8", 0.25] })
    }
}

impl JsonSchema for ShareFile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ShareFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (part, fields) = (Fraction::schema(), ShareFields::json_schema(generator));
        json_schema!({ "anyOf": [part, fields] })
    }
}

impl JsonSchema for MigFile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MigFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (profile, fields) = (ProfileName::schema(), MigFields::json_schema(generator));
        json_schema!({ "anyOf": [profile, fields] })
    }
}

impl JsonSchema for ModelsFile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ModelsFile".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let (name, speed) = (ModelName::schema(), Speed::schema());
        json_schema!({ "anyOf": [
            { "type": "array", "items": name, "minItems": 1, "maxItems": MODELS_MAX },
            { "type": "object", "additionalProperties": speed, "minProperties": 1 },
        ]})
    }
}
