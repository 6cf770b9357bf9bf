//! Accounts of this host. The name service may be a directory in the network that hangs, so no thread that serves more
//! than one user waits for it: see [`cache`].

mod cache;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use phalanx_model::{Access, Owner};

use cache::Cache;
pub(crate) use cache::Unanswered;

/// How often a start asks again while the name service does not answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What the name service knows of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// The number where there is no name.
    pub(crate) name: String,
    pub(crate) home: String,
    /// Supplementary groups.
    pub(crate) groups: Vec<u32>,
}

static ACCOUNTS: LazyLock<Cache<(u32, u32), Account>> = LazyLock::new(|| Cache::new(look_up));
/// Numbers of user and group by the name of the account.
static NUMBERS: LazyLock<Cache<String, Option<(u32, u32)>>> =
    LazyLock::new(|| Cache::new(|name: &String| numbers(name)));
static GROUP_NAMES: LazyLock<Cache<u32, Option<String>>> = LazyLock::new(|| Cache::new(group_name));

/// An account that does not exist is known as one without a name and with one group. A service that says that it fails
/// is one that does not answer.
fn look_up(&(uid, gid): &(u32, u32)) -> Result<Account, String> {
    let failed = |e: nix::Error| e.to_string();
    let Some(user) = User::from_uid(Uid::from_raw(uid)).map_err(failed)? else {
        return Ok(Account { name: uid.to_string(), home: "/".to_owned(), groups: vec![gid] });
    };
    let name = std::ffi::CString::new(user.name.as_str()).map_err(|e| e.to_string())?;
    let groups = getgrouplist(&name, Gid::from_raw(gid)).map_err(failed)?;
    let groups = groups.into_iter().map(Gid::as_raw).collect();
    Ok(Account { name: user.name, home: user.dir.display().to_string(), groups })
}

/// The group of an account in the name service. Waits for it.
pub(crate) fn primary_group(uid: u32) -> Option<u32> {
    Some(User::from_uid(Uid::from_raw(uid)).ok()??.gid.as_raw())
}

fn group_name(gid: &u32) -> Result<Option<String>, String> {
    let group = Group::from_gid(Gid::from_raw(*gid)).map_err(|e| e.to_string())?;
    Ok(group.map(|group| group.name))
}

fn numbers(name: &str) -> Result<Option<(u32, u32)>, String> {
    let user = User::from_name(name).map_err(|e| e.to_string())?;
    Ok(user.map(|user| (user.uid.as_raw(), user.gid.as_raw())))
}

/// The numbers of user and group of an account. Waits for the name service, but not for long.
pub(crate) fn by_name(name: &str) -> Result<Option<(u32, u32)>, Unanswered> {
    NUMBERS.get(&name.to_owned())
}

/// The account of a user. Waits for the name service, but not for long.
pub(crate) fn account(uid: u32, gid: u32) -> Result<Account, Unanswered> {
    ACCOUNTS.get(&(uid, gid))
}

/// The account of a user, if it was looked up a short time ago. Does not wait.
pub(crate) fn known(owner: &Owner) -> Option<Account> {
    ACCOUNTS.fresh(&(owner.uid, owner.gid))
}

/// The account of a user. Asks again until the name service answers, or it is time.
pub(crate) fn insist(owner: &Owner, patience: Duration) -> Result<Account, Unanswered> {
    let until = Instant::now() + patience;
    loop {
        match account(owner.uid, owner.gid) {
            Err(_) if Instant::now() < until => std::thread::sleep(ASK_AGAIN),
            answer => return answer,
        }
    }
}

/// A user as the rules of the queue file name users.
#[derive(Clone, Debug)]
pub(crate) struct Names<'a> {
    owner: &'a Owner,
    /// The groups by number and by name.
    groups: Vec<String>,
}

impl<'a> Names<'a> {
    /// `with_groups` if any rule names a group.
    pub(crate) fn of(owner: &'a Owner, with_groups: bool) -> Result<Self, Unanswered> {
        let mut groups = Vec::new();
        if with_groups {
            let mut own = account(owner.uid, owner.gid)?.groups;
            own.push(owner.gid);
            for gid in own {
                groups.push(gid.to_string());
                groups.extend(GROUP_NAMES.get(&gid)?);
            }
        }
        Ok(Self { owner, groups })
    }

    /// Whether a rule names the user: by name or number, by a group, or as every account.
    pub(crate) fn are_in(&self, access: &Access) -> bool {
        let is_user = |said: &String| self.owner.is_meant_by(said);
        access.users.iter().any(is_user) || access.groups.iter().any(|said| self.groups.contains(said))
    }
}
