//! GPUs of a job: whole ones, or a part of one for each rank, and which models will do.

mod file;
mod scalar;

use std::collections::BTreeMap;

use phalanx_model::{ModelNeed, PartNeed};
use serde::Serialize;

use crate::error::{Place, Source, SpecError};
use crate::place::{At, Scalar, wrong};
use crate::scalar::{COUNT_MAX, Count, Memory, integer};

pub use scalar::{ComputeLimit, Fraction, ModelName, ProfileName, Speed};

/// Models that one job may name.
const MODELS_MAX: usize = 16;
/// Longest name of a trust.
const TRUST_BYTES_MAX: usize = 253;

/// Whole GPUs, or a part of one for each rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpusFile {
    /// Whole ones.
    pub count: Option<At<Count>>,
    /// Any of these; any model where none is named.
    pub models: ModelsFile,
    pub share: Option<ShareFile>,
    pub mig: Option<MigFile>,
}

/// Device models that will do, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelsFile(pub Vec<ModelFile>);

/// A model, and how fast a step computes there.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFile {
    pub model: At<ModelName>,
    pub speed: Option<At<Speed>>,
}

/// A part of one GPU beside others, by time-slicing or MPS.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ShareFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute: Option<At<Fraction>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<At<Memory>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<At<String>>,
}

/// A MIG slice: by its name, or the smallest that has this much.
#[derive(Clone, Debug, PartialEq)]
pub enum MigFile {
    Profile(At<ProfileName>),
    Least { compute: Option<At<Fraction>>, memory: Option<At<Memory>> },
}

impl GpusFile {
    const SHORT: &'static str = "a number of GPUs or a part of one, with MODEL: before it or without, such as 8, H100:8, H100|A100:8 or 0.25";

    /// So many whole ones.
    #[must_use]
    pub fn whole(count: At<Count>) -> Self {
        Self { count: Some(count), ..Self::default() }
    }

    /// Reads the short form `[MODEL[|MODEL]:]NUMBER`.
    ///
    /// # Errors
    /// What is wrong, and on the second line what is accepted.
    pub fn from_short(text: &str, place: Place) -> Result<Self, String> {
        Self::read(text, place).map_err(|what| format!("{what}\n{}", Self::SHORT))
    }

    fn read(text: &str, place: Place) -> Result<Self, String> {
        let (models, number) = match text.rsplit_once(':') {
            Some((models, number)) => (Some(models.trim()), number.trim()),
            None => (None, text.trim()),
        };
        let names = models.map_or(Ok(Vec::new()), |models| models.split('|').map(ModelName::read).collect());
        let names = names.map_err(|_| wrong(text, "does not begin with a GPU model"))?;
        let named = names.into_iter().map(|name| ModelFile { model: At::new(name, place), speed: None });
        let models_file = ModelsFile(named.collect());
        if number.contains(['.', '/']) && number.starts_with(|c: char| c.is_ascii_digit()) {
            let compute = Fraction::read(number).map_err(|_| {
                wrong(
                    text,
                    "is no part of one GPU: a part is more than 0 and less than 1, and several are whole",
                )
            })?;
            if compute.0 == Fraction::WHOLE {
                return Err(wrong(text, "is a whole GPU, which is written 1"));
            }
            let share = ShareFile { compute: Some(At::new(compute, place)), ..ShareFile::default() };
            return Ok(Self { models: models_file, share: Some(share), ..Self::default() });
        }
        let count = integer(number).map_err(|_| match models {
            None if number.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                wrong(text, format_args!("says no number; one of them is {text}:1"))
            }
            Some(model) if integer(model).is_ok() => {
                wrong(text, format_args!("is the wrong way round: {number}:{model}"))
            }
            _ => wrong(text, "does not end with a whole number"),
        })?;
        let count = match count {
            i128::MIN..0 => return Err(wrong(text, "is negative")),
            0 => return Err(wrong(text, "is no GPU at all: leave the field out for a job without GPUs")),
            n => u32::try_from(n)
                .ok()
                .filter(|n| *n <= COUNT_MAX)
                .ok_or_else(|| wrong(text, "is too large"))?,
        };
        Ok(Self { models: models_file, ..Self::whole(At::new(Count(count), place)) })
    }

    /// Where it is said how many, or how much of one.
    #[must_use]
    pub fn place(&self) -> Place {
        let part = self.share.as_ref().map(ShareFile::place).or(self.mig.as_ref().map(MigFile::place));
        self.count.map(|count| count.place).or(part).unwrap_or_default()
    }

    /// Whether each rank has a part of one.
    #[must_use]
    pub const fn is_part(&self) -> bool {
        self.share.is_some() || self.mig.is_some()
    }

    /// The part of one GPU that each rank has.
    pub(crate) fn part(&self, source: &Source, owner: &str) -> Result<Option<PartNeed>, SpecError> {
        let said = [
            self.count.map(|count| (count.place, "`count`")),
            self.share.as_ref().map(|share| (share.place(), "`share`")),
            self.mig.as_ref().map(|mig| (mig.place(), "`mig`")),
        ];
        let mut said = said.into_iter().flatten();
        if let (Some((first, one)), Some((second, other))) = (said.next(), said.next()) {
            let what = format!("{one} and {other} are both given");
            let error = source.error(second, what, "expected whole GPUs, or a share of one, or a MIG slice");
            return Err(error.also(source, first, "the other one"));
        }
        if let Some(share) = &self.share {
            return Ok(Some(PartNeed::Share {
                compute_milli: share.compute.map_or(0, |compute| compute.value.0),
                memory_bytes: share.memory.map_or(0, |memory| memory.value.0),
                trust: share.trust(source, owner)?,
            }));
        }
        Ok(self.mig.as_ref().map(|mig| match mig {
            MigFile::Profile(name) => PartNeed::Profile(name.value.0.clone()),
            MigFile::Least { compute, memory } => PartNeed::Slice {
                compute_milli: compute.map_or(0, |compute| compute.value.0),
                memory_bytes: memory.map_or(0, |memory| memory.value.0),
            },
        }))
    }

    /// Models as the engine takes them.
    pub(crate) fn model_needs(&self, source: &Source) -> Result<Vec<ModelNeed>, SpecError> {
        if let Some(beyond) = self.models.0.get(MODELS_MAX) {
            let what = format!("{} models", self.models.0.len());
            return Err(source.error(beyond.model.place, what, format!("at most {MODELS_MAX}")));
        }
        let mut seen = BTreeMap::new();
        for ModelFile { model, .. } in &self.models.0 {
            if let Some(first) = seen.insert(model.value.0.to_lowercase(), model.place) {
                let error =
                    source.error(model.place, format!("{} is named twice", model.value.0), "name it once");
                return Err(error.also(source, first, "the first"));
            }
        }
        let need = |ModelFile { model, speed }: &ModelFile| ModelNeed {
            model: model.value.0.clone(),
            speed_milli: speed.map_or(ModelNeed::AS_SAID, |speed| speed.value.0),
        };
        Ok(self.models.0.iter().map(need).collect())
    }
}

impl ModelsFile {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn has_speeds(&self) -> bool {
        self.0.iter().any(|model| model.speed.is_some())
    }

    /// `H100|A100`.
    pub(crate) fn joined(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|model| model.model.value.0.as_str()).collect();
        names.join("|")
    }

    /// `H100|A100:`, or nothing.
    fn prefix(&self) -> String {
        if self.is_empty() { String::new() } else { format!("{}:", self.joined()) }
    }
}

impl ShareFile {
    fn place(&self) -> Place {
        let compute = self.compute.map(|compute| compute.place);
        compute.or(self.memory.map(|memory| memory.place)).unwrap_or_default()
    }

    /// The compute, where nothing else is said.
    fn compute_alone(&self) -> Option<Fraction> {
        let Self { compute: Some(compute), memory: None, trust: None } = self else { return None };
        Some(compute.value)
    }

    /// Whom its neighbours on the device must belong to.
    fn trust(&self, source: &Source, owner: &str) -> Result<String, SpecError> {
        let Some(trust) = &self.trust else { return Ok(owner.to_owned()) };
        if trust.value.is_empty() || trust.value.len() > TRUST_BYTES_MAX {
            let what = format!("has {} bytes", trust.value.len());
            return Err(source.error(trust.place, what, format!("expected 1 to {TRUST_BYTES_MAX} bytes")));
        }
        Ok(trust.value.clone())
    }
}

impl MigFile {
    const fn place(&self) -> Place {
        match self {
            Self::Profile(At { place, .. })
            | Self::Least { compute: Some(At { place, .. }), .. }
            | Self::Least { compute: None, memory: Some(At { place, .. }) } => *place,
            Self::Least { compute: None, memory: None } => Place::Nowhere,
        }
    }

    /// Reads the name of a profile.
    ///
    /// # Errors
    /// What is wrong, and on the second line what is accepted.
    pub fn from_short(text: &str, place: Place) -> Result<Self, String> {
        ProfileName::read_at(text, place).map(Self::Profile)
    }
}
