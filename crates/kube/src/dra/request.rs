//! Claims as they are asked: every request with its alternatives, classes found, selectors compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{
    CapacityRequirements, DeviceClass, DeviceRequest, DeviceSelector, DeviceSubRequest, DeviceToleration,
    ExactDeviceRequest, ResourceClaim,
};

use super::cel::Selector;
use super::constraint::Constraint;
use super::error::Unallocatable;
use super::inventory::{self, Inventory};
use super::pools::{Slot, Taint};
use crate::quantity::Amount;

/// Devices of one allocation, as the API allows.
pub(super) const RESULTS_MAX: usize = 32;
/// Claims of one pod that are looked at together.
const CLAIMS_MAX: usize = 64;

pub(super) struct ClaimAsk<'a> {
    pub(super) name: String,
    pub(super) claim: &'a ResourceClaim,
    pub(super) requests: Vec<RequestAsk<'a>>,
    pub(super) constraints: Vec<Constraint<'a>>,
}

pub(super) struct RequestAsk<'a> {
    /// The request itself, or what `firstAvailable` lists, in its order.
    pub(super) choices: Vec<Choice<'a>>,
}

pub(super) struct Choice<'a> {
    /// `request`, or `request/subrequest`.
    pub(super) name: String,
    pub(super) field: String,
    pub(super) class_name: &'a str,
    pub(super) class: &'a DeviceClass,
    /// Of the class and of the request, each with the field that it stands in.
    selectors: Vec<(String, Arc<Selector>)>,
    /// `None`: all that there are.
    pub(super) count: Option<usize>,
    pub(super) is_admin: bool,
    pub(super) tolerations: &'a [DeviceToleration],
    pub(super) capacity: BTreeMap<&'a str, Amount>,
}

impl Inventory {
    pub(super) fn asks<'a>(
        &'a self,
        claims: &[&'a ResourceClaim],
    ) -> Result<Vec<ClaimAsk<'a>>, Unallocatable> {
        if claims.len() > CLAIMS_MAX {
            let name = claims.first().map(|claim| name(claim)).unwrap_or_default();
            let why =
                format!("a pod has {} claims, at most {CLAIMS_MAX} are looked at together", claims.len());
            return Err(Unallocatable::Refused { claim: name, field: "spec".to_owned(), why });
        }
        claims.iter().map(|claim| self.ask(claim)).collect()
    }

    fn ask<'a>(&'a self, claim: &'a ResourceClaim) -> Result<ClaimAsk<'a>, Unallocatable> {
        let reading = Reading { inventory: self, name: name(claim) };
        if claim.status.as_ref().is_some_and(|status| status.allocation.is_some()) {
            return Err(reading.refused("status.allocation", "it is allocated already"));
        }
        let devices = &claim.spec.devices;
        let requests = devices.as_ref().and_then(|devices| devices.requests.as_deref()).unwrap_or_default();
        let constraints =
            devices.as_ref().and_then(|devices| devices.constraints.as_deref()).unwrap_or_default();
        let requests = requests
            .iter()
            .enumerate()
            .map(|(at, request)| reading.request(request, &format!("spec.devices.requests[{at}]"), claim));
        let constraints = constraints.iter().enumerate().map(|(at, constraint)| {
            let field = format!("spec.devices.constraints[{at}]");
            Constraint::of(constraint)
                .ok_or_else(|| reading.refused(&field, "an empty constraint, or of a kind that is not known"))
        });
        Ok(ClaimAsk {
            requests: requests.collect::<Result<_, _>>()?,
            constraints: constraints.collect::<Result<_, _>>()?,
            claim,
            name: reading.name,
        })
    }
}

pub(super) fn name(claim: &ResourceClaim) -> String {
    let (namespace, name) = inventory::path(claim);
    format!("{namespace}/{name}")
}

/// Reading one claim.
struct Reading<'a> {
    inventory: &'a Inventory,
    name: String,
}

/// What an exact request and a subrequest have in common.
struct Parts<'a> {
    name: String,
    field: String,
    class: &'a str,
    mode: Option<&'a str>,
    count: Option<i64>,
    is_admin: bool,
    selectors: &'a [DeviceSelector],
    tolerations: &'a [DeviceToleration],
    capacity: Option<&'a CapacityRequirements>,
}

impl<'a> Reading<'a> {
    fn refused(&self, field: &str, why: impl Into<String>) -> Unallocatable {
        Unallocatable::Refused { claim: self.name.clone(), field: field.to_owned(), why: why.into() }
    }

    fn request(
        &self,
        request: &'a DeviceRequest,
        field: &str,
        claim: &ResourceClaim,
    ) -> Result<RequestAsk<'a>, Unallocatable> {
        let alternatives = request.first_available.as_deref().unwrap_or_default();
        let choices = match &request.exactly {
            Some(exactly) if alternatives.is_empty() => {
                let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
                if exactly.admin_access.unwrap_or(false) && !self.inventory.grants_admin(namespace) {
                    let why = format!(
                        "admin access needs the label resource.kubernetes.io/admin-access=true on the namespace {namespace}"
                    );
                    return Err(self.refused(&format!("{field}.exactly.adminAccess"), why));
                }
                vec![self.choice(exact(request, exactly, field))?]
            }
            None if !alternatives.is_empty() => {
                let parts =
                    alternatives.iter().enumerate().map(|(at, sub)| alternative(request, sub, field, at));
                parts.map(|parts| self.choice(parts)).collect::<Result<_, _>>()?
            }
            _ => return Err(self.refused(field, "give either `exactly` or `firstAvailable`")),
        };
        Ok(RequestAsk { choices })
    }

    fn choice(&self, parts: Parts<'a>) -> Result<Choice<'a>, Unallocatable> {
        let Some(class) = self.inventory.classes.get(parts.class) else {
            let why = format!("there is no device class `{}`", parts.class);
            return Err(self.refused(&format!("{}.deviceClassName", parts.field), why));
        };
        let count = match parts.mode.unwrap_or("ExactCount") {
            "All" => None,
            "ExactCount" => Some(self.count(&parts)?),
            other => {
                return Err(self
                    .refused(&format!("{}.allocationMode", parts.field), format!("unknown mode `{other}`")));
            }
        };
        let mut selectors = Vec::new();
        let of_class = class
            .spec
            .selectors
            .iter()
            .flatten()
            .map(|selector| (format!("deviceClass {}, spec", parts.class), selector));
        let of_class = of_class.enumerate().collect::<Vec<_>>();
        let own = parts.selectors.iter().map(|selector| (parts.field.clone(), selector)).enumerate();
        for (at, (place, selector)) in of_class.into_iter().chain(own) {
            let field = format!("{place}.selectors[{at}].cel.expression");
            let Some(cel) = &selector.cel else {
                return Err(self.refused(&field, "no CEL expression, and no other kind of selector is known"));
            };
            let compiled =
                self.inventory.selectors.of(&cel.expression).map_err(|why| self.refused(&field, why))?;
            selectors.push((field, compiled));
        }
        let mut capacity = BTreeMap::new();
        for (name, amount) in parts.capacity.and_then(|wanted| wanted.requests.as_ref()).into_iter().flatten()
        {
            let field = || format!("{}.capacity.requests[{name}]", parts.field);
            let amount = Amount::of(amount).map_err(|why| self.refused(&field(), why.to_string()))?;
            capacity.insert(name.as_str(), amount);
        }
        Ok(Choice {
            name: parts.name,
            field: parts.field,
            class_name: parts.class,
            class,
            selectors,
            count,
            is_admin: parts.is_admin,
            tolerations: parts.tolerations,
            capacity,
        })
    }

    /// The API server writes the default of one where none is given.
    fn count(&self, parts: &Parts<'_>) -> Result<usize, Unallocatable> {
        let count = usize::try_from(parts.count.unwrap_or(1)).unwrap_or(usize::MAX);
        if (1..=RESULTS_MAX).contains(&count) {
            return Ok(count);
        }
        let why = format!(
            "{} devices are asked for, a claim can have 1 to {RESULTS_MAX}",
            parts.count.unwrap_or(1)
        );
        Err(self.refused(&format!("{}.count", parts.field), why))
    }
}

fn exact<'a>(request: &DeviceRequest, exactly: &'a ExactDeviceRequest, field: &str) -> Parts<'a> {
    Parts {
        name: request.name.clone(),
        field: format!("{field}.exactly"),
        class: &exactly.device_class_name,
        mode: exactly.allocation_mode.as_deref(),
        count: exactly.count,
        is_admin: exactly.admin_access.unwrap_or(false),
        selectors: exactly.selectors.as_deref().unwrap_or_default(),
        tolerations: exactly.tolerations.as_deref().unwrap_or_default(),
        capacity: exactly.capacity.as_ref(),
    }
}

fn alternative<'a>(request: &DeviceRequest, sub: &'a DeviceSubRequest, field: &str, at: usize) -> Parts<'a> {
    Parts {
        name: format!("{}/{}", request.name, sub.name),
        field: format!("{field}.firstAvailable[{at}]"),
        class: &sub.device_class_name,
        mode: sub.allocation_mode.as_deref(),
        count: sub.count,
        is_admin: false,
        selectors: sub.selectors.as_deref().unwrap_or_default(),
        tolerations: sub.tolerations.as_deref().unwrap_or_default(),
        capacity: sub.capacity.as_ref(),
    }
}

impl Choice<'_> {
    /// Whether class and request select a device.
    pub(super) fn selects(&self, claim: &str, slot: &Slot<'_>) -> Result<bool, Unallocatable> {
        // What such a device takes of its node's CPUs and memory is counted nowhere yet: it is left alone.
        if slot
            .device
            .node_allocatable_resource_mappings
            .as_ref()
            .is_some_and(|mappings| !mappings.is_empty())
        {
            return Ok(false);
        }
        for (field, selector) in &self.selectors {
            let selected =
                selector.selects(&slot.id.driver, slot.device).map_err(|why| Unallocatable::Selector {
                    claim: claim.to_owned(),
                    field: field.clone(),
                    device: slot.id.to_string(),
                    why,
                })?;
            if !selected {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether every taint that keeps claims away is tolerated.
    pub(super) fn tolerates(&self, slot: &Slot<'_>) -> bool {
        slot.hard_taints().all(|taint| self.tolerations.iter().any(|toleration| covers(toleration, taint)))
    }
}

fn covers(toleration: &DeviceToleration, taint: &Taint<'_>) -> bool {
    let same = |wanted: &Option<String>, is: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == is)
    };
    let value = match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => toleration.value.as_deref().unwrap_or_default() == taint.value,
        "Exists" => true,
        _ => false,
    };
    value && same(&toleration.effect, taint.effect) && same(&toleration.key, taint.key)
}
