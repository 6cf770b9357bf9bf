//! What a start waits for: the account of its owner, as the name service may hang, and the check of its GPUs. Other starts
//! do not wait meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use phalanx_model::{EffectId, GangId, Input, Node, NodeName};
use tracing::warn;

use super::{Hands, Task};
use crate::launch::Start;
use crate::threads;
use crate::user::{self, Account, Unanswered};

/// How long a start waits for the name service before it fails.
const PATIENCE: Duration = Duration::from_secs(30);

impl Hands {
    /// Starts a gang whose owner's account is known; else it is looked up on a thread of its own, and other tasks go on.
    pub(super) fn start_if_known(
        &mut self,
        id: EffectId,
        start: Box<Start>,
        nodes: BTreeMap<NodeName, Node>,
    ) {
        self.waiting.insert((start.gang, start.attempt));
        if let Some(account) = user::known(&start.job.owner) {
            return self.start_known(id, start, nodes, Ok(account));
        }
        let tasks = self.tasks.clone();
        let spare = start.clone();
        let look_up = move || {
            let account = user::insist(&start.job.owner, PATIENCE);
            let _ = tasks.send(Task::Known { id, start, nodes, account });
        };
        if let Err(e) = threads::single("account", look_up) {
            self.waiting.remove(&(spare.gang, spare.attempt));
            self.fail_all(&spare, &format!("no thread to look up the account of its owner: {e}"));
            self.report(vec![Input::EffectDone { effect: id }]);
        }
    }

    /// A rank never runs with fewer groups than its owner has: without an answer the start fails, and says why.
    pub(super) fn start_known(
        &mut self,
        id: EffectId,
        mut start: Box<Start>,
        nodes: BTreeMap<NodeName, Node>,
        account: Result<Account, Unanswered>,
    ) {
        // Killed meanwhile, and every rank was reported as never started.
        if !self.waiting.remove(&(start.gang, start.attempt)) {
            return self.report(vec![Input::EffectDone { effect: id }]);
        }
        match account {
            Ok(account) => {
                start.account = account;
                self.start_if_checked(id, start, nodes);
            }
            Err(e) => {
                let uid = start.job.owner.uid;
                self.fail_all(&start, &format!("the groups of uid {uid} are not known: {e}"));
                self.report(vec![Input::EffectDone { effect: id }]);
            }
        }
    }

    /// Starts a gang whose GPUs need no check; else they are checked on a thread of its own.
    fn start_if_checked(&mut self, id: EffectId, start: Box<Start>, nodes: BTreeMap<NodeName, Node>) {
        let key = (start.gang, start.attempt);
        if self.checking.contains_key(&key) {
            // Ordered again: the check that goes on decides.
            return self.report(vec![Input::EffectDone { effect: id }]);
        }
        let checks = self.preflight.due(self.clock.now(), &start, &nodes);
        if checks.is_empty() {
            self.start(&start, &nodes);
            return self.report(vec![Input::EffectDone { effect: id }]);
        }
        let (tasks, preflight) = (self.tasks.clone(), Arc::clone(&self.preflight));
        let leash = Arc::clone(&self.checking.entry(key).or_default().leash);
        let spare = (start.clone(), nodes.clone());
        let check = move || {
            // None: the daemon ends, and the next one orders the start again.
            if let Some(is_fit) = preflight.run(&checks, &leash) {
                let _ = tasks.send(Task::Checked { id, start, nodes, is_fit });
            }
        };
        if let Err(error) = threads::single("preflight", check) {
            warn!(%error, "there is no thread for a preflight, and the gang starts");
            self.checked(id, &spare.0, &spare.1, true);
        }
    }

    /// Starts a gang whose check has ended, unless it was killed meanwhile. If one of its GPUs was closed, the engine stops it,
    /// and places it elsewhere.
    pub(super) fn checked(
        &mut self,
        id: EffectId,
        start: &Start,
        nodes: &BTreeMap<NodeName, Node>,
        is_fit: bool,
    ) {
        let (gang, attempt) = (start.gang, start.attempt);
        match self.checking.remove(&(gang, attempt)).and_then(|checking| checking.killed) {
            Some(size) => self.settle(gang, attempt, size),
            None if is_fit => self.start(start, nodes),
            None => {}
        }
        self.report(vec![Input::EffectDone { effect: id }]);
    }

    /// Ends the check of an attempt that is over. Whether there is one.
    pub(super) fn end_check(&mut self, gang: GangId, attempt: u32, size: u32) -> bool {
        let Some(checking) = self.checking.get_mut(&(gang, attempt)) else { return false };
        checking.killed = Some(size);
        checking.leash.let_go();
        true
    }
}
