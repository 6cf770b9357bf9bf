//! The basis of advice: runs of jobs, their charges, and prices.

use std::collections::BTreeMap;

use phalanx_account::HOUR_MS;
use phalanx_account::advice::{Charged, Interval, Run, Used};
use phalanx_model::{DeviceMask, JobId, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, Row as Found, named_params};

use super::bill::micro;
use super::query::{narrowed, optional, time, unsigned};
use super::rows::integer;
use super::{History, HistoryError};
use phalanx_api::protocol::AdviseAsk;

/// Runs that one question looks at, the newest.
pub(crate) const RUNS_MAX: u32 = 50_000;

/// What an attempt used since its last row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedRow {
    pub job: JobId,
    pub gang: u32,
    pub attempt: u32,
    pub had: Had,
    pub amounts: Amounts,
}

/// What an attempt has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Had {
    pub ranks: u32,
    pub nodes: u32,
    /// A part of a device counts as one.
    pub devices: u32,
    pub is_whole: bool,
    /// Of one of the devices. Empty if unknown.
    pub model: String,
    /// Memory of one device. 0 if unknown.
    pub device_bytes: u64,
}

/// Times and steps are added to those of the rows before; of maxima the largest counts, and of all else the newest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    pub samples: u64,
    pub sampled_ms: u64,
    /// The mean of its devices.
    pub busy_ms: u64,
    /// Of the busiest device.
    pub busiest_ms: u64,
    /// Those of all rows.
    pub used: DeviceMask,
    /// The most.
    pub peak_bytes: Option<u64>,
    pub steps: u64,
    pub steps_ms: u64,
    pub steps_of: Option<u64>,
    pub takes_ms: Option<u64>,
    pub saves_every_ms: Option<u64>,
}

/// Jobs of one user whose names differ in the digits at their end alone: `sweep-*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    pub(crate) uid: u32,
    pub(crate) user: String,
    pub(crate) name: String,
}

/// The basis of advice.
pub(crate) struct Basis {
    pub(crate) runs: Vec<(Group, Run)>,
    pub(crate) charged: BTreeMap<Group, Charged>,
    pub(crate) prices: BTreeMap<String, u64>,
}

/// The name of a group, of a name of a job.
const GROUP: &str = "CASE WHEN rtrim(name, '0123456789') IN ('', name) THEN name
    ELSE rtrim(name, '0123456789') || '*' END";

/// A gang that ended at once was never seen to run: it started with its job, if the job has no other tasks.
const RUNS: &str = "SELECT owner_uid, owner, {group},
        coalesce(a.started_at, iif(a.attempt = 1 AND terms ->> '$.job.turn.array' IS NULL, j.started_at, NULL))
            AS began,
        coalesce(a.ended_at, finished_at), a.attempt,
        state, terms ->> '$.job.policy.time_limit_ms',
        coalesce(terms ->> '$.job.turn.service', terms ->> '$.job.policy.idle_limit_ms') IS NOT NULL,
        u.ranks, u.devices, u.is_whole, u.model, u.device_bytes, u.sampled_ms, u.busy_ms, u.used_mask,
        u.peak_bytes, u.steps, u.steps_ms, u.steps_of, u.saves_every_ms, u.takes_ms, u.nodes, u.samples, u.busiest_ms,
        j.id
    FROM (SELECT *, CASE WHEN json_valid(spec_json) THEN spec_json ELSE '{}' END AS terms
        FROM (SELECT * FROM jobs WHERE finished_at >= ?1 UNION ALL SELECT * FROM jobs WHERE finished_at IS NULL)) j
    JOIN attempts a ON a.job = j.id
    LEFT JOIN used u ON u.job = a.job AND u.gang = a.gang AND u.attempt = a.attempt";

/// The columns of `used` in a row of [`RUNS`], and the job.
const OF_USED: usize = 9;
const JOB: usize = OF_USED + 17;

/// The question for runs. Those of jobs that finished before the time are not looked at.
fn runs_sql(uid: Option<u32>, ask: &AdviseAsk) -> (String, Vec<Value>) {
    let conditions = conditions(ask, uid, ["owner_uid = ?", "owner = ?"]);
    let (mut sql, rest) = narrowed(&RUNS.replace("{group}", GROUP), conditions);
    sql += " AND began >= ?1 ORDER BY began DESC LIMIT ?";
    let mut values = vec![Value::Integer(integer(ask.since.unwrap_or_default().0))];
    values.extend(rest);
    values.push(Value::Integer(RUNS_MAX.into()));
    (sql, values)
}

/// Which jobs, where `owner` and `uid` are names of columns.
fn conditions(
    ask: &AdviseAsk,
    only: Option<u32>,
    [uid, owner]: [&'static str; 2],
) -> [(&'static str, Option<Value>); 3] {
    [
        (uid, only.map(|uid| Value::Integer(uid.into()))),
        (owner, ask.user.clone().map(Value::Text)),
        // A bracket means nothing here, and much to SQLite.
        ("name GLOB ?", ask.job.as_ref().map(|like| Value::Text(like.replace('[', "[[]")))),
    ]
}

impl History {
    /// Attempts that began since a time, the newest; of the jobs of one user if `uid` says so. `interval` has the best
    /// checkpoint interval for checkpoints that take so long on so many nodes.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub(crate) fn runs(
        &self,
        uid: Option<u32>,
        ask: &AdviseAsk,
        now: Timestamp,
        interval: impl Fn(u64, u32) -> Interval,
    ) -> Result<Vec<(JobId, Group, Run)>, HistoryError> {
        let (sql, values) = runs_sql(uid, ask);
        self.many(&sql, rusqlite::params_from_iter(values), |row| {
            let group = Group { uid: row.get(0)?, user: row.get(1)?, name: row.get(2)? };
            let began = time(row, 3)?;
            let state: String = row.get(6)?;
            let limit_ms = optional(row, 7)?.map(|at| at.0);
            let used = row.get::<_, Option<u32>>(OF_USED)?.map(|_| used(row, &interval)).transpose()?;
            let run = Run {
                began,
                ran_ms: optional(row, 4)?.unwrap_or(now).since(began),
                attempt: row.get(5)?,
                has_succeeded: state == "succeeded",
                reached_limit: state == "time_limit",
                is_service: row.get(8)?,
                limit_ms,
                used,
            };
            Ok((JobId(unsigned(JOB, row.get(JOB)?)?), group, run))
        })
    }

    /// The charges of these jobs since a time, by their groups.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub(crate) fn charged(
        &self,
        uid: Option<u32>,
        ask: &AdviseAsk,
        jobs: &BTreeMap<JobId, &Group>,
    ) -> Result<BTreeMap<Group, Charged>, HistoryError> {
        let question = "SELECT job, price_micro, sum(device_us) FROM account";
        let (mut sql, mut values) = narrowed(question, conditions(ask, uid, ["uid = ?", "user = ?"]));
        sql += " AND job > 0 AND hour >= ? GROUP BY 1, 2";
        values.push(Value::Integer(integer(ask.since.unwrap_or_default().0 / HOUR_MS)));
        let rows = self.many(&sql, rusqlite::params_from_iter(values), |row| {
            Ok((JobId(unsigned(0, row.get(0)?)?), row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        })?;
        let mut costs: BTreeMap<&Group, (i64, i128)> = BTreeMap::new();
        for (job, price_micro, device_us) in rows {
            let Some(group) = jobs.get(&job) else { continue };
            let (of, cost) = costs.entry(group).or_default();
            *of = of.saturating_add(device_us);
            *cost = cost.saturating_add(i128::from(price_micro) * i128::from(device_us));
        }
        let charged = |(device_us, cost)| Charged { device_us, cost_micro: micro(cost) };
        Ok(costs.into_iter().map(|(group, sums)| (group.clone(), charged(sums))).collect())
    }

    /// The lowest price of each model on nodes that are not taken back, in the last day that was charged.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub(crate) fn prices(&self) -> Result<BTreeMap<String, u64>, HistoryError> {
        let sql = "SELECT model, min(list_micro) FROM account WHERE spot = 0 AND list_micro > 0
            AND hour > (SELECT max(hour) FROM account) - 24 GROUP BY model";
        let rows = self.many(sql, [], |row| Ok((row.get(0)?, unsigned(1, row.get(1)?)?)))?;
        Ok(rows.into_iter().collect())
    }
}

fn used(row: &Found<'_>, interval: impl Fn(u64, u32) -> Interval) -> rusqlite::Result<Used> {
    let number = |column: usize| unsigned(OF_USED + column, row.get(OF_USED + column)?);
    let maybe = |column: usize| Ok::<_, rusqlite::Error>(optional(row, OF_USED + column)?.map(|at| at.0));
    let nodes: u32 = row.get(OF_USED + 14)?;
    Ok(Used {
        ranks: row.get(OF_USED)?,
        devices: row.get(OF_USED + 1)?,
        is_whole: row.get(OF_USED + 2)?,
        model: row.get(OF_USED + 3)?,
        device_bytes: number(4)?,
        sampled_ms: number(5)?,
        busy_ms: number(6)?,
        used_devices: row.get::<_, i64>(OF_USED + 7)?.count_ones(),
        peak_bytes: maybe(8)?,
        steps: number(9)?,
        steps_ms: number(10)?,
        steps_of: maybe(11)?,
        saves_every_ms: maybe(12)?,
        interval: maybe(13)?.map(|takes_ms| interval(takes_ms, nodes)),
        samples: number(15)?,
        busiest_ms: number(16)?,
    })
}

pub(super) fn write_used(connection: &Connection, row: &UsedRow) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO used VALUES (:job, :gang, :attempt, :ranks, :nodes, :devices, :is_whole, :model, :device_bytes,
            :samples, :sampled_ms, :busy_ms, :busiest_ms, :used_mask, :peak_bytes, :steps, :steps_ms, :steps_of, :takes_ms,
            :saves_every_ms)
            ON CONFLICT DO UPDATE SET samples = samples + excluded.samples,
            sampled_ms = sampled_ms + excluded.sampled_ms, busy_ms = busy_ms + excluded.busy_ms,
            busiest_ms = busiest_ms + excluded.busiest_ms, used_mask = used_mask | excluded.used_mask,
            peak_bytes = nullif(max(coalesce(peak_bytes, -1), coalesce(excluded.peak_bytes, -1)), -1),
            steps = steps + excluded.steps, steps_ms = steps_ms + excluded.steps_ms,
            steps_of = coalesce(excluded.steps_of, steps_of), takes_ms = coalesce(excluded.takes_ms, takes_ms),
            saves_every_ms = coalesce(excluded.saves_every_ms, saves_every_ms)",
    )?;
    let UsedRow { job, gang, attempt, had, amounts } = row;
    statement.execute(named_params! {
        ":job": integer(job.0), ":gang": gang, ":attempt": attempt,
        ":ranks": had.ranks, ":nodes": had.nodes, ":devices": had.devices, ":is_whole": had.is_whole,
        ":model": had.model, ":device_bytes": integer(had.device_bytes),
        ":sampled_ms": integer(amounts.sampled_ms), ":busy_ms": integer(amounts.busy_ms),
        ":samples": integer(amounts.samples), ":busiest_ms": integer(amounts.busiest_ms),
        ":used_mask": amounts.used.0.cast_signed(), ":peak_bytes": amounts.peak_bytes.map(integer),
        ":steps": integer(amounts.steps), ":steps_ms": integer(amounts.steps_ms),
        ":steps_of": amounts.steps_of.map(integer), ":takes_ms": amounts.takes_ms.map(integer),
        ":saves_every_ms": amounts.saves_every_ms.map(integer),
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{AttemptRow, JobRow, Row};
    use super::*;

    fn row(id: u64, uid: u32, name: &str, spec_json: &str) -> JobRow {
        JobRow {
            id: JobId(id),
            name: name.to_owned(),
            key: None,
            owner_uid: uid,
            owner: format!("user-{uid}"),
            queue: "default".to_owned(),
            priority: 0,
            submitted_at: Timestamp(id),
            started_at: Some(Timestamp(id)),
            finished_at: Some(Timestamp(5_000)),
            state: "succeeded".to_owned(),
            ending: None,
            exit_code: None,
            detail: String::new(),
            nodes: String::new(),
            devices: 2,
            attempts: 1,
            restarts: 0,
            spec_json: spec_json.to_owned(),
        }
    }

    fn attempt(id: u64, started: u64, ended: Option<u64>) -> AttemptRow {
        AttemptRow {
            job: JobId(id),
            gang: 0,
            attempt: 1,
            started_at: Some(Timestamp(started)),
            ended_at: ended.map(Timestamp),
            class: None,
            detail: String::new(),
        }
    }

    fn used(id: u64, amounts: Amounts) -> UsedRow {
        let had = Had {
            ranks: 2,
            nodes: 1,
            devices: 2,
            is_whole: true,
            model: "H100".to_owned(),
            device_bytes: 80,
        };
        UsedRow { job: JobId(id), gang: 0, attempt: 1, had, amounts }
    }

    fn filled(dir: &std::path::Path) -> History {
        let mut history = History::open(&dir.join("history.db")).unwrap();
        let limited = r#"{"job":{"policy":{"time_limit_ms":9000,"idle_limit_ms":null},"turn":{}}}"#;
        let service = r#"{"job":{"policy":{"time_limit_ms":null},"turn":{"service":{"min":1}}}}"#;
        let first = Amounts {
            samples: 2,
            sampled_ms: 10,
            busy_ms: 5,
            busiest_ms: 6,
            used: DeviceMask(1),
            steps: 3,
            steps_ms: 300,
            takes_ms: Some(7),
            ..Amounts::default()
        };
        let second = Amounts { peak_bytes: Some(60), used: DeviceMask(1 << 63), takes_ms: None, ..first };
        let third = Amounts { peak_bytes: Some(50), ..first };
        let rows = [
            Row::Job(row(1, 7, "sweep-1", limited)),
            Row::Attempt(attempt(1, 1_000, Some(4_000))),
            Row::Used(used(1, first)),
            Row::Used(used(1, second)),
            Row::Used(used(1, third)),
            Row::Job(row(2, 7, "sweep-22", "")),
            Row::Attempt(attempt(2, 2_000, None)),
            Row::Job(row(3, 8, "chat", service)),
            Row::Attempt(attempt(3, 3_000, Some(4_000))),
        ];
        history.record(&rows).unwrap();
        history
    }

    fn runs(history: &History, uid: Option<u32>, ask: &AdviseAsk) -> Vec<(String, Run)> {
        let interval = |takes_ms, nodes: u32| Interval { takes_ms, loss_every_ms: nodes.into(), every_ms: 1 };
        let runs = history.runs(uid, ask, Timestamp(9_000), interval).unwrap();
        runs.into_iter().map(|(_, group, run)| (group.name, run)).collect()
    }

    #[test]
    fn runs_have_their_terms_and_what_all_their_rows_add_up_to() {
        let dir = tempfile::tempdir().unwrap();
        let history = filled(dir.path());
        let all = runs(&history, None, &AdviseAsk::default());
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["chat", "sweep-*", "sweep-*"], "the newest first");
        assert_eq!((all[0].1.is_service, all[0].1.limit_ms, &all[0].1.used), (true, None, &None));
        assert_eq!(
            (all[1].1.limit_ms, all[1].1.ran_ms),
            (None, 3_000),
            "its terms are lost, its end is its job's"
        );
        let Run { limit_ms, ran_ms, has_succeeded, used: Some(used), .. } = all[2].1.clone() else {
            panic!()
        };
        assert_eq!((limit_ms, ran_ms, has_succeeded), (Some(9_000), 3_000, true));
        assert_eq!(
            (used.sampled_ms, used.busy_ms, used.used_devices, used.peak_bytes),
            (30, 15, 2, Some(60)),
            "the devices of all rows"
        );
        assert_eq!((used.samples, used.busiest_ms), (6, 18));
        assert_eq!((used.steps, used.steps_ms, used.device_bytes), (9, 900, 80));
        assert_eq!(used.interval, Some(Interval { takes_ms: 7, loss_every_ms: 1, every_ms: 1 }));
    }

    #[test]
    fn only_the_jobs_that_are_asked_for_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let history = filled(dir.path());
        let count = |uid, ask: AdviseAsk| runs(&history, uid, &ask).len();
        assert_eq!(count(Some(7), AdviseAsk::default()), 2);
        assert_eq!(count(Some(7), AdviseAsk { user: Some("user-8".to_owned()), ..AdviseAsk::default() }), 0);
        assert_eq!(count(None, AdviseAsk { job: Some("sweep-*".to_owned()), ..AdviseAsk::default() }), 2);
        let since = AdviseAsk { since: Some(Timestamp(2_500)), ..AdviseAsk::default() };
        assert_eq!(count(None, since.clone()), 1);
        let (sql, values) = runs_sql(None, &since);
        let values = rusqlite::params_from_iter(values);
        let plan: Vec<String> =
            history.many(&format!("EXPLAIN QUERY PLAN {sql}"), values, |row| row.get(3)).unwrap();
        for index in ["jobs_by_finish", "jobs_unfinished"] {
            assert!(plan.iter().any(|step| step.contains(index)), "{plan:?}");
        }
    }

    #[test]
    fn charges_are_those_of_the_runs_and_prices_those_of_the_last_day() {
        let dir = tempfile::tempdir().unwrap();
        let history = filled(dir.path());
        for (hour, job, spot, price) in
            [(5, 1, 0, 9), (50, 1, 0, 2_000_000), (50, 2, 1, 1_000_000), (50, 4, 0, 5_000_000)]
        {
            let sql = "INSERT INTO account VALUES (?, 'running', 'default', 7, 'user-7', ?, 'sweep', 'H100', ?, ?4, 3600000000, ?4, '')";
            history.connection.execute(sql, rusqlite::params![hour, job, spot, price]).unwrap();
        }
        let ask = AdviseAsk { since: Some(Timestamp(10 * HOUR_MS)), ..AdviseAsk::default() };
        let group = Group { uid: 7, user: "user-7".to_owned(), name: "sweep-*".to_owned() };
        let jobs = [(JobId(1), &group), (JobId(2), &group)].into();
        let charged = history.charged(Some(7), &ask, &jobs).unwrap();
        let of: Vec<_> = charged.iter().map(|(group, charged)| (group.name.as_str(), *charged)).collect();
        assert_eq!(
            of,
            [("sweep-*", Charged { device_us: 7_200_000_000, cost_micro: 3_000_000 })],
            "job 4 has no run"
        );
        assert_eq!(
            history.prices().unwrap().into_iter().collect::<Vec<_>>(),
            [("H100".to_owned(), 2_000_000)]
        );
        assert_eq!(history.charged(Some(8), &ask, &jobs).unwrap().len(), 0);
    }
}
