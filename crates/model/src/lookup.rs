//! Read access to jobs and gangs by their ids.

use crate::{GangId, GangRecord, Job, JobId};

/// The jobs and gang records that another crate holds. Sentences for people take names and phases from here.
pub trait JobLookup {
    fn job(&self, id: JobId) -> Option<&Job>;
    fn gang(&self, id: GangId) -> Option<&GangRecord>;
}
