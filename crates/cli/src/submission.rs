//! From flags, a job file and this environment to a job.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use phalanx_model::{Gang, Job, JobId, Owner, SecretSource, Timestamp};
use phalanx_spec::job::RetryFile;
use phalanx_spec::scalar::RetryCause;
use phalanx_spec::{At, FILE_BYTES_MAX, JobFile, Place, Scalar, Source, SubmitContext, SubmitFlags};

use crate::args::JobArgs;
use crate::failure::Failure;
use crate::output;

/// What a program expects to find as it was where it was submitted.
const PASSED_ON: [&str; 7] =
    ["PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"];
/// Number of the process's owner in a job that has no number yet; the daemon gives one.
const UNNUMBERED: JobId = JobId(0);

/// A job and the values of its secrets, which travel beside it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Submission {
    pub(crate) job: Job,
    pub(crate) secrets: BTreeMap<String, String>,
    /// What the job was made of, without anything of this process: for a daemon on another machine.
    pub(crate) file: Option<Box<JobFile>>,
}

/// Where the submission comes from: variables, folder and clock of the submitting process.
pub(crate) struct Origin<'a> {
    pub(crate) variable: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) workdir: String,
    /// What `+2h` counts from; when the job was submitted is the daemon's to say.
    pub(crate) now: Timestamp,
}

impl Submission {
    /// Reads the file, puts the flags on top, and takes the rest from this process.
    pub(crate) fn read(args: JobArgs) -> Result<Self, Failure> {
        let workdir = std::env::current_dir().map_err(|e| {
            Failure::usage(format!("the current folder cannot be found: {e}"), "give --workdir")
        })?;
        let workdir = workdir
            .into_os_string()
            .into_string()
            .map_err(|_| Failure::usage("the name of the current folder is not UTF-8", "give --workdir"))?;
        let variable = |name: &str| std::env::var(name).ok();
        let mut submission =
            Self::from_args(args, &Origin { variable: &variable, workdir, now: output::now() })?;
        pass_on(&mut submission.job, &variable);
        Ok(submission)
    }

    /// The same for a container, in which neither this folder nor these paths mean anything.
    pub(crate) fn of_container(args: JobArgs) -> Result<Self, Failure> {
        let variable = |name: &str| std::env::var(name).ok();
        Self::from_args(args, &Origin { variable: &variable, workdir: String::new(), now: output::now() })
    }

    pub(crate) fn from_args(args: JobArgs, origin: &Origin<'_>) -> Result<Self, Failure> {
        let file = match &args.file {
            Some(path) => JobFile::from_yaml(&read_file(path)?, &shown(path))?,
            None => JobFile::default(),
        };
        let retry_on = read_causes(&args.retry_on)?;
        let mut file = flags(args, origin)?.over(file)?;
        if !retry_on.is_empty() {
            file.retry.get_or_insert_with(RetryFile::default).on = Some(retry_on);
        }
        let context = SubmitContext {
            id: UNNUMBERED,
            owner: this_user(),
            submitted_at: origin.now,
            default_workdir: origin.workdir.clone(),
        };
        let kept = Some(Box::new(file.clone()));
        let job = file.into_job(context)?;
        let secrets = read_secrets(&job, origin)?;
        Ok(Self { job, secrets, file: kept })
    }
}

fn flags(args: JobArgs, origin: &Origin<'_>) -> Result<SubmitFlags, Failure> {
    let env = args.env.into_iter().map(|text| with_value(text, origin)).collect::<Result<_, _>>()?;
    Ok(SubmitFlags {
        name: args.name,
        nodes: args.nodes,
        named: args.named,
        exclude: args.exclude,
        prefer: args.prefer,
        exclusive: args.exclusive,
        gpus: args.gpus,
        mig: args.mig,
        gpus_per_node: args.gpus_per_node,
        ranks: args.ranks,
        ranks_per_node: args.ranks_per_node,
        cpus: args.cpus,
        memory: args.memory,
        resources: args.resource,
        time_limit: args.time,
        queue: args.queue,
        priority: args.priority,
        class: args.class,
        hold: args.hold,
        after: args.after,
        begin: args.begin,
        deadline: args.deadline,
        array: args.array,
        preempt: args.preempt,
        may_move: args.may_move,
        spot: args.spot,
        topology: args.topology,
        segments: args.segments,
        spread: args.spread,
        slice: args.slice,
        parallel: args.parallel,
        env,
        secrets: args.secret,
        key: args.key,
        retry: args.retry,
        signal: args.signal,
        grace: args.grace,
        launch: args.launch,
        workdir: args.workdir,
        terminal: args.terminal,
        notify: args.notify,
        checkpoint_dir: args.checkpoint_dir,
        argv: args.command,
    })
}

/// `NAME` alone takes the value of this environment.
fn with_value(text: String, origin: &Origin<'_>) -> Result<String, Failure> {
    if text.contains('=') {
        return Ok(text);
    }
    (origin.variable)(&text).map(|value| format!("{text}={value}")).ok_or_else(|| {
        Failure::usage(
            format!("--env: {text} is not set here"),
            format!("export it, or say --env {text}=VALUE"),
        )
    })
}

fn read_causes(words: &[String]) -> Result<Vec<At<RetryCause>>, Failure> {
    const FLAG: Place = Place::Flag("--retry-on");
    let read = |word: &String| {
        RetryCause::read_at(word, FLAG).map_err(|message| {
            let (what, accepted) = message.split_once('\n').unwrap_or((&message, ""));
            let accepted = if accepted.is_empty() { String::new() } else { format!("expected {accepted}") };
            Failure::from(Source::default().error(FLAG, what, accepted))
        })
    };
    words.iter().map(read).collect()
}

/// The daemon asks the kernel who this is; here it is only filled in.
fn this_user() -> Owner {
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    let name =
        nix::unistd::User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
    Owner { uid: uid.as_raw(), gid: gid.as_raw(), name }
}

/// The submitter's paths and language, where the job does not say its own.
fn pass_on(job: &mut Job, variable: &dyn Fn(&str) -> Option<String>) {
    for program in job.gangs.iter_mut().flat_map(Gang::programs_mut) {
        for name in PASSED_ON {
            if let Some(value) = variable(name).filter(|_| !program.secrets.contains_key(name)) {
                program.env.entry(name.to_owned()).or_insert(value);
            }
        }
    }
}

fn read_secrets(job: &Job, origin: &Origin<'_>) -> Result<BTreeMap<String, String>, Failure> {
    let named = job.gangs.iter().flat_map(|gang| &gang.program.secrets);
    let submitted = named.filter(|(_, source)| **source == SecretSource::Submitted);
    submitted
        .map(|(name, _)| match (origin.variable)(name) {
            Some(value) => Ok((name.clone(), value)),
            None => Err(Failure::usage(
                format!("secret {name} has no value: it is not set here"),
                format!("export {name}, or name a file: --secret {name}=FILE"),
            )),
        })
        .collect()
}

/// Reads a file, or standard input for `-`; at most as much as a job or cluster file may have.
pub(crate) fn read_file(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let limit = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX);
    let read = if is_stdin(path) {
        io::stdin().lock().take(limit + 1).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(limit + 1).read_to_string(&mut text))
    };
    read.map_err(|e| Failure::file("read", path, &e))?;
    if text.len() > FILE_BYTES_MAX {
        let message = format!("{} has more than {FILE_BYTES_MAX} bytes", shown(path));
        return Err(Failure::usage(message, "give a smaller file"));
    }
    Ok(text)
}

pub(crate) fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// The name of a file as messages show it.
pub(crate) fn shown(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use phalanx_model::{EndOf, FailureClass, LaunchKind, PartNeed, PreemptMode};

    use super::*;
    use crate::args::{Cli, Verb};

    fn variable(name: &str) -> Option<String> {
        let set = [("PATH", "/bin"), ("HOME", "/home/a"), ("TOKEN", "s3cret"), ("DEBUG", "1")];
        set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
    }

    fn submit(words: &[&str]) -> Result<Submission, Failure> {
        let line = ["phalanx", "submit"].iter().chain(words);
        let Verb::Submit(submit) = Cli::try_parse_from(line).unwrap().verb else { panic!("not submit") };
        let origin = Origin { variable: &variable, workdir: "/here".to_owned(), now: Timestamp(1_000) };
        let mut submission = Submission::from_args(submit.job, &origin)?;
        pass_on(&mut submission.job, &variable);
        Ok(submission)
    }

    #[test]
    fn flags_become_a_job() {
        let words = "-n train -N 2 -G H100:16 --ntasks-per-node 8 -t 90 -q lab -p -5 --topology leaf@10m \
                     --segment 4@nvlink --segment 8@node \
                     --retry 3 --retry-on node,preemption --signal USR1@120 --grace 10s -- python train.py -x";
        let words: Vec<&str> = words.split_whitespace().collect();
        let Submission { job, secrets, .. } = submit(&words).unwrap();
        let gang = &job.gangs[0];
        assert_eq!((job.name.as_str(), job.queue.as_str(), job.priority), ("train", "lab", -5));
        assert_eq!((gang.size, gang.members_per_node, gang.needs.devices), (16, Some(8), 1));
        assert_eq!(gang.needs.models.first().map(|m| m.model.as_str()), Some("H100"));
        assert_eq!(gang.topology.wait_ms, 600_000);
        let segments: Vec<(u32, &str)> =
            gang.topology.segments.iter().map(|s| (s.size, s.level.as_str())).collect();
        assert_eq!(segments, [(8, "node"), (4, "nvlink")]);
        assert_eq!(gang.program.argv, ["python", "train.py", "-x"]);
        assert_eq!(gang.program.launch, LaunchKind::Ranks);
        assert_eq!(gang.program.workdir, "/here");
        assert_eq!(job.policy.time_limit_ms, Some(90 * 60_000));
        assert_eq!((job.policy.retry.max, job.policy.stop.grace_ms), (3, 10_000));
        assert_eq!(job.policy.retry.on, [FailureClass::Node, FailureClass::Preemption]);
        assert_eq!(job.policy.stop.advisory.unwrap().lead_ms, 120_000);
        assert!(secrets.is_empty());
    }

    #[test]
    fn every_kind_of_request_has_flags() {
        let words = "-N 2 --ranks-per-node 4 -G 0.25 --resource nic=4 --exclude bad --prefer a --prefer b --exclusive \
                     --spread 4@rack -- serve";
        let words: Vec<&str> = words.split_whitespace().collect();
        let gang = submit(&words).unwrap().job.gangs.remove(0);
        let Some(PartNeed::Share { compute_milli, .. }) = gang.needs.part else { panic!("{gang:?}") };
        assert_eq!((gang.size, gang.needs.devices, compute_milli), (8, 0, 250));
        assert_eq!(gang.needs.named.values().collect::<Vec<_>>(), [&1]);
        assert_eq!((gang.needs.avoid.len(), gang.needs.prefer.len()), (1, 2));
        assert!(gang.needs.is_exclusive);
        assert_eq!(gang.topology.spread[0].max, 4);
        let gang = submit(&["--mig", "1g.10gb", "--", "x"]).unwrap().job.gangs.remove(0);
        assert_eq!(gang.needs.part, Some(PartNeed::Profile("1g.10gb".to_owned())));
        let gang = submit(&["--slice", "4x4x8", "--", "x"]).unwrap().job.gangs.remove(0);
        assert_eq!((gang.topology.slice, gang.size), (Some([4, 4, 8]), 128));
        let gang = submit(&["-G", "32", "--parallel", "tp=8,dp=4", "--", "x"]).unwrap().job.gangs.remove(0);
        assert_eq!(gang.grid.iter().map(|axis| axis.degree).collect::<Vec<_>>(), [8, 4]);
    }

    #[test]
    fn flags_say_when_it_goes() {
        let words = "--class serving --hold --after 12,13:any --begin +1m --deadline 1970-01-02T00:00Z -a 3%2 --preempt never \
                     --spot -- x";
        let job = submit(&words.split_whitespace().collect::<Vec<_>>()).unwrap().job;
        let turn = &job.turn;
        assert_eq!(turn.class.as_ref().map(|class| class.as_str()), Some("serving"));
        assert_eq!(
            turn.after.iter().map(|after| (after.job.0, after.end)).collect::<Vec<_>>(),
            [(12, EndOf::Success), (13, EndOf::Any)]
        );
        assert_eq!((turn.begins_at, turn.deadline), (Some(Timestamp(61_000)), Some(Timestamp(86_400_000))));
        assert_eq!((job.gang_count(), turn.array.as_ref().and_then(|array| array.running_max)), (3, Some(2)));
        assert_eq!(job.policy.preempt.mode, PreemptMode::Never);
        assert!(turn.held_by.is_some() && turn.takes_spot);
    }

    #[test]
    fn the_environment_is_passed_on_and_the_job_wins() {
        let job = submit(&["-e", "PATH=/opt", "-e", "DEBUG", "--", "x"]).unwrap().job;
        let env = &job.gangs[0].program.env;
        let expected = [("DEBUG", "1"), ("HOME", "/home/a"), ("PATH", "/opt")];
        assert!(env.iter().map(|(k, v)| (k.as_str(), v.as_str())).eq(expected), "{env:?}");
    }

    #[test]
    fn secrets_travel_beside_the_job() {
        let Submission { job, secrets, .. } = submit(&["--secret", "TOKEN", "--", "x"]).unwrap();
        assert_eq!(secrets, BTreeMap::from([("TOKEN".to_owned(), "s3cret".to_owned())]));
        assert!(!format!("{job:?}").contains("s3cret"));
        let failure = submit(&["--secret", "NOPE", "--", "x"]).unwrap_err();
        assert_eq!(failure.message, "secret NOPE has no value: it is not set here");
    }

    #[test]
    fn errors_name_the_flag() {
        for (words, flag) in [
            (["-G", "many"], "--gpus: "),
            (["-N", "0"], "--nodes: "),
            (["-t", "soon"], "--time: "),
            (["--segment", "node"], "--segment: "),
            (["--spread", "rack"], "--spread: "),
            (["--slice", "big"], "--slice: "),
            (["--parallel", "8"], "--parallel: "),
            (["--resource", "nic"], "--resource: "),
            (["--mig", "1g"], "--mig: "),
            (["--mem", "-1"], "--memory: "),
            (["--retry-on", "luck"], "--retry-on: "),
            (["--after", "train"], "--after: "),
            (["--begin", "soon"], "--begin: "),
            (["--array", "9-1"], "--array: "),
            (["-e", "UNSET"], "--env: "),
        ] {
            let line: Vec<&str> = words.into_iter().chain(["--", "x"]).collect();
            let words = if words[0] == "--mem" { vec!["--mem=-1", "--", "x"] } else { line };
            let failure = submit(&words).unwrap_err();
            assert!(failure.message.starts_with(flag), "{failure:?}");
            assert_eq!(failure.exit, 64);
        }
    }
}
