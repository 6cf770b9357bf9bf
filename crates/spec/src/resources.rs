//! What a job takes: GPUs, CPUs, memory, and what the cluster counts by name.

use std::collections::BTreeMap;
use std::fmt;

use phalanx_model::{Needs, ResourceName};
use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::error::{Place, SpecError, nearest, quote};
use crate::gpus::GpusFile;
use crate::job::JobFile;
use crate::place::{At, Scalar, wrong};
use crate::scalar::{Amount, Cpus, Memory};

/// Less memory than this per job is a unit that was forgotten.
const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// What has a field of its own.
const FIELDS: [&str; 3] = ["gpus", "cpus", "memory"];
/// Words of other schedulers for these.
const SYNONYMS: [(&str, &str); 8] = [
    ("accelerators", "gpus"),
    ("gpu", "gpus"),
    ("nvidia.com/gpu", "gpus"),
    ("amd.com/gpu", "gpus"),
    ("mig", "gpus.mig"),
    ("cpu", "cpus"),
    ("mem", "memory"),
    ("ram", "memory"),
];

/// GPUs, CPUs, memory and named resources: per NODE when `nodes` is given, otherwise the total of the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(default)]
pub struct ResourcesFile {
    /// Whole GPUs, `8`, `H100:8`, `H100|A100:8`: per NODE when `nodes` is given, otherwise in total. Or a part of one
    /// for each RANK: `0.25`, `{share: {compute: 0.25, memory: 10GB}}`, `{mig: 1g.10gb}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<GpusFile>,
    /// Logical CPUs. Per NODE when `nodes` is given, otherwise in total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<At<Cpus>>,
    /// Memory, e.g. `512GB` or `512GiB`. Per NODE when `nodes` is given, otherwise in total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<At<Memory>>,
    /// Any other name: a resource that the cluster counts, such as `nic`, `disk_gb` or `power_w`. Per NODE when
    /// `nodes` is given, otherwise in total.
    #[serde(flatten)]
    pub named: BTreeMap<At<ResourceName>, At<Amount>>,
}

impl ResourcesFile {
    /// The name of a resource, typed at `place`.
    pub(crate) fn name(text: &str, place: Place) -> Result<At<ResourceName>, String> {
        let field = Field::read_at(text, place)?;
        if FIELDS.contains(&text) {
            return Err(format!("{} has a flag of its own: --{text}", quote(text)));
        }
        Ok(At::new(field.value.0, place))
    }
}

impl<'de> Deserialize<'de> for ResourcesFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = ResourcesFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("{gpus, cpus, memory}, and names of other resources")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<ResourcesFile, A::Error> {
                let mut resources = ResourcesFile::default();
                while let Some(At { value: Field(name), place }) = map.next_key::<At<Field>>()? {
                    match name.as_str() {
                        "gpus" => resources.gpus = map.next_value()?,
                        "cpus" => resources.cpus = map.next_value()?,
                        "memory" => resources.memory = map.next_value()?,
                        _ => {
                            let amount = map.next_value()?;
                            resources.named.insert(At::new(name, place), amount);
                        }
                    }
                }
                Ok(resources)
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

/// The name of a resource, which is not a slip for one that has a field.
struct Field(ResourceName);

/// The field that a slip or a word of another scheduler means.
pub(crate) fn meant_field(text: &str) -> Option<&'static str> {
    let lower = text.to_lowercase();
    let synonym = SYNONYMS.iter().find(|(theirs, _)| *theirs == lower).map(|(_, ours)| *ours);
    synonym.or_else(|| nearest(text, &FIELDS).filter(|_| !FIELDS.contains(&text)))
}

impl Scalar for Field {
    const ACCEPTED: &'static str =
        "gpus, cpus, memory, or the name of a resource that the cluster counts, such as nic or disk_gb";

    fn read(text: &str) -> Result<Self, String> {
        let name =
            ResourceName::new(text).map_err(|error| wrong(text, format_args!("is not a name: {error}")))?;
        match meant_field(text) {
            Some(meant) => Err(format!("no such field; did you mean {}?", quote(meant))),
            None => Ok(Self(name)),
        }
    }

    fn write(&self) -> String {
        self.0.to_string()
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string" })
    }
}

impl JobFile {
    /// CPUs, memory and named resources of one member, when so many `sharers` divide them. Of named resources nobody
    /// gets a part of a unit.
    pub(crate) fn amounts(&self, resources: &ResourcesFile, sharers: u32) -> Result<Needs, SpecError> {
        if let Some(memory) = resources.memory.filter(|memory| memory.value.0 < MEMORY_BYTES_MIN) {
            let what = format!("{} bytes are less than 1MiB", memory.value.0);
            let accepted = format!("a plain number is bytes; did you mean {}GB?", memory.value.0);
            return Err(self.source.error(memory.place, what, accepted));
        }
        let sharers = u64::from(sharers);
        let mut named = BTreeMap::new();
        for (name, amount) in &resources.named {
            let total = amount.value.0;
            if !total.is_multiple_of(sharers) {
                let what = format!("{total} {} cannot be divided evenly among {sharers} ranks", name.value);
                let multiple = total.div_ceil(sharers).saturating_mul(sharers);
                let accepted = format!("expected a multiple of {sharers}, such as {multiple}");
                return Err(self.source.error(amount.place, what, accepted));
            }
            named.insert(name.value.clone(), total / sharers);
        }
        Ok(Needs {
            cpu_milli: resources.cpus.map_or(0, |cpus| cpus.value.0.div_ceil(sharers)),
            memory_bytes: resources.memory.map_or(0, |memory| memory.value.0.div_ceil(sharers)),
            named,
            ..Needs::default()
        })
    }
}
