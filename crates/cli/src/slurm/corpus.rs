//! Scripts in the shapes that people write, each with what becomes of it or the option that is refused.

use std::fmt::Write as _;

use super::job::{self, Wanted};
use super::layout::Largest;
use super::options::Where;
use super::script;

/// The table: scripts between lines of `===`, each with its outcome after `---`.
const CORPUS: &str = include_str!("../../tests/slurm/corpus.txt");
const SEPARATOR: &str = "\n===\n";

/// What a reader of the table wants to know of a job.
fn outcome(text: &str) -> String {
    let from = Where { command: "sbatch", place: None };
    let largest = Largest {
        gpus: 8,
        cpus: 128,
        models: vec!["8 × NVIDIA H100 80GB".to_owned(), "8 × NVIDIA A100-SXM4-80GB".to_owned()],
    };
    let levels = ["block".to_owned(), "leaf".to_owned()];
    let now = jiff::civil::date(2026, 11, 21).at(12, 30, 0, 0).to_zoned(jiff::tz::TimeZone::UTC).unwrap();
    let given = match script::options("job.sh", text) {
        Ok(given) => given,
        Err(failure) => return format!("refused: {}\n", failure.message),
    };
    let wanted = match job::read(&given, &largest, &levels, from, &now) {
        Ok(wanted) => wanted,
        Err(failure) => return format!("refused: {}\n", failure.message),
    };
    let mut said = described(&wanted);
    for (flag, why) in given.notes.iter().filter(|(_, why)| !why.is_empty()) {
        let _ = writeln!(said, "note: --{flag}: {why}");
    }
    said
}

/// The flags of `phalanx submit` that say the same.
fn described(Wanted { args, facts }: &Wanted) -> String {
    let mut text =
        format!("nodes {}, tasks {}", facts.nodes, facts.nodes.saturating_mul(facts.tasks_per_node));
    let mut add = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            let _ = write!(text, ", {name} {value}");
        }
    };
    add("gpus-per-node", args.gpus_per_node.as_deref());
    add("gpus-per-task", facts.gpus_per_task.map(|n| n.to_string()).as_deref());
    add("cpus", args.cpus.as_deref());
    add("memory", args.memory.as_deref());
    add("time", args.time.as_deref());
    add("queue", args.queue.as_deref());
    add("class", args.class.as_deref());
    add("priority", args.priority.as_deref());
    add("array", args.array.as_deref());
    add("begin", args.begin.as_deref());
    add("topology", args.topology.as_deref());
    add("signal", args.signal.as_deref());
    add("retry", args.retry.as_deref());
    add("preempt", args.preempt.as_deref());
    add("workdir", args.workdir.as_deref());
    for (name, list) in [
        ("after", &args.after),
        ("node", &args.named),
        ("exclude", &args.exclude),
        ("resource", &args.resource),
    ] {
        add(name, (!list.is_empty()).then(|| list.join(",")).as_deref());
    }
    add("exclusive", args.exclusive.then_some("yes"));
    add("hold", args.hold.then_some("yes"));
    add("output", facts.output.as_deref());
    add("error", facts.error.as_deref());
    text.push('\n');
    text
}

#[test]
fn every_script_of_the_corpus_becomes_what_it_says_or_is_refused_by_name() {
    let mut seen = String::new();
    let mut count = 0;
    for part in CORPUS.trim_end().split(SEPARATOR) {
        let (text, _) = part.split_once("\n---\n").unwrap_or_else(|| panic!("no outcome: {part}"));
        let script = format!("{}\n", text.trim_start_matches("===\n"));
        let before = if seen.is_empty() { "" } else { "===\n" };
        let _ = write!(seen, "{before}{script}---\n{}", outcome(&script));
        count += 1;
    }
    if std::env::var_os("UPDATE").is_some() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slurm/corpus.txt");
        std::fs::write(path, &seen).unwrap();
    }
    assert_eq!(seen, CORPUS, "UPDATE=1 writes the outcomes anew");
    assert!(count >= 30, "{count} scripts");
}

mod any {
    use proptest::prelude::*;

    use super::outcome;

    proptest! {
        /// Options of every kind with values that fit or do not: the script is read, or refused with a message.
        #[test]
        fn no_script_panics(lines in proptest::collection::vec(
            "(-[JNncGtadwxbpCDHo]|--(nodes|ntasks|ntasks-per-node|gpus|gpus-per-node|gpus-per-task|gres|mem|mem-per-cpu|mem-per-gpu|cpus-per-gpu|time|array|begin|signal|switches|nice|dependency|nodelist|constraint|exclusive|export))[= ]?([0-9]{1,12}|[a-zA-Z0-9:,@%_.+|\\[\\]-]{0,16})",
            0..6,
        )) {
            let text: String = lines.iter().map(|line| format!("#SBATCH {line}\n")).collect();
            let said = outcome(&format!("#!/bin/bash\n{text}true\n"));
            prop_assert!(said.starts_with("nodes ") || said.starts_with("refused: sbatch: "), "{}", said);
        }

        #[test]
        fn no_text_panics(text in "#!(\\PC|\n#SBATCH |\n){0,40}") {
            let _ = outcome(&text);
        }
    }
}
