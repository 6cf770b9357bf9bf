//! Services, which run as replicas, and sessions, which end when nobody uses them.

use std::borrow::Cow;

use phalanx_model::{FailureClass, Gang, LevelName, Replicas, Retry, Target};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{Place, SpecError};
use crate::job::JobFile;
use crate::place::{At, Scalar, wrong};
use crate::quantity;
use crate::scalar::{Count, Span};
use crate::short::{ShortOrLong, read_placed};

/// Replicas of one service, as many as the engine takes.
const REPLICAS_MAX: u32 = 1_000;
const METRIC_BYTES_MAX: usize = 64;

/// A job that serves: equal replicas, each of them what the file asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceFile {
    /// How many: `2`, or `{min: 1, max: 4}`. The minimum is always kept.
    pub replicas: ReplicasFile,
    /// What each of them is to have of a metric that they tell of, `{metric: tokens, value: 1000}`: as many run as that
    /// needs. Default: as many as `phalanx scale` says, at first the minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetFile>,
    /// Level of which each domain is to have as few of them as can be, such as `node`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<At<LevelName>>,
    /// So many more may run while others have to leave their nodes, which go once another runs in their stead. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surge: Option<At<u32>>,
}

/// How many replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReplicasFile {
    pub min: At<Count>,
    pub max: At<Count>,
}

/// So much of a metric for each replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetFile {
    /// Its name, as in `phalanx tell metric NAME=VALUE`.
    pub metric: At<String>,
    /// What one replica is to have of it.
    pub value: At<Measure>,
    /// Replicas go when fewer were needed for so long. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<At<Span>>,
}

/// Somebody works in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionFile {
    /// It ends when nobody used it for so long.
    pub idle: At<Span>,
}

/// A measured value in thousandths, from a thousandth to [`Measure::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure(pub u64);

impl Measure {
    /// A thousand values of as much stay far inside a `u64`.
    pub const MAX: u64 = 1_000_000_000_000_000;
}

impl Scalar for Measure {
    const ACCEPTED: &'static str = "a number above 0, such as 1000 or 0.7";

    fn read(text: &str) -> Result<Self, String> {
        match quantity::parse_milli(text.trim()) {
            Ok(0) => Err(wrong(text, "is less than a thousandth")),
            Ok(amount) if amount > Self::MAX => Err(wrong(text, "is too large")),
            Ok(amount) => Ok(Self(amount)),
            Err(error) => Err(wrong(text, error)),
        }
    }

    fn write(&self) -> String {
        quantity::format_milli(self.0)
    }

    fn schema() -> Schema {
        json_schema!({ "anyOf": [
            { "type": "number", "exclusiveMinimum": 0 },
            { "type": "string", "pattern": "^[0-9.]+$" },
        ], "examples": [1000] })
    }
}

/// The long form of a number of replicas.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplicasFields {
    /// So many are always kept.
    min: At<Count>,
    /// Never more, at most 1000.
    max: At<Count>,
}

impl TryFrom<ReplicasFields> for ReplicasFile {
    type Error = &'static str;

    fn try_from(ReplicasFields { min, max }: ReplicasFields) -> Result<Self, &'static str> {
        Ok(Self { min, max })
    }
}

impl ShortOrLong for ReplicasFile {
    type Fields = ReplicasFields;
    const EXPECTED: &'static str = "a number of replicas, such as 2, or {min, max}";
    const IS_NUMBER: bool = true;

    fn short(text: &str) -> Result<Self, String> {
        let count = Count::read_at(text.trim(), Place::Nowhere)?;
        Ok(Self { min: count, max: count })
    }

    fn set_place(&mut self, place: Place) {
        (self.min.place, self.max.place) = (place, place);
    }
}

impl<'de> Deserialize<'de> for ReplicasFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_placed(deserializer)
    }
}

impl JsonSchema for ReplicasFile {
    fn schema_name() -> Cow<'static, str> {
        "ReplicasFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let fields = ReplicasFields::json_schema(generator);
        json_schema!({ "anyOf": [{ "type": "integer", "minimum": 1, "maximum": REPLICAS_MAX }, fields] })
    }
}

impl JobFile {
    /// What it says of its replicas.
    pub(crate) fn service(&self) -> Result<Option<Replicas>, SpecError> {
        let Some(ServiceFile { replicas: ReplicasFile { min, max }, target, spread, surge }) = &self.service
        else {
            return Ok(None);
        };
        let wrong =
            |place: Place, what: String, accepted: String| Err(self.source.error(place, what, accepted));
        if max.value.0 > REPLICAS_MAX {
            return wrong(max.place, format!("{} replicas", max.value.0), format!("at most {REPLICAS_MAX}"));
        }
        let most = REPLICAS_MAX - max.value.0;
        if let Some(surge) = surge.filter(|surge| surge.value > most) {
            let accepted =
                format!("expected at most {most}: with the {} it may have, {REPLICAS_MAX}", max.value.0);
            return wrong(surge.place, format!("{} replicas more", surge.value), accepted);
        }
        if min.value > max.value {
            let accepted = format!("expected at most {}", max.value.0);
            return wrong(min.place, "more than there may be".to_owned(), accepted);
        }
        let others = [
            ("array", self.array.as_ref().map(crate::turn::ArrayFile::place)),
            ("deadline", self.deadline.map(|deadline| deadline.place)),
            ("session", self.session.as_ref().map(|session| session.idle.place)),
        ];
        if let Some((field, place)) = others.into_iter().find_map(|(field, place)| Some((field, place?))) {
            let error = self.source.error(
                place,
                "a service runs until it is cancelled",
                format!("leave `{field}` out"),
            );
            return Err(self.also(error, Some(min.place), "the service"));
        }
        if let Some(TargetFile { metric, .. }) = target
            && (metric.value.is_empty() || metric.value.len() > METRIC_BYTES_MAX)
        {
            let what = format!("a name of {} bytes", metric.value.len());
            return wrong(metric.place, what, format!("expected 1 to {METRIC_BYTES_MAX} bytes"));
        }
        let target = target.as_ref().map(|asked| {
            let target = Target::new(asked.metric.value.clone(), asked.value.value.0);
            let settle_ms = asked.settle.map_or(target.settle_ms, |settle| settle.value.millis());
            Target { settle_ms, ..target }
        });
        Ok(Some(Replicas {
            min: min.value.0,
            target,
            spread: spread.as_ref().map(|level| level.value.clone()),
            surge: surge.map_or(0, |surge| surge.value),
            numbers: Vec::new(),
        }))
    }

    /// The gangs of a service: one for each replica that there may be, also while some leave.
    pub(crate) fn replicas(&self, gang: Gang) -> Vec<Gang> {
        let surge = |service: &ServiceFile| service.surge.map_or(0, |surge| surge.value);
        let count = self.service.as_ref().map_or(1, |service| service.replicas.max.value.0 + surge(service));
        vec![gang; count as usize]
    }
}

/// A replica that ends is started again, whatever its end was.
pub(crate) fn restart_always(retry: &mut Retry) {
    retry.max = u32::MAX;
    retry.on = FailureClass::ALL.to_vec();
}
