//! Who may use which queue, class and priority, where one daemon serves several users.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use phalanx_model::{Access, Class, Input, Job, Queue, QueueName, Settings};

use crate::budgets::OfQueue;
use crate::reclaim::Rule;
use crate::user::Names;
use phalanx_api::protocol::ErrorCode;

/// The queue of jobs that name none; it need not be configured.
const DEFAULT_QUEUE: &str = "default";
/// The highest priority where neither the queue nor the class says one.
const PRIORITY_MAX: i32 = 0;

/// The queues and classes that are in force.
#[derive(Debug, Default)]
pub(crate) struct Policy(Mutex<Shares>);

#[derive(Debug, Default)]
struct Shares {
    settings: Settings,
    queues: BTreeMap<QueueName, Queue>,
}

/// Why a job is not admitted, and who may submit it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
    pub(crate) hint: String,
}

fn refusal<T>(message: String, hint: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { code: ErrorCode::Forbidden, message, hint: hint.into() })
}

impl Policy {
    /// What these facts say of queues and settings.
    pub(crate) fn of(facts: &[Input]) -> Self {
        let policy = Self::default();
        policy.replace(facts);
        policy
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        // Replaced whole: what a panicking thread left is a policy.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn replace(&self, facts: &[Input]) {
        let mut shares = Shares::default();
        for fact in facts {
            match fact {
                Input::SettingsConfigured { settings } => shares.settings = (**settings).clone(),
                Input::QueueObserved { queue } => {
                    shares.queues.insert(queue.name.clone(), (**queue).clone());
                }
                _ => {}
            }
        }
        *self.shares() = shares;
    }

    /// The budgets of queues, those of outer queues first.
    pub(crate) fn budgets(&self) -> Vec<OfQueue> {
        let shares = self.shares();
        let mut below: BTreeMap<&QueueName, BTreeSet<QueueName>> = BTreeMap::new();
        for name in shares.queues.keys() {
            for above in shares.path(name).filter(|above| above.budget.is_some()) {
                below.entry(&above.name).or_default().insert(name.clone());
            }
        }
        let of = |(name, queues): (&QueueName, BTreeSet<QueueName>)| {
            Some(OfQueue { queue: name.clone(), budget: shares.queues.get(name)?.budget?, queues })
        };
        let mut budgets: Vec<OfQueue> = below.into_iter().filter_map(of).collect();
        budgets.sort_by_cached_key(|of| shares.path(&of.queue).count());
        budgets
    }

    /// The rule for idle jobs of each queue that has one: its own, or that of the nearest queue above it.
    pub(crate) fn idle_rules(&self) -> BTreeMap<QueueName, Rule> {
        let shares = self.shares();
        let nearest = |name: &QueueName| {
            shares.path(name).find_map(|queue| Some((queue.name.clone(), queue.idle.clone()?)))
        };
        shares.queues.keys().filter_map(|name| Some((name.clone(), nearest(name)?))).collect()
    }

    /// The class of jobs that name none.
    pub(crate) fn default_class(&self) -> String {
        self.shares().settings.default_class.to_string()
    }

    /// Whether the owner of a job may use its queue, class and priority. A job that names no class gets the highest
    /// class that its owner may use, up to the default class.
    pub(crate) fn check(&self, job: &mut Job) -> Result<(), Refusal> {
        let names_groups = self.shares().name_groups();
        let owner = job.owner.clone();
        // Not with the lock: the name service may take its time, and others submit meanwhile.
        let names = Names::of(&owner, names_groups).map_err(|e| Refusal {
            code: ErrorCode::Unavailable,
            message: format!("the groups of user {} are not known: {e}", owner.name),
            hint: "try again later; `id` shows whether the name service answers".to_owned(),
        })?;
        let shares = self.shares();
        shares.check_queue(job, &names)?;
        let class = shares.class_for(job, &names)?;
        shares.check_priority(job, class)?;
        if job.turn.class.is_none() && class.name != shares.settings.default_class {
            job.turn.class = Some(class.name.clone());
        }
        Ok(())
    }
}

impl Shares {
    /// A queue and those above it.
    fn path<'a>(&'a self, name: &'a QueueName) -> impl Iterator<Item = &'a Queue> {
        let parent = |queue: &&'a Queue| self.queues.get(queue.parent.as_ref()?);
        // No longer than there are queues, whatever the tree says.
        std::iter::successors(self.queues.get(name), parent).take(self.queues.len())
    }

    fn name_groups(&self) -> bool {
        let queues = self.queues.values().map(|queue| &queue.access);
        let mut all = queues.chain(self.settings.classes.iter().map(|class| &class.access));
        all.any(|access| !access.groups.is_empty())
    }

    fn check_queue(&self, job: &Job, names: &Names<'_>) -> Result<(), Refusal> {
        let (owner, name) = (&job.owner, &job.queue);
        if !self.queues.contains_key(name) && name.as_str() != DEFAULT_QUEUE {
            let mut open: Vec<&str> = self.queues.keys().map(QueueName::as_str).collect();
            if !open.contains(&DEFAULT_QUEUE) {
                open.push(DEFAULT_QUEUE);
            }
            let message =
                format!("queue {name} is not in the queue file, and user {} may not add one", owner.name);
            return refusal(
                message,
                format!("queues are {}; an operator adds one with `phalanx queues apply`", open.join(", ")),
            );
        }
        match self.path(name).find(|queue| queue.access.names_accounts()) {
            Some(queue) if !names.are_in(&queue.access) => {
                let message = format!("user {} may not submit to queue {name}", owner.name);
                refusal(message, format!("{} may, and operators", accounts(&queue.access)))
            }
            _ => Ok(()),
        }
    }

    fn class_for(&self, job: &Job, user: &Names<'_>) -> Result<&Class, Refusal> {
        let (owner, settings) = (&job.owner, &self.settings);
        let wanted = settings.class(job.turn.class.as_ref());
        let mut open: Vec<&Class> = settings.classes.iter().filter(|class| may_use(user, class)).collect();
        open.sort_by_key(|class| std::cmp::Reverse(class.rank));
        let names = || open.iter().map(|class| class.name.as_str()).collect::<Vec<_>>().join(", ");
        let list = || if open.is_empty() { "no class".to_owned() } else { names() };
        match (wanted, &job.turn.class) {
            (Some(class), _) if may_use(user, class) => Ok(class),
            (Some(class), Some(_)) => {
                let message = format!("user {} may not use class {}", owner.name, class.name);
                let who = if class.access.names_accounts() {
                    format!("{} may, and operators", accounts(&class.access))
                } else {
                    format!(
                        "it preempts others, so only operators may, until `users` or `groups` of class {} in the \
                         queue file name accounts",
                        class.name
                    )
                };
                refusal(message, format!("{who}; {} may use {}", owner.name, list()))
            }
            (Some(default), None) => {
                let below = open.iter().find(|class| class.rank <= default.rank);
                below.copied().map_or_else(
                    || {
                        let message = format!("user {} may use no class of priority", owner.name);
                        let hint = "an operator names accounts with `users` or `groups` of a class in the queue file";
                        refusal(message, hint)
                    },
                    Ok,
                )
            }
            (None, said) => {
                let said = said.as_ref().map(ToString::to_string).unwrap_or_default();
                refusal(format!("no class is named {said:?}"), format!("{} may use {}", owner.name, list()))
            }
        }
    }

    fn check_priority(&self, job: &Job, class: &Class) -> Result<(), Refusal> {
        let of_queue =
            self.path(&job.queue).find_map(|queue| Some((queue.access.priority_max?, &queue.name)));
        let of_queue = of_queue.map(|(max, name)| (max, format!("queue {name}")));
        let of_class = class.access.priority_max.map(|max| (max, format!("class {}", class.name)));
        let least = of_queue.into_iter().chain(of_class).min_by_key(|(max, _)| *max);
        let (max, place) = least.unwrap_or_else(|| (PRIORITY_MAX, format!("queue {}", job.queue)));
        if job.priority <= max {
            return Ok(());
        }
        let message = format!(
            "priority {} is above {max}, the highest that user {} may use in {place}",
            job.priority, job.owner.name
        );
        refusal(
            message,
            "operators may use any; `max_priority` of a queue or class in the queue file sets the highest",
        )
    }
}

/// Whether an account may use a class.
fn may_use(user: &Names<'_>, class: &Class) -> bool {
    if class.access.names_accounts() { user.are_in(&class.access) } else { !class.may_preempt }
}

/// `users ada, bob and groups vision`.
fn accounts(access: &Access) -> String {
    let list =
        |word: &str, names: &[String]| (!names.is_empty()).then(|| format!("{word} {}", names.join(", ")));
    [list("users", &access.users), list("groups", &access.groups)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" and ")
}

#[cfg(test)]
mod tests {
    use phalanx_model::{ClassName, JobId, Owner, Policy as JobPolicy, Timestamp, Turn};

    use super::*;

    fn job(queue: &str, class: Option<&str>, priority: i32) -> Job {
        Job {
            id: JobId(1),
            name: phalanx_model::JobName::new("job").unwrap(),
            key: None,
            // No account of a host has this number.
            owner: Owner { uid: 4_000_000_001, gid: 4_000_000_002, name: "ada".to_owned() },
            queue: QueueName::new(queue).unwrap(),
            priority,
            submitted_at: Timestamp(0),
            gangs: Vec::new(),
            policy: JobPolicy::default(),
            turn: Turn { class: class.map(|class| ClassName::new(class).unwrap()), ..Turn::default() },
        }
    }

    fn policy(text: &str) -> Policy {
        let policy = crate::queues::parse(text, "queues.yaml").unwrap();
        Policy::of(&crate::queues::facts(policy.settings, policy.queues))
    }

    /// The class that the job gets, or why it is refused.
    fn check(policy: &Policy, mut job: Job) -> Result<String, (String, String)> {
        policy.check(&mut job).map_err(|refusal| (refusal.message, refusal.hint))?;
        Ok(job.turn.class.map(|class| class.to_string()).unwrap_or_default())
    }

    #[test]
    fn without_a_queue_file_users_have_the_class_that_preempts_nobody() {
        let policy = Policy::of(&[]);
        assert_eq!(check(&policy, job("default", None, 0)).unwrap(), "opportunistic");
        assert_eq!(check(&policy, job("default", Some("opportunistic"), -5)).unwrap(), "opportunistic");
        let (message, hint) = check(&policy, job("default", Some("serving"), 0)).unwrap_err();
        assert_eq!(message, "user ada may not use class serving");
        assert!(hint.contains("only operators may") && hint.ends_with("ada may use opportunistic"), "{hint}");
        let (message, hint) = check(&policy, job("default", None, i32::MAX)).unwrap_err();
        assert_eq!(
            message,
            "priority 2147483647 is above 0, the highest that user ada may use in queue default"
        );
        assert!(hint.contains("max_priority"), "{hint}");
        let (message, hint) = check(&policy, job("mine", None, 0)).unwrap_err();
        assert_eq!(message, "queue mine is not in the queue file, and user ada may not add one");
        assert!(hint.starts_with("queues are default;"), "{hint}");
    }

    const FILE: &str = "
queues:
  - name: vision
    users: [bob]
    groups: [4000000002]
    max_priority: 10
    queues: [{name: vision-train}, {name: vision-eval, users: [bob]}]
  - {name: speech, users: [eve, '17'], groups: [speech]}
  - {name: open, users: ['*']}
classes:
  - {name: serving, rank: 300, users: [bob], groups: [ops]}
  - {name: training, rank: 200, users: ['*'], max_priority: 5}
  - {name: spare, rank: 0, preempts: false}
";

    #[test]
    fn a_queue_file_names_users_groups_and_priorities() {
        let policy = policy(FILE);
        let ok = |queue, class, priority| check(&policy, job(queue, class, priority));
        assert_eq!(ok("vision-train", None, 0).unwrap(), "", "the default class is open to all");
        assert_eq!(ok("open", Some("spare"), 0).unwrap(), "spare");
        let (message, hint) = ok("speech", None, 0).unwrap_err();
        assert_eq!(message, "user ada may not submit to queue speech");
        assert_eq!(hint, "users eve, 17 and groups speech may, and operators");
        assert_eq!(ok("vision-eval", None, 0).unwrap_err().1, "users bob may, and operators");
        let (message, hint) = ok("open", Some("serving"), 0).unwrap_err();
        assert_eq!(message, "user ada may not use class serving");
        assert_eq!(hint, "users bob and groups ops may, and operators; ada may use training, spare");
        // The least of what queue and class say.
        assert_eq!(ok("vision-train", Some("spare"), 10).unwrap(), "spare");
        assert!(ok("vision-train", Some("spare"), 11).unwrap_err().0.contains("above 10"));
        assert!(
            ok("vision-train", Some("training"), 6).unwrap_err().0.ends_with("may use in class training")
        );
        assert!(ok("open", Some("spare"), 1).unwrap_err().0.contains("above 0"));
    }
}
