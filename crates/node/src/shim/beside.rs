//! Commands that run beside the rank: with its user, its limits and its environment, and no longer than it.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;

use super::check::Failure;
use super::stages::{Begin, Shim};
use crate::protocol::ShimEvent;

/// Such commands of one rank at once.
const BESIDE_MAX: usize = 16;

/// The living commands, by pid.
#[derive(Debug, Default)]
pub(super) struct Beside(BTreeSet<i32>);

impl Beside {
    /// A child has ended; it may be one of these.
    pub(super) fn ended(&mut self, pid: i32) {
        self.0.remove(&pid);
    }
}

impl Shim {
    /// Starts a command beside a running rank, and says whether that was possible.
    pub(super) fn run_beside(&mut self, name: &str, argv: &[String]) {
        let failure = self.start_beside(argv).err().map(|failure| failure.detail);
        self.tell(ShimEvent::Beside { name: name.to_owned(), failure });
    }

    fn start_beside(&mut self, argv: &[String]) -> Result<(), Failure> {
        if !self.is_running() {
            return Err(Failure::start_up("the rank is not running"));
        }
        if self.beside.0.len() >= BESIDE_MAX {
            return Err(Failure::start_up(format!("{BESIDE_MAX} commands run beside the rank already")));
        }
        let program = argv.first().filter(|program| program.starts_with('/'));
        let program = program.ok_or_else(|| Failure::start_up("the command has no absolute path"))?;
        let (spec, record) = self.parts();
        let doors = record
            .group
            .doors()
            .map_err(|e| Failure::infrastructure(format!("the member's cgroup cannot be entered: {e}")))?;
        let workdir = CString::new(spec.workdir.as_os_str().as_bytes())
            .map_err(|_| Failure::start_up("the working directory's name holds a NUL character"))?;
        let begin = Begin { program: Path::new(program), argv, workdir, doors, keep: Vec::new() };
        let mut exec = self.command(begin);
        exec.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = exec.spawn().map_err(|e| Failure::start_up(format!("cannot start {program}: {e}")))?;
        self.beside.0.insert(i32::try_from(child.id()).unwrap_or(0));
        Ok(())
    }
}
