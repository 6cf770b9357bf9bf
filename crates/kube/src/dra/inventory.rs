//! The books: what drivers publish, what classes select, what allocated claims hold.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{
    DeviceClass, DeviceRequestAllocationResult, ResourceClaim, ResourceSlice,
};
use k8s_openapi::api::resource::v1beta2::DeviceTaintRule;

use super::cel::Selectors;
use crate::quantity::Amount;

/// Grants a namespace claims with admin access.
const ADMIN_ACCESS: &str = "resource.kubernetes.io/admin-access";

/// The devices that one driver manages under one name; often those of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId {
    pub driver: String,
    pub pool: String,
}

/// One device of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    pub driver: String,
    pub pool: String,
    pub device: String,
}

impl DeviceId {
    pub(crate) fn of(result: &DeviceRequestAllocationResult) -> Self {
        Self { driver: result.driver.clone(), pool: result.pool.clone(), device: result.device.clone() }
    }

    fn pool_id(&self) -> PoolId {
        PoolId { driver: self.driver.clone(), pool: self.pool.clone() }
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.driver, self.pool)
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// Nodes that something is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// Any node may reach it.
    All,
    These(BTreeSet<String>),
}

/// What a claim holds of one device.
#[derive(Clone, Debug)]
struct Holding {
    device: DeviceId,
    /// Of a device that several claims share: how much of each capacity.
    share: Option<BTreeMap<String, Amount>>,
}

/// What is shared of a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    pub(super) count: usize,
    pub(super) consumed: BTreeMap<String, Amount>,
}

/// All that bears on claims, kept as the API server tells it.
#[derive(Default)]
pub struct Inventory {
    /// By name of the slice.
    pub(super) pools: BTreeMap<PoolId, BTreeMap<String, Arc<ResourceSlice>>>,
    /// Which pool a slice is of.
    slices: HashMap<String, PoolId>,
    /// Pools with slices of a node, and how many of them; under no name those that several nodes reach.
    by_node: BTreeMap<Option<String>, BTreeMap<PoolId, usize>>,
    pub(super) classes: BTreeMap<String, Arc<DeviceClass>>,
    pub(super) rules: BTreeMap<String, DeviceTaintRule>,
    /// By namespace and name.
    claims: BTreeMap<(String, String), Vec<Holding>>,
    /// Devices that claims hold alone, and how many do: an old leader may have given one away twice.
    taken: HashMap<DeviceId, usize>,
    shared: HashMap<DeviceId, Shares>,
    admins: BTreeSet<String>,
    pub(super) selectors: Selectors,
}

impl Inventory {
    /// A slice as it is now.
    pub fn slice_applied(&mut self, slice: Arc<ResourceSlice>) {
        let name = slice.metadata.name.clone().unwrap_or_default();
        self.slice_deleted(&name);
        let pool = PoolId { driver: slice.spec.driver.clone(), pool: slice.spec.pool.name.clone() };
        *self.by_node.entry(slice.spec.node_name.clone()).or_default().entry(pool.clone()).or_default() += 1;
        self.slices.insert(name.clone(), pool.clone());
        self.pools.entry(pool).or_default().insert(name, slice);
    }

    pub fn slice_deleted(&mut self, name: &str) {
        let Some(id) = self.slices.remove(name) else { return };
        let Some(pool) = self.pools.get_mut(&id) else { return };
        let gone = pool.remove(name);
        if pool.is_empty() {
            self.pools.remove(&id);
        }
        let node = gone.and_then(|slice| slice.spec.node_name.clone());
        if let Some(pools) = self.by_node.get_mut(&node) {
            if let Some(count) = pools.get_mut(&id) {
                *count -= 1;
                if *count == 0 {
                    pools.remove(&id);
                }
            }
            if pools.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }

    pub fn class_applied(&mut self, class: Arc<DeviceClass>) {
        self.classes.insert(class.metadata.name.clone().unwrap_or_default(), class);
    }

    pub fn class_deleted(&mut self, name: &str) {
        self.classes.remove(name);
    }

    pub fn rule_applied(&mut self, rule: DeviceTaintRule) {
        self.rules.insert(rule.metadata.name.clone().unwrap_or_default(), rule);
    }

    pub fn rule_deleted(&mut self, name: &str) {
        self.rules.remove(name);
    }

    /// A claim as it is now, or as it will be once an allocation that was decided is written.
    pub fn claim_applied(&mut self, claim: &ResourceClaim) {
        let path = path(claim);
        self.forget(&path);
        let holdings = holdings(claim);
        if holdings.is_empty() {
            return;
        }
        for holding in &holdings {
            match &holding.share {
                None => *self.taken.entry(holding.device.clone()).or_default() += 1,
                Some(share) => {
                    let shares = self.shared.entry(holding.device.clone()).or_default();
                    shares.count += 1;
                    for (name, amount) in share {
                        let consumed = shares.consumed.entry(name.clone()).or_default();
                        *consumed = consumed.plus(*amount);
                    }
                }
            }
        }
        self.claims.insert(path, holdings);
    }

    pub fn claim_deleted(&mut self, namespace: &str, name: &str) {
        self.forget(&(namespace.to_owned(), name.to_owned()));
    }

    /// Only namespaces with the label of admin access matter.
    pub fn namespace_applied(&mut self, name: &str, labels: &BTreeMap<String, String>) {
        if labels.get(ADMIN_ACCESS).is_some_and(|value| value == "true") {
            self.admins.insert(name.to_owned());
        } else {
            self.admins.remove(name);
        }
    }

    pub fn namespace_deleted(&mut self, name: &str) {
        self.admins.remove(name);
    }

    pub(crate) fn grants_admin(&self, namespace: &str) -> bool {
        self.admins.contains(namespace)
    }

    /// Nobody publishes devices.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// The nodes that reach the pool of a slice.
    #[must_use]
    pub fn nodes_of_slice(&self, name: &str) -> Nodes {
        self.nodes_of(self.slices.get(name).into_iter())
    }

    /// The nodes that reach the pools of which a claim holds devices.
    #[must_use]
    pub fn nodes_of_claim(&self, namespace: &str, name: &str) -> Nodes {
        let holdings = self.claims.get(&(namespace.to_owned(), name.to_owned()));
        let pools: BTreeSet<PoolId> =
            holdings.into_iter().flatten().map(|holding| holding.device.pool_id()).collect();
        self.nodes_of(pools.iter())
    }

    fn nodes_of<'p>(&self, pools: impl Iterator<Item = &'p PoolId>) -> Nodes {
        let mut names = BTreeSet::new();
        for slice in pools.filter_map(|pool| self.pools.get(pool)).flat_map(BTreeMap::values) {
            match &slice.spec.node_name {
                Some(name) => drop(names.insert(name.clone())),
                // Slices of counters alone say it too.
                None => return Nodes::All,
            }
        }
        Nodes::These(names)
    }

    /// Whether a claim holds the device alone.
    #[must_use]
    pub fn is_taken(&self, device: &DeviceId) -> bool {
        self.taken.contains_key(device)
    }

    pub(super) fn shares(&self, device: &DeviceId) -> Option<&Shares> {
        self.shared.get(device)
    }

    /// Pools that could have devices for a node, in order.
    pub(super) fn pools_of(&self, node: &str) -> BTreeSet<&PoolId> {
        let keys = [Some(node.to_owned()), None];
        keys.iter().filter_map(|key| self.by_node.get(key)).flat_map(BTreeMap::keys).collect()
    }

    fn forget(&mut self, path: &(String, String)) {
        for holding in self.claims.remove(path).unwrap_or_default() {
            let Holding { device, share } = holding;
            match share {
                None => release(&mut self.taken, &device),
                Some(share) => {
                    let Some(shares) = self.shared.get_mut(&device) else { continue };
                    shares.count -= 1;
                    for (name, amount) in &share {
                        if let Some(consumed) = shares.consumed.get_mut(name) {
                            *consumed = consumed.minus(*amount);
                        }
                    }
                    if shares.count == 0 {
                        self.shared.remove(&device);
                    }
                }
            }
        }
    }
}

fn release(taken: &mut HashMap<DeviceId, usize>, device: &DeviceId) {
    if let Some(count) = taken.get_mut(device) {
        *count -= 1;
        if *count == 0 {
            taken.remove(device);
        }
    }
}

pub(super) fn path(claim: &ResourceClaim) -> (String, String) {
    let metadata = &claim.metadata;
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// Admin access holds nothing. An amount that cannot be read counts as none: the API server does not store one.
fn holdings(claim: &ResourceClaim) -> Vec<Holding> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let results = allocation.and_then(|allocation| allocation.devices.as_ref()?.results.as_ref());
    let held = results.into_iter().flatten().filter(|result| !result.admin_access.unwrap_or(false));
    held.map(|result| {
        let consumed = || {
            let amounts = result.consumed_capacity.iter().flatten();
            amounts.map(|(name, amount)| (name.clone(), Amount::of(amount).unwrap_or_default())).collect()
        };
        Holding { device: DeviceId::of(result), share: result.share_id.is_some().then(consumed) }
    })
    .collect()
}
