//! How the ranks of a job are laid out for parallel training.

use std::fmt;

use phalanx_model::{Axis, AxisKind, Collective, LaunchKind};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::{Place, SpecError};
use crate::job::JobFile;
use crate::place::{At, Scalar, wrong};
use crate::scalar::{COUNT_MAX, Count, Memory};
use crate::shape::Shape;
use crate::short::{ShortOrLong, read_placed};

/// From the innermost axis to the outermost, where a file does not order them.
const ORDER: [AxisKind; 4] = [AxisKind::Tensor, AxisKind::Expert, AxisKind::Data, AxisKind::Pipeline];

// What a job sends that does not say it: a model of 8 billion parameters with 32 layers and a hidden size of 4096
// (Llama 3 8B), two bytes a number, sequences of 4096, four micro-batches for each stage of the pipeline.
const ACTIVATION_BYTES: u64 = 4096 * 4096 * 2;
const GRADIENT_BYTES: u64 = 8_000_000_000 * 2;
const MICRO_BATCHES_PER_STAGE: u32 = 4;
/// Two calls a layer forwards and two backwards. A stage has fewer layers, and as many times more micro-batches.
const CALLS_IN_LAYERS: u32 = 4 * 32 * MICRO_BATCHES_PER_STAGE;

/// The axes of a job's parallelism, the innermost first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParallelismFile(pub Vec<AxisFile>);

/// One axis.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisFile {
    pub kind: At<AxisKind>,
    pub talk: TalkFile,
}

/// How many ranks talk to each other along an axis, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TalkFile {
    pub degree: At<Count>,
    pub collective: Option<At<Collective>>,
    pub bytes: Option<At<Memory>>,
    pub calls: Option<At<Count>>,
}

impl ParallelismFile {
    /// Reads `tensor=8,data=4`.
    ///
    /// # Errors
    /// What is wrong, and on the second line what is accepted.
    pub fn from_short(text: &str, place: Place) -> Result<Self, String> {
        const SHORT: &str = "AXIS=DEGREE, separated by commas, such as tensor=8,data=4";
        let axis = |axis: &str| {
            let (kind, degree) =
                axis.split_once('=').ok_or_else(|| format!("{}\n{SHORT}", wrong(axis, "has no '='")))?;
            let degree = Count::read_at(degree.trim(), place)?;
            Ok(AxisFile { kind: AxisKind::read_at(kind.trim(), place)?, talk: TalkFile::plain(degree) })
        };
        let axes: Vec<AxisFile> = text.split(',').map(axis).collect::<Result<_, String>>()?;
        Ok(Self::unordered(axes))
    }

    /// Axes in the usual order.
    fn unordered(mut axes: Vec<AxisFile>) -> Self {
        axes.sort_by_key(|axis| ORDER.iter().position(|kind| *kind == axis.kind.value));
        Self(axes)
    }

    fn is_in_order(&self) -> bool {
        let at = |axis: &AxisFile| ORDER.iter().position(|kind| *kind == axis.kind.value);
        self.0.is_sorted_by_key(at)
    }

    fn degree_of(&self, kind: AxisKind) -> u32 {
        let axis = self.0.iter().find(|axis| axis.kind.value == kind);
        axis.map_or(1, |axis| axis.talk.degree.value.0)
    }

    /// All degrees together; none where they are more than a gang can have.
    fn ranks(&self) -> Option<u32> {
        let product =
            self.0.iter().try_fold(1_u32, |product, axis| product.checked_mul(axis.talk.degree.value.0));
        product.filter(|ranks| *ranks <= COUNT_MAX)
    }

    pub(crate) fn place(&self) -> Place {
        self.0.first().map(|axis| axis.talk.degree.place).unwrap_or_default()
    }

    /// `tensor 8 x data 4`.
    fn described(&self) -> String {
        let axis = |axis: &AxisFile| format!("{} {}", axis.kind.value.word(), axis.talk.degree.value.0);
        self.0.iter().map(axis).collect::<Vec<_>>().join(" x ")
    }

    fn axis(&self, AxisFile { kind, talk }: &AxisFile, data_bytes: Option<u64>) -> Axis {
        let (tensor, pipeline) = (self.degree_of(AxisKind::Tensor), self.degree_of(AxisKind::Pipeline));
        let (collective, bytes, calls) = match kind.value {
            AxisKind::Tensor => (Collective::AllReduce, ACTIVATION_BYTES, CALLS_IN_LAYERS),
            AxisKind::Expert => (Collective::AllToAll, ACTIVATION_BYTES, CALLS_IN_LAYERS),
            AxisKind::Data => {
                let held = GRADIENT_BYTES / u64::from(tensor) / u64::from(pipeline);
                (Collective::AllReduce, data_bytes.unwrap_or(held).max(1), 1)
            }
            AxisKind::Pipeline => (
                Collective::PointToPoint,
                (ACTIVATION_BYTES / u64::from(tensor)).max(1),
                MICRO_BATCHES_PER_STAGE.saturating_mul(pipeline),
            ),
        };
        Axis {
            kind: kind.value,
            degree: talk.degree.value.0,
            collective: talk.collective.map_or(collective, |said| said.value),
            bytes: talk.bytes.map_or(bytes, |said| said.value.0),
            calls: talk.calls.map_or(calls, |said| said.value.0),
        }
    }
}

impl TalkFile {
    const fn plain(degree: At<Count>) -> Self {
        Self { degree, collective: None, bytes: None, calls: None }
    }
}

impl JobFile {
    /// The number of ranks, also where the parallelism alone says it: no ranks, and no GPUs to have one each.
    pub(crate) fn ranks(&self) -> Option<At<Count>> {
        let is_said = self.ranks.is_some() || self.ranks_per_node.is_some() || self.gpus().is_some();
        if is_said || !self.starts_ranks() {
            return self.ranks;
        }
        let parallelism = self.parallelism.as_ref()?;
        Some(At::new(Count(parallelism.ranks()?), parallelism.place()))
    }

    /// Whether a member is one rank of the grid, or a launcher starts several. JAX and programs of their own have one
    /// process for all GPUs of a node, so their grid counts GPUs.
    fn starts_ranks(&self) -> bool {
        match self.launch_kind() {
            LaunchKind::Ranks | LaunchKind::Torchrun | LaunchKind::Mpi => true,
            LaunchKind::Jax | LaunchKind::None => false,
        }
    }

    /// The grid of the gang's members, the innermost axis first. What stays inside one member is left out.
    pub(crate) fn grid(&self, shape: &Shape) -> Result<Vec<Axis>, SpecError> {
        let Some(parallelism) = self.parallelism.as_ref().filter(|said| !said.0.is_empty()) else {
            return Ok(Vec::new());
        };
        self.check_axes(parallelism)?;
        let each = if self.starts_ranks() { self.ranks_per_member(shape) } else { shape.devices.max(1) };
        let total = u64::from(shape.size) * u64::from(each);
        if parallelism.ranks().map(u64::from) != Some(total) {
            let product: u128 =
                parallelism.0.iter().map(|axis| u128::from(axis.talk.degree.value.0)).product();
            let what = format!("{} are {product} ranks, and the job has {total}", parallelism.described());
            let accepted = match parallelism.ranks() {
                Some(_) => format!("expected degrees that multiply to {total}"),
                None => format!("at most {COUNT_MAX} ranks"),
            };
            let error = self.source.error(parallelism.place(), what, accepted);
            return Err(self.also(error, self.ranks.map(|ranks| ranks.place), "says otherwise"));
        }
        let data_bytes = self.traffic.as_ref().map(|traffic| traffic.bytes.value.0);
        let axes = parallelism.0.iter().map(|axis| parallelism.axis(axis, data_bytes)).collect();
        self.between_members(parallelism, axes, each)
    }

    fn check_axes(&self, parallelism: &ParallelismFile) -> Result<(), SpecError> {
        for (index, axis) in parallelism.0.iter().enumerate() {
            let kind = axis.kind;
            if let Some(first) = parallelism.0.iter().take(index).find(|other| other.kind == kind) {
                let what = format!("the axis {} is given twice", kind.value.word());
                let error = self.source.error(kind.place, what, "give it once");
                return Err(self.also(error, Some(first.kind.place), "the first"));
            }
            if index > 0 && kind.value == AxisKind::Tensor {
                let what = "the tensor axis is the innermost one";
                return Err(self.source.error(kind.place, what, "name it first"));
            }
        }
        Ok(())
    }

    /// A launcher that starts `each` ranks holds the innermost axes, and of one axis perhaps a part. Of the ring of
    /// each rank one link leaves such a member, and of an all-to-all what every rank of it sends.
    fn between_members(
        &self,
        parallelism: &ParallelismFile,
        axes: Vec<Axis>,
        each: u32,
    ) -> Result<Vec<Axis>, SpecError> {
        let (mut left, mut rings, mut grid) = (each, 1_u32, Vec::new());
        for axis in axes {
            let inside = left.min(axis.degree);
            if !left.is_multiple_of(inside) || !axis.degree.is_multiple_of(inside) {
                let what = format!(
                    "{} cuts through what one launcher starts, {each} on a node",
                    parallelism.described()
                );
                let accepted = "expected inner degrees that multiply to what a node runs, or `launch: ranks`";
                return Err(self.source.error(parallelism.place(), what, accepted));
            }
            if axis.kind == AxisKind::Tensor && axis.degree > inside && each > 1 {
                let what =
                    format!("a tensor group of {} ranks leaves its node, which runs {each}", axis.degree);
                return Err(self.source.error(parallelism.place(), what, format!("at most {each}")));
            }
            left /= inside;
            let streams = match axis.collective {
                Collective::AllReduce | Collective::AllGather | Collective::PointToPoint => rings,
                Collective::AllToAll => rings.saturating_mul(inside),
            };
            rings = rings.saturating_mul(inside);
            if axis.degree > inside || each == 1 {
                let bytes = axis.bytes.saturating_mul(u64::from(streams));
                grid.push(Axis { degree: axis.degree / inside, bytes, ..axis });
            }
        }
        Ok(grid)
    }
}

/// The long form of an axis.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TalkFields {
    /// Ranks of one group.
    degree: At<Count>,
    /// How the ranks of a group talk. Default: all_reduce for tensor and data, all_to_all for expert, point_to_point
    /// for pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    collective: Option<At<Collective>>,
    /// Bytes of one call. Default: those of a model of 8 billion parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<At<Memory>>,
    /// Calls in one step. Default: those of a model with 32 layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<At<Count>>,
}

impl TryFrom<TalkFields> for TalkFile {
    type Error = &'static str;

    fn try_from(TalkFields { degree, collective, bytes, calls }: TalkFields) -> Result<Self, &'static str> {
        Ok(Self { degree, collective, bytes, calls })
    }
}

impl ShortOrLong for TalkFile {
    type Fields = TalkFields;
    const EXPECTED: &'static str =
        "a whole number of ranks, such as 8, or {degree, collective, bytes, calls}";
    const IS_NUMBER: bool = true;

    fn short(text: &str) -> Result<Self, String> {
        Count::read_at(text, Place::Nowhere).map(Self::plain)
    }

    fn set_place(&mut self, place: Place) {
        self.degree.place = place;
    }
}

impl<'de> Deserialize<'de> for TalkFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_placed(deserializer)
    }
}

/// Axes of one mapping, as they stand there.
struct Axes(Vec<AxisFile>);

struct AxesVisitor;

impl<'de> de::Visitor<'de> for AxesVisitor {
    /// And whether the file orders them.
    type Value = (Axes, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{tensor: 8, data: 4}, or a list in this order, [tensor: 8, data: 4]")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<(Axes, bool), A::Error> {
        let mut axes = Vec::new();
        while let Some((kind, talk)) = map.next_entry()? {
            axes.push(AxisFile { kind, talk });
        }
        Ok((Axes(axes), false))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<(Axes, bool), A::Error> {
        let mut axes = Vec::new();
        while let Some(Axes(one)) = list.next_element()? {
            axes.extend(one);
        }
        Ok((Axes(axes), true))
    }
}

impl<'de> Deserialize<'de> for Axes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AxesVisitor).map(|(axes, _)| axes)
    }
}

impl<'de> Deserialize<'de> for ParallelismFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (Axes(axes), is_ordered) = deserializer.deserialize_any(AxesVisitor)?;
        Ok(if is_ordered { Self(axes) } else { Self::unordered(axes) })
    }
}

impl Serialize for AxisFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(&self.kind, &self.talk)])
    }
}

impl Serialize for TalkFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { degree, collective, bytes, calls } = *self;
        match (collective, bytes, calls) {
            (None, None, None) => degree.serialize(serializer),
            _ => TalkFields { degree, collective, bytes, calls }.serialize(serializer),
        }
    }
}

impl Serialize for ParallelismFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_in_order() {
            return serializer.collect_map(self.0.iter().map(|axis| (&axis.kind, &axis.talk)));
        }
        serializer.collect_seq(&self.0)
    }
}

impl JsonSchema for TalkFile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TalkFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (degree, fields) = (Count::schema(), TalkFields::json_schema(generator));
        json_schema!({ "anyOf": [degree, fields] })
    }
}

impl JsonSchema for ParallelismFile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ParallelismFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let talk = generator.subschema_for::<TalkFile>();
        let axes = json_schema!({
            "type": "object",
            "propertyNames": AxisKind::schema(),
            "additionalProperties": talk,
            "minProperties": 1,
        });
        json_schema!({
            "anyOf": [axes, { "type": "array", "items": axes, "minItems": 1 }],
            "examples": [{ "tensor": 8, "data": 4 }],
        })
    }
}
