//! The examples of the documentation are files that are read.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::Path;

use common::context;
use phalanx_spec::{ClusterFile, JobFile, Preset, QueueFile};

/// The YAML blocks of a page.
fn blocks(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.map(str::to_owned).collect()
}

#[test]
fn examples_are_read() {
    let mut read = 0;
    let pages = [
        "README.md",
        "docs/job-file.md",
        "docs/cluster-file.md",
        "docs/queue-file.md",
        "docs/reference/policy.md",
        "docs/operate/recovery.md",
        "docs/how-to.md",
        "docs/tutorials/one-machine.md",
        "docs/tutorials/from-slurm.md",
    ];
    for page in pages {
        for (index, text) in blocks(page).iter().enumerate() {
            let shown = format!("{page}, example {}", index + 1);
            let result = if text.starts_with("# cluster") {
                ClusterFile::from_yaml(text, &shown).and_then(ClusterFile::into_cluster).map(|_| ())
            } else if text.starts_with("# queues") {
                QueueFile::from_yaml(text, &shown).and_then(QueueFile::into_policy).map(|_| ())
            } else {
                JobFile::from_yaml(text, &shown).and_then(|file| file.into_job(context())).map(|_| ())
            };
            result.unwrap_or_else(|error| panic!("{error}"));
            read += 1;
        }
    }
    assert!(read >= 15, "{read} examples");
}

/// The short forms in tables, each as a file of its own.
#[test]
fn short_forms_are_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/job-file.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut read = 0;
    for line in text.lines() {
        let Some(said) = line.strip_prefix("| `").and_then(|rest| rest.split("` |").next()) else { continue };
        let Some((field, _)) = said.split_once(": ") else { continue };
        let said = said.replace("\\|", "|");
        let said = if field == "gpus" { format!("resources: {{{said}}}") } else { said };
        let ranks = match field {
            "topology" if said.contains("segments") => "ranks: 32\n",
            "elastic" => "ranks: 8\n",
            _ => "",
        };
        let yaml = format!("{said}\nrun: x\n{ranks}");
        let job = JobFile::from_yaml(&yaml, "table").and_then(|file| file.into_job(context()));
        job.unwrap_or_else(|error| panic!("{error}"));
        read += 1;
    }
    assert!(read >= 15, "{read} short forms");
}

/// Rows of the first table below a line of a page, without the heads.
fn table(page: &str, below: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let (_, rest) = text.split_once(below).unwrap_or_else(|| panic!("{page} has no {below:?}"));
    let rows =
        rest.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells =
        |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
    rows.skip(2).map(cells).collect()
}

/// The defaults that both pages tell are those of the code, all of them.
#[test]
fn the_defaults_are_those_that_are_told() {
    for page in ["docs/queue-file.md", "docs/reference/policy.md"] {
        tells_the_defaults(page);
    }
}

fn tells_the_defaults(page: &str) {
    let (mut yaml, mut told) = ("classes:\n".to_owned(), vec!["classes".to_owned()]);
    for row in table(page, "The classes that are built in:\n") {
        let fields = ["name", "rank", "preemptible", "preempts", "min_run", "grace_max"];
        assert_eq!(row.len(), fields.len(), "{row:?}");
        let said = fields.iter().zip(&row).filter(|(_, value)| !value.is_empty());
        let said: Vec<String> = said.map(|(field, value)| format!("{field}: {value}")).collect();
        yaml += &format!("  - {{{}}}\n", said.join(", "));
    }
    for row in table(page, "## Defaults\n") {
        if (&*row[0], &*row[1]) != ("spares", "none") {
            yaml += &format!("{}: {}\n", row[0], row[1]);
        }
        told.push(row[0].clone());
    }
    let file = QueueFile::from_yaml(&yaml, page).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(file.into_policy().unwrap().settings, Preset::default().settings(), "{yaml}");
    let schema = phalanx_spec::queues_schema();
    let mut known: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    known.retain(|field| *field != "queues");
    known.sort();
    told.sort();
    assert!(told.iter().eq(known.iter().copied()), "told: {told:?}, known: {known:?}");
}
