//! The simulator of the `phalanx` program, as a process of its own: it can neither slow nor crash the scheduler. It gets the CPU
//! time and the memory that others leave, has a deadline, and ends with the client that asked.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, scope};
use std::time::{Duration, Instant};

use phalanx_node::{THIS_PROGRAM, set_up_background};

use crate::Paths;
use crate::daemon::UpOptions;

/// Simulators at a time: each has the whole cluster in memory.
const RUNNING_MAX: usize = 2;
/// What one run may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// CPU time of one run, should nothing be left that watches its deadline.
const CPU_S: u64 = 2 * DEADLINE.as_secs();
/// Bytes of an answer: a gang takes a thousand.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a complaint.
const COMPLAINT_BYTES_MAX: u64 = 64 << 10;
const PAUSE: Duration = Duration::from_millis(20);

/// Runs simulators.
#[derive(Debug)]
pub(crate) struct Simulator {
    program: PathBuf,
    /// Has a folder for each run that needs files.
    dir: PathBuf,
    running: AtomicUsize,
    count: AtomicU64,
}

/// What a simulator is asked.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// The words after `phalanx`.
    pub(crate) words: Vec<String>,
    /// Files that the words name, and their texts.
    pub(crate) files: Vec<(&'static str, String)>,
    pub(crate) stdin: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// So many run already.
    Busy(usize),
    /// It ended with a complaint.
    Complained {
        code: i32,
        said: String,
    },
    TimedOut,
    /// The client no longer waits.
    Gone,
    /// It cannot be started, or ended otherwise.
    Failed(String),
}

impl From<io::Error> for NoAnswer {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl Simulator {
    /// Folders that another daemon left are removed.
    pub(crate) fn of(options: &UpOptions) -> Self {
        let dir = of_runs(&options.paths);
        let _ = fs::remove_dir_all(&dir);
        // Leads to this version, also if a newer one is in its file by now.
        let program = options.shim_exe.clone().unwrap_or_else(|| THIS_PROGRAM.into());
        Self { program, dir, running: AtomicUsize::new(0), count: AtomicU64::new(0) }
    }

    /// Takes one of the few turns.
    pub(crate) fn turn(&self) -> Result<Turn<'_>, NoAnswer> {
        let more = |running: usize| (running < RUNNING_MAX).then_some(running + 1);
        match self.running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more) {
            Ok(_) => Ok(Turn(self)),
            Err(running) => Err(NoAnswer::Busy(running)),
        }
    }
}

fn of_runs(paths: &Paths) -> PathBuf {
    paths.root().join("what-if")
}

/// The right to run a simulator.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Simulator);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Turn<'_> {
    /// Runs it and gives what it prints. Asks `is_gone` whether the client went away.
    pub(crate) fn run(self, run: &Run, is_gone: impl Fn() -> bool) -> Result<Vec<u8>, NoAnswer> {
        let folder = Folder::with(&self.0.dir, self.0.count.fetch_add(1, Ordering::Relaxed), &run.files)?;
        let mut command = Command::new(&self.0.program);
        command.args(&run.words).env_clear().current_dir(folder.dir()).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        set_up_background(&mut command, CPU_S);
        let mut child = Process(command.spawn()?);
        let (stdin, stdout, stderr) = (child.0.stdin.take(), child.0.stdout.take(), child.0.stderr.take());
        scope(|scope| {
            let thread = || Builder::new().name("what-if".to_owned());
            // If it ends early, it has read enough.
            thread().spawn_scoped(scope, move || stdin.map(|mut pipe| pipe.write_all(&run.stdin)))?;
            let answer = thread().spawn_scoped(scope, move || all_of(stdout, ANSWER_BYTES_MAX))?;
            let complaint = thread().spawn_scoped(scope, move || all_of(stderr, COMPLAINT_BYTES_MAX))?;
            let ended = child.wait(is_gone);
            // Else its readers would wait for it.
            drop(child);
            let answer = answer.join().unwrap_or_default();
            let said = String::from_utf8_lossy(&complaint.join().unwrap_or_default()).into_owned();
            outcome(ended?, answer, said)
        })
    }
}

fn outcome(ended: ExitStatus, answer: Vec<u8>, said: String) -> Result<Vec<u8>, NoAnswer> {
    match ended.code() {
        Some(0) if answer.len() as u64 <= ANSWER_BYTES_MAX => Ok(answer),
        Some(0) => Err(NoAnswer::Failed("its answer is too long".to_owned())),
        Some(code) => Err(NoAnswer::Complained { code, said }),
        None => {
            let signal = ended.signal().unwrap_or_default();
            Err(NoAnswer::Failed(format!("signal {signal} ended it; the kernel may have had no memory left")))
        }
    }
}

/// What a pipe gives, and one byte more than the limit of one that gives more.
fn all_of(pipe: Option<impl Read>, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // What came before an error is told.
        let _ = pipe.take(most + 1).read_to_end(&mut bytes);
    }
    bytes
}

/// A process that does not outlive this.
struct Process(Child);

impl Process {
    fn wait(&mut self, is_gone: impl Fn() -> bool) -> Result<ExitStatus, NoAnswer> {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            if is_gone() {
                return Err(NoAnswer::Gone);
            }
            if Instant::now() >= until {
                return Err(NoAnswer::TimedOut);
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing happens to one that was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The folder of a run, which only this user may enter; removed at the end.
struct Folder(Option<PathBuf>);

impl Folder {
    fn with(dir: &Path, number: u64, files: &[(&str, String)]) -> io::Result<Self> {
        if files.is_empty() {
            return Ok(Self(None));
        }
        let dir = dir.join(number.to_string());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let folder = Self(Some(dir));
        for (name, text) in files {
            fs::write(folder.dir().join(name), text)?;
        }
        Ok(folder)
    }

    fn dir(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new("/"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(dir) = &self.0 {
            let _ = fs::remove_dir_all(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulator(dir: &Path) -> Simulator {
        let options = UpOptions { shim_exe: Some("/bin/sh".into()), ..UpOptions::new(Paths::new(dir)) };
        Simulator::of(&options)
    }

    fn script(text: &str) -> Run {
        Run { words: vec!["-c".to_owned(), text.to_owned()], ..Run::default() }
    }

    fn run(simulator: &Simulator, run: &Run) -> Result<String, NoAnswer> {
        let answer = simulator.turn()?.run(run, || false)?;
        Ok(String::from_utf8(answer).unwrap())
    }

    #[test]
    fn it_reads_its_files_and_its_input_and_leaves_nothing() {
        let state = tempfile::tempdir().unwrap();
        let simulator = simulator(state.path());
        let files = vec![("job.yaml", "the job".to_owned())];
        let stdin = vec![b'x'; 1 << 20];
        let text = "cat job.yaml; wc -c; ls -ld . | cut -c1-10; env | grep -c PATH; cat /proc/self/oom_score_adj; nice";
        let asked = Run { files, stdin, ..script(text) };
        let said = run(&simulator, &asked).unwrap();
        assert_eq!(said, "the job1048576\ndrwx------\n0\n1000\n19\n");
        assert_eq!(fs::read_dir(state.path().join("what-if")).unwrap().count(), 0);
        // A program that reads nothing ends all the same.
        let asked = Run { stdin: vec![b'x'; 1 << 20], ..script("echo done") };
        assert_eq!(run(&simulator, &asked).unwrap(), "done\n");
    }

    #[test]
    fn a_complaint_a_signal_and_a_program_that_is_not_there_are_told_apart() {
        let state = tempfile::tempdir().unwrap();
        let simulator = simulator(state.path());
        let complained = run(&simulator, &script("echo no >&2; exit 64")).unwrap_err();
        assert!(
            matches!(&complained, NoAnswer::Complained { code: 64, said } if said == "no\n"),
            "{complained:?}"
        );
        let killed = run(&simulator, &script("kill -9 $$")).unwrap_err();
        assert!(matches!(&killed, NoAnswer::Failed(why) if why.starts_with("signal 9")), "{killed:?}");
        let nowhere = Simulator { program: "/nowhere".into(), ..simulator };
        assert!(matches!(run(&nowhere, &script("")), Err(NoAnswer::Failed(_))));
    }

    #[test]
    fn it_ends_with_its_client_and_only_few_run_at_a_time() {
        let state = tempfile::tempdir().unwrap();
        let simulator = simulator(state.path());
        let turns: Vec<_> = (0..RUNNING_MAX).map(|_| simulator.turn().unwrap()).collect();
        assert!(matches!(simulator.turn(), Err(NoAnswer::Busy(RUNNING_MAX))));
        drop(turns);
        let file = state.path().join("pid");
        let asked = script(&format!("echo $$ > {}; exec sleep 1000", file.display()));
        let pid = || fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n'));
        let ended = simulator.turn().unwrap().run(&asked, || pid().is_some());
        assert!(matches!(ended, Err(NoAnswer::Gone)), "{ended:?}");
        assert!(!Path::new("/proc").join(pid().unwrap().trim()).exists());
        assert_eq!(simulator.running.load(Ordering::SeqCst), 0);
    }
}
