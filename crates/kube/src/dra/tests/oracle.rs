//! Small random inventories, against all choices that there are.
//!
//! The oracle knows devices and requests as plain numbers. It tries every combination of devices for every
//! combination of alternatives and asks a naive checker; ours must find what it finds, and whatever ours finds must
//! pass the checker.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[derive(Clone, Debug)]
struct Dev {
    color: Option<u8>,
    numa: Option<i64>,
    is_tainted: bool,
    is_taken: bool,
    /// Of a counter of four that all devices share.
    counter: i64,
    /// Units that may be shared, and those that are shared already.
    shared: Option<(i64, i64)>,
}

#[derive(Clone, Debug)]
struct Choice {
    count: Option<usize>,
    color: Option<u8>,
    tolerates: bool,
    units: Option<i64>,
}

#[derive(Clone, Debug)]
struct Request {
    choices: Vec<Choice>,
    is_admin: bool,
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    must_match: bool,
    is_numa: bool,
    /// Only the first request; else the whole claim.
    is_first: bool,
}

#[derive(Clone, Debug)]
struct Ask {
    requests: Vec<Request>,
    rules: Vec<Rule>,
}

const COUNTER: i64 = 4;

/// Of each request: the alternative, and the devices as bits.
type Served = Vec<(usize, u32)>;

fn dev() -> impl Strategy<Value = Dev> {
    let shared = prop::option::weighted(0.3, (1..=4_i64, 0..=2_i64));
    (
        prop::option::of(0..2_u8),
        prop::option::weighted(0.8, 0..2_i64),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
        prop_oneof![3 => Just(0), 2 => 1..=3_i64],
        shared,
    )
        .prop_map(|(color, numa, is_tainted, is_taken, counter, shared)| Dev {
            color,
            numa,
            is_tainted,
            counter,
            is_taken: is_taken && shared.is_none(),
            shared: shared.map(|(all, used)| (all, used.min(all))),
        })
}

fn choice() -> impl Strategy<Value = Choice> {
    (
        prop_oneof![4 => (1..=3_usize).prop_map(Some), 1 => Just(None)],
        prop::option::of(0..2_u8),
        prop::bool::weighted(0.3),
        prop::option::weighted(0.3, 1..=2_i64),
    )
        .prop_map(|(count, color, tolerates, units)| Choice { count, color, tolerates, units })
}

fn ask() -> impl Strategy<Value = Ask> {
    let request = (prop::collection::vec(choice(), 1..=2), prop::bool::weighted(0.15)).prop_map(
        |(choices, is_admin)| {
            // Alternatives cannot be of admin access.
            Request { is_admin: is_admin && choices.len() == 1, choices }
        },
    );
    let rule = (any::<bool>(), any::<bool>(), any::<bool>())
        .prop_map(|(must_match, is_numa, is_first)| Rule { must_match, is_numa, is_first });
    (prop::collection::vec(request, 1..=2), prop::collection::vec(rule, 0..=1))
        .prop_map(|(requests, rules)| Ask { requests, rules })
}

/// What is shared of a device is counted in units; a request that does not say takes all of them.
fn units(dev: &Dev, choice: &Choice) -> i64 {
    choice.units.unwrap_or(dev.shared.map_or(2, |(all, _)| all))
}

fn matches(dev: &Dev, choice: &Choice) -> bool {
    choice.color.is_none_or(|color| dev.color == Some(color))
}

/// What "all" means: devices that match and have enough left, were nothing else asked.
fn everything(devs: &[Dev], choice: &Choice, is_admin: bool) -> u32 {
    let is_enough = |dev: &Dev| {
        let (all, used) = dev.shared.unwrap_or((2, 0));
        is_admin || used + units(dev, choice) <= all
    };
    (0..devs.len()).filter(|at| matches(&devs[*at], choice) && is_enough(&devs[*at])).map(|at| 1 << at).sum()
}

fn bits(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |at| mask >> at & 1 == 1)
}

/// Whether an assignment of devices to the requests of all claims is right, as the API documents it.
fn is_right(devs: &[Dev], asks: &[Ask], served: &[Served]) -> bool {
    let mut alone = vec![0; devs.len()];
    let mut shared: Vec<i64> = devs.iter().map(|dev| dev.shared.map_or(0, |(_, used)| used)).collect();
    let mut used: BTreeSet<usize> = (0..devs.len())
        .filter(|at| devs[*at].is_taken || devs[*at].shared.is_some_and(|(_, used)| used > 0))
        .collect();
    let before = used.clone();
    for (ask, served) in asks.iter().zip(served) {
        let mut of_claim: BTreeMap<usize, (bool, bool)> = BTreeMap::new();
        for (request, (at, mask)) in ask.requests.iter().zip(served) {
            let choice = &request.choices[*at];
            let is_count_right = match choice.count {
                Some(count) => mask.count_ones() as usize == count,
                None => *mask != 0 && *mask == everything(devs, choice, request.is_admin),
            };
            if !is_count_right {
                return false;
            }
            for at in bits(*mask) {
                let dev = &devs[at];
                if !matches(dev, choice) || dev.is_tainted && !choice.tolerates {
                    return false;
                }
                let is_share = dev.shared.is_some() && !request.is_admin;
                if let Some((other_is_share, other_is_admin)) =
                    of_claim.insert(at, (is_share, request.is_admin))
                {
                    // Twice in one claim: only as two shares.
                    if !(is_share && other_is_share && !other_is_admin) {
                        return false;
                    }
                }
                if request.is_admin {
                    continue;
                }
                used.insert(at);
                match dev.shared {
                    Some(_) => shared[at] += units(dev, choice),
                    None if dev.is_taken || units(dev, choice) > 2 => return false,
                    None => alone[at] += 1,
                }
            }
        }
        if !ask.rules.iter().all(|rule| is_kept(devs, *rule, served)) {
            return false;
        }
    }
    let fits = |at: usize| alone[at] <= 1 && devs[at].shared.is_none_or(|(all, _)| shared[at] <= all);
    let sum = |of: &BTreeSet<usize>| -> i64 { of.iter().map(|at| devs[*at].counter).sum() };
    // A counter that others have overdrawn lets nobody take more of it, and those who take nothing go on.
    let takes: bool = used.difference(&before).any(|at| devs[*at].counter > 0);
    (0..devs.len()).all(fits) && (!takes || sum(&used) <= COUNTER)
}

fn is_kept(devs: &[Dev], rule: Rule, served: &Served) -> bool {
    let covered = served.iter().take(if rule.is_first { 1 } else { served.len() });
    let values: Vec<Option<i64>> = covered
        .flat_map(|(_, mask)| bits(*mask))
        .map(|at| if rule.is_numa { devs[at].numa } else { devs[at].color.map(i64::from) })
        .collect();
    let distinct: BTreeSet<_> = values.iter().collect();
    values.iter().all(Option::is_some)
        && if rule.must_match { distinct.len() <= 1 } else { distinct.len() == values.len() }
}

/// Whether there are devices for a combination of alternatives.
fn search(
    devs: &[Dev],
    asks: &[Ask],
    served: &mut Vec<Served>,
    choices: &[Vec<usize>],
    at: (usize, usize),
) -> bool {
    let (claim, request) = at;
    if claim == asks.len() {
        return is_right(devs, asks, served);
    }
    if request == asks[claim].requests.len() {
        return search(devs, asks, served, choices, (claim + 1, 0));
    }
    (0..1_u32 << devs.len()).any(|mask| {
        let choice = &asks[claim].requests[request].choices[choices[claim][request]];
        if choice.count.is_some_and(|count| mask.count_ones() as usize != count) {
            return false;
        }
        served[claim].push((choices[claim][request], mask));
        let is_found = search(devs, asks, served, choices, (claim, request + 1));
        served[claim].pop();
        is_found
    })
}

fn combinations(asks: &[Ask]) -> Vec<Vec<Vec<usize>>> {
    let mut all: Vec<Vec<Vec<usize>>> = vec![vec![]];
    for ask in asks {
        let mut of_claim: Vec<Vec<usize>> = vec![vec![]];
        for request in &ask.requests {
            let longer = |start: &Vec<usize>| {
                (0..request.choices.len()).map(|at| [start.as_slice(), &[at]].concat()).collect::<Vec<_>>()
            };
            of_claim = of_claim.iter().flat_map(longer).collect();
        }
        all = all
            .iter()
            .flat_map(|start| {
                of_claim
                    .iter()
                    .map(|next| [start.as_slice(), std::slice::from_ref(next)].concat())
                    .collect::<Vec<_>>()
            })
            .collect();
    }
    all
}

fn published(devs: &[Dev]) -> Inventory {
    let mut inventory = inventory(json!([]));
    let devices: Value = devs
        .iter()
        .enumerate()
        .map(|(at, dev)| {
            let mut attributes = json!({});
            if let Some(color) = dev.color {
                attributes["color"] = json!({"string": format!("c{color}")});
            }
            if let Some(numa) = dev.numa {
                attributes["numa"] = json!({"int": numa});
            }
            let mut device = json!({
                "name": format!("d{at}"), "attributes": attributes,
                "capacity": {"units": {"value": dev.shared.map_or(2, |(all, _)| all).to_string()}},
            });
            if dev.is_tainted {
                device["taints"] = json!([{"key": "bad", "effect": "NoSchedule"}]);
            }
            if dev.counter > 0 {
                device["consumesCounters"] =
                    json!([{"counterSet": "set", "counters": {"n": {"value": dev.counter.to_string()}}}]);
            }
            if dev.shared.is_some() {
                device["allowMultipleAllocations"] = json!(true);
            }
            device
        })
        .collect();
    let of_two = json!({"name": "n0", "generation": 1, "resourceSliceCount": 2});
    let mut counters = slice("counters", Value::Null);
    counters["spec"]["pool"] = of_two.clone();
    counters["spec"]["sharedCounters"] =
        json!([{"name": "set", "counters": {"n": {"value": COUNTER.to_string()}}}]);
    let mut slice = slice("s0", devices);
    slice["spec"]["pool"] = of_two;
    inventory.slice_applied(Arc::new(object(counters)));
    inventory.slice_applied(Arc::new(object(slice)));
    inventory.namespace_applied(
        "default",
        &BTreeMap::from([("resource.kubernetes.io/admin-access".into(), "true".into())]),
    );
    for (at, dev) in devs.iter().enumerate() {
        let mut result = json!({"request": "r", "driver": DRIVER, "pool": "n0", "device": format!("d{at}")});
        match dev.shared {
            Some((_, used)) if used > 0 => {
                result["shareID"] = json!("s");
                result["consumedCapacity"] = json!({"units": used.to_string()});
            }
            _ if dev.is_taken => {}
            _ => continue,
        }
        let mut held = claim(&format!("held-{at}"), json!({}));
        held.status = Some(object(json!({"allocation": {"devices": {"results": [result]}}})));
        inventory.claim_applied(&held);
    }
    inventory
}

fn written(name: &str, ask: &Ask) -> ResourceClaim {
    let choice = |choice: &Choice| {
        let mut value = json!({"deviceClassName": "gpu"});
        match choice.count {
            Some(count) => value["count"] = json!(count),
            None => value["allocationMode"] = json!("All"),
        }
        if let Some(color) = choice.color {
            let own = format!("device.attributes['{DRIVER}']");
            value["selectors"] =
                json!([{"cel": {"expression": format!("'color' in {own} && {own}.color == 'c{color}'")}}]);
        }
        if choice.tolerates {
            value["tolerations"] = json!([{"key": "bad", "operator": "Exists"}]);
        }
        if let Some(units) = choice.units {
            value["capacity"] = json!({"requests": {"units": units.to_string()}});
        }
        value
    };
    let requests: Value = ask
        .requests
        .iter()
        .enumerate()
        .map(|(at, request)| {
            let name = format!("r{at}");
            if let [only] = request.choices.as_slice() {
                let mut exactly = choice(only);
                if request.is_admin {
                    exactly["adminAccess"] = json!(true);
                }
                return json!({"name": name, "exactly": exactly});
            }
            let listed: Value = request
                .choices
                .iter()
                .enumerate()
                .map(|(at, one)| {
                    let mut value = choice(one);
                    value["name"] = json!(format!("s{at}"));
                    value
                })
                .collect();
            json!({"name": name, "firstAvailable": listed})
        })
        .collect();
    let constraints: Value = ask
        .rules
        .iter()
        .map(|rule| {
            let attribute = format!("{DRIVER}/{}", if rule.is_numa { "numa" } else { "color" });
            let mut value =
                json!({if rule.must_match { "matchAttribute" } else { "distinctAttribute" }: attribute});
            if rule.is_first {
                value["requests"] = json!(["r0"]);
            }
            value
        })
        .collect();
    claim(name, json!({"requests": requests, "constraints": constraints}))
}

fn read(ask: &Ask, result: &AllocationResult) -> Served {
    let devices = devices(result);
    ask.requests
        .iter()
        .enumerate()
        .map(|(at, request)| {
            let name = format!("r{at}");
            let names = (0..request.choices.len()).map(|sub| {
                (sub, if request.choices.len() == 1 { name.clone() } else { format!("{name}/s{sub}") })
            });
            let (sub, listed) = names
                .filter_map(|(sub, name)| Some((sub, devices.get(&name)?)))
                .next()
                .expect("a request is served");
            (sub, listed.iter().map(|device| 1 << device[1..].parse::<u32>().expect("a name of ours")).sum())
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_can_be_allocated_is_and_rightly(devs in prop::collection::vec(dev(), 1..=5), asks in prop::collection::vec(ask(), 1..=2)) {
        let inventory = published(&devs);
        let claims: Vec<ResourceClaim> = asks.iter().enumerate().map(|(at, ask)| written(&format!("c{at}"), ask)).collect();
        let got = allocate(&inventory, &claims.iter().collect::<Vec<_>>());
        let choices = combinations(&asks).into_iter().find(|choices| search(&devs, &asks, &mut vec![vec![]; asks.len()], choices, (0, 0)));
        match got {
            Ok(results) => {
                let served: Vec<Served> = asks.iter().zip(&results).map(|(ask, result)| read(ask, result)).collect();
                prop_assert!(is_right(&devs, &asks, &served), "{served:?}");
                // The first request only yields when nothing else goes with its first alternative. Those behind it
                // may take a later one rather than make it change its devices, as with kube-scheduler.
                prop_assert_eq!(Some(served[0][0].0), choices.map(|choices| choices[0][0]));
            }
            Err(Unallocatable::Short(_)) => prop_assert_eq!(choices, None),
            Err(why) => prop_assert!(false, "{why}"),
        }
    }
}
