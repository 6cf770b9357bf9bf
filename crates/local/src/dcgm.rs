//! The job-mapping files of NVIDIA's DCGM exporter (`--hpc-job-mapping-dir`): one file per GPU of the machine, named by the
//! driver's index of the GPU, with one line per job that holds the GPU. The exporter turns the lines into the label `hpc_job`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use phalanx_model::NodeName;
use phalanx_node::file;
use phalanx_shell::Engine;
use tracing::warn;

use crate::daemon::{Daemon, UpError, UpOptions};

const EVERY: Duration = Duration::from_secs(1);

/// Jobs by device, as the lines of their files.
type Jobs = BTreeMap<u32, BTreeSet<String>>;

struct Mapping {
    dir: PathBuf,
    /// The number of each device for the driver; none of one that did not answer at the start.
    numbers: Vec<Option<u32>>,
    /// What stands in the files, by their numbers.
    written: BTreeMap<u32, String>,
    is_broken: bool,
}

/// Starts the thread that writes the files, if the operator asked for them.
pub(crate) fn start(daemon: &Arc<Daemon>, options: &UpOptions) -> Result<(), UpError> {
    let Some(dir) = &options.dcgm_job_mapping else { return Ok(()) };
    let broken = |error| UpError::JobMapping(dir.clone(), error);
    let Some((node, numbers)) = daemon.health.machine() else {
        let why = "the nodes are declared, and DCGM sees the GPUs of this machine alone";
        return Err(broken(io::Error::other(why)));
    };
    let mut mapping = Mapping::open(dir, numbers).map_err(broken)?;
    let look = move |daemon: &Daemon| {
        let node = node.clone();
        let asked = daemon.engine.look(move |engine| jobs_on(engine, &node));
        asked.map(|jobs| mapping.write(&jobs)).is_ok()
    };
    Daemon::watch(daemon, "job-mapping", EVERY, look).map_err(broken)
}

impl Mapping {
    /// Files of these GPUs from before are removed.
    fn open(dir: &Path, numbers: Vec<Option<u32>>) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        for number in 0..numbers.len() {
            remove(&dir.join(number.to_string()))?;
        }
        Ok(Self { dir: dir.to_owned(), numbers, written: BTreeMap::new(), is_broken: false })
    }

    fn write(&mut self, jobs: &Jobs) {
        let numbers = (0..).zip(self.numbers.clone());
        for (device, number) in numbers.filter_map(|(device, number)| Some((device, number?))) {
            let text: String =
                jobs.get(&device).into_iter().flatten().map(|job| format!("{job}\n")).collect();
            if self.written.get(&number).map_or("", String::as_str) == text {
                continue;
            }
            match self.put(number, &text) {
                Ok(()) => {
                    self.is_broken = false;
                    self.written.insert(number, text);
                }
                // It is tried again, and said once.
                Err(error) if !std::mem::replace(&mut self.is_broken, true) => {
                    warn!(dir = %self.dir.display(), %error, "jobs of GPUs cannot be written for DCGM's exporter");
                }
                Err(_) => {}
            }
        }
    }

    /// Whole or not at all; the exporter passes over names that are no numbers.
    fn put(&self, number: u32, text: &str) -> io::Result<()> {
        let path = self.dir.join(number.to_string());
        if text.is_empty() {
            return remove(&path);
        }
        file::write(&path, text.as_bytes(), 0o644, None)
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// `llama-12`, by GPU of the node.
fn jobs_on(engine: &Engine, node: &NodeName) -> Jobs {
    let mut jobs = Jobs::new();
    for (job, records) in engine.jobs() {
        for held in records.iter().filter_map(|record| record.held()) {
            for slot in held.slots.iter().filter(|slot| slot.node == *node) {
                for device in slot.devices.iter() {
                    jobs.entry(device).or_default().insert(format!("{}-{}", job.name, job.id));
                }
            }
        }
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_has_a_file_while_a_job_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("below");
        fs::create_dir(&dir).unwrap();
        // Of the daemon before, and of somebody else.
        for name in ["0", "1", "9", "note"] {
            fs::write(dir.join(name), "old\n").unwrap();
        }
        let mut mapping = Mapping::open(&dir, (0..4).map(Some).collect()).unwrap();
        let files = || -> BTreeMap<String, String> {
            let files = fs::read_dir(&dir).unwrap().map(Result::unwrap);
            files
                .map(|file| {
                    (file.file_name().into_string().unwrap(), fs::read_to_string(file.path()).unwrap())
                })
                .collect()
        };
        let of = |files: &[(&str, &str)]| -> BTreeMap<String, String> {
            let others = [("9", "old\n"), ("note", "old\n")];
            files.iter().chain(&others).map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        assert_eq!(files(), of(&[]));
        let jobs = |lines: &[(u32, &[&str])]| -> Jobs {
            lines.iter().map(|(gpu, jobs)| (*gpu, jobs.iter().map(|&job| job.to_owned()).collect())).collect()
        };
        mapping.write(&jobs(&[(1, &["a-1", "b-2"]), (3, &["a-1"])]));
        assert_eq!(files(), of(&[("1", "a-1\nb-2\n"), ("3", "a-1\n")]));
        mapping.write(&jobs(&[(1, &["b-2"])]));
        assert_eq!(files(), of(&[("1", "b-2\n")]));
        // What cannot be written is tried again.
        fs::remove_dir_all(&dir).unwrap();
        mapping.write(&jobs(&[(1, &["c-3"])]));
        assert!(mapping.is_broken);
        fs::create_dir(&dir).unwrap();
        mapping.write(&jobs(&[(1, &["c-3"])]));
        assert_eq!(
            (fs::read_to_string(dir.join("1")).unwrap().as_str(), mapping.is_broken),
            ("c-3\n", false)
        );
    }

    /// The driver counts those that answer; a daemon keeps the numbers of before.
    #[test]
    fn a_gpu_that_is_lost_moves_the_numbers_of_those_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut mapping = Mapping::open(dir.path(), vec![Some(0), None, Some(1)]).unwrap();
        let job = |name: &str| BTreeSet::from([name.to_owned()]);
        mapping.write(&[(0, job("a-1")), (1, job("b-2")), (2, job("c-3"))].into());
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).ok();
        assert_eq!([read("0"), read("1"), read("2")], [Some("a-1\n".into()), Some("c-3\n".into()), None]);
    }
}
