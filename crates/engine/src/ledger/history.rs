//! How long past jobs of one user and name took. This improves the displayed estimate of when running gangs end, and says
//! what a far place costs (`cycle/far.rs`). Reservations and backfill depend on limits alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use phalanx_model::past::RUNS_MAX;
use phalanx_model::{Ending, GangId, GangRecord, Input, Job, Outcome, PastRuns, Phase, Timestamp};

use super::Ledger;
use super::apply::refuse;

/// Pairs of user and job name that are remembered; the pair that ended longest ago is forgotten first.
const KEYS_MAX: usize = 1_024;
/// The fewest runs that give an estimate.
const RUNS_MIN: usize = 3;

/// What a gang is expected to run if nothing is known of it. With one, two and four hours the mean completion of seven traces
/// at four parts of communication is at most 5.6, 2.2 and 6.9 % above the better of an endless wait and none (`sim overload`).
const UNKNOWN_RUN_MS: u64 = 7_200_000;

/// A user, and the name of jobs without its trailing digits.
type Key = (u32, String);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Runs {
    of_limit_milli: VecDeque<u32>,
    last_at: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    by_key: BTreeMap<Key, Runs>,
    /// The keys by the end of their last run.
    by_age: BTreeSet<(Timestamp, Key)>,
}

fn key(job: &Job) -> Key {
    let name = job.name.as_str().trim_end_matches(|c: char| c.is_ascii_digit());
    (job.owner.uid, name.to_owned())
}

impl History {
    fn add(&mut self, key: Key, of_limit_milli: u32, at: Timestamp) {
        let mut runs = self.take(&key).unwrap_or(Runs { of_limit_milli: VecDeque::new(), last_at: at });
        if runs.of_limit_milli.len() >= RUNS_MAX {
            runs.of_limit_milli.pop_front();
        }
        runs.of_limit_milli.push_back(of_limit_milli);
        runs.last_at = at;
        self.put(key, runs);
    }

    fn take(&mut self, key: &Key) -> Option<Runs> {
        let runs = self.by_key.remove(key)?;
        self.by_age.remove(&(runs.last_at, key.clone()));
        Some(runs)
    }

    fn put(&mut self, key: Key, runs: Runs) {
        self.by_age.insert((runs.last_at, key.clone()));
        self.by_key.insert(key, runs);
        if self.by_key.len() > KEYS_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_key.remove(&oldest);
        }
    }

    /// The part of its limit that a job is likely to take, in thousandths, and the number of runs behind it: the median
    /// of these runs, the longer of the two in the middle.
    fn likely(&self, job: &Job) -> Option<(u32, u32)> {
        let runs = self.by_key.get(&key(job)).filter(|runs| runs.of_limit_milli.len() >= RUNS_MIN)?;
        let mut sorted: Vec<u32> = runs.of_limit_milli.iter().copied().collect();
        sorted.sort_unstable();
        Some((*sorted.get(sorted.len() / 2)?, u32::try_from(sorted.len()).unwrap_or(u32::MAX)))
    }

    pub(super) fn facts(&self) -> impl Iterator<Item = Input> {
        self.by_key.iter().map(|((uid, name), runs)| Input::RunsObserved {
            runs: PastRuns {
                uid: *uid,
                name: name.clone(),
                of_limit_milli: runs.of_limit_milli.iter().copied().collect(),
                last_at: runs.last_at,
            },
        })
    }
}

impl Ledger {
    /// Records runs that were observed before a restart.
    pub(super) fn observe_runs(&mut self, runs: &PastRuns, out: &mut Outcome) {
        let PastRuns { uid, name, of_limit_milli, last_at } = runs;
        if of_limit_milli.is_empty() || of_limit_milli.len() > RUNS_MAX {
            let why = format!("expected 1 to {RUNS_MAX} past runs, and found {}", of_limit_milli.len());
            return refuse(out, format!("past runs of {name}"), &why);
        }
        let key = (*uid, name.clone());
        self.history.take(&key);
        self.history
            .put(key, Runs { of_limit_milli: of_limit_milli.iter().copied().collect(), last_at: *last_at });
    }

    /// Records the run of a gang that ends. A run that failed, was stopped or was restarted says nothing of how long
    /// such a job takes.
    pub(super) fn remember_run(&mut self, gang: GangId, ending: &Ending) {
        let known = self.job(gang.job).zip(self.record(gang));
        let Some((job, record)) = known.filter(|(_, record)| record.attempt == 1) else { return };
        let (Ending::Succeeded, Phase::Running { since }) = (ending, &record.phase) else { return };
        let Some(limit_ms) = job.policy.time_limit_ms.filter(|limit| *limit > 0) else { return };
        let milli = u128::from(self.now.since(*since)) * 1_000 / u128::from(limit_ms);
        let (key, milli) = (key(job), u32::try_from(milli).unwrap_or(u32::MAX));
        self.history.add(key, milli, self.now);
    }

    /// How long a gang is likely to run, and the number of runs behind it; `None` without a limit or enough past runs.
    pub(crate) fn likely_ms(&self, job: &Job) -> Option<(u64, u32)> {
        let (milli, runs) = self.history.likely(job)?;
        let ms = u128::from(job.policy.time_limit_ms?) * u128::from(milli) / 1_000;
        Some((u64::try_from(ms).unwrap_or(u64::MAX), runs))
    }

    /// How long a gang is expected to run from its next start on: as long as past runs of such jobs, or its limit.
    /// Without a limit, as long again as it has run, for of jobs that have run for long most run for longer still; at
    /// least [`UNKNOWN_RUN_MS`].
    pub(crate) fn expected_ms(&self, id: GangId) -> u64 {
        let Some((job, gang)) = self.job(id.job).zip(self.gang(id)) else { return 0 };
        let likely_ms = self.likely_ms(job).map(|(ms, _)| ms).or(job.policy.time_limit_ms);
        likely_ms.unwrap_or_else(|| {
            let devices = u64::from(gang.device_count()).max(1);
            (self.served(id).device_us / 1_000 / devices).max(UNKNOWN_RUN_MS)
        })
    }

    /// When a running gang is likely to end: never before now, and never after its latest end.
    pub(crate) fn likely_end(&self, job: &Job, record: &GangRecord) -> Option<(Timestamp, u32)> {
        let Phase::Running { since } = record.phase else { return None };
        let (ms, runs) = self.likely_ms(job)?;
        let latest = super::known_end(job, record)?;
        Some((since.plus(ms).max(self.now).min(latest.max(self.now)), runs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first_and_the_last_eight_runs_count() {
        let mut history = History::default();
        for at in 0..2_000_u32 {
            history.add((at % 1_100, "a".to_owned()), at, Timestamp(u64::from(at)));
        }
        assert_eq!((history.by_key.len(), history.by_age.len()), (KEYS_MAX, KEYS_MAX));
        assert!(history.by_key.contains_key(&(899, "a".to_owned())), "the last one");
        assert!(!history.by_key.contains_key(&(900, "a".to_owned())), "the oldest");
        for milli in 0..20 {
            history.add((0, "b".to_owned()), milli, Timestamp(3_000));
        }
        assert_eq!(history.by_key[&(0, "b".to_owned())].of_limit_milli, [12, 13, 14, 15, 16, 17, 18, 19]);
        assert_eq!(history.facts().count(), KEYS_MAX);
    }
}
