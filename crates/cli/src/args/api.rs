//! Where `phalanx up` serves the API, and to whom.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use phalanx_api::http::CertificateFiles;
use phalanx_local::daemon::{ApiAt, ApiTls};

use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct Api {
    /// Serve the API and the dashboard on this address, without `--api-cert` a loopback address; `auto`: on one from when
    /// somebody first asks for the dashboard or a token on; `off`: nowhere.
    #[arg(long = "api", value_name = "ADDRESS", default_value = "auto", value_parser = api_at)]
    pub(crate) at: ApiAt,
    /// Serve the API over TLS with this certificate: PEM, the certificate of this server first, then the intermediate ones. A
    /// renewed certificate is taken up without a restart.
    #[arg(long = "api-cert", value_name = "FILE", value_hint = ValueHint::FilePath, requires = "key")]
    certificate: Option<PathBuf>,
    /// The private key of `--api-cert`: PEM, without a passphrase, and not readable by others.
    #[arg(long = "api-key", value_name = "FILE", value_hint = ValueHint::FilePath, requires = "certificate")]
    key: Option<PathBuf>,
    /// A host, with a port if it is another, under which clients ask beside those that the certificate names. May be given
    /// several times; the first is in the addresses that are printed.
    #[arg(long = "api-name", value_name = "HOST", requires = "certificate", value_parser = host)]
    names: Vec<String>,
    /// Take tokens of an OpenID Connect issuer too: this YAML file says of which, and which account of this machine each user
    /// has.
    #[arg(long = "api-oidc", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) oidc: Option<PathBuf>,
}

impl Api {
    pub(crate) fn tls(&self) -> Option<ApiTls> {
        let (certificate, key) = (self.certificate.clone()?, self.key.clone()?);
        Some(ApiTls { files: CertificateFiles { certificate, key }, names: self.names.clone() })
    }

    /// The same flags for another process, which runs in another folder.
    pub(crate) fn flags(&self) -> Result<Vec<String>, Failure> {
        let mut flags = vec![match self.at {
            ApiAt::WhenAsked => "--api=auto".to_owned(),
            ApiAt::Nowhere => "--api=off".to_owned(),
            ApiAt::Address(at) => format!("--api={at}"),
        }];
        let files = [("--api-cert", &self.certificate), ("--api-key", &self.key), ("--api-oidc", &self.oidc)];
        for (flag, file) in files {
            let Some(file) = file else { continue };
            let whole = std::path::absolute(file).map_err(|e| Failure::file("find", file, &e))?;
            let path = whole.to_str().ok_or_else(|| {
                Failure::usage(format!("the path {} is no UTF-8", file.display()), "name another file")
            })?;
            flags.push(format!("{flag}={path}"));
        }
        flags.extend(self.names.iter().map(|name| format!("--api-name={name}")));
        Ok(flags)
    }
}

fn api_at(text: &str) -> Result<ApiAt, String> {
    match text {
        "auto" => Ok(ApiAt::WhenAsked),
        "off" => Ok(ApiAt::Nowhere),
        address => {
            let expected = |_| "expected auto, off, or an address such as 127.0.0.1:7077".to_owned();
            address.parse().map(ApiAt::Address).map_err(expected)
        }
    }
}

fn host(text: &str) -> Result<String, String> {
    phalanx_api::http::check_host_name(text).map(|()| text.to_owned())
}
