//! Budgets of queues: what their jobs cost in a period, by the account.
//!
//! Once a minute the spent amounts are read from the history. From the warning level on, and once more when the amount is
//! spent, owners of jobs are notified. A budget that holds puts a hold on every unfinished job of its queues, as an
//! operator would: running gangs go on, the engine starts none again, and the next period releases the jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use phalanx_model::{Budget, Input, Job, JobId, QueueName, Timestamp};
use phalanx_shell::{Engine, PumpError};
use phalanx_spec::quantity::format_micro;
use tracing::{info, warn};

use crate::daemon::Daemon;
use crate::history::HistoryError;
use crate::notify::Notice;
use phalanx_api::protocol::{BudgetView, EventView, QueueView};

/// A hold of a budget begins with this, and no name of an account does.
const HELD_BY: &str = "the budget of queue ";
/// The event of notices.
const EVENT: &str = "budget";
/// Jobs that are held or released in one step of the engine.
const CHUNK: usize = 1_000;

/// The budgets, as of the last look.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    state: Mutex<State>,
    /// One look at a time.
    looking: Mutex<()>,
    /// Whoever changes holds of jobs keeps this from the look at the job until the engine has the change.
    holds: Mutex<()>,
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
    /// The holder of a job, as the reason of the job names it. It is the same throughout a period.
    text: String,
}

/// A change of the hold of a job by a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Turn {
    Hold {
        by: String,
    },
    /// The budget of another period or queue holds the job from now on.
    HoldOn {
        by: String,
    },
    Release,
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
    fn new(of: &OfQueue, spent_micro: u64, now: Timestamp) -> Self {
        let budget = of.budget;
        let (begins_at, renews_at) = budget.per.around(now);
        let text = format!("{HELD_BY}{}; it renews {}", of.queue, date(renews_at));
        Self { budget, begins_at, renews_at, spent_micro, text }
    }

    /// `100 % of the budget of queue vision; it renews 2026-12-01T00:00Z`: all users may read it.
    fn share(&self) -> String {
        format!("{} % of {}", self.percent(), self.text)
    }

    /// The notice to the owners of its jobs.
    fn notice(&self) -> String {
        let (spent, amount) = (money(self.spent_micro), money(self.budget.amount_micro));
        format!("{} ({spent} of {amount} spent this {})", self.share(), self.budget.per.word())
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
        spent.map(|spent| format!("jobs have spent {}", spent.share())).collect()
    }

    /// Keeps the holds of jobs as they are, for one who looks at them and then changes them.
    pub(crate) fn keep_holds(&self) -> MutexGuard<'_, ()> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The text of the budget that holds the jobs of each queue.
    fn holding(&self) -> BTreeMap<QueueName, String> {
        let state = self.state();
        let text = |name: &QueueName| state.by_queue.get(name).map(|spent| spent.text.clone());
        state.holding.iter().filter_map(|(queue, by)| Some((queue.clone(), text(by)?))).collect()
    }
}

/// Whether a budget holds the job, and not a user.
pub(crate) fn is_holder(held_by: Option<&str>) -> bool {
    held_by.is_some_and(|by| by.starts_with(HELD_BY))
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
    settle(daemon)
}

/// Holds and releases jobs by what was spent at the last look. `false`: the engine has stopped.
pub(crate) fn settle(daemon: &Daemon) -> bool {
    let mut after = None;
    loop {
        // No user changes a hold between the look at the jobs and the step of the engine.
        let _holds = daemon.budgets.keep_holds();
        let holding = daemon.budgets.holding();
        let Ok(turns) = daemon.engine.look(move |engine| turns(engine, &holding, after)) else {
            return false;
        };
        let Some((last, _)) = turns.last() else { return true };
        after = Some(*last);
        match daemon.engine.request(turns.iter().map(fact).collect(), |_, _| ()) {
            Ok(()) => turns.iter().for_each(|(job, turn)| said(daemon, *job, turn)),
            Err(PumpError::Stopped) => return false,
            Err(error) => {
                warn!(%error, "budgets cannot hold or release jobs");
                return true;
            }
        }
    }
}

fn fact((job, turn): &(JobId, Turn)) -> Input {
    match turn {
        Turn::Hold { by } | Turn::HoldOn { by } => Input::JobHeld { job: *job, by: by.clone() },
        Turn::Release => Input::JobReleased { job: *job, by: EVENT.to_owned() },
    }
}

/// Logs that a hold begins or ends, and records it in the history of the job.
fn said(daemon: &Daemon, job: JobId, turn: &Turn) {
    let (what, detail) = match turn {
        Turn::Hold { by } => ("held", format!("by {by}")),
        Turn::HoldOn { .. } => return,
        Turn::Release => ("released", "its budget is not spent any more".to_owned()),
    };
    info!(%job, detail, "a job is {what}");
    let view = EventView { at: daemon.clock.now(), what: what.to_owned(), detail, record: None };
    daemon.recorder.event(job, view);
}

fn refresh(daemon: &Daemon, budgets: &[OfQueue], now: Timestamp) -> Result<(), HistoryError> {
    let mut by_queue = BTreeMap::new();
    let mut holding = BTreeMap::new();
    let spent_micro = daemon.recorder.spent(budgets, now)?;
    for (of, spent_micro) in budgets.iter().zip(spent_micro) {
        let spent = Spent::new(of, spent_micro, now);
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
    (!is_told).then(|| (level, spent.notice()))
}

fn notices(engine: &Engine, queues: &BTreeSet<QueueName>, detail: &str) -> Vec<Notice> {
    let unfinished = engine.jobs().filter(|(job, records)| {
        queues.contains(&job.queue) && records.iter().any(|record| !record.is_finished())
    });
    let notice = |job: &Job| Some((job.owner.uid, Notice::of(job, EVENT, detail.to_owned())?));
    let by_owner: BTreeMap<u32, Notice> = unfinished.filter_map(|(job, _)| notice(job)).collect();
    by_owner.into_values().collect()
}

/// Unfinished jobs after a job whose hold by a budget begins, has another text, or ends: the next [`CHUNK`] of them.
fn turns(engine: &Engine, holding: &BTreeMap<QueueName, String>, after: Option<JobId>) -> Vec<(JobId, Turn)> {
    let unfinished = engine
        .jobs()
        .filter(|(job, records)| Some(job.id) > after && records.iter().any(|record| !record.is_finished()));
    let turn = |job: &Job| turn(job.turn.held_by.as_deref(), holding.get(&job.queue));
    let mut turns: Vec<(JobId, Turn)> =
        unfinished.filter_map(|(job, _)| Some((job.id, turn(job)?))).collect();
    turns.sort_by_key(|(job, _)| *job);
    turns.truncate(CHUNK);
    turns
}

/// A hold of a user stays.
fn turn(held_by: Option<&str>, budget: Option<&String>) -> Option<Turn> {
    match (held_by, budget) {
        (None, Some(by)) => Some(Turn::Hold { by: by.clone() }),
        (Some(held), Some(by)) if held != by && is_holder(held_by) => Some(Turn::HoldOn { by: by.clone() }),
        (Some(_), None) if is_holder(held_by) => Some(Turn::Release),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use phalanx_account::HOUR_MS;
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
    fn the_reason_is_the_same_throughout_a_period_and_notices_have_the_amounts() {
        let of = of(5_000, true);
        let spent = Spent::new(&of, 5_012_345_678, NOW);
        let text = "the budget of queue vision; it renews 2026-12-01T00:00Z";
        assert_eq!((spent.text.as_str(), spent.holds()), (text, true));
        assert_eq!(spent.notice(), format!("100 % of {text} (5012.34 of 5000 spent this month)"));
        assert_eq!(Spent::new(&of, 9_000_000_000, NOW).text, text);
        let next = Spent::new(&of, 0, NOW.plus(24 * HOUR_MS));
        assert!(!next.holds() && next.text.ends_with("2027-01-01T00:00Z"), "{next:?}");
        assert!(!Spent::new(&self::of(5_000, false), 6_000_000_000, NOW).holds(), "it only warns");
    }

    #[test]
    fn budgets_leave_holds_of_users_alone() {
        let (now, next) = (format!("{HELD_BY}vision; now"), format!("{HELD_BY}vision; next"));
        let hold = Turn::Hold { by: now.clone() };
        assert_eq!(turn(None, Some(&now)), Some(hold));
        assert_eq!(turn(Some(&now), Some(&now)), None);
        assert_eq!(turn(Some(&now), Some(&next)), Some(Turn::HoldOn { by: next.clone() }));
        assert_eq!(turn(Some(&now), None), Some(Turn::Release));
        assert_eq!(
            [turn(Some("ada"), Some(&now)), turn(Some("ada"), None), turn(None, None)],
            [None, None, None]
        );
    }
}
