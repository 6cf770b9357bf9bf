//! Who asks, and where the answers go.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use phalanx_model::Owner;

use crate::protocol::{Answer, Role};

/// Who is on the other end.
#[derive(Clone, Debug)]
pub struct Peer {
    pub owner: Owner,
    /// Root, the user that the daemon runs as, or an operator by a group of the issuer.
    pub is_operator: bool,
    /// The name service knows the owner, or knows of none; else the number is the name.
    pub is_known: bool,
    /// It came with a token that only reads.
    pub is_reader: bool,
    /// The name under which it signed in with an issuer, if that is not the name of the account.
    pub login: Option<String>,
    /// Who it is for the API server of a cluster, which decides what it may see.
    pub cluster_user: Option<Arc<ClusterUser>>,
}

/// A user as the API server of a cluster names it, with all that its authorization looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterUser {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Peer {
    #[must_use]
    pub const fn role(&self) -> Role {
        match (self.is_reader, self.is_operator) {
            (true, _) => Role::Viewer,
            (false, false) => Role::User,
            (false, true) => Role::Operator,
        }
    }
}

/// Where answers go; a client that is gone ends the work for it.
pub trait Reply {
    /// # Errors
    /// When the client is gone, or takes nothing for too long.
    fn send(&mut self, answer: &Answer) -> io::Result<()>;

    /// # Errors
    /// As [`Self::send`].
    fn flush(&mut self) -> io::Result<()>;

    /// Whether the client hung up while nothing was to be sent.
    fn is_gone(&self) -> bool;
}
