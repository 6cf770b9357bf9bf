//! Kinds of nodes: nodes of one kind are equal in everything that a search reads, so they are counted together and
//! measured once.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_model::queue::contains;
use phalanx_model::{
    Bandwidth, DeviceGroup, DeviceMask, Kept, LevelName, Needs, Node, NodeSet, ShapeCost, ShapeName, Spare,
};

use super::fractions::hardware::{can_have, hardware_of};
use super::measured;
use super::shape::{NO_LIMIT, Offer, ShapeTable, Shapes};
use crate::share::Kind as Hardware;

/// The way out of a node beside its NICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cables {
    /// 0: nothing is known.
    pub(crate) mb_per_s: u32,
    pub(crate) latency_ns: u32,
    /// The share of the bandwidth of cables and NICs that was measured to be missing, in thousandths. Slow networks come last,
    /// so that of equal nodes a gang on several nodes has the others, also if its bottleneck is elsewhere.
    pub(crate) missing_permille: u16,
}

/// The properties that nodes of one kind share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KindKey<'a> {
    pub(crate) shape: &'a ShapeName,
    models: Vec<&'a str>,
    memory_bytes: Vec<u64>,
    share_limit_milli: u32,
    replicas: u32,
    is_spot: bool,
    spare: Spare,
    sets: &'a [NodeSet],
    pools: &'a [NodeSet],
    kept: &'a Kept,
    groups: Vec<(&'a LevelName, u64)>,
    cables: Cables,
}

impl<'a> KindKey<'a> {
    pub(crate) fn of(node: &'a Node, cables: Cables) -> Self {
        let machine = &node.machine;
        let group = |group: &'a DeviceGroup| (&group.level, group.devices.0);
        Self {
            shape: &machine.shape,
            models: machine.devices.iter().map(|device| device.model.as_str()).collect(),
            memory_bytes: machine.devices.iter().map(|device| device.memory_bytes).collect(),
            share_limit_milli: machine.share_limit_milli,
            replicas: machine.replicas,
            is_spot: node.spot.is_some(),
            spare: node.spare,
            sets: &node.sets,
            pools: &node.pools,
            kept: &node.kept,
            groups: machine.groups.iter().map(group).collect(),
            cables,
        }
    }
}

/// A set of equal nodes.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) table: Arc<ShapeTable>,
    /// The table and the cables of the hardware, whatever was measured.
    nominal: (Arc<ShapeTable>, u32),
    missing_permille: u16,
    /// All devices of such a node.
    all: DeviceMask,
    /// Inside the node, per level: `(index of the level, devices)`, sorted.
    pub(crate) groups: Vec<(usize, DeviceMask)>,
    /// Models in small letters, and which devices they are.
    models: Vec<(String, DeviceMask)>,
    /// The distinct hardware of the devices that can be shared or cut, and the devices of each.
    pub(crate) hardware: Vec<(Hardware, DeviceMask)>,
    /// May be taken back at short notice.
    is_spot: bool,
    /// Kept for gangs that lose hardware.
    spare: Spare,
    sets: Vec<NodeSet>,
    pools: Vec<NodeSet>,
    /// Devices that are reserved for some node sets.
    kept: Kept,
    /// Its model among those of the tree, below 64.
    pub(crate) model_bit: u8,
    uplink_mb_per_s: u32,
    /// Twice the latency of its cables.
    pub(crate) crossing_ns: u64,
    /// If the table does not know these devices: the offer by number of devices alone.
    by_count: Vec<Offer>,
    /// The distinct rates of its device sets, inside the node and beyond it.
    rings: Vec<u32>,
    beyonds: Vec<u32>,
}

impl Kind {
    pub(super) fn new(
        key: &KindKey<'_>,
        cost: &ShapeCost,
        tables: &mut Shapes,
        group_levels: &[LevelName],
    ) -> Self {
        let Cables { mb_per_s, latency_ns, missing_permille } = key.cables;
        let permille = Bandwidth::NOMINAL.saturating_sub(missing_permille);
        let (nominal, table) = (tables.of(cost), tables.of(&measured::share_of_nics(cost, permille)));
        let devices = u32::try_from(key.models.len()).unwrap_or(u32::MAX);
        let all = DeviceMask::first(devices);
        let mut models: BTreeMap<String, DeviceMask> = BTreeMap::new();
        for (i, model) in (0_u32..).zip(&key.models) {
            let mask = models.entry(model.to_ascii_lowercase()).or_default();
            *mask = mask.union(DeviceMask::one(i));
        }
        let place = |(level, mask): &(&LevelName, u64)| {
            Some((group_levels.binary_search(level).ok()?, DeviceMask(*mask).and(all)))
        };
        let mut groups: Vec<(usize, DeviceMask)> = key.groups.iter().filter_map(place).collect();
        groups.sort_unstable();
        let known = table.class_of(all).is_some();
        let by_count = if known { Vec::new() } else { (0..=all.count()).map(Offer::unlimited).collect() };
        let cables = if mb_per_s == 0 { NO_LIMIT } else { mb_per_s };
        let knows_nics = known && table.knows_nics();
        let devices = key.models.iter().zip(key.memory_bytes.iter().copied());
        let mut kind = Self {
            table,
            nominal: (nominal, cables),
            missing_permille,
            hardware: hardware_of(devices, key.share_limit_milli, key.replicas),
            is_spot: key.is_spot,
            spare: key.spare,
            sets: key.sets.to_vec(),
            pools: key.pools.to_vec(),
            kept: key.kept.clone(),
            model_bit: 0,
            all,
            groups,
            models: models.into_iter().collect(),
            uplink_mb_per_s: measured::share_of_cables(cables, permille, knows_nics),
            crossing_ns: 2 * u64::from(latency_ns),
            by_count,
            rings: Vec::new(),
            beyonds: Vec::new(),
        };
        kind.rings = distinct(kind.offers().iter().flat_map(|offer| offer.inside.iter().copied()));
        let whole = kind.nics(kind.all());
        let beyonds = kind.offers().iter().flat_map(|offer| offer.spanning.iter().skip(1));
        kind.beyonds = distinct(beyonds.map(|rate| kind.beyond(*rate)).chain([whole]));
        kind
    }

    /// Whether a gang may have the same devices of both kinds, and is charged the same for them.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let of = |kind: &Self| (kind.all, kind.is_spot, kind.spare, kind.model_bit);
        of(self) == of(other)
            && self.models == other.models
            && self.hardware == other.hardware
            && self.sets == other.sets
            && self.pools == other.pools
            && self.kept == other.kept
            && self.groups == other.groups
    }

    /// Whether both have the same devices and links, whoever may use them, and whatever was measured.
    pub(crate) fn has_same_hardware(&self, other: &Self) -> bool {
        let of = |kind: &Self| (kind.all, kind.is_spot, kind.nominal.1, kind.crossing_ns);
        let (table, others) = (&self.nominal.0, &other.nominal.0);
        (Arc::ptr_eq(table, others) || table == others)
            && of(self) == of(other)
            && self.models == other.models
            && self.hardware == other.hardware
            && self.groups == other.groups
    }

    pub(crate) const fn is_measured(&self) -> bool {
        self.missing_permille > 0
    }

    /// The share of its network that is there: of equal nodes, a gang on one node leaves the fast networks to others.
    pub(crate) const fn network_permille(&self) -> u16 {
        Bandwidth::NOMINAL.saturating_sub(self.missing_permille)
    }

    /// The tables of its shape, as measured and nominal.
    pub(super) fn tables(&self) -> [Arc<ShapeTable>; 2] {
        [self.table.clone(), self.nominal.0.clone()]
    }

    /// The bandwidth out of such a node, whatever was measured.
    pub(super) fn nominal_nics(&self) -> u32 {
        self.nominal.0.nics(self.all).min(self.nominal.1)
    }

    /// The distinct rates of rings inside such a node.
    pub(crate) fn rings(&self) -> &[u32] {
        &self.rings
    }

    /// The distinct bandwidths of device sets of a gang that spans several nodes.
    pub(crate) fn beyonds(&self) -> &[u32] {
        &self.beyonds
    }

    /// The offer of each class of free masks.
    pub(crate) fn offers(&self) -> &[Offer] {
        if self.by_count.is_empty() { self.table.offers() } else { &self.by_count }
    }

    /// The class of a free mask, an index into [`Self::offers`].
    pub(crate) fn class_of(&self, free: DeviceMask) -> u16 {
        if self.by_count.is_empty() { self.table.class_of(free).unwrap_or(0) } else { free.count() as u16 }
    }

    /// The bandwidth that devices of such a node get if the gang spans several nodes, given the offer of its class.
    pub(crate) fn beyond(&self, offered_mb_per_s: u32) -> u32 {
        offered_mb_per_s.min(self.uplink_mb_per_s)
    }

    /// The ring through a set of devices.
    pub(crate) fn ring(&self, devices: DeviceMask) -> u32 {
        if self.by_count.is_empty() && devices.count() > 1 { self.table.speed(devices) } else { NO_LIMIT }
    }

    /// The bandwidth out of the node from these devices.
    pub(crate) fn nics(&self, devices: DeviceMask) -> u32 {
        self.table.nics(devices).min(self.uplink_mb_per_s)
    }

    /// Whether the bandwidth out of the node is known: of its NICs, or as its uplink is declared.
    pub(crate) fn knows_uplink(&self) -> bool {
        self.uplink_mb_per_s < NO_LIMIT || self.by_count.is_empty() && self.table.knows_nics()
    }

    /// The model of its first device.
    pub(crate) fn model(&self) -> &str {
        self.models.iter().find(|(_, mask)| mask.contains(0)).map_or("", |(model, _)| model)
    }

    /// Whether no member can go to such a node, whatever is free there.
    pub(crate) fn refuses(&self, needs: &Needs) -> bool {
        let is_outside = |set: &NodeSet| self.sets.binary_search(set).is_err();
        self.is_spot && !needs.takes_spot
            || self.spare.refuses(needs)
            || needs.within.as_ref().is_some_and(is_outside)
            || !self.is_in_pools(&needs.pools)
    }

    /// The sets of pools of queues that contain such a node, in order.
    pub(crate) fn pools(&self) -> &[NodeSet] {
        &self.pools
    }

    /// Whether such a node is in all of these pools of queues.
    pub(crate) fn is_in_pools(&self, pools: &[NodeSet]) -> bool {
        pools.iter().all(|pool| self.pools.binary_search(pool).is_ok())
    }

    /// The devices that the gang may use: of a model that it takes, and not reserved for others.
    pub(crate) fn eligible(&self, needs: &Needs) -> DeviceMask {
        if self.refuses(needs) {
            return DeviceMask::EMPTY;
        }
        self.suiting(needs).minus(self.kept_from(needs))
    }

    /// Whether every gang may use all of its devices.
    pub(crate) fn is_for_all(&self) -> bool {
        self.kept.is_nothing()
    }

    /// Devices that are reserved for others.
    pub(crate) fn kept_from(&self, needs: &Needs) -> DeviceMask {
        self.kept.away_from(needs)
    }

    fn suiting(&self, needs: &Needs) -> DeviceMask {
        if let Some(part) = &needs.part {
            let having = self.hardware.iter().filter(|(hardware, _)| can_have(hardware, part));
            let all = having.fold(DeviceMask::EMPTY, |all, (_, mask)| all.union(*mask));
            return all.and(self.of_models(needs));
        }
        // Nobody has all replicas of a device for sure.
        if needs.devices > 0 && self.replicas() > 0 {
            return DeviceMask::EMPTY;
        }
        self.of_models(needs)
    }

    /// The replicas in which such a node offers each device; 0 if it offers whole devices.
    pub(crate) fn replicas(&self) -> u32 {
        self.hardware.first().map_or(0, |(hardware, _)| hardware.replicas)
    }

    fn of_models(&self, needs: &Needs) -> DeviceMask {
        if needs.models.is_empty() {
            return self.all;
        }
        let suits = |model: &str| needs.models.iter().any(|need| contains(model, &need.model));
        let fitting = self.models.iter().filter(|(model, _)| suits(model));
        fitting.fold(DeviceMask::EMPTY, |all, (_, mask)| all.union(*mask))
    }

    /// Models in small letters, and which devices they are.
    pub(crate) fn models(&self) -> &[(String, DeviceMask)] {
        &self.models
    }

    /// Memory of one of these devices; 0 if it is unknown.
    pub(crate) fn memory_of(&self, devices: DeviceMask) -> u64 {
        self.hardware_of(devices).map_or(0, |hardware| hardware.memory_bytes)
    }

    pub(crate) fn hardware_of(&self, devices: DeviceMask) -> Option<&Hardware> {
        self.hardware.iter().find(|(_, mask)| !mask.and(devices).is_empty()).map(|(hardware, _)| hardware)
    }

    pub(crate) const fn all(&self) -> DeviceMask {
        self.all
    }

    /// The groups of one level inside the node.
    pub(crate) fn groups_of(&self, level: usize) -> impl Iterator<Item = DeviceMask> + '_ {
        self.groups.iter().filter(move |(of, _)| *of == level).map(|(_, mask)| *mask)
    }
}

fn distinct(rates: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut rates: Vec<u32> = rates.collect();
    rates.sort_unstable_by_key(|rate| std::cmp::Reverse(*rate));
    rates.dedup();
    rates
}
