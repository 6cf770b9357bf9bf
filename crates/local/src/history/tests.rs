use std::fs;
use std::os::unix::fs::PermissionsExt;

use phalanx_account::HOUR_MS;
use phalanx_model::{Change, FailureClass, JobId, StopCause, Timestamp};

use super::prune::{OLD, SURPLUS};
use super::*;
use phalanx_api::protocol::{AuditFilter, AuditView};

fn job(id: u64) -> JobRow {
    let finished = !id.is_multiple_of(10);
    JobRow {
        id: JobId(id),
        name: format!("train-{}", id % 50),
        key: id.is_multiple_of(7).then(|| format!("key-{id}")),
        owner_uid: 1000 + u32::try_from(id % 5).unwrap(),
        owner: "ada".to_owned(),
        queue: "default".to_owned(),
        priority: -1,
        submitted_at: Timestamp(id * 1000),
        started_at: Some(Timestamp(id * 1000 + 1)),
        finished_at: finished.then_some(Timestamp(id * 1000 + 500)),
        state: if finished { "succeeded" } else { "running" }.to_owned(),
        ending: finished.then(|| "succeeded".to_owned()),
        exit_code: finished.then_some(0),
        detail: String::new(),
        nodes: "node-1,node-2".to_owned(),
        devices: 16,
        attempts: 1,
        restarts: 0,
        spec_json: "{}".to_owned(),
    }
}

fn member(id: u64, rank: u32) -> MemberRow {
    MemberRow {
        job: JobId(id),
        gang: 0,
        attempt: 1,
        rank,
        node: "node-1".to_owned(),
        devices: "0-3".to_owned(),
        started_at: Some(Timestamp(5)),
        ended_at: None,
        code: Some(1),
        signal: None,
        class: Some("user_code".to_owned()),
        detail: "it's \"broken\"; DROP TABLE jobs".to_owned(),
    }
}

/// One job with all its rows.
fn rows(id: u64) -> Vec<Row> {
    let (job, at) = (JobId(id), Timestamp(id));
    let attempt = AttemptRow {
        job,
        gang: 0,
        attempt: 1,
        started_at: None,
        ended_at: Some(Timestamp::MAX),
        class: None,
        detail: String::new(),
    };
    let record = Some("{\"by\":\"7.0\"}".to_owned());
    let event = |what: &str| {
        Row::Event(EventRow {
            job,
            at,
            what: what.to_owned(),
            detail: String::new(),
            record: record.clone().filter(|_| what == "placed"),
        })
    };
    vec![
        Row::Job(self::job(id)),
        Row::Attempt(attempt),
        Row::Member(member(id, 1)),
        Row::Member(member(id, 0)),
        event("submitted"),
        event("placed"),
    ]
}

fn filled(path: &Path, count: u64) -> History {
    let mut history = History::open(path).unwrap();
    history.record(&(1..=count).flat_map(rows).collect::<Vec<_>>()).unwrap();
    history
}

fn ids(history: &History, filter: &Filter) -> Vec<u64> {
    history.jobs(filter).unwrap().iter().map(|row| row.id.0).collect()
}

/// Each attempt had the start of its job, and each member the end of the last one.
#[test]
fn a_start_is_kept_and_so_is_the_first_end_of_a_member() {
    let dir = tempfile::tempdir().unwrap();
    let mut history = History::open(&dir.path().join("history.db")).unwrap();
    let mut write = |started: Option<u64>, ended: Option<u64>| {
        let (started_at, ended_at) = (started.map(Timestamp), ended.map(Timestamp));
        let attempt = AttemptRow {
            job: JobId(1),
            gang: 0,
            attempt: 2,
            started_at,
            ended_at,
            class: None,
            detail: String::new(),
        };
        let member = MemberRow { started_at, ended_at, attempt: 2, ..member(1, 0) };
        history.record(&[Row::Attempt(attempt), Row::Member(member)]).unwrap();
        let (attempts, members) = (history.attempts(JobId(1)).unwrap(), history.members(JobId(1)).unwrap());
        let times =
            [(attempts[0].started_at, attempts[0].ended_at), (members[0].started_at, members[0].ended_at)];
        times.map(|(started, ended)| (started.map(|at| at.0), ended.map(|at| at.0)))
    };
    assert_eq!(write(None, None), [(None, None); 2], "it starts");
    assert_eq!(write(Some(10), None), [(Some(10), None); 2]);
    assert_eq!(write(None, Some(50)), [(Some(10), Some(50)); 2], "a member ended, and the gang is stopped");
    assert_eq!(write(None, Some(60)), [(Some(10), Some(60)), (Some(10), Some(50))]);
}

#[test]
fn losses_are_counted_over_the_time_that_ranks_had_devices() {
    let dir = tempfile::tempdir().unwrap();
    let mut history = History::open(&dir.path().join("history.db")).unwrap();
    let of = |hour: u64, cause| {
        let change = Change::GangStopping { gang: JobId(1).gang(0), attempt: 1, cause };
        let (record, at) = (Some(serde_json::to_string(&change).unwrap()), Timestamp(hour * HOUR_MS));
        Row::Event(EventRow { job: JobId(1), at, what: "stopping".to_owned(), detail: String::new(), record })
    };
    let failed = |class| StopCause::Failure { class, rank: None, code: None, detail: String::new() };
    let graded = StopCause::Displaced { class: FailureClass::Node, detail: String::new(), until: None };
    let events = [
        of(9, failed(FailureClass::Node)),
        of(12, failed(FailureClass::Node)),
        of(12, failed(FailureClass::UserCode)),
        of(13, graded),
    ];
    history.record(&events).unwrap();
    for (hour, state, device_ms) in [
        (9, "running", 10),
        (12, "running", 100),
        (12, "idle", 9),
        (12, "starting", 9),
        (13, "lost_to_failure", 1_000),
    ] {
        let sql =
            "INSERT INTO account VALUES (?, ?, 'default', 0, 'ada', 1, 'train', 'H100', 0, 0, ?, 0, '')";
        history.connection.execute(sql, rusqlite::params![hour, state, device_ms * 1_000]).unwrap();
    }
    let of = |history: &History, hour: u64| history.losses(Timestamp(hour * HOUR_MS)).unwrap();
    assert_eq!(of(&history, 0), (0, 0), "what came before losses were recorded does not count");
    history.connection.execute(&format!("UPDATE losses_since SET at = {}", 10 * HOUR_MS), []).unwrap();
    assert_eq!(of(&history, 0), (2, 1_100));
    assert_eq!(of(&history, 13), (1, 1_000));
}

#[test]
fn what_was_recorded_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut history = filled(&path, 20);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(history.job(JobId(7)).unwrap(), Some(job(7)));
    assert_eq!(history.job(JobId(99)).unwrap(), None);
    assert_eq!(history.job_by_key(1002, "key-7").unwrap(), Some(job(7)));
    assert_eq!(history.job_by_key(1003, "key-7").unwrap(), None);
    assert_eq!(history.newest_id().unwrap(), Some(JobId(20)));
    assert_eq!(history.members(JobId(7)).unwrap(), [member(7, 0), member(7, 1)]);
    assert_eq!(history.attempts(JobId(7)).unwrap()[0].ended_at, Some(Timestamp(u64::MAX / 2)));
    let what: Vec<String> = history.events(JobId(7)).unwrap().into_iter().map(|e| e.what).collect();
    assert_eq!(what, ["submitted", "placed"]);
    let newest = history.newest_events(3).unwrap();
    let told: Vec<_> = newest
        .iter()
        .map(|(e, name)| (e.job.0, e.what.as_str(), e.record.is_some(), name.as_deref()))
        .collect();
    let wanted = [
        (20, "placed", true, "train-20"),
        (20, "submitted", false, "train-20"),
        (19, "placed", true, "train-19"),
    ];
    assert_eq!(told, wanted.map(|(job, what, record, name)| (job, what, record, Some(name))));

    let ended = JobRow { state: "failed".to_owned(), exit_code: Some(3), ..job(7) };
    history.record_job(&ended).unwrap();
    drop(history);
    let history = History::open(&path).unwrap();
    assert_eq!(history.job(JobId(7)).unwrap(), Some(ended));
    assert_eq!(ids(&history, &Filter::default()).len(), 20);
    assert_eq!(History::open(&dir.path().join("new.db")).unwrap().newest_id().unwrap(), None);
}

#[test]
fn filters_narrow_and_the_newest_come_first() {
    let dir = tempfile::tempdir().unwrap();
    let history = filled(&dir.path().join("history.db"), 1_000);
    let all = Filter::default();
    assert_eq!(ids(&history, &Filter { limit: 3, ..all.clone() }), [1000, 999, 998]);
    assert_eq!(ids(&history, &Filter { owner_uid: Some(1001), limit: 2, ..all.clone() }), [996, 991]);
    assert_eq!(ids(&history, &Filter { name: Some("train-3".to_owned()), ..all.clone() }).len(), 20);
    assert_eq!(ids(&history, &Filter { states: words(&["running"]), ..all.clone() }).len(), 100);
    assert_eq!(
        ids(&history, &Filter { states: words(&["running", "succeeded"]), ..all.clone() }).len(),
        1000
    );
    assert_eq!(ids(&history, &Filter { like: Some("train-3".to_owned()), ..all.clone() }).len(), 20);
    assert_eq!(ids(&history, &Filter { like: Some("*n-?".to_owned()), ..all.clone() }).len(), 200);
    assert_eq!(ids(&history, &Filter { like: Some("train-[3]".to_owned()), ..all.clone() }).len(), 0);
    assert_eq!(ids(&history, &Filter { text: Some("AIN-49".to_owned()), ..all.clone() }).len(), 20);
    assert_eq!(ids(&history, &Filter { text: Some("999".to_owned()), ..all.clone() }), [999]);
    assert_eq!(ids(&history, &Filter { text: Some("%".to_owned()), ..all.clone() }).len(), 0);
    assert_eq!(ids(&history, &Filter { queue: Some("none".to_owned()), ..all.clone() }).len(), 0);
    assert_eq!(ids(&history, &Filter { finished: true, ..all.clone() }).len(), 900);
    let (since, before) = (Some(Timestamp(999_000)), Some(Timestamp(1_000_000)));
    assert_eq!(ids(&history, &Filter { since, ..all.clone() }), [1000, 999]);
    assert_eq!(ids(&history, &Filter { since, before, ..all.clone() }), [999]);
    let name = Some("' OR 1 = 1 --".to_owned());
    assert_eq!(ids(&history, &Filter { name, ..all }), Vec::<u64>::new());
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// What SQLite means to do, one line per loop or sort.
fn plan(history: &History, sql: &str) -> Vec<String> {
    let mut statement = history.connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    // A parameter that is not bound is NULL; the plan does not depend on it.
    let rows = statement.raw_query().mapped(|row| row.get("detail")).collect::<Result<_, _>>();
    rows.unwrap()
}

#[test]
fn every_question_uses_an_index() {
    let dir = tempfile::tempdir().unwrap();
    let mut filters = vec![Filter::default()];
    for part in [
        Filter { owner_uid: Some(1), ..Filter::default() },
        Filter { states: words(&["failed"]), ..Filter::default() },
        Filter { name: Some("x".to_owned()), ..Filter::default() },
        Filter { since: Some(Timestamp(1)), ..Filter::default() },
        Filter { finished: true, ..Filter::default() },
    ] {
        let both: Vec<Filter> = filters.iter().map(|filter| union(filter, &part)).collect();
        filters.extend(both);
    }
    assert_eq!(filters.len(), 32);
    filters.push(Filter { states: words(&["failed", "cancelled"]), finished: true, ..Filter::default() });
    let mut questions: Vec<String> = filters.iter().map(|filter| filter.sql().0).collect();
    questions.extend([OLD, SURPLUS].map(str::to_owned));
    for count in [1_000, 100_000] {
        let mut history = History::open(&dir.path().join(format!("{count}.db"))).unwrap();
        history.record(&(1..=count).map(|id| Row::Job(job(id))).collect::<Vec<_>>()).unwrap();
        for sql in &questions {
            let plan = plan(&history, sql);
            let indexed = |step: &String| step.contains(" USING ") && step.contains("INDEX jobs_by_");
            assert!(plan.iter().all(indexed), "{sql}: {plan:?}");
        }
        for table in ["attempts", "members", "events"] {
            let plan = plan(&history, &format!("SELECT * FROM {table} WHERE job = ?"));
            assert!(plan.iter().all(|step| step.starts_with("SEARCH")), "{plan:?}");
        }
        let newest = ids(&history, &Filter { owner_uid: Some(1002), limit: 1, ..Filter::default() });
        assert_eq!(newest, [count - 3]);
    }
}

fn union(a: &Filter, b: &Filter) -> Filter {
    Filter {
        owner_uid: a.owner_uid.or(b.owner_uid),
        owner: None,
        queue: None,
        like: None,
        text: None,
        states: if a.states.is_empty() { b.states.clone() } else { a.states.clone() },
        name: a.name.clone().or_else(|| b.name.clone()),
        since: a.since.or(b.since),
        before: None,
        below: None,
        finished: a.finished || b.finished,
        limit: ROWS_MAX,
    }
}

#[test]
fn old_and_surplus_jobs_go_and_unfinished_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let mut history = filled(&dir.path().join("history.db"), 100);
    let forever = Retention { keep_ms: u64::MAX, keep_jobs: u32::MAX };
    let now = Timestamp(100_500);
    assert_eq!(history.prune(forever, now).unwrap(), []);
    let gone = history.prune(Retention { keep_ms: 80_000, ..forever }, now).unwrap();
    // 20 finished at 20,500 had it finished; 21 is the first that stays.
    let expected: Vec<JobId> = (1..=20).filter(|id| id % 10 != 0).map(JobId).collect();
    assert_eq!(gone, expected);
    let gone = history.prune(Retention { keep_jobs: 9, ..forever }, now).unwrap();
    assert_eq!((gone.len(), gone[0], gone[62]), (63, JobId(21), JobId(89)));
    let left = ids(&history, &Filter::default());
    assert_eq!(left.len(), 9 + 10);
    assert!(left.contains(&10) && left.contains(&91));
    assert!(history.events(JobId(21)).unwrap().is_empty() && history.members(JobId(21)).unwrap().is_empty());
    assert_eq!(history.events(JobId(91)).unwrap().len(), 2);
    assert_eq!(history.prune(Retention { keep_ms: 0, keep_jobs: 0 }, now).unwrap().len(), 9);
    assert_eq!(ids(&history, &Filter::default()).len(), 10);
}

#[test]
fn a_crash_leaves_whole_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let (path, wal) = (dir.path().join("history.db"), dir.path().join("history.db-wal"));
    let history = History::open(&path).unwrap();
    history.connection.pragma_update(None, "wal_checkpoint", "truncate").unwrap();
    drop(history);
    let mut history = History::open(&path).unwrap();
    for id in 1..=5 {
        history.record(&rows(id)).unwrap();
    }
    // The disk as it is while the daemon runs, cut at many places of the log.
    let (db, log) = (fs::read(&path).unwrap(), fs::read(&wal).unwrap());
    let mut seen = Vec::new();
    for length in (0..=log.len()).step_by(1_000).chain([log.len()]) {
        let copy = dir.path().join("copy.db");
        fs::write(&copy, &db).unwrap();
        fs::write(dir.path().join("copy.db-wal"), &log[..length]).unwrap();
        drop(fs::remove_file(dir.path().join("copy.db-shm")));
        let copy = History::open(&copy).unwrap();
        let jobs = ids(&copy, &Filter::default());
        let expected: Vec<u64> = (1..=jobs.len() as u64).rev().collect();
        assert_eq!(jobs, expected);
        for id in jobs {
            assert_eq!(copy.events(JobId(id)).unwrap().len(), 2);
            assert_eq!(copy.members(JobId(id)).unwrap().len(), 2);
        }
        seen.push(expected.len());
    }
    assert_eq!((seen.first(), seen.last()), (Some(&0), Some(&5)));
}

#[test]
fn a_damaged_file_is_set_aside_and_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    for round in 1..=2 {
        drop(filled(&path, 1_000));
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        for page in bytes[middle..].chunks_mut(4096).take(20) {
            page[..64].fill(0xee);
        }
        fs::write(&path, bytes).unwrap();
        let error = History::open(&path).unwrap_err();
        assert!(matches!(error, HistoryError::Damaged { .. }), "{error}");
        let (history, message) = History::open_or_begin_anew(&path).unwrap();
        assert!(message.unwrap().contains(&format!("history.db.damaged-{round}")));
        assert_eq!(history.newest_id().unwrap(), None);
    }
    fs::write(&path, "this was never a database, however long one looks at it ".repeat(100)).unwrap();
    let error = History::open(&path).unwrap_err();
    assert!(matches!(error, HistoryError::Damaged { .. }), "{error}");
    let (_, message) = History::open_or_begin_anew(&path).unwrap();
    assert!(message.is_some());
    assert!(History::open_or_begin_anew(&path).unwrap().1.is_none());
}

#[test]
fn any_damage_is_an_error_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    drop(filled(&path, 30));
    let whole = fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(97) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        let copy = dir.path().join(format!("copy-{at}.db"));
        fs::write(&copy, bytes).unwrap();
        if let Ok(mut history) = History::open(&copy) {
            drop(history.jobs(&Filter::default()));
            drop(history.events(JobId(3)));
            drop(history.record(&rows(31)));
            drop(history.prune(Retention { keep_ms: 0, keep_jobs: 0 }, Timestamp(1 << 40)));
        }
    }
}

#[test]
fn a_folder_that_cannot_be_written_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let error = History::open(&dir.path().join("none/history.db")).unwrap_err();
    assert!(error.to_string().starts_with("cannot open the history"), "{error}");
    assert!(matches!(History::open(dir.path()), Err(HistoryError::Io { .. })));
}

#[test]
fn others_databases_and_later_versions_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let foreign = dir.path().join("foreign.db");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    assert!(matches!(History::open_or_begin_anew(&foreign), Err(HistoryError::Foreign { .. })));

    let later = dir.path().join("later.db");
    let history = filled(&later, 5);
    history.connection.pragma_update(None, "user_version", 99).unwrap();
    drop(history);
    let error = History::open_or_begin_anew(&later).unwrap_err();
    assert!(matches!(error, HistoryError::Newer { version: 99, .. }), "{error}");
}

#[test]
fn every_older_version_becomes_todays() {
    let dir = tempfile::tempdir().unwrap();
    for version in 0..=schema::MIGRATIONS.len() {
        let path = dir.path().join(format!("{version}.db"));
        let mut old = Connection::open(&path).unwrap();
        schema::migrate(&mut old, &schema::MIGRATIONS[..version]).unwrap();
        drop(old);
        assert_eq!(filled(&path, 3).newest_id().unwrap(), Some(JobId(3)));
    }
}

#[test]
fn a_migration_happens_once_and_whole() {
    let version =
        |c: &Connection| c.pragma_query_value(None, "user_version", |r| r.get::<_, i64>(0)).unwrap();
    let mut connection = Connection::open_in_memory().unwrap();
    let first = "CREATE TABLE a (x); INSERT INTO a VALUES (1)";
    let broken = "ALTER TABLE a ADD COLUMN y; INSERT INTO nowhere VALUES (1)";
    schema::migrate(&mut connection, &[first]).unwrap();
    schema::migrate(&mut connection, &[first]).unwrap();
    assert!(schema::migrate(&mut connection, &[first, broken]).is_err());
    assert_eq!(version(&connection), 1);
    schema::migrate(&mut connection, &[first, "ALTER TABLE a ADD COLUMN y"]).unwrap();
    assert_eq!(version(&connection), 2);
    let count: i64 = connection.query_row("SELECT count(*) FROM a", [], |r| r.get(0)).unwrap();
    assert_eq!(count, 1);
}

#[test]
fn the_acts_of_one_user_take_no_room_from_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut history = History::open(&dir.path().join("history.db")).unwrap();
    let act = |uid: u32, at: u64, refused: Option<&str>| {
        let view = AuditView {
            at: Timestamp(at),
            uid,
            user: uid.to_string(),
            login: Some("nina@example.com".to_owned()),
            verb: "cordon".to_owned(),
            target: "node n1".to_owned(),
            detail: String::new(),
            refused: refused.map(str::to_owned),
        };
        Row::Audit(AuditRow { view, node: Some("n1".to_owned()) })
    };
    let mut rows = vec![act(1, 1, None), act(2, 2, None)];
    rows.extend((3..10_050).map(|at| act(2, at, Some("no"))));
    history.record(&rows).unwrap();
    history.prune(Retention { keep_ms: 0, keep_jobs: 0 }, Timestamp(0)).unwrap();
    let all = history.audit(None, &AuditFilter::default(), ROWS_MAX).unwrap();
    assert_eq!(all.len(), 10_002);
    assert_eq!(all[0].view.login.as_deref(), Some("nina@example.com"));
    assert_eq!([all[10_001].view.at.0, all[10_000].view.at.0, all[9_999].view.at.0], [1, 2, 50]);
    assert_eq!(history.audit(Some(1), &AuditFilter::default(), 10).unwrap().len(), 1);
    let since = AuditFilter { since: Some(Timestamp(10_049)), ..AuditFilter::default() };
    assert_eq!(history.audit(None, &since, 10).unwrap().len(), 1);
    assert_eq!(history.closings().unwrap().iter().map(|row| row.view.at.0).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_bill_adds_up_what_was_charged_and_shows_users_their_own() {
    use std::sync::Arc;

    use phalanx_account::{Class, Entry, HOUR_MS, Key, Payer, State};

    use phalanx_api::protocol::{BillAsk, BillBy};

    let dir = tempfile::tempdir().unwrap();
    let mut history = History::open(&dir.path().join("history.db")).unwrap();
    assert_eq!(history.charged_until().unwrap(), None);
    let class = Arc::new(Class {
        model: "H100".to_owned(),
        is_spot: false,
        has_spot_price: false,
        price_micro: 2_000_000,
    });
    let payer = |uid: u32, job: u64| {
        Some(Arc::new(Payer {
            queue: phalanx_model::QueueName::new("vision").unwrap(),
            uid,
            user: format!("u{uid}"),
            job: JobId(job),
            name: "it's, a job".to_owned(),
            class: String::new(),
        }))
    };
    let entry = |hour: u64, state: State, payer: Option<Arc<Payer>>, hours: i64| Entry {
        hour,
        key: Key { state, payer, class: Arc::clone(&class) },
        device_us: hours * 3_600_000_000,
    };
    // 2026-11-30 23:00 and the hour after it, in another month.
    let hour = 498_911;
    let first = vec![
        entry(hour, State::Running, payer(1, 9), 6),
        entry(hour, State::Running, payer(2, 10), 1),
        entry(hour, State::Idle, None, 1),
    ];
    // Work that was charged before turned out to be lost.
    let second = vec![
        entry(hour, State::Running, payer(1, 9), -6),
        entry(hour, State::LostToFailure, payer(1, 9), 6),
        entry(hour + 1, State::Idle, None, 8),
    ];
    for (entries, until) in [(first, (hour + 1) * HOUR_MS), (second, (hour + 2) * HOUR_MS)] {
        let entries = priced(entries);
        history.record(&[Row::Account(AccountRows { entries, until: Timestamp(until) })]).unwrap();
    }
    let lines = |history: &History, uid: Option<u32>, ask: BillAsk| -> Vec<String> {
        let view = history.bill(uid, &ask).unwrap();
        assert_eq!(view.until, Timestamp((hour + 2) * HOUR_MS));
        let line = |line: &phalanx_api::protocol::BillLine| {
            format!("{} {} {}", line.of.join("|"), line.total_us() / 3_600_000_000, line.cost_micro)
        };
        view.lines.iter().map(line).collect()
    };
    let by = |by: &[BillBy]| BillAsk { by: by.to_vec(), ..BillAsk::default() };
    assert_eq!(lines(&history, None, by(&[])), [" 16 32000000"]);
    assert_eq!(
        lines(&history, None, by(&[BillBy::Job, BillBy::State])),
        ["|idle 9 18000000", "9 it's, a job|lost_to_failure 6 12000000", "10 it's, a job|running 1 2000000"]
    );
    assert_eq!(lines(&history, Some(2), by(&[BillBy::User, BillBy::Price])), ["u2|2000000 1 2000000"]);
    assert_eq!(lines(&history, None, by(&[BillBy::Month])), ["2026-11 8 16000000", "2026-12 8 16000000"]);
    let later = BillAsk { since: Some(Timestamp((hour + 1) * HOUR_MS + 5)), ..by(&[BillBy::Hour]) };
    assert_eq!(lines(&history, None, later), ["2026-12-01T00:00Z 8 16000000"]);
    let of_queue = BillAsk { queue: Some("speech".to_owned()), ..by(&[]) };
    assert_eq!(lines(&history, None, of_queue), [""; 0]);
    let retention = Retention { keep_ms: u64::MAX, keep_jobs: 10 };
    history.prune(retention, Timestamp((hour + 1 + bill::KEPT_HOURS) * HOUR_MS)).unwrap();
    assert_eq!(lines(&history, None, by(&[])), [" 8 16000000"], "an account has an end");
}

/// By list prices.
fn priced(entries: Vec<phalanx_account::Entry>) -> Vec<phalanx_account::Priced> {
    let tariff = phalanx_model::Tariff::default();
    entries.into_iter().map(|entry| phalanx_account::Priced::of(entry, &tariff, "")).collect()
}

#[test]
fn jobs_of_old_days_are_gathered_and_the_account_still_adds_up() {
    use std::sync::Arc;

    use phalanx_account::{Entry, HOUR_MS, Key, Payer, State};

    use phalanx_api::protocol::{BillAsk, BillBy};

    let dir = tempfile::tempdir().unwrap();
    let mut history = History::open(&dir.path().join("history.db")).unwrap();
    let today = 24 * 20_000;
    let entry = |hour: u64, job: u64, user: &str| {
        let queue = phalanx_model::QueueName::new("vision").unwrap();
        let (name, class) = ("a".to_owned(), String::new());
        let payer = Payer { queue, uid: 1, user: user.to_owned(), job: JobId(job), name, class };
        let key = Key { state: State::Running, payer: Some(Arc::new(payer)), class: Arc::default() };
        Entry { hour, key, device_us: 3_600_000_000 }
    };
    let entries = [
        // Two jobs of one user and one of another on an old day, in several hours; one of yesterday, one of today.
        entry(today - 100 * 24, 1, "ada"),
        entry(today - 100 * 24 + 5, 1, "ada"),
        entry(today - 100 * 24 + 6, 2, "ada"),
        entry(today - 100 * 24 + 6, 3, "bob"),
        entry(today - 24, 4, "ada"),
        entry(today + 2, 5, "ada"),
    ];
    let until = Timestamp((today + 3) * HOUR_MS);
    history.record(&[Row::Account(AccountRows { entries: priced(entries.to_vec()), until })]).unwrap();
    let lines = |history: &History| -> Vec<String> {
        let by = vec![BillBy::Job, BillBy::User, BillBy::Day];
        let view = history.bill(None, &BillAsk { by, ..BillAsk::default() }).unwrap();
        let line = |line: &phalanx_api::protocol::BillLine| {
            format!("{}: {} {}", line.of[0], line.of[1], line.total_us() / 3_600_000_000)
        };
        view.lines.iter().map(line).collect()
    };
    let retention = Retention { keep_ms: u64::MAX, keep_jobs: 10 };
    for _ in 0..2 {
        history.prune(retention, until).unwrap();
        assert_eq!(lines(&history), ["older jobs: ada 3", "older jobs: bob 1", "4 a: ada 1", "5 a: ada 1"]);
    }
    // Too many rows: what is not of today is gathered.
    let transaction = history.connection.transaction().unwrap();
    bill::prune(&transaction, until, 1).unwrap();
    transaction.commit().unwrap();
    let expected = ["older jobs: ada 3", "older jobs: ada 1", "older jobs: bob 1", "5 a: ada 1"];
    assert_eq!(lines(&history), expected);
}
