//! Terminals of ranks on this machine: which rank has one, its folder, and the words that start a keeper.

use std::io;
use std::path::Path;

use nix::unistd::{Gid, Uid, chown, geteuid};
use phalanx_model::Gang;
use phalanx_node::terminal::{Ask, Life, Surface};

use crate::env::launcher;
use crate::launch;
use phalanx_api::protocol::{ExecAsk, TerminalView};

/// The name of the socket of a rank's own terminal.
pub const RANK: &str = "rank";

/// The rank that runs in a terminal, if one does: the launcher, or else the first.
pub(crate) fn rank(gang: &Gang) -> Option<u32> {
    gang.program.terminal.then(|| launcher(gang).unwrap_or(0))
}

/// Makes the folder of the sockets, for the job's owner alone. Again is the same as once: what is above the folder is
/// not the owner's, so nobody puts something else in its place.
pub(crate) fn make_dir(dir: &Path, uid: u32, gid: u32) -> io::Result<()> {
    launch::make_dir(dir, 0o700)?;
    if geteuid().is_root() {
        chown(dir, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    Ok(())
}

/// What starts the program of a rank in a terminal.
pub(crate) fn of_rank(dir: &Path, argv: Vec<String>) -> Vec<String> {
    let (dir, name) = (dir.to_owned(), RANK.to_owned());
    Ask { dir, name, surface: Surface::Terminal, life: Life::Rank, term: None, argv }.words()
}

/// What starts a command beside a rank.
pub(crate) fn beside(place: &TerminalView, ask: &ExecAsk) -> Vec<String> {
    let surface = if ask.terminal.is_some() { Surface::Terminal } else { Surface::Pipes };
    let (dir, name) = (place.dir.clone(), place.name.clone());
    let (term, argv) = (ask.terminal.clone(), ask.argv.clone());
    Ask { dir, name, surface, life: Life::Client, term, argv }.words()
}
