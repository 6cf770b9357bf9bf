//! Stands in for the `phalanx` executable: the shim, and a daemon that can be killed.

use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use phalanx_node::{MemberSpec, confined, shim, spawn};

fn main() -> ExitCode {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let words: Vec<&Path> = args.iter().map(PathBuf::as_path).collect();
    match words.as_slice() {
        [verb, dir] if verb.as_os_str() == "__shim" => shim::main(dir),
        [verb] if verb.as_os_str() == "__confine" => confined::main(),
        [verb, dir, spec] if verb.as_os_str() == "daemon" => match daemon(dir, spec) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("{e}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("usage: phalanx-shim-test __shim DIR | daemon DIR SPEC | __confine");
            ExitCode::from(2)
        }
    }
}

/// Starts and releases a member, then tells every event until it is killed.
fn daemon(dir: &Path, spec: &Path) -> Result<(), Box<dyn Error>> {
    let spec: MemberSpec = serde_json::from_slice(&std::fs::read(spec)?)?;
    let mut handle = spawn(dir, &spec, &std::env::current_exe()?, &[OsStr::new("__shim")])?;
    handle.release()?;
    while let Ok(event) = handle.next_event(Duration::from_secs(60)) {
        println!("{}", serde_json::to_string(&event)?);
    }
    Ok(())
}
