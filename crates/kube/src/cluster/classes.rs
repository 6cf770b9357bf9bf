//! Priorities of Kubernetes as classes of the engine: each value that some pod has is one.

use std::collections::BTreeSet;

use phalanx_model::{Access, Class, ClassName, Input, Settings};
use phalanx_spec::Preset;

use super::priorities::Priority;

/// Classes of one cluster. An operator who has more has priorities that nobody can tell apart.
const CLASSES_MAX: usize = 60;

/// The priorities that were seen.
#[derive(Default)]
pub(crate) struct Classes {
    seen: BTreeSet<Priority>,
    is_told: bool,
    /// The `minRun` of priorities that no class of the policy has as its rank.
    min_run_ms: u64,
}

impl Classes {
    pub(crate) fn new(min_run_ms: u64) -> Self {
        Self { min_run_ms, ..Self::default() }
    }

    /// The class of a priority. New ones are told before the jobs that have them.
    ///
    /// # Errors
    /// When there are too many.
    pub(crate) fn of(&mut self, priority: Priority) -> Result<ClassName, String> {
        if !self.seen.contains(&priority) {
            if self.seen.len() >= CLASSES_MAX {
                return Err(format!("there are more than {CLASSES_MAX} different priorities among the pods"));
            }
            self.seen.insert(priority);
            self.is_told = false;
        }
        name(priority).ok_or_else(|| format!("priority {} is not possible", priority.value))
    }

    /// Settings changed: they are told again.
    pub(crate) const fn forget_told(&mut self) {
        self.is_told = false;
    }

    /// All of them, beside what a policy says, if there is a new one.
    pub(crate) fn tell(&mut self, settings: Option<&Settings>, facts: &mut Vec<Input>) {
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        self.seen.insert(Priority::default());
        // Those that are built in are about other numbers than priorities of pods.
        let is_said = |settings: &&Settings| settings.classes != Settings::default().classes;
        let said = settings.filter(is_said).map(|settings| settings.classes.as_slice()).unwrap_or_default();
        let class = |priority: &Priority| {
            // A class of the policy is about the priority that is its rank.
            let of_policy = said.iter().find(|class| class.rank == priority.value);
            Some(Class {
                name: name(*priority)?,
                rank: priority.value,
                is_preemptible: of_policy.is_none_or(|class| class.is_preemptible),
                may_preempt: !priority.is_patient && of_policy.is_none_or(|class| class.may_preempt),
                min_run_ms: of_policy.map_or(self.min_run_ms, |class| class.min_run_ms),
                grace_max_ms: of_policy.and_then(|class| class.grace_max_ms),
                access: Access::default(),
            })
        };
        let of_pods = self.seen.iter().filter_map(class);
        let (base, own) = match settings {
            Some(settings) => (settings.clone(), settings.classes.clone()),
            None => (Preset::default().settings(), Vec::new()),
        };
        let classes: Vec<Class> = own.into_iter().chain(of_pods).collect();
        if let Some(default_class) = name(Priority::default()) {
            let settings = Settings { classes, default_class, ..base };
            facts.push(Input::SettingsConfigured { settings: Box::new(settings) });
        }
    }
}

fn name(priority: Priority) -> Option<ClassName> {
    let suffix = if priority.is_patient { "-never-preempts" } else { "" };
    ClassName::new(format!("priority-{}{suffix}", priority.value)).ok()
}
