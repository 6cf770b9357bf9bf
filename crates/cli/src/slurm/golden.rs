//! Lists as they look, from hand-made answers. `UPDATE=1 cargo test -p phalanx-cli` writes the pages anew; read the
//! difference before it is committed.

use std::path::Path;

use jiff::tz::TimeZone;
use phalanx_api::protocol::{ArrayView, JobView};
use phalanx_model::{JobId, Phase, Progress, Tasks};

use super::rows::{self, Row};
use super::{sacct, scontrol, sinfo, squeue};
use crate::show::golden::views;

fn same(name: &str, shown: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("slurm-{name}.txt"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, shown).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(shown, known, "{name} differs; UPDATE=1 writes it anew\n{shown}");
}

/// An array of ten tasks, of which one runs.
fn array() -> JobView {
    let mut view = JobView { id: JobId(12), name: "sweep".to_owned(), ..views::running() };
    let progress = Progress { pending: 7, running: 1, succeeded: 2, ..Progress::default() };
    let numbers = Tasks::read("1-10").unwrap();
    view.array =
        Some(Box::new(ArrayView { numbers, tasks: 10, running_max: Some(2), progress, left_out: 9 }));
    view.gangs.truncate(1);
    for gang in &mut view.gangs {
        gang.task = Some(3);
        gang.phase = Some(Phase::Running { since: views::ago(60) });
    }
    view
}

fn all() -> Vec<Row> {
    views::jobs().iter().chain([&array()]).flat_map(rows::of).collect()
}

#[test]
fn lists_have_slurms_columns_and_words() {
    same("squeue", &squeue::usual(None, &all(), views::NOW));
    let format = "%i|%F|%K|%T|%r|%b|%S|%e|%V|%Q|%N|%C|%L";
    same("squeue-format", &squeue::usual(Some(format), &all(), views::NOW));
    same("sacct", &sacct::usual(None, false, &all(), views::NOW));
    let format =
        "JobID,JobName%20,User,State%20,ExitCode,Elapsed,Start,End,NodeList,AllocTRES,ReqMem,Timelimit";
    same("sacct-parsable", &sacct::usual(Some(format), true, &all(), views::NOW));
    same("sinfo", &sinfo::usual(None, &views::nodes(), &views::queues(), views::NOW));
    same(
        "sinfo-nodes",
        &sinfo::usual(Some("%20N %.6D %9P %.6t"), &views::nodes(), &views::queues(), views::NOW),
    );
    same(
        "sinfo-format",
        &sinfo::usual(Some("%P|%D|%T|%C|%m|%G|%F|%E"), &views::nodes(), &views::queues(), views::NOW),
    );
}

#[test]
fn one_job_and_one_node_have_slurms_lines() {
    let mut view = views::running();
    view.job = Some(Box::new(views::job()));
    let text: String = rows::of(&view)
        .iter()
        .map(|row| scontrol::job_text(row, views::NOW, &TimeZone::UTC, false))
        .collect();
    same("scontrol-job", &text);
    let nodes = views::nodes();
    let text: String = nodes
        .nodes
        .iter()
        .map(|node| scontrol::node_text(node, (views::NOW, &TimeZone::UTC), false))
        .collect();
    same("scontrol-node", &text);
}
