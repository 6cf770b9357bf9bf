//! Sign-in with `OpenID` Connect: tokens that an issuer signed, for accounts of this machine.
//!
//! A token is checked with the keys that the issuer publishes. They are fetched on a thread of their own, [`Oidc::keep_keys`].

mod fetch;
mod file;
mod keys;
mod token;

use std::path::Path;
use std::time::SystemTime;

use phalanx_model::Timestamp;

pub use file::OidcError;
use file::Settings;
use keys::Keys;

use crate::protocol::Role;

/// Bytes of a token at most.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Who may sign in, and with which keys.
#[derive(Debug)]
pub struct Oidc {
    settings: Settings,
    keys: Keys,
}

/// Whom a token names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The value of the claim that names users.
    pub login: String,
    /// The account of this machine.
    pub account: String,
    /// The file names the account, so it may be one of the system.
    pub is_listed: bool,
    /// Of the groups of the user; without one the rights are those of the account.
    pub role: Option<Role>,
}

/// Why a token names nobody. The texts repeat nothing of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The token is not valid.
    Invalid(&'static str),
    /// The issuer does not answer, and the key of the token is not known.
    NoKeys,
}

/// When a token of an issuer says that it expires. Nothing of the token is checked, so this bounds only how long an answer
/// about it is kept.
#[must_use]
pub fn expiry(token: &str) -> Option<Timestamp> {
    token::expiry(token).filter(|_| Oidc::is_one(token))
}

impl Oidc {
    /// Reads the file. The issuer is not asked yet.
    ///
    /// # Errors
    /// When the file cannot be read, is wrong, or other users can change it.
    pub fn open(path: &Path) -> Result<Self, OidcError> {
        Ok(Self { settings: file::read(path)?, keys: Keys::default() })
    }

    /// The address of the issuer, as tokens have it.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    /// Fetches the keys, again and again; does not return.
    pub fn keep_keys(&self) {
        self.keys.keep(self.issuer(), &|| fetch::keys(&self.settings));
    }

    /// Whether a token looks like one of an issuer: its first part is a JSON object.
    #[must_use]
    pub fn is_one(token: &str) -> bool {
        token.starts_with("eyJ") && token.split('.').count() == 3
    }

    /// Whom a token names. Waits for seconds if its key is to be fetched.
    ///
    /// # Errors
    /// When the token is not valid, or that cannot be known.
    pub fn identify(&self, token: &str, now: SystemTime) -> Result<Identity, Refused> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refused::Invalid("the token is too long"));
        }
        let parts = token::split(token)?;
        let key = self.keys.find(parts.header.kid.as_deref(), parts.header.algorithm)?;
        if !key.has_signed(parts.header.algorithm, parts.signed, &parts.signature) {
            return Err(Refused::Invalid("the signature of the token is not one of its issuer"));
        }
        token::identity(&parts.payload, &self.settings, now)
    }
}

#[cfg(test)]
mod tests;
