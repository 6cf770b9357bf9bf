//! What jobs saved on spot nodes, by the prices that the cluster file declares. Nobody is billed by this.

use std::collections::BTreeMap;

use phalanx_model::show::span;
use phalanx_model::{Gang, GangId, GangRecord, Job, Needs, Node, NodeName, Phase, Placement, Timestamp};

use phalanx_api::protocol::{EventView, SpotView};

/// The word of the event that says what one attempt of a gang saved.
const WHAT: &str = "spot";
const HOUR_MS: u128 = 3_600_000;
/// A whole device in thousandths.
const WHOLE_MILLI: u64 = 1_000;

/// Of one device for an hour, in millionths of the unit that the site counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prices {
    list_micro: u64,
    spot_micro: u64,
}

impl Prices {
    /// None for a node that is no spot node, or whose prices are not both known.
    pub(crate) fn of(node: &Node, list_micro: Option<u64>) -> Option<Self> {
        let spot_micro = node.spot?.price_micro_per_device_hour;
        Some(Self { list_micro: list_micro?, spot_micro }).filter(|_| spot_micro > 0)
    }
}

/// What one running gang has on spot nodes: thousandths of devices, and the same times their prices.
#[derive(Clone, Copy, Debug)]
struct Running {
    since: Timestamp,
    devices_milli: u64,
    list: u128,
    spot: u128,
}

/// Counts from the start of the ranks until their last process is gone. An attempt that is being stopped while the
/// daemon starts again is not counted.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    prices: BTreeMap<NodeName, Prices>,
    running: BTreeMap<GangId, Running>,
}

impl Meter {
    pub(crate) fn new<'a>(
        prices: BTreeMap<NodeName, Prices>,
        known: impl Iterator<Item = (&'a Job, &'a GangRecord)>,
    ) -> Self {
        let mut meter = Self { prices, running: BTreeMap::new() };
        for (job, record) in known {
            if let Phase::Running { since } = record.phase {
                meter.begin(job, record, since);
            }
        }
        meter
    }

    pub(crate) fn begin(&mut self, job: &Job, record: &GangRecord, since: Timestamp) {
        let gang = job.gang_at(record.id.index);
        let Some((gang, placement)) = gang.zip(record.placement.as_ref()) else { return };
        let (mut devices_milli, mut list, mut spot) = (0_u64, 0_u128, 0_u128);
        for (milli, prices) in self.held(gang, placement) {
            devices_milli = devices_milli.saturating_add(milli);
            list = list.saturating_add(u128::from(milli) * u128::from(prices.list_micro));
            spot = spot.saturating_add(u128::from(milli) * u128::from(prices.spot_micro));
        }
        if devices_milli > 0 {
            self.running.insert(record.id, Running { since, devices_milli, list, spot });
        }
    }

    /// Thousandths of devices on each slot whose prices are known.
    fn held<'a>(
        &'a self,
        gang: &'a Gang,
        placement: &'a Placement,
    ) -> impl Iterator<Item = (u64, &'a Prices)> {
        placement.slots.iter().filter_map(|slot| {
            let each = each_milli(gang.needs_of(gang.role_of(slot.rank)));
            Some((u64::from(slot.devices.count()) * each, self.prices.get(&slot.node)?))
        })
    }

    /// What an attempt saved, as an event of its job; none for one that had nothing on spot nodes.
    pub(crate) fn end(&mut self, gang: GangId, now: Timestamp) -> Option<EventView> {
        let Running { since, devices_milli, list, spot } = self.running.remove(&gang)?;
        let ms = u128::from(now.since(since));
        let of = |rate: u128| whole(rate.saturating_mul(ms) / u128::from(WHOLE_MILLI) / HOUR_MS);
        let device_ms = whole(u128::from(devices_milli).saturating_mul(ms) / u128::from(WHOLE_MILLI));
        let view = SpotView { device_ms, list_micro: of(list), spot_micro: of(spot) };
        let record = serde_json::to_value(view).ok();
        let detail = format!("{} of GPU time on spot nodes {view}", span(device_ms));
        Some(EventView { at: now, what: WHAT.to_owned(), detail, record })
    }
}

fn whole(amount: u128) -> u64 {
    u64::try_from(amount).unwrap_or(u64::MAX)
}

/// Of each device of a member, in thousandths.
fn each_milli(needs: &Needs) -> u64 {
    needs.part.as_ref().map_or(WHOLE_MILLI, |part| part.device_milli(1_000, 0).into())
}

/// All that a job saved, by what happened to it.
pub(crate) fn sum(events: &[EventView]) -> Option<SpotView> {
    let told = events.iter().filter(|event| event.what == WHAT).filter_map(|event| event.record.clone());
    let views = told.filter_map(|record| serde_json::from_value::<SpotView>(record).ok());
    views.reduce(|a, b| SpotView {
        device_ms: a.device_ms.saturating_add(b.device_ms),
        list_micro: a.list_micro.saturating_add(b.list_micro),
        spot_micro: a.spot_micro.saturating_add(b.spot_micro),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_model::{PartNeed, Spot};

    #[test]
    fn shares_and_slices_count_as_parts_of_a_device() {
        let of = |part: PartNeed| each_milli(&Needs { devices: 1, part: Some(part), ..Needs::default() });
        let share = PartNeed::Share { compute_milli: 250, memory_bytes: 0, trust: String::new() };
        assert_eq!((each_milli(&Needs::default()), of(share)), (1_000, 250));
        assert_eq!(of(PartNeed::Profile("3g.40gb".to_owned())), 428);
        assert_eq!(of(PartNeed::Profile("odd".to_owned())), 1_000);
    }

    #[test]
    fn sums_are_exact_and_never_wrap() {
        let running = Running {
            since: Timestamp(0),
            devices_milli: 8_000,
            list: 8_000 * 3_500_000,
            spot: 8_000 * 1_200_000,
        };
        let id = phalanx_model::JobId(1).gang(0);
        let ended = |at: u64| {
            let mut meter = Meter { prices: BTreeMap::new(), running: BTreeMap::from([(id, running)]) };
            meter.end(id, Timestamp(at)).unwrap()
        };
        let event = ended(5_400_000);
        let said = "12h of GPU time on spot nodes for 14.4 instead of 42, by declared prices: 27.6 saved";
        assert_eq!(event.detail, said);
        let both =
            sum(&[event.clone(), EventView { what: "running".to_owned(), ..event.clone() }, event]).unwrap();
        assert_eq!((both.device_ms, both.list_micro, both.spot_micro), (86_400_000, 84_000_000, 28_800_000));
        let _ = ended(u64::MAX);
    }

    #[test]
    fn a_node_without_both_prices_saves_nothing() {
        let spot = |price| Some(Spot { price_micro_per_device_hour: price, notice_ms: 0 });
        let node = |spot| Node { spot, ..bare() };
        assert_eq!(Prices::of(&node(None), Some(1)), None);
        assert_eq!(Prices::of(&node(spot(0)), Some(1)), None);
        assert_eq!(Prices::of(&node(spot(1)), None), None);
        assert!(Prices::of(&node(spot(1)), Some(2)).is_some());
    }

    fn bare() -> Node {
        Node {
            address: String::new(),
            ..Node::new(
                NodeName::new("n").unwrap(),
                Vec::new(),
                std::sync::Arc::new(phalanx_model::Machine::bare(phalanx_model::Origin::Declared)),
            )
        }
    }
}
