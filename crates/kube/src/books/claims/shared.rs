//! Claims that several pods of one gang share, and that are not allocated yet.
//!
//! Devices are mostly of one node, so pods that share some are to be on one node: the gang as a whole, which is what the
//! engine can be asked for. The claim is allocated with the first of them, and is reserved for each before it is bound.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Asked;

/// Users that the API server lets a claim have.
const USERS_MAX: usize = 256;

/// See the module. By the name of the claim: what pods call it, and how many have it.
#[derive(Default)]
pub(crate) struct Shared(BTreeMap<Arc<str>, (Box<str>, usize)>);

impl Shared {
    /// A pod of the gang asks for this.
    pub(crate) fn add(&mut self, asked: &Asked) {
        for (name, claim) in &asked.shared {
            self.0.entry(Arc::clone(claim)).or_insert_with(|| (name.clone(), 0)).1 += 1;
        }
    }

    /// Whether all pods of a gang of so many have to be on one node.
    ///
    /// # Errors
    /// Where some have to and others not, or more than a claim can be for.
    pub(crate) fn is_one_node(&self, pods: usize) -> Result<bool, String> {
        let mut shared = self.0.iter().filter(|(_, (_, users))| *users > 1).peekable();
        let is_shared = shared.peek().is_some();
        match shared.find(|(_, (_, users))| *users != pods || pods > USERS_MAX) {
            None => Ok(is_shared),
            Some((claim, (name, users))) => Err(format!(
                "not supported: spec.resourceClaims[{name}]: {users} of {pods} pods of the gang share ResourceClaim \
                 {claim}, which is not allocated; one can have it, or all of at most {USERS_MAX}"
            )),
        }
    }
}
