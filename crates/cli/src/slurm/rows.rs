//! Jobs as Slurm sees them: a line for a job, and for an array one for each task that runs and one for those that wait.

use phalanx_api::protocol::{Answer, ArrayView, GangView, JobFilter, JobRef, JobView, Verb as Ask};
use phalanx_model::{Ending, FailureClass, Job, Phase, Tasks, Timestamp};

use super::options::{Given, Where};
use super::{hostlist, size};
use crate::failure::Failure;
use crate::show::clean;
use crate::verbs::Session;

/// Jobs that one list shows.
const JOBS_MAX: u32 = 10_000;

/// A job's state in Slurm's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// `PD`.
    pub(super) code: &'static str,
    /// `PENDING`.
    pub(super) word: &'static str,
}

const STATES: [(&str, &str, &str); 14] = [
    ("PD", "PENDING", "pending"),
    ("CF", "CONFIGURING", "starting"),
    ("R", "RUNNING", "running"),
    ("CG", "COMPLETING", "stopping"),
    ("CD", "COMPLETED", "succeeded"),
    ("F", "FAILED", "failed"),
    ("CA", "CANCELLED", "cancelled"),
    ("TO", "TIMEOUT", "time_limit"),
    ("PR", "PREEMPTED", "preempted"),
    ("DL", "DEADLINE", "deadline_missed"),
    ("CA", "CANCELLED", "dependency_failed"),
    ("TO", "TIMEOUT", "idle_limit"),
    ("NF", "NODE_FAIL", ""),
    ("OOM", "OUT_OF_MEMORY", ""),
];

impl State {
    fn of(word: &str, ending: Option<&Ending>) -> Self {
        let code = match ending {
            Some(Ending::Failed { class: FailureClass::Node, .. }) => "NF",
            Some(Ending::Failed { detail, .. }) if detail.contains("out of memory") => "OOM",
            _ => "",
        };
        let found =
            STATES.iter().find(|(of, _, ours)| if code.is_empty() { *ours == word } else { *of == code });
        let (code, word) = found.map_or(("?", "UNKNOWN"), |(code, word, _)| (*code, *word));
        Self { code, word }
    }

    /// The words of Phalanx for a state that a user names.
    pub(super) fn named(text: &str) -> Option<Vec<&'static str>> {
        let upper = text.to_ascii_uppercase();
        let ours: Vec<&str> = STATES
            .iter()
            .filter(|(code, word, _)| *code == upper || *word == upper)
            .map(|(_, _, ours)| if ours.is_empty() { "failed" } else { *ours })
            .collect();
        (!ours.is_empty()).then_some(ours)
    }
}

/// A line of a list.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) view: JobView,
    /// `7`, `7_3` or `7_[4-9%2]`.
    pub(super) id: String,
    pub(super) task: Option<u32>,
    pub(super) state: State,
    /// `Resources`, for a job that waits.
    pub(super) reason: String,
    pub(super) nodes: Vec<String>,
    pub(super) node_count: u32,
    pub(super) gpus_per_node: u32,
    pub(super) started_at: Option<Timestamp>,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) estimated_start: Option<Timestamp>,
    pub(super) ending: Option<Ending>,
}

impl Row {
    /// What was submitted, for its owner.
    pub(super) fn job(&self) -> Option<&Job> {
        self.view.job.as_deref()
    }

    /// Milliseconds that it has run.
    pub(super) fn elapsed_ms(&self, now: Timestamp) -> u64 {
        self.started_at.map_or(0, |at| self.ended_at.unwrap_or(now).since(at))
    }

    pub(super) fn limit_s(&self) -> Option<u64> {
        self.job()?.policy.time_limit_ms.map(|ms| ms / 1_000)
    }

    /// `1-00:00:00`, `UNLIMITED`, or `N/A` for a job of somebody else.
    pub(super) fn limit(&self) -> String {
        match (self.job(), self.limit_s()) {
            (None, _) => "N/A".to_owned(),
            (_, None) => "UNLIMITED".to_owned(),
            (_, Some(seconds)) => size::elapsed(seconds),
        }
    }

    /// CPUs of the job, if it asks for them, and one for each node if not.
    pub(super) fn cpus(&self) -> String {
        let gang = self.job().and_then(|job| job.gangs.first());
        gang.map_or_else(
            || "N/A".to_owned(),
            |gang| {
                let each = gang.needs.cpu_milli.div_ceil(1_000).max(1);
                each.saturating_mul(u64::from(self.node_count)).to_string()
            },
        )
    }

    pub(super) fn gpus(&self) -> u32 {
        self.gpus_per_node.saturating_mul(self.node_count)
    }

    /// `gres/gpu:8`, of one node.
    pub(super) fn tres(&self) -> String {
        if self.gpus_per_node == 0 { "N/A".to_owned() } else { format!("gres/gpu:{}", self.gpus_per_node) }
    }

    pub(super) fn node_list(&self) -> String {
        hostlist::compress(&self.nodes)
    }

    /// `gpu-[1-2]`, or `(Resources)`.
    pub(super) fn place_or_reason(&self) -> String {
        if self.nodes.is_empty() || self.state.code == "PD" {
            format!("({})", self.reason)
        } else {
            self.node_list()
        }
    }
}

/// The lines of a job.
pub(super) fn of(view: &JobView) -> Vec<Row> {
    let Some(array) = view.array.as_deref() else {
        return vec![row(view, None, view.gangs.first())];
    };
    let is_pending = |gang: &&GangView| matches!(gang.phase, Some(Phase::Pending { .. }) | None);
    let mut rows: Vec<Row> = view
        .gangs
        .iter()
        .filter(|gang| !is_pending(gang))
        .map(|gang| row(view, gang.task, Some(gang)))
        .collect();
    rows.sort_by_key(|row| row.task);
    if array.progress.pending > 0 {
        let numbers = pending(view, array);
        let mut first = row(view, None, view.gangs.iter().find(is_pending).or(view.gangs.first()));
        let most = array.running_max.map(|most| format!("%{most}")).unwrap_or_default();
        first.id = format!("{}_[{}{most}]", view.id, ranges(&numbers, &array.numbers));
        (first.state, first.nodes) = (State::of("pending", None), Vec::new());
        (first.started_at, first.ended_at, first.ending) = (None, None, None);
        first.reason = if view.reason.is_empty() { "JobArrayTaskLimit".to_owned() } else { reason(view) };
        rows.insert(0, first);
    }
    rows
}

/// The numbers of the tasks that wait. If the view does not list all tasks, these are the last ones, since tasks start in
/// the order of their numbers.
fn pending(view: &JobView, array: &ArrayView) -> Vec<u32> {
    if array.left_out == 0 {
        let waits = |gang: &&GangView| matches!(gang.phase, Some(Phase::Pending { .. }) | None);
        let mut numbers: Vec<u32> = view.gangs.iter().filter(waits).filter_map(|gang| gang.task).collect();
        numbers.sort_unstable();
        return numbers;
    }
    let begun = array.tasks.saturating_sub(array.progress.pending);
    array.numbers.numbers().skip(usize::try_from(begun).unwrap_or(0)).collect()
}

/// Numbers of tasks as ranges; with the step of the array if it has one.
fn ranges(numbers: &[u32], all: &Tasks) -> String {
    let step = all.step().unwrap_or(1).max(1);
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(step) == Some(*number) => *last = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let text = |(first, last): &(u32, u32)| match (first == last, step) {
        (true, _) => first.to_string(),
        (false, 1) => format!("{first}-{last}"),
        (false, step) => format!("{first}-{last}:{step}"),
    };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}

fn row(view: &JobView, task: Option<u32>, gang: Option<&GangView>) -> Row {
    let phase = gang.and_then(|gang| gang.phase.as_ref()).filter(|_| task.is_some());
    let ending = match phase {
        Some(Phase::Finished { ending, .. }) => Some(ending.clone()),
        Some(_) => None,
        None => view.ending.clone(),
    };
    let (started_at, ended_at) = match phase {
        Some(Phase::Finished { at, .. }) => (view.started_at, Some(*at)),
        Some(Phase::Running { since }) => (Some(*since), None),
        Some(_) => (None, None),
        None => (view.started_at, view.finished_at),
    };
    let word: &str = match phase {
        Some(phase) => phase.word(),
        None => &view.state,
    };
    let mut nodes: Vec<String> = Vec::new();
    let placement = gang.and_then(|gang| gang.placement.as_ref()).filter(|_| word != "pending");
    for slot in placement.iter().flat_map(|placement| &placement.slots) {
        if !nodes.iter().any(|name| *name == slot.node.as_str()) {
            nodes.push(slot.node.to_string());
        }
    }
    let of_job = view.job.as_ref().and_then(|job| job.gangs.first());
    let size = gang.map_or(1, |gang| gang.size.max(1));
    let each = gang.map_or(0, |gang| gang.devices_per_member);
    let placed = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let node_count = if placed > 0 {
        placed
    } else {
        // Jobs of sbatch have one member on each node; of others it is known how many a node has, or not.
        of_job.and_then(|gang| gang.members_per_node).map_or(size, |on_node| size.div_ceil(on_node.max(1)))
    };
    let gpus_per_node = each.saturating_mul(size) / node_count.max(1);
    let mut view = view.clone();
    // Others wrote them, and lists are for terminals.
    (view.name, view.owner) = (clean(&view.name), clean(&view.owner));
    Row {
        reason: ending.as_ref().map_or_else(|| reason(&view), |ending| ended(ending).to_owned()),
        id: task.map_or_else(|| view.id.to_string(), |task| format!("{}_{task}", view.id)),
        task,
        state: State::of(word, ending.as_ref()),
        nodes,
        node_count,
        gpus_per_node,
        started_at,
        ended_at,
        estimated_start: gang.and_then(|gang| gang.estimated_start),
        ending,
        view,
    }
}

/// How a job ended, in Slurm's words.
const fn ended(ending: &Ending) -> &'static str {
    match ending {
        Ending::Failed { class: FailureClass::Node, .. } => "NodeDown",
        Ending::Failed { class: FailureClass::StartUp, .. } => "JobLaunchFailure",
        Ending::Failed { .. } => "NonZeroExitCode",
        Ending::TimeLimit | Ending::IdleLimit => "TimeLimit",
        Ending::DependencyFailed { .. } => "DependencyNeverSatisfied",
        Ending::DeadlineMissed => "DeadLine",
        Ending::Succeeded | Ending::Cancelled { .. } | Ending::Preempted { .. } => "None",
    }
}

/// The reason for which a job waits, in Slurm's words.
fn reason(view: &JobView) -> String {
    let by_owner = view.detail.contains(&format!("held by {} ", view.owner));
    match view.reason.as_str() {
        "" | "None" | "ScaledIn" => "None",
        "Topology" | "PreferredWait" | "NearerWait" | "Preempting" | "BudgetExhausted" => "Resources",
        "Maintenance" => "ReqNodeNotAvail",
        "QueueLimit" => "AssocGrpGRES",
        "Held" if by_owner => "JobHeldUser",
        "Held" => "JobHeldAdmin",
        "ArrayLimit" => "JobArrayTaskLimit",
        "BackOff" => "BeginTime",
        other => other,
    }
    .to_owned()
}

/// Which jobs a command means.
#[derive(Clone, Debug, Default)]
pub(super) struct Meant {
    pub(super) jobs: Vec<JobRef>,
    users: Vec<String>,
    partitions: Vec<String>,
    names: Vec<String>,
    states: Vec<&'static str>,
}

impl Meant {
    /// Reads `--jobs`, `--user`, `--partition`, `--name` and `--states`, and `--me`.
    ///
    /// # Errors
    /// If a job or a state is none.
    pub(super) fn read(given: &Given, from: Where<'_>) -> Result<Self, Failure> {
        let mut meant = Self::default();
        for id in split_ids(given.get("jobs").unwrap_or_default()) {
            meant.jobs.push(job(&id, from)?);
        }
        let owned = |flag: &str| given.list(flag).into_iter().map(str::to_owned).collect::<Vec<_>>();
        (meant.users, meant.partitions, meant.names) = (owned("user"), owned("partition"), owned("name"));
        if given.has("me") {
            meant.users.push(me());
        }
        for state in given.list("states").into_iter().filter(|state| !state.eq_ignore_ascii_case("all")) {
            let ours = State::named(state).ok_or_else(|| {
                from.refuse(
                    &format!("{state:?} is no state"),
                    "such as PD, R, CG, CD, F, CA, TO, NF, OOM, PR, DL",
                )
            })?;
            meant.states.extend(ours);
        }
        Ok(meant)
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.jobs.is_empty()
            && self.users.is_empty()
            && self.partitions.is_empty()
            && self.names.is_empty()
            && self.states.is_empty()
    }

    pub(super) fn has_states(&self) -> bool {
        !self.states.is_empty()
    }

    pub(super) fn of_user(&mut self, user: String) {
        if self.users.is_empty() && self.jobs.is_empty() {
            self.users.push(user);
        }
    }

    /// The jobs, oldest first, with their submissions where `in_full`.
    pub(super) fn ask(
        &self,
        session: &Session,
        finished: bool,
        in_full: bool,
    ) -> Result<Vec<JobView>, Failure> {
        let mut views = Vec::new();
        if self.jobs.is_empty() {
            let finished = finished || self.states.iter().any(|state| Ending::WORDS.contains(state));
            let one = |list: &[String]| <[String; 1]>::try_from(list.to_vec()).ok().map(|[one]| one);
            let filter = JobFilter { user: one(&self.users), ..JobFilter::default() };
            let Answer::Jobs(jobs) = session.ask(Ask::List { finished, filter, limit: JOBS_MAX })? else {
                return Err(Failure::unexpected());
            };
            for job in jobs.into_iter().filter(|job| self.means(job)) {
                views.push(if in_full || job.array.is_some() {
                    get(session, &JobRef::Id(job.id))?
                } else {
                    job
                });
            }
        } else {
            for job in &self.jobs {
                let view = get(session, job)?;
                if self.means(&view) && (finished || view.finished_at.is_none()) {
                    views.push(view);
                }
            }
        }
        views.sort_by_key(|view| view.id);
        Ok(views)
    }

    fn means(&self, job: &JobView) -> bool {
        let is_one = |list: &[String], value: &str| list.is_empty() || list.iter().any(|one| one == value);
        let is_user = self.users.is_empty()
            || self.users.iter().any(|user| *user == job.owner || *user == job.uid.to_string());
        is_user && is_one(&self.partitions, &job.queue) && is_one(&self.names, &job.name)
    }

    /// Whether a line is in one of the states.
    pub(super) fn is_in_state(&self, row: &Row) -> bool {
        let of = |word: &str| {
            State::of(word, None).code == row.state.code
                || (word == "failed" && matches!(row.state.code, "NF" | "OOM"))
        };
        self.states.is_empty() || self.states.iter().any(|word| of(word))
    }
}

pub(super) fn get(session: &Session, job: &JobRef) -> Result<JobView, Failure> {
    match session.ask(Ask::Get { job: job.clone() })? {
        Answer::Job(view) => Ok(*view),
        _ => Err(Failure::unexpected()),
    }
}

pub(super) fn me() -> String {
    let uid = nix::unistd::getuid();
    nix::unistd::User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

/// Splits at commas outside of brackets.
pub(super) fn split_ids(text: &str) -> Vec<String> {
    let (mut ids, mut depth) = (vec![String::new()], 0_i32);
    for letter in text.chars() {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        match ids.last_mut() {
            Some(_) if letter == ',' && depth <= 0 => ids.push(String::new()),
            Some(id) => id.push(letter),
            None => {}
        }
    }
    ids.retain(|id| !id.is_empty());
    ids
}

/// `7`, `7_3`, `7_[3-5,9]`. In a task of an array, the number of its job alone means the task.
///
/// # Errors
/// If it is no number of a job.
pub(super) fn job(text: &str, from: Where<'_>) -> Result<JobRef, Failure> {
    let wrong = || {
        from.refuse(
            &format!("{text:?} is no number of a job"),
            "such as 7, 7_3 or 7_[3-5]; `squeue` lists them",
        )
    };
    if text.contains('.') {
        let hint = "a job's steps have no numbers: name the job";
        return Err(from.refuse(&format!("{text}: steps are not supported"), hint));
    }
    let (id, tasks) = text.split_once('_').map_or((text, None), |(id, tasks)| (id, Some(tasks)));
    let id: u64 = id.parse().map_err(|_| wrong())?;
    let own = std::env::var("PHALANX_JOB_ID").ok().filter(|own| *own == text);
    let task = own.and_then(|_| std::env::var("PHALANX_ARRAY_INDEX").ok());
    match tasks.map(str::to_owned).or(task) {
        None => Ok(JobRef::Id(phalanx_model::JobId(id))),
        Some(tasks) => {
            let plain = tasks.trim_matches(['[', ']']);
            let plain = plain.split('%').next().unwrap_or(plain);
            Tasks::read(plain)
                .map(|tasks| JobRef::Tasks(phalanx_model::JobId(id), tasks))
                .map_err(|_| wrong())
        }
    }
}
