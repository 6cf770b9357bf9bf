//! Moves of running jobs that open a place for a job that waits.

use phalanx_model::{Answer as Told, Change, GangId, Input, Move, NodeName, Opening, Placement, Question};
use phalanx_shell::Engine;

use super::{Failure, operator, refuse, resolve};
use crate::daemon::Daemon;
use crate::protocol::{Answer, DefragView, ErrorCode, JobRef, MoveView};
use crate::server::Peer;

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
        let refused = daemon.engine.request(
            vec![Input::DefragmentationRequested { gang: Some(gang) }],
            |_, changes| {
                changes.iter().find_map(|change| match change {
                    Change::InputRejected { why, .. } => Some(why.clone()),
                    _ => None,
                })
            },
        )?;
        refused.map_or(Ok(()), |why| Err(nothing_moves(&why)))?;
        view.is_applied = true;
    }
    Ok(Answer::Defrag(Box::new(view)))
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
    let name = |gang: GangId| engine.job(gang.job).map_or_else(String::new, |job| job.name.to_string());
    let devices = |gang: GangId| {
        let of = engine.job(gang.job).and_then(|job| job.gang_at(gang.index));
        of.map_or(0, |of| of.device_count())
    };
    let of = |one: Move| MoveView {
        gang: one.gang,
        name: name(one.gang),
        devices: devices(one.gang),
        from: nodes(&one.from),
        to: nodes(&one.to),
        lost_device_ms: one.lost_device_ms,
    };
    Ok(DefragView {
        gang,
        name: name(gang),
        devices: devices(gang),
        placement,
        at,
        otherwise,
        pending_since,
        moves: moves.into_iter().map(of).collect(),
        restart_ms,
        is_applied: false,
    })
}

/// The nodes of a placement, in the order of ranks.
fn nodes(placement: &Placement) -> Vec<NodeName> {
    let mut nodes: Vec<NodeName> = placement.slots.iter().map(|slot| slot.node.clone()).collect();
    nodes.dedup();
    nodes
}
