//! The project's own checks: `cargo run -p xtask -- docs`, `-- walls` and `-- ci`.

#![forbid(unsafe_code)]

mod bans;
mod cargo;
mod ci;
mod docs;
mod floats;
mod floors;
mod graph;
mod lines;
mod mutants;
mod walls;
#[cfg(test)]
mod walls_tests;
mod work;

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
        ["docs"] => run_docs(&root()),
        ["book", arguments @ ..] => run_book(arguments),
        ["walls"] => run_walls(&root()),
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

fn run_docs(root: &Path) -> ExitCode {
    match docs::check(root) {
        Ok(faults) if faults.is_empty() => {
            println!("the documentation has no dead links, and no page or item is missing");
            ExitCode::SUCCESS
        }
        Ok(faults) => {
            for fault in &faults {
                eprintln!("{fault}");
            }
            eprintln!("{} faults in the documentation", faults.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("the documentation cannot be checked: {error}");
            ExitCode::FAILURE
        }
    }
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

fn run_walls(root: &Path) -> ExitCode {
    match cargo::metadata(root).and_then(|workspace| walls::check(&workspace)) {
        Ok(breaches) if breaches.is_empty() => {
            println!("the walls stand");
            ExitCode::SUCCESS
        }
        Ok(breaches) => {
            for breach in &breaches {
                eprintln!("{breach}");
            }
            eprintln!(
                "{} broken: see the table of crates in ARCHITECTURE.md and xtask/src/walls.rs",
                breaches.len()
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("the walls cannot be checked: {error}");
            ExitCode::FAILURE
        }
    }
}
