//! `rocm-smi --showtopo --json` or `--csv`, and `amd-smi topology --json`.

use serde_json::Value;

use super::{Facts, Pair, take_bandwidth, take_kind, take_weight};
use crate::gap::Gap;

/// The most lines at which JSON is looked for; warnings of the tools stand before it.
const STARTS_MAX: usize = 16;

/// What the first JSON object or list of a text says, which begins a line; `None` for any other text.
pub(super) fn read(text: &str) -> Option<Facts> {
    let starts = text.match_indices(['{', '[']).map(|(at, _)| at).filter(|at| {
        text.get(..*at)
            .is_some_and(|before| before.rsplit('\n').next().is_some_and(|line| line.trim().is_empty()))
    });
    let value = starts.take(STARTS_MAX).find_map(|start| {
        let mut values = serde_json::Deserializer::from_str(text.get(start..)?).into_iter::<Value>();
        values.next()?.ok()
    })?;
    let mut facts = Facts::default();
    match &value {
        Value::Object(cards) => of_rocm_smi(cards, &mut facts),
        Value::Array(gpus) => of_amd_smi(gpus, &mut facts),
        _ => {}
    }
    Some(facts)
}

/// `rocm-smi --showtopo --csv`: a header of names, and a line for the system and for each card.
pub(super) fn read_csv(text: &str) -> Option<Facts> {
    let mut lines =
        text.lines().skip_while(|line| !line.contains("between DRM devices") || !line.contains(','));
    let names: Vec<&str> = lines.next()?.split(',').map(str::trim).collect();
    let mut cards = serde_json::Map::new();
    for line in lines.take_while(|line| !line.trim().is_empty()) {
        let mut values = line.split(',').map(str::trim);
        let Some(card) = values.next() else { continue };
        let pairs = names.iter().skip(1).zip(values).filter(|(_, value)| !value.is_empty());
        let values = pairs.map(|(name, value)| ((*name).to_owned(), Value::String(value.to_owned())));
        cards.insert(card.to_owned(), Value::Object(values.collect()));
    }
    let mut facts = Facts::default();
    of_rocm_smi(&cards, &mut facts);
    (!facts.names.is_empty()).then_some(facts)
}

/// `{"system": {"(Topology) Weight between DRM devices 0 and 1": "15", …}, "card0": {"(Topology) Numa Node": "0"}}`
fn of_rocm_smi(cards: &serde_json::Map<String, Value>, facts: &mut Facts) {
    let mut pairs = Vec::new();
    for (card, values) in cards {
        let Some(values) = values.as_object() else { continue };
        let number = card.strip_prefix("card").and_then(|n| n.parse::<u32>().ok());
        for (name, value) in values {
            let value = value_of(value);
            if let Some((what, a, b)) = pair_of(name) {
                pairs.push((what.to_ascii_lowercase(), a, b, value));
            } else if let Some(number) = number
                && !facts.fact(number, name, &value)
            {
                facts.gaps.push(Gap::new((0, 0), format!("{card}: {value:?} is no NUMA node")));
            }
        }
    }
    let mut numbers: Vec<u32> = pairs.iter().flat_map(|(_, a, b, _)| [*a, *b]).collect();
    numbers.sort_unstable();
    numbers.dedup();
    facts.names = numbers.iter().map(|n| format!("GPU{n}")).collect();
    for (what, a, b, value) in pairs {
        let at = |number: u32| numbers.binary_search(&number).ok().and_then(|at| u32::try_from(at).ok());
        let (Some(a), Some(b)) = (at(a), at(b)) else { continue };
        take(&what, a, b, &value, facts);
    }
}

/// `[{"gpu": 0, "bdf": "0000:0c:00.0", "links": [{"gpu": 1, "weight": 15, "link_type": "XGMI", …}]}]`
fn of_amd_smi(gpus: &[Value], facts: &mut Facts) {
    let number = |value: &Value| value.get("gpu").and_then(Value::as_u64);
    let numbers: Vec<Option<u64>> = gpus.iter().map(number).collect();
    for (at, gpu) in gpus.iter().enumerate() {
        let address = gpu.get("bdf").and_then(Value::as_str).map(str::to_owned);
        facts.names.push(address.unwrap_or_else(|| format!("GPU{at}")));
        for link in gpu.get("links").and_then(Value::as_array).into_iter().flatten() {
            let other = number(link).and_then(|n| numbers.iter().position(|known| *known == Some(n)));
            let (Ok(a), Some(Ok(b))) = (u32::try_from(at), other.map(u32::try_from)) else { continue };
            for (name, what) in [("weight", "weight"), ("link_type", "link type"), ("bandwidth", "bandwidth")]
            {
                if let Some(value) = link.get(name) {
                    take(what, a, b, &value_of(value), facts);
                }
            }
        }
    }
}

fn take(what: &str, a: u32, b: u32, value: &str, facts: &mut Facts) {
    if a == b {
        return;
    }
    let pair: &mut Pair = facts.pairs.entry((a.min(b), a.max(b))).or_default();
    let good = match what {
        _ if what.contains("weight") => take_weight(pair, value),
        _ if what.contains("link type") => take_kind(pair, value),
        _ if what.contains("bandwidth") => take_bandwidth(pair, value),
        _ => true,
    };
    if !good {
        let what =
            format!("{what} of GPU{a} and GPU{b}: {value:?} cannot be, or differs from the other half");
        facts.gaps.push(Gap::new((0, 0), what));
    }
}

/// `(Topology) Weight between DRM devices 0 and 1`
fn pair_of(name: &str) -> Option<(&str, u32, u32)> {
    let (what, rest) = name.strip_prefix("(Topology) ")?.split_once(" between DRM devices ")?;
    let (a, b) = rest.split_once(" and ")?;
    Some((what, a.trim().parse().ok()?, b.trim().parse().ok()?))
}

/// Numbers and texts alike; both tools write either.
fn value_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.chars().take(80).collect(),
        other => other.to_string().chars().take(80).collect(),
    }
}
