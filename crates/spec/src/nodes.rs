//! How many nodes a job has, and which.

use std::collections::BTreeMap;
use std::fmt;

use phalanx_model::{Needs, NodeName};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_saphyr::Spanned;

use crate::error::{Place, SpecError};
use crate::job::JobFile;
use crate::place::{At, Scalar};
use crate::scalar::Count;
use crate::yaml;

/// How many nodes, and of which.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodesFile {
    /// As many as are needed where none is said.
    pub count: Option<At<Count>>,
    /// Only these; any where none is named.
    pub of: Vec<At<NodeName>>,
    /// None of these.
    pub except: Vec<At<NodeName>>,
    /// These alone where the whole job fits on them.
    pub prefer: Vec<At<NodeName>>,
}

impl NodesFile {
    /// This many of any nodes.
    #[must_use]
    pub const fn any(count: At<Count>) -> Self {
        Self { count: Some(count), of: Vec::new(), except: Vec::new(), prefer: Vec::new() }
    }

    /// All of these. `None` for none.
    #[must_use]
    pub fn all(of: Vec<At<NodeName>>) -> Option<Self> {
        let place = of.first()?.place;
        let count = u32::try_from(of.len()).ok()?;
        Some(Self { of, ..Self::any(At::new(Count(count), place)) })
    }

    fn is_all(&self) -> bool {
        let count = self.count.and_then(|count| usize::try_from(count.value.0).ok());
        !self.of.is_empty()
            && count == Some(self.of.len())
            && self.except.is_empty()
            && self.prefer.is_empty()
    }
}

impl JobFile {
    /// Which nodes a member may have.
    pub(crate) fn which_nodes(&self, needs: Needs) -> Result<Needs, SpecError> {
        let Some(nodes) = &self.nodes else { return Ok(needs) };
        let (of, except, prefer) =
            (self.distinct(&nodes.of)?, self.distinct(&nodes.except)?, self.distinct(&nodes.prefer)?);
        for (name, place) in &except {
            let elsewhere = [(&of, "one of the only nodes"), (&prefer, "preferred")];
            if let Some((first, label)) = elsewhere.iter().find_map(|(m, l)| Some((m.get(name)?, *l))) {
                let what = format!("{name} is both left out and asked for");
                let error = self.source.error(*place, what, "name it once");
                return Err(self.also(error, Some(*first), label));
            }
        }
        if let Some((name, place)) =
            prefer.iter().find(|(name, _)| !of.is_empty() && !of.contains_key(**name))
        {
            let what = format!("{name} is preferred, and is none of the only nodes");
            return Err(self.source.error(*place, what, "name it under `of` too, or leave it out"));
        }
        if let Some(count) = nodes.count
            && !of.is_empty()
            && usize::try_from(count.value.0).is_ok_and(|count| count > of.len())
        {
            let what = format!("{} nodes of {} that are named", count.value.0, of.len());
            return Err(self.source.error(count.place, what, format!("at most {}, or name more", of.len())));
        }
        let names = |of: BTreeMap<&NodeName, Place>| of.into_keys().cloned().collect();
        Ok(Needs { nodes: names(of), avoid: names(except), prefer: names(prefer), ..needs })
    }

    /// Names of a list in natural order, each once.
    fn distinct<'a>(&self, names: &'a [At<NodeName>]) -> Result<BTreeMap<&'a NodeName, Place>, SpecError> {
        let mut distinct = BTreeMap::new();
        for name in names {
            if let Some(first) = distinct.insert(&name.value, name.place) {
                let error =
                    self.source.error(name.place, format!("{} is named twice", name.value), "name it once");
                return Err(self.also(error, Some(first), "the first"));
            }
        }
        Ok(distinct)
    }

    /// How many nodes, and where that is said.
    pub(crate) fn node_count(&self) -> Option<At<Count>> {
        self.nodes.as_ref()?.count
    }
}

/// The long form of `nodes`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NodesFields {
    /// Number of nodes. Without it, `resources` is the total of the job, on as many nodes as are needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<At<Count>>,
    /// Only these nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    of: Vec<At<NodeName>>,
    /// None of these nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    except: Vec<At<NodeName>>,
    /// These nodes alone where the whole job fits on them, any others where it does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    prefer: Vec<At<NodeName>>,
}

impl Serialize for NodesFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { count, of, except, prefer } = self;
        match count {
            _ if self.is_all() => of.serialize(serializer),
            Some(count) if of.is_empty() && except.is_empty() && prefer.is_empty() => {
                count.serialize(serializer)
            }
            count => {
                let (of, except, prefer) = (of.clone(), except.clone(), prefer.clone());
                NodesFields { count: *count, of, except, prefer }.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for NodesFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = NodesFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}, a list of names, or {{count, of, except, prefer}}", Count::ACCEPTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<NodesFile, E> {
                Count::read_at(text, Place::Nowhere).map(NodesFile::any).map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, count: u64) -> Result<NodesFile, E> {
                self.visit_str(&count.to_string())
            }

            fn visit_i64<E: de::Error>(self, count: i64) -> Result<NodesFile, E> {
                self.visit_str(&count.to_string())
            }

            fn visit_f64<E: de::Error>(self, count: f64) -> Result<NodesFile, E> {
                // As it is shown for a number that is not whole: `1e3` is none either.
                self.visit_str(&format!("{count:?}"))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<NodesFile, A::Error> {
                let mut of = Vec::new();
                while let Some(name) = list.next_element::<At<NodeName>>()? {
                    of.push(name);
                }
                NodesFile::all(of).ok_or_else(|| de::Error::invalid_length(0, &"at least one name"))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<NodesFile, A::Error> {
                let NodesFields { count, of, except, prefer } =
                    NodesFields::deserialize(de::value::MapAccessDeserializer::new(map))?;
                if count.is_none() && of.is_empty() && except.is_empty() && prefer.is_empty() {
                    return Err(de::Error::custom("says nothing\n`count`, `of`, `except` or `prefer`"));
                }
                Ok(NodesFile { count, of, except, prefer })
            }
        }

        struct Unplaced(NodesFile);

        impl<'de> Deserialize<'de> for Unplaced {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Visitor).map(Self)
            }
        }

        let spanned = Spanned::<Unplaced>::deserialize(deserializer)?;
        let Unplaced(mut nodes) = spanned.value;
        if let Some(count) = nodes.count.as_mut().filter(|count| matches!(count.place, Place::Nowhere)) {
            count.place = yaml::place_of(&spanned.referenced);
        }
        Ok(nodes)
    }
}

impl JsonSchema for NodesFile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NodesFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (count, name) = (Count::schema(), NodeName::schema());
        let fields = NodesFields::json_schema(generator);
        json_schema!({ "anyOf": [count, { "type": "array", "items": name, "minItems": 1 }, fields] })
    }
}
