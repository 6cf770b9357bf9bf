//! How ends of other jobs and arrays are written: in one word or as fields.

use std::borrow::Cow;
use std::fmt;

use phalanx_model::{EndOf, JobId, TASKS_MAX, Tasks};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_saphyr::Spanned;

use super::{AfterFile, AftersFile, ArrayFile};
use crate::error::Place;
use crate::place::At;
use crate::scalar::Count;
use crate::short::{ShortOrLong, read_placed};
use crate::yaml;

/// The long form of the end of a job.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AfterFields {
    /// Number of the job.
    job: At<JobId>,
    /// How it must end: `success`, `failure` or `any`. When it ends otherwise, this job ends too. Default: success.
    end: Option<At<EndOf>>,
}

impl TryFrom<AfterFields> for AfterFile {
    type Error = &'static str;

    fn try_from(AfterFields { job, end }: AfterFields) -> Result<Self, &'static str> {
        Ok(Self { job, end })
    }
}

impl ShortOrLong for AfterFile {
    type Fields = AfterFields;
    const EXPECTED: &'static str = "JOB or JOB:END, such as 12 or 12:any, or {job, end}";
    const IS_NUMBER: bool = true;

    fn short(text: &str) -> Result<Self, String> {
        Self::from_short(text, Place::Nowhere)
    }

    fn set_place(&mut self, place: Place) {
        self.job.place = place;
        self.end.iter_mut().for_each(|end| end.place = place);
    }
}

impl<'de> Deserialize<'de> for AfterFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_placed(deserializer)
    }
}

impl JsonSchema for AfterFile {
    fn schema_name() -> Cow<'static, str> {
        "AfterFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let fields = AfterFields::json_schema(generator);
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 1 },
            {
                "type": "string",
                "description": "JOB[:END]",
                "pattern": "^[0-9]+(:(success|failure|any))?$",
                "examples": ["12:any"],
            },
            fields,
        ]})
    }
}

impl<'de> Deserialize<'de> for AftersFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = AftersFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}, or a list of such", AfterFile::EXPECTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<AftersFile, E> {
                AfterFile::short(text).map(|one| AftersFile(vec![one])).map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<AftersFile, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<AftersFile, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<AftersFile, A::Error> {
                let AfterFields { job, end } =
                    AfterFields::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(AftersFile(vec![AfterFile { job, end }]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<AftersFile, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = list.next_element()? {
                    all.push(one);
                }
                Ok(AftersFile(all))
            }
        }

        struct Unplaced(AftersFile);

        impl<'de> Deserialize<'de> for Unplaced {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Visitor).map(Self)
            }
        }

        let spanned = Spanned::<Unplaced>::deserialize(deserializer)?;
        let Unplaced(mut all) = spanned.value;
        for one in all.0.iter_mut().filter(|one| matches!(one.job.place, Place::Nowhere)) {
            one.set_place(yaml::place_of(&spanned.referenced));
        }
        Ok(all)
    }
}

impl JsonSchema for AftersFile {
    fn schema_name() -> Cow<'static, str> {
        "AftersFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<AfterFile>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}

/// The long form of an array.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArrayFields {
    /// Number of tasks, at most 100000. They count from 0.
    size: Option<At<Count>>,
    /// Numbers of the tasks, instead of `size`.
    tasks: Option<At<Tasks>>,
    /// Tasks that hold capacity at once. Default: all.
    max_running: Option<At<Count>>,
}

impl TryFrom<ArrayFields> for ArrayFile {
    type Error = &'static str;

    fn try_from(ArrayFields { size, tasks, max_running }: ArrayFields) -> Result<Self, &'static str> {
        if size.is_some() == tasks.is_some() {
            return Err(
                "an array needs either `size` or `tasks`\n{size, max_running} or {tasks, max_running}",
            );
        }
        Ok(Self { size, tasks, max_running })
    }
}

impl ShortOrLong for ArrayFile {
    type Fields = ArrayFields;
    const EXPECTED: &'static str = "a number of tasks or their numbers, such as 10, 1-10:3 or 10%2 for 2 at once, or {size, max_running}";
    const IS_NUMBER: bool = true;

    fn short(text: &str) -> Result<Self, String> {
        Self::from_short(text, Place::Nowhere)
    }

    fn set_place(&mut self, place: Place) {
        self.size.iter_mut().for_each(|size| size.place = place);
        self.tasks.iter_mut().for_each(|tasks| tasks.place = place);
        self.max_running.iter_mut().for_each(|running| running.place = place);
    }
}

impl<'de> Deserialize<'de> for ArrayFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_placed(deserializer)
    }
}

impl JsonSchema for ArrayFile {
    fn schema_name() -> Cow<'static, str> {
        "ArrayFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let fields = ArrayFields::json_schema(generator);
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": TASKS_MAX },
            {
                "type": "string",
                "description": "SIZE[%MAX_RUNNING] or NUMBERS[%MAX_RUNNING]",
                "pattern": "^[0-9]+(-[0-9]+(:[0-9]+)?)?(,[0-9]+(-[0-9]+(:[0-9]+)?)?)*(%[0-9]+)?$",
                "examples": ["10%2", "1-10:3", "1,4,7-9%2"],
            },
            fields,
        ]})
    }
}
