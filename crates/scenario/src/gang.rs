//! The requests of a gang, in the options of `submit`.

use std::collections::BTreeMap;

use phalanx_model::{
    Axis, AxisKind, Collective, Gang, LevelName, ModelNeed, Needs, NodeSet, PartNeed, Program, ResourceName,
    Role, Segment, Spread, Topology,
};

use crate::ScenarioError;
use crate::declare::{cpus, memory, milli};
use crate::words::{Options, Word, Words};

pub(crate) fn gang(options: &mut Options<'_>, words: &Words<'_>) -> Result<Gang, ScenarioError> {
    let size = options.take("ranks").map_or(Ok(1), |w| words.number(w))?;
    let (min, max) = match options.take("elastic") {
        None => (size, size),
        Some(word) => {
            let (min, max) = cut(word, '-', "a span of sizes such as 2-8", words)?;
            (words.number(min)?, words.number(max)?)
        }
    };
    Ok(Gang {
        size,
        min,
        max,
        needs: needs(options, words)?,
        members_per_node: options.take("per-node").map(|w| words.number(w)).transpose()?,
        topology: topology(options, words)?,
        traffic: None,
        program: Program::default(),
        roles: options.take("roles").map_or(Ok(Vec::new()), |w| roles(w, words))?,
        grid: options.take("grid").map_or(Ok(Vec::new()), |w| grid(w, words))?,
    })
}

/// The needs of one member.
fn needs(options: &mut Options<'_>, words: &Words<'_>) -> Result<Needs, ScenarioError> {
    let nodes = |word: Option<Word<'_>>| word.map_or(Ok(Vec::new()), |w| names(w, ',', words));
    Ok(Needs {
        devices: options.take("gpus").map_or(Ok(0), |w| words.number(w))?,
        part: part(options, words)?,
        models: options.take("model").map_or(Ok(Vec::new()), |w| models(w, words))?,
        cpu_milli: options.take("cpus").map_or(Ok(0), |w| cpus(w, words))?,
        memory_bytes: options.take("memory").map_or(Ok(0), |w| memory(w, words))?,
        named: options.take("named").map_or(Ok(BTreeMap::new()), |w| amounts(w, words))?,
        nodes: nodes(options.take("on"))?,
        avoid: nodes(options.take("avoid"))?,
        within: options.take("within").map(|w| NodeSet::new(w.text)),
        prefer_within: None,
        favour_within: None,
        pools: Vec::new(),
        prefer_pools: Vec::new(),
        in_one_pool: false,
        prefer: nodes(options.take("prefer"))?,
        is_exclusive: options.take("exclusive").is_some(),
        takes_spot: false,
        takes_spare: false,
    })
}

/// `share=0.25@10GB trust=alice`, `mig=1g.10gb`, or `mig=0.28@20GB` for the smallest slice that has so much.
fn part(options: &mut Options<'_>, words: &Words<'_>) -> Result<Option<PartNeed>, ScenarioError> {
    let both = |word: Word<'_>| -> Result<(u32, u64), ScenarioError> {
        let Some((compute, bytes)) = word.text.split_once('@') else { return Ok((milli(word, words)?, 0)) };
        let bytes = Word { text: bytes, column: word.column + compute.chars().count() + 1 };
        Ok((milli(Word { text: compute, ..word }, words)?, memory(bytes, words)?))
    };
    let trust = options.take("trust").map_or("user", |w| w.text).to_owned();
    if let Some(word) = options.take("share") {
        let (compute_milli, memory_bytes) = both(word)?;
        return Ok(Some(PartNeed::Share { compute_milli, memory_bytes, trust }));
    }
    let Some(word) = options.take("mig") else { return Ok(None) };
    if word.text.contains("g.") {
        return Ok(Some(PartNeed::Profile(word.text.to_owned())));
    }
    let (compute_milli, memory_bytes) = both(word)?;
    Ok(Some(PartNeed::Slice { compute_milli, memory_bytes }))
}

/// `10m` or `priced`: how long a gang waits for a nearer placement, and at which price.
fn wait(word: Word<'_>, words: &Words<'_>) -> Result<(u64, Option<u32>), ScenarioError> {
    if word.text == "priced" { Ok((0, Some(1_000))) } else { Ok((words.duration_ms(word)?, None)) }
}

fn topology(options: &mut Options<'_>, words: &Words<'_>) -> Result<Topology, ScenarioError> {
    let required = options.take("required").map(|w| words.name::<LevelName>(w)).transpose()?;
    let (preferred, (wait_ms, price_milli)) = match options.take("preferred") {
        None => match options.take("nearest") {
            None => (None, (0, None)),
            Some(Word { text: "required", .. }) => (None, (Topology::FOREVER_MS, None)),
            Some(word) => (None, wait(word, words)?),
        },
        Some(word) => {
            let (level, after) = word.text.split_once('@').unwrap_or((word.text, "10m"));
            let after = Word { text: after, column: word.column + level.chars().count() + 1 };
            let level = words.name(Word { text: level, ..word })?;
            (Some(level), wait(after, words)?)
        }
    };
    let segment = |(size, level)| Segment { size, level };
    let segments = options.take("segments").map_or(Ok(Vec::new()), |w| at_levels(w, "segment", words))?;
    let spread = options.take("spread").map_or(Ok(Vec::new()), |w| at_levels(w, "spread", words))?;
    Ok(Topology {
        required,
        preferred,
        wait_ms,
        price_milli,
        segments: segments.into_iter().map(segment).collect(),
        spread: spread.into_iter().map(|(max, level)| Spread { level, max }).collect(),
        slice: options.take("slice").map(|w| sides(w, words)).transpose()?,
        ..Topology::default()
    })
}

/// `a,b`: names of nodes, which need not exist; with `/`, the path of a domain.
pub(crate) fn names<T>(word: Word<'_>, between: char, words: &Words<'_>) -> Result<Vec<T>, ScenarioError>
where
    T: TryFrom<String>,
    T::Error: std::fmt::Display,
{
    items(word, between).map(|name| words.name(name)).collect()
}

/// `16@leaf,8@node`: numbers of members at levels.
fn at_levels(word: Word<'_>, what: &str, words: &Words<'_>) -> Result<Vec<(u32, LevelName)>, ScenarioError> {
    let read = |item: Word<'_>| {
        let Some((size, level)) = item.text.split_once('@') else {
            return Err(
                words.error(item, format!("expected a {what} such as 8@node, and found {:?}", item.text))
            );
        };
        let level = Word { text: level, column: item.column + size.chars().count() + 1 };
        Ok((words.number(Word { text: size, ..item })?, words.name(level)?))
    };
    items(word, ',').map(read).collect()
}

/// `nic:1,power:300`
pub(crate) fn amounts(
    word: Word<'_>,
    words: &Words<'_>,
) -> Result<BTreeMap<ResourceName, u64>, ScenarioError> {
    let read = |item: Word<'_>| {
        let (name, amount) = pair(item, "an amount such as nic:1", words)?;
        Ok((words.name(name)?, words.number(amount)?))
    };
    items(word, ',').map(read).collect()
}

/// `H100,A100:0.4`: any of them, and how fast a step computes there.
fn models(word: Word<'_>, words: &Words<'_>) -> Result<Vec<ModelNeed>, ScenarioError> {
    let read = |item: Word<'_>| {
        let (model, speed_milli) = match item.text.split_once(':') {
            None => (item.text, ModelNeed::AS_SAID),
            Some((model, speed)) => {
                let column = item.column + model.chars().count() + 1;
                (model, milli(Word { text: speed, column }, words)?)
            }
        };
        Ok(ModelNeed { model: model.to_owned(), speed_milli })
    };
    items(word, ',').map(read).collect()
}

/// `4x4x8`
pub(crate) fn sides(word: Word<'_>, words: &Words<'_>) -> Result<[u16; 3], ScenarioError> {
    let numbers: Result<Vec<u16>, ScenarioError> = items(word, 'x').map(|side| words.number(side)).collect();
    let bad = |_| words.error(word, format!("expected a box such as 4x4x8, and found {:?}", word.text));
    numbers?.try_into().map_err(bad)
}

/// `launcher:1,cpus=1;ps:2,cpus=4,named=nic:1`: the name of each role, its members, and the needs of one member.
fn roles(word: Word<'_>, words: &Words<'_>) -> Result<Vec<Role>, ScenarioError> {
    items(word, ';').map(|item| role(item, words)).collect()
}

fn role(word: Word<'_>, words: &Words<'_>) -> Result<Role, ScenarioError> {
    let mut parts = items(word, ',');
    let first = parts.next().unwrap_or(word);
    let (name, size) = pair(first, "a role such as launcher:1", words)?;
    let mut options = Options::of(parts, words)?;
    let role = Role {
        name: words.name(name)?,
        size: words.number(size)?,
        needs: needs(&mut options, words)?,
        segments: Vec::new(),
        program: None,
    };
    options.end(words)?;
    Ok(role)
}

/// `tensor:2,data:4`, the innermost axis first. An optional third part gives the bytes of one call: `data:4:64MiB`.
fn grid(word: Word<'_>, words: &Words<'_>) -> Result<Vec<Axis>, ScenarioError> {
    items(word, ',').map(|item| axis(item, words)).collect()
}

fn axis(word: Word<'_>, words: &Words<'_>) -> Result<Axis, ScenarioError> {
    const KINDS: [(AxisKind, Collective); 4] = [
        (AxisKind::Tensor, Collective::AllReduce),
        (AxisKind::Expert, Collective::AllToAll),
        (AxisKind::Data, Collective::AllReduce),
        (AxisKind::Pipeline, Collective::PointToPoint),
    ];
    let (name, rest) = pair(word, "an axis such as tensor:2", words)?;
    let known = || KINDS.map(|(kind, _)| kind.word()).join(", ");
    let (kind, collective) = KINDS
        .into_iter()
        .find(|(kind, _)| kind.word() == name.text)
        .ok_or_else(|| words.error(name, format!("unknown axis {:?}; known are {}", name.text, known())))?;
    let (degree, bytes) = rest.text.split_once(':').map_or((rest.text, None), |(degree, bytes)| {
        (degree, Some(Word { text: bytes, column: rest.column + degree.chars().count() + 1 }))
    });
    Ok(Axis {
        kind,
        degree: words.number(Word { text: degree, ..rest })?,
        collective,
        bytes: bytes.map_or(Ok(64 << 20), |w| memory(w, words))?,
        calls: 1,
    })
}

/// Splits a word at its first colon.
pub(crate) fn pair<'a>(
    word: Word<'a>,
    what: &str,
    words: &Words<'_>,
) -> Result<(Word<'a>, Word<'a>), ScenarioError> {
    cut(word, ':', what, words)
}

fn cut<'a>(
    word: Word<'a>,
    at: char,
    what: &str,
    words: &Words<'_>,
) -> Result<(Word<'a>, Word<'a>), ScenarioError> {
    let (first, second) = word
        .text
        .split_once(at)
        .ok_or_else(|| words.error(word, format!("expected {what}, and found {:?}", word.text)))?;
    let column = word.column + first.chars().count() + 1;
    Ok((Word { text: first, ..word }, Word { text: second, column }))
}

/// Splits a word at a separator.
pub(crate) fn items<'a>(word: Word<'a>, between: char) -> impl Iterator<Item = Word<'a>> {
    let mut column = word.column;
    word.text.split(between).map(move |text| {
        let item = Word { text, column };
        column += text.chars().count() + 1;
        item
    })
}
