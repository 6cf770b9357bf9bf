//! The project's own checks: `cargo run -p xtask -- docs`, `-- walls` and `-- ci`.

#![forbid(unsafe_code)]

mod bans;
mod cargo;
mod ci;
mod docs;
mod files;
mod floats;
mod floors;
mod graph;
mod lines;
mod mutants;
mod walls;
#[cfg(test)]
mod walls_tests;
mod work;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo run -p xtask -- <docs | book | walls | work [--update] | mutants [NAME...] | ci>
  docs     links of the documentation, the summary of the book, and lists of the reference that the sources have
  book     what mdbook runs to rewrite links that leave docs/
  walls    who may use whom (crates, and floors inside a crate), bans, wasm32 builds, no floats in the engine, file lengths
  work     instructions that a decision costs, held against what is kept (--update keeps them)
  mutants  whether the tests notice each known bug, put into a copy of the engine
  ci       format, lints, docs, walls, tests, mutants and work, in that order";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(result) = mutants::rustc(&arguments) {
        return result;
    }
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["docs"] => report(
            docs::check(&root()),
            "the documentation has no dead links, and no page or item is missing",
            "faults in the documentation",
            "the documentation",
        ),
        ["book", arguments @ ..] => run_book(arguments),
        ["walls"] => report(
            cargo::metadata(&root()).and_then(|workspace| walls::check(&workspace)),
            "the walls stand",
            "broken: see the table of crates in ARCHITECTURE.md and xtask/src/walls.rs",
            "the walls",
        ),
        ["work"] => work::run(&root(), false),
        ["work", "--update"] => work::run(&root(), true),
        ["mutants", names @ ..] => mutants::run(&root(), names),
        ["ci"] => ci::run(&root()),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// This crate stands in the root of the workspace.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// mdbook runs this; `make book` runs mdbook.
fn run_book(arguments: &[&str]) -> ExitCode {
    match docs::book::preprocess(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the links of the book cannot be rewritten: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Says what a check found, one line for each fault.
fn report<T: Display>(
    found: Result<Vec<T>, cargo::CargoError>,
    passed: &str,
    faults: &str,
    unchecked: &str,
) -> ExitCode {
    match found {
        Ok(found) if found.is_empty() => {
            println!("{passed}");
            ExitCode::SUCCESS
        }
        Ok(found) => {
            for fault in &found {
                eprintln!("{fault}");
            }
            eprintln!("{} {faults}", found.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{unchecked} cannot be checked: {error}");
            ExitCode::FAILURE
        }
    }
}
