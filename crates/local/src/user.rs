//! Accounts of this host.

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use phalanx_model::{Access, Owner};

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

/// Whether an account is named: by its name or number, or as every account.
pub(crate) fn is_named(owner: &Owner, access: &Access) -> bool {
    let is_user = |said: &String| {
        said == Access::ALL || *said == owner.name || said.parse().is_ok_and(|uid: u32| uid == owner.uid)
    };
    if access.users.iter().any(is_user) {
        return true;
    }
    if access.groups.is_empty() {
        return false;
    }
    let mut own = groups(owner);
    own.push(owner.gid);
    let name = |gid: u32| Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name);
    own.into_iter().any(|gid| {
        let (number, name) = (gid.to_string(), name(gid));
        access.groups.iter().any(|said| *said == number || Some(said) == name.as_ref())
    })
}

/// Supplementary groups of a user.
pub(crate) fn groups(owner: &Owner) -> Vec<u32> {
    let name = std::ffi::CString::new(owner.name.as_str()).unwrap_or_default();
    let groups = getgrouplist(&name, Gid::from_raw(owner.gid)).unwrap_or_default();
    groups.into_iter().map(Gid::as_raw).collect()
}
