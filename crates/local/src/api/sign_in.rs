//! From a token of an issuer to an account of this machine, whose rights and jobs it stands for.

use std::time::SystemTime;

use phalanx_api::Peer;
use phalanx_api::http::NoPeer;
use phalanx_api::oidc::{Identity, Oidc, Refused};
use phalanx_api::protocol::Role;

use crate::server;
use crate::user;

/// Accounts of people have numbers from here on; those below are of the system.
const FIRST_UID_OF_PEOPLE: u32 = 1_000;
/// `nobody`, whose processes are those of many services.
const UID_OF_NOBODY: u32 = 65_534;

/// Who has a token of this issuer. Waits for the issuer if the key of the token is not known, and for the name service.
pub(super) fn peer(oidc: &Oidc, token: &str) -> Result<Peer, NoPeer> {
    let identity = oidc.identify(token, SystemTime::now()).map_err(|refused| match refused {
        Refused::Invalid(why) => NoPeer::Unauthorized(why),
        Refused::NoKeys => NoPeer::Unavailable(
            "the issuer of the token does not answer, and the key of the token is not known",
        ),
    })?;
    let away = NoPeer::Unavailable("the name service of this machine does not answer");
    let Ok(numbers) = user::by_name(&identity.account) else { return Err(away) };
    let unknown = || NoPeer::Forbidden(format!("this machine has no account {:?}", identity.account));
    let (uid, gid) = numbers.ok_or_else(unknown)?;
    check(uid, &identity)?;
    let peer = server::named(server::peer(uid, gid));
    if !peer.is_known {
        return Err(away);
    }
    // A directory may take another spelling, and two accounts may have one number.
    if peer.owner.name != identity.account {
        return Err(unknown());
    }
    Ok(Peer {
        is_operator: peer.is_operator || identity.role == Some(Role::Operator),
        is_reader: identity.role == Some(Role::Viewer),
        login: Some(identity.login).filter(|login| *login != peer.owner.name),
        cluster_user: None,
        ..peer
    })
}

/// An account of the system is for those alone whom the file names with it: an issuer may have a user called `root`.
fn check(uid: u32, identity: &Identity) -> Result<(), NoPeer> {
    let is_of_people = uid >= FIRST_UID_OF_PEOPLE && uid != UID_OF_NOBODY;
    if is_of_people || identity.is_listed {
        return Ok(());
    }
    let detail = format!(
        "the account {:?} is one of the system, which no user has by the name alone",
        identity.account
    );
    Err(NoPeer::Forbidden(detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_of_the_system_are_for_those_that_the_file_names() {
        let of =
            |is_listed| Identity { login: "x".to_owned(), account: "x".to_owned(), is_listed, role: None };
        for (uid, is_listed, is_good) in [
            (0, false, false),
            (0, true, true),
            (999, false, false),
            (1_000, false, true),
            (UID_OF_NOBODY, false, false),
            (UID_OF_NOBODY, true, true),
        ] {
            assert_eq!(check(uid, &of(is_listed)).is_ok(), is_good, "{uid} {is_listed}");
        }
    }
}
