//! Starts and the accounts of their owners. The name service may hang, and starts of other users do not wait for it.

use std::collections::BTreeMap;
use std::time::Duration;

use phalanx_model::{EffectId, Input, Node, NodeName};

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
            return self.start_known(id, *start, &nodes, Ok(account));
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
        mut start: Start,
        nodes: &BTreeMap<NodeName, Node>,
        account: Result<Account, Unanswered>,
    ) {
        // Killed meanwhile, and every rank was reported as never started.
        if self.waiting.remove(&(start.gang, start.attempt)) {
            match account {
                Ok(account) => {
                    start.account = account;
                    self.start(&start, nodes);
                }
                Err(e) => self.fail_all(
                    &start,
                    &format!("the groups of uid {} are not known: {e}", start.job.owner.uid),
                ),
            }
        }
        self.report(vec![Input::EffectDone { effect: id }]);
    }
}
