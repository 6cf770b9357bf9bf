//! Tokens with which programs and browsers ask in the name of a user. Only their digests are kept.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use phalanx_model::{Owner, Timestamp};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::protocol::{TOKEN_MS_MAX, TOKEN_NAME_CHARS_MAX, TokenAsk, TokenView};

/// Begins every token, so that people and scanners of leaked secrets know one.
const PREFIX: &str = "phx_";
/// Random bytes of a token.
const BYTES: usize = 32;
/// Valid tokens that one user may have.
const OF_USER_MAX: usize = 64;
/// Tokens of pages begin so. Of one user so many are kept, the newest: nobody revokes those of pages that were closed.
const OF_PAGE: &str = "dashboard-";
const OF_PAGES_MAX: usize = 16;
/// The file may be this long: many more tokens than people make.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Why a token is not made or not revoked.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("{0:?} is no name of a token")]
    Name(String),
    #[error("a token is valid for at most {} days", TOKEN_MS_MAX / 86_400_000)]
    Life,
    #[error("a user may have {OF_USER_MAX} tokens")]
    Many,
    #[error("there is a token {0:?}")]
    Taken(String),
    #[error("no token {0:?}")]
    Unknown(String),
    #[error("tokens cannot be written: {0}")]
    Io(#[from] io::Error),
    #[error("the system gives no random numbers")]
    Random,
}

/// All tokens of a daemon, in memory and in a file that only the daemon's user reads.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    kept: Mutex<BTreeMap<String, Kept>>,
}

/// A token as the file has it, under its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    name: String,
    owner: Owner,
    read_only: bool,
    created_at: Timestamp,
    expires_at: Timestamp,
}

impl Kept {
    fn view(&self) -> TokenView {
        TokenView {
            name: self.name.clone(),
            user: self.owner.name.clone(),
            uid: self.owner.uid,
            read_only: self.read_only,
            created_at: self.created_at,
            expires_at: self.expires_at,
        }
    }
}

impl Tokens {
    /// Reads the file; without one there are no tokens.
    ///
    /// # Errors
    /// When the file cannot be read, is too long, or is damaged.
    pub fn open(path: &Path) -> io::Result<Self> {
        let kept = match File::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(e),
            Ok(file) if file.metadata()?.len() > FILE_BYTES_MAX => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too long"));
            }
            Ok(file) => serde_json::from_reader(io::BufReader::new(file))?,
        };
        Ok(Self { path: path.to_owned(), kept: Mutex::new(kept) })
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<String, Kept>> {
        // Each change is one insertion or one removal.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a token can be made so at all.
    ///
    /// # Errors
    /// When the name or the life will not do.
    pub fn check(ask: &TokenAsk) -> Result<(), TokenError> {
        check_name(&ask.name)?;
        if ask.for_ms == 0 || ask.for_ms > TOKEN_MS_MAX {
            return Err(TokenError::Life);
        }
        Ok(())
    }

    /// Makes a token for a user. Its text is given once and never again.
    ///
    /// # Errors
    /// When the name or the life will not do, the user has too many, or the file cannot be written: there is no token then.
    pub fn create(
        &self,
        owner: &Owner,
        ask: &TokenAsk,
        now: Timestamp,
    ) -> Result<(String, TokenView), TokenError> {
        Self::check(ask)?;
        let mut random = [0; BYTES];
        SystemRandom::new().fill(&mut random).map_err(|_| TokenError::Random)?;
        let text = format!("{PREFIX}{}", hex(&random));
        let token = Kept {
            name: ask.name.clone(),
            owner: owner.clone(),
            read_only: ask.read_only,
            created_at: now,
            expires_at: Timestamp(now.0.saturating_add(ask.for_ms)),
        };
        let view = token.view();
        let mut kept = self.kept();
        let mut changed = kept.clone();
        changed.retain(|_, token| token.expires_at > now);
        if ask.name.starts_with(OF_PAGE) {
            keep_newest_pages(&mut changed, owner.uid);
        }
        let of_user = || changed.values().filter(|token| token.owner.uid == owner.uid);
        if of_user().any(|token| token.name == ask.name) {
            return Err(TokenError::Taken(ask.name.clone()));
        }
        if of_user().count() >= OF_USER_MAX {
            return Err(TokenError::Many);
        }
        changed.insert(digest_of(&text), token);
        write(&self.path, &changed)?;
        *kept = changed;
        Ok((text, view))
    }

    /// Whose token this is, and whether it only reads, if it is valid now.
    #[must_use]
    pub fn find(&self, text: &str, now: Timestamp) -> Option<(Owner, bool)> {
        if text.len() != PREFIX.len() + 2 * BYTES {
            return None;
        }
        // The digest is looked up, so the time that takes says nothing of the text.
        let kept = self.kept();
        let token = kept.get(&digest_of(text)).filter(|token| token.expires_at > now)?;
        Some((token.owner.clone(), token.read_only))
    }

    /// Tokens that are valid, of one user or of all, by user and name.
    #[must_use]
    pub fn list(&self, uid: Option<u32>, now: Timestamp) -> Vec<TokenView> {
        let kept = self.kept();
        let valid = kept.values().filter(|token| token.expires_at > now);
        let mut views: Vec<TokenView> =
            valid.filter(|token| uid.is_none_or(|uid| token.owner.uid == uid)).map(Kept::view).collect();
        views.sort_by(|a, b| (a.uid, &a.name).cmp(&(b.uid, &b.name)));
        views
    }

    /// From now on a token is not valid.
    ///
    /// # Errors
    /// When the user has no such token, or the file cannot be written: it is still valid then.
    pub fn revoke(&self, uid: u32, name: &str) -> Result<(), TokenError> {
        let mut kept = self.kept();
        let mut changed = kept.clone();
        changed.retain(|_, token| token.owner.uid != uid || token.name != name);
        if changed.len() == kept.len() {
            return Err(TokenError::Unknown(name.to_owned()));
        }
        write(&self.path, &changed)?;
        *kept = changed;
        Ok(())
    }
}

/// Leaves room for one more page of a user.
fn keep_newest_pages(kept: &mut BTreeMap<String, Kept>, uid: u32) {
    let of_page = |token: &Kept| token.owner.uid == uid && token.name.starts_with(OF_PAGE);
    let mut pages: Vec<(Timestamp, String)> = kept
        .iter()
        .filter(|(_, token)| of_page(token))
        .map(|(digest, token)| (token.created_at, digest.clone()))
        .collect();
    pages.sort_unstable();
    let surplus = (pages.len() + 1).saturating_sub(OF_PAGES_MAX);
    for (_, digest) in pages.into_iter().take(surplus) {
        kept.remove(&digest);
    }
}

fn check_name(name: &str) -> Result<(), TokenError> {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    let is_good = !name.is_empty() && name.len() <= TOKEN_NAME_CHARS_MAX && name.chars().all(is_word);
    if is_good { Ok(()) } else { Err(TokenError::Name(name.to_owned())) }
}

/// Beside the file and then in its place, so that it is never half written.
fn write(path: &Path, kept: &BTreeMap<String, Kept>) -> io::Result<()> {
    let beside = path.with_extension("new");
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&beside)?;
    file.write_all(&serde_json::to_vec_pretty(kept)?)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    // A token that was revoked is not valid again after a loss of power.
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

fn digest_of(text: &str) -> String {
    hex(digest(&SHA256, text.as_bytes()).as_ref())
}

/// Two digits for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const HOUR: u64 = 3_600_000;

    fn owner(uid: u32) -> Owner {
        Owner { uid, gid: uid, name: format!("u{uid}") }
    }

    fn ask(name: &str, for_ms: u64) -> TokenAsk {
        TokenAsk { name: name.to_owned(), read_only: false, for_ms }
    }

    #[test]
    fn a_token_is_valid_until_it_expires_or_is_revoked_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.json");
        let now = Timestamp(1_000);
        let tokens = Tokens::open(&path).unwrap();
        let (text, view) = tokens.create(&owner(7), &ask("ci", HOUR), now).unwrap();
        assert_eq!((view.uid, view.expires_at), (7, Timestamp(1_000 + HOUR)));
        let reader = TokenAsk { read_only: true, ..ask("wall", HOUR) };
        let (reading, _) = tokens.create(&owner(8), &reader, now).unwrap();
        let file = fs::read_to_string(&path).unwrap();
        assert!(!file.contains(&text) && !file.contains(&text[PREFIX.len()..]), "{file}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let tokens = Tokens::open(&path).unwrap();
        assert_eq!(tokens.find(&text, now), Some((owner(7), false)));
        assert_eq!(tokens.find(&reading, now), Some((owner(8), true)));
        assert_eq!(tokens.find(&text, Timestamp(1_000 + HOUR)), None);
        assert_eq!(tokens.find(&format!("{PREFIX}{}", "0".repeat(64)), now), None);
        assert_eq!(tokens.find("", now), None);
        assert_eq!(tokens.list(Some(8), now).len(), 1);
        assert_eq!(tokens.list(None, now).len(), 2);
        assert!(matches!(tokens.revoke(8, "ci"), Err(TokenError::Unknown(_))), "somebody else's");
        tokens.revoke(7, "ci").unwrap();
        assert_eq!(Tokens::open(&path).unwrap().find(&text, now), None);
    }

    #[test]
    fn names_lives_and_numbers_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(&dir.path().join("tokens.json")).unwrap();
        let now = Timestamp(0);
        let create = |name: &str, for_ms| tokens.create(&owner(1), &ask(name, for_ms), now);
        for name in ["", "a b", "../x", "é", &"x".repeat(TOKEN_NAME_CHARS_MAX + 1)] {
            assert!(matches!(create(name, HOUR), Err(TokenError::Name(_))), "{name}");
        }
        assert!(matches!(create("a", 0), Err(TokenError::Life)));
        assert!(matches!(create("a", TOKEN_MS_MAX + 1), Err(TokenError::Life)));
        for i in 0..OF_USER_MAX {
            create(&format!("t{i}"), HOUR).unwrap();
        }
        assert!(matches!(create("t0", HOUR), Err(TokenError::Taken(_))));
        assert!(matches!(create("more", HOUR), Err(TokenError::Many)));
        tokens.create(&owner(2), &ask("t0", HOUR), now).unwrap();
        for i in 0..2 * OF_PAGES_MAX {
            tokens.create(&owner(3), &ask(&format!("dashboard-{i:02}"), HOUR), Timestamp(i as u64)).unwrap();
        }
        let pages = tokens.list(Some(3), now);
        assert_eq!((pages.len(), pages[0].name.as_str()), (OF_PAGES_MAX, "dashboard-16"), "the newest");
        tokens.create(&owner(1), &ask("t0", HOUR), Timestamp(HOUR)).unwrap();
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.json");
        fs::write(&path, "{\"x\":").unwrap();
        assert!(Tokens::open(&path).is_err());
    }
}
