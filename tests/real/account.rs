//! What every GPU was for: the account of a daemon over runs, failures and restarts.

use std::collections::BTreeMap;

use phalanx_account::State;
use phalanx_api::protocol::{Answer, BillAsk, BillBy, BillLine, BillView, ErrorCode, Verb};
use phalanx_model::{FailureClass, Job, JobId, NodeName};

use crate::support::{Bench, NOBODY, gang, is_root, refused, retry, shell, until};

const DEVICES: i64 = 8;
const PRICED: &str = "nodes:\n- {name: n1, devices: {count: 8, model: Test GPU}, price: 3.60}\n";

fn on_gpus(count: u32, script: &str) -> Job {
    let mut job = shell(1, script);
    gang(&mut job).needs.devices = count;
    job
}

fn ask(by: &[BillBy]) -> Verb {
    Verb::Bill(BillAsk { by: by.to_vec(), ..BillAsk::default() })
}

pub(crate) fn bill(bench: &Bench, by: &[BillBy]) -> BillView {
    match bench.ask(ask(by)) {
        Ok(Answer::Bill(view)) => view,
        other => panic!("{other:?}"),
    }
}

fn total(view: &BillView) -> i64 {
    view.lines.iter().map(BillLine::total_us).sum()
}

fn states(view: &BillView) -> BTreeMap<State, i64> {
    let mut sums = BTreeMap::new();
    for (state, us) in view.lines.iter().flat_map(|line| &line.device_us) {
        *sums.entry(*state).or_default() += us;
    }
    sums
}

/// The line of a job.
fn of_job(view: &BillView, job: JobId) -> BillLine {
    let of = format!("{job} test");
    view.lines.iter().find(|line| line.of.contains(&of)).cloned().unwrap_or_else(|| panic!("{view:#?}"))
}

/// Between two bills every GPU is charged for exactly the time between them.
pub(crate) fn assert_balances(before: &BillView, after: &BillView, devices: i64) {
    let ms = i64::try_from(after.until.since(before.until)).unwrap();
    assert_eq!(total(after) - total(before), devices * 1_000 * ms, "{before:#?}\n{after:#?}");
}

#[test]
fn every_gpu_is_in_one_account_also_while_the_daemon_is_down() {
    let mut bench = Bench::up_with(PRICED);
    let begun = bill(&bench, &[]);
    let mut fails = on_gpus(2, "sleep 0.3; exit 3");
    fails.policy.retry = retry(1, &[FailureClass::UserCode]);
    let (fails, succeeds) = (bench.submit(fails), bench.submit(on_gpus(1, "sleep 0.3")));
    let runs = bench.submit(on_gpus(4, "exec sleep 1000"));
    assert_eq!(
        (bench.ended(fails).state.as_str(), bench.ended(succeeds).state.as_str()),
        ("failed", "succeeded")
    );
    bench.await_state(runs, "running");

    let first = bill(&bench, &[BillBy::Job]);
    assert_balances(&begun, &first, DEVICES);
    // Two tries, and none of them counted.
    let of_failed = of_job(&first, fails);
    assert_eq!(of_failed.sum(|state| state == State::Running), 0, "{of_failed:?}");
    assert!(of_failed.sum(|state| state == State::LostToFailure) > 0, "{of_failed:?}");
    assert!(of_job(&first, succeeds).sum(|state| state == State::Running) > 0);
    // A GPU costs a thousandth a second.
    let line = of_job(&first, runs);
    assert_eq!(line.cost_micro, line.total_us() * 1_000 / 1_000_000, "{line:?}");

    bench.kill();
    bench.up();
    let second = bill(&bench, &[BillBy::Job]);
    assert_balances(&first, &second, DEVICES);
    let (before, after) = (of_job(&first, runs), of_job(&second, runs));
    let ms = i64::try_from(second.until.since(first.until)).unwrap();
    assert_eq!(after.total_us() - before.total_us(), 4_000 * ms, "it ran throughout");
    let unseen = states(&second).get(&State::Unobserved).copied().unwrap_or_default();
    assert!(unseen > 0 && unseen <= 4_000 * ms, "{second:#?}");

    // What ran before the restart is lost with what ran since.
    bench.done(Verb::Cordon { node: NodeName::new("n1").unwrap(), reason: None });
    let member = bench.alive().into_iter().max().unwrap();
    crate::support::signal(member.1, nix::sys::signal::Signal::SIGKILL);
    assert_eq!(bench.ended(runs).state, "failed");
    let third = bill(&bench, &[BillBy::Job, BillBy::State]);
    assert_balances(&second, &third, DEVICES);
    let lost: i64 = third
        .lines
        .iter()
        .filter(|line| line.of[0].starts_with(&format!("{runs} ")))
        .map(|line| line.sum(|state| state == State::LostToFailure))
        .sum();
    assert!(lost >= after.sum(|state| state == State::Running), "{third:#?}");
    assert!(states(&third).contains_key(&State::Closed), "{third:#?}");
    bench.down();
    bench.up();
    assert_balances(&third, &bill(&bench, &[]), DEVICES);
}

#[test]
fn users_see_what_their_own_jobs_held_and_operators_all_of_it() {
    if !is_root("users_see_what_their_own_jobs_held_and_operators_all_of_it") {
        return;
    }
    let bench = Bench::up_with(PRICED);
    let others = bench.submit(on_gpus(2, "exec sleep 1000"));
    bench.await_state(others, "running");
    let verb = Verb::Submit { job: Box::new(on_gpus(1, "exec sleep 1000")), secrets: BTreeMap::new() };
    let answers = bench.ask_as(NOBODY, &verb);
    let [Answer::Submitted { job, .. }] = answers.as_slice() else { panic!("{answers:?}") };
    bench.await_state(*job, "running");
    let mine = || match bench.ask_as(NOBODY, &ask(&[BillBy::User, BillBy::Job, BillBy::State])).as_slice() {
        [Answer::Bill(view)] => view.clone(),
        other => panic!("{other:?}"),
    };
    until("time on a GPU", || mine().lines.iter().any(|line| line.of[2] == "running"));
    let (mine, all) = (mine(), bill(&bench, &[BillBy::User, BillBy::Job, BillBy::State]));
    assert!(mine.lines.iter().all(|line| line.of[1] == format!("{job} test")), "{mine:#?}");
    assert!(all.lines.iter().any(|line| line.of[1] == format!("{others} test")), "{all:#?}");
    assert!(all.lines.iter().any(|line| line.of[2] == "idle"), "{all:#?}");
    let too_many =
        Verb::Bill(BillAsk { by: vec![BillBy::Queue; BillBy::ALL.len() + 1], ..BillAsk::default() });
    assert_eq!(refused(bench.ask(too_many)).code, ErrorCode::BadRequest);
}
