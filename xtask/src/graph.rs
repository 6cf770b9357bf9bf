//! Who depends on whom.

use crate::cargo::{Dependency, Package, Workspace, room};
use crate::walls::{Breach, FOREIGN, IN_TESTS, MAY_USE, ONLY_IN_KUBE};

const TABLE: &str = "who may use whom";
const PURITY: &str = "foreign crates of a pure crate";
const KUBE: &str = "Kubernetes types stay in kube";
const MEMBERS: &str = "every crate stands in the table";

/// Dependencies that the tables do not allow.
pub(crate) fn check(workspace: &Workspace) -> Vec<Breach> {
    workspace.packages.iter().flat_map(check_package).collect()
}

fn check_package(package: &Package) -> Vec<Breach> {
    let Some((_, row)) = MAY_USE.iter().find(|(room, _)| *room == package.room()) else {
        let what = format!("{} is in no row; add it to MAY_USE in xtask/src/walls.rs", package.name);
        return vec![Breach::new(&package.manifest, MEMBERS, what)];
    };
    let check = |dependency: &Dependency| {
        if dependency.is_own { own(package, row, dependency) } else { foreign(package, dependency) }
    };
    let breach = |(rule, what): (_, String)| Breach::new(&package.manifest, rule, what);
    package.dependencies.iter().filter_map(check).map(breach).collect()
}

/// A test may also use the testkit, and what the testkit speaks of.
fn own(package: &Package, row: &[&str], dependency: &Dependency) -> Option<(&'static str, String)> {
    let wanted = room(&dependency.name);
    let testkit = MAY_USE.iter().find(|(room, _)| *room == "testkit").map_or(&[][..], |(_, row)| row);
    let in_tests = dependency.is_dev
        && (wanted == "testkit" || testkit.contains(&wanted) || IN_TESTS.contains(&(package.room(), wanted)));
    if row.contains(&wanted) || in_tests {
        return None;
    }
    let allowed = if row.is_empty() { "nothing".to_owned() } else { row.join(", ") };
    Some((TABLE, format!("{} may not use {wanted}; it may use {allowed}", package.room())))
}

fn foreign(package: &Package, dependency: &Dependency) -> Option<(&'static str, String)> {
    let name = dependency.name.as_str();
    if ONLY_IN_KUBE.contains(&name) && package.room() != "kube" {
        return Some((KUBE, format!("{} depends on {name}; only phalanx-kube may", package.name)));
    }
    let (_, allowed) = FOREIGN.iter().find(|(room, _)| *room == package.room())?;
    if dependency.is_dev || allowed.contains(&name) {
        return None;
    }
    Some((PURITY, format!("{} depends on {name}; it may use {}", package.name, allowed.join(", "))))
}
