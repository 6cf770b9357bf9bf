//! A name service that hangs for one user: others do not notice.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use phalanx_api::protocol::{Answer, ErrorCode, JobRef, Verb};
use phalanx_model::{Job, JobId};

use crate::support::{Bench, NODE_OF_8, env, is_root, shell, until};

/// Users that no file of a machine knows: the service hangs for the first, and has no account of the second.
const HUNG: u32 = 64_984;
const OTHER: u32 = 64_985;
/// Above every deadline of a verb, and below the patience of a start.
const SOON: Duration = Duration::from_secs(20);

/// A module of the name service that hangs for one user while a file exists.
const MODULE: &str = r"
#include <errno.h>
#include <pwd.h>
#include <unistd.h>
int _nss_hang_getpwuid_r(uid_t uid, struct passwd *user, char *text, size_t size, int *error) {
    while (uid == 64984 && access(HANGS, F_OK) == 0) usleep(20000);
    *error = ENOENT;
    return 0;
}
";

/// Builds the module; the script starts a daemon that sees it, in a mount namespace of its own. None where this cannot
/// be had.
fn with_module(bench: &Bench) -> Option<String> {
    let dir = bench.path("nss");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("hang.c"), MODULE).unwrap();
    fs::write(dir.join("nsswitch.conf"), "passwd: files hang\ngroup: files\n").unwrap();
    let hangs = format!("-DHANGS=\"{}\"", hangs(bench).display());
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", &hangs, "-o"])
        .args([dir.join("libnss_hang.so.2"), dir.join("hang.c")])
        .status();
    let dir = dir.display();
    let mount = format!("mount --bind {dir}/nsswitch.conf /etc/nsswitch.conf");
    let may_mount = Command::new("unshare").args(["-m", "sh", "-c", &mount]).status();
    if ![built, may_mount].into_iter().all(|done| done.is_ok_and(|status| status.success())) {
        return None;
    }
    let inner = format!("{mount} && LD_LIBRARY_PATH={dir} exec \"$0\" \"$@\"");
    Some(format!("exec unshare -m sh -c '{inner}' \"$0\" \"$@\""))
}

fn hangs(bench: &Bench) -> PathBuf {
    bench.path("hangs")
}

fn submit(bench: &Bench, uid: u32, job: Job) -> Result<JobId, String> {
    let verb = Verb::Submit { job: Box::new(job), secrets: env(&[]) };
    match bench.ask_as(uid, &verb).as_slice() {
        [Answer::Submitted { job, .. }] => Ok(*job),
        [Answer::Error(error)] if error.code == ErrorCode::Unavailable => Err(error.message.clone()),
        other => panic!("{other:?}"),
    }
}

/// It hung the thread that takes connections, and the one that starts ranks: for everybody.
#[test]
fn a_name_service_that_hangs_for_one_user_holds_up_nobody_else() {
    const NAME: &str = "a_name_service_that_hangs_for_one_user_holds_up_nobody_else";
    if !is_root(NAME) {
        return;
    }
    let mut bench = Bench::new(NODE_OF_8);
    let Some(script) = with_module(&bench) else {
        println!("SKIPPED {NAME}: no cc, or no mount namespaces");
        return;
    };
    bench.up_by(Some(&script));
    let others_start = |bench: &Bench| {
        let begin = Instant::now();
        let other = submit(bench, OTHER, shell(1, "true")).unwrap();
        assert_eq!(bench.ended(other).state, "succeeded");
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    };
    fs::write(hangs(&bench), "").unwrap();
    // Should everything wait, the test must not: it looks at the time afterwards.
    let file = hangs(&bench);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(90));
        fs::remove_file(file)
    });
    let refused = submit(&bench, HUNG, shell(1, "true")).unwrap_err();
    assert_eq!(refused, format!("the account of user {HUNG} cannot be looked up"));
    others_start(&bench);
    fs::remove_file(hangs(&bench)).unwrap();
    let mut held = shell(1, "echo groups=$(id -G)");
    held.turn.held_by = Some("me".to_owned());
    let mut job = None;
    until("an answer", || {
        job = submit(&bench, HUNG, held.clone()).ok();
        job.is_some()
    });
    let job = job.unwrap();

    // A start of a daemon that knows no account yet.
    bench.down();
    fs::write(hangs(&bench), "").unwrap();
    bench.up_by(Some(&script));
    bench.done(Verb::Release { job: JobRef::Id(job) });
    bench.await_state(job, "starting");
    others_start(&bench);
    assert_eq!(bench.get(job).state, "starting", "it waits, and does not start with fewer groups");
    fs::remove_file(hangs(&bench)).unwrap();
    assert_eq!(bench.ended(job).state, "succeeded");
    assert_eq!(bench.said(job)["groups"], HUNG.to_string());

    // A start that waits is cancelled like any other.
    let held = submit(&bench, HUNG, held).unwrap();
    bench.down();
    fs::write(hangs(&bench), "").unwrap();
    bench.up_by(Some(&script));
    bench.done(Verb::Release { job: JobRef::Id(held) });
    bench.await_state(held, "starting");
    bench.cancel(held);
    assert_eq!(bench.ended(held).state, "cancelled");
    fs::remove_file(hangs(&bench)).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    bench.await_nobody();
}
