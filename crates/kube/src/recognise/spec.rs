//! What a gang as a whole asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::key::{GangKey, ObjectRef};
use super::topology_wait::TopologyWait;
use crate::api::PodSpec;

/// The most pods of one gang: more is a mistake in writing and no job.
pub const MEMBERS_MAX: u32 = 100_000;
/// The most gangs of one object.
pub const GANGS_MAX: u32 = 10_000;

/// What a gang as a whole asks for, as its owner, group object or annotations say.
#[derive(Clone, Debug, PartialEq)]
pub struct GangSpec {
    pub key: GangKey,
    /// The object that says so; nothing where pods alone do.
    pub object: Option<ObjectRef>,
    /// In the order of ranks.
    pub roles: Vec<RoleSpec>,
    /// The fewest members with which it starts, over all roles.
    pub min: u32,
    /// The sizes are the least that is known: whatever more pods name the gang belong to it too.
    pub is_open: bool,
    /// No gang after all: each of its pods starts by itself, and shares only queue, limits and topology.
    pub is_lone: bool,
    /// As it was written: of Kueue it is a `LocalQueue` of the namespace, of YuniKorn a path with dots.
    pub queue: Option<QueueRef>,
    pub priority_class: Option<String>,
    /// It evicts nobody, whatever its class says.
    pub is_patient: bool,
    pub topology: TopologyRule,
    pub suspend: Option<Suspend>,
    pub is_suspended: bool,
    pub time_limit_s: Option<i64>,
    /// How long before SIGTERM its pods are told that they have to make way.
    pub checkpoint_grace_s: Option<i64>,
    /// Roles whose pods may come only when the others are ready: their places are held with those of the others.
    pub late: Vec<Arc<str>>,
    /// Roles whose pods come when the others have their nodes, and have to run like these for the gang to be whole.
    pub follow: Vec<Arc<str>>,
    /// Gangs of the same object whose jobs complete first. The object's controller creates the pods only then, so nobody
    /// has to hold them; it says that both never need their places at once.
    pub after: Vec<GangKey>,
    /// Gangs that go before it are through, and it is not: its pods come when its object is let go on.
    pub is_next: bool,
}

/// Equal members of a gang.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleSpec {
    /// As pods of it are labelled; empty where a gang has no roles.
    pub name: Arc<str>,
    /// Pods.
    pub size: u32,
    /// The fewest pods of it.
    pub min: u32,
    /// Pods of each of its copies: of one job of a replicated job, of one replica over several hosts.
    pub per_copy: u32,
    /// The number that its first pod carries: LeaderWorkerSet counts workers from 1.
    pub first_index: u32,
    /// Of each copy the first pod comes alone: its controller makes the others when that one has a node, and only for nodes
    /// of the same domain.
    pub leads: bool,
    /// What holds for this role alone.
    pub topology: TopologyRule,
    /// What its pods will be; nothing where only pods themselves tell.
    pub template: Option<Arc<PodTemplate>>,
    /// Numbers of members that have done what they had to. Nobody makes pods of these again, also where they are gone.
    pub completed: BTreeSet<u32>,
}

/// Pods that do not exist yet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodTemplate {
    pub metadata: TemplateMeta,
    pub spec: PodSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TemplateMeta {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

/// When a pod of a gang comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coming {
    AtOnce,
    /// When others have their nodes; the gang is whole only with it.
    Following,
    /// When the others are ready, or later: they do not wait for it.
    Late,
}

/// Where members have to be, or should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyRule {
    /// All inside one domain of this level, or nothing starts.
    pub required: Option<LevelRef>,
    /// All inside one domain of this level if that can be had.
    pub preferred: Option<LevelRef>,
    /// How long it waits for that level, or for a nearer place than one where it could start.
    pub wait: Option<TopologyWait>,
    /// Parts that must share a lower domain, widest first.
    pub segments: Vec<SegmentRule>,
    /// No other gang with the same rule inside the domain of this level.
    pub exclusive: Option<LevelRef>,
}

/// So many consecutive members inside one domain of a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRule {
    /// Members, at least 1.
    pub size: u32,
    pub level: LevelRef,
    /// A preference where it is not required.
    pub is_required: bool,
    /// No other segment with the same rule inside the domain.
    pub is_exclusive: bool,
}

/// A level as somebody wrote it; [`super::topology::Levels`] knows which one is meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LevelRef {
    /// The key of a node label.
    Label(String),
    /// The name of a level, or of a label without a `/`.
    Name(String),
    /// A tier of Volcano's HyperNodes: 1 is next to the nodes.
    Tier(u32),
}

impl LevelRef {
    /// A name has no `/`.
    #[must_use]
    pub fn of(text: &str) -> Self {
        if text.contains('/') { Self::Label(text.to_owned()) } else { Self::Name(text.to_owned()) }
    }
}

impl fmt::Display for LevelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(key) => write!(f, "label {key}"),
            Self::Name(name) => f.write_str(name),
            Self::Tier(tier) => write!(f, "tier {tier}"),
        }
    }
}

/// The field that stops a gang without counting as a failure, and starts it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspend {
    pub object: ObjectRef,
    /// The resource in URLs: `mpijobs`.
    pub plural: &'static str,
    /// Fields from the outermost, the last of them a boolean.
    pub path: &'static [&'static str],
}

impl Suspend {
    /// Whether the field is set in an object.
    #[must_use]
    pub fn is_set_in(&self, object: &Value) -> bool {
        let field = self.path.iter().try_fold(object, |value, field| value.get(field));
        field.and_then(Value::as_bool) == Some(true)
    }

    /// Whether both suspend the same object, whichever version of it they name.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let of = |it: &Self| {
            (it.plural, it.object.group().to_owned(), it.object.namespace.clone(), it.object.name.clone())
        };
        of(self) == of(other)
    }
}

impl TopologyRule {
    /// Whether it names no level.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.required.is_none()
            && self.preferred.is_none()
            && self.segments.is_empty()
            && self.exclusive.is_none()
    }

    /// Whether it says where members have to be.
    #[must_use]
    pub fn binds(&self) -> bool {
        self.required.is_some() || self.segments.iter().any(|segment| segment.is_required)
    }

    /// What another says where this one is silent.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            required: self.required.or(other.required),
            preferred: self.preferred.or(other.preferred),
            wait: self.wait.or(other.wait),
            segments: if self.segments.is_empty() { other.segments } else { self.segments },
            exclusive: self.exclusive.or(other.exclusive),
        }
    }
}

impl RoleSpec {
    /// So many equal members, all of which have to be there.
    pub(super) fn new(name: &str, size: u32, template: Option<Arc<PodTemplate>>) -> Self {
        Self {
            name: name.into(),
            size,
            min: size,
            per_copy: size,
            first_index: 0,
            leads: false,
            topology: TopologyRule::default(),
            template,
            completed: BTreeSet::new(),
        }
    }
}

/// The queue that a gang names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRef {
    pub name: String,
    /// It stands in a label of Kueue, which may admit the same pods by queues of its own: where there is no `Queue` of that
    /// name here, nothing is asked of this scheduler.
    pub is_of_kueue: bool,
}

impl From<&str> for QueueRef {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), is_of_kueue: false }
    }
}

impl From<String> for QueueRef {
    fn from(name: String) -> Self {
        Self { name, is_of_kueue: false }
    }
}

impl fmt::Display for QueueRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl GangSpec {
    /// A gang of these roles that starts with the fewest of each.
    pub(super) fn new(key: GangKey, object: Option<ObjectRef>, roles: Vec<RoleSpec>) -> Self {
        let min = roles.iter().fold(0_u32, |sum, role| sum.saturating_add(role.min));
        Self {
            key,
            object,
            roles,
            min,
            is_open: false,
            is_lone: false,
            queue: None,
            priority_class: None,
            is_patient: false,
            topology: TopologyRule::default(),
            suspend: None,
            is_suspended: false,
            time_limit_s: None,
            checkpoint_grace_s: None,
            late: Vec::new(),
            follow: Vec::new(),
            after: Vec::new(),
            is_next: true,
        }
    }

    /// What holds for a pod by itself, as it says itself or else what it belongs to. Of the rules of topology only the level
    /// that it shares with other pods of its owner is about such pods, and its class of priority is known by its number.
    #[must_use]
    pub fn alone(key: GangKey, own: Option<&Self>, of: Option<&Self>) -> Option<Self> {
        let all = || own.into_iter().chain(of);
        all().next()?;
        let mut spec = Self::new(key, None, vec![RoleSpec::new("", 1, None)]);
        spec.queue = all().find_map(|from| from.queue.clone());
        spec.time_limit_s = all().find_map(|from| from.time_limit_s);
        spec.checkpoint_grace_s = all().find_map(|from| from.checkpoint_grace_s);
        spec.topology.required = all().find_map(|from| from.topology.required.clone());
        spec.priority_class = of.and_then(|of| of.priority_class.clone());
        spec.is_patient = of.is_some_and(|of| of.is_patient);
        Some(spec)
    }

    /// Whether its object alone says what its pods ask for, so that it can wait without them.
    #[must_use]
    pub fn has_templates(&self) -> bool {
        self.roles.iter().all(|role| role.template.is_some())
    }

    /// Pods of all roles.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.roles.iter().fold(0, |sum, role| sum.saturating_add(role.size))
    }

    #[must_use]
    pub fn role(&self, name: &str) -> Option<&RoleSpec> {
        self.roles.iter().find(|role| &*role.name == name)
    }

    /// The role of a pod, where members of that have to be somewhere whatever those of others have to.
    #[must_use]
    pub fn role_bound(&self, role: Option<&str>) -> Option<&RoleSpec> {
        let of_pod = role.and_then(|name| self.role(name)).filter(|_| self.roles.len() > 1);
        of_pod.filter(|role| role.topology.binds())
    }

    /// When the pod of a role with a number comes.
    #[must_use]
    pub fn coming(&self, role: Option<&str>, index: Option<u32>) -> Coming {
        let Some(role) = role.and_then(|name| self.role(name)).or_else(|| self.role("")) else {
            return Coming::AtOnce;
        };
        let is_first = index.is_none_or(|index| index.is_multiple_of(role.per_copy.max(1)));
        if self.late.contains(&role.name) {
            Coming::Late
        } else if self.follow.contains(&role.name) || (role.leads && !is_first) {
            Coming::Following
        } else {
            Coming::AtOnce
        }
    }

    /// Whether a gang that runs with so many pods of a role may have one more of it.
    #[must_use]
    pub fn may_grow(&self, role: Option<&str>, ranks: usize) -> bool {
        let of_role = role.and_then(|name| self.role(name)).or_else(|| self.role(""));
        self.is_open || of_role.is_some_and(|role| ranks < role.size as usize)
    }

    /// What holds for the only role holds for the gang.
    pub(super) fn lift_topology(&mut self) {
        if let [role] = self.roles.as_mut_slice() {
            let of_role = std::mem::take(&mut role.topology);
            self.topology = std::mem::take(&mut self.topology).or(of_role);
        }
    }
}
