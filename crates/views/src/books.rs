//! Whose jobs a reader sees.

use std::collections::BTreeMap;
use std::ops::Deref;

use phalanx_model::{DeviceMask, GangId, GangRecord, Job, JobId, JobLookup, NodeName};
use phalanx_shell::Engine;

/// The state of an engine, as far as a reader may see the jobs in it.
///
/// [`Self::job`], [`Self::jobs`] and [`Self::gang`] stand before those of the engine and know the visible jobs only, so a
/// document that does not ask for [`Self::every_job`] by name shows no other.
#[derive(Clone, Copy)]
pub struct Books<'a> {
    engine: &'a Engine,
    sees: Option<&'a dyn Fn(&Job) -> bool>,
}

impl<'a> Books<'a> {
    /// For readers who see every job.
    #[must_use]
    pub const fn all(engine: &'a Engine) -> Self {
        Self { engine, sees: None }
    }

    /// For readers who see the jobs for which `sees` is true.
    #[must_use]
    pub const fn seen(engine: &'a Engine, sees: &'a dyn Fn(&Job) -> bool) -> Self {
        Self { engine, sees: Some(sees) }
    }

    #[must_use]
    pub fn sees(&self, job: &Job) -> bool {
        self.sees.is_none_or(|sees| sees(job))
    }

    #[must_use]
    pub fn job(&self, id: JobId) -> Option<&'a Job> {
        self.engine.job(id).filter(|job| self.sees(job))
    }

    #[must_use]
    pub fn gang(&self, id: GangId) -> Option<&'a GangRecord> {
        self.job(id.job)?;
        self.engine.gang(id)
    }

    pub fn jobs(&self) -> impl Iterator<Item = (&'a Job, &'a [GangRecord])> {
        self.every_job().filter(|(job, _)| self.sees(job))
    }

    /// Also the jobs that the reader does not see: for sums, and for what is held.
    pub fn every_job(&self) -> impl Iterator<Item = (&'a Job, &'a [GangRecord])> + use<'a> {
        self.engine.jobs()
    }

    /// The devices that jobs hold which the reader does not see.
    pub(crate) fn hidden(&self) -> BTreeMap<NodeName, DeviceMask> {
        let mut nodes = BTreeMap::new();
        if self.sees.is_none() {
            return nodes;
        }
        let hidden = self.every_job().filter(|(job, _)| !self.sees(job)).flat_map(|(_, gangs)| gangs);
        for held in hidden.filter_map(GangRecord::held) {
            for slot in &held.slots {
                let mask: &mut DeviceMask = nodes.entry(slot.node.clone()).or_insert(DeviceMask::EMPTY);
                *mask = mask.union(slot.devices);
            }
        }
        nodes
    }
}

impl Deref for Books<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.engine
    }
}

impl JobLookup for Books<'_> {
    fn job(&self, id: JobId) -> Option<&Job> {
        Books::job(self, id)
    }

    fn gang(&self, id: GangId) -> Option<&GangRecord> {
        Books::gang(self, id)
    }
}
