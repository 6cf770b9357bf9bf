//! Accounts of this host.

use nix::unistd::{Gid, Uid, User, getgrouplist};
use phalanx_model::Owner;

/// Who a uid is; its number where it has no name.
pub(crate) fn owner(uid: u32, gid: u32) -> Owner {
    let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let name = known.map_or_else(|| uid.to_string(), |u| u.name);
    Owner { uid, gid, name }
}

pub(crate) fn home(uid: u32) -> String {
    let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    known.map_or_else(|| "/".to_owned(), |u| u.dir.display().to_string())
}

/// Supplementary groups of a user.
pub(crate) fn groups(owner: &Owner) -> Vec<u32> {
    let name = std::ffi::CString::new(owner.name.as_str()).unwrap_or_default();
    let groups = getgrouplist(&name, Gid::from_raw(owner.gid)).unwrap_or_default();
    groups.into_iter().map(Gid::as_raw).collect()
}
