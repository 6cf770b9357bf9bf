//! Claims for devices: what pods ask for by them, which nodes can serve that, and which devices they get.
//!
//! Pure, like all of the state. The engine counts accelerators of nodes and finds places; what it cannot count (selected
//! devices, constraints, shares) narrows the nodes to those that can serve, and is counted as a resource of its own. Once
//! it has decided, the allocator gives each claim the devices of the place, or others of that node that satisfy it.
//!
//! A claim is given by an entry here before the API server knows, see [`give`]; from then on nobody else gets its devices.
//! What a start of ours was given and does not use any more goes back ([`ClaimState::take_back`]); claims of pods that are
//! gone are released by Kubernetes itself.
//!
//! | module | what lives there |
//! |---|---|
//! | `ask` | what a pod's claims ask for, equal for equal pods |
//! | `shapes` | which nodes can serve an ask |
//! | `give` | claims at the start of a gang, and at its end |
//! | `extended` | claims that are made for extended resources |
//! | `groups` | claims of upstream's groups |
//! | `shared` | claims that several pods of a gang have together |
//! | `published` | what a node has for the engine |

mod ask;
mod extended;
mod give;
mod groups;
mod published;
mod shapes;
mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference, ResourceClaimSpec};
use phalanx_model::{NodeName, ResourceName, Timestamp};

use crate::cluster::node_sets::Condition;
use crate::cluster::nodes::NodeState;
use crate::cluster::published::Published;
use crate::dra::{Inventory, Nodes};
use crate::messages::DeviceEvent;
use crate::messages::PodRef;
use crate::recognise::GangKey;

pub(crate) use ask::{Asked, Source, Used};
pub(crate) use give::{Given, Left, Prepared, Unprepared};
pub(crate) use groups::is_group;
pub(crate) use shared::Shared;

use ask::Sharing;
use groups::Groups;
use shapes::Shape;

/// Asks that are remembered without pods that have them.
const IDLE_SHAPES_MAX: usize = 256;

/// Whether a user of a claim is a pod of the gang, and has no node.
pub(crate) type Waits<'w> = dyn Fn(&ResourceClaimConsumerReference) -> bool + 'w;

/// Namespace and name.
pub(crate) type Path = (Arc<str>, Arc<str>);

/// See the module.
#[derive(Default)]
pub(crate) struct ClaimState {
    inventory: Inventory,
    claims: BTreeMap<Path, Claim>,
    templates: BTreeMap<Path, ResourceClaimSpec>,
    shapes: BTreeMap<Condition, Shape>,
    /// What pods of ours were given, by gang and UID.
    given: BTreeMap<GangKey, BTreeMap<Arc<str>, Given>>,
    groups: Groups,
    given_on: BTreeMap<NodeName, BTreeSet<(GangKey, Arc<str>)>>,
    /// Claims of pods that are gone or have ended: Kubernetes takes their devices back.
    leaving: BTreeSet<Path>,
    /// Gangs that have their places and wait for claims that are made or go back.
    awaiting: BTreeSet<GangKey>,
    /// Gangs with pods that use a claim.
    users: BTreeMap<Path, BTreeSet<GangKey>>,
    /// Nodes of which devices, classes or taints changed.
    stale: BTreeSet<NodeName>,
    are_all_stale: bool,
    /// Nodes of which claims took or gave back devices.
    touched: BTreeSet<NodeName>,
    /// Asks that other nodes can serve than was told.
    reviewed: BTreeSet<Condition>,
    is_news: bool,
    /// When this process began, and how many claims they made for extended resources.
    begun: Option<Timestamp>,
    made: u64,
}

/// A claim that exists.
struct Claim {
    /// As the API server told it last.
    seen: Arc<ResourceClaim>,
    /// As it will be: a start of ours was given its devices, and the API server has not said so yet.
    decided: Option<Arc<ResourceClaim>>,
    /// For how many pods it is being given back.
    releasing: u32,
    /// The pod that it is to be allocated with, of several that share it.
    carrier: Option<(GangKey, Arc<str>)>,
}

impl Claim {
    const fn new(seen: Arc<ResourceClaim>) -> Self {
        Self { seen, decided: None, releasing: 0, carrier: None }
    }

    /// It is made with a binding, and the API server has not shown it yet.
    fn is_to_be_made(&self) -> bool {
        self.seen.metadata.uid.is_none()
    }

    /// Whether this is what the API server shows by its name now.
    fn is_seen_as(&self, seen: &ResourceClaim) -> bool {
        match self.is_to_be_made() {
            true => ask::made_for(&self.seen) == ask::made_for(seen),
            false => self.seen.metadata.uid == seen.metadata.uid,
        }
    }

    fn is_releasing(&self) -> bool {
        self.releasing > 0
    }

    fn now(&self) -> &Arc<ResourceClaim> {
        self.decided.as_ref().unwrap_or(&self.seen)
    }
}

/// What follows from changes: what nodes have now, and which meet the conditions of asks.
#[derive(Default)]
pub(crate) struct Refreshed {
    /// What no node could serve may be possible now.
    pub(crate) is_news: bool,
    pub(crate) nodes: Vec<(NodeName, Option<Published>)>,
    pub(crate) conditions: Vec<(Condition, BTreeSet<NodeName>)>,
}

/// What the engine has to count for an ask.
pub(crate) struct Counts {
    pub(crate) devices: u32,
    pub(crate) counted: Option<ResourceName>,
    pub(crate) nodes: BTreeSet<NodeName>,
}

impl ClaimState {
    /// Takes what a watch told; the claim that it is about, whose pods are to be looked at again.
    pub(crate) fn observe(&mut self, event: DeviceEvent) -> Option<Path> {
        match event {
            DeviceEvent::Slice(slice) => {
                let name = slice.metadata.name.clone().unwrap_or_default();
                self.mark_slice(&name);
                self.inventory.slice_applied(slice);
                self.mark_slice(&name);
            }
            DeviceEvent::SliceGone(name) => {
                self.mark_slice(&name);
                self.inventory.slice_deleted(&name);
            }
            DeviceEvent::Class(class) => {
                self.inventory.class_applied(class);
                self.are_all_stale = true;
            }
            DeviceEvent::ClassGone(name) => {
                self.inventory.class_deleted(&name);
                self.are_all_stale = true;
            }
            DeviceEvent::Rule(rule) => {
                self.inventory.rule_applied(*rule);
                self.are_all_stale = true;
            }
            DeviceEvent::RuleGone(name) => {
                self.inventory.rule_deleted(&name);
                self.are_all_stale = true;
            }
            DeviceEvent::Claim(claim) => return Some(self.see(*claim)),
            DeviceEvent::ClaimGone { namespace, name } => return Some(self.lose(&namespace, &name)),
            DeviceEvent::Template(template) => {
                let of = |text: Option<String>| -> Arc<str> { text.unwrap_or_default().into() };
                let path = (of(template.metadata.namespace), of(template.metadata.name));
                self.templates.insert(path, template.spec.spec);
                self.is_news = true;
            }
            DeviceEvent::TemplateGone { namespace, name } => {
                self.templates.remove(&(namespace.into(), name.into()));
            }
            DeviceEvent::Released { namespace, name, claim, is_gone } => {
                let path: Path = (namespace.into(), name.into());
                let known = self.claims.get_mut(&path);
                if is_gone && known.as_ref().is_some_and(|known| known.is_to_be_made()) {
                    return Some(self.lose(&path.0, &path.1));
                }
                // What is gone goes on being so until the watch says it.
                if let Some(known) = known.filter(|_| !is_gone) {
                    known.releasing = known.releasing.saturating_sub(1);
                }
                if let Some(claim) = claim {
                    self.see(*claim);
                }
                return Some(path);
            }
        }
        None
    }

    /// A namespace as it is now, for the right to look at devices of others.
    pub(crate) fn namespace(&mut self, name: &str, labels: Option<&BTreeMap<String, String>>) {
        let before = self.inventory.grants_admin(name);
        match labels {
            Some(labels) => self.inventory.namespace_applied(name, labels),
            None => self.inventory.namespace_deleted(name),
        }
        self.are_all_stale |= before != self.inventory.grants_admin(name);
    }

    /// A node came, went, or has other labels.
    pub(crate) fn node_moved(&mut self, name: &NodeName) {
        if !self.inventory.is_empty() || !self.shapes.is_empty() {
            self.stale.insert(name.clone());
        }
    }

    /// Devices are published in this cluster.
    pub(crate) fn has_devices(&self) -> bool {
        !self.inventory.is_empty()
    }

    /// A gang has a pod with these claims.
    pub(crate) fn uses(&mut self, key: &GangKey, claims: &[Used]) {
        for name in claims.iter().filter_map(Used::object) {
            let path = (Arc::clone(&key.namespace), Arc::clone(name));
            self.users.entry(path).or_default().insert(key.clone());
        }
    }

    /// The gangs that use a claim, of those that `are_there`.
    pub(crate) fn users(&mut self, path: &Path, are_there: impl Fn(&GangKey) -> bool) -> Vec<GangKey> {
        let Some(users) = self.users.get_mut(path) else { return Vec::new() };
        users.retain(are_there);
        let found = users.iter().cloned().collect();
        if users.is_empty() {
            self.users.remove(path);
        }
        found
    }

    /// What a pod of a gang asks for by its claims.
    ///
    /// # Errors
    /// What has to be there first, or what is wrong with the claims.
    pub(crate) fn asked(
        &mut self,
        key: &GangKey,
        pod: &Arc<str>,
        uid: &str,
        used: &[Used],
        waits: &Waits<'_>,
    ) -> Result<Asked, String> {
        let mut asks = Vec::new();
        let mut pins = Vec::new();
        let mut shared = Vec::new();
        let mut extended = None;
        for one in used {
            let Used { name, of, .. } = one;
            let group = self.group_of(&key.namespace, one);
            let object = match of {
                Source::Extended { ask, .. } => {
                    extended = Some(Arc::clone(ask));
                    continue;
                }
                Source::Named(object) | Source::Made { claim: Some(object), .. } => object,
                Source::Made { claim: None, template } => {
                    return Err(format!("claim {name}: it is not made from template {template} yet"));
                }
                Source::Unknown => {
                    return Err(format!(
                        "not supported: claim {name}: neither a claim nor a template is named"
                    ));
                }
            };
            let path = (Arc::clone(&key.namespace), Arc::clone(object));
            let is_unused = group.is_none() || !self.is_given(&path);
            let Some(claim) = self.claims.get_mut(&path) else {
                return Err(format!("claim {name}: ResourceClaim {object} is not there"));
            };
            if claim.seen.metadata.deletion_timestamp.is_some() {
                return Err(format!("claim {name}: ResourceClaim {object} is being deleted"));
            }
            let made_for = group.as_ref().map_or(uid, |group| &*group.uid);
            if matches!(of, Source::Made { .. }) && ask::made_for(&claim.seen) != Some(made_for) {
                return Err(format!("claim {name}: ResourceClaim {object} was not made for this pod"));
            }
            let is_open = match &group {
                Some(_) => !ask::is_allocated(claim.now()),
                None => is_ask(claim, uid),
            };
            if !(is_open || is_unused && is_idle(claim, group.as_ref(), waits)) {
                pins.push(Arc::clone(claim.now()));
                continue;
            }
            if matches!(of, Source::Named(_)) || group.is_some() {
                let own = (key.clone(), Arc::clone(pod));
                shared.push(Sharing {
                    name: name.clone(),
                    claim: Arc::clone(object),
                    is_for_group: group.is_some(),
                });
                match &claim.carrier {
                    // Its devices are counted once.
                    Some(carrier) if *carrier != own && carrier.0 == *key => continue,
                    Some((_, with)) if claim.carrier.as_ref() != Some(&own) => {
                        return Err(format!(
                            "claim {name}: ResourceClaim {object} is allocated with pod {with} first"
                        ));
                    }
                    _ => claim.carrier = Some(own),
                }
            }
            asks.push((&**name, Arc::clone(&claim.seen)));
        }
        let specs: Vec<(&str, &ResourceClaimSpec)> =
            asks.iter().map(|(name, claim)| (*name, &claim.spec)).collect();
        let mut asked = Asked::of(&key.namespace, &specs, pins, extended);
        asked.shared = shared;
        Ok(asked)
    }

    /// What a pod will ask for that is not there yet.
    ///
    /// # Errors
    /// What cannot be known before it is.
    pub(crate) fn asked_by_template(&self, namespace: &Arc<str>, used: &[Used]) -> Result<Asked, String> {
        let mut asks = Vec::new();
        let mut extended = None;
        for one in used {
            let Used { name, of, .. } = one;
            let template = match of {
                Source::Made { template, .. } if self.group_of(namespace, one).is_none() => template,
                Source::Extended { ask, .. } => {
                    extended = Some(Arc::clone(ask));
                    continue;
                }
                Source::Named(_) | Source::Made { .. } | Source::Unknown => {
                    return Err(format!(
                        "not supported: claim {name}: pods that are made later share a claim"
                    ));
                }
            };
            let path = (Arc::clone(namespace), Arc::clone(template));
            let spec = self.templates.get(&path);
            let spec =
                spec.ok_or_else(|| format!("claim {name}: ResourceClaimTemplate {template} is not there"))?;
            asks.push((&**name, spec));
        }
        Ok(Asked::of(namespace, &asks, Vec::new(), extended))
    }

    /// What the engine has to count for an ask, and which nodes can serve it.
    ///
    /// # Errors
    /// Why no node can.
    pub(crate) fn want(&mut self, asked: Asked, nodes: &NodeState) -> Result<Counts, String> {
        let condition = Arc::clone(&asked.condition);
        if !self.shapes.contains_key(&condition) {
            let shape = Shape::new(asked, &self.inventory, nodes.iter());
            if shape.counted.is_some() || shape.asked.is_tolerant() {
                self.touched.extend(nodes.iter().map(|(name, _)| name.clone()));
            }
            self.shapes.insert(Arc::clone(&condition), shape);
        }
        let Some(shape) = self.shapes.get(&condition) else {
            return Err("its claims are forgotten".to_owned());
        };
        match shape.refusal() {
            Some(why) => Err(why),
            None => {
                Ok(Counts { devices: shape.devices, counted: shape.counted.clone(), nodes: shape.nodes() })
            }
        }
    }

    /// What follows from all that was observed and decided since the last time.
    pub(crate) fn refresh(
        &mut self,
        now: Timestamp,
        nodes: &NodeState,
        is_wanted: impl Fn(&Condition) -> bool,
    ) -> Refreshed {
        self.begun.get_or_insert(now);
        let stale: BTreeSet<NodeName> = match std::mem::take(&mut self.are_all_stale) {
            true => nodes.iter().map(|(name, _)| name.clone()).collect(),
            false => std::mem::take(&mut self.stale),
        };
        self.stale.clear();
        let mut touched = std::mem::take(&mut self.touched);
        for (condition, shape) in &mut self.shapes {
            if shape.forgive(now) {
                self.reviewed.insert(Arc::clone(condition));
            }
        }
        let reviewed = std::mem::take(&mut self.reviewed);
        let mut refreshed = Refreshed { is_news: std::mem::take(&mut self.is_news), ..Refreshed::default() };
        if stale.is_empty() && touched.is_empty() && reviewed.is_empty() {
            return refreshed;
        }
        if self.shapes.len() > IDLE_SHAPES_MAX {
            self.shapes.retain(|condition, _| is_wanted(condition));
        }
        for (condition, shape) in &mut self.shapes {
            let mut is_news = reviewed.contains(condition);
            for name in &stale {
                is_news |= shape.look(&self.inventory, name, nodes.get(name));
            }
            if is_news && shape.counted.is_some() {
                touched.extend(stale.iter().cloned());
            }
            refreshed.is_news |= is_news;
            if is_news && is_wanted(condition) {
                refreshed.conditions.push((Arc::clone(condition), shape.nodes()));
            }
        }
        touched.extend(stale);
        for name in touched {
            let published = nodes.get(&name).and_then(|node| self.published(&name, node));
            refreshed.nodes.push((name, published));
        }
        refreshed
    }

    /// A gang has its places and waits for claims, or no longer.
    pub(crate) fn set_awaiting(&mut self, key: &GangKey, is: bool) {
        if is {
            self.awaiting.insert(key.clone());
        } else {
            self.awaiting.remove(key);
        }
    }

    pub(crate) fn is_awaiting(&self, key: &GangKey) -> bool {
        self.awaiting.contains(key)
    }

    pub(crate) fn awaiting(&self) -> Vec<GangKey> {
        self.awaiting.iter().cloned().collect()
    }

    /// When [`ClaimState::refresh`] is to be called at the latest.
    pub(crate) fn wake(&self) -> Option<Timestamp> {
        self.shapes.values().filter_map(Shape::forgives_at).min()
    }

    /// A claim as it is now.
    fn see(&mut self, claim: ResourceClaim) -> Path {
        let of = |text: &Option<String>| -> Arc<str> { text.as_deref().unwrap_or_default().into() };
        let path = (of(&claim.metadata.namespace), of(&claim.metadata.name));
        let seen = Arc::new(claim);
        let known = self.claims.remove(&path);
        let same = known.filter(|known| known.is_seen_as(&seen));
        let claim = match same {
            // What was decided is on its way until the API server shows it.
            Some(known) => {
                let decided = known.decided.filter(|_| !ask::is_allocated(&seen));
                Claim { seen, decided, ..known }
            }
            None => Claim::new(seen),
        };
        if !ask::is_allocated(claim.now()) {
            self.leaving.remove(&path);
        }
        self.hold_and_review(&path, Some(claim));
        path
    }

    fn lose(&mut self, namespace: &str, name: &str) -> Path {
        let path: Path = (namespace.into(), name.into());
        self.leaving.remove(&path);
        self.hold_and_review(&path, None);
        path
    }

    /// The same, where it may be what was missing when a node did not serve an ask.
    fn hold_and_review(&mut self, path: &Path, claim: Option<Claim>) {
        let before = std::mem::take(&mut self.touched);
        self.hold(path, claim);
        for (condition, shape) in &mut self.shapes {
            if self.touched.iter().any(|name| shape.unspoil(name)) {
                self.reviewed.insert(Arc::clone(condition));
            }
        }
        self.touched.extend(before);
    }

    /// What a claim holds from now on.
    fn hold(&mut self, path: &Path, claim: Option<Claim>) {
        self.mark_claim(path);
        match claim {
            Some(claim) => {
                self.inventory.claim_applied(claim.now());
                self.claims.insert(path.clone(), claim);
            }
            None => {
                self.inventory.claim_deleted(&path.0, &path.1);
                self.claims.remove(path);
            }
        }
        self.mark_claim(path);
    }

    fn mark_slice(&mut self, name: &str) {
        match self.inventory.nodes_of_slice(name) {
            Nodes::All => self.are_all_stale = true,
            Nodes::These(names) => {
                self.stale.extend(names.iter().filter_map(|name| NodeName::new(name.as_str()).ok()));
            }
        }
    }

    fn mark_claim(&mut self, path: &Path) {
        match self.inventory.nodes_of_claim(&path.0, &path.1) {
            Nodes::All => self.are_all_stale = true,
            Nodes::These(names) => {
                self.touched.extend(names.iter().filter_map(|name| NodeName::new(name.as_str()).ok()));
            }
        }
    }
}

/// Whether a claim is reserved for pods of one gang alone that wait, or for their group: it goes back before they start.
fn is_idle(claim: &Claim, group: Option<&PodRef>, waits: &Waits<'_>) -> bool {
    let users = ask::users(claim.now());
    let is_own = |user: &ResourceClaimConsumerReference| {
        !is_group(user) || group.is_some_and(|group| *group.uid == *user.uid)
    };
    let mut all = users.iter();
    claim.decided.is_none()
        && ask::is_allocated(&claim.seen)
        && !users.is_empty()
        && all.all(|user| is_own(user) && waits(user))
}

/// Whether a pod is the one that a claim is allocated for: nobody has it, or this pod first.
fn is_ask(claim: &Claim, uid: &str) -> bool {
    let now = claim.now();
    !ask::is_allocated(now) || ask::made_for(now) == Some(uid) || ask::reserved_for(now).next() == Some(uid)
}
