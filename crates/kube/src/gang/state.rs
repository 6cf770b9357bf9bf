//! One gang: its pods, its ranks, and how far its start has come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use phalanx_model::{JobId, NodeName, Placement, ResourceName, Slot, Timestamp};

use phalanx_model::ids::natural_cmp;

use super::constraints::TurnedDown;
use super::lifecycle::single_pods::OwnerContext;
use super::report::waits::Waiting;
use crate::api;
use crate::cluster::hardware::are_devices_asked;
use crate::cluster::node_sets::{Condition, More, Wanted};
use crate::cluster::nodes::OrphanedBinding;
use crate::constraint::volumes::Preparation;
use crate::filter::Requirements;
use crate::gang::pods::{Known, Note};
use crate::messages::PodRef;
use crate::recognise::{Coming, GangKey, GangSpec, RoleSpec};

/// Pods that start together, whether the engine knows of them already or not.
pub(crate) struct Gang {
    pub(crate) key: GangKey,
    pub(crate) pods: BTreeMap<Arc<str>, Pod>,
    pub(crate) job: Option<Submitted>,
    /// Why it is not handed in, or what the engine said since it was.
    pub(crate) waits: Option<Waiting>,
    /// Why the engine refused it, until it takes it.
    pub(crate) refused: Option<Arc<str>>,
    /// Pods whose nodes an autoscaler was asked for; nothing where that is not known.
    pub(crate) asked: Option<Vec<Vec<PodRef>>>,
    /// Its pods are looked for on different nodes, and why: where they fitted best they could not be together.
    pub(crate) apart: Option<Arc<str>>,
    /// Its last place did not hold.
    pub(crate) turned_down: Option<TurnedDown>,
    /// The sort of reason that its owner was told last, for want of pods.
    pub(crate) said: Option<Arc<str>>,
    /// Its pods whose binding was given up without an answer, until when it may still come, and where it would put them.
    pub(crate) unsettled: BTreeMap<Arc<str>, (Timestamp, OrphanedBinding)>,
    /// Its bound pods that have no place in it, and its unsettled ones, as they are counted.
    pub(crate) strays: BTreeMap<Arc<str>, OrphanedBinding>,
    /// Of a pod by itself: what it belongs to.
    pub(crate) kin: Option<OwnerContext>,
    /// Its pods have `nominatedNodeName`: gangs were preempted for it.
    pub(crate) is_nominated: bool,
    /// Of a pod by itself: the owner whose pods share one domain, see [`super::lifecycle::siblings`].
    pub(crate) owner: Option<Arc<str>>,
    /// Pods that have ended well and are gone, with their roles: nobody makes them again.
    pub(crate) through: BTreeMap<Arc<str>, Option<Arc<str>>>,
}

/// A pod and where in its gang it belongs.
pub(crate) struct Pod {
    pub(crate) known: Known,
    pub(crate) role: Option<Arc<str>>,
    pub(crate) index: Option<u32>,
    /// As it came, where it is the pods that say how large their gang is.
    pub(crate) signs: Option<Arc<api::Pod>>,
}

/// A gang that the engine has as a job.
pub(crate) struct Submitted {
    pub(crate) id: JobId,
    /// By rank.
    pub(crate) seats: Vec<Seat>,
    pub(crate) sets: Vec<Wanted>,
    /// What its members need and each node has one of.
    pub(crate) ports: BTreeSet<ResourceName>,
    /// Those that ask alike are decided one after another.
    pub(crate) line: Option<Condition>,
    /// How it is to be stopped.
    pub(crate) stop: phalanx_model::Stop,
    /// The nodes that it is to be near to.
    pub(crate) near: Vec<NodeName>,
    /// The engine was told that it may not be disrupted for now.
    pub(crate) is_protected: bool,
    pub(crate) intent: Intent,
    pub(crate) run: Option<Run>,
}

/// One rank, whichever pod it is.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) role: Option<Arc<str>>,
    pub(crate) index: Option<u32>,
    pub(crate) requirements: Arc<Requirements>,
    /// Filled in when the gang is handed in.
    pub(crate) more: More,
    /// Where its gang is divided, in which order its ranks may come to their domains.
    pub(crate) turn: usize,
    pub(crate) pod: Option<Arc<str>>,
    /// Where its pod comes after others, its place is held with theirs.
    pub(crate) coming: Coming,
}

/// One start of a gang.
pub(crate) struct Run {
    pub(crate) attempt: u32,
    pub(crate) placement: Placement,
    pub(crate) members: Vec<Member>,
    pub(crate) ready_by: Timestamp,
    /// The leaders whose decision it is, see [`crate::gang::pods::EPOCH`].
    pub(crate) epochs: BTreeSet<Arc<str>>,
    /// What its volumes still need.
    pub(crate) preparation: Option<Preparation>,
    pub(crate) stage: Stage,
    /// Pods of it that were not on their way out yet when it was told to stop last.
    pub(crate) staying: usize,
    /// The engine stops it, if only by advice so far, and it does not start again in what is left of its placement.
    pub(crate) is_leaving: bool,
    /// Ranks that exited since: they hold their places no longer.
    pub(crate) freed: BTreeSet<usize>,
}

/// How far a start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The gang has its placement, and no binding was requested yet.
    Placed,
    /// Bindings were requested.
    Binding,
    /// All members are bound, and are to run.
    Released,
    /// The engine ordered the start to stop.
    Stopping(Stop),
}

/// What the engine was last told to do with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Start,
    /// Pods are missing: it is not to start for now.
    Hold,
    Cancel,
}

impl Run {
    pub(crate) const fn is_stopping(&self) -> bool {
        matches!(self.stage, Stage::Stopping(_))
    }

    /// The places that its ranks hold: each as long as the start goes on, and then until it has exited.
    pub(crate) fn held(&self) -> impl Iterator<Item = (usize, &Slot)> {
        self.placement.slots.iter().enumerate().filter(|(rank, _)| !self.freed.contains(rank))
    }

    /// The places of ranks that have exited, and hold them no longer since the engine stops the start. Each is given once.
    pub(crate) fn free_exited(&mut self) -> Vec<Slot> {
        (0..self.members.len()).filter_map(|rank| self.free(rank)).collect()
    }

    /// The same of one rank.
    pub(crate) fn free(&mut self, rank: usize) -> Option<Slot> {
        let is_gone = self.is_leaving && self.members.get(rank) == Some(&Member::Exited);
        let is_new = is_gone && self.freed.insert(rank);
        self.placement.slots.get(rank).filter(|_| is_new).cloned()
    }

    /// Whether bindings were requested, and the start goes on.
    pub(crate) const fn has_begun(&self) -> bool {
        matches!(self.stage, Stage::Binding | Stage::Released)
    }

    /// Whether a pod has the place of a rank. What a leader decided whose time was over may be that very place; then the pod
    /// has to be that very rank as well.
    pub(crate) fn has_placed(&self, rank: usize, pod: &Known) -> bool {
        let is_there = self.placement.slots.get(rank).is_some_and(|slot| pod.is_at(slot));
        let is_of = |note: &Note| {
            let decided = |epoch: &Arc<str>| self.epochs.contains(epoch);
            note.rank as usize == rank || note.epoch.as_ref().is_none_or(decided)
        };
        is_there && pod.noted.as_ref().is_some_and(is_of)
    }
}

/// How far the pod of a rank is, as the engine was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    /// It has a place, and nobody was asked to bind a pod there.
    Placed,
    Binding,
    Bound,
    Running,
    /// Its pod is gone; whoever made it makes another until then.
    Vacant {
        until: Timestamp,
    },
    /// It has no pod that runs, and the others are enough: for the engine it runs as long as they do.
    Spared,
    /// The same, and the pod that came for it cannot have its place for now.
    Displaced,
    Exited,
}

impl Member {
    /// Whether its gang goes on without it.
    pub(crate) const fn is_spared(self) -> bool {
        matches!(self, Self::Spared | Self::Displaced)
    }
}

/// Why a start is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Somebody else goes first: disruption budgets hold.
    Evicted,
    /// It could not start whole.
    TakenBack,
    Ended,
}

impl Gang {
    pub(crate) const fn new(key: GangKey) -> Self {
        Self {
            key,
            pods: BTreeMap::new(),
            job: None,
            waits: None,
            refused: None,
            asked: None,
            apart: None,
            turned_down: None,
            said: None,
            unsettled: BTreeMap::new(),
            strays: BTreeMap::new(),
            kin: None,
            is_nominated: false,
            owner: None,
            through: BTreeMap::new(),
        }
    }

    /// Its start, while that lasts.
    pub(crate) fn run(&self) -> Option<&Run> {
        self.job.as_ref()?.run.as_ref()
    }

    pub(crate) fn pod_ref(&self, name: &Arc<str>) -> Option<PodRef> {
        let uid = Arc::clone(&self.pods.get(name)?.known.uid);
        Some(PodRef { namespace: Arc::clone(&self.key.namespace), name: Arc::clone(name), uid })
    }

    /// When the first of its pods was created.
    pub(crate) fn created(&self) -> Timestamp {
        self.pods.values().map(|pod| pod.known.created).min().unwrap_or(Timestamp(0))
    }

    /// Its pods that have no node yet.
    pub(crate) fn unbound(&self) -> Vec<Arc<str>> {
        let unbound = self.pods.iter().filter(|(_, pod)| pod.known.node.is_none() && !pod.known.is_going);
        unbound.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// What keeps one of its pods from starting as it is.
    pub(crate) fn barred(&self) -> Option<Arc<str>> {
        let mut live = self.pods.iter().filter(|(_, pod)| !pod.known.is_going && !pod.known.is_over());
        let (name, why) = live.find_map(|(name, pod)| Some((name, pod.known.barred.as_ref()?)))?;
        Some(format!("pod {name}: {why}").into())
    }

    /// Its ranks, with the pods that are there; or why it cannot be handed in yet. Pods that have ended well have none, and
    /// nobody waits for others in their stead.
    ///
    /// Pods that say their number have that one; the others follow in natural order of their names. Roles with devices come
    /// first, so that the rules of topology are about them.
    pub(crate) fn seats(&self, spec: Option<&GangSpec>) -> Result<Vec<Seat>, Arc<str>> {
        let is_of_now = |pod: &Pod| !pod.known.is_going && (!pod.known.is_over() || pod.known.is_done());
        let there = || self.pods.iter().filter(|(_, pod)| is_of_now(pod));
        if let Some(why) = self.barred() {
            return Err(why);
        }
        let Some(spec) = spec else {
            return self.seats_of(None, there().collect(), 0, u32::MAX).map(|(seats, _)| seats);
        };
        let mut roles: Vec<Vec<Seat>> = Vec::with_capacity(spec.roles.len());
        let mut through = 0;
        for role in &spec.roles {
            let is_of = |pod: &&Pod| spec.roles.len() == 1 || pod.role.as_deref() == Some(&*role.name);
            let pods = there().filter(|(_, pod)| is_of(pod)).collect();
            let most = if spec.is_open { u32::MAX } else { role.size };
            let (seats, ended) = self.seats_of(Some((spec, role)), pods, role.min, most)?;
            roles.push(seats);
            through += ended;
        }
        let count: usize = roles.iter().map(Vec::len).sum::<usize>() + through;
        if count < spec.min as usize {
            return Err(format!("{count} of at least {} pods are there", spec.min).into());
        }
        // A stable sort: otherwise in the order in which the object has them.
        let has_claims = |seat: &Seat| {
            let pod = seat.pod.as_ref().and_then(|name| self.pods.get(name));
            pod.is_some_and(|pod| !pod.known.claims.is_empty())
        };
        let has_none = |seat: &Seat| !are_devices_asked(&seat.requirements.amounts) && !has_claims(seat);
        roles.sort_by_key(|seats| seats.first().is_none_or(has_none));
        Ok(roles.into_iter().flatten().collect())
    }

    /// The ranks of one role: as many as there are pods, and at least `min`; and how many have ended well.
    fn seats_of(
        &self,
        of: Option<(&GangSpec, &RoleSpec)>,
        pods: Vec<(&Arc<str>, &Pod)>,
        min: u32,
        most: u32,
    ) -> Result<(Vec<Seat>, usize), Arc<str>> {
        let role = of.map(|(_, role)| role);
        let coming = |index: Option<u32>| {
            of.map_or(Coming::AtOnce, |(spec, role)| spec.coming(Some(&role.name), index))
        };
        let is_suspended = of.is_some_and(|(spec, _)| spec.is_suspended);
        let leads = role.is_some_and(|role| role.leads);
        let is_late = leads || coming(None) != Coming::AtOnce;
        let (ended, mut pods): (Vec<_>, Vec<_>) = pods.into_iter().partition(|(_, pod)| pod.known.is_done());
        let number = |(_, pod): &(&Arc<str>, &Pod)| pod.index;
        let live: BTreeSet<u32> = pods.iter().filter_map(number).collect();
        let mut numbers_through: BTreeSet<u32> = ended.iter().filter_map(number).collect();
        let ended = ended.len() - numbers_through.len();
        numbers_through.extend(role.iter().flat_map(|role| role.completed.difference(&live)));
        let there = ended + numbers_through.len() + pods.len();
        let gone = self.seen_through(role.map(|role| &*role.name).filter(|name| !name.is_empty()));
        // Others may have come in their stead.
        let gone = gone.min((most as usize).saturating_sub(there));
        let through = ended + numbers_through.len() + gone;
        let less = u32::try_from(through).unwrap_or(u32::MAX);
        let (min, most) = (min.saturating_sub(less), most.saturating_sub(less));
        pods.sort_by(|(a, x), (b, y)| x.index.cmp(&y.index).then_with(|| natural_cmp(a, b)));
        let template = role.and_then(|role| role.template.as_ref()).filter(|_| is_late || is_suspended);
        let wanted = if template.is_some() { most } else { min };
        let there = u32::try_from(pods.len()).unwrap_or(u32::MAX);
        if there < wanted && template.is_none() {
            let of = role
                .filter(|role| !role.name.is_empty())
                .map_or(String::new(), |role| format!(" of {}", role.name));
            return Err(format!("{there} of {wanted} pods{of} are there").into());
        }
        // Those that follow are made like the one that they follow, of which admission may have made more than the template.
        let first = pods.iter().find(|(_, pod)| leads && coming(pod.index) == Coming::AtOnce);
        let from_template = match (template, first) {
            (Some(_), Some((_, pod))) => Some(Arc::clone(&pod.known.requirements)),
            (Some(template), None) => Some(crate::cluster::needs::of_template(template)?),
            (None, _) => None,
        };
        let name = role.map(|role| Arc::clone(&role.name)).filter(|name| !name.is_empty());
        let count = there.max(wanted).min(most) as usize;
        let numbers: Vec<u32> =
            (0..).filter(|number| !numbers_through.contains(number)).take(count).collect();
        if leads && !is_suspended {
            let first = |number: Option<u32>| number.is_some() && coming(number) == Coming::AtOnce;
            let wanted = numbers.iter().filter(|number| first(Some(**number))).count();
            let there = pods.iter().filter(|(_, pod)| first(pod.index)).count();
            if there < wanted {
                let of = role.map_or("", |role| &role.name);
                return Err(
                    format!("{there} of the {wanted} first pods of each job of {of} are there").into()
                );
            }
        }
        let mut seats: Vec<Option<Seat>> = vec![None; count];
        let mut unnumbered = Vec::new();
        for (pod_name, pod) in pods {
            let seat = |index| Seat {
                role: name.clone(),
                index,
                requirements: Arc::clone(&pod.known.requirements),
                more: More::default(),
                turn: 0,
                pod: Some(Arc::clone(pod_name)),
                coming: coming(index),
            };
            let own = pod.index.and_then(|index| numbers.binary_search(&index).ok());
            let own = own.and_then(|at| seats.get_mut(at)).filter(|seat| seat.is_none());
            match own {
                Some(free) => *free = Some(seat(pod.index)),
                None => unnumbered.push(seat(None)),
            }
        }
        let mut rest = unnumbered.into_iter();
        for (index, free) in numbers.into_iter().zip(&mut seats).filter(|(_, seat)| seat.is_none()) {
            let absent = || {
                let requirements = Arc::clone(from_template.as_ref()?);
                let (role, more, coming) = (name.clone(), More::default(), coming(Some(index)));
                Some(Seat { role, index: Some(index), requirements, more, turn: 0, pod: None, coming })
            };
            *free = rest.next().or_else(absent);
        }
        Ok((seats.into_iter().flatten().collect(), through))
    }
}

impl Seat {
    /// Whether its pod comes after others, for which its place is kept.
    pub(crate) fn is_late(&self) -> bool {
        self.coming != Coming::AtOnce
    }

    /// Whether the gang is whole only when its pod runs.
    pub(crate) fn is_awaited(&self) -> bool {
        self.coming != Coming::Late
    }

    /// Whether its place is kept for a pod that comes later than the others.
    pub(crate) fn is_kept(&self, member: Member) -> bool {
        self.is_late() && matches!(member, Member::Bound | Member::Running)
    }

    /// Whether a pod may be bound to its place now.
    pub(crate) fn can_bind(&self, member: Member) -> bool {
        self.is_kept(member) || matches!(member, Member::Placed | Member::Vacant { .. } | Member::Spared)
    }
}

impl Submitted {
    /// The engine is to forget it. Whether that is news.
    pub(crate) fn cancel(&mut self) -> bool {
        std::mem::replace(&mut self.intent, Intent::Cancel) != Intent::Cancel
    }

    /// The free seat that a pod is for, one whose pod has failed among them: one that was kept for the very same request, or
    /// else for the same devices. What a template says is less than what admission and operators make of it: tolerations,
    /// defaults, containers that go first.
    pub(crate) fn seat_for(&self, pods: &BTreeMap<Arc<str>, Pod>, pod: &Pod) -> Option<usize> {
        let requested = &pod.known.requirements.amounts;
        let has_failed = |name: &Arc<str>| pods.get(name).is_some_and(|pod| pod.known.has_failed());
        let is_free = |seat: &Seat| {
            seat.pod.as_ref().is_none_or(has_failed) && (seat.role.is_none() || seat.role == pod.role)
        };
        let is_same = |seat: &Seat| is_free(seat) && seat.requirements.amounts == *requested;
        let is_alike =
            |seat: &Seat| is_free(seat) && seat.requirements.amounts.extended == requested.extended;
        let numbered = |seat: &Seat| pod.index.is_some() && seat.index == pod.index;
        let any = |seat: &Seat| pod.index.is_none() || seat.index.is_none();
        let at = |is_it: &dyn Fn(&Seat) -> bool| self.seats.iter().position(is_it);
        at(&|seat| is_same(seat) && numbered(seat))
            .or_else(|| at(&|seat| is_same(seat) && any(seat)))
            .or_else(|| at(&|seat| is_alike(seat) && numbered(seat)))
            .or_else(|| at(&|seat| is_alike(seat) && any(seat)))
    }

    pub(crate) fn rank_of(&self, pod: &str) -> Option<usize> {
        self.seats.iter().position(|seat| seat.pod.as_deref() == Some(pod))
    }

    /// Whether every pod that has to be there before a start is there.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete_but(&BTreeSet::new())
    }

    /// The same without these ranks.
    pub(crate) fn is_complete_but(&self, ranks: &BTreeSet<usize>) -> bool {
        let mut seats = self.seats.iter().enumerate();
        seats.all(|(rank, seat)| seat.pod.is_some() || seat.is_late() || ranks.contains(&rank))
    }
}
