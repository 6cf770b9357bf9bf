//! The file of `--api-oidc`: which issuer, for whom, and with what rights.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use axum::http::Uri;
use phalanx_spec::{At, FILE_BYTES_MAX, Scalar, SpecError, from_yaml};
use schemars::{Schema, json_schema};
use serde::Deserialize;

use crate::guarded::{self, Unread};

const NAME_CHARS_MAX: usize = 256;
const USERNAME_CLAIM: &str = "preferred_username";
const GROUPS_CLAIM: &str = "groups";
/// Bits of the mode of files that give rights: other users must not change them.
const CHANGED_BY_OTHERS: u32 = 0o022;

/// Why nobody can sign in with `OpenID` Connect.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("other users can change {} (mode {mode:03o}), and it gives rights: `chmod go-w {}`", path.display(), path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("{} is longer than {FILE_BYTES_MAX} bytes", .0.display())]
    Long(PathBuf),
    #[error("{} has no certificate that can be read: expected PEM (`-----BEGIN CERTIFICATE-----`)", .0.display())]
    NoCertificate(PathBuf),
    #[error(transparent)]
    Spec(#[from] SpecError),
}

/// What the file says.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) issuer: String,
    pub(super) audience: String,
    pub(super) username_claim: String,
    /// Accounts by the value of the claim.
    pub(super) users: BTreeMap<String, String>,
    pub(super) groups_claim: String,
    pub(super) operators: BTreeSet<String>,
    pub(super) viewers: BTreeSet<String>,
    pub(super) ca_file: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OidcFile {
    issuer: At<Issuer>,
    audience: At<Name>,
    username_claim: Option<At<Name>>,
    #[serde(default)]
    users: BTreeMap<At<Name>, At<Name>>,
    groups_claim: Option<At<Name>>,
    #[serde(default)]
    operators: Vec<At<Name>>,
    #[serde(default)]
    viewers: Vec<At<Name>>,
    ca_file: Option<At<Name>>,
}

/// The address of an issuer, as its tokens have it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Issuer(String);

/// A name or a value that is compared and not looked into.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Name(String);

impl Scalar for Issuer {
    const ACCEPTED: &'static str =
        "the address of the issuer exactly as its tokens have it, such as https://id.example.com/realms/lab";

    fn read(text: &str) -> Result<Self, String> {
        let is_good = text.parse().is_ok_and(|uri: Uri| {
            let has_host =
                uri.authority().is_some_and(|of| !of.as_str().contains('@') && !of.host().is_empty());
            uri.scheme_str() == Some("https") && has_host && uri.query().is_none()
        });
        if is_good && !text.contains('#') {
            return Ok(Self(text.to_owned()));
        }
        Err("is not the https:// address of an issuer".to_owned())
    }

    fn write(&self) -> String {
        self.0.clone()
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "format": "uri" })
    }
}

impl Scalar for Name {
    const ACCEPTED: &'static str = "1 to 256 characters, without control characters";

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.chars().count() > NAME_CHARS_MAX || text.chars().any(char::is_control) {
            return Err("is empty, too long, or has control characters".to_owned());
        }
        Ok(Self(text.to_owned()))
    }

    fn write(&self) -> String {
        self.0.clone()
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX })
    }
}

/// Reads the file, and the certificates that it names.
pub(super) fn read(path: &Path) -> Result<Settings, OidcError> {
    let text = read_unchanged_by_others(path)?;
    let text = String::from_utf8(text).map_err(|e| OidcError::Unreadable {
        path: path.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, e.utf8_error().to_string()),
    })?;
    let settings = parse(&text, path)?;
    super::fetch::authorities(&settings)?;
    Ok(settings)
}

fn parse(text: &str, path: &Path) -> Result<Settings, OidcError> {
    let file: OidcFile = from_yaml(text, &path.display().to_string())?;
    let name =
        |given: Option<At<Name>>, default: &str| given.map_or_else(|| default.to_owned(), |at| at.value.0);
    let names = |given: Vec<At<Name>>| given.into_iter().map(|at| at.value.0).collect();
    // Beside the file, wherever the daemon runs.
    let beside = |at: At<Name>| path.parent().unwrap_or_else(|| Path::new("")).join(at.value.0);
    Ok(Settings {
        issuer: file.issuer.value.0,
        audience: file.audience.value.0,
        username_claim: name(file.username_claim, USERNAME_CLAIM),
        users: file.users.into_iter().map(|(claim, account)| (claim.value.0, account.value.0)).collect(),
        groups_claim: name(file.groups_claim, GROUPS_CLAIM),
        operators: names(file.operators),
        viewers: names(file.viewers),
        ca_file: file.ca_file.map(beside),
    })
}

/// The bytes of a file that gives rights.
pub(super) fn read_unchanged_by_others(path: &Path) -> Result<Vec<u8>, OidcError> {
    let path = path.to_owned();
    guarded::read(&path, FILE_BYTES_MAX as u64, CHANGED_BY_OTHERS).map_err(|unread| match unread {
        Unread::Failed(source) => OidcError::Unreadable { path, source },
        Unread::Open { mode } => OidcError::Open { path, mode },
        Unread::Long => OidcError::Long(path),
    })
}

#[cfg(test)]
impl Settings {
    pub(super) fn of(text: &str) -> Self {
        parse(text, Path::new("/etc/phalanx/oidc.yaml")).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_file_says_who_signs_in() {
        let least = Settings::of("issuer: https://id.example\naudience: phalanx\n");
        assert_eq!(
            (least.username_claim.as_str(), least.groups_claim.as_str()),
            (USERNAME_CLAIM, GROUPS_CLAIM)
        );
        let whole = Settings::of(
            "issuer: https://id.example/realms/lab/\naudience: phalanx\nusername_claim: sub\n\
             users: {'f:1:ada': ada, 007: bond}\ngroups_claim: roles\noperators: [gpu-admins]\nviewers: [auditors]\n\
             ca_file: ca.pem\n",
        );
        assert_eq!(whole.issuer, "https://id.example/realms/lab/");
        assert_eq!(whole.users["f:1:ada"], "ada");
        assert_eq!(whole.users["007"], "bond", "as it was typed");
        assert_eq!(whole.ca_file.unwrap(), Path::new("/etc/phalanx/ca.pem"), "beside the file");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let wrong = |text: &str| parse(text, Path::new("oidc.yaml")).unwrap_err().to_string();
        for (text, says) in [
            ("audience: a\n", "issuer"),
            ("issuer: https://id.example\n", "audience"),
            ("issuer: http://id.example\naudience: a\n", "https://"),
            ("issuer: https://ada@id.example\naudience: a\n", "https://"),
            ("issuer: https://id.example/?x=1\naudience: a\n", "https://"),
            ("issuer: https://id.example/#x\naudience: a\n", "https://"),
            ("issuer: https://id.example\naudience: ''\n", "is empty"),
            ("issuer: https://id.example\naudience: a\noperator: [x]\n", "operator"),
            ("issuer: https://id.example\naudience: a\nusers: {ada: }\n", "users"),
        ] {
            let said = wrong(text);
            assert!(said.contains(says) && said.starts_with("oidc.yaml:"), "{said}");
        }
    }

    #[test]
    fn a_file_that_others_can_change_gives_no_rights() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("oidc.yaml");
        fs::write(&path, "issuer: https://id.example\naudience: a\nca_file: ca.pem\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("(mode 664)"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let said = read(&path).unwrap_err().to_string();
        assert!(said.starts_with("cannot read ") && said.contains("ca.pem"), "{said}");
        fs::write(folder.path().join("ca.pem"), "nothing").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("ca.pem has no certificate"));
    }
}
