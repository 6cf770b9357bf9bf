//! One rank from gate to exit, with real processes.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod common;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use common::{Bench, LONG, NOBODY, eventually, exit_of, failure_of, found, kill, timeless, until};
use nix::sys::signal::Signal;
use phalanx_model::{Exit, FailureClass};
use phalanx_node::{Found, HandleError, IsolationChoice, Secret, ShimEvent};

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[test]
fn nothing_runs_before_the_release_and_the_exit_code_comes_after() {
    let bench = Bench::new("echo out; echo err >&2; pwd; exit 7");
    let mut handle = bench.spawn();
    let first = handle.next_event(LONG).unwrap().unwrap();
    assert!(matches!(first, ShimEvent::Starting { .. }), "{first:?}");
    until(&mut handle, |e| matches!(e, ShimEvent::Ready { .. }));
    assert_eq!(handle.next_event(Duration::from_millis(100)).unwrap(), None);
    assert_eq!(bench.alive().len(), 1, "only the shim");
    handle.release().unwrap();
    handle.release().unwrap();
    assert_eq!(exit_of(&mut handle), Exit::code(7));
    assert!(matches!(handle.next_event(LONG), Err(HandleError::Over { .. })));
    assert_eq!(bench.log(), "out\nerr\n/\n");
    assert_eq!(fs::metadata(&bench.spec.log_path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(bench.alive(), [0i32; 0]);
    assert_eq!(bench.cgroups(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn the_environment_is_as_given() {
    let bench = Bench::new("env | sort; umask; readlink /proc/self/fd/0");
    assert_eq!(bench.run_to_exit(), Exit::succeeded());
    let wanted =
        format!("PATH=/usr/bin:/bin\nPHALANX_MEMBER_TOKEN={}\nPWD=/\n0022\n/dev/null\n", bench.spec.token);
    assert_eq!(bench.log(), wanted);
}

#[test]
fn no_signal_is_blocked_or_ignored() {
    let mut bench = Bench::new("");
    // No shell: it would change them.
    bench.spec.argv = vec!["cat".into(), "/proc/self/status".into()];
    assert_eq!(bench.run_to_exit(), Exit::succeeded());
    let log = bench.log();
    let mask = |name: &str| {
        let line = log.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    // 32 and 33 are libc's own; posix_spawn ignores them in its children.
    assert_eq!((mask("SigBlk:"), mask("SigIgn:") & !(3 << 31)), (0, 0), "{log}");
}

#[test]
fn what_cannot_start_is_found_before_the_gate() {
    let root = tempfile::tempdir().unwrap();
    let plain = root.path().join("plain");
    fs::write(&plain, "#!/bin/sh\n").unwrap();
    let plain = plain.to_str().unwrap().to_owned();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = held.local_addr().unwrap().port();
    type Change = Box<dyn Fn(&mut Bench)>;
    let cases: [(&str, Change); 7] = [
        ("command not found: no-such (PATH is ", Box::new(|b| b.spec.argv = vec!["no-such".into()])),
        ("command not found: ./no-such", Box::new(|b| b.spec.argv = vec!["./no-such".into()])),
        ("is not executable", Box::new(move |b| b.spec.argv = vec![plain.clone()])),
        ("working directory /no-such-dir", Box::new(|b| b.spec.workdir = "/no-such-dir".into())),
        ("Address already in use", Box::new(move |b| b.spec.ports = vec![port])),
        (
            "secret KEY: /no-such-file",
            Box::new(|b| b.spec.secrets = vec![Secret { name: "KEY".into(), path: "/no-such-file".into() }]),
        ),
        ("cannot run on CPUs", Box::new(|b| b.spec.cpus = vec![100_000])),
    ];
    for (wanted, change) in cases {
        let mut bench = Bench::new("echo ran");
        change(&mut bench);
        let (class, detail) = failure_of(&mut bench.spawn());
        assert_eq!(class, FailureClass::StartUp, "{detail}");
        assert!(detail.contains(wanted), "{detail}");
        assert_eq!(bench.log(), "");
        assert!(
            matches!(found(&bench), Found::Ended(exit) if exit.class == Some(class) && exit.detail == detail)
        );
    }
}

#[test]
fn what_exec_refuses_is_a_failed_start() {
    let mut bench = Bench::new("");
    let script = bench.root.path().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    bench.spec.argv = vec![script.to_str().unwrap().to_owned()];
    let mut handle = bench.spawn();
    handle.release().unwrap();
    let (class, detail) = failure_of(&mut handle);
    assert_eq!(class, FailureClass::StartUp);
    assert!(detail.contains("No such file or directory"), "{detail}");
}

#[test]
fn a_log_that_somebody_else_put_there_is_not_written() {
    let bench = Bench::new("echo ran");
    let target = bench.root.path().join("target");
    fs::write(&target, "").unwrap();
    std::os::unix::fs::symlink(&target, &bench.spec.log_path).unwrap();
    let (class, detail) = failure_of(&mut bench.spawn());
    assert_eq!(class, FailureClass::Infrastructure, "{detail}");
    assert_eq!(fs::read_to_string(&target).unwrap(), "");
}

#[test]
fn an_end_by_signal_is_told_as_one() {
    let exit = Bench::new("kill -SEGV $$").run_to_exit();
    assert_eq!((exit.code, exit.signal), (None, Some(11)));
    let exit = Bench::new("kill -40 $$").run_to_exit();
    assert_eq!((exit.code, exit.signal), (None, Some(40)), "a realtime signal");
}

#[test]
fn no_release_in_time_is_never_started() {
    let mut bench = Bench::new("echo ran");
    bench.spec.gate_deadline_ms = 50;
    let (class, detail) = failure_of(&mut bench.spawn());
    assert_eq!(class, FailureClass::StartUp);
    assert!(detail.contains("no release came within 50 ms"), "{detail}");
    assert!(matches!(found(&bench), Found::NeverStarted));
    assert_eq!((bench.log().as_str(), bench.alive().len()), ("", 0));
}

#[test]
fn killed_or_terminated_at_the_gate_nothing_ran() {
    for (kill, signal) in [(true, 9), (false, 15)] {
        let bench = Bench::new("echo ran");
        let mut handle = bench.spawn();
        until(&mut handle, |e| matches!(e, ShimEvent::Ready { .. }));
        if kill {
            handle.kill().unwrap()
        } else {
            handle.terminate().unwrap()
        }
        assert_eq!(exit_of(&mut handle).signal, Some(signal));
        assert_eq!(bench.log(), "");
    }
}

/// Children that leave session and parent, ignore SIGTERM, and drop the token from their environment.
const STUBBORN: &str = r#"
    trap '' TERM HUP
    setsid sh -c 'trap "" TERM; echo $$ >> "$1"; (env -i sh -c "trap \"\" TERM; echo \$\$ >> \"\$1\"; while :; do sleep 1000; done" x "$1" &) ; while :; do sleep 1000; done' x "$1" &
    (setsid setsid sh -c 'trap "" TERM; echo $$ >> "$1"; while :; do sleep 1000; done' x "$1" &)
    while [ "$(wc -l < "$1")" != 3 ]; do sleep 0.01; done
    echo all started
"#;

fn stubborn(end: &str, isolation: IsolationChoice) -> (Bench, std::path::PathBuf) {
    let mut bench = Bench::new(&format!("{STUBBORN}\n{end}"));
    let pids = bench.root.path().join("pids");
    fs::write(&pids, "").unwrap();
    bench.spec.argv.extend(["x".to_owned(), pids.to_str().unwrap().to_owned()]);
    bench.spec.isolation = isolation;
    (bench, pids)
}

/// Every kind that can be had here; `root` takes a view of the cgroups without their `unified` mount, so that
/// the freezer has to do it.
fn every_isolation(root: &Path) -> Vec<IsolationChoice> {
    let mut all = vec![IsolationChoice::Best, IsolationChoice::ProcessGroups];
    let mounts = Path::new("/sys/fs/cgroup");
    if mounts.join("unified/cgroup.controllers").exists() {
        all.push(IsolationChoice::Under(mounts.join("unified")));
    }
    if mounts.join("freezer").exists() {
        for controller in ["freezer", "memory", "pids"] {
            std::os::unix::fs::symlink(mounts.join(controller), root.join(controller)).unwrap();
        }
        all.push(IsolationChoice::Under(root.to_owned()));
    }
    all
}

/// Pids that the stubborn children wrote, as far as they live.
fn living(pids: &Path) -> Vec<String> {
    let text = fs::read_to_string(pids).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    let is_alive = |pid: &&str| phalanx_node::Process::find(pid.parse().unwrap()).is_some();
    text.lines().filter(is_alive).map(str::to_owned).collect()
}

#[test]
fn grandchildren_that_flee_and_ignore_sigterm_are_gone_at_the_exit() {
    let root = tempfile::tempdir().unwrap();
    for isolation in every_isolation(root.path()) {
        let (bench, pids) = stubborn("exit 3", isolation);
        assert_eq!(bench.run_to_exit(), Exit::code(3));
        assert_eq!(living(&pids), [""; 0], "{:?}", bench.spec.isolation);
        assert_eq!(bench.alive(), [0i32; 0]);
        assert_eq!(bench.cgroups(), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn kill_ends_everything_at_once() {
    let root = tempfile::tempdir().unwrap();
    for isolation in every_isolation(root.path()) {
        let (mut bench, pids) = stubborn("while :; do sleep 1000; done", isolation);
        bench.spec.term_grace_ms = 3_600_000;
        let (mut handle, _) = bench.run();
        bench.await_log("all started");
        assert_eq!(living(&pids).len(), 3);
        handle.kill().unwrap();
        assert_eq!(exit_of(&mut handle).signal, Some(9));
        assert_eq!(living(&pids), [""; 0], "{:?}", bench.spec.isolation);
        assert_eq!(bench.cgroups(), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn leftovers_are_asked_before_they_are_ended() {
    let mut bench = Bench::new(
        "(trap 'echo asked; exit' TERM; touch \"$1\"; while :; do sleep 0.05; done) & until [ -e \"$1\" ]; do sleep 0.01; done",
    );
    let up = bench.root.path().join("up");
    bench.spec.argv.extend(["x".to_owned(), up.to_str().unwrap().to_owned()]);
    bench.spec.term_grace_ms = 60_000;
    assert_eq!(bench.run_to_exit(), Exit::succeeded());
    assert!(bench.log().contains("asked"), "{}", bench.log());
}

#[test]
fn terminate_reaches_the_whole_group_even_the_stopped() {
    let bench = Bench::new(
        "trap 'echo rank; wait; exit 5' TERM; sh -c 'trap \"echo child; exit\" TERM; echo up $$ .; while :; do sleep 0.05; done' & while :; do sleep 0.05; done",
    );
    let (mut handle, _) = bench.run();
    bench.await_log(".\n");
    let child: i32 = bench.log().split(' ').nth(1).unwrap().parse().unwrap();
    kill(child, Signal::SIGSTOP);
    let state = || fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
    eventually(|| state().contains(") T "), state);
    handle.terminate().unwrap();
    assert_eq!(exit_of(&mut handle), Exit::code(5));
    assert!(bench.log().contains("rank") && bench.log().contains("child"), "{}", bench.log());
}

#[test]
fn an_advisory_signal_goes_only_to_a_rank_that_handles_it() {
    let bench = Bench::new(
        "trap 'echo saved' USR1; (trap 'echo child' USR1; while :; do sleep 0.05; done) & echo up; while :; do sleep 0.05; done",
    );
    let (mut handle, pid) = bench.run();
    bench.await_log("up");
    handle.signal(10).unwrap();
    let said = until(&mut handle, |e| matches!(e, ShimEvent::Signalled { .. }));
    assert!(matches!(said, ShimEvent::Signalled { number: 10, delivered: true, .. }), "{said:?}");
    bench.await_log("saved");
    // No handler: it would end the rank.
    for number in [12, 9, 0, -1, 64, i32::MAX, i32::MIN] {
        handle.signal(number).unwrap();
        let said = until(&mut handle, |e| matches!(e, ShimEvent::Signalled { .. }));
        assert!(matches!(said, ShimEvent::Signalled { delivered: false, .. }), "{said:?}");
    }
    assert!(phalanx_node::Process::find(pid).is_some());
    assert!(!bench.log().contains("child"));
    handle.kill().unwrap();
    exit_of(&mut handle);
}

#[test]
fn a_secret_is_an_open_file_and_nowhere_else() {
    const VALUE: &str = "tr0ub4dor-and-3";
    let mut bench = Bench::new(
        "read -r s < /proc/self/fd/$PHALANX_SECRET_API_KEY_FD; [ \"$s\" = \"$(cat \"$1\")\" ] && echo same; while :; do sleep 0.05; done",
    );
    let path = bench.root.path().join("secret");
    fs::write(&path, format!("{VALUE}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    bench.spec.secrets = vec![Secret { name: "API_KEY".into(), path: path.clone() }];
    bench.spec.argv.extend(["x".to_owned(), path.to_str().unwrap().to_owned()]);
    let (mut handle, pid) = bench.run();
    bench.await_log("same");
    let shim = bench.shim_pid();
    for file in [pid, shim].iter().flat_map(|p| [format!("/proc/{p}/cmdline"), format!("/proc/{p}/environ")])
    {
        let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        assert!(!text.contains(VALUE), "{file}: {text}");
    }
    for entry in fs::read_dir(bench.dir()).unwrap().flatten().filter(|e| e.file_name() != "ctl.sock") {
        assert!(!fs::read_to_string(entry.path()).unwrap().contains(VALUE), "{:?}", entry.path());
    }
    assert!(!bench.log().contains(VALUE));
    handle.kill().unwrap();
    exit_of(&mut handle);
}

#[test]
fn another_users_rank_has_that_users_rights_alone() {
    if !is_root() {
        return;
    }
    let mut bench = Bench::new(
        "id -u; id -g; id -G; grep NoNewPrivs /proc/self/status; cat \"$1\" || true; cat /proc/self/fd/$PHALANX_SECRET_K_FD; ls /proc/self/fd | wc -l",
    );
    fs::set_permissions(bench.root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (roots, theirs) = (bench.root.path().join("roots"), bench.root.path().join("theirs"));
    fs::write(&roots, "root's\n").unwrap();
    fs::write(&theirs, "nobody's\n").unwrap();
    fs::set_permissions(&roots, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    (bench.spec.uid, bench.spec.gid, bench.spec.groups) = (NOBODY, NOBODY, vec![NOBODY, 12345]);
    bench.spec.argv.extend(["x".to_owned(), roots.to_str().unwrap().to_owned()]);
    bench.spec.secrets = vec![Secret { name: "K".into(), path: theirs }];
    assert_eq!(bench.run_to_exit(), Exit::succeeded());
    let log = bench.log();
    assert!(log.starts_with("65534\n65534\n65534 12345\nNoNewPrivs:\t1\n"), "{log}");
    assert!(
        log.contains("Permission denied") && !log.contains("root's") && log.contains("nobody's"),
        "{log}"
    );
    // stdin, stdout, stderr, the secret, and the folder that ls reads.
    assert!(log.ends_with("\n5\n"), "{log}");

    // What that user cannot read or enter fails before the gate.
    let mut bench2 = Bench::new("echo ran");
    (bench2.spec.uid, bench2.spec.gid) = (NOBODY, NOBODY);
    bench2.spec.secrets = vec![Secret { name: "K".into(), path: roots }];
    let (_, detail) = failure_of(&mut bench2.spawn());
    assert!(detail.contains("Permission denied") && detail.contains("65534"), "{detail}");
    let mut bench3 = Bench::new("echo ran");
    (bench3.spec.uid, bench3.spec.gid) = (NOBODY, NOBODY);
    fs::set_permissions(bench3.root.path(), fs::Permissions::from_mode(0o700)).unwrap();
    bench3.spec.workdir = bench3.root.path().to_owned();
    let (_, detail) = failure_of(&mut bench3.spawn());
    assert!(detail.contains("may not enter"), "{detail}");
}

#[test]
fn much_output_flows_while_nobody_listens() {
    let bench = Bench::new("head -c 50000000 /dev/zero; echo done");
    let mut handle = bench.spawn();
    handle.release().unwrap();
    drop(handle);
    eventually(|| matches!(found(&bench), Found::Ended(_)), || "its end".into());
    assert!(matches!(found(&bench), Found::Ended(exit) if timeless(exit.clone()) == Exit::succeeded()));
    assert_eq!(fs::metadata(&bench.spec.log_path).unwrap().len(), 50_000_005);
}

#[test]
fn a_rank_does_not_outlive_its_killed_shim() {
    let bench = Bench::new("echo up; exec sleep 1000");
    let (_handle, pid) = bench.run();
    bench.await_log("up");
    kill(bench.shim_pid(), Signal::SIGKILL);
    eventually(|| phalanx_node::Process::find(pid).is_none(), || "the rank's end".into());
}

#[test]
fn a_limit_binds_or_is_noted() {
    let mut bench = Bench::new("for i in 1 2 3 4 5 6 7 8; do sleep 1 & done; wait; echo all");
    bench.spec.pids_max = Some(5);
    let mut handle = bench.spawn();
    let ready = until(&mut handle, |e| matches!(e, ShimEvent::Ready { .. }));
    let ShimEvent::Ready { notes, .. } = ready else { panic!() };
    handle.release().unwrap();
    let exit = exit_of(&mut handle);
    if notes.is_empty() {
        assert_ne!(exit, Exit::succeeded(), "{}", bench.log());
        assert!(bench.log().contains("fork"), "{}", bench.log());
    } else {
        assert!(notes[0].contains("pids limit is not enforced"), "{notes:?}");
        assert_eq!(exit, Exit::succeeded());
    }
}

/// Without cgroups no other limit binds.
#[test]
fn the_processes_of_a_user_are_limited_without_cgroups() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped the_processes_of_a_user_are_limited_without_cgroups: needs root");
        return;
    }
    let mut bench = Bench::new("for i in $(seq 40); do sleep 1 & done; wait; echo all");
    bench.spec.isolation = IsolationChoice::ProcessGroups;
    // A user with no process on this machine.
    (bench.spec.uid, bench.spec.gid, bench.spec.pids_of_user) = (64_971, 64_971, Some(20));
    assert_ne!(bench.run_to_exit(), Exit::succeeded(), "{}", bench.log());
    assert!(bench.log().contains("fork"), "{}", bench.log());
}

#[test]
fn without_cgroups_limits_are_noted_and_nothing_fails() {
    let mut bench = Bench::new("exit 0");
    bench.spec.isolation = IsolationChoice::ProcessGroups;
    (bench.spec.memory_bytes, bench.spec.cpu_milli, bench.spec.rdma) = (Some(1 << 30), Some(500), true);
    let mut handle = bench.spawn();
    let ready = until(&mut handle, |e| matches!(e, ShimEvent::Ready { .. }));
    assert!(matches!(&ready, ShimEvent::Ready { notes, .. } if notes.len() >= 2), "{ready:?}");
    handle.release().unwrap();
    assert_eq!(exit_of(&mut handle), Exit::succeeded());
}

#[test]
fn a_program_that_needs_too_much_memory_ends_and_it_is_said_why() {
    let mut bench = Bench::new("head -c 300000000 /dev/zero | tail -c 300000000 > /dev/null");
    bench.spec.memory_bytes = Some(50_000_000);
    let mut handle = bench.spawn();
    let ShimEvent::Ready { notes, .. } = until(&mut handle, |e| matches!(e, ShimEvent::Ready { .. })) else {
        panic!()
    };
    if notes.is_empty() {
        handle.release().unwrap();
        let exit = exit_of(&mut handle);
        assert_eq!(exit.shell_code(), Some(137), "{exit:?} {}", bench.log());
        assert!(exit.detail.contains("out of memory"), "{exit:?}");
    }
}

#[test]
fn affinity_and_the_limits_of_rdma_are_inherited() {
    let mut bench = Bench::new("nproc; ulimit -l; ulimit -n");
    (bench.spec.cpus, bench.spec.rdma) = (vec![0], true);
    let mut handle = bench.spawn();
    let ShimEvent::Ready { notes, .. } = until(&mut handle, |e| matches!(e, ShimEvent::Ready { .. })) else {
        panic!()
    };
    handle.release().unwrap();
    assert_eq!(exit_of(&mut handle), Exit::succeeded());
    let log = bench.log();
    assert!(log.starts_with("1\n"), "{log}");
    assert!(
        log.contains("unlimited") || notes.iter().any(|n| n.contains("locked-memory")),
        "{log} {notes:?}"
    );
    // A root without CAP_SYS_RESOURCE cannot raise its hard limit either.
    let (_, hard) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    let files: u64 = log.lines().last().unwrap().parse().unwrap();
    assert!(files == 1_048_576 || files == hard, "{log}");
}

/// Groups made, joined, emptied and removed without a shim.
#[test]
fn a_group_takes_a_process_and_ends_it() {
    let root = tempfile::tempdir().unwrap();
    for choice in every_isolation(root.path()) {
        let isolation = choice.detect();
        let mut group = isolation.group(&format!("test-group-{}", std::process::id()));
        group.create(&phalanx_node::Limits::default());
        if group.is_empty() {
            continue;
        }
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = phalanx_node::Process::find(i32::try_from(child.id()).unwrap()).unwrap();
        group.join(process).unwrap();
        assert_eq!(group.processes().into_iter().collect::<Vec<_>>(), [process], "{isolation}");
        assert!(group.remove().is_err(), "{isolation}: in use");
        eventually(
            || {
                group.kill();
                group.processes().is_empty()
            },
            || format!("{isolation}: empty"),
        );
        child.wait().unwrap();
        eventually(|| group.remove().is_ok(), || format!("{isolation}: removed"));
    }
}
