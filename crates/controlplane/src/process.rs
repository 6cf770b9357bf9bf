//! Processes that end with whoever started them.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::build::last_lines;
use crate::error::Error;

/// The end of a log that an error shows.
const LOG_LINES: usize = 20;

/// Reads `PID EXECUTABLE` lines until its input ends, which it does with the process that writes them; then kills
/// those that still run that executable, and removes the folder with their state. A signal on the death of the
/// parent would not do: the kernel sends it when the *thread* ends that started the child.
const KEEPER: &str = r#"
trap '' HUP INT TERM
while read -r pid executable; do
  set -- "$@" "$pid" "$executable"
done
while [ $# -ge 2 ]; do
  [ "$(readlink "/proc/$1/exe")" = "$2" ] && kill -KILL "$1"
  shift 2
done
sleep 0.2
rm -rf -- "$0"
"#;

/// Kills what it was told of when this process ends without having done so.
#[derive(Debug)]
pub(crate) struct Keeper {
    shell: Child,
}

impl Keeper {
    /// `folder` is removed with the processes.
    pub(crate) fn start(folder: &Path) -> Result<Self, Error> {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(KEEPER).arg(folder);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let shell = shell.spawn().map_err(Error::io("run", "/bin/sh"))?;
        Ok(Self { shell })
    }

    pub(crate) fn keep(&mut self, pid: u32, executable: &Path) -> Result<(), Error> {
        // As the kernel shows what a process runs.
        let executable = executable.canonicalize().map_err(Error::io("find", executable))?;
        let Some(input) = self.shell.stdin.as_mut() else { return Ok(()) };
        writeln!(input, "{pid} {}", executable.display()).map_err(Error::io("keep", executable))
    }

    /// No longer needed: what it was told of is about to be ended by its owner.
    pub(crate) fn end(&mut self) {
        end(&mut self.shell);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

/// A running program with its log.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, whose output goes to `log` (appended), in a process group of its own: Ctrl-C in a terminal
    /// is for whoever started it.
    pub(crate) fn start(
        name: &'static str,
        mut command: Command,
        log: PathBuf,
        keeper: &mut Keeper,
    ) -> Result<Self, Error> {
        let open = || File::options().create(true).append(true).open(&log).map_err(Error::io("open", &log));
        command.stdin(Stdio::null()).stdout(open()?).stderr(open()?).process_group(0);
        let executable = PathBuf::from(command.get_program());
        let mut child = command.spawn().map_err(Error::io("run", &executable))?;
        if let Err(e) = keeper.keep(child.id(), &executable) {
            end(&mut child);
            return Err(e);
        }
        Ok(Self { name, child, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// # Errors
    /// When it has ended.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        let status = match self.child.try_wait() {
            Ok(None) => return Ok(()),
            Ok(Some(status)) => status.to_string(),
            Err(e) => e.to_string(),
        };
        Err(Error::Ended { program: self.name, status, log: self.log_end() })
    }

    pub(crate) fn log_end(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        last_lines(&String::from_utf8_lossy(&text), LOG_LINES)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// SIGKILL and wait. Both fail only where the process is gone already.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
