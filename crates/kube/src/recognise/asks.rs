//! What labels and annotations ask for beside the size of a gang: queue, priority, topology, running time. Ours go
//! first, then Kueue's, KAI's, Volcano's, YuniKorn's and Koordinator's; those of an owner go before those of its pods.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::key::{ObjectRef, Refused};
use super::names::{jobset, kai, koordinator, kueue, lws, phalanx, volcano, yunikorn};
use super::spec::{GangSpec, LevelRef, MEMBERS_MAX, QueueRef, SegmentRule, TopologyRule};
use super::topology_wait::TopologyWait;
use crate::api::Pod;

/// Longest text of JSON in an annotation, in bytes.
const JSON_BYTES_MAX: usize = 64 << 10;
/// Most parts inside parts.
const SEGMENTS_MAX: usize = 8;

type Texts = BTreeMap<String, String>;

/// Labels and annotations of one object or template.
#[derive(Clone, Copy)]
pub(super) struct Signs<'a> {
    pub(super) object: &'a ObjectRef,
    pub(super) labels: Option<&'a Texts>,
    pub(super) annotations: Option<&'a Texts>,
}

/// What they ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asks {
    pub(super) queue: Option<QueueRef>,
    pub(super) priority_class: Option<String>,
    pub(super) topology: TopologyRule,
    pub(super) time_limit_s: Option<i64>,
    pub(super) checkpoint_grace_s: Option<i64>,
    /// The fewest members, for owners that cannot say so themselves, and the annotation that says it.
    pub(super) min: Option<(&'static str, u32)>,
    /// Kueue's name of pod sets that are to be in one domain together.
    pub(super) together: Option<String>,
}

impl Asks {
    /// What another says where this one is silent.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            queue: self.queue.or(other.queue),
            priority_class: self.priority_class.or(other.priority_class),
            topology: self.topology.or(other.topology),
            time_limit_s: self.time_limit_s.or(other.time_limit_s),
            checkpoint_grace_s: self.checkpoint_grace_s.or(other.checkpoint_grace_s),
            min: self.min.or(other.min),
            together: self.together.or(other.together),
        }
    }

    /// Fills in what the spec does not say yet, topology apart.
    pub(super) fn apply(self, spec: &mut GangSpec) {
        spec.queue = spec.queue.take().or(self.queue);
        spec.priority_class = spec.priority_class.take().or(self.priority_class);
        spec.time_limit_s = spec.time_limit_s.or(self.time_limit_s);
        spec.checkpoint_grace_s = spec.checkpoint_grace_s.or(self.checkpoint_grace_s);
    }
}

impl<'a> Signs<'a> {
    pub(super) fn of_pod(pod: &'a Pod, object: &'a ObjectRef) -> Self {
        let metadata = &pod.metadata;
        Self { object, labels: metadata.labels.as_ref(), annotations: metadata.annotations.as_ref() }
    }

    pub(super) fn label(&self, key: &str) -> Option<&'a str> {
        text(self.labels?, key)
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&'a str> {
        text(self.annotations?, key)
    }

    /// The first of several labels that is there.
    pub(super) fn first_label(&self, keys: &[&str]) -> Option<&'a str> {
        keys.iter().find_map(|key| self.label(key))
    }

    /// An annotation, or else a label: some schedulers take both.
    pub(super) fn either(&self, key: &str) -> Option<&'a str> {
        self.annotation(key).or_else(|| self.label(key))
    }

    /// A count of members that is written as text; at least 1.
    pub(super) fn count(&self, key: &str) -> Result<Option<u32>, Refused> {
        let Some(text) = self.either(key) else { return Ok(None) };
        let count = text.trim().parse().ok().filter(|n| (1..=MEMBERS_MAX).contains(n));
        count.map(Some).ok_or_else(|| {
            let problem = format!("is {:?}, which is no count of pods", shown(text));
            self.refused(key, problem, format!("write a whole number from 1 to {MEMBERS_MAX}"))
        })
    }

    /// An index that is written as text.
    pub(super) fn index(&self, key: &str) -> Result<Option<u32>, Refused> {
        let Some(text) = self.either(key) else { return Ok(None) };
        let index = text.trim().parse().ok().filter(|n| *n < MEMBERS_MAX);
        index.map(Some).ok_or_else(|| {
            let problem = format!("is {:?}, which is no index", shown(text));
            self.refused(key, problem, format!("write a whole number from 0 to {}", MEMBERS_MAX - 1))
        })
    }

    /// JSON in an annotation.
    pub(super) fn json<T: for<'de> Deserialize<'de>>(
        &self,
        key: &str,
        shape: &str,
    ) -> Result<Option<T>, Refused> {
        let Some(text) = self.annotation(key) else { return Ok(None) };
        if text.len() > JSON_BYTES_MAX {
            let problem = format!("has {} bytes", text.len());
            return Err(self.refused(key, problem, format!("write at most {JSON_BYTES_MAX}")));
        }
        serde_json::from_str(text).map(Some).map_err(|error| {
            self.refused(key, format!("cannot be read: {error}"), format!("write JSON like {shape}"))
        })
    }

    pub(super) fn refused(
        &self,
        key: &str,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Refused {
        Refused::new(self.object.clone(), key, problem, remedy)
    }

    pub(super) fn asks(&self) -> Result<Asks, Refused> {
        let of_kueue = |name: &str| QueueRef { name: name.to_owned(), is_of_kueue: true };
        let of_others = self
            .label(kai::QUEUE)
            .or_else(|| self.either(volcano::QUEUE))
            .or_else(|| self.either(yunikorn::QUEUES[0]))
            // The old label is called just "queue", and says something of YuniKorn only beside an application.
            .or_else(|| self.first_label(&yunikorn::APPS).and_then(|_| self.label(yunikorn::QUEUES[1])))
            .or_else(|| self.label(koordinator::QUOTA));
        let queue = self
            .either(phalanx::QUEUE)
            .map(QueueRef::from)
            .or_else(|| self.label(kueue::QUEUE).map(of_kueue))
            .or_else(|| of_others.map(QueueRef::from));
        let priority = self.label(kueue::PRIORITY).or_else(|| self.label(kai::PRIORITY));
        let mut min = None;
        for key in [kai::MIN_MEMBER, volcano::MIN_MEMBER] {
            min = min.or(self.count(key)?.map(|count| (key, count)));
        }
        Ok(Asks {
            queue,
            priority_class: priority.map(str::to_owned),
            topology: self.topology()?,
            time_limit_s: self.time_limit()?,
            checkpoint_grace_s: self.time(phalanx::CHECKPOINT_GRACE)?,
            min,
            together: self.annotation(kueue::PODSET_GROUP).map(str::to_owned),
        })
    }

    fn time_limit(&self) -> Result<Option<i64>, Refused> {
        if let Some(seconds) = self.time(phalanx::TIME_LIMIT)? {
            return Ok(Some(seconds));
        }
        let Some(text) = self.label(kueue::TIME_LIMIT) else { return Ok(None) };
        let seconds = text.parse().ok().filter(|seconds| *seconds > 0);
        seconds.map(Some).ok_or_else(|| {
            let problem = format!("is {:?}, which is no time", shown(text));
            self.refused(kueue::TIME_LIMIT, problem, "write whole seconds above 0")
        })
    }

    /// A time in our own words, in seconds.
    fn time(&self, key: &'static str) -> Result<Option<i64>, Refused> {
        let Some(text) = self.either(key) else { return Ok(None) };
        let limit = phalanx_spec::quantity::parse_time_limit_ns(text);
        let seconds = limit.map(|ns| i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX));
        seconds.map(Some).map_err(|error| {
            let problem = format!("is {:?}, which is no time: {error}", shown(text));
            self.refused(key, problem, "write it like 90m or 1h30m")
        })
    }

    fn topology(&self) -> Result<TopologyRule, Refused> {
        let ours = TopologyRule {
            required: self.either(phalanx::REQUIRED).map(LevelRef::of),
            preferred: self.either(phalanx::PREFERRED).map(LevelRef::of),
            wait: self.topology_wait()?,
            segments: self.our_segments()?,
            exclusive: None,
        };
        let of_kueue = TopologyRule {
            required: self.annotation(kueue::REQUIRED).map(LevelRef::of),
            preferred: self.annotation(kueue::PREFERRED).map(LevelRef::of),
            segments: self.kueue_slices()?,
            ..TopologyRule::default()
        };
        let of_kai = TopologyRule {
            required: self.annotation(kai::REQUIRED).map(LevelRef::of),
            preferred: self.annotation(kai::PREFERRED).map(LevelRef::of),
            segments: self.kai_segment()?.into_iter().collect(),
            ..TopologyRule::default()
        };
        // A group that has a domain for itself is inside it.
        let exclusive = self.annotation(lws::EXCLUSIVE).map(LevelRef::of);
        let of_owners = TopologyRule { required: exclusive.clone(), exclusive, ..TopologyRule::default() };
        Ok(ours.or(of_kueue).or(of_kai).or(of_owners).or(self.koordinator_layers()?))
    }

    /// Pods that start one by one cannot be divided into parts.
    ///
    /// # Errors
    /// If these signs ask for parts of several pods, as `rule` has them.
    pub(super) fn refuse_segments(&self, rule: &TopologyRule, remedy: &str) -> Result<(), Refused> {
        let Some(part) = rule.segments.iter().find(|part| part.is_required && part.size > 1) else {
            return Ok(());
        };
        let keys = [phalanx::SEGMENTS, kueue::SLICES, kueue::SLICE, kai::SEGMENT_SIZE];
        let Some(key) = keys.into_iter().find(|key| self.either(key).is_some()) else { return Ok(()) };
        let problem =
            format!("wants {} pods inside one {}, and these pods start one by one", part.size, part.level);
        Err(self.refused(key, problem, format!("{remedy}, or leave it out")))
    }

    fn topology_wait(&self) -> Result<Option<TopologyWait>, Refused> {
        let Some(text) = self.either(phalanx::WAIT) else { return Ok(None) };
        TopologyWait::read(text).map(Some).map_err(|_| {
            let problem = format!("is {:?}, which is no wait", shown(text));
            self.refused(phalanx::WAIT, problem, format!("write {}", TopologyWait::ACCEPTED))
        })
    }

    fn our_segments(&self) -> Result<Vec<SegmentRule>, Refused> {
        let Some(text) = self.either(phalanx::SEGMENTS) else { return Ok(Vec::new()) };
        let wrong = |problem: &str| {
            self.refused(phalanx::SEGMENTS, problem, "write it like 8:nvlink-domain, the widest first")
        };
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        if parts.len() > SEGMENTS_MAX {
            return Err(wrong(&format!("names more than {SEGMENTS_MAX} segments")));
        }
        let segment = |part: &&str| {
            let (size, level) = part.split_once(':')?;
            let size = size.trim().parse().ok().filter(|n| (1..=MEMBERS_MAX).contains(n))?;
            let level = level.trim();
            (!level.is_empty()).then(|| SegmentRule::required(size, LevelRef::of(level)))
        };
        let segments: Option<Vec<SegmentRule>> = parts.iter().map(segment).collect();
        let segments = segments.ok_or_else(|| wrong("is no list of size:level"))?;
        check_nesting(&segments).map_err(|problem| wrong(&problem))?;
        Ok(segments)
    }

    fn kueue_slices(&self) -> Result<Vec<SegmentRule>, Refused> {
        let shape = r#"[{"topology": "example.com/rack", "size": 16}]"#;
        if let Some(slices) = self.json::<Vec<KueueSlice>>(kueue::SLICES, shape)? {
            let wrong = |problem: String| {
                self.refused(kueue::SLICES, problem, format!("write the widest first, like {shape}"))
            };
            let segment = |slice: KueueSlice| {
                let size = slice.size.and_then(Size::count);
                let size = size.ok_or_else(|| wrong("has an entry whose size is no count".to_owned()))?;
                Ok(SegmentRule::required(size, LevelRef::of(&slice.topology)))
            };
            if slices.len() > SEGMENTS_MAX {
                return Err(wrong(format!("has more than {SEGMENTS_MAX} entries")));
            }
            let segments: Vec<SegmentRule> = slices.into_iter().map(segment).collect::<Result<_, _>>()?;
            check_nesting(&segments).map_err(wrong)?;
            return Ok(segments);
        }
        let Some(level) = self.annotation(kueue::SLICE) else { return Ok(Vec::new()) };
        let size = self.count(kueue::SLICE_SIZE)?.ok_or_else(|| {
            let problem = format!("is missing beside {}", kueue::SLICE);
            self.refused(kueue::SLICE_SIZE, problem, "say how many pods a slice has")
        })?;
        Ok(vec![SegmentRule::required(size, LevelRef::of(level))])
    }

    fn kai_segment(&self) -> Result<Option<SegmentRule>, Refused> {
        let Some(size) = self.count(kai::SEGMENT_SIZE)? else { return Ok(None) };
        let required = self.annotation(kai::SEGMENT_REQUIRED);
        let Some(level) = required.or_else(|| self.annotation(kai::SEGMENT_PREFERRED)) else {
            let problem = format!("says nothing without {}", kai::SEGMENT_REQUIRED);
            return Err(self.refused(kai::SEGMENT_SIZE, problem, "name the level of a segment"));
        };
        let segment = SegmentRule::required(size, LevelRef::of(level));
        Ok(Some(SegmentRule { is_required: required.is_some(), ..segment }))
    }

    /// The narrowest layer of each strategy; layers stand outermost first or last, so the last one named is taken.
    fn koordinator_layers(&self) -> Result<TopologyRule, Refused> {
        let shape = r#"{"gatherStrategy": [{"layer": "SpineLayer", "strategy": "MustGather"}]}"#;
        let Some(spec) = self.json::<KoordinatorTopology>(koordinator::TOPOLOGY, shape)? else {
            return Ok(TopologyRule::default());
        };
        let mut rule = TopologyRule::default();
        for gather in spec.gather_strategy {
            let level = Some(LevelRef::of(&gather.layer));
            match gather.strategy.as_str() {
                "MustGather" => rule.required = level,
                "PreferGather" => rule.preferred = level,
                other => {
                    let problem = format!("has the strategy {:?}", shown(other));
                    return Err(self.refused(
                        koordinator::TOPOLOGY,
                        problem,
                        "write MustGather or PreferGather",
                    ));
                }
            }
        }
        Ok(rule)
    }

    /// The domain that a `JobSet` wants for each of its jobs alone. Where nodes are labelled with the jobs that they are
    /// for, the selectors of the pods say all there is to say.
    pub(super) fn exclusive_job(&self, job_size: u32) -> Option<SegmentRule> {
        if self.annotation(jobset::BY_NODE_LABEL).is_some() {
            return None;
        }
        let level = LevelRef::of(self.annotation(jobset::EXCLUSIVE)?);
        Some(SegmentRule { is_exclusive: true, ..SegmentRule::required(job_size.max(1), level) })
    }
}

impl SegmentRule {
    pub(super) const fn required(size: u32, level: LevelRef) -> Self {
        Self { size, level, is_required: true, is_exclusive: false }
    }
}

/// Each size divides the one before it.
fn check_nesting(segments: &[SegmentRule]) -> Result<(), String> {
    for (wide, narrow) in segments.iter().zip(segments.iter().skip(1)) {
        if wide.size % narrow.size.max(1) != 0 {
            return Err(format!("has a part of {} inside one of {}", narrow.size, wide.size));
        }
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KueueSlice {
    topology: String,
    size: Option<Size>,
}

/// Kueue's documentation writes the size both ways.
#[derive(Deserialize)]
#[serde(untagged)]
enum Size {
    Number(u32),
    Text(String),
}

impl Size {
    fn count(self) -> Option<u32> {
        let count = match self {
            Self::Number(count) => Some(count),
            Self::Text(text) => text.parse().ok(),
        };
        count.filter(|n| (1..=MEMBERS_MAX).contains(n))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KoordinatorTopology {
    #[serde(default)]
    gather_strategy: Vec<Gather>,
}

#[derive(Deserialize)]
struct Gather {
    layer: String,
    strategy: String,
}

fn text<'a>(texts: &'a Texts, key: &str) -> Option<&'a str> {
    texts.get(key).map(String::as_str).filter(|text| !text.is_empty())
}

/// The begin of a text of unknown origin, without anything that could steer a terminal.
pub(super) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}
