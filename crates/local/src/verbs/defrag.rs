//! Moves of running jobs that open a place for a job that waits.

use phalanx_model::{
    Answer as Told, Change, GangId, Input, Move, NodeName, Opening, Placement, Question, StopCause,
};
use phalanx_shell::Engine;

use super::{Failure, operator, refuse, resolve};
use crate::daemon::Daemon;
use phalanx_api::Peer;
use phalanx_api::protocol::{Answer, DefragView, ErrorCode, JobRef, MoveView};

/// Finds the moves, and has them done if `apply` is set.
pub(super) fn defrag(
    daemon: &Daemon,
    peer: &Peer,
    wanted: Option<&JobRef>,
    apply: bool,
) -> Result<Answer, Failure> {
    if apply {
        operator(peer)?;
    }
    let (wanted, uid) = (wanted.cloned(), peer.owner.uid);
    let gang = daemon.engine.look(move |engine| wanted.map(|job| waiting(engine, &job, uid)).transpose())?;
    let gang =
        gang.map_err(|why| refuse(ErrorCode::NotFound, why, "`phalanx ps` lists the jobs that wait"))?;
    let found = daemon.engine.look(move |engine| opening(engine, gang))?;
    let mut view = found.map_err(|why| nothing_moves(&why))?;
    if apply {
        let gang = view.gang;
        let facts = vec![Input::DefragmentationRequested { gang: Some(gang) }];
        let moved = daemon.engine.request(facts, move |engine, changes| moved(engine, changes, gang))?;
        view.moves = moved.map_err(|why| nothing_moves(&why))?;
        view.is_applied = true;
    }
    Ok(Answer::Defrag(Box::new(view)))
}

/// The moves that a step made for a gang, or why it made none. Something may have changed since they were planned.
fn moved(engine: &Engine, changes: &[Change], by: GangId) -> Result<Vec<MoveView>, String> {
    let moved = changes.iter().filter_map(|change| match change {
        Change::GangStopping { gang, cause: StopCause::Moved { by: of, to, lost_device_ms }, .. }
            if *of == by =>
        {
            let from = engine.gang(*gang)?.placement.clone()?;
            let (gang, to, lost_device_ms) = (*gang, to.clone(), *lost_device_ms);
            Some(move_view(engine, &Move { gang, from, to, lost_device_ms }))
        }
        _ => None,
    });
    let moved: Vec<MoveView> = moved.collect();
    if !moved.is_empty() {
        return Ok(moved);
    }
    let of_it = format!("defragmentation for gang {by}");
    let why = changes.iter().find_map(|change| match change {
        Change::InputRejected { what, why } if *what == of_it => Some(why.clone()),
        _ => None,
    });
    Err(why.unwrap_or_else(|| "something changed meanwhile".to_owned()))
}

fn nothing_moves(why: &str) -> Failure {
    let hint = "jobs move that say `may_move: true`, to places that are free, as near and as fast";
    refuse(ErrorCode::Rejected, format!("nothing moves: {why}"), hint)
}

/// The first gang of a job that waits.
fn waiting(engine: &Engine, wanted: &JobRef, uid: u32) -> Result<GangId, String> {
    let id = resolve(engine, wanted, uid).filter(|id| engine.job(*id).is_some());
    let id = id.ok_or("no such job")?;
    let pending = engine.records_of(id).iter().find(|record| record.is_pending());
    pending.map(|record| record.id).ok_or_else(|| format!("job {id} does not wait"))
}

fn opening(engine: &Engine, gang: Option<GangId>) -> Result<DefragView, String> {
    let opening = match engine.what_if(&Question::Defragmented(gang)) {
        Told::WouldOpen(opening) => *opening,
        Told::OpensNothing { why } => return Err(why),
        _ => return Err("there is no answer".to_owned()),
    };
    let Opening { gang, placement, at, otherwise, pending_since, restart_ms, moves } = opening;
    Ok(DefragView {
        gang,
        name: name(engine, gang),
        devices: devices(engine, gang),
        placement,
        at,
        otherwise,
        pending_since,
        moves: moves.iter().map(|one| move_view(engine, one)).collect(),
        restart_ms,
        is_applied: false,
    })
}

fn move_view(engine: &Engine, one: &Move) -> MoveView {
    MoveView {
        gang: one.gang,
        name: name(engine, one.gang),
        devices: devices(engine, one.gang),
        from: nodes(&one.from),
        to: nodes(&one.to),
        lost_device_ms: one.lost_device_ms,
    }
}

fn name(engine: &Engine, gang: GangId) -> String {
    engine.job(gang.job).map_or_else(String::new, |job| job.name.to_string())
}

fn devices(engine: &Engine, gang: GangId) -> u32 {
    let of = engine.job(gang.job).and_then(|job| job.gang_at(gang.index));
    of.map_or(0, |of| of.device_count())
}

/// The nodes of a placement, in the order of ranks.
fn nodes(placement: &Placement) -> Vec<NodeName> {
    let mut nodes: Vec<NodeName> = placement.slots.iter().map(|slot| slot.node.clone()).collect();
    nodes.dedup();
    nodes
}
