//! Values that are written in one word or as a mapping of fields.

use std::fmt;
use std::marker::PhantomData;

use serde::{Deserialize, Deserializer, de};
use serde_saphyr::Spanned;

use crate::error::Place;
use crate::yaml;

/// A value with a short form, which does not know its place while it is read, and fields.
pub(crate) trait ShortOrLong: Sized {
    /// The long form. Its error is a field that is missing, or two lines: what is wrong, and what is accepted.
    type Fields: for<'de> Deserialize<'de> + TryInto<Self, Error = &'static str>;
    /// Both forms; completes "expected …".
    const EXPECTED: &'static str;
    /// Whether the short form may be a number that is negative or not whole.
    const IS_NUMBER: bool = false;

    /// # Errors
    /// What is wrong, and on the second line what is accepted.
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
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Unplaced<T>, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Unplaced<T>, E> {
                match T::IS_NUMBER {
                    true => self.visit_str(&number.to_string()),
                    false => Err(E::invalid_type(de::Unexpected::Signed(number), &self)),
                }
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Unplaced<T>, E> {
                match T::IS_NUMBER {
                    // `1.0` stays apart from `1`.
                    true => self.visit_str(&format!("{number:?}")),
                    false => Err(E::invalid_type(de::Unexpected::Float(number), &self)),
                }
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Unplaced<T>, A::Error> {
                let fields = T::Fields::deserialize(de::value::MapAccessDeserializer::new(map))?;
                fields.try_into().map(|value| Unplaced(value, false)).map_err(|why| {
                    match why.contains('\n') {
                        true => de::Error::custom(why),
                        false => de::Error::missing_field(why),
                    }
                })
            }
        }

        deserializer.deserialize_any(Visitor(PhantomData))
    }
}

pub(crate) fn read_placed<'de, T: ShortOrLong, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let spanned = Spanned::<Unplaced<T>>::deserialize(deserializer)?;
    let Unplaced(mut value, is_short) = spanned.value;
    if is_short {
        value.set_place(yaml::place_of(&spanned.referenced));
    }
    Ok(value)
}
