//! `wait`, and jobs that are meant by flags: the binary against a daemon that answers what it is told to.

#![allow(clippy::unwrap_used, unreachable_pub, dead_code)]

mod fake;
mod views;

use std::sync::atomic::{AtomicU32, Ordering};

use fake::{Fake, Run};
use phalanx_local::protocol::{Answer, JobFilter, JobRef, JobView, Verb};
use phalanx_model::{Ending, FailureClass, JobId};

fn ended(id: u64, code: i32) -> JobView {
    let failed = Ending::Failed {
        class: FailureClass::UserCode,
        rank: Some(0),
        code: Some(code),
        detail: String::new(),
    };
    let ending = if code == 0 { Ending::Succeeded } else { failed };
    JobView { id: JobId(id), state: ending.word().to_owned(), ending: Some(ending), ..views::running() }
}

/// Job 1 succeeds and job 2 fails with 3 once each was looked at three times; job 9 runs on.
fn world() -> Fake {
    let looks = [const { AtomicU32::new(0) }; 3];
    Fake::start(move |verb| {
        let Verb::Get { job: JobRef::Id(id) } = verb else { return vec![] };
        let at = usize::try_from(id.0).unwrap();
        let is_over = looks.get(at).is_some_and(|looks| looks.fetch_add(1, Ordering::SeqCst) >= 2);
        let view = match at {
            1 if is_over => ended(1, 0),
            2 if is_over => ended(2, 3),
            _ => JobView { id: *id, ..views::running() },
        };
        vec![Answer::Job(Box::new(view))]
    })
}

#[test]
fn it_ends_when_all_have_ended_and_exits_as_the_first_that_failed() {
    let Run { code, out, .. } = world().run("wait 1 2 -o name");
    assert_eq!((code, out.as_str()), (3, "1\n2\n"));
    let Run { code, out, .. } = world().run("wait 1 -o name");
    assert_eq!((code, out.as_str()), (0, "1\n"));
}

#[test]
fn any_ends_with_the_first_and_a_timeout_says_who_is_left() {
    let Run { code, out, .. } = world().run("wait --any 9 1 -o name");
    assert_eq!((code, out.as_str()), (0, "1\n"));
    let Run { code, err, .. } = world().run("wait 1 9 --timeout 1s");
    assert_eq!(code, 75);
    assert!(err.contains("not all jobs have ended: 1 of 2") && err.contains("still there: 9"), "{err}");
    let Run { code, err, .. } = world().run("wait 1 --timeout soon");
    assert_eq!(code, 64);
    assert!(err.contains("--timeout"), "{err}");
}

fn jobs_of(filter: impl Fn(&JobFilter) -> bool + Send + Sync + 'static) -> Fake {
    Fake::start(move |verb| match verb {
        Verb::List { filter: asked, finished: false, .. } if filter(asked) => {
            vec![Answer::Jobs(views::jobs())]
        }
        Verb::List { .. } => vec![Answer::Jobs(Vec::new())],
        Verb::Cancel { job: JobRef::Id(id) } => {
            vec![Answer::Done { detail: format!("job {id} is being cancelled") }]
        }
        _ => vec![],
    })
}

fn cancelled(fake: &Fake) -> usize {
    fake.asked().iter().filter(|verb| matches!(verb, Verb::Cancel { .. })).count()
}

#[test]
fn flags_mean_the_jobs_of_the_asker_unless_they_name_users() {
    let uid = nix::unistd::getuid().as_raw();
    let mine = jobs_of(move |filter| filter.uid == Some(uid) && filter.states == ["pending", "running"]);
    let Run { code, out, .. } = mine.run("cancel --states pending,running");
    assert_eq!((code, cancelled(&mine)), (0, views::jobs().len()));
    assert!(out.contains("job 3 is being cancelled"), "{out}");

    let theirs = jobs_of(|filter| filter.uid.is_none() && filter.user.as_deref() == Some("ada"));
    assert_eq!(theirs.run("cancel --user ada --name sweep-*").code, 0);
    assert_eq!(cancelled(&theirs), views::jobs().len());
    let all = jobs_of(|filter| filter.uid.is_none() && filter.queue.is_some());
    let Run { code, err, .. } = all.run("cancel --all-users --queue vision --dry-run");
    assert_eq!((code, cancelled(&all)), (0, 0));
    assert!(err.contains("none of these was cancelled"), "{err}");
    let Run { code, err, .. } = all.run("cancel --name other");
    assert_eq!((code, cancelled(&all)), (0, 0));
    assert!(err.contains("no job is meant by that"), "{err}");
}

#[test]
fn what_would_mean_nothing_or_too_much_is_refused() {
    let fake = jobs_of(|_| true);
    for words in [
        "cancel",
        "cancel 3 --states pending",
        "cancel --all-users",
        "cancel --states failed",
        "cancel --states gone",
    ] {
        let Run { code, err, .. } = fake.run(words);
        assert!(code != 0 && !err.is_empty(), "{words}: {code} {err}");
    }
    assert_eq!(cancelled(&fake), 0);
}

#[test]
fn a_list_of_ended_states_has_ended_jobs() {
    let fake = Fake::start(|verb| match verb {
        Verb::List { finished: true, .. } => vec![Answer::Jobs(views::jobs())],
        _ => vec![Answer::Jobs(Vec::new())],
    });
    assert_eq!(fake.run("ps --states failed -o name").out.lines().count(), views::jobs().len());
    assert_eq!(fake.run("ps --states pending -o name").out, "");
}
