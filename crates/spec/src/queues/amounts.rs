//! Amounts of several resources: `{gpus: 8, gpus/H100: 4, cpus: 64, memory: 512GB, nic: 2}`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use phalanx_model::{Amounts, Resource};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::scalar::{CpuAmount, GpuAmount, MemoryAmount, UnitAmount};
use crate::gpus::ModelName;
use crate::place::{At, Scalar, wrong};
use crate::quantity;
use crate::resources::meant_field;

/// So much of each; what is not named is not spoken of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AmountsFile(pub BTreeMap<At<Resource>, At<u64>>);

impl AmountsFile {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn amounts(&self) -> Amounts {
        self.0.iter().map(|(resource, amount)| (resource.value.clone(), amount.value)).collect()
    }

    pub(super) fn of_amounts(amounts: &Amounts) -> Self {
        let written = |(resource, amount): (&Resource, &u64)| (resource.clone().into(), (*amount).into());
        Self(amounts.iter().map(written).collect())
    }

    pub(super) fn get(&self, resource: &Resource) -> Option<At<u64>> {
        self.0.get(&At::from(resource.clone())).copied()
    }
}

/// `8 gpus`, `512GB of memory`.
pub(super) fn shown(resource: &Resource, amount: u128) -> String {
    match (resource, u64::try_from(amount)) {
        (Resource::Memory, Ok(bytes)) => format!("{} of memory", quantity::format_memory(bytes)),
        (_, Ok(amount)) => format!("{} {resource}", resource.show(amount)),
        (_, Err(_)) => format!("too many {resource}"),
    }
}

const GPUS_OF: &str = "gpus/";

impl Scalar for Resource {
    const ACCEPTED: &'static str = "gpus, gpus/MODEL, cpus, memory, or the name of a resource that the cluster counts, such as nic or disk_gb";

    fn read(text: &str) -> Result<Self, String> {
        if let Some(model) = text.strip_prefix(GPUS_OF) {
            return ModelName::read(model).map(|model| Self::Model(model.0));
        }
        // `gpu/H100` is a slip too.
        let (first, model) = text.split_once('/').map_or((text, None), |(first, model)| (first, Some(model)));
        let meant = match (meant_field(first), model) {
            (Some("gpus"), Some(model)) => Some(format!("{GPUS_OF}{model}")),
            _ => meant_field(text).and_then(|field| field.split('.').next()).map(str::to_owned),
        };
        if let Some(meant) = meant {
            return Err(format!("no such resource; did you mean {meant:?}?"));
        }
        text.parse().map_err(|error| wrong(text, format_args!("is not a name: {error}")))
    }

    fn write(&self) -> String {
        self.to_string()
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string" })
    }
}

impl<'de> Deserialize<'de> for AmountsFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = AmountsFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("{gpus, gpus/MODEL, cpus, memory}, and names of other resources")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<AmountsFile, A::Error> {
                let mut amounts = BTreeMap::new();
                while let Some(resource) = map.next_key::<At<Resource>>()? {
                    let amount = match resource.value {
                        Resource::Gpus | Resource::Model(_) => {
                            map.next_value::<At<GpuAmount>>().map(|at| At::new(at.value.0, at.place))
                        }
                        Resource::Cpus => {
                            map.next_value::<At<CpuAmount>>().map(|at| At::new(at.value.0, at.place))
                        }
                        Resource::Memory => {
                            map.next_value::<At<MemoryAmount>>().map(|at| At::new(at.value.0, at.place))
                        }
                        Resource::Named(_) => {
                            map.next_value::<At<UnitAmount>>().map(|at| At::new(at.value.0, at.place))
                        }
                    };
                    amounts.insert(resource, amount?);
                }
                Ok(AmountsFile(amounts))
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

impl Serialize for AmountsFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (At { value: resource, .. }, At { value: amount, .. }) in &self.0 {
            let name = resource.to_string();
            match resource {
                Resource::Gpus | Resource::Model(_) => {
                    map.serialize_entry(&name, &At::from(GpuAmount(*amount)))?;
                }
                Resource::Cpus => map.serialize_entry(&name, &At::from(CpuAmount(*amount)))?,
                Resource::Memory => map.serialize_entry(&name, &At::from(MemoryAmount(*amount)))?,
                Resource::Named(_) => map.serialize_entry(&name, &At::from(UnitAmount(*amount)))?,
            }
        }
        map.end()
    }
}

impl JsonSchema for AmountsFile {
    fn schema_name() -> Cow<'static, str> {
        "AmountsFile".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let described = |mut schema: Schema, text: &str| {
            schema.insert("description".to_owned(), text.into());
            schema
        };
        let gpus = described(GpuAmount::schema(), "GPUs of any model, each times the worth of its model.");
        let cpus = described(CpuAmount::schema(), "Logical CPUs.");
        let memory = described(MemoryAmount::schema(), "Memory.");
        let of_model = described(GpuAmount::schema(), "GPUs whose model contains the text, ignoring case.");
        let named = described(UnitAmount::schema(), "Of a resource that the cluster counts.");
        json_schema!({
            "type": "object",
            "properties": { "gpus": gpus, "cpus": cpus, "memory": memory },
            "patternProperties": { "^gpus/[A-Za-z0-9 ._/-]{1,64}$": of_model },
            "additionalProperties": named,
        })
    }
}
