//! Budgets of queues: what their jobs cost in a period, by the account.
//!
//! Once a minute the spent amounts are read from the history. From the warning level on, and once more when the amount is
//! spent, owners of jobs are notified. A budget that holds puts a hold on pending jobs, as an operator would: the engine
//! starts none of their gangs, running gangs go on, and the next period releases the jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use phalanx_account::HOUR_MS;
use phalanx_model::{Budget, Input, Job, JobId, Phase, QueueName, Timestamp};
use phalanx_shell::Engine;
use phalanx_spec::quantity::format_micro;
use tracing::{info, warn};

use crate::daemon::Daemon;
use crate::history::HistoryError;
use crate::notify::Notice;
use crate::protocol::{BudgetView, EventView, QueueView};

/// A hold of a budget begins with this, and no name of an account does.
const HELD_BY: &str = "the budget of queue ";
/// The event of notices.
const EVENT: &str = "budget";

/// The budgets, as of the last look.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    state: Mutex<State>,
    /// One look at a time.
    looking: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    by_queue: BTreeMap<QueueName, Spent>,
    /// The queue in whose budget the jobs of a queue are held.
    holding: BTreeMap<QueueName, QueueName>,
    /// The notices of this and earlier periods; `None` until the history was read.
    told: Option<BTreeSet<(String, Timestamp, Level)>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Spent {
    budget: Budget,
    begins_at: Timestamp,
    renews_at: Timestamp,
    spent_micro: u64,
    /// The holder of a job, as the reason of the job names it. The text changes with each percent, not with each look.
    text: String,
}

/// How much of a budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Warned,
    Spent,
}

impl Level {
    pub(crate) const ALL: [Self; 2] = [Self::Warned, Self::Spent];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Warned => "warned",
            Self::Spent => "spent",
        }
    }

    fn of(budget: &Budget, spent_micro: u64) -> Option<Self> {
        if spent_micro >= budget.amount_micro {
            return Some(Self::Spent);
        }
        let is_warned = u128::from(spent_micro) * 1_000
            >= u128::from(budget.amount_micro) * u128::from(budget.warn_milli);
        is_warned.then_some(Self::Warned)
    }
}

/// A budget, and the queues whose costs count in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfQueue {
    pub(crate) queue: QueueName,
    pub(crate) budget: Budget,
    /// The queue itself, and those below it.
    pub(crate) queues: BTreeSet<QueueName>,
}

impl Spent {
    /// `before` is the state at the last look.
    fn new(of: &OfQueue, spent_micro: u64, now: Timestamp, before: Option<&Self>) -> Self {
        let budget = of.budget;
        let (begins_at, renews_at) = budget.per.around(now);
        let same = before.filter(|before| {
            (before.budget, before.begins_at) == (budget, begins_at)
                && before.percent() == percent(&budget, spent_micro)
        });
        let text = same.map_or_else(
            || {
                format!(
                    "{HELD_BY}{} ({} of {} spent this {}, {} %; renews {})",
                    of.queue,
                    money(spent_micro),
                    money(budget.amount_micro),
                    budget.per.word(),
                    percent(&budget, spent_micro),
                    date(renews_at)
                )
            },
            |same| same.text.clone(),
        );
        Self { budget, begins_at, renews_at, spent_micro, text }
    }

    fn percent(&self) -> u64 {
        percent(&self.budget, self.spent_micro)
    }

    fn holds(&self) -> bool {
        self.budget.holds && Level::of(&self.budget, self.spent_micro) == Some(Level::Spent)
    }
}

/// Rounded down, so that 100 % are all of it.
fn percent(budget: &Budget, spent_micro: u64) -> u64 {
    let percent = u128::from(spent_micro) * 100 / u128::from(budget.amount_micro.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

/// To a hundredth.
fn money(micro: u64) -> String {
    format_micro(micro / 10_000 * 10_000)
}

/// `2026-12-01T00:00Z`, where a period begins.
fn date(at: Timestamp) -> String {
    let (year, month, day) = phalanx_model::price::date(at);
    format!("{year}-{month:02}-{day:02}T00:00Z")
}

impl Budgets {
    fn state(&self) -> MutexGuard<'_, State> {
        // The state is replaced as a whole, so a panic leaves it valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The holder of further jobs of a queue, if its budget is spent.
    pub(crate) fn held_by(&self, queue: &QueueName) -> Option<String> {
        let state = self.state();
        let spent = state.by_queue.get(state.holding.get(queue)?)?;
        Some(spent.text.clone())
    }

    /// Adds budgets to views of queues.
    pub(crate) fn say(&self, queues: &mut [QueueView]) {
        let state = self.state();
        for queue in queues {
            let spent = state.by_queue.iter().find(|(name, _)| name.as_str() == queue.name);
            queue.budget = spent.map(|(_, spent)| BudgetView {
                budget: spent.budget,
                spent_micro: spent.spent_micro,
                begins_at: spent.begins_at,
                renews_at: spent.renews_at,
            });
        }
    }

    /// Budgets that are spent, for operators.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let state = self.state();
        let is_spent = |spent: &&Spent| Level::of(&spent.budget, spent.spent_micro) == Some(Level::Spent);
        let spent = state.by_queue.values().filter(is_spent);
        spent.map(|spent| spent.text.clone()).collect()
    }
}

/// Reads the costs of queues, warns, holds and releases. `false`: the engine has stopped.
pub(crate) fn look(daemon: &Daemon) -> bool {
    let _one = daemon.budgets.looking.lock().unwrap_or_else(PoisonError::into_inner);
    let budgets = daemon.access.budgets();
    let now = daemon.clock.now();
    if let Err(error) = refresh(daemon, &budgets, now) {
        warn!(%error, "budgets cannot be counted");
        return true;
    }
    warn_users(daemon, &budgets, now);
    let holding: BTreeMap<QueueName, String> = {
        let state = daemon.budgets.state();
        let text = |name: &QueueName| state.by_queue.get(name).map(|spent| spent.text.clone());
        state.holding.iter().filter_map(|(queue, by)| Some((queue.clone(), text(by)?))).collect()
    };
    let Ok(holds) = daemon.engine.look(move |engine| holds(engine, &holding)) else { return false };
    for (job, by) in &holds {
        let (what, detail) = match by {
            Some(by) => ("held", format!("by {by}")),
            None => ("released", "its budget is not spent any more".to_owned()),
        };
        info!(%job, detail, "a job is {what}");
        let view = EventView { at: now, what: what.to_owned(), detail, record: None };
        daemon.recorder.event(*job, view);
    }
    let fact = |(job, by): (JobId, Option<String>)| match by {
        Some(by) => Input::JobHeld { job, by },
        None => Input::JobReleased { job, by: EVENT.to_owned() },
    };
    holds.is_empty() || daemon.engine.report(holds.into_iter().map(fact).collect()).is_ok()
}

fn refresh(daemon: &Daemon, budgets: &[OfQueue], now: Timestamp) -> Result<(), HistoryError> {
    let mut by_queue = BTreeMap::new();
    let mut holding = BTreeMap::new();
    for of in budgets {
        let (begins_at, _) = of.budget.per.around(now);
        let spent_micro = daemon.recorder.spent(&of.queues, begins_at.0 / HOUR_MS)?;
        let before = daemon.budgets.state().by_queue.get(&of.queue).cloned();
        let spent = Spent::new(of, spent_micro, now, before.as_ref());
        if spent.holds() {
            // The innermost budget names itself: the queues above it come first.
            holding.extend(of.queues.iter().map(|queue| (queue.clone(), of.queue.clone())));
        }
        by_queue.insert(of.queue.clone(), spent);
    }
    let told = match daemon.budgets.state().told.take() {
        Some(told) => told,
        None => daemon.recorder.budgets_told()?,
    };
    *daemon.budgets.state() = State { by_queue, holding, told: Some(told) };
    Ok(())
}

/// Notifies owners of unfinished jobs, one job of each, once for each level and period.
fn warn_users(daemon: &Daemon, budgets: &[OfQueue], now: Timestamp) {
    for of in budgets {
        let Some((level, text)) = new_level(daemon, of) else { continue };
        warn!(queue = %of.queue, level = level.word(), "{text}");
        let (queues, detail) = (of.queues.clone(), text);
        let notices = daemon.engine.look(move |engine| notices(engine, &queues, &detail));
        for notice in notices.unwrap_or_default() {
            if !daemon.notifier.send(notice) {
                warn!(queue = %of.queue, "too many notices wait, one is dropped");
            }
        }
        let begins_at = of.budget.per.around(now).0;
        daemon.recorder.budget_told(&of.queue, begins_at, level);
    }
}

/// A level that was not said in this period, with its sentence.
fn new_level(daemon: &Daemon, of: &OfQueue) -> Option<(Level, String)> {
    let mut state = daemon.budgets.state();
    let spent = state.by_queue.get(&of.queue)?.clone();
    let level = Level::of(&spent.budget, spent.spent_micro)?;
    let told = state.told.as_mut()?;
    let key = |level| (of.queue.to_string(), spent.begins_at, level);
    // No warning follows the notice that all is spent.
    let is_told =
        Level::ALL.into_iter().filter(|other| *other >= level).any(|other| told.contains(&key(other)));
    told.insert(key(level));
    (!is_told).then_some((level, spent.text))
}

fn notices(engine: &Engine, queues: &BTreeSet<QueueName>, detail: &str) -> Vec<Notice> {
    let unfinished = engine.jobs().filter(|(job, records)| {
        queues.contains(&job.queue) && records.iter().any(|record| !record.is_finished())
    });
    let notice = |job: &Job| Some((job.owner.uid, Notice::of(job, EVENT, detail.to_owned())?));
    let by_owner: BTreeMap<u32, Notice> = unfinished.filter_map(|(job, _)| notice(job)).collect();
    by_owner.into_values().collect()
}

/// Jobs whose hold by a budget begins, has another text, or ends.
fn holds(engine: &Engine, holding: &BTreeMap<QueueName, String>) -> Vec<(JobId, Option<String>)> {
    let changed = |job: &Job, is_pending: bool| {
        let held_by = job.turn.held_by.as_deref();
        let is_ours = held_by.is_some_and(|by| by.starts_with(HELD_BY));
        match holding.get(&job.queue) {
            Some(text) if held_by == Some(text) => None,
            Some(text) if is_ours || held_by.is_none() && is_pending => Some(Some(text.clone())),
            None if is_ours => Some(None),
            _ => None,
        }
    };
    let of_job = |job: &Job, is_finished: bool, is_pending: bool| {
        if is_finished { None } else { Some((job.id, changed(job, is_pending)?)) }
    };
    engine
        .jobs()
        .filter_map(|(job, records)| {
            let is_pending = records.iter().any(|record| matches!(record.phase, Phase::Pending { .. }));
            of_job(job, records.iter().all(|record| record.is_finished()), is_pending)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use phalanx_model::Period;

    use super::*;

    /// 2026-11-30 12:00 UTC.
    const NOW: Timestamp = Timestamp(1_796_040_000_000);

    fn of(amount: u64, holds: bool) -> OfQueue {
        let queue = QueueName::new("vision").unwrap();
        let budget = Budget { amount_micro: amount * 1_000_000, per: Period::Month, warn_milli: 800, holds };
        OfQueue { queues: [queue.clone()].into(), queue, budget }
    }

    #[test]
    fn levels_are_reached_at_their_parts() {
        let budget = of(100, true).budget;
        let level = |spent| Level::of(&budget, spent);
        assert_eq!(
            [79_999_999, 80_000_000, 99_999_999].map(level),
            [None, Some(Level::Warned), Some(Level::Warned)]
        );
        assert_eq!(level(100_000_000), Some(Level::Spent));
        let nothing = of(0, true).budget;
        assert_eq!(Level::of(&nothing, 0), Some(Level::Spent), "no money at all");
        let most = Budget { amount_micro: u64::MAX, ..budget };
        assert_eq!(Level::of(&most, u64::MAX - 1), Some(Level::Warned));
    }

    #[test]
    fn the_reason_names_the_budget_what_is_spent_and_when_it_renews() {
        let of = of(5_000, true);
        let spent = Spent::new(&of, 5_012_345_678, NOW, None);
        let text =
            "the budget of queue vision (5012.34 of 5000 spent this month, 100 %; renews 2026-12-01T00:00Z)";
        assert_eq!((spent.text.as_str(), spent.holds()), (text, true));
        let more = Spent::new(&of, 5_049_000_000, NOW, Some(&spent));
        assert_eq!((more.text.as_str(), more.spent_micro), (text, 5_049_000_000), "less than a percent more");
        assert!(Spent::new(&of, 5_050_000_000, NOW, Some(&more)).text.contains(" 101 %;"));
        let next = Spent::new(&of, 0, NOW.plus(24 * HOUR_MS), Some(&more));
        assert!(!next.holds() && next.text.ends_with("2027-01-01T00:00Z)"), "{next:?}");
        assert!(!Spent::new(&self::of(5_000, false), 6_000_000_000, NOW, None).holds(), "it only warns");
    }
}
