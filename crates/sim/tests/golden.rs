//! Every scenario prints what stands beside it. `UPDATE=1` writes that anew.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

fn scenarios() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|f| f.extension().is_some_and(|e| e == "scenario")).collect();
    files.sort();
    files
}

#[test]
fn scenarios_print_what_stands_beside_them() {
    let update = std::env::var_os("UPDATE").is_some();
    let mut differing = Vec::new();
    for path in scenarios() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let output = match phalanx_sim::run_scenario(&text) {
            Ok(output) => output,
            Err(error) => {
                differing.push(format!("{name}: {error}\nafter\n{}", error.output));
                continue;
            }
        };
        let golden = path.with_extension("golden");
        if update {
            std::fs::write(&golden, &output).unwrap();
        } else if std::fs::read_to_string(&golden).ok().as_deref() != Some(output.as_str()) {
            differing.push(format!("{name} prints something else (UPDATE=1 accepts it):\n{output}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    assert!(scenarios().len() >= 15, "the scenarios are gone");
}
