//! How the records of the gangs of a job are written: equal records in a row once, as pending tasks of an array are.

use std::fmt;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{GangId, GangRecord};

/// Records that a shortened list may stand for: far more than a job has.
const RECORDS_MAX: usize = 1_000_000;

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Records,
    Repeats,
}

/// The record that a gang has if it is equal to another one: all of it but the id.
fn is_equal(one: &GangRecord, other: &GangRecord) -> bool {
    // Only gangs that hold nothing and never did are equal in great numbers.
    let is_bare = |record: &GangRecord| record.placement.is_none() && record.members.is_empty();
    is_bare(one) && is_bare(other) && GangRecord { id: one.id, ..other.clone() } == *one
}

/// Whether `other` follows `one` in its job.
fn follows(one: GangId, other: GangId) -> bool {
    one.job == other.job && one.index.checked_add(1) == Some(other.index)
}

/// # Errors
/// Those of the serializer.
pub(crate) fn serialize<S: Serializer>(all: &[GangRecord], serializer: S) -> Result<S::Ok, S::Error> {
    let mut records: Vec<&GangRecord> = Vec::new();
    let mut repeats: Vec<u32> = Vec::new();
    let mut last = None;
    for record in all {
        match (records.last(), repeats.last_mut()) {
            (Some(first), Some(count))
                if last.is_some_and(|last| follows(last, record.id)) && is_equal(first, record) =>
            {
                *count += 1;
            }
            _ => {
                records.push(record);
                repeats.push(1);
            }
        }
        last = Some(record.id);
    }
    if records.len() == all.len() {
        return all.serialize(serializer);
    }
    let mut shortened = serializer.serialize_struct("Records", 2)?;
    shortened.serialize_field("repeats", &repeats)?;
    shortened.serialize_field("records", &records)?;
    shortened.end()
}

/// # Errors
/// If this is no list of records.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<GangRecord>, D::Error> {
    struct Records;

    impl<'de> Visitor<'de> for Records {
        type Value = Vec<GangRecord>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of records of gangs, or {repeats, records}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<GangRecord>, A::Error> {
            let mut all = Vec::new();
            while let Some(record) = list.next_element()? {
                all.push(record);
            }
            Ok(all)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<GangRecord>, A::Error> {
            let (mut records, mut repeats) = (Vec::<GangRecord>::new(), Vec::<u32>::new());
            while let Some(field) = map.next_key()? {
                match field {
                    Field::Records => records = map.next_value()?,
                    Field::Repeats => repeats = map.next_value()?,
                }
            }
            expand(records, &repeats).map_err(A::Error::custom)
        }
    }

    deserializer.deserialize_any(Records)
}

fn expand(records: Vec<GangRecord>, repeats: &[u32]) -> Result<Vec<GangRecord>, &'static str> {
    let count = repeats.iter().fold(0_usize, |sum, count| sum.saturating_add(*count as usize));
    if records.len() != repeats.len() || count > RECORDS_MAX {
        return Err("the records of the gangs of a job do not match how often they repeat");
    }
    let mut all = Vec::with_capacity(count);
    for (record, count) in records.into_iter().zip(repeats) {
        for at in 0..*count {
            let index = record.id.index.checked_add(at).ok_or("the index of a gang is too large")?;
            all.push(GangRecord { id: GangId { index, ..record.id }, ..record.clone() });
        }
    }
    Ok(all)
}
