//! Pods as the scheduler keeps them: small, and with everything that a restart has to know again.
//!
//! What the scheduler decided for a pod travels with its binding as annotations, so that a successor reads it back
//! from the pod itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use phalanx_model::{DeviceMask, Exit, FailureClass, NodeName, Placement, Slot, Timestamp};

use crate::api::Pod;
use crate::cluster::bound_pods::Face;
use crate::cluster::priorities::Priority;
use crate::constraint::claims::Used;
use crate::digest::hex;
use crate::dra::ExtendedAsk;
use crate::filter::Requirements;
use crate::gang::report::soft_constraints::SoftConstraint;

/// The pod's number in its gang, from 0.
pub const RANK: &str = "phalanx.dev/rank";
/// The devices of its node that it was given, by their numbers: `0-3`; `-` for a pod without devices.
pub const DEVICES: &str = "phalanx.dev/devices";
/// Which start of its gang this is, from 1.
pub const ATTEMPT: &str = "phalanx.dev/attempt";
/// Pods of its gang.
pub const GANG_SIZE: &str = "phalanx.dev/gang-size";
/// When all of its gang have to run, in RFC 3339; until then the gang counts as starting.
pub const READY_BY: &str = "phalanx.dev/ready-by";

/// Where all pods of its gang are: node and devices by rank, so that a successor can finish what was bound in part. In a gang
/// of more than [`COPIES`] ranks as many pods have it, spread over the ranks, and the others `#` and its digest: on every pod
/// the bytes would grow with the square of the gang.
pub const PLACEMENT: &str = "phalanx.dev/placement";

/// Which leader decided that: the UID of its lease, which of the lease's holders it was, and its name, with `/` between them.
pub const EPOCH: &str = "phalanx.dev/epoch";

/// On a pod that has to make way: when SIGTERM comes, in RFC 3339. Its work is to be saved by then.
pub const CHECKPOINT_BY: &str = "phalanx.dev/checkpoint-by";

/// A pod that does not say how long it has from SIGTERM on, in seconds.
pub(crate) const GRACE_S: i64 = 30;

/// Pods of a gang on which its placement is written. They are bound first: as many bindings are made at once, so that one of
/// them has its answer before any other pod is bound.
const COPIES: usize = 16;

/// All annotations of an object together may have 256 KiB.
pub(crate) const PLACEMENT_BYTES_MAX: usize = 192 << 10;

/// Bytes of the digest of a placement.
const DIGEST_BYTES: usize = 8;

/// A pod that exists.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) name: Arc<str>,
    pub(crate) uid: Arc<str>,
    pub(crate) requirements: Arc<Requirements>,
    /// Its claims for devices.
    pub(crate) claims: Box<[Used]>,
    /// What it asks for as extended resources, which a claim may serve.
    pub(crate) extended: Option<Arc<ExtendedAsk>>,
    /// Its status names a claim that was made for them.
    pub(crate) has_extended_claim: bool,
    pub(crate) created: Timestamp,
    pub(crate) node: Option<NodeName>,
    pub(crate) state: State,
    /// When the first of its running containers started.
    pub(crate) ran_from: Option<Timestamp>,
    /// How long it has from SIGTERM on, in seconds.
    pub(crate) grace_s: i64,
    /// Its condition `Ready` is true.
    pub(crate) is_ready: bool,
    pub(crate) is_going: bool,
    /// Whoever made it makes another in its stead.
    pub(crate) has_owner: bool,
    pub(crate) noted: Option<Note>,
    pub(crate) priority: Priority,
    /// The class that a label of it names, as Kueue and KAI have them.
    pub(crate) class: Option<Arc<str>>,
    pub(crate) face: Face,
    /// Why it is not to start, whatever is free.
    pub(crate) barred: Option<Arc<str>>,
    /// What it would rather have, and nobody weighs.
    pub(crate) wish: Option<Box<SoftConstraint>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    Running,
    Over(Exit),
}

/// What its binding said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) rank: u32,
    pub(crate) devices: DeviceMask,
    pub(crate) attempt: u32,
    pub(crate) ready_by: Option<Timestamp>,
    /// Where the whole gang is, see [`PLACEMENT`].
    pub(crate) placement: Option<Whole>,
    /// Who decided it, see [`EPOCH`].
    pub(crate) epoch: Option<Arc<str>>,
}

impl Known {
    /// What its binding said, if the pod is where that put it.
    pub(crate) fn noted_at(&self, pod: &Pod) -> Option<Note> {
        let is_there = self.node.as_ref().map(NodeName::as_str) == pod.spec.node_name.as_deref();
        self.noted.clone().filter(|_| is_there && self.node.is_some())
    }

    /// Its containers have ended for good.
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.state, State::Over(_))
    }

    /// Its containers have done what they had to: nobody makes it again.
    pub(crate) fn is_done(&self) -> bool {
        matches!(&self.state, State::Over(exit) if exit.is_success())
    }

    /// It ended before that: whoever made it makes another, and keeps this one to look at.
    pub(crate) fn has_failed(&self) -> bool {
        self.is_over() && !self.is_done()
    }

    /// Whether it is bound to that node with those devices, or was: the kubelet may have given it others.
    pub(crate) fn is_at(&self, slot: &Slot) -> bool {
        let has = |note: &Note| note.devices == slot.devices || note.was_given(slot);
        self.node.as_ref() == Some(&slot.node) && self.noted.as_ref().is_some_and(has)
    }
}

impl State {
    pub(crate) fn of(pod: &Pod) -> Self {
        match pod.status.phase.as_deref() {
            Some("Succeeded") => Self::Over(Exit::succeeded()),
            Some("Failed") => Self::Over(failure(pod)),
            Some("Running") => Self::Running,
            _ => Self::Waiting,
        }
    }
}

/// How a failed pod ended, as far as it says so.
fn failure(pod: &Pod) -> Exit {
    let ended =
        pod.status.container_statuses.iter().filter_map(|status| status.state.as_ref()?.terminated.as_ref());
    let failed = ended.clone().find(|end| end.exit_code != 0).or_else(|| ended.clone().next());
    let said = [pod.status.reason.as_deref(), pod.status.message.as_deref()];
    let detail = said.into_iter().flatten().collect::<Vec<_>>().join(": ");
    match failed {
        // The kubelet turned it away, or somebody took it off its node: nothing of the user's failed.
        None => Exit::failed(FailureClass::Infrastructure, detail),
        Some(end) => Exit { signal: end.signal, detail, ..Exit::code(end.exit_code) },
    }
}

impl Note {
    pub(crate) fn of(pod: &Pod) -> Option<Self> {
        let number = |key: &str| pod.annotation(key)?.parse().ok();

        Some(Self {
            rank: number(RANK)?,
            devices: pod.annotation(DEVICES)?.parse().ok()?,
            attempt: number(ATTEMPT)?,
            ready_by: pod.annotation(READY_BY).and_then(timestamp),
            placement: pod.annotation(PLACEMENT).map(Whole::read),
            epoch: pod.annotation(EPOCH).map(Into::into),
        })
    }

    /// Where all ranks are, as far as it says.
    pub(crate) fn slots(&self) -> Option<Vec<Slot>> {
        let Some(Whole::Text(text)) = &self.placement else { return None };
        read_slots(text)
    }

    /// Whether it was given the devices of a slot, as far as it says.
    fn was_given(&self, slot: &Slot) -> bool {
        match &self.placement {
            Some(Whole::Digest(_)) => self.rank == slot.rank,
            _ => {
                let own = self.slots().and_then(|slots| Some(slots.get(self.rank as usize)?.devices));
                own.is_none_or(|chosen| chosen == slot.devices)
            }
        }
    }

    /// As it travels with a binding.
    pub(crate) fn annotations(&self, gang_size: u32) -> BTreeMap<String, String> {
        let mut all = BTreeMap::from([
            (RANK.to_owned(), self.rank.to_string()),
            (DEVICES.to_owned(), self.devices.to_string()),
            (ATTEMPT.to_owned(), self.attempt.to_string()),
            (GANG_SIZE.to_owned(), gang_size.to_string()),
        ]);
        all.extend(self.placement.as_ref().map(|whole| (PLACEMENT.to_owned(), whole.to_string())));
        all.extend(self.epoch.as_ref().map(|text| (EPOCH.to_owned(), text.to_string())));
        all.extend(self.ready_by.and_then(rfc3339).map(|text| (READY_BY.to_owned(), text)));
        all
    }
}

/// What a pod says of the placement of its gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    Text(Arc<str>),
    /// Other pods have the text.
    Digest(Arc<str>),
}

impl Whole {
    fn read(annotation: &str) -> Self {
        annotation
            .strip_prefix('#')
            .map_or_else(|| Self::Text(annotation.into()), |of| Self::Digest(of.into()))
    }

    /// The digest of the text, equal on all pods of one placement.
    pub(crate) fn digest(&self) -> Arc<str> {
        match self {
            Self::Text(text) => hex(text.as_bytes(), DIGEST_BYTES).into(),
            Self::Digest(digest) => Arc::clone(digest),
        }
    }
}

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Digest(digest) => write!(f, "#{digest}"),
        }
    }
}

/// A placement as it is written on the pods of its gang.
pub(crate) struct Written {
    text: Whole,
    digest: Whole,
    ranks: usize,
}

impl Written {
    /// Nothing for a single pod, and where the text would be too long.
    pub(crate) fn of(placement: &Placement) -> Option<Self> {
        let slots = &placement.slots;
        if slots.len() < 2 {
            return None;
        }
        let text = placement_text(slots);
        let text = Whole::Text((text.len() <= PLACEMENT_BYTES_MAX).then(|| text.into())?);
        Some(Self { digest: Whole::Digest(text.digest()), text, ranks: slots.len() })
    }

    /// Whether a rank has the text: [`COPIES`] of them do, spread evenly.
    pub(crate) const fn has_text(&self, rank: usize) -> bool {
        rank == 0 || rank * COPIES / self.ranks != (rank - 1) * COPIES / self.ranks
    }

    pub(crate) const fn on(&self, has_text: bool) -> &Whole {
        if has_text { &self.text } else { &self.digest }
    }
}

/// Node and devices of each rank in the order of ranks: `a 0-3; b 0-3`.
pub(crate) fn placement_text(slots: &[Slot]) -> String {
    let each: Vec<String> = slots.iter().map(|slot| format!("{} {}", slot.node, slot.devices)).collect();
    each.join("; ")
}

/// The same back again.
pub(crate) fn read_slots(text: &str) -> Option<Vec<Slot>> {
    let slot = |(rank, text): (u32, &str)| {
        let (node, devices) = text.trim().split_once(' ')?;
        let (node, devices) = (NodeName::new(node).ok()?, devices.parse().ok()?);
        Some(Slot { rank, node, devices, part: None })
    };
    (0..).zip(text.split(';')).map(slot).collect()
}

/// When the first of the containers started that run now.
pub(crate) fn ran_from(pod: &Pod) -> Option<Timestamp> {
    let containers = pod.status.container_statuses.iter();
    let started =
        containers.filter_map(|status| status.state.as_ref()?.running.as_ref()?.started_at.as_ref());
    started.map(|time| of_time(time.0)).min()
}

/// The time of creation; the beginning of time where there is none.
pub(crate) fn created(pod: &Pod) -> Timestamp {
    pod.metadata.creation_timestamp.as_ref().map_or(Timestamp(0), |time| of_time(time.0))
}

pub(crate) fn of_time(time: jiff::Timestamp) -> Timestamp {
    Timestamp(u64::try_from(time.as_millisecond()).unwrap_or(0))
}

pub(crate) fn timestamp(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>().ok().map(of_time)
}

pub(crate) fn rfc3339(time: Timestamp) -> Option<String> {
    jiff::Timestamp::from_millisecond(i64::try_from(time.0).ok()?).ok().map(|time| time.to_string())
}
