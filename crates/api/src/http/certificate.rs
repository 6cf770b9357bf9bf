//! The certificate of the server: read when it starts, and again when its files change.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use crate::guarded::{self, Unread};

/// A certificate with its chain, and a key, have far fewer bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Bits of the key's mode that nobody may have: the group may read it, for `ssl-cert` and the like.
const OPEN_TO_OTHERS: u32 = 0o027;
/// HTTP/2 is not spoken.
const PROTOCOL: &[u8] = b"http/1.1";

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is longer than {FILE_BYTES_MAX} bytes: expected a PEM file", .0.display())]
    Long(PathBuf),
    #[error(
        "{} has no certificate that can be read: expected PEM (`-----BEGIN CERTIFICATE-----`), the certificate of this server \
         first, intermediate ones after it",
        .0.display()
    )]
    NoCertificate(PathBuf),
    #[error(
        "{} has no private key that can be read: expected PEM (`-----BEGIN PRIVATE KEY-----`) without a passphrase",
        .0.display()
    )]
    NoKey(PathBuf),
    #[error("other users can read or change the private key {} (mode {mode:03o}): `chmod 600 {}`", path.display(), path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("the private key in {} does not belong to the certificate in {}", key.display(), certificate.display())]
    OtherKey { key: PathBuf, certificate: PathBuf },
    #[error("the certificate in {} cannot be used: {why}", path.display())]
    Unusable { path: PathBuf, why: String },
    #[error("the certificate in {} expired at {at}: renew it", path.display())]
    Expired { path: PathBuf, at: String },
    #[error("the certificate in {} is valid from {at} on: is the clock of this machine right?", path.display())]
    Early { path: PathBuf, at: String },
}

/// Where the certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The certificate that new connections get.
#[derive(Debug)]
pub struct Certificate {
    files: CertificateFiles,
    current: RwLock<Arc<Loaded>>,
}

#[derive(Debug)]
struct Loaded {
    configuration: Arc<ServerConfig>,
    /// The certificate of the server itself.
    own: CertificateDer<'static>,
}

/// Which files were read: they are replaced or rewritten when a certificate is renewed.
type Print = [Option<(u64, u64, i64, i64)>; 2];

/// What is known of a renewal between two looks.
#[derive(Debug)]
pub(crate) struct Renewal {
    /// The files whose certificate is in use, or could not be used.
    known: Print,
    /// The files as they were at the last look: they are read once they no longer change.
    seen: Print,
    has_expired: bool,
}

impl Certificate {
    /// Reads the files.
    ///
    /// # Errors
    /// When they cannot be read or used, the certificate is not valid now, or other users can read the key.
    pub fn open(files: CertificateFiles) -> Result<Self, CertificateError> {
        let loaded = load(&files, UnixTime::now())?;
        Ok(Self { files, current: RwLock::new(Arc::new(loaded)) })
    }

    fn current(&self) -> Arc<Loaded> {
        // It is replaced as a whole.
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What a new connection gets.
    #[must_use]
    pub fn configuration(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current().configuration)
    }

    /// Whether it is for a name or an address.
    #[must_use]
    pub fn is_for(&self, host: &str) -> bool {
        let loaded = self.current();
        let Ok(name) = ServerName::try_from(host) else { return false };
        parsed(&loaded.own).is_ok_and(|own| own.verify_is_valid_for_subject_name(&name).is_ok())
    }

    /// The names that it is for, wildcards and addresses left out.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let loaded = self.current();
        let Ok(own) = parsed(&loaded.own) else { return Vec::new() };
        own.valid_dns_names().filter(|name| !name.contains('*')).map(str::to_owned).collect()
    }

    /// The host under which people ask a server that listens on this address.
    #[must_use]
    pub fn host(&self, at: IpAddr) -> Option<String> {
        let address = || {
            (!at.is_unspecified() && self.is_for(&at.to_string())).then(|| match at {
                IpAddr::V4(at) => at.to_string(),
                IpAddr::V6(at) => format!("[{at}]"),
            })
        };
        let name = || self.names().into_iter().next();
        // A name of the machine may lead to another of its addresses, where a loopback server does not listen.
        if at.is_loopback() { address().or_else(name) } else { name().or_else(address) }
    }

    pub(crate) fn renewal(&self) -> Renewal {
        let print = print(&self.files);
        Renewal { known: print, seen: print, has_expired: false }
    }

    /// Reads the files again if they changed. If they cannot be used, the old certificate stays.
    pub(crate) fn look(&self, renewal: &mut Renewal) {
        let (print, now) = (print(&self.files), UnixTime::now());
        let is_settled = std::mem::replace(&mut renewal.seen, print) == print;
        if print != renewal.known && is_settled {
            renewal.known = print;
            match load(&self.files, now) {
                Ok(loaded) => {
                    *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
                    renewal.has_expired = false;
                    tracing::info!(file = %self.files.certificate.display(), "the API has a new certificate");
                }
                Err(error) => {
                    tracing::warn!(%error, "the new certificate of the API is not used; the old one stays");
                }
            }
        }
        let expired = check_dates(&self.current().own, &self.files.certificate, now).err();
        if let Some(error) = expired.filter(|_| !std::mem::replace(&mut renewal.has_expired, true)) {
            tracing::warn!(%error, "clients of the API refuse its certificate");
        }
    }
}

fn print(files: &CertificateFiles) -> Print {
    [&files.certificate, &files.key].map(|path| {
        let of = fs::metadata(path).ok()?;
        // A mode that was corrected changes it, too.
        Some((of.ino(), of.len(), of.ctime(), of.ctime_nsec()))
    })
}

fn load(files: &CertificateFiles, now: UnixTime) -> Result<Loaded, CertificateError> {
    let path = &files.certificate;
    let none = || CertificateError::NoCertificate(path.clone());
    let text = read(path, 0)?;
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>().map_err(|_| none())?;
    let own = chain.first().ok_or_else(none)?.clone();
    check_dates(&own, path, now)?;
    let key = read(&files.key, OPEN_TO_OTHERS)?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| CertificateError::NoKey(files.key.clone()))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let unusable = |e: rustls::Error| CertificateError::Unusable { path: path.clone(), why: e.to_string() };
    let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?;
    let made = builder.with_no_client_auth().with_single_cert(chain, key);
    let mut configuration = made.map_err(|e| match e {
        rustls::Error::InconsistentKeys(_) => {
            CertificateError::OtherKey { key: files.key.clone(), certificate: path.clone() }
        }
        rustls::Error::General(_) => CertificateError::NoKey(files.key.clone()),
        e => unusable(e),
    })?;
    configuration.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Loaded { configuration: Arc::new(configuration), own })
}

/// The bytes of a file whose mode has none of these bits.
fn read(path: &Path, forbidden: u32) -> Result<Vec<u8>, CertificateError> {
    let path = path.to_owned();
    guarded::read(&path, FILE_BYTES_MAX, forbidden).map_err(|unread| match unread {
        Unread::Failed(source) => CertificateError::Unreadable { path, source },
        Unread::Open { mode } => CertificateError::Open { path, mode },
        Unread::Long => CertificateError::Long(path),
    })
}

fn parsed<'a>(der: &'a CertificateDer<'a>) -> Result<EndEntityCert<'a>, webpki::Error> {
    EndEntityCert::try_from(der)
}

/// Whether it is a certificate of a server that is valid now. Whom clients trust is theirs to know: no issuer is looked for.
fn check_dates(own: &CertificateDer<'_>, path: &Path, now: UnixTime) -> Result<(), CertificateError> {
    let unusable =
        |e: webpki::Error| CertificateError::Unusable { path: path.to_owned(), why: e.to_string() };
    let parsed = parsed(own).map_err(unusable)?;
    // Dates and usage are looked at first, and then no issuer is found, for none is given.
    match parsed.verify_for_usage(&[], &[], &[], now, KeyUsage::server_auth(), None, None) {
        Err(webpki::Error::CertExpired { not_after, .. }) => {
            Err(CertificateError::Expired { path: path.to_owned(), at: clock(not_after) })
        }
        Err(webpki::Error::CertNotValidYet { not_before, .. }) => {
            Err(CertificateError::Early { path: path.to_owned(), at: clock(not_before) })
        }
        Err(
            e @ (webpki::Error::BadDer
            | webpki::Error::InvalidCertValidity
            | webpki::Error::RequiredEkuNotFoundContext(_)
            | webpki::Error::EmptyEkuExtension),
        ) => Err(unusable(e)),
        _ => Ok(()),
    }
}

fn clock(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).ok();
    let time = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.map_or_else(|| "another time".to_owned(), |time| time.to_string())
}

#[cfg(test)]
mod tests;
