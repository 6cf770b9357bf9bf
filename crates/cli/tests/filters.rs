//! Jobs that are meant by flags: the binary against a daemon that answers what it is told to.

#![allow(clippy::unwrap_used, unreachable_pub, dead_code)]

mod fake;
mod views;

use fake::{Fake, Run};
use phalanx_api::protocol::{Answer, JobFilter, JobRef, Verb};

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
