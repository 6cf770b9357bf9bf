//! The floors inside a crate, module by module: each imports only what is below it.

use std::path::Path;

use crate::cargo::{CargoError, Workspace, read};
use crate::lines::{code_lines, rust_files};
use crate::walls::Breach;

const RULE: &str = "a floor builds only on floors below it";

/// One crate's modules, from the ground up, and which of the others each may use. The crate's root may use all.
pub(crate) struct Floors {
    pub(crate) room: &'static str,
    pub(crate) modules: &'static [(&'static str, &'static [&'static str])],
}

pub(crate) const FLOORS: &[Floors] = &[ENGINE, KUBE];

const ENGINE: Floors = Floors {
    room: "engine",
    modules: &[
        ("share", &[]),
        ("torus", &[]),
        ("grid", &[]),
        ("cluster", &["share", "torus"]),
        ("placement", &["share", "torus", "grid", "cluster"]),
        ("placer", &["grid", "cluster", "placement"]),
        ("queueing", &["share", "cluster"]),
        ("preemption", &["cluster", "placement", "queueing"]),
        ("cycle", &["cluster", "placement", "queueing", "preemption"]),
        ("ledger", &["share", "grid", "cluster", "placement", "queueing", "cycle"]),
        ("explain", &["cluster", "placement", "queueing", "cycle", "ledger"]),
        ("what_if", &["cycle", "ledger", "explain"]),
    ],
};

const KUBE: Floors = Floors {
    room: "kube",
    modules: &[
        ("quantity", &[]),
        ("log", &[]),
        ("digest", &[]),
        ("connect", &[]),
        ("api", &["quantity"]),
        ("crd", &["api", "quantity"]),
        ("recognise", &["api"]),
        ("filter", &["api", "quantity", "recognise"]),
        ("dra", &["api", "quantity", "filter"]),
        ("messages", &["api", "crd", "recognise"]),
        ("cluster", &["api", "quantity", "crd", "recognise", "filter", "dra", "messages"]),
        ("constraint", &["digest", "api", "quantity", "recognise", "filter", "dra", "messages", "cluster"]),
        (
            "gang",
            &[
                "digest",
                "api",
                "quantity",
                "crd",
                "recognise",
                "filter",
                "dra",
                "messages",
                "cluster",
                "constraint",
            ],
        ),
        ("rights", &["crd", "recognise", "cluster"]),
        ("submit", &["recognise", "gang"]),
        (
            "world",
            &["log", "digest", "connect", "api", "crd", "dra", "recognise", "messages", "cluster", "gang"],
        ),
        (
            "user",
            &[
                "quantity",
                "connect",
                "api",
                "crd",
                "recognise",
                "filter",
                "messages",
                "gang",
                "submit",
                "world",
            ],
        ),
        ("server", &["connect", "crd", "gang", "messages", "world"]),
        ("plugin", &["api", "gang"]),
        ("agent", &["quantity", "connect", "api", "crd", "gang", "plugin", "world"]),
    ],
};

/// Every import that climbs.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<Breach>, CargoError> {
    let mut breaches = Vec::new();
    for floors in FLOORS {
        let Some(package) = workspace.packages.iter().find(|package| package.room() == floors.room) else {
            continue;
        };
        let source = package.folder().join("src");
        for file in rust_files(&source)? {
            let module = module_of(&source, &file);
            if module == "lib" {
                continue;
            }
            let Some((_, may_use)) = floors.modules.iter().find(|(name, _)| *name == module) else {
                let what = format!("{module} has no floor: add it to the table in xtask/src/floors.rs");
                breaches.push(Breach::new(&file, RULE, what));
                continue;
            };
            for (line, used) in uses(&read(&file)?) {
                let is_module = floors.modules.iter().any(|(name, _)| *name == used);
                if is_module && used != module && !may_use.contains(&used.as_str()) {
                    breaches.push(Breach::new(
                        &file,
                        RULE,
                        format!("line {line}: {module} must not use {used}"),
                    ));
                }
            }
        }
    }
    Ok(breaches)
}

/// The first part of a file's path inside the crate.
fn module_of(source: &Path, file: &Path) -> String {
    let inside = file.strip_prefix(source).unwrap_or(file);
    let first = inside.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
    first.unwrap_or_default().trim_end_matches(".rs").to_owned()
}

/// The modules of its own crate that a file names, with the line. A group of imports is one line here, as rustfmt is told
/// to leave one statement for each module.
fn uses(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in code_lines(text) {
        for rest in line.split("crate::").skip(1) {
            let names = rest.strip_prefix('{').map_or(rest, |group| group.split('}').next().unwrap_or(group));
            let is_group = rest.starts_with('{');
            let parts = if is_group { names.split(',').collect::<Vec<_>>() } else { vec![names] };
            for part in parts {
                let name: String = part
                    .trim()
                    .chars()
                    .take_while(|letter| letter.is_ascii_lowercase() || *letter == '_')
                    .collect();
                found.push((number, name));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found_in_lines_groups_and_paths() {
        let text = "use crate::cluster::{Pick, Tree};\nuse crate::{cycle::Draft, queueing};\nfn f(at: crate::ledger::Ledger) {}\n// crate::explain\n";
        let found = [(1, "cluster"), (2, "cycle"), (2, "queueing"), (3, "ledger")];
        assert_eq!(uses(text), found.map(|(line, name)| (line, name.to_owned())));
    }

    #[test]
    fn a_table_names_only_modules_that_stand_below() {
        for floors in FLOORS {
            for (at, (module, may_use)) in floors.modules.iter().enumerate() {
                for used in *may_use {
                    let below = floors.modules[..at].iter().any(|(name, _)| name == used);
                    assert!(below, "{module} may use {used}, which does not stand below it");
                }
            }
        }
    }
}
