//! A device as a value of CEL.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};

use cel::ExecutionError;
use cel::common::traits::{Container, Indexer, Iterable, Sizer};
use cel::common::types::{CelBool, CelInt, CelList, CelMap, CelMapKey, CelString, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};

use crate::quantity::Amount;

type Boxed<'v> = Box<dyn Val + 'v>;

/// The variable `device`.
pub(super) fn device<'d>(driver: &'d str, device: &'d Device) -> Result<Boxed<'d>, String> {
    let mut attributes: Vec<(&str, Boxed<'d>)> = Vec::new();
    for (name, attribute) in device.attributes.iter().flatten() {
        let value = attribute_value(attribute).map_err(|why| format!("attribute {name}: {why}"))?;
        attributes.push((name, value));
    }
    let mut capacity: Vec<(&str, Boxed<'d>)> = Vec::new();
    for (name, amount) in device.capacity.iter().flatten() {
        let value = Amount::of(&amount.value).map_err(|why| format!("capacity {name}: {why}"))?;
        capacity.push((name, Box::new(Quantity(value))));
    }
    let multiple = CelBool::from(device.allow_multiple_allocations.unwrap_or(false));
    let fields: [(&str, Boxed<'d>); 4] = [
        ("driver", Box::new(CelString::from(driver))),
        ("allowMultipleAllocations", Box::new(multiple)),
        ("attributes", Box::new(Domains::of(attributes, driver))),
        ("capacity", Box::new(Domains::of(capacity, driver))),
    ];
    Ok(Box::new(map(fields)))
}

fn map<'d>(entries: impl IntoIterator<Item = (&'d str, Boxed<'d>)>) -> CelMap<'d> {
    let keyed = entries.into_iter().map(|(key, value)| (CelMapKey::from(key), value));
    CelMap::from(keyed.collect::<HashMap<_, _>>())
}

fn attribute_value(attribute: &DeviceAttribute) -> Result<Boxed<'_>, String> {
    fn list<'v>(
        items: impl std::iter::Iterator<Item = Result<Boxed<'v>, String>>,
    ) -> Result<Boxed<'v>, String> {
        Ok(Box::new(CelList::from(items.collect::<Result<Vec<_>, _>>()?)))
    }
    fn version<'v>(text: &str) -> Result<Boxed<'v>, String> {
        Ok(Box::new(Version::parse(text)?))
    }
    match attribute {
        DeviceAttribute { ints: Some(ints), .. } => {
            list(ints.iter().map(|int| Ok(Box::new(CelInt::from(*int)) as _)))
        }
        DeviceAttribute { bools: Some(bools), .. } => {
            list(bools.iter().map(|truth| Ok(Box::new(CelBool::from(*truth)) as _)))
        }
        DeviceAttribute { strings: Some(strings), .. } => {
            list(strings.iter().map(|text| Ok(Box::new(CelString::from(text.as_str())) as _)))
        }
        DeviceAttribute { versions: Some(versions), .. } => list(versions.iter().map(|text| version(text))),
        DeviceAttribute { int: Some(int), .. } => Ok(Box::new(CelInt::from(*int))),
        DeviceAttribute { bool: Some(truth), .. } => Ok(Box::new(CelBool::from(*truth))),
        DeviceAttribute { string: Some(text), .. } => Ok(Box::new(CelString::from(text.as_str()))),
        DeviceAttribute { version: Some(text), .. } => version(text),
        _ => Err("unsupported attribute value".to_owned()),
    }
}

/// Attributes or capacities by domain. A domain that is not there reads as an empty one.
#[derive(Debug)]
struct Domains<'d> {
    by_name: CelMap<'d>,
    empty: CelMap<'d>,
}

static DOMAINS: Type = Type::new_unspecified_type("map");

impl<'d> Domains<'d> {
    /// A name without a domain is of the driver's.
    fn of(values: Vec<(&'d str, Boxed<'d>)>, driver: &'d str) -> Self {
        let mut domains: BTreeMap<&'d str, Vec<(&'d str, Boxed<'d>)>> = BTreeMap::new();
        for (name, value) in values {
            let (domain, id) = name.split_once('/').unwrap_or((driver, name));
            domains.entry(domain).or_default().push((id, value));
        }
        let by_name =
            map(domains.into_iter().map(|(domain, named)| (domain, Box::new(map(named)) as Boxed<'d>)));
        Self { by_name, empty: map([]) }
    }
}

impl<'d> Val for Domains<'d> {
    fn get_type(&self) -> &Type {
        Self::cel_type()
    }

    fn cel_type() -> &'static Type {
        &DOMAINS
    }

    fn as_container(&self) -> Option<&dyn Container> {
        self.by_name.as_container()
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
    where
        Self: 'v,
    {
        self.by_name.as_iterable()
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        self.by_name.as_sizer()
    }

    fn clone_as_boxed<'v>(&self) -> Boxed<'v>
    where
        Self: 'v,
    {
        Box::new(Domains { by_name: copy(&self.by_name), empty: copy(&self.empty) })
    }
}

/// A map's own clone is boxed; this one is still known to be a map.
fn copy<'d: 'v, 'v>(of: &CelMap<'d>) -> CelMap<'v> {
    let entries = of.inner().iter().map(|(key, value)| (key.clone(), value.clone_as_boxed()));
    CelMap::from(entries.collect::<HashMap<_, _>>())
}

impl Indexer for Domains<'_> {
    fn get<'b, 'v>(&'b self, index: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        match Indexer::get(&self.by_name, index) {
            Err(ExecutionError::NoSuchKey(_)) => Ok(CowVal::Borrowed(&self.empty)),
            other => other,
        }
    }

    fn steal<'v>(self: Box<Self>, index: &dyn Val) -> Result<Boxed<'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(index).map(CowVal::into_owned)
    }
}

/// A quantity, as `quantity("40Gi")` makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quantity(pub(super) Amount);

/// A semantic version, as `semver("1.2.3")` makes one.
#[derive(Clone, Debug)]
pub(super) struct Version(pub(super) semver::Version);

impl Version {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        semver::Version::parse(text)
            .map(Self)
            .map_err(|why| format!("parse semantic version `{text}`: {why}"))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.0.cmp_precedence(&other.0).is_eq()
    }
}

/// What an owned type of ours needs to be a value of CEL.
macro_rules! owned_value {
    ($ty:ident, $name:literal) => {
        impl Val for $ty {
            fn get_type(&self) -> &Type {
                Self::cel_type()
            }

            fn cel_type() -> &'static Type {
                static TYPE: Type = Type::new_unspecified_type($name);
                &TYPE
            }

            fn equals(&self, other: &dyn Val) -> bool {
                other.downcast_ref::<Self>().is_some_and(|other| self == other)
            }

            fn clone_as_boxed<'v>(&self) -> Boxed<'v> {
                Box::new(self.clone())
            }

            fn as_any(&self) -> Option<&dyn Any> {
                Some(self)
            }
        }

        impl StaticVal for $ty {}
    };
}

owned_value!(Quantity, "kubernetes.Quantity");
owned_value!(Version, "kubernetes.Semver");
