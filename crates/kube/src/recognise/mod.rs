//! Which pods start together, as upstream, their owners or other schedulers' annotations say. Objects in, gangs out:
//! there is no I/O and no clock here.
//!
//! [`membership`] says where a pod belongs; [`owners_wanted`] which objects complete that; [`spec_of`] reads these objects,
//! and [`spec_of_pods`] the gangs that have none; [`settle`] puts a pod in its place among what an object says.
//!
//! Where several signs are on one pod, the first of these counts, and they may not contradict each other in size:
//!
//! 1. upstream: `spec.schedulingGroup` (1.36 and later), `spec.workloadRef` (1.35)
//! 2. Volcano's group annotation, KAI's `pod-group-name`, the coscheduling plugin's label
//! 3. Koordinator's gang, YuniKorn's application with a task group, Kueue's pod group
//! 4. the owner: `LeaderWorkerSet`, `JobSet`, Kubeflow's jobs, `RayCluster`, Job
//!
//! A pod without any of them is a gang of one, and so are those of a Job that does not run all of its completions at once, or
//! that is neither indexed nor requires a topology.

mod asks;
mod group;
mod key;
mod members;
pub mod names;
mod node_health;
mod opt_in;
mod owner;
mod pod;
mod spec;
pub mod topology;
mod topology_wait;

use kube::api::DynamicObject;

pub use group::volcano_job;
pub(crate) use key::group_of;
pub use key::{GangKey, KINDS, Kind, Membership, ObjectRef, Refused, Source};
pub use members::{owner_in_one_domain, says_alone, settle, spec_of_pods};
pub use node_health::{BrokenSign, BrokenSigns};
pub use opt_in::{NodesUsed, is_ours};
pub(crate) use owner::{Completed, ray_job_has_ended};
pub use owner::{add_owner, is_owner_of_owners, owner_wanted, suspend_of, suspendable};
pub use pod::{membership, membership_by_owner, owners_wanted};
pub use spec::{
    Coming, GANGS_MAX, GangSpec, LevelRef, MEMBERS_MAX, PodTemplate, QueueRef, RoleSpec, SegmentRule,
    Suspend, TemplateMeta, TopologyRule,
};
pub use topology_wait::TopologyWait;

/// The gangs that an owner or a group object says; none for kinds whose gangs other objects tell of, such as a
/// `TrainJob`, which makes a `JobSet`.
///
/// # Errors
/// When the object says something that cannot be understood, or that cannot be kept.
pub fn spec_of(object: &DynamicObject) -> Result<Vec<GangSpec>, Refused> {
    if let Some(specs) = owner::spec_of(object)? {
        return Ok(specs);
    }
    Ok(group::spec_of(object)?.unwrap_or_default())
}
