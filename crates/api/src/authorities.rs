//! Certificates of authorities, from a file that has them in PEM.

use ureq::tls::{Certificate, PemItem, parse_pem};

/// The certificates among what the text has.
pub(crate) fn certificates(text: &[u8]) -> Vec<Certificate<'static>> {
    let items = parse_pem(text).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    items.collect()
}
