//! Values that know where they were written.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_saphyr::Spanned;

use crate::error::{Place, quote};
use crate::yaml::place_of;

/// A value and where it was written. Two are equal when their values are.
#[derive(Clone, Copy, Debug, Default)]
pub struct At<T> {
    pub value: T,
    pub place: Place,
}

impl<T> At<T> {
    pub const fn new(value: T, place: Place) -> Self {
        Self { value, place }
    }
}

/// A value that nobody wrote.
impl<T> From<T> for At<T> {
    fn from(value: T) -> Self {
        Self { value, place: Place::Nowhere }
    }
}

impl<T> Deref for At<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for At<T> {}

impl<T: Ord> PartialOrd for At<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Ord> Ord for At<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.cmp(&other.value)
    }
}

/// A value written as one plain text. YAML's own reading of numbers and booleans is not used, so that `08`,
/// `1e3` and `.nan` reach the reader as they were typed.
pub trait Scalar: Sized {
    /// What is accepted; completes "expected …".
    const ACCEPTED: &'static str;

    /// # Errors
    /// What is wrong with the text, in a fragment such as `"x" is negative`.
    fn read(text: &str) -> Result<Self, String>;

    /// The text that [`Scalar::read`] takes back.
    fn write(&self) -> String;

    /// JSON Schema of the value, without a description.
    #[must_use]
    fn schema() -> Schema;

    /// Reads a value written at `place`.
    ///
    /// # Errors
    /// What is wrong on the first line, what is accepted on the second.
    fn read_at(text: &str, place: Place) -> Result<At<Self>, String> {
        Self::read(text)
            .map(|value| At { value, place })
            .map_err(|what| format!("{what}\n{}", Self::ACCEPTED))
    }
}

/// Reads a scalar from whatever a format calls it.
struct Read<T>(T);

impl<'de, T: Scalar> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);

        impl<T: Scalar> de::Visitor<'_> for Visitor<T> {
            type Value = Read<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::ACCEPTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Read<T>, E> {
                T::read_at(text, Place::Nowhere).map(|at| Read(at.value)).map_err(E::custom)
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Read<T>, E> {
                self.visit_str(&value.to_string())
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Read<T>, E> {
                self.visit_str(&value.to_string())
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Read<T>, E> {
                self.visit_str(&value.to_string())
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Read<T>, E> {
                self.visit_str(&value.to_string())
            }
        }

        deserializer.deserialize_str(Visitor(PhantomData))
    }
}

impl<'de, T: Scalar> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Read<T>>::deserialize(deserializer)?;
        Ok(Self { value: spanned.value.0, place: place_of(&spanned.referenced) })
    }
}

/// Numbers and booleans go out as such, so that a written file satisfies the schema.
impl<T: Scalar> Serialize for At<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.value.write();
        match text.as_str() {
            "true" => serializer.serialize_bool(true),
            "false" => serializer.serialize_bool(false),
            _ => match text.parse::<i64>() {
                Ok(number) if number.to_string() == text => serializer.serialize_i64(number),
                _ => serializer.serialize_str(&text),
            },
        }
    }
}

impl<T: Scalar> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Scalar".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        T::schema()
    }
}

/// `"x" is …`: begins the message of a [`Scalar::read`].
pub(crate) fn wrong(text: &str, predicate: impl fmt::Display) -> String {
    format!("{} {predicate}", quote(text))
}
