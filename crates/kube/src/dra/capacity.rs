//! How much of a device's capacity a request takes, by the policy of the device.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceCapacity,
};

use crate::quantity::{Amount, BadQuantity};

/// What a request takes of each capacity; `None` where it asks for a capacity that the device does not have, or for
/// an amount that the device's policy does not allow.
pub(super) fn share(device: &Device, wanted: &BTreeMap<&str, Amount>) -> Option<BTreeMap<String, Amount>> {
    let capacity = device.capacity.as_ref();
    if !wanted.keys().all(|name| capacity.is_some_and(|capacity| capacity.contains_key(*name))) {
        return None;
    }
    let taken = capacity.into_iter().flatten().map(|(name, capacity)| {
        let amount = consumed(wanted.get(name.as_str()).copied(), capacity).ok().flatten()?;
        Some((name.clone(), amount))
    });
    taken.collect()
}

/// Whether the shares of a device fit into its capacity together.
pub(super) fn fits<'s>(device: &Device, shares: impl Iterator<Item = &'s BTreeMap<String, Amount>>) -> bool {
    let mut sums: BTreeMap<&str, Amount> = BTreeMap::new();
    for (name, amount) in shares.flatten() {
        let sum = sums.entry(name).or_default();
        *sum = sum.plus(*amount);
    }
    device.capacity.iter().flatten().all(|(name, capacity)| {
        let sum = sums.get(name.as_str()).copied().unwrap_or_default();
        Amount::of(&capacity.value).is_ok_and(|all| sum <= all)
    })
}

/// Without a request: the default of the policy, or all of it.
fn consumed(wanted: Option<Amount>, capacity: &DeviceCapacity) -> Result<Option<Amount>, BadQuantity> {
    let Some(policy) = &capacity.request_policy else {
        return wanted.map_or_else(|| Amount::of(&capacity.value), Ok).map(Some);
    };
    let default = policy.default.as_ref().map(Amount::of).transpose()?;
    let Some(wanted) = wanted else {
        return default.map_or_else(|| Amount::of(&capacity.value), Ok).map(Some);
    };
    let amount = rounded_up(wanted, policy)?;
    let is_allowed = default == Some(amount) || is_valid(amount, policy)?;
    Ok(is_allowed.then_some(amount))
}

fn rounded_up(wanted: Amount, policy: &CapacityRequestPolicy) -> Result<Amount, BadQuantity> {
    if let Some(range) = &policy.valid_range {
        let least = Amount::of(&range.min)?;
        if wanted <= least {
            return Ok(least);
        }
        let Some((step, above)) = steps(wanted, range)? else { return Ok(wanted) };
        let rounds = above / step + i64::from(above % step != 0);
        return Ok(Amount::whole(least.rounded_up().saturating_add(step.saturating_mul(rounds))));
    }
    for valid in policy.valid_values.iter().flatten() {
        let valid = Amount::of(valid)?;
        if wanted <= valid {
            return Ok(valid);
        }
    }
    Ok(wanted)
}

fn is_valid(amount: Amount, policy: &CapacityRequestPolicy) -> Result<bool, BadQuantity> {
    if let Some(range) = &policy.valid_range {
        let is_above = range.max.as_ref().map(Amount::of).transpose()?.is_some_and(|most| amount > most);
        let is_between = steps(amount, range)?.is_some_and(|(step, above)| above % step != 0);
        return Ok(!is_above && !is_between);
    }
    let valid = policy.valid_values.as_deref().unwrap_or_default();
    let mut is_listed = valid.is_empty();
    for value in valid {
        is_listed |= Amount::of(value)? == amount;
    }
    Ok(is_listed)
}

/// The step of a range and how far above its least an amount is, in whole units as upstream counts them. No step, or
/// one below a unit, is no rule.
fn steps(amount: Amount, range: &CapacityRequestPolicyRange) -> Result<Option<(i64, i64)>, BadQuantity> {
    let Some(step) = range.step.as_ref().map(Amount::of).transpose()? else { return Ok(None) };
    let above = amount.rounded_up().saturating_sub(Amount::of(&range.min)?.rounded_up());
    Ok((step.rounded_up() > 0).then(|| (step.rounded_up(), above)))
}
