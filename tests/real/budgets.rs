//! Prices with multipliers, budgets of queues, and advice from what jobs did.

use std::collections::BTreeMap;

use phalanx_account::advice::What;
use phalanx_api::protocol::{
    AdviceView, AdviseAsk, Answer, BillAsk, BillBy, BillView, JobRef, QueueView, Verb,
};
use phalanx_model::{Budget, FailureClass, Job, JobId, JobUpdate, Period, Queue, QueueName};

use crate::story::settings;
use crate::support::{Bench, NOBODY, gang, is_root, refused, retry, shell, until};

const PRICED: &str = "nodes:
- {name: n1, devices: {count: 8, model: Test GPU}, price: 3600}
prices:
  classes: {opportunistic: 0.5}
  hours: [{times: 1.25}]
";

fn on_gpus(queue: &str, count: u32, script: &str) -> Job {
    let mut job = shell(1, script);
    job.queue = QueueName::new(queue).unwrap();
    gang(&mut job).needs.devices = count;
    job
}

/// `vision` has a budget for its child, and `speech` has none.
fn apply(bench: &Bench, amount_micro: u64, holds: bool) {
    let queue = |name: &str| Queue::named(QueueName::new(name).unwrap());
    let budget = Some(Budget { amount_micro, per: Period::Month, warn_milli: 0, holds });
    let vision = Queue { budget, ..queue("vision") };
    let train = Queue { parent: Some(vision.name.clone()), ..queue("train") };
    let queues = vec![vision, train, queue("speech")];
    bench.done(Verb::ApplyQueues { settings: Box::new(settings()), queues });
}

fn bill(bench: &Bench, by: BillBy) -> BillView {
    match bench.ask(Verb::Bill(BillAsk { by: vec![by], ..BillAsk::default() })) {
        Ok(Answer::Bill(view)) => view,
        other => panic!("{other:?}"),
    }
}

fn queues(bench: &Bench) -> Vec<QueueView> {
    match bench.ask(Verb::Queues) {
        Ok(Answer::Queues(queues)) => queues,
        other => panic!("{other:?}"),
    }
}

fn notices(bench: &Bench) -> Vec<String> {
    std::fs::read_to_string(bench.path("notices"))
        .map(|text| text.lines().map(str::to_owned).collect())
        .unwrap_or_default()
}

#[test]
fn prices_are_multiplied_and_the_bill_says_by_what() {
    let bench = Bench::up_with(PRICED);
    let mut cheap = on_gpus("default", 2, "exec sleep 1000");
    cheap.turn.class = Some(phalanx_model::ClassName::new("opportunistic").unwrap());
    let cheap = bench.submit(cheap);
    bench.await_state(cheap, "running");
    until("time on a GPU", || bill(&bench, BillBy::Rate).lines.len() > 1);
    let view = bill(&bench, BillBy::Rate);
    let rules: Vec<&str> = view.lines.iter().map(|line| line.of[0].as_str()).collect();
    assert_eq!(rules, ["class opportunistic 0.5, hours 1.25", "hours 1.25"]);
    for (line, milli_per_s) in view.lines.iter().zip([625, 1_250]) {
        // A GPU costs a unit a second without multipliers.
        assert_eq!(line.list_cost_micro, line.total_us(), "{line:?}");
        assert_eq!(line.cost_micro, line.total_us() * milli_per_s / 1_000, "{line:?}");
        assert_eq!(line.rates, BTreeMap::from([(line.of[0].clone(), line.total_us())]));
    }
}

#[test]
fn a_spent_budget_holds_what_is_pending_until_it_is_larger() {
    let mut bench = Bench::up_with(PRICED);
    apply(&bench, 1_000_000_000_000, true);
    let mut runs = on_gpus("train", 6, "exec sleep 1000");
    gang(&mut runs).program.notify =
        Some(format!("echo $PHALANX_EVENT >> {}", bench.path("notices").display()));
    let runs = bench.submit(runs);
    bench.await_state(runs, "running");
    let before = bench.submit(on_gpus("train", 4, "true"));
    let held_by_user = bench.submit(on_gpus("train", 4, "true"));
    bench.done(Verb::Hold { job: JobRef::Id(held_by_user) });

    apply(&bench, 0, true);
    let after = bench.submit(on_gpus("train", 1, "true"));
    let other = bench.submit(on_gpus("speech", 1, "true"));
    assert_eq!(bench.ended(other).state, "succeeded");
    for job in [before, after] {
        until("the hold", || bench.get(job).reason == "Held");
        let view = bench.get(job);
        assert_eq!((view.state.as_str(), view.reason.as_str()), ("pending", "Held"), "{view:#?}");
        assert!(view.detail.contains("held by the budget of queue vision; it renews 20"), "{view:#?}");
        let why = refused(bench.ask(Verb::Release { job: JobRef::Id(job) }));
        assert!(why.message.contains("budget of queue vision"), "{why:?}");
    }
    assert_eq!(bench.get(runs).state, "running", "what runs goes on");
    // A hold of a user gives way to that of the budget, and not the other way round.
    let held = bench.get(held_by_user).detail;
    assert!(!held.contains("budget"), "{held}");
    let done = bench.done(Verb::Release { job: JobRef::Id(held_by_user) });
    assert!(done.contains("now waits for the budget of queue vision"), "{done}");
    assert!(bench.get(held_by_user).detail.contains("held by the budget of queue vision"));
    bench.done(Verb::Hold { job: JobRef::Id(held_by_user) });
    let budgets = |bench: &Bench| notices(bench).iter().filter(|event| *event == "budget").count();
    until("a notice", || budgets(&bench) == 1);
    assert!(bench.warnings().iter().any(|warning| warning.contains("budget of queue vision")));
    let spent = queues(&bench).into_iter().find(|queue| queue.name == "vision").unwrap().budget.unwrap();
    assert_eq!((spent.budget.amount_micro, spent.budget.holds), (0, true));

    // The hold and what was said of it stay over a restart.
    bench.kill();
    bench.up();
    let at_once = bench.submit(on_gpus("train", 1, "true"));
    assert_eq!(bench.get(at_once).reason, "Held", "the budget is known before the daemon serves");
    until("the hold", || bench.get(before).reason == "Held");
    apply(&bench, 0, true);
    assert_eq!(budgets(&bench), 1, "it is said once");
    let holds = bench.get(before).events.into_iter().filter(|event| event.what == "held").count();
    assert_eq!(holds, 1, "its hold began once");

    apply(&bench, 1_000_000_000_000, true);
    bench.await_state(after, "succeeded");
    until("the release", || bench.get(before).reason == "Resources");
    assert!(bench.get(held_by_user).detail.starts_with("held by "), "a user holds it");
    apply(&bench, 0, false);
    let more = bench.submit(on_gpus("train", 1, "true"));
    assert_eq!(bench.ended(more).state, "succeeded", "it only warns");
}

#[test]
fn a_spent_budget_holds_what_runs_once_it_stops() {
    let bench = Bench::up_with(PRICED);
    apply(&bench, 1_000_000_000_000, true);
    let tries = bench.path("tries");
    let mut fails = on_gpus(
        "train",
        1,
        &format!("echo >> {0}; while [ ! -e {0}.fail ]; do sleep 0.05; done; exit 3", tries.display()),
    );
    fails.policy.retry = retry(20, &[FailureClass::UserCode]);
    let (fails, requeued) = (bench.submit(fails), bench.submit(on_gpus("train", 1, "exec sleep 1000")));
    let moved = bench.submit(on_gpus("speech", 8, "true"));
    for job in [fails, requeued] {
        bench.await_state(job, "running");
    }
    apply(&bench, 0, true);
    assert_eq!([fails, requeued].map(|job| bench.get(job).state), ["running", "running"]);
    let update = JobUpdate { queue: Some(QueueName::new("train").unwrap()), ..JobUpdate::default() };
    bench.done(Verb::Update { job: JobRef::Id(moved), update });
    assert!(bench.get(moved).detail.contains("held by the budget of queue vision"));
    std::fs::write(tries.with_extension("fail"), "").unwrap();
    bench.done(Verb::Requeue { job: JobRef::Id(requeued), hold: false });
    for job in [fails, requeued] {
        until("the hold", || bench.get(job).state == "pending" && bench.get(job).reason == "Held");
    }
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(bench.get(fails).reason, "Held");
    assert_eq!(std::fs::read_to_string(&tries).unwrap().lines().count(), 1, "it does not start again");
    let update = JobUpdate { queue: Some(QueueName::new("speech").unwrap()), ..JobUpdate::default() };
    bench.done(Verb::Update { job: JobRef::Id(moved), update });
    assert_eq!(bench.ended(moved).state, "succeeded", "the budget of another queue does not hold it");
}

fn advice(answers: &[Answer]) -> AdviceView {
    match answers {
        [Answer::Advice(view)] => view.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn users_get_advice_on_their_own_jobs_from_the_time_that_these_took() {
    if !is_root("users_get_advice_on_their_own_jobs_from_the_time_that_these_took") {
        return;
    }
    let bench = Bench::up_with(PRICED);
    let all = Verb::Advise(AdviseAsk::default());
    assert_eq!(advice(&bench.ask_as(0, &all)).jobs, []);
    let mut job = on_gpus("default", 1, "true");
    job.policy.time_limit_ms = Some(24 * 3_600_000);
    let ids: Vec<JobId> = (0..3).map(|_| bench.submit(job.clone())).collect();
    let verb = Verb::Submit { job: Box::new(job), secrets: BTreeMap::new() };
    let answers = bench.ask_as(NOBODY, &verb);
    let [Answer::Submitted { job: others, .. }] = answers.as_slice() else { panic!("{answers:?}") };
    for id in ids.into_iter().chain([*others]) {
        assert_eq!(bench.ended(id).state, "succeeded");
    }
    let view = advice(&bench.ask_as(0, &all));
    assert_eq!(view.jobs.len(), 2, "{view:#?}");
    let [limit] = view.jobs[0].advice.as_slice() else { panic!("{view:#?}") };
    assert!(
        matches!(limit.what, What::TimeLimit { now_ms: Some(86_400_000), next_ms: 60_000, .. }),
        "{limit:?}"
    );
    assert_eq!((limit.runs, view.jobs[0].sampled_runs), (3, 0), "declared GPUs are not sampled");
    let mine = advice(&bench.ask_as(NOBODY, &all));
    assert_eq!((mine.jobs.len(), mine.jobs[0].uid, mine.jobs[0].runs), (1, NOBODY, 1));
    assert_eq!(mine.jobs[0].advice, [], "one run is not enough");
}
