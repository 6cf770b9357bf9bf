//! Lists in the sources that a page of the reference must have in full: environment variables, exit codes, the codes of
//! errors, and events.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Fault;
use crate::cargo::{CargoError, read};
use crate::files;
use crate::lines::{code_lines, rust_files};

const ENVIRONMENT: &str = "docs/reference/environment.md";
const EXIT_CODES: &str = "docs/reference/exit-codes.md";
const EVENTS: &str = "docs/reference/events.md";
/// The events of decisions, and those of what users ask for.
const SENTENCES: &str = "crates/sentences/src/lib.rs";
const RECORDED: &[&str] = &["crates/local/src/verbs/turn.rs", "crates/local/src/usage.rs"];
const KUBERNETES: &str = "crates/kube/src";
const RANKS: &str = "crates/local/src/env.rs";
const HELP: &str = "crates/cli/src/args.rs";
const FAILURES: &str = "crates/cli/src/failure.rs";
/// The units and settings of packages, which read variables too.
const DEPLOYED: &[&str] = &["deploy/systemd/phalanx.service", "deploy/deb/default"];
const PREFIX: &str = "PHALANX_";
/// Only tests set these.
const OF_TESTS: &str = "PHALANX_TEST_";

pub(super) fn check(root: &Path) -> Result<Vec<Fault>, CargoError> {
    let mut faults = compare(root, ENVIRONMENT, "", &variables(root)?, |name| name.starts_with(PREFIX))?;
    let codes = exit_codes(&read(&root.join(HELP))?);
    faults.extend(compare(root, EXIT_CODES, "## Exit codes", &of(HELP, codes), |_| true)?);
    let errors = error_codes(&read(&root.join(FAILURES))?);
    faults.extend(compare(root, EXIT_CODES, "## Error codes", &of(FAILURES, errors), |_| true)?);
    faults.extend(compare(root, EVENTS, "## Events of jobs", &job_events(root)?, |_| true)?);
    faults.extend(compare(root, EVENTS, "## Events of Kubernetes", &gang_events(root)?, |_| true)?);
    Ok(faults)
}

/// Items with the source file that has them.
type Items = BTreeMap<String, PathBuf>;

fn of(file: &str, items: BTreeSet<String>) -> Items {
    items.into_iter().map(|item| (item, PathBuf::from(file))).collect()
}

/// Faults of a section of a page: items without a row, and rows without an item that must have one.
fn compare(
    root: &Path,
    page: &str,
    section: &str,
    items: &Items,
    needs_an_item: impl Fn(&str) -> bool,
) -> Result<Vec<Fault>, CargoError> {
    let rows = rows(&read(&root.join(page))?, section);
    let fault = |line, what| Fault { file: PathBuf::from(page), line, what };
    let missing = items.iter().filter(|(item, _)| !rows.contains_key(*item)).map(|(item, file)| {
        fault(1, format!("`{item}` of {} is not in a table; add a row for it", file.display()))
    });
    let unknown = rows
        .iter()
        .filter(|(row, _)| needs_an_item(row) && !row.contains('<') && !items.contains_key(*row))
        .map(|(row, line)| fault(*line, format!("`{row}` is not in the sources; remove it from the table")));
    Ok(missing.chain(unknown).collect())
}

/// Code spans in the rows of tables of a section, with their lines. Without a heading all tables count.
fn rows(page: &str, section: &str) -> BTreeMap<String, usize> {
    let mut is_inside = section.is_empty();
    let mut rows = BTreeMap::new();
    for (line, text) in (1..).zip(page.lines()) {
        if !section.is_empty() && text.starts_with("## ") {
            is_inside = text == section;
        }
        if let Some(cells) = text.strip_prefix('|').filter(|_| is_inside) {
            // Launchers have their variables in the second column.
            let counted = if section.is_empty() { cells } else { cells.split('|').next().unwrap_or("") };
            let spans = counted.split('`').skip(1).step_by(2);
            for span in spans {
                rows.entry(span.to_owned()).or_insert(line);
            }
        }
    }
    rows
}

fn variables(root: &Path) -> Result<Items, CargoError> {
    let mut items = Items::new();
    let crates = root.join("crates");
    let mut files = rust_files(&crates)?;
    files.retain(|file| file.strip_prefix(&crates).is_ok_and(|file| file.iter().any(|part| part == "src")));
    files.extend(files::of_kind(&root.join("python/src"), "py")?);
    for file in files {
        let name = file.strip_prefix(root).unwrap_or(&file).to_path_buf();
        let text = read(&file)?;
        for (_, line) in code_lines(&text) {
            for word in literals(line).filter(|word| is_variable(word) && word.starts_with(PREFIX)) {
                items.entry(word.to_owned()).or_insert_with(|| name.clone());
            }
        }
    }
    for (_, line) in code_lines(&read(&root.join(RANKS))?) {
        for word in set_on(line) {
            items.entry(word.to_owned()).or_insert_with(|| PathBuf::from(RANKS));
        }
    }
    for file in DEPLOYED {
        let text = read(&root.join(file))?;
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words.filter(|word| is_variable(word) && word.starts_with(PREFIX)) {
            items.entry(word.to_owned()).or_insert_with(|| PathBuf::from(file));
        }
    }
    items.retain(|item, _| !item.starts_with(OF_TESTS) && item != PREFIX);
    Ok(items)
}

/// Variables that a line gives to a rank: the first text of a call of `set`, and all texts of a row of a table.
fn set_on(line: &str) -> Vec<&str> {
    let begin = line.trim_start();
    let count = match begin {
        _ if begin.starts_with("(\"") => usize::MAX,
        _ if begin.starts_with("set(") => 1,
        _ => 0,
    };
    literals(begin).take(count).filter(|word| is_variable(word)).collect()
}

/// Texts between double quotes.
fn literals(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

fn is_variable(word: &str) -> bool {
    word.len() > 2
        && word.bytes().take(2).all(|byte| byte.is_ascii_uppercase())
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn job_events(root: &Path) -> Result<Items, CargoError> {
    let mut items = of(SENTENCES, words_after(&read(&root.join(SENTENCES))?, "job,"));
    for file in RECORDED {
        let calls = words_in(&read(&root.join(file))?, "said(", ");");
        let is_word = |word: &String| word.bytes().all(|b| b.is_ascii_lowercase() || b == b' ');
        items.extend(of(file, calls.into_iter().filter(is_word).collect()));
    }
    Ok(items)
}

fn gang_events(root: &Path) -> Result<Items, CargoError> {
    let mut items = Items::new();
    for file in rust_files(&root.join(KUBERNETES))? {
        let text = read(&file)?;
        let name = file.strip_prefix(root).unwrap_or(&file).to_path_buf();
        let mut words = words_in(&text, "GangEvent {", "}");
        words.extend(words_in(&text, "tell_job(", ");"));
        if name.ends_with("messages.rs") {
            words.extend(words_after(&text, "&str ="));
        }
        let is_reason = |word: &String| {
            word.starts_with(|c: char| c.is_ascii_uppercase())
                && word.bytes().all(|b| b.is_ascii_alphanumeric())
        };
        items.extend(words.into_iter().filter(is_reason).map(|word| (word, name.clone())));
    }
    Ok(items)
}

/// The code of a file in one line.
fn joined(source: &str) -> String {
    code_lines(source).map(|(_, line)| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Texts that directly follow a mark.
fn words_after(source: &str, mark: &str) -> BTreeSet<String> {
    let text = joined(source);
    let word = |rest: &str| rest.trim_start().strip_prefix('"')?.split('"').next().map(str::to_owned);
    text.split(mark).skip(1).filter_map(word).collect()
}

/// The first text between each opening and the next closing.
fn words_in(source: &str, open: &str, close: &str) -> BTreeSet<String> {
    let text = joined(source);
    let word = |rest: &str| literals(rest.split(close).next()?).next().map(str::to_owned);
    text.split(open).skip(1).filter_map(word).collect()
}

/// The first words of the lines of the help text.
fn exit_codes(source: &str) -> BTreeSet<String> {
    let Some((_, rest)) = source.split_once("const EXIT_CODES: &str = \"\\\n") else {
        return BTreeSet::new();
    };
    let (text, _) = rest.split_once("\";").unwrap_or((rest, ""));
    let code = |line: &str| line.strip_prefix("  ")?.split_whitespace().next().map(str::to_owned);
    text.lines().filter_map(code).collect()
}

/// The words of `Failure`.
fn error_codes(source: &str) -> BTreeSet<String> {
    let mut found = words_after(source, "Self::new(");
    found.extend(words_after(source, "=> ("));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(of: BTreeSet<String>) -> Vec<String> {
        of.into_iter().collect()
    }

    #[test]
    fn variables_of_ranks_are_the_names_and_not_the_values() {
        assert_eq!(
            set_on("        set(&mut env, \"CUDA_DEVICE_ORDER\", \"PCI_BUS_ID\");"),
            ["CUDA_DEVICE_ORDER"]
        );
        assert_eq!(set_on("  (\"NNODES\", \"PET_NNODES\", nodes),"), ["NNODES", "PET_NNODES"]);
        assert_eq!(set_on("let x = \"NNODES\";"), Vec::<&str>::new());
        assert!(is_variable("OMPI_MCA_orte_default_hostfile") && !is_variable("lo") && !is_variable("A b"));
    }

    #[test]
    fn exit_codes_and_errors_are_read_from_their_sources() {
        let help = "const EXIT_CODES: &str = \"\\\nExit codes:\n  0    done\n  N    the job's\n  64   bad\";\n  70 x";
        assert_eq!(found(exit_codes(help)), ["0", "64", "N"]);
        let source = "Self::new(\n  \"broken\",\n  UNAVAILABLE)\nError => (\"bad_request\", USAGE),\n// Self::new(\"no\")\nSelf::new(code, exit)";
        assert_eq!(found(error_codes(source)), ["bad_request", "broken"]);
    }

    #[test]
    fn events_are_read_where_they_are_made() {
        let decided = "(gang.job, \"starting\", where_)\n(\n  *job,\n  \"scaled\",\n  format!(\"from {x}\"))";
        assert_eq!(found(words_after(decided, "job,")), ["scaled", "starting"]);
        let asked = "said(daemon, id, \"held\", format!(\"by {by}\"), None);\nsaid(daemon, id, what);";
        assert_eq!(found(words_in(asked, "said(", ");")), ["held"]);
    }

    #[test]
    fn items_without_a_row_and_rows_without_an_item_are_faults() {
        let root = tempfile::tempdir().unwrap();
        let page =
            "# X\n## Exit codes\n| code | why |\n|---|---|\n| `0`, `1` | `no` |\n## Other\n| `9` | |\n";
        std::fs::write(root.path().join("x.md"), page).unwrap();
        let items = of("a.rs", BTreeSet::from(["0".to_owned(), "64".to_owned()]));
        let faults = compare(root.path(), "x.md", "## Exit codes", &items, |_| true).unwrap();
        let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
        assert_eq!(
            faults,
            [
                "x.md:1: `64` of a.rs is not in a table; add a row for it",
                "x.md:5: `1` is not in the sources; remove it from the table",
            ]
        );
    }
}
