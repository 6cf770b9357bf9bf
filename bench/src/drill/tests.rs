use std::collections::BTreeSet;

use phalanx_health::{Action, xid};

use super::catalogue::FAULTS;
use super::hardware::xid_of;
use super::page;
use super::record::{
    Basis, Check, Note, Notice, Phases, Quote, Record, Report, Sample, Steps, Verdict, time,
};
use super::settings::Settings;
use super::strip::{Segment, segments};

fn record() -> Record {
    let at = |ms: u64, attempt, step| Sample { at_ms: 10_000 + ms, attempt, step };
    Record {
        id: "rank-killed",
        title: "A rank is killed",
        basis: Basis { real: "ranks", declared: "nodes", emulated: "nothing" },
        notice: Notice::Reports,
        verdict: Verdict::Passed,
        why: None,
        checks: vec![Check {
            expected: "the gang restarts".to_owned(),
            holds: true,
            found: "1 < 2".to_owned(),
        }],
        done: Vec::new(),
        noticed: vec![Quote {
            from: "phalanx get 1 -o json".to_owned(),
            at_ms: Some(30),
            text: "<b>&".to_owned(),
        }],
        injected: "sent SIGKILL to rank 2".to_owned(),
        fault_ms: Some(10_000),
        phases: Phases {
            noticed_ms: Some(30),
            stopping_ms: Some(30),
            stopped_ms: Some(50),
            placed_ms: Some(50),
            running_ms: Some(150),
            first_step_ms: Some(200),
            ended_ms: Some(9_000),
        },
        steps: Steps {
            total: Some(100),
            at_fault: 25,
            resumed_from: Some(20),
            again: 5,
            pause_ms: Some(205),
        },
        has_job: true,
        result: Some("100 steps".to_owned()),
        placed: Default::default(),
        samples: vec![at(0, 1, 25), at(200, 2, 21), at(230, 2, 22)],
        took_ms: 9_500,
    }
}

fn report(faults: Vec<Record>) -> Report {
    Report {
        setting: super::SETTING,
        began_ms: 0,
        took_ms: 9_500,
        version: "0",
        machine: "one machine".to_owned(),
        faults,
    }
}

#[test]
fn faults_have_names_of_their_own_and_each_class_of_xids_has_one() {
    let ids: BTreeSet<&str> = FAULTS.iter().map(|fault| fault.id).collect();
    assert_eq!(ids.len(), FAULTS.len());
    for action in Action::ALL {
        assert_eq!(xid::verdict(xid_of(action), None, "").action, action);
        assert!(ids.contains(format!("xid-{}", action.word().replace('_', "-")).as_str()), "{action}");
    }
}

#[test]
fn a_fault_that_does_not_exist_is_refused() {
    let parse = |args: &[&str]| {
        Settings::parse(
            "drill",
            &FAULTS.each_ref().map(|fault| fault.id),
            &args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(parse(&["--only", "rank-killed", "--dev"]).unwrap().only, ["rank-killed"]);
    assert!(parse(&["--only", "rank"]).err().unwrap().contains("faults are rank-killed, "));
    assert_eq!(parse(&["--page"]).err().unwrap(), "--page has no value");
    assert!(parse(&["--pages"]).is_err());
}

#[test]
fn a_bar_shows_the_phases_that_were_reached() {
    let of = |phases: &Phases| -> Vec<(&str, i64, i64)> {
        let all = segments(phases, Notice::Reports, [-100, 300]);
        all.iter().map(|Segment { label, from_ms, to_ms, .. }| (*label, *from_ms, *to_ms)).collect()
    };
    let restarted = [
        ("runs", -100, 0),
        ("not noticed yet", 0, 30),
        ("stops", 30, 50),
        ("starts", 50, 150),
        ("runs", 150, 300),
    ];
    assert_eq!(of(&record().phases), restarted);
    let stays = Phases { noticed_ms: Some(40), ..Phases::default() };
    assert_eq!(of(&stays), [("runs", -100, 0), ("not noticed yet", 0, 40), ("runs on", 40, 300)]);
}

#[test]
fn a_page_needs_nothing_else_and_quotes_as_text() {
    let page = page::page(&report(vec![record()]));
    for part in ["http:", "https:", "src=", "@import", "url(", "<b>&<"] {
        assert!(!page.contains(part), "{part}");
    }
    assert!(page.contains("&lt;b&gt;&amp;") && page.contains("1 &lt; 2"));
    assert!(page.contains("The gang restarted from step 20"), "{page}");
}

#[test]
fn a_summary_counts_jobs_and_faults() {
    let skipped =
        || Record { verdict: Verdict::PassedOver, has_job: false, result: None, fault_ms: None, ..record() };
    let two = report(vec![record(), record()]).summary();
    assert!(two.starts_with("All 2 gang jobs ") && two.ends_with(" in all 2 faults."), "{two}");
    let failed = Record { verdict: Verdict::Failed, result: None, ..record() };
    assert_eq!(
        report(vec![record(), skipped()]).summary(),
        "The gang job finished with the correct result, and Phalanx met every expectation in the fault. One fault was \
         passed over."
    );
    assert_eq!(
        report(vec![record(), failed]).summary(),
        "1 of 2 gang jobs finished with the correct result, and 1 of 2 faults failed."
    );
    let none = report(vec![skipped()]);
    assert_eq!(none.summary(), "No fault was injected. One fault was passed over.");
    assert!(
        none.is_empty() && page::page(&none).contains("<span class=\"badge passed_over\">nothing tried<")
    );
    let early = Record { verdict: Verdict::Failed, has_job: false, result: None, ..record() };
    assert_eq!(report(vec![early]).summary(), "No gang job ran, and 1 of 1 faults failed.");
}

#[test]
fn nothing_of_a_fault_that_was_not_injected_has_a_time() {
    let note = Note { at_ms: None, what: "started a gang".to_owned() };
    let early = Record {
        verdict: Verdict::Failed,
        fault_ms: None,
        phases: Phases::default(),
        done: vec![note],
        noticed: Vec::new(),
        ..record()
    };
    let page = page::page(&report(vec![early]));
    assert!(page.contains("<dt></dt><dd>started a gang</dd>") && !page.contains("<svg"), "{page}");
}

#[test]
fn times_are_short() {
    assert_eq!([0, 999, 1_499, 59_999, 64_000].map(time), ["0 ms", "999 ms", "1.4 s", "59.9 s", "1 m 04 s"]);
    assert_eq!(time(-250), "−250 ms");
}
