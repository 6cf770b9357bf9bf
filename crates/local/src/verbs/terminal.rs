//! Terminals: where that of a rank is, and commands beside ranks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use phalanx_model::{MemberId, Phase};
use phalanx_node::{Found, adopt};

use super::{Failure, own, refuse};
use crate::daemon::Daemon;
use crate::terminal;
use phalanx_api::Peer;
use phalanx_api::protocol::{Answer, ErrorCode, ExecAsk, GangView, JobRef, JobView, TerminalView};

/// How long a shim may take to start a command.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Arguments of one command together, in bytes: a line to a shim has at most 64 KiB.
const ARGV_BYTES_MAX: usize = 32 << 10;

/// Numbers the commands of this daemon.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Where the terminal of a job is.
pub(super) fn of_job(daemon: &Daemon, peer: &Peer, wanted: &JobRef) -> Result<Answer, Failure> {
    let view = own(daemon, peer, wanted)?;
    let gang = running(&view, wanted)?;
    let Some(rank) = rank_with_terminal(&view, gang) else {
        let message = format!("job {} has no terminal", view.id);
        let hint = format!(
            "`phalanx exec {} -- bash` starts a shell beside its rank 0; `phalanx run --pty` starts a job with one",
            view.id
        );
        return Err(refuse(ErrorCode::BadRequest, message, hint));
    };
    let member = MemberId { gang: gang.id, attempt: gang.attempt, rank };
    Ok(Answer::Terminal(view_of(daemon, &view, member, terminal::RANK.to_owned())))
}

/// Starts a command beside a rank.
pub(super) fn exec(daemon: &Daemon, peer: &Peer, wanted: &JobRef, ask: &ExecAsk) -> Result<Answer, Failure> {
    let bytes: usize = ask.argv.iter().chain(&ask.terminal).map(|word| word.len() + 1).sum();
    if ask.argv.is_empty() || bytes > ARGV_BYTES_MAX || ask.argv.iter().any(|word| word.contains('\0')) {
        let message = format!("the command has {bytes} bytes");
        let hint = format!("give a program and its arguments, at most {ARGV_BYTES_MAX} bytes without NUL");
        return Err(refuse(ErrorCode::BadRequest, message, hint));
    }
    let view = own(daemon, peer, wanted)?;
    let gang = running(&view, wanted)?;
    let rank = ask.rank.or_else(|| rank_with_terminal(&view, gang)).unwrap_or(0);
    if rank >= gang.member_count() {
        let message = format!("job {} has no rank {rank}", view.id);
        return Err(refuse(
            ErrorCode::NotFound,
            message,
            format!("its ranks are 0 to {}", gang.member_count() - 1),
        ));
    }
    let member = MemberId { gang: gang.id, attempt: gang.attempt, rank };
    let name = format!("exec-{}-{}", daemon.epoch, NEXT.fetch_add(1, Ordering::Relaxed));
    let place = view_of(daemon, &view, member, name.clone());
    let gid = view.job.as_ref().map_or(0, |job| job.owner.gid);
    terminal::make_dir(&place.dir, view.uid, gid).map_err(|e| not_started(&view, rank, &e))?;
    let argv = terminal::beside(&place, ask);
    let begun = match adopt(&daemon.paths.member(member)) {
        Ok(Found::Alive(mut shim)) => {
            shim.run_beside(&name, argv, BEGIN_TIMEOUT).map_err(|e| not_started(&view, rank, &e))
        }
        Ok(_) => Err(not_started(&view, rank, &"the rank has ended")),
        Err(e) => Err(not_started(&view, rank, &e)),
    };
    begun.map(|()| Answer::Terminal(place))
}

fn not_started(view: &JobView, rank: u32, why: &dyn std::fmt::Display) -> Failure {
    let message = format!("no command can run beside rank {rank} of job {}: {why}", view.id);
    refuse(ErrorCode::Unavailable, message, "the job goes on; try again")
}

fn view_of(daemon: &Daemon, view: &JobView, member: MemberId, name: String) -> TerminalView {
    TerminalView { member, dir: daemon.paths.terminals(member), name, uid: view.uid }
}

/// The gang that is meant: of an array the one task that is named.
fn running<'a>(view: &'a JobView, wanted: &JobRef) -> Result<&'a GangView, Failure> {
    let id = view.id;
    let mut gangs = view.gangs.iter().filter(|gang| matches!(gang.phase, Some(Phase::Running { .. })));
    let Some(first) = gangs.next() else {
        let message = match wanted.tasks() {
            Some(tasks) => format!("task {tasks} of job {id} is not running"),
            None => format!("job {id} is not running: it is {}", view.state),
        };
        return Err(refuse(
            ErrorCode::BadRequest,
            message,
            format!("`phalanx get {id}` shows what became of it"),
        ));
    };
    if gangs.next().is_some() {
        let message = format!("several parts of job {id} are running");
        let hint = match first.task {
            Some(number) => format!("name the task that is meant, such as `{id}.{number}`"),
            None => "only jobs of one gang, and tasks of arrays, can be entered".to_owned(),
        };
        return Err(refuse(ErrorCode::BadRequest, message, hint));
    }
    Ok(first)
}

fn rank_with_terminal(view: &JobView, gang: &GangView) -> Option<u32> {
    terminal::rank(view.job.as_ref()?.gang_at(gang.id.index)?)
}
