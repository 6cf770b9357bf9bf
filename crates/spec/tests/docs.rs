//! The examples of the documentation are files that are read.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::Path;

use common::context;
use phalanx_spec::{ClusterFile, JobFile};

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
    for page in ["README.md", "docs/job-file.md", "docs/cluster-file.md"] {
        for (index, text) in blocks(page).iter().enumerate() {
            let shown = format!("{page}, example {}", index + 1);
            let result = if text.starts_with("# cluster") {
                ClusterFile::from_yaml(text, &shown).and_then(ClusterFile::into_cluster).map(|_| ())
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
        let yaml = format!("{said}\nrun: x\n{}", if said.contains("segments") { "ranks: 32\n" } else { "" });
        let job = JobFile::from_yaml(&yaml, "table").and_then(|file| file.into_job(context()));
        job.unwrap_or_else(|error| panic!("{error}"));
        read += 1;
    }
    assert!(read >= 15, "{read} short forms");
}
