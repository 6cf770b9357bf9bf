//! What devices were for, and what it cost.

use super::{Failure, refuse, unreadable};
use crate::account;
use crate::daemon::Daemon;
use phalanx_api::Peer;
use phalanx_api::protocol::{Answer, BillAsk, BillBy, ErrorCode};

/// What a peer may see of the account.
pub(super) fn bill(daemon: &Daemon, peer: &Peer, ask: &BillAsk) -> Result<Answer, Failure> {
    if ask.by.len() > BillBy::ALL.len() {
        let hint = "name each column once";
        return Err(refuse(ErrorCode::BadRequest, "a bill has more columns than there are", hint));
    }
    if peer.is_operator {
        account::write_down(daemon);
    } else {
        account::write_down_for_a_user(daemon);
    }
    let uid = (!peer.is_operator).then_some(peer.owner.uid);
    Ok(Answer::Bill(daemon.recorder.bill(uid, ask).map_err(unreadable)?))
}
